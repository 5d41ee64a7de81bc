"""Version stamps, reduced and not, against the sets of updates that versions know.

Almeida, Baquero and Fonte, "Version Stamps - Decentralized Version Vectors", ICDCS 2002.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.versions.version_stamps import (
    SEED,
    VersionStamp,
    fork,
    join,
    leq,
    reduced,
    update,
)
from tests.sampling import sample


@dataclass(frozen=True)
class KnownVersion:
    """A version: the numbers of the updates that it knows, and its stamps."""

    knows: frozenset[int]
    plain: VersionStamp
    short: VersionStamp


Step = tuple[str, int, int]
"""What happens, to which version of the frontier, and with which other one."""

STEPS = st.tuples(st.sampled_from(["update", "fork", "join"]), st.integers(0, 9), st.integers(0, 8))


def _next_frontier(frontier: list[KnownVersion], number: int, step: Step) -> list[KnownVersion]:
    kind, first, second = step
    at = first % len(frontier)
    one, others = frontier[at], frontier[:at] + frontier[at + 1 :]
    match kind:
        case "fork" if len(others) < 9:
            plain, short = fork(one.plain), fork(one.short)
            forked = [KnownVersion(one.knows, *both) for both in zip(plain, short, strict=True)]
            return [*others, *forked]
        case "join" if others:
            other = others.pop(second % len(others))
            plain_join, short_join = join(one.plain, other.plain), join(one.short, other.short)
            joined = KnownVersion(one.knows | other.knows, plain_join, reduced(short_join))
            return [*others, joined]
        case _:
            knows = one.knows | {number}
            return [*others, KnownVersion(knows, update(one.plain), update(one.short))]


def _symbols(stamp: VersionStamp) -> int:
    return sum(len(one) + 1 for one in stamp.update + stamp.identity)


def _validate_state(stamps: list[VersionStamp]) -> None:
    """Assert the module's one rule, and that names are sorted and free of prefixes."""
    identities = sorted(one for stamp in stamps for one in stamp.identity)
    names = [identities, *(name for stamp in stamps for name in (stamp.update, stamp.identity))]
    for name in names:
        assert list(name) == sorted(name)
        assert not any(after.startswith(before) for before, after in pairwise(name))
    for stamp in stamps:
        for known in stamp.update:
            assert any(one.startswith(known) for one in stamp.identity)


@given(steps=st.lists(STEPS, max_size=sample(30, 40)))
def test_versions_of_a_frontier_are_ordered_by_known_updates(steps: list[Step]) -> None:
    """Stamps reduced at every join and stamps never reduced order the frontier equally."""
    frontier = [KnownVersion(frozenset(), SEED, SEED)]
    for number, step in enumerate(steps):
        frontier = _next_frontier(frontier, number, step)
        _validate_state([one.plain for one in frontier])
        _validate_state([one.short for one in frontier])
        for one in frontier:
            assert _symbols(one.short) <= _symbols(one.plain)
            for other in frontier:
                less = one.knows <= other.knows
                assert leq(one.plain, other.plain) == less
                assert leq(one.short, other.short) == less


@given(steps=st.lists(STEPS, max_size=sample(30, 40)))
def test_joining_all_versions_reduces_to_the_seed(steps: list[Step]) -> None:
    frontier = [KnownVersion(frozenset(), SEED, SEED)]
    for number, step in enumerate([*steps, *[("join", 0, 0)] * 9]):
        if step[0] != "join" or len(frontier) > 1:
            frontier = _next_frontier(frontier, number, step)
    assert [one.short for one in frontier] == [SEED]
    assert reduced(frontier[0].plain) == SEED


@given(steps=st.lists(STEPS, max_size=sample(30, 40)))
def test_frontier_can_be_reduced_at_any_time(steps: list[Step]) -> None:
    """Reduced and other stamps can be mixed, and reducing twice changes nothing."""
    frontier = [KnownVersion(frozenset(), SEED, SEED)]
    for number, step in enumerate(steps):
        frontier = _next_frontier(frontier, number, step)
    for one in frontier:
        short = reduced(one.plain)
        assert reduced(short) == short
        for other in frontier:
            if other is not one:
                assert leq(short, other.plain) == (one.knows <= other.knows)
                assert leq(other.plain, short) == (other.knows <= one.knows)


def test_example_run_of_forks_updates_and_joins() -> None:
    a, b = fork(SEED)
    assert (str(a), str(b)) == ("[ε|0]", "[ε|1]")
    a = update(a)
    assert str(a) == "[0|0]"
    assert leq(b, a)
    assert not leq(a, b)
    b, c = fork(update(b))
    assert (str(b), str(c)) == ("[1|10]", "[1|11]")
    assert leq(b, c)
    assert leq(c, b)
    assert not leq(a, c)
    assert not leq(c, a)
    both = join(a, update(c))
    assert str(both) == str(reduced(both)) == "[0+11|0+11]"
    assert leq(b, both)
    assert str(join(b, both)) == "[0+11|0+10+11]"
    assert reduced(join(b, both)) == SEED


def test_only_coexisting_versions_are_ordered() -> None:
    """A replaced version is not ordered; for past events there are other stamps."""
    first = update(SEED)
    assert leq(update(first), first)  # a second update is not counted
    a, b = fork(SEED)
    old = update(a)
    assert not leq(old, reduced(join(old, b)))  # although its updates are known there
    assert leq(old, join(old, b))


def test_versions_with_overlapping_identities_cannot_be_joined() -> None:
    a, b = fork(SEED)
    for pair in ((a, a), (a, SEED), (fork(b)[1], b)):
        with pytest.raises(ValueError, match="overlapping"):
            join(*pair)
