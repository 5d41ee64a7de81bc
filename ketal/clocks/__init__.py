"""Timestamping schemes: what a node attaches to an event or a message, a module each."""
