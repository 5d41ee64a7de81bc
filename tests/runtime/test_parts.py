"""Parts give the verdicts of the whole: a part has some scopes of an execution, the whole has all.

Some events are late, behind the watermark. A late event of a scope is missed in that scope alone,
so the same verdicts are uncertain in the parts and in the whole, and the counts are equal.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.engine.losses import Losses
from ketal.model.events.dot import Dot
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits
from ketal.runtime.state.records import decode_record, encode_record
from ketal.streaming.job.distribution import unsplittable_reason
from tests.cases import e
from tests.property.executions import execution
from tests.sampling import chances, drawn, examples

FRONTIER = "CausalOrder(frontier = 2 s)"
STATEMENTS = {
    "Free": ("CausalOrder", "Second = Conc(B); find any A Second; within 3 s;"),
    "Framed": (FRONTIER, "find any A not C B; within 3 s;"),
    "Open": (FRONTIER, "find any A not C B;"),
    "Alone": (FRONTIER, "find next B;"),
    "Checked": (FRONTIER, "check (A | B | C){4,};"),
}
PROGRAM = ketal.compile(
    "".join(
        f"pattern {name} {{ order {order}; partition by key; "
        'event A = type == "a"; event B = type == "b"; event C = type == "c"; '
        f"{statements} }}"
        for name, (order, statements) in STATEMENTS.items()
    )
)
KEYS = (1, 2, None)


def judged_stream(
    items: Iterable[Any], limits: Limits
) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Return the verdicts and the counts of a Monitor that is restored now and then."""
    monitor: Any = ketal.Monitor(PROGRAM, limits=limits)
    verdicts = []
    for number, item in enumerate(items):
        if number % 4 == 3:
            monitor = ketal.Monitor.restore(PROGRAM, monitor.snapshot(), limits=limits)
        verdicts += monitor.feed(item)
    verdicts += monitor.close()
    judged = [repr(v.to_dict()) for v in verdicts if v.verdict not in ("late", "rejected")]
    return judged, monitor._execution.counts.numbers["patterns"]


def delayed(rng: random.Random) -> list[Any]:
    """Return an execution in which some events arrive after a watermark later than their times.

    No event has an earlier time than an event in its past, as `frontier` requires in parts.
    """
    drawn = execution(rng, events_max=14, types=("a", "b", "c"), linear=True)
    events = [
        ketal.Event(node=x.node, type=x.type, clock=x.clock, data=x.data, time=time_s)
        for time_s, x in enumerate(drawn)
    ]
    half = len(events) // 2
    late = [x for x in events[:half] if rng.random() < 0.4]
    mark = ketal.Control("watermark", time=half)
    return [*(x for x in events[:half] if x not in late), mark, *late, *events[half:]]


def test_parts_have_the_uncertain_verdicts_of_the_whole() -> None:
    for compiled in PROGRAM.compiled:
        assert compiled.order_independent
        assert unsplittable_reason(compiled) is None
    doubted = certain = 0

    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal doubted, certain
        items = delayed(rng)
        whole, counts = judged_stream(items, Limits())
        parts: list[str] = []
        summed: dict[str, dict[str, int]] = {}
        for key in KEYS:
            own = [i for i in items if isinstance(i, ketal.Control) or i.data.get("key") == key]
            judged, of_part = judged_stream(own, Limits())
            parts += judged
            for name, values in of_part.items():
                into = summed.setdefault(name, {})
                for what, count in values.items():
                    into[what] = into.get(what, 0) + count
        assert sorted(parts) == sorted(whole)
        assert summed == counts
        doubted += sum("'certain': False" in one for one in whole)
        certain += sum("'certain': False" not in one for one in whole)

    assert min(doubted, certain) > 20, (doubted, certain)


def test_lost_event_affects_all_scopes_and_late_event_its_own_scope() -> None:
    """Beyond the limit no uncertain verdict becomes certain."""
    text = (
        "pattern P { order CausalOrder(gap = 5 s); partition by key; "
        'event A = type == "a"; event B = type == "b"; find next A B; within 2 s; }'
    )
    made = ketal.compile(text)
    items: list[Any] = [e("n@1", "a", time=10, key=1), ketal.Control("watermark", time=9)]
    items += [e("m@1", "b", time=1, key=1), e("k@1", "b", time=1, key=2)]
    items += [e("n@2", "a", "m:1 k:1", time=20, key=2), e("n@3", "a", "o:1", time=21, key=1)]
    items += [e("o@2", "a", time=30, key=3)]
    for limits, named in (
        (Limits(), {"n@1": "m@1 o@1", "n@2": "k@1 o@1", "n@3": "m@1 o@1", "o@2": "o@1"}),
        (Limits(lost_max=1), None),
    ):
        monitor: Any = ketal.Monitor(made, limits=limits)
        verdicts = monitor.feed_many([*items, ketal.Control("end")])
        ended = [v for v in verdicts if isinstance(v, ketal.TimedOut)]
        assert len(ended) == 4
        assert not any(v.certain for v in ended)
        forgotten = monitor.summary["patterns"]["P"].get("marks_forgotten", 0)
        assert bool(forgotten) == (named is None)
        if named is not None:
            assert {str(v.steps[0][1]): " ".join(map(str, v.depends_on)) for v in ended} == named


def test_lowest_evicted_loss_stands_for_all_evicted_losses_of_a_scope() -> None:
    losses = Losses(2)
    one, other = (("number", 1),), (("number", 2),)
    first, second, third, fourth = (e(f"n@{counter}", "a") for counter in range(1, 5))
    assert [losses.miss_event(first, one), losses.miss_event(second, other)] == [0, 0]
    assert losses.awaited_in_vain(one) == losses.missed_before(one, [third.clock]) == (first.dot,)
    assert losses.miss(first.dot) == 0, "what is known of it stays known"
    assert losses.awaited_in_vain(other) == (second.dot,)
    assert losses.miss_event(third, None) == 1
    assert losses.awaited_in_vain(other) == (second.dot,)
    assert losses.awaited_in_vain(one) == losses.missed_before(one, [first.clock]) == (first.dot,)
    assert losses.miss(fourth.dot) == 1
    assert losses.awaited_in_vain(one) == losses.awaited_in_vain(other) == (fourth.dot,)
    assert losses.missed_before(one, [third.clock]) == (first.dot,)
    losses.unmiss(fourth.dot)
    losses.unmiss(first.dot)
    assert losses.awaited_in_vain(one) == (first.dot,)


@examples(100, 5_000)
@given(chances())
def test_the_bound_of_forgotten_losses_is_never_removed(rng: random.Random) -> None:
    """A missed event that is not redelivered keeps later verdicts of its scope uncertain."""
    scopes = (("number", 1),), (("number", 2),)
    events = [e(f"n@{counter}", "a") for counter in range(1, 6)]
    losses, missed = Losses(2), dict[Dot, Any]()
    for _ in range(12):
        event = rng.choice(events)
        act = rng.randrange(4)
        if act == 0:
            losses.miss(event.dot)
            missed.setdefault(event.dot, scopes)
        elif act == 1:
            losses.unmiss(event.dot)
            missed.pop(event.dot, None)
        else:
            scope = rng.choice((*scopes, None))
            losses.miss_event(event, scope)
            missed[event.dot] = (scope,)
        losses.validate_state()
        again = Losses(2)
        assert again.load(decode_record("", encode_record(losses.save()))) == 0
        for scope in scopes:
            concerning = [dot for dot, of in missed.items() if scope in of]
            assert losses.awaited_in_vain(scope) or not concerning
            for later in events:
                past = losses.missed_before(scope, [later.clock])
                assert past or not any(dot.counter <= later.counter for dot in concerning)
                assert again.missed_before(scope, [later.clock]) == past
            assert again.awaited_in_vain(scope) == losses.awaited_in_vain(scope)


places: Any = st.tuples(st.integers(1, 9), st.sampled_from("mn"), st.integers(1, 9))


@given(
    known=st.lists(st.tuples(st.integers(1, 12), places, st.none() | places), max_size=12),
    span=st.tuples(st.none() | places, places),
    most=st.sampled_from((3, 100)),
)
def test_losses_that_may_be_between_two_places(
    known: list[tuple[int, Any, Any]], span: tuple[Any, Any], most: int
) -> None:
    """Beyond the limit a loss is named wherever one would be named without the limit."""
    losses = Losses(most, placed=True)
    expected = {}
    for counter, low, high in known:
        dot = Dot("k", counter)
        expected[dot] = low, high
        losses.miss(dot, low)
        if high is not None:  # the first event that has this dot in its past is offered
            clock = {"k": counter, high[1]: high[0]}
            event = ketal.Event(node=high[1], type="a", clock=clock)
            losses.bound_places(event)
            for earlier, (least, most_known) in expected.items():
                if most_known is None and earlier.counter <= counter:
                    expected[earlier] = least, canonical_key(event)
            expected[dot] = low, canonical_key(event)
    first, last = span
    between = {
        dot
        for dot, (low, high) in expected.items()
        if low < last and (first is None or high is None or high > first)
    }
    again = Losses(most, placed=True)
    again.load(decode_record("", encode_record(losses.save())))
    named = set(losses.missed_between((), first, last))
    assert named == set(again.missed_between((), first, last))
    if most < len(expected):
        assert named or not between
    else:
        assert named == between


def test_dot_of_an_evicted_place_stands_for_all_places_from_the_lowest_evicted_one_on() -> None:
    a, b, c = (Dot(node, 1) for node in "abc")
    losses = Losses(1, placed=True)
    for dot, low in ((a, 2), (b, 5), (c, 9)):
        losses.miss(dot, (low, dot.node, 1))
    assert losses.missed_between((), None, (2, "a", 1)) == ()
    assert losses.missed_between((), None, (3, "a", 1)) == (b,)
    assert losses.missed_between((), None, (10, "a", 1)) == (b, c)


def test_lost_event_that_arrives_has_its_own_place_or_none() -> None:
    event, later = e("a@1", "t"), e("b@1", "t", "a:1")
    losses = Losses(9, placed=True)
    losses.miss(event.dot, (1, "a", 1))
    losses.miss_event(event, ())
    losses.bound_places(later)
    assert losses.missed_between((), None, canonical_key(later)) == (event.dot,)
    assert losses.missed_between((), canonical_key(event), canonical_key(later)) == ()
    losses.unmiss(event.dot)
    assert losses.missed_between((), None, canonical_key(later)) == ()
    losses.validate_state()


def test_verdict_names_at_most_a_hundred_lost_events() -> None:
    made = ketal.compile(
        'pattern P { order CausalOrder(gap = 1 s); event A = type == "a"; find next A; }'
    )
    for items in ([e("n@151", "a")], [e("n@151", "a", "m:90")]):
        (match,) = (v for v in ketal.run(made, items) if isinstance(v, ketal.Match))
        assert not match.certain
        assert len(match.depends_on) == 100
        assert list(match.depends_on) == sorted(match.depends_on)
