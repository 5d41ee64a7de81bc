"""The audit of a log: whether it is a possible vector-clocked execution."""
