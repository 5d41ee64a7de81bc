"""Pictures: of a pattern's automaton.

`Graph.of` takes a compiled pattern to a frozen description of its automaton,
and a description writes itself as Graphviz's dot, as Mermaid, as JSON and as SVG.

The one rule: a picture says what the automaton is and judges nothing; every
form says the same states, edges and guards.
"""

from __future__ import annotations

from ketal.pictures.graph import Edge, Graph, State, Way
from ketal.pictures.svg import SVG_EDGES_MAX, SVG_STATES_MAX, LayoutWarning

__all__ = ["SVG_EDGES_MAX", "SVG_STATES_MAX", "Edge", "Graph", "LayoutWarning", "State", "Way"]
