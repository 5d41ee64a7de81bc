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

from ketal.clocks.versions.version_vectors import ObjectReplica, StoreReplica
from ketal.pictures.clocks.clock_bars import BarsRow, ClockBars, bars_svg
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
        (one.server, list(map(KnownEvents.of, one.siblings)))
        if isinstance(one, StoreReplica)
        else (one.name, list(map(KnownEvents.of, one.versions)))
        for one in replicas
    ]
    every = [one for _, known in rows for one in known]
    names = {name for name, _ in rows}.union(*(one.nodes for one in every))
    scale = BarsScale.of(every, [*(nodes or ()), *sorted(names)])
    drawn: list[BarsRow] = []
    for name, known in rows:
        parts: list[ClockBars | str] = []
        for one in known or [KnownEvents.of({})]:
            parts += [CONCURRENT] * bool(parts) + [scale.bars(one, own=[name])]
        count = {0: "no version", 1: "a version"}.get(len(known), f"{len(known)} siblings")
        drawn.append((f"{name}: {count}", parts))
    return bars_svg(title, drawn)
