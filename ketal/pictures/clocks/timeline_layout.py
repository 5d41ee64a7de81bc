"""The layout of a space-time diagram with horizontal lines: places of events, curves of messages.

An event's place is the length of the longest chain of links that ends in it, so every link leads to
the right. The sequence of places is cut into bands of limited length; a message that crosses a cut
continues in the next band at the same height.

The one rule: a message avoids the dots of other events if one of a few bends does.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ketal.pictures.svg_document import Point

BAND_PX = 1_100.0
"""The maximal length of a line before it continues in the next band."""
ROW, BAND_GAP, SIDE = 62.0, 30.0, 16.0
LEAD_PX = 18.0
"""The distance of the dots of a place from its start, which keeps arrows into a band visible."""
PLACE_GAP, PLACE_PX = 26.0, 50.0
CLEAR_PX = 10.0
"""The distance that a message keeps from the dots of other events."""
# In rows, at the middle of a message.
_BENDS = (0.0, 0.25, -0.25, 0.5, -0.5, 0.8, -0.8)


@dataclass(frozen=True, slots=True)
class CurvePiece:
    """A part of a message within a band: a quadratic Bézier curve, and whether it is the last."""

    start: Point
    control: Point
    end: Point
    arrives: bool


class MessageCurve(NamedTuple):
    """The path of a message: a parabola between the rows of its two events."""

    first: int
    last: int
    bend: float

    def height(self, part: float) -> float:
        """Return the row (fractional) of the curve at a fraction of its length."""
        return self.first + part * (self.last - self.first) + 4 * self.bend * part * (1 - part)

    def slope(self, part: float) -> float:
        """Return the slope of the curve at a fraction of its length."""
        return self.last - self.first + 4 * self.bend * (1 - 2 * part)


class Timeline:
    """The places of events.

    Events, in a linear extension, are given by their rows and the widths of their texts; messages
    by the indices of the sending and the receiving event. The lines begin at `left`.
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
        """Return the position of an event."""
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
        """Return the least bent curve that avoids other dots, or the one with most clearance."""
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
    """Return the length of the longest chain of links that ends in each event.

    Links are messages, and the order of the events on each line.
    """
    sources: dict[int, list[int]] = {}
    for source, target in messages:
        # Impossible clocks may name later events; the audit reports them.
        if source < target:
            sources.setdefault(target, []).append(source)
    last: dict[object, int] = {}
    lengths: list[int] = []
    for number, line in enumerate(lines):
        before = [lengths[source] for source in sources.get(number, ())]
        last[line] = 1 + max([*before, last.get(line, -1)])
        lengths.append(last[line])
    return lengths
