"""Scopes: which events a pattern's runs are offered, and what comes of it (DESIGN 3).

A `PatternRun` is one pattern over one execution. It is handed released events
and decides, in this order: is the event in the alphabet, does it have the
partition keys and the time that the pattern needs, which copies of the pattern
(`at every node`) see it now, and which scope it belongs to. What a scope's run
says becomes verdicts.

The one rule: every event handed in is offered, or counted as `unscoped`,
`untimed` or `halted`, or outside the alphabet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.compiler.automaton import ANONYMOUS, CompiledPattern
from ketal.compiler.predicates import Formula, evaluate
from ketal.engine.configurations import CheckRun, Configuration, Machine, Refused, Seen, states
from ketal.engine.find import Setup
from ketal.engine.find_kinds import FindRun, find_run
from ketal.engine.losses import ANY, NO_DOTS, Key, Losses, ScopeName, first, joined
from ketal.engine.partial_matches import Found, Live, Taken
from ketal.engine.windows import EarliestAfter
from ketal.model.event import Dot, Event, canonical_key
from ketal.model.limits import Limits
from ketal.model.values import base_node, glob_regex, keyed
from ketal.model.verdicts import (
    COUNTED,
    NO_SCOPE,
    FrozenMapping,
    Incomplete,
    Match,
    Overflow,
    RunVerdict,
    ScopeKey,
    TimedOut,
    Transition,
    Violation,
)

NEVER_US = 2**62
"""Later than any time that an event can have."""
ALPHABET_MASKS_MAX = 65_536
"""Masks whose membership in the alphabet is remembered."""


@dataclass(slots=True)
class Counts:
    """What a pattern's runs came to."""

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
        """Return the counts of the summary; the rarer ones where they are not zero."""
        out = {name: getattr(self, name) for name in (*COUNTED, "unscoped", "untimed")}
        out |= {
            n: getattr(self, n)
            for n in (
                "halted",
                "unknown_types",
                "guard_failures",
                "overflows",
                "strangers",
                "uncertain",
                "marks_forgotten",
            )
            if getattr(self, n)
        }
        return out


@dataclass(slots=True)
class Scope:
    """One scope: its key, its run, and what the run does not know of itself.

    Attributes
    ----------
    number : int
        Its place in the order in which scopes came up.
    places : int
        How many events it was offered.
    past : mapping of str to int, or None
        Of a check, what the events know that it was offered since one was after a missed event.
    due_us : int or None
        The earliest time at which a watermark was to look at it.
    parked : bool
        Whether it waits for what the node of its copy has not learned of.
    told : frozenset of str
        The limits that a verdict has named.
    saved : bool
        Whether there is a record of it.
    clean : bool
        Whether that record says how it is now.
    key_text : str
        The key as a record has it; empty before the first one.
    """

    key: ScopeKey
    run: CheckRun | FindRun
    number: int
    places: int = 0
    past: Mapping[str, int] | None = None
    due_us: int | None = None
    parked: bool = False
    told: frozenset[str] = frozenset()
    saved: bool = False
    clean: bool = False
    key_text: str = ""
    _mapping: FrozenMapping | None = None

    @property
    def mapping(self) -> FrozenMapping:
        """The key as verdicts have it; a scope of which something was told keeps it."""
        if self._mapping is None:
            self._mapping = _mapping(self.key)
        return self._mapping


@dataclass(slots=True)
class Changed:
    """Which scopes have changed since they were last recorded (`ketal.runtime.state_records`).

    Attributes
    ----------
    scopes : dict of int to Scope
        Those that are there, by number.
    gone : list of int
        The numbers of those that were recorded and are there no more.
    """

    scopes: dict[int, Scope] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Copy:
    """One node's copy of a pattern.

    Attributes
    ----------
    known : dict of str to int
        What the node knows of the others.
    parked : list of Scope
        Scopes with windows that what it has not learned of may still fit.
    """

    known: dict[str, int] = field(default_factory=dict)
    parked: list[Scope] = field(default_factory=list)


@dataclass(slots=True)
class Kept:
    """An event kept for copies that have not learned of it."""

    event: Event
    mask: int
    number: int


class _Alphabet(dict[int, bool]):
    """Whether an event with a mask is in an alphabet, as masks are met."""

    def __init__(self, alphabet: Formula) -> None:
        self._alphabet = alphabet

    def __missing__(self, mask: int) -> bool:
        if len(self) >= ALPHABET_MASKS_MAX:
            self.clear()
        member = self[mask] = evaluate(self._alphabet, mask)
        return member


class PatternRun:
    """One pattern over one execution.

    Parameters
    ----------
    compiled : CompiledPattern
        The pattern.
    limits : Limits
        The limits of the runs.
    execution : str
        The execution's name where a log holds several.
    listing : bool
        Whether verdicts are wanted, or counts only.
    trace : bool
        Whether to say every transition.
    machine : Machine, optional
        That of another run of the same pattern, which counts the failures of
        registered guards.
    """

    def __init__(
        self,
        compiled: CompiledPattern,
        limits: Limits,
        *,
        execution: str = "",
        listing: bool = True,
        trace: bool = False,
        machine: Machine | None = None,
    ) -> None:
        self.compiled = compiled
        self.limits = limits
        self.execution = execution
        self.listing = listing
        self.trace = trace
        self.machine = machine or Machine(compiled.reporting(self._guard_failed))
        self.counts = Counts()
        self.scopes: dict[tuple[Any, ...], Scope] = {}
        self.scopes_seen = 0
        self.changed: Changed | None = None
        self.live = Live()
        self._setup = Setup(self.machine, limits, self.live)
        self._due: list[tuple[int, int, int, Scope]] = []
        self._ticks = 0
        self.copies: dict[str, Copy] = {}
        self.kept: dict[str, dict[int, Kept]] = {}
        self.kept_count = 0
        self._earliest: dict[str, EarliestAfter] = {}
        self.number = 0
        placed = compiled.pattern.order.total and not compiled.order_independent
        self.losses = Losses(limits.lost_max, placed=placed)
        # A match of such a pattern stands on its own events, as long as their clocks are whole.
        self.past_counts = not compiled.order_free
        self._now: Key | None = None  # the place of what is offered, where copies learn of it later
        # What a stream knows of and has not seen, where the run waits for none of it.
        self.awaited: Callable[[], Iterable[Dot]] | None = None
        self._mask: Callable[[Event], int] = self.machine.compiled.mask
        self._in_alphabet = _Alphabet(compiled.alphabet)
        self._deployment = compiled.pattern.deployment
        self._returns_count = (
            compiled.pattern.returns is not None and compiled.pattern.returns.count
        )
        glob = self._deployment.glob if self._deployment is not None else None
        self._glob = glob_regex(glob, dotted=False) if glob is not None else None
        self._window_us = compiled.window_us
        self._keys = tuple(name for name, _ in compiled.partition)
        self._readers = tuple(read for _, read in compiled.partition)
        self._scoped = bool(self._readers) or self._window_us is not None
        self._unknown_types = compiled.unknown_types
        self.is_check = compiled.kind == "check"
        # Whether a scope may be as if it had been offered nothing, so that it can go.
        fresh_is_over = not self.is_check or 0 in compiled.automaton.finals
        self._releases = bool(compiled.partition) and fresh_is_over

    def _guard_failed(self) -> None:
        self.counts.guard_failures += 1

    # --- offering ---

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Take released events in turn; return what they brought about.

        Returns
        -------
        list of (int, list of RunVerdict)
            Of each event that brought something about, its place among them, and what.
        """
        out: list[tuple[int, list[RunVerdict]]] = []
        mask_of, members, scoped = self._mask, self._in_alphabet, self._scoped
        losses, copied, unknown = self.losses, self._deployment, self._unknown_types
        for number, event in enumerate(events):
            if losses.some:
                losses.offered(event)
                if copied is not None and not copied.everything:
                    self._now = canonical_key(event)
            mask = mask_of(event)
            if unknown is not None and unknown(event):
                self.counts.unknown_types += 1
            if copied is not None:
                verdicts = self._to_copies(event, mask)
            else:
                if not members[mask]:
                    continue
                name = self._scope_name(event) if scoped else ()
                if name is None:
                    self._count_unscoped(event)
                    continue
                verdicts = self._step(name, event, mask)
            if verdicts:
                out.append((number, verdicts))
        return out

    def miss(self, dot: Dot, low: Key | None = None) -> None:
        """Take a dot that was declared lost: it might have been what a run waits for.

        Parameters
        ----------
        dot : Dot
            What is missed; nothing else is known of it.
        low : Key or None
            A place of canonical order that it does not come before; None: not known.
        """
        self.counts.marks_forgotten += self.losses.lost(dot, low)

    def miss_event(self, event: Event) -> None:
        """Take an event that is not offered, late or refused: what it might have been is known.

        Only its own scope missed it. Where nodes have copies, these also miss which events
        its node would have known by it, so there it may concern any scope.
        """
        scope = ANY if self._deployment is not None else self._scope_name(event)
        self.counts.marks_forgotten += self.losses.passed(event, scope)

    def unmiss(self, dot: Dot) -> None:
        """Take an event that was missed and came again as not missed."""
        self.losses.drop(dot)

    def _between(self, scope: Scope, low: Key | None, high: Key) -> tuple[Dot, ...]:
        """Return what a scope missed that may have stood between two places (None: the beginning).

        A node's copy is offered what the node learned of in another order: there all that
        may have come before now stand between.
        """
        if self._now is not None:
            low, high = None, self._now
        return self.losses.between(_name_of(scope.key), low, high)

    def _scope_name(self, event: Event) -> ScopeName | None:
        """Return the name of the scope that an event is of; None if it has none."""
        if self._window_us is not None and event.time is None:
            return None
        name = tuple([keyed(read(event)) for read in self._readers])
        return None if None in name else name

    def _count_unscoped(self, event: Event) -> None:
        self.counts.untimed += self._window_us is not None and event.time is None
        self.counts.unscoped += any(keyed(read(event)) is None for read in self._readers)

    def key_of(self, name: ScopeName) -> ScopeKey:
        """Return a scope's key as it is written; the last value of a copy's is its node."""
        values = (value for _, value in name)
        return tuple(zip((*self._keys, "node"), values, strict=False))

    def _step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Have a scope take an event of the alphabet."""
        scope = self.scopes.get(name)
        if scope is None:
            if len(self.scopes) >= self.limits.scopes_max:
                key = self.key_of(name)
                return [self._overflow("scopes_max", "the events of a new scope", key, event)]
            scope = self.new_scope(self.key_of(name))
        elif scope.clean:
            self._change(scope)
        losses = self.losses
        if losses.some and self.is_check and (scope.past or losses.before(name, (event.clock,))):
            scope.past = joined((scope.past or {}, event.clock))
        run, place = scope.run, scope.places
        scope.places = place + 1
        out: list[RunVerdict] = []
        if isinstance(run, CheckRun):
            before = run.configurations
            if run.halted:
                self.counts.halted += 1
            elif (refused := run.offer(event, mask, place)) or len(run.configurations) > 1:
                out = self._checked(scope, before, refused, Seen(event, mask, place))
            elif self.trace:
                out = self._checked(scope, before, None, Seen(event, mask, place))
        else:
            seen = Seen(event, mask, place)
            out = self._found(scope, run.offer(seen), event)
            if self._window_us is not None:
                assert seen.time_us is not None
                self._look_at(scope, seen.time_us)
        if self._releases and self._is_over(scope):
            self._release(name, scope)
        return out

    def new_scope(self, key: ScopeKey, number: int | None = None) -> Scope:
        """Return the scope of a key, made anew; `number` is that of one that is put back."""
        run = CheckRun(self.machine) if self.is_check else find_run(self._setup)
        if number is None:
            number = self.scopes_seen
            self.scopes_seen += 1
        scope = Scope(key, run, number)
        if self.changed is not None:
            self.changed.scopes[number] = scope
        self.scopes[_name_of(key)] = scope
        return scope

    def _change(self, scope: Scope) -> None:
        """Mark a saved scope dirty."""
        scope.clean = False
        if self.changed is not None:
            self.changed.scopes[scope.number] = scope

    def _is_over(self, scope: Scope) -> bool:
        """Return whether a scope is as if it had been offered nothing, so that it can go.

        Keys come and go without end (orders, requests): what is over takes no room.
        """
        if scope.past:
            return False
        run = scope.run
        if isinstance(run, CheckRun):
            return run.is_fresh()
        return run.idle()

    def _release(self, key: tuple[Any, ...], scope: Scope) -> None:
        scope.due_us = None
        del self.scopes[key]
        if self.changed is not None:
            self.changed.scopes.pop(scope.number, None)
            if scope.saved:
                self.changed.gone.append(scope.number)

    def look_again(self, scope: Scope) -> None:
        """See to it that watermarks look at a scope that was put back or waited."""
        if self._window_us is not None and not isinstance(scope.run, CheckRun):
            self._look_at(scope, scope.run.earliest_us())

    def look_at(self, scope: Scope, due_us: int | None, parked: bool) -> None:
        """Have a scope looked at when it was to be, so that scopes come in the same order."""
        self._look_at(scope, due_us)
        if parked:
            self._park(scope)

    def _park(self, scope: Scope) -> None:
        """Have a scope of a copy wait for what its node has not learned of."""
        scope.parked = True
        self.copies[scope.key[-1][1]].parked.append(scope)

    def _look_at(self, scope: Scope, time_us: int | None) -> None:
        """See to it that a watermark that passes this time looks at a scope."""
        if time_us is not None and (scope.due_us is None or time_us < scope.due_us):
            scope.due_us = time_us
            self._ticks += 1
            heapq.heappush(self._due, (time_us, scope.number, self._ticks, scope))

    # --- at every node ---

    def _to_copies(self, event: Event, mask: int) -> list[RunVerdict]:
        """Hand an event to the copies that see it (decisions on `at every node`)."""
        assert self._deployment is not None
        node = event.node
        deployed = self._glob is None or self._glob.fullmatch(base_node(node)) is not None
        own_mask = mask | self.compiled.localhost_bit
        own, other = deployed and self._in_alphabet[own_mask], self._in_alphabet[mask]
        name = self._scope_name(event) if own or other else None
        if name is None and (own or other):
            self._count_unscoped(event)
        self.number += 1
        new = deployed and node not in self.copies
        if new:
            self.copies[node] = Copy()
        out: list[RunVerdict] = []
        if self._deployment.everything:
            if new:
                for kept in sorted(
                    (k for line in self.kept.values() for k in line.values()),
                    key=lambda k: k.number,
                ):
                    out += self._to_copy(node, kept.event, kept.mask)
        elif node in self.copies:
            out += self._learned(node, event)
        if name is None:
            return out
        for at, copy in self.copies.items():
            if at == node:
                if own:
                    out += self._to_copy(at, event, own_mask)
            elif other and (
                self._deployment.everything or copy.known.get(node, 0) >= event.counter
            ):
                out += self._to_copy(at, event, mask)
        if other:
            out += self._keep(event, mask)
        return out

    def _learned(self, node: str, event: Event) -> list[RunVerdict]:
        """Offer to a node's copy what the node learns of with its own event."""
        copy = self.copies[node]
        known = copy.known
        learned: list[Kept] = []
        for other, counter in event.clock.items():
            before = known.get(other, 0)
            if other == node or counter <= before:
                continue
            known[other] = counter
            line = self.kept.get(other)
            if not line:
                continue
            if counter - before <= len(line):
                learned += [line[c] for c in range(before + 1, counter + 1) if c in line]
            else:
                learned += [k for c, k in line.items() if before < c <= counter]
        learned.sort(key=lambda k: k.number)
        for scope in copy.parked:
            if scope.clean:
                self._change(scope)
            scope.parked = False
            self.look_again(scope)
        copy.parked.clear()
        return [v for kept in learned for v in self._to_copy(node, kept.event, kept.mask)]

    def _unlearned_us(self, copy: Copy, node: str) -> int:
        """Return the earliest time of what a node's copy may still be offered, of what came."""
        known = copy.known
        times = (
            earliest.after(known.get(other, 0))
            for other, earliest in self._earliest.items()
            if other != node
        )
        return min((time for time in times if time is not None), default=NEVER_US)

    def _to_copy(self, node: str, event: Event, mask: int) -> list[RunVerdict]:
        name = self._scope_name(event)
        assert name is not None, "kept events have their keys"
        return self._step((*name, keyed(node)), event, mask)

    def _keep(self, event: Event, mask: int) -> list[RunVerdict]:
        out: list[RunVerdict] = []
        if self.kept_count >= self.limits.unlearned_max:
            line = max(self.kept.values(), key=len)
            oldest = line.pop(next(iter(line)))
            self.kept_count -= 1
            out.append(
                self._overflow(
                    "unlearned_max",
                    f"{oldest.event.dot} for nodes that have not learned of it",
                    (),
                    event,
                )
            )
        self.keep(Kept(event, mask, self.number))
        return out

    def keep(self, kept: Kept) -> None:
        """Keep an event for copies that have not learned of it."""
        event = kept.event
        self.kept.setdefault(event.node, {})[event.counter] = kept
        self.kept_count += 1
        if self._window_us is not None and event.time_us is not None:
            earliest = self._earliest.get(event.node)
            if earliest is None:
                earliest = self._earliest[event.node] = EarliestAfter()
            earliest.add(event.counter, event.time_us)

    # --- verdicts ---

    def _common(
        self, scope: FrozenMapping, time: float | None, lost: tuple[Dot, ...] = NO_DOTS
    ) -> dict[str, Any]:
        common: dict[str, Any] = {
            "pattern": self.compiled.name,
            "fingerprint": self.compiled.fingerprint,
            "scope": scope,
            "execution": self.execution,
            "time": time,
        }
        if lost:
            common |= {"certain": False, "depends_on": lost}
        return common

    def _overflow(self, limit: str, given_up: str, scope: ScopeKey, event: Event) -> Overflow:
        self.counts.overflows += 1
        common = self._common(_mapping(scope), _time(event))
        return Overflow(limit=limit, given_up=given_up, event=event.dot, **common)

    def _checked(
        self,
        scope: Scope,
        before: tuple[Configuration, ...],
        refused: Refused | None,
        seen: Seen,
    ) -> list[RunVerdict]:
        """Return what there is to tell of a step that a check took from some configurations."""
        run = scope.run
        assert isinstance(run, CheckRun)
        out: list[RunVerdict] = []
        if refused is not None:
            lost = NO_DOTS
            if self.losses.some:
                between = self._between(scope, None, canonical_key(seen.event))
                lost = first(sorted((*self._before(scope, (scope.past or {},)), *between)))
            self.counts.violations += 1
            self.counts.uncertain += bool(lost)
            if self.listing:
                out.append(self._violation(scope, refused, seen, lost))
        if self.trace and (refused is None or refused.resumed):
            start = before if refused is None else (self.machine.start(),)
            held = self._held(start, seen)
            out.append(self._moved(scope, seen, states(start), run.states(), held))
        if len(run.configurations) > self.limits.configurations_max:
            # Without all of its configurations a run would call allowed events violations.
            run.halted = True
            run.configurations = ()
            given_up = "the rest of this run, which has too many readings"
            out.append(self._overflow("configurations_max", given_up, scope.key, seen.event))
        return out

    def _violation(
        self, scope: Scope, refused: Refused, seen: Seen, lost: tuple[Dot, ...]
    ) -> Violation:
        return Violation(
            event=seen.dot,
            type=seen.event.type,
            expected=refused.expected,
            state=refused.state,
            reason=refused.reason,
            **self._common(scope.mapping, _time(seen.event), lost),
        )

    def _held(self, configurations: tuple[Configuration, ...], seen: Seen) -> str:
        """Return the steps that take an event in a check, several where readings differ."""
        steps = {s for c in configurations for s in self.machine.steps_held(c, seen)}
        return "|".join(self.machine.automaton.steps[s] for s in sorted(steps))

    def _moved(
        self, scope: Scope, seen: Seen, before: tuple[int, ...], after: tuple[int, ...], step: str
    ) -> Transition:
        return Transition(
            event=seen.dot,
            step=step,
            source=self.machine.automaton.named(before),
            target=self.machine.automaton.named(after),
            **self._common(scope.mapping, _time(seen.event)),
        )

    def _found(self, scope: Scope, found: Found, event: Event | None) -> list[RunVerdict]:
        out: list[RunVerdict] = []
        if self.trace:
            steps = self.machine.automaton.steps
            for source, group, target, seen in found.moves:
                name = steps[group] if group != ANONYMOUS else ""
                out.append(self._moved(scope, seen, (source,), (target,), name))
        counts = self.counts
        counts.matches += len(found.matches)
        counts.timed_out += len(found.timed_out)
        doubts = self._doubts(scope, event) if found.timed_out else NO_DOTS
        counts.uncertain += len(found.timed_out) if doubts else 0
        if self.losses.some:
            counts.uncertain += sum(bool(self._lost_of(scope, taken)) for taken in found.matches)
        if self.listing and not self._returns_count:
            limit = self.compiled.pattern.limit
            for taken in found.matches:
                if limit is not None and counts.listed >= limit:
                    break
                counts.listed += 1
                assert event is not None, "time alone completes no match"
                out.append(self._match(scope, taken, event))
        if self.listing:
            out += [
                TimedOut(
                    steps=self._steps(taken),
                    **self._common(scope.mapping, _time(taken[-1][1].event), doubts),
                )
                for taken in found.timed_out
            ]
        for (over, what), times in found.overflows.items():
            out += self._told(scope, over, f"{what}: {times}", times, event)
        return out

    def _told(
        self, scope: Scope, limit: str, given_up: str, times: int, event: Event | None
    ) -> list[RunVerdict]:
        """Count what a limit cost; the first time in a scope is a verdict."""
        self.counts.overflows += times
        if limit in scope.told:
            return []
        scope.told |= {limit}
        common = self._common(scope.mapping, _time(event) if event else None)
        dot = event.dot if event else None
        given_up += "; what follows in this scope is only counted (overflows)"
        return [Overflow(limit=limit, given_up=given_up, event=dot, **common)]

    def _doubts(self, scope: Scope, event: Event | None = None) -> tuple[Dot, ...]:
        """Return the missed events that may be what a scope waited for in vain, until an event."""
        dots = NO_DOTS
        if self.losses.some:
            upto = None if event is None else self._now or canonical_key(event)
            dots = self.losses.ended(_name_of(scope.key), upto)
        return dots if self.awaited is None else first(heapq.merge(dots, self.awaited()))

    def _before(self, scope: Scope, clocks: Iterable[Mapping[str, int]]) -> tuple[Dot, ...]:
        """Return what a scope missed that is in the past of some clocks."""
        return self.losses.before(_name_of(scope.key), clocks) if self.past_counts else NO_DOTS

    def _lost_of(self, scope: Scope, taken: Taken) -> tuple[Dot, ...]:
        """Return the missed events that a match could be otherwise without.

        It stands on its events: what is in none of their pasts changes nothing, or, where
        the order matters, what did not stand between them.
        """
        if not self.losses.some:
            return NO_DOTS
        events = [seen.event for _, seen in taken]
        keys = [canonical_key(event) for event in events]
        between = self._between(scope, min(keys), max(keys))
        return first(sorted((*self._before(scope, (e.clock for e in events)), *between)))

    def _steps(self, taken: Taken) -> tuple[tuple[str, Any], ...]:
        names = self.machine.automaton.steps
        return tuple((names[step], seen.dot) for step, seen in taken)

    def _match(self, scope: Scope, taken: Taken, event: Event) -> Match:
        returns = None
        if self.compiled.causal and self.compiled.strategy == "any":
            # Whatever was offered last: the time must not depend on it.
            event = max((seen for _, seen in taken), key=lambda seen: seen.key).event
        if self.compiled.returns is not None:
            names = self.machine.automaton.steps
            bound = {names[step]: seen.event for step, seen in taken}
            returns = {name: value(bound) for name, value in self.compiled.returns}
        return Match(
            steps=self._steps(taken),
            returns=returns,
            **self._common(scope.mapping, _time(event), self._lost_of(scope, taken)),
        )

    # --- time and the end ---

    def advance(self, watermark_us: int) -> list[RunVerdict]:
        """End the time windows that a watermark has passed."""
        out: list[RunVerdict] = []
        if self._window_us is None:
            return out
        last = watermark_us - self._window_us
        while self._due and self._due[0][0] <= last:
            due_us, _, _, scope = heapq.heappop(self._due)
            if due_us != scope.due_us:
                continue  # it was looked at since, or is gone
            out += self._advance_scope(scope, watermark_us)
        return out

    def _advance_scope(self, scope: Scope, watermark_us: int) -> list[RunVerdict]:
        run = scope.run
        assert self._window_us is not None
        assert not isinstance(run, CheckRun), "a check has no window"
        if scope.clean:
            self._change(scope)
        passed_us, copy = watermark_us, None
        if self._deployment is not None and not self._deployment.everything:
            # A node learns of events after they came: for its copy they have not passed.
            node = scope.key[-1][1]
            copy = self.copies[node]
            passed_us = min(watermark_us, self._unlearned_us(copy, node))
        found = Found()
        run.advance(passed_us, found)
        out = self._found(scope, found, None)
        scope.due_us = None
        earliest = run.earliest_us()
        if self._releases and self._is_over(scope):
            self._release(_name_of(scope.key), scope)
        elif (
            copy is not None and earliest is not None and earliest + self._window_us <= watermark_us
        ):
            self._park(scope)
        else:
            self._look_at(scope, earliest)
        return out

    @property
    def ends_windows_early(self) -> bool:
        """Whether a run that is known to have no chance may be ended before the end of a log.

        A `not` can still bar a run of `find next` whose window has passed, and any event
        ends one of `find strict`; then it is not timed out. Whether that happens is known
        at the end only.
        """
        strategy = self.compiled.strategy
        waits = strategy == "strict" or (strategy == "next" and bool(self.machine.automaton.nots))
        return self._window_us is not None and not waits

    def close(self) -> list[RunVerdict]:
        """End every window and every run."""
        out: list[RunVerdict] = []
        for scope in self.scopes.values():
            if scope.clean:
                self._change(scope)
            if not isinstance(scope.run, CheckRun):
                found = Found()
                scope.run.end(found)
                out += self._found(scope, found, None)
        if not self.is_check:
            return out
        for scope in self.scopes.values():
            run = scope.run
            assert isinstance(run, CheckRun)
            if run.halted or run.complete():
                continue
            self.counts.incomplete += 1
            doubts = self._doubts(scope)
            self.counts.uncertain += bool(doubts)
            if self.listing:
                out.append(
                    Incomplete(
                        state=self.machine.automaton.named(run.states()),
                        expected=run.expected(),
                        **self._common(scope.mapping, None, doubts),
                    )
                )
        return out

    def live_runs(self) -> int:
        """Return how many partial matches or check runs are live."""
        if not self.is_check:
            return self.live.count
        runs = (scope.run for scope in self.scopes.values())
        return sum(isinstance(run, CheckRun) and not run.halted for run in runs)


def one(processed: list[tuple[int, list[RunVerdict]]]) -> list[RunVerdict]:
    """Return what a batch of one event brought about."""
    return processed[0][1] if processed else []


def _name_of(key: ScopeKey) -> ScopeName:
    return tuple(keyed(value) for _, value in key)


def _mapping(key: ScopeKey) -> FrozenMapping:
    return FrozenMapping(key) if key else NO_SCOPE


def _time(event: Event) -> float | None:
    time = event.time
    return time if time is None or isinstance(time, float) else float(time)
