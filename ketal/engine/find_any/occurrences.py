"""`find any`: every occurrence of a pattern, from the events that are kept.

Events are kept, not partial matches: each in the roles in which it can stand, and a match is
found when the last of its events is offered (`ketal.engine.find_any.search`).

The search is *forward* under arrival order, and under CausalOrder where each step is after the
one before it and events come in an order that respects that. A scope whose events come out of
that order goes over to a search in which any event may come last, by offering what it keeps
anew.

Cost, for n events kept, P nodes and k steps: under a forward search O(P log n) for an event and
O(k P log n) for each match, flat in the window. Under the other O(P^2 log n) for an event; it
can meet dead ends, as whether a match exists is NP-hard in k.

The one rule: an event is kept once, until the window has passed it or, where events are looked
for by their place alone, every start of a match that comes to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import Findings, Live, without_mirrors
from ketal.engine.find.windows import Firsts, Unpassed
from ketal.engine.find_any.bounds import keep_bounded
from ketal.engine.find_any.columns import NEVER
from ketal.engine.find_any.kept_events import KeptEvents
from ketal.engine.find_any.paths import is_taken_first, moves_of
from ketal.engine.find_any.release_order import OrderWatch, ReleaseOrder
from ketal.engine.find_any.roles import Roles, StepRole, Use
from ketal.engine.find_any.search import Search
from ketal.model.events.event import Event
from ketal.model.limits import Limits

KEPT = "events kept for later ones"
NO_BOUNDS = (NEVER, NEVER)

SWEEP_MIN = 64
"""Events that a window has passed, at most, before they are swept."""


class AnyFind:
    """The events that one scope of a `find any` keeps.

    Parameters
    ----------
    roles : Roles
        The pattern's.
    limits : Limits
        `runs_max`, `candidates_max`, `matches_per_event_max`, `visits_max`.
    live : Live
        How many events are kept, over all scopes of the pattern.
    traced : bool
        Whether the transitions of matches are asked for.

    Attributes
    ----------
    kept : int
        How many events are kept.
    counting : bool
        Whether matches are counted, not listed.
    """

    __slots__ = (
        "_by_start", "_end_place", "_garbage", "_kept_events", "_order", "_search", "_unpassed",
        "breakers", "counting", "firsts", "kept", "limits", "live", "roles", "traced", "window",
    )  # fmt: skip

    def __init__(self, roles: Roles, limits: Limits, live: Live, *, traced: bool) -> None:
        self.roles = roles
        self.limits = limits
        self.live = live
        self.traced = traced
        self.window = roles.window
        self.firsts = Firsts(self.window)
        self.breakers = Breakers(roles.machine) if roles.nots else None
        self._end_place = math.inf  # the place at which a window of events first ends something
        order = roles.order
        self._order = OrderWatch(order) if order not in (None, ReleaseOrder.ANY) else None
        # Whether a forward search keeps only the events that some start comes to.
        self._by_start = order is not ReleaseOrder.CAUSAL
        self.counting = roles.countable and live.counting and not traced and order is not None
        self._begin(forward=order is not None, by_place=roles.by_place)

    def _begin(self, *, forward: bool, by_place: bool) -> None:
        """Begin a search, with nothing kept."""
        self.kept = 0
        self._unpassed = Unpassed()
        self._garbage = 0  # events that the window has passed and that are not swept
        self._kept_events = KeptEvents(
            self.roles, by_place=by_place, searched=not forward, counting=self.counting
        )
        self._search = Search(self.roles, self._kept_events, self.breakers, forward=forward)

    def idle(self) -> bool:
        """Return whether nothing that was offered matters to what comes."""
        return not self.kept and not self.firsts.waiting

    # --- offering ---

    def take_plain(self, masks: Sequence[int], begin: int, place: int) -> int:
        """Pass over events without a role; return the number of the first that is left.

        The arguments are those of `CheckRun.take_plain`.
        """
        by_mask, number, end = self.roles.by_mask, begin, len(masks)
        if self._end_place != math.inf:
            end = max(begin, min(end, begin + int(self._end_place) - place))
        while number < end and by_mask[masks[number]] is None:
            number += 1
        return number

    def offer(self, event: Event, mask: int, place: int) -> Findings | None:
        """Take an event; return what it brought about. The arguments are those of `Seen`."""
        findings = self._end_places(place) if place >= self._end_place else None
        use = self.roles.by_mask[mask]
        if use is None:
            return findings
        seen = Seen(event, mask, place)
        if self._order is not None and not self._order.in_order(seen):
            self._search_in_any_order()
        at = self.window.at(seen)
        roles = use.ending if self._search.forward else use.roles
        self.counting = self.counting and self.live.counting and use.countable
        if roles and self.counting:
            findings = findings or Findings()
            findings.counted = sum(self._search.beginnings(role, seen) for role in roles)
        elif roles:
            findings = self._found(seen, roles, findings)
        if use.starting and self.window.bounded:
            self._wait(seen, at, use.starting, findings)
        limit = self._keep(seen, at, use)
        if self.breakers is not None and use.breaks:
            limit = self._bar(seen, self.breakers) or limit
        if limit is not None:
            findings = findings or Findings()
            findings.overflow(limit, KEPT)
        return findings

    def _search_in_any_order(self) -> None:
        """Go over to a search in which any event of a match may come last."""
        self.counting = False
        seens, passed = self._seens(), self._search.passed
        self._order = None
        self.live.count -= self.kept
        self._begin(forward=False, by_place=False)
        self._search.passed = passed
        self._keep_again(seens)

    def _keep_again(self, seens: Iterable[Seen]) -> None:
        """Keep events that were offered before, in their order."""
        for seen in seens:
            if self._order is not None and not self._order.in_order(seen):
                self._search_in_any_order()
            use = self.roles.by_mask[seen.mask]
            assert use is not None, "an event that is kept has a role"
            self.counting = self.counting and self.live.counting and use.countable
            self._keep(seen, self.window.at(seen), use)

    def _found(
        self, seen: Seen, roles: Sequence[StepRole], findings: Findings | None
    ) -> Findings | None:
        """Put the matches that an event completes, mirror images removed, into findings."""
        matches, paths, limit = self._search.find(seen, roles, self.limits)
        if not (matches or limit):
            return findings
        findings = findings or Findings()
        if limit is not None:
            findings.overflow(limit, "matches of one event")
        self.firsts.matched(matches)
        if self.roles.mirrors and len(matches) > 1:
            left = without_mirrors(matches, self.roles.classes)
            matches, paths = [matches[n] for n in left], [paths[n] for n in left]
        findings.matches = matches
        if self.traced:
            findings.moves = moves_of(matches, paths)
        return findings

    def _wait(
        self, seen: Seen, at: int, starting: Sequence[StepRole], findings: Findings | None
    ) -> None:
        """Wait for the window of an event to end, if it can be first and is in no match."""
        if findings is not None and findings.matches:
            return  # each of them has the event
        for role in starting:
            if is_taken_first(self.roles.machine, self.breakers, role, seen):
                self.firsts.add(seen, role.edge.step, at)
                self._ends_from(seen.place)
                return

    # --- keeping ---

    def _keep(self, seen: Seen, at: int, use: Use) -> str | None:
        """Keep an event in the roles in which it is of use later; return a limit it reaches."""
        search = self._search
        placed: list[tuple[StepRole, float]] = []
        if not search.forward:
            placed = [(role, NEVER) for role in use.lasting]
        elif not self._by_start:
            # Should an event come out of order, those that no start comes to are needed too.
            placed = [(role, search.latest_start(role, seen, at)) for role in use.lasting]
        else:
            oldest = max(at - self.window.length, search.passed)
            for role in use.going_on:
                start = search.latest_start(role, seen, at)
                if start > oldest:
                    placed.append((role, start))
        if not placed:
            return None
        if (limit := self._limit()) is not None:
            return limit
        self.kept += 1
        self.live.count += 1
        if search.forward or not self.roles.bounding:
            # All of them first: the event does not come before itself.
            ways = [search.beginnings(role, seen) if self.counting else 0 for role, _ in placed]
            for (role, start), count in zip(placed, ways, strict=True):
                self._kept_events.columns(role).add(seen, start, NO_BOUNDS, count)
        else:
            roles = [role for role, _ in placed]
            keep_bounded(self._kept_events, seen, roles, at if self.window.bounded else 0)
        if self.window.bounded:
            by_start = search.forward and self._by_start
            low = int(max([start for _, start in placed])) if by_start else at
            self._unpassed.add(low)
            self._ends_from(low)
        return None

    def _limit(self) -> str | None:
        """Return the limit that keeps one more event from being kept."""
        if self.live.count >= self.limits.runs_max:
            return "runs_max"
        others = 0 if self.breakers is None else len(self.breakers.by_place)
        return "candidates_max" if self.kept + others >= self.limits.candidates_max else None

    def _bar(self, seen: Seen, breakers: Breakers) -> str | None:
        """Keep an event that can break a `not` of what is kept; return a limit it reaches."""
        if not self.kept:
            return None
        if (limit := self._limit()) is None:
            breakers.add_and_sweep(seen, self._seens)
        return limit

    # --- windows ---

    def _evict(self, last: float) -> None:
        """Evict what counts from `last` or before."""
        self._search.passed = max(self._search.passed, last)
        count = self._unpassed.evict(last)
        self.kept -= count
        self.live.count -= count
        self._garbage += count
        if self._garbage > max(SWEEP_MIN, self.kept) or not self.kept:
            self._garbage = 0
            self._kept_events.sweep(self._is_unpassed)
        if not self.kept and self.breakers is not None and self.breakers.by_place:
            self.breakers.sweep(None)

    def _is_unpassed(self, seen: Seen, start: float) -> bool:
        # What is kept in any case has a use as long as its own time has not passed.
        by_start = self._search.forward and self._by_start
        return (start if by_start else self.window.at(seen)) > self._search.passed

    def _seens(self) -> list[Seen]:
        """Return the events that are kept, in the order offered."""
        found = {seen.place: seen for _, seen in self._kept_events.entries(self._is_unpassed)}
        return [seen for _, seen in sorted(found.items())]

    def _ends_from(self, low: float) -> None:
        """Note where a window of events ends something that counts from a place."""
        if self.window.events is not None:
            self._end_place = min(self._end_place, low + self.window.events)

    def _end_places(self, place: int) -> Findings | None:
        """End what a window of events has passed, now that it has come to a place."""
        last, findings = int(place - self.window.length), None
        if self.firsts.first <= last:
            findings = Findings()
            self.firsts.expire(last, findings)
        self._evict(last)
        self._end_place = min(self.firsts.first, self._unpassed.first) + self.window.length
        return findings

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        if self.window.us is not None:
            last = watermark_us - self.window.us
            self.firsts.expire(last, findings)
            self._evict(last)

    def end(self, findings: Findings) -> None:
        """End every window: nothing comes any more."""
        self.firsts.end(findings)

    def earliest_us(self) -> int | None:
        """Return the first time that a watermark can end something of; None for nothing."""
        earliest = min(self.firsts.first, self._unpassed.first)
        return None if self.window.us is None or earliest == math.inf else int(earliest)

    # --- state ---

    def events(self) -> Iterator[Seen]:
        """Return the events that a match to come may have."""
        return iter((*self._seens(), *self.firsts.seens()))

    def entries(self) -> Iterator[tuple[int, Seen]]:
        """Yield each event that is kept with the number of an edge it can stand on."""
        yield from self._kept_events.entries(self._is_unpassed)
        if self.breakers is not None:
            yield from ((-1, seen) for seen in self.breakers.by_place.values())

    def save(self, seens: SeenTable) -> Any:
        """Return the run as plain data; `seens` numbers its events."""
        return {
            "order": self._order and self._order.save(),
            "kept": [seens.number(seen) for seen in self._seens()],
            "breakers": [] if self.breakers is None else self.breakers.save(seens),
            "firsts": self.firsts.save(seens),
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Put what `save` gave into a fresh run: what is kept is offered anew."""
        if self.breakers is not None:
            self.breakers.load(value["breakers"], seens)
        if self._order and value.get("order", "of an earlier version") is None:
            self._search_in_any_order()
        self._keep_again([seens[number] for number in value["kept"]])
        if self._order and value.get("order"):
            self._order.load(value["order"])
        self.firsts.load(value["firsts"], seens)
        self._ends_from(min(self.firsts.waiting, default=math.inf))

    def validate_state(self) -> None:
        """Assert that the count is right, and the rules of what is kept."""
        self._kept_events.validate_state()
        assert self.kept == len(self._seens())
        assert not self.window.bounded or self.kept == len(self._unpassed)
        if self.breakers is not None:
            self.breakers.validate_state()
        assert list(self.firsts.waiting) == [seen.place for seen in self.firsts.seens()]
