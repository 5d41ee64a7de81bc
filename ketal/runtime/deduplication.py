"""Deduplication: is an event new, or was its dot read before?

An event is new, a duplicate (same dot, same content: dropped and counted), a
contradiction (same dot, other content: rejected), late, or refused because a
limit was reached. The counters of a node that were seen are kept exactly and
compactly; the content of the last `dots_max` events is kept to tell a
duplicate from a contradiction (`ketal.runtime.seen_digests`). Beyond that, a known dot
counts as a duplicate.

The one rule: `read` is the sum of the other counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ketal.model import counter_sets as counters
from ketal.model.counter_sets import Counters
from ketal.model.event import Event, content, digest
from ketal.model.limits import Limits
from ketal.operators.membership.members import ATTRIBUTE
from ketal.runtime.seen_digests import Contents, Row


@dataclass(slots=True)
class Tally:
    """What became of the records read; `read` is the sum of the others."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    late: int = 0
    held_back: int = 0
    overflow: int = 0

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_dict(self) -> dict[str, int]:
        """Return the `events` object of the summary."""
        counts = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"read": sum(counts.values()), **counts}


GIVEN_UP_SHARE = 16
"""Where more counters are beyond holes than are kept, one in so many of them is given up."""

NEW, DUPLICATE, CONTRADICTION = "new", "duplicate", "contradiction"
SEEN, FORGOTTEN = "seen", "forgotten"
"""What an event is (`Intake.status`)."""

NONE_BEYOND = Counters(tracking=False)


class Intake:
    """The dots that were seen, and the contents of the last of them.

    Parameters
    ----------
    limits : Limits
        `dots_max` contents and `counters_max` counters out of order are kept.
    contents_max : int, optional
        More contents than `dots_max`, where all events are in memory anyway.
    """

    def __init__(self, limits: Limits, contents_max: int | None = None) -> None:
        self.counters_max = limits.counters_max
        self.upto: dict[str, int] = {}
        self.beyond: dict[str, Counters] = {}
        self.tracking = False  # whether changed chunks of counters are marked dirty
        self.forgotten: dict[str, int] = {}
        self._beyond_count = 0
        self.contents = Contents(contents_max or limits.dots_max)

    def admit(self, events: Sequence[Any], *, named: bool = False) -> int:
        """Admit events in turn, up to one that is not plainly new; return how many.

        Parameters
        ----------
        events : sequence
            What arrived.
        named : bool
            Whether they are events under their names; else what is no `Event`, or one whose name
            an attribute says, is not plainly new.
        """
        # What is looked up for one event is kept for all of them.
        upto, beyond, contents = self.upto, self.beyond, self.contents
        held, note = contents.held, contents.oldest.append
        number = 0
        for event in events:
            if not named and (event.__class__ is not Event or ATTRIBUTE in event.data):
                break
            node = event.node
            counter = event.clock[node]
            before, line = upto.get(node, 0), beyond.get(node)
            if counter <= before:
                break
            if line is None or not line.count:
                if counter == before + 1:
                    upto[node] = counter
                else:
                    self._out_of_order(node, counter)
            else:
                # `Counters`, in place: what a part of an execution does for every event.
                at, bit = counter // counters.SPAN, 1 << counter % counters.SPAN
                chunk = line.chunks.get(at, 0)
                if chunk & bit:
                    break
                if not chunk or counter == before + 1 or self._beyond_count >= self.counters_max:
                    self._out_of_order(node, counter)
                else:
                    line.chunks[at] = chunk | bit
                    line.count += 1
                    self._beyond_count += 1
                    if line.changed is not None:
                        line.changed.add(at)
            dot = (node, counter)
            held[dot] = event
            note(dot)
            number += 1
        if len(held) > contents.most:
            contents.evict()
        return number

    def status(self, event: Event) -> str:
        """Return what an event is, and admit nothing.

        `new`; of one that was seen: a `duplicate` or a `contradiction` of what is kept of it,
        `seen` where its content is not kept, `forgotten` where even its counter may be another's.
        """
        node = event.node
        counter = event.clock[node]
        if counter > self.upto.get(node, 0) and counter not in self.beyond.get(node, NONE_BEYOND):
            return NEW
        known = self.contents.held.get((node, counter))
        if known is None and counter == 1:
            known = self.contents.firsts.get(node)
        if known is None:
            return FORGOTTEN if counter <= self.forgotten.get(node, 0) else SEEN
        if isinstance(known, bytes):
            return DUPLICATE if known == digest(event) else CONTRADICTION
        return DUPLICATE if content(known) == content(event) else CONTRADICTION

    def _line(self, node: str) -> Counters:
        line = self.beyond.get(node)
        if line is None:
            line = self.beyond[node] = Counters(tracking=self.tracking)
        return line

    def _out_of_order(self, node: str, counter: int) -> None:
        self._line(node).add(counter)
        self._beyond_count += 1
        if counter == self.upto.get(node, 0) + 1:
            self._close_up(node)
        if self._beyond_count > self.counters_max:
            self._give_up()

    def _give_up(self) -> None:
        """Evict counters: close the lowest holes of the nodes with the most counters beyond holes.

        What would fill them can no longer be told from what was seen. A share of the counters goes
        at once: a part of an execution has holes for ever, and to find the lowest takes long.
        """
        left = self._beyond_count - max(1, self.counters_max // GIVEN_UP_SHARE)
        lines = [(node, line) for node, line in self.beyond.items() if line.count]
        for node, line in sorted(lines, key=lambda pair: (-pair[1].count, pair[0])):
            # Of each node the same share, rounded up.
            share = -(-line.count // GIVEN_UP_SHARE)
            count = min(share, self._beyond_count - left)
            last = line.place(count, self.upto.get(node, 0))
            self.upto[node] = self.forgotten[node] = last - 1
            line.count -= count - 1
            self._beyond_count -= count - 1
            line.drop(last - 1)
            self._close_up(node)
            if self._beyond_count <= left:
                return

    def _close_up(self, node: str) -> None:
        line = self.beyond[node]
        before = upto = self.upto.get(node, 0)
        while upto + 1 in line:
            upto += 1
        line.count -= upto - before
        self._beyond_count -= upto - before
        self.upto[node] = upto
        line.drop(upto)

    def holes(self, known: dict[str, int] | None = None) -> int:
        """Return how many counters are missing below each node's highest.

        Parameters
        ----------
        known : dict of str to int, optional
            Counters that clocks refer to, which count as well.
        """
        missing = 0
        for node in {*self.upto, *self.beyond, *(known or ())}:
            upto, beyond = self.upto.get(node, 0), self.beyond.get(node) or NONE_BEYOND
            highest = max(upto, beyond.highest(), (known or {}).get(node, 0))
            missing += highest - upto - beyond.count
        return missing

    def seen_between(self, node: str, low: int, high: int | None) -> bool:
        """Return whether a counter between two others was seen of a node; None: no upper one."""
        first = low + 1
        if first > self.upto.get(node, 0):
            found = next(self.beyond.get(node, NONE_BEYOND).after(low), None)
            if found is None:
                return False
            first = found
        return high is None or first < high

    def seen(self, without: Event | None = None) -> dict[str, tuple[int, list[int]]]:
        """Return of each node up to which counter all was seen, and what was seen beyond.

        Parameters
        ----------
        without : Event, optional
            An event that is not to count.
        """
        nodes = sorted({*self.upto, *self.beyond})
        seen = {n: (self.upto.get(n, 0), list(self.beyond_of(n))) for n in nodes}
        if without is not None:
            counter = without.clock[without.node]
            upto, beyond = seen[without.node]
            if counter <= upto:
                beyond = [*range(counter + 1, upto + 1), *beyond]
                upto = counter - 1
            seen[without.node] = (upto, [c for c in beyond if c != counter])
        return seen

    def highest(self) -> dict[str, int]:
        """Return the highest counter that was seen of each node."""
        beyond = {n: line.highest() for n, line in self.beyond.items() if line.count}
        return dict(sorted({**self.upto, **beyond}.items()))

    def beyond_of(self, node: str) -> Iterator[int]:
        """Yield the counters of a node that were seen beyond a hole, in order."""
        line = self.beyond.get(node)
        return iter(()) if line is None else line.after(self.upto.get(node, 0))

    def track(self) -> None:
        """Mark chunks of counters beyond holes dirty from now on when they change."""
        self.tracking = True
        for line in self.beyond.values():
            line.changed = set()

    def state(self) -> dict[str, Any]:
        """Return what is small of the state: all but counters beyond holes, and contents."""
        return {
            "upto": dict(sorted(self.upto.items())),
            "beyond": sorted(node for node, line in self.beyond.items() if line.count),
            "forgotten": dict(sorted(self.forgotten.items())),
            **self.contents.save(),
        }

    def restore(
        self,
        state: dict[str, Any],
        beyond: Iterable[tuple[str, int, bytes]],
        contents: Iterable[Row],
    ) -> None:
        """Restore a state, in a fresh intake.

        Parameters
        ----------
        state : dict
            What `state` gave.
        beyond : iterable of (str, int, bytes)
            Chunks of a node's counters beyond holes (`ketal.model.counter_sets`).
        contents : iterable of Row
            What is kept of the last events.
        """
        self.upto, self.forgotten = state["upto"], state["forgotten"]
        self.beyond = {node: Counters(tracking=self.tracking) for node in state["beyond"]}
        for node, number, chunk in beyond:
            if node in self.beyond:
                self.beyond[node].put(number, chunk, self.upto.get(node, 0))
        self._beyond_count = sum(line.count for line in self.beyond.values())
        self.contents.load(state, contents)
