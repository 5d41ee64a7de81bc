"""`CausalOrder(frontier = 10 s)`: order where readiness cannot be seen (DESIGN 5).

Of a filtered topic, or of one partition of an execution, most events never
come, so a counter that is missing says nothing. Here an event waits for time
instead. It is due at the largest time of itself and of all events before it
that are held or were released; once the watermark has passed that, it is
released, in canonical order with what else is due. The watermark follows the
largest time seen at a distance of `frontier`, or is given.

Whatever the nodes' clocks say, no event is due before one in its past, so what
is released respects happened-before. An event that arrives when something
after it was released is late.

An event without a time counts as of the largest time seen when it arrived.

Where a node has left, clocks shrink. An event that looks due gets its clock back
as far as what is held or was released says it, and is then due when that says.

The one rule: released before what depends on it, or late, never in between.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ketal.model.event import Dot, Event, canonical_key
from ketal.operators.membership.clock_restoration import Restorer, present_order
from ketal.operators.order.hold_back import Settings
from ketal.operators.order.released import Marks, Out, Released, StreamTime

_EARLIEST = -(2**63)
Key = tuple[int, str, int]
"""A place in the canonical order: sum of the clock, node, counter."""


class Timed(NamedTuple):
    """An event in the queue, with its place among the arrivals and the time it counts as."""

    arrival: int
    event: Event
    time_us: int


class Stair:
    """The largest time among a node's first so many events, as far as it matters.

    A time that the watermark has passed holds nothing back, and one of a later
    event that is not larger adds nothing, so both lists increase.
    """

    __slots__ = ("counters", "times")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.times: list[int] = []

    def add(self, counter: int, time_us: int) -> None:
        """Take an event into account."""
        place = bisect_left(self.counters, counter)
        if place and self.times[place - 1] >= time_us:
            return
        end = bisect_right(self.times, time_us, place)
        self.counters[place:end] = [counter]
        self.times[place:end] = [time_us]

    def largest(self, counter: int) -> int:
        """Return the largest time up to a counter."""
        place = bisect_right(self.counters, counter)
        return self.times[place - 1] if place else _EARLIEST

    def forget(self, watermark_us: int) -> None:
        """Forget the times that the watermark has passed."""
        place = bisect_left(self.times, watermark_us)
        del self.counters[:place], self.times[:place]


class Frontier:
    """Releases in canonical order what the watermark has passed.

    Parameters
    ----------
    settings : Settings
        The options.
    time : StreamTime
        Kept by the owner, who lets it tick before each call.

    Attributes
    ----------
    restorer : Restorer or None
        Put in by the owner when a node has left.
    """

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        self.settings = settings
        self.time = time
        self.restorer: Restorer | None = None
        self.marks = Marks(settings.lost_max)
        self.count = 0
        self._arrivals = 0
        self._ended = False
        self._given: int | None = None  # the watermark as it was given
        self._timed = False
        self._held: dict[str, dict[int, Timed]] = {}
        self._stairs: dict[str, Stair] = {}
        self._seen: dict[str, int] = {}  # how many of a node are before what was released
        # By due time, which is found again when its turn comes: it may have grown since.
        self._heap: list[tuple[int, Key]] = []

    @property
    def watermark_us(self) -> int | None:
        """The watermark: what is due before it is released."""
        if self.time.now is None:
            return None
        behind = self.time.now - self.settings.frontier_us
        return behind if self._given is None else max(behind, self._given)

    def begin(self, seen: Mapping[str, tuple[int, list[int]]]) -> None:
        """Hear what was seen before this queue was made: nothing waits for a dot here."""

    def refit(self) -> None:
        """Hear that the options are others: nothing is counted for them here."""

    # --- what happens ---

    def push(self, event: Event, out: Out) -> None:
        """Take in an event whose dot was not pushed before."""
        self._begin()
        node, counter = event.node, event.clock[event.node]
        if self._ended or counter <= self._seen.get(node, 0):
            out.late.append(event)
            self.marks.add(node, counter)
            self._flow(out)
            return
        time_us, now = event.time_us, self.time.now
        if time_us is None:
            time_us = _EARLIEST if now is None else now
        due = self._due(event, time_us)
        watermark_us = self.watermark_us
        waits = watermark_us is None or due >= watermark_us
        if waits and self.count >= self.settings.held_back_max and not self.settings.lose:
            # Nothing waits for it, so what comes after it says that it is not there.
            out.refused.append(event)
            self.marks.add(node, counter)
        else:
            self._arrivals += 1
            self._hold(Timed(self._arrivals, event, time_us), (due, canonical_key(event)))
        self._flow(out)
        while self.count > self.settings.held_back_max:
            out.given_up += 1
            self._release(self._first_due(), out)

    def advance(self, out: Out) -> None:
        """Release what has become due."""
        self._begin()
        self._flow(out)

    def watermark(self, watermark_us: int) -> None:
        """Take a watermark that is given."""
        self._given = watermark_us if self._given is None else max(self._given, watermark_us)

    def join(self, node: str, out: Out) -> None:
        """Hear that a node is there: nothing waits for a node here."""

    def leave(self, node: str, out: Out) -> None:
        """Hear that a node left: nothing waited for it."""

    def view(self, members: Iterable[str], out: Out) -> None:
        """Hear who is there: nothing waits for a node here."""

    def end(self, out: Out) -> None:
        """Hear that nothing comes any more: the watermark passes everything."""
        self._ended = True
        keys = [key for _, key in self._heap]
        self._restore(keys)
        for place in sorted(map(self._place, keys)):
            self._release(place, out)
        self._heap = []

    # --- how ---

    def _begin(self) -> None:
        """Give the events that came before any time was known the first one."""
        first = self.time.first
        if self._timed or first is None:
            return
        self._timed = True
        if not self.count:
            return
        held = self._in_order()
        self.count, self._held, self._stairs, self._heap = 0, {}, {}, []
        for item in held:
            turn = first, canonical_key(item.event)
            self._hold(item._replace(time_us=first), turn)

    def _hold(self, item: Timed, turn: tuple[int, Key]) -> None:
        event = item.event
        node, counter = event.node, event.clock[event.node]
        self._held.setdefault(node, {})[counter] = item
        self.count += 1
        if item.time_us > _EARLIEST:
            self._stairs.setdefault(node, Stair()).add(counter, item.time_us)
        heapq.heappush(self._heap, turn)

    def _due(self, event: Event, time_us: int) -> int:
        if self.restorer is not None:
            event = self.restorer.remembered(event)
        for node, counter in event.clock.items():
            stair = self._stairs.get(node)
            if stair is not None:
                time_us = max(time_us, stair.largest(counter))
        return time_us

    def _item(self, key: Key) -> Timed:
        return self._held[key[1]][key[2]]

    def _flow(self, out: Out) -> None:
        watermark_us = self.watermark_us
        if watermark_us is None:
            return
        due_now = []
        fresh: set[tuple[str, int]] = set()
        while self._heap and self._heap[0][0] < watermark_us:
            _, key = heapq.heappop(self._heap)
            self._restore([key], fresh)
            item, place = self._item(key), self._place(key)
            due = self._due(item.event, item.time_us)
            if due < watermark_us:
                due_now.append(place)
            else:
                heapq.heappush(self._heap, (due, place))
        for place in sorted(due_now):
            self._release(place, out)

    def _place(self, key: Key) -> Key:
        """Return an event's place in the canonical order, as far as its clock is known."""
        event = self._item(key).event
        return canonical_key(event if self.restorer is None else self.restorer.remembered(event))

    def _restore(self, keys: list[Key], fresh: set[tuple[str, int]] | None = None) -> None:
        """Restore the clocks of held events as far as is known now.

        Parameters
        ----------
        keys : list of Key
            The events.
        fresh : set of (str, int)
            Events for which that was done since anything arrived; added to.
        """
        restorer = self.restorer
        if restorer is None:
            return
        fresh = set() if fresh is None else fresh
        found: list[Event] = []
        dots = [(node, counter) for _, node, counter in keys]
        while dots:
            node, counter = dots.pop()
            item = self._held.get(node, {}).get(counter)
            if item is None or (node, counter) in fresh:
                continue
            fresh.add((node, counter))
            found.append(item.event)
            for other, known in item.event.clock.items():
                known -= other == node
                dots.append((other, restorer.memory.reached(other, known)))
        for event in present_order(found):
            restorer.so_far(event)

    def _first_due(self) -> Key:
        """Take the key of the event that is due first off the heap."""
        while True:
            due, key = heapq.heappop(self._heap)
            self._restore([key])
            item = self._item(key)
            later = self._due(item.event, item.time_us)
            if later <= due:
                return key
            heapq.heappush(self._heap, (later, self._place(key)))

    def _release(self, key: Key, out: Out) -> None:
        _, node, counter = key
        held = self._held[node]
        event = held.pop(counter).event
        self.count -= 1
        if not held:
            del self._held[node]
            stair, watermark_us = self._stairs.get(node), self.watermark_us
            if stair is not None and watermark_us is not None:
                stair.forget(watermark_us)
        if self.restorer is not None:
            whole = self.restorer.restore(event)
            if whole is not event:
                out.raised.append(event.dot)
            event = whole
        seen = self._seen
        for other, needed in event.clock.items():
            if needed > seen.get(other, 0):
                seen[other] = needed
        out.released.append(Released(event, self.marks.after(event)))

    # --- what can be asked, and state ---

    def _in_order(self) -> list[Timed]:
        held = [item for line in self._held.values() for item in line.values()]
        return sorted(held, key=lambda item: item.arrival)

    def holds(self, dot: Dot) -> bool:
        """Return whether an event is held."""
        return dot.counter in self._held.get(dot.node, ())

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the held events in order of arrival; they wait for their turn."""
        return [(item.event, None) for item in self._in_order()]

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data."""
        # When an event is looked at decides what is known then, so that is a part of it.
        turns = {key[1:]: [due, str(key[0])] for due, key in self._heap}
        return {
            "held": [
                [number(item.event), item.time_us, *turns[item.event.dot]]
                for item in self._in_order()
            ],
            "stairs": {
                n: [list(pair) for pair in zip(s.counters, s.times, strict=True)]
                for n, s in self._stairs.items()
                if s.counters
            },
            "seen": dict(self._seen),
            "given": self._given,
            "timed": self._timed,
            "marks": self.marks.state(),
            "ended": self._ended,
        }

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        for node, pairs in state["stairs"].items():
            stair = self._stairs[node] = Stair()
            for counter, time_us in pairs:
                stair.add(counter, time_us)
        self._seen = dict(state["seen"])
        self._given, self._timed = state["given"], state["timed"]
        self.marks.restore(state["marks"])
        self._ended = state["ended"]
        for index, time_us, due, total in state["held"]:
            self._arrivals += 1
            event = events[index]
            self._hold(Timed(self._arrivals, event, time_us), (due, (int(total), *event.dot)))
