"""Statistics of a run's events: their masks, their names, the kinds of their values."""
