"""The keys of key groups: each task gets as many groups as any other.

Spark puts a key into one of its shuffle partitions by the hash of the key. Of the numbers from 0 to
15 three out of four partitions would have 3, 3 and 4 and the last one 6, and a batch ends with its
last task. So a group's key is its number, and in the upper half what makes its hash the next one in
turn.

The one rule: a key says the number of its group; which key that is, is part of the checkpoint.
"""

from __future__ import annotations

import functools
import itertools

TURNS = 2_880
"""Keys are spread evenly over every number of partitions that divides this one: 1 to 6, 8, 9, 10,
12, 15, 16, 18, 20, 24, 32, 36, 48, 64, …; over others as their hashes happen to be."""
SPREAD_MAX = 256
"""Of more groups than these most partitions have many, whatever their hashes are."""
_NUMBER_BITS = 32
_SEED = 42
_WORD = 0xFFFFFFFF


def number_of(key: int) -> int:
    """Return the number of the group that has a key."""
    return key & _WORD


@functools.lru_cache(maxsize=8)
def keys(count: int) -> tuple[int, ...] | None:
    """Return the key of each of so many groups, by its number; None where they are the numbers.

    Parameters
    ----------
    count : int
        How many groups there are.
    """
    return tuple(map(_key, range(count))) if 1 < count <= SPREAD_MAX else None


def _key(number: int) -> int:
    tries = (upper << _NUMBER_BITS | number for upper in itertools.count())
    return next(key for key in tries if hash_of(key) % TURNS == number % TURNS)


def hash_of(key: int) -> int:
    """Return Spark's hash of a bigint that is not below zero: Murmur3 (x86, 32 bits) of 8 bytes."""
    h = _SEED
    for word in (key & _WORD, key >> 32):
        k = word * 0xCC9E2D51 & _WORD
        k = (k << 15 | k >> 17) & _WORD
        h ^= k * 0x1B873593 & _WORD
        h = (h << 13 | h >> 19) & _WORD
        h = h * 5 + 0xE6546B64 & _WORD
    h ^= 8
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & _WORD
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
