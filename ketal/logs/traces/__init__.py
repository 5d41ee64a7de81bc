"""Clocks rebuilt from spans and messages."""
