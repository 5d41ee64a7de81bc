"""Dependency sequences: the causal history of an event, as ranges of event numbers per station.

They are causal histories in which an event is named by its station and its number there: a set of
event numbers for each station. The paper writes such a set in one of three equivalent encodings:
⟨{2,4,5,6,7,9}⟩ as a *set*, ⟨2,2,4,7,9,9⟩ as *pairs*, the first and last of each
range of consecutive numbers, or ⟨010111101⟩ as *bits*, the digit of number 1 first. This module
uses pairs.

The one rule: a stamp contains the number of every cause, so comparing two stamps needs no other
stamps. a → b iff b's history contains a's label.

If hosts at a station do not communicate and take turns, each number is a range of its own, and
stamps grow with the run.

Prakash and Singhal, "Dependency sequences and hierarchical clocks", 1997; Baquero and Moura,
"Improving Causality Logging in Mobile Computing Networks", section III, Definition III.1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ketal.clocks.mobile_hosts.stations import Label, StationScheme, cause_headers
from ketal.clocks.scheme import checked_counter, not_a_stamp
from ketal.errors import EventError, value_text

Pairs = tuple[int, ...]
"""A set of positive integers: first and last of each range, in order, with gaps in between."""
_FORM = "the first and last numbers of its ranges, in order, with gaps between them"


def _ranges(pairs: Pairs) -> Iterable[tuple[int, int]]:
    return zip(pairs[::2], pairs[1::2], strict=True)


def _merged(ranges: Iterable[tuple[int, int]]) -> Pairs:
    """Return the pairs of the union of ranges, which may overlap."""
    out: list[int] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1] + 1:
            out[-1] = max(out[-1], last)
        else:
            out += [first, last]
    return tuple(out)


def contains(pairs: Pairs, number: int) -> bool:
    """Return whether a number is in the set encoded by pairs."""
    # Bounds are in the set; numbers between two bounds are in a range or in a gap.
    at = bisect_left(pairs, number)
    return at < len(pairs) and (at % 2 == 1 or pairs[at] == number)


@dataclass(frozen=True, slots=True)
class DependencySequences:
    """The causal history of an event, as the numbers of the known events of each station."""

    host: str
    station: str  # the station of the event; the last number of its sequence is the event's own
    history: Mapping[str, Pairs]  # station → the numbers of its known events, as pairs

    @property
    def label(self) -> Label:
        """The station and the number of the event there."""
        return self.station, self.history[self.station][-1]


class DependencyClocks(StationScheme[DependencySequences, Mapping[str, Pairs]]):
    """Dependency sequences."""

    name = "dependency"
    decides = True

    def stamp_event(
        self,
        station: str,
        log: Sequence[DependencySequences],
        host: str,
        previous: Mapping[str, Pairs] | None,
        received: Sequence[Mapping[str, Pairs]],
    ) -> DependencySequences:
        """Stamp an event with the union of the known histories and its own number."""
        index = len(log) + 1
        known = cause_headers(previous, received)
        names = dict.fromkeys(name for history in known for name in history)
        history = {
            name: _merged(bounds for other in known for bounds in _ranges(other.get(name, ())))
            for name in names
        }
        own = _ranges(history.get(station, ()))
        history[station] = _merged([*own, (index, index)])
        return DependencySequences(host, station, history)

    def entries_of(self, stamp: DependencySequences) -> int:
        """Return how many bounds of ranges the history has."""
        return sum(map(len, stamp.history.values()))

    def header(self, stamp: DependencySequences) -> Mapping[str, Pairs]:
        """Return the sequences of all stations."""
        return stamp.history

    def order(
        self, stamps: Iterable[DependencySequences]
    ) -> Callable[[DependencySequences, DependencySequences], bool]:
        """Return a function of two stamps: whether the second's history contains the first."""

        def before(a: DependencySequences, b: DependencySequences) -> bool:
            station, index = a.label
            return contains(b.history.get(station, ()), index) and a.label != b.label

        return before

    def written(self, stamp: DependencySequences) -> list[Any]:
        """Return the station, and the sequences as lists of pairs."""
        return [stamp.station, {name: list(pairs) for name, pairs in sorted(stamp.history.items())}]

    def read(self, value: Any, node: str) -> DependencySequences:
        """Return the stamp of a station and sequences given as pairs."""
        match value:
            case [str(station), dict(given)] if (
                station and station in given and all(isinstance(name, str) for name in given)
            ):
                history = {name: _read_pairs(pairs, name) for name, pairs in given.items()}
                return DependencySequences(node, station, history)
        example = '["s1", {"s1": [1, 2, 4, 4], "s2": [2, 2]}]'
        form = f"a station, and for each station {_FORM}, such as {example}"
        raise not_a_stamp(self.name, form, value)


def _read_pairs(value: Any, station: str) -> Pairs:
    if isinstance(value, list) and value:
        what = f"a number of an event of {station!r}"
        numbers = tuple(checked_counter(number, what, 1) for number in value)
        if len(numbers) % 2 == 0 and all(
            b >= a if at % 2 == 0 else b > a + 1 for at, (a, b) in enumerate(pairwise(numbers))
        ):
            return numbers
    raise EventError(
        f"clock: the events of {station!r} must be {_FORM}, not {value_text(value):.60}"
    )
