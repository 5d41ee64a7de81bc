"""Programs: pattern files, read and compiled."""
