"""Schemes for mobile hosts against happened-before, on executions of hosts that move."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.mobile_hosts.dependency_sequences import DependencyClocks, Pairs
from ketal.clocks.mobile_hosts.hierarchical import HierarchicalClocks, HierarchicalStamp, digits
from ketal.clocks.mobile_hosts.interleaving import InterleavingClocks, InterleavingStamp
from ketal.clocks.mobile_hosts.station_vectors import Carried, StationClocks, StationStamp
from ketal.clocks.mobile_hosts.stations import Label
from ketal.clocks.scheme import Happening, Scheme, StampOrder
from ketal.clocks.schemes import scheme_named
from ketal.clocks.stamping import vector_clocks
from ketal.errors import EventError, SettingError
from ketal.logs.restamping import restamped
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from tests.clocks.executions import SampleRun, count_answers, make_run
from tests.sampling import chances, sample

EXACT = ["dependency", "hierarchical", "interleaving"]
ALL = [*EXACT, "station"]
MOVES = ("stays", "stays", "stays", "s1", "s2", "s3", "")


@dataclass
class MobileRun:
    """An execution, and the station of each of its events; some events have none."""

    run: SampleRun
    stations: list[str]

    def happenings(self) -> list[Happening]:
        """Return the events in the form that schemes stamp."""
        return [
            replace(event, station=station)
            for event, station in zip(self.run.happenings(), self.stations, strict=True)
        ]

    def labels(self) -> list[Label]:
        """Return the station of each event and its number there, counted."""
        seen: Counter[str] = Counter()
        out = []
        for node, given_name in zip(self.run.nodes, self.stations, strict=True):
            station = given_name or node
            seen[station] += 1
            out.append((station, seen[station]))
        return out

    def links(self) -> list[tuple[int, ...]]:
        """Return the direct causes of each event: its sends, and its host's previous event."""
        last: dict[str, int] = {}
        out = []
        for number, (node, causes) in enumerate(zip(self.run.nodes, self.run.causes, strict=True)):
            out.append((*([last[node]] if node in last else []), *causes))
            last[node] = number
        return out


def set_of_pairs(pairs: Pairs) -> set[int]:
    """Return the numbers in ranges given by their first and last."""
    ranges = zip(pairs[::2], pairs[1::2], strict=True)
    return {number for first, last in ranges for number in range(first, last + 1)}


def _moving(rng: random.Random, steps_max: int) -> MobileRun:
    run = make_run(rng, 8, steps_max)
    at: dict[str, str] = {}
    stations = []
    for node in run.nodes:
        if (move := rng.choice(MOVES)) != "stays":
            at[node] = move
        stations.append(at.setdefault(node, "s1"))
    return MobileRun(run, stations)


def mobile_runs(steps_max: int = sample(60, 200)) -> st.SearchStrategy[MobileRun]:
    """Return a strategy for executions of up to 8 hosts that move between 3 stations."""
    return chances(8 * steps_max).map(lambda rng: _moving(rng, steps_max))


def fixed_run(*events: tuple[str, str, tuple[int, ...]]) -> MobileRun:
    """Return the execution of events given as (host, station, received sends)."""
    hosts, stations, causes = zip(*events, strict=True)
    return MobileRun(SampleRun(list(hosts), list(causes)), list(stations))


def _answers(scheme: Scheme[Any], mobile: MobileRun) -> Counter[tuple[StampOrder, StampOrder]]:
    return count_answers(scheme, mobile.happenings(), mobile.run.pasts())


@given(mobile=mobile_runs())
def test_no_event_is_before_itself(mobile: MobileRun) -> None:
    for scheme in map(scheme_named, ALL):
        stamps = scheme.stamped(mobile.happenings())
        order = scheme.order(stamps)
        assert not any(order(stamp, replace(stamp)) for stamp in stamps)


@pytest.mark.parametrize("name", EXACT)
@given(mobile=mobile_runs())
def test_an_exact_scheme_decides_every_pair_of_moving_hosts(name: str, mobile: MobileRun) -> None:
    for truth, answer in _answers(scheme_named(name), mobile):
        assert answer is truth


@given(mobile=mobile_runs())
def test_one_clock_per_station_contradicts_no_pair(mobile: MobileRun) -> None:
    for truth, answer in _answers(StationClocks(), mobile):
        assert answer in (truth, StampOrder.UNKNOWN)


@given(mobile=mobile_runs())
def test_clock_per_station_equals_the_vector_clock_of_stations(mobile: MobileRun) -> None:
    """It orders events as their stations' sequences do, if each handoff is a message."""
    stations = [station for station, _ in mobile.labels()]
    clocks = [clock for _, clock in SampleRun(stations, mobile.links()).clocks()]
    scheme = StationClocks()
    stamps = scheme.stamped(mobile.happenings())
    assert [dict(stamp.clock) for stamp in stamps] == clocks
    order = scheme.order(stamps)
    for b, past in enumerate(SampleRun(stations, mobile.links()).pasts()):
        assert {a for a in range(len(stamps)) if order(stamps[a], stamps[b])} == past


def test_false_orders_of_one_clock_per_station_are_counted() -> None:
    """Of three hosts without messages, all pairs of events at one station are ordered falsely."""
    events: list[tuple[str, str, tuple[int, ...]]] = [(host, "s1", ()) for host in "ABC" * 4]
    counts = _answers(StationClocks(), fixed_run(*events))
    assert counts == {
        (StampOrder.CONCURRENT, StampOrder.UNKNOWN): 3 * 16 * 2,
        (StampOrder.BEFORE, StampOrder.BEFORE): 3 * 6,
        (StampOrder.AFTER, StampOrder.AFTER): 3 * 6,
    }
    apart = fixed_run(*((host, "", ()) for host in "ABC" * 4))
    assert _answers(StationClocks(), apart)[StampOrder.CONCURRENT, StampOrder.UNKNOWN] == 0


@pytest.mark.parametrize("name", EXACT)
@given(mobile=mobile_runs(steps_max=30))
def test_station_stamps_can_be_converted_to_vector_clocks_of_hosts(
    name: str, mobile: MobileRun
) -> None:
    scheme = scheme_named(name)
    stamps = scheme.stamped(mobile.happenings())
    of_node: dict[str, list[Any]] = {}
    expected: dict[str, list[dict[str, int]]] = {}
    for stamp, (node, clock) in zip(stamps, mobile.run.clocks(), strict=True):
        of_node.setdefault(node, []).append(stamp)
        expected.setdefault(node, []).append(clock)
    assert vector_clocks(scheme.order(stamps), of_node) == expected


@given(mobile=mobile_runs())
def test_dependency_sequences_are_causal_histories_by_station(mobile: MobileRun) -> None:
    """Definition III.1: C(e) is e with its past, and C(e)[i] the events of C(e) at station i."""
    labels, pasts = mobile.labels(), mobile.run.pasts()
    for number, stamp in enumerate(DependencyClocks().stamped(mobile.happenings())):
        history: dict[str, set[int]] = {}
        for one in (*pasts[number], number):
            station, index = labels[one]
            history.setdefault(station, set()).add(index)
        assert {name: set_of_pairs(of) for name, of in stamp.history.items()} == history
        assert (stamp.host, stamp.label) == (mobile.run.nodes[number], labels[number])


@given(mobile=mobile_runs())
def test_interleaving_clocks_name_the_links_of_the_execution(mobile: MobileRun) -> None:
    labels = mobile.labels()
    stamps = InterleavingClocks().stamped(mobile.happenings())
    for stamp, links in zip(stamps, mobile.links(), strict=True):
        named = [*([stamp.previous] if stamp.previous else []), *stamp.received]
        assert named == [labels[link] for link in links]


@given(mobile=mobile_runs())
def test_hierarchical_bits_are_the_past_within_the_station(
    mobile: MobileRun,
) -> None:
    labels = mobile.labels()
    within: list[set[int]] = []
    stamps = HierarchicalClocks().stamped(mobile.happenings())
    for number, (stamp, links) in enumerate(zip(stamps, mobile.links(), strict=True)):
        station, index = labels[number]
        near = [link for link in links if labels[link][0] == station]
        within.append({index}.union(*(within[link] for link in near)))
        bits = digits(stamp.local)
        assert {at for at, bit in enumerate(bits, start=1) if bit == "1"} == within[number]
        far = [labels[link] for link in links if labels[link][0] != station]
        assert list(stamp.remote) == list(dict.fromkeys(far))


@given(mobile=mobile_runs())
def test_hierarchical_and_interleaving_clocks_have_the_clock_of_the_station(
    mobile: MobileRun,
) -> None:
    events = mobile.happenings()
    clocks = [stamp.clock for stamp in StationClocks().stamped(events)]
    assert [stamp.clock for stamp in HierarchicalClocks().stamped(events)] == clocks
    assert [stamp.clock for stamp in InterleavingClocks().stamped(events)] == clocks


@pytest.mark.parametrize("name", ALL)
@given(mobile=mobile_runs(steps_max=20))
def test_station_stamp_is_read_back_as_written(name: str, mobile: MobileRun) -> None:
    scheme = scheme_named(name)
    for node, stamp in zip(mobile.run.nodes, scheme.stamped(mobile.happenings()), strict=True):
        assert scheme.read(scheme.written(stamp), node) == stamp
        assert scheme.decode(scheme.encode(stamp), node) == stamp


@pytest.mark.parametrize("name", ALL)
def test_host_without_a_station_is_its_own_station(name: str) -> None:
    scheme = scheme_named(name)
    none, own = (
        fixed_run(("A", station, ()), ("B", "s1", (0,)), ("A", station, (1,)))
        for station in ("", "A")
    )
    assert scheme.stamped(none.happenings()) == scheme.stamped(own.happenings())


def test_handoff_transfers_the_clock_to_the_new_station() -> None:
    """A moves from s1 to s2 and back; B stays at s2, and sends nothing to A."""
    events = fixed_run(
        ("A", "s1", ()), ("B", "s2", ()), ("A", "s2", ()), ("A", "s1", ())
    ).happenings()
    known = [{"s1": 1}, {"s2": 1}, {"s1": 1, "s2": 2}, {"s1": 2, "s2": 2}]
    station = StationClocks()
    stamps = station.stamped(events)
    assert [stamp.clock for stamp in stamps] == known
    assert station.header(stamps[0]) == {"s1": 1}
    interleaving = InterleavingClocks()
    assert interleaving.stamped(events) == [
        InterleavingStamp("A", "s1", known[0], None, ()),
        InterleavingStamp("B", "s2", known[1], None, ()),
        InterleavingStamp("A", "s2", known[2], ("s1", 1), ()),
        InterleavingStamp("A", "s1", known[3], ("s2", 2), ()),
    ]
    assert interleaving.header(interleaving.stamped(events)[0]) == Carried(("s1", 1), {"s1": 1})
    hierarchical = HierarchicalClocks()
    assert hierarchical.stamped(events) == [
        HierarchicalStamp("A", "s1", known[0], 0b1, ()),
        HierarchicalStamp("B", "s2", known[1], 0b1, ()),
        HierarchicalStamp("A", "s2", known[2], 0b10, (("s1", 1),)),
        HierarchicalStamp("A", "s1", known[3], 0b10, (("s2", 2),)),
    ]
    assert hierarchical.header(hierarchical.stamped(events)[0]) == Carried(("s1", 1), {"s1": 1})
    dependency = DependencyClocks()
    histories = [stamp.history for stamp in dependency.stamped(events)]
    assert histories == [
        {"s1": (1, 1)},
        {"s2": (1, 1)},
        {"s1": (1, 1), "s2": (2, 2)},
        {"s1": (1, 2), "s2": (2, 2)},
    ]
    assert dependency.header(dependency.stamped(events)[0]) == histories[0]


LOG = fixed_run(("A", "s1", ()), ("B", "s1", ()), ("C", "s2", (0,)), ("C", "s2", (1,)))


@pytest.mark.parametrize("name", ["hierarchical", "interleaving"])
def test_log_without_the_cause_of_an_event_is_an_error(name: str) -> None:
    scheme = scheme_named(name)
    first, *rest = scheme.stamped(LOG.happenings())
    cause = "a cause of event 1 of station 's2' is event 1 of station 's1', which is missing"
    with pytest.raises(EventError, match=cause):
        scheme.order(rest)
    assert scheme.order([first, replace(first), *rest])(first, rest[1])


def test_log_without_a_local_cause_is_an_error() -> None:
    scheme = HierarchicalClocks()
    *others, third, fourth = scheme.stamped(LOG.happenings())
    cause = "a cause of event 2 of station 's2' is event 1 of station 's2', which is missing"
    with pytest.raises(EventError, match=cause):
        scheme.order([*others, fourth])
    assert scheme.order([*others, third])(others[0], third)


@pytest.mark.parametrize("name", ["hierarchical", "interleaving"])
def test_two_events_with_the_same_label_are_an_error(name: str) -> None:
    scheme = scheme_named(name)
    first, second, *_ = scheme.stamped(LOG.happenings())
    with pytest.raises(EventError, match="event 1 of station 's1' has two different stamps"):
        scheme.order([first, second, replace(first, host="D")])


def test_cyclic_causes_are_an_error() -> None:
    clock = {"s1": 1, "s2": 1}
    a = InterleavingStamp("A", "s1", clock, None, (("s2", 1),))
    b = InterleavingStamp("B", "s2", clock, None, (("s1", 1),))
    with pytest.raises(EventError, match="is event 1 of station 's2', which is not ordered before"):
        InterleavingClocks().order([a, b])


@pytest.mark.parametrize(
    ("scheme", "value", "reason"),
    [
        (StationClocks(), {"s1": 1}, "scheme station must be a station and its clock"),
        (StationClocks(), ["s1", {"s2": 1}], "with an own entry of at least 1"),
        (StationClocks(), ["s1", {"s1": 0}], "with an own entry of at least 1"),
        (StationClocks(), ["", {"": 1}], "scheme station must be a station and its clock"),
        (StationClocks(), ["s1", {"s1": -1}], "the entry for 's1' must be an integer from 0 to"),
        (InterleavingClocks(), ["s1", {"s1": 1}], "interleaving must be a station, its"),
        (InterleavingClocks(), ["s1", {"s1": 1}, 1, []], "the host's last event must be a station"),
        (InterleavingClocks(), ["s1", {"s1": 1}, ["s1", 0], []], "number of the host's last event"),
        (InterleavingClocks(), ["s1", {"s1": 1}, None, [["", 1]]], "a send must be a station and"),
        (HierarchicalClocks(), ["s1", {"s1": 1}, 1, []], "hierarchical must be a station, its"),
        (HierarchicalClocks(), ["s1", {"s1": 2}, "10", []], "a bit for each of its events"),
        (HierarchicalClocks(), ["s1", {"s1": 3}, "11", []], "a bit for each of its events"),
        (HierarchicalClocks(), ["s1", {"s1": 2}, "x1", []], "a bit for each of its events"),
        (HierarchicalClocks(), ["s1", {"s1": 1}, "1", ["s2"]], "a remote cause must be a station"),
        (DependencyClocks(), ["s1", {"s2": [1, 1]}], "dependency must be a station, and for"),
        (DependencyClocks(), ["s1", {"s1": [1]}], "events of 's1' must be the first and last"),
        (DependencyClocks(), ["s1", {"s1": []}], "events of 's1' must be the first and last"),
        (DependencyClocks(), ["s1", {"s1": [2, 1]}], "events of 's1' must be the first and last"),
        (DependencyClocks(), ["s1", {"s1": [1, 1, 2, 2]}], "with gaps between them"),
        (DependencyClocks(), ["s1", {"s1": [0, 1]}], "a number of an event of 's1' must be"),
        (DependencyClocks(), ["s1", {"s1": "11"}], "events of 's1' must be the first and last"),
    ],
)
def test_an_invalid_stamp_of_a_station_is_an_error(
    scheme: Scheme[Any], value: Any, reason: str
) -> None:
    with pytest.raises(EventError) as error:
        scheme.read(value, "A")
    assert error.value.reason.startswith("clock: ")
    assert reason in error.value.reason


def test_station_stamp_is_read_for_the_given_node() -> None:
    assert StationClocks().read(["s1", {"s1": 1}], "A") == StationStamp("A", "s1", {"s1": 1})


def test_sizes_of_the_stamps_of_a_long_run() -> None:
    """Eight hosts take turns at one station without messages: histories have gaps everywhere."""
    sizes: dict[tuple[str, int], int] = {}
    for rounds in (10, 100):
        events = fixed_run(*((host, "s1", ()) for host in "ABCDEFGH" * rounds)).happenings()
        for scheme in map(scheme_named, ALL):
            sizes[scheme.name, rounds] = len(scheme.encode(scheme.stamped(events)[-1]))
    # Each event of the host is a separate range.
    assert sizes["dependency", 100] > 2 * 100
    # One bit per event of the station.
    assert sizes["hierarchical", 100] - sizes["hierarchical", 10] in range(90, 96)
    # Two numbers, each with three bytes instead of one.
    assert sizes["interleaving", 100] - sizes["interleaving", 10] == 4
    assert sizes["station", 100] - sizes["station", 10] == 2


def test_bits_of_hierarchical_stamps_count_towards_the_limit_of_entries() -> None:
    """64 bits as one entry: 1 entry of the clock, and 640 bits."""
    assert scheme_named("hierarchical").entries({"a": 640}) == 11


def test_event_whose_station_is_null_has_none() -> None:
    absent, null = (
        restamped([Event("a", "x", {"a": 1}, data=data)], scheme_named("station")).stamps
        for data in ({}, {"station": None})
    )
    assert null == absent


def test_ranges_of_dependency_sequences_count_towards_the_limit_of_entries() -> None:
    """Each event of a host that takes turns at its station is a range of its own: two bounds."""
    hosts = [("ab"[number % 2], number // 2 + 1) for number in range(20)]
    events = [Event(host, "x", {host: n}, data={"station": "s1"}) for host, n in hosts]
    entries = 2 * sum(n for _, n in hosts)
    scheme = scheme_named("dependency")
    assert len(restamped(events, scheme, Limits(stamped_entries_max=entries)).stamps) == 20
    why = rf"scheme dependency have more than {entries - 1} entries \(limit stamped_entries_max\)"
    with pytest.raises(SettingError, match=why):
        restamped(events, scheme, Limits(stamped_entries_max=entries - 1))
