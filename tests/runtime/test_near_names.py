"""The names of a log that are near a name of a pattern: bounded distances, with bounded work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ketal.compiler.counted.named_values import NamedValue
from ketal.runtime.silence.near_names import _edits, nearest
from tests.work import counted_calls

WORDS = st.text("abc", max_size=8)


@given(one=WORDS, other=WORDS, most=st.integers(0, 2))
def test_a_bounded_distance_is_the_unbounded_one_or_too_far(
    one: str, other: str, most: int
) -> None:
    whole, bounded = _edits(one, other, 99), _edits(one, other, most)
    assert bounded == whole if whole <= most else bounded > most


def test_a_near_name_costs_the_names_of_the_log_not_those_of_the_pattern() -> None:
    """Once, all names of pattern and log were compared anew for each unknown name."""
    known = {f"name of log {chr(97 + n % 26)}{n}": 1 for n in range(200)} | {"own nmae b1": 1}

    def work(names: int) -> int:
        own = [NamedValue("type", f"own name {chr(97 + n % 26)}{n}") for n in range(names)]
        proposed, calls = counted_calls(lambda: nearest(own[1], known, own))
        assert proposed == "own nmae b1"
        return calls

    work(30)  # what is computed only once
    assert work(300) < 1.1 * work(30)


def test_names_of_signs_alone_are_not_near_each_other() -> None:
    own = NamedValue("type", "a_b")
    assert nearest(own, {"ab": 1}, [own]) == "ab"
    signs = NamedValue("type", "_")
    assert nearest(signs, {"__": 1}, [signs]) is None
