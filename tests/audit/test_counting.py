"""The fewest faults that explain a node's own entries, against all selections of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from ketal.counting import counted

KEPT, WRONG, TWICE = range(3)


def readings(entries: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield all readings: how many faults they have, and the counters."""
    for kinds in product((KEPT, WRONG, TWICE), repeat=len(entries)):
        counters: list[int] = []
        faults = last = room = 0
        for at, (kind, entry) in enumerate(zip(kinds, entries, strict=True)):
            if kind == TWICE:
                if not at or kinds[at - 1] == WRONG or not entry == entries[at - 1] > 0:
                    break
                faults += 1
            elif kind == KEPT:
                if entry < last + room + 1:
                    break
                faults += entry > last + room + 1
                last, room = entry, 0
            else:
                room += 1
                faults += entry > 0
            counters.append(last + room)
        else:
            yield faults, counters


@pytest.mark.parametrize("seed", range(200))
def test_a_reading_has_as_few_faults_as_any(seed: int) -> None:
    rng = random.Random(seed)
    entries = list(range(1, rng.randint(1, 7) + 1))
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(entries))
        kind = rng.choice(("wrong", "wrong", "none", "lost", "twice"))
        if kind == "lost":
            del entries[at : at + (len(entries) > 1)]
        elif kind == "twice":
            entries.insert(at, entries[at])
        else:
            entries[at] = rng.randint(1, 9) if kind == "wrong" else 0
    entries = entries[:8]
    found = counted(entries)
    possible = list(readings(entries))
    fewest = min(faults for faults, _ in possible)
    best = [counters for faults, counters in possible if faults == fewest]
    assert found.faults == fewest
    assert found.counters in best
    for at, sure in enumerate(found.sure):
        if sure:
            assert {counters[at] for counters in best} == {found.counters[at]}, (entries, best)


@pytest.mark.parametrize(
    ("entries", "counters"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 100, 107, 4], [1, 2, 3, 4]),
        ([1, 2, 3, 1, 2, 6], [1, 2, 3, 4, 5, 6]),
        ([1, 2, 2, 3, 4, 5, 6], [1, 2, 2, 3, 4, 5, 6]),
        ([1, 2, 9, 10, 11, 12], [1, 2, 9, 10, 11, 12]),
        # The last event may be a late one as well as a wrong one.
        ([1, 2, 4], [1, 2, 4]),
        ([0, 2, 0, 4], [1, 2, 3, 4]),
    ],
)
def test_what_an_eye_sees(entries: list[int], counters: list[int]) -> None:
    assert counted(entries).counters == counters
