"""Pictures of graphs: automata and lattices, their layout and their formats."""
