"""What both engines of a `find` share: where partial matches are kept.

The one rule: a partial match is kept once, under its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ketal.engine.configurations import Configuration, Seen, SeenTable
from ketal.engine.find.causal_index import PriorIndex
from ketal.engine.find.event_buffer import EventBuffer, Uses
from ketal.engine.find.negation import broken
from ketal.engine.find.partial_matches import Findings, Live, Partial, Run, Taken, joined, rank
from ketal.engine.find.windows import Expiring, Firsts, Window
from ketal.engine.machine import Machine, Plan, SubPlan, Targets
from ketal.model.limits import Limits
from ketal.model.values import Key

PARTIALS = "partial matches"


class Setup:
    """What the scopes of one pattern share.

    Parameters
    ----------
    machine : Machine
        The automaton, made ready.
    limits : Limits
        `runs_max`, `configurations_max`, `candidates_max`, `matches_per_event_max`.
    live : Live
        How many partial matches there are, over all scopes.

    Attributes
    ----------
    window : Window
        The pattern's.
    windowed : bool
        Whether it has one.
    uses : Uses or None
        Which events are kept for later ones, None where none are.
    """

    __slots__ = (
        "joins",
        "limits",
        "live",
        "machine",
        "partial_values",
        "uses",
        "window",
        "windowed",
    )

    def __init__(self, machine: Machine, limits: Limits, live: Live) -> None:
        self.machine = machine
        self.limits = limits
        self.live = live
        self.window = Window(machine)
        self.windowed = self.window.us is not None or self.window.events is not None
        self.joins = machine.compiled.causal and machine.compiled.strategy == "any"
        nots = not machine.arrival and bool(machine.automaton.nots)
        self.partial_values = {
            n: _of_partial(v) for n, v in machine.relations.register_values.items()
        }
        self.uses = Uses(machine, steps=self.joins) if self.joins or nots else None


def _of_partial(value: Callable[[Configuration], Key | None]) -> Callable[[Partial], Key | None]:
    return lambda partial: value(partial.configuration)


class Find:
    """The partial matches of one scope of a `find`.

    Parameters
    ----------
    setup : Setup
        What it shares with other scopes.
    """

    __slots__ = (
        "_expiring", "_partial_values", "buffer", "by_state", "firsts", "limits", "live",
        "machine", "partials", "window", "windowed",
    )  # fmt: skip

    def __init__(self, setup: Setup) -> None:
        self.machine = setup.machine
        self.limits = setup.limits
        self.live = setup.live
        self.window = setup.window
        self.windowed = setup.windowed
        self.by_state: dict[int, PriorIndex] = {}
        self.partials = 0
        self._partial_values = setup.partial_values
        self.firsts = Firsts(self.window)
        self.buffer: EventBuffer | None = None
        if setup.uses is not None:
            self.buffer = EventBuffer(setup.uses, self.limits, self.window)
        self._expiring: Expiring[Partial] = Expiring()

    def idle(self) -> bool:
        """Return whether nothing that was offered matters to what comes."""
        return not self.partials and not self.buffer and not self.firsts.waiting

    # --- looking ---

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
        machine = self.machine
        configuration = partial.configuration
        if not machine.arrival and machine.pending[configuration.state]:
            assert self.buffer is not None
            flags = broken(machine, partial, seen, self.buffer.by_mask)
            configuration = configuration._replace(broken=flags)
        return machine.decide(sub, configuration, seen)

    # --- extending ---

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
        """Extend a partial match by an event; what goes on in a run finds its room there."""
        machine, run, join = self.machine, parent.run, parent.join
        taken = (*parent.taken, (step, seen))
        findings.moves.append((parent.configuration.state, step, target, seen))
        if target in machine.automaton.finals:
            matches.append(taken)
            if run is not None:
                run.matched = True
        if not machine.has_way_on[target]:
            return
        if run is None and not self.has_room(born):
            findings.overflow("runs_max", PARTIALS)
            return
        configuration = machine.take(parent.configuration, step, target, seen)
        if join is not None:
            join = joined(join, seen.clock)
        born.append(Partial(configuration, taken, run, join, parent))

    # --- keeping ---

    def has_room(self, born: list[Partial]) -> bool:
        """Return whether one more partial match can be kept beside those just born."""
        return self.live.count + len(born) < self.limits.runs_max

    def gives_up(
        self, sub: SubPlan, groups: Sequence[Any], born: list[Partial], findings: Findings
    ) -> bool:
        """Return whether there is no room for what groups of partial matches would become.

        Those that may be complete are looked at all the same.
        """
        if sub.completes or self.has_room(born):
            return False
        findings.overflow("runs_max", PARTIALS, sum(len(g) if g else 1 for g in groups))
        return True

    def index(self, state: int, nodes: tuple[str, ...] = ()) -> PriorIndex:
        """Return the partial matches of a state; `nodes` are looked through in this order."""
        index = self.by_state.get(state)
        if index is None:
            index = self.by_state[state] = PriorIndex(
                self._partial_values, timed=self.window.us is not None, nodes=nodes
            )
        return index

    def put(self, partial: Partial) -> None:
        """Keep a partial match."""
        self.index(partial.configuration.state).add(partial)
        partial.indexed = True
        self.partials += 1
        self.live.count += 1
        if partial.run is not None:
            partial.run.partials[partial] = None
        elif self.windowed:
            self._expiring.add(self.window.low(partial), partial)

    def take_out(self, partial: Partial) -> None:
        """Remove a partial match."""
        self.by_state[partial.configuration.state].remove(partial)
        partial.indexed = False
        self.partials -= 1
        self.live.count -= 1
        if partial.run is not None:
            del partial.run.partials[partial]

    def _offered(self, seen: Seen, findings: Findings) -> None:
        """Keep an event for those to come."""
        if self.buffer is None:
            return
        if not self.buffer.offer(seen):
            findings.overflow("candidates_max", "events to combine with later ones")
        self.buffer.sweep(self._oldest_prior)

    def _oldest_prior(self) -> int | None:
        places = (p.prior.place for index in self.by_state.values() for p in index)
        return min(places, default=None)

    # --- windows ---

    def _expire(self, last: int) -> None:
        """Remove what counts from `last` or before."""
        for partial in self._expiring.passed(last):
            if partial.indexed:
                self.take_out(partial)
        if self.buffer is not None:
            self.buffer.expire(last)

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        if self.window.us is not None:
            last = watermark_us - self.window.us
            self.firsts.expire_times(last, findings)
            self._expire(last)

    def end(self, findings: Findings) -> None:
        """End every window: nothing comes any more."""
        if self.windowed:
            self.firsts.end(findings)

    def earliest_us(self) -> int | None:
        """Return the first time that a watermark can end something of; None for nothing."""
        times = [self.firsts.earliest(), self._expiring.earliest(lambda partial: partial.indexed)]
        if self.buffer is not None:
            times.append(self.buffer.earliest())
        return min((time for time in times if time is not None), default=None)

    # --- state ---

    def save(self, seens: SeenTable) -> dict[str, Any]:
        """Return the run as plain data; `seens` numbers its events."""
        return {
            "partials": [p.save(seens) for index in self.by_state.values() for p in index],
            "firsts": self.firsts.save(seens),
            # The order in which they are looked through, those that are empty now included:
            # it is the order of the matches that one event completes.
            "states": [[state, list(index.lines)] for state, index in self.by_state.items()],
            "buffer": None if self.buffer is None else self.buffer.save(seens),
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Put what `save` gave into a fresh run."""
        for state, nodes in value["states"]:
            self.index(state, nodes)
        if self.buffer is not None:
            self.buffer.load(value["buffer"], seens)
        runs = self._load_runs(value, seens)
        for row in value["partials"]:
            self.put(Partial.load(row, seens, runs))
        self.firsts.load(value["firsts"], seens)

    def _load_runs(self, value: dict[str, Any], seens: SeenTable) -> Mapping[int, Run]:
        """Put in the runs that partial matches belong to; return them by their first events."""
        return {}

    def validate_state(self) -> None:
        """Assert the rule of this module, and those of what is kept."""
        assert self.partials == sum(index.count for index in self.by_state.values())
        for state, index in self.by_state.items():
            index.validate_state()
            assert index.count == len(set(index))
            for partial in index:
                assert partial.configuration.state == state
                partial.validate_state()
                self.window.validate_state(partial)
        if self.buffer is not None:
            self.buffer.validate_state()

    # --- matches ---

    def _complete(self, findings: Findings, matches: list[Taken]) -> None:
        """Put the matches that an event completed into `findings`, mirror images removed."""
        over = len(matches) - self.limits.matches_per_event_max
        if over > 0:
            findings.overflow("matches_per_event_max", "matches of one event", over)
            del matches[self.limits.matches_per_event_max :]
        findings.matches.extend(
            self._without_mirrors(matches) if self.machine.automaton.mirrors else matches
        )

    def _without_mirrors(self, matches: list[Taken]) -> list[Taken]:
        if len(matches) < 2:
            return matches
        classes = self.machine.automaton.classes
        width = len(classes)
        least: dict[Any, Taken] = {}
        for taken in matches:
            key: Any = sorted([s.place * width + classes[step] for step, s in taken])
            key = tuple(key)
            other = least.get(key)
            if other is None or rank(taken) < rank(other):
                least[key] = taken
        return list(least.values())
