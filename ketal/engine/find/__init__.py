"""What a `find` keeps of the events, how it finds matches there, and what evicts it."""
