"""Verdicts: the results of the engine, in modules by what produces them."""
