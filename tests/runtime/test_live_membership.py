"""A Monitor over nodes that join, leave, restart and drop entries from their clocks.

Its verdicts are compared with those of the finite run, and those with the verdicts on the same
execution with whole clocks.
"""

from __future__ import annotations

import itertools
import random
from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import reject

import ketal
from ketal import semantics
from ketal.errors import PatternError
from ketal.model import syntax as ast
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.verdicts.execution_verdicts import Gap, Rejected
from ketal.model.verdicts.find_verdicts import Match
from ketal.programs.program import Program
from ketal.runtime.monitor import Monitor
from tests.cases import e, facts
from tests.driven import Driven
from tests.outcomes import collected
from tests.property.memberships import Run, arrival, base, dressed, simulate
from tests.property.patterns import pattern_file
from tests.property.test_engine import program_of
from tests.sampling import drawn, sample
from tests.work import counted_lines

Record = Event | Control
KINDS = ("free", "total", "independent", "dependent")
LIMITS = Limits(
    matches_per_event_max=300,
    configurations_max=300,
    visits_max=sample(10_000, DEFAULT.visits_max),
)
CAUSAL = "CausalOrder"


def program(*statements: str, order: str = CAUSAL) -> Program:
    text = "".join(f"    {statement};\n" for statement in statements)
    return ketal.compile(
        f"pattern P {{\n    order {order};\n"
        '    event A = type == "a"; event B = type == "b";\n' + text + "}"
    )


def texts(verdicts: Iterable[Any]) -> list[str]:
    return [str(v) for v in verdicts]


def adds_up(summary: Mapping[str, Any]) -> bool:
    events = dict(summary["events"])
    return bool(events.pop("read") == sum(events.values()))


# --- against the finite run --------------------------------------------------------------


@dataclass
class Case:
    """A pattern, an execution, and its records in order of arrival."""

    program: Program
    run: Run
    records: list[Record]
    unknown: bool
    """Whether events of a node that left were lost: then clocks cannot be restored exactly, and it
    is unknown which of two mirror images comes first."""

    @property
    def kind(self) -> str:
        compiled = self.program.compiled[0]
        if compiled.order_free:
            return "free"
        if compiled.pattern.order.total:
            return "total"
        return "independent" if compiled.order_independent else "dependent"


def membership_case(
    rng: random.Random, *, restarts: bool, losses: bool = False, anywhere: bool = False
) -> Case:
    """Return a random case; reject a pattern that no event can satisfy.

    A `leave` comes after the events of its node, and before clocks that lack the node's entry. With
    `anywhere` it comes at any place, and the first events of restarted nodes may be lost.
    """
    length = rng.choice((8, 11, 14))
    run = simulate(rng, restarts=restarts, events_max=length, churns=(0.3, 0.6))
    dressed(rng, run)
    file = pattern_file(rng, order="causal", without=rng.choice(((), ("window",))))
    (pattern,) = file.patterns
    gap = ast.Duration(1, "s") if losses else None
    order = ast.Order("causal", gap=gap)
    if rng.random() < 0.4:
        nodes = tuple(sorted({x.node for x in run.true}))
        order = ast.Order("causal", total=True, nodes=nodes, gap=gap)
    try:
        compiled = program_of(replace(file, patterns=(replace(pattern, order=order),)))
    except PatternError:
        reject()
    lost = {i for i in range(len(run.true)) if losses and rng.random() < 0.2}
    if restarts and not anywhere:
        # Two first events with different content show that a node has restarted.
        lost -= {i for i, x in enumerate(run.true) if x.counter == 1}
    records: list[Record] = []
    for item in arrival(rng, run, anywhere=anywhere):
        if isinstance(item, str):
            records.append(Control("leave", node=base(item)))
        elif item not in lost:
            records.append(run.stamped[item])
        if rng.random() < 0.2:
            # A duplicate of an ambiguous event may be unambiguous by now.
            again = [r for r in records if isinstance(r, Event)]
            records += rng.sample(again, min(1, len(again)))
    unknown = any(run.true[i].node in run.left for i in lost)
    return Case(compiled, run, records, unknown)


def judged_log(compiled: Program, records: Iterable[Record]) -> tuple[list[str], ketal.Summary]:
    verdicts = ketal.run(compiled, records, limits=LIMITS)
    lines = [as_json_text(v) for v in verdicts]
    return lines, verdicts.summary


def monitored(
    compiled: Program, records: Iterable[Record], rng: random.Random | None = None
) -> tuple[list[str], ketal.Summary]:
    """Return a Monitor's verdicts; with `rng`, it is restored from a snapshot now and then."""
    monitor = Monitor(compiled, limits=LIMITS)
    lines: list[str] = []
    for record in records:
        lines += map(as_json_text, monitor.feed(record))
        if rng is not None and rng.random() < 0.2:
            monitor = Monitor.restore(compiled, monitor.snapshot(), limits=LIMITS)
    lines += map(as_json_text, monitor.close())
    assert monitor.held_back() == []
    assert adds_up(monitor.summary)
    return lines, monitor.summary


def as_json_text(verdict: Any) -> str:
    """Return a verdict's JSON object as text."""
    return repr(verdict.to_dict())


def without_loss_marks(lines: Iterable[str]) -> list[str]:
    """Return verdicts without the fields on lost events."""
    marks = ("certain", "depends_on")
    return [
        repr({name: value for name, value in literal_eval(text).items() if name not in marks})
        for text in lines
    ]


def of_kinds(lines: list[str], *kinds: str) -> list[str]:
    return [text for text in lines if any(f"'verdict': '{kind}'" in text for kind in kinds)]


def depends_on(text: str) -> set[str]:
    return set(literal_eval(text).get("depends_on", ()))


def has_copy_of_rejected(case: Case, lines: list[str]) -> bool:
    """Return whether an event that was rejected as ambiguous arrives several times."""
    places = {literal_eval(text)["place"] for text in of_kinds(lines, "rejected")}
    copies = Counter(map(id, case.records))
    return any(
        copies[id(one)] > 1 and str(one.dot) in places
        for one in case.records
        if isinstance(one, Event)
    )


def completed_by_events(lines: list[str]) -> list[str]:
    """Return, in order, the verdicts that offered events complete; windows may end later."""
    return of_kinds(lines, "match", "violation")


def comparable(lines: list[str]) -> list[str]:
    """Return verdicts without the parts that may depend on arrival.

    For a check that leaves the kind of verdict of each scope. A time-out may lack the marks of a
    loss, since its window may end before or after the loss is known.
    """
    ended = of_kinds(lines, "timed_out")
    verdicts = [
        literal_eval(t) for t in [t for t in lines if t not in ended] + without_loss_marks(ended)
    ]
    return sorted(
        {
            repr((v["verdict"], v["scope"]))
            if v["verdict"] in ("violation", "incomplete")
            else repr(v)
            for v in verdicts
        }
    )


def has_shrunk_clocks(run: Run) -> bool:
    return any(s.clock != t.clock for s, t in zip(run.stamped, run.true, strict=True))


def oracle_facts(case: Case) -> dict[str, Any]:
    return facts(semantics.judge(case.program.file, "P", case.run.true))


def monitor_facts(case: Case) -> dict[str, Any]:
    monitor = Driven(case.program, limits=LIMITS)
    verdicts = [*monitor.feed_many(case.records), *monitor.close()]
    return facts(collected(monitor.runs[0], verdicts))


def test_shrunk_clocks_give_the_verdicts_of_whole_clocks() -> None:
    """A Monitor over shrunk clocks gives the oracle's verdicts on the whole clocks."""
    seen: Counter[str] = Counter()

    @drawn(100, 1_000)
    def holds(rng: random.Random) -> None:
        case = membership_case(rng, restarts=False)
        expected, _ = judged_log(case.program, case.run.true)
        lines, summary = monitored(case.program, case.records, rng)
        if of_kinds(expected, "overflow") or of_kinds(lines, "overflow"):
            reject()
        # In a finite log a `leave` counts for the whole log, wherever it stands.
        anyhow = rng.sample(case.records, len(case.records))
        assert judged_log(case.program, anyhow)[0] == expected
        if case.kind in ("total", "free"):
            assert sorted(lines) == sorted(expected)
            assert (
                completed_by_events(lines) == completed_by_events(expected) or case.kind == "free"
            )
            assert monitor_facts(case) == oracle_facts(case)
        else:
            true = {str(x.id): x for x in case.run.true}
            whole = [true[str(x.id)] for x in case.records if isinstance(x, Event)]
            assert lines == monitored(case.program, whole)[0]
        assert summary["gaps"] == summary["events"]["late"] == 0
        seen[case.kind] += bool(expected) and has_shrunk_clocks(case.run)

    assert min(seen[kind] for kind in KINDS) > 2, "the cases must not be empty ones"


@pytest.mark.parametrize("restarts", [False, True], ids=["leaves", "restarts"])
def test_stream_with_losses_restarts_and_duplicates_equals_the_finite_log(
    restarts: bool,
) -> None:
    """The same verdicts, marks and gaps, and the same events rejected as ambiguous."""
    seen: Counter[str] = Counter()

    @drawn(70, 3_000)
    def holds(rng: random.Random) -> None:
        case = membership_case(rng, restarts=restarts, losses=True)
        expected, finite = judged_log(case.program, case.records)
        if finite.get("impossible"):
            reject()  # an entry was misread, so that clocks form a cycle: a stream holds it back
        lines, summary = monitored(case.program, case.records, rng)
        if of_kinds(expected, "overflow") or of_kinds(lines, "overflow"):
            reject()
        assert of_kinds(lines, "rejected") == of_kinds(expected, "rejected")
        if has_copy_of_rejected(case, lines) and summary["gaps"] != finite["gaps"]:
            reject()  # the copy is not ambiguous any more, and its dot was declared lost before
        if case.kind == "total":
            ours, theirs = completed_by_events(lines), completed_by_events(expected)
            assert without_loss_marks(ours) == without_loss_marks(theirs)
            for own, other in zip(ours, theirs, strict=True):
                if own != other:
                    # Of a node that left, no clock had named the lost event by then.
                    rest = of_kinds(lines[lines.index(own) :], "gap")
                    later = {literal_eval(text)["dot"] for text in rest}
                    marks, wanted = depends_on(own), depends_on(other)
                    assert case.unknown
                    assert marks <= wanted <= marks | later
            if ours == theirs:
                assert comparable(lines) == comparable(expected)
        elif case.kind == "independent":
            assert comparable(lines) == comparable(expected)
        elif case.kind == "free" and not case.unknown:
            # A clock that may lack an entry marks its event on a stream, in a log `doubtful`.
            assert comparable(without_loss_marks(lines)) == comparable(expected)
        assert summary["events"] == finite["events"]
        seen[case.kind] += bool(expected)

    assert min(seen[kind] for kind in KINDS) > 3, "the cases must not be empty ones"


@pytest.mark.parametrize(
    ("restarts", "losses"), [(False, False), (True, True)], ids=["leaves", "restarts"]
)
def test_leaves_at_any_place_change_no_verdict_without_a_count(
    restarts: bool, losses: bool
) -> None:
    """A stream judges as the finite log, or counts late, lost and doubtful events."""
    seen: Counter[tuple[str, bool]] = Counter()

    @drawn(45, 3_000)
    def holds(rng: random.Random) -> None:
        case = membership_case(rng, restarts=restarts, losses=losses, anywhere=True)
        if case.kind == "dependent":
            reject()
        expected, finite = judged_log(case.program, case.records)
        if finite.get("impossible"):
            reject()  # an entry was misread, so that clocks form a cycle: a stream holds it back
        lines, summary = monitored(case.program, case.records, rng)
        if of_kinds(expected, "overflow") or of_kinds(lines, "overflow"):
            reject()
        assert of_kinds(lines, "rejected") == of_kinds(expected, "rejected")
        silent = not summary.get("doubtful")
        if case.kind == "free":
            found, wanted = (
                sorted(without_loss_marks(of_kinds(x, "match"))) for x in (lines, expected)
            )
            assert found == wanted or not silent or case.unknown
        else:
            silent = silent and not (summary["gaps"] or summary["events"]["late"])
            found, wanted = completed_by_events(lines), completed_by_events(expected)
            if case.kind == "independent":
                found, wanted = comparable(found), comparable(wanted)
            assert found == wanted or not silent
        seen[case.kind, silent] += bool(expected)

    assert min(seen[kind, silent] for kind in KINDS[:3] for silent in (True, False)) > 0


def test_an_event_offered_with_a_shrunk_clock_is_counted_when_that_is_detected() -> None:
    """n2@2 was offered before n2@1 or the leave showed that n1@1 was in its past."""
    compiled = ketal.compile(
        'pattern P { order CausalOrder; event A = type == "a"; event B = type == "b";'
        " X = A; Y = Causal(B, X); find any X Y; }"
    )
    first, then, last = e("n1@1", "a"), e("n2@1", "c", "n1:1"), e("n2@2", "b")
    leave = Control("leave", node="n1")
    records: list[Record] = [first, then, leave, last]
    missed = 0
    for order in itertools.permutations(records):
        lines, summary = monitored(compiled, order, random.Random(1))
        early = order.index(last) < min(order.index(then), order.index(leave))
        assert (len(of_kinds(lines, "match")), summary.get("doubtful", 0)) == (
            (0, 1) if early else (1, 0)
        ), order
        missed += early
    assert missed == 8
    # An event after the leave, or whose clock lacks no cause, is not counted.
    whole: list[Record] = [first, then, e("n2@2", "b", "n1:1"), leave]
    for order in itertools.permutations(whole):
        assert "doubtful" not in monitored(compiled, order)[1], order


def test_clock_that_was_restored_on_arrival_stays_restored_for_later_events() -> None:
    """n2@6 is offered at once, with n1: 4 of n2@4; n2@7 waits for n2@5, and knows n1@4 too."""
    made = program("event Any = true", "find any A Any")
    events = [e(f"n1@{count}", "x") for count in (1, 2, 3, 4)]
    events += [e("n2@1", "x"), e("n2@2", "x", "n1:4")]
    late = [e("n2@3", "x"), e("n2@4", "x"), e("n2@6", "x", "n1:2"), e("n2@7", "a"), e("n2@5", "x")]
    records: list[Record] = [*events, Control("leave", node="n1"), *late]
    assert texts(ketal.run(made, records)) == texts(Monitor(made).feed_many(records)) == []


@pytest.mark.parametrize("order", ["CausalOrder", "CausalOrder(gap = 1 s)", "CausalOrder(total)"])
def test_clock_of_an_event_can_grow_if_its_predecessor_waits_since_before_the_leave(
    order: str,
) -> None:
    """n1@1 is in the past of n2@3 through n2@1 only, wherever n2@1 and the leave arrive."""
    made = program("event No = exists(no)", "Y = Conc(B, A)", "find any A not No Y", order=order)
    records: list[Record] = [e("n1@1", "a"), e("n2@1", "x", "n1:1"), e("n2@2", "x"), e("n2@3", "b")]
    records.append(Control("leave", node="n1"))
    for order_of_arrival in itertools.permutations(records):
        monitor = Monitor(made)
        verdicts = [*monitor.feed_many(order_of_arrival), *monitor.close()]
        found = any(isinstance(one, Match) for one in verdicts)
        assert not found or monitor.summary.get("doubtful"), texts(order_of_arrival)


def test_clock_can_grow_through_the_event_that_shows_that_it_shrank() -> None:
    """n3@2 shows that n1 left before n3@3; later n3@1 shows that n2 left, too."""
    made = program("event No = exists(no)", "Y = Conc(B, A)", "find any A not No Y")
    records: list[Record] = [e("n3@3", "b"), e("n1@1", "x", "n2:1"), e("n3@2", "x", "n1:1")]
    records += [e("n2@1", "a"), e("n3@1", "x", "n1:1 n2:1")]
    assert texts(ketal.run(made, records)) == texts(Monitor(made).feed_many(records)) == []


def test_event_whose_lost_predecessor_may_know_of_a_departed_node_is_doubtful_in_a_log() -> None:
    """n2@2 is lost and may know n1@3, which n2@3 may lack as n1 left; the log has both n1@2 and it.

    The entry that is restored, n1: 2, does not show that n2@3 kept it.
    """
    made = program("Y = Conc(B, A)", "find any A Y")
    records: list[Record] = [Control("leave", node="n1"), e("n1@1", "x"), e("n1@2", "x")]
    records += [e("n2@1", "x", "n1:2"), e("n2@3", "b"), e("n3@1", "x"), e("n1@3", "a", "n3:1")]
    log, monitor = ketal.run(made, records), Monitor(made)
    assert texts(log) == ["match P: A=n1@3, Y=n2@3"]
    monitor.feed_many(records)
    monitor.close()
    assert log.summary["doubtful"] == monitor.summary["doubtful"] == 1


def test_a_dropped_entry_counts_in_a_log_as_on_a_stream_when_incarnations_are_named() -> None:
    """n2@4 shows that n1 left, so the last event may be n2@3 although it does not know n1@1."""
    made = program("Y = Conc(B, A)", "find any A Y")
    first = [e("n1@1", "a"), e("n2@2", "x", "n1:1"), e("n2@4", "x"), e("n2@1", "x")]
    records = [*first, e("n2@1", "y"), e("n2@2", "y"), e("n2@3", "x")]
    for verdicts in (ketal.run(made, records), Monitor(made).feed_many(records)):
        assert [v.place for v in verdicts if isinstance(v, Rejected)] == ["n2@3"]


def test_an_event_offered_with_a_shrunk_clock_is_also_detected_at_the_end() -> None:
    """n2@1 never arrives; n3@1 shows the entry of n1 that n2@3 lacks; n2@2 is still missing."""
    compiled = conc()
    monitor = Monitor(compiled)
    monitor.feed_many([e("n1@1", "a"), e("n2@3", "b", "n3:1"), Control("leave", node="n1")])
    assert texts(monitor.feed(e("n3@1", "c", "n1:1"))) == []
    assert "doubtful" not in monitor.summary
    monitor = Monitor.restore(compiled, monitor.snapshot())
    monitor.close()
    assert monitor.summary["doubtful"] == 1


def test_clock_of_a_late_event_is_restored_even_if_no_other_clock_shrank() -> None:
    """If n1@5 is in the past of n2@1, it is in that of n2@2, whose place is after the match."""
    compiled = program("find next A B", "within 1 h", order="CausalOrder(total)")
    for known, depends_on in (("n1:5", ()), ("", (ketal.Dot("n2", 2),))):
        events: list[Record] = [e(f"n1@{n}", "c", time=10) for n in range(1, 6)]
        events.append(e("n2@1", "c", known, time=10))
        events += [e("n3@1", "a", time=10), e("n3@2", "c", time=10), e("n3@3", "b", time=10)]
        events += [Control("watermark", time=5), e("n2@2", "a", time=1)]
        late, match = ketal.run(compiled, events)
        assert late.kind == "late"
        assert isinstance(match, Match)
        assert match.depends_on == depends_on


def complete_topology(names: Iterable[str]) -> ast.Topology:
    """Return the topology with an edge between every two nodes: one domain."""
    edges = itertools.permutations(sorted({base(name) for name in names}), 2)
    return ast.Topology(tuple(ast.TopologyEdge(p, q) for p, q in edges))


def test_shrunk_clocks_within_one_domain_of_all_nodes_are_restored_as_without_a_topology() -> None:
    judgements = 0

    @drawn(25, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal judgements
        case = membership_case(rng, restarts=False)
        (pattern,) = case.program.file.patterns
        nodes = {x.node for x in case.run.true}
        if pattern.order.total or len({base(name) for name in nodes}) < 2:
            reject()
        within = replace(pattern, topology=complete_topology(nodes))
        compiled = program_of(replace(case.program.file, patterns=(within,)))
        lines, summary = monitored(compiled, case.records, rng)
        expected, plainly = monitored(case.program, case.records)
        # Ids differ: they are of another pattern.
        found = [{**literal_eval(text), "id": ""} for text in lines]
        assert found == [{**literal_eval(text), "id": ""} for text in expected]
        assert summary["events"] == plainly["events"]
        judgements += len(lines)

    assert judgements > 100


def assert_lost_matches_are_counted(events: list[Event]) -> None:
    """Assert that no two events are concurrent; a match in another order must be counted."""
    assert texts(ketal.run(conc(), events)) == []
    for order in itertools.permutations(events):
        found, summary = monitored(conc(), order, random.Random(1))
        assert not found or summary["doubtful"], [str(x.dot) for x in order]
        if order == tuple(events):
            assert (found, summary.get("doubtful")) == ([], None)


# --- nodes that start again ----------------------------------------------------------------


def test_incarnations_are_distinct_nodes_under_every_order() -> None:
    events = [e("n@1", "a"), e("n@2", "b"), e("n@1", "a", run=2), e("n@2", "b", run=2)]
    again = ["match P (node=n): A=n@1, B=n@2", "match P (node=n#2): A=n#2@1, B=n#2@2"]
    total = 'CausalOrder(total, nodes = ["n", "n#2"])'
    for order in (CAUSAL, "arrival", total, "CausalOrder(frontier = 1 s)"):
        compiled = program("find strict A B", "partition by node", order=order)
        assert texts(ketal.run(compiled, events)) == again, order
        assert texts(Monitor(compiled).feed_many([*events, Control("end")])) == again, order
    verdicts = ketal.run(program("find any A B"), events)
    assert len(list(verdicts)) == 4, "events of two incarnations are concurrent"
    assert verdicts.summary["events"]["accepted"] == 4


@pytest.mark.parametrize("order", [CAUSAL, "arrival"])
def test_duplicates_of_both_incarnations_are_recognised_after_a_restore(order: str) -> None:
    m = Monitor(program("find next A B", order=order))
    events = [e("n@1", "a"), e("n@2", "b"), e("n@1", "b"), e("n@2", "b", "m:1")]
    for number, event in enumerate(events):
        for known in events[:number]:
            assert m.feed(known) == []
        m = Monitor.restore(m.program, m.snapshot())
        m.feed(event)
    assert m.summary["events"]["duplicates"] == 6
    (contradiction,) = m.feed(e("n@2", "a", "z:9"))
    assert isinstance(contradiction, Rejected)
    assert "n#2@2 was read before with other content" in contradiction.reason


def test_content_of_first_events_is_never_evicted() -> None:
    limits = Limits(dots_max=2)
    m = Monitor(program("find next A B", order="arrival"), limits=limits)
    m.feed_many([e(f"n@{c}", "a") for c in range(1, 9)])
    assert m.feed(e("n@1", "a")) == []
    m = Monitor.restore(m.program, m.snapshot(), limits=limits)
    m.feed(e("n@1", "a", run=2))
    m.feed(e("n@2", "b", run=2))
    assert m.summary["events"]["duplicates"] == 1
    assert m.summary["events"]["accepted"] == 10


def test_no_event_waits_for_an_incarnation_that_has_ended() -> None:
    m = Monitor(program("find next A B"))
    assert m.feed_many([e("n@1", "a", incarnation=1), e("m@1", "b", "n:3")]) == []
    gaps = m.feed(e("n@1", "a", incarnation=2))
    assert [str(v).split(";")[0] for v in gaps] == [
        "gap n@2 declared lost", "gap n@3 declared lost", "match P: A=n@1, B=m@1",
    ]  # fmt: skip
    assert m.held_back() == []
    (late,) = m.feed(e("n@2", "b", incarnation=1))
    assert late.kind == "late"


@pytest.mark.parametrize("lost", ["n", "n#2", "n#3"])
def test_no_event_waits_for_an_incarnation_all_of_whose_events_were_lost(lost: str) -> None:
    """A later incarnation ends it, whether its first event or a clock that knows it comes first."""
    events = [e("m@1", "a"), e("m@2", "b", f"{lost}:2"), e("n#4@1", "c"), e("n#4@2", "c")]
    finds = program("find next A B")
    for order in itertools.permutations(events):
        m = Monitor(finds)
        verdicts = m.feed_many(order[:2])
        m = Monitor.restore(finds, m.snapshot())
        verdicts += m.feed_many(order[2:])
        assert [v.kind for v in verdicts] == ["gap", "gap", "match"]
        assert m.held_back() == []


def test_an_incarnation_that_may_still_send_is_waited_for() -> None:
    """Clocks name `n#3` before its first event; it does not end `n#2`, which has one."""
    m = Monitor(program("find next A B"))
    m.feed_many([e("n#2@1", "a"), e("m@1", "b", "n#2:2 n#3:1")])
    assert [str(dot) for _, dot in m.held_back()] == ["n#2@2"]
    assert m.feed(e("n#2@2", "c")) == []
    assert texts(m.feed(e("n#3@1", "c")))[-1].startswith("match P: A=n#2@1, B=m@1")


def test_named_incarnation_ends_the_previous_one() -> None:
    """p2 knew p0@2, and its next clock has p0: 1, which means p0#2."""
    events = [
        e("p0@1", "c"),
        e("p0@2", "a"),
        e("p0#2@1", "c"),
        e("p2@1", "c", "p0:2"),
        e("p2@2", "b", "p0:1"),
    ]
    assert_lost_matches_are_counted(events)
    m = Monitor(program("find next A B"))
    assert m.feed_many([e("n@1", "a"), e("m@1", "b", "n:3")]) == []
    lines = texts(m.feed(e("n#2@1", "c")))
    assert lines[-1].startswith("match P: A=n@1, B=m@1"), "nothing waits for n any more"
    assert m.held_back() == []


@pytest.mark.parametrize("order", ["arrival", "CausalOrder", "CausalOrder(total)"])
def test_entries_of_an_incarnation_that_arrives_after_a_later_one_are_restored(order: str) -> None:
    program = ketal.compile(
        f'pattern P {{ order {order}; event X = type == "x"; event Y = type == "y"; '
        "Z = Causal(Y, X); find any X Z; }"
    )
    events = [e("a#3@1", "t"), e("a#2@1", "x"), e("b@1", "t", "a#2:1"), e("c@1", "y", "b:1")]
    (match,) = Driven(program).feed_many(events)
    assert str(match) == "match P: X=a#2@1, Z=c@1"


def test_changed_program_that_reads_clocks_knows_earlier_incarnations() -> None:
    before = ketal.compile('pattern P { event A = type == "a"; find next A; }')
    m = Monitor(before)
    m.feed_many([e("p0@1", "c"), e("p0@2", "c"), e("p0#2@1", "c"), e("p2@1", "c", "p0:2")])
    other = Driven.restored(conc_of("a", "b"), m.snapshot(), changed=True)
    assert other.feed_many([e("p0@3", "a"), e("p2@2", "b", "p0:1 p2:2")]) != []
    assert other.admission.membership is not None
    assert other.admission.membership.live == {"p0#2", "p2"}


@pytest.mark.parametrize("events", [
    # p0@1 knows p1@1, and p1@1 comes after p1#2@1.
    [e("p1@1", "c", incarnation=2), e("p0@1", "b", "p1:1"), e("p1@1", "a", incarnation=1)],
    # The same, when p1 is known by another event of it.
    [
        e("p1@2", "c", incarnation=1), e("p1@1", "c", incarnation=2),
        e("p0@1", "b", "p1:1"), e("p1@1", "a", incarnation=1),
    ],
    # p0@1 knows p1#2@2, and that comes after p1@2.
    [
        e("p1@1", "c", incarnation=1), e("p1@1", "c", incarnation=2),
        e("p1@2", "c", incarnation=1), e("p0@1", "b", "p1:2"), e("p1@2", "a", incarnation=2),
    ],
])  # fmt: skip
def test_an_entry_of_an_ambiguous_incarnation_is_counted(events: list[Record]) -> None:
    """It is unknown whether the entry was read as intended."""
    m = Monitor(conc())
    m.feed_many(events[:-1])
    before = m.summary.get("doubtful", 0)
    m = Monitor.restore(m.program, m.snapshot())
    m.feed(events[-1])
    assert m.summary["doubtful"] == before + 1
    verdicts = ketal.run(conc(), events)
    list(verdicts)
    assert verdicts.summary["doubtful"] == 1


def test_leave_ends_the_live_incarnation() -> None:
    m = Monitor(program("find next A B", order="CausalOrder(total)"))
    m.feed_many([e("n@1", "a"), e("m@1", "a"), e("n@1", "a", "m:1", run=2)])
    assert [str(x.dot) for x, _ in m.held_back()] == ["n#2@1"], "m can still send something"
    m.feed(Control("leave", node="m"))
    assert m.held_back() == []
    assert m.feed(e("z@1", "b", "m:1 n#2:1")) == []
    assert [str(x.dot) for x, _ in m.held_back()] == ["z@1"], "n#2 can"
    m = Monitor.restore(m.program, m.snapshot())
    lines = texts(m.leave("n"))
    assert lines == [f"match P: A={node}@1, B=z@1" for node in ("n", "n#2")]


def test_numbered_incarnations_give_the_same_matches_in_every_arrival_order() -> None:
    events = [
        e("n@1", "a", incarnation=1),
        e("n@2", "b", incarnation=1),
        e("n@1", "a", incarnation=7),
        e("n@2", "b", incarnation=7),
    ]
    expected = ["match P (node=n#7): A=n#7@1, B=n#7@2", "match P (node=n): A=n@1, B=n@2"]
    for order in itertools.permutations(events):
        free, strict = program("find any A B", "partition by node"), program("find next A B")
        m = Monitor(free)
        lines: list[Any] = []
        for event in order:
            lines += m.feed(event)
            m = Monitor.restore(free, m.snapshot())
        assert sorted(texts(lines)) == sorted(expected)
        assert sorted(texts(ketal.run(free, order))) == sorted(expected)
        gaps = [v for v in Monitor(strict).feed_many(order) if isinstance(v, Gap)]
        first, second, *later = [order.index(x) for x in events]
        assert bool(gaps) == (first > max(second, min(later))), "n is over when n#7 appears"


def test_an_event_that_fits_two_incarnations_is_rejected_with_its_place() -> None:
    events = [e("n@1", "a"), e("n@2", "a"), e("n@4", "a"), e("n@1", "a", run=2), e("n@2", "b")]
    compiled = program("check (A|B)*", order="arrival")
    (live,) = Monitor(compiled).feed_many([*events, e("n@3", "a")])
    (finite,) = ketal.run(program("check (A|B)*"), [*events, e("n@3", "a")])
    for verdict in (live, finite):
        assert isinstance(verdict, Rejected)
        assert verdict.place == "n@3", "as it arrived"
        assert verdict.reason.startswith("n restarted, and this event may be n@3 or n#2@3; number")


# --- clocks that shrink --------------------------------------------------------------------


def test_total_sorts_by_restored_clocks() -> None:
    """n2@2 dropped the entry of n1: by its stamped clock it would come before n3@1."""
    compiled = program("find strict A B A", order='CausalOrder(total, nodes = ["n1", "n2", "n3"])')
    events: list[Record] = [
        *(e(f"n1@{c}", "c") for c in (1, 2, 3)),
        Control("leave", node="n1"),
        e("n2@1", "a", "n1:3"),
        e("n3@1", "b", "n1:3"),
        e("n2@2", "a"),
        e("n3@2", "c", "n1:3"),
    ]
    expected = texts(ketal.run(compiled, events))
    assert expected == ["match P: A=n2@1+n2@2, B=n3@1"]
    assert texts(Monitor(compiled).feed_many([*events, Control("end")])) == expected


def test_a_dropped_entry_is_detected_without_a_control_event() -> None:
    """Entries of the node are restored from the first event that lacks the entry."""
    text = "find any A Second"
    compiled = ketal.compile(
        'pattern P { order CausalOrder; event A = type == "a"; event B = type == "b";'
        " Second = Conc(B); find any A Second; }"
    )
    events = [e("n1@1", "a"), e("n2@1", "c", "n1:1"), e("n2@2", "b"), e("n3@1", "b", "n2:2")]
    assert texts(ketal.run(compiled, events)) == [], text
    m = Monitor(compiled)
    for event in events:
        assert m.feed(event) == []
        m = Monitor.restore(compiled, m.snapshot())
    assert m.close() == []


@pytest.mark.parametrize("back", ["", "p2:1"], ids=["vanished", "vanished and back"])
def test_a_dropped_entry_is_detected_by_counters_not_by_arrival(back: str) -> None:
    """p0@3 lacks an entry of p0@2, whichever of p0's events arrived last."""
    events = [e("p0@1", "c"), e("p0@2", "c", "p2:1"), e("p0@3", "a"), e("p2@1", "b")]
    events += [e("p0@4", "c", back)] if back else []
    assert_lost_matches_are_counted(events)


def test_late_event_of_a_node_shows_that_the_node_dropped_an_entry() -> None:
    """n2 leaves, so n2@1 is lost; when it arrives, its clock has n1, and that of n2@2 does not."""
    compiled = conc()
    m = Monitor(compiled)
    lines = m.feed_many([e("n1@1", "a"), e("n2@2", "b"), Control("leave", node="n2")])
    assert texts(lines) == ["match P: A=n1@1, Second=n2@2"]
    assert "doubtful" not in m.summary
    m = Monitor.restore(compiled, m.snapshot())
    m.feed_many([e("n2@1", "c", "n1:1"), Control("end")])
    assert m.summary["doubtful"] == 1


def conc(order: str = CAUSAL) -> Program:
    return ketal.compile(
        f'pattern P {{ order {order}; event A = type == "a"; event B = type == "b";'
        " Second = Conc(B); find any A Second; }"
    )


@pytest.mark.parametrize("order", [CAUSAL, "CausalOrder(total)"])
def test_order_free_pattern_waits_for_whole_clocks_only(order: str) -> None:
    m = Monitor(conc(order))
    (match,) = m.feed_many([e("n1@1", "a"), e("n3@2", "b", "n2:1")])
    assert str(match) == "match P: A=n1@1, Second=n3@2", "whatever is missing, clocks are whole"
    assert m.leave("n1") == []
    assert m.feed(e("n1@2", "c")) == []
    # n2 may have known n1@1, and n3@3 through it.
    assert m.feed(e("n3@3", "b", "n2:2")) == []
    assert [(str(x.dot), str(d)) for x, d in m.held_back()] == [("n3@3", "n3@1")]
    # A clock with the last event of n1 is whole.
    assert m.feed(e("n4@2", "b", "n1:2")) == []
    assert len(m.held_back()) == 1
    m = Monitor.restore(m.program, m.snapshot())
    m.feed(e("n3@1", "c"))
    m.feed(e("n2@1", "c", "n1:1"))
    assert texts(m.feed(e("n2@2", "c"))) == []
    assert m.held_back() == []
    assert m.close() == []
    assert m.summary["events"]["accepted"] == 8
    assert adds_up(m.summary)


def test_a_node_whose_leave_arrives_before_its_own_events() -> None:
    """n1@1 → n2@1 → n2@2: a clock without n1 waits for its past, whether or not n1 has left."""
    for order in itertools.permutations([e("n2@2", "a"), e("n1@1", "b"), e("n2@1", "c", "n1:1")]):
        m = Monitor(conc_of("b", "a"))
        m.leave("n1")
        assert texts(m.feed_many(order)) == [], [str(x.dot) for x in order]
        assert m.close() == []


def conc_of(first: str, second: str) -> ketal.Program:
    return ketal.compile(
        f'pattern P {{ order CausalOrder; event A = type == "{first}";'
        f' event B = type == "{second}";'
        " Second = Conc(B); find any A Second; }"
    )


def test_clocks_are_restored_at_the_end_as_in_a_finite_log() -> None:
    events: list[Record] = [
        e("n1@1", "a"),
        Control("leave", node="n1"),
        e("n3@2", "b", "n2:2"),
        e("n3@3", "b", "n1:1 n2:2"),
    ]
    m = Monitor(conc())
    assert m.feed_many(events) == []
    assert m.summary["events"]["held_back"] == 1
    lines = m.close()
    assert texts(lines) == texts(ketal.run(conc(), events)) == ["match P: A=n1@1, Second=n3@2"]
    assert m.held_back() == []
    verdicts = ketal.run(conc(), events)
    list(verdicts)
    assert m.summary["doubtful"] == verdicts.summary["doubtful"] == 1
    assert adds_up(m.summary)


def test_order_free_pattern_has_no_late_or_refused_events() -> None:
    m = Monitor(conc("CausalOrder(gap = 5 s)"), limits=Limits(held_back_max=1))
    m.feed_many([e("n1@1", "a", time=0), Control("leave", node="n1")])
    assert m.feed(e("n3@2", "b", "n2:2", time=1)) == []
    (match,) = m.feed(e("n4@2", "b", time=2))
    assert str(match) == "match P: A=n1@1, Second=n4@2", "there is no room to wait"
    lines = m.feed(e("n5@1", "c", time=9))
    assert [str(v).split(";")[0] for v in lines if v.verdict == "match"] == [
        "match P: A=n1@1, Second=n3@2"
    ]
    gaps = [str(v.dot) for v in lines if isinstance(v, ketal.Gap)]
    assert sorted(gaps) == ["n2@1", "n2@2", "n3@1", "n4@1"], "lost all the same"
    assert not lines[0].to_dict()["certain"], "its clock may be too low"
    assert texts(m.feed(e("n3@1", "b", "n1:1", time=9))) == []
    assert texts(m.feed(e("n4@1", "b", time=9))) == ["match P: A=n1@1, Second=n4@1"]
    assert m.close() == []
    assert (m.summary["gaps"], m.summary["events"]["late"]) == (4, 0)
    assert adds_up(m.summary)


def test_an_event_without_room_is_doubtful_while_the_past_of_its_cause_is_missing() -> None:
    m = Monitor(conc(), limits=Limits(held_back_max=1))
    m.feed_many([e("n1@1", "a"), Control("leave", node="n1"), e("n3@2", "c")])
    # Its direct cause has arrived, and waits for n3@1.
    assert texts(m.feed(e("n3@3", "b"))) == ["match P: A=n1@1, Second=n3@3"]
    assert m.summary["doubtful"] == 1
    assert m.feed(e("n3@1", "c", "n1:1")) == [], "n1@1 happened before all events of n3"


def test_an_event_whose_restored_clock_has_no_room_is_doubtful_in_every_order_of_arrival() -> None:
    departure: list[Record] = [e("n1@1", "a"), Control("leave", node="n1")]
    for later in itertools.permutations([e("n3@1", "c", "n1:1"), e("n3@2", "b")]):
        m = Monitor(conc(), limits=Limits(clock_entries_max=1))
        lines = m.feed_many([*departure, *later])
        assert texts(lines) == ["match P: A=n1@1, Second=n3@2"], "there is no room for n1:1"
        assert m.summary["doubtful"] == 1


def test_an_event_that_a_second_queue_releases_with_less_of_its_past_is_doubtful() -> None:
    compiled = ketal.compile(
        "".join(
            f"pattern {name} {{ order {order};"
            ' event A = type == "a"; event B = type == "b"; Second = Conc(B); find any A Second; }'
            for name, order in (("P", "CausalOrder"), ("Q", "CausalOrder(frontier = 30 s)"))
        )
    )
    m = Monitor(compiled, limits=Limits(restored_entries_max=1))
    m.feed_many([e("n3@1", "a"), e("n3@2", "c"), e("n2@1", "c", "n3:1")])
    m.feed_many([e("n1@1", "c", "n2:1 n3:1"), *(e(f"n2@{c}", "c", "n1:1 n3:1") for c in (2, 3))])
    m.feed_many([e("n2@4", "c", "n1:1"), *(e(f"n2@{c}", "c") for c in (5, 6)), e("n2@7", "b")])
    assert texts(m.close()) == ["match Q: A=n3@1, Second=n2@7"], "P's clock of it was whole"
    assert m.summary["doubtful"] > 0


def test_clocks_under_arrival_are_restored_as_far_as_known() -> None:
    compiled = ketal.compile(
        'pattern P { event A = type == "a"; event B = type == "b";'
        " Second = Causal(B); find next A Second; }"
    )
    events: list[Record] = [
        e("n1@1", "a"),
        e("n2@1", "c", "n1:1"),
        Control("leave", node="n1"),
        e("n2@2", "c"),
        e("n3@1", "b", "n2:2"),
    ]
    assert texts(ketal.run(compiled, events)) == ["match P: A=n1@1, Second=n3@1"]
    assert texts(Monitor(compiled).feed_many(events)) == ["match P: A=n1@1, Second=n3@1"]
    # The event through which n3 knew n1@1 arrives later.
    early = [events[0], events[2], events[4], events[1], events[3]]
    assert texts(Monitor(compiled).feed_many(early)) == []


def test_the_clock_of_a_late_event_still_restores_others() -> None:
    """n2@2 is not judged, but through it n1 is in the past of n3."""
    compiled = ketal.compile(
        'pattern P { order CausalOrder; event A = type == "a"; event B = type == "b";'
        " Second = Conc(B); find any A Second; within 1 h; }"
    )
    events: list[Record] = [
        e("n1@1", "a", time=100),
        e("n2@1", "c", "n1:1", time=100),
        Control("leave", node="n1"),
        Control("watermark", time=50),
        e("n2@2", "b", time=1),
        e("n3@1", "b", "n2:2", time=101),
    ]
    for lines in (
        ketal.run(compiled, events),
        Monitor(compiled).feed_many([*events, Control("end")]),
    ):
        assert [v.kind for v in lines if v.kind != "timed_out"] == ["late"]


@pytest.mark.parametrize(
    "over",
    [e("p0#2@1", "x"), Control("leave", node="p0")],
    ids=["later incarnation", "leave"],
)
@pytest.mark.parametrize("find", ["find any X Y", "find next X Y"])
def test_an_event_released_before_a_leave_is_counted_as_doubtful(find: str, over: Record) -> None:
    """Under any order: p0@2 is in the past of p2@2 through p2@1, and its clock lacks p0."""
    compiled = program("X = A", "Y = Conc(B, X)", find)
    records = [e("p0@1", "x"), e("p0@2", "a"), e("p2@1", "x", "p0:2"), e("p2@2", "b", "p0:1"), over]
    assert texts(ketal.run(compiled, records)) == []
    for order in itertools.permutations(records):
        monitor = Monitor(compiled)
        verdicts = [*monitor.feed_many(order), *monitor.close()]
        certain = [v for v in verdicts if isinstance(v, Match) and v.certain]
        assert not certain or monitor.summary.get("doubtful"), texts(order)


@pytest.mark.parametrize("first", [[], [Control("leave", node="n4")]])
def test_a_node_that_only_a_clock_named_leaves_by_a_view(first: list[Record]) -> None:
    records: list[Record] = [
        *first,
        e("n3@1", "c", "n2:1"),
        Control("view", members=("n1", "n3")),
        e("n2@1", "a"),
        e("n1@1", "b", "n3:1"),  # lacks n2:1
    ]
    assert texts(ketal.run(conc(), records)) == []
    assert texts(Monitor(conc()).feed_many(records)) == []


@pytest.mark.parametrize("order", ["CausalOrder", "CausalOrder(gap = 3 s)", "CausalOrder(total)"])
def test_a_view_costs_the_same_however_many_nodes_have_left(order: str) -> None:
    program = ketal.compile(
        f'pattern P {{ order {order}; event A = type == "a"; find next A A; }}'
        f'pattern Q {{ order {order}; event A = type == "a"; find any A A; }}'
    )
    monitor = Monitor(program)
    numbers = itertools.count()

    def churn(views: int) -> None:
        for number in itertools.islice(numbers, views):
            members = tuple(f"n{one}" for one in range(number, number + 4))
            monitor.feed(Control("view", members=members))
            monitor.feed(e(f"{members[-1]}@1", "b"))

    churn(20)
    _, first = counted_lines(lambda: churn(20))
    churn(200)
    _, last = counted_lines(lambda: churn(20))
    assert last < 1.5 * first


def test_a_held_back_event_is_not_doubtful_once_a_node_leaves() -> None:
    """n@2, which lacks the x@1 that its cause m@1 knows, is released with that entry."""
    m = Monitor(program("find next A B"))
    m.feed_many([e("x@1", "c"), e("m@1", "a", "x:1"), e("n@2", "b", "m:1")])
    assert m.leave("x") == []
    assert texts(m.feed(e("n@1", "c"))) == ["match P: A=m@1, B=n@2"]
    assert "doubtful" not in m.summary


def test_order_free_pattern_does_not_wait_for_a_node_outside_its_topology() -> None:
    m = Monitor(
        ketal.compile(
            f"pattern P {{ order {CAUSAL}; topology {{ m -> n; k -> m; }}"
            ' event A = type == "a"; event B = type == "b"; Second = Conc(B); find any A Second; }'
        )
    )
    m.feed_many([e("k@1", "a"), Control("leave", node="k")])
    assert texts(m.feed(e("n@2", "b", "stranger:1"))) == []
    assert [str(dot) for _, dot in m.held_back()] == ["n@1"]
    assert texts(m.feed(e("n@1", "c", "stranger:1"))) == ["match P: A=k@1, Second=n@2"]


def test_leave_is_applied_after_an_event_of_a_node_outside_a_topology() -> None:
    events = 'event X = type == "x"; event Y = type == "y";'
    program = ketal.compile(
        f"pattern P {{ order CausalOrder; topology {{ a -> b; }} {events} find next X; }}"
        f"pattern Q {{ order CausalOrder; {events} Z = Causal(Y, X); find any X Z; }}"
    )
    stream = Driven(program)
    verdicts = stream.feed_many([e("a@1", "x"), e("z@1", "y", "b:5")])
    verdicts += stream.feed_many([Control("leave", node="a"), e("b@1", "x")])
    assert [str(v) for v in verdicts] == [
        "match P: X=a@1", "match P: X=b@1", "match Q: X=b@1, Z=z@1"
    ]  # fmt: skip
