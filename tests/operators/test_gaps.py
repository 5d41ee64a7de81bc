"""Lost events, as reported over a stream and over a finite log of the same events.

Under `gap` a dot that does not arrive is a lost event. A finite log reports of its holes what a
stream of its events reports once it has ended: the same gaps, verdicts and marks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import ketal
from ketal.errors import PatternError
from ketal.model import syntax as ast
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.limits import Limits
from ketal.operators.order.missing import MissingSince, holes
from ketal.operators.order.release_options import ReleaseOptions
from ketal.operators.order.step import StreamTime, named_counters
from ketal.programs.program import Program
from tests.cases import e
from tests.driven import Driven
from tests.operators.ordering_oracle import past
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.property.test_engine import program_of
from tests.sampling import drawn

LIMITS = Limits(matches_per_event_max=300, configurations_max=300)
NODES = ("n1", "n2", "n3", "n4", "n5")


def compiled(statements: str, order: str = "CausalOrder(gap = 30 s)", **options: Any) -> Program:
    return ketal.compile(
        f"pattern P {{ order {order}; "
        'event A = type == "a"; event B = type == "b"; event C = type == "c"; '
        f"{statements} }}",
        **options,
    )


def logged(made: Program, events: Iterable[Any]) -> tuple[list[dict[str, Any]], ketal.Summary]:
    verdicts = ketal.run(made, list(events), limits=LIMITS)
    return [v.to_dict() for v in verdicts], verdicts.summary


def streamed(
    made: Program, events: Iterable[Any], *, later: float | None = None
) -> tuple[list[dict[str, Any]], ketal.Summary]:
    """Return a Monitor's verdicts and summary; `later` is a watermark before the end."""
    monitor = ketal.Monitor(made, limits=LIMITS)
    verdicts = monitor.feed_many(events)
    if later is not None:
        verdicts += monitor.advance_time(later)
    verdicts += monitor.close()
    assert monitor.held_back() == []
    return [v.to_dict() for v in verdicts], monitor.summary


def some(verdicts: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [v for v in verdicts if v["verdict"] in kinds]


def compared(verdicts: list[dict[str, Any]], kind: str, *, ended: bool = False) -> list[str]:
    """Return the part of verdicts to compare: for a check, the kind of verdict per scope.

    Under `total`, which has one order, whole verdicts are compared. Windows of `within N events`
    and of `find strict` end with an event, before or after a loss is known; with `ended` all
    windows ended with the log.
    """
    out = []
    for verdict in verdicts:
        v = dict(verdict)
        if v["verdict"] == "timed_out" and not ended:
            v.pop("certain", None), v.pop("depends_on", None)
        if kind == "independent" and v["verdict"] == "violation":
            v = {"verdict": v["verdict"], "scope": v["scope"]}
        if kind == "independent" and v["verdict"] == "incomplete":
            v = {name: v.get(name) for name in ("verdict", "scope", "certain", "depends_on")}
        out.append(repr(v))
    return sorted(out)


def kind_of(made: Program) -> str:
    one = made.one
    if one.order_free:
        return "free"
    if one.pattern.order.total:
        return "total"
    return "independent" if one.order_independent else "dependent"


@pytest.mark.parametrize(("last", "named"), [(3, [3]), (6, [3, 4, 5, 6]), (7, [3, 7])])
def test_only_the_ends_of_a_hole_of_more_than_lost_max_dots_are_named(
    last: int, named: list[int]
) -> None:
    assert list(named_counters(3, last, 4)) == named


def test_log_with_holes_gives_the_verdicts_of_its_stream() -> None:
    seen: dict[str, int] = {}
    marked = 0

    @drawn(110, 4_000)
    def holds(rng: random.Random) -> None:
        nonlocal marked
        file = pattern_file(rng, order="causal")
        (pattern,) = file.patterns
        if pattern.mode is not None:
            return
        # Longer than an execution, so that nothing that is only slow is given up.
        order = ast.Order("causal", gap=ast.Duration(100, "s"))
        if rng.random() < 0.5:
            order = replace(order, total=True, nodes=NODES)
        try:
            made = program_of(replace(file, patterns=(replace(pattern, order=order),)))
        except PatternError:
            return
        kind = kind_of(made)
        if kind == "dependent":
            return
        kept = [x for x in execution(rng, events_max=14) if rng.random() > 0.25]
        expected, finite = logged(made, kept)
        arrival = rng.sample(kept, len(kept))
        later = 1_000.0 if rng.random() < 0.5 else None
        said, live = streamed(made, arrival, later=later)
        if some(expected + said, "overflow"):
            return
        ends_with_event = made.one.window_events is not None or made.one.strategy == "strict"
        ended = later is None and not ends_with_event
        live_said, log_said = (compared(which, kind, ended=ended) for which in (said, expected))
        assert live_said == log_said
        if kind == "total":
            ordered = ("match", "violation")
            assert some(said, *ordered) == some(expected, *ordered)
        assert live["gaps"] == finite["gaps"] == len(some(expected, "gap"))
        doubted = [v for v in expected if v.get("certain") is False]
        marked += bool(doubted)
        seen[kind] = seen.get(kind, 0) + bool(some(expected, "gap"))

    assert min(seen.values()) > 3, seen
    assert marked > 15


def test_window_does_not_end_while_an_event_of_it_is_held_back() -> None:
    made = compiled("B2 = Causal(B, A); find next A B2; within 10 s;")
    events = [e("n@1", "a", time=0), e("m@2", "b", "n:1", time=1)]
    monitor = ketal.Monitor(made)
    assert monitor.feed_many(events) == []
    assert monitor.advance_time(20) == []  # m@2 arrived in time, and may yet be released
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    assert monitor.advance_time(29) == []
    gap, match = (v.to_dict() for v in monitor.advance_time(31))
    assert (gap["verdict"], match["verdict"]) == ("gap", "match")
    assert match["depends_on"] == ["m@1"]
    assert monitor.close() == []
    assert logged(made, events)[0] == [gap, match]


FREE = "B2 = Causal(B, A); find any A B2; within 3 s;"


def test_time_out_of_an_order_free_pattern_after_a_loss_is_uncertain() -> None:
    """The events of n1 fit an execution in which n1@2 is a B, and one in which it is not."""
    made = compiled(FREE)
    events = [e("n1@1", "a", time=1), e("n1@3", "c", time=3), e("n2@1", "a", time=4)]
    ends, gaps = ["n1@1", "n2@1"], ["n1@2"]
    for how in (logged, streamed):
        verdicts, summary = how(made, events)
        assert [v["dot"] for v in some(verdicts, "gap")] == gaps
        timed_out = some(verdicts, "timed_out")
        assert [v["bindings"]["A"] for v in timed_out] == [[dot] for dot in ends]
        assert all(v["certain"] is False and v["depends_on"] == gaps for v in timed_out)
        assert (summary["gaps"], summary["holes"]) == (1, 1)
    for how in (logged, streamed):  # without `gap` the log may be a filtered log
        verdicts, summary = how(compiled(FREE, order="CausalOrder"), events)
        assert all("certain" not in v for v in verdicts)
        assert summary["gaps"] == 0


def test_gap_of_an_order_free_pattern_is_reported_in_time() -> None:
    made = compiled(FREE)
    monitor: Any = ketal.Monitor(made)
    assert monitor.feed_many([e("n@1", "a", time=1), e("n@3", "c", time=3)]) == []
    assert monitor.held_back() == []
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    (ended,) = monitor.advance_time(10)  # n@2 is not lost yet, and has not come
    assert (ended.verdict, ended.certain, ended.depends_on) == ("timed_out", False, (Dot("n", 2),))
    assert monitor.advance_time(32.9) == []
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    (gap,) = monitor.advance_time(33)
    assert (gap.verdict, gap.dot) == ("gap", Dot("n", 2))
    assert monitor.feed(e("n@5", "a", time=40)) == []
    assert [v.dot for v in monitor.feed(e("m@1", "c", time=70))] == [Dot("n", 4)]
    assert [v.verdict for v in monitor.close()] == ["timed_out"]
    assert monitor.summary["gaps"] == 2


def test_lost_event_that_arrives_is_accepted_by_an_order_free_pattern() -> None:
    made = compiled(FREE)
    monitor: Any = ketal.Monitor(made)
    gaps = monitor.feed_many([e("n@2", "c", time=3), e("n@3", "a", time=40)])
    assert [v.dot for v in gaps] == [Dot("n", 1)]
    assert monitor.feed(e("n@1", "c", time=4)) == []
    (ended,) = monitor.close()
    assert (ended.verdict, ended.certain) == ("timed_out", True)


def test_holes_of_a_node_that_left_are_lost_at_once_for_an_order_free_pattern() -> None:
    made = compiled(FREE)
    monitor: Any = ketal.Monitor(made)
    assert monitor.feed(e("n@2", "c", "k:1", time=3)) == []
    assert [v.dot for v in monitor.leave("n")] == [Dot("n", 1)]
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    assert [v.dot for v in monitor.feed(e("m@1", "c", "n:3", time=3))] == [Dot("n", 3)]
    gaps = monitor.feed(ketal.Control("view", members=("m",)))
    assert [v.dot for v in gaps] == [Dot("k", 1)]
    monitor.feed(ketal.Control("join", node="k"))
    assert monitor.feed(e("m@2", "c", "k:2", time=4)) == []
    assert [v.dot for v in monitor.advance_time(34)] == [Dot("k", 2)]


def test_clock_that_knows_less_of_a_node_than_an_earlier_one_forgets_no_missing_dot() -> None:
    monitor: Any = ketal.Monitor(compiled(FREE))
    monitor.feed_many([e("m@1", "c", "n:3", time=3), e("l@1", "c", "n:1", time=3)])
    assert [v.dot for v in monitor.leave("n")] == [Dot("n", counter) for counter in (1, 2, 3)]


def test_view_without_a_node_loses_its_dots_that_a_later_clock_names() -> None:
    monitor: Any = ketal.Monitor(compiled(FREE))
    assert monitor.feed_many([e("n@1", "c", time=3), Control("view", members=("m",))]) == []
    verdicts = monitor.feed(e("m@1", "c", "n:3", time=4))
    assert [v.dot for v in verdicts] == [Dot("n", 2), Dot("n", 3)]


def test_dots_that_a_time_out_may_have_awaited_are_sorted() -> None:
    monitor: Any = ketal.Monitor(compiled("find any A B; within 3 s;"))
    monitor.feed_many([e("n@1", "a", "z:1", time=1), e("m@1", "c", "k:1", time=2)])
    (ended,) = monitor.advance_time(9)
    assert ended.depends_on == (Dot("k", 1), Dot("z", 1))


def test_waits_of_an_order_free_pattern_are_bounded_on_a_stream_without_times() -> None:
    made = compiled("B2 = Causal(B, A); find any A B2;")
    driven = Driven(made, limits=Limits(counters_max=16))
    release: Any = driven.release
    (missing,) = release.queues.missing
    verdicts: list[Any] = []
    for counter in range(1, 101):  # of n, nothing arrives
        verdicts += driven.feed(e(f"m@{counter}", "c", f"n:{counter}"))
        assert len(missing.save()[-1][0]) <= 16
    gaps = [str(v.dot) for v in verdicts if v.kind == "gap"]
    assert gaps == [f"n@{counter}" for counter in range(1, 85)], "the last 16 may still arrive"
    overflow = verdicts[2]
    assert (overflow.limit, overflow.given_up) == (
        "counters_max",
        "the waits for the dots missing longest, 2 times",
    )
    assert driven.summary["gaps"] == driven.summary["patterns"]["P"]["overflows"] == 84
    driven.feed(e("n@1", "a"))
    assert [v.kind for v in driven.feed(e("n@2", "b"))] == ["match"], "they are judged all the same"


def test_waits_that_have_ended_give_up_no_other_wait() -> None:
    driven = Driven(compiled("B2 = Causal(B, A); find any A B2;"), limits=Limits(counters_max=16))
    driven.feed(e("m@1", "c", "k:1"))
    for counter in range(1, 101):
        driven.feed(e(f"m@{counter + 1}", "c", f"n:{counter}"))
        driven.feed(e(f"n@{counter}", "c"))
    assert driven.summary["gaps"] == 0, "only k@1 is missing"


def test_wait_that_ends_with_another_is_not_counted_as_given_up() -> None:
    """Once n@1 is lost, n is missing no event up to n@2, for which m@2 waited."""
    driven = Driven(compiled(FREE), limits=Limits(counters_max=16))
    driven.feed_many([e("m@1", "c", "n:1"), e("m@2", "c", "n:2"), e("n@2", "c")])
    verdicts = driven.feed_many(e(f"m@{i}", "c", f"k{i}:1") for i in range(3, 18))
    assert [v.kind for v in verdicts] == ["gap", "overflow"]
    assert driven.summary["patterns"]["P"]["overflows"] == 1


def test_wait_that_ended_with_a_leave_is_not_counted_as_given_up() -> None:
    driven = Driven(compiled(FREE), limits=Limits(counters_max=16))
    driven.feed(e("m@1", "c", "n:1"))
    assert [v.kind for v in driven.leave("n")] == ["gap"]
    assert driven.feed_many(e(f"m@{i}", "c", f"k{i}:1") for i in range(2, 18)) == []


def test_event_is_waited_for_once_however_many_clocks_name_it() -> None:
    driven = Driven(compiled(FREE), limits=Limits(counters_max=16))
    driven.feed_many(e(f"m@{i}", "c", "n:1") for i in range(1, 101))
    assert driven.summary["gaps"] == 0


def test_waits_that_have_ended_are_evicted_at_a_constant_cost() -> None:
    """A tenth of 20,000 waits has not ended."""
    asked = 0

    def lacks(node: str, upto: int) -> bool:
        nonlocal asked
        asked += 1
        return upto % 10 == 0

    since = MissingSince(ReleaseOptions(), StreamTime(by_watermark=False), lacks)
    for upto in range(1, 20_001):
        since.add("n", upto)
        assert len(since) <= 2 * max(1_024, upto // 10) + 1
    assert asked < 4 * 20_000


def test_event_that_arrives_in_order_after_a_lost_one_adds_no_wait() -> None:
    driven = Driven(compiled(FREE))
    release: Any = driven.release
    (missing,) = release.queues.missing
    driven.feed_many(e(f"n@{counter}", "c") for counter in range(2, 100))
    assert len(missing.save()[-1][0]) == 1


def test_gap_is_reported_once_by_waiting_and_order_free_patterns_together() -> None:
    text = "".join(
        f'pattern {name} {{ order CausalOrder(gap = {gap} s); event B = type == "b"; '
        f'event A = type == "a"; find {how}; within 3 s; }}\n'
        for name, gap, how in (("F", 1, "any A B"), ("G", 2, "any B A"), ("N", 3, "next A B"))
    )
    made = ketal.compile(text)
    events = [e("n@1", "a", time=1), e("n@3", "c", time=2), e("n@5", "c", time=60)]
    for how in (logged, streamed):
        verdicts, summary = how(made, events)
        assert [v["dot"] for v in some(verdicts, "gap")] == ["n@2", "n@4"]
        assert summary["gaps"] == 2
        (one, two) = some(verdicts, "timed_out")
        assert one["depends_on"] == two["depends_on"] == ["n@2", "n@4"]


def test_violation_depends_on_a_loss_before_the_last_round_of_its_scope() -> None:
    """The clock of l@1 does not have the lost m@1, which may have been an A of key 1, too."""
    made = compiled("partition by k; check (A B)*;")
    events = [
        e("n@1", "a", "m:1", time=0, k=1), e("n@2", "b", time=40, k=1), e("l@1", "b", time=41, k=1)
    ]  # fmt: skip
    verdicts, _ = streamed(made, events)
    (violation,) = some(verdicts, "violation")
    assert (violation["event"], violation["depends_on"]) == ("l@1", ["m@1"])


def test_violation_among_events_that_a_node_learns_of_together_depends_on_a_loss_before() -> None:
    program = ketal.compile(
        "pattern P { order CausalOrder(gap = 1 s); at every node; "
        'event A = type == "a"; event B = type == "b"; check (A B)*; on violation skip; }'
    )
    monitor = ketal.Monitor(program)
    monitor.feed_many([e("z@2", "z", time=0), e("z@3", "z", time=9)])
    monitor.feed_many([e("n@1", "a", "z:1", time=10), e("n@2", "a", "z:1", time=10)])
    (violation,) = monitor.feed(e("m@1", "m", "n:2 z:1", time=11))
    assert isinstance(violation, ketal.Violation)
    assert violation.depends_on == (Dot("z", 1),)


def test_changed_program_takes_over_the_existing_holes() -> None:
    monitor: Any = ketal.Monitor(compiled(FREE, order="CausalOrder"))
    monitor.feed_many([e("n@2", "c", time=3), e("m@1", "c", time=10)])
    monitor = Driven.restored(compiled(FREE), monitor.snapshot(), changed=True)
    assert monitor.advance_time(5) == []
    assert [v.dot for v in monitor.advance_time(36)] == [Dot("n", 1)]


def test_changed_program_awaits_the_existing_holes_from_the_last_watermark_on() -> None:
    monitor: Any = ketal.Monitor(compiled(FREE, order="CausalOrder"))
    monitor.feed_many([e("n@2", "c", time=3), e("m@2", "c", time=10)])
    monitor.advance_time(5)
    monitor = Driven.restored(compiled(FREE), monitor.snapshot(), changed=True)
    assert [v.dot for v in monitor.leave("m")] == [Dot("m", 1)]
    assert monitor.advance_time(34) == []
    assert [v.dot for v in monitor.advance_time(35)] == [Dot("n", 1)]


@pytest.mark.parametrize(
    ("topology", "lost"), [("", ["s@1", "m@1"]), ("topology { m -> n; }", ["m@1"])]
)
def test_changed_program_does_not_await_nodes_outside_its_closed_topology(
    topology: str, lost: list[str]
) -> None:
    both = (
        'pattern P { order CausalOrder(gap = 30 s); %s event B = type == "b"; find any B; }\n'
        'pattern Q { event B = type == "b"; find next B; }'
    )
    monitor: Any = ketal.Monitor(ketal.compile(both % ""))
    monitor.feed_many([e("s@2", "b", time=0), e("m@2", "b", time=0)])
    monitor = Driven.restored(ketal.compile(both % topology), monitor.snapshot(), changed=True)
    assert monitor.advance_time(5) == []
    assert sorted(str(v.dot) for v in monitor.advance_time(36)) == sorted(lost)


def test_time_out_after_a_late_event_is_uncertain() -> None:
    made = compiled("B2 = Causal(B, A); find any A B2; within 10 s;", order="CausalOrder")
    records = [
        e("n@1", "a", time=50),
        ketal.Control("watermark", time=45),
        e("n@2", "b", time=44),
    ]
    for how in (logged, streamed):
        verdicts, _ = how(made, records)
        (ended,) = some(verdicts, "timed_out")
        assert ended["depends_on"] == ["n@2"]


def test_verdicts_at_the_end_depend_on_holes_of_held_back_events() -> None:
    events = [e("n1@1", "a", time=1), e("n1@3", "b", "n2:2", time=2), e("n2@2", "c", time=2)]
    for text, kind in (
        ("check (A B)*;", "incomplete"),
        ("B2 = Causal(B, A); find next A B2; within 9 s;", "timed_out"),
    ):
        for order in ("CausalOrder", 'CausalOrder(total, nodes = ["n1", "n2"])'):
            monitor: Any = ketal.Monitor(compiled(text, order=order))
            (ended,) = monitor.feed_many(events) + monitor.close()
            assert ended.verdict == kind
            assert ended.depends_on == (Dot("n1", 2), Dot("n2", 1))
            assert not ended.certain
    monitor = ketal.Monitor(compiled("check (A B)*;", order="CausalOrder"))
    (ended,) = monitor.feed(events[0]) + monitor.close()
    assert ended.certain


def test_refused_event_is_missing_until_it_is_redelivered() -> None:
    made = compiled("check (A B)*;", order="CausalOrder", limits=Limits(held_back_max=1))
    events = [e("n@1", "a"), e("n@3", "z"), e("n@4", "b"), e("n@2", "z")]
    monitor: Any = ketal.Monitor(made)
    (refused,) = monitor.feed_many(events)
    assert refused.verdict == "overflow"
    monitor = ketal.Monitor.restore(made, monitor.snapshot(), limits=made.one.limits)
    (ended,) = monitor.close()
    assert (ended.verdict, ended.certain, ended.depends_on) == ("incomplete", False, (Dot("n", 4),))
    monitor = ketal.Monitor(made)
    monitor.feed_many([*events, events[2], e("n@5", "a")])
    (ended,) = monitor.close()
    assert (ended.verdict, ended.certain) == ("incomplete", True)


def test_match_after_a_refused_event_is_marked() -> None:
    order, limits = "CausalOrder(frontier = 5 s)", Limits(held_back_max=1)
    made = compiled("find next A;", order=order, limits=limits)
    events = [e("n@1", "c", time=1), e("m@1", "a", time=1), e("n@2", "a", "m:1", time=20)]
    for again, marks in ((), [Dot("m", 1)]), ((events[1],), []):
        monitor: Any = ketal.Monitor(made)
        monitor.feed_many(events[:2])
        monitor.advance_time(10)
        verdicts = [*monitor.feed_many([*again, events[2]]), *monitor.close()]
        (match,) = (v for v in verdicts if v.events == (Dot("n", 2),))
        assert list(match.depends_on) == marks


def test_uncertain_verdicts_are_counted_without_listing() -> None:
    events = [e("m@1", "a", time=1), e("m@3", "b", "n:1", time=2), e("n@1", "a", time=3)]
    events += [e("n@2", "b", time=4), e("k@2", "a", time=5)]
    find = "B2 = Causal(B, A); find next A B2; within 9 s;"
    for text, matches, uncertain in (
        (find + " return count;", 2, 2),  # m@1 m@3, and k@2 in vain
        ("B2 = Causal(B, A); find any A B2; within 9 s; return count;", 3, 1),
        ("check A*;", 0, 1),  # on a stream another violation is the first
        ("check (A | B | C)+ C;", 0, 1),
        ("mode possibly; find next A B;", 1, 1),
    ):
        made = compiled(text)
        alike = text != "check A*;" and made.one.pattern.mode is None
        for how in (logged, streamed) if alike else (logged,):
            listed, summary = how(made, events)
            counts = summary["patterns"]["P"]
            assert (counts["matches"], counts["uncertain"]) == (matches, uncertain)
            doubted = [v for v in some(listed, "violation", "incomplete") if not v["certain"]]
            assert len(doubted) == counts["violations"] + counts["incomplete"]
        verdicts = ketal.run(made, events, listing=False)
        assert [v.verdict for v in verdicts] == ["gap", "gap"]
        assert verdicts.summary["patterns"]["P"]["uncertain"] == uncertain
    made = compiled("find next A; return count;", order="CausalOrder(gap = 1 s)")
    monitor: Any = ketal.Monitor(made)
    monitor.feed_many([e("m@2", "a", time=1), e("n@1", "a", time=9)])
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    monitor.close()
    counts = monitor.summary["patterns"]["P"]
    assert (counts["matches"], counts["uncertain"]) == (2, 1)
    assert "uncertain" not in logged(compiled(find), events[2:4])[1]["patterns"]["P"]


def test_window_ends_when_its_held_back_events_are_released() -> None:
    made = compiled("B2 = Causal(B, A); find next A B2; within 10 s;", order="CausalOrder")
    monitor = ketal.Monitor(made)
    held = [e("m@2", "a", time=1), e("k@2", "a", time=2), e("k@3", "a", time=40)]
    assert monitor.feed_many(held) == []
    assert monitor.advance_time(30) == []
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    assert monitor.feed(e("m@1", "c", time=30)) == []  # k@2 is still to be offered
    ended = monitor.feed(e("k@1", "c", time=31))
    assert [v.verdict for v in ended] == ["timed_out", "timed_out"]
    assert [v.to_dict()["bindings"] for v in ended] == [{"A": ["m@2"]}, {"A": ["k@2"]}]


def test_window_does_not_wait_for_the_time_of_an_event_that_is_released() -> None:
    made = compiled("B2 = Causal(B, A); find next A B2; within 10 s;", order="CausalOrder")
    monitor = ketal.Monitor(made)
    assert monitor.feed_many([e("m@2", "a", time=1), e("k@2", "a", time=40)]) == []
    assert monitor.advance_time(1) == []
    assert monitor.feed(e("m@1", "c", time=1)) == []
    (ended,) = monitor.advance_time(30)
    assert ended.verdict == "timed_out"
    assert [str(event.dot) for event, _ in monitor.held_back()] == ["k@2"]


def test_windows_that_end_by_time_do_not_depend_on_arrival_order() -> None:
    """Each event is followed by the highest watermark at which no later event is late."""
    made = compiled("B2 = Causal(B, A); find next A B2; within 3 s;", order="CausalOrder")
    ended = 0

    @drawn(25, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal ended
        events = execution(rng, events_max=14, types=("a", "b"), untimed=0.0, linear=True)
        arrival = rng.sample(events, len(events))
        monitor = ketal.Monitor(made)
        verdicts = []
        for number, event in enumerate(arrival):
            verdicts += monitor.feed(event)
            left = [x.time for x in arrival[number + 1 :] if x.time is not None]
            if left:
                verdicts += monitor.advance_time(min(left))
            if rng.random() < 0.2:
                monitor = ketal.Monitor.restore(made, monitor.snapshot())
        verdicts += monitor.close()
        whole = ketal.Monitor(made)
        expected = [*whole.feed_many(arrival), *whole.close()]
        assert sorted(map(str, verdicts)) == sorted(map(str, expected))
        ended += len([v for v in verdicts if isinstance(v, ketal.TimedOut)])

    assert ended > 20


# --- where a lost event would have stood -----------------------------------------------

TOTAL = 'CausalOrder(total, gap = 30 s, nodes = ["n1", "n2", "n3"])'
SENSITIVE = (
    "check (A B)*;",
    "check (A B)*; on violation resume;",
    "find next A B;",
    "find next A B+ C;",
    "find next A not C B;",
    "find strict A B2;",
    "find next A B2; within 3 events;",
    "find next A B; at every node;",
    "find strict A B; at every node;",
)


def alike(verdict: Any) -> tuple[Any, ...]:
    """Return the part of a verdict that another execution must share: for a check, its scope."""
    events = verdict.events if isinstance(verdict, ketal.Match) else ()
    return verdict.verdict, events, str(verdict.scope)


def test_certain_verdict_under_total_holds_for_every_possible_lost_event() -> None:
    """The lost event is put back with each type that it can have had."""
    certain = doubted = 0
    letters = ("a", "b", "c", "z")
    programs = [
        compiled(("B2 = Causal(B, A); " if "B2" in text else "") + text, order=TOTAL)
        for text in SENSITIVE
    ]

    @drawn(55, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal certain, doubted
        made = rng.choice(programs)
        whole = execution(rng, nodes_max=3, events_max=10, types=letters[:3], untimed=0.0)
        if not whole:
            return
        lost = rng.choice(whole)
        kept = [x for x in whole if x is not lost]
        if not any(lost.dot in past(x) for x in kept):
            return
        possible = []
        for letter in letters:
            given: dict[str, Any] = {"clock": lost.clock, "time": lost.time, "data": lost.data}
            again = ketal.Event(node=lost.node, type=letter, **given)
            possible.append({alike(v) for v in ketal.run(made, [*kept, again])})
        monitor: Any = ketal.Monitor(made)
        live = []
        for event in rng.sample(kept, len(kept)):
            live += monitor.feed(event)
            if rng.random() < 0.3:
                monitor = ketal.Monitor.restore(made, monitor.snapshot())
        live += monitor.close()
        finite = list(ketal.run(made, kept))
        assert sorted(map(repr, live)) == sorted(map(repr, finite))
        said: list[Any] = [v for v in finite if v.verdict != "gap"]
        for verdict in said:
            if verdict.certain:
                certain += 1
                assert all(alike(verdict) in those for those in possible)
            else:
                doubted += 1
                assert verdict.depends_on == (lost.dot,)

    assert min(certain, doubted) > 8, (certain, doubted)


def test_match_under_total_depends_on_losses_that_may_be_between_its_events() -> None:
    """The lost n3@2 has a place after (2, n3, 2), and before (3, n3, 3), whose clock has it."""
    events = [e(f"n1@{n}", "a", time=1) for n in range(1, 5)]
    events += [e(f"n2@{n}", "b", time=1) for n in range(1, 5)]
    events += [e("n3@1", "c", time=1), e("n3@3", "c", time=1)]
    made = compiled("find next A B;", order=TOTAL)
    for limits in (LIMITS, replace(LIMITS, lost_max=1)):
        for judged in (
            ketal.run(made, events, limits=limits),
            ketal.Monitor(made, limits=limits).feed_many([*events, ketal.Control("end")]),
        ):
            matches = [v for v in judged if isinstance(v, ketal.Match)]
            assert {str(v.events[0]): [*map(str, v.depends_on)] for v in matches} == {
                "n1@1": [],
                "n1@2": [],
                "n1@3": ["n3@2"],
                "n1@4": [],
            }
    alone = compiled("find next A;", order=TOTAL)  # order-independent: each stands for itself
    assert all(v["certain"] for v in some(logged(alone, events)[0], "match") if "certain" in v)


def test_match_under_total_does_not_depend_on_a_refused_event_that_comes_after_it() -> None:
    order = 'CausalOrder(total, nodes = ["n1", "n2"])'
    monitor = ketal.Monitor(compiled("find next A B;", order=order), limits=Limits(held_back_max=1))
    assert monitor.feed_many([e("n1@1", "a"), e("n1@2", "b")]) == []
    (refused,) = monitor.feed(e("n1@5", "c"))
    assert refused.verdict == "overflow"
    (match,) = monitor.feed(e("n2@1", "c"))
    assert isinstance(match, ketal.Match)
    assert match.certain


def test_matches_under_total_after_losses_beyond_the_limit_stay_uncertain() -> None:
    """Of the lost n3@2 and n3@4 only the later one has a place of its own if one is the limit."""
    events = [e(f"n1@{n}", "a", time=1) for n in range(1, 7)]
    events += [e(f"n2@{n}", "b", time=1) for n in range(1, 7)]
    events += [e(f"n3@{n}", "c", time=1) for n in (1, 3, 5)]
    more: list[Any] = [e("n1@7", "a", time=50), e("n2@7", "b", time=50), Control("end")]
    made = compiled("find next A B;", order=TOTAL)
    for lost_max, others in ((LIMITS.lost_max, []), (1, ["n3@2"])):
        limits = replace(LIMITS, lost_max=lost_max)
        monitor: Any = ketal.Monitor(made, limits=limits)
        verdicts = [*monitor.feed_many(events), *monitor.advance_time(40)]
        monitor = ketal.Monitor.restore(made, monitor.snapshot(), limits=limits)
        verdicts += monitor.feed_many(more)
        for judged in (verdicts, ketal.run(made, [*events, *more], limits=limits)):
            matches = [v for v in judged if isinstance(v, ketal.Match)]
            assert {v.events[0].counter: [*map(str, v.depends_on)] for v in matches} == {
                1: [],
                2: [],
                3: ["n3@2"],
                4: others,
                5: [*others, "n3@4"],
                6: others,
                7: others,
            }


@pytest.mark.parametrize(("lost", "marks"), [(2, ["n3@2"]), (4, [])])
def test_time_out_under_total_depends_on_losses_that_may_be_before_it(
    lost: int, marks: list[str]
) -> None:
    """The window of n1@1 ends at n1@3, after the place of n3@2 and before that of n3@4."""
    made = compiled("find next A B; within 2 events;", order=TOTAL)
    events = [e("n1@1", "a"), e("n1@2", "c"), e("n1@3", "c")]
    events += [e(f"n3@{n}", "z") for n in range(1, 6) if n != lost]
    for verdicts, _ in (logged(made, events), streamed(made, events)):
        (ended,) = some(verdicts, "timed_out")
        assert ended.get("depends_on", []) == marks


def test_match_under_total_depends_on_a_late_event_between_its_events() -> None:
    made = compiled("find next A B;", order='CausalOrder(total, nodes = ["n1", "n2"])')
    events = [e("n1@1", "a"), e("n1@2", "z"), e("n2@1", "z"), e("n2@2", "z"), e("n2@3", "z")]
    monitor: Any = ketal.Monitor(made)
    assert monitor.feed_many([*events, e("n1@3", "z"), e("n1@4", "z")]) == []
    (late,) = monitor.feed(e("n0@1", "b", "n1:1"))  # nobody said that it would come
    assert late.verdict == "late"
    monitor = ketal.Monitor.restore(made, monitor.snapshot())
    verdicts = monitor.feed_many([e("n1@5", "b"), e("n1@6", "a"), e("n1@7", "b")])
    verdicts += monitor.close()
    assert [(str(v.events[0]), v.depends_on) for v in verdicts] == [
        ("n1@1", (Dot("n0", 1),)),
        ("n1@6", ()),
    ]


# --- finite logs -----------------------------------------------------------------------


def test_holes_of_a_log_are_dots_in_clocks_without_events() -> None:
    @drawn(27, 1_000)
    def holds(rng: random.Random) -> None:
        kept = [x for x in execution(rng, events_max=14) if rng.random() > 0.4]
        named = {Dot(n, c) for n, first, last in holes(kept) for c in range(first, last + 1)}
        known = {dot for x in kept for dot in past(x)}
        assert named == known - {x.dot for x in kept}


def test_log_reports_gaps_and_marks_verdicts_after_them() -> None:
    text = "B2 = Causal(B, A); find next A B2;"
    events = [e("m@1", "a"), e("m@3", "b", "n:1"), e("n@1", "a"), e("n@2", "b")]
    verdicts, summary = logged(compiled(text), events)
    assert [v["dot"] for v in some(verdicts, "gap")] == ["m@2"]
    matches = {tuple(v["events"]): v.get("depends_on", []) for v in some(verdicts, "match")}
    assert matches == {("n@1", "n@2"): [], ("m@1", "m@3"): ["m@2"]}
    assert (summary["gaps"], summary["holes"]) == (1, 1)


def test_holes_of_a_log_are_only_counted_without_gap() -> None:
    events = [e("m@1", "a"), e("m@3", "b", "n:1")]
    for order in ("CausalOrder", 'CausalOrder(total, nodes = ["m", "n"])', "arrival"):
        verdicts, summary = logged(compiled("find next A B;", order=order), events)
        assert [v.get("certain", True) for v in verdicts] == [True]
        assert summary["gaps"] == 0
        assert summary["holes"] == (1 if order == "arrival" else 2)


SEVERAL_ORDERS = "".join(
    f'pattern {name} {{ order CausalOrder{gap}; event B = type == "b"; find {how} B; }}\n'
    for name, gap, how in (
        ("G", "(gap = 1 s)", "next"),
        ("T", '(total, nodes = ["m"], gap = 2 s)', "next"),
        ("N", "", "next"),
        ("F", "(gap = 1 s)", "any"),
    )
)


def test_each_pattern_has_the_marks_of_its_own_order() -> None:
    verdicts, summary = logged(ketal.compile(SEVERAL_ORDERS), [e("m@2", "b")])
    assert [v["dot"] for v in some(verdicts, "gap")] == ["m@1"]
    certain = {v["pattern"]: v.get("certain", True) for v in some(verdicts, "match")}
    assert certain == {"G": False, "T": False, "N": True, "F": True}
    assert summary["gaps"] == 1


@pytest.mark.parametrize("strategy", ["next", "any"])
def test_dot_outside_a_closed_topology_is_not_lost(strategy: str) -> None:
    text = f"find {strategy} B; topology {{ m -> n; }}"
    events = [e("m@1", "b", "stranger:1"), e("n@2", "b")]
    verdicts, _ = logged(compiled(text), events)
    assert [v["dot"] for v in some(verdicts, "gap")] == ["n@1"]
    assert compared(verdicts, "total") == compared(streamed(compiled(text), events)[0], "total")


def test_late_event_marks_later_verdicts_in_a_log_as_on_a_stream() -> None:
    made = compiled("find next A; within 10 s;", order="CausalOrder")
    records = [
        e("n@1", "a", time=50),
        ketal.Control("watermark", time=40),
        e("m@1", "a", time=1),
        e("m@2", "a", time=60),
    ]
    verdicts, _ = logged(made, records)
    marks = {v["events"][0]: v.get("depends_on") for v in some(verdicts, "match")}
    assert marks == {"n@1": None, "m@2": ["m@1"]}
    assert compared(streamed(made, records)[0], "total") == compared(verdicts, "total")


def test_verdict_of_a_mode_is_uncertain_after_any_loss() -> None:
    text = "mode definitely; B2 = Causal(B, A); find next A B2;"
    (gap, match), _ = logged(compiled(text), [e("m@1", "a"), e("m@2", "b"), e("n@2", "c")])
    assert (gap["dot"], match["certain"], match["depends_on"]) == ("n@1", False, ["n@1"])


def test_hole_longer_than_the_limit_is_reported_by_its_ends_and_counted_fully() -> None:
    made = compiled("find next B;", limits=Limits(lost_max=3))
    verdicts = ketal.run(made, [e("m@11", "b")])
    assert [str(v.dot) for v in verdicts if isinstance(v, ketal.Gap)] == ["m@1", "m@10"]
    assert verdicts.summary["gaps"] == verdicts.summary["holes"] == 10


def test_hole_that_several_orders_report_is_counted_once() -> None:
    limits = Limits(lost_max=3)
    made = ketal.compile(SEVERAL_ORDERS, limits=limits)
    monitor = ketal.Monitor(made)
    monitor.feed_many([e("m@11", "b"), Control("end")])
    for summary in (monitor.summary, ketal.run(made, [e("m@11", "b")]).summary):
        assert summary["gaps"] == summary["holes"] == 10


# --- what is forgotten -----------------------------------------------------------------


def test_verdicts_after_a_loss_stay_uncertain_beyond_the_limit() -> None:
    """The losses before an event are read from its clock, however many events follow a loss."""
    text = "find next A B; partition by key;"
    behind = [e(f"m@{n}", "a", time=0, key=n) for n in range(2, 12)]
    behind += [e(f"m@{n}", "d", time=0) for n in range(12, 22)]
    ends = [e(f"k@{n}", "b", time=60, key=n + 1) for n in range(1, 11)]
    for limits in (Limits(candidates_max=2), Limits()):
        made = compiled(text, limits=limits)
        monitor = ketal.Monitor(made)
        verdicts = [*monitor.feed_many(behind), *monitor.advance_time(50)]
        verdicts += monitor.feed_many(ends[:5])
        monitor = ketal.Monitor.restore(made, monitor.snapshot(), limits=limits)
        verdicts += [*monitor.feed_many(ends[5:]), *monitor.close()]
        matches = [v for v in verdicts if isinstance(v, ketal.Match)]
        assert len(matches) == 10
        assert all(v.depends_on == (Dot("m", 1),) for v in matches)
        counts = monitor.summary["patterns"]["P"]
        assert "marks_forgotten" not in counts


def test_loss_does_not_make_earlier_events_uncertain() -> None:
    made = compiled("find next A B;", limits=Limits(candidates_max=1))
    monitor = ketal.Monitor(made)
    verdicts = monitor.feed_many(
        [e("n@1", "a", time=0), e("n@3", "d", time=1), e("n@4", "d", time=2)]
    )
    verdicts += [*monitor.advance_time(50), *monitor.feed(e("m@1", "b", time=60))]
    (match,) = (v for v in verdicts if isinstance(v, ketal.Match))
    assert match.certain
    assert "marks_forgotten" not in monitor.summary["patterns"]["P"]


def test_losses_beyond_the_limit_are_counted_and_leave_a_verdict_uncertain() -> None:
    made = compiled("find next A B; within 5 s;", limits=Limits(lost_max=2))
    monitor = ketal.Monitor(made)
    verdicts = monitor.feed(e("m@1", "a", time=0))
    for node in "wxyz":
        verdicts += monitor.feed(e(f"{node}@2", "d", time=1))
    verdicts += monitor.close()
    (ended,) = (v for v in verdicts if isinstance(v, ketal.TimedOut))
    assert ended.depends_on == (Dot("y", 1), Dot("z", 1))
    assert monitor.summary["patterns"]["P"]["marks_forgotten"] == 2
