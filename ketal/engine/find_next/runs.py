"""Runs of `find next` and `find strict`, which take events in the order offered.

Each event that can be first starts a run. A run that takes an event goes on only from there:
`next` skips an event that it cannot take, `strict` ends at one. Runs that take the same event into
the same configuration are one group from then on (`ketal.engine.find_next.run_groups`), so what
an event costs does not depend on how many runs a group has.

The one rule: a group that waits is in the index of its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ketal.engine.configurations import Configuration, Seen, SeenTable
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.findings import MATCHES, Findings, Live, Taken, without_mirrors
from ketal.engine.find.windows import FOREVER, Expiring, MatchWindow
from ketal.engine.find_next.run_groups import Run, RunGroup, RunGroups
from ketal.engine.find_next.waiting_groups import WaitingByState, WaitingGroups
from ketal.engine.machine import Machine, Plan, SubPlan, Targets
from ketal.model.events.event import Event
from ketal.model.limits import Limits

START: Final = 1  # the bit of the state in which a run starts
RUNS: Final = "runs"
TAKEN: Final = "runs that go on"


class RunsFind:
    """The runs of one scope of a `find next` or `find strict`."""

    __slots__ = (
        "_expiring", "_findings", "_groups", "_strict", "_traced", "_waiting", "breakers", "limits",
        "machine", "window",
    )  # fmt: skip

    def __init__(self, machine: Machine, limits: Limits, live: Live, *, traced: bool) -> None:
        self.machine = machine
        self.limits = limits
        self._traced = traced
        self._strict = machine.compiled.strategy == "strict"
        self.window = MatchWindow(machine)
        self._groups = RunGroups(live, self.window.us)
        self._waiting = WaitingByState(machine, self._groups)
        self._expiring = Expiring()
        # Under arrival order configurations record which `not` guards are broken.
        nots = bool(machine.automaton.nots) and not machine.arrival
        self.breakers = Breakers(machine) if nots else None
        self._findings = Findings()  # for the next event; empty

    @property
    def runs(self) -> dict[int, Run]:
        """The runs, by the place of the event that started them."""
        return self._groups.runs

    def idle(self) -> bool:
        """Return whether no event offered so far can affect later findings."""
        return not self._groups.runs

    def ignores(self, mask: int) -> bool:
        """Return whether an event with this mask would change nothing if it came next."""
        return self.take_by_mask((), (mask,), 0, 0) == 1

    # --- offering ---

    def take_by_mask(
        self, events: Sequence[Event], masks: Sequence[int], begin: int, place: int
    ) -> int:
        """Skip events that concern no run; return the index of the first other event.

        The arguments are those of `CheckRun.take_by_mask`.
        """
        waiting, concerned = self._waiting.states, self.machine.concerned
        if waiting:
            if self._strict:
                return begin  # a waiting run takes the next event, or ends at it
            waiting |= self.machine.any_waiting
        waiting |= START
        number, end = begin, len(masks)
        if self.window.events is not None:
            until_expiry = self._expiring.earliest + self.window.events - place
            end = min(end, begin + max(0, until_expiry))
        while number < end and not concerned[masks[number]] & waiting:
            number += 1
        return number

    def offer(self, event: Event, mask: int, place: int) -> Findings | None:
        """Take an event; return its findings, if any. The arguments are those of `Seen`."""
        findings = self._findings
        if self.window.events is not None and self._expiring.earliest <= place - self.window.events:
            self._expire(place - self.window.events, findings)
        self._take(Seen(event, mask, place), findings)
        if findings.is_empty():
            return None
        self._findings = Findings()
        return findings

    def _take(self, seen: Seen, findings: Findings) -> None:
        """Let waiting runs take an event, and start a run with it."""
        plans = self.machine.plans
        born: list[RunGroup] = []
        for state, waiting in self._waiting.by_state.items():
            if waiting.count and (plan := plans[state][seen.mask]) is not None:
                self._extend(state, plan, waiting, seen, born, findings)
        if self._strict:
            if self.window.us is not None:
                self._expire(seen.time_us - self.window.us, findings)
            self._waiting.drop_all()
        elif self.machine.arrival and self.machine.automaton.nots:
            self._waiting.pass_over(seen)
        if (plan := plans[0][seen.mask]) is not None and plan.unbound is not None:
            self._start(plan.unbound, seen, born, findings)
        for group in born:
            self._waiting.add(group)
        if self.breakers is not None:
            self._hold_breaker(seen, self.breakers, findings)
        if self.machine.automaton.mirrors and len(matches := findings.matches) > 1:
            left = without_mirrors(matches, self.machine.automaton.classes)
            findings.matches = [matches[number] for number in left]

    def _extend(
        self,
        state: int,
        plan: Plan,
        waiting: WaitingGroups,
        seen: Seen,
        born: list[RunGroup],
        findings: Findings,
    ) -> None:
        """Let the groups that wait in a state take an event; add the new groups to `born`."""
        taking: dict[Targets, list[RunGroup]] = {}
        oldest_us = None
        if self.window.us is not None:
            oldest_us = seen.time_us - self.window.us
        value = self.machine.relations.key_value(plan.key, seen.event)
        for sub, groups in waiting.candidates(plan, seen, value, oldest_us):
            if sub.constant:
                taking.setdefault(sub.constant, []).extend(groups)
                continue
            for group in groups:
                targets = self._decide(sub, group, seen)
                if targets:
                    taking.setdefault(targets, []).append(group)
        for targets, groups in taking.items():
            fitting = self._waiting.take(state, groups, seen)
            if not fitting:
                continue
            for step, target in targets:
                if self._traced:
                    findings.moves.append((state, step, target, seen))
                if target in self.machine.automaton.finals:
                    self._add_matches(fitting, (step, seen), findings)
                if self.machine.can_continue[target]:
                    self._continue_groups(fitting, step, target, seen, born, findings)
            for group in fitting:
                self._groups.release(group)

    def _decide(self, sub: SubPlan, group: RunGroup, seen: Seen) -> Targets:
        configuration = group.configuration
        if self.breakers is not None:
            configuration = self.breakers.flagged(configuration, group.prior, seen)
        return self.machine.decide(sub, configuration, seen)

    def _continue_groups(
        self,
        groups: list[RunGroup],
        step: int,
        target: int,
        seen: Seen,
        born: list[RunGroup],
        findings: Findings,
    ) -> None:
        """Add to `born` a new group for each configuration that groups reach by taking an event."""
        machine = self.machine
        live = machine.automaton.live[target]
        if not (live.steps or live.history):
            parts = [dict.fromkeys(groups)]
        elif live.history:
            parts = [{group: None} for group in groups]
        else:
            by_bound: dict[Any, dict[RunGroup, None]] = {}
            for group in groups:
                after = machine.take(group.configuration, step, target, seen)
                by_bound.setdefault(after.bound, {})[group] = None
            parts = list(by_bound.values())
        for parents in parts:
            if self._is_full():
                findings.overflow("candidates_max", TAKEN, len(parents))
                continue
            one = next(iter(parents)).configuration
            after = machine.take(one, step, target, seen)
            born.append(self._groups.extend(parents, after, (step, seen)))

    def _start(self, sub: SubPlan, seen: Seen, born: list[RunGroup], findings: Findings) -> None:
        """Start a run with an event, if it can be first; add its groups to `born`."""
        machine = self.machine
        configuration, is_match = machine.start(), False
        for step, target in machine.decide(sub, configuration, seen):
            if self._traced:
                findings.moves.append((0, step, target, seen))
            if target in machine.automaton.finals:
                is_match = True
                findings.matches.append(((step, seen),))
            if not machine.can_continue[target]:
                continue
            if self._groups.live.count >= self.limits.runs_max and seen.place not in self.runs:
                findings.overflow("runs_max", RUNS)
            elif self._is_full():
                findings.overflow("candidates_max", RUNS)
            else:
                after = machine.take(configuration, step, target, seen)
                born.append(self._groups.start(after, (step, seen)))
        run = self.runs.get(seen.place)
        if run is not None:
            run.matched = is_match
            self._watch_window(run)

    def _watch_window(self, run: Run) -> None:
        """Let a run expire with its window, if there is one."""
        if self.window.bounded:
            self._expiring.add(self.window.position(run.start), run.start.place)

    def _hold_breaker(self, seen: Seen, breakers: Breakers, findings: Findings) -> None:
        """Hold an event that can break a `not` of a waiting run."""
        if self.idle() or not self.machine.may_break_not(seen.mask):
            return
        if self._is_full():
            findings.overflow("candidates_max", "events that can break a `not`")
            return
        breakers.add_and_sweep(seen, lambda: (group.prior for group in self._waiting.groups()))

    def _is_full(self) -> bool:
        """Return whether no more events can be kept."""
        others = 0 if self.breakers is None else len(self.breakers.by_place)
        return self._groups.count + others >= self.limits.candidates_max

    # --- windows ---

    def _expire(self, last: int, findings: Findings) -> None:
        """End the runs whose windows start at `last` or before."""
        for place in self._expiring.take_passed(last):
            if place in self.runs:
                self._end(self.runs[place], findings)

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        if self.window.us is not None:
            last = watermark_us - self.window.us
            self._groups.passed_us = max(self._groups.passed_us, last)
            self._expire(last, findings)

    def end(self, findings: Findings) -> None:
        """End every window: no event follows."""
        if self.window.bounded:
            for run in list(self.runs.values()):
                self._end(run, findings)

    def earliest_us(self) -> int | None:
        """Return the earliest start of a time window; None if there is none."""
        earliest = self._expiring.earliest_alive(self.runs)
        return None if earliest == FOREVER else earliest

    def _end(self, run: Run, findings: Findings) -> None:
        """End a run whose window is over."""
        if not run.matched:
            findings.timed_out.append(self._groups.longest(run))
        self._waiting.end(self._groups.end(run))

    # --- state ---

    def events(self) -> Iterator[Seen]:
        """Yield the events that a later match may contain."""
        yield from (group.prior for group in self._groups.groups())

    def beginnings(self) -> Iterator[tuple[Configuration, Taken]]:
        """Yield the configuration of each waiting group, with the events of each path to it."""
        for group in self._waiting.groups():
            for taken in self._groups.paths((group,), None):
                yield group.configuration, taken

    def save(self, seens: SeenTable) -> Any:
        """Return the run as plain data; `seens` numbers its events."""
        return {
            "runs": self._groups.save(seens),
            "waiting": self._waiting.save(),
            "breakers": [] if self.breakers is None else self.breakers.save(seens),
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Load what `save` returned into a fresh run."""
        self._waiting.load(value["waiting"], self._groups.load(value["runs"], seens))
        if self.breakers is not None:
            self.breakers.load(value["breakers"], seens)
        for run in self.runs.values():
            self._watch_window(run)

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of its parts."""
        self._groups.validate_state()
        self._waiting.validate_state()
        if self.breakers is not None:
            self.breakers.validate_state()

    # --- matches ---

    def _add_matches(
        self, groups: list[RunGroup], binding: tuple[int, Seen], findings: Findings
    ) -> None:
        """Add the matches that an event completes to `findings`."""
        matches = findings.matches
        room = self.limits.matches_per_event_max - len(matches)
        matches += self._groups.paths(groups, (binding, None), room + 1)
        if len(matches) > self.limits.matches_per_event_max:
            findings.overflow("matches_per_event_max", MATCHES)
            matches.pop()
        if self.window.bounded:
            self._groups.mark_matched(groups)
