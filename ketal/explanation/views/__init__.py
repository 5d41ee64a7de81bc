"""Executions to look at: `ketal view`, and the diagram of `ketal clocks show`."""
