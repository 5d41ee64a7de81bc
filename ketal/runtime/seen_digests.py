"""Digests of the last events' contents, which tell a duplicate from a contradiction.

Of an event that was admitted the event is held; of one that was loaded, a digest and the clock.
Of each node's first event the digest is held for good: it tells a restart from a duplicate
(`ketal.operators.membership.incarnations`).

The one rule: of the last `most` events and of no other something is held.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ketal.model.event import DIGEST_BYTES, Event, digest

Clock = dict[str, int]
Row = tuple[str, int, bytes, Clock | None]
"""Node, counter, digest and clock of an event."""

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

WHOLE_CLOCK_ENTRIES = 8
"""A clock with no more entries is saved as it is, not as what it changes."""


class Contents:
    """What is held of the last events.

    Parameters
    ----------
    most : int
        Of how many.

    Attributes
    ----------
    held : dict of (str, int) to (Event or bytes)
        By node and counter, as they came; a digest instead of an event that was loaded.
    oldest : deque of (str, int)
        Its keys.
    firsts : dict of str to bytes
        The digest of each node's first event, where the event was evicted.
    evicted : int
        How many were evicted.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held: dict[tuple[str, int], Event | bytes] = {}
        self.oldest: deque[tuple[str, int]] = deque()
        self.firsts: dict[str, bytes] = {}
        self.evicted = 0
        self._clocks: dict[tuple[str, int], Clock] = {}  # of what is held as a digest

    def evict(self) -> None:
        """Evict the oldest until no more than `most` are held."""
        oldest, held, clocks = self.oldest, self.held, self._clocks
        for _ in range(len(oldest) - self.most):
            dot = oldest.popleft()
            known = held.pop(dot)
            self.evicted += 1
            if dot[1] == 1:
                self.firsts[dot[0]] = _digest_of(known)
            if clocks:
                clocks.pop(dot, None)

    def clocks(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of what is held, as it came."""
        for dot, known in self.held.items():
            clock = self._clock(dot, known)
            if clock is not None:
                yield *dot, clock

    def _clock(self, dot: tuple[str, int], known: Event | bytes) -> Clock | None:
        return self._clocks.get(dot) if isinstance(known, bytes) else known.clock

    def first_contents(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, where it was seen."""
        held = {node: _digest_of(known) for (node, c), known in self.held.items() if c == 1}
        return {**self.firsts, **held}

    # --- state ---

    def save(self) -> dict[str, Any]:
        """Return what is small of the state."""
        return {"firsts": dict(sorted(self.firsts.items())), "evicted": self.evicted}

    @property
    def taken(self) -> int:
        """How many were taken in, those that were evicted since included."""
        return self.evicted + len(self.held)

    def newest(self, since: int) -> list[Row]:
        """Return the rows of those that were taken in after the first `since`, as they came."""
        count = self.taken - max(since, self.evicted)
        held = list(itertools.islice(reversed(self.held.items()), count))
        held.reverse()
        return [(*dot, _digest_of(known), self._clock(dot, known)) for dot, known in held]

    def load(self, value: dict[str, Any], rows: Iterable[Row]) -> None:
        """Put what `save` gave, and the rows that `newest` gave, into a fresh object."""
        self.firsts, self.evicted = value["firsts"], value["evicted"]
        for node, counter, content_digest, clock in rows:
            dot = (node, counter)
            self.held[dot] = content_digest
            if clock is not None:
                self._clocks[dot] = clock
        self.oldest.extend(self.held)
        self.evict()

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        assert len(self.held) <= self.most
        assert list(self.held) == list(self.oldest)
        assert all(isinstance(self.held[dot], bytes) for dot in self._clocks)
        assert not any((node, 1) in self.held for node in self.firsts)


def _digest_of(known: Event | bytes) -> bytes:
    return known if isinstance(known, bytes) else digest(known)


def save_rows(rows: Sequence[Row], *, clocks: bool) -> list[Any]:
    """Return rows as plain data, column by column; `load_rows` reads it.

    Parameters
    ----------
    rows : sequence of Row
        The events.
    clocks : bool
        Whether their clocks are to be written.
    """
    names: dict[str, int] = {}
    codes = [names.setdefault(node, len(names)) for node, _, _, _ in rows]
    digests = b"".join([row[2] for row in rows])
    written = _encode(list(_changed(rows))) if clocks else b""
    return [list(names), codes, [counter for _, counter, _, _ in rows], digests, written]


def _changed(rows: Iterable[Row]) -> Iterator[Any]:
    """Yield clocks, a large one as what differs from the last large one of its node."""
    last: dict[str, Clock] = {}
    for node, _, _, clock in rows:
        if clock is None or len(clock) <= WHOLE_CLOCK_ENTRIES:
            yield clock
        else:
            before = last.get(node, {})
            last[node] = clock
            changed = {name: c for name, c in clock.items() if before.get(name) != c}
            yield changed, sorted(before.keys() - clock.keys())


def load_rows(written: Sequence[Any], *, clocks: bool) -> Iterator[Row]:
    """Yield what `save_rows` wrote of events, with their clocks where those are of interest."""
    names, codes, counters, digests, clocks_written = written
    known: Iterator[Clock | None] = itertools.repeat(None, len(codes))
    if clocks and clocks_written:
        known = _clocks_of(names, codes, clocks_written)
    places = range(0, len(digests), DIGEST_BYTES)
    for code, counter, place, clock in zip(codes, counters, places, known, strict=True):
        yield names[code], counter, digests[place : place + DIGEST_BYTES], clock


def _clocks_of(names: Sequence[str], codes: Sequence[int], written: bytes) -> Iterator[Any]:
    last: dict[str, Clock] = {}
    for code, one in zip(codes, _decode(written), strict=True):
        if one is None or isinstance(one, dict):
            yield one
        else:
            changed, dropped = one
            node = names[code]
            clock = {**last.get(node, {}), **changed}
            for name in dropped:
                del clock[name]
            last[node] = clock
            yield clock
