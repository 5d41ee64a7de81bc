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
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketal.atoms import evaluate
from ketal.automaton import ANONYMOUS, CompiledPattern
from ketal.event import Dot, Event, canonical_key
from ketal.finding import Setup
from ketal.finds import FindRun, find_run
from ketal.limits import Limits
from ketal.missed import Missed, ScopeName
from ketal.partials import Found, Live, Taken
from ketal.runs import CheckRun, Configuration, Machine, Refusal, Refused, Seen
from ketal.values import base_node, glob_regex, kind
from ketal.verdicts import (
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
from ketal.windows import EarliestAfter

Key = tuple[int, str, int]
"""A place in canonical order."""
NO_DOTS: frozenset[Dot] = frozenset()
NEVER_US = 2**62
"""Later than any time that an event can have."""
PLAIN_KINDS = {str: kind(""), int: kind(0)}
"""The kinds of values that are partition keys as they are."""
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
        out = {
            name: getattr(self, name)
            for name in ("matches", "violations", "incomplete", "timed_out", "unscoped", "untimed")
        }
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
    lost : frozenset of Dot
        The lost dots in the past of what it was offered.
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
    lost: frozenset[Dot] = frozenset()
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
    """Which scopes have changed since they were last recorded (`ketal.records`).

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
        self.after: dict[Dot, frozenset[Dot]] = {}
        self.faded: dict[str, tuple[int, frozenset[Dot]]] = {}
        self.missed = Missed(limits.lost_max)
        # Of these, where there is one order: places that they are not before, and not after.
        self.places: dict[Dot, tuple[Key, Key | None]] = {}
        self._unplaced: dict[str, list[int]] = {}  # counters whose second is not known yet, heaps
        self._has_places = compiled.pattern.order.total and not compiled.order_independent
        self._now: Key | None = None  # the place of what is offered, where copies learn of it later
        # What a stream knows of and has not seen, where the run waits for none of it.
        self.awaited: Callable[[], frozenset[Dot]] | None = None
        self._mask: Callable[[Event], int] = self.machine.compiled.mask
        self._member: dict[int, bool] = {}
        self._deployment = compiled.pattern.deployment
        self._returns_count = (
            compiled.pattern.returns is not None and compiled.pattern.returns.count
        )
        glob = self._deployment.glob if self._deployment is not None else None
        self._glob = glob_regex(glob, dotted=False) if glob is not None else None
        self._plain = not (
            compiled.partition
            or compiled.window_us is not None
            or self._deployment is not None
            or compiled.unknown_types
        )
        self._window_us = compiled.window_us
        self._key_attribute = compiled.plain_key
        self._releases = bool(compiled.partition)
        self.is_check = compiled.kind == "check"
        self._quick: dict[tuple[int, int], tuple[Configuration, ...] | None] | None = (
            {} if self.is_check and not trace else None
        )

    def _guard_failed(self) -> None:
        self.counts.guard_failures += 1

    # --- offering ---

    def offer(self, event: Event, after: frozenset[Dot] = frozenset()) -> list[RunVerdict]:
        """Hand in one released event; return what it brought about.

        Parameters
        ----------
        event : Event
            What happened.
        after : frozenset of Dot
            The lost dots in its past ("after a gap").
        """
        if after and (after := self._concerning(event, after)):
            self._mark(event, after)
        if self.places:
            self._place(event)
        return self._offer_masked(event, self._mask(event))

    def _offer_masked(self, event: Event, mask: int) -> list[RunVerdict]:
        if self._plain:
            # One scope, nothing to look up: the path that most events of a log take.
            member = self._member.get(mask)
            if member is None:
                member = self._learn(mask)
            if not member:
                return []
            return self._offer((), event, mask)
        out: list[RunVerdict] = []
        compiled = self.compiled
        if compiled.unknown_types is not None and compiled.unknown_types(event):
            self.counts.unknown_types += 1
        if self._deployment is None:
            if self.in_alphabet(mask) and (keyed := self._keyed(event)) is not None:
                out += self._offer(keyed, event, mask)
            return out
        return self._deployed(event, mask)

    def offer_many(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Hand in released events in turn, none of them after a gap.

        Parameters
        ----------
        events : sequence of Event
            What happened.

        Returns
        -------
        list of (int, list of RunVerdict)
            Of each event that brought something about, its place among them, and what.
        """
        offer = self.offer
        quick, attribute = self._quick, self._key_attribute
        if not self.steps_alone:
            said = ((number, offer(event)) for number, event in enumerate(events))
            return [(number, verdicts) for number, verdicts in said if verdicts]
        assert quick is not None
        assert attribute is not None
        # A check with one plain key: `_offer`, for events of scopes that are there, in one loop.
        mask_of, member_of, scopes = self._mask, self._member, self.scopes
        releases = self._releases
        out: list[tuple[int, list[RunVerdict]]] = []
        for number, event in enumerate(events):
            mask = mask_of(event)
            value = event.data.get(attribute)
            key = PLAIN_KINDS.get(value.__class__)
            scope = None if key is None else scopes.get(((key, value),))
            if scope is not None:
                configurations = scope.run.configurations  # type: ignore[union-attr]
                if len(configurations) == 1:
                    after = quick.get((configurations[0].state, mask))
                    if after is None and member_of.get(mask) is False:
                        continue
                    if after is not None:
                        if scope.clean:
                            self._change(scope)
                        scope.run.configurations = after  # type: ignore[union-attr]
                        scope.places += 1
                        if releases and not after[0].state and self._is_over(scope):
                            self._release(((key, value),), scope)
                        continue
            verdicts = self._offer_masked(event, mask)
            if verdicts:
                out.append((number, verdicts))
        return out

    def miss(self, dot: Dot, low: Key | None = None, high: Key | None = None) -> None:
        """Hear that an event was declared lost: it might have been what a run waits for.

        What ends for want of an event is in doubt from now on; beyond the limit the
        oldest losses are not named any more, and counted.

        Parameters
        ----------
        dot : Dot
            What is missed; nothing else is known of it.
        low, high : Key or None
            Places of canonical order that it does not come before, and not after; None:
            not known.
        """
        if low is not None and self._has_places:
            self.put_place(dot, low, high)
        self.counts.marks_forgotten += self.missed.lost(dot)

    def miss_event(self, event: Event) -> None:
        """Hear of an event that is not offered, late or refused: what it might have been is known.

        Only its own scope missed it. Where nodes have copies, these also miss when it
        would have told its node of others, so there it may concern any scope.
        """
        place = canonical_key(event)
        if self._deployment is not None:
            self.miss(event.dot, place, place)
            return
        if self._has_places:
            self.put_place(event.dot, place, place)
        self.counts.marks_forgotten += self.missed.passed(event.dot, self._scope_of(event))

    def unmiss(self, dot: Dot) -> None:
        """Hear that an event that was missed comes again."""
        self.missed.drop(dot)
        self.places.pop(dot, None)

    def _scope_of(self, event: Event) -> ScopeName | None:
        """Return the scope that an event would be offered to; None if it has none."""
        shown = None if self._is_untimed(event) else self._partition_of(event)
        return None if shown is None else self.scope_key(shown)

    def _concerning(self, event: Event, after: frozenset[Dot]) -> frozenset[Dot]:
        """Return those of the lost dots in an event's past that may have been of its scope."""
        if self._deployment is not None:
            return after
        return self.missed.concerning(self._scope_of(event), after)

    def put_place(self, dot: Dot, low: Key, high: Key | None) -> None:
        """Remember between which places a missed event stood; beyond the limit one for two."""
        self.places[dot] = low, high
        if high is None:
            heapq.heappush(self._unplaced.setdefault(dot.node, []), dot.counter)
        if len(self.places) > self.limits.lost_max:
            oldest, other = itertools.islice(self.places, 2)
            low = min(self.places.pop(oldest)[0], self.places[other][0])
            self.places[other] = low, None  # where the last of both stood is not asked any more

    def _place(self, event: Event) -> None:
        """Take note of missed events that stood before this one, which is the first to know."""
        place = canonical_key(event)
        if self._deployment is not None and not self._deployment.everything:
            self._now = place
        for node in self._unplaced.keys() & event.clock.keys():
            counters = self._unplaced[node]
            while counters and counters[0] <= event.clock[node]:
                dot = Dot(node, heapq.heappop(counters))
                if dot in self.places and self.places[dot][1] is None:
                    self.places[dot] = self.places[dot][0], place
            if not counters:
                del self._unplaced[node]

    def _between(self, scope: Scope, first: Key | None, last: Key) -> frozenset[Dot]:
        """Return what a scope missed that may have stood between two places (None: the beginning).

        A node's copy is offered what the node learned of in another order: there all that
        may have come before now stand between.
        """
        if self._now is not None:
            first, last = None, self._now
        name = self.scope_key(scope.key)
        return frozenset(
            dot
            for dot, (low, high) in self.places.items()
            if low < last
            and (first is None or high is None or high > first)
            and not self.missed.elsewhere(dot, name)
        )

    def _mark(self, event: Event, after: frozenset[Dot]) -> None:
        """Remember what an event is after; beyond the limit, of each node's first only.

        What comes after that one in its node is after the same lost dots, and perhaps
        others: it stays in doubt, with fewer names.
        """
        self.after[event.dot] = after
        if len(self.after) > self.limits.candidates_max:
            oldest = next(iter(self.after))
            lost = self.after.pop(oldest)
            first = self.faded.get(oldest.node)
            if first is None or oldest.counter < first[0]:
                self.faded[oldest.node] = oldest.counter, lost
            self.counts.marks_forgotten += 1

    def _lost(self, dot: Dot) -> frozenset[Dot]:
        """Return the lost dots that an event is after, as far as they are remembered."""
        lost = self.after.get(dot)
        if lost is not None:
            return lost
        first = self.faded.get(dot.node)
        return first[1] if first is not None and dot.counter >= first[0] else NO_DOTS

    def in_alphabet(self, mask: int) -> bool:
        """Return whether an event with this mask is in the alphabet."""
        member = self._member.get(mask)
        return self._learn(mask) if member is None else member

    def _learn(self, mask: int) -> bool:
        if len(self._member) >= ALPHABET_MASKS_MAX:
            self._member.clear()
        member = self._member[mask] = evaluate(self.compiled.alphabet, mask)
        return member

    def scope_key(self, shown: ScopeKey) -> tuple[Any, ...]:
        """Return what tells a scope from others: True equals 1 to Python, and is another one."""
        return tuple((kind(value), value) for _, value in shown)

    def _keyed(self, event: Event) -> ScopeKey | None:
        """Return the partition of an alphabet event; None (and counted) without one."""
        shown, untimed = self._partition_of(event), self._is_untimed(event)
        self.counts.unscoped += shown is None
        self.counts.untimed += untimed
        return None if untimed else shown

    def _partition_of(self, event: Event) -> ScopeKey | None:
        values = [(name, _keyed_by(read(event))) for name, read in self.compiled.partition]
        return None if any(value is None for _, value in values) else tuple(values)

    def _is_untimed(self, event: Event) -> bool:
        return self._window_us is not None and event.time is None

    def _offer(self, shown: ScopeKey, event: Event, mask: int) -> list[RunVerdict]:
        key = self.scope_key(shown) if shown else ()
        scope = self.scopes.get(key)
        if scope is not None and scope.clean:
            self._change(scope)
        if self.after and scope is not None:
            scope.lost |= self._lost(event.dot)
        if scope is not None and self._quick is not None:
            # A check that needs no register: one look-up says where it goes.
            run = scope.run
            assert isinstance(run, CheckRun)
            configurations = run.configurations
            if len(configurations) == 1:
                at = (configurations[0].state, mask)
                try:
                    after = self._quick[at]
                except KeyError:
                    after = self._learn_quick(at)
                if after is not None:
                    run.configurations = after
                    scope.places += 1
                    if self._releases and not after[0].state and self._is_over(scope):
                        self._release(key, scope)
                    return []
        if scope is None:
            if len(self.scopes) >= self.limits.scopes_max:
                return [self._overflow("scopes_max", "the events of a new scope", shown, event)]
            scope = self.new_scope(shown)
            scope.lost = self._lost(event.dot)
        run = scope.run
        if isinstance(run, CheckRun):
            out = self.offer_in(scope, mask, lambda: event)
        else:
            seen = Seen(event, mask, scope.places)
            scope.places += 1
            out = self._found(scope, run.offer(seen), event)
            if self._window_us is not None:
                assert seen.time_us is not None
                self._look_at(scope, seen.time_us)
        if self._releases and self._is_over(scope):
            self._release(key, scope)
        return out

    def new_scope(self, shown: ScopeKey, number: int | None = None) -> Scope:
        """Return the scope of a key, made anew; `number` is that of one that is put back."""
        run = CheckRun(self.machine) if self.is_check else find_run(self._setup)
        if number is None:
            number = self.scopes_seen
            self.scopes_seen += 1
        scope = Scope(shown, run, number)
        if self.changed is not None:
            self.changed.scopes[number] = scope
        self.scopes[self.scope_key(shown) if shown else ()] = scope
        return scope

    def _change(self, scope: Scope) -> None:
        """Take note that a scope, which is recorded, changes; its record says less from now on."""
        scope.clean = False
        if self.changed is not None:
            self.changed.scopes[scope.number] = scope

    def _is_over(self, scope: Scope) -> bool:
        """Return whether a scope is as if it had been offered nothing, so that it can go.

        Keys come and go without end (orders, requests): what is over takes no room.
        """
        if scope.lost:
            return False
        run = scope.run
        if isinstance(run, CheckRun):
            return run.is_fresh() and run.complete()
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

    @property
    def steps_alone(self) -> bool:
        """Whether a state and a mask may say all: a check with one plain key, nothing lost."""
        return (
            self._quick is not None
            and self._key_attribute is not None
            and not (self.after or self.places)
        )

    def quick(self, state: int, mask: int) -> tuple[Configuration, ...] | None:
        """Return where a check goes from a state, None if that takes a closer look."""
        assert self._quick is not None
        at = (state, mask)
        return self._quick[at] if at in self._quick else self._learn_quick(at)

    def offer_in(self, scope: Scope, mask: int, event: Callable[[], Event]) -> list[RunVerdict]:
        """Hand in an event of the alphabet to the scope that it is of (`ketal.steps`).

        Parameters
        ----------
        scope : Scope
            That of a check.
        mask : int
            The truth of the local atoms.
        event : callable
            Makes the event, which a run that is halted has no use for.
        """
        if scope.clean:
            self._change(scope)
        run, place = scope.run, scope.places
        scope.places = place + 1
        assert isinstance(run, CheckRun)
        if run.halted:
            self.counts.halted += 1
            return []
        return self._checked(scope, run, Seen(event(), mask, place))

    def goes(self, scope: Scope, to: tuple[Configuration, ...], places: int) -> None:
        """Take note of where a check is after so many events in all (`ketal.steps`)."""
        if scope.clean:
            self._change(scope)
        assert isinstance(scope.run, CheckRun)
        scope.run.configurations, scope.places = to, places

    def _learn_quick(self, at: tuple[int, int]) -> tuple[Configuration, ...] | None:
        """Return where a check goes from (state, mask), None if that takes a closer look."""
        assert self._quick is not None
        if len(self._quick) >= ALPHABET_MASKS_MAX:
            self._quick.clear()
        after = self._quick[at] = self.machine.quick(*at)
        return after

    # --- at every node ---

    def _deployed(self, event: Event, mask: int) -> list[RunVerdict]:
        """Hand an event to the copies that see it (decisions on `at every node`)."""
        assert self._deployment is not None
        node = event.node
        deployed = self._glob is None or self._glob.fullmatch(base_node(node)) is not None
        own_mask = mask | self.compiled.localhost_bit
        own, other = deployed and self.in_alphabet(own_mask), self.in_alphabet(mask)
        keyed = self._keyed(event) if own or other else None
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
        if keyed is None:
            return out
        for name, copy in self.copies.items():
            if name == node:
                if own:
                    out += self._to_copy(name, event, own_mask)
            elif other and (
                self._deployment.everything or copy.known.get(node, 0) >= event.counter
            ):
                out += self._to_copy(name, event, mask)
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
        keyed = self._keyed(event)
        assert keyed is not None, "kept events have their keys"
        return self._offer((*keyed, ("node", node)), event, mask)

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
        self, scope: FrozenMapping, time: float | None, lost: frozenset[Dot] = NO_DOTS
    ) -> dict[str, Any]:
        common: dict[str, Any] = {
            "pattern": self.compiled.name,
            "fingerprint": self.compiled.fingerprint,
            "scope": scope,
            "execution": self.execution,
            "time": time,
        }
        if lost:
            common |= {"certain": False, "depends_on": tuple(sorted(lost))}
        return common

    def _overflow(self, limit: str, given_up: str, scope: ScopeKey, event: Event) -> Overflow:
        self.counts.overflows += 1
        common = self._common(_mapping(scope), _time(event))
        return Overflow(limit=limit, given_up=given_up, event=event.dot, **common)

    def _checked(self, scope: Scope, run: CheckRun, seen: Seen) -> list[RunVerdict]:
        before = run.states() if self.trace else ()
        held = self._held(run.configurations, seen) if self.trace else ""
        refused = run.offer(seen)
        out: list[RunVerdict] = []
        if refused is not None:
            lost = scope.lost
            if self.places:
                lost |= self._between(scope, None, canonical_key(seen.event))
            self.note_violation(lost)
            if self.listing:
                about = (seen.dot, seen.event.type, _time(seen.event))
                out.append(self.violation(scope, refused, about, lost))
        if self.trace and (refused is None or refused.resumed):
            start = before
            if refused is not None:
                start, held = (0,), self._held((self.machine.start(),), seen)
            out.append(self._moved(scope, seen, start, run.states(), held))
        if len(run.configurations) > self.limits.configurations_max:
            # Without all of its configurations a run would call allowed events violations.
            run.halted = True
            run.configurations = ()
            given_up = "the rest of this run, which has too many readings"
            out.append(self._overflow("configurations_max", given_up, scope.key, seen.event))
        return out

    def note_violation(self, lost: frozenset[Dot]) -> None:
        """Count a violation, which these lost events could change."""
        self.counts.violations += 1
        self.counts.uncertain += bool(lost)

    def violation(
        self,
        scope: Scope,
        refused: Refused | Refusal,
        about: tuple[Dot, str, float | None],
        lost: frozenset[Dot],
    ) -> Violation:
        """Return the violation that an event is: its dot, type and time are what it is about."""
        dot, type_, time = about
        return Violation(
            event=dot,
            type=type_,
            expected=refused.expected,
            state=refused.state,
            reason=refused.reason,
            **self._common(scope.mapping, time, lost),
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
        doubts = self._doubts(scope) if found.timed_out else NO_DOTS
        counts.uncertain += len(found.timed_out) if doubts else 0
        if self.after or self.places:
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

    def _doubts(self, scope: Scope) -> frozenset[Dot]:
        """Return the lost dots that may be what a scope waited for in vain."""
        lost = scope.lost
        if self.missed:
            lost = lost.union(self.missed.of(self.scope_key(scope.key)))
        return lost if self.awaited is None else lost.union(self.awaited())

    def _lost_of(self, scope: Scope, taken: Taken) -> frozenset[Dot]:
        """Return the lost dots that a match could be otherwise without.

        It stands on its events: what is in none of their pasts changes nothing, or, where
        the order matters, what did not stand between them.
        """
        if not self.after and not self.places:
            return NO_DOTS
        lost = NO_DOTS.union(*(self._lost(seen.dot) for _, seen in taken))
        if self.places:
            keys = [canonical_key(seen.event) for _, seen in taken]
            lost |= self._between(scope, min(keys), max(keys))
        return lost

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
            self._release(self.scope_key(scope.key), scope)
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


def _mapping(key: ScopeKey) -> FrozenMapping:
    return FrozenMapping(key) if key else NO_SCOPE


def _keyed_by(value: Any) -> Any:
    """Return a partition key as it is written: 1 and 1.0 are one scope, whichever came first."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _time(event: Event) -> float | None:
    time = event.time
    return time if time is None or isinstance(time, float) else float(time)
