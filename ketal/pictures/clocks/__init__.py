"""Pictures of clocks: as areas, as trees, as stamps along timelines."""
