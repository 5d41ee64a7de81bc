"""Dependency sequences: of each event the events that it knows, by stations, in ranges.

They are causal histories, in which an event is named by its station and its number there: for each
station the set of the numbers that are known. Such a set is written in one of three encodings,
which say the same: ⟨{2,4,5,6,7,9}⟩ as a *set*, ⟨2,2,4,7,9,9⟩ as *pairs*, the first and last of each
range of consecutive numbers, ⟨010111101⟩ as *bits*, the digit of number 1 first. Here they are
pairs.

The one rule: every cause has its number in the stamp, so two stamps answer by themselves. a → b iff
b's history has a's label.

What a stamp costs depends on how the hosts of a station interleave. A host that is alone at its
stations costs a pair for each of them. Of hosts that know nothing of each other and take turns each
number is a range of its own, and a stamp grows with the run: then a set costs half as much as
pairs. Bits cost a digit for each number up to the greatest, known or not. A message and a handoff
carry the whole stamp.

Prakash and Singhal, "Dependency sequences and hierarchical clocks", 1997; Baquero and Moura,
"Improving Causality Logging in Mobile Computing Networks", section III, Definition III.1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ketal.clocks.mobile_hosts.stations import Label, StationScheme
from ketal.clocks.scheme import counter_of, not_a_stamp
from ketal.errors import EventError

Pairs = tuple[int, ...]
"""A set of numbers from 1 on: first and last of each range, in order, a gap between any two."""
_FORM = "the first and last numbers of its ranges, in order, with gaps between them"


def _ranges(pairs: Pairs) -> Iterable[tuple[int, int]]:
    return zip(pairs[::2], pairs[1::2], strict=True)


def _merged(ranges: Iterable[tuple[int, int]]) -> Pairs:
    """Return the pairs of all numbers in ranges, which may overlap."""
    out: list[int] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1] + 1:
            out[-1] = max(out[-1], last)
        else:
            out += [first, last]
    return tuple(out)


def has(pairs: Pairs, number: int) -> bool:
    """Return whether a number is in the set of pairs."""
    # A bound is in it; between two bounds are the numbers of a range, or of a gap.
    at = bisect_left(pairs, number)
    return at < len(pairs) and (at % 2 == 1 or pairs[at] == number)


@dataclass(frozen=True, slots=True)
class DependencySequences:
    """The history of an event, as the numbers of the events of each station.

    Attributes
    ----------
    host : str
        The host.
    station : str
        The station; the last number of its sequence is the event's own.
    history : mapping of str to tuple of int
        For each station of which an event is known the pairs of the numbers of those that are.
    """

    host: str
    station: str
    history: Mapping[str, Pairs]

    @property
    def label(self) -> Label:
        """The station and the number of the event there."""
        return self.station, self.history[self.station][-1]


class DependencyClocks(StationScheme[DependencySequences, Mapping[str, Pairs]]):
    """Dependency sequences."""

    name = "dependency"
    decides = True

    def registered(
        self,
        station: str,
        log: Sequence[DependencySequences],
        host: str,
        previous: Mapping[str, Pairs] | None,
        received: Sequence[Mapping[str, Pairs]],
    ) -> DependencySequences:
        """Stamp an event by the union of what is known and its own number."""
        index = len(log) + 1
        known = received if previous is None else [previous, *received]
        names = dict.fromkeys(name for history in known for name in history)
        history = {
            name: _merged(bounds for one in known for bounds in _ranges(one.get(name, ())))
            for name in names
        }
        own = _ranges(history.get(station, ()))
        history[station] = _merged([*own, (index, index)])
        return DependencySequences(host, station, history)

    def header(self, stamp: DependencySequences) -> Mapping[str, Pairs]:
        """Return the sequences."""
        return stamp.history

    def order(
        self, stamps: Iterable[DependencySequences]
    ) -> Callable[[DependencySequences, DependencySequences], bool]:
        """Return whether the second knows the first: two stamps suffice."""

        def before(a: DependencySequences, b: DependencySequences) -> bool:
            station, index = a.label
            return has(b.history.get(station, ()), index) and a.label != b.label

        return before

    def written(self, stamp: DependencySequences) -> list[Any]:
        """Return the station, and the sequences as pairs."""
        return [stamp.station, {name: list(one) for name, one in sorted(stamp.history.items())}]

    def read(self, value: Any, node: str) -> DependencySequences:
        """Return the stamp of a station and sequences that are pairs."""
        match value:
            case [str(station), dict(given)] if (
                station and station in given and all(isinstance(name, str) for name in given)
            ):
                history = {name: _pairs_read(one, name) for name, one in given.items()}
                return DependencySequences(node, station, history)
        example = '["s1", {"s1": [1, 2, 4, 4], "s2": [2, 2]}]'
        form = f"a station, and for each station {_FORM}: {example}"
        raise not_a_stamp(self.name, form, value)


def _pairs_read(value: Any, station: str) -> Pairs:
    if isinstance(value, list) and value:
        what = f"a number of an event of {station!r}"
        numbers = tuple(counter_of(number, what, 1) for number in value)
        if len(numbers) % 2 == 0 and all(
            b >= a if at % 2 == 0 else b > a + 1 for at, (a, b) in enumerate(pairwise(numbers))
        ):
            return numbers
    raise EventError(f"clock: the events of {station!r} must be {_FORM}, not {value!r:.60}")
