"""Where the events of a space-time diagram with horizontal lines are, and how messages run there.

An event's place is the length of the longest chain of links that ends in it, so every link leads to
the right. The places stand on a line without end, which is cut into bands where it would be too
long; a message goes on in the next band at the height at which it left.

The one rule: a message keeps clear of the dots of other events where one of a few bends does.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ketal.pictures.svg_document import Point

BAND_PX = 1_100.0
"""How long a line is at most before it goes on in the next band."""
ROW, BAND_GAP, SIDE = 62.0, 30.0, 16.0
LEAD_PX = 18.0
"""How far the dots of a place stand from its beginning, so that an arrow into a band is seen."""
PLACE_GAP, PLACE_PX = 26.0, 50.0
CLEAR_PX = 10.0
"""How far a message stays from the dots of other events."""
# In rows, at the middle of a message.
_BENDS = (0.0, 0.25, -0.25, 0.5, -0.5, 0.8, -0.8)


@dataclass(frozen=True, slots=True)
class CurvePiece:
    """A part of a message within a band: a quadratic Bézier curve, and whether it arrives."""

    start: Point
    control: Point
    end: Point
    arrives: bool


class MessageCurve(NamedTuple):
    """The height of a message along its way: a parabola between the rows of its two events."""

    first: int
    last: int
    bend: float

    def height(self, part: float) -> float:
        """Return the row, not a whole one, at which a part of the way is behind it."""
        return self.first + part * (self.last - self.first) + 4 * self.bend * part * (1 - part)

    def slope(self, part: float) -> float:
        """Return how steep it is there."""
        return self.last - self.first + 4 * self.bend * (1 - 2 * part)


class Timeline:
    """The places of events.

    Parameters
    ----------
    rows : sequence of int
        The row of each event, in a linear extension.
    widths : sequence of float
        How much room what is written at each takes.
    messages : sequence of (int, int)
        The numbers of the events that sent, and that received.
    rows_count : int
        How many rows there are.
    left : float
        Where the lines begin.
    """

    def __init__(
        self,
        rows: Sequence[int],
        widths: Sequence[float],
        messages: Sequence[tuple[int, int]],
        *,
        rows_count: int,
        left: float,
    ) -> None:
        self._rows, self._left = rows, left
        places = longest_chains(rows, messages)
        place_widths = [PLACE_PX] * (1 + max(places, default=0))
        for place, width in zip(places, widths, strict=True):
            place_widths[place] = max(place_widths[place], width + PLACE_GAP)
        starts: list[float] = []
        self._bands, at = [0.0], 0.0
        for width in place_widths:
            if at > self._bands[-1] and at + width - self._bands[-1] > BAND_PX:
                self._bands.append(at)
            starts.append(at + LEAD_PX)
            at += width
        self._ends = [*self._bands[1:], at]
        self._at = [starts[place] for place in places]
        self._band_height = ROW * max(1, rows_count) + BAND_GAP
        spans = [end - start for start, end in zip(self._bands, self._ends, strict=True)]
        self.width = left + max(spans) + SIDE
        self.height = self._band_height * len(self._bands)

    def point(self, number: int) -> Point:
        """Return where an event is."""
        at = self._at[number]
        return self._point(at, self._rows[number], self._band(at))

    def line(self, row: int) -> Iterator[tuple[Point, Point]]:
        """Yield the line of a row in each band."""
        for band, (start, end) in enumerate(zip(self._bands, self._ends, strict=True)):
            yield self._point(start, row, band), self._point(end, row, band)

    def pieces(self, source: int, target: int) -> Iterator[CurvePiece]:
        """Yield the parts of a message, band by band."""
        start, end = self._at[source], self._at[target]
        curve = self._curve(source, target)
        first, last = self._band(start), self._band(end)
        for band in range(first, last + 1):
            low = (max(start, self._bands[band]) - start) / (end - start)
            high = (min(end, self._ends[band]) - start) / (end - start)
            middle, row = (low + high) / 2, curve.height(low)
            control = row + curve.slope(low) * (high - low) / 2
            yield CurvePiece(
                self._point(start + low * (end - start), row, band),
                self._point(start + middle * (end - start), control, band),
                self._point(start + high * (end - start), curve.height(high), band),
                arrives=band == last,
            )

    def _band(self, at: float) -> int:
        return bisect_right(self._bands, at) - 1

    def _point(self, at: float, row: float, band: int) -> Point:
        y = band * self._band_height + ROW * (row + 0.5) + BAND_GAP / 2
        return self._left + at - self._bands[band], y

    def _curve(self, source: int, target: int) -> MessageCurve:
        """Return the least bent curve that keeps clear of dots, or that does best."""
        start, end = self._at[source], self._at[target]
        between = [
            ((at - start) / (end - start), row)
            for at, row in zip(self._at, self._rows, strict=True)
            if start < at < end
        ]

        def clearance(curve: MessageCurve) -> float:
            nearest = CLEAR_PX
            for part, row in between:
                off = abs(curve.height(part) - row) * ROW
                slope = curve.slope(part) * ROW / (end - start)
                nearest = min(nearest, off / math.hypot(1.0, slope))
            return nearest

        ends = self._rows[source], self._rows[target]
        return max((MessageCurve(*ends, bend) for bend in _BENDS), key=clearance)


def longest_chains(lines: Sequence[object], messages: Sequence[tuple[int, int]]) -> list[int]:
    """Return how many links the longest chain has that ends in each event, by the events' lines."""
    sources: dict[int, list[int]] = {}
    for source, target in messages:
        # Impossible clocks may name what comes later; the audit reports it.
        if source < target:
            sources.setdefault(target, []).append(source)
    last: dict[object, int] = {}
    lengths: list[int] = []
    for number, line in enumerate(lines):
        before = [lengths[source] for source in sources.get(number, ())]
        last[line] = 1 + max([*before, last.get(line, -1)])
        lengths.append(last[line])
    return lengths
