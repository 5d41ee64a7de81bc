"""Clocks drawn: as areas, as trees, as stamps along timelines."""
