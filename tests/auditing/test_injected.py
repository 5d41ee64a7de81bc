"""Faults of every class, injected into each real log, are reported where they are.

At several rates, and several classes at once. What would be another fault as well is
not put in here (see `tests.auditing.injecting`); `tests/auditing/test_causes.py` says what is
named then.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import ketal
from ketal.auditing.report import examine_log
from ketal.logs import Log, Record, read_log
from ketal.model.events.event import Event
from tests.auditing.injecting import (
    CROWDED,
    FAULTS,
    MATCH,
    Rig,
    inject,
    inject_crowded,
    with_restart,
)
from tests.logs.test_real_logs import SEVERAL, SHIVIZ, TRACE, WEB
from tests.sampling import sample

NUMBERS = {
    "simpledb": (16_937, 112_349),
    "voldemort-simple-threadnames": (57_641, 314_312),
    "reliable-broadcast": (2_044, 4_626),
    "simple-reliable-broadcast": (195, 546),
    "facebook": (68, 1_013),
    "RpcClientServer": (2, 43),
    "VectorClocksTests": (24_380, 2_674_946),
    "facebook-multiple/Execution #1": (68, 1_013),
    "facebook-multiple/Execution #2": (62, 758),
    "multiple-comparison/Base execution": (1, 27),
    "multiple-comparison/Same as base": (1, 27),
    "multiple-comparison/Different host from base": (1, 27),
    "multiple-comparison/All events are different from base": (1, 27),
    "multiple-comparison/Some events are different from base": (1, 27),
}
"""Concurrent and ordered pairs of each file, and of each execution of a file with several."""
REGEXES = {name: regex for name, regex, *_ in SHIVIZ}
RATES = (0.0, 0.02, 0.1)
CROWDED_RATES = (0.02, 0.1, 0.3)
COMPARED = "multiple-comparison"
IMPOSSIBLE = {
    # No node learns of a third node by a message, so no such entry can be missing.
    ("RpcClientServer", "not transitive"),
    ("reliable-broadcast", "not transitive"),
    *((f"{COMPARED}/{part}", "not transitive") for part in dict(SEVERAL)[COMPARED]),
}


def real_log(folder: Path, name: str) -> Log:
    if name == "VectorClocksTests":
        fields = {"type": "event", "clock": "pkt.vc", "data": "pkt"}
        return read_log(folder / "tlaplus" / f"{name}.ndjson", fields=fields)
    name, _, part = name.partition("/")
    if part:
        whole = read_log(folder / "shiviz" / f"{name}.log", regex=WEB, delimiter=TRACE)
        return whole.executions[part]
    return read_log(folder / "shiviz" / f"{name}.log", regex=REGEXES[name])


@pytest.fixture(scope="module", params=list(NUMBERS))
def log(request: pytest.FixtureRequest, shared_data: Path) -> tuple[str, list[Event]]:
    return request.param, list(real_log(shared_data, request.param))


def test_real_logs_are_clean_with_the_statistics_of_their_readme(
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
def test_logs_of_several_executions_are_clean(
    shared_data: Path, name: str, pieces: dict[str, int]
) -> None:
    path = shared_data / "shiviz" / f"{name}.log"
    audit = ketal.audit(read_log(path, regex=WEB, delimiter=TRACE))
    assert audit.clean
    executions = audit.statistics.executions
    assert executions is not None
    assert {part: numbers.events for part, numbers in executions.items()} == pieces


@pytest.mark.parametrize(("name", "pieces"), SEVERAL)
def test_fault_of_one_execution_does_not_affect_another(
    shared_data: Path, tmp_path: Path, name: str, pieces: dict[str, int]
) -> None:
    """Each execution has other faults, which are named in this execution only."""
    rng = random.Random(name)
    records: list[Record] = []
    expected = []
    for part in pieces:
        rig = Rig(list(real_log(shared_data, f"{name}/{part}")), rng)
        injected = inject(rig, rng.choice(("own entry missing", "hole", "unknown node")), 1)
        expected += [(part, line, code) for line, code in rig.expected(injected)]
        rig.write(tmp_path / "spoilt.jsonl")
        read = read_log(tmp_path / "spoilt.jsonl").records()
        records += [(part, item, file, line) for _, item, file, line in read]
    audit = ketal.audit(Log(lambda: iter(records)))
    found = [(fault.execution, fault.line, fault.code) for fault in audit.faults]
    assert sorted(found) == sorted(expected)
    assert len(found) == len(pieces)


def audit_findings(rig: Rig, path: Path) -> list[tuple[int | None, str]]:
    rig.write(path)
    audit = ketal.audit(read_log(path), match_messages=MATCH if rig.sender else None)
    return sorted((fault.line, fault.code) for fault in audit.faults)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_injected_fault_is_named_with_its_line_and_no_other(
    log: tuple[str, list[Event]], tmp_path: Path, fault: str
) -> None:
    name, events = log
    tried = 0
    long = len(events) > sample(300, 1_000)
    for rate in RATES[::2] if long else RATES:
        for seed in range(1 if long else 2):
            rng = random.Random(f"{name} {fault} {rate} {seed}")
            rig = Rig(events, rng, messages=fault == "send unknown" or seed == 1)
            injected = inject(rig, fault, max(1, round(rate * len(events))))
            tried += len(injected)
            assert audit_findings(rig, tmp_path / "spoilt.jsonl") == rig.expected(injected), (
                rate,
                seed,
            )
    assert (tried > 0) is ((name, fault) not in IMPOSSIBLE)


@pytest.mark.parametrize("seed", range(sample(3, 8)))
def test_injected_faults_of_several_classes_are_each_named(
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
    assert audit_findings(rig, tmp_path / "spoilt.jsonl") == rig.expected(injected), kinds


@pytest.mark.parametrize("kinds", [["too large"], sorted(CROWDED)], ids=["too large", "all"])
@pytest.mark.parametrize("rate", CROWDED_RATES)
def test_adjacent_wrong_own_entries_are_named(
    log: tuple[str, list[Event]], tmp_path: Path, rate: float, kinds: list[str]
) -> None:
    """The faults may be adjacent: each is named, though possibly as a hole."""
    name, events = log
    count = max(1, round(rate * len(events)))
    rig = Rig(events, random.Random(f"{name} crowd {rate}"))
    injected = inject_crowded(rig, kinds, count)
    found = audit_findings(rig, tmp_path / "spoilt.jsonl")
    if rate < 0.1 and not rig.shuffled:
        assert found == rig.expected(injected)
    (part,) = examine_log(read_log(tmp_path / "spoilt.jsonl"), None)
    dots = {finding.dot for finding in part.execution.findings}
    holes = {
        (node, counter)
        for node, line in part.execution.lines.items()
        for first, last in line.holes()
        for counter in range(first, min(last, rig.last[node]) + 1)
    }
    # A dot that no event has is a hole, or the event with the wrong own entry is named.
    rows = [(row["node"], row["clock"].get(row["node"], 0)) for row in rig.records]
    assert rig.at.keys() - set(rows) <= dots | holes
    # Of several events with the same dot, or without a dot, all but one are named.
    lines = {line for line, _ in found}
    for dot, number in Counter(rows).items():
        places = {line for line, row in enumerate(rows, 1) if row == dot} if number > 1 else set()
        assert len(places - lines) <= 1
    assert lines >= {line for line, (_, counter) in enumerate(rows, 1) if not counter}


@pytest.mark.parametrize("seed", range(3))
def test_restart_is_a_single_fault(log: tuple[str, list[Event]], seed: int) -> None:
    name, events = log
    rng = random.Random(f"{name} restart {seed}")
    last: dict[str, int] = {}
    for event in events:
        last[event.node] = max(event.counter, last.get(event.node, 0))
    longest = max(last.values())
    node = rng.choice(sorted(node for node, top in last.items() if top > min(4, longest - 1)))
    spoilt, line = with_restart(events, node, rng.randint(3, last[node] - 1))
    records = [("", event, "log", number) for number, event in enumerate(spoilt, 1)]
    audit = ketal.audit(Log(lambda: iter(records)))
    assert [fault.code for fault in audit.faults] == ["A011"]
    (fault,) = audit.faults
    if name == "VectorClocksTests":
        # The file is shuffled: either first event may be that of the second incarnation.
        assert fault.dot == f"{node}@1"
        firsts = [n for _, e, _, n in records if e.dot == (node, 1)]
        assert fault.line == max(firsts)
    else:
        assert (fault.line, fault.dot) == (line, f"{node}#2@1")
        assert audit.statistics.nodes == len(last) + 1
