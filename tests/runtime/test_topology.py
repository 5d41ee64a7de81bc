"""Topologies in a program: a Monitor that waits within domains, a finite log that need not.

The queue itself is compared with its definition in `tests/operators/test_ordering.py`,
domains and the order that they give up in `tests/operators/test_domains.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

import ketal
from ketal.errors import PatternError
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.syntax import Topology
from ketal.model.verdicts.execution_verdicts import Gap, Rejected
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.programs.program import Program
from ketal.runtime.monitor import Monitor
from tests.cases import e
from tests.operators.test_domains import random_topology, travelled
from tests.sampling import drawn

SHOP = "shop -> stock; shop -> billing; billing -> stock; shop -> mailer relaxed;"


def program(
    *statements: str, topology: str = "", order: str = "CausalOrder", **knobs: Any
) -> Program:
    text = "".join(f"    {statement};\n" for statement in statements)
    return ketal.compile(
        f"pattern P {{\n    order {order};\n    {topology}\n"
        '    event A = type == "a"; event B = type == "b";\n' + text + "}",
        **knobs,
    )


def shop(*statements: str, order: str = "CausalOrder", opened: str = "") -> Program:
    return program(*statements, topology=f"topology {opened}{{ {SHOP} }}", order=order)


def topology_text(topology: Topology) -> str:
    edges = "".join(
        f"{edge.source} -> {edge.target}{' relaxed' * edge.relaxed}; " for edge in topology.edges
    )
    return f"topology {'open ' * topology.open}{{ {edges}}}"


def waits(monitor: Monitor) -> list[str]:
    return [f"{event.dot} {dot}" for event, dot in monitor.held_back()]


def texts(verdicts: Iterable[Any]) -> list[str]:
    return [str(v) for v in verdicts]


def typed(rng: random.Random, events: list[Event]) -> list[Event]:
    return [
        Event(node=x.node, type=rng.choice("ab"), clock=x.clock, id=str(i))
        for i, x in enumerate(events)
    ]


# --- what waits ----------------------------------------------------------------------------


def test_causal_order_does_not_cross_a_relaxed_edge() -> None:
    """The mailer does not wait for events of the shop, billing does."""
    m = Monitor(shop("find next A B"))
    assert m.feed(e("billing@1", "b", "shop:1")) == []
    assert m.feed(e("mailer@1", "b", "shop:1")) == []
    assert waits(m) == ["billing@1 shop@1"]
    m = Monitor.restore(m.program, m.snapshot())
    assert texts(m.feed(e("shop@1", "a"))) == ["match P: A=shop@1, B=billing@1"]
    assert m.close() == []
    assert m.summary["events"]["accepted"] == 3


def test_a_finite_log_is_released_in_canonical_order_with_any_topology() -> None:
    """In a finite log no event waits, so no causal order has to be given up."""

    @drawn(20, 500)
    def holds(rng: random.Random) -> None:
        where = random_topology(rng, 5, relaxed=rng.choice((0.0, 0.5, 1.0)))
        events = typed(rng, travelled(rng, where))
        for body in ("check (A B)*", "find next A B", "find any A not B A"):
            expected = texts(ketal.run(program(body), events))
            within = ketal.run(program(body, topology=topology_text(where)), events)
            assert texts(within) == expected


def test_topology_without_relaxed_edges_equals_no_topology() -> None:
    @drawn(20, 500)
    def holds(rng: random.Random) -> None:
        where = random_topology(rng, 5)
        events = typed(rng, travelled(rng, where))
        for body in ("check (A B)*", "find next A B", "find any A not B A"):
            plain = Monitor(program(body))
            within = Monitor(program(body, topology=topology_text(where)))
            for event in rng.sample(events, len(events)):
                assert texts(within.feed(event)) == texts(plain.feed(event))
                held = {x.dot for x, _ in within.held_back()}
                assert held == {x.dot for x, _ in plain.held_back()}
                within = Monitor.restore(within.program, within.snapshot())
            assert texts(within.close()) == texts(plain.close())


def test_with_losses_a_stream_with_a_topology_gives_the_same_gaps_and_matches() -> None:
    """A chain through a lost event is followed step by step, so gaps may be in another order."""
    gaps = 0

    @drawn(25, 500)
    def holds(rng: random.Random) -> None:
        nonlocal gaps
        where = random_topology(rng, 5)
        events = typed(rng, travelled(rng, where))
        left = [x for x in events if rng.random() < 0.8]
        body, order = "find any A not B A", "CausalOrder(gap = 5 s)"
        plain = Monitor(program(body, order=order))
        within = Monitor(program(body, topology=topology_text(where), order=order))
        said: list[list[Any]] = [[], []]
        for event in rng.sample(left, len(left)):
            said[0] += plain.feed(event)
            said[1] += within.feed(event)
            held = {x.dot for x, _ in within.held_back()}
            assert held == {x.dot for x, _ in plain.held_back()}
        said[0] += plain.close()
        said[1] += within.close()
        assert sorted(texts(said[1])) == sorted(texts(said[0]))
        gaps += plain.summary["gaps"]

    assert gaps > 10


def test_relaxed_edges_hold_back_fewer_events_and_keep_find_any_matches() -> None:
    less = 0

    @drawn(25, 500)
    def holds(rng: random.Random) -> None:
        nonlocal less
        where = random_topology(rng, 5, relaxed=0.5)
        events = typed(rng, travelled(rng, where))
        plain = Monitor(program("find next A B"))
        within = Monitor(program("find next A B", topology=topology_text(where)))
        free = Monitor(program("find any A B", topology=topology_text(where)))
        found = []
        for event in rng.sample(events, len(events)):
            plain.feed(event)
            within.feed(event)
            found += free.feed(event)
            held = {x.dot for x, _ in within.held_back()}
            assert held <= {x.dot for x, _ in plain.held_back()}
            less += len(held) < len(plain.held_back())
            within = Monitor.restore(within.program, within.snapshot())
        assert within.held_back() == []
        expected = ketal.run(program("find any A B"), events)
        assert sorted(texts(found)) == sorted(texts(expected))

    assert less > 10


def test_each_pattern_waits_within_its_own_topology() -> None:
    text = "\n".join(
        f"pattern {name} {{ order CausalOrder; {topology} "
        'event A = type == "a"; event B = type == "b"; find next A B; }'
        for name, topology in (("P", f"topology {{ {SHOP} }}"), ("Q", ""))
    )
    m = Monitor(ketal.compile(text))
    m.feed(e("mailer@1", "a", "shop:1"))
    verdicts = m.feed(e("mailer@2", "b", "shop:1"))
    assert texts(verdicts) == ["match P: A=mailer@1, B=mailer@2"]
    assert waits(m) == ["mailer@1 shop@1", "mailer@2 shop@1"]
    assert texts(m.feed(e("shop@1", "c"))) == ["match Q: A=mailer@1, B=mailer@2"]


def test_events_that_know_a_lost_event_wait_for_its_past() -> None:
    """billing@1 is lost, so stock itself waits for the past that billing@1 would wait for."""
    line = "topology { shop -> billing; billing -> stock; }"
    m = Monitor(program("find next A B", topology=line, order="CausalOrder(gap = 10 s)"))
    m.feed(e("stock@1", "b", "shop:1 billing:1", time=1))
    assert waits(m) == ["stock@1 billing@1"]
    (gap,) = m.advance_time(20)
    assert isinstance(gap, Gap)
    assert gap.dot == Dot("billing", 1)
    assert waits(m) == ["stock@1 shop@1"]
    m = Monitor.restore(m.program, m.snapshot())
    (match,) = m.feed(e("shop@1", "a", time=21))
    assert isinstance(match, Match)
    assert str(match).startswith("match P: A=shop@1, B=stock@1")
    assert (match.certain, match.depends_on) == (False, (Dot("billing", 1),))


# --- who belongs there ---------------------------------------------------------------------


def test_event_of_a_node_outside_a_closed_topology_is_rejected() -> None:
    made = shop("check A*")
    events = [e("shop@1", "a"), e("spy@1", "a"), e("stock#2@1", "a", "spy:1 shop:1")]
    m = Monitor(made)
    m.feed(events[0])
    (live,) = m.feed(events[1], place="log:7")
    (finite,) = ketal.run(made, events)
    for verdict, place in ((live, "log:7"), (finite, "spy@1")):
        assert isinstance(verdict, Rejected)
        assert verdict.place == place
        assert verdict.reason == (
            "the topology of pattern P has no node spy; add it, or declare `topology open`"
        )
    assert m.feed(events[2]) == []
    assert m.held_back() == [], "the spy's entry is not read"
    assert m.close() == []
    summary = m.summary["events"]
    assert (summary["accepted"], summary["rejected"]) == (2, 1)


def test_node_of_one_patterns_topology_is_accepted_by_the_program() -> None:
    text = "\n".join(
        f'pattern {name} {{ order CausalOrder; {topology} event A = type == "a"; {body}; }}'
        for name, topology, body in (
            ("P", "topology { p -> q; }", "check A"),
            ("Q", "topology { p -> q; q -> r; }", "check A*"),
            ("R", "topology { p -> q; }", "find any A"),
        )
    )
    made = ketal.compile(text)
    events = [e("p@1", "a"), e("r@1", "a")]
    verdicts = ketal.run(made, events)
    list(verdicts)
    m = Monitor(made)
    m.feed_many(events)
    m.close()
    for summary in (m.summary, verdicts.summary):
        assert summary["events"]["accepted"] == 2
        assert [summary["patterns"][n].get("strangers", 0) for n in "PQR"] == [1, 0, 1]
        assert summary["patterns"]["P"]["violations"] == 0
        assert summary["patterns"]["R"]["matches"] == 1
    (rejected,) = Monitor(made).feed(e("z@1", "a"))
    assert isinstance(rejected, Rejected)
    assert "no pattern's topology has the node z" in rejected.reason


def test_an_open_topology_admits_new_nodes() -> None:
    m = Monitor(shop("find next A B", opened="open "))
    assert m.feed(e("mailer@1", "b", "shop:1")) == []
    assert waits(m) == []
    # The newcomer's events are waited for; shop's are not waited for by mailer.
    m.feed(e("mailer@2", "b", "shop:1 audit:1"))
    assert waits(m) == ["mailer@2 audit@1"]
    m = Monitor.restore(m.program, m.snapshot())
    m.feed(e("audit@1", "a", "shop:1"))
    assert waits(m) == ["mailer@2 shop@1", "audit@1 shop@1"]
    said = m.feed(e("shop@1", "c"))
    assert texts(said) == ["match P: A=audit@1, B=mailer@2"]
    assert texts(ketal.run(shop("check A*", opened="open "), [e("z@1", "a")])) == []


def test_beyond_the_limit_an_open_topology_keeps_all_causal_order_and_reports_it() -> None:
    limits = Limits(topology_nodes_max=5)
    m = Monitor(shop("find next A B", opened="open "), limits=limits)
    assert m.feed(e("n1@1", "c")) == []
    (overflow,) = m.feed(e("n2@1", "c"))
    assert isinstance(overflow, Overflow)
    assert overflow.limit == "topology_nodes_max"
    assert "each event waits for its whole past" in str(overflow)
    assert m.summary["patterns"]["P"]["overflows"] == 1
    m = Monitor.restore(m.program, m.snapshot(), limits=limits)
    assert m.feed(e("n3@1", "c")) == []
    m.feed(e("mailer@1", "b", "shop:1"))
    assert waits(m) == ["mailer@1 shop@1"]


# --- the language --------------------------------------------------------------------------


def test_domains_beyond_a_limit_are_a_pattern_error() -> None:
    with pytest.raises(
        PatternError, match=r"K213.*4 nodes, more than 3 \(limit topology_nodes_max\)"
    ):
        program(
            "check A*",
            topology=f"topology {{ {SHOP} }}",
            limits=Limits(topology_nodes_max=3),
        )
    streets = "".join(
        f'"{i}/{j}" -> "{i}/{j + 1}"; "{j}/{i}" -> "{j + 1}/{i}"; '
        if i % 2
        else f'"{i}/{j + 1}" -> "{i}/{j}"; "{j + 1}/{i}" -> "{j}/{i}"; '
        for i in range(5)
        for j in range(4)
    )
    with pytest.raises(PatternError, match=r"K214.*topology_steps_max"):
        program(
            "check A*", topology=f"topology {{ {streets} }}", limits=Limits(topology_steps_max=10)
        )


def test_lint_warns_of_a_relaxed_edge_that_makes_verdicts_depend_on_arrival() -> None:
    def codes(topology: str, body: str = "check A*") -> list[str]:
        return [d.code for d in program(body, topology=f"topology {{ {topology} }}").warnings]

    assert codes("p -> q; q -> r;") == []
    assert codes("p -> q; q -> r relaxed;") == ["K220"]
    assert codes("p -> q; q -> r relaxed; p -> r; r -> q; q -> p;") == [], "nothing is given up"
    assert codes("p -> q relaxed;", "find any A B") == []
    assert codes("p -> q relaxed;", "find any A not B A") == ["K220"]


def test_snapshot_of_another_topology_is_refused() -> None:
    blob = Monitor(shop("check A*")).snapshot()
    other = program("check A*", topology="topology { shop -> stock; }")
    with pytest.raises(ketal.StateError, match="changed: topology"):
        Monitor.restore(other, blob)
