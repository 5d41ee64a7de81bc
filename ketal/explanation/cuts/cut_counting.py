"""How many consistent cuts and linear extensions an execution has, exactly.

A consistent cut is a set of events with the past of each of them; ordered by inclusion the cuts are
a lattice (Mattern, "Virtual time and global states of distributed systems", 1989), and the linear
extensions are the paths through it, from the empty cut to the whole (Cooper and Marzullo,
"Consistent detection of global predicates", 1991). Both numbers are those of a tree of parts
(`ketal.explanation.cuts.series_parallel`), with c cuts and e linear extensions of n events each:

- one event: c = 2, e = 1
- series: a cut is within one part, all before being in it and none after; where two parts meet they
  share it. c = Σ(c - 1) + 1, e = Π e
- parallel: cuts of the parts combine freely, and so do extensions, which are interleaved.
  c = Π c, e = (Σ n)! Π e / n!
- prime: its cuts are walked, level by level, a level being the cuts of one number of events, with
  the number of paths to each. c is the sum of the levels' sizes, e the paths to the last cut.

Two levels are in memory at a time. A cut is one integer, with a field of bits for each line that
counts the events in the cut; so is what an event needs, and one subtraction compares all fields:
the uppermost bit of a field, set before it, is lost where the field has less than what is needed
(Lamport, "Multiple byte processing with full-word instructions", 1975).

The one rule: the numbers are exact, or they are lower bounds and `counted_cuts_max` is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

from ketal.explanation.causal_graph import CausalGraph
from ketal.explanation.cuts.series_parallel import EventOrder, Piece

LIMIT = "counted_cuts_max"


@dataclass(frozen=True, slots=True)
class CutCount:
    """How many consistent cuts and linear extensions there are.

    Attributes
    ----------
    events : int
        Of so many events.
    cuts, linear_extensions : int
        The numbers, or lower bounds.
    exact : bool
        Whether they are the numbers.
    """

    events: int
    cuts: int
    linear_extensions: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _WalkedLine:
    """A piece of a line in the integers that are cuts.

    Attributes
    ----------
    one : int
        What is added to a cut for one event more.
    shift, mask : int
        Where its field is, and the bits of it.
    needs : tuple of int
        For each event the cut that has its past; last what no cut has.
    """

    one: int
    shift: int
    mask: int
    needs: tuple[int, ...]


def count_cuts(graph: CausalGraph, cuts_max: int) -> CutCount:
    """Count the cuts and linear extensions; of prime parts at most `cuts_max` cuts are walked."""
    if not len(graph):
        return CutCount(events=0, cuts=1, linear_extensions=1)
    order = EventOrder(graph)
    parts = order.decompose()
    counts: dict[int, CutCount] = {}
    left = cuts_max
    for part in reversed(parts):
        if part.kind == "event":
            count = CutCount(events=1, cuts=2, linear_extensions=1)
        elif part.kind == "prime":
            count = _walk(order, part.pieces, left)
            left = max(0, left - count.cuts)
        else:
            combine = _in_series if part.kind == "series" else _in_parallel
            count = combine([counts.pop(id(one)) for one in part.parts])
        counts[id(part)] = count
    return counts[id(parts[0])]


def _in_series(parts: list[CutCount]) -> CutCount:
    cuts, extensions = 1, 1
    for part in parts:
        cuts += part.cuts - 1
        extensions *= part.linear_extensions
    return _combined(parts, cuts, extensions)


def _in_parallel(parts: list[CutCount]) -> CutCount:
    events, cuts, extensions = 0, 1, 1
    for part in parts:
        events += part.events
        cuts *= part.cuts
        extensions *= part.linear_extensions * comb(events, part.events)
    return _combined(parts, cuts, extensions)


def _combined(parts: list[CutCount], cuts: int, extensions: int) -> CutCount:
    events = sum(part.events for part in parts)
    return CutCount(events, cuts, extensions, all(part.exact for part in parts))


def _walk(order: EventOrder, pieces: Mapping[int, Piece], cuts_max: int) -> CutCount:
    """Walk the cuts of a part of which nothing else is known."""
    lines, guards = _fields(order, pieces)
    events = sum(stop - start for start, stop in pieces.values())
    level, cuts = {0: 1}, 1
    for _ in range(events):
        below: dict[int, int] = {}
        room = cuts_max - cuts
        for cut, paths in level.items():
            guarded = cut | guards
            for line in lines:
                if (guarded - line.needs[cut >> line.shift & line.mask]) & guards == guards:
                    reached = cut + line.one
                    below[reached] = below.get(reached, 0) + paths
            if len(below) > room:
                return _bound(events, cuts + len(below), level)
        level, cuts = below, cuts + len(below)
    (extensions,) = level.values()
    return CutCount(events, cuts, extensions)


def _bound(events: int, cuts: int, level: Mapping[int, int]) -> CutCount:
    """Return lower bounds, of the cuts that were reached and the paths to a whole level.

    Each path goes on to the whole, and a cut is reached on each level.
    """
    return CutCount(events, max(cuts, events + 1), sum(level.values()), exact=False)


def _fields(order: EventOrder, pieces: Mapping[int, Piece]) -> tuple[list[_WalkedLine], int]:
    """Return the lines of a part, and the uppermost bits of their fields."""
    shifts: dict[int, int] = {}
    guards = width = 0
    for line, (start, stop) in pieces.items():
        shifts[line] = width
        width += (stop - start + 1).bit_length() + 1
        guards |= 1 << width - 1
    lines = []
    for line, (start, stop) in pieces.items():
        shift, bits = shifts[line], (stop - start + 1).bit_length()
        needs = [
            sum(
                min(upto, pieces[other][1]) - pieces[other][0] << shifts[other]
                for other, upto in known.items()
                if other in pieces and upto > pieces[other][0]
            )
            for known in order.known[line][start:stop]
        ]
        needs.append(stop - start + 1 << shift)
        lines.append(_WalkedLine(1 << shift, shift, (1 << bits) - 1, tuple(needs)))
    return lines, guards
