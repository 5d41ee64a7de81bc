"""`mode possibly` and `mode definitely`: consistent cuts explored, by the states of runs."""
