"""`mode possibly` and `mode definitely`: a search of the consistent cuts and run states."""
