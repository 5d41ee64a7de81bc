"""The description of an automaton that all its pictures are made from.

An edge of the picture stands for every letter that leads from one state to
another. It lists *ways*: a way is a set of steps that hold at once, with the
`not` guards before them. Of two ways the wider one adds nothing and is left out.

The one rule: a description is plain text and numbers in canonical order, so
every picture of a pattern is the same in every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ketal import pattern as syntax
from ketal.automaton import ANONYMOUS, Automaton, CompiledPattern
from ketal.pictures.wording import columns

ROUND_COLUMNS_MAX = 4
"""The longest name that stands in a circle; a longer one stands in a rounded box."""
HORIZONTAL_STATES_MAX = 4
"""The most states that are laid out from left to right; more read better downwards."""

GuardText = Callable[[syntax.Guard], str]


@dataclass(frozen=True, slots=True)
class State:
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
        The steps whose guards hold at once; mostly one.
    nots : tuple of str
        The texts of the `not` guards before them.
    guard : str
        The text of the guard; empty where it says no more than the step's name.
    """

    steps: tuple[str, ...]
    nots: tuple[str, ...] = ()
    guard: str = ""

    @property
    def head(self) -> str:
        """What is taken: `B`, `A && B`, `not N, B`."""
        barred = (f"not {text}" for text in self.nots)
        return ", ".join((*barred, " && ".join(self.steps)))

    @property
    def text(self) -> str:
        """The head and the guard: `B: Causal(Push, A)`."""
        return f"{self.head}: {self.guard}" if self.guard else self.head


@dataclass(frozen=True, slots=True)
class Edge:
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
    minterms : tuple of (holds, fails)
        Each class of events: the heads of the ways that it satisfies, and of the others.
    """

    pattern: str
    strategy: str
    fingerprint: str
    states: tuple[State, ...]
    edges: tuple[Edge, ...]
    guards: tuple[tuple[str, str], ...] = ()
    nots: tuple[str, ...] = ()
    minterms: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, compiled: CompiledPattern, guard_text: GuardText) -> Graph:
        """Describe a pattern's automaton.

        Parameters
        ----------
        compiled : CompiledPattern
            The pattern.
        guard_text : function
            Writes a guard as text: `ketal.grammar.render_guard`.
        """
        automaton = compiled.automaton
        words = _Words(compiled, guard_text)
        states = tuple(
            State(n, name, n == 0, n in automaton.finals, automaton.expected(n))
            for n, name in enumerate(automaton.names)
        )
        edges = tuple(
            Edge(source, target, tuple(map(words.way, ways)), minterms)
            for source, target, ways, minterms in _edges(automaton)
        )
        everything = range(len(automaton.variants))
        minterms = tuple(
            (
                tuple(words.head(v) for v in everything if v in set(term)),
                tuple(words.head(v) for v in everything if v not in set(term)),
            )
            for term in automaton.minterms
        )
        return cls(
            pattern=compiled.name,
            strategy=compiled.strategy,
            fingerprint=compiled.fingerprint,
            states=states,
            edges=edges,
            guards=tuple((name, guard_text(guard)) for name, guard in compiled.guards),
            nots=words.nots,
            minterms=minterms,
        )

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
        count = len(self.states)
        return f"{self.pattern}: automaton of {count} state{'s' if count != 1 else ''}"

    @property
    def horizontal(self) -> bool:
        """Whether pictures run from left to right, not downwards."""
        return len(self.states) <= HORIZONTAL_STATES_MAX

    def to_json(self) -> str:
        """Write it as JSON, two blanks an indent."""
        said = {
            "pattern": self.pattern,
            "strategy": self.strategy,
            "fingerprint": self.fingerprint,
            "states": [
                {
                    "number": s.number,
                    "name": s.name,
                    "initial": s.initial,
                    "final": s.final,
                    "expected": s.expected,
                }
                for s in self.states
            ],
            "initial": self.initial,
            "finals": self.finals,
            "steps": [{"name": name, "guard": guard} for name, guard in self.guards],
            "nots": self.nots,
            "edges": [
                {
                    "source": e.source,
                    "target": e.target,
                    "ways": [{"steps": w.steps, "nots": w.nots, "guard": w.guard} for w in e.ways],
                    "minterms": e.minterms,
                }
                for e in self.edges
            ],
            "minterms": [
                {"number": number, "holds": holds, "fails": fails}
                for number, (holds, fails) in enumerate(self.minterms)
            ],
        }
        return json.dumps(said, indent=2, ensure_ascii=False) + "\n"

    def to_dot(self) -> str:
        """Write it in Graphviz's language."""
        from ketal.pictures.texts import dot

        return dot(self)

    def to_mermaid(self) -> str:
        """Write it as a Mermaid flowchart."""
        from ketal.pictures.texts import mermaid

        return mermaid(self)

    def to_svg(self) -> str:
        """Draw it.

        Graphviz's `dot` lays it out where it is on the PATH, our layers of its own elsewhere.

        Raises
        ------
        SettingError
            If it has more than `SVG_STATES_MAX` states or `SVG_EDGES_MAX` edges.
        """
        from ketal.pictures.svg import draw

        return draw(self)

    def _repr_svg_(self) -> str | None:
        """Draw it for a notebook; None where it cannot be drawn, so that its text is shown."""
        from ketal.errors import SettingError

        try:
            return self.to_svg()
        except SettingError:
            return None


class _Words:
    """The texts of steps and `not` guards."""

    def __init__(self, compiled: CompiledPattern, guard_text: GuardText) -> None:
        self.automaton = compiled.automaton
        self.guards = dict(compiled.guards)
        self.guard_text = guard_text
        # The compiler numbers `not` guards as they stand in the body, equal ones once.
        absent = [
            n.guard for n in syntax.walk(compiled.pattern.body) if isinstance(n, syntax.Absent)
        ]
        self.nots = tuple(map(self._absent, dict.fromkeys(absent)))
        assert len(self.nots) == len(self.automaton.nots), "a `not` guard is numbered otherwise"

    def _absent(self, guard: syntax.Guard) -> str:
        text = self.guard_text(guard)
        return text if isinstance(guard, syntax.Name) else f"({text})"

    def head(self, variant: int) -> str:
        return self.way((variant,)).head

    def way(self, variants: tuple[int, ...]) -> Way:
        """Return the way on which all of some variants hold."""
        held = [self.automaton.variants[v] for v in variants]
        steps = tuple(self.automaton.steps[s] for s in sorted({v.step for v in held}))
        nots = tuple(self.nots[n] for n in sorted({n for v in held for n in v.nots}))
        return Way(steps, nots, self._guard(steps))

    def _guard(self, steps: tuple[str, ...]) -> str:
        operands: list[syntax.Guard] = []
        for name in steps:
            guard = self.guards[name]
            operands.extend(guard.operands if isinstance(guard, syntax.And) else (guard,))
        if all(isinstance(g, syntax.Name) and g.name in steps for g in operands):
            return ""  # an event used as a step: the guard would repeat the name
        whole = operands[0] if len(operands) == 1 else syntax.And(tuple(operands))
        return self.guard_text(whole)


Ways = tuple[tuple[int, ...], ...]


def _edges(automaton: Automaton) -> Iterator[tuple[int, int, Ways, tuple[int, ...]]]:
    """Yield (source, target, ways as variants, minterms), in order."""
    letters = set(automaton.letters)
    ways: dict[tuple[int, int], set[frozenset[int]]] = {}
    terms: dict[tuple[int, int], set[int]] = {}
    for source, row in enumerate(automaton.table):
        enabled = set(automaton.enabled[source])
        for (minterm, group), target in zip(automaton.letters, row, strict=True):
            if target < 0:
                continue
            held = frozenset(
                v
                for v in automaton.minterms[minterm]
                if v in enabled and _reads(automaton.variants[v].step, minterm, group, letters)
            )
            ways.setdefault((source, target), set()).add(held)
            terms.setdefault((source, target), set()).add(minterm)
    for (source, target), sets in sorted(ways.items()):
        least = sorted(tuple(sorted(s)) for s in sets if not any(o < s for o in sets))
        yield source, target, tuple(least), tuple(sorted(terms[source, target]))


def _reads(step: int, minterm: int, group: int, letters: set[tuple[int, int]]) -> bool:
    """Return whether a letter takes an event of its minterm as this step.

    A step with a register of its own has a letter of its own; the anonymous
    letter is for the others.
    """
    return step == group if group != ANONYMOUS else (minterm, step) not in letters
