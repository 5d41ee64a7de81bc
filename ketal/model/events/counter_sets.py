"""The counters of a node that were seen: up to a first hole, and beyond it, one bit each.

A key group receives only a part of an execution, and so only some counters of each node: holes are
never filled, and many counters are beyond them. As bits in chunks they take little memory, and each
chunk is one record of the saved state (`ketal.runtime.state.records`).

The one rule: bits at or below `upto`, the counter up to which all were seen, are ignored,
whether they are set or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

SPAN = 2_048
"""Counters in one chunk."""
BIT: Final = [1 << bit for bit in range(SPAN)]
"""The mask of each counter in its chunk."""


class Counters:
    """A set of counters beyond a hole; if `tracking`, it collects the numbers of dirty chunks."""

    __slots__ = ("_lowest", "chunks", "count", "dirty")

    def __init__(self, *, tracking: bool) -> None:
        # Chunk `n` has the bits of the `SPAN` counters from `n * SPAN` on.
        self.chunks: dict[int, int] = {}
        self._lowest = 0  # No chunk has a number below it.
        self.count = 0  # how many counters above `upto` are in the set
        # The numbers of dirty chunks, evicted ones included.
        self.dirty: set[int] | None = set() if tracking else None

    def __contains__(self, counter: Any) -> bool:
        return bool(self.chunks.get(counter // SPAN, 0) & BIT[counter % SPAN])

    def __len__(self) -> int:
        return self.count

    def last_after(self, counter: int) -> int:
        """Return the last counter that follows `counter` without a hole; `counter` if none does."""
        chunks = self.chunks
        while bits := chunks.get((counter + 1) // SPAN, 0) >> (counter + 1) % SPAN:
            following = (~bits & bits + 1).bit_length() - 1  # bits from the lowest on that are set
            counter += following
            if not following or (counter + 1) % SPAN:
                break
        return counter

    def add(self, counter: int) -> bool:
        """Add a counter; return whether it was not in the set."""
        number, bit = counter // SPAN, BIT[counter % SPAN]
        chunk = self.chunks.get(number)
        if chunk is None:
            self._add_chunk(number)
            chunk = 0
        elif chunk & bit:
            return False
        self.chunks[number] = chunk | bit
        self.count += 1
        if self.dirty is not None:
            self.dirty.add(number)
        return True

    def _add_chunk(self, number: int) -> None:
        """Add an empty chunk."""
        if number < self._lowest or not self.chunks:
            self._lowest = number
        self.chunks[number] = 0

    def _ascending(self) -> Iterator[int]:
        """Yield the numbers of the chunks in ascending order."""
        chunks, number, left = self.chunks, self._lowest, len(self.chunks)
        for _ in range(2 * left):
            if number in chunks:
                yield number
                left -= 1
                if not left:
                    return
            number += 1
        # The chunks are sparse: sorting is faster than counting up.
        yield from sorted(n for n in chunks if n >= number)

    def _bits_above(self, number: int, upto: int) -> int:
        """Return the bits of a chunk for counters above `upto`."""
        below = max(0, upto + 1 - number * SPAN)
        return self.chunks[number] >> below << below

    def after(self, upto: int) -> Iterator[int]:
        """Yield the counters above `upto`, in order."""
        for number in self._ascending():
            marks = f"{self._bits_above(number, upto):b}"[::-1]
            at = marks.find("1")
            while at >= 0:
                yield number * SPAN + at
                at = marks.find("1", at + 1)

    def holes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of each range of counters between two that are not in the set."""
        for number in self._ascending():
            at = max(first, number * SPAN)
            bits = self.chunks[number] >> at - number * SPAN if at < (number + 1) * SPAN else 0
            while bits and at <= last:
                unset_count = (bits & -bits).bit_length() - 1
                if first < at + unset_count:
                    yield first, min(at + unset_count - 1, last)
                bits >>= unset_count
                set_count = (~bits & bits + 1).bit_length() - 1
                bits >>= set_count
                first = at = at + unset_count + set_count
            if at > last:
                break
        if first <= last:
            yield first, last

    def nth_after(self, number: int, upto: int) -> int:
        """Return the n-th counter above `upto`, where `number` is n, from 1."""
        return next(islice(self.after(upto), number - 1, None))

    def highest(self) -> int:
        """Return the highest counter; 0 if the set is empty."""
        if not self.count:
            return 0
        number = max(self.chunks)
        return number * SPAN + self.chunks[number].bit_length() - 1

    def drop(self, upto: int) -> None:
        """Evict the chunks without a counter above `upto`; all chunks if `count` is 0."""
        gone = []
        for number in self._ascending():
            if self.count and (number + 1) * SPAN > upto + 1:
                self._lowest = number
                break
            gone.append(number)
        for number in gone:
            del self.chunks[number]
            if self.dirty is not None:
                self.dirty.add(number)

    def packed(self, number: int, upto: int) -> bytes | None:
        """Return the bits of a chunk for counters above `upto`, as bytes; None if none is set."""
        if number not in self.chunks:
            return None
        above = self._bits_above(number, upto)
        return above.to_bytes(above.bit_length() + 7 >> 3, "little") or None

    def put(self, number: int, packed: bytes, upto: int) -> None:
        """Restore a chunk from bytes; a ValueError if there are more bytes than a chunk has."""
        if len(packed) > SPAN >> 3:
            raise ValueError(
                f"a chunk of counters has {len(packed)} bytes; the maximum is {SPAN >> 3}"
            )
        self._add_chunk(number)
        self.chunks[number] = int.from_bytes(packed, "little")
        self.count += self._bits_above(number, upto).bit_count()


class SeenCounters:
    """The counters of one node that were seen."""

    __slots__ = ("beyond", "evicted", "upto")

    def __init__(self, *, tracking: bool) -> None:
        self.upto = 0  # up to which all were seen, or are evicted
        self.beyond = Counters(tracking=tracking)  # those seen beyond the first hole
        self.evicted = 0  # up to which holes were closed by eviction, without their events

    def __contains__(self, counter: int) -> bool:
        return counter <= self.upto or counter in self.beyond

    @property
    def highest(self) -> int:
        """The highest seen counter."""
        return max(self.upto, self.beyond.highest())
