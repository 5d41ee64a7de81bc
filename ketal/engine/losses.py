"""The events that a pattern's runs missed, and the verdicts that these make uncertain.

An event is *missed* if it was declared lost, was late or was refused, or if something was given up
at it for a limit. Of a lost event only the dot is known, so it may belong to any scope; another
missed event has a known scope, or none. So the verdicts of a scope depend on the same missed events
whether one process runs all scopes, or a part of a job runs this one.

When is a verdict uncertain? A match is, if a missed event that may belong to its scope is in the
past of one of its events or, where there is one order, may have come between them. So is a
violation, with all the events that its scope was offered. A time-out and an incomplete check
are, if any missed event may belong to their scope and, where there is one order, may have come
before their end. An event at which a scope gave something up makes all later verdicts of the scope
uncertain, as the state of its run lacks what was given up; except a match that depends on its own
events only.

At most `most` missed events are held by their dots. Of those evicted, the lowest counter of each
node is kept, which stands for all of them in every scope. Of more than `most` scopes that gave
something up, the others count as all scopes.

Cost: O(log n) comparisons to mark one of n missed events. A verdict reads those in its past and, if
there is one order, those that may come after its first event, until it has `NAMED_MAX` of them.

The one rule: each missed event that is held has a scope, `ANY` or None, and is among the sorted
dots of that scope, unless it is None; the bounds of its place are recorded once.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ketal.clocks import vector
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.model.values import keyed

ScopeName = tuple[Any, ...]
"""The values of a scope's key, as `keyed` has them."""
NAMED_MAX: Final = 100
"""The most missed events that a verdict names."""
NO_DOTS: Final[tuple[Dot, ...]] = ()
ANY: ScopeName = (object(),)
"""The scope of a missed event that may belong to any scope."""


class Losses:
    """The missed events of one pattern's runs, of which at most `most` are held.

    `placed` is whether there is one order, in which a missed event has a place; `past_matters`,
    whether a missed event in the past of a match's events makes the match uncertain.
    """

    __slots__ = (
        "_by_scope", "_closed", "_evicted", "_given_up", "_merged", "_open", "_places", "_scopes",
        "_unplaced", "any_missed", "awaited", "most", "past_matters", "placed",
    )  # fmt: skip

    def __init__(self, most: int, *, placed: bool = False, past_matters: bool = True) -> None:
        self.most = most
        self.placed = placed
        self.past_matters = past_matters
        # Returns the dots in the pasts of a stream's events that have not arrived, where runs are
        # offered events without waiting for these dots.
        self.awaited: Callable[[], Iterable[Dot]] | None = None
        self.any_missed = False  # whether any event was missed so far
        # Each dot with its scope: a name, None for none, ANY where it is not known; oldest first.
        self._scopes: OrderedDict[Dot, ScopeName | None] = OrderedDict()
        self._by_scope: dict[ScopeName, list[Dot]] = {}  # by these scopes, ANY included; sorted
        # By the names for `give_up`, the first event at which something was given up.
        self._given_up: dict[ScopeName, Dot] = {}
        self._evicted: dict[str, int] = {}
        # Of each dot, a lower and an upper bound of its place (None: not known yet); oldest first.
        self._places: OrderedDict[Dot, tuple[CanonicalKey, CanonicalKey | None]] = OrderedDict()
        # The dots without an upper bound, by the lower one; the others, by the upper one.
        self._open: list[tuple[CanonicalKey, Dot]] = []
        self._closed: list[tuple[CanonicalKey, CanonicalKey, Dot]] = []
        # Of the dots whose places are evicted: a lower bound of them all, and one of the dots.
        self._merged: tuple[CanonicalKey, Dot] | None = None
        self._unplaced: dict[str, list[int]] = {}  # heaps of counters without an upper bound

    def __contains__(self, dot: Dot) -> bool:
        return dot in self._scopes

    # --- missed events ---

    def miss(self, dot: Dot, low: CanonicalKey | None = None) -> int:
        """Mark a dot as missed that was declared lost; return how many others were evicted.

        `low` is a lower bound of its place; None if it is unknown.
        """
        if low is not None and self.placed:
            self._set_place(dot, low, None)
        if dot not in self._scopes:
            self._put(dot, ANY)
        return self._evict_oldest()

    def miss_event(self, event: Event, scope: ScopeName | None) -> int:
        """Mark an event as missed by a scope, by none (None) or by any (`ANY`).

        Return how many others were evicted.
        """
        if self.placed:
            place = canonical_key(event)
            self._set_place(event.dot, place, place)
        self._remove(event.dot)
        self._put(event.dot, scope)
        return self._evict_oldest()

    def give_up(self, name: ScopeName, dot: Dot) -> None:
        """Mark an event as one at which a scope gave something up.

        `name` is its name; for all scopes of a node's copy, only the last value of their names.
        """
        self.any_missed = True
        if name not in self._given_up and len(self._given_up) >= self.most:
            name = ANY
        self._given_up.setdefault(name, dot)

    def unmiss(self, dot: Dot) -> None:
        """Remove the mark of an event that arrived after all; one that was evicted stays marked."""
        self._remove(dot)
        self._remove_place(dot)

    def _put(self, dot: Dot, scope: ScopeName | None) -> None:
        self.any_missed = True
        self._scopes[dot] = scope
        if scope is not None:
            bisect.insort(self._by_scope.setdefault(scope, []), dot)

    def _remove(self, dot: Dot) -> None:
        scope = self._scopes.pop(dot, None)
        if scope is not None:
            dots = self._by_scope[scope]
            del dots[bisect.bisect_left(dots, dot)]
            if not dots:
                del self._by_scope[scope]

    def _evict_oldest(self) -> int:
        """Evict the oldest missed events beyond `most`; return how many."""
        count = 0
        while len(self._scopes) > self.most:
            dot = next(iter(self._scopes))
            self._remove(dot)
            lowest = self._evicted.get(dot.node, dot.counter)
            self._evicted[dot.node] = min(lowest, dot.counter)
            count += 1
        return count

    # --- places in the order ---

    def _set_place(self, dot: Dot, low: CanonicalKey, high: CanonicalKey | None) -> None:
        """Record the bounds of a dot's place; beyond the limit, merge the oldest into one."""
        self._remove_place(dot)
        self._places[dot] = low, high
        if high is not None:
            bisect.insort(self._closed, (high, low, dot))
        else:
            bisect.insort(self._open, (low, dot))
            heapq.heappush(self._unplaced.setdefault(dot.node, []), dot.counter)
        if len(self._places) > self.most:
            oldest = next(iter(self._places))
            low = self._places[oldest][0]
            self._remove_place(oldest)
            self._merged = min(low, self._merged[0]) if self._merged else low, oldest

    def _remove_place(self, dot: Dot) -> None:
        if dot not in self._places:
            return
        low, high = self._places.pop(dot)
        if high is None:
            del self._open[bisect.bisect_left(self._open, (low, dot))]
        else:
            del self._closed[bisect.bisect_left(self._closed, (high, low, dot))]

    def bound_places(self, event: Event) -> None:
        """Bound the places of the missed events that `event` is the first to have in its past."""
        if not self._unplaced:
            return
        place = canonical_key(event)
        for node in self._unplaced.keys() & event.clock.keys():
            counters = self._unplaced[node]
            while counters and counters[0] <= event.clock[node]:
                dot = Dot(node, heapq.heappop(counters))
                if dot in self._places and self._places[dot][1] is None:
                    self._set_place(dot, self._places[dot][0], place)
            if not counters:
                del self._unplaced[node]

    # --- uncertainty ---

    def _concerns(self, dot: Dot, scope: ScopeName) -> bool:
        known = self._scopes.get(dot, ANY)
        return known is ANY or known == scope

    def _known_dots(self, scope: ScopeName) -> list[list[Dot]]:
        return [dots for name in (ANY, scope) if (dots := self._by_scope.get(name)) is not None]

    def given_up(self, scope: ScopeName) -> list[Dot]:
        """Return the first events at which a scope, its copy or any scope gave something up."""
        known = self._given_up
        return sorted({known[name] for name in (ANY, scope, scope[-1:]) if name in known})

    def awaited_in_vain(
        self, scope: ScopeName, upto: CanonicalKey | None = None
    ) -> tuple[Dot, ...]:
        """Return the dots that a scope may have awaited in vain, up to a place (None: the end)."""
        dots = self._missed_until(scope, upto) if self.any_missed else NO_DOTS
        return dots if self.awaited is None else first_named(heapq.merge(dots, self.awaited()))

    def _missed_until(self, scope: ScopeName, upto: CanonicalKey | None) -> tuple[Dot, ...]:
        dots: Iterable[Dot] = heapq.merge(self.given_up(scope), *self._known_dots(scope))
        if upto is not None and self._places:
            dots = (d for d in dots if d not in self._places or self._places[d][0] < upto)
        return first_named(dots) or self._evicted_dots()

    def missed_before(
        self, scope: ScopeName, clocks: Iterable[Mapping[str, int]]
    ) -> tuple[Dot, ...]:
        """Return the missed dots that may belong to a scope, in the past of any of the clocks."""
        if not (self.any_missed and self.past_matters):
            return NO_DOTS
        clock = vector.join(clocks)
        missed = [_dots_before(dots, clock) for dots in self._known_dots(scope)]
        return first_named(heapq.merge(*missed)) or self._evicted_dots(clock)

    def missed_between(
        self, scope: ScopeName, low: CanonicalKey | None, high: CanonicalKey
    ) -> tuple[Dot, ...]:
        """Return the missed dots that may belong to a scope and have come between two places.

        `low` None is the beginning of the order.
        """
        closed, first_place = self._closed, operator.itemgetter(0)
        begin = 0 if low is None else bisect.bisect_right(closed, low, key=first_place)
        end = bisect.bisect_left(self._open, high, key=first_place)
        dots = itertools.chain(
            (closed[i][2] for i in range(begin, len(closed)) if closed[i][1] < high),
            (self._open[i][1] for i in range(end)),
        )
        merged = (self._merged[1],) if self._merged and self._merged[0] < high else ()
        return first_named(
            (*merged, *first_named(dot for dot in dots if self._concerns(dot, scope)))
        )

    def _evicted_dots(self, clock: Mapping[str, int] | None = None) -> tuple[Dot, ...]:
        """Return the dots that stand for the evicted ones: for all, or for those in a past."""
        return first_named(
            Dot(node, counter)
            for node, counter in sorted(self._evicted.items())
            if clock is None or counter <= clock.get(node, 0)
        )

    def dots(self) -> tuple[Dot, ...]:
        """Return the missed dots of all scopes."""
        return first_named(sorted(self._scopes)) or self._evicted_dots()

    # --- state ---

    def save(self) -> Any:
        """Return the state as plain data."""
        rows = [[dot, _saved_scope(scope)] for dot, scope in self._scopes.items()]
        places = [[dot, *keys] for dot, keys in self._places.items()]
        given_up = [[_saved_scope(name), dot] for name, dot in self._given_up.items()]
        return [rows, dict(self._evicted), places, self._merged, self.past_matters, given_up]

    def load(self, value: Any) -> int:
        """Load what `save` returned into a fresh object; return how many a smaller limit evicts."""
        rows, self._evicted, places, merged, self.past_matters, *given_up = value
        self.any_missed = bool(self._evicted)  # or if an event is loaded as missed
        for saved, dot in itertools.chain(*given_up):  # absent in states of earlier versions
            name = _loaded_scope(saved)
            assert name is not None, "an event without a scope is not offered"
            self.give_up(name, Dot(*dot))
        for dot, saved in rows:
            self._put(Dot(*dot), _loaded_scope(saved))
        if merged is not None:
            key, dot = merged
            self._merged = tuple(key), Dot(*dot)
        for dot, low, high in places:
            self._set_place(Dot(*dot), tuple(low), None if high is None else tuple(high))
        return self._evict_oldest()

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        assert len(self._scopes) <= self.most
        assert len(self._places) <= self.most
        assert len(self._given_up.keys() - {ANY}) <= self.most
        assert self.any_missed or not (self._scopes or self._evicted or self._places)
        assert self.any_missed or not self._given_up
        for name, dots in self._by_scope.items():
            assert dots, "a list that is empty is removed"
            assert dots == sorted(d for d, scope in self._scopes.items() if scope == name)
        assert set(self._scopes.values()) - {None} == set(self._by_scope)
        first_places = [(low, dot) for dot, (low, high) in self._places.items() if high is None]
        assert self._open == sorted(first_places)
        closed = [(high, low, d) for d, (low, high) in self._places.items() if high is not None]
        assert self._closed == sorted(closed)
        for low, dot in first_places:
            assert dot.counter in self._unplaced[dot.node], (low, dot)


def _saved_scope(scope: ScopeName | None) -> Any:
    if scope is ANY:
        return 0
    return None if scope is None else [value for _, value in scope]


def _loaded_scope(saved: Any) -> ScopeName | None:
    return ANY if saved == 0 else None if saved is None else tuple(map(keyed, saved))


def _dots_before(dots: list[Dot], clock: Mapping[str, int]) -> Iterator[Dot]:
    """Yield those of some sorted dots, which do not change meanwhile, in the past of a clock."""
    begin = 0
    while begin < len(dots):
        node = dots[begin].node
        end = bisect.bisect_right(dots, (node, clock.get(node, 0)), begin)
        for number in range(begin, end):
            yield dots[number]
        begin = bisect.bisect_right(dots, (node, vector.COUNTER_MAX), end)


def first_named(dots: Iterable[Dot]) -> tuple[Dot, ...]:
    """Return the first `NAMED_MAX` of the dots, without repetitions."""
    named: dict[Dot, None] = {}
    for dot in dots:
        if len(named) == NAMED_MAX:
            break
        named[dot] = None
    return tuple(named)
