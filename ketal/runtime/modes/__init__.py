"""`mode possibly` and `mode definitely`: the cuts of an execution explored, by the states of runs."""
