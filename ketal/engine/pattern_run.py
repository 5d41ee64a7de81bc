"""The run of one pattern over one execution: which events its scopes are offered.

A `PatternRun` is handed released events and decides, in this order: is the event in the
alphabet, does it have the partition keys and the time that the pattern needs, which copies of
the pattern (`at every node`) see it now, and which scope it belongs to. The findings of a
scope's run become verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ketal.clocks import vector
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import Seen
from ketal.engine.copies import Copies, Unlearned
from ketal.engine.copy_steps import CopySteps
from ketal.engine.find.findings import Findings
from ketal.engine.losses import ANY, Key, Losses, ScopeName
from ketal.engine.machine import Machine
from ketal.engine.scopes import Counts, Scope, Scopes
from ketal.engine.statistics.mask_counts import MaskCounts
from ketal.engine.verdict_building import VerdictBuilder
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import RunVerdict


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
        Whether to report every transition.
    machine : Machine, optional
        That of another run of the same pattern, which counts the failures of
        registered guards.

    Attributes
    ----------
    counts : Counts
        How many matches, violations and other outcomes the runs had.
    scopes : Scopes
        The live scopes.
    copies : Copies or None
        The nodes' copies, under `at every node`.
    losses : Losses
        The events that were missed.
    met : MaskCounts
        How many events of those offered satisfied each guard.
    verdicts : VerdictBuilder
        Makes verdicts of what events bring about.
    """

    takes_by_mask = True
    """Whether events that their masks decide need not be offered one by one."""
    __slots__ = (
        "_copy_steps", "_every_type", "_mask", "_one_scope", "_scoped", "_takes_by_mask",
        "_unknown_types", "_window_us", "compiled", "copies", "counts", "execution", "limits",
        "listing", "losses", "machine", "met", "scopes", "verdicts",
    )  # fmt: skip

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
        self.counts = Counts()
        self.machine = machine = machine or Machine(compiled.reporting(self._guard_failed))
        returns = compiled.pattern.returns
        counting = not trace and (not listing or (returns is not None and returns.count))
        self.scopes = Scopes(compiled, machine, limits, traced=trace, counting=counting)
        placed = compiled.pattern.order.total and not compiled.order_independent
        # A match of such a pattern stands on its own events, as long as their clocks are whole.
        self.losses = Losses(limits.lost_max, placed=placed, past_matters=not compiled.order_free)
        self._window_us = compiled.window_us
        deployment = compiled.pattern.deployment
        self.copies = None
        if deployment is not None:
            self.copies = Copies(deployment, limits, timed=self._window_us is not None)
        self.verdicts = VerdictBuilder(
            machine, self.counts, self.losses, execution=execution, listing=listing, trace=trace
        )
        self.met = MaskCounts(compiled.alphabet, compiled.counted.guards)
        self._copy_steps = None if self.copies is None else CopySteps(self.copies, self)
        self._mask = machine.compiled.mask
        self._scoped = bool(compiled.partition) or self._window_us is not None
        self._unknown_types = compiled.unknown_types
        self._takes_by_mask = self.takes_by_mask and not trace
        alone = deployment is None and not compiled.partition
        self._one_scope = alone and self._takes_by_mask and self._unknown_types is None
        own = any(a.shape == "registered" and not a.relational for a in compiled.automaton.atoms)
        # Failures of a program's own guard, or of a `call`, are counted of events of all types.
        may_fail = own or self._unknown_types is not None
        self._every_type = deployment is not None or may_fail

    def _guard_failed(self) -> None:
        self.counts.guard_failures += 1

    # --- events ---

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return their verdicts.

        Returns
        -------
        list of (int, list of RunVerdict)
            Of each event that brought something about, its place among them, and what.
        """
        masks = list(map(self._mask, events))
        all_in_alphabet = self.met.add(masks)
        if self._are_of_one_scope(events):
            numbers: Sequence[int] = range(len(events))
            if not all_in_alphabet:
                met = self.met
                numbers = [number for number, mask in enumerate(masks) if met[mask].in_alphabet]
                events = [events[number] for number in numbers]
                masks = [masks[number] for number in numbers]
            return [(numbers[at], found) for at, found in self.step_all((), events, masks)]
        if self._are_of_alike_copies(events):
            assert self._copy_steps is not None
            return self._copy_steps.step_alike(events, masks)
        out: list[tuple[int, list[RunVerdict]]] = []
        losses, copies, unknown = self.losses, self.copies, self._unknown_types
        for number, (event, mask) in enumerate(zip(events, masks, strict=True)):
            if losses.some:
                self.scopes.live.counting = False  # which are uncertain is told one by one
                losses.offered(event)
                if copies is not None and not copies.everything:
                    self.verdicts.learned_at = canonical_key(event)
            if unknown is not None and unknown(event):
                self.counts.unknown_types += 1
            if self._copy_steps is not None:
                verdicts = self._copy_steps.step(event, mask)
            elif self.met[mask].in_alphabet:
                verdicts = self._step_scoped(event, mask)
            else:
                continue
            if verdicts:
                out.append((number, verdicts))
        return out

    def _are_of_one_scope(self, events: Sequence[Event]) -> bool:
        """Return whether all events are of one scope, and nothing else is asked of each."""
        return (
            self._one_scope
            and not self.losses.some
            and (self._window_us is None or None not in [event.time for event in events])
        )

    def _are_of_alike_copies(self, events: Sequence[Event]) -> bool:
        """Return whether all copies are offered all events, and nothing else is asked of each."""
        return (
            self._copy_steps is not None
            and self._takes_by_mask
            and self._unknown_types is None
            and not self.losses.some
            and self._copy_steps.are_alike(events)
        )

    def step_all(
        self, name: ScopeName, events: Sequence[Event], masks: Sequence[int]
    ) -> Iterator[tuple[int, list[RunVerdict]]]:
        """Offer events of the alphabet to one scope in turn; yield verdicts with their numbers.

        Many are taken by their masks, without being offered one by one.
        """
        scopes, at, end = self.scopes, 0, len(masks)
        by_mask = self._takes_by_mask and not self.losses.some
        while at < end:
            scope = scopes.get(name) if by_mask else None
            if scope is not None:
                begin, at = at, scope.run.take_plain(masks, at, scope.offered)
                if at > begin:
                    scope.offered += at - begin
                    scopes.mark_dirty(scope)
                if at == end:
                    return
            verdicts = self.step(name, events[at], masks[at])
            if verdicts:
                yield at, verdicts
            at += 1

    def _step_scoped(self, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope; count it where it has none."""
        name = self.scopes.name_of(event) if self._scoped else ()
        if name is None:
            self.scopes.count_unscoped(event, self.counts)
            return []
        return self.step(name, event, mask)

    def concerned_by(self, event: Event) -> bool:
        """Return whether an event with the type of this one may change anything here.

        If not, it is not in the alphabet, and no guard that is counted is true of it. A run with
        copies learns by every event what its node knows; one that missed an event, where that
        stood.
        """
        return self._every_type or self.losses.some or self.compiled.names_type(event)

    def count(self, events: Iterable[Event]) -> None:
        """Count events which other runs of the pattern are offered, in every order (`mode`)."""
        for event in events:
            self.met[self._mask(event)].events += 1
            if self.copies is not None and self.copies.receiving:
                self.copies.messages += len(event.receives)

    def step(self, name: ScopeName, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope."""
        scopes, losses = self.scopes, self.losses
        scope = scopes.get(name)
        if scope is None:
            if len(scopes) >= self.limits.scopes_max:
                key, given_up = scopes.key_of(name), "the events of a new scope"
                return [self.verdicts.overflow("scopes_max", given_up, key, event)]
            scope = scopes.create(name)
        elif scopes.dirty is not None:
            scopes.dirty[scope.number] = scope
        run, place = scope.run, scope.offered
        scope.offered = place + 1
        if isinstance(run, CheckRun):
            if losses.some and (scope.past or losses.before(name, (event.clock,))):
                scope.past = vector.join((scope.past or {}, event.clock))
            out = self._step_check(scope, run, event, mask, place)
        elif run.take_plain((mask,), 0, place):
            out = []
        else:
            findings = run.offer(event, mask, place)
            out = [] if findings is None else self.verdicts.of_find(scope, findings, event)
            if self._window_us is not None:
                scopes.set_timer(scope, event.time_us)
        if scopes.removes:
            scopes.remove_if_over(scope)
        return out

    def _step_check(
        self, scope: Scope, run: CheckRun, event: Event, mask: int, place: int
    ) -> list[RunVerdict]:
        if run.halted:
            self.counts.halted += 1
            return []
        before, verdicts = run.configurations, self.verdicts
        refused = None
        if not run.take_plain((mask,), 0, place):
            refused = run.offer(event, mask, place)
        if refused is None and len(run.configurations) == 1 and not verdicts.trace:
            return []
        out = verdicts.of_check(scope, before, refused, Seen(event, mask, place))
        if len(run.configurations) > self.limits.configurations_max:
            # Without all of its configurations a run would call allowed events violations.
            run.halt()
            given_up = "the rest of this run, which has too many readings"
            out.append(verdicts.overflow("configurations_max", given_up, scope.key, event))
        return out

    # --- events that are not offered ---

    def miss(self, dot: Dot, low: Key | None = None) -> None:
        """Record a dot that was declared lost: a run might have waited for its event.

        Parameters
        ----------
        dot : Dot
            What is missed; nothing else is known of it.
        low : Key or None
            A place of canonical order that it is not before; None: not known.
        """
        self.counts.marks_forgotten += self.losses.lost(dot, low)

    def miss_event(self, event: Event) -> None:
        """Take an event that is not offered, late or refused: what it might have been is known.

        Only its own scope missed it. Where nodes have copies, these also miss which events
        its node would have known by it, so there it may concern any scope.
        """
        scope = ANY if self.copies is not None else self.scopes.name_of(event)
        self.counts.marks_forgotten += self.losses.passed(event, scope)

    def unmiss(self, dot: Dot) -> None:
        """Remove the loss mark of an event that arrived after all."""
        self.losses.drop(dot)

    # --- time and the end ---

    def advance(self, watermark_us: int) -> list[RunVerdict]:
        """End the time windows that a watermark has passed."""
        scopes, copies = self.scopes, self.copies
        out: list[RunVerdict] = []
        if self._window_us is None:
            return out
        last_us = watermark_us - self._window_us
        for scope in scopes.expired(last_us):
            run = scope.run
            assert not isinstance(run, CheckRun), "a check has no window"
            scopes.mark_dirty(scope)
            passed_us, node = watermark_us, None
            if copies is not None and not copies.everything:
                # A node learns of events after their release: for its copy they have not passed.
                node = scope.key[-1][1]
                passed_us = min(watermark_us, copies.unlearned_us(node))
            run.advance(passed_us, findings := Findings())
            out += self.verdicts.of_find(scope, findings, None)
            earliest_us = run.earliest_us()
            if scopes.remove_if_over(scope):
                continue
            if node is not None and earliest_us is not None and earliest_us <= last_us:
                scopes.suspend(scope)
            else:
                scopes.set_timer(scope, earliest_us)
        return out

    def close(self) -> list[RunVerdict]:
        """End every window and every run."""
        out: list[RunVerdict] = []
        for scope in list(self.scopes.values()):
            self.scopes.mark_dirty(scope)
            if not isinstance(scope.run, CheckRun):
                scope.run.end(findings := Findings())
                out += self.verdicts.of_find(scope, findings, None)
            elif not (scope.run.halted or scope.run.complete()):
                out += self.verdicts.incomplete(scope)
            self.scopes.remove_if_over(scope)
        return out

    def live_runs(self) -> int:
        """Return how many runs are live, and how many events are kept by a `find any`."""
        if self.compiled.kind != "check":
            return self.scopes.live.count
        runs = (scope.run for scope in self.scopes.values())
        return sum(isinstance(run, CheckRun) and not run.halted for run in runs)

    # --- state ---

    def save(self) -> Any:
        """Return what is small of the state, all but scopes and events held, as plain data."""
        return [*self._save_uncounted(), self.met.save()]

    def _save_uncounted(self) -> list[Any]:
        copies = None if self.copies is None else self.copies.save()
        return [self.counts.save(), self.scopes.created, self.losses.save(), copies]

    def load(self, value: Any, unlearned: Iterable[Unlearned], scopes: Iterable[Any]) -> None:
        """Put a saved state into a fresh run of the same pattern.

        Parameters
        ----------
        value : Any
            What `save` gave.
        unlearned : iterable of Unlearned
            The events held for copies, in the order offered.
        scopes : iterable
            What `Scope.save` gave, in the order of their numbers.
        """
        *uncounted, met = value
        self.met.load(met)
        self._load_uncounted(uncounted, unlearned, scopes)

    def _load_uncounted(
        self, value: Any, unlearned: Iterable[Unlearned], scopes: Iterable[Any]
    ) -> None:
        counts, self.scopes.created, losses, copies = value
        self.counts.load(counts)
        self.counts.marks_forgotten += self.losses.load(losses)
        if self.copies is not None:
            self.copies.load(copies, unlearned)
        for saved in scopes:
            self.scopes.load(saved)

    def copy_from(self, other: PatternRun) -> None:
        """Put the state of another run of the same pattern into this, which is fresh.

        `met` is left out: it is of the events that a run is offered itself.
        """
        unlearned = () if other.copies is None else other.copies.unlearned()
        self._load_uncounted(other._save_uncounted(), unlearned, ())
        for scope in other.scopes.values():
            self.scopes.copy_in(scope)

    def validate_state(self) -> None:
        """Assert the rules of this module and of those below it."""
        self.scopes.validate_state()
        self.losses.validate_state()
        self.met.validate_state()
        if self.copies is not None:
            self.copies.validate_state()


def one(processed: list[tuple[int, list[RunVerdict]]]) -> list[RunVerdict]:
    """Return the verdicts of a batch of one event."""
    return processed[0][1] if processed else []
