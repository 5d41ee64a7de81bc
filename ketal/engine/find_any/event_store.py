"""The events that one scope of a `find any` keeps: the deferred and the indexed.

Under a forward search the indexing of an event (`ketal.engine.find_any.kept_events`) is deferred
until an event arrives that can end a match; an event that the window passes before that is never
indexed (Kolchinsky, Sharfman and Schuster, "Lazy evaluation methods for detecting complex events",
DEBS 2015, where the rarest step is the last).

Cost: O(1) to defer an event; to index one, a search for the latest start that leads to it.

The one rule: an event is kept once, until the window has passed it or, where an indexed event is
kept for its starts only, has passed every start of a match that leads to it. Deferred events are
later than the indexed ones, and their times do not fall.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import Live
from ketal.engine.find.windows import FOREVER, Expiring
from ketal.engine.find_any.bounds import keep_bounded
from ketal.engine.find_any.columns import NEVER
from ketal.engine.find_any.kept_events import KeptEvents
from ketal.engine.find_any.roles import ReleaseOrder, Roles, StepRole, Use
from ketal.engine.find_any.search import Search
from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.model.limits import Limits

NO_BOUNDS: Final = (NEVER, NEVER)

UNINDEXED_MAX = 65_536
"""The most deferred events, where some may be dropped when they are indexed."""
SWEEP_MIN = 64
"""How many events a window has passed before they are swept."""


class OrderWatch:
    """Checks that events come in canonical order, or in one that respects happened-before.

    An event that is in order comes after all events that can precede it in a match.
    """

    __slots__ = ("_known", "_last_key")

    def __init__(self, *, canonical: bool) -> None:
        self._last_key: CanonicalKey | None = (0, "", 0) if canonical else None
        self._known: dict[str, int] = {}

    def in_order(self, event: Event) -> bool:
        """Record an event; return whether it comes in the order."""
        if self._last_key is not None:
            before, self._last_key = self._last_key, canonical_key(event)
            return before < self._last_key
        known = self._known
        if known.get(event.node, 0) >= event.clock[event.node]:
            return False
        for node, counter in event.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
        return True

    def save(self) -> Any:
        """Return the position in the order as plain data."""
        return self._last_key or dict(self._known)

    def load(self, value: Any) -> None:
        """Load what `save` returned."""
        if self._last_key is None:
            self._known = dict(value)
        else:
            self._last_key = tuple(value)


class DeferredEvents:
    """The deferred events, in the order offered, each with the arguments of its `Seen`.

    An event takes 56 bytes beside its own: an entry in each queue, and the integer of its place.
    """

    __slots__ = ("_masks", "_places", "events")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self._masks: deque[int] = deque()
        self._places: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Seen]:
        return map(Seen, self.events, self._masks, self._places)

    def add(self, event: Event, mask: int, place: int) -> None:
        """Add an event after all others."""
        self.events.append(event)
        self._masks.append(mask)
        self._places.append(place)

    def first(self) -> tuple[Event, int, int]:
        """Return the first event, its mask and its place."""
        return self.events[0], self._masks[0], self._places[0]

    def pop_first(self) -> Seen:
        """Remove and return the first event."""
        return Seen(self.events.popleft(), self._masks.popleft(), self._places.popleft())


class EventStore:
    """The events that one scope keeps, and the search through them."""

    __slots__ = (
        "_breakers", "_by_start", "_garbage", "_kept_events", "_limits", "_live", "_order",
        "_reached_states", "_roles", "_unpassed", "_window", "count", "counting", "search",
        "unindexed",
    )  # fmt: skip

    def __init__(
        self, roles: Roles, limits: Limits, live: Live, breakers: Breakers | None, *, counting: bool
    ) -> None:
        self._roles = roles
        self._live = live
        self._limits = limits
        self._breakers = breakers
        self.count = 0  # how many events are kept, without those that can break a `not`
        self._window = roles.window
        order = roles.order
        self._order = None
        if order in (ReleaseOrder.CANONICAL, ReleaseOrder.CAUSAL):
            self._order = OrderWatch(canonical=order is ReleaseOrder.CANONICAL)
        # Whether a forward search keeps only the events that some start of a match leads to.
        self._by_start = order is not ReleaseOrder.CAUSAL
        self.counting = counting  # whether matches are counted, not listed
        self._begin(forward=order is not None, by_place=roles.by_place)

    def _begin(self, *, forward: bool, by_place: bool) -> None:
        """Begin a new search, with no events kept."""
        self.unindexed = DeferredEvents()
        self._reached_states = 1  # the sources that kept events lead to: see `Use.sources`
        self._unpassed = Expiring()  # the indexed events
        self._garbage = 0  # events that the window has passed and that are not swept
        self._kept_events = KeptEvents(
            self._roles, by_place=by_place, searched=not forward, counting=self.counting
        )
        self.search = Search(
            self._roles, self._kept_events, self._breakers, self._limits, forward=forward
        )

    # --- limits ---

    def _add(self, more: int) -> None:
        self.count += more
        self._live.count += more

    def room(self) -> int:
        """Return how many more events may be kept."""
        in_scope = self._limits.candidates_max - self._count_in_scope()
        return max(0, min(self._limits.runs_max - self._live.count, in_scope))

    def limit(self) -> str | None:
        """Return the limit because of which no more events can be kept; None if there is room."""
        if self._live.count >= self._limits.runs_max:
            return "runs_max"
        return "candidates_max" if self._count_in_scope() >= self._limits.candidates_max else None

    def _count_in_scope(self) -> int:
        return self.count if self._breakers is None else self.count + len(self._breakers.by_place)

    # --- deferred events ---

    def defer(
        self, events: Sequence[Event], masks: Sequence[int], begin: int, end: int, place: int
    ) -> int:
        """Defer the events from index `begin` to `end`; skip those without a role.

        `place` is the place of the first among the events that the scope was offered. Returned
        is the index of the first event that cannot be deferred, which must be offered.
        """
        by_mask, order, by_start = self._roles.by_mask, self._order, self._by_start
        unindexed, reached, timed = (
            self.unindexed,
            self._reached_states,
            self._window.us is not None,
        )
        waited, offset, room = len(unindexed), place - begin, -1 if self.search.forward else 0
        latest: Any = unindexed.events[-1].time if timed and waited else -math.inf
        for number in range(begin, end):
            use = by_mask[masks[number]]
            if use is None:
                continue
            if room < 0:
                room = self._room()
            sources = use.sources
            if not (room and sources):
                break
            event = events[number]
            if timed:
                time: Any = event.time
                if time < latest:
                    break
                latest = time
            if order is not None and not order.in_order(event):
                break
            if sources & reached or not by_start:  # otherwise no start leads to it
                reached |= use.targets
                unindexed.add(event, masks[number], offset + number)
                room -= 1
        else:
            number = end
        if len(unindexed) > waited:
            self._reached_states = reached
            self._add(len(unindexed) - waited)
        return number

    def _room(self) -> int:
        """Return how many more events may be deferred."""
        if not self._by_start or self._roles.by_place_alone:
            return self.room()
        return min(self.room(), UNINDEXED_MAX - len(self.unindexed))

    def take_unindexed(self) -> list[Seen]:
        """Remove and return the deferred events, in the order offered."""
        unindexed, self.unindexed = self.unindexed, DeferredEvents()
        self._add(-len(unindexed))
        return list(unindexed)

    def take_passed(self, last: float) -> Iterator[Seen]:
        """Remove and yield the deferred events whose windows start at `last` or before."""
        while self._deferred_from() <= last and len(self.unindexed):
            self._add(-1)
            yield self.unindexed.pop_first()

    def _deferred_from(self) -> int:
        """Return the start of the window of the first deferred event; FOREVER if there is none."""
        if not len(self.unindexed):
            return FOREVER
        event, _, place = self.unindexed.first()
        if self._window.us is None:
            return place
        time_us = microseconds(event.time)
        assert time_us is not None
        return time_us

    # --- keeping ---

    def check_order(self, seen: Seen) -> None:
        """Switch to a search in which any event may come last, if this event is out of order.

        Deferred events must have been indexed before.
        """
        if self._order is not None and not self._order.in_order(seen.event):
            self._search_in_any_order()

    def _search_in_any_order(self) -> None:
        self.counting = False
        seens, passed = self.seens(), self.search.passed
        self._order = None
        self._add(-self.count)
        self._begin(forward=False, by_place=False)
        self.search.passed = passed
        self._keep_again(seens)

    def _keep_again(self, seens: Iterable[Seen]) -> None:
        """Keep again events that were offered before, in the order offered."""
        for seen in seens:
            self.check_order(seen)
            self.keep(seen, self._window.position(seen), self._roles.use_of(seen))

    def still_counts(self, use: Use) -> bool:
        """Return whether matches are still counted, not listed, once an event has this use."""
        self.counting = self.counting and self._live.counting and use.countable
        return self.counting

    def keep(self, seen: Seen, position: int, use: Use) -> str | None:
        """Index an event in the roles in which later events may need it.

        Its window starts at `position`. Returned is the limit, if any, because of which it is not
        kept.
        """
        search = self.search
        by_start = search.forward and self._by_start
        counting = self.still_counts(use)
        # Computed for all roles before the event is added to any: it does not precede itself.
        placed: list[tuple[StepRole, float, int]] = []
        if search.forward:
            oldest = max(position - self._window.length, search.passed)
            for role in use.going_on if by_start else use.lasting:
                if counting:  # without a window: one start is as good as another
                    beginnings = search.beginnings(role, seen)
                    start = position if beginnings else NEVER
                else:
                    beginnings, start = 0, search.latest_start(role, seen, position)
                # If an event comes out of order, those that no start leads to are needed too.
                if start > oldest or not by_start:
                    placed.append((role, start, beginnings))
        else:
            placed = [(role, NEVER, 0) for role in use.lasting]
        if not placed:
            return None
        if (limit := self.limit()) is not None:
            return limit
        self._add(1)
        self._reached_states |= use.targets
        self._kept_events.record_past(seen)  # before bounds are pushed, also to this event
        if search.forward or not self._roles.bounding:
            for role, start, beginnings in placed:
                self._kept_events.columns(role).add(seen, start, NO_BOUNDS, beginnings)
        else:
            roles = [role for role, _, _ in placed]
            keep_bounded(self._kept_events, seen, roles, position if self._window.bounded else 0)
        if self._window.bounded:
            last_start = max([start for _, start, _ in placed]) if by_start else position
            self._unpassed.add(int(last_start), seen.place)
        return None

    # --- eviction ---

    @property
    def earliest(self) -> int:
        """The earliest start of a kept event's window; FOREVER if there is none."""
        return min(self._deferred_from(), self._unpassed.earliest)

    def evict(self, last: float) -> None:
        """Evict the indexed events whose windows start at `last` or before.

        `take_passed` must have removed such deferred events before.
        """
        self.search.passed = max(self.search.passed, last)
        count = sum(1 for _ in self._unpassed.take_passed(last))
        self._add(-count)
        if self._by_start and self.count == len(self.unindexed):
            self._evict_unstarted()
        self._garbage += count
        if self._garbage > max(SWEEP_MIN, self.count) or not self.count:
            self._garbage = 0
            self._kept_events.sweep(self._is_unpassed)
        if not self.count:
            self._reached_states = 1
            if self._breakers is not None and self._breakers.by_place:
                self._breakers.sweep(None)

    def _evict_unstarted(self) -> None:
        """Evict the deferred events before the first that can start a match; none is indexed."""
        unindexed, by_mask = self.unindexed, self._roles.by_mask
        while len(unindexed) and (use := by_mask[unindexed.first()[1]]) and not use.starting:
            unindexed.pop_first()
            self._add(-1)

    def _is_unpassed(self, seen: Seen, start: float) -> bool:
        # An event that is kept whatever its starts is needed until its own time has passed.
        by_start = self.search.forward and self._by_start
        return (start if by_start else self._window.position(seen)) > self.search.passed

    # --- state ---

    def seens(self) -> list[Seen]:
        """Return the indexed events, in the order offered."""
        by_place = {seen.place: seen for _, seen in self.entries()}
        return [seen for _, seen in sorted(by_place.items())]

    def entries(self) -> Iterator[tuple[int, Seen]]:
        """Yield each indexed event with the number of an edge it can stand on."""
        return self._kept_events.entries(self._is_unpassed)

    def save(self, seens: SeenTable) -> dict[str, Any]:
        """Return the store, without deferred events, as plain data; `seens` numbers events."""
        return {
            "order": self._order and self._order.save(),
            "kept": [seens.number(seen) for seen in self.seens()],
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Load what `save` returned into a fresh store, by keeping its events again."""
        if self._order and value["order"] is None:
            self._search_in_any_order()
        self._keep_again([seens[number] for number in value["kept"]])
        if self._order:
            self._order.load(value["order"])

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of its parts."""
        self._kept_events.validate_state()
        indexed, unindexed = self.seens(), list(self.unindexed)
        assert self.count == len(indexed) + len(unindexed)
        assert not self._window.bounded or len(indexed) == len(self._unpassed)
        assert not unindexed or self.search.forward
        places = [*(seen.place for seen in indexed[-1:]), *(seen.place for seen in unindexed)]
        assert places == sorted(set(places))
        if self._window.us is not None:
            times = list(map(self._window.position, unindexed))
            assert times == sorted(times)
