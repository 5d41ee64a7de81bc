"""Two clocks in a picture: compared, joined, subtracted.

An event happened before another iff the area of the events that it knows is included in the
other's; two events are concurrent iff each area has a square that the other lacks. The join is the
union of the areas. A difference is the rest of the area, mostly no vector any more: [2,3,3] -
[2,3,2] = {c3}.

Baquero, "Causality is Graphically Simple", sections "Vector Clocks" and "Dotted Version Vectors".

The one rule: a square of an operand is marked iff the other operand lacks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ketal.pictures.clocks.clock_bars import ClockBars, bars_svg
from ketal.pictures.clocks.clock_figures import BarsScale, Knowledge, KnownEvents

MARKS = "Hatched: events unknown to the other clock."
CONCURRENT = "∥"
MINUS = "\N{MINUS SIGN}"
_SIGNS = {(False, True): "<", (True, False): ">", (False, False): "=", (True, True): CONCURRENT}
"""Whether the first and whether the second area has squares of its own → the sign."""
_NOTES = {
    "<": "Included: the right clock also knows the hatched events, so the left clock is before it.",
    ">": "Included: the left clock also knows the hatched events, so the right clock is before it.",
    "=": "Equal: both clocks know the same events.",
    CONCURRENT: "Concurrent: each clock knows hatched events that the other does not.",
}


PairRow = Literal["compared", "joined", "subtracted", "subtracted from"]
EVERY_ROW: Sequence[PairRow] = ("compared", "joined", "subtracted", "subtracted from")


def pair_svg(
    a: Knowledge,
    b: Knowledge,
    *,
    rows: Sequence[PairRow] = EVERY_ROW,
    nodes: Sequence[str] | None = None,
    title: str = "",
) -> str:
    """Draw two clocks, with a row for each operation on them.

    The rows: `compared`, their order; `joined`, their point-wise maximum; `subtracted` and
    `subtracted from`, the events that only the first, and only the second, knows. `nodes` are the
    columns in their order; others that are known follow, sorted. If the title is empty, it is the
    captions and operators of the first row.
    """
    both = KnownEvents.of(a), KnownEvents.of(b)
    scale = BarsScale.of(both, nodes)
    events_a, events_b = (one.above(scale.floors) for one in both)
    only = events_a - events_b, events_b - events_a
    sign = _SIGNS[bool(only[0]), bool(only[1])]
    left, right = (scale.bars(one, marked=own) for one, own in zip(both, only, strict=True))
    less, more = (scale.bars(KnownEvents.of(own), marked=own) for own in only)
    drawn: dict[PairRow, list[ClockBars | str]] = {
        "compared": [left, sign, right],
        "joined": [left, "⊔", right, "=", scale.bars(both[0].union(both[1]))],
        "subtracted": [left, MINUS, right, "=", less],
        "subtracted from": [right, MINUS, left, "=", more],
    }
    note = _NOTES[sign] if list(rows) == ["compared"] else MARKS
    return bars_svg(title, [("", drawn[row]) for row in rows], note)
