"""Who takes part: incarnations, and clocks that shrink when a node leaves."""
