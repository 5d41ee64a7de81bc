"""An observed run of a pattern: records the events that it was offered, and the steps taken.

An `ObservedRun` is a `PatternRun` with `ObservedSteps`. The steps that a check has taken come from
`check_readings`; the runs of a `find next` or `find strict` keep their own; a `find any` keeps no
partial matches (`partial_matches` searches for them).

The one rule: an observed run gives the verdicts that any run gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TypeVar

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import Configuration, Seen, states
from ketal.engine.copies import Copies
from ketal.engine.find.findings import Taken
from ketal.engine.find_next.runs import RunsFind
from ketal.engine.losses import ScopeName
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scope_steps import ScopeSteps
from ketal.engine.scopes import Scope, Scopes, mapping_of
from ketal.engine.verdict_building import VerdictBuilder
from ketal.explanation.check_readings import check_reading, check_trails
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.limits import Limits
from ketal.model.values import keyed
from ketal.model.verdicts.verdict_kinds import RunVerdict
from ketal.semantics import History

T = TypeVar("T")


def take_first(items: Iterator[T], most: int) -> tuple[list[T], bool]:
    """Return the first `most` items, and whether more follow; `most` may exceed `sys.maxsize`."""
    first = [item for _, item in zip(range(most), items, strict=False)]
    return first, next(items, None) is not None


class LiveRun:
    """The state of a scope's run when an event was offered; `read` computes the steps taken."""

    __slots__ = ("configuration", "read")

    def __init__(self, configuration: Configuration, read: Callable[[], History]) -> None:
        self.configuration = configuration
        self.read = cache(read)

    @property
    def taken(self) -> History:
        """The steps that the run had taken, with their events.

        If several readings led to the configuration, it is one of them. It is computed on first
        access, as it may be as long as the log.
        """
        return self.read()


@dataclass(slots=True)
class Offer:
    """The offer of an event to a scope."""

    scope: FrozenMapping
    """The scope's key, with the `node` of a copy of the pattern."""
    seen: Seen
    by: Event
    """The event with which the scope was offered it: the event itself or, if the node of a copy
    learned of it later, the event of that node that knew it."""
    live: list[LiveRun]
    """The runs that could have taken the event: for a check its configurations, for a find also the
    run that the event could start."""
    cut: bool
    """Whether there were more runs than `explained_runs_max`."""
    halted: bool = False
    """Whether the check had halted before, at a violation."""
    verdicts: list[RunVerdict] = field(default_factory=list)
    """The verdicts that the offer produced."""


@dataclass(frozen=True, slots=True)
class Move:
    """An event that a scope of a check was offered, and the states before and after it."""

    position: int
    """The index, among the events of the execution in offer order, of the event with which the
    scope was offered this one: its own, or a later one if a copy's node learned of it later."""
    scope: FrozenMapping
    event: Event
    before: tuple[int, ...]
    after: tuple[int, ...]
    """The states that the run may be in; empty once it has halted."""


class ObservedSteps(ScopeSteps):
    """Offers events to the runs of scopes, and records the offers that explanations need.

    `events` has the events of the execution so far, and grows as the pattern is offered them. Every
    offer of the event `wanted` is recorded, and at most `moves_max` moves of a check.
    """

    __slots__ = (
        "_events", "_in_order", "_machine", "_moves_max", "_offered", "_wanted", "ended", "moved",
        "moves", "offers", "violated",
    )  # fmt: skip

    def __init__(
        self,
        scopes: Scopes,
        verdicts: VerdictBuilder,
        limits: Limits,
        copies: Copies | None,
        *,
        events: Sequence[Event],
        wanted: Dot | None,
        moves_max: int,
    ) -> None:
        super().__init__(scopes, verdicts, limits, copies)
        self.by_mask = False
        self._events = events
        self._machine = self.verdicts.machine
        self._moves_max = moves_max
        self._wanted = wanted
        self.moves: list[Move] = []
        """The moves of the scopes of a check, up to `moves_max`."""
        self.moved = 0
        """How many moves there were, recorded or not."""
        self.offers: list[Offer] = []
        """The offers of the wanted event."""
        self.violated: dict[str, Offer] = {}
        """The offers that violated the pattern, by the id of the violation."""
        self.ended: dict[str, Callable[[], History]] = {}
        """For each check that was incomplete at the end, by the verdict's id: returns its steps."""
        self._offered: dict[ScopeName, dict[Dot, Seen]] = {}
        """The events that each scope was offered, by dot; for a check, those since its run began,
        except those that it skipped."""
        self._in_order: dict[ScopeName, list[Seen]] = {}
        """The events that each scope of a find was offered, by place."""

    def step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope, and record the offer if needed."""
        scope = self.scopes.by_name.get(name)
        # A scope that is removed once it is over may be created again, and then counts from zero.
        seen = Seen(event, mask, len(self._in_order.get(name, ())))
        if self.verdicts.compiled.kind == "check":
            return self._step_check(name, scope, seen)
        self._offered.setdefault(name, {})[seen.dot] = seen
        self._in_order.setdefault(name, []).append(seen)
        offer = (
            self._offer(name, seen, self._live_runs(scope)) if event.dot == self._wanted else None
        )
        out = super().step(name, event, mask)
        if offer is not None:
            offer.verdicts = out
            self.offers.append(offer)
        return out

    def _scope_key(self, name: ScopeName) -> FrozenMapping:
        return mapping_of(self.scopes.key_of(name))

    def _offer(self, name: ScopeName, seen: Seen, live: Iterator[LiveRun]) -> Offer:
        runs, cut = take_first(live, self.limits.explained_runs_max)
        return Offer(self._scope_key(name), seen, self._events[-1], runs, cut)

    # --- a check ---

    def _step_check(self, name: ScopeName, scope: Scope | None, seen: Seen) -> list[RunVerdict]:
        run = None if scope is None else scope.run
        before = run.configurations if isinstance(run, CheckRun) else self._machine.fresh
        halted = isinstance(run, CheckRun) and run.halted
        out = super().step(name, seen.event, seen.mask)
        violated = [verdict for verdict in out if verdict.kind == "violation"]
        if violated or seen.dot == self._wanted:
            read = self._reader(self._offered.get(name, {}))
            live = (LiveRun(one, partial(read, number)) for number, one in enumerate(before))
            offer = self._offer(name, seen, live)
            offer.halted, offer.verdicts = halted, out
            self.violated.update((verdict.id, offer) for verdict in violated)
            if seen.dot == self._wanted:
                self.offers.append(offer)
        self.moved += 1
        if len(self.moves) < self._moves_max:
            scope = self.scopes.by_name.get(name)
            # A finished scope has been removed; its successor would start in the initial state.
            after = scope.run.states() if scope and isinstance(scope.run, CheckRun) else (0,)
            position, key = len(self._events) - 1, self._scope_key(name)
            self.moves.append(Move(position, key, seen.event, states(before), after))
        skipped = violated and self._machine.compiled.pattern.violation_policy == "skip"
        if violated and not skipped:
            self._offered[name] = {}
        # A limit that is reached ends the run, or there is no room for it.
        if not (halted or skipped or any(verdict.kind == "overflow" for verdict in out)):
            self._offered.setdefault(name, {})[seen.dot] = seen
        return out

    def _reader(self, offered: Mapping[Dot, Seen]) -> Callable[[int], History]:
        """Return a function that returns how the run reached its n-th configuration.

        The trails of all configurations are found together, on first use.
        """
        machine, length = self._machine, len(offered)
        trails = cache(lambda: check_trails(machine, offered.values(), length))
        return lambda number: check_reading(machine, trails()[number])

    def close(self) -> list[RunVerdict]:
        """End every window and every run."""
        out = super().close()
        for verdict in out:
            if verdict.kind == "incomplete":
                self.ended[verdict.id] = partial(self._reader(self.offered(verdict.scope)), 0)
        return out

    # --- a find ---

    def _live_runs(self, scope: Scope | None) -> Iterator[LiveRun]:
        """Yield the waiting runs of a `find next` or `find strict`, and a fresh run."""
        run = None if scope is None else scope.run
        if isinstance(run, RunsFind):
            for configuration, taken in run.beginnings():
                yield self.live_run(configuration, taken)
        yield self.live_run(self._machine.start(), ())

    def live_run(self, configuration: Configuration, taken: Taken) -> LiveRun:
        """Return a find's run in a configuration, with the steps taken."""
        steps = self._machine.automaton.steps
        return LiveRun(
            configuration, lambda: tuple((steps[number], seen.event) for number, seen in taken)
        )

    def offered_scopes(self) -> list[FrozenMapping]:
        """Return the scopes that were offered an event."""
        return list(map(self._scope_key, self._offered))

    def offered(self, scope: FrozenMapping) -> Mapping[Dot, Seen]:
        """Return the events that a scope was offered, in offer order; for a check, to its run."""
        return self._offered.get(tuple(map(keyed, scope.values())), {})

    def in_order(self, scope: FrozenMapping) -> Sequence[Seen]:
        """Return the events that a scope of a find was offered, by place."""
        return self._in_order.get(tuple(map(keyed, scope.values())), ())


class ObservedRun(PatternRun):
    """One pattern over one execution, observed; takes the arguments of both classes."""

    __slots__ = ("events", "observed")

    def __init__(
        self,
        compiled: CompiledPattern,
        limits: Limits,
        *,
        wanted: Dot | None,
        moves_max: int,
        execution: str = "",
        listing: bool = True,
        traced: bool = False,
    ) -> None:
        self.events: list[Event] = []
        """The events of the execution, in offer order."""
        make_steps = partial(ObservedSteps, events=self.events, wanted=wanted, moves_max=moves_max)
        super().__init__(
            compiled, limits, execution=execution, listing=listing, traced=traced,
            make_steps=make_steps,
        )  # fmt: skip
        assert isinstance(self.steps, ObservedSteps)
        self.observed = self.steps

    def concerned_by(self, event: Event) -> bool:
        """Return True: events that change nothing are observed, too."""
        return True

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return their verdicts."""
        out = []
        for number, event in enumerate(events):
            self.events.append(event)
            out += [(number, verdicts) for _, verdicts in super().process((event,))]
        return out

    def count(self, events: Iterable[Event]) -> None:
        """Count events that other runs of the pattern are offered in every order (`mode`)."""
        counted = list(events)
        self.events += counted
        super().count(counted)
