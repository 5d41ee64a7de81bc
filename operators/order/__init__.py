"""Orders of release: the hold-back queue and its policies."""
