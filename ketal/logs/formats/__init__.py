"""The formats of logs, a module each: records to items."""
