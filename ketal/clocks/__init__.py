"""Timestamping schemes, one module each: the stamps that nodes attach to events and messages."""
