"""Digests of the last events' contents, which distinguish a duplicate from a contradiction.

Of an event that was admitted the event is held; of one that was loaded, a digest and the clock.
Of each node's first event the digest is never evicted: it distinguishes a restart from a duplicate
(`ketal.operators.membership.incarnations`).

The one rule: of the last `most` events, and of no other but first ones, a content is held.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ketal.model.events.content import DIGEST_BYTES, digest
from ketal.model.events.event import Event
from ketal.operators.membership.clock_memory import Clock, changed_clock, difference


class ContentRow(NamedTuple):
    """What is saved of an event."""

    node: str
    counter: int
    digest: bytes
    clock: Clock | None


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

WHOLE_CLOCK_ENTRIES = 8
"""A clock with no more entries is saved as it is, not as what it changes."""


Content = Event | ContentRow
"""What is held of an event: the event, or of one that was loaded its row."""


class Contents:
    """The contents, and clocks, of the last events.

    Parameters
    ----------
    most : int
        How many.

    Attributes
    ----------
    of_node : dict of str to dict
        What is held of each node, by counter.
    arrived : deque of (Event or ContentRow)
        The same, in order of arrival.
    firsts : dict of str to bytes
        The digest of each node's first event, where the event was evicted.
    evicted : int
        How many were evicted.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.of_node: dict[str, dict[int, Content]] = {}
        self.arrived: deque[Content] = deque()
        self.firsts: dict[str, bytes] = {}
        self.evicted = 0

    def held_of(self, node: str) -> dict[int, Content]:
        """Return the dict of what is held of a node, into which its events are put as they come."""
        held = self.of_node.get(node)
        if held is None:
            held = self.of_node[node] = {}
        return held

    def arrive(self, events: Sequence[Event]) -> None:
        """Add events that are in the dicts of their nodes; evict the oldest beyond `most`."""
        arrived, of_node = self.arrived, self.of_node
        arrived.extend(events)
        count = max(0, len(arrived) - self.most)
        for _ in range(count):
            oldest = arrived.popleft()
            node = oldest.node
            counter = oldest.clock[node] if oldest.__class__ is Event else oldest.counter
            del of_node[node][counter]
            if counter == 1:
                self.firsts[node] = digest_of(oldest)
        self.evicted += count

    def clocks(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the events held, in order of arrival."""
        for content in self.arrived:
            if content.clock is not None:
                yield content.node, content.counter, content.clock

    def first_contents(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, where it was seen."""
        held = {node: digest_of(of[1]) for node, of in self.of_node.items() if 1 in of}
        return {**self.firsts, **held}

    # --- state ---

    def save(self) -> dict[str, Any]:
        """Return what is small of the state."""
        return {"firsts": dict(sorted(self.firsts.items())), "evicted": self.evicted}

    @property
    def taken(self) -> int:
        """How many were added, those that were evicted since included."""
        return self.evicted + len(self.arrived)

    def newest(self, since: int) -> list[ContentRow]:
        """Return the rows of those that were added after the first `since`, in order of arrival."""
        count = self.taken - max(since, self.evicted)
        newest = list(itertools.islice(reversed(self.arrived), count))
        newest.reverse()
        return [ContentRow(one.node, one.counter, digest_of(one), one.clock) for one in newest]

    def load(self, value: dict[str, Any], rows: Iterable[ContentRow]) -> None:
        """Load what `save` and `newest` returned into a fresh object."""
        self.firsts, self.evicted = value["firsts"], value["evicted"]
        for row in rows:
            self.held_of(row.node)[row.counter] = row
            self.arrived.append(row)
        self.arrive(())

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        assert len(self.arrived) <= self.most
        held = {(node, counter) for node, of in self.of_node.items() for counter in of}
        assert len(held) == len(self.arrived)
        assert held == {(one.node, one.counter) for one in self.arrived}
        assert not any((node, 1) in held for node in self.firsts)


def digest_of(content: Content) -> bytes:
    """Return the digest of an event, or of a row."""
    return digest(content) if isinstance(content, Event) else content.digest


def save_rows(rows: Sequence[ContentRow], *, clocks: bool) -> list[Any]:
    """Return rows as plain data, column by column; `load_rows` reads it.

    Parameters
    ----------
    rows : sequence of ContentRow
        The events.
    clocks : bool
        Whether their clocks are to be written.
    """
    names: dict[str, int] = {}
    codes = [names.setdefault(node, len(names)) for node, _, _, _ in rows]
    digests = b"".join([row[2] for row in rows])
    written = _encode(list(_differences(rows))) if clocks else b""
    return [list(names), codes, [counter for _, counter, _, _ in rows], digests, written]


def _differences(rows: Iterable[ContentRow]) -> Iterator[Any]:
    """Yield clocks, a large one as what differs from the last large one of its node."""
    last: dict[str, Clock] = {}
    for node, _, _, clock in rows:
        if clock is None or len(clock) <= WHOLE_CLOCK_ENTRIES:
            yield clock
        else:
            yield difference(last.get(node, {}), clock)
            last[node] = clock


def load_rows(written: Sequence[Any], *, clocks: bool) -> Iterator[ContentRow]:
    """Yield the rows that `save_rows` returned, with their clocks if these are wanted."""
    names, codes, counters, digests, clocks_written = written
    loaded: Iterator[Clock | None] = itertools.repeat(None, len(codes))
    if clocks and clocks_written:
        loaded = _clocks_of(names, codes, clocks_written)
    places = range(0, len(digests), DIGEST_BYTES)
    for code, counter, place, clock in zip(codes, counters, places, loaded, strict=True):
        yield ContentRow(names[code], counter, digests[place : place + DIGEST_BYTES], clock)


def _clocks_of(names: Sequence[str], codes: Sequence[int], written: bytes) -> Iterator[Any]:
    last: dict[str, Clock] = {}
    for code, one in zip(codes, _decode(written), strict=True):
        if one is None or isinstance(one, dict):
            yield one
        else:
            node = names[code]
            last[node] = changed_clock(last.get(node, {}), *one)
            yield last[node]
