"""Runs of `find next` and `find strict`, which take events in the order offered.

An event extends the partial matches that are there; it can start a run of its own. A partial
match that takes an event goes on only in what is born of it.

The one rule: a partial match belongs to a run that is followed, and a run that is followed has
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.causal_index import PriorIndex
from ketal.engine.find.findings import Findings, Live, Taken, rank, without_mirrors
from ketal.engine.find.partial_matches import Partial, Run
from ketal.engine.find.windows import Expiring, MatchWindow
from ketal.engine.machine import Machine, Plan, SubPlan, Targets
from ketal.model.event import Event
from ketal.model.limits import Limits
from ketal.model.values import Key

PARTIALS = "partial matches"


class RunsFind:
    """The runs of one scope of a `find next` or `find strict`.

    Parameters
    ----------
    machine : Machine
        The automaton, made ready.
    limits : Limits
        `runs_max`, `configurations_max`, `candidates_max`, `matches_per_event_max`.
    live : Live
        How many partial matches there are, over all scopes of the pattern.
    """

    __slots__ = (
        "_expiring", "breakers", "by_state", "limits", "live", "machine", "partials", "runs",
        "window",
    )  # fmt: skip

    def __init__(self, machine: Machine, limits: Limits, live: Live) -> None:
        self.machine = machine
        self.limits = limits
        self.live = live
        self.window = MatchWindow(machine)
        self.by_state: dict[int, PriorIndex] = {}
        self.partials = 0
        self.runs: dict[int, Run] = {}  # by the place of the event that started them
        self._expiring: Expiring[int] = Expiring()
        # Under arrival order a configuration says which `not` guards are broken.
        nots = bool(machine.automaton.nots) and not machine.arrival
        self.breakers = Breakers(machine) if nots else None

    def idle(self) -> bool:
        """Return whether nothing that was offered matters to what comes."""
        return not self.partials

    # --- offering ---

    def offer(self, event: Event, mask: int, place: int) -> Findings | None:
        """Take an event; return what it brought about. The arguments are those of `Seen`."""
        seen = Seen(event, mask, place)
        findings = Findings()
        if self.window.events is not None:
            self._expire(seen.place - self.window.events, findings)
        born: list[Partial] = []
        matches: list[Taken] = []
        taken_from: list[Partial] = []
        for state, index in list(self.by_state.items()):
            if index.count:
                self._extend(state, seen, born, matches, taken_from, findings)
        dropped = dict.fromkeys(taken_from)
        if self.machine.compiled.strategy == "strict":
            dropped = dict.fromkeys(p for index in self.by_state.values() for p in index)
        elif self.machine.arrival and self.machine.automaton.nots:
            self._skip(seen, dropped)
        self._start(seen, born, matches, findings)
        # What is dropped makes room; what is born is kept first, so that a run that
        # goes on stays where it is.
        self.live.count -= len(dropped)
        for partial in born:
            self._keep(partial, findings)
        self.live.count += len(dropped)
        for partial in dropped:
            self._drop(partial)
        if self.breakers is not None:
            self._bar(seen, self.breakers, findings)
        self._complete(findings, matches)
        return findings

    def _breaks(self, mask: int) -> bool:
        numbers = range(len(self.machine.automaton.nots))
        return any(self.machine.breaks(n, mask) is not False for n in numbers)

    def _bar(self, seen: Seen, breakers: Breakers, findings: Findings) -> None:
        """Keep an event that can break a `not` of what is kept."""
        if not self.partials or not self._breaks(seen.mask):
            return
        if len(breakers.by_place) >= self.limits.candidates_max:
            findings.overflow("candidates_max", "events that can break a `not`")
            return
        breakers.add(seen)
        if breakers.is_full():
            places = (p.prior.place for index in self.by_state.values() for p in index)
            breakers.sweep(min(places, default=None))

    def _extend(
        self,
        state: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        taken_from: list[Partial],
        findings: Findings,
    ) -> None:
        plan = self.machine.plan(state, seen.mask)
        if plan is None:
            return
        for sub, groups in self._candidates(state, plan, seen):
            for group in groups:
                for partial in group:
                    targets = sub.constant or self._decide(sub, partial, seen)
                    if targets and self.window.fits(partial, seen):
                        taken_from.append(partial)
                        for step, target in targets:
                            self._born(partial, step, target, seen, born, matches, findings)

    def _candidates(
        self, state: int, plan: Plan, seen: Seen
    ) -> Iterator[tuple[SubPlan, Sequence[Any]]]:
        """Yield (sub-plan, groups of partial matches of a state) that an event may extend."""
        oldest_us = None
        if self.window.us is not None:
            assert seen.time_us is not None
            oldest_us = seen.time_us - self.window.us
        value = self._value(plan.key, seen)
        return self.by_state[state].candidates(plan, seen, value, oldest_us)

    def _value(self, key: int | None, seen: Seen) -> Key | None:
        """Return an event's value of a key, None for no key."""
        return None if key is None else self.machine.relations.event_value(key, seen.event)

    def _decide(self, sub: SubPlan, partial: Partial, seen: Seen) -> Targets:
        configuration = partial.configuration
        if self.breakers is not None and self.machine.pending[configuration.state]:
            flags = self.breakers.broken(configuration, partial.prior, seen)
            configuration = configuration._replace(broken=flags)
        return self.machine.decide(sub, configuration, seen)

    def _born(
        self,
        parent: Partial,
        step: int,
        target: int,
        seen: Seen,
        born: list[Partial],
        matches: list[Taken],
        findings: Findings,
    ) -> None:
        """Extend a partial match by an event."""
        machine, run = self.machine, parent.run
        taken = (*parent.taken, (step, seen))
        findings.moves.append((parent.configuration.state, step, target, seen))
        if target in machine.automaton.finals:
            matches.append(taken)
            run.matched = True
        if machine.has_way_on[target]:
            configuration = machine.take(parent.configuration, step, target, seen)
            born.append(Partial(configuration, taken, run, parent))

    def _start(
        self, seen: Seen, born: list[Partial], matches: list[Taken], findings: Findings
    ) -> None:
        machine = self.machine
        plan = machine.plan(0, seen.mask)
        if plan is None or plan.unbound is None:
            return
        configuration = machine.start()
        targets = machine.decide(plan.unbound, configuration, seen)
        if not targets:
            return
        run = self.add_run(Run(seen))
        for step, target in targets:
            taken = ((step, seen),)
            findings.moves.append((0, step, target, seen))
            if target in machine.automaton.finals:
                matches.append(taken)
                run.matched = True
            if machine.has_way_on[target]:
                after = machine.take(configuration, step, target, seen)
                born.append(Partial(after, taken, run, None))
        if not (born and born[-1].run is run):
            del self.runs[seen.place]  # nothing that it began goes on

    def add_run(self, run: Run) -> Run:
        """Follow a run."""
        self.runs[run.start.place] = run
        if self.window.bounded:
            self._expiring.add(self.window.at(run.start), run.start.place)
        return run

    # --- keeping ---

    def _keep(self, partial: Partial, findings: Findings) -> None:
        run = partial.run
        if self.live.count >= self.limits.runs_max:
            findings.overflow("runs_max", PARTIALS)
        elif len(run.partials) >= self.limits.configurations_max:
            findings.overflow("configurations_max", "partial matches of one run")
        else:
            self.put(partial)
            return
        if not run.partials:
            self.runs.pop(run.start.place, None)

    def _drop(self, partial: Partial) -> None:
        self.by_state[partial.configuration.state].remove(partial)
        self.partials -= 1
        self.live.count -= 1
        run = partial.run
        del run.partials[partial]
        if not run.partials:
            self.runs.pop(run.start.place, None)

    def _index(self, state: int, nodes: tuple[str, ...] = ()) -> PriorIndex:
        """Return the partial matches of a state; `nodes` are looked through in this order."""
        index = self.by_state.get(state)
        if index is None:
            values = self.machine.relations.register_values
            timed = self.window.us is not None
            index = self.by_state[state] = PriorIndex(values, timed=timed, nodes=nodes)
        return index

    def put(self, partial: Partial) -> None:
        """Keep a partial match."""
        self._index(partial.configuration.state).add(partial)
        self.partials += 1
        self.live.count += 1
        partial.run.partials[partial] = None

    def _skip(self, seen: Seen, dropped: dict[Partial, None]) -> None:
        """Let partial matches that did not take the event meet it with their `not` guards."""
        machine = self.machine
        for state, index in self.by_state.items():
            plan = machine.not_plan(state, seen.mask)
            if not index.count or not plan.guards:
                continue
            for partial in index.having(plan.key, self._value(plan.key, seen)):
                if partial in dropped:
                    continue
                after = machine.skip(partial.configuration, seen)
                if after is None:
                    dropped[partial] = None
                else:
                    partial.configuration = after

    # --- windows ---

    def _expire(self, last: int, findings: Findings) -> None:
        """End the runs whose windows count from `last` or before."""
        for place in self._expiring.passed(last):
            if place in self.runs:
                self._end(self.runs[place], findings)

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        if self.window.us is not None:
            self._expire(watermark_us - self.window.us, findings)

    def end(self, findings: Findings) -> None:
        """End every window: nothing comes any more."""
        if self.window.bounded:
            for run in list(self.runs.values()):
                self._end(run, findings)

    def earliest_us(self) -> int | None:
        """Return the first time that a watermark can end something of; None for nothing."""
        earliest = self._expiring.earliest(self.runs.__contains__)
        return None if earliest is None else int(earliest)

    def _end(self, run: Run, findings: Findings) -> None:
        """End a run whose window is over."""
        partials = list(run.partials)
        for partial in partials:
            self._drop(partial)
        self.runs.pop(run.start.place, None)
        if partials and not run.matched:
            best = min(partials, key=lambda p: (-len(p.taken), rank(p.taken)))
            findings.timed_out.append(best.taken)

    # --- state ---

    def events(self) -> Iterator[Seen]:
        """Yield the events that a match to come may have."""
        for index in self.by_state.values():
            for partial in index:
                yield from (seen for _, seen in partial.taken)

    def save(self, seens: SeenTable) -> Any:
        """Return the run as plain data; `seens` numbers its events."""
        breakers = () if self.breakers is None else self.breakers.by_place.values()
        return {
            "partials": [p.save(seens) for index in self.by_state.values() for p in index],
            # The order in which they are looked through, those that are empty now included:
            # it is the order of the matches that one event completes.
            "states": [[state, list(index.lines)] for state, index in self.by_state.items()],
            "breakers": [seens.number(seen) for seen in breakers],
            "runs": [[seens.number(run.start), run.matched] for run in self.runs.values()],
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Put what `save` gave into a fresh run."""
        for state, nodes in value["states"]:
            self._index(state, nodes)
        if self.breakers is not None:
            for number in value["breakers"]:
                self.breakers.add(seens[number])
        for number, matched in value["runs"]:
            self.add_run(Run(seens[number])).matched = matched
        for row in value["partials"]:
            self.put(Partial.load(row, seens, self.runs))

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of what is kept."""
        assert self.partials == sum(index.count for index in self.by_state.values())
        for state, index in self.by_state.items():
            index.validate_state()
            assert index.count == len(set(index))
            for partial in index:
                assert partial.configuration.state == state
                assert self.runs[partial.run.start.place] is partial.run
                partial.validate_state()
                self.window.validate_state(partial)
        if self.breakers is not None:
            self.breakers.validate_state()
        for place, run in self.runs.items():
            assert run.partials
            assert run.start.place == place

    # --- matches ---

    def _complete(self, findings: Findings, matches: list[Taken]) -> None:
        """Put the matches that an event completed into `findings`, mirror images removed."""
        over = len(matches) - self.limits.matches_per_event_max
        if over > 0:
            findings.overflow("matches_per_event_max", "matches of one event", over)
            del matches[self.limits.matches_per_event_max :]
        automaton = self.machine.automaton
        if automaton.mirrors and len(matches) > 1:
            matches = [matches[n] for n in without_mirrors(matches, automaton.classes)]
        findings.matches += matches
