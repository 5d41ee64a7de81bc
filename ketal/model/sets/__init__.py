"""Sets of dots and of counters."""
