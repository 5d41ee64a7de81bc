"""The state of an execution, saved and restored."""
