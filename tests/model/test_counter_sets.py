"""Sets of counters beyond holes (`ketal.model.events.counter_sets`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.model.events.counter_sets import SPAN, Counters

counter_sets: Any = st.sets(
    st.one_of(st.integers(1, 40), st.integers(1_000, 1_060), st.integers(9_000, 9_009))
)


@given(counters=counter_sets, upto=st.integers(0, 1_100))
def test_set_contains_exactly_the_added_counters(counters: set[int], upto: int) -> None:
    counters = {counter for counter in counters if counter > upto}
    line = Counters(tracking=True)
    for counter in sorted(counters):
        line.add(counter)
    assert line.count == len(counters)
    assert line.dirty == {counter // SPAN for counter in counters}
    assert list(line.after(0)) == sorted(counters)
    for number, counter in enumerate(line.after(upto), 1):
        assert line.nth_after(number, upto) == counter
    absent = [c for first, last in line.holes(upto + 1, 9_005) for c in range(first, last + 1)]
    assert absent == [c for c in range(upto + 1, 9_006) if c not in counters]
    for chunk in line.chunks:
        again = Counters(tracking=False)
        again.put(chunk, line.packed(chunk, upto) or b"", upto)
        assert list(again.after(upto)) == [c for c in line.after(upto) if c // SPAN == chunk]


def test_counters_at_or_below_the_first_hole_are_ignored() -> None:
    line = Counters(tracking=False)
    for counter in (3, 5):
        line.add(counter)
    assert line.packed(0, 5) is None
    assert line.packed(0, 4) == line.packed(0, 3) != line.packed(0, 2)
    assert line.packed(7, 0) is None


@given(
    counters=st.sets(st.integers(1, 2**62) | st.integers(1, 5_000), min_size=1),
    cuts=st.lists(st.integers(0, 100), max_size=4),
)
def test_dropped_chunks_are_removed(counters: set[int], cuts: list[int]) -> None:
    line, left = Counters(tracking=True), sorted(counters)
    for counter in counters:
        line.add(counter)
    for cut in cuts:
        if not left:
            break
        upto = left[cut % len(left)]
        line.count -= sum(counter <= upto for counter in left)
        left = [counter for counter in left if counter > upto]
        line.drop(upto)
        assert list(line.after(upto)) == left
        assert {counter // SPAN for counter in left} <= line.chunks.keys()
        assert all(left and (chunk + 1) * SPAN > upto + 1 for chunk in line.chunks)
        assert all(line.nth_after(n, upto) == counter for n, counter in enumerate(left, 1))
        line.add(upto + 1_000_000)
        left = sorted({*left, upto + 1_000_000})
        line.count = len(left)


def test_chunk_with_too_many_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{SPAN // 8 + 1} bytes; the maximum is {SPAN // 8}$"):
        Counters(tracking=False).put(0, b"\1" * (SPAN // 8 + 1), 0)
