"""Frozen values: events, attributes, verdicts, limits, the abstract syntax."""
