"""What a pattern costs, by its class: `ketal lint --explain-cost`."""
