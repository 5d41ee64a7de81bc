"""Consistent cuts and linear extensions, counted and by brute force."""

from __future__ import annotations

import itertools
import random
from math import comb, factorial

import pytest
from hypothesis import given

from ketal.explanation.cuts.cut_counting import CutCount, _bit_fields, count_cuts
from ketal.explanation.cuts.series_parallel import EventOrder
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from tests.cases import e
from tests.explanation.thinned import thinned
from tests.sampling import chances, examples
from tests.work import counted_lines

ENOUGH = 10_000_000


def counted(events: list[Event], cuts_max: int = ENOUGH) -> CutCount:
    return count_cuts(CausalGraph(events), cuts_max)


def obvious_cuts(events: list[Event]) -> int:
    """Return the number of subsets that have the past of each of their events."""
    subsets = itertools.chain.from_iterable(
        itertools.combinations(events, size) for size in range(len(events) + 1)
    )
    return sum(
        all(a in chosen for b in chosen for a in events if happened_before(a, b))
        for chosen in map(set, subsets)
    )


def obvious_extensions(events: list[Event]) -> int:
    """Return the number of permutations that respect happened-before."""
    before = {b: [a for a in events if happened_before(a, b)] for b in events}

    def respects(order: tuple[Event, ...]) -> bool:
        place = {event: number for number, event in enumerate(order)}
        return all(place[a] < place[b] for b in order for a in before[b])

    return sum(map(respects, itertools.permutations(events)))


@examples(60, 400)
@given(chances())
def test_counts_equal_those_over_all_subsets_and_permutations(rng: random.Random) -> None:
    events = thinned(rng, nodes_max=4, events_min=3, events_max=7)
    count = counted(events)
    assert count == CutCount(len(events), obvious_cuts(events), obvious_extensions(events))


@examples(50, 1_000)
@given(chances())
def test_counts_by_parts_equal_a_walk_through_the_lattice(rng: random.Random) -> None:
    """The walk visits the whole lattice without dividing it into parts."""
    events = thinned(rng, events_max=16)
    count = counted(events)
    assert (count.cuts, count.linear_extensions, count.exact) == (*walked(events), True)


def walked(events: list[Event]) -> tuple[int, int]:
    """Return the number of cuts, and of paths to the last cut, by walking the whole lattice."""
    level, cuts = {frozenset[Event](): 1}, 1
    for _ in events:
        below: dict[frozenset[Event], int] = {}
        for cut, paths in level.items():
            for event in events:
                past = (a in cut for a in events if happened_before(a, event))
                if event not in cut and all(past):
                    below[cut | {event}] = below.get(cut | {event}, 0) + paths
        level, cuts = below, cuts + len(below)
    (paths,) = level.values()
    return cuts, paths


@examples(50, 1_000)
@given(chances())
def test_counts_beyond_the_limit_are_lower_bounds(rng: random.Random) -> None:
    events = thinned(rng, events_min=6, events_max=16)
    whole = counted(events)
    for cuts_max in (1, 3, 10):
        count = counted(events, cuts_max)
        if count.exact:
            assert count == whole
        else:
            assert len(events) < count.cuts <= whole.cuts
            assert cuts_max < count.cuts
            assert 1 <= count.linear_extensions <= whole.linear_extensions


def test_limit_applies_to_the_cuts_of_all_prime_parts_together() -> None:
    def letter_n(a: str, b: str) -> list[Event]:
        return [e(f"{a}@1", "x"), e(f"{a}@2", "x"), e(f"{b}@1", "x"), e(f"{b}@2", "x", f"{a}:1")]

    one, two = letter_n("a", "b"), letter_n("c", "d")
    assert counted(one) == CutCount(4, 8, 5)
    assert counted(one, 8).exact
    assert not counted(one, 7).exact
    assert counted([*one, *two], 16) == CutCount(8, 64, 25 * comb(8, 4))
    bound = counted([*one, *two], 15)
    assert (bound.exact, 15 < bound.cuts <= 64) == (False, True)


def test_empty_execution_has_one_cut_and_one_linear_extension() -> None:
    assert counted([]) == CutCount(0, 1, 1)


def test_parallel_and_series_parts_are_counted_without_a_walk() -> None:
    """The counts of parallel parts multiply, those of series add up; neither needs a walk."""
    nodes = [f"n{number}" for number in range(30)]
    beside = [e(f"{node}@{count}", "x") for node in nodes for count in range(1, 4)]
    extensions = factorial(90) // 6**30
    assert counted(beside, 1) == CutCount(90, 4**30, extensions)
    past = " ".join(f"{node}:3" for node in nodes)
    after = [
        e(f"{node}@{count}", "x", " ".join(w for w in past.split() if not w.startswith(f"{node}:")))
        for node in nodes
        for count in range(4, 7)
    ]
    assert counted([*beside, *after], 1) == CutCount(180, 2 * 4**30 - 1, extensions**2)


def rounds(nodes: int, count: int) -> list[Event]:
    """Return an execution in rounds: each event knows its neighbour's event of the last round."""
    events = []
    clocks: list[dict[str, int]] = [{} for _ in range(nodes)]
    for number in range(1, count + 1):
        known = [dict(clock) for clock in clocks]
        for node in range(nodes):
            for name, counter in known[node - 1].items():
                clocks[node][name] = max(clocks[node].get(name, 0), counter)
            clocks[node][f"n{node}"] = number
            events.append(Event(node=f"n{node}", type="x", clock=clocks[node]))
    return events


@pytest.mark.parametrize(("nodes", "count", "kind"), [(3, 100, "prime"), (1, 500, "series")])
def test_work_of_counting_grows_with_the_length_of_an_execution(
    nodes: int, count: int, kind: str
) -> None:
    def work(count: int) -> int:
        graph = CausalGraph(rounds(nodes, count))
        assert EventOrder(graph).decompose()[0].kind == kind
        number, lines = counted_lines(lambda: count_cuts(graph, ENOUGH))
        assert number.exact
        assert number.cuts > nodes * count
        return lines

    work(10)  # what is computed only once
    assert work(4 * count) < 5 * work(count)


def test_work_of_finding_parts_grows_with_the_number_of_nodes() -> None:
    def work(nodes: int) -> int:
        fork = [e("n@1", "x"), *(e(f"n{number}@1", "x", "n:1") for number in range(nodes))]
        graph = CausalGraph(fork)
        number, lines = counted_lines(lambda: count_cuts(graph, 1))
        assert number == CutCount(nodes + 1, 2**nodes + 1, factorial(nodes))
        return lines

    work(10)  # what is computed only once
    assert work(2_000) < 5 * work(500)


def more_work(graph: CausalGraph, cuts_max: int, more_max: int) -> int:
    """Return the work to enumerate cuts up to the second limit beyond that up to the first."""
    count_cuts(graph, 1)  # which finds the links
    _, few = counted_lines(lambda: count_cuts(graph, cuts_max))
    count, more = counted_lines(lambda: count_cuts(graph, more_max))
    assert not count.exact
    assert more > few
    return more - few


def test_a_cut_costs_the_cuts_after_it_not_the_lines() -> None:
    """While two long lines are counted, the others wait for an event, and cost nothing."""
    pair = [e(f"{node}@{number}", "x") for node in "pq" for number in range(1, 51)]

    def work(waiting: int) -> int:
        """Return the work to enumerate 600 cuts more."""
        others = [e(f"n{number}@1", "x", "p:50") for number in range(waiting)]
        graph = CausalGraph([*pair, *others, e("n@1", "x", "p:50 q:50")])
        return more_work(graph, 200, 800)

    work(10)  # what is computed only once
    assert work(200) < 1.2 * work(50)


def test_a_cut_costs_the_links_from_its_last_event_not_the_events_after_it() -> None:
    """Each event knows all but the one right before it; links lead to it from only two of these."""

    def work(nodes: int) -> int:
        """Return the work to enumerate 60 cuts more."""
        names = [f"n{number:03}" for number in range(nodes)]
        pasts = (" ".join(f"{name}:1" for name in names[: max(0, at - 1)]) for at in range(nodes))
        graph = CausalGraph([e(f"{n}@1", "x", p) for n, p in zip(names, pasts, strict=True)])
        return more_work(graph, 20, 80)

    work(60)  # what is computed only once
    assert work(180) < 1.2 * work(60)


def test_cuts_have_different_hashes() -> None:
    nodes = [f"n{number}" for number in range(150)]
    events = [e(f"{node}@{count}", "x") for node in nodes for count in (1, 2)]
    events.append(e("hub@1", "x", " ".join(f"{node}:1" for node in nodes)))
    order = EventOrder(CausalGraph(events))
    lines, _ = _bit_fields(order, order.decompose()[0].pieces)
    cuts = [one.step + two.step for one, two in itertools.combinations(lines[:-1], 2)]
    assert len(set(map(hash, cuts))) == len(cuts)
