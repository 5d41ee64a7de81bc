"""The kept contents of the last events, in any order of arrival (`ketal.runtime.admission`)."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ketal import Event
from ketal.model.events.content import digest
from ketal.model.limits import Limits
from ketal.runtime.admission.deduplication import Intake
from ketal.runtime.admission.seen_digests import digest_of, load_rows, save_rows

NODES = ("A", "B")


def events_of(count: int, first: int) -> list[Event]:
    """Return the next events of two nodes that alternate."""
    places = range(first, first + count)
    return [Event(NODES[n % 2], "t", {NODES[n % 2]: n // 2 + 1, "z": n + 1}) for n in places]


@given(
    most=st.integers(1, 9),
    parts=st.lists(st.tuples(st.integers(1, 12), st.sampled_from("-nsrcao"))),
)
def test_content_of_the_last_events_is_kept(most: int, parts: list[tuple[int, str]]) -> None:
    intake, said_upto = Intake(Limits(dots_max=most)), 0
    came: list[Event] = []
    last: deque[Event] = deque(maxlen=most)
    for count, then in parts:
        events = events_of(count, len(came))
        came += events
        last.extend(events)
        assert intake.admit(events) == count
        intake.validate_state()
        kept = [(e.node, e.counter, digest(e), e.clock) for e in last]
        firsts = {e.node: digest(e) for e in came if e.counter == 1}
        if then == "n":
            assert intake.contents.newest(said_upto) == kept[-(len(came) - said_upto) :]
            said_upto = len(came)
            assert intake.contents.newest(said_upto) == []
        if then == "s":
            assert intake.save()["evicted"] == len(came) - len(kept)
        if then == "r":
            rows, state = intake.contents.newest(0), intake.save()
            half = len(rows) // 2
            written = [save_rows(some, clocks=True) for some in (rows[:half], rows[half:]) if some]
            intake = Intake(Limits(dots_max=most))
            loaded = [row for one in written for row in load_rows(one, clocks=True)]
            intake.load(state, (), loaded)
        if then == "c":
            assert list(intake.contents.clocks()) == [
                (node, n, clock) for node, n, _, clock in kept
            ]
        if then == "o":
            found = [intake.contents.content_of(e.node, e.counter) for e in came]
            assert [digest_of(one) for one in found if one] == [digest(e) for e in last]
            assert not any(found[: len(came) - len(last)])
        if then == "a":
            assert intake.contents.first_digests() == firsts
        assert intake.contents.taken == len(came)
    assert list(intake.contents.newest(0)) == [
        (e.node, e.counter, digest(e), e.clock) for e in last
    ]
