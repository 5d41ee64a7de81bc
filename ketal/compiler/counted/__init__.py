"""The parts of a pattern for which events are counted: guards, names and comparisons."""
