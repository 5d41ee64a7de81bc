"""Issue 4: faults of every class, put into each real log, are named where they are.

At several rates, and several classes at once. What would be another fault as well is
not put in here (see `tests.audit.injecting`); `tests/audit/test_causes.py` says what is
named then.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ketal
from ketal.event import Event
from ketal.logs import Log, read_log
from tests.audit.injecting import FAULTS, MATCH, Rig, inject, restarted
from tests.logs.test_real_logs import SEVERAL, SHIVIZ, TRACE, WEB

NUMBERS = {
    "simpledb": (16_937, 112_349),
    "voldemort-simple-threadnames": (57_641, 314_312),
    "reliable-broadcast": (2_044, 4_626),
    "simple-reliable-broadcast": (195, 546),
    "facebook": (68, 1_013),
    "RpcClientServer": (2, 43),
    "VectorClocksTests": (24_380, 2_674_946),
}
REGEXES = {name: regex for name, regex, *_ in SHIVIZ}
RATES = (0.0, 0.02, 0.1)
IMPOSSIBLE = {
    # Nobody learns of a third node by a message, so none can be forgotten.
    ("RpcClientServer", "not transitive"),
    ("reliable-broadcast", "not transitive"),
}


def real_log(folder: Path, name: str) -> Log:
    if name == "VectorClocksTests":
        fields = {"type": "event", "clock": "pkt.vc", "data": "pkt"}
        return read_log(folder / "tlaplus" / f"{name}.ndjson", fields=fields)
    return read_log(folder / "shiviz" / f"{name}.log", regex=REGEXES[name])


@pytest.fixture(scope="module", params=list(NUMBERS))
def log(request: pytest.FixtureRequest, shared_data: Path) -> tuple[str, list[Event]]:
    return request.param, list(real_log(shared_data, request.param))


def test_real_logs_are_clean_and_measure_what_their_readme_says(
    log: tuple[str, list[Event]],
) -> None:
    name, events = log
    audit = ketal.audit(events)
    assert audit.faults == ()
    assert audit.clean
    numbers = audit.statistics
    assert (numbers.concurrent_pairs, numbers.ordered_pairs) == NUMBERS[name]
    assert numbers.events == len(events)
    if name == "VectorClocksTests":
        assert numbers.inversions == 7_976


@pytest.mark.parametrize(("name", "pieces"), SEVERAL)
def test_several_executions_are_clean(shared_data: Path, name: str, pieces: dict[str, int]) -> None:
    path = shared_data / "shiviz" / f"{name}.log"
    audit = ketal.audit(read_log(path, regex=WEB, delimiter=TRACE))
    assert audit.clean
    executions = audit.statistics.executions
    assert executions is not None
    assert {part: numbers.events for part, numbers in executions.items()} == pieces


def named(rig: Rig, path: Path) -> list[tuple[int | None, str]]:
    rig.write(path)
    audit = ketal.audit(read_log(path), match_messages=MATCH if rig.sender else None)
    return sorted((fault.line, fault.code) for fault in audit.faults)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_its_line_and_nothing_else(
    log: tuple[str, list[Event]], tmp_path: Path, fault: str
) -> None:
    name, events = log
    tried = 0
    for rate in RATES:
        for seed in range(1 if len(events) > 1_000 else 2):
            rng = random.Random(f"{name} {fault} {rate} {seed}")
            rig = Rig(events, rng, messages=fault == "send unknown" or seed == 1)
            injected = inject(rig, fault, max(1, round(rate * len(events))))
            tried += len(injected)
            assert named(rig, tmp_path / "spoilt.jsonl") == rig.expected(injected), (rate, seed)
    assert (tried > 0) is ((name, fault) not in IMPOSSIBLE)


@pytest.mark.parametrize("seed", range(8))
def test_faults_of_several_classes_at_once(
    log: tuple[str, list[Event]], tmp_path: Path, seed: int
) -> None:
    name, events = log
    rng = random.Random(f"{name} mixed {seed}")
    kinds = rng.sample(sorted(FAULTS), rng.randint(2, 6)) if seed else sorted(FAULTS)
    rate = rng.choice(RATES[1:])
    rig = Rig(events, rng, messages=True)
    injected: dict[int, str] = {}
    for kind in kinds:
        injected |= inject(rig, kind, max(1, round(rate * len(events) / len(kinds))))
    assert injected
    assert named(rig, tmp_path / "spoilt.jsonl") == rig.expected(injected), kinds


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_is_one_thing(log: tuple[str, list[Event]], seed: int) -> None:
    name, events = log
    rng = random.Random(f"{name} restart {seed}")
    last: dict[str, int] = {}
    for event in events:
        last[event.node] = max(event.counter, last.get(event.node, 0))
    node = rng.choice(sorted(node for node, top in last.items() if top > 4))
    spoilt, line = restarted(events, node, rng.randint(3, last[node] - 1))
    records = [("", event, "log", number) for number, event in enumerate(spoilt, 1)]
    audit = ketal.audit(Log(lambda: iter(records)))
    assert [fault.code for fault in audit.faults] == ["A011"]
    (fault,) = audit.faults
    if name == "VectorClocksTests":
        # It is shuffled: which of the two first events began the second run cannot be told.
        assert fault.dot == f"{node}@1"
        firsts = [n for _, e, _, n in records if e.dot == (node, 1)]
        assert fault.line == max(firsts)
    else:
        assert (fault.line, fault.dot) == (line, f"{node}#2@1")
        assert audit.statistics.nodes == len(last) + 1
