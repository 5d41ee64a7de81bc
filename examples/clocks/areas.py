"""Clocks, histories, versions and interval tree clocks as areas, as the paper draws them.

They are drawn by `ketal.pictures.clocks`, as are the two vector clocks of `ketal clocks compare`.

The base of an event tree is a square as wide as its part of the interval [0, 1); further events of
a half are on top of it, half as wide. Beneath is the interval itself, with the part that the
replica owns filled: its next event adds to the area above that part. a happened before b iff b's
area includes a's. Almeida, Baquero and Fonte, "Interval Tree Clocks", OPODIS 2008, has figures of
this kind.

The one rule: a square of an interval tree clock covers the widest dyadic part of the interval over
which the events are known and marked in the same way, so equal areas are drawn by equal squares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

from ketal.clocks.dotted import DottedVector
from ketal.clocks.interval_tree import Events, Identity, IntervalTreeClock, join, literal
from ketal.clocks.scheme import Clock
from ketal.clocks.versions.version_vectors import ObjectReplica, StoreReplica, Version
from ketal.pictures.clocks.clock_bars import (
    LEVELS_MAX,
    BarsRow,
    ClockBars,
    EventSquare,
    bars_svg,
    check_size,
)
from ketal.pictures.clocks.clock_figures import (
    CONCURRENT,
    MARKS,
    BarsScale,
    KnownEvents,
    PairRow,
    pair_rows,
)

T = TypeVar("T")

INTERVAL_PX = 128.0
"""The least width of the interval."""
NARROWEST_PX = 8.0
_NOTES = {
    "<": "Included: the right clock also knows the hatched events, so the left clock is before it.",
    ">": "Included: the left clock also knows the hatched events, so the right clock is before it.",
    "=": "Equal: both clocks know the same events.",
    CONCURRENT: "Concurrent: each clock knows hatched events that the other does not.",
}

Knowledge: TypeAlias = "Clock | AbstractSet[tuple[str, int]] | DottedVector | Version"
"""A value that determines a set of known events; `AbstractSet` is a set of dots."""
TreesRow: TypeAlias = "tuple[str, Sequence[IntervalTreeClock | str]]"
"""The heading of a row, and its parts from left to right: clocks and operators."""


def known_events(knowledge: Knowledge) -> KnownEvents:
    """Return the events that a clock, a set of dots, a dotted clock or a version knows."""
    match knowledge:
        case DottedVector():
            dot = (knowledge.node, knowledge.counter)
            return KnownEvents.of(knowledge.past, [dot], dot)
        case Version():
            dot = (knowledge.replica, knowledge.counter)
            return KnownEvents.of(knowledge.context, [dot], dot)
        case Mapping():
            return KnownEvents.of(knowledge)
    return KnownEvents.of({}, knowledge, as_set=True)


def clock_svg(
    knowledge: Knowledge,
    *,
    nodes: Sequence[str] | None = None,
    own: Collection[str] | None = None,
) -> str:
    """Draw one clock, history, dotted clock or version.

    `nodes` are the columns in their order; others that are known follow, sorted. `own` are the
    columns of the node's identity; if absent, no identity is drawn.
    """
    known = known_events(knowledge)
    scale = BarsScale.of([known], nodes)
    return bars_svg("", [("", [scale.bars(known, own=own)])])


def pair_svg(
    a: Knowledge, b: Knowledge, *, row: PairRow, nodes: Sequence[str] | None = None
) -> str:
    """Draw an operation on two clocks, histories, dotted clocks or versions."""
    drawn = pair_rows(known_events(a), known_events(b), nodes)[row]
    note = _NOTES[str(drawn[1])] if row == "compared" else MARKS
    return bars_svg("", [("", drawn)], note)


def versions_svg(
    replicas: Sequence[StoreReplica | ObjectReplica],
    *,
    nodes: Sequence[str] | None = None,
    title: str = "the versions that each replica keeps",
) -> str:
    """Draw the versions that servers or replicas store: a row for each, siblings side by side.

    All are drawn to one scale; the column of a replica is marked as its identity. `nodes` are the
    columns in their order; others follow, sorted.
    """
    rows = [
        (one.server, list(map(known_events, one.siblings)))
        if isinstance(one, StoreReplica)
        else (one.name, list(map(known_events, one.versions)))
        for one in replicas
    ]
    every = [one for _, known in rows for one in known]
    names = {name for name, _ in rows}
    names |= {node for one in every for node in (*one.first, *(node for node, _ in one.others))}
    scale = BarsScale.of(every, [*(nodes or ()), *sorted(names)])
    drawn: list[BarsRow] = []
    for name, known in rows:
        parts: list[ClockBars | str] = []
        for one in known or [KnownEvents.of({})]:
            parts += [CONCURRENT] * bool(parts) + [scale.bars(one, own=[name])]
        count = {0: "no version", 1: "a version"}.get(len(known), f"{len(known)} siblings")
        drawn.append((f"{name}: {count}", parts))
    return bars_svg(title, drawn)


# --- interval tree clocks ---------------------------------------------------------


def trees_svg(title: str, rows: Sequence[TreesRow]) -> str:
    """Draw rows of interval tree clocks, all to one scale."""
    clocks = [one for _, parts in rows for one in parts if isinstance(one, IntervalTreeClock)]
    scale = _Interval(clocks)
    drawn: list[BarsRow] = []
    for label, parts in rows:
        drawn.append((label, [one if isinstance(one, str) else scale.bars(one) for one in parts]))
    return bars_svg(title, drawn)


def tree_join_svg(a: IntervalTreeClock, b: IntervalTreeClock) -> str:
    """Draw two interval tree clocks and their join: the union of areas and of identities.

    A ValueError if the identities overlap.
    """
    joined = join(a, b)
    scale = _Interval([a, b, joined])
    row: BarsRow = ("", [scale.bars(a, b), "⊔", scale.bars(b, a), "=", scale.bars(joined)])
    return bars_svg("", [row], MARKS)


class _Interval:
    """The common scale: the interval in as many columns as the deepest tree needs, and the floor.

    If counters are high, the first events, which all clocks know over the whole interval, are drawn
    as one square, up to `floor`.
    """

    def __init__(self, clocks: Sequence[IntervalTreeClock]) -> None:
        depth = max((max(_depth(c.identity), _depth(c.events)) for c in clocks), default=0)
        # A tree that was read has a few hundred levels at most, so the power can be computed.
        self.columns = 2**depth
        check_size(0, self.columns)
        heights = [height for clock in clocks for height in _heights(clock.events, self.columns)]
        top, common = max(heights, default=0), min(heights, default=0) - 1
        self.floor = common if top > LEVELS_MAX and common > 1 else 0
        check_size(top - self.floor + bool(self.floor), self.columns)

    def bars(self, clock: IntervalTreeClock, other: IntervalTreeClock | None = None) -> ClockBars:
        """Return the columns of a clock; the events that `other` lacks are marked."""
        heights = _heights(clock.events, self.columns)
        others = heights if other is None else _heights(other.events, self.columns)
        squares = []
        if self.floor:
            text = f"1–{self.floor:,}"
            squares.append(EventSquare(0, self.columns, 1, "known", text, text=text))
        shift = self.floor - bool(self.floor)
        for level in range(self.floor + 1, max(heights) + 1):
            states = [
                "" if height < level else "known" if theirs >= level else "marked"
                for height, theirs in zip(heights, others, strict=True)
            ]
            for left, span, state in _dyadic_parts(states):
                if state:
                    where = f"[{left}/{self.columns}, {left + span}/{self.columns})"
                    tip = f"event {level} over {where}"
                    marked = state == "marked"
                    squares.append(EventSquare(left, span, level - shift, "known", tip, marked))
        owned = tuple(_dyadic_parts(list(map(bool, _heights(clock.identity, self.columns)))))
        width = max(NARROWEST_PX, INTERVAL_PX / self.columns)
        return ClockBars(("",) * self.columns, tuple(squares), literal(clock), owned, width)


def _depth(tree: Identity | Events) -> int:
    return 0 if isinstance(tree, int) else 1 + max(_depth(tree[-2]), _depth(tree[-1]))


def _heights(tree: Identity | Events, columns: int, base: int = 0) -> list[int]:
    """Return, for each column, the number of events known, or 1 if an identity has it."""
    if isinstance(tree, int):
        return [base + tree] * columns
    *own, left, right = tree
    base += sum(own)
    return [*_heights(left, columns // 2, base), *_heights(right, columns // 2, base)]


def _dyadic_parts(states: Sequence[T], left: int = 0) -> Iterator[tuple[int, int, T]]:
    """Yield the widest dyadic parts of the interval in which all columns are equal."""
    if all(state == states[0] for state in states):
        yield left, len(states), states[0]
    else:
        half = len(states) // 2
        yield from _dyadic_parts(states[:half], left)
        yield from _dyadic_parts(states[half:], left + half)
