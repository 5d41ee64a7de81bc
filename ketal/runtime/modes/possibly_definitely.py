"""`possibly` and `definitely`: is the verdict in some, or in every, linear extension?

The linear extensions of an execution are the paths through the lattice of its
consistent cuts (Cooper and Marzullo, "Consistent detection of global
predicates", 1991). At each cut on a path a pattern's runs are in some state. Two paths that
reach the same cut in the same state have the same continuations, so each pair
of cut and state is visited once. Only states without a verdict are followed:
the verdict is possible if some step out of such a state gives the verdict, and definite if no such
state reaches the full cut.

`mode possibly` and `mode definitely` in a pattern decide the same for each scope
(`modal_verdicts`). The events of one scope do not affect the runs of another, so a scope's lattice
has only the scope's own events, and under `at every node` all events of the node as well, since
with them its copy learns of events of other nodes.

The one rule: the answer is exact, or `cuts_max` is named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.losses import ScopeName
from ketal.engine.machine import Machine
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scope_steps import OfferedEvents
from ketal.engine.verdict_building import flat
from ketal.errors import EventError, SettingError
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.frozen_mapping import NO_SCOPE, FrozenMapping, ScopeKey
from ketal.model.limits import Limits
from ketal.model.log_arguments import deciding_log
from ketal.model.values import keyed
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.verdict_kinds import RunVerdict
from ketal.model.wording import counted
from ketal.operators.topology.domains import closed_nodes, takes_part
from ketal.programs.program import Program, checked_program
from ketal.runtime.admission.execution_events import executions_of, only_execution
from ketal.runtime.modes.state_keys import StateKeys

if TYPE_CHECKING:
    from ketal.logs import Log

_LOGGER = logging.getLogger("ketal")
Cut = tuple[int, ...]
_Path = tuple["_Path", int, int] | None
"""A path to a cut: the path before its last event, and that event by its line and index."""


def possibly(program: Program, log: Log | Iterable[Event], *, limits: Limits | None = None) -> bool:
    """Return whether some linear extension gives the pattern's verdict.

    Parameters
    ----------
    program : Program
        One pattern; the verdict of a `check` is a violation, that of a `find` a match.
    log : Log or iterable of Event
        One finite execution.
    limits : Limits, optional
        `cuts_max` bounds the work.

    Raises
    ------
    SettingError
        If the program holds several patterns, or the log several executions, a limit is
        reached, or the log cannot be read.
    EventError
        If every record was rejected, or a clock is impossible. If only some were rejected, these
        are skipped, and a warning with their number is logged (logger `ketal`).
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Order { order CausalOrder;
    ...         event A = type == "a"; event B = type == "b"; find next A B; }
    ... ''')
    >>> concurrent = [ketal.Event(node="n1", type="a", clock={"n1": 1}),
    ...               ketal.Event(node="n2", type="b", clock={"n2": 1})]
    >>> ketal.possibly(program, concurrent), ketal.possibly(program, concurrent[:1])
    (True, False)
    """
    return _log_lattice(program, log, limits).explore()[0]


def definitely(
    program: Program, log: Log | Iterable[Event], *, limits: Limits | None = None
) -> bool:
    """Return whether every linear extension gives the pattern's verdict.

    Parameters
    ----------
    program, log, limits
        As for `possibly`, which raises the same errors.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Order { order CausalOrder;
    ...         event A = type == "a"; event B = type == "b"; find next A B; }
    ... ''')
    >>> concurrent = [ketal.Event(node="n1", type="a", clock={"n1": 1}),
    ...               ketal.Event(node="n2", type="b", clock={"n2": 1})]
    >>> ordered = [ketal.Event(node="n1", type="a", clock={"n1": 1}),
    ...            ketal.Event(node="n2", type="b", clock={"n1": 1, "n2": 1})]
    >>> ketal.definitely(program, concurrent), ketal.definitely(program, ordered)
    (False, True)
    """
    return _log_lattice(program, log, limits).explore()[1]


def _log_lattice(program: Program, log: Log | Iterable[Event], limits: Limits | None) -> _Lattice:
    """Return the lattice of the only execution of a log, its events identified as in a run."""
    compiled = checked_program(program).one
    run_limits = Limits.given(limits, compiled.limits)
    executions = executions_of(deciding_log(log), run_limits)
    execution = only_execution(executions, "pass one of log.executions")
    if execution.rejected:
        rejected = counted(execution.rejected, "record")
        reason = f"{rejected} rejected; the first: {execution.first_rejected}"
        if not len(execution):
            raise EventError(f"no event was read: {reason}")
        _LOGGER.warning("%s", reason)
    nodes = closed_nodes(compiled.pattern.topology)
    events = (event for event in execution.possible_events() if takes_part(event.node, nodes))
    return _Lattice(compiled, events, run_limits)


def modal_verdicts(
    run: PatternRun, events: Iterable[Event]
) -> Iterator[tuple[Event | None, RunVerdict]]:
    """Yield the verdicts of a pattern with a `mode` on a finite execution, and count them.

    Each scope has at most one verdict. It is that of the canonical extension under `mode
    definitely`, and for an order-independent pattern; else that of an extension that gives one
    after the fewest events of the scope. It is yielded with its last event in canonical order; an
    overflow (`cuts_max`: the scope was not judged) with None.

    The run was offered no event yet; its counts are updated. The clocks of the events are restored.
    """
    lattices = ScopeLattices(run, events)
    run.scopes.created, run.copies = len(lattices.by_scope), lattices.collecting.copies
    for name in ("unscoped", "untimed", "unknown_types", "guard_failures"):
        setattr(run.counts, name, getattr(lattices.collecting.counts, name))
    position = {event.dot: number for number, event in enumerate(lattices.execution)}
    for lattice in map(lattices.of, lattices.by_scope):
        try:
            verdict = lattice.answer(run.compiled.pattern.mode == "definitely")
        except SettingError:
            given_up = "the answer for this scope, which has too many consistent cuts"
            yield None, run.verdicts.overflow("cuts_max", given_up, lattice.scope or NO_SCOPE, None)
            continue
        if verdict is None:
            continue
        run.counts.matches += isinstance(verdict, Match)
        run.counts.violations += isinstance(verdict, Violation)
        limit = run.compiled.pattern.limit
        listed = limit is None or run.counts.matches <= limit
        if run.listing and listed and not run.compiled.pattern.only_counts:
            named = verdict.events if isinstance(verdict, Match) else (verdict.event,)
            yield lattices.execution[max(position[dot] for dot in named)], verdict


class ScopeLattices:
    """The lattices of the scopes of a pattern over a finite execution.

    `run` is a run of the pattern; it is not offered the events.
    """

    def __init__(self, run: PatternRun, events: Iterable[Event]) -> None:
        self._run = run
        self.execution = canonical(events)
        # The run that collects the events that each scope is offered.
        self.collecting = PatternRun(
            run.compiled, run.limits, listing=False, make_steps=OfferedEvents
        )
        self.collecting.process(self.execution)
        assert isinstance(self.collecting.steps, OfferedEvents)
        self.by_scope = self.collecting.steps.by_scope
        # Under `at every node`, the events by which each node learns of others.
        self._by_node: dict[str, list[Event]] = {}
        for event in self.execution if run.compiled.pattern.deployment is not None else ():
            self._by_node.setdefault(event.node, []).append(event)

    def of(self, name: ScopeName) -> _Lattice:
        """Return the lattice of the events that matter to a scope."""
        run, scope = self._run, self._run.scopes.key_of(name)
        own = self._by_node.get(scope[-1][1], ()) if self._by_node else ()
        events = {event.dot: event for event in (*self.by_scope[name], *own)}
        return _Lattice(
            run.compiled, events.values(), run.limits, scope=scope, execution=run.execution
        )

    def witness(self, verdict: Match | Violation) -> tuple[Event, ...]:
        """Return a prefix of a linear extension of a scope's events that gives a modal verdict.

        `modal_verdicts` yields the verdict for these events.
        """
        lattice = self.of(tuple(map(keyed, verdict.scope.values())))
        lattice.answer(self._run.compiled.pattern.mode == "definitely")
        return lattice.witness


@dataclass(slots=True, eq=False)
class _State:
    """The state of a pattern's runs at a cut; equal states are one object, with one key.

    The run is copied for each next event, (line, index in the line); `steps` has the state after
    it, None if it gives the verdict.
    """

    key: Any
    run: PatternRun
    steps: dict[tuple[int, int], _State | None] = field(default_factory=dict)


class _Lattice:
    """The consistent cuts of an execution, with the states of one pattern's runs.

    `cuts_max` bounds the work. If only one scope is judged, and not any, `events` is the part of
    the execution that matters to it. `witness` is the prefix of a linear extension that gives the
    verdict with its last event.
    """

    def __init__(
        self,
        compiled: CompiledPattern,
        events: Iterable[Event],
        limits: Limits,
        *,
        scope: ScopeKey | None = None,
        execution: str = "",
    ) -> None:
        self.scope = None if scope is None else FrozenMapping(scope)
        self.execution = execution
        self.compiled = compiled
        # `return count` and `limit` change which verdicts are listed, not whether there is one.
        pattern = compiled.pattern
        listed = None if pattern.only_counts else pattern.returns
        plain = replace(pattern, returns=listed, limit=None)
        self._plain_compiled = compiled if plain == pattern else replace(compiled, pattern=plain)
        self.limits = limits
        self.events = canonical(events)
        self._lines: list[list[Event]] = []  # the events of each node, by counter, once explored
        self._keys = StateKeys(self.scope, by_position=compiled.window_events is not None)
        self._states: dict[Any, _State] = {}
        self._last_verdict: Match | Violation | None = None
        self.witness: tuple[Event, ...] = ()

    def answer(self, definitely: bool) -> Match | Violation | None:
        """Return the verdict of the scope if every, or some, linear extension gives one."""
        possible, definite = self.explore(first=not definitely)
        if definitely and definite:
            self._canonical_gives_verdict()
        return self._last_verdict if (definite if definitely else possible) else None

    def _canonical_gives_verdict(self) -> bool:
        """Return whether the canonical extension gives the verdict; if so, set `witness`."""
        run = self._new_run()
        for number, event in enumerate(self.events, 1):
            if self._gives_verdict(run, event):
                self.witness = tuple(self.events[:number])
                return True
        return False

    def explore(self, *, first: bool = False) -> tuple[bool, bool]:
        """Return (possibly, definitely); with `first`, stop at the first verdict and witness it."""
        self._last_verdict = None
        if self.compiled.order_independent:
            decided = self._canonical_gives_verdict()
            return decided, decided
        graph = CausalGraph(self.events)
        self._lines = list(graph.nodes.values())
        needs = self._requirements(graph)
        start = self._interned_state(self._new_run())
        level: dict[Cut, dict[_State, _Path]] = {(0,) * len(self._lines): {start: None}}
        possible = False
        visited = 1
        for _ in self.events:
            next_level: dict[Cut, dict[_State, _Path]] = {}
            for cut, states in level.items():
                for line, (place, needed) in enumerate(zip(cut, needs, strict=True)):
                    # The next event of the line, if there is one, needs its past in the cut.
                    if place == len(needed) or any(cut[k] <= n for k, n in needed[place]):
                        continue
                    next_cut = (*cut[:line], place + 1, *cut[line + 1 :])
                    reached = next_level.setdefault(next_cut, {})
                    visited -= len(reached)
                    for state, path in states.items():
                        target = self._step(state, line, place)
                        if target is not None:
                            reached.setdefault(target, (path, line, place))
                            continue
                        possible = True
                        if first:
                            self.witness = self._events_of((path, line, place))
                            return True, False
                    visited += len(reached)
                    if visited > self.limits.cuts_max:
                        raise SettingError(
                            f"more than {self.limits.cuts_max} consistent cuts and states "
                            "(limit cuts_max)"
                        )
            level = {cut: states for cut, states in next_level.items() if states}
            self._evict(level.values())
        return possible, possible and not level

    def _events_of(self, path: _Path) -> tuple[Event, ...]:
        out = []
        while path is not None:
            path, line, index = path
            out.append(self._lines[line][index])
        return tuple(reversed(out))

    def _requirements(self, graph: CausalGraph) -> list[list[list[tuple[int, int]]]]:
        """Return, for each event of each line, the events of other lines just before it.

        They are given by line and index there. With the event before it on its line they are the
        links to it, so a cut that has them all has its whole past.
        """
        places = {
            event.dot: (line, index)
            for line, own in enumerate(self._lines)
            for index, event in enumerate(own)
        }
        return [
            [[places[before.dot] for before in graph.messages_to(event)] for event in own]
            for own in self._lines
        ]

    def _step(self, state: _State, line: int, index: int) -> _State | None:
        """Return the state after a line's event at an index; None if it gives the verdict."""
        event = line, index
        if event not in state.steps:
            run = self._new_run(state.run.machine)
            run.copy_from(state.run)
            decided = self._gives_verdict(run, self._lines[line][index])
            state.steps[event] = None if decided else self._interned_state(run)
        return state.steps[event]

    def _interned_state(self, run: PatternRun) -> _State:
        """Return the state object of a run, the same object for runs in equal states."""
        key = self._keys.key_of(run)
        return self._states.setdefault(key, _State(key, run))

    def _evict(self, level: Iterable[dict[_State, _Path]]) -> None:
        """Evict all states except those of the level and those that their steps lead to.

        Only the states of the level keep their steps, so no step leads to an evicted state.
        """
        current = {state for states in level for state in states}
        for state in self._states.values():
            if state not in current:
                state.steps.clear()
        targets = (target for state in current for target in state.steps.values() if target)
        self._states = {state.key: state for state in (*current, *targets)}

    def _new_run(self, machine: Machine | None = None) -> PatternRun:
        return PatternRun(
            self._plain_compiled, self.limits, execution=self.execution,
            listing=self.scope is not None, machine=machine,
        )  # fmt: skip

    def _gives_verdict(self, run: PatternRun, event: Event) -> bool:
        if self.scope is None:
            before = run.counts.violations + run.counts.matches
            run.process((event,))
            return run.counts.violations + run.counts.matches > before
        for verdict in flat(run.process((event,))):
            if isinstance(verdict, Match | Violation) and verdict.scope == self.scope:
                fingerprint = self.compiled.fingerprint
                self._last_verdict = msgspec.structs.replace(verdict, fingerprint=fingerprint)
                return True
        return False
