"""Deduplication: is an event new, or was its dot read before?

An event is new, a duplicate (same dot, same content: dropped and counted), a
contradiction (same dot, other content: rejected), late, or refused because a
limit was reached. The counters of a node that were seen are held exactly and
compactly; the content of the last `dots_max` events is held to distinguish a
duplicate from a contradiction (`ketal.runtime.admission.seen_digests`). An older dot that was seen
counts as a duplicate.

The one rule: `read` is the sum of the other counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ketal.model import counter_sets
from ketal.model.counter_sets import Counters
from ketal.model.event import Event, content, digest
from ketal.model.limits import Limits
from ketal.operators.membership.incarnations import ATTRIBUTE
from ketal.runtime.admission.seen_digests import Contents, Row


@dataclass(slots=True)
class Tally:
    """Counts of the records read, by their outcome; `read` is the sum of the others."""

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


EVICTED_SHARE = 16
"""Of more than `counters_max` counters beyond holes, one in so many is evicted at once."""

NEW, DUPLICATE, CONTRADICTION = "new", "duplicate", "contradiction"
SEEN, EVICTED = "seen", "evicted"
"""What an event is (`Intake.status`)."""

NONE_BEYOND = Counters(tracking=False)


class Intake:
    """Deduplicates events: the dots that were seen, and the contents of the last of them.

    Parameters
    ----------
    limits : Limits
        `dots_max` contents are held, and `counters_max` counters beyond holes.
    contents_max : int, optional
        More contents than `dots_max`, where all events are in memory anyway.

    Attributes
    ----------
    upto : dict of str to int
        Of each node the counter up to which all were seen, or are evicted.
    beyond : dict of str to Counters
        Of each node the counters seen beyond a hole.
    evicted : dict of str to int
        Of each node the counter up to which holes were closed without their events.
    contents : Contents
        The contents of the last events.
    """

    def __init__(self, limits: Limits, contents_max: int | None = None) -> None:
        self.counters_max = limits.counters_max
        self.upto: dict[str, int] = {}
        self.beyond: dict[str, Counters] = {}
        self.tracking = False  # whether chunks of counters are marked dirty
        self.evicted: dict[str, int] = {}
        self._beyond_count = 0
        self.contents = Contents(contents_max or limits.dots_max)

    def admit(self, events: Sequence[Any], *, named: bool = False) -> int:
        """Admit events in turn, up to one that is not plainly new; return how many.

        Parameters
        ----------
        events : sequence
            In order of arrival.
        named : bool
            Whether they are events under the names of their incarnations; else what is no `Event`,
            or one whose incarnation an attribute gives, is not plainly new.
        """
        # Looked up once for all events.
        upto, beyond, contents = self.upto, self.beyond, self.contents
        held, add_oldest = contents.held, contents.oldest.append
        span, bits = counter_sets.SPAN, counter_sets.BIT
        number = 0
        for event in events:
            if not named and (event.__class__ is not Event or ATTRIBUTE in event.data):
                break
            node = event.node
            counter = event.clock[node]
            before, node_beyond = upto.get(node, 0), beyond.get(node)
            if counter <= before:
                break
            if node_beyond is None or not node_beyond.count:
                if counter == before + 1:
                    upto[node] = counter
                else:
                    self._out_of_order(node, counter)
            else:
                # `Counters`, in place: what a part of an execution does for every event.
                at, bit = counter // span, bits[counter % span]
                chunk = node_beyond.chunks.get(at, 0)
                if chunk & bit:
                    break
                if counter == before + 1:
                    upto[node] = self._close_hole(node_beyond, counter)
                elif not chunk or self._beyond_count >= self.counters_max:
                    self._out_of_order(node, counter)
                else:
                    node_beyond.chunks[at] = chunk | bit
                    node_beyond.count += 1
                    self._beyond_count += 1
                    if node_beyond.dirty is not None:
                        node_beyond.dirty.add(at)
            dot = (node, counter)
            held[dot] = event
            add_oldest(dot)
            number += 1
        if len(held) > contents.most:
            contents.evict()
        return number

    def status(self, event: Event) -> str:
        """Return what an event is, and admit nothing.

        `new`; of one that was seen: a `duplicate` or a `contradiction` of the content held,
        `seen` where its content is evicted, `evicted` where its counter may not have been seen.
        """
        node = event.node
        counter = event.clock[node]
        if counter > self.upto.get(node, 0) and counter not in self.beyond.get(node, NONE_BEYOND):
            return NEW
        stored = self.contents.held.get((node, counter))
        if stored is None and counter == 1:
            stored = self.contents.firsts.get(node)
        if stored is None:
            return EVICTED if counter <= self.evicted.get(node, 0) else SEEN
        if isinstance(stored, bytes):
            return DUPLICATE if stored == digest(event) else CONTRADICTION
        return DUPLICATE if content(stored) == content(event) else CONTRADICTION

    def _out_of_order(self, node: str, counter: int) -> None:
        """Admit a counter beyond a hole."""
        if node not in self.beyond:
            self.beyond[node] = Counters(tracking=self.tracking)
        self.beyond[node].add(counter)
        self._beyond_count += 1
        if self._beyond_count > self.counters_max:
            self._evict()

    def _evict(self) -> None:
        """Evict counters: close the lowest holes of the nodes with the most counters beyond holes.

        An event in one of them is not new any more. A share of the counters is evicted at once: a
        part of an execution has holes for ever, and to find the lowest takes long.
        """
        target = self._beyond_count - max(1, self.counters_max // EVICTED_SHARE)
        holed = [(node, beyond) for node, beyond in self.beyond.items() if beyond.count]
        for node, node_beyond in sorted(holed, key=lambda pair: (-pair[1].count, pair[0])):
            # Of each node the same share, rounded up.
            share = -(-node_beyond.count // EVICTED_SHARE)
            count = min(share, self._beyond_count - target)
            last = node_beyond.place(count, self.upto.get(node, 0))
            self.evicted[node] = last - 1
            node_beyond.count -= count - 1
            self._beyond_count -= count - 1
            node_beyond.drop(last - 1)
            self.upto[node] = self._close_hole(node_beyond, last - 1)
            if self._beyond_count <= target:
                return

    def _close_hole(self, node_beyond: Counters, upto: int) -> int:
        """Return up to where all were seen of a node, of which those up to a counter were."""
        last = node_beyond.last_after(upto)
        node_beyond.count -= last - upto
        self._beyond_count -= last - upto
        if not node_beyond.count or (last + 1) // counter_sets.SPAN > upto // counter_sets.SPAN:
            node_beyond.drop(last)
        return last

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
            after = next(self.beyond.get(node, NONE_BEYOND).after(low), None)
            if after is None:
                return False
            first = after
        return high is None or first < high

    def seen(self, without: Event | None = None) -> dict[str, tuple[int, list[int]]]:
        """Return of each node up to which counter all was seen, and what was seen beyond.

        Parameters
        ----------
        without : Event, optional
            An event that is left out.
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
        beyond = {n: beyond.highest() for n, beyond in self.beyond.items() if beyond.count}
        return dict(sorted({**self.upto, **beyond}.items()))

    def beyond_of(self, node: str) -> Iterator[int]:
        """Yield the counters of a node that were seen beyond a hole, in order."""
        node_beyond = self.beyond.get(node)
        return iter(()) if node_beyond is None else node_beyond.after(self.upto.get(node, 0))

    def track(self) -> None:
        """Mark chunks of counters beyond holes dirty from now on."""
        self.tracking = True
        for node_beyond in self.beyond.values():
            node_beyond.dirty = set()

    def state(self) -> dict[str, Any]:
        """Return what is small of the state: all but counters beyond holes, and contents."""
        return {
            "upto": dict(sorted(self.upto.items())),
            "beyond": sorted(node for node, beyond in self.beyond.items() if beyond.count),
            "forgotten": dict(sorted(self.evicted.items())),
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
            What `state` returned.
        beyond : iterable of (str, int, bytes)
            Chunks of a node's counters beyond holes (`ketal.model.counter_sets`).
        contents : iterable of Row
            What is held of the last events.
        """
        self.upto, self.evicted = state["upto"], state["forgotten"]
        self.beyond = {node: Counters(tracking=self.tracking) for node in state["beyond"]}
        for node, number, chunk in beyond:
            if node in self.beyond:
                self.beyond[node].put(number, chunk, self.upto.get(node, 0))
        self._beyond_count = sum(beyond.count for beyond in self.beyond.values())
        self.contents.load(state, contents)
