"""Pictures: of a pattern's automaton, of an execution and of the lattice of its cuts."""
