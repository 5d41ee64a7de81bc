"""How two events are related: `ketal clocks compare`."""
