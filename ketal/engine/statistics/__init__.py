"""What the events of a run met: masks, names, kinds of values."""
