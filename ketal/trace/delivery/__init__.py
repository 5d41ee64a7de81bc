"""Where the events of a tracer go, and who takes them there."""
