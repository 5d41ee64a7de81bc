"""The steps of a pattern's scopes, observed: what their runs had taken when an event was offered.

The steps that a check had taken come from its `check_readings`; the runs of a `find next` or `find
strict` have their own; a `find any` keeps no partial matches, and its `partial_matches` are sought
among the events that the scope was offered.

The one rule: observed steps give the verdicts that any steps give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import Seen, states
from ketal.engine.find.findings import Taken
from ketal.engine.find_next.runs import RunsFind
from ketal.engine.losses import ScopeName
from ketal.engine.scope_steps import ScopeSteps
from ketal.engine.scopes import Scope, mapping_of
from ketal.explanation.observed_runs.check_readings import CheckReadings, Configurations
from ketal.explanation.observed_runs.observations import LiveRun, Move, Offer, first_of
from ketal.explanation.observed_runs.partial_matches import partial_matches
from ketal.model.events.event import Event
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.values import keyed
from ketal.model.verdicts.verdict_kinds import RunVerdict
from ketal.semantics import History


class ObservedSteps(ScopeSteps):
    """Offers events to the runs of scopes, and keeps what is wanted of them.

    Parameters
    ----------
    *parts
        As for `ScopeSteps`.
    events : sequence of Event
        The events of the execution so far; grows as the pattern is offered them.
    wanted : callable
        Whether it is kept what each scope is offered of an event.
    moves_max : int
        So many moves of a check are kept.

    Attributes
    ----------
    offers : list of Offer
        What was wanted, and every event that violated the pattern.
    ended : list of (RunVerdict, callable)
        The checks that were not complete at the end, with what returns what they had taken.
    moves : list of Move
        What the scopes of a check were offered, and the states that followed.
    moved : int
        How many moves there were.
    """

    takes_by_mask = False
    __slots__ = (
        "_events", "_machine", "_moves_max", "_offered", "_readings", "_wanted", "ended", "moved",
        "moves", "offers",
    )  # fmt: skip

    def __init__(
        self,
        *parts: Any,
        events: Sequence[Event],
        wanted: Callable[[Event], bool],
        moves_max: int,
    ) -> None:
        super().__init__(*parts)
        self._events = events
        self._machine = self.verdicts.machine
        self._moves_max = moves_max
        self.moves: list[Move] = []
        self.moved = 0
        self.offers: list[Offer] = []
        self.ended: list[tuple[RunVerdict, Callable[[], History]]] = []
        self._wanted = wanted
        self._readings = CheckReadings(self._machine)
        self._offered: dict[ScopeName, list[Seen]] = {}

    def step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope, and keep what is wanted of it."""
        scope = self.scopes.get(name)
        seen = Seen(event, mask, 0 if scope is None else scope.offered)
        if self.verdicts.compiled.kind == "check":
            return self._step_checked(name, scope, seen)
        self._offered.setdefault(name, []).append(seen)
        wanted = self._wanted(event)
        offer = self._offer(name, seen, self._waiting(scope)) if wanted else None
        out = super().step(name, event, mask)
        if offer is not None:
            offer.verdicts = out
        return out

    def _offer(self, name: ScopeName, seen: Seen, live: Iterator[LiveRun]) -> Offer:
        runs, cut = first_of(live, self.limits.explained_runs_max)
        offer = Offer(mapping_of(self.scopes.key_of(name)), seen, runs, cut)
        self.offers.append(offer)
        return offer

    # --- a check ---

    def _step_checked(self, name: ScopeName, scope: Scope | None, seen: Seen) -> list[RunVerdict]:
        run = None if scope is None else scope.run
        before = run.configurations if isinstance(run, CheckRun) else self._machine.fresh
        halted = isinstance(run, CheckRun) and run.halted
        out = super().step(name, seen.event, seen.mask)
        violated = any(verdict.kind == "violation" for verdict in out)
        if violated or self._wanted(seen.event):
            live = (LiveRun(one, self._readings.of(name, one)) for one in before)
            offer = self._offer(name, seen, live)
            offer.halted, offer.verdicts = halted, out
        self._record(name, seen, before)
        policy = self._machine.compiled.pattern.violation_policy
        if not violated:
            self._readings.move(name, before, seen)
        elif policy == "resume":
            self._readings.restart(name, seen)
        elif policy == "halt":
            self._readings.remove(name)
        return out

    def _record(self, name: ScopeName, seen: Seen, before: Configurations) -> None:
        """Keep a move, if there is room."""
        self.moved += 1
        if len(self.moves) >= self._moves_max:
            return
        scope = self.scopes.get(name)
        # A scope that is over is removed; a new one would begin in the initial state.
        after = scope.run.states() if scope and isinstance(scope.run, CheckRun) else (0,)
        key = mapping_of(self.scopes.key_of(name))
        self.moves.append(Move(len(self._events) - 1, key, seen.event, states(before), after))

    def close(self) -> list[RunVerdict]:
        """End every window and every run."""
        readings = {
            mapping_of(self.scopes.key_of(name)): read for name, read in self._readings.of_scopes()
        }
        out = super().close()
        for verdict in out:
            if verdict.kind == "incomplete":
                self.ended.append((verdict, readings.get(verdict.scope, tuple)))
        return out

    # --- a find ---

    def _waiting(self, scope: Scope | None) -> Iterator[LiveRun]:
        """Yield the runs of a `find next` or `find strict` that wait, and a fresh one."""
        run = None if scope is None else scope.run
        if isinstance(run, RunsFind):
            for configuration, taken in run.beginnings():
                yield LiveRun(configuration, partial(self._named, taken))
        yield LiveRun(self._machine.start(), tuple)

    def _named(self, taken: Taken) -> History:
        steps = self._machine.automaton.steps
        return tuple((steps[number], seen.event) for number, seen in taken)

    def offered_scopes(self) -> list[FrozenMapping]:
        """Return the scopes of a find that were offered an event."""
        return [mapping_of(self.scopes.key_of(name)) for name in self._offered]

    def offered(self, scope: FrozenMapping) -> list[Seen]:
        """Return the events that a scope of a find was offered, in their order."""
        return self._offered.get(tuple(map(keyed, scope.values())), [])

    def partial_matches(self, offer: Offer) -> tuple[list[LiveRun], bool]:
        """Return the partial matches of a `find any` that an event could have gone on with.

        Returns
        -------
        list of LiveRun
            At most `explained_runs_max`; the latest events are tried first.
        bool
            Whether there are more.
        """
        matches = partial_matches(self._machine, self.offered(offer.scope), offer.seen)
        runs = (LiveRun(here, partial(self._named, taken)) for here, taken in matches)
        return first_of(runs, self.limits.explained_runs_max)
