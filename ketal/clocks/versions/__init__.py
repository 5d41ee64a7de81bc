"""Clocks that decide which versions of a replicated object are newest."""
