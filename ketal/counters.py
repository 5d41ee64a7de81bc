"""Which counters of a node were seen beyond a hole, a bit each (DESIGN 2).

A part of an execution, as a key group has it, sees of each node some counters only, so there
are holes for ever and many counters beyond them. As bits in chunks they take little memory,
and a chunk is what a record of the state holds (`ketal.records`).

The one rule: what is below the counter up to which all is known counts for nothing, whether
its bit is set or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SPAN = 1_024
"""Counters in one chunk."""
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


class Counters:
    """Counters beyond a hole.

    Parameters
    ----------
    tracking : bool
        Whether to take note of which chunks change.

    Attributes
    ----------
    chunks : dict of int to bytearray
        Chunk `n` has the bits of the `SPAN` counters from `n * SPAN` on.
    count : int
        How many there are, without those that count for nothing.
    changed : set of int, or None
        The chunks that changed, gone ones too; None if nobody asks.
    """

    __slots__ = ("changed", "chunks", "count")

    def __init__(self, *, tracking: bool) -> None:
        self.chunks: dict[int, bytearray] = {}
        self.count = 0
        self.changed: set[int] | None = set() if tracking else None

    def __contains__(self, counter: Any) -> bool:
        chunk = self.chunks.get(counter // SPAN)
        return chunk is not None and bool(chunk[counter % SPAN >> 3] >> (counter & 7) & 1)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return self.after(0)

    def add(self, counter: int) -> None:
        """Put in a counter that is not there."""
        number = counter // SPAN
        chunk = self.chunks.get(number)
        if chunk is None:
            chunk = self.chunks[number] = bytearray(SPAN >> 3)
        chunk[counter % SPAN >> 3] |= 1 << (counter & 7)
        self.count += 1
        if self.changed is not None:
            self.changed.add(number)

    def after(self, upto: int) -> Iterator[int]:
        """Yield those above a counter, in order."""
        for number in sorted(self.chunks):
            first = number * SPAN
            if first + SPAN <= upto + 1:
                continue
            for at, byte in enumerate(self.chunks[number]):
                if byte:
                    for bit in _BITS[byte]:
                        counter = first + 8 * at + bit
                        if counter > upto:
                            yield counter

    def highest(self) -> int:
        """Return the highest counter; 0 if there is none."""
        if not self.count:
            return 0
        number = max(self.chunks)
        return number * SPAN + int.from_bytes(self.chunks[number], "little").bit_length() - 1

    def drop(self, upto: int) -> None:
        """Let go of the chunks that have nothing above a counter, or of all where none is left."""
        if self.count and min(self.chunks) == (upto + 1) // SPAN:
            return
        for number in [n for n in self.chunks if not self.count or (n + 1) * SPAN <= upto + 1]:
            del self.chunks[number]
            if self.changed is not None:
                self.changed.add(number)

    def packed(self, number: int) -> bytes | None:
        """Return the bits of a chunk, without zeros at the end; None if it is not there."""
        chunk = self.chunks.get(number)
        return None if chunk is None else bytes(chunk).rstrip(b"\0")

    def put(self, number: int, packed: bytes, upto: int) -> None:
        """Put back a chunk; `upto` is the counter up to which all is known."""
        chunk = self.chunks[number] = bytearray(packed.ljust(SPAN >> 3, b"\0"))
        first, bits = number * SPAN, int.from_bytes(chunk, "little")
        self.count += (bits >> max(0, upto + 1 - first)).bit_count()
