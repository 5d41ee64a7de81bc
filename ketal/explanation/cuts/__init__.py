"""Consistent cuts and linear extensions, counted and drawn: `ketal cuts`."""
