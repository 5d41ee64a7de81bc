"""How many consistent cuts and linear extensions an execution has, exactly.

A consistent cut is a set of events with the past of each of them; ordered by inclusion the cuts are
a lattice (Mattern, "Virtual time and global states of distributed systems", 1989), and the linear
extensions are the paths through it, from the empty cut to the whole (Cooper and Marzullo,
"Consistent detection of global predicates", 1991). Both numbers are computed from a tree of parts
(`ketal.explanation.cuts.series_parallel`), of which each has n events, c cuts and e linear
extensions:

- one event: c = 2, e = 1
- series: a cut is a cut of one part, with all parts before it and none after; adjacent parts share
  the cut between them. c = Σ(c - 1) + 1, e = Π e
- parallel: cuts of the parts combine freely, and so do extensions, which are interleaved.
  c = Π c, e = (Σ n)! Π e / n!
- prime: its cuts are enumerated level by level, a level being the cuts with the same number of
  events, with the number of paths to each. c is the sum of the levels' sizes, e the number of paths
  to the last cut.

Two levels are in memory at a time. A cut is one integer, with a bit field for each line that counts
its events in the cut. The past that an event needs is encoded likewise, so one subtraction compares
all fields: the uppermost bit of a field, set before, is borrowed if the field is less than needed
(Lamport, "Multiple byte processing with full-word instructions", 1975). Of the next events of lines
only those to which a link leads from a cut's last event are compared with it; the others are ready
if they were before that event. So the cost of a cut grows with the cuts that follow it and with the
links from its last event, not with the lines.

Above the fields is the sum, over the events in the cut, of a weight for each line. Without it the
hashes of many cuts would be equal: Python hashes an integer by its remainder modulo 2**61 - 1, and
the powers of two, which count the lines, have only 61 different remainders.

The one rule: the numbers are exact, or they are lower bounds and `counted_cuts_max` is named.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from typing import Final

from ketal.explanation.cuts.series_parallel import EventOrder, PartKind, Piece
from ketal.model.events.causal_graph import CausalGraph

LIMIT = "counted_cuts_max"
HASH_MODULUS: Final = sys.hash_info.modulus
WEIGHT_BASE: Final = 37
"""The weight of the k-th line is the k-th power of this, modulo `HASH_MODULUS`."""


@dataclass(frozen=True, slots=True)
class CutCount:
    """How many consistent cuts and linear extensions events have; lower bounds if not `exact`."""

    events: int
    cuts: int
    linear_extensions: int
    exact: bool = True


def count_cuts(graph: CausalGraph, cuts_max: int) -> CutCount:
    """Count the cuts and linear extensions; enumerate at most `cuts_max` cuts of prime parts."""
    order = EventOrder(graph)
    parts = order.decompose()
    counts: dict[int, CutCount] = {}
    left = cuts_max
    for part in reversed(parts):
        if part.kind == "event":
            count = CutCount(events=1, cuts=2, linear_extensions=1)
        elif part.kind == "prime":
            count = _count_prime(order, part.pieces, left)
            left = max(0, left - count.cuts)
        else:
            count = _combine(part.kind, [counts.pop(id(one)) for one in part.parts])
        counts[id(part)] = count
    return counts[id(parts[0])]


def _combine(kind: PartKind, parts: list[CutCount]) -> CutCount:
    """Return the counts of a series or of a parallel part, from those of its parts."""
    events, cuts, extensions = 0, 1, 1
    for part in parts:
        events += part.events
        extensions *= part.linear_extensions
        if kind == "series":
            cuts += part.cuts - 1
        else:
            cuts *= part.cuts
            extensions *= comb(events, part.events)
    return CutCount(events, cuts, extensions, all(part.exact for part in parts))


@dataclass(slots=True)
class _LineField:
    """A line of a prime part, as the bit field of its events in a cut."""

    bit: int
    """The bit of the line in a set of lines."""
    step: int
    """What an event of the line adds to a cut: one to its field, and its weight."""
    shift: int
    mask: int
    needs: list[int]
    """For each of its events, the encoded past that the event needs, followed by a value that no
    cut reaches."""
    awaiting: list[list[_LineField]]
    """For each number of its events in a cut, the lines with an event to which a link leads from
    the last of these."""


def _count_prime(order: EventOrder, pieces: Mapping[int, Piece], cuts_max: int) -> CutCount:
    """Count the cuts and linear extensions of a prime part by enumerating its cuts."""
    lines, guards = _bit_fields(order, pieces)
    events = sum(stop - start for start, stop in pieces.values())
    # For each cut the paths to it; in the same order, the lines that were ready before its last
    # event, and the line of that. All lines wait for the empty cut, as if it had a last event.
    level, ready_before, last_lines = {0: 1}, [0], [_LineField(0, 0, 0, 0, [], [lines])]
    cuts = 1
    for _ in range(events):
        below: dict[int, int] = {}
        ready_now: list[int] = []
        lines_taken: list[_LineField] = []
        room = cuts_max - cuts
        for (cut, paths), ready, last in zip(level.items(), ready_before, last_lines, strict=True):
            ready &= ~last.bit
            guarded = cut | guards
            for line in last.awaiting[cut >> last.shift & last.mask]:
                if (guarded - line.needs[cut >> line.shift & line.mask]) & guards == guards:
                    ready |= line.bit
            left = ready
            while left:
                line = lines[(left & -left).bit_length() - 1]
                left &= left - 1
                reached = cut + line.step
                others = below.get(reached)
                if others is None:
                    below[reached] = paths
                    ready_now.append(ready)
                    lines_taken.append(line)
                else:
                    below[reached] = others + paths
            if len(below) > room:
                # Each path can be continued to the whole, and each level has at least one cut.
                least = max(cuts + len(below), events + 1)
                return CutCount(events, least, sum(level.values()), exact=False)
        level, ready_before, last_lines = below, ready_now, lines_taken
        cuts += len(below)
    (extensions,) = level.values()
    return CutCount(events, cuts, extensions)


def _bit_fields(order: EventOrder, pieces: Mapping[int, Piece]) -> tuple[list[_LineField], int]:
    """Return the lines of a part as bit fields, and the mask of their uppermost bits."""
    lines: dict[int, _LineField] = {}
    guards = width = 0
    for number, (start, stop) in pieces.items():
        bits = (stop - start + 1).bit_length()
        line = _LineField(1 << len(lines), 1 << width, width, (1 << bits) - 1, [], [])
        line.awaiting += ([line] for _ in range(stop - start + 1))
        lines[number] = line
        width += bits + 1
        guards |= 1 << width - 1
    for place, line in enumerate(lines.values(), 1):
        line.step += pow(WEIGHT_BASE, place, HASH_MODULUS) << width
    for number, (start, stop) in pieces.items():
        line, needed = lines[number], 0
        before: dict[int, int] = {}
        for place in range(start, stop):
            counts = dict(order.known_in(pieces, number, place))
            for other, count in counts.items():
                needed += count - before.get(other, 0) << lines[other].shift
            line.needs.append(needed)
            before = counts
            for other, at in order.causes[number][place]:
                if other in pieces and pieces[other][0] <= at < pieces[other][1]:
                    lines[other].awaiting[at + 1 - pieces[other][0]].append(line)
        line.needs.append(stop - start + 1 << line.shift)
    return list(lines.values()), guards
