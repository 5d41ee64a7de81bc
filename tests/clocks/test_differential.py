"""Differences of vector clocks are exact in a log, and over FIFO channels."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.differential import (
    DeltaClocks,
    DeltaStamp,
    DifferentialReplica,
    clocks_of,
    deltas,
)
from ketal.clocks.vector import VectorClocks
from ketal.errors import EventError
from tests.clocks.executions import SampleRun, sample_runs
from tests.sampling import sample

SCHEME = DeltaClocks()
VECTORS = VectorClocks()


@given(run=sample_runs())
def test_clocks_are_restored_from_their_differences(run: SampleRun) -> None:
    of_node: dict[str, list[dict[str, int]]] = {}
    for node, clock in run.clocks():
        of_node.setdefault(node, []).append(clock)
    for node, clocks in of_node.items():
        changed = list(deltas(clocks))
        assert list(clocks_of(changed)) == clocks
        assert all(one[node] == number for number, one in enumerate(changed, start=1))


@given(run=sample_runs())
def test_delta_has_exactly_the_changed_entries(run: SampleRun) -> None:
    last: dict[str, dict[str, int]] = {}
    stamps = SCHEME.stamped(run.happenings())
    for stamp, (node, clock) in zip(stamps, run.clocks(), strict=True):
        before = last.get(node, {})
        assert {**before, **stamp.changed} == clock
        assert all(before.get(name) != counter for name, counter in stamp.changed.items())
        last[node] = clock


@given(run=sample_runs())
def test_delta_is_never_longer_than_the_clock(run: SampleRun) -> None:
    for delta, vector in zip(
        SCHEME.stamped(run.happenings()), VECTORS.stamped(run.happenings()), strict=True
    ):
        assert len(SCHEME.encode(delta)) <= len(VECTORS.encode(vector))


def test_delta_does_not_grow_with_the_number_of_nodes() -> None:
    """Two of many nodes communicate: only their first deltas have entries of the other nodes."""
    sizes: dict[int, list[int]] = {}
    for nodes in (8, 64):
        names = [f"n{number:02}" for number in range(nodes)]
        # First a chain of messages through all nodes, twice.
        causes: list[tuple[int, ...]] = [(), *((n,) for n in range(2 * nodes + 39))]
        run = SampleRun([*names * 2, *[names[0], names[1]] * 20], causes).happenings()
        changed = [len(SCHEME.encode(stamp)) for stamp in SCHEME.stamped(run)]
        whole = [len(VECTORS.encode(stamp)) for stamp in VECTORS.stamped(run)]
        sizes[nodes] = [int(median(of[2 * nodes + 2 :])) for of in (changed, whole)]
    assert sizes[8][0] == sizes[64][0] == 11
    assert sizes[64][1] > 20 * sizes[64][0]


def test_missing_delta_is_named_in_the_error() -> None:
    first, second, third = SCHEME.stamped(SampleRun([*"aaa"], [(), (), ()]).happenings())
    reason = "the delta stamp of event 3 of 'a' builds on that of event 2, which is missing"
    with pytest.raises(EventError, match=reason):
        SCHEME.order([third, first])
    assert SCHEME.order([third, first, second])(first, third)


def test_duplicate_stamp_is_accepted_and_contradiction_is_an_error() -> None:
    stamp, other = DeltaStamp("a", {"a": 1}), DeltaStamp("a", {"a": 1, "b": 2})
    assert not SCHEME.order([stamp, stamp])(stamp, stamp)
    with pytest.raises(EventError, match="event 1 of 'a' has two different stamps"):
        SCHEME.order([stamp, other])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            [1],
            "a stamp of the scheme delta must be the changed entries, "
            'such as {"a": 2, "b": 5}, not [1]',
        ),
        ({"b": 1}, "the node's own entry 'a' is missing; counters start at 1"),
        ({"a": 0}, "the node's own entry 'a' is zero; counters start at 1"),
    ],
)
def test_an_invalid_delta_is_an_error(value: object, reason: str) -> None:
    with pytest.raises(EventError) as error:
        SCHEME.read(value, "a")
    assert error.value.reason == f"clock: {reason}"


# --- messages -----------------------------------------------------------------------


@dataclass
class ChannelRun:
    """Nodes and the FIFO channels between them."""

    nodes: dict[str, DifferentialReplica]
    vectors: dict[str, dict[str, int]]
    channels: dict[tuple[str, str], list[tuple[dict[str, int], dict[str, int]]]] = field(
        default_factory=dict
    )

    def act(self, node: str, received: list[str], to: list[str]) -> None:
        """Add an event that receives the next messages from some nodes and sends to others."""
        channels = [self.channels.get((sender, node), []) for sender in received]
        messages = [channel.pop(0) for channel in channels if channel]
        vector = self.vectors[node]
        for _, whole in messages:
            for name, counter in whole.items():
                vector[name] = max(vector.get(name, 0), counter)
        vector[node] = vector.get(node, 0) + 1
        replica = self.nodes[node].event(entries for entries, _ in messages)
        for receiver in to:
            replica, entries = replica.send(receiver)
            self.channels.setdefault((node, receiver), []).append((entries, dict(vector)))
        self.nodes[node] = replica

    def validate_state(self) -> None:
        """Assert that clocks equal vector clocks, and that messages have no unchanged entries."""
        for node, replica in self.nodes.items():
            assert replica.clock == self.vectors[node]
            assert set(replica.changed_at) == set(replica.clock)
            assert all(at <= replica.clock[node] for at in replica.changed_at.values())
        for channel in self.channels.values():
            for entries, whole in channel:
                assert entries.items() <= whole.items()


@given(data=st.data())
def test_messages_with_changes_only_give_the_same_clocks_as_whole_vectors(
    data: st.DataObject,
) -> None:
    """Singhal and Kshemkalyani's technique, over FIFO channels."""
    names = [f"n{number}" for number in range(data.draw(st.integers(2, 5)))]
    run = ChannelRun({name: DifferentialReplica(name) for name in names}, {n: {} for n in names})
    some = st.lists(st.sampled_from(names), max_size=3)
    for _ in range(data.draw(st.integers(0, sample(30, 100)))):
        node = data.draw(st.sampled_from(names))
        others = [name for name in data.draw(some) if name != node]
        run.act(node, others, [name for name in data.draw(some) if name != node])
        run.validate_state()


def test_an_overtaking_message_carries_too_few_entries() -> None:
    """The technique needs FIFO channels."""
    a = DifferentialReplica("a").event([{"c": 7}])
    a, _late = a.send("b")
    a, early = a.event().send("b")
    assert early == {"a": 2}
    b = DifferentialReplica("b").event([early])
    assert b.clock == {"a": 2, "b": 1}  # c's events, which a knew, are missing


def test_message_without_changes_is_empty() -> None:
    a = DifferentialReplica("a").event()
    a, first = a.send("b")
    a, again = a.send("b")
    _, other = a.send("c")
    assert (first, again, other) == ({"a": 1}, {}, {"a": 1})
