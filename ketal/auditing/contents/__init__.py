"""The contents of a log: `ketal stats`."""
