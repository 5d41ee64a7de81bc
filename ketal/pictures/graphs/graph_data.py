r"""The description of an automaton that all its pictures are made from, and its forms as text.

An edge of the picture stands for every letter that leads from one state to another. It lists
*ways*: a way is a set of steps that hold at once, with the `not` guards before them.

Dot and Mermaid give some characters of a label a meaning of their own. In dot a quoted string knows
`\"`, `\\`, `\l` and HTML's entities; in Mermaid a quoted label knows `#35;` and HTML's tags. In
these two states are called `s0`, `s1`, …, so a name or a guard stands in labels only, and a label
reads as its author wrote it.

The one rule: a description is plain text and numbers in canonical order, so every picture of a
pattern is the same in every process.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from ketal.errors import columns
from ketal.model.wording import counted
from ketal.pictures.labels import clipped, wrapped, xml_text

ROUND_COLUMNS_MAX = 4
"""The longest name that stands in a circle; a longer one stands in a rounded box."""
HORIZONTAL_STATES_MAX = 4
"""The most states that are laid out from left to right; more read better downwards."""


@dataclass(frozen=True, slots=True)
class GraphState:
    """A state: its number, what it is called, and the steps that can come next."""

    number: int
    name: str
    initial: bool
    final: bool
    expected: tuple[str, ...] = ()

    @property
    def round(self) -> bool:
        """Whether it is drawn as a circle."""
        return columns(self.name) <= ROUND_COLUMNS_MAX


@dataclass(frozen=True, slots=True)
class Way:
    """One way along an edge.

    Attributes
    ----------
    steps : tuple of str
        The steps whose guards hold at once; mostly one. `A || B` is one of two.
    nots : tuple of str
        The texts of the `not` guards before them.
    guard : str
        The text of the guard; empty where it is no more than the step's name.
    """

    steps: tuple[str, ...]
    nots: tuple[str, ...] = ()
    guard: str = ""

    @property
    def head(self) -> str:
        """The steps taken: `B`, `A && B`, `not N, B`."""
        barred = (f"not {text}" for text in self.nots)
        several = len(self.steps) > 1
        steps = (f"({s})" if several and " || " in s else s for s in self.steps)
        return ", ".join((*barred, " && ".join(steps)))

    @property
    def text(self) -> str:
        """The head and the guard: `B: Causal(Push, A)`."""
        return f"{self.head}: {self.guard}" if self.guard else self.head


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """All ways from one state to another, and the minterms that take them."""

    source: int
    target: int
    ways: tuple[Way, ...]
    minterms: tuple[int, ...] = ()

    @property
    def label(self) -> tuple[str, ...]:
        """One text a way."""
        return tuple(way.text for way in self.ways)


@dataclass(frozen=True, slots=True)
class Graph:
    """An automaton as a picture sees it.

    Attributes
    ----------
    pattern, strategy, fingerprint : str
        The pattern's name, its strategy (`check`, `strict`, `next`, `any`), its fingerprint.
    states, edges : tuples
        In order of their numbers.
    guards : tuple of (str, str)
        Each step and the text of its guard.
    nots : tuple of str
        The texts of the `not` guards.
    minterms : tuple of tuples of tuples of str
        Each class of events: the heads of the ways that it satisfies, where of those that
        stand together one or more is meant. It satisfies no other way of its state.
    """

    pattern: str
    strategy: str
    fingerprint: str
    states: tuple[GraphState, ...]
    edges: tuple[GraphEdge, ...]
    guards: tuple[tuple[str, str], ...] = ()
    nots: tuple[str, ...] = ()
    minterms: tuple[tuple[tuple[str, ...], ...], ...] = ()

    @property
    def initial(self) -> int:
        """The number of the initial state."""
        return next(state.number for state in self.states if state.initial)

    @property
    def finals(self) -> tuple[int, ...]:
        """The numbers of the final states."""
        return tuple(state.number for state in self.states if state.final)

    @property
    def title(self) -> str:
        """One line on what the picture shows."""
        return f"{self.pattern}: automaton of {counted(len(self.states), 'state')}"

    @property
    def horizontal(self) -> bool:
        """Whether pictures run from left to right, not downwards."""
        return len(self.states) <= HORIZONTAL_STATES_MAX

    def to_dot(self) -> str:
        """Write it in Graphviz's language."""
        lines = [
            f"digraph {quoted(xml_text(self.pattern))} {{",
            f"  rankdir={'LR' if self.horizontal else 'TB'};",
            '  node [fontname="monospace", fontsize=13];',
            '  edge [fontname="monospace", fontsize=11];',
            '  start [shape=point, label="", width=0.08];',
        ]
        for state in self.states:
            around = 2 if state.final else 1
            shape = "shape=circle" if state.round else 'shape=box, style="rounded"'
            label = quoted(clipped(xml_text(state.name)))
            lines.append(f"  s{state.number} [{shape}, peripheries={around}, label={label}];")
        lines.append(f"  start -> s{self.initial};")
        for edge in self.edges:
            # `\l` ends a line that is set to the left.
            label = "".join(f"{_dot_text(line)}\\l" for line in wrapped(edge.label))
            lines.append(f'  s{edge.source} -> s{edge.target} [label="{label}"];')
        return "\n".join([*lines, "}", ""])

    def to_mermaid(self) -> str:
        """Write it as a Mermaid flowchart."""
        lines = [
            f"flowchart {'LR' if self.horizontal else 'TB'}",
            f"  accTitle: {_mermaid(xml_text(self.title))}",
            '  start((" "))',
            "  style start fill:#888,stroke:#888",
        ]
        for state in self.states:
            form = "((({})))" if state.final else "(({}))" if state.round else "([{}])"
            label = f'"{_mermaid(clipped(xml_text(state.name)))}"'
            lines.append(f"  s{state.number}{form.format(label)}")
        lines.append(f"  start --> s{self.initial}")
        for edge in self.edges:
            label = "<br/>".join(map(_mermaid, wrapped(edge.label)))
            lines.append(f'  s{edge.source} -->|"{label}"| s{edge.target}')
        return "\n".join([*lines, ""])

    def to_json(self) -> str:
        """Write it as JSON, two blanks an indent."""
        fields = {
            "pattern": self.pattern,
            "strategy": self.strategy,
            "fingerprint": self.fingerprint,
            "states": [asdict(state) for state in self.states],
            "initial": self.initial,
            "finals": self.finals,
            "steps": [{"name": name, "guard": guard} for name, guard in self.guards],
            "nots": self.nots,
            "edges": [asdict(edge) for edge in self.edges],
            "minterms": [{"number": n, "holds": holds} for n, holds in enumerate(self.minterms)],
        }
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def quoted(text: str) -> str:
    """Return a text as a quoted string of dot."""
    return f'"{_dot_text(text)}"'


def _dot_text(text: str) -> str:
    return _unbroken(text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"'))


def _unbroken(text: str) -> str:
    """Replace the blanks at the start of a line by such as stay: those that cannot be broken."""
    return re.sub("^ +", lambda blanks: "\u00a0" * len(blanks[0]), text)


def _mermaid(text: str) -> str:
    """Write every character that HTML, Markdown or Mermaid could read as an entity."""
    return "".join(
        c if c.isalnum() or c in " \u00a0:.,=()" else f"#{ord(c)};" for c in _unbroken(text)
    )
