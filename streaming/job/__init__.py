"""A streaming job whatever its engine: the file, the outputs, what they share."""
