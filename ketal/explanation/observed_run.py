"""The run of a pattern, observed: what its scopes' runs had taken when an event was offered.

An `ObservedRun` does what a `PatternRun` does, and keeps beside each configuration of a check one
reading of how it came about: the steps and events that led to it. What a `find next` or `find
strict` had taken its runs say themselves. A `find any` keeps no partial matches: here they are
looked for, by the definition, among the events that the scope was offered.

The one rule: an observed run gives the verdicts that any run gives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from ketal.compiler.automaton import ANONYMOUS, CompiledPattern
from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import Configuration, Seen, states
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import Taken
from ketal.engine.find.windows import MatchWindow
from ketal.engine.find_next.runs import RunsFind
from ketal.engine.losses import ScopeName
from ketal.engine.machine import Machine, step
from ketal.engine.pattern_run import PatternRun
from ketal.engine.scopes import Scope, mapping_of
from ketal.model import syntax
from ketal.model.event import Event, happened_before
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.limits import Limits
from ketal.model.verdicts import RunVerdict
from ketal.semantics import History, Rest, Words


@dataclass(frozen=True, slots=True, eq=False)
class Trail:
    """The last event of a reading with the steps that it may be, and the reading before it."""

    before: Trail | None
    steps: frozenset[str]
    seen: Seen


Key = tuple[Any, ...]
"""Equal for configurations that the same events led to."""
Trails = Mapping[Key, Trail | None]
Configurations = tuple[Configuration, ...]


def _key(configuration: Configuration) -> Key:
    state, prior, bound, history, _ = configuration
    dots = tuple(None if seen is None else seen.dot for seen in (prior, *bound))
    if history is None:
        return state, dots, None
    tables = (history.first, history.last, history.join)
    return state, dots, tuple(tuple(sorted(table.items())) for table in tables)


def _word(trail: Trail | None, body: syntax.Body) -> History:
    """Return the first word of a body, of those that a trail may be, with its events."""
    trails: list[Trail] = []
    while trail is not None:
        trails.append(trail)
        trail = trail.before
    words = Words()
    # What is left of a word → its steps so far, the last one first.
    rests: dict[Rest, Any] = {(body,): None}
    for one in reversed(trails):
        longer: dict[Rest, Any] = {}
        for rest, word in rests.items():
            for _, name, left in words.firsts(rest):
                if name in one.steps and left not in longer:
                    longer[left] = (name, word)
        rests = longer
    names = []
    word = next(iter(rests.values()))
    while word is not None:
        name, word = word
        names.append(name)
    events = [one.seen.event for one in trails]
    return tuple(zip(reversed(names), reversed(events), strict=True))


class LiveRun:
    """A run of a scope, as it was when an event was offered.

    Parameters
    ----------
    configuration : Configuration
        Where it was.
    read : callable
        Returns the steps that it had taken, with their events.
    """

    def __init__(self, configuration: Configuration, read: Callable[[], History]) -> None:
        self.configuration = configuration
        self._read = read

    @functools.cached_property
    def taken(self) -> History:
        """The steps that it had taken, with their events.

        Of several readings that led to one configuration it is one; it is made when asked for, as
        it may be as long as the log.
        """
        return self._read()


@dataclass(slots=True)
class Offer:
    """An event as a scope was offered it.

    Attributes
    ----------
    run : ObservedRun
        The run of the pattern.
    scope : FrozenMapping
        The scope's key.
    node : str or None
        Whose copy of the pattern it was, under `at every node`.
    seen : Seen
        The event.
    live : list of LiveRun
        The runs that could have taken it: of a check its configurations, of a find also the run
        that it could start.
    cut : bool
        Whether there were more runs than `explained_runs_max`.
    halted : bool
        Whether the run of the check had ended before, at a violation.
    verdicts : list of RunVerdict
        What it brought about.
    """

    run: ObservedRun
    scope: FrozenMapping
    node: str | None
    seen: Seen
    live: list[LiveRun]
    cut: bool = False
    halted: bool = False
    verdicts: list[RunVerdict] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Move:
    """An event that a scope of a check was offered, and the states before and after it.

    Attributes
    ----------
    position : int
        The place, among the events of the execution as they were offered, of the one with which
        the scope was offered it: of what a copy's node learns later, a later one.
    scope : FrozenMapping
        The scope's key.
    event : Event
        The event.
    before, after : tuple of int
        The states that the run may be in; none once it is halted.
    """

    position: int
    scope: FrozenMapping
    event: Event
    before: tuple[int, ...]
    after: tuple[int, ...]


class ObservedRun(PatternRun):
    """One pattern over one execution, observed.

    Parameters
    ----------
    compiled, limits, **options
        As for `PatternRun`.
    wanted : callable
        (run, event) → whether it is kept what each scope is offered of an event.
    moves_max : int
        So many moves of a check are kept.

    Attributes
    ----------
    events : list of Event
        The events of the execution, in the order in which they were offered.
    offers : list of Offer
        What was wanted, and every event that violated the pattern.
    ended : list of (RunVerdict, callable)
        The checks that were not complete at the end, with what returns what they had taken.
    moves : list of Move
        What the scopes of a check were offered, and the states that followed.
    moved : int
        How many moves there were.
    """

    __slots__ = (
        "_moves_max", "_offered", "_trails", "_wanted", "ended", "events", "moved", "moves",
        "offers",
    )  # fmt: skip

    def __init__(
        self,
        compiled: CompiledPattern,
        limits: Limits,
        *,
        wanted: Callable[[PatternRun, Event], bool],
        moves_max: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(compiled, limits, **options)
        self._moves_max = moves_max
        self.moves: list[Move] = []
        self.moved = 0
        self.events: list[Event] = []
        self.offers: list[Offer] = []
        self.ended: list[tuple[RunVerdict, Callable[[], History]]] = []
        self._wanted = wanted
        self._trails: dict[ScopeName, Trails] = {}
        self._offered: dict[ScopeName, list[Seen]] = {}

    def concerned_by(self, event: Event) -> bool:
        """Return True: an event that changes nothing is observed, too."""
        return True

    takes_by_mask = False

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return their verdicts."""
        out = []
        for number, event in enumerate(events):
            self.events.append(event)
            out += [(number, verdicts) for _, verdicts in super().process((event,))]
        return out

    def count(self, events: Iterable[Event]) -> None:
        """Count events which other runs of the pattern are offered, in every order (`mode`)."""
        counted = list(events)
        self.events += counted
        super().count(counted)

    def step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope, and keep what is wanted of it."""
        scope = self.scopes.get(name)
        seen = Seen(event, mask, 0 if scope is None else scope.offered)
        if self.compiled.kind == "check":
            return self._step_checked(name, scope, seen)
        self._offered.setdefault(name, []).append(seen)
        wanted = self._wanted(self, event)
        offer = self._offer(name, seen, self._waiting(scope)) if wanted else None
        out = super().step(name, event, mask)
        if offer is not None:
            offer.verdicts = out
        return out

    def _offer(self, name: ScopeName, seen: Seen, live: Iterator[LiveRun]) -> Offer:
        most = self.limits.explained_runs_max
        runs = list(islice(live, most + 1))
        node = None
        if self.copies is not None:
            node = dict(self.scopes.key_of(name))["node"]
        scope = mapping_of(self.scopes.key_of(name))
        offer = Offer(self, scope, node, seen, runs[:most], cut=len(runs) > most)
        self.offers.append(offer)
        return offer

    # --- a check ---

    def _step_checked(self, name: ScopeName, scope: Scope | None, seen: Seen) -> list[RunVerdict]:
        fresh = self.machine.fresh
        run = None if scope is None else scope.run
        before = run.configurations if isinstance(run, CheckRun) else fresh
        trails = self._trails.get(name, {})
        halted = isinstance(run, CheckRun) and run.halted
        out = super().step(name, seen.event, seen.mask)
        violated = any(verdict.kind == "violation" for verdict in out)
        if violated or self._wanted(self, seen.event):
            live = (LiveRun(one, self._reading(trails.get(_key(one)))) for one in before)
            offer = self._offer(name, seen, live)
            offer.halted, offer.verdicts = halted, out
        self._record(name, seen, before)
        policy = self.machine.compiled.on_violation
        if not violated:
            self._trails[name] = self._moved(before, trails, seen)
        elif policy == "resume":
            self._trails[name] = self._moved(fresh, {}, seen)
        elif policy == "halt":
            self._trails.pop(name, None)
        return out

    def _record(self, name: ScopeName, seen: Seen, before: Configurations) -> None:
        """Keep a move, if there is room."""
        self.moved += 1
        if len(self.moves) >= self._moves_max:
            return
        scope = self.scopes.get(name)
        # A scope that is over was let go, and would begin anew.
        after = scope.run.states() if scope and isinstance(scope.run, CheckRun) else (0,)
        key = mapping_of(self.scopes.key_of(name))
        self.moves.append(Move(len(self.events) - 1, key, seen.event, states(before), after))

    def _moved(self, before: Configurations, trails: Trails, seen: Seen) -> dict[Key, Trail | None]:
        """Return the trails of what an event makes of some configurations."""
        moved: dict[Key, Trail | None] = {}
        for one in before:
            for group, after in step(self.machine, one, seen):
                if (key := _key(after)) not in moved:
                    steps = self._may_be(one, group, seen)
                    moved[key] = Trail(trails.get(_key(one)), steps, seen)
        return moved

    def _may_be(self, one: Configuration, group: int, seen: Seen) -> frozenset[str]:
        """Return the steps by which a configuration may take an event into a group."""
        automaton = self.machine.automaton
        if group != ANONYMOUS:
            return frozenset((automaton.steps[group],))
        bound = {automaton.letters[letter][1] for letter, _ in automaton.table[one.state]}
        held = set(self.machine.steps_held(one, seen)) - bound
        return frozenset(automaton.steps[number] for number in held)

    def _reading(self, trail: Trail | None) -> Callable[[], History]:
        """Return what reads a trail."""
        return partial(_word, trail, self.compiled.pattern.body)

    def close(self) -> list[RunVerdict]:
        """End every window and every run."""
        readings = {
            mapping_of(self.scopes.key_of(name)): next(iter(trails.values()), None)
            for name, trails in self._trails.items()
        }
        out = super().close()
        for verdict in out:
            if verdict.kind == "incomplete":
                self.ended.append((verdict, self._reading(readings.get(verdict.scope))))
        return out

    # --- a find ---

    def _waiting(self, scope: Scope | None) -> Iterator[LiveRun]:
        """Yield the runs of a `find next` or `find strict` that wait, and a fresh one."""
        run = None if scope is None else scope.run
        if isinstance(run, RunsFind):
            for configuration, taken in run.beginnings():
                yield LiveRun(configuration, partial(self._named, taken))
        yield LiveRun(self.machine.start(), tuple)

    def _named(self, taken: Taken) -> History:
        steps = self.machine.automaton.steps
        return tuple((steps[number], seen.event) for number, seen in taken)

    def offered_scopes(self) -> list[FrozenMapping]:
        """Return the scopes of a find that were offered an event."""
        return [mapping_of(self.scopes.key_of(name)) for name in self._offered]

    def offered(self, scope: FrozenMapping) -> list[Seen]:
        """Return the events that a scope of a find was offered, in their order."""
        for name, offered in self._offered.items():
            if mapping_of(self.scopes.key_of(name)) == scope:
                return offered
        return []

    def partial_matches(self, offer: Offer) -> tuple[list[LiveRun], bool]:
        """Return the partial matches of a `find any` that an event could have gone on with.

        Returns
        -------
        list of LiveRun
            At most `explained_runs_max`; the latest events are tried first.
        bool
            Whether there are more.
        """
        most = self.limits.explained_runs_max
        found = list(
            islice(_partial_matches(self.machine, self.offered(offer.scope), offer.seen), most + 1)
        )
        runs = [LiveRun(here, partial(self._named, taken)) for here, taken in found[:most]]
        return runs, len(found) > most


def _partial_matches(
    machine: Machine, offered: Sequence[Seen], target: Seen
) -> Iterator[tuple[Configuration, Taken]]:
    """Yield what `find any` could have taken before an event, by the definition."""
    breakers, window = Breakers(machine), MatchWindow(machine)
    if machine.automaton.nots:
        for seen in offered:
            breakers.add(seen)
    todo: list[tuple[Configuration, Taken]] = [(machine.start(), ())]
    while todo:
        here, taken = todo.pop()
        yield here, taken
        earlier = [seen for _, seen in taken]
        for seen in offered:
            if not all(
                may_follow(machine, before, after)
                for before, after in ((seen, target), *((one, seen) for one in earlier))
            ):
                continue
            places = [window.at(one) for one in (*earlier, seen, target)]
            if max(places) - min(places) >= window.length:
                continue
            at = here
            if earlier and machine.pending[here.state]:
                at = here._replace(broken=breakers.broken(here, earlier[-1], seen))
            todo += [
                (after, (*taken, (group, seen)))
                for group, after in step(machine, at, seen)
                if machine.has_way_on[after.state]
            ]


def may_follow(machine: Machine, before: Seen, after: Seen) -> bool:
    """Return whether one event may follow another in a match."""
    if machine.arrival:
        return before.place < after.place
    return before.dot != after.dot and not happened_before(after.event, before.event)
