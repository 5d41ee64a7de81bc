"""The description of an automaton that all its pictures are made from.

An edge of the picture stands for every letter that leads from one state to
another. It lists *ways*: a way is a set of steps that hold at once, with the
`not` guards before them. Of steps that lead to the same states each is a way of
its own; of two ways the wider one adds nothing and is left out.

The one rule: a description is plain text and numbers in canonical order, so
every picture of a pattern is the same in every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ketal import pattern as syntax
from ketal.automaton import Automaton, CompiledPattern
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
        The steps whose guards hold at once; mostly one. `A || B` is one of two.
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
        several = len(self.steps) > 1
        steps = (f"({s})" if several and " || " in s else s for s in self.steps)
        return ", ".join((*barred, " && ".join(steps)))

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
    minterms : tuple of tuples of tuples of str
        Each class of events: the heads of the ways that it satisfies, where of those that
        stand together one or more is meant. It satisfies no other way of its state.
    """

    pattern: str
    strategy: str
    fingerprint: str
    states: tuple[State, ...]
    edges: tuple[Edge, ...]
    guards: tuple[tuple[str, str], ...] = ()
    nots: tuple[str, ...] = ()
    minterms: tuple[tuple[tuple[str, ...], ...], ...] = ()

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
            State(n, name, n == 0, n in automaton.finals, automaton.expected((n,)))
            for n, name in enumerate(automaton.names)
        )
        edges = tuple(
            Edge(source, target, tuple(map(words.way, ways)), minterms)
            for source, target, ways, minterms in _edges(automaton)
        )
        minterms = tuple(
            tuple(tuple(map(words.head, of_class)) for of_class in term)
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
                {"number": number, "holds": holds} for number, holds in enumerate(self.minterms)
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
        return self.way(((variant,),)).head

    def way(self, classes: tuple[_Class, ...]) -> Way:
        """Return the way on which some variant of each class holds."""
        held = [[self.automaton.variants[v] for v in of_class] for of_class in classes]
        names = sorted({tuple(sorted({v.step for v in of_class})) for of_class in held})
        steps = tuple(" || ".join(self.automaton.steps[s] for s in of_class) for of_class in names)
        nots = tuple(self.nots[n] for n in sorted({n for vs in held for v in vs for n in v.nots}))
        return Way(steps, nots, self._guard(names))

    def _guard(self, classes: list[tuple[int, ...]]) -> str:
        operands: list[syntax.Guard] = []
        told = False  # whether the guard says more than the names of the steps
        for of_class in classes:
            guards = [self.guards[self.automaton.steps[s]] for s in of_class]
            told = told or any(
                guard != syntax.Name(self.automaton.steps[s])
                for s, guard in zip(of_class, guards, strict=True)
            )
            if len(guards) > 1:
                operands.append(syntax.Or(tuple(guards)))
            else:
                operands.extend(guards[0].operands if isinstance(guards[0], syntax.And) else guards)
        if not told:
            return ""  # events used as steps: the guard would repeat their names
        whole = operands[0] if len(operands) == 1 else syntax.And(tuple(operands))
        return self.guard_text(whole)


_Class = tuple[int, ...]
_Ways = tuple[tuple[_Class, ...], ...]


def _edges(automaton: Automaton) -> Iterator[tuple[int, int, _Ways, tuple[int, ...]]]:
    """Yield (source, target, ways as classes of variants, minterms), in order."""
    ways: dict[tuple[int, int], set[frozenset[_Class]]] = {}
    terms: dict[tuple[int, int], set[int]] = {}
    for source, row in enumerate(automaton.table):
        enabled = set(automaton.enabled[source])
        for letter, target in row:
            minterm, _ = automaton.letters[letter]
            here = frozenset(c for c in automaton.minterms[minterm] if not enabled.isdisjoint(c))
            ways.setdefault((source, target), set()).add(here)
            terms.setdefault((source, target), set()).add(minterm)
    for (source, target), sets in sorted(ways.items()):
        least = [s for s in sets if not any(o < s for o in sets)]
        # Of the steps of a lone class each is a way of its own.
        alone = {((v,),) for s in least if len(s) == 1 for of_class in s for v in of_class}
        several = {tuple(sorted(s)) for s in least if len(s) > 1}
        yield source, target, tuple(sorted(alone | several)), tuple(sorted(terms[source, target]))
