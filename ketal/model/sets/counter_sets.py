"""Which counters of a node were seen beyond a hole, a bit each.

A key group receives a part of an execution, and of each node some counters only, so
holes are never filled and many counters lie beyond them. As bits in chunks they take
little memory, and a chunk is what one record of the saved state holds
(`ketal.runtime.state.records`).

The one rule: a bit at or below `upto`, the counter up to which all were seen, has no
meaning, whether it is set or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

SPAN = 2_048
"""Counters in one chunk."""
BIT: Final = [1 << bit for bit in range(SPAN)]
"""The bit of each counter in its chunk."""
_BITS: Final = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def _place(bits: int, number: int) -> int:
    """Return the position of the n-th bit that is set, n from 1."""
    first, width = 0, SPAN
    while width > 1:
        width //= 2
        below = (bits >> first & (1 << width) - 1).bit_count()
        if number > below:
            number -= below
            first += width
    return first


class Counters:
    """Counters beyond a hole.

    Parameters
    ----------
    tracking : bool
        Whether to collect the chunks that are dirty.

    Attributes
    ----------
    chunks : dict of int to int
        Chunk `n` has the bits of the `SPAN` counters from `n * SPAN` on.
    count : int
        How many there are above `upto`.
    dirty : set of int, or None
        The dirty chunks, dropped ones too; None without `tracking`.
    """

    __slots__ = ("_lowest", "chunks", "count", "dirty")

    def __init__(self, *, tracking: bool) -> None:
        self.chunks: dict[int, int] = {}
        self._lowest = 0  # No chunk has a number below it.
        self.count = 0
        self.dirty: set[int] | None = set() if tracking else None

    def __contains__(self, counter: Any) -> bool:
        return bool(self.chunks.get(counter // SPAN, 0) & BIT[counter % SPAN])

    def __len__(self) -> int:
        return self.count

    def last_after(self, counter: int) -> int:
        """Return the last of the counters that follow one without a hole; itself for none."""
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
            self._begin(number)
            chunk = 0
        elif chunk & bit:
            return False
        self.chunks[number] = chunk | bit
        self.count += 1
        if self.dirty is not None:
            self.dirty.add(number)
        return True

    def _begin(self, number: int) -> None:
        """Add an empty chunk."""
        if number < self._lowest or not self.chunks:
            self._lowest = number
        self.chunks[number] = 0

    def _ascending(self) -> Iterator[int]:
        """Yield the numbers of the chunks."""
        chunks, number, left = self.chunks, self._lowest, len(self.chunks)
        for _ in range(2 * left):
            if number in chunks:
                yield number
                left -= 1
                if not left:
                    return
            number += 1
        # They lie far apart.
        yield from sorted(n for n in chunks if n >= number)

    def _above(self, number: int, upto: int) -> int:
        """Return the bits of a chunk that are above a counter."""
        below = max(0, upto + 1 - number * SPAN)
        return self.chunks[number] >> below << below

    def after(self, upto: int) -> Iterator[int]:
        """Yield those above a counter, in order."""
        for number in self._ascending():
            first = number * SPAN
            if first + SPAN <= upto + 1:
                continue
            for at, byte in enumerate(self.chunks[number].to_bytes(SPAN >> 3, "little")):
                if byte:
                    for bit in _BITS[byte]:
                        counter = first + 8 * at + bit
                        if counter > upto:
                            yield counter

    def holes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield first and last of each range between two counters in which none is there."""
        for number in self._ascending():
            at = max(first, number * SPAN)
            bits = self.chunks[number] >> at - number * SPAN if at < (number + 1) * SPAN else 0
            while bits and at <= last:
                unset = (bits & -bits).bit_length() - 1
                if first < at + unset:
                    yield first, min(at + unset - 1, last)
                bits >>= unset
                there = (~bits & bits + 1).bit_length() - 1
                bits >>= there
                first = at = at + unset + there
            if at > last:
                break
        if first <= last:
            yield first, last

    def place(self, number: int, upto: int) -> int:
        """Return the n-th counter above a given one, n from 1."""
        for chunk in self._ascending():
            bits = self._above(chunk, upto)
            if number <= bits.bit_count():
                return chunk * SPAN + _place(bits, number)
            number -= bits.bit_count()
        raise IndexError(number)

    def highest(self) -> int:
        """Return the highest counter; 0 if there is none."""
        if not self.count:
            return 0
        number = max(self.chunks)
        return number * SPAN + self.chunks[number].bit_length() - 1

    def drop(self, upto: int) -> None:
        """Evict the chunks without a counter above the given one; all, where none is left."""
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
        """Return the bits of a chunk that are above a counter; None if there are none."""
        if number not in self.chunks:
            return None
        above = self._above(number, upto)
        return above.to_bytes(above.bit_length() + 7 >> 3, "little") or None

    def put(self, number: int, packed: bytes, upto: int) -> None:
        """Restore a chunk; `upto` is the counter up to which all were seen.

        Raises
        ------
        ValueError
            If it has more bits than a chunk.
        """
        if len(packed) > SPAN >> 3:
            raise ValueError(
                f"a chunk of counters has {len(packed)} bytes, not {SPAN >> 3} at most"
            )
        self._begin(number)
        self.chunks[number] = int.from_bytes(packed, "little")
        self.count += self._above(number, upto).bit_count()
