"""Domains: how a topology restricts causal order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.errors import PatternError
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.limits import Limits
from ketal.model.syntax import Topology, TopologyEdge
from ketal.model.values import base_node
from ketal.operators.order.held_events import HeldEvents
from ketal.operators.order.release_options import Policy
from ketal.operators.topology.domain_order import DomainPast, domains_of, nodes_sharing_domain
from ketal.operators.topology.domains import (
    Domains,
    domains,
    nodes_of,
    with_node,
)
from tests.cases import e
from tests.operators.marked_queue import MarkedQueue
from tests.operators.ordering_oracle import obvious_domains
from tests.sampling import chances, drawn, examples


def topology(text: str, open: bool = False) -> Topology:
    """Read `p>q q>r~`; `~` stands for `relaxed`."""
    parts = [(word.rstrip("~").split(">"), word.endswith("~")) for word in text.split()]
    return Topology(tuple(TopologyEdge(p, q, relaxed) for (p, q), relaxed in parts), open)


def domain_texts(found: Domains) -> list[str]:
    return ["".join(sorted(domain)) for domain in found]


def random_topology(
    rng: random.Random, nodes_max: int = 7, relaxed: float = 0.0, open: bool = False
) -> Topology:
    names = "abcdefg"[: rng.randint(2, nodes_max)]
    pairs = list(itertools.permutations(names, 2))
    count = rng.randint(1, min(len(pairs), rng.choice((3, 8, 14, 42))))
    edges = [TopologyEdge(p, q, rng.random() < relaxed) for p, q in rng.sample(pairs, count)]
    return Topology(tuple(edges), open)


def travelled(rng: random.Random, where: Topology, moments_max: int = 14) -> list[Event]:
    """Return an execution whose messages go along the edges, in a linear extension."""
    clocks: dict[str, dict[str, int]] = {}
    sent: dict[tuple[str, str], list[dict[str, int]]] = {}
    events = []

    def act(node: str, told: dict[str, int]) -> None:
        clock = clocks.setdefault(node, {})
        for name, counter in told.items():
            clock[name] = max(clock.get(name, 0), counter)
        clock[node] = clock.get(node, 0) + 1
        events.append(Event(node=node, type="t", clock=dict(clock)))

    for _ in range(rng.randint(1, moments_max)):
        edge = rng.choice(where.edges)
        ends = (edge.source, edge.target)
        if rng.random() < 0.6 and sent.get(ends):
            act(edge.target, rng.choice(sent[ends]))
        else:
            act(edge.source, {})
            sent.setdefault(ends, []).append(dict(clocks[edge.source]))
    return events


def within(where: Topology, **options: Any) -> MarkedQueue:
    """Return the queue of a live `CausalOrder` under a topology."""
    return MarkedQueue(DomainPast(where), **options)


def pushed(queue: MarkedQueue, event: Event) -> list[Event]:
    step = queue.push(event)
    assert not step.refused
    return [r.event for r in step.released]


def waiting(queue: MarkedQueue) -> set[Dot]:
    held = queue.held_back()
    assert len(held) == len(queue)
    return {event.dot for event, _ in held}


# --- domains -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p>q", ["pq"]),
        ("p>q q>r", ["pq", "qr"]),
        ("p>q q>r p>r", ["pqr"]),
        ("p>q q>p", ["pq"]),
        ("p>q q>r r>p", ["pq", "pr", "qr"]),
        # r is reached from p and reaches q, but only across a, twice.
        ("p>q p>a a>r r>a a>q", ["apq", "ar"]),
        # With a second way back, it lies on an elementary path.
        ("p>q p>a a>r r>a a>q r>q", ["apqr"]),
        # A hub and its leaves, both ways: no leaf lies between two others.
        ("h>a a>h h>b b>h h>c c>h", ["ah", "bh", "ch"]),
        # The domain of (p, q) is in that of (p, s), which alone is kept.
        ("p>q q>s p>s", ["pqs"]),
        # A relaxed edge makes no domain and lies on no path.
        ("p>q q>r~ p>r", ["pq", "pr"]),
        ("p>q q>r~", ["pq"]),
        ("p>q~", []),
    ],
)
def test_domains_of_small_topologies(text: str, expected: list[str]) -> None:
    edges = topology(text).edges
    assert domain_texts(domains(edges)) == expected
    assert domain_texts(obvious_domains(edges)) == expected


@examples(60, 3_000)
@given(chances())
def test_domains_equal_their_definition(rng: random.Random) -> None:
    edges = random_topology(rng, relaxed=rng.choice((0, 0.3))).edges
    assert domains(edges) == obvious_domains(edges)


def test_domains_equal_their_definition_for_every_graph_of_four_nodes() -> None:
    pairs = list(itertools.permutations("abcd", 2))
    for chosen in range(1, 1 << len(pairs)):
        edges = [TopologyEdge(*pair) for i, pair in enumerate(pairs) if chosen >> i & 1]
        assert domains(edges) == obvious_domains(edges)


@given(chances())
def test_domains_do_not_depend_on_the_order_of_edges(rng: random.Random) -> None:
    edges = random_topology(rng, relaxed=0.2).edges
    assert domains(rng.sample(edges, len(edges))) == domains(edges)


def streets(rows: int) -> list[tuple[str, str]]:
    """Return the edges of a grid of one-way streets with alternating directions."""
    ends = []
    for i in range(rows):
        for j in range(rows - 1):
            a, b = (f"{i}/{j}", f"{i}/{j + 1}"), (f"{j}/{i}", f"{j + 1}/{i}")
            ends += [a, b] if i % 2 else [a[::-1], b[::-1]]
    return ends


CROSSING = (
    "a>b b>c d>e d>g e>p f>a f>e g>b g>f h>c h>g h>m i>d j>o k>f k>j l>k m>l n>i o>n p>o p>q q>l"
)
"""A graph in which greedy paths block each other, so that the search must branch."""


@pytest.mark.parametrize("turned", [False, True])
def test_domains_equal_their_definition_if_the_search_branches(turned: bool) -> None:
    edges = topology(CROSSING).edges
    ends = [(x.target, x.source) if turned else (x.source, x.target) for x in edges]
    names = sorted({name for pair in ends for name in pair})
    expected = obvious_domains([TopologyEdge(*pair) for pair in ends])

    @drawn(20, 60)
    def holds(rng: random.Random) -> None:
        # Names decide which of two equally short paths is tried first.
        renamed = dict(zip(names, rng.sample(names, len(names)), strict=True))
        computed = domains([TopologyEdge(renamed[p], renamed[q]) for p, q in ends])
        assert set(computed) == {frozenset(renamed[n] for n in domain) for domain in expected}


def ring(both: bool) -> list[tuple[str, str]]:
    ends = [(str(i), str((i + 1) % 64)) for i in range(64)]
    return ends + [(q, p) for p, q in ends] if both else ends


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        pytest.param(list(itertools.permutations(map(str, range(64)), 2)), 1, id="everybody"),
        pytest.param(ring(False), 64, id="one-way ring"),
        pytest.param(ring(True), 1, id="two-way ring"),
        pytest.param(streets(8), 56, id="one-way streets"),
    ],
)
def test_domains_of_sixty_four_nodes_are_within_the_limits(
    ends: list[tuple[str, str]], count: int
) -> None:
    computed = domains([TopologyEdge(*pair) for pair in ends])
    assert len(computed) == count
    assert frozenset().union(*computed) == {node for pair in ends for node in pair}


def test_too_many_nodes_are_an_error_that_names_the_limit() -> None:
    edges = topology("p>q q>r r>s~").edges
    assert domain_texts(domains(edges, Limits(topology_nodes_max=4))) == ["pq", "qr"]
    with pytest.raises(
        PatternError, match=r"has 4 nodes, more than 3 \(limit topology_nodes_max\)"
    ):
        domains(edges, Limits(topology_nodes_max=3))


def test_too_long_search_is_an_error_that_names_the_limit() -> None:
    edges = [TopologyEdge(*pair) for pair in streets(5)]
    with pytest.raises(
        PatternError, match=r"more than 10 search steps \(limit topology_steps_max\)"
    ):
        domains(edges, Limits(topology_steps_max=10))
    assert domains(edges)


# --- who is known, and `topology open` -----------------------------------------


def test_topology_contains_every_incarnation_of_its_nodes() -> None:
    known = nodes_of(topology("p>q q>r~"))
    assert [base_node(node) in known for node in ("p", "p#2", "r", "s", "s#2", "p#")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert base_node("p#12") == base_node("p") == "p"
    assert domain_texts(domains(topology("p#2>q q>p#3").edges)) == ["pq"]


def test_new_nodes_of_an_open_topology_are_read_from_nodes_and_clocks() -> None:
    where = DomainPast(topology("p>q", open=True))
    assert where.widen(e("p@1", "t", "q:1")) == (False, "")
    assert where.widen(e("p#2@1", "t", "s:1 r#3:1")) == (True, "")
    assert where.save()[0] == ["r", "s"]
    assert where.widen(e("s#2@1", "t", "p:1")) == (False, "")
    assert DomainPast(topology("p>q")).widen(e("z@1", "t")) == (False, "")


def test_new_node_of_an_open_topology_shares_a_domain_with_all_others() -> None:
    where = topology("p>q~ p>r", open=True)
    more = with_node(where, "n#2")
    assert base_node("n") in nodes_of(more)
    assert more.open
    assert more.edges[:2] == where.edges
    around = nodes_sharing_domain(domains(more.edges))
    assert around["n"] == {"n", "p", "q", "r"}
    # The relaxed edge stays relaxed.
    assert "q" not in around["p"]
    assert with_node(more, "n") == more


def test_new_nodes_can_exceed_the_limit() -> None:
    where = topology("p>q", open=True)
    with pytest.raises(PatternError, match=r"more than 2 \(limit topology_nodes_max\)"):
        domains(with_node(where, "n").edges, Limits(topology_nodes_max=2))


def test_open_topology_beyond_the_limit_becomes_one_domain_and_reports_it_once() -> None:
    where = DomainPast(topology("p>q~", open=True), Limits(topology_nodes_max=3))
    q = e("q@1", "t", "p:1")
    assert where.clock(q) == {"q": 1}
    assert where.widen(e("n@1", "t")) == (True, "")
    assert where.widen(e("m@1", "t")) == (True, "topology_nodes_max")
    assert where.clock(q) == q.clock, "nothing is given up any more"
    assert where.widen(e("k@1", "t")) == (True, "")


@given(chances())
def test_domains_only_grow_when_a_node_is_added(rng: random.Random) -> None:
    where = random_topology(rng, 6, relaxed=0.3, open=True)
    wider = domains(with_node(where, "n").edges)
    assert all(any(old <= new for new in wider) for old in domains(where.edges))


@given(chances())
def test_domains_do_not_depend_on_the_order_of_new_nodes(rng: random.Random) -> None:
    where = random_topology(rng, 5, relaxed=0.3, open=True)
    one = with_node(with_node(where, "n"), "m")
    other = with_node(with_node(where, "m"), "n")
    assert domains(one.edges) == domains(other.edges)


@given(chances())
def test_open_topology_without_relaxed_edges_equals_causal_order(
    rng: random.Random,
) -> None:
    whole = random_topology(rng, 6)
    events = travelled(rng, whole)
    first = whole.edges[0]
    declared = {first.source, first.target} | set(rng.sample("abcdef", 2))
    edges = (x for x in whole.edges if {x.source, x.target} <= declared)
    plain, queue = MarkedQueue(), within(Topology(tuple(edges), open=True))
    for event in rng.sample(events, len(events)):
        assert pushed(queue, event) == pushed(plain, event)
    assert len(queue) == 0


# --- what is given up -----------------------------------------------------------


def joined(a: Event, b: Event, around: Mapping[str, frozenset[str]]) -> bool:
    """Return whether a → b is one step of a chain: on one node, or within one domain.

    `around` is the result of `nodes_sharing_domain`.
    """
    one, other = base_node(a.node), base_node(b.node)
    return happened_before(a, b) and (one == other or one in around.get(other, ()))


def obvious_given_up(events: Iterable[Event], topology: Topology) -> set[tuple[Dot, Dot]]:
    """Return the pairs a → b that no chain joins, by closing the joined pairs transitively.

    The events are a finite execution of nodes of the topology, in any order; a chain leads through
    these events only.
    """
    execution = list(events)
    around = nodes_sharing_domain(domains_of(topology))
    chained = {(a.dot, b.dot) for a in execution for b in execution if joined(a, b, around)}
    for middle in execution:
        into = [a for a, b in chained if b == middle.dot]
        onwards = [b for a, b in chained if a == middle.dot]
        chained.update((a, b) for a in into for b in onwards)
    ordered = {(a.dot, b.dot) for a in execution for b in execution if happened_before(a, b)}
    return ordered - chained


def pairs(dot_pairs: set[tuple[Dot, Dot]]) -> list[str]:
    return sorted(f"{a}>{b}" for a, b in dot_pairs)


def test_pair_joined_by_a_relaxed_edge_only_is_given_up() -> None:
    events = [e("p@1", "t"), e("q@1", "t", "p:1"), e("q@2", "t", "p:1"), e("r@1", "t", "p:1 q:1")]
    assert pairs(obvious_given_up(events, topology("p>q q>r"))) == []
    assert pairs(obvious_given_up(events, topology("p>q q>r~"))) == ["p@1>r@1", "q@1>r@1"]
    assert pairs(obvious_given_up(events, topology("p>q~ q>r"))) == [
        "p@1>q@1",
        "p@1>q@2",
        "p@1>r@1",
    ]


def test_pair_with_another_chain_within_domains_is_kept() -> None:
    # r learns of q@1 from q along the relaxed edge, and also from s.
    events = [e("q@1", "t"), e("s@1", "t", "q:1"), e("r@1", "t", "q:1 s:1")]
    assert pairs(obvious_given_up(events, topology("q>r~ q>s s>r"))) == []
    assert pairs(obvious_given_up(events, topology("q>r~ q>s s>r~"))) == ["q@1>r@1", "s@1>r@1"]


def test_pair_within_a_common_domain_is_kept_whatever_message_carried_it() -> None:
    # p and r share the domain of p -> r, so r waits although it learns of p@1 from q.
    events = [e("p@1", "t"), e("q@1", "t", "p:1"), e("r@1", "t", "p:1 q:1")]
    assert pairs(obvious_given_up(events, topology("p>q q>r~ p>r"))) == ["q@1>r@1"]


def test_incarnations_count_as_one_node_in_domains() -> None:
    events = [e("p@1", "t"), e("p#2@1", "t", "p:1"), e("q@1", "t", "p:1 p#2:1")]
    assert pairs(obvious_given_up(events, topology("p>q"))) == []
    assert pairs(obvious_given_up(events, topology("p>q~"))) == ["p#2@1>q@1", "p@1>q@1"]


@given(chances())
def test_no_pair_is_given_up_without_relaxed_edges(rng: random.Random) -> None:
    where = random_topology(rng, 6)
    assert obvious_given_up(travelled(rng, where), where) == set()


# --- the hold-back queue ----------------------------------------------------------


@given(chances())
def test_queue_without_relaxed_edges_equals_causal_order(
    rng: random.Random,
) -> None:
    where = random_topology(rng, 6)
    events = travelled(rng, where)
    plain, queue = MarkedQueue(), within(where)
    for event in rng.sample(events, len(events)):
        assert pushed(queue, event) == pushed(plain, event)
        assert waiting(queue) == waiting(plain)
    assert len(queue) == 0


@given(chances())
def test_queue_holds_back_exactly_events_that_wait_for_a_kept_pair(
    rng: random.Random,
) -> None:
    where = random_topology(rng, 6, relaxed=rng.choice((0.2, 0.5, 1)))
    events = travelled(rng, where)
    lost = obvious_given_up(events, where)
    plain, queue = MarkedQueue(), within(where)
    come: set[Dot] = set()
    order: list[Event] = []
    for event in rng.sample(events, len(events)):
        come.add(event.dot)
        pushed(plain, event)
        order += pushed(queue, event)
        assert waiting(queue) <= waiting(plain)
        assert waiting(queue) == {
            b.dot
            for b in events
            if b.dot in come
            and any(
                happened_before(a, b) and (a.dot, b.dot) not in lost and a.dot not in come
                for a in events
            )
        }
    assert {event.dot for event in order} == come
    for a, b in itertools.combinations(order, 2):
        assert not happened_before(b, a) or (b.dot, a.dot) in lost


@given(chances())
def test_each_given_up_pair_is_reversed_by_some_arrival_order(rng: random.Random) -> None:
    where = random_topology(rng, 5, relaxed=0.5)
    events = travelled(rng, where)
    lost = obvious_given_up(events, where)
    for a, b in lost:
        after = {y.dot for y in events for x in events if x.dot == a and happened_before(x, y)}
        later = {a} | {dot for dot in after if (a, dot) not in lost}
        queue = within(where)
        released: list[Dot] = []
        for event in sorted(events, key=lambda x: x.dot in later):
            released += [x.dot for x in pushed(queue, event)]
        assert released.index(b) < released.index(a)


def test_held_back_event_names_a_dot_that_it_waits_for() -> None:
    queue = within(topology("p>q q>r~"), held_back_max=2)
    assert pushed(queue, e("q@1", "t", "p:2")) == []
    assert pushed(queue, e("r@2", "t", "p:2 q:1")) == []
    assert [(str(x.dot), str(dot)) for x, dot in queue.held_back()] == [
        ("q@1", "p@1"),
        ("r@2", "r@1"),
    ]
    assert [str(x.dot) for x in queue.push(e("q@2", "t", "p:2")).refused] == ["q@2"]
    assert len(queue) == 2
    assert [str(x.dot) for x in pushed(queue, e("r@1", "t", "p:2 q:1"))] == ["r@1", "r@2"]


def test_dependant_of_a_lost_event_waits_for_the_causes_of_that_event() -> None:
    # p@1 → q@1 → r@1; q@1 is lost, and with it the link from p@1 to r@1.
    queue = within(topology("p>q q>r"), gap_us=2)
    assert pushed(queue, e("r@1", "t", "p:1 q:1", time=0)) == []
    assert waits(queue) == ["r@1 q@1"]
    step = queue.leave("q")
    assert (step.gaps, step.released) == ([Dot("q", 1)], [])
    assert waits(queue) == ["r@1 p@1"]
    step = queue.push(e("p@1", "t"))
    assert [str(r.event.dot) for r in step.released] == ["p@1", "r@1"]
    assert [r.after for r in step.released] == [frozenset(), {Dot("q", 1)}]


def waits(queue: MarkedQueue) -> list[str]:
    return [f"{event.dot} {dot}" for event, dot in queue.held_back()]


def test_cause_of_a_lost_event_can_be_lost_in_turn() -> None:
    queue = within(topology("p>q q>r"), gap_us=2_000_000)
    queue.push(e("r@1", "t", "p:1 q:1", time=0))
    step = queue.push(e("p@2", "t", time=2))
    assert [str(dot) for dot in step.gaps] == ["q@1"], "p@1 is waited for since now"
    assert waits(queue) == ["r@1 p@1", "p@2 p@1"]
    step = queue.push(e("z@1", "t", time=4))
    assert [str(dot) for dot in step.gaps] == ["p@1"]
    assert len(queue) == 0


@pytest.mark.parametrize("policy", ["eager", "total"])
def test_cause_of_a_lost_event_is_lost_with_it_if_its_node_has_left_or_at_the_end(
    policy: Policy,
) -> None:
    event = e("r@1", "t", "p:1 q:1")
    queue = within(topology("p>q q>r"), policy=policy)
    queue.leave("p")
    assert pushed(queue, event) == []
    left = queue.leave("q")
    queue = within(topology("p>q q>r"), policy=policy, gap_us=2)
    assert pushed(queue, event) == []
    both_left = within(topology("p>q q>r"), policy=policy)
    both_left.leave("p")
    both_left.leave("q")
    for step in (left, queue.end(), both_left.push(event)):
        assert [str(dot) for dot in step.gaps] == ["q@1", "p@1"]
        assert [r.event for r in step.released] == [event]


def test_node_that_is_needed_since_another_was_idle_is_active() -> None:
    queue = within(topology("p>q q>r"), nodes=("q", "p"), idle_us=2_000_000)
    for event in (e("r@1", "t", "p:3 q:1", time=0), e("p@2", "t", time=0)):
        assert pushed(queue, event) == []
    step = queue.advance(2_000_000)
    assert [str(dot) for dot in step.gaps] == ["q@1"], "r@1 shows that p was active"
    assert waits(queue) == ["r@1 p@1", "p@2 p@1"]
    assert [str(dot) for dot in queue.advance(4_000_000).gaps] == ["p@1", "p@3"]


def test_view_without_a_node_that_only_a_relaxed_edge_made_known_ends_waits_for_it() -> None:
    queue = within(topology("p>q~ p>r"))
    assert pushed(queue, e("q@1", "t", "p:1")) != [], "q does not wait for p"
    assert queue.view(["q", "r"]).gaps == []
    step = queue.push(e("r@1", "t", "p:1"))
    assert (step.gaps, len(step.released)) == ([Dot("p", 1)], 1)


def test_chain_through_two_lost_events_is_read_from_the_clock() -> None:
    past = DomainPast(topology("p>q q>r r>s"))
    past.add_lost("q", 1, 1)
    past.add_lost("r", 1, 1)
    assert past.clock(e("s@1", "t", "p:1 q:1 r:1")).keys() == {"p", "q", "r", "s"}
    # An event after the lost one waits for its own causes.
    assert past.clock(e("s@1", "t", "p:1 q:1 r:2")).keys() == {"r", "s"}


def test_lost_dots_are_kept_as_ranges_which_merge_beyond_the_limit() -> None:
    past = DomainPast(topology("p>q q>r"), Limits(lost_max=2))
    for first, last in ((3, 5), (6, 10**12), (10**12 + 5, 10**12 + 5)):
        past.add_lost("q", first, last)
    assert past.lost == {"q": [(3, 10**12), (10**12 + 5, 10**12 + 5)]}
    assert [len(past.clock(e("r@1", "t", f"p:1 q:{c}"))) for c in (2, 3, 9, 10**12 + 1)] == [
        2, 3, 3, 2,
    ]  # fmt: skip
    past.add_lost("q", 10**12 + 9, 10**12 + 9)
    assert len(past.lost["q"]) == 2
    assert len(past.clock(e("r@1", "t", f"p:1 q:{10**12 + 1}"))) == 3, "more is waited for"
    past = DomainPast(topology("p>q q>r"), Limits(lost_max=1))
    for node, counter in (("p", 1), ("q", 1), ("q", 5)):
        past.add_lost(node, counter, counter)
    assert past.lost == {"p": [(1, 1)], "q": [(1, 5)]}, "ranges of two nodes are never one"


@given(chances(), st.booleans())
def test_lost_ranges_are_the_runs_of_the_lost_dots(rng: random.Random, saved: bool) -> None:
    """Beyond the limit the two lowest ranges become one, of a node that has the most ranges."""
    edges, limits = topology("p>q q>r"), Limits(lost_max=rng.choice((2, 3, 10**6)))
    past = DomainPast(edges, limits)
    runs: dict[str, list[list[int]]] = {}
    for _ in range(rng.randint(1, 12)):
        node = rng.choice("pq")
        of_node = runs.setdefault(node, [])
        # What is lost later may overlap what was lost before, but begins no earlier.
        first = rng.randint(*of_node[-1]) if of_node else 1
        first += rng.randint(0, 3)
        last = first + rng.choice((0, 0, 1, 4))
        past.add_lost(node, first, last)
        if of_node and first <= of_node[-1][1] + 1:
            of_node[-1][1] = max(last, of_node[-1][1])
        else:
            of_node.append([first, last])
            longest = max(runs.values(), key=len)
            if sum(map(len, runs.values())) > limits.lost_max and len(longest) > 1:
                longest[:2] = [[longest[0][0], longest[1][1]]]
        if saved:
            restored = DomainPast(edges, limits)
            restored.load(past.save())
            past = restored
        assert past.lost == {n: [tuple(run) for run in found] for n, found in runs.items()}


def test_one_domain_of_all_nodes_stays_one_after_a_restore() -> None:
    event = e("q@1", "t", "p:1 r:1 t:1")
    past = DomainPast(topology("p>q r>t"), whole=True)
    assert past.clock(event) == event.clock
    again = DomainPast(topology("p>q r>t"), whole=True)
    again.load(past.save())
    assert again.clock(event) == event.clock


def test_held_event_that_waits_for_more_once_domains_grow_can_lose_that_too() -> None:
    """The new s may send to r and q, and r is on the way s → r → p → q."""
    queue = within(topology("r>p p>q", open=True), gap_us=10)
    queue.push(e("q@1", "t", "p:1 r:1"))
    assert [str(r.event.dot) for r in queue.push(e("s@1", "t")).released] == ["s@1"]
    assert [str(r.event.dot) for r in queue.push(e("p@1", "t")).released] == ["p@1"]
    queue.advance(0)
    step = queue.advance(10)
    assert [str(dot) for dot in step.gaps] == ["r@1"]
    assert [str(r.event.dot) for r in step.released] == ["q@1"]


@examples(50, 1_000)
@given(chances())
def test_events_that_name_a_dot_of_a_hole_are_found_however_long_it_is(rng: random.Random) -> None:
    store = HeldEvents(DomainPast(topology("p>q q>r")))
    events = [e(f"r@{n}", "t", f"p:{rng.randint(1, 6)} q:{rng.randint(1, 6)}") for n in range(1, 7)]
    held = [store.hold(store.new_arrival(event)) for event in events]
    for one in rng.sample(held, 3):
        store.remove(one.event)
        held.remove(one)
    node, first = rng.choice("pq"), rng.randint(1, 6)
    for last in (first, first + 2, first + 10**12):
        naming = [one for one in held if first <= one.clock[node] <= last]
        assert sorted(store.events_naming(node, first, last)) == naming


@given(chances())
def test_losses_do_not_reverse_a_kept_pair(rng: random.Random) -> None:
    """With any events declared lost, the release order respects each pair not given up."""
    where = random_topology(rng, 6, relaxed=rng.choice((0, 0.3)))
    events = travelled(rng, where)
    kept = {(a.dot, b.dot) for a in events for b in events if happened_before(a, b)}
    kept -= obvious_given_up(events, where)
    left = [x for x in events if rng.random() < 0.7]
    queue = within(where, gap_us=1)
    order: list[Dot] = []
    late: set[Dot] = set()
    moment = 0
    for event in rng.sample(left, len(left)):
        steps = [queue.push(event)]
        if rng.random() < 0.2:
            moment += 1
            steps.append(queue.advance(moment))
        order += [r.event.dot for step in steps for r in step.released]
        late |= {x.dot for step in steps for x in step.late}
    order += [r.event.dot for r in queue.end().released]
    assert {*order, *late} == {x.dot for x in left}
    assert len(queue) == 0
    for a, b in itertools.combinations(order, 2):
        assert (b, a) not in kept


@given(chances())
def test_joined_pairs_are_ordered_pairs_within_one_node_or_domain(rng: random.Random) -> None:
    where = random_topology(rng, 6, relaxed=0.3)
    events = travelled(rng, where)
    groups = domains(where.edges)
    for a, b in itertools.permutations(events, 2):
        together = a.node == b.node or any({a.node, b.node} <= d for d in groups)
        assert joined(a, b, nodes_sharing_domain(groups)) == (happened_before(a, b) and together)
