"""Scopes: the partitions of a pattern, and under `at every node` one for each node's copy.

A scope is looked up by its name, the values of the partition keys of an event. It has a run of
its own, and where the pattern has a window a timer (Akidau et al., "The dataflow model", 2015):
the time from which its earliest window is measured.

A copy's window may have passed before the node of the copy has learned of all earlier events; then
the timer is *suspended* until it has.

Cost: one look-up to find a scope; O(log n) to set a timer or to clear one that expires, of n. A
node's event costs nothing for the suspended timers of its copy that it does not resume.

The one rule: a scope is held under its name until it is over, and its number is lower than those
of all scopes created later.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Final

from ketal.compiler.compiled_pattern import CompiledPattern, derived_once
from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import SeenTable
from ketal.engine.find.findings import Live
from ketal.engine.find_any.occurrences import AnyFind
from ketal.engine.find_any.roles import Roles
from ketal.engine.find_next.runs import RunsFind
from ketal.engine.losses import ScopeName
from ketal.engine.machine import Machine
from ketal.model.events.event import Event
from ketal.model.frozen_mapping import NO_SCOPE, FrozenMapping, ScopeKey
from ketal.model.limits import Limits
from ketal.model.summaries import PatternCounts
from ketal.model.values import keyed
from ketal.operators.dirty_records import DirtyRecords

ScopeRun = CheckRun | AnyFind | RunsFind
_TIME: Final = itemgetter(0)
_TIME_AND_NUMBER: Final = itemgetter(0, 1)


@dataclass(slots=True)
class Counts:
    """How many matches, violations and other outcomes a pattern's runs had."""

    matches: int = 0
    violations: int = 0
    incomplete: int = 0
    timed_out: int = 0
    unscoped: int = 0
    untimed: int = 0
    halted: int = 0
    unknown_types: int = 0
    overflows: int = 0
    strangers: int = 0
    listed: int = 0
    guard_failures: int = 0
    marks_forgotten: int = 0
    uncertain: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts of the summary; those not required only where they are not zero."""
        required = PatternCounts.__required_keys__
        counts = {name: getattr(self, name, 0) for name in PatternCounts.__annotations__}
        return {name: count for name, count in counts.items() if count or name in required}

    def save(self) -> Any:
        """Return the counts as plain data."""
        return [getattr(self, column.name) for column in fields(self)]

    def load(self, value: Any) -> None:
        """Load the counts that `save` returned."""
        for column, count in zip(fields(self), value, strict=True):
            setattr(self, column.name, count)


@dataclass(slots=True, eq=False)
class Scope:
    """One scope: its name, its run, and the state that its run does not hold.

    For a check, `past` is the join of the clocks of the events offered to it, from the first one
    with a missed event in its past.
    """

    name: ScopeName  # the values of its key, as `keyed` returns them
    key: ScopeKey  # as verdicts show it
    run: ScopeRun
    number: int  # in the order in which the scopes of the pattern were created
    offered: int = 0  # how many events it was offered
    past: Mapping[str, int] | None = None
    timer_us: int | None = None  # the time from which its earliest window is measured
    suspended: bool = False  # whether its timer waits until the node of its copy learns more
    reported: frozenset[str] = frozenset()  # the limits whose overflow was reported
    _mapping: FrozenMapping | None = None

    @property
    def mapping(self) -> FrozenMapping:
        """The key as a mapping, made when a verdict first needs it."""
        if self._mapping is None:
            self._mapping = mapping_of(self.key)
        return self._mapping

    def is_over(self) -> bool:
        """Return whether the scope's state is that of a new one."""
        return not self.past and self.run.idle()

    def save(self) -> Any:
        """Return the scope as plain data, its events included, so that it can be loaded alone."""
        seens = SeenTable()
        run = self.run.save(seens)
        past = dict(self.past) if self.past else None
        reported = sorted(self.reported)
        timer = (self.timer_us, self.suspended)
        return (self.key, self.number, self.offered, past, reported, timer, run, seens.save())


QUEUE_MIN = 1_024
"""Entries of the queue of timers below which stale ones are not removed from it."""


class ScopeTimers:
    """The timers of scopes: in a queue, or those suspended in a list for each node.

    The one rule: the queue has an entry for every timer that is not suspended, and other entries
    are stale; the list of a node has the suspended timers of its copy, sorted.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, int, Scope]] = []
        self._queue_max = QUEUE_MIN  # above it, stale entries are removed
        self._ticks = 0
        self._suspended: dict[str, list[tuple[int, int, Scope]]] = {}

    def set(self, scope: Scope, time_us: int | None) -> None:
        """Set the timer of a scope to a time, if it has none or a later one."""
        if time_us is not None and (scope.timer_us is None or time_us < scope.timer_us):
            scope.timer_us = time_us
            self._ticks += 1
            heapq.heappush(self._queue, (time_us, scope.number, self._ticks, scope))

    def suspend(self, scope: Scope, time_us: int) -> None:
        """Set the timer of a copy's scope, which has none, and suspend it."""
        scope.timer_us, scope.suspended = time_us, True
        insort(self._suspended.setdefault(scope.key[-1][1], []), (time_us, scope.number, scope))

    def are_suspended(self, node: str) -> bool:
        """Return whether the copy of a node has suspended timers."""
        return bool(self._suspended.get(node))

    def resume(self, node: str, last_us: int) -> list[Scope]:
        """Resume the suspended timers of a node's copy up to `last_us`; return the scopes."""
        suspended = self._suspended[node]
        end = bisect_right(suspended, last_us, key=_TIME)
        resumed, suspended[:end] = suspended[:end], []
        for time_us, _, scope in resumed:
            scope.timer_us, scope.suspended = None, False
            self.set(scope, time_us)
        return [scope for _, _, scope in resumed]

    def remove(self, scope: Scope) -> None:
        """Remove the timer of a scope."""
        if scope.suspended:
            suspended = self._suspended[scope.key[-1][1]]
            del suspended[bisect_left(suspended, (scope.timer_us, scope.number))]
        scope.timer_us, scope.suspended = None, False
        if len(self._queue) > self._queue_max:
            self._queue = list(filter(_is_set, self._queue))
            heapq.heapify(self._queue)
            self._queue_max = max(QUEUE_MIN, 2 * len(self._queue))

    def first_us(self) -> float:
        """Return a lower bound of all timers; infinity if there is none."""
        return self._queue[0][0] if self._queue else math.inf

    def expired(self, last_us: int) -> Iterator[Scope]:
        """Yield the scopes whose timers are at `last_us` or before, and clear these timers."""
        while self._queue and self._queue[0][0] <= last_us:
            entry = heapq.heappop(self._queue)
            if _is_set(entry):
                scope = entry[3]
                scope.timer_us = None
                yield scope

    def validate_state(self, scopes: Iterable[Scope]) -> None:
        """Assert the rule of this class for all live scopes."""
        entries = {(time_us, number) for time_us, number, _, _ in self._queue}
        suspended = []
        for scope in scopes:
            if scope.suspended:
                suspended.append((scope.timer_us, scope.number))
            else:
                assert scope.timer_us is None or (scope.timer_us, scope.number) in entries
        lists = self._suspended.values()
        assert sorted(suspended) == sorted(entry[:2] for timers in lists for entry in timers)
        assert all(timers == sorted(timers, key=_TIME_AND_NUMBER) for timers in lists)


def _is_set(entry: tuple[int, int, int, Scope]) -> bool:
    """Return whether an entry of the queue is that of a timer, and not stale."""
    return entry[0] == entry[3].timer_us and not entry[3].suspended


class Scopes:
    """The live scopes of a pattern."""

    def __init__(
        self,
        compiled: CompiledPattern,
        machine: Machine,
        limits: Limits,
        *,
        traced: bool,
        counting: bool,
    ) -> None:
        self.by_name: dict[ScopeName, Scope] = {}  # in the order of their numbers
        self._machine = machine
        self._is_check = compiled.kind == "check"
        self.live = Live(counting=counting)
        self._limits = limits
        self._traced = traced
        self._roles = derived_once(Roles, machine.compiled) if compiled.strategy == "any" else None
        self._window_us = compiled.window_us
        self._keys = (*(name for name, _ in compiled.partition), "node")
        # A check that took nothing and is not complete still gets a verdict at the end.
        fresh_is_over = not self._is_check or 0 in compiled.automaton.finals
        # Whether a scope that is over is removed.
        self.removes = bool(compiled.partition) and fresh_is_over
        # A run that is never offered an event, by which `ignores` decides about new scopes.
        # Where a check's transitions are reported, every event gives a verdict.
        may_ignore = self.removes and not (self._is_check and traced)
        self._fresh = self._new_run() if may_ignore else None
        self._readers = tuple(read for _, read in compiled.partition)
        # How many scopes were created, those removed since and those over at once included.
        self.created = 0
        self.dirty = DirtyRecords[Scope]()
        self.timers = ScopeTimers()

    # --- look-up ---

    def name_of(self, event: Event) -> ScopeName | None:
        """Return the name of an event's scope; None if it has none."""
        if self._window_us is not None and event.time is None:
            return None
        name = tuple([keyed(read(event)) for read in self._readers])
        return None if None in name else name

    def key_of(self, name: ScopeName) -> ScopeKey:
        """Return a scope's key as verdicts show it; a copy's key ends with its node."""
        return tuple(zip(self._keys, (value for _, value in name), strict=False))

    def count_unscoped(self, event: Event, counts: Counts) -> None:
        """Count an event that has no scope: it lacks its time, a key or both."""
        counts.untimed += self._window_us is not None and event.time is None
        counts.unscoped += any(keyed(read(event)) is None for read in self._readers)

    def ignores(self, mask: int) -> bool:
        """Return whether a scope created for an event with this mask would be over at once."""
        return self._fresh is not None and self._fresh.ignores(mask)

    def create(self, name: ScopeName) -> Scope:
        """Create and return the scope of a name."""
        self.created += 1
        return self._put(name, self.key_of(name), self.created - 1)

    def _put(self, name: ScopeName, key: ScopeKey, number: int) -> Scope:
        scope = self.by_name[name] = Scope(name, key, self._new_run(), number)
        self.mark_dirty(scope)
        return scope

    def _new_run(self) -> ScopeRun:
        if self._is_check:
            return CheckRun(self._machine)
        if self._roles is not None:
            return AnyFind(self._roles, self._limits, self.live, traced=self._traced)
        return RunsFind(self._machine, self._limits, self.live, traced=self._traced)

    def remove_if_over(self, scope: Scope) -> bool:
        """Remove a scope that is over, if `removes`; return whether it was removed.

        New keys appear without end (orders, requests), so a scope that is over must take no room.
        """
        if not (self.removes and scope.is_over()):
            return False
        self.timers.remove(scope)
        del self.by_name[scope.name]
        self.dirty.remove(scope.number)
        return True

    def mark_dirty(self, scope: Scope) -> None:
        """Mark a scope dirty."""
        self.dirty.mark(scope.number, scope)

    def take_dirty(self) -> dict[int, Scope | None]:
        """Return the dirty scopes, and mark all as saved; the first time, return all."""
        return self.dirty.take(self.numbered, self.created)

    def numbered(self) -> dict[int, Scope | None]:
        """Return the live scopes by number."""
        return {scope.number: scope for scope in self.by_name.values()}

    def set_timer(self, scope: Scope) -> None:
        """Set the timer of a scope, whose pattern has a time window, to its earliest start."""
        run = scope.run
        assert not isinstance(run, CheckRun), "a check has no window"
        earliest_us = run.earliest_us()
        if scope.suspended and scope.timer_us != earliest_us:
            self.timers.remove(scope)
        self.timers.set(scope, earliest_us)

    def resume(self, node: str, last_us: int) -> None:
        """Resume the suspended timers of a node's copy up to `last_us`."""
        for scope in self.timers.resume(node, last_us):
            self.mark_dirty(scope)

    # --- state ---

    def load(self, value: Any) -> None:
        """Load a scope that `Scope.save` returned; scopes are loaded in the order of numbers."""
        key, number, offered, past, reported, timer, run, rows = value
        named = tuple([(attribute, value) for attribute, value in key])
        scope = self._put(tuple([keyed(value) for _, value in named]), named, number)
        scope.offered, scope.past = offered, past
        scope.reported = frozenset(reported)
        scope.run.load(run, SeenTable.load(rows))
        timer_us, suspended = timer
        if not suspended:
            self.timers.set(scope, timer_us)
        elif timer_us is None:  # earlier versions did not save it
            self.set_timer(scope)
        else:
            self.timers.suspend(scope, timer_us)

    def copy_in(self, other: Scope) -> None:
        """Add a copy of a scope of another run of the pattern; neither changes the other.

        Its timer is not copied, since `advance` is never called on a copy.
        """
        scope = self._put(other.name, other.key, other.number)
        scope.offered, scope.past, scope.reported = other.offered, other.past, other.reported
        seens = SeenTable()
        scope.run.load(other.run.save(seens), seens)

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of the runs."""
        numbers = [scope.number for scope in self.by_name.values()]
        assert numbers == sorted(set(numbers))
        assert not numbers or numbers[-1] < self.created
        self.timers.validate_state(self.by_name.values())
        for name, scope in self.by_name.items():
            assert not (self.removes and scope.is_over())
            assert scope.name == name == tuple(keyed(value) for _, value in scope.key)
            scope.run.validate_state()
        runs = [scope.run for scope in self.by_name.values() if not isinstance(scope.run, CheckRun)]
        held = (run.kept if isinstance(run, AnyFind) else len(run.runs) for run in runs)
        assert self.live.count == sum(held)
        own, dirty = self.numbered(), self.dirty.changed or {}
        assert all(own.get(number) is scope for number, scope in dirty.items())


def mapping_of(key: ScopeKey) -> FrozenMapping:
    """Return a scope's key as a mapping."""
    return FrozenMapping(key) if key else NO_SCOPE
