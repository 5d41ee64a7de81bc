"""Identifies records before any order or pattern: new, duplicate, and of which incarnation."""
