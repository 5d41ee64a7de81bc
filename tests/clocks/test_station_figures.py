"""The examples of "Improving Causality Logging in Mobile Computing Networks", and its gaps.

The text of the paper has the numbers of Fig. 1 and of section III's example, and describes the
content of Figs. 2 to 5 and 7: two stations, three hosts, and the same execution in each notation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.mobile_hosts.dependency_sequences import DependencyClocks, contains
from ketal.clocks.mobile_hosts.hierarchical import HierarchicalClocks, digits
from ketal.clocks.mobile_hosts.interleaving import InterleavingClocks
from ketal.clocks.mobile_hosts.station_vectors import StationClocks
from ketal.clocks.scheme import Clock, Scheme, StampOrder
from ketal.clocks.schemes import scheme_named
from tests.clocks.executions import SampleRun, sample_runs
from tests.clocks.test_stations import EXACT, MobileRun, fixed_run, set_of_pairs


def test_figure_1_one_clock_per_station_orders_unrelated_sends() -> None:
    """ "The send event on MH_B appears to depend on the send event on MH_A", as [1 0] < [2 0]."""
    events = fixed_run(("A", "1", ()), ("B", "1", ())).happenings()
    scheme = StationClocks()
    a, b = scheme.stamped(events)
    assert (dict(a.clock), dict(b.clock)) == ({"1": 1}, {"1": 2})
    order = scheme.order([a, b])
    assert order(a, b)
    assert scheme.relation(order, a, b) is StampOrder.UNKNOWN
    for name in EXACT:
        exact = scheme_named(name)
        stamps = exact.stamped(events)
        assert exact.relation(exact.order(stamps), *stamps) is StampOrder.CONCURRENT


# A and B are at station 1, C is at station 2. B's first event reaches C's first, C's second A's
# second, B's second C's third.
RUN = fixed_run(
    ("A", "1", ()), ("B", "1", ()), ("C", "2", (1,)), ("C", "2", ()),
    ("A", "1", (3,)), ("B", "1", ()), ("C", "2", (5,)),
)  # fmt: skip
FIGURE_2 = [("1", 1), ("1", 2), ("2", 1), ("2", 2), ("1", 3), ("1", 4), ("2", 3)]
FIGURE_3: list[tuple[list[int], list[int]]] = [
    ([1, 1], []), ([2, 2], []), ([2, 2], [1, 1]), ([2, 2], [1, 2]),
    ([1, 3], [1, 2]), ([2, 2, 4, 4], []), ([2, 2, 4, 4], [1, 3]),
]  # fmt: skip
FIGURE_4: list[tuple[list[int], list[int]]] = [
    ([1], []), ([2], []), ([2], [1]), ([2], [1, 2]),
    ([1, 2, 3], [1, 2]), ([2, 4], []), ([2, 4], [1, 2, 3]),
]  # fmt: skip
# Station 1 alone cannot know that its event 3 is after event 2, by messages via 2.
FIGURE_5_BITS = ["1", "01", "1", "11", "101", "0101", "111"]
CLOCKS = [(1, 0), (2, 0), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3)]
FIGURE_7_P = [None, None, None, 1, 1, 2, 2]


def _entries(clock: Clock) -> tuple[int, int]:
    return clock.get("1", 0), clock.get("2", 0)


def test_figure_2_each_station_numbers_its_events() -> None:
    assert [stamp.label for stamp in StationClocks().stamped(RUN.happenings())] == FIGURE_2


def test_figures_3_and_4_dependency_sequences_are_causal_histories_projected() -> None:
    stamps = DependencyClocks().stamped(RUN.happenings())
    pairs = [(stamp.history.get("1", ()), stamp.history.get("2", ())) for stamp in stamps]
    assert pairs == [tuple(map(tuple, both)) for both in FIGURE_3]
    assert [tuple(map(set_of_pairs, both)) for both in pairs] == [
        tuple(map(set, both)) for both in FIGURE_4
    ]


def test_figure_5_hierarchical_clocks_are_bits_and_the_clock_of_the_station() -> None:
    stamps = HierarchicalClocks().stamped(RUN.happenings())
    assert [digits(stamp.local) for stamp in stamps] == FIGURE_5_BITS
    assert [_entries(stamp.clock) for stamp in stamps] == CLOCKS


def test_figure_7_interleaving_clocks_are_the_hosts_last_event_and_the_clock_of_the_station() -> (
    None
):
    stamps = InterleavingClocks().stamped(RUN.happenings())
    assert [stamp.previous and stamp.previous[1] for stamp in stamps] == FIGURE_7_P
    assert [_entries(stamp.clock) for stamp in stamps] == CLOCKS


def test_section_3_the_example_is_the_history_of_an_event() -> None:
    """<{1,2,4},{2,4,5,6,7,9}> = <<1,2,4,4>,<2,2,4,7,9,9>> = <<1101>,<010111101>>."""
    none: tuple[int, ...] = ()
    at_1 = [("A", "1", none), ("A", "1", none), ("D", "1", none), ("A", "1", none)]
    at_2 = [(host, "2", none) for host in "CBCBBBBC"]
    events = fixed_run(*at_1, *at_2, ("B", "2", (3,))).happenings()
    dependency = DependencyClocks().stamped(events)[-1]
    assert dependency.history == {"1": (1, 2, 4, 4), "2": (2, 2, 4, 7, 9, 9)}
    assert set_of_pairs(dependency.history["2"]) == {2, 4, 5, 6, 7, 9}
    hierarchical = HierarchicalClocks().stamped(events)[-1]
    assert (digits(hierarchical.local), _entries(hierarchical.clock)) == ("010111101", (4, 9))
    interleaving = InterleavingClocks().stamped(events)[-1]
    assert (interleaving.previous, _entries(interleaving.clock)) == (("2", 7), (4, 9))


def test_pairs_encode_sets_of_numbers() -> None:
    pairs = (2, 2, 4, 7, 9, 9)
    assert {number for number in range(1, 50) if contains(pairs, number)} == set_of_pairs(pairs)


Printed = list[tuple[int | None, dict[str, int]]]


def _definition_iv_1(mobile: MobileRun) -> Printed:
    """Return P and V() of each event, literally by Definition IV.1.

    At a handoff, which the definition leaves open, the new station merges V() of the host's last
    event.
    """
    clocks: dict[str, dict[str, int]] = {}
    last: dict[tuple[str, str], int] = {}
    visited: dict[str, int] = {}
    log: Printed = []
    for number, event in enumerate(mobile.happenings()):
        k = event.station
        v = dict(clocks.get(k, {}))
        v[k] = v.get(k, 0) + 1
        p = last.get((k, event.node))
        last[k, event.node] = v[k]
        gained = list(event.receives)
        before = visited.get(event.node)
        if before is not None and mobile.stations[before] != k:
            gained.append(before)
        for one in gained:
            for name, count in log[one][1].items():
                v[name] = max(v.get(name, 0), count)
        clocks[k] = v
        visited[event.node] = number
        log.append((p, v))
    return log


@st.composite
def settled_runs(draw: st.DrawFn) -> MobileRun:
    """Draw executions of hosts that do not move, and receive at most one message per event."""
    run = draw(sample_runs())
    run = SampleRun(run.nodes, [causes[:1] for causes in run.causes])
    at = {node: draw(st.sampled_from(["s1", "s2", "s3"])) for node in sorted(set(run.nodes))}
    return MobileRun(run, [at[node] for node in run.nodes])


@given(mobile=settled_runs())
def test_definition_iv_1_is_part_of_an_interleaving_stamp(mobile: MobileRun) -> None:
    stamps = InterleavingClocks().stamped(mobile.happenings())
    logged = [(stamp.previous and stamp.previous[1], dict(stamp.clock)) for stamp in stamps]
    assert logged == _definition_iv_1(mobile)


# Pairs of executions that differ in their last event: the send that C or A receives, or who moves.
LEAD = [("C", "2", ()), ("D", "2", ()), ("C", "2", ()), ("A", "1", (2,))]
KNOWN_BEFORE = [fixed_run(*LEAD, ("A", "1", (send,))) for send in (0, 1)]
WITHIN_A_STATION = [
    fixed_run(("A", "1", ()), ("B", "1", ()), ("C", "1", (send,))) for send in (0, 1)
]
HANDOFF = [
    fixed_run(("A", "1", ()), ("B", "1", ()), ("C", "2", (1,)), (host, "2", ())) for host in "AB"
]
PAIRS = {"known": KNOWN_BEFORE, "within": WITHIN_A_STATION, "handoff": HANDOFF}


def _relations(scheme: Scheme[Any], mobile: MobileRun) -> list[StampOrder]:
    stamps: Sequence[Any] = scheme.stamped(mobile.happenings())
    order = scheme.order(stamps)
    return [scheme.relation(order, stamp, stamps[-1]) for stamp in stamps[:-1]]


@pytest.mark.parametrize("pair", PAIRS)
def test_definition_iv_1_as_printed_gives_equal_logs_for_different_orders(
    pair: str,
) -> None:
    one, other = PAIRS[pair]
    assert _definition_iv_1(one) == _definition_iv_1(other)
    assert one.run.pasts() != other.run.pasts()


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", EXACT)
def test_the_labels_of_causes_distinguish_them(name: str, pair: str) -> None:
    for mobile in PAIRS[pair]:
        past = mobile.run.pasts()[-1]
        expected = [
            StampOrder.BEFORE if number in past else StampOrder.CONCURRENT
            for number in range(len(mobile.stations) - 1)
        ]
        assert _relations(scheme_named(name), mobile) == expected


@pytest.mark.parametrize(("pair", "alike"), [("known", True), ("within", False), ("handoff", True)])
def test_bits_without_labels_distinguish_executions_within_a_station(
    pair: str, alike: bool
) -> None:
    one, other = (
        [(stamp.local, stamp.clock) for stamp in HierarchicalClocks().stamped(run.happenings())]
        for run in PAIRS[pair]
    )
    assert (one == other) is alike


@given(mobile=settled_runs())
def test_receive_with_a_new_entry_identifies_its_send_by_the_clocks(
    mobile: MobileRun,
) -> None:
    """Definition IV.1 as printed decides in this case: the send is the greatest new event."""
    stamps = InterleavingClocks().stamped(mobile.happenings())
    log = {stamp.label: stamp for stamp in stamps}
    for stamp in stamps:
        station, index = stamp.label
        before = log[station, index - 1].clock if index > 1 else {}
        new = {
            (name, count)
            for name, count in stamp.clock.items()
            if name != station and count > before.get(name, 0)
        }
        greatest = [one for one in new if new <= set(log[one].clock.items())]
        assert greatest == (list(stamp.received) if new else [])
