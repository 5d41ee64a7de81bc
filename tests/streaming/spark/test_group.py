"""The code that runs on executors, without Spark: a key group, its rows and its state."""

from __future__ import annotations

import gc
import json
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import ketal
from ketal.errors import SettingError, StateError
from ketal.logs import Source
from ketal.runtime.state.records import FORMAT
from ketal.streaming.spark.families import families, group_limits, row_placements
from ketal.streaming.spark.group import FIGURES, Group, Work
from ketal.streaming.spark.rows.row_reader import ALONE, COPY, HOME, RowShape
from tests.streaming.jobs import END, FORKS, WINDOWED_FORKS, accept

PLAIN = ("copy", "topic", "partition", "offset", "value")
"""The columns of a row whose fields are all in its value."""


def work(text: str = FORKS, *, key_groups: int = 4, partitions: int | None = 2) -> Work:
    found = families(ketal.compile(text), key_groups)
    return Work(
        families=found, placements=row_placements(found, None), counts=False,
        limits=ketal.Limits(), shape=RowShape(PLAIN, (), Source()), partitions=partitions,
        timed=True, figures=True,
    )  # fmt: skip


def rows(*values: bytes, partition: int = 0, copy: int = ALONE, first: int = 0) -> list[Any]:
    return [(copy, "t", partition, first + n, value) for n, value in enumerate(values)]


def verdicts_of(group: Group, given: list[Any]) -> list[dict[str, Any]]:
    return [verdict.to_dict() for verdict in group.process(given)]


def kinds(group: Group, given: list[Any]) -> list[str]:
    return [verdict.kind for verdict in group.process(given)]


def figures(group: Group) -> dict[str, Any]:
    row = group.figures_row(Counter())
    assert row[0] == FIGURES
    counts: dict[str, Any] = json.loads(str(row[5]))
    return counts


def test_group_resumes_from_its_state() -> None:
    at = work()
    group = Group(at, 0, None)
    assert verdicts_of(group, rows(accept("a"))) == []
    group = Group(at, 0, group.state())
    (match,) = verdicts_of(group, rows(accept("b"), first=1))
    assert match["events"] == ["a@1", "b@1"]
    assert figures(group)["messages"] == 2


@pytest.mark.parametrize("key_groups", [1, 4])
def test_group_does_not_wait_for_events_of_other_groups_once_a_node_has_left(
    key_groups: int,
) -> None:
    at = work(key_groups=key_groups)
    group = Group(at, 0, None)
    leave = b'{"type": "ketal.leave", "node": "a"}'
    assert verdicts_of(group, rows(accept("a"))) == []
    assert verdicts_of(group, rows(leave, copy=HOME, first=1)) == []
    found = kinds(group, rows(accept("b", 4), first=2))
    group = Group(at, 0, group.state())
    found += kinds(group, rows(accept("c", 7), first=3))
    assert found == (["match"] * 3 if key_groups > 1 else [])
    counts = figures(group)
    held, doubtful = counts["events"]["held_back"], counts.get("doubtful", 0)
    assert (held, doubtful) == ((0, 2) if key_groups > 1 else (2, 0))


def test_watermark_is_that_of_the_slowest_partition() -> None:
    """Partitions that have ended do not count."""
    group = Group(work(WINDOWED_FORKS), 0, None)
    mark = b'{"type": "ketal.watermark", "time": %d}'
    assert verdicts_of(group, rows(accept("a", time=1))) == []
    assert verdicts_of(group, rows(mark % 100, copy=HOME)) == []
    assert group.awaits_watermark
    assert kinds(group, rows(mark % 50, partition=1, copy=HOME)) == ["timed_out"]
    assert not group.awaits_watermark
    assert kinds(group, rows(accept("b", time=49))) == ["late"]
    assert verdicts_of(group, rows(accept("c", time=60))) == []
    # The slower partition has ended, so the other alone decides the watermark.
    assert kinds(group, rows(END, partition=1, copy=HOME)) == ["timed_out"]


def test_execution_ends_with_its_last_partition() -> None:
    at = work(WINDOWED_FORKS)
    group = Group(at, 0, None)
    assert verdicts_of(group, rows(accept("a", time=1)) + rows(END, copy=HOME, first=1)) == []
    (verdict,) = verdicts_of(group, rows(accept("b", time=2), first=2))
    assert (verdict["place"], verdict["reason"]) == ("t/0/2", "its partition has ended (ketal.end)")
    group = Group(at, 0, group.state())
    assert kinds(group, rows(END, partition=1, copy=HOME)) == ["timed_out"]
    of = figures(group)
    assert of["ended"]
    assert of["messages"] == of["events"]["read"] + of["control"] == 4
    assert group.advance(10**9) == []


def test_end_ends_only_its_partition_if_the_number_of_partitions_is_unknown() -> None:
    group = Group(work(partitions=None), 0, None)
    assert verdicts_of(group, rows(END, partition=1, copy=HOME)) == []
    assert not figures(group)["ended"]
    assert kinds(group, rows(accept("a"), partition=1)) == ["rejected"]
    assert kinds(group, rows(accept("a"), accept("b"))) == ["match"]


SEVERAL = FORKS + FORKS.replace("Forks", "Other").replace("by height", "by hash")


def test_messages_sent_to_all_groups_are_counted_by_one_group() -> None:
    at = work(SEVERAL)
    home, other, second = Group(at, 0, None), Group(at, 1, None), Group(at, 2, None)
    bad_control, join = b'{"type": "ketal.none"}', b'{"type": "ketal.join", "node": "a"}'
    for group, copy, count in ((home, HOME, 1), (second, COPY, 0), (other, COPY, 0)):
        assert len(verdicts_of(group, rows(bad_control, join, copy=copy))) == count
        of = figures(group)
        assert (of["messages"], of["control"]) == (2 * count, count)
    # A malformed message is sent to one group of each family.
    assert kinds(home, rows(b"poison", first=9)) == ["rejected"]
    assert kinds(second, rows(b"poison", first=9)) == []
    # So is a contradiction: two events of one dot with different content.
    twice = rows(accept("z", 5), accept("z", 5, time=1), first=20)
    assert [v["place"] for v in verdicts_of(home, twice)] == ["t/0/21"]
    assert verdicts_of(second, twice) == []


def test_event_is_late_for_all_families_or_for_none() -> None:
    """Also for a family without a window; the first family reports the late event."""
    untimed = FORKS.replace("Forks", "Untimed").replace("by height", "by hash")
    for text in (WINDOWED_FORKS + untimed, untimed + WINDOWED_FORKS):
        at = work(text)
        for number, expected in ((0, ["late"]), (1, [])):
            group = Group(at, number, None)
            assert kinds(group, rows(accept("a", time=1))) == []
            group.advance(50_000)
            group = Group(at, number, group.state())
            assert kinds(group, rows(accept("b", time=2), first=1)) == expected
            events = figures(group)["events"]
            assert (events["accepted"], events["late"]) == (1, 1)


def test_event_rejected_by_the_patterns_of_all_families_is_reported_once() -> None:
    """A pattern whose topology lacks the node rejects the event for itself only."""
    closed = FORKS.replace("partition", "topology { a -> b; } partition")
    other = closed.replace("Forks", "Other").replace("by height", "by hash")
    anyone = other.replace("topology { a -> b; }", "")
    for text, expected in ((closed + other, "rejected"), (closed + anyone, None)):
        at = work(text)
        first, second = Group(at, 0, None), Group(at, 1, None)
        assert kinds(first, rows(accept("z"))) == ([expected] if expected else [])
        assert kinds(second, rows(accept("z"))) == []


TURNS = """
pattern Turns {
    order CausalOrder(frontier = 5 s); partition by height;
    event Red = hash == "r"; event Blue = hash == "b";
    find next Red Blue;
}
"""


def test_group_accepts_an_event_that_is_late_for_a_frontier_in_another_group() -> None:
    """The exception that the pages name: the dependants of the late event are in another group."""

    def event(node: str, time: int, height: int, kind: str, **past: int) -> bytes:
        data = {"height": height, "hash": kind}
        return accept(node, time=time, clock={node: 1, **past}, data=data)

    late, elsewhere = event("a", 10, 1, "r"), event("c", 12, 2, "r", a=1)
    for before, expected in (([elsewhere], ["late"]), ([], ["match"])):
        group = Group(work(TURNS), 0, None)
        assert verdicts_of(group, rows(*before)) == []
        group.advance(50_000)
        assert (
            kinds(group, rows(late, event("b", 60, 1, "b"), first=5))
            + [verdict.kind for verdict in group.advance(100_000)]
            == expected
        )
    # An event that is not behind the watermark gives the same verdicts in each group.
    for before in ([elsewhere], []):
        group = Group(work(TURNS), 0, None)
        assert verdicts_of(group, rows(*before, late, first=1)) == []
        assert [v.kind for v in group.advance(50_000)] == []
        assert kinds(group, rows(event("b", 60, 1, "b"), first=5)) == []
        assert [v.kind for v in group.advance(100_000)] == ["match"]


def test_each_family_decides_for_itself_whether_an_event_is_late_for_a_frontier() -> None:
    """Whatever the watermark is at the end of the event's batch."""
    windowed = TURNS.replace("Red Blue;", "Red Blue; within 100 s;")
    text = windowed + windowed.replace("Turns", "Other").replace("by height", "by hash")
    mark = b'{"type": "ketal.watermark", "time": %d}'

    def event(node: str, time: int, **past: int) -> bytes:
        data = {"height": 1, "hash": "b"}
        return accept(node, time=time, clock={node: 1, **past}, data=data)

    for number in (0, 1):
        group = Group(work(text, partitions=1), number, None)
        assert verdicts_of(group, rows(event("c", 12, a=1))) == []
        assert verdicts_of(group, rows(mark % 50, first=1, copy=HOME)) == []
        batch = [*rows(event("a", 60), first=2), *rows(mark % 100, first=3, copy=HOME)]
        assert kinds(group, batch) == ["late"]
        assert kinds(group, rows(event("b", 70), first=4)) == ["late"][number:]


def test_gap_is_refused_in_several_key_groups() -> None:
    """Each group would declare the events of other groups lost."""
    gap = ketal.compile(FORKS.replace("CausalOrder;", "CausalOrder(gap = 5 s);"))
    with pytest.raises(
        SettingError, match=r"4 key groups: it treats an event .* as lost.*remove `gap`"
    ):
        families(gap, 4)
    assert len(families(gap, 1)) == 1


def test_message_with_a_repeated_type_is_rejected() -> None:
    """Spark's JSON functions read the first `type`, every other reader of ketal the last."""
    group = Group(work(), 0, None)
    twice = b'{"type": "accept", "type": "ketal.join", "node": "a"}'
    (verdict,) = verdicts_of(group, rows(twice))
    assert "its type cannot be determined" in verdict["reason"]
    other = b'{"type": "ketal.join", "type": "accept", "node": "a", "clock": {"a": 1}}'
    assert kinds(group, rows(other, copy=HOME)) == ["rejected"]
    assert kinds(group, rows(other, copy=COPY)) == []


def test_verdict_too_large_for_a_message_is_replaced_by_an_overflow_with_its_id() -> None:
    """The column `verdict` keeps the kind, which decides the topic."""
    at = replace(work(key_groups=1), verdict_bytes_max=100)
    group = Group(at, 0, None)
    match, rejected = group.process(rows(accept("a"), accept("b"), b"poison" * 100))
    identity, text = match.written()
    kind, pattern, name, _, _, row_text, _ = at.verdict_row(match)
    assert (kind, pattern, name) == ("match", "Forks", identity)
    assert json.loads(str(row_text)) == {
        "verdict": "overflow", "pattern": "Forks", "id": identity, "limit": "message_bytes_max",
        "given_up": f"the content of a match verdict of {len(text)} bytes",
    }  # fmt: skip
    assert str(at.verdict_row(rejected)[5]).encode() == rejected.written()[1]
    at = replace(at, verdict_bytes_max=None, rejection_bytes_max=20)
    assert json.loads(str(at.verdict_row(rejected)[5]))["verdict"] == "overflow"
    assert str(at.verdict_row(match)[5]).encode() == text


def test_state_that_is_damaged_or_of_another_program_is_refused() -> None:
    at = work()
    state = Group(at, 0, None).state()
    changed = work(FORKS.replace("hash != First.hash", "true"))
    with pytest.raises(StateError, match="of another program: pattern Forks changed: steps"):
        Group(changed, 0, state)
    pack = msgspec.msgpack.encode
    packs = pack([FORMAT]), pack([FORMAT, 0, -1, b""])
    for damaged in (state[:-1], b"", b"\x80", *packs, b"\x91" * 20_000):
        with pytest.raises(StateError, match="damaged"):
            Group(at, 0, damaged)
    for place in range(1, len(state)):
        for bit in (1, 128):
            damaged = state[:place] + bytes([state[place] ^ bit]) + state[place + 1 :]
            with pytest.raises(StateError, match=r"damaged|has format"):
                Group(at, 0, damaged)
    with pytest.raises(StateError, match=f"has format 2; this version reads format {FORMAT}"):
        Group(at, 0, pack([2]))


def test_unused_group_is_freed_at_once() -> None:
    """A worker freezes its objects, so the garbage collector would not find a cycle."""
    at = work()
    state = None
    gc.disable()
    try:
        for _ in range(3):
            group = Group(at, 0, state)
            kinds(group, rows(accept("a"), accept("b"), accept("b")))
            state = group.state()
            there = weakref.ref(group.execution), weakref.ref(group)
            del group
            assert [each() for each in there] == [None, None]
    finally:
        gc.enable()


def test_limits_of_remembered_events_are_divided_by_the_number_of_groups() -> None:
    limits = ketal.Limits(dots_max=32, counters_max=7, runs_max=5)
    assert group_limits(limits, 16) == replace(limits, dots_max=2, counters_max=1, placed_max=6_250)
