"""How many examples `make test` and `make long` run, and random choices that shrink.

`KETAL_LONG=1` is the only setting. Without it a property has few examples, always the same;
with it many, different in every run, of which Hypothesis saves those that failed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., None])

LONG = os.environ.get("KETAL_LONG") == "1"

in_long = pytest.mark.skipif(
    not LONG and "KETAL_CHAOS" not in os.environ, reason="`make long` and `make chaos` have it"
)
"""Marks a test that takes about a minute; `make test` has a smaller test of the same behaviour."""

# No deadline: on a busy machine an example may take long.
settings.register_profile("sample", deadline=None, derandomize=True, max_examples=50)
settings.register_profile(
    "long", deadline=None, derandomize=False, print_blob=True, max_examples=1_000
)


SEED = 1
"""The seed of the examples in `make test`."""


def load_profile() -> None:
    """Load the Hypothesis profile of `make test` or of `make long`."""
    settings.load_profile("long" if LONG else "sample")


def sample(few: T, whole: T) -> T:
    """Return `whole` in `make long`, else `few`."""
    return whole if LONG else few


class Chances(random.Random):
    """Random choices determined by the bytes of a tape; after its end the simplest choices.

    Hypothesis draws the tape as a whole, which takes a tenth of the time of `st.randoms`, and
    shrinks it: a zero chooses the first of several options, and omits an optional part.
    """

    def __new__(cls, tape: bytes) -> Chances:
        return super().__new__(cls)

    def __init__(self, tape: bytes) -> None:
        super().__init__(0)
        self._tape = tape
        self._bytes = iter(tape)

    def __repr__(self) -> str:
        return f"Chances({self._tape.rstrip(bytes(1))!r})"

    def _randbelow(self, n: int) -> int:
        drawn, span = next(self._bytes, 0), 256
        while span < n:
            drawn, span = drawn * 256 + next(self._bytes, 0), span * 256
        return drawn % n

    def random(self) -> float:
        return (255 - next(self._bytes, 0)) / 256

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        # Python's own redraws duplicates, which would never end after the end of the tape.
        assert counts is None
        pool = list(population)
        return [pool.pop(self._randbelow(len(pool))) for _ in range(k)]

    def shuffle(self, x: Any) -> None:
        x[:] = self.sample(x, len(x))


def chances(tape_bytes: int = 1_024) -> st.SearchStrategy[random.Random]:
    """Return a strategy of `random.Random` whose choices shrink; a choice uses one or two bytes."""
    # Of fixed length: otherwise each byte would need another draw for whether the tape continues.
    return st.binary(min_size=tape_bytes, max_size=tape_bytes).map(Chances)


def examples(few: int, whole: int | None = None) -> Callable[[Test], Test]:
    """Give a property `few` examples, or `whole` in `make long`.

    The examples of `make test` come from one fixed seed. Hypothesis would derive a seed from the
    source of each property, so that renaming a local variable would change the examples.
    """
    # Half of a generator's patterns may be of no use to a test, which then rejects them.
    chosen = settings(
        max_examples=few if whole is None else sample(few, whole),
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    return lambda test: chosen(test if LONG else seed(SEED)(test))


def drawn(few: int, whole: int | None = None) -> Callable[[Callable[[random.Random], None]], None]:
    """Run a property at once, within a test that counts its cases.

    It decorates a function in that test, whose argument is drawn from `chances`.
    """

    def tried(holds: Callable[[random.Random], None]) -> None:
        examples(few, whole)(given(chances())(holds))()

    return tried
