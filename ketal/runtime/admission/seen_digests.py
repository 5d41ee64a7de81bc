"""The contents of the last events in memory, and as they are saved: digests and clocks.

In memory the content of an admitted event is the event itself; after a restore it is a row with
the event's digest and clock.

The one rule: rows are loaded as they were saved.
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
    """The saved content of an event; the clock is None if clocks are not saved here."""

    node: str
    counter: int
    digest: bytes
    clock: Clock | None


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

WHOLE_CLOCK_ENTRIES = 8
"""A clock with at most so many entries is saved whole, a larger one as a difference."""


Content = Event | ContentRow
"""An event, or the row of an event that was loaded from a saved state."""


def digest_of(content: Content) -> bytes:
    """Return the digest of a content."""
    return digest(content) if isinstance(content, Event) else content.digest


def save_rows(rows: Sequence[ContentRow], *, clocks: bool) -> list[Any]:
    """Return rows as plain data, column by column, for `load_rows`."""
    names: dict[str, int] = {}
    codes = [names.setdefault(node, len(names)) for node, _, _, _ in rows]
    digests = b"".join([row[2] for row in rows])
    written = _encode(list(_clock_differences(rows))) if clocks else b""
    return [list(names), codes, [counter for _, counter, _, _ in rows], digests, written]


def _clock_differences(rows: Iterable[ContentRow]) -> Iterator[Any]:
    """Yield the clocks of rows, a large one as the difference to its node's last large one."""
    last: dict[str, Clock] = {}
    for node, _, _, clock in rows:
        if clock is None or len(clock) <= WHOLE_CLOCK_ENTRIES:
            yield clock
        else:
            yield difference(last.get(node, {}), clock)
            last[node] = clock


def load_rows(written: Sequence[Any], *, clocks: bool) -> Iterator[ContentRow]:
    """Yield the rows that `save_rows` encoded, with their clocks if `clocks`."""
    names, codes, counters, digests, clocks_written = written
    loaded: Iterator[Clock | None] = itertools.repeat(None, len(codes))
    if clocks and clocks_written:
        loaded = _decoded_clocks(names, codes, clocks_written)
    offsets = range(0, len(digests), DIGEST_BYTES)
    for code, counter, at, clock in zip(codes, counters, offsets, loaded, strict=True):
        yield ContentRow(names[code], counter, digests[at : at + DIGEST_BYTES], clock)


def _decoded_clocks(names: Sequence[str], codes: Sequence[int], written: bytes) -> Iterator[Any]:
    last: dict[str, Clock] = {}
    for code, one in zip(codes, _decode(written), strict=True):
        if one is None or isinstance(one, dict):
            yield one
        else:
            node = names[code]
            last[node] = changed_clock(last.get(node, {}), *one)
            yield last[node]
