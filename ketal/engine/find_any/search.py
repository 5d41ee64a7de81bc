"""The search for the matches that an event completes, among the events that are kept.

The event stands in one of its roles. From there the events before it in the word are searched
backwards; then, where any event of a match may come last, the events after it forwards. A relation
to an event that is already chosen gives a range of a column, by two bisections; so does a `not`
whose guard is local. Conditions that a role does not have as data are tested on the whole word.

A search is *forward* where the event offered last is the last of the word. Then each kept event
has the latest start of a match that leads to it, and the search visits no event that leads to no
match. Otherwise bounds exclude events (`ketal.engine.find_any.bounds`); where there are none
(repetitions, equalities), the search can meet dead ends.

The one rule: each (step, event) sequence is found once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

from ketal.clocks import vector
from ketal.engine.configurations import Seen
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import Taken
from ketal.engine.find_any.columns import NEVER, Column
from ketal.engine.find_any.kept_events import KeptEvents
from ketal.engine.find_any.paths import (
    RequiredRelations,
    checks_after,
    checks_before,
    relations_after,
    relations_before,
    replays,
)
from ketal.engine.find_any.roles import Path, Roles, StepRole
from ketal.model.limits import Limits

_KEY: Final = attrgetter("key")


class Search:
    """The search through the events that one scope keeps and whose windows start after `passed`."""

    __slots__ = (
        "_breakers", "_events_max", "_in_offered_order", "_kept_events", "_limit", "_limits",
        "_matches", "_matches_left", "_paths", "_roles", "_visits_left", "_window", "forward",
        "passed",
    )  # fmt: skip

    def __init__(
        self,
        roles: Roles,
        kept: KeptEvents,
        breakers: Breakers | None,
        limits: Limits,
        *,
        forward: bool,
    ) -> None:
        self._roles = roles
        self._kept_events = kept
        self._breakers = breakers
        self._limits = limits
        self._events_max = limits.match_events_max
        self.forward = forward
        self.passed = NEVER
        # Whether the events of a word are in the order offered.
        self._in_offered_order = roles.machine.arrival or kept.by_place
        self._window = roles.window
        self._matches: list[Taken] = []
        self._paths: list[Path] = []
        self._matches_left = self._visits_left = 0
        self._limit: str | None = None

    def find(
        self, seen: Seen, roles: Iterable[StepRole]
    ) -> tuple[list[Taken], list[Path], str | None]:
        """Return the matches that an event completes in some roles, mirror images included.

        Also returned are the roles of the events of each match, and the limit, if any, at which
        the search stopped.
        """
        self._begin()
        position = self._window.position(seen)
        for role in roles:
            if self.forward or self._kept_events.can_stand(role):
                taken: Taken = ((role.edge.step, seen),)
                if not self._extend_back((role,), taken, position, position):
                    break
        return self._matches, self._paths, self._limit

    def _begin(self) -> None:
        """Reset the results and the budget of the search."""
        self._matches, self._paths, self._limit = [], [], None
        self._matches_left = self._limits.matches_per_event_max
        self._visits_left = self._limits.visits_max

    def latest_start(self, role: StepRole, seen: Seen, position: int) -> float:
        """Return the latest start of a match that leads to an event in a role.

        The result may be too late where times fall, or columns are not in the order offered.
        Without a window it is `position`, the event's own time or place, if any start leads to it.
        """
        if role.starts:
            return position
        best: float = NEVER
        for before in self._kept_events.into.get(role.edge.source, ()):
            path: Path = (role,)
            taken: Taken = ((role.edge.step, seen),)
            required = relations_before(before.role, path, taken)
            for node, column in self._kept_events.columns_before_word(
                before, path, taken, required
            ):
                if column.latest <= best:
                    continue
                low, high = self._range(column, node, before.role, path, taken, required)
                best = max(best, column.latest_start(low, high))
                if best > NEVER and not self._window.bounded:
                    return position
        return min(best, position)

    def beginnings(self, role: StepRole, seen: Seen) -> int:
        """Return how many beginnings of matches lead to an event in a role.

        The number is exact if the search is forward, the role has conditions on the event before
        only, and no event is evicted.
        """
        count = int(role.starts)
        for before in self._kept_events.into.get(role.edge.source, ()):
            path: Path = (role,)
            taken: Taken = ((role.edge.step, seen),)
            required = relations_before(before.role, path, taken)
            for node, column in self._kept_events.columns_before_word(
                before, path, taken, required
            ):
                low, high = self._range(column, node, before.role, path, taken, required)
                if low < high:
                    count += column.beginnings(low, high)
        return count

    # --- backwards ---

    def _extend_back(self, path: Path, taken: Taken, least: int, most: int) -> bool:
        """Find the matches that extend a part of a word backwards; return False at a limit.

        Under a search that is not forward, each word that begins with a start is then extended
        forwards. The times or places of the part's events lie between `least` and `most`.
        """
        if not self._has_room(path):
            return False
        first = path[0]
        if first.starts:
            has_room = (
                self._complete(path, taken)
                if self.forward
                else self._extend_ahead(path, taken, least, most)
            )
            if not has_room:
                return False
        columns_before = self._kept_events.into.get(first.edge.source)
        if not columns_before:
            return True
        earliest = self._kept_events.earliest_place(path, taken, forward=self.forward)
        if earliest is None:
            return True
        forward, window, passed = self.forward, self._window, self.passed
        bounded, length = window.bounded, window.length
        oldest = max(most - length, passed)
        for before in columns_before:
            role = before.role
            step = role.edge.step
            longer = (role, *path)
            required = relations_before(role, path, taken)
            checks = checks_before(role, path, taken)
            for node, column in self._kept_events.columns_before_word(
                before, path, taken, required
            ):
                low, high = self._range(column, node, role, path, taken, required)
                if earliest > 0 and low < high and column.rising:
                    low = bisect_left(column.places, earliest, low, high)
                if low >= high:
                    continue
                mixed = self._in_offered_order and not column.rising
                candidates = column.candidates_before(low, high, oldest, forward=forward)
                if not self._visit(len(candidates)):
                    return False
                for x in candidates:
                    lo, hi = least, most
                    if bounded:
                        position = window.position(x)
                        lo, hi = min(lo, position), max(hi, position)
                        if position <= passed or hi - lo >= length:
                            continue
                    if mixed and not self._is_offered_before(x, first, taken[0][1]):
                        continue
                    if checks and not all(check(later.event, x.event) for check, later in checks):
                        continue
                    # `((step, x), *taken)` would be compiled to a list and then a tuple.
                    more = ((step, x),) + taken  # noqa: RUF005
                    if not self._extend_back(longer, more, lo, hi):
                        return False
        return True

    def _complete(self, path: Path, taken: Taken) -> bool:
        """Add a whole word to the matches, if the automaton accepts it; return False at a limit."""
        exact = all(role.exact for role in path)
        if exact or replays(self._roles.machine, self._breakers, path, taken):
            if not self._matches_left:
                self._limit = "matches_per_event_max"
                return False
            self._matches_left -= 1
            self._matches.append(taken)
            self._paths.append(path)
        return True

    def _has_room(self, path: Path) -> bool:
        """Return whether a word may have as many events as this part of it; False at a limit."""
        if len(path) > self._events_max:
            self._limit = "match_events_max"
            return False
        return True

    def _visit(self, count: int) -> bool:
        """Count events that the search visits; return False at a limit."""
        self._visits_left -= count
        if self._visits_left < 0:
            self._limit = "visits_max"
        return self._visits_left >= 0

    def _is_offered_before(self, x: Seen, role: StepRole, seen: Seen) -> bool:
        """Return whether, under arrival order, `x` can come just before `seen` in its role."""
        if x.place >= seen.place:
            return False
        if self._breakers is None or not role.nots:
            return True
        return x.place >= self._breakers.first_allowed(role.nots, seen, "")

    # --- forwards ---

    def _extend_ahead(self, path: Path, taken: Taken, least: int, most: int) -> bool:
        """Find the matches that begin with a part of a word; return False at a limit."""
        if not self._has_room(path):
            return False
        last, prior, breakers = path[-1], taken[-1][1], self._breakers
        if last.ends and not self._complete(path, taken):
            return False
        if not last.goes_on:
            return True
        join = vector.join([seen.clock for _, seen in taken])
        for after in self._kept_events.out.get(last.edge.target, ()):
            role = after.role
            required = relations_after(role, taken)
            checks = checks_after(role, taken)
            longer = (*path, role)
            mirrored = self._roles.are_mirrored(last, role)
            for node, column in self._kept_events.columns_after_word(after, taken, required):
                low, high = _range_after(column, node, join, required)
                if low < high and mirrored:
                    low = bisect_right(column.seens, prior.key, low, high, key=_KEY)
                if low >= high:
                    continue
                candidates = column.candidates_after(low, high, -least - self._window.length)
                if not self._visit(len(candidates)):
                    return False
                for y in candidates:
                    position = self._window.position(y)
                    lo, hi = min(least, position), max(most, position)
                    if self._window.bounded and (
                        position <= self.passed or hi - lo >= self._window.length
                    ):
                        continue
                    if (
                        breakers is not None
                        and role.nots
                        and breakers.first_allowed(role.nots, y, prior.node) > prior.counter
                    ):
                        continue
                    if not all(check(y.event, x.event) for check, x in checks):
                        continue
                    more = (*taken, (role.edge.step, y))
                    if not self._extend_ahead(longer, more, lo, hi):
                        return False
        return True

    # --- ranges of columns ---

    def _range(
        self,
        column: Column,
        node: str,
        earlier_role: StepRole,
        path: Path,
        taken: Taken,
        required: RequiredRelations,
    ) -> tuple[int, int]:
        """Return the range of a role's column that can come just before a part of a word."""
        low, high = 0, len(column.seens)
        role, seen = path[0], taken[0][1]
        if self._in_offered_order:
            if column.rising:
                if column.places[-1] >= seen.place:
                    high = bisect_left(column.places, seen.place, low, high)
                if self._breakers is not None and role.nots:
                    allowed = self._breakers.first_allowed(role.nots, seen, "")
                    low = bisect_left(column.places, allowed, low, high)
        else:
            if self._breakers is not None and role.nots:
                allowed = self._breakers.first_allowed(role.nots, seen, node)
                low = bisect_left(column.counters, allowed, low, high)
            if not self.forward:
                for _, later in taken:
                    high = column.first_knowing(later, low, high)
                if low < high and self._roles.are_mirrored(earlier_role, role):
                    high = bisect_left(column.seens, seen.key, low, high, key=_KEY)
        for other, concurrent in required:
            if low >= high:
                break
            known = other.last_before(node)
            if concurrent:
                low = bisect_right(column.counters, known, low, high)
                high = column.first_knowing(other, low, high)
            elif column.counters[high - 1] > known:
                high = bisect_right(column.counters, known, low, high)
        return low, high


def _range_after(
    column: Column, node: str, join: Mapping[str, int], required: RequiredRelations
) -> tuple[int, int]:
    """Return the range of a column that can come after a word; `join` joins the word's clocks."""
    low = bisect_right(column.counters, join.get(node, 0))
    high = len(column.seens)
    for x, concurrent in required:
        if concurrent:
            low = bisect_right(column.counters, x.clock.get(node, 0), low)
            high = column.first_knowing(x, low, high)
        else:
            low = column.first_knowing(x, low, high)
    return low, high
