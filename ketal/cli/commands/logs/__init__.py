"""Commands on logs, without a pattern: their contents, faults, clocks, cuts, pictures."""
