"""Is a log a possible vector-clocked execution?"""
