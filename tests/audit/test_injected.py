"""Issue 4: every fault class, put into each real log at several rates, is named where it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ketal
from ketal.logs import Log, read_log
from tests.audit.injecting import FAULTS, Rig, inject
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
RATES = (0.0, 0.01, 0.05, 0.1)


def real_log(folder: Path, name: str) -> Log:
    if name == "VectorClocksTests":
        fields = {"type": "event", "clock": "pkt.vc", "data": "pkt"}
        return read_log(folder / "tlaplus" / f"{name}.ndjson", fields=fields)
    return read_log(folder / "shiviz" / f"{name}.log", regex=REGEXES[name])


@pytest.mark.parametrize("name", NUMBERS)
def test_real_logs_are_clean_and_measure_what_their_readme_says(
    shared_data: Path, name: str
) -> None:
    log = real_log(shared_data, name)
    audit = ketal.audit(log)
    assert audit.faults == ()
    assert audit.clean
    numbers = audit.statistics
    assert (numbers.concurrent_pairs, numbers.ordered_pairs) == NUMBERS[name]
    assert numbers.events == len(list(log))
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


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NUMBERS)
def test_each_fault_is_named_with_its_line_and_nothing_else(
    shared_data: Path, tmp_path: Path, name: str, fault: str
) -> None:
    events = list(real_log(shared_data, name))
    path = tmp_path / "spoilt.jsonl"
    tried = 0
    for rate in RATES:
        for seed in range(1 if len(events) > 1_000 else 3):
            rig = Rig(events, random.Random(f"{name} {fault} {rate} {seed}"))
            injected = inject(rig, fault, max(1, round(rate * len(events))))
            if not injected:
                continue
            tried += 1
            rig.write(path)
            named = sorted((f.line, f.code) for f in ketal.audit(read_log(path)).faults)
            assert named == rig.expected(injected), (rate, seed)
    # Where nobody learns of a third node by a message, none can be forgotten.
    assert tried or fault == "not transitive"


def test_receives_that_forget_their_sends(shared_data: Path, tmp_path: Path) -> None:
    """The messages of a real log are found by its clocks, named, and some merges undone."""
    events = list(real_log(shared_data, "simpledb"))
    rng = random.Random(7)
    rig = Rig(events, rng)
    receives = []
    for index, event in enumerate(events):
        before = rig.clean[rig.at[event.node, event.counter - 1]] if event.counter > 1 else {}
        learned = [
            (rig.clean[rig.at[dot]], dot)
            for dot in event.clock.items()
            if dot[0] != event.node and dot[1] > before.get(dot[0], 0)
        ]
        if learned:
            _, sender = max(learned, key=lambda pair: sum(pair[0].values()))
            rig.records[rig.at[sender]]["data"][f"sent{index}"] = True
            rig.records[rig.at[sender]]["data"].setdefault("messages", []).append(index)
            receives.append((index, sender, before))
    # One message a send keeps the pairing plain.
    chosen = {}
    for index, sender, before in receives:
        if sender not in chosen:
            chosen[sender] = index, before
    for sender, (index, _) in chosen.items():
        rig.records[rig.at[sender]]["data"]["sent"] = f"m{index}"
        rig.records[index]["data"]["got"] = f"m{index}"
        rig.records[rig.at[sender]]["data"]["message"] = f"m{index}"
    for _, (index, _) in chosen.items():
        if "message" in rig.records[index]["data"]:
            # An event that does both cannot name two messages in one attribute.
            del rig.records[index]["data"]["got"]
        else:
            rig.records[index]["data"]["message"] = f"m{index}"
    match = "id=data.message,send=data.sent:m*,receive=data.got:m*"
    path = tmp_path / "messages.jsonl"
    rig.write(path)
    whole = ketal.audit(read_log(path), match_messages=match)
    assert whole.clean
    assert whole.statistics.messages is not None
    assert whole.statistics.messages["pairs"] > 20
    spoilt = {}
    for sender, (index, before) in chosen.items():
        if "got" in rig.records[index]["data"] and rig.free(index) and rng.random() < 0.3:
            rig._set(index, sender[0], before.get(sender[0], 0))
            rig.busy |= rig.around(index)
            spoilt[index] = "A009"
    assert len(spoilt) > 3
    rig.write(path)
    audit = ketal.audit(read_log(path), match_messages=match)
    assert sorted((f.line, f.code) for f in audit.faults) == rig.expected(spoilt)
