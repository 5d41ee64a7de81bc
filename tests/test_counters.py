"""Counters beyond holes, many at once (`ketal.counters`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.counters import SPAN, Counters, bits_of

some: Any = st.sets(
    st.one_of(st.integers(1, 40), st.integers(1_000, 1_060), st.integers(9_000, 9_009))
)


@given(before=some, more=some, upto=st.integers(0, 1_100))
def test_many_at_once_are_one_after_another(before: set[int], more: set[int], upto: int) -> None:
    before = {counter for counter in before if counter > upto}
    more = {counter for counter in more if counter > upto}
    single, together = Counters(tracking=True), Counters(tracking=True)
    for counter in sorted(before):
        single.add(counter)
    together.add_all(bits_of(before))
    assert together.has_some(bits_of(more)) == bool(before & more)
    for counter in sorted(more - before):
        single.add(counter)
    together.add_all(bits_of(more - before))
    assert together.count == single.count == len(before | more)
    assert together.changed == single.changed
    assert list(together) == list(single) == sorted(before | more)
    for number, counter in enumerate(single.after(upto), 1):
        assert single.place(number, upto) == counter
    for chunk in single.chunks:
        packed = single.packed(chunk, upto)
        assert packed == together.packed(chunk, upto)
        again = Counters(tracking=False)
        again.put(chunk, packed or b"", upto)
        assert list(again.after(upto)) == [c for c in single.after(upto) if c // SPAN == chunk]


@given(counters=some, first=st.integers(1, SPAN + 76), count=st.integers(1, 2 * SPAN))
def test_a_stretch_is_its_counters(counters: set[int], first: int, count: int) -> None:
    line = Counters(tracking=False)
    line.add_all(bits_of(counters))
    stretch = range(first, first + count)
    assert line.has_some(bits_of(stretch)) == any(counter in stretch for counter in counters)


def test_what_is_below_counts_for_nothing() -> None:
    line = Counters(tracking=False)
    line.add_all(bits_of([3, 5]))
    assert line.packed(0, 5) is None
    assert line.packed(0, 4) == line.packed(0, 3) != line.packed(0, 2)
    assert line.packed(7, 0) is None


@given(
    counters=st.sets(st.integers(1, 2**62) | st.integers(1, 5_000), min_size=1),
    cuts=st.lists(st.integers(0, 100), max_size=4),
)
def test_what_is_dropped_is_gone(counters: set[int], cuts: list[int]) -> None:
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
        assert all(line.place(n, upto) == counter for n, counter in enumerate(left, 1))
        line.add(upto + 1_000_000)
        left = sorted({*left, upto + 1_000_000})
        line.count = len(left)


def test_a_chunk_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{SPAN // 8 + 1} bytes, not {SPAN // 8}"):
        Counters(tracking=False).put(0, b"\1" * (SPAN // 8 + 1), 0)
