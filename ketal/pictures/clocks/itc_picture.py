"""Interval tree clocks as pictures: forked columns over the interval [0, 1).

The base of an event tree is a square as wide as its part of the interval; further events of a half
are on top of it, half as wide. Beneath is the interval itself, with the part that the replica owns
filled: its next event adds to the area above that part. a happened before b iff b's area includes
a's.

Baquero, "Causality is Graphically Simple", section "Interval Tree Clocks"; Almeida, Baquero and
Fonte, "Interval Tree Clocks", OPODIS 2008, which has figures of this kind.

The one rule: a square covers the widest dyadic part of the interval over which the events are known
and marked in the same way, so equal areas are drawn by equal squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

from ketal.clocks.interval_tree import Events, Identity, IntervalTreeClock, join, literal
from ketal.pictures.clocks.clock_bars import (
    LEVELS_MAX,
    BarsRow,
    ClockBars,
    EventSquare,
    bars_svg,
    check_size,
)
from ketal.pictures.clocks.clock_pairs import MARKS

T = TypeVar("T")

INTERVAL_PX = 128.0
"""The least width of the interval."""
NARROWEST_PX = 8.0

TreesRow: TypeAlias = "tuple[str, Sequence[IntervalTreeClock | str]]"
"""The heading of a row, and its parts from left to right: clocks and operators."""


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
