"""Matrix clocks against the nodes' knowledge of each other, counted from the pasts of events."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given

from ketal.clocks.matrices.matrix import MatrixClocks, MatrixStamp
from ketal.errors import EventError
from tests.clocks.executions import SampleRun, sample_runs

SCHEME = MatrixClocks()


def known_everywhere(stamp: MatrixStamp, nodes: Iterable[str]) -> dict[str, int]:
    """Return how many events of each node are known to all nodes: the least entry of each column.

    Zeros are left out.
    """
    rows = [stamp.rows.get(node, {}) for node in nodes]
    least = {name: min((row.get(name, 0) for row in rows), default=0) for name in stamp.clock}
    return {name: counter for name, counter in least.items() if counter}


def _rows(run: SampleRun, number: int) -> dict[str, dict[str, int]]:
    """Return the rows of an event: node → the clock of its last known event."""
    known = run.pasts()[number] | {number}
    clocks = run.clocks()
    return {clocks[one][0]: clocks[one][1] for one in sorted(known)}


@given(run=sample_runs(nodes_max=5, steps_max=30))
def test_row_is_the_clock_of_the_last_known_event_of_its_node(run: SampleRun) -> None:
    for number, stamp in enumerate(SCHEME.stamped(run.happenings())):
        assert stamp.rows == _rows(run, number)


@given(run=sample_runs(nodes_max=4, steps_max=30))
def test_events_known_everywhere_are_in_the_past_of_an_event_of_every_node(
    run: SampleRun,
) -> None:
    """The next event of the node is not known everywhere, so nothing is kept too long."""
    pasts, nodes = run.pasts(), sorted(set(run.nodes))
    of_node = {node: [n for n, at in enumerate(run.nodes) if at == node] for node in nodes}
    for number, stamp in enumerate(SCHEME.stamped(run.happenings())):
        known = pasts[number] | {number}
        everywhere = known_everywhere(stamp, nodes)
        for of, numbers in of_node.items():
            knowing = [
                all(
                    any(
                        one == own or one in pasts[own] for own in known.intersection(of_node[node])
                    )
                    for node in nodes
                )
                for one in numbers
            ]
            assert knowing == [place < everywhere.get(of, 0) for place in range(len(numbers))]


@given(run=sample_runs(nodes_max=5, steps_max=30))
def test_events_known_everywhere_never_shrink_on_a_node(run: SampleRun) -> None:
    nodes = sorted(set(run.nodes))
    last: dict[str, dict[str, int]] = {}
    for stamp in SCHEME.stamped(run.happenings()):
        everywhere = known_everywhere(stamp, nodes)
        for of, counter in last.get(stamp.node, {}).items():
            assert everywhere.get(of, 0) >= counter
        last[stamp.node] = everywhere


def test_a_node_without_an_event_knows_nothing() -> None:
    (stamp,) = SCHEME.stamped(SampleRun(["a"], [()]).happenings())
    assert known_everywhere(stamp, ["a"]) == {"a": 1}
    assert known_everywhere(stamp, ["a", "b"]) == {}


def test_acknowledgement_makes_an_event_known_everywhere() -> None:
    """a sends to b, and b answers: then a knows that b knows the event, but b does not know it."""
    run = SampleRun([*"aba"], [(), (0,), (1,)])
    sent, received, answered = SCHEME.stamped(run.happenings())
    nodes = ("a", "b")
    assert known_everywhere(sent, nodes) == {}
    assert known_everywhere(received, nodes) == {"a": 1}
    assert known_everywhere(answered, nodes) == {"a": 1, "b": 1}
    assert answered.rows == {"a": {"a": 2, "b": 1}, "b": {"a": 1, "b": 1}}


def test_zeros_are_dropped_when_a_matrix_is_read() -> None:
    value = {"a": {"a": 1, "b": 0}, "b": {"a": 1, "b": 2}}
    with pytest.raises(
        EventError, match="the row of 'b' has a higher entry than the row of the event's node 'a'"
    ):
        SCHEME.read(value, "a")
    assert SCHEME.read(value, "b") == MatrixStamp("b", {"a": {"a": 1}, "b": {"a": 1, "b": 2}})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"b": {"b": 1}}, "with a row for a, not {'b': {'b': 1}}"),
        ({"a": {"a": 1}, "b": 1}, "matrix must be a row for each known node"),
        ({"a": {"a": 0}}, "the node's own entry 'a' is zero"),
        ({"a": {"a": 1, "b": 1}, "b": {"a": 1}}, "the node's own entry 'b' is missing"),
        ({"a": {"a": -1}}, "the entry for 'a' is negative"),
    ],
)
def test_an_invalid_matrix_is_an_error(value: object, reason: str) -> None:
    with pytest.raises(EventError) as error:
        SCHEME.read(value, "a")
    assert error.value.reason.startswith("clock: ")
    assert reason in error.value.reason


def test_size_grows_with_the_square_of_the_nodes() -> None:
    """If every node has received from every other node, a stamp has n rows of n entries."""
    sizes = {}
    for nodes in (4, 8, 16):
        names = [f"n{number:02}" for number in range(nodes)] * 3
        # Each event receives the previous one, so after two rounds every node knows all rows.
        causes: list[tuple[int, ...]] = [(), *((number,) for number in range(len(names) - 1))]
        sizes[nodes] = len(SCHEME.encode(SCHEME.stamped(SampleRun(names, causes).happenings())[-1]))
    # An entry is a name of three bytes with its length, and a counter of one byte.
    assert all(5 * nodes**2 <= size <= 5 * nodes**2 + 8 * nodes for nodes, size in sizes.items())
