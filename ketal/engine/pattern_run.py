"""The run of one pattern over one execution: which events its scopes are offered.

A `PatternRun` is handed released events and decides, in this order: is the event in the
alphabet, does it have the partition keys and the time that the pattern needs, which copies of
the pattern (`at every node`) see it now, and which scope it belongs to.

The one rule: an event of the alphabet is offered to its scopes, held until a copy sees it, or
counted with the reason why it has no scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern, derived_once
from ketal.engine.check_run import CheckRun
from ketal.engine.copies import Copies, Unlearned
from ketal.engine.copy_steps import CopySteps
from ketal.engine.losses import ANY, Losses
from ketal.engine.machine import Machine
from ketal.engine.scope_steps import ScopeSteps
from ketal.engine.scopes import Counts, Scopes
from ketal.engine.statistics.mask_counts import MaskCounts
from ketal.engine.verdict_building import VerdictBuilder
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import RunVerdict


class PatternRun:
    """One pattern over one execution, which has a name where a log holds several.

    Without `listing`, verdicts are only counted; if `traced`, every transition is reported. If a
    `machine` is given, it is that of another run of the same pattern, which counts the failures of
    registered guards. `make_steps` makes the object that offers events to the scopes' runs; it
    is called as `ScopeSteps` is.
    """

    __slots__ = (
        "_copy_steps", "_every_type", "_masks", "_one_scope", "_unknown_types", "_window_us",
        "compiled", "copies", "counts", "execution", "limits", "listing", "losses", "machine",
        "met", "scopes", "steps", "verdicts",
    )  # fmt: skip

    def __init__(
        self,
        compiled: CompiledPattern,
        limits: Limits,
        *,
        execution: str = "",
        listing: bool = True,
        traced: bool = False,
        machine: Machine | None = None,
        make_steps: Callable[..., ScopeSteps] = ScopeSteps,
    ) -> None:
        self.compiled = compiled
        self.limits = limits
        self.execution = execution
        self.listing = listing
        self.counts = Counts()
        self.machine = machine = machine or derived_once(
            Machine, compiled.reporting(self._guard_failed)
        )
        counting = not traced and (not listing or compiled.pattern.only_counts)
        self.scopes = Scopes(compiled, machine, limits, traced=traced, counting=counting)
        placed = compiled.pattern.order.total and not compiled.order_independent
        # A match of an order-free pattern depends on its own events, if their clocks are whole.
        self.losses = Losses(limits.lost_max, placed=placed, past_matters=not compiled.order_free)
        self._window_us = compiled.window_us
        deployment = compiled.pattern.deployment
        self.copies = None  # the nodes' copies, under `at every node`
        if deployment is not None:
            self.copies = Copies(deployment, limits, timed=self._window_us is not None)
        self.verdicts = VerdictBuilder(
            machine, self.counts, self.losses, execution=execution, listing=listing, traced=traced
        )
        # How many of the offered events satisfied each guard.
        self.met = MaskCounts(compiled.alphabet, compiled.counted.guards)
        self.steps = make_steps(self.scopes, self.verdicts, limits, self.copies)
        self._copy_steps = None
        if self.copies is not None:
            self._copy_steps = CopySteps(self.copies, self.steps, self.met)
        self._masks = machine.compiled.masks
        self._unknown_types = compiled.unknown_types
        alone = deployment is None and not compiled.partition
        self._one_scope = alone and self.steps.by_mask and self._unknown_types is None
        own = any(a.shape == "registered" and not a.relational for a in compiled.automaton.atoms)
        # Failures of a registered guard, or of a `call`, are counted on events of every type.
        may_fail = own or self._unknown_types is not None
        self._every_type = deployment is not None or may_fail

    def _guard_failed(self) -> None:
        self.counts.guard_failures += 1

    # --- events ---

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return (index, verdicts) of each event with verdicts."""
        masks: Sequence[int] = self._masks(events)
        outside = self.met.add(masks)
        if self._one_scope and not self.losses.any_missed:
            numbers, offered, offered_masks = self.met.in_alphabet(events, masks, outside)
            if self._window_us is None or all(event.time is not None for event in offered):
                steps = self.steps.step_all((), offered, offered_masks)
                return [(numbers[index], verdicts) for index, verdicts in steps]
        if self._are_of_alike_copies(events):
            assert self._copy_steps is not None
            return self._copy_steps.step_alike(events, masks, outside)
        out: list[tuple[int, list[RunVerdict]]] = []
        losses, copies, unknown = self.losses, self.copies, self._unknown_types
        for number, (event, mask) in enumerate(zip(events, masks, strict=True)):
            if losses.any_missed:
                self.scopes.live.counting = False  # each match is checked for uncertainty
                losses.bound_places(event)
                if copies is not None and not copies.everything:
                    self.verdicts.learned_at = canonical_key(event)
            if unknown is not None and unknown(event):
                self.counts.unknown_types += 1
            if self._copy_steps is not None:
                verdicts = self._copy_steps.step(event, mask)
            elif self.met.counted(mask).in_alphabet:
                verdicts = self._step_scoped(event, mask)
            else:
                continue
            if verdicts:
                out.append((number, verdicts))
        return out

    def _are_of_alike_copies(self, events: Sequence[Event]) -> bool:
        """Return whether all copies are offered all events, and none needs a check of its own."""
        return (
            self._copy_steps is not None
            and self.steps.by_mask
            and self._unknown_types is None
            and not self.losses.any_missed
            and self._copy_steps.are_alike(events)
        )

    def _step_scoped(self, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event of the alphabet to its scope, or count it if it has none."""
        name = self.scopes.name_of(event)
        if name is None:
            self.scopes.count_unscoped(event, self.counts)
            return []
        return self.steps.step(name, event, mask)

    def concerned_by(self, event: Event) -> bool:
        """Return whether events of this event's type may change the run, its counts included.

        Events of other types are outside the alphabet and satisfy no counted guard. A run with
        copies needs events of every type, to learn what each node knows; so does one that missed
        an event, to bound the place of that event.
        """
        return self._every_type or self.losses.any_missed or self.compiled.names_type(event)

    def count(self, events: Sequence[Event]) -> None:
        """Count events that are offered to other runs of the pattern, one an order (`mode`)."""
        self.met.add(self._masks(events))

    # --- events that are not offered ---

    def miss(self, dot: Dot, low: CanonicalKey | None = None) -> None:
        """Record a dot that was declared lost: a run might have waited for its event.

        The event does not come before `low` in canonical order; None if that is unknown.
        """
        self.counts.marks_forgotten += self.losses.miss(dot, low)

    def miss_event(self, event: Event) -> None:
        """Mark a late or refused event, which is not offered, as missed.

        Only its own scope misses it. With copies it may concern any scope, as they also miss
        which events its node had learned of by then.
        """
        scope = ANY if self.copies is not None else self.scopes.name_of(event)
        self.counts.marks_forgotten += self.losses.miss_event(event, scope)

    def live_runs(self) -> int:
        """Return how many runs are live; for a `find any`, how many events are kept."""
        if self.compiled.kind != "check":
            self.scopes.live.index()
            return self.scopes.live.count
        runs = (scope.run for scope in self.scopes.by_name.values())
        return sum(isinstance(run, CheckRun) and not run.halted for run in runs)

    # --- state ---

    def save(self) -> Any:
        """Return the state without scopes and the events held for copies, as plain data."""
        return [*self._save_uncounted(), self.met.save()]

    def _save_uncounted(self) -> list[Any]:
        copies = None if self.copies is None else self.copies.save()
        return [self.counts.save(), self.scopes.created, self.losses.save(), copies]

    def load(self, value: Any, unlearned: Iterable[Unlearned], scopes: Iterable[Any]) -> None:
        """Load what `save` returned into a fresh run of the same pattern.

        `unlearned` are the events held for copies, in the order offered, and `scopes` what
        `Scope.save` returned, in the order of the scopes' numbers.
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
        """Copy the state of another run of the same pattern into this fresh one.

        `met` is not copied: it counts the events that were offered to this run itself.
        """
        unlearned = () if other.copies is None else other.copies.unlearned()
        self._load_uncounted(other._save_uncounted(), unlearned, ())
        for scope in other.scopes.by_name.values():
            self.scopes.copy_in(scope)

    def validate_state(self) -> None:
        """Assert the rules of this module and of those below it."""
        self.scopes.validate_state()
        self.losses.validate_state()
        self.met.validate_state()
        if self.copies is not None:
            self.copies.validate_state()
