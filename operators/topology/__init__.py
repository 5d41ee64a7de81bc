"""Domains of a topology, and the order they keep."""
