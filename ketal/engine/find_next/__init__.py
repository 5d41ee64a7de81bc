"""`find next` and `find strict`: runs, which take events in the order offered."""
