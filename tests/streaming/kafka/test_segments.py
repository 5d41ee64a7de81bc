"""The changelog's segments: they read back as written, and their size is bounded."""

from __future__ import annotations

import itertools
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ketal.runtime.state.records import Changes
from ketal.streaming.kafka.state import segments as module
from ketal.streaming.kafka.state.segments import RECORD_BYTES, Segments, chunks, first_hole

NAMES = st.sampled_from([b"a", b"b", b"c", b"job/offsets"])
VALUES = st.none() | st.binary(max_size=40)


class Log:
    """Segments as a topic keeps them, and the state that they should restore."""

    def __init__(self, bytes_max: int = 50) -> None:
        self.bytes_max = bytes_max
        self.segments = Segments(bytes_max)
        self.topic: dict[int, bytes] = {}
        self.state: dict[bytes, bytes] = {}
        self.written = 0

    def commit(self, changes: Changes) -> int:
        """Return the number of bytes that the commit wrote."""
        written = 0
        for number, content in self.segments.append(changes).items():
            if content is None:
                del self.topic[number]
            else:
                assert number not in self.topic
                self.topic[number] = content
                written += len(content)
        for name, value in changes.items():
            self.state.pop(name, None)
            if value is not None:
                self.state[name] = value
        return written

    def reopen(self) -> Segments:
        """Resume from the kept segments."""
        self.segments = Segments(self.bytes_max)
        for number, content in sorted(self.topic.items()):
            self.segments.restore(number, content)
        return self.segments


@given(st.lists(st.tuples(st.dictionaries(NAMES, VALUES), st.booleans()), max_size=60))
def test_segments_restore_the_written_state(
    commits: list[tuple[Changes, bool]],
) -> None:
    """After each commit, by the same or a new writer, with all that can be compacted compacted."""
    log, least = Log(), module.LOG_BYTES_LEAST
    module.LOG_BYTES_LEAST = 0
    try:
        for changes, reopened in commits:
            log.commit(changes)
            assert log.segments.records() == log.state
            numbers = sorted(log.topic)
            assert not numbers or numbers[0] == log.segments.first
            assert first_hole(numbers, log.segments.first) is None
            if reopened:
                assert log.reopen().records() == log.state
    finally:
        module.LOG_BYTES_LEAST = least


@given(st.dictionaries(st.binary(min_size=1, max_size=3), VALUES), st.integers(1, 200))
def test_chunks_hold_as_many_records_as_fit_and_at_least_one(
    rows: dict[bytes, bytes | None], bytes_max: int
) -> None:
    def size(chunk: Changes) -> int:
        return sum(len(name) + len(value or b"") + RECORD_BYTES for name, value in chunk.items())

    parts = list(chunks(rows, bytes_max))
    assert [row for chunk in parts for row in chunk.items()] == list(rows.items())
    assert all(len(chunk) == 1 or (chunk and size(chunk) <= bytes_max) for chunk in parts)
    for chunk, following in itertools.pairwise(parts):
        assert size(chunk | dict([next(iter(following.items()))])) > bytes_max


def test_log_size_is_bounded_by_the_state_and_a_commit_by_its_changes() -> None:
    """Some records change always, and others never; the log shrinks with the state."""
    chance, log = random.Random(1), Log(bytes_max=10_000)
    names = [b"scope/%d" % number for number in range(60_000)]
    first: Changes = dict.fromkeys(names, b"x" * 100)
    log.commit(first)
    state = sum(map(len, log.topic.values()))
    for _ in range(400):
        changes: Changes = dict.fromkeys(chance.sample(names[:20000], 500), b"y" * 100)
        assert log.commit(changes) <= 2.5 * len(msgspec.msgpack.encode(changes))
        assert sum(map(len, log.topic.values())) <= 3 * state
    assert log.segments.first > 0
    log.commit(dict.fromkeys(names))
    log.commit({b"a": b"1"})
    assert sum(map(len, log.topic.values())) <= module.LOG_BYTES_LEAST
    assert log.reopen().records() == {b"a": b"1"}
