"""Repair: changed events equal the original ones, and all remaining faults are reported."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import ketal
from ketal.auditing.repair import Repair, repair_execution
from ketal.auditing.report import ExaminedExecution, examine_log
from ketal.logs import Log, read_log, write_jsonl
from ketal.logs.traces.message_pairing import Messages
from ketal.model.events.event import Event
from tests.auditing.explaining import log_of
from tests.auditing.injecting import FAULTS, MATCH, Rig, inject, with_restart
from tests.auditing.test_injected import NUMBERS, real_log
from tests.property.executions import execution


def repaired_file(path: Path, match: str | None) -> tuple[ExaminedExecution, Repair, Path]:
    """Repair a log through files, as the command does."""
    messages = None if match is None else Messages.of(match)
    (part,) = examine_log(read_log(path), messages)
    done = repair_execution(part)
    corrected = path.with_name("corrected.jsonl")
    write_jsonl(done.items, corrected)
    return part, done, corrected


def check(rig: Rig, path: Path) -> tuple[int, int]:
    """Repair a faulty log, and compare it with the original log."""
    rig.write(path)
    match = MATCH if rig.sender else None
    _, done, corrected = repaired_file(path, match)
    # No record was lost, and each keeps its line.
    order = rig.order()
    assert len(done.items) == len(order)
    for change in done.changed:
        item, index = done.items[change.line - 1], order[change.line - 1]
        assert isinstance(item, Event)
        assert item.clock == rig.clean[index], str(change)
    again = ketal.audit(read_log(corrected), match_messages=match)
    still = sorted((fault.line, fault.code) for fault in again.faults)
    assert still == sorted((change.line, change.code) for change in done.left)
    assert done.left or again.clean
    return len(done.changed), len(done.left)


def run_of_messages(rng: random.Random, count: int) -> list[Event]:
    """Return an execution in which each event sends one message, receives one, or neither."""
    clocks: dict[str, dict[str, int]] = {name: {} for name in "abcd"}
    sent: list[dict[str, int]] = []
    events = []
    for _ in range(count):
        node = rng.choice("abcd")
        clock = clocks[node]
        receives = bool(sent) and rng.random() < 0.3
        if receives:
            for name, value in sent.pop(rng.randrange(len(sent))).items():
                clock[name] = max(value, clock.get(name, 0))
        clock[node] = clock.get(node, 0) + 1
        events.append(Event(node, "x", dict(clock)))
        if not receives and rng.random() < 0.6:
            sent.append(dict(clock))
    return events


@pytest.mark.parametrize("messages", [False, True], ids=["clocks only", "messages"])
def test_random_executions_with_injected_faults_are_repaired(
    tmp_path: Path, messages: bool
) -> None:
    rng = random.Random(f"repair {messages}")
    changed = left = clean = 0
    for _ in range(150):
        events = execution(rng, events_max=60, linear=True)
        if messages:
            events = run_of_messages(rng, 50)
        if len(events) < 10:
            continue
        rig = Rig(events, rng, messages=messages)
        for kind in rng.sample(sorted(FAULTS), 3):
            inject(rig, kind, rng.randint(1, 2))
        counts = check(rig, tmp_path / "spoilt.jsonl")
        changed, left = changed + counts[0], left + counts[1]
        clean += not counts[1]
    assert min(changed, left, clean) > 10, (changed, left, clean)


@pytest.mark.parametrize("name", NUMBERS)
def test_real_logs_with_injected_faults_are_repaired(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    events = list(real_log(shared_data, name))
    rig = Rig(events, random.Random(name), messages=True)
    for kind in FAULTS:
        inject(rig, kind, max(1, len(events) // 200))
    changed, left = check(rig, tmp_path / "spoilt.jsonl")
    assert changed + left > (len(events) > 8)


@pytest.mark.parametrize("name", ["simpledb", "reliable-broadcast", "facebook"])
def test_incarnations_of_a_restarted_node_get_names(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    events = list(real_log(shared_data, name))
    node = events[len(events) // 2].node
    spoilt, line = with_restart(events, node, 4)
    write_jsonl(spoilt, tmp_path / "spoilt.jsonl")
    part, done, corrected = repaired_file(tmp_path / "spoilt.jsonl", None)
    assert [finding.code for finding in part.execution.findings] == ["A011"]
    assert not done.left
    assert [change.line for change in done.changed if change.code] == [line]
    again = ketal.audit(read_log(corrected))
    assert again.clean
    assert again.statistics == ketal.audit(spoilt).statistics
    nodes = {event.node for event in read_log(corrected)}
    assert nodes == {event.node for event in events} | {f"{node}#2"}


def test_repair_is_idempotent(shared_data: Path, tmp_path: Path) -> None:
    events = list(real_log(shared_data, "simpledb"))
    rig = Rig(events, random.Random(5))
    for kind in FAULTS:
        inject(rig, kind, 2)
    rig.write(tmp_path / "spoilt.jsonl")
    _, first, corrected = repaired_file(tmp_path / "spoilt.jsonl", None)
    (part,) = examine_log(read_log(corrected), None)
    second = repair_execution(part)
    assert not second.changed
    assert second.items == first.items
    assert [c.code for c in second.left] == [c.code for c in first.left]


def test_correction_that_would_cause_another_fault_is_not_made() -> None:
    """The event without a dot may be c@2; then c@2 instead of c@3 is the first to know b@2."""
    rows: list[tuple[str, dict[str, int]]] = [
        ("b", {"b": 1}), ("c", {"b": 2, "c": 3}), ("c", {"b": 2}), ("c", {"b": 2, "c": 1}),
    ]  # fmt: skip
    (part,) = examine_log(log_of((node, clock, {}) for node, clock in rows), None)
    done = repair_execution(part)
    assert not done.changed
    assert [item.clock for item in done.items] == [clock for _, clock in rows]  # type: ignore[union-attr]
    assert sorted(change.code for change in done.left) == sorted(
        finding.code for finding in part.execution.findings
    )
    assert any("contradicts other events" in change.message for change in done.left)


def test_correction_that_would_make_an_event_a_duplicate_is_not_made() -> None:
    """With the entry of the first event removed, the third one would be dropped as its copy."""
    rows: list[tuple[str, dict[str, int]]] = [
        ("b", {"b": 1, "c": 1}), ("b", {"b": 2}), ("b", {"b": 1}),
    ]  # fmt: skip
    (part,) = examine_log(log_of((node, clock, {}) for node, clock in rows), None)
    done = repair_execution(part)
    assert not done.changed
    assert [item.clock for item in done.items] == [clock for _, clock in rows]  # type: ignore[union-attr]
    assert sorted(change.code for change in done.left) == ["A003", "A007"]


def test_why_a_second_event_with_a_dot_is_not_repaired() -> None:
    clocks = [{"a": 1}, {"a": 1}, {"a": 2}]
    (part,) = examine_log(log_of(("a", clock, {"x": n}) for n, clock in enumerate(clocks)), None)
    (left,) = repair_execution(part).left
    assert left.message == "it cannot be determined which of the events with this dot is right"


def test_duplicates_are_removed_and_counted() -> None:
    events = [Event("a", "x", {"a": n}) for n in (1, 2)]
    (part,) = examine_log(Log.of([*events, events[0]]), None)
    done = repair_execution(part)
    assert (done.items, done.duplicates) == (tuple(events), 1)
    assert not done.changed


def test_entry_is_corrected_by_one_that_was_corrected_before() -> None:
    """a@11 is found to know b@3, so a@14, which comes after it, knows b@3 too."""
    clocks = [
        ("a", {"a": 6, "c": 10}), ("a", {"a": 7}), ("b", {"b": 3}), ("a", {"a": 11, "c": 10}),
        ("a", {"a": 12}), ("a", {"a": 13}), ("c", {"c": 10, "a": 13, "b": 3}), ("a", {"a": 14}),
    ]  # fmt: skip
    (part,) = examine_log([ketal.Event(node, "x", clock) for node, clock in clocks], None)
    last = repair_execution(part).items[-1]
    assert isinstance(last, ketal.Event)
    assert last.clock == {"a": 14, "b": 3, "c": 10}


def test_event_with_an_entry_beyond_64_bits_is_not_repaired() -> None:
    """The own entry is unambiguous, but the original of the other, too large entry is unknown."""
    rows: list[tuple[str, dict[str, int]]] = [("a", {"a": 1}), ("a", {"b": 2**70}), ("a", {"a": 3})]
    (part,) = examine_log(log_of((node, clock, {}) for node, clock in rows), None)
    done = repair_execution(part)
    assert [item.clock for item in done.items] == [clock for _, clock in rows]  # type: ignore[union-attr]
    assert [change.code for change in done.left] == ["A001"]


def test_repeated_dot_whose_message_is_received_is_left(tmp_path: Path) -> None:
    sent = [Event("b", "send", {"b": 1}, data={"msg": n}) for n in (2, 1)]
    path = tmp_path / "log.jsonl"
    write_jsonl([sent[0], Event("c", "recv", {"b": 1, "c": 1}, data={"msg": 1}), sent[1]], path)
    _, done, _ = repaired_file(path, "id=msg,send=type:send,receive=type:recv")
    assert [(change.line, change.code) for change in done.left] == [(3, "A005")]


def test_receive_of_an_unknown_message_is_not_corrected_from_the_others() -> None:
    """b@2 receives a message that no event sends, so the other messages do not show its clock."""
    clocks = [
        ("a", {"a": 1}, "k", 1), ("a", {"a": 2}, "n", 1),
        ("b", {"a": 1, "b": 1}, "k", 0), ("b", {"b": 2}, "m", 0),
    ]  # fmt: skip
    messages = Messages.of("id=msg,send=sends:1,receive=sends:0")
    for unknown in (True, False):
        lines = [
            (node, clock, {"msg": message, "sends": sends} if message != "m" or unknown else {})
            for node, clock, message, sends in clocks
        ]
        (part,) = examine_log(log_of(lines), messages)
        done = repair_execution(part)
        assert (len(done.changed), len(done.left)) == ((0, 1) if unknown else (1, 0))


def test_entry_that_is_no_counter_is_removed_if_it_can_only_be_zero(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"node":"c","type":"x","clock":{"a":-1,"c":1}}\n'
        '{"node":"a","type":"x","clock":{"a":1,"c":1}}\n'
    )
    _, done, corrected = repaired_file(path, None)
    assert [str(one) for one in done.changed] == [
        f"{path}:1: [A002] the entry for a was -1 and is now 0"
    ]
    assert done.left == ()
    assert ketal.audit(read_log(corrected)).clean


def test_receives_of_an_invalid_clock_may_be_text(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        'node,type,clock,receives\na,x,a:1,\nb,x,"a:1;b:0",a@1\nc,x,"a:1;c:x","[""a@1""]"\n'
    )
    _, done, corrected = repaired_file(path, None)
    assert (len(done.changed), len(done.left)) == (1, 1)
    lines = [json.loads(line) for line in corrected.read_text().splitlines()]
    assert [line.get("receives") for line in lines] == [None, ["a@1"], ["a@1"]]
    assert lines[2]["clock"] == "a:1;c:x"


def test_record_with_another_fault_than_its_clock_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"node":"a","type":"x","clock":{"a":0},"receives":7}\n')
    _, done, _ = repaired_file(path, None)
    assert done.items == ()
    assert [one.message for one in done.left] == [
        "not an event, so omitted from the corrected log: clock: the node's own entry 'a' is zero; "
        "counters start at 1"
    ]
