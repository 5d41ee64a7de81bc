"""What is in a log: `ketal stats`."""
