"""Pairs of events in real logs: concurrent and ordered pairs as counted by hand.

The numbers are from the logs' README. The one rule: the order of the lines does not matter.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.logs.restamping import restamped
from tests.logs.test_real_logs import AKKA, PLAIN, VOLDEMORT, WEB
from tests.sampling import sample

RPC = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
TLA = {"type": "event", "clock": "pkt.vc", "data": "pkt"}

# log → how it is read, its events, its concurrent pairs
LOGS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "simpledb": ("shiviz/simpledb.log", {"regex": PLAIN}, 509, 16_937),
    "voldemort": (
        "shiviz/voldemort-simple-threadnames.log",
        {"regex": VOLDEMORT},
        863,
        57_641,
    ),
    "reliable-broadcast": ("shiviz/reliable-broadcast.log", {"regex": AKKA}, 116, 2_044),
    "simple-reliable-broadcast": (
        "shiviz/simple-reliable-broadcast.log",
        {"regex": AKKA},
        39,
        195,
    ),
    "facebook": ("shiviz/facebook.log", {"regex": WEB}, 47, 68),
    "RpcClientServer": ("shiviz/RpcClientServer.log", {"regex": RPC}, 10, 2),
    "VectorClocksTests": ("tlaplus/VectorClocksTests.ndjson", {"fields": TLA}, 2_324, 24_380),
}
SEEDS = sample((1,), (1, 2, 3))
SMALL = ("reliable-broadcast", "simple-reliable-broadcast", "facebook", "RpcClientServer")
EXACT = [name for name in SCHEMES if scheme_named(name).decides]
SCHEMES_OF_LONG = {
    "simpledb": EXACT[::4],
    "voldemort": EXACT[2::4],
    "VectorClocksTests": ["vector", "delta", "itc"],
}
STAMPED = [
    (name, scheme) for name in LOGS for scheme in sample(SCHEMES_OF_LONG.get(name, EXACT), EXACT)
]
"""Log and scheme; some schemes take ten seconds for the longest log, so a sample is enough."""


@cache
def pairs(operator: str) -> ketal.Program:
    return ketal.compile(
        f"pattern Pairs {{ order CausalOrder; event E = true; First = E; Second = {operator}(E);"
        " find any First Second; }"
    )


def ordered(name: str) -> int:
    """Return the number of ordered pairs: all pairs that are not concurrent."""
    _, _, events, concurrent = LOGS[name]
    return events * (events - 1) // 2 - concurrent


def read(data: Path, name: str) -> ketal.Log:
    path, options, _, _ = LOGS[name]
    return ketal.read_log(data / path, **options)


def counted(operator: str, log: ketal.Log, *, listing: bool = False) -> int:
    verdicts = ketal.run(pairs(operator), log, listing=listing)
    listed = sum(isinstance(verdict, ketal.Match) for verdict in verdicts)
    matches: int = verdicts.summary["patterns"]["Pairs"]["matches"]
    assert not listing or listed == matches
    return matches


def shuffled(data: Path, name: str, seed: int) -> list[ketal.Event]:
    events = list(read(data, name))
    random.Random(seed).shuffle(events)
    return events


@pytest.mark.parametrize("name", LOGS)
def test_numbers_of_concurrent_and_ordered_pairs(shared_data: Path, name: str) -> None:
    log = read(shared_data, name)
    assert counted("Conc", log, listing=True) == LOGS[name][3]
    assert counted("Causal", log) == ordered(name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LOGS)
def test_number_of_pairs_does_not_depend_on_line_order(
    shared_data: Path, tmp_path: Path, name: str, seed: int
) -> None:
    events = shuffled(shared_data, name, seed)
    path = tmp_path / "shuffled.jsonl"
    ketal.write_jsonl(events, path)
    assert counted("Conc", ketal.read_log(path)) == LOGS[name][3]
    assert counted("Conc", ketal.Log.of(events)) == LOGS[name][3]


def test_number_of_ordered_pairs_does_not_depend_on_line_order(shared_data: Path) -> None:
    name = sample("voldemort", "VectorClocksTests")
    log = ketal.Log.of(shuffled(shared_data, name, 4))
    assert counted("Causal", log) == ordered(name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SMALL)
def test_monitor_reports_each_pair_once(shared_data: Path, name: str, seed: int) -> None:
    found = []
    with ketal.Monitor(pairs("Conc")) as monitor:
        for event in shuffled(shared_data, name, seed):
            found += monitor.feed(event)
    matches = [verdict for verdict in found if isinstance(verdict, ketal.Match)]
    assert len(found) == len({match.id for match in matches}) == LOGS[name][3]


@pytest.mark.parametrize("name", SMALL)
def test_pairs_do_not_depend_on_line_order(shared_data: Path, name: str) -> None:
    first, *others = (
        sorted(str(v) for v in ketal.run(pairs("Conc"), ketal.Log.of(events)))
        for events in (
            list(read(shared_data, name)),
            *(shuffled(shared_data, name, seed) for seed in SEEDS),
        )
    )
    assert all(other == first for other in others)


@pytest.mark.parametrize(("name", "scheme"), STAMPED)
def test_pairs_are_the_same_under_every_exact_scheme(
    shared_data: Path, tmp_path: Path, name: str, scheme: str
) -> None:
    """The log is re-stamped, written, read back with `--clock`, and matched again."""
    log = read(shared_data, name)
    path = tmp_path / "stamped.jsonl"
    ketal.write_jsonl(restamped(log, scheme_named(scheme)).drafts(), path)
    back = list(ketal.read_log(path, clock=scheme))
    assert {event.dot: event.clock for event in back} == {event.dot: event.clock for event in log}
    assert counted("Conc", ketal.Log.of(back)) == LOGS[name][3]
    assert counted("Causal", ketal.Log.of(back)) == ordered(name)
