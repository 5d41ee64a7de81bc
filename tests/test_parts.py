"""Parts say what the whole says: a part has some scopes of an execution, the whole all (DESIGN 7).

Events come late, by the time that a watermark has passed. One that belongs to a scope is missed in
that scope alone, so that what is in doubt for its sake is the same in both, and so are the counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import ketal
from ketal.event import Dot
from ketal.limits import Limits
from ketal.missed import Missed
from ketal.streaming.distribution import unfit
from tests.cases import e
from tests.property.executions import execution

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


def said(items: Iterable[Any], limits: Limits) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Return what a Monitor that is restored on the way judges, and its patterns' counts."""
    monitor: Any = ketal.Monitor(PROGRAM, limits=limits)
    verdicts = []
    for number, item in enumerate(items):
        if number % 4 == 3:
            monitor = ketal.Monitor.restore(PROGRAM, monitor.snapshot(), limits=limits)
        verdicts += monitor.feed(item)
    verdicts += monitor.close()
    judged = [repr(v.to_dict()) for v in verdicts if v.verdict not in ("late", "rejected")]
    return judged, monitor.summary["patterns"]


def delayed(rng: random.Random) -> list[Any]:
    """Return an execution of which some events come behind a watermark that passed them.

    No event has an earlier time than one that it depends on, which `frontier` asks for in parts.
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


def test_parts_are_in_doubt_where_the_whole_is() -> None:
    for compiled in PROGRAM.compiled:
        assert compiled.order_independent
        assert unfit(compiled) is None
    doubted = certain = 0
    for seed in range(100):
        items = delayed(random.Random(seed))
        whole, counts = said(items, Limits())
        parts: list[str] = []
        summed: dict[str, dict[str, int]] = {}
        for key in KEYS:
            own = [i for i in items if isinstance(i, ketal.Control) or i.data.get("key") == key]
            judged, of_part = said(own, Limits())
            parts += judged
            for name, values in of_part.items():
                into = summed.setdefault(name, {})
                for what, count in values.items():
                    into[what] = into.get(what, 0) + count
        assert sorted(parts) == sorted(whole), f"seed {seed}"
        assert summed == counts, f"seed {seed}"
        doubted += sum("'certain': False" in one for one in whole)
        certain += sum("'certain': False" not in one for one in whole)
    assert min(doubted, certain) > 100, (doubted, certain)


def test_a_lost_event_may_have_belonged_to_any_scope_and_a_late_one_to_its_own() -> None:
    """Beyond the limit nothing that was in doubt becomes certain."""
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


def test_where_a_missed_event_belonged_is_forgotten_before_the_event() -> None:
    missed = Missed(2)
    one, other = (("number", 1),), (("number", 2),)
    dots = [Dot("n", counter) for counter in range(1, 6)]
    assert [missed.passed(dots[0], one), missed.passed(dots[1], other)] == [0, 0]
    assert missed.elsewhere(dots[0], other)
    assert missed.concerning(one, frozenset(dots[:2])) == {dots[0]}
    assert missed.lost(dots[0]) == 0, "what is known of it stays known"
    assert missed.passed(dots[2], None) == 1
    assert missed.forgot
    assert [*missed.of(one)] == [*missed.of(other)] == [dots[1]]
    assert not missed.elsewhere(dots[2], one), "it may stand for those that are forgotten"
    assert missed.concerning(one, frozenset(dots)) == set(dots)
    assert missed.lost(dots[3]) == 1
    missed.drop(dots[2])
    missed.drop(dots[2])
    assert len(missed) == 1


def test_what_stands_for_the_forgotten_is_never_taken_away() -> None:
    one, other = (("number", 1),), (("number", 2),)
    dots = [Dot("n", counter) for counter in range(1, 6)]
    for drawn in range(300):
        rng = random.Random(drawn)
        missed = Missed(2)
        for _ in range(12):
            dot = rng.choice(dots)
            act = rng.randrange(4)
            if act == 0:
                missed.lost(dot)
            elif act == 1:
                missed.drop(dot)
            else:
                missed.passed(dot, rng.choice((one, other, None)))
            if missed.forgot:
                assert [*missed.of(one)]
                assert [*missed.of(other)]
            again = Missed(2)
            again.restore([list(dot) for dot in missed.anywhere], missed.state())
            assert again.forgot == missed.forgot
            assert {*again.of(one)} == {*missed.of(one)}
