"""What lint says of an automaton: its paths, and the events that its guards accept."""
