"""The parts of a streaming job that are the same for every engine: settings, outputs, metrics."""
