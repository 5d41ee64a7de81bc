"""What is held of the last events' contents, and how it is saved: digests and clocks.

Of an event that was admitted the event is held; of one that was loaded, a digest and the clock.

The one rule: rows that were saved are loaded as they were.
"""

from __future__ import annotations

import itertools
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


def digest_of(content: Content) -> bytes:
    """Return the digest of an event, or of a row."""
    return digest(content) if isinstance(content, Event) else content.digest


def save_rows(rows: Sequence[ContentRow], *, clocks: bool) -> list[Any]:
    """Return rows as plain data, column by column; `load_rows` reads it."""
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
