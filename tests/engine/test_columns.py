"""The bounds of a column, which are raised over ranges, against a plain list."""

from __future__ import annotations

import random

from hypothesis import given

from ketal.engine.find_any.columns import BLOCK, REGION, Bounds
from tests.sampling import chances, examples


@examples(40, 1_000)
@given(chances())
def test_bounds_equal_a_plain_list_raised_over_ranges(rng: random.Random) -> None:
    bounds, plain = Bounds(), list[float]()
    for _ in range(rng.choice((3, BLOCK + 1, REGION + 3, 3 * REGION + 5))):
        bounds.insert(len(plain), float(rng.randrange(20)))
        plain.append(bounds.number_at(len(plain)))
    for _ in range(20):
        low, high = sorted(rng.choices(range(len(plain) + 1), k=2))
        value = float(rng.randrange(60))
        before = list(plain)
        plain[low:high] = [max(number, value) for number in plain[low:high]]
        assert bounds.raise_range(low, high, value) or before == plain
        low, high = sorted(rng.choices(range(len(plain) + 1), k=2))
        assert bounds.maximum(low, high) == max(plain[low:high], default=float("-inf"))
        limit = float(rng.randrange(60))
        assert list(bounds.indexes_above(low, high, limit)) == [
            i for i in range(low, high) if plain[i] > limit
        ]
        at = rng.randrange(len(plain) + 1)
        bounds.insert(at, value)
        plain.insert(at, value)
    kept = sorted(rng.sample(range(len(plain)), len(plain) // 2))
    bounds.keep(kept)
    assert [bounds.number_at(i) for i in range(len(kept))] == [plain[i] for i in kept]
