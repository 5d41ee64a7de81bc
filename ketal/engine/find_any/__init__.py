"""`find any`: every occurrence, from the events that are kept."""
