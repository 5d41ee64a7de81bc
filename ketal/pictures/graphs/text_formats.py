r"""A graph as text for other programs: Graphviz's dot, Mermaid and JSON.

Dot and Mermaid give some characters of a label a meaning of their own. In dot a
quoted string knows `\"`, `\\`, `\l` and HTML's entities; in Mermaid a quoted
label knows `#35;` and HTML's tags.

The one rule: in these two states are called `s0`, `s1`, …, so a name or a guard
stands in labels only, and a label reads as its author wrote it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict

from ketal.pictures.graphs.graph_data import Graph, GraphState
from ketal.pictures.labels import clipped, wrapped, xml_text

# --- dot --------------------------------------------------------------------


def dot(graph: Graph) -> str:
    """Write a graph in Graphviz's language."""
    lines = [
        f"digraph {quoted(xml_text(graph.pattern))} {{",
        f"  rankdir={'LR' if graph.horizontal else 'TB'};",
        '  node [fontname="monospace", fontsize=13];',
        '  edge [fontname="monospace", fontsize=11];',
        '  start [shape=point, label="", width=0.08];',
    ]
    for state in graph.states:
        around = 2 if state.final else 1
        shape = "shape=circle" if state.round else 'shape=box, style="rounded"'
        label = quoted(clipped(xml_text(state.name)))
        lines.append(f"  s{state.number} [{shape}, peripheries={around}, label={label}];")
    lines.append(f"  start -> s{graph.initial};")
    for edge in graph.edges:
        # `\l` ends a line that is set to the left.
        label = "".join(f"{_dot_text(line)}\\l" for line in wrapped(edge.label))
        lines.append(f'  s{edge.source} -> s{edge.target} [label="{label}"];')
    return "\n".join([*lines, "}", ""])


def quoted(text: str) -> str:
    """Return a text as a quoted string of dot."""
    return f'"{_dot_text(text)}"'


def _dot_text(text: str) -> str:
    return _unbroken(text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"'))


def _unbroken(text: str) -> str:
    """Replace the blanks at the start of a line by such as stay: those that cannot be broken."""
    return re.sub("^ +", lambda blanks: "\u00a0" * len(blanks[0]), text)


# --- mermaid ----------------------------------------------------------------


def mermaid(graph: Graph) -> str:
    """Write a graph as a Mermaid flowchart."""
    lines = [
        f"flowchart {'LR' if graph.horizontal else 'TB'}",
        f"  accTitle: {_mermaid(xml_text(graph.title))}",
        '  start((" "))',
        "  style start fill:#888,stroke:#888",
    ]
    for state in graph.states:
        one, two = _shape(state)
        lines.append(f'  s{state.number}{one}"{_mermaid(clipped(xml_text(state.name)))}"{two}')
    lines.append(f"  start --> s{graph.initial}")
    for edge in graph.edges:
        label = "<br/>".join(map(_mermaid, wrapped(edge.label)))
        lines.append(f'  s{edge.source} -->|"{label}"| s{edge.target}')
    return "\n".join([*lines, ""])


def _shape(state: GraphState) -> tuple[str, str]:
    if state.final:
        return ("(((", ")))")
    return ("((", "))") if state.round else ("([", "])")


def _mermaid(text: str) -> str:
    """Write every character that HTML, Markdown or Mermaid could read as an entity."""
    return "".join(
        c if c.isalnum() or c in " \u00a0:.,=()" else f"#{ord(c)};" for c in _unbroken(text)
    )


# --- JSON -------------------------------------------------------------------


def json_text(graph: Graph) -> str:
    """Write a graph as JSON, two blanks an indent."""
    fields = {
        "pattern": graph.pattern,
        "strategy": graph.strategy,
        "fingerprint": graph.fingerprint,
        "states": [asdict(state) for state in graph.states],
        "initial": graph.initial,
        "finals": graph.finals,
        "steps": [{"name": name, "guard": guard} for name, guard in graph.guards],
        "nots": graph.nots,
        "edges": [asdict(edge) for edge in graph.edges],
        "minterms": [{"number": n, "holds": holds} for n, holds in enumerate(graph.minterms)],
    }
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
