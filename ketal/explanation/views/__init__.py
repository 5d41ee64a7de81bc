"""Space-time diagrams of executions: `ketal view` and `ketal clocks show`."""
