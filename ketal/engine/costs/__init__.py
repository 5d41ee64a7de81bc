"""The cost classes of patterns: `ketal lint --explain-cost`."""
