"""The links between events and their shortest paths, against the obvious graph."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, reject

from ketal.clocks.vector import maximal_events
from ketal.errors import EventError
from ketal.explanation.reasons import PlacedEvent, PlacedLink
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from tests.cases import e
from tests.explanation.thinned import thinned
from tests.sampling import chances, examples
from tests.work import counted_calls

Links = set[tuple[Dot, Dot]]
LINKS_MAX = 100

# A request from a to b, the answer, and another node that got a message from a before.
RPC = (
    e("a@1", "start"),
    e("a@2", "send", "a:2"),
    e("b@1", "receive", "a:2"),
    e("b@2", "answer", "a:2"),
    e("a@3", "got", "b:2"),
    e("c@1", "told", "a:1"),
)


def obvious_links(events: list[Event]) -> Links:
    """Return program order, and the edges of the transitive reduction between nodes."""
    pairs = {(a.dot, b.dot) for a in events for b in events if happened_before(a, b)}
    messages = {
        (a, b)
        for a, b in pairs
        if a.node != b.node and not any((a, c.dot) in pairs and (c.dot, b) in pairs for c in events)
    }
    lines = [
        sorted(event.dot for event in events if event.node == node)
        for node in {event.node for event in events}
    ]
    return messages | {pair for line in lines for pair in itertools.pairwise(line)}


def obvious_distance(links: Links, source: Dot, target: Dot) -> int | None:
    """Return the least number of links from one event to another."""
    reached, steps = {source}, 0
    while target not in reached:
        further = reached | {after for before, after in links if before in reached}
        if further == reached:
            return None
        reached, steps = further, steps + 1
    return steps


def linked(graph: CausalGraph, events: list[Event]) -> Links:
    """Return the links of a graph: for each event, the events one link before it."""
    out: Links = set()
    for event in events:
        previous = graph.previous(event)
        before = [*graph.messages_to(event), *([] if previous is None else [previous])]
        out |= {(one.dot, event.dot) for one in before}
    return out


def test_links_and_path_of_a_request_and_its_answer() -> None:
    graph = CausalGraph(RPC)
    assert [str(one) for one in graph.messages_to(graph[Dot("a", 3)])] == ["b@2 answer"]
    path = graph.path(graph[Dot("a", 1)], graph[Dot("b", 2)], links_max=LINKS_MAX)
    assert [str(event.dot) for event in path] == ["a@1", "a@2", "b@1", "b@2"]
    assert [link.kind for link in links_of(path)] == ["program order", "message", "program order"]
    # The next event of a node is one link away, even if the node waited for messages.
    assert len(graph.path(graph[Dot("a", 2)], graph[Dot("a", 3)], links_max=LINKS_MAX)) == 2


def test_missing_events_are_skipped_by_links_and_counted() -> None:
    graph = CausalGraph([RPC[0], RPC[3], RPC[4]])
    first, answer, got = graph[Dot("a", 1)], graph[Dot("b", 2)], graph[Dot("a", 3)]
    (link,) = links_of(graph.path(first, answer, links_max=LINKS_MAX))
    assert (str(link), link.missing) == ("message to b@2 answer (1 event missing in between)", 1)
    (link,) = links_of(graph.path(first, got, links_max=LINKS_MAX))
    assert (str(link), link.missing) == ("then a@3 got (1 event missing in between)", 1)


def test_impossible_clocks_have_no_path_and_the_error_names_the_audit() -> None:
    # b@1 knows a@1 only from c@1, and c@1 only from b@1.
    events = [e("a@1", "x"), e("b@1", "x", "a:1 c:1"), e("c@1", "x", "a:1 b:1")]
    graph = CausalGraph(events)
    with pytest.raises(EventError, match=r"c@1 knows a@1.*`ketal audit`"):
        graph.path(graph[Dot("a", 1)], graph[Dot("c", 1)], links_max=LINKS_MAX)


def test_impossible_clocks_are_not_reported_as_a_too_long_path() -> None:
    # As above; events 3 or more links back do not know a@1.
    events = [e("a@1", "x"), *(e(f"b@{n}", "x") for n in range(1, 9))]
    events += [e("b@9", "x", "a:1 c:1"), e("c@1", "x", "a:1 b:9")]
    graph = CausalGraph(events)
    with pytest.raises(EventError, match=r"c@1 knows a@1.*`ketal audit`"):
        graph.path(graph[Dot("a", 1)], graph[Dot("c", 1)], links_max=3)


def test_path_longer_than_the_limit_is_empty() -> None:
    graph = CausalGraph(RPC)
    source, target = graph[Dot("a", 1)], graph[Dot("b", 2)]
    assert graph.path(source, target, links_max=2) == ()
    assert len(graph.path(source, target, links_max=3)) == 4
    # An earlier search with a higher limit does not matter.
    assert graph.path(source, target, links_max=2) == ()


def test_paths_to_the_same_event_visit_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [e(f"a@{n}", "x") for n in range(1, 21)]
    graph, visited, links_to = CausalGraph(own), [], CausalGraph._links_to

    def counted(graph: CausalGraph, number: int) -> tuple[int, ...]:
        visited.append(number)
        return links_to(graph, number)

    monkeypatch.setattr(CausalGraph, "_links_to", counted)
    for source in own[-2::-1]:
        assert graph.path(source, own[-1], links_max=LINKS_MAX) == tuple(own[source.counter - 1 :])
    assert len(visited) == len(set(visited)) == 19


@examples(60, 2_000)
@given(chances())
def test_links_are_program_order_and_messages_of_the_transitive_reduction(
    rng: random.Random,
) -> None:
    events = thinned(rng, events_max=14)
    graph = CausalGraph(events)
    assert linked(graph, events) == obvious_links(events)


def test_work_to_find_maximal_events_is_that_of_their_clocks() -> None:
    clocks = {(f"n{number}", 1): {f"n{number}": 1} for number in range(400)}
    found, calls = counted_calls(lambda: list(maximal_events(clocks)))
    assert found == sorted(clocks)
    assert calls < 20 * len(clocks)


@examples(60, 2_000)
@given(chances())
def test_path_is_a_shortest_sequence_of_links(
    rng: random.Random,
) -> None:
    events = thinned(rng, events_max=14)
    ordered = [(a, b) for a in events for b in events if happened_before(a, b)]
    if not ordered:
        reject()
    graph, links = CausalGraph(events), obvious_links(events)
    for a, b in ordered:
        path = graph.path(a, b, links_max=LINKS_MAX)
        assert path == CausalGraph(events).path(a, b, links_max=len(path) - 1)
        assert CausalGraph(events).path(a, b, links_max=len(path) - 2) == ()
        assert (path[0], path[-1]) == (a, b)
        assert all((one.dot, two.dot) in links for one, two in itertools.pairwise(path))
        assert len(path) - 1 == obvious_distance(links, a.dot, b.dot)
        for link in links_of(path):
            assert link.missing == lacking(events, link.source.event, link.target.event)


def links_of(path: Sequence[Event]) -> list[PlacedLink]:
    """Return the links of a path as text."""
    return list(itertools.starmap(PlacedLink, itertools.pairwise(map(PlacedEvent, path))))


def lacking(events: list[Event], source: Event, target: Event) -> int:
    """Return the number of missing events of the source's node that a link skips."""
    node, there = source.node, {event.dot for event in events}
    end = target.clock[node] + (target.node != node)
    return sum(Dot(node, n) not in there for n in range(source.counter + 1, end))


@examples(60, 2_000)
@given(chances())
def test_common_past_is_the_last_event_of_each_node_before_both(rng: random.Random) -> None:
    events = thinned(rng, events_max=14)
    graph = CausalGraph(events)
    for a, b in itertools.combinations(events, 2):
        both = [c for c in events if happened_before(c, a) and happened_before(c, b)]
        lasts = {c.node: c for c in sorted(both, key=lambda c: c.counter)}
        assert graph.common_past(a, b) == tuple(lasts[node] for node in sorted(lasts))


@examples(50, 500)
@given(chances())
def test_paths_do_not_depend_on_the_order_of_the_log(rng: random.Random) -> None:
    events = thinned(rng, events_max=14)
    graph, other = CausalGraph(events), CausalGraph(rng.sample(events, len(events)))
    for a, b in itertools.permutations(events, 2):
        if happened_before(a, b):
            assert graph.path(a, b, links_max=LINKS_MAX) == other.path(a, b, links_max=LINKS_MAX)
