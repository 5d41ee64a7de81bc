"""Vector clocks as pictures: two of them compared, joined, subtracted.

A clock is drawn as the set of events that it knows: a vector clock as full columns, a set of events
with its holes, a dotted clock as its past and a dot above. If counters are high, the first events,
which all clocks of a row know, are drawn as one square.

An event happened before another iff the area of the events that it knows is included in the
other's; two events are concurrent iff each area has a square that the other lacks. The join is the
union of the areas. A difference is the rest of the area, mostly no vector any more: [2,3,3] -
[2,3,2] = {c3}.

Baquero, "Causality is Graphically Simple", sections "Vector Clocks" to "Dotted Version Vectors".

The one rule: a picture shows a set of events, so a vector clock and the history of the same event
have the same picture; a square of an operand is marked iff the other operand lacks it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from ketal.clocks.causal_history import Dots
from ketal.clocks.scheme import Clock
from ketal.clocks.vector import join
from ketal.pictures.clocks.clock_bars import (
    LEVELS_MAX,
    ClockBars,
    EventSquare,
    bars_svg,
    check_size,
)
from ketal.pictures.labels import in_natural_order

MARKS = "Hatched: events unknown to the other clock."
CONCURRENT = "∥"
MINUS = "\N{MINUS SIGN}"
_SIGNS = {(False, True): "<", (True, False): ">", (False, False): "=", (True, True): CONCURRENT}
"""Whether the first and whether the second area has squares of its own → the sign."""
PairRow = Literal["compared", "joined", "subtracted", "subtracted from"]


@dataclass(frozen=True, slots=True)
class KnownEvents:
    """A set of events, as areas or as text, perhaps with one dot of its own."""

    first: Clock
    """For each node, how many of its first events are known without a gap."""
    others: Dots
    dot: tuple[str, int] | None = None
    """The dot of a dotted clock; it is in `first` or `others`, too."""
    as_set: bool = False
    """Whether the text is a set of events, not a vector."""

    @classmethod
    def of(
        cls,
        clock: Clock,
        dots: Collection[tuple[str, int]] = (),
        dot: tuple[str, int] | None = None,
        as_set: bool = False,
    ) -> KnownEvents:
        """Return the events that a vector clock knows, and those of some dots."""
        first = {node: counter for node, counter in clock.items() if counter}
        others = set()
        for node, counter in sorted(dots):
            if counter == first.get(node, 0) + 1:
                first[node] = counter
            elif counter > first.get(node, 0):
                others.add((node, counter))
        return cls(first, frozenset(others), dot, as_set)

    def union(self, other: KnownEvents) -> KnownEvents:
        """Return the events that at least one of two knows."""
        both = join([self.first, other.first])
        as_set = self.as_set and other.as_set
        return self.of(both, self.others | other.others, as_set=as_set)

    def above(self, floors: Clock) -> Dots:
        """Return the events without the first ones, whose number for each node is in `floors`."""
        counted = {
            (node, counter)
            for node, top in self.first.items()
            for counter in range(floors.get(node, 0) + 1, top + 1)
        }
        return self.others | counted

    def text(self, nodes: Sequence[str]) -> str:
        """Return the events in the notation of the paper: `[2,3,0]`, `[2,1,0]b2` or `{c3}`."""
        if self.dot is not None:
            node, counter = self.dot
            past = dict(self.first)
            if past.get(node) == counter:
                past[node] -= 1
            return vector_text(past, nodes) + dot_text(node, counter)
        if self.as_set or (not self.first and self.others):
            return history_text(self.above({}))
        return vector_text(self.first, nodes) + (history_text(self.others) if self.others else "")


def vector_text(clock: Clock, nodes: Sequence[str]) -> str:
    """Return the entries of a vector clock in the order of the nodes: `[2,3,0]`."""
    return f"[{','.join(str(clock.get(node, 0)) for node in nodes)}]"


def history_text(dots: AbstractSet[tuple[str, int]]) -> str:
    """Return a set of events as the set of their names: `{a1,a2,b1}`."""
    return f"{{{','.join(dot_text(*dot) for dot in sorted(dots))}}}"


def dot_text(node: str, counter: int) -> str:
    """Return the name of an event: `a1`; `n7@1` if the node's name ends in a digit."""
    return f"{node}@{counter}" if node[-1:].isdigit() else f"{node}{counter}"


# --- pictures -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarsScale:
    """The common scale of the pictures of a row."""

    nodes: tuple[str, ...]
    """The columns."""
    floors: Clock
    """For each node, how many of its first events are drawn as one square."""

    @classmethod
    def of(cls, row: Sequence[KnownEvents], nodes: Sequence[str] | None = None) -> BarsScale:
        """Return a scale for all sets of events of a row."""
        tops = join(one.first for one in row)
        for node, counter in (dot for one in row for dot in one.others):
            tops[node] = max(tops.get(node, 0), counter)
        columns = tuple(dict.fromkeys([*(nodes or ()), *in_natural_order(tops)]))
        floors = {}
        for node, top in tops.items():
            common = min(one.first.get(node, 0) for one in row) - 1
            if top > LEVELS_MAX and common > 1:
                floors[node] = common
        highest = max((_level(floors, node, top) for node, top in tops.items()), default=0)
        check_size(highest, len(columns))
        return cls(columns, floors)

    def bars(
        self,
        known: KnownEvents,
        *,
        marked: Dots = frozenset(),
        own: Collection[str] | None = None,
    ) -> ClockBars:
        """Return the columns of a set of events: one that the scale was made for, or a join.

        `marked` are the events that the other set lacks. `own` are the columns of the node's
        identity; if absent, no identity is drawn.
        """
        dots = known.above(self.floors)
        squares = []
        for column, node in enumerate(self.nodes):
            floor = self.floors.get(node, 0)
            if floor:
                form = "known" if known.first.get(node, 0) >= floor else "hole"
                tip = f"{dot_text(node, 1)} to {dot_text(node, floor)}"
                squares.append(EventSquare(column, 1, 1, form, tip, text=f"1–{floor}"))
            top = max((counter for name, counter in dots if name == node), default=floor)
            for counter in range(floor + 1, top + 1):
                dot = (node, counter)
                form = "hole" if dot not in dots else "dotted" if dot == known.dot else "known"
                tip = dot_text(node, counter) + (" is not known" if form == "hole" else "")
                level = _level(self.floors, node, counter)
                squares.append(EventSquare(column, 1, level, form, tip, marked=dot in marked))
        identity: tuple[tuple[int, int, bool], ...] = ()
        if own is not None:
            identity = tuple((at, 1, node in own) for at, node in enumerate(self.nodes))
        return ClockBars(self.nodes, tuple(squares), known.text(self.nodes), identity)


def _level(floors: Clock, node: str, counter: int) -> int:
    floor = floors.get(node, 0)
    return counter - floor + 1 if floor else counter


def pair_rows(
    a: KnownEvents, b: KnownEvents, nodes: Sequence[str] | None = None
) -> dict[PairRow, list[ClockBars | str]]:
    """Return the rows of a picture of two sets of events, one for each operation on them.

    The rows: `compared`, their order; `joined`, their union; `subtracted` and `subtracted from`,
    the events that only the first, and only the second, has. `nodes` are the columns in their
    order; others follow, sorted.
    """
    both = a, b
    scale = BarsScale.of(both, nodes)
    events_a, events_b = (one.above(scale.floors) for one in both)
    only = events_a - events_b, events_b - events_a
    sign = _SIGNS[bool(only[0]), bool(only[1])]
    left, right = (scale.bars(one, marked=own) for one, own in zip(both, only, strict=True))
    less, more = (scale.bars(KnownEvents.of({}, own, as_set=True), marked=own) for own in only)
    return {
        "compared": [left, sign, right],
        "joined": [left, "⊔", right, "=", scale.bars(a.union(b))],
        "subtracted": [left, MINUS, right, "=", less],
        "subtracted from": [right, MINUS, left, "=", more],
    }


def pair_svg(a: Clock, b: Clock, title: str) -> str:
    """Draw two vector clocks, with a row for each operation on them."""
    rows = pair_rows(KnownEvents.of(a), KnownEvents.of(b))
    return bars_svg(title, [("", row) for row in rows.values()], MARKS)
