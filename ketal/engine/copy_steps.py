"""Offering events to the copies of a pattern, under `at every node`.

With each released event, the copy of its node is first offered the events that the node learns of
by it; then the event goes to all copies that see it at once. Where every copy is offered every
event and the pattern is a `check`, copies are independent, so a batch is offered copy by copy.

The one rule: a copy is offered an event once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ketal.engine.copies import Copies, Unlearned
from ketal.engine.scope_steps import ScopeSteps
from ketal.engine.statistics.mask_counts import MaskCounts
from ketal.engine.verdict_building import flat
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.frozen_mapping import NO_SCOPE
from ketal.model.values import keyed
from ketal.model.verdicts.verdict_kinds import RunVerdict
from ketal.model.wording import shortened


class CopySteps:
    """Offers events to copies."""

    def __init__(self, copies: Copies, steps: ScopeSteps, met: MaskCounts) -> None:
        self.copies = copies
        self._steps = steps
        self._met = met
        compiled = steps.verdicts.compiled
        self._partitioned = bool(compiled.partition)
        self._localhost_bit = compiled.automaton.localhost_bit
        self._alike = (
            copies.everything
            and compiled.kind == "check"
            and not (self._partitioned or self._localhost_bit)
        )

    def are_alike(self, events: Sequence[Event]) -> bool:
        """Return whether every copy is offered all the events, and none of them starts a copy."""
        return self._alike and self.copies.by_node.keys() >= {event.node for event in events}

    def step_alike(
        self, events: Sequence[Event], masks: Sequence[int], outside: Collection[int]
    ) -> list[tuple[int, list[RunVerdict]]]:
        """Offer events to every copy; return (index, verdicts) of each event with verdicts.

        `outside` are the masks outside the alphabet.
        """
        numbers, offered, offered_masks = self._met.in_alphabet(events, masks, outside)
        verdicts_by_number: dict[int, list[RunVerdict]] = {}
        for node in self.copies.by_node:
            for index, verdicts in self._steps.step_all((keyed(node),), offered, offered_masks):
                verdicts_by_number.setdefault(numbers[index], []).extend(verdicts)
        for event, mask in zip(events, masks, strict=True):
            self.copies.learn(event)
            if mask not in outside:
                self.copies.hold(event, mask)
        return sorted(verdicts_by_number.items())

    def step(self, event: Event, mask: int) -> list[RunVerdict]:
        """Offer an event to the copies that see it now."""
        copies, steps, node = self.copies, self._steps, event.node
        own_mask = mask | self._localhost_bit
        learned, evicted = copies.learn(event)
        steps.resume(node)
        out = self._miss_evicted(event, evicted) if evicted else []
        if learned:
            out += self._step_learned(node, learned)
        own = node in copies.by_node and self._met.counted(own_mask).in_alphabet
        other = self._met.counted(mask).in_alphabet
        name = steps.scopes.name_of(event) if own or other else None
        if name is None:
            if own or other:
                steps.scopes.count_unscoped(event, steps.counts)
            other = False
        else:
            for copy_node in copies.nodes_seeing(event):
                if own if copy_node == node else other:
                    copy_mask = own_mask if copy_node == node else mask
                    out += steps.step((*name, keyed(copy_node)), event, copy_mask)
        if other or copies.receiving:
            copies.hold(event, mask if other else None)
        return out

    def _miss_evicted(self, event: Event, evicted: Sequence[Dot]) -> list[RunVerdict]:
        """Make the later verdicts of a node's copy uncertain, which evicted events are not offered.

        The node learns of them with `event`.
        """
        self._steps.losses.give_up((keyed(event.node),), evicted[0])
        upto = shortened(", ".join(map(str, evicted)))
        given_up = f"evicted events, up to {upto}, of which {event.node} has learned"
        return [self._steps.verdicts.overflow("unlearned_max", given_up, NO_SCOPE, event)]

    def _step_learned(self, node: str, learned: Sequence[Unlearned]) -> list[RunVerdict]:
        """Offer a node's copy the events that the node has learned of."""
        events, masks = [], []
        for one in learned:
            if one.mask is not None:
                events.append(one.event)
                masks.append(one.mask)
        if not self._partitioned:
            return flat(self._steps.step_all((keyed(node),), events, masks))
        out: list[RunVerdict] = []
        for event, mask in zip(events, masks, strict=True):
            name = self._steps.scopes.name_of(event)
            assert name is not None, "without a scope it is not held"
            out += self._steps.step((*name, keyed(node)), event, mask)
        return out
