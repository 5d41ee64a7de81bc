"""`possibly` and `definitely`: is the verdict in some, or in every, linear extension? (DESIGN 4)

The linear extensions of an execution are the paths through the lattice of its
consistent cuts (Cooper and Marzullo, "Consistent detection of global
predicates", 1991). What a pattern has come to at a cut is the state of its runs
there; two paths that meet in one cut with one state go on alike, so each pair
of cut and state is visited once. Only states without a verdict are followed:
the verdict is possible if some step out of one brings it, and definite if none
of them reaches the end.

`mode possibly` and `mode definitely` in a pattern ask the same of each scope
(`in_mode`). What a scope's run is offered orders no other scope, so its lattice
is that of its own events, and where each node has a copy, of the node's events,
by which it learns of others.

The one rule: the answer is exact, or `cuts_max` is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from ketal import pattern as syntax
from ketal.automaton import CompiledPattern
from ketal.errors import SettingError
from ketal.event import Event, checked_log
from ketal.limits import Limits
from ketal.operators.causal_order import canonical
from ketal.partials import Partial
from ketal.program import Program, checked_program
from ketal.runs import CheckRun, Configuration, Machine, Seen
from ketal.scopes import PatternRun
from ketal.snapshots import copy_run
from ketal.verdicts import FrozenMapping, Match, Overflow, RunVerdict, ScopeKey, Violation

Cut = tuple[int, ...]


def possibly(program: Program, log: Any, *, limits: Limits | None = None) -> bool:
    """Return whether some linear extension gives the pattern's verdict.

    Parameters
    ----------
    program : Program
        One pattern; the verdict of a check is a violation, of a find a match.
    log : Log or iterable of Event
        One finite execution.
    limits : Limits, optional
        `cuts_max` bounds the work.

    Raises
    ------
    SettingError
        If the program holds several patterns, or `cuts_max` is reached.
    TypeError
        If an argument is of another class than it must be.
    """
    return _Lattice(checked_program(program).one, log, limits).explore()[0]


def definitely(program: Program, log: Any, *, limits: Limits | None = None) -> bool:
    """Return whether every linear extension gives the pattern's verdict.

    Parameters and errors are those of `possibly`.
    """
    return _Lattice(checked_program(program).one, log, limits).explore()[1]


class _Scopes(PatternRun):
    """Finds which events each scope is offered, and offers them to nobody."""

    def __init__(self, compiled: CompiledPattern, limits: Limits) -> None:
        super().__init__(compiled, limits, listing=False)
        self.offered: dict[tuple[Any, ...], tuple[ScopeKey, list[Event]]] = {}

    def _offer(self, shown: ScopeKey, event: Event, mask: int) -> list[RunVerdict]:
        self.offered.setdefault(self.scope_key(shown), (shown, []))[1].append(event)
        return []


def _listed_returns(compiled: CompiledPattern) -> syntax.Returns | None:
    returns = compiled.pattern.returns
    return None if returns is not None and returns.count else returns


def in_mode(run: PatternRun, events: Iterable[Event]) -> Iterator[tuple[Event | None, RunVerdict]]:
    """Yield what a pattern with a `mode` says of a finite execution, and count it.

    Of each scope that is one verdict at most. Where every linear extension gives
    one, it is that of the canonical one; else that of the extension that gives one
    first, by the number of events of the scope.

    Parameters
    ----------
    run : PatternRun
        The pattern, offered nothing yet; its counts are added to.
    events : iterable of Event
        The execution, its clocks restored.

    Yields
    ------
    (Event or None, verdict)
        With the event that is the last of the verdict in canonical order; None for
        an overflow (`cuts_max`), which says that a scope was not judged.
    """
    execution = canonical(events)
    scopes = _Scopes(run.compiled, run.limits)
    for event in execution:
        scopes.offer(event)
    for name in ("unscoped", "untimed", "unknown_types", "guard_failures"):
        setattr(run.counts, name, getattr(scopes.counts, name))
    place = {event.dot: number for number, event in enumerate(execution)}
    for shown, offered in scopes.offered.values():
        dots = {event.dot for event in offered}
        if run.compiled.pattern.deployment is not None:
            node = dict(shown)["node"]
            dots |= {event.dot for event in execution if event.node == node}
        lattice = _Lattice(
            run.compiled, [e for e in execution if e.dot in dots], run.limits, scope=shown,
            execution=run.execution,
        )  # fmt: skip
        try:
            verdict = lattice.answer(run.compiled.pattern.mode == "definitely")
        except SettingError:
            run.counts.overflows += 1
            yield None, lattice.overflow()
            continue
        if verdict is None:
            continue
        run.counts.matches += isinstance(verdict, Match)
        run.counts.violations += isinstance(verdict, Violation)
        limit = run.compiled.pattern.limit
        returns = run.compiled.pattern.returns
        listed = limit is None or run.counts.matches <= limit
        if run.listing and listed and not (returns is not None and returns.count):
            said = verdict.events if isinstance(verdict, Match) else (verdict.event,)
            yield execution[max(place[dot] for dot in said)], verdict


class _Lattice:
    """The consistent cuts of an execution, with the states of one pattern's runs.

    Parameters
    ----------
    compiled : CompiledPattern
        The pattern.
    log : iterable of Event
        The execution, or what matters of it to a scope.
    limits : Limits or None
        `cuts_max` bounds the work.
    scope : ScopeKey, optional
        The scope whose verdict is asked for; without, that of any.
    execution : str
        The execution's name where a log holds several.
    """

    def __init__(
        self,
        compiled: CompiledPattern,
        log: Iterable[Event],
        limits: Limits | None,
        *,
        scope: ScopeKey | None = None,
        execution: str = "",
    ) -> None:
        self.scope = scope
        self.execution = execution
        self.compiled = compiled
        # `return count` and `limit` say what is listed of the answer, not what is asked.
        plain = replace(compiled.pattern, returns=_listed_returns(compiled), limit=None)
        self._listed = compiled if plain == compiled.pattern else replace(compiled, pattern=plain)
        self.limits = Limits.given(limits, compiled.limits)
        self.events = canonical({event.dot: event for event in checked_log(log)}.values())
        self.nodes = sorted({event.node for event in self.events})
        self.lines: dict[str, list[Event]] = {node: [] for node in self.nodes}
        for event in self.events:
            self.lines[event.node].append(event)

    def answer(self, definitely: bool) -> Match | Violation | None:
        """Return a verdict of the scope that every, or some, linear extension gives."""
        self._last: Match | Violation | None = None
        possible, definite = self.explore(first=not definitely)
        if definitely:
            return self._canonical() if definite else None
        return self._last if possible else None

    def _canonical(self) -> Match | Violation | None:
        run = self._fresh()
        for event in self.events:
            if self._verdict(run, event):
                break
        return self._last

    def overflow(self) -> Overflow:
        """Say that the scope was not judged."""
        return Overflow(
            pattern=self.compiled.name,
            fingerprint=self.compiled.fingerprint,
            scope=FrozenMapping(self.scope or ()),
            execution=self.execution,
            limit="cuts_max",
            given_up="the answer for this scope, which has too many consistent cuts",
        )

    def explore(self, *, first: bool = False) -> tuple[bool, bool]:
        """Return (possibly, definitely); with `first`, stop at the first verdict."""
        if self.compiled.order_independent:
            run = self._fresh()
            said = any(self._verdict(run, event) for event in self.events)
            return said, said
        level: dict[tuple[Cut, Any], PatternRun] = {}
        fresh = self._fresh()
        level[((0,) * len(self.nodes), self._key(fresh))] = fresh
        possible = False
        visited = 0
        for _ in self.events:
            below: dict[tuple[Cut, Any], PatternRun] = {}
            for (cut, _), run in level.items():
                for place, event in self._ready(cut):
                    visited += 1
                    if visited > self.limits.cuts_max:
                        raise SettingError(
                            f"more than {self.limits.cuts_max} consistent cuts and states "
                            "(limit cuts_max)"
                        )
                    after = self._copy(run)
                    if self._verdict(after, event):
                        possible = True
                        if first:
                            return True, False
                        continue
                    there = (*cut[:place], cut[place] + 1, *cut[place + 1 :])
                    below.setdefault((there, self._key(after)), after)
            level = below
        return possible, possible and not level

    def _ready(self, cut: Cut) -> list[tuple[int, Event]]:
        """Return the events that can come next: all that they know is in the cut."""
        have = {
            node: self.lines[node][count - 1].counter if count else 0
            for node, count in zip(self.nodes, cut, strict=True)
        }
        known = {node: {e.counter for e in self.lines[node]} for node in self.nodes}
        ready = []
        for place, node in enumerate(self.nodes):
            if cut[place] == len(self.lines[node]):
                continue
            event = self.lines[node][cut[place]]
            # A hole in the counters holds nothing back.
            if all(
                not any(have[other] < c <= counter for c in known[other])
                for other, counter in event.clock.items()
                if other != node and other in have
            ):
                ready.append((place, event))
        return ready

    def _fresh(self, machine: Machine | None = None) -> PatternRun:
        listing = self.scope is not None
        return PatternRun(
            self._listed, self.limits, execution=self.execution, listing=listing, machine=machine
        )

    def _copy(self, run: PatternRun) -> PatternRun:
        copy = self._fresh(run.machine)
        copy_run(run, copy)
        return copy

    def _verdict(self, run: PatternRun, event: Event) -> bool:
        if self.scope is None:
            before = run.counts.violations + run.counts.matches
            run.offer(event)
            return run.counts.violations + run.counts.matches > before
        for verdict in run.offer(event):
            if isinstance(verdict, Match | Violation) and verdict.scope == dict(self.scope):
                mark = self.compiled.fingerprint
                self._last = msgspec.structs.replace(verdict, fingerprint=mark)
                return True
        return False

    # --- what tells states apart ---

    def _key(self, run: PatternRun) -> Any:
        scopes = []
        for scope in run.scopes.values():
            if self.scope is not None and scope.key != self.scope:
                continue
            inner: Any
            if isinstance(scope.run, CheckRun):
                configurations = sorted(map(self._configuration, scope.run.configurations))
                inner = (scope.run.halted, *configurations)
            else:
                inner = tuple(
                    sorted(self._partial(p) for i in scope.run.by_state.values() for p in i)
                )
                if scope.run.kept is not None:
                    kept = scope.run.kept.events.values()
                    inner = (inner, tuple(sorted(map(self._seen, kept))))
            scopes.append((repr(scope.key), self._places(scope.places), inner))
        learned = tuple(
            k.event.dot
            for k in sorted(
                (k for line in run.kept.values() for k in line.values()), key=lambda k: k.number
            )
        )
        return tuple(sorted(scopes)), learned

    def _places(self, count: int) -> int:
        return count if self.compiled.window_events is not None else 0

    def _seen(self, seen: Seen | None) -> tuple[Any, ...]:
        return () if seen is None else (seen.node, seen.counter, self._places(seen.place))

    def _configuration(self, c: Configuration) -> tuple[Any, ...]:
        history: tuple[Any, ...] = ()
        if c.history is not None:
            parts = (c.history.first, c.history.last, c.history.join)
            history = tuple(tuple(sorted(part.items())) for part in parts)
        return c.state, self._seen(c.prior), tuple(map(self._seen, c.bound)), history, c.bars

    def _partial(self, p: Partial) -> tuple[Any, ...]:
        taken = tuple((step, *self._seen(seen)) for step, seen in p.taken)
        return self._configuration(p.configuration), taken
