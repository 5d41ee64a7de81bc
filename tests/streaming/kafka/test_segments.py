"""The changelog's segments: what is read is what was written, and its size is bounded."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ketal.runtime.state.records import Changes
from ketal.streaming.kafka.state import segments as module
from ketal.streaming.kafka.state.segments import Segments, first_hole

NAMES = st.sampled_from([b"a", b"b", b"c", b"job/offsets"])
VALUES = st.none() | st.binary(max_size=40)


class Log:
    """Segments as a topic keeps them, and the state that they are to give."""

    def __init__(self, bytes_max: int = 50) -> None:
        self.bytes_max = bytes_max
        self.segments = Segments(bytes_max)
        self.kept: dict[int, bytes] = {}
        self.state: dict[bytes, bytes] = {}
        self.written = 0

    def commit(self, changes: Changes) -> int:
        """Return how many bytes the commit wrote."""
        written = 0
        for number, content in self.segments.append(changes).items():
            if content is None:
                del self.kept[number]
            else:
                assert number not in self.kept
                self.kept[number] = content
                written += len(content)
        for name, value in changes.items():
            self.state.pop(name, None)
            if value is not None:
                self.state[name] = value
        return written

    def reopen(self) -> Segments:
        """Go on from what is kept."""
        self.segments = Segments(self.bytes_max)
        for number, content in sorted(self.kept.items()):
            self.segments.restore(number, content)
        return self.segments


@given(st.lists(st.tuples(st.dictionaries(NAMES, VALUES), st.booleans()), max_size=60))
def test_what_is_read_is_what_was_written(
    commits: list[tuple[Changes, bool]],
) -> None:
    """After each commit, whoever goes on; where everything that can be cleaned is."""
    log, least = Log(), module.LOG_BYTES_LEAST
    module.LOG_BYTES_LEAST = 0
    try:
        for changes, reopened in commits:
            log.commit(changes)
            assert log.segments.records() == log.state
            numbers = sorted(log.kept)
            assert not numbers or numbers[0] == log.segments.first
            assert first_hole(numbers, log.segments.first) is None
            if reopened:
                assert log.reopen().records() == log.state
    finally:
        module.LOG_BYTES_LEAST = least


def test_the_log_stays_within_three_times_the_state_and_a_commit_within_twice_its_changes() -> None:
    """Records that never change among some that always do; and it shrinks with the state."""
    chance, log = random.Random(1), Log(bytes_max=10_000)
    names = [b"scope/%d" % number for number in range(60_000)]
    first: Changes = dict.fromkeys(names, b"x" * 100)
    log.commit(first)
    state = sum(map(len, log.kept.values()))
    for _ in range(400):
        changes: Changes = dict.fromkeys(chance.sample(names[:20000], 500), b"y" * 100)
        assert log.commit(changes) <= 2.5 * len(msgspec.msgpack.encode(changes))
        assert sum(map(len, log.kept.values())) <= 3 * state
    assert log.segments.first > 0
    log.commit(dict.fromkeys(names))
    log.commit({b"a": b"1"})
    assert sum(map(len, log.kept.values())) <= module.LOG_BYTES_LEAST
    assert log.reopen().records() == {b"a": b"1"}
