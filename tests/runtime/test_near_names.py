"""The names of a log that are near a name of a pattern: bounded distances, in bounded time."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from ketal.compiler.counted.named_values import NamedValue
from ketal.runtime.silence.near_names import _edits, nearest

WORDS = st.text("abc", max_size=8)


@given(one=WORDS, other=WORDS, most=st.integers(0, 2))
def test_a_bounded_distance_is_the_unbounded_one_or_too_far(
    one: str, other: str, most: int
) -> None:
    whole, bounded = _edits(one, other, 99), _edits(one, other, most)
    assert bounded == whole if whole <= most else bounded > most


def test_many_names_of_a_pattern_are_compared_in_time() -> None:
    """Once, all names of pattern and log were compared anew for each unknown name."""
    own = [NamedValue("type", f"own name {chr(97 + n % 26)}{n}") for n in range(3_000)]
    known = {f"name of log {chr(97 + n % 26)}{n}": 1 for n in range(1_000)} | {"own nmae b1": 1}
    started = time.process_time()
    assert [nearest(name, known, own) for name in own[:50]][1] == "own nmae b1"
    assert time.process_time() - started < 3
