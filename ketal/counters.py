"""Which counters of a node were seen beyond a hole, a bit each (DESIGN 2).

A part of an execution, as a key group has it, sees of each node some counters only, so there
are holes for ever and many counters beyond them. As bits in chunks they take little memory,
and a chunk is what a record of the state holds (`ketal.records`).

The one rule: what is below the counter up to which all is known counts for nothing, whether
its bit is set or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

SPAN = 2_048
"""Counters in one chunk."""
_BIT = [1 << bit for bit in range(SPAN)]
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def bits_of(counters: Iterable[int]) -> dict[int, int]:
    """Return the bits of counters in each chunk, by number."""
    bits: dict[int, int] = defaultdict(int)
    for counter in counters:
        bits[counter // SPAN] |= _BIT[counter % SPAN]
    return bits


def _place(bits: int, number: int) -> int:
    """Return which bit is the one of a number, from 1 on, that is set."""
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
        Whether to take note of which chunks change.

    Attributes
    ----------
    chunks : dict of int to int
        Chunk `n` has the bits of the `SPAN` counters from `n * SPAN` on.
    count : int
        How many there are, without those that count for nothing.
    changed : set of int, or None
        The chunks that changed, gone ones too; None if nobody asks.
    """

    __slots__ = ("_lowest", "changed", "chunks", "count")

    def __init__(self, *, tracking: bool) -> None:
        self.chunks: dict[int, int] = {}
        self._lowest = 0  # No chunk has a number below it.
        self.count = 0
        self.changed: set[int] | None = set() if tracking else None

    def __contains__(self, counter: Any) -> bool:
        return bool(self.chunks.get(counter // SPAN, 0) & _BIT[counter % SPAN])

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return self.after(0)

    def add(self, counter: int) -> None:
        """Put in a counter that is not there."""
        number = counter // SPAN
        if number not in self.chunks:
            self._begin(number)
        self.chunks[number] |= _BIT[counter % SPAN]
        self.count += 1
        if self.changed is not None:
            self.changed.add(number)

    def _begin(self, number: int) -> None:
        """Make room for a chunk that is new."""
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

    def add_all(self, bits: Mapping[int, int]) -> None:
        """Put in counters that are not there: of each chunk, by number, the bits."""
        chunks = self.chunks
        for number, some in bits.items():
            if number not in chunks:
                self._begin(number)
            chunks[number] |= some
        self.count += sum(map(int.bit_count, bits.values()))
        if self.changed is not None:
            self.changed.update(bits)

    def has_some(self, bits: Mapping[int, int]) -> bool:
        """Return whether one of some counters is there: of each chunk, by number, the bits."""
        get = self.chunks.get
        return bool(self.count) and any(some & get(number, 0) for number, some in bits.items())

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

    def place(self, number: int, upto: int) -> int:
        """Return which is the one of a number, from 1 on, among those above a counter."""
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
        """Let go of the chunks that have nothing above a counter, or of all where none is left."""
        gone = []
        for number in self._ascending():
            if self.count and (number + 1) * SPAN > upto + 1:
                self._lowest = number
                break
            gone.append(number)
        for number in gone:
            del self.chunks[number]
            if self.changed is not None:
                self.changed.add(number)

    def packed(self, number: int, upto: int) -> bytes | None:
        """Return the bits of a chunk that are above a counter; None if there are none."""
        if number not in self.chunks:
            return None
        above = self._above(number, upto)
        return above.to_bytes(above.bit_length() + 7 >> 3, "little") or None

    def put(self, number: int, packed: bytes, upto: int) -> None:
        """Put back a chunk; `upto` is the counter up to which all is known.

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
