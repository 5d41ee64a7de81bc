"""The canonical order against its key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.vector import COUNTER_MAX
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical, canonical_key

COUNTERS = st.sampled_from([1, 2, 3, 2**31, COUNTER_MAX - 1, COUNTER_MAX])
EVENTS = st.lists(
    st.builds(
        lambda node, clock: Event(node, "e", {node: 1} | clock),
        st.sampled_from("abc"),
        st.dictionaries(st.sampled_from("abcd"), COUNTERS, max_size=3),
    ),
    unique_by=lambda event: event.dot,
)


@given(EVENTS)
def test_canonical_order_is_that_of_the_key(events: list[Event]) -> None:
    # Many of these clocks are impossible, so that two events of a node may have equal sums.
    assert canonical(events) == sorted(events, key=canonical_key)


def test_events_of_a_node_with_equal_sums_are_ordered_by_their_counters() -> None:
    first, second = Event("a", "e", {"a": 1, "b": 1}), Event("a", "e", {"a": 2})
    for events in ([first, second], [second, first]):
        assert canonical(events) == [first, second]
