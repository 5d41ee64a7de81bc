"""Programs: compiled pattern files."""
