"""Deduplication: is an event new, or was its dot read before?

An event is new, a duplicate (same dot, same content: dropped and counted) or a contradiction (same
dot, other content: rejected). The seen counters of each node are stored exactly and compactly. The
content of the last `dots_max` events is kept to distinguish a duplicate from a contradiction
(`ketal.runtime.admission.seen_contents`); a seen dot whose content was evicted counts as a
duplicate.

Cost: O(1) for a new event, amortised over the evictions, and O(P) for the P entries of its clock
where some pattern reads clocks; only a seen dot's content is looked up.

The one rule: a dot is new at most once, and a counter that was evicted is never new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ketal.model.events.content import content, digest
from ketal.model.events.counter_sets import SPAN, Counters, SeenCounters
from ketal.model.events.event import Event
from ketal.model.events.incarnation import INCARNATION
from ketal.model.limits import Limits
from ketal.model.values import base_node
from ketal.operators.membership.clock_memory import SeenDots
from ketal.runtime.admission.seen_contents import SeenContents
from ketal.runtime.admission.seen_digests import ContentRow, digest_of

EVICTED_SHARE: Final = 16
"""Beyond `counters_max` counters, one in `EVICTED_SHARE` of those beyond holes is evicted."""

NEW, DUPLICATE, CONTRADICTION = "new", "duplicate", "contradiction"
PRESUMED, EVICTED, BEYOND = "presumed", "evicted", "beyond"
"""The results of `Admission.take`, and but for `BEYOND` those of `Intake.status`."""

Steady = dict[str, tuple[frozenset[str], int]]
"""For each node the entries that its clocks had so far, and the last counter that added one."""


class Intake:
    """Deduplicates events by their dots, and by the contents of the last of them.

    `dots_max` bounds the contents that are kept, `counters_max` the counters beyond holes, and
    `nodes_max` the nodes.
    """

    def __init__(self, limits: Limits) -> None:
        self.counters_max = limits.counters_max
        self._nodes_max = limits.nodes_max
        self.nodes: dict[str, SeenCounters] = {}  # the seen counters of each node
        self.tracking = False  # whether chunks of counters are marked dirty
        self._beyond_count = 0
        # The later incarnations that have, or had, a hole, by node.
        self._holed: dict[str, set[str]] = {}
        self.contents = SeenContents(limits.dots_max)  # of the last events

    def admit(
        self, events: Sequence[Any], *, named: bool = False, steady: Steady | None = None
    ) -> int:
        """Admit events in turn, up to the first that is not certainly new; return how many.

        Admission also stops at an event of a node beyond `nodes_max`.

        Unless they are `named`, which are events whose nodes are named by incarnation, admission
        stops at an item that is not an `Event`, or whose data have the attribute `incarnation`. If
        the entries of clocks are `steady` so far, it stops at an event whose clock has other
        entries, or whose counter is before the last new entry: it may show that a node has left.
        """
        nodes, admitted = self.nodes, 0
        firsts: list[int] = []
        for event in events:
            if not named and (type(event) is not Event or INCARNATION in event.data):
                break
            node: str = event.node
            clock: dict[str, int] = event.clock
            counter = clock[node]
            if steady is not None:
                known = steady.get(node)
                if known is None or len(clock) != len(known[0]) or counter < known[1]:
                    break
                if not known[0].issuperset(clock):
                    break
            seen = nodes.get(node)
            if seen is None:
                if len(nodes) >= self._nodes_max:
                    break
                seen = self._add_node(node)
            if counter == seen.upto + 1:
                beyond = seen.beyond
                seen.upto = self._close_hole(beyond, counter) if beyond.count else counter
                if counter == 1:
                    firsts.append(admitted)
            elif counter <= seen.upto or not seen.beyond.add(counter):
                break
            else:
                self._beyond_count += 1
                if seen.beyond.count == 1:
                    self._add_holed(node)
                if self._beyond_count > self.counters_max:
                    self._evict()
            admitted += 1
        self.contents.extend(events if admitted == len(events) else events[:admitted], firsts)
        return admitted

    def _add_node(self, node: str) -> SeenCounters:
        """Add a new node; return its seen counters, of which there are none yet."""
        seen = self.nodes[node] = SeenCounters(tracking=self.tracking)
        return seen

    def status(self, event: Event) -> str:
        """Return the status of an event, without admitting it.

        The status is `new`; or of a seen dot `duplicate` or `contradiction`, `presumed` (to be a
        duplicate) if its content is evicted, `evicted` if the counter is in a hole closed by
        eviction and may be new.
        """
        node = event.node
        counter = event.clock[node]
        seen = self.nodes.get(node)
        if seen is None or counter not in seen:
            return NEW
        held = self.contents.content_of(node, counter)
        if isinstance(held, Event):
            return DUPLICATE if content(held) == content(event) else CONTRADICTION
        known = self.contents.firsts.get(node) if counter == 1 else None
        if held is not None:
            known = digest_of(held)
        if known is None:
            return EVICTED if counter <= seen.evicted else PRESUMED
        return DUPLICATE if known == digest(event) else CONTRADICTION

    def possible_runs(self, event: Event) -> set[str]:
        """Return later incarnations of an event's node, with all to which it may belong.

        These have a hole, or may have an event with the counter and the content of this one.
        """
        node, nodes = event.node, self.nodes
        holed = {name for name in self._holed.get(node, ()) if nodes[name].beyond.count}
        self._holed[node] = holed
        return holed | self.contents.runs_with(event)

    def _add_holed(self, name: str) -> None:
        node = base_node(name)
        if node != name:
            self._holed.setdefault(node, set()).add(name)

    def _evict(self) -> None:
        """Evict counters: close the lowest holes of the nodes with the most counters beyond holes.

        An event in a closed hole does not count as new any more. A share of the counters is evicted
        at once: in a part of an execution holes are never filled, and finding the lowest is slow.
        """
        target = self._beyond_count - max(1, self.counters_max // EVICTED_SHARE)
        holed = [(node, seen) for node, seen in self.nodes.items() if seen.beyond.count]
        for _, seen in sorted(holed, key=lambda pair: (-pair[1].beyond.count, pair[0])):
            beyond = seen.beyond
            # The same share of each node's counters, rounded up.
            share = -(-beyond.count // EVICTED_SHARE)
            count = min(share, self._beyond_count - target)
            last = beyond.nth_after(count, seen.upto)
            seen.evicted = last - 1
            beyond.count -= count - 1
            self._beyond_count -= count - 1
            beyond.drop(last - 1)
            seen.upto = self._close_hole(beyond, last - 1)
            if self._beyond_count <= target:
                return

    def _close_hole(self, beyond: Counters, upto: int) -> int:
        """Remove from `beyond` the counters that follow `upto` without a hole; return the last."""
        last = beyond.last_after(upto)
        beyond.count -= last - upto
        self._beyond_count -= last - upto
        if not beyond.count or (last + 1) // SPAN > upto // SPAN:
            beyond.drop(last)
        return last

    def holes(self, known: Mapping[str, int] | None = None) -> int:
        """Return how many counters are missing below the highest of each node, in total.

        `known` has the highest counter of each node that a clock refers to: missing counters up to
        it count too.
        """
        known = known or {}
        missing = sum(counter for node, counter in known.items() if node not in self.nodes)
        for node, seen in self.nodes.items():
            highest = max(seen.highest, known.get(node, 0))
            missing += highest - seen.upto - seen.beyond.count
        return missing

    def seen_between(self, node: str, low: int, high: int | None) -> bool:
        """Return whether a counter c of a node with low < c < high was seen; None: no bound."""
        seen = self.nodes[node]
        first: int | None = low + 1
        if low >= seen.upto:
            first = next(seen.beyond.after(low), None)
        return first is not None and (high is None or first < high)

    def seen(self) -> SeenDots:
        """Return the seen dots."""
        return {
            node: (counters.upto, list(counters.beyond.after(counters.upto)))
            for node, counters in sorted(self.nodes.items())
        }

    def highest(self) -> dict[str, int]:
        """Return the highest seen counter of each node."""
        return {node: seen.highest for node, seen in sorted(self.nodes.items())}

    # --- state ---

    def track(self) -> None:
        """Mark all chunks of counters beyond holes dirty, and from now on those that change."""
        self.tracking = True
        for seen in self.nodes.values():
            seen.beyond.dirty = set(seen.beyond.chunks)

    def save(self) -> dict[str, Any]:
        """Return the small part of the state: all but counters beyond holes, and contents."""
        nodes = sorted(self.nodes.items())
        return {
            "nodes": {node: (seen.upto, seen.evicted) for node, seen in nodes},
            "firsts": dict(sorted(self.contents.firsts.items())),
            "evicted": self.contents.evicted,
        }

    def load(
        self,
        state: dict[str, Any],
        beyond: Iterable[Iterable[Any]],
        contents: Iterable[ContentRow],
    ) -> None:
        """Load what `save` returned, and the parts that are saved separately, into a new intake.

        `beyond` yields (node, chunk number, chunk) of the counters beyond holes
        (`ketal.model.events.counter_sets`), `contents` the contents of the last events.
        """
        for node, (upto, evicted) in state["nodes"].items():
            seen = self._add_node(node)
            seen.upto, seen.evicted = upto, evicted
        for node, number, chunk in beyond:
            seen = self.nodes[node]
            seen.beyond.put(number, chunk, seen.upto)
            self._add_holed(node)
        self._beyond_count = sum(seen.beyond.count for seen in self.nodes.values())
        self.contents.load(state["firsts"], state["evicted"], list(contents))

    def validate_state(self) -> None:
        """Assert that the counts are right, and that all kept contents are of seen dots."""
        assert self._beyond_count == sum(seen.beyond.count for seen in self.nodes.values())
        for seen in self.nodes.values():
            assert seen.upto or seen.beyond.count
            assert len(list(seen.beyond.after(seen.upto))) == seen.beyond.count
        self.contents.validate_state()
        assert all(one.counter in self.nodes[one.node] for one in self.contents.held())
