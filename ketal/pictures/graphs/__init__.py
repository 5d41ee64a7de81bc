"""Graphs drawn: automata, lattices; their layout, and the formats."""
