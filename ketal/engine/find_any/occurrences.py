"""`find any`: every occurrence of a pattern, from the events that are kept.

Events are kept, not partial matches: each in the roles in which it can stand, and a match is
found when the last of its events is offered (`ketal.engine.find_any.search`).

The search is *forward* under arrival order, and under CausalOrder where each step is after the
one before it and events come in an order that respects that. A scope whose events come out of
that order switches to a search in which any event may come last, and indexes its events anew.

Cost, for n events kept, k steps and P nodes (for what is just before an event of a step that is
`Causal`, only those in its clock): under a forward search O(P log n) for an event and O(k P log n)
for each match, flat in the window. Under the other search O(k P log n) for an event, and
O(k P^2 log n) if the columns whose bounds it raises are raised only in part
(`ketal.engine.find_any.bounds`); it can meet dead ends, as deciding whether a match exists is
NP-hard in k.

The one rule: events are indexed before they are searched, read or saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import MATCHES, Findings, Live, without_mirrors
from ketal.engine.find.windows import FOREVER, UnmatchedStarts
from ketal.engine.find_any.event_store import EventStore
from ketal.engine.find_any.paths import replays, transitions_of
from ketal.engine.find_any.roles import Roles, StepRole, Use
from ketal.model.events.event import Event
from ketal.model.limits import Limits

KEPT: Final = "events kept for later ones"


class AnyFind:
    """The run of a `find any` in one scope."""

    __slots__ = (
        "_live", "_roles", "_store", "_traced", "_window", "breakers", "unmatched_starts",
    )  # fmt: skip

    def __init__(self, roles: Roles, limits: Limits, live: Live, *, traced: bool) -> None:
        self._roles = roles
        self._live = live
        self._traced = traced
        self._window = roles.window
        self.unmatched_starts = UnmatchedStarts(self._window)
        self.breakers = Breakers(roles.machine) if roles.nots else None
        counting = roles.countable and live.counting and roles.order is not None
        self._store = EventStore(roles, limits, live, self.breakers, counting=counting)

    @property
    def kept(self) -> int:
        """How many events are kept."""
        return self._store.count

    def ignores(self, mask: int) -> bool:
        """Return whether events with a mask change nothing, whatever was offered before."""
        return self._roles.by_mask[mask] is None

    def idle(self) -> bool:
        """Return whether no event offered so far can affect later findings."""
        return not self._store.count and not self.unmatched_starts.waiting

    # --- offering ---

    def take_by_mask(
        self, events: Sequence[Event], masks: Sequence[int], begin: int, place: int
    ) -> int:
        """Skip events without a role, and defer those that can wait to be indexed.

        The arguments and the result are those of `CheckRun.take_by_mask`.
        """
        end, length = len(masks), self._window.events
        if length is not None:
            # The windows of events taken here cannot expire within so many events.
            until_expiry = max(0, self._earliest_start() + length - place)
            end = min(end, begin + min(length, until_expiry))
        return self._defer(events, masks, begin, end, place)

    def _defer(
        self, events: Sequence[Event], masks: Sequence[int], begin: int, end: int, place: int
    ) -> int:
        """Defer the indexing of events, as `EventStore.defer` does."""
        taken = self._store.defer(events, masks, begin, end, place)
        if len(self._store.unindexed):
            self._live.unindexed[self] = None
        return taken

    def offer(self, event: Event, mask: int, place: int) -> Findings | None:
        """Take an event; return its findings, if any. The arguments are those of `Seen`."""
        findings = self._expire_places(place)
        use, store = self._roles.by_mask[mask], self._store
        if use is None or (
            use.sources and store.search.forward and self._try_defer(event, mask, place)
        ):
            return findings
        if self._live.unindexed:
            self._index_for_room()
        seen = Seen(event, mask, place)
        store.check_order(seen)
        roles = use.ending if store.search.forward else use.roles
        if roles and store.still_counts(use):
            findings = findings or Findings()
            findings.counted = sum(store.search.beginnings(role, seen) for role in roles)
        elif roles:
            findings = self._add_matches(seen, roles, findings)
        position = self._window.position(seen)
        # Each match contains the event, so it need not wait for one.
        if use.starting and (findings is None or not findings.matches):
            self._await_match(seen, position, use)
        limit = store.keep(seen, position, use) if use.lasting else None
        if self.breakers is not None and use.breaks:
            limit = self._hold_breaker(seen, self.breakers) or limit
        if limit is not None:
            findings = findings or Findings()
            findings.overflow(limit, KEPT)
        return findings

    def _try_defer(self, event: Event, mask: int, place: int) -> bool:
        """Defer the indexing of an event, if it can wait; return whether it was deferred."""
        if self._defer((event,), (mask,), 0, 1, place) == 1:
            return True
        self._index_for_room()  # afterwards no deferred event is later than this one
        return self._defer((event,), (mask,), 0, 1, place) == 1

    def _index_for_room(self) -> None:
        """Index this scope's deferred events; if there still is no room, those of all scopes."""
        self.index()
        if self._live.unindexed and not self._store.room():
            self._live.index()

    def index(self) -> None:
        """Index the deferred events; drop those that continue no beginning of a match."""
        self._live.unindexed.pop(self, None)
        for seen in self._store.take_unindexed():
            use, position = self._roles.use_of(seen), self._window.position(seen)
            if use.starting:
                self._await_match(seen, position, use)
            limit = self._store.keep(seen, position, use)
            assert limit is None, "it had room"

    def _add_matches(
        self, seen: Seen, roles: Sequence[StepRole], findings: Findings | None
    ) -> Findings | None:
        """Add the matches that an event completes, mirror images removed; return the findings."""
        matches, paths, limit = self._store.search.find(seen, roles)
        if not (matches or limit):
            return findings
        findings = findings or Findings()
        if limit is not None:
            findings.overflow(limit, MATCHES)
        self.unmatched_starts.matched(matches)
        if self._roles.mirrors and len(matches) > 1:
            left = without_mirrors(matches, self._roles.classes)
            matches, paths = [matches[n] for n in left], [paths[n] for n in left]
        findings.matches = matches
        if self._traced:
            findings.moves = transitions_of(matches, paths)
        return findings

    def _await_match(self, seen: Seen, position: int, use: Use) -> None:
        """Let an event that can be first wait for a match until its window, if any, expires."""
        if not self._window.bounded:
            return
        for role in use.starting:
            taken = ((role.edge.step, seen),)
            if role.exact or replays(self._roles.machine, self.breakers, (role,), taken):
                self.unmatched_starts.add(seen, role.edge.step, position)
                return

    def _hold_breaker(self, seen: Seen, breakers: Breakers) -> str | None:
        """Hold an event that can break a `not`, if others are kept; return the limit it exceeds."""
        if not self._store.count:
            return None
        if (limit := self._store.limit()) is None:
            breakers.add_and_sweep(seen, self._store.seens)
        return limit

    # --- windows ---

    def _earliest_start(self) -> int:
        """Return the earliest start (time or place) of a window; FOREVER if there is none."""
        return min(self.unmatched_starts.earliest, self._store.earliest)

    def _expire_places(self, place: int) -> Findings | None:
        """Expire the windows of events that have passed at a place; return the time-outs."""
        length = self._window.events
        if length is None or self._earliest_start() > place - length:
            return None
        self._expire(place - length, findings := Findings())
        return findings if findings.timed_out else None

    def _expire(self, last: int, findings: Findings) -> None:
        """Expire, in order, the windows that start at `last` or before."""
        for seen in self._store.take_passed(last):
            self._await_match(seen, self._window.position(seen), self._roles.use_of(seen))
        self.unmatched_starts.expire(last, findings)
        self._store.evict(last)
        if not len(self._store.unindexed):
            self._live.unindexed.pop(self, None)

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        if self._window.us is not None:
            self._expire(watermark_us - self._window.us, findings)

    def end(self, findings: Findings) -> None:
        """Expire every window: no event follows."""
        self.index()
        self.unmatched_starts.end(findings)

    def earliest_us(self) -> int | None:
        """Return the earliest start of a time window; None if there is none."""
        earliest = self._earliest_start()
        return None if self._window.us is None or earliest == FOREVER else earliest

    # --- state ---

    def events(self) -> Iterator[Seen]:
        """Return the events that a later match may contain."""
        self.index()
        return iter((*self._store.seens(), *self.unmatched_starts.seens()))

    def entries(self) -> Iterator[tuple[int, Seen]]:
        """Yield each event that is kept with the number of an edge it can stand on, or -1."""
        self.index()
        yield from self._store.entries()
        if self.breakers is not None:
            yield from ((-1, seen) for seen in self.breakers.by_place.values())

    def save(self, seens: SeenTable) -> Any:
        """Return the run as plain data; `seens` numbers its events."""
        self.index()
        return {
            **self._store.save(seens),
            "breakers": [] if self.breakers is None else self.breakers.save(seens),
            "firsts": self.unmatched_starts.save(seens),
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Load what `save` returned into a fresh run."""
        if self.breakers is not None:
            self.breakers.load(value["breakers"], seens)
        self._store.load(value, seens)
        self.unmatched_starts.load(value["firsts"], seens)

    def validate_state(self) -> None:
        """Assert the rules of the parts."""
        self._store.validate_state()
        if self.breakers is not None:
            self.breakers.validate_state()
        assert list(self.unmatched_starts.waiting) == [
            seen.place for seen in self.unmatched_starts.seens()
        ]
