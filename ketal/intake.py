"""Intake: what happens to each record before any pattern sees it (DESIGN 2, 9).

An event is new, a duplicate (same dot, same content: dropped and counted), a
contradiction (same dot, other content: rejected), late, or refused because a
limit was reached. The counters of a node that were seen are kept exactly and
compactly; the content of the last `dots_max` events is kept to tell a
duplicate from a contradiction. Beyond that, a known dot counts as a duplicate.
Of each node's first event the content is kept for good: it tells a restart from
a duplicate (`ketal.operators.incarnations`).

The one rule: `read` is the sum of the other counts.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from ketal.event import Event, content
from ketal.limits import Limits


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


WHOLE_CLOCK_ENTRIES = 8
"""A clock with no more entries is saved as it is, not as what it changes."""

GIVEN_UP_SHARE = 16
"""Where more counters are beyond holes than are kept, one in so many of them is given up."""

_LOOKED_AT = 4
"""So many counters are looked at to find one that is beyond a hole, before all are sorted."""

NEW, DUPLICATE, CONTRADICTION, FORGOTTEN = "new", "duplicate", "contradiction", "forgotten"


_blake2b = hashlib.blake2b


def _digest(event: Event) -> bytes:
    return _blake2b(content(event), digest_size=16).digest()


def read_rows(
    rows: Iterable[Any], last: dict[str, dict[str, int]]
) -> Iterator[tuple[str, int, bytes, dict[str, int] | None]]:
    """Yield node, counter, digest and clock of what `Intake.rows` wrote with the same `last`."""
    for node, counter, digest, *written in rows:
        if not written:
            yield node, counter, digest, None
        elif len(written) == 1:
            yield node, counter, digest, written[0]
        else:
            changed, dropped = written
            clock = {**last.get(node, {}), **changed}
            for name in dropped:
                del clock[name]
            last[node] = clock
            yield node, counter, digest, clock


class Intake:
    """Tells new events from those that were seen.

    Parameters
    ----------
    limits : Limits
        `dots_max` contents and `counters_max` counters out of order are kept.
    contents_max : int, optional
        More contents than `dots_max`, where all events are in memory anyway.
    """

    def __init__(self, limits: Limits, contents_max: int | None = None) -> None:
        self.counters_max = limits.counters_max
        self.contents_max = contents_max or limits.dots_max
        self.upto: dict[str, int] = {}
        self.beyond: dict[str, set[int]] = {}
        self.forgotten: dict[str, int] = {}
        self._beyond_count = 0
        self.firsts: dict[str, bytes] = {}
        self._contents: dict[tuple[str, int], Event | bytes] = {}
        self._clocks: dict[tuple[str, int], dict[str, int]] = {}  # of contents that are digests
        self._oldest: deque[tuple[str, int]] = deque()
        self.evicted = 0

    def admit(self, event: Event) -> str:
        """Return what an event is: new, duplicate, contradiction or forgotten."""
        node = event.node
        counter = event.clock[node]
        dot = (node, counter)
        upto, beyond = self.upto.get(node, 0), self.beyond.get(node)
        if counter <= upto or (beyond is not None and counter in beyond):
            return self._again(event, dot)
        if counter == upto + 1 and beyond is None:
            self.upto[node] = counter
        else:
            self._out_of_order(node, counter)
        self._contents[dot] = event
        self._oldest.append(dot)
        if len(self._oldest) > self.contents_max:
            self._evict(self._oldest.popleft())
        return NEW

    def status(self, event: Event) -> str:
        """Return what an event is, and take note of nothing.

        As `admit`, but an event whose content is no longer kept is `forgotten`.
        """
        node = event.node
        counter = event.clock[node]
        dot = (node, counter)
        if counter > self.upto.get(node, 0) and counter not in self.beyond.get(node, ()):
            return NEW
        kept = dot in self._contents or (counter == 1 and node in self.firsts)
        return self._again(event, dot) if kept else FORGOTTEN

    def _evict(self, dot: tuple[str, int]) -> None:
        known = self._contents.pop(dot)
        self.evicted += 1
        if dot[1] == 1:
            self.firsts[dot[0]] = known if isinstance(known, bytes) else _digest(known)
        if self._clocks:
            self._clocks.pop(dot, None)

    def _again(self, event: Event, dot: tuple[str, int]) -> str:
        known = self._contents.get(dot)
        if known is None and dot[1] == 1:
            known = self.firsts.get(dot[0])
        if known is None:
            return FORGOTTEN if dot[1] <= self.forgotten.get(dot[0], 0) else DUPLICATE
        if isinstance(known, bytes):
            return DUPLICATE if known == _digest(event) else CONTRADICTION
        return DUPLICATE if content(known) == content(event) else CONTRADICTION

    def _out_of_order(self, node: str, counter: int) -> None:
        beyond = self.beyond.setdefault(node, set())
        beyond.add(counter)
        self._beyond_count += 1
        if counter == self.upto.get(node, 0) + 1:
            self._close_up(node)
        if self._beyond_count > self.counters_max:
            self._give_up()

    def _give_up(self) -> None:
        """Give up the lowest holes of the nodes with the most counters beyond holes.

        What would fill them can no longer be told from what was seen. A share of the counters goes
        at once: a part of an execution has holes for ever, and to find the lowest takes long.
        """
        left = self._beyond_count - max(1, self.counters_max // GIVEN_UP_SHARE)
        for node in sorted(self.beyond, key=lambda n: -len(self.beyond[n])):
            # Of each node the same share, rounded up.
            share = -(-len(self.beyond[node]) // GIVEN_UP_SHARE)
            count = min(share, self._beyond_count - left)
            lowest = self._lowest(node, count)
            self.upto[node] = self.forgotten[node] = lowest[count - 1] - 1
            self.beyond[node].difference_update(lowest[: count - 1])
            self._beyond_count -= count - 1
            self._close_up(node)
            if self._beyond_count <= left:
                return

    def _lowest(self, node: str, count: int) -> list[int]:
        """Return at least so many of a node's counters beyond holes, the lowest ones, sorted."""
        beyond, first = self.beyond[node], self.upto.get(node, 0) + 1
        found: list[int] = []
        # They are looked for where they are likely to be; to sort them all takes longer.
        for start in range(first, first + _LOOKED_AT * len(beyond), _LOOKED_AT * count):
            found += sorted(beyond.intersection(range(start, start + _LOOKED_AT * count)))
            if len(found) >= count:
                return found
        return sorted(beyond)

    def _close_up(self, node: str) -> None:
        beyond = self.beyond[node]
        upto = self.upto.get(node, 0)
        while upto + 1 in beyond:
            upto += 1
            beyond.remove(upto)
            self._beyond_count -= 1
        self.upto[node] = upto
        if not beyond:
            del self.beyond[node]

    def holes(self, known: dict[str, int] | None = None) -> int:
        """Return how many counters are missing below each node's highest.

        Parameters
        ----------
        known : dict of str to int, optional
            Counters that clocks refer to, which count as well.
        """
        missing = 0
        for node in {*self.upto, *self.beyond, *(known or ())}:
            beyond = self.beyond.get(node, ())
            highest = max(
                self.upto.get(node, 0), max(beyond, default=0), (known or {}).get(node, 0)
            )
            missing += highest - self.upto.get(node, 0) - len(beyond)
        return missing

    def clocks(self) -> Iterator[tuple[str, int, dict[str, int]]]:
        """Yield node, counter and clock of the events whose content is kept, as they arrived."""
        for dot, known in self._contents.items():
            clock = self._clocks.get(dot) if isinstance(known, bytes) else known.clock
            if clock is not None:
                yield *dot, clock

    def first_contents(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, where it was seen."""
        known = {n: known for (n, c), known in self._contents.items() if c == 1}
        digests = {n: k if isinstance(k, bytes) else _digest(k) for n, k in known.items()}
        return {**self.firsts, **digests}

    def seen(self, without: Event | None = None) -> dict[str, tuple[int, list[int]]]:
        """Return of each node up to which counter all was seen, and what was seen beyond.

        Parameters
        ----------
        without : Event, optional
            An event that is not to count.
        """
        nodes = {**self.upto, **self.beyond}
        seen = {n: (self.upto.get(n, 0), sorted(self.beyond.get(n, ()))) for n in nodes}
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
        return {**self.upto, **{n: max(counters) for n, counters in self.beyond.items()}}

    def state(self) -> dict[str, Any]:
        """Return what is small of the state: all but counters beyond holes, and contents."""
        return {
            "upto": self.upto,
            "beyond": list(self.beyond),
            "forgotten": self.forgotten,
            "firsts": self.firsts,
            "evicted": self.evicted,
        }

    @property
    def taken(self) -> int:
        """How many contents were taken in, those that were evicted since included."""
        return self.evicted + len(self._contents)

    def dots(self, since: int) -> list[tuple[str, int]]:
        """Return (node, counter) of the contents taken in after the first `since`, as they came."""
        count = min(self.taken - since, len(self._contents))
        newest = list(itertools.islice(reversed(self._contents), count))
        newest.reverse()
        return newest

    def rows(
        self, dots: Iterable[tuple[str, int]], last: dict[str, dict[str, int]] | None
    ) -> list[Any]:
        """Return contents that are kept as plain data: node, counter, digest, clock.

        Parameters
        ----------
        dots : iterable of (str, int)
            Which, in the order in which they came.
        last : dict of str to dict, or None
            The last large clock of each node in the rows before, against which the next one is
            written, and which is put in; None: no clocks.
        """
        rows: list[Any] = []
        contents, remembered = self._contents, self._clocks
        for dot in dots:
            known = contents[dot]
            node, counter = dot
            if known.__class__ is bytes:
                digest, clock = known, remembered.get(dot)
            else:
                assert not isinstance(known, bytes)
                digest = _blake2b(content(known), digest_size=16).digest()
                clock = known.clock
            if clock is None or last is None:
                rows.append((node, counter, digest))
            elif len(clock) <= WHOLE_CLOCK_ENTRIES:
                rows.append((node, counter, digest, clock))
            else:
                before = last.get(node, {})
                last[node] = clock
                changed = {name: c for name, c in clock.items() if before.get(name) != c}
                rows.append((node, counter, digest, changed, sorted(before.keys() - clock.keys())))
        return rows

    def restore(
        self,
        state: dict[str, Any],
        beyond: Iterable[tuple[str, list[int]]],
        contents: Iterable[tuple[str, int, bytes, dict[str, int] | None]],
    ) -> None:
        """Take on a state, in a fresh intake.

        Parameters
        ----------
        state : dict
            What `state` gave.
        beyond : iterable of (str, list of int)
            Some of a node's counters beyond holes, in order; those that are not any more count
            for nothing.
        contents : iterable of (str, int, bytes, dict or None)
            Node, counter, digest and clock of what is kept, as it came.
        """
        self.upto, self.forgotten = state["upto"], state["forgotten"]
        self.firsts, self.evicted = state["firsts"], state["evicted"]
        self.beyond = {node: set() for node in state["beyond"]}
        for node, counters in beyond:
            if node in self.beyond:
                upto = self.upto.get(node, 0)
                self.beyond[node].update(counters[bisect.bisect_right(counters, upto) :])
        self._beyond_count = sum(map(len, self.beyond.values()))
        for node, counter, digest, clock in contents:
            self._contents[node, counter] = digest
            if clock is not None:
                self._clocks[node, counter] = clock
        self._oldest = deque(self._contents)
