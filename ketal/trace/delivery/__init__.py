"""Sinks of the events of a tracer, and delivery of events to a running monitor."""
