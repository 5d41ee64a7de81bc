"""What is kept of the last events, however they came (`ketal.runtime.admission.seen_digests`)."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ketal import Event
from ketal.model.events.content import digest
from ketal.runtime.admission.seen_digests import Contents, load_rows, save_rows

NODES = ("A", "B")


def events_of(count: int, first: int) -> list[Event]:
    """Return the next events of two nodes, in turn."""
    places = range(first, first + count)
    return [Event(NODES[n % 2], "t", {NODES[n % 2]: n // 2 + 1, "z": n + 1}) for n in places]


@given(
    most=st.integers(1, 9),
    parts=st.lists(st.tuples(st.integers(1, 12), st.sampled_from("-nsrca"))),
)
def test_the_last_are_kept(most: int, parts: list[tuple[int, str]]) -> None:
    contents, said_upto = Contents(most), 0
    came: list[Event] = []
    last: deque[Event] = deque(maxlen=most)
    for count, then in parts:
        events = events_of(count, len(came))
        came += events
        last.extend(events)
        for event in events:
            contents.held_of(event.node)[event.counter] = event
        contents.arrive(events)
        contents.validate_state()
        kept = [(e.node, e.counter, digest(e), e.clock) for e in last]
        firsts = {e.node: digest(e) for e in came if e.counter == 1}
        if then == "n":
            assert contents.newest(said_upto) == kept[-(len(came) - said_upto) :]
            said_upto = len(came)
            assert contents.newest(said_upto) == []
        if then == "s":
            assert contents.save()["evicted"] == len(came) - len(kept)
        if then == "r":
            rows, state = contents.newest(0), contents.save()
            half = len(rows) // 2
            written = [save_rows(some, clocks=True) for some in (rows[:half], rows[half:]) if some]
            contents = Contents(most)
            contents.load(state, [row for one in written for row in load_rows(one, clocks=True)])
        if then == "c":
            assert list(contents.clocks()) == [(node, n, clock) for node, n, _, clock in kept]
        if then == "a":
            assert contents.first_contents() == firsts
        assert contents.taken == len(came)
    assert list(contents.newest(0)) == [(e.node, e.counter, digest(e), e.clock) for e in last]
