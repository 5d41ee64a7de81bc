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
(Lamport, "Multiple byte processing with full-word instructions", 1975).

The one rule: the numbers are exact, or they are lower bounds and `counted_cuts_max` is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

from ketal.explanation.causal_graph import CausalGraph
from ketal.explanation.cuts.series_parallel import EventOrder, PartKind, Piece

LIMIT = "counted_cuts_max"


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


def _count_prime(order: EventOrder, pieces: Mapping[int, Piece], cuts_max: int) -> CutCount:
    """Count the cuts and linear extensions of a prime part by enumerating its cuts."""
    lines, guards = _bit_fields(order, pieces)
    events = sum(stop - start for start, stop in pieces.values())
    level, cuts = {0: 1}, 1
    for _ in range(events):
        below: dict[int, int] = {}
        room = cuts_max - cuts
        for cut, paths in level.items():
            guarded = cut | guards
            for shift, mask, needs in lines:
                if (guarded - needs[cut >> shift & mask]) & guards == guards:
                    reached = cut + (1 << shift)
                    below[reached] = below.get(reached, 0) + paths
            if len(below) > room:
                # Each path can be continued to the whole, and each level has at least one cut.
                least = max(cuts + len(below), events + 1)
                return CutCount(events, least, sum(level.values()), exact=False)
        level, cuts = below, cuts + len(below)
    (extensions,) = level.values()
    return CutCount(events, cuts, extensions)


def _bit_fields(
    order: EventOrder, pieces: Mapping[int, Piece]
) -> tuple[list[tuple[int, int, list[int]]], int]:
    """Return the bit fields of a part's lines, and the mask of their uppermost bits.

    A field is its shift, its mask, and for each event of the line the encoded past that the event
    needs, followed by a value that no cut reaches.
    """
    shifts: dict[int, int] = {}
    guards = width = 0
    for line, (start, stop) in pieces.items():
        shifts[line] = width
        width += (stop - start + 1).bit_length() + 1
        guards |= 1 << width - 1
    fields = []
    for line, (start, stop) in pieces.items():
        needs = [
            sum(
                min(upto, pieces[other][1]) - pieces[other][0] << shifts[other]
                for other, upto in known.items()
                if other in pieces and upto > pieces[other][0]
            )
            for known in order.known[line][start:stop]
        ]
        beyond = stop - start + 1
        needs.append(beyond << shifts[line])
        fields.append((shifts[line], (1 << beyond.bit_length()) - 1, needs))
    return fields, guards
