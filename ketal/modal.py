"""`possibly` and `definitely`: is the verdict in some, or in every, linear extension? (DESIGN 4)

The linear extensions of an execution are the paths through the lattice of its
consistent cuts (Cooper and Marzullo, "Consistent detection of global
predicates", 1991). What a pattern has come to at a cut is the state of its runs
there; two paths that meet in one cut with one state go on alike, so each pair
of cut and state is visited once. Only states without a verdict are followed:
the verdict is possible if some step out of one brings it, and definite if none
of them reaches the end.

The one rule: the answer is exact, or `cuts_max` is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ketal.automaton import CompiledPattern
from ketal.errors import SettingError
from ketal.event import Event
from ketal.finds import JoinFind
from ketal.limits import Limits
from ketal.operators.causal_order import canonical
from ketal.partials import Partial
from ketal.program import Program
from ketal.runs import CheckRun, Configuration, Seen
from ketal.scopes import PatternRun
from ketal.snapshots import EventTable, pattern_state, read_events, restore_pattern

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
    """
    return _Lattice(program.one, log, limits).explore()[0]


def definitely(program: Program, log: Any, *, limits: Limits | None = None) -> bool:
    """Return whether every linear extension gives the pattern's verdict.

    Parameters and errors are those of `possibly`.
    """
    return _Lattice(program.one, log, limits).explore()[1]


class _Lattice:
    """The consistent cuts of an execution, with the states of one pattern's runs."""

    def __init__(self, compiled: CompiledPattern, log: Iterable[Event], limits: Any) -> None:
        self.compiled = compiled
        self.limits: Limits = limits or compiled.limits
        self.events = canonical({event.dot: event for event in log}.values())
        self.nodes = sorted({event.node for event in self.events})
        self.lines: dict[str, list[Event]] = {node: [] for node in self.nodes}
        for event in self.events:
            self.lines[event.node].append(event)

    def explore(self) -> tuple[bool, bool]:
        """Return (possibly, definitely)."""
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

    def _fresh(self) -> PatternRun:
        return PatternRun(self.compiled, self.limits, listing=False)

    def _copy(self, run: PatternRun) -> PatternRun:
        table = EventTable()
        state = pattern_state(run, table)
        copy = self._fresh()
        copy.machine = run.machine
        restore_pattern(copy, state, read_events(table.rows))
        return copy

    def _verdict(self, run: PatternRun, event: Event) -> bool:
        before = run.counts.violations + run.counts.matches
        run.offer(event)
        return run.counts.violations + run.counts.matches > before

    # --- what tells states apart ---

    def _key(self, run: PatternRun) -> Any:
        scopes = []
        for scope in run.scopes.values():
            inner: Any
            if isinstance(scope.run, CheckRun):
                configurations = sorted(map(self._configuration, scope.run.configurations))
                inner = (scope.run.halted, *configurations)
            else:
                inner = tuple(
                    sorted(self._partial(p) for i in scope.run.by_state.values() for p in i)
                )
                if isinstance(scope.run, JoinFind):
                    inner = (inner, tuple(sorted(map(self._seen, scope.run.kept))))
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
        bars = tuple(
            (met,) if isinstance(met, bool) else tuple(sorted(map(self._seen, met)))
            for met in c.bars
        )
        return c.state, self._seen(c.prior), tuple(map(self._seen, c.bound)), history, bars

    def _partial(self, p: Partial) -> tuple[Any, ...]:
        taken = tuple((step, *self._seen(seen)) for step, seen in p.taken)
        return self._configuration(p.configuration), taken
