"""Two clocks in a picture: compared, joined, subtracted.

One event happened before another iff the area of what it knows is included in the other's; two
areas of which each has a square that the other lacks are concurrent. The join is the union of the
areas. A difference is what is left of the area, mostly no vector any more: [2,3,3] - [2,3,2] =
{c3}.

Baquero, "Causality is Graphically Simple", sections "Vector Clocks" and "Dotted Version Vectors".

The one rule: a square of an operand is marked iff the other operand lacks it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ketal.clocks.versions.version_vectors import ObjectReplica, StoreReplica
from ketal.pictures.clocks.clock_bars import BarsRow, ClockBars
from ketal.pictures.clocks.clock_bars_svg import bars_svg
from ketal.pictures.clocks.clock_figures import BarsScale, Knowledge, KnownEvents

MARKS = "Hatched: what the other one does not know."
CONCURRENT = "∥"
MINUS = "\N{MINUS SIGN}"
_SIGNS = {(False, True): "<", (True, False): ">", (False, False): "=", (True, True): CONCURRENT}
"""Whether the first, and the second of two areas has squares of its own → the sign."""
_NOTES = {
    "<": "Included: the right one knows the hatched events too, so the left one is before it.",
    ">": "Included: the left one knows the hatched events too, so the right one is before it.",
    "=": "They know the same events.",
    CONCURRENT: "Concurrent: each knows hatched events that the other does not.",
}


def comparison_svg(a: Knowledge, b: Knowledge, *, nodes: Sequence[str] | None = None) -> str:
    """Draw two clocks beside each other: which one is included, or that they are concurrent.

    Parameters
    ----------
    a, b : Clock, set of (str, int), Vector, CausalHistory, DottedVector or Version
        What is compared.
    nodes : sequence of str, optional
        The columns in their order; others that are known follow, sorted.
    """
    pair = _Pair(a, b, nodes)
    return bars_svg("", [pair.compared()], _NOTES[pair.sign])


def join_svg(a: Knowledge, b: Knowledge, *, nodes: Sequence[str] | None = None) -> str:
    """Draw two clocks and their join, the point-wise maximum; parameters as of `comparison_svg`."""
    return bars_svg("", [_Pair(a, b, nodes).joined()], MARKS)


def difference_svg(a: Knowledge, b: Knowledge, *, nodes: Sequence[str] | None = None) -> str:
    """Draw what one clock knows beyond another one; parameters as of `comparison_svg`."""
    return bars_svg("", [_Pair(a, b, nodes).subtracted()], MARKS)


def pair_svg(a: Knowledge, b: Knowledge, *, title: str) -> str:
    """Draw two clocks compared, joined and subtracted, each in a row."""
    pair = _Pair(a, b, None)
    rows = [pair.compared(), pair.joined(), pair.subtracted(), pair.subtracted(backwards=True)]
    return bars_svg(title, rows, MARKS)


class _Pair:
    """Two clocks in one scale, and what only one of them knows."""

    def __init__(self, a: Knowledge, b: Knowledge, nodes: Sequence[str] | None) -> None:
        self._both = KnownEvents.of(a), KnownEvents.of(b)
        self._scale = BarsScale.of(self._both, nodes)
        of_a, of_b = (one.above(self._scale.floors) for one in self._both)
        self._only = of_a - of_b, of_b - of_a
        self._bars = [
            self._scale.bars(one, marked=only)
            for one, only in zip(self._both, self._only, strict=True)
        ]
        self.sign = _SIGNS[bool(self._only[0]), bool(self._only[1])]

    def compared(self) -> BarsRow:
        """Return the clocks with the sign of their order between them."""
        return "", [self._bars[0], self.sign, self._bars[1]]

    def joined(self) -> BarsRow:
        """Return the clocks and their join."""
        a, b = self._both
        return "", [self._bars[0], "⊔", self._bars[1], "=", self._scale.bars(a.joined(b))]

    def subtracted(self, *, backwards: bool = False) -> BarsRow:
        """Return the first clock without what the second one knows, or the other way round."""
        only = self._only[backwards]
        left = self._scale.bars(KnownEvents.of(only), marked=only)
        return "", [self._bars[backwards], MINUS, self._bars[not backwards], "=", left]


def versions_svg(
    replicas: Sequence[StoreReplica | ObjectReplica],
    *,
    nodes: Sequence[str] | None = None,
    title: str = "the versions that each replica keeps",
) -> str:
    """Draw the versions that servers or replicas keep, siblings beside each other, a row for each.

    Parameters
    ----------
    replicas : sequence of StoreReplica or ObjectReplica
        What is drawn, all in one scale; each with the column that it names versions in.
    nodes : sequence of str, optional
        The columns in their order; others follow, sorted.
    title : str, optional
        What the picture shows.
    """
    rows: list[tuple[str, list[KnownEvents]]] = []
    for replica in replicas:
        if isinstance(replica, StoreReplica):
            name, known = replica.server, [KnownEvents.of(one) for one in replica.siblings]
        else:
            name, known = replica.name, [KnownEvents.of(one) for one in replica.versions]
        rows.append((name, known))
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
