"""Clocks as text, as the field writes them."""
