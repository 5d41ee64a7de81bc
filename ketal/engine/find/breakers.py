"""The events that can break a `not`, and the earlier events that they bar from a match.

In `A not N B`, an N between A and B breaks the `not`: under arrival order by place, under
CausalOrder if it is after A and before B. Every such N was offered before B, as a pattern with
`not` is offered events in an order that respects happened-before.

Where the event alone decides whether it is an N, only the last N of each node in the past of B
matters, as its clock covers those before it. The clocks of these, joined once for each B, give for
every node the counter up to which its events are barred: a lower bound of the range in which A is
searched. Where N compares with an earlier step (`k == A.k`), the events between A and B are tried
for each pair.

The one rule: an event is held here while some event that it could bar is kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final

from ketal.engine.configurations import Configuration, JointPast, Seen, SeenTable
from ketal.engine.machine import Machine

_PLACE: Final = attrgetter("place")
_COUNTER: Final = attrgetter("counter")
SWEEP_MIN = 1_024
"""How many breakers are held before those that are not needed are swept."""


class Breakers:
    """The events offered to one scope that can break a `not`."""

    __slots__ = ("_certain", "_machine", "_possible", "_sweep_at", "by_place")

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.by_place: dict[int, Seen] = {}
        self._sweep_at = SWEEP_MIN
        self._index()

    def _index(self) -> None:
        """Rebuild the indexes: events by `not`, and under CausalOrder by node."""
        nots = range(len(self._machine.automaton.nots))
        self._certain: list[dict[str, list[Seen]]] = [{} for _ in nots]
        self._possible: list[dict[str, list[Seen]]] = [{} for _ in nots]
        for seen in self.by_place.values():
            self._put(seen)

    def _put(self, seen: Seen) -> None:
        machine = self._machine
        line = "" if machine.arrival else seen.node
        for number in range(len(self._certain)):
            formula = machine.breaks[number, seen.mask].formula
            if formula is not False:
                index = (self._certain if formula is True else self._possible)[number]
                index.setdefault(line, []).append(seen)

    def add(self, seen: Seen) -> None:
        """Add an event that can break a `not`."""
        self.by_place[seen.place] = seen
        self._put(seen)

    def add_and_sweep(self, seen: Seen, kept: Callable[[], Iterable[Seen]]) -> None:
        """Add an event; when many are held, sweep those that no kept event needs."""
        self.add(seen)
        if len(self.by_place) >= self._sweep_at:
            self.sweep(min((one.place for one in kept()), default=None))

    def sweep(self, oldest: int | None) -> None:
        """Remove the events up to `oldest`, the place of the first event kept (None: all)."""
        before = len(self.by_place)
        self.by_place = {
            place: seen
            for place, seen in self.by_place.items()
            if oldest is not None and place > oldest
        }
        self._sweep_at = max(SWEEP_MIN, 2 * len(self.by_place))
        if len(self.by_place) < before:
            self._index()

    # --- barred events ---

    def first_allowed(self, numbers: Iterable[int], seen: Seen, node: str) -> int:
        """Return the first counter of a node (place, under arrival order) that is not barred.

        An event before that cannot be the A of `A not N B` with `seen` as B: between the two there
        is an event that is an N by its local guard alone. `numbers` are those of the N's.
        """
        if self._machine.arrival:
            return max((self._last_place(n, seen) for n in numbers), default=0)
        return max((self._joint_past(n, seen).first_allowed(node) for n in numbers), default=0)

    def _last_place(self, number: int, seen: Seen) -> int:
        line = self._certain[number].get("", ())
        i = bisect_left(line, seen.place, key=_PLACE)
        return line[i - 1].place if i else 0

    def _joint_past(self, number: int, seen: Seen) -> JointPast:
        """Return the joint past of the events before `seen` that are N's by their local guards."""
        past = seen.joint_pasts.get(number)
        if past is None:
            own: dict[str, int] = {}
            others: dict[str, int] = {}
            for node, line in self._certain[number].items():
                i = _count_before(line, node, seen)
                if i:
                    last = line[i - 1]
                    own[node] = last.counter
                    for other, counter in last.clock.items():
                        if other != node and counter > others.get(other, 0):
                            others[other] = counter
            past = seen.joint_pasts[number] = JointPast(own, others)
        return past

    def flagged(self, configuration: Configuration, prior: Seen, seen: Seen) -> Configuration:
        """Return a configuration with the `not`s broken between adjacent events of a match."""
        pending = self._machine.pending[configuration.state]
        if not pending:
            return configuration
        flags = [False] * len(self._certain)
        position = prior.place if self._machine.arrival else prior.counter
        for number in pending:
            flags[number] = self.first_allowed((number,), seen, prior.node) > position or any(
                self._machine.holds(self._machine.breaks[number, x.mask], configuration, x)
                for x in self._between(number, prior, seen)
            )
        return configuration._replace(broken=tuple(flags))

    def _between(self, number: int, prior: Seen, seen: Seen) -> Iterator[Seen]:
        """Yield the events between two that are N's for some values of the registers."""
        for node, line in self._possible[number].items():
            if self._machine.arrival:
                low = bisect_right(line, prior.place, key=_PLACE)
                yield from line[low : bisect_left(line, seen.place, low, key=_PLACE)]
            else:
                low = bisect_left(line, prior.counter, key=lambda x: x.last_before(prior.node))
                yield from line[low : _count_before(line, node, seen)]

    # --- state ---

    def save(self, seens: SeenTable) -> list[int | None]:
        """Return the events, as their numbers in `seens`."""
        return [seens.number(seen) for seen in self.by_place.values()]

    def load(self, numbers: Iterable[int], seens: SeenTable) -> None:
        """Load the events that `save` returned."""
        for number in numbers:
            self.add(seens[number])

    def validate_state(self) -> None:
        """Assert that the indexes hold the same events."""
        assert all(place == seen.place for place, seen in self.by_place.items())
        indexed = {
            seen.place
            for indexes in (self._certain, self._possible)
            for index in indexes
            for line in index.values()
            for seen in line
        }
        assert indexed == self.by_place.keys()


def _count_before(line: list[Seen], node: str, seen: Seen) -> int:
    """Return how many events of a node, which are in `line`, happened before `seen`."""
    return bisect_right(line, seen.last_before(node), key=_COUNTER)
