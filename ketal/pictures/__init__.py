"""Pictures: of a pattern's automaton."""
