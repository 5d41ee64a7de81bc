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
    """The contents, and clocks, of the last events.

    Parameters
    ----------
    most : int
        How many.

    Attributes
    ----------
    held : dict of (str, int) to (Event or bytes)
        By node and counter, in order of arrival; a digest instead of an event that was loaded.
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
            stored = held.pop(dot)
            self.evicted += 1
            if dot[1] == 1:
                self.firsts[dot[0]] = _digest_of(stored)
            if clocks:
                clocks.pop(dot, None)

    def clocks(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the events held, in order of arrival."""
        for dot, stored in self.held.items():
            clock = self._clock(dot, stored)
            if clock is not None:
                yield *dot, clock

    def _clock(self, dot: tuple[str, int], stored: Event | bytes) -> Clock | None:
        return self._clocks.get(dot) if isinstance(stored, bytes) else stored.clock

    def first_contents(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, where it was seen."""
        held = {node: _digest_of(stored) for (node, c), stored in self.held.items() if c == 1}
        return {**self.firsts, **held}

    # --- state ---

    def save(self) -> dict[str, Any]:
        """Return what is small of the state."""
        return {"firsts": dict(sorted(self.firsts.items())), "evicted": self.evicted}

    @property
    def taken(self) -> int:
        """How many were added, those that were evicted since included."""
        return self.evicted + len(self.held)

    def newest(self, since: int) -> list[Row]:
        """Return the rows of those that were added after the first `since`, in order of arrival."""
        count = self.taken - max(since, self.evicted)
        held = list(itertools.islice(reversed(self.held.items()), count))
        held.reverse()
        return [(*dot, _digest_of(stored), self._clock(dot, stored)) for dot, stored in held]

    def load(self, value: dict[str, Any], rows: Iterable[Row]) -> None:
        """Load what `save` and `newest` returned into a fresh object."""
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


def _digest_of(stored: Event | bytes) -> bytes:
    return stored if isinstance(stored, bytes) else digest(stored)


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
    written = _encode(list(_differences(rows))) if clocks else b""
    return [list(names), codes, [counter for _, counter, _, _ in rows], digests, written]


def _differences(rows: Iterable[Row]) -> Iterator[Any]:
    """Yield clocks, a large one as what differs from the last large one of its node."""
    last: dict[str, Clock] = {}
    for node, _, _, clock in rows:
        if clock is None or len(clock) <= WHOLE_CLOCK_ENTRIES:
            yield clock
        else:
            before = last.get(node, {})
            last[node] = clock
            difference = {name: c for name, c in clock.items() if before.get(name) != c}
            yield difference, sorted(before.keys() - clock.keys())


def load_rows(written: Sequence[Any], *, clocks: bool) -> Iterator[Row]:
    """Yield the rows that `save_rows` returned, with their clocks if these are wanted."""
    names, codes, counters, digests, clocks_written = written
    loaded: Iterator[Clock | None] = itertools.repeat(None, len(codes))
    if clocks and clocks_written:
        loaded = _clocks_of(names, codes, clocks_written)
    places = range(0, len(digests), DIGEST_BYTES)
    for code, counter, place, clock in zip(codes, counters, places, loaded, strict=True):
        yield names[code], counter, digests[place : place + DIGEST_BYTES], clock


def _clocks_of(names: Sequence[str], codes: Sequence[int], written: bytes) -> Iterator[Any]:
    last: dict[str, Clock] = {}
    for code, one in zip(codes, _decode(written), strict=True):
        if one is None or isinstance(one, dict):
            yield one
        else:
            difference, dropped = one
            node = names[code]
            clock = {**last.get(node, {}), **difference}
            for name in dropped:
                del clock[name]
            last[node] = clock
            yield clock
