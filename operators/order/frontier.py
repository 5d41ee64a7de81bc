"""`CausalOrder(frontier = 10 s)`: order by time, where causal readiness cannot be decided.

In a filtered topic, or in one partition of an execution, most events never
arrive, so a missing counter means nothing. Here an event waits for time
instead. It is due at the largest time of itself and of all events before it
that are held or were released. Once the watermark has passed that time, the event is
released, in canonical order with all others that are due. The watermark stays `frontier` behind
the largest event time so far, or is given; if time goes by watermarks alone, it is given.

Whatever the times of the nodes are, no event is due before one in its past, so the
release order respects happened-before. An event that arrives when an event
after it has been released is late.

An event without a time counts as one of the largest time so far when it arrived; if there was
none, as one of the first time.

Where a node has left, clocks shrink. An event that seems due gets its clock restored
as far as held and released events allow, and its due time is computed from that.

The one rule: an event is released before every event that depends on it, or is late.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.operators.membership.clock_restoration import present_order
from ketal.operators.order.missing import MissingSince
from ketal.operators.order.node_progress import Held
from ketal.operators.order.policy import GivenUp, ReleasePolicy

_EARLIEST: Final = -(2**63)
_LATEST: Final = 2**63


class LargestTimes:
    """The largest time among a node's events up to a counter, as far as it matters.

    A time that the watermark has passed holds no event back, and the time of a later
    event that is not larger changes no answer, so both lists increase.
    """

    __slots__ = ("counters", "times")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.times: list[int] = []

    def add(self, counter: int, time_us: int) -> bool:
        """Add the time of an event; return whether it matters."""
        index = bisect_left(self.counters, counter)
        if index and self.times[index - 1] >= time_us:
            return False
        end = bisect_right(self.times, time_us, index)
        self.counters[index:end] = [counter]
        self.times[index:end] = [time_us]
        return True

    def largest(self, counter: int, time_us: int) -> int:
        """Return the largest time up to a counter, or `time_us` if that is larger."""
        times = self.times
        if times[-1] <= time_us:  # As times increase, none is larger.
            return time_us
        index = bisect_right(self.counters, counter)
        return max(times[index - 1], time_us) if index else time_us

    def date(self, time_us: int) -> None:
        """Give the earliest of the events, none of which has a time yet, a time."""
        self.times = [time_us] * len(self.times)

    def evict(self, watermark_us: int) -> None:
        """Evict the times that the watermark has passed."""
        if self.times[0] < watermark_us:
            index = bisect_left(self.times, watermark_us)
            del self.counters[:index], self.times[:index]


class Frontier(ReleasePolicy):
    """Releases the events that the watermark has passed, in canonical order."""

    awaits_dots = False

    def begin(self) -> None:
        """Reset to holding no events."""
        self._timed = False  # whether events that arrived before any time was known have one
        self._times: dict[str, LargestTimes] = {}
        # The times in `_times`, each with its node, until the watermark passes them.
        self._unpassed: list[tuple[int, str]] = []
        # By due time, which is computed again when it has come, as it may have grown.
        self._heap: list[tuple[int, CanonicalKey]] = []
        self._due_now: list[CanonicalKey] = []  # to be released, the next one last

    @property
    def watermark_us(self) -> int | None:
        """The watermark: events that are due before it are released."""
        reached = self.time.reached
        if reached is None:
            return None
        behind = reached - self.options.frontier_us
        given = self.time.watermark_us
        return behind if given is None else max(behind, given)

    def admit(self, event: Event) -> bool:
        """Hold an event, or refuse it; return whether there was room."""
        store, time_us, now = self.store, microseconds(event.time), self.time.now
        if time_us is None:
            time_us = _EARLIEST if now is None else now
        due = self._due_us(event, time_us)
        if store.count >= self.options.held_back_max and not self.options.gives_up:
            watermark_us = self.watermark_us
            if watermark_us is None or due >= watermark_us:
                return False
        self._hold(store.new_arrival(event, time_us), due, canonical_key(event))
        return True

    def _date_untimed(self) -> None:
        """Give the events that arrived before any time was known, held or not, the first time."""
        first = self.time.first
        if self._timed or first is None:
            return
        self._timed = True
        for node, times in self._times.items():
            times.date(first)
            heapq.heappush(self._unpassed, (first, node))
        untimed = self.store.by_arrival()
        self._heap = []
        for held in untimed:
            self.store.remove(held.event)
        for held in untimed:
            self._hold(Held(held.arrival, held.event, first), first, canonical_key(held.event))

    def _hold(self, held: Held, due: int, key: CanonicalKey) -> None:
        event = self.store.hold(held).event
        times = self._times.get(event.node)
        if times is None:
            times = self._times[event.node] = LargestTimes()
        if times.add(event.clock[event.node], held.time_us):
            heapq.heappush(self._unpassed, (held.time_us, event.node))
        heapq.heappush(self._heap, (due, key))

    def _due_us(self, event: Event, time_us: int) -> int:
        for node, counter in self._last_restored(event).clock.items():
            times = self._times.get(node)
            if times is not None:
                time_us = times.largest(counter, time_us)
        return time_us

    # --- releasing ---

    def next(self) -> Held | None:
        """Return the next event to release; None where none is due."""
        if not self._due_now:
            self._date_untimed()
            self._find_due()
            if not self._due_now:
                return None
        return self._held(self._due_now.pop())

    def _find_due(self) -> None:
        """Pop the events that are due from the heap, in canonical order; at the end all are due."""
        watermark_us = _LATEST if self.ended else self.watermark_us
        if watermark_us is None or not self._heap or self._heap[0][0] >= watermark_us:
            return
        self._evict_times(watermark_us)
        restored: set[tuple[str, int]] = set()
        due_now: list[CanonicalKey] = []
        while self._heap and self._heap[0][0] < watermark_us:
            _, key = heapq.heappop(self._heap)
            self._restore_clocks(key, restored)
            held = self._held(key)
            if self._past_has_passed(held.event):
                due_now.append(key)
            else:
                due = self._due_us(held.event, held.time_us)
                heapq.heappush(self._heap, (due, self._key_now(key)))
        # Sorted only now: a clock read later in the loop may show that a node has left.
        self._due_now = [self._key_now(key) for key in due_now]
        self._due_now.sort(reverse=True)

    def _evict_times(self, watermark_us: int) -> None:
        """Evict the times that the watermark has passed, and the nodes that have no others."""
        while self._unpassed and self._unpassed[0][0] < watermark_us:
            _, node = heapq.heappop(self._unpassed)
            times = self._times.get(node)
            if times is not None:
                times.evict(watermark_us)
                if not times.counters:
                    del self._times[node]

    def _past_has_passed(self, event: Event) -> bool:
        """Return whether the watermark has passed all times before an event.

        The times that it has passed have been evicted.
        """
        for node, counter in self._last_restored(event).clock.items():
            times = self._times.get(node)
            if times is not None and times.counters[0] <= counter:
                return False
        return True

    def give_up(self, missing: MissingSince) -> GivenUp:
        """Return the event that is due first."""
        while True:
            first = heapq.heappop(self._heap)
            key = first[1]
            self._restore_clocks(key, set())
            held = self._held(key)
            restored = self._due_us(held.event, held.time_us), self._key_now(key)
            if restored <= first:
                return held
            heapq.heappush(self._heap, restored)

    def _key_now(self, key: CanonicalKey) -> CanonicalKey:
        return self._key(self._held(key).event)

    def _restore_clocks(self, key: CanonicalKey, restored: set[tuple[str, int]]) -> None:
        """Restore the clocks of a held event, and of held events before it, as far as possible.

        The events in `restored` are skipped; those restored here are added to it.
        """
        restorer = self.store.restorer
        if restorer is None:
            return
        found: list[Event] = []
        dots = [key[1:]]
        while dots:
            node, counter = dots.pop()
            if (node, counter) in restored or not self.store.holds(node, counter):
                continue
            restored.add((node, counter))
            event = self.store.nodes[node].held[counter].event
            found.append(event)
            for other, known in event.clock.items():
                before = restorer.memory.below(other, known + (other != node))
                if before is not None:
                    dots.append((other, before.counter))
        for event in present_order(found):
            restorer.restore_so_far(event)

    # --- state ---

    def save(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        # When an event comes due decides which clocks are restored then, so due times are saved.
        turns = {key[1:]: (due, key[0]) for due, key in self._heap}
        return {
            "held": [
                [number(held.event), held.time_us, *turns[held.event.dot]]
                for held in self.store.by_arrival()
            ],
            "times": {
                node: list(zip(times.counters, times.times, strict=True))
                for node, times in self._times.items()
            },
            "timed": self._timed,
        }

    def load(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Load what `save` returned, and hold its events."""
        for node, pairs in state["times"].items():
            times = self._times[node] = LargestTimes()
            for counter, time_us in pairs:
                times.add(counter, time_us)
                heapq.heappush(self._unpassed, (time_us, node))
        self._timed = state["timed"]
        for index, time_us, due, total in state["held"]:
            held = self.store.hold(self.store.new_arrival(events[index], time_us))
            heapq.heappush(self._heap, (due, (total, *held.event.dot)))
