"""The partial matches of a `find`, and what lets them go."""
