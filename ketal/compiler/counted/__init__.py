"""What of a pattern is counted of events: its guards, the names and comparisons in it."""
