"""What runs on the executors, without a Spark: a key group, its rows, its state."""

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


def took(group: Group, given: list[Any]) -> list[dict[str, Any]]:
    return [verdict.to_dict() for verdict in group.process(given)]


def kinds(group: Group, given: list[Any]) -> list[str]:
    return [verdict.kind for verdict in group.process(given)]


def figures(group: Group) -> dict[str, Any]:
    row = group.figures_row(Counter())
    assert row[0] == FIGURES
    said: dict[str, Any] = json.loads(str(row[5]))
    return said


def test_a_group_goes_on_from_its_state() -> None:
    at = work()
    group = Group(at, 0, None)
    assert took(group, rows(accept("a"))) == []
    group = Group(at, 0, group.state())
    (match,) = took(group, rows(accept("b"), first=1))
    assert match["events"] == ["a@1", "b@1"]
    assert figures(group)["messages"] == 2


def test_time_is_that_of_the_partition_that_is_behind() -> None:
    """And of those alone that have not ended."""
    group = Group(work(WINDOWED_FORKS), 0, None)
    mark = b'{"type": "ketal.watermark", "time": %d}'
    assert took(group, rows(accept("a", time=1))) == []
    assert took(group, rows(mark % 100, copy=HOME)) == []
    assert group.awaits_watermark
    assert kinds(group, rows(mark % 50, partition=1, copy=HOME)) == ["timed_out"]
    assert not group.awaits_watermark
    assert kinds(group, rows(accept("b", time=49))) == ["late"]
    assert took(group, rows(accept("c", time=60))) == []
    # The partition that was behind has ended, so the other one alone says what time it is.
    assert kinds(group, rows(END, partition=1, copy=HOME)) == ["timed_out"]


def test_the_execution_ends_with_its_last_partition() -> None:
    at = work(WINDOWED_FORKS)
    group = Group(at, 0, None)
    assert took(group, rows(accept("a", time=1)) + rows(END, copy=HOME, first=1)) == []
    (said,) = took(group, rows(accept("b", time=2), first=2))
    assert (said["place"], said["reason"]) == ("t/0/2", "its partition has ended (ketal.end)")
    group = Group(at, 0, group.state())
    assert kinds(group, rows(END, partition=1, copy=HOME)) == ["timed_out"]
    of = figures(group)
    assert of["ended"]
    assert of["messages"] == of["events"]["read"] + of["control"] == 4
    assert group.advance(10**9) == []


def test_where_the_partitions_are_not_known_an_end_ends_its_own() -> None:
    group = Group(work(partitions=None), 0, None)
    assert took(group, rows(END, partition=1, copy=HOME)) == []
    assert not figures(group)["ended"]
    assert kinds(group, rows(accept("a"), partition=1)) == ["rejected"]
    assert kinds(group, rows(accept("a"), accept("b"))) == ["match"]


SEVERAL = FORKS + FORKS.replace("Forks", "Other").replace("by height", "by hash")


def test_what_all_groups_see_is_told_and_counted_by_one() -> None:
    at = work(SEVERAL)
    home, other, second = Group(at, 0, None), Group(at, 1, None), Group(at, 2, None)
    bad_control, join = b'{"type": "ketal.none"}', b'{"type": "ketal.join", "node": "a"}'
    for group, copy, told in ((home, HOME, 1), (second, COPY, 0), (other, COPY, 0)):
        assert len(took(group, rows(bad_control, join, copy=copy))) == told
        of = figures(group)
        assert (of["messages"], of["control"]) == (2 * told, told)
    # A malformed message comes to one group of each family.
    assert kinds(home, rows(b"poison", first=9)) == ["rejected"]
    assert kinds(second, rows(b"poison", first=9)) == []
    # So does a dot that is there twice, with other content.
    twice = rows(accept("z", 5), accept("z", 5, time=1), first=20)
    assert [v["place"] for v in took(home, twice)] == ["t/0/21"]
    assert took(second, twice) == []


def test_an_event_is_late_for_all_families_or_for_none() -> None:
    """Also for one without a window; the first family tells it and counts it, whichever that is."""
    untimed = FORKS.replace("Forks", "Untimed").replace("by height", "by hash")
    for text in (WINDOWED_FORKS + untimed, untimed + WINDOWED_FORKS):
        at = work(text)
        for number, told in ((0, ["late"]), (1, [])):
            group = Group(at, number, None)
            assert kinds(group, rows(accept("a", time=1))) == []
            group.advance(50_000)
            group = Group(at, number, group.state())
            assert kinds(group, rows(accept("b", time=2), first=1)) == told
            events = figures(group)["events"]
            assert (events["accepted"], events["late"]) == (1, 1)


def test_what_no_pattern_of_any_family_takes_is_refused_once() -> None:
    """A pattern whose topology lacks the node refuses for itself alone."""
    closed = FORKS.replace("partition", "topology { a -> b; } partition")
    other = closed.replace("Forks", "Other").replace("by height", "by hash")
    anyone = other.replace("topology { a -> b; }", "")
    for text, told in ((closed + other, "rejected"), (closed + anyone, None)):
        at = work(text)
        first, second = Group(at, 0, None), Group(at, 1, None)
        assert kinds(first, rows(accept("z"))) == ([told] if told else [])
        assert kinds(second, rows(accept("z"))) == []


TURNS = """
pattern Turns {
    order CausalOrder(frontier = 5 s); partition by height;
    event Red = hash == "r"; event Blue = hash == "b";
    find next Red Blue;
}
"""


def test_a_part_judges_what_is_late_to_a_frontier_in_another_part() -> None:
    """The exception that the pages name; what depends on the late event went elsewhere."""

    def event(node: str, time: int, height: int, kind: str, **past: int) -> bytes:
        data = {"height": height, "hash": kind}
        return accept(node, time=time, clock={node: 1, **past}, data=data)

    late, elsewhere = event("a", 10, 1, "r"), event("c", 12, 2, "r", a=1)
    for before, found in (([elsewhere], ["late"]), ([], ["match"])):
        group = Group(work(TURNS), 0, None)
        assert took(group, rows(*before)) == []
        group.advance(50_000)
        assert (
            kinds(group, rows(late, event("b", 60, 1, "b"), first=5))
            + [verdict.kind for verdict in group.advance(100_000)]
            == found
        )
    # An event that is not behind the watermark is judged alike.
    for before in ([elsewhere], []):
        group = Group(work(TURNS), 0, None)
        assert took(group, rows(*before, late, first=1)) == []
        assert [v.kind for v in group.advance(50_000)] == []
        assert kinds(group, rows(event("b", 60, 1, "b"), first=5)) == []
        assert [v.kind for v in group.advance(100_000)] == ["match"]


def test_what_is_late_to_a_frontier_is_each_familys_own() -> None:
    """Whatever the watermark is by the end of the batch that it came in."""
    windowed = TURNS.replace("Red Blue;", "Red Blue; within 100 s;")
    text = windowed + windowed.replace("Turns", "Other").replace("by height", "by hash")
    mark = b'{"type": "ketal.watermark", "time": %d}'

    def event(node: str, time: int, **past: int) -> bytes:
        data = {"height": 1, "hash": "b"}
        return accept(node, time=time, clock={node: 1, **past}, data=data)

    for number in (0, 1):
        group = Group(work(text, partitions=1), number, None)
        assert took(group, rows(event("c", 12, a=1))) == []
        assert took(group, rows(mark % 50, first=1, copy=HOME)) == []
        batch = [*rows(event("a", 60), first=2), *rows(mark % 100, first=3, copy=HOME)]
        assert kinds(group, batch) == ["late"]
        assert kinds(group, rows(event("b", 70), first=4)) == ["late"][number:]


def test_a_gap_is_refused_in_parts() -> None:
    """What comes to other groups would be declared lost in each."""
    gap = ketal.compile(FORKS.replace("CausalOrder;", "CausalOrder(gap = 5 s);"))
    with pytest.raises(SettingError, match=r"4 key groups: it declares lost.*leave `gap` out"):
        families(gap, 4)
    assert len(families(gap, 1)) == 1


def test_a_type_that_is_there_twice_is_no_event() -> None:
    """Spark's JSON functions read the first, every other reader of ketal the last."""
    group = Group(work(), 0, None)
    twice = b'{"type": "accept", "type": "ketal.join", "node": "a"}'
    (said,) = took(group, rows(twice))
    assert "its type cannot be told" in said["reason"]
    other = b'{"type": "ketal.join", "type": "accept", "node": "a", "clock": {"a": 1}}'
    assert kinds(group, rows(other, copy=HOME)) == ["rejected"]
    assert kinds(group, rows(other, copy=COPY)) == []


def test_a_state_that_does_not_fit_is_said() -> None:
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


def test_a_group_that_is_no_longer_used_goes_at_once() -> None:
    """A worker freezes what it keeps, so that no garbage collection would find a cycle."""
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


def test_the_limits_of_what_is_seen_are_divided() -> None:
    limits = ketal.Limits(dots_max=32, counters_max=7, runs_max=5)
    assert group_limits(limits, 16) == replace(limits, dots_max=2, counters_max=1, placed_max=6_250)
