"""Which versions of a replicated object are newest."""
