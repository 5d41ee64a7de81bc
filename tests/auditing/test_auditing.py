"""`ketal.audit` and repair, fault by fault, on logs that fit on a screen."""

from __future__ import annotations

import io
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import ketal
from ketal.auditing.faults import HINTS
from ketal.auditing.repair import Repair, repair_execution
from ketal.auditing.report import ExaminedExecution, examine_log
from ketal.auditing.restarts import read_restarts
from ketal.logs import Log, read_log
from ketal.logs.traces.message_pairing import Messages
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from ketal.model.limits import DEFAULT
from ketal.runtime.admission.execution_events import executions_of
from tests.property.executions import executions
from tests.property.memberships import Run, arrival, base, number, runs
from tests.sampling import examples
from tests.work import counted_calls, counted_lines

MATCH = "id=msg,send=type:send,receive=type:recv"


def row(node: str, clock: dict[str, Any], type: str = "x", **data: Any) -> dict[str, Any]:
    return {"node": node, "type": type, "clock": clock, **data}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def faults(path: Path, rows: list[dict[str, Any]], **options: Any) -> list[tuple[Any, str, str]]:
    audit = ketal.audit(read_log(write(path, rows)), **options)
    return [(fault.line, fault.code, fault.dot) for fault in audit.faults]


def repair(path: Path, rows: list[dict[str, Any]], match: str | None = None) -> Repair:
    messages = None if match is None else Messages.of(match)
    (part,) = examine_log(read_log(write(path, rows)), messages)
    return repair_execution(part)


A = [row("a", {"a": 1}, "send", msg=1), row("a", {"a": 2}), row("a", {"a": 3})]
B = [row("b", {"a": 1, "b": 1}, "recv", msg=1), row("b", {"a": 1, "b": 2})]
RUN = [*A, *B]

CASES: list[tuple[str, list[dict[str, Any]], list[tuple[int, str, str]]]] = [
    ("valid", RUN, []),
    ("shuffled", RUN[::-1], []),
    ("a line twice", [*RUN, A[2]], []),
    ("own missing", [A[0], row("a", {"b": 0}), A[2]], [(2, "A001", "a@2")]),
    ("own missing, alone", [row("a", {"b": 1}), row("b", {"b": 1})], [(1, "A001", "a@1")]),
    ("own missing, empty name", [A[0], row("a", {"": 1}), A[2]], [(3, "A004", "a@2")]),
    ("no clock", [A[0], {"node": "a", "type": "x"}, A[2], *B], [(2, "A002", "a@2")]),
    ("no clock after an unknown entry",
     [row("b", {"b": 1}), row("a", {"a": 1, "b": 1}), row("a", {"a": 2, "b": "x"}),
      {"node": "a", "type": "x"}],
     [(3, "A002", "a@2"), (4, "A002", "a@3")]),
    ("negative", [A[0], row("b", {"a": -1, "b": 1}), B[1]], [(2, "A002", "b@1")]),
    ("text", [A[0], row("a", {"a": "two"}), A[2]], [(2, "A002", "a@2")]),
    ("not increasing", [A[0], row("a", {"a": 1}, "y"), A[2]], [(2, "A003", "a@2")]),
    ("not increasing, same content", [A[1], A[0], A[0]], []),
    ("too large", [A[0], row("a", {"a": 9}), A[2]], [(2, "A003", "a@2")]),
    ("hole", [A[0], A[2], *B], [(2, "A004", "a@2")]),
    ("holes", [A[0], row("a", {"a": 5})], [(2, "A004", "a@2")]),
    ("first lost", [A[1], A[2]], [(1, "A004", "a@1")]),
    ("two contents", [*A, row("a", {"a": 2}, "y")], [(4, "A005", "a@2")]),
    ("unknown event", [*A, row("b", {"a": 7, "b": 1})], [(4, "A006", "b@1")]),
    ("unknown node", [*A, row("b", {"c": 7, "b": 1})], [(4, "A007", "b@1")]),
    ("two unknown nodes", [row("b", {"b": 1, "x": 2, "y": 2})],
     [(1, "A007", "b@1"), (1, "A007", "b@1")]),
    (
        "a node whose file is missing is one cause",
        [row("b", {"a": 1, "b": 1}), row("b", {"a": 4, "b": 2}), row("b", {"a": 4, "b": 3})],
        [(1, "A007", "b@1")],
    ),
    ("not transitive", [*A, *B, row("c", {"b": 1, "c": 1})], [(6, "A008", "c@1")]),
    ("each before the other", [row("a", {"a": 1, "b": 1}), row("b", {"a": 1, "b": 1})],
     [(1, "A008", "a@1")]),
    ("backwards", [*A, B[0], row("b", {"b": 2}), row("b", {"a": 2, "b": 3})],
     [(5, "A010", "b@2")]),
    (
        "a clock that was lost is one cause",
        [
            *A,
            *(row("b", {"a": 3, "b": n}) for n in range(1, 7)),
            *(row("b", {"b": n}) for n in range(7, 12)),
        ],
        [(10, "A010", "b@7")],
    ),
    (
        "what a node took over in part is one cause",
        [
            *A, *B, row("b", {"a": 3, "b": 3}),
            row("d", {"d": 1}),
            *(row("c", {"b": 3, "c": n}) for n in range(1, 5)),
        ],
        [(8, "A008", "c@1")],
    ),
    (
        "one entry too many, and back",
        [*A, *B, row("b", {"a": 3, "b": 3}), *(row("b", {"a": 1, "b": n}) for n in (4, 5, 6))],
        [(6, "A010", "b@3")],
    ),
    (
        "a reference that is handed on is one cause",
        [*A, row("b", {"a": 7, "b": 1}), row("c", {"a": 7, "b": 1, "c": 1}),
         row("b", {"a": 7, "b": 2})],
        [(4, "A006", "b@1")],
    ),
    (
        "two nodes counted on after their logs were cut off",
        [row("a", {"a": 2, "b": 9}), row("a", {"a": 1}), row("b", {"b": 1}),
         row("b", {"a": 9, "b": 2})],
        [(1, "A006", "a@2"), (4, "A006", "b@2")],
    ),
    ("empty clock", [A[0], row("a", {}), A[2]], [(2, "A001", "a@2")]),
    (
        "a restart",
        [*A, row("a", {"a": 1}, "again"), row("a", {"a": 2}, "again"), row("b", {"a": 2, "b": 1}),
         row("a", {"a": 3}, "again"), row("a", {"a": 4}, "again")],
        [(4, "A011", "a#2@1")],
    ),
    (
        "two restarts",
        [row("a", {"a": n}, f"run {run}") for run in (1, 2, 3) for n in (1, 2, 3)],
        [(4, "A011", "a#2@1"), (7, "A011", "a#3@1")],
    ),
    (
        "a run of one event",
        [*A, row("a", {"a": 1}, "again")],
        [(4, "A005", "a@1")],
    ),
]  # fmt: skip


def line_of(node: str, *counters: int) -> list[dict[str, Any]]:
    return [row(node, {node: n}, at=place) for place, n in enumerate(counters)]


LOOK_ALIKES: list[tuple[str, list[dict[str, Any]], list[tuple[int, str, str]]]] = [
    # Each row of the table of docs/audit.md: two faults that give one log.
    ("lost, or the last one miscounted", line_of("a", 1, 3, 4), [(2, "A004", "a@2")]),
    ("which of two, by the lines", line_of("a", 1, 3, 3, 4), [(2, "A003", "a@2")]),
    ("which of two, the later line", line_of("a", 3, 1, 3), [(3, "A003", "a@2")]),
    ("last one miscounted, or there twice", line_of("a", 1, 2, 2), [(3, "A005", "a@2")]),
    (
        "last one miscounted, it learned something",
        [*A, *B, row("b", {"a": 3, "b": 2})],
        [(6, "A003", "b@2")],
    ),
    ("used twice, and a lost one", line_of("a", 1, 2, 2, 4), [(3, "A003", "a@3")]),
    ("two lost", line_of("a", 1, 3, 6), [(2, "A004", "a@2"), (3, "A004", "a@4")]),
    ("one miscounted", line_of("a", 1, 6, 3), [(2, "A003", "a@2")]),
    (
        "too low, or too much before",
        [*A, *B, *(row("b", {"a": a, "b": n}) for n, a in ((3, 2), (4, 1), (5, 2)))],
        [(7, "A010", "b@4")],
    ),
    (
        "each before the other",
        [row("b", {"a": 1, "b": 1}), row("a", {"a": 1, "b": 1})],
        [(1, "A008", "b@1")],
    ),
    (
        "one lost event that two refer to, nobody knows of them",
        [*A, row("b", {"a": 5, "b": 1}), row("c", {"a": 5, "c": 1}), row("d", {"a": 6, "d": 1})],
        [(4, "A006", "b@1"), (6, "A006", "d@1")],
    ),
    (
        "one lost event that is handed on, and an earlier one",
        [*A, row("d", {"a": 4, "d": 1}), row("b", {"a": 5, "b": 1}), row("b", {"a": 5, "b": 2})],
        [(4, "A006", "d@1")],
    ),
    (
        "one lost event that is handed on to another node, and an earlier one",
        [*A, row("d", {"a": 4, "d": 1}), row("b", {"a": 5, "b": 1}),
         row("c", {"a": 5, "b": 1, "c": 1})],
        [(4, "A006", "d@1")],
    ),
    (
        "two lost events, the later one referred to from a smaller past",
        [*A, row("d", {"d": 1}), row("d", {"a": 4, "d": 2}), row("b", {"a": 5, "b": 1}),
         row("b", {"a": 5, "b": 2})],
        [(6, "A006", "b@1")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rows", "expected"), LOOK_ALIKES, ids=[case[0] for case in LOOK_ALIKES]
)
def test_ambiguous_fault_is_named_by_the_rules_of_the_page(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], expected: list[tuple[int, str, str]]
) -> None:
    assert faults(tmp_path / "log.jsonl", rows) == expected
    # The fault is ambiguous, so repair changes nothing, except for one fault against two.
    done = repair(tmp_path / "log.jsonl", rows)
    assert bool(done.changed) is (name == "one miscounted")


def two_nodes(own: dict[int, int]) -> list[dict[str, Any]]:
    """Return 20 events of a, of which b knows each third, with some own entries replaced."""
    rows = []
    for n in range(1, 21):
        rows.append(row("a", {"a": own.get(n, n)}, at=n))
        if n % 3 == 0:
            rows.append(row("b", {"a": n, "b": n // 3}))
    return rows


@pytest.mark.parametrize(
    "own",
    [
        {5: 100, 6: 107},
        {9: 3, 10: 4},
        {5: 100, 6: 2, 7: 108, 12: 1},
        {n: 30 + n * n for n in (2, 3, 4, 8, 9, 10, 11, 12, 15, 16, 18, 19)},
    ],
    ids=["too large", "too low", "both", "more than half"],
)
def test_adjacent_wrong_own_entries_are_each_named(tmp_path: Path, own: dict[int, int]) -> None:
    """Each is a fault with its line, instead of the larger number of holes that they leave."""
    rows = two_nodes(own)
    named = faults(tmp_path / "log.jsonl", rows)
    lines = [at for at, one in enumerate(rows, 1) if one.get("at") in own]
    assert named == [(at, "A003", f"a@{n}") for at, n in zip(lines, sorted(own), strict=True)]
    # No other explanation has so few faults, so they are corrected.
    done = repair(tmp_path / "log.jsonl", rows)
    assert (len(done.changed), done.left) == (len(own), ())
    assert [item.clock for item in done.items] == [one["clock"] for one in two_nodes({})]  # type: ignore[union-attr]


def test_many_wrong_own_entries_of_one_node_are_each_named(tmp_path: Path) -> None:
    wrong = {30 + 30 * k: 450 + 7 * k for k in range(12)}
    rows = line_of("a", *(wrong.get(n, n) for n in range(1, 401)))
    found = faults(tmp_path / "log.jsonl", rows)
    assert found == [(n, "A003", f"a@{n}") for n in wrong]


def test_many_events_with_the_same_dot_take_linear_work() -> None:
    """Half of the own entries are equal; the work is linear in the number of events."""

    def work(count: int) -> int:
        events = [
            ketal.Event("a", "x", {"a": 2 if n % 2 else n}, data={"at": n})
            for n in range(2, count + 1)
        ]
        random.Random(3).shuffle(events)
        events.append(ketal.Event("a", "x", {"a": 1}))
        report, calls = counted_calls(lambda: ketal.audit(events))
        assert len(report.faults) >= count // 2 - 1
        return calls

    work(100)  # what is computed only once
    assert work(400) < 5 * work(100)


def test_events_that_know_a_late_event_are_found_by_bisection() -> None:
    """The bound is on CPU time: stepping over the events before it by `islice` makes no calls."""
    log = [ketal.Event("a", "x", {"a": n}) for n in range(1, 20_001)]
    log += [ketal.Event("b", "x", {"a": n, "b": n}) for n in range(1, 20_001)]
    (part,) = examine_log(log, None)
    begun = time.process_time()
    for n in range(15_000, 20_001):
        assert [event.counter for event in part.execution.knowers("a", n)] == [n]
    assert time.process_time() - begun < 0.3


def test_restarts_take_linear_work() -> None:
    """The work is not restarts times events."""

    def work(restarts: int) -> int:
        rows = [(run, n) for run in range(restarts) for n in (1, 2)]
        log = [ketal.Event("a", "x", {"a": n}, data={"run": run}) for run, n in rows]
        names, calls = counted_calls(lambda: names_read(log))
        assert names[-1] == (f"a#{restarts}", {f"a#{restarts}": 2})
        return calls

    work(100)  # what is computed only once
    assert work(400) < 5 * work(100)


def test_work_on_wide_clocks_beside_a_restart_is_linear_in_their_entries() -> None:
    restarted = [ketal.Event("a", "x", {"a": n}, data={"run": r}) for r in range(2) for n in (1, 2)]

    def work(nodes: int) -> int:
        names = [f"n{number}" for number in range(nodes)]
        wide = [ketal.Event(name, "x", {name: 1}) for name in names]
        wide += [ketal.Event(name, "x", dict.fromkeys(names, 1) | {name: 2}) for name in names]
        wide += [ketal.Event(name, "x", dict.fromkeys(names, 2) | {name: 3}) for name in names]
        read, calls = counted_calls(lambda: names_read([*restarted, *wide]))
        assert len(read) == 4 + len(wide)
        return calls

    work(10)  # what is computed only once
    # Four times as many clocks have four times as many entries each.
    assert work(40) < 20 * work(10)


def test_views_take_linear_work() -> None:
    """The work is not views times events."""

    def work(count: int) -> int:
        a = [Event("a", "x", {"a": n}) for n in range(1, count + 1)]
        rows = [row for event in a for row in (event, Control("view", members=("a",)))]
        log = Log(lambda: iter([("", row, "", 0) for row in rows]))
        report, lines = counted_lines(lambda: ketal.audit(log))
        assert report.clean
        return lines

    work(100)  # what is computed only once
    assert work(400) < 4.5 * work(100)


def test_holes_beside_rejected_records_take_linear_work(tmp_path: Path) -> None:
    """The work is not holes times rejected records."""

    def work(count: int) -> int:
        path = tmp_path / "log.jsonl"
        path.write_text(
            "".join(f"{json.dumps(row('a', {'a': 2 * n}))}\n-\n" for n in range(1, count))
        )
        report, lines = counted_lines(lambda: ketal.audit(read_log(path)))
        hints = [fault.hint for fault in report.faults]
        assert hints[0] == HINTS["A004"]
        assert all(f":{2 * n} was rejected" in hint for n, hint in enumerate(hints[1:], 1))
        return lines

    work(100)  # what is computed only once
    assert work(400) < 4.5 * work(100)


def test_contradictions_along_a_node_take_linear_work() -> None:
    """The work is not wrong entries times events: all entries of the one node are unknown."""

    def work(count: int) -> int:
        clocks = [{"a": n, "b": n} for n in range(1, count + 1)]
        log = [Event(node, "x", clock) for clock in clocks for node in "ab"]
        report, lines = counted_lines(lambda: ketal.audit(log))
        assert [fault.code for fault in report.faults] == ["A008"] * count
        return lines

    work(100)  # what is computed only once
    assert work(400) < 4.5 * work(100)


def test_hint_at_a_rejected_record_is_right_if_open_files_have_one_name() -> None:
    """Their lines are not in order, one file after the other."""
    first = [json.dumps(row("a", {"a": n})) for n in range(1, 5)]
    second = [json.dumps(row("b", {"b": n})) for n in (1, 3)]
    files = [[*first, "-"], [second[0], "-", second[1]]]
    log = read_log(*(io.BytesIO("\n".join(lines).encode()) for lines in files))
    (fault,) = ketal.audit(log).faults
    assert fault.hint.startswith("<file>:2 was rejected and may be the missing event")


@pytest.mark.parametrize(
    ("node", "clock", "code"),
    [("c", {"a": 2}, "A001"), ("b", {"a": 2}, "A001"), ("b", {"a": 2, "b": 1}, "A003")],
)
def test_hint_at_a_hole_names_an_event_logged_under_a_wrong_node(
    node: str, clock: dict[str, int], code: str
) -> None:
    log = [
        row("a", {"a": 1}), row("b", {"b": 1}), row(node, clock), row("a", {"a": 3, "b": 1}),
        row("b", {"a": 3, "b": 2}), row("a", {"a": 5, "b": 1}),
    ]  # fmt: skip
    stray, hole, other = ketal.audit(read_log(log)).faults
    assert (stray.code, hole.code, other.code) == (code, "A004", "A004")
    assert hole.hint == (
        f"row 3 may be the missing event, with a wrong node: it is of {node}, "
        "and its entry for a is 2"
    )
    assert other.hint == HINTS["A004"]


def test_event_moved_to_a_dot_that_it_receives_is_audited() -> None:
    """Its own entry is too large: corrected it is a@1, which cannot have received itself."""
    log = [ketal.Event("a", "x", {"a": n}) for n in (4, 2, 8, 3, 6, 5)]
    log.insert(1, ketal.Event("a", "x", {"a": 10}, receives=["a@1"]))
    assert {fault.code for fault in ketal.audit(log).faults} == {"A003", "A004"}


def test_own_entries_that_are_too_low_are_not_taken_for_a_restart(tmp_path: Path) -> None:
    """1 and 2 occur several times, and as many other counters are missing."""
    rng = random.Random(7)
    wrong = {n: 1 + n % 2 for n in rng.sample(range(3, 40), 12)}
    found = faults(tmp_path / "log.jsonl", line_of("a", *(wrong.get(n, n) for n in range(1, 41))))
    assert found == [(n, "A003", f"a@{n}") for n in sorted(wrong)]


def test_two_faults_that_look_like_two_others_are_named_by_the_rules(tmp_path: Path) -> None:
    """A repeated own entry and a lost event, or two own entries that are too low."""
    counters = [*range(1, 9), 8, 9, *range(11, 21)]
    found = faults(tmp_path / "log.jsonl", line_of("a", *counters))
    assert found == [(9, "A005", "a@8"), (11, "A004", "a@10")]


def test_missing_own_entry_in_a_shuffled_file_is_taken_for_the_first_hole(tmp_path: Path) -> None:
    """One event is lost, one has no own entry, and no entry was learned between them."""
    rows = line_of("a", *(n for n in range(1, 25) if n not in (7, 18)))
    rows += [row("b", {"a": 24, "b": n}) for n in range(1, 20)]
    random.Random(2).shuffle(rows)
    bare = {**row("a", {}, at=99), "clock": {"b": 0}}
    rows.insert(11, bare)
    found = faults(tmp_path / "log.jsonl", rows)
    assert [(line, code) for line, code, _ in found if code == "A001"] == [(12, "A001")]
    # The event is taken for the first of the two missing ones; the other is the hole.
    behind = next(n for n, one in enumerate(rows, 1) if one["clock"].get("a") == 19)
    assert [(line, code, dot) for line, code, dot in found if code != "A001"] == [
        (behind, "A004", "a@18")
    ]
    assert not repair(tmp_path / "log.jsonl", rows).changed


@pytest.mark.parametrize(("rows", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_fault_is_named_with_its_line_code_and_dot(
    tmp_path: Path, rows: list[dict[str, Any]], expected: list[tuple[int, str, str]]
) -> None:
    assert faults(tmp_path / "log.jsonl", rows) == expected


def test_each_unknown_reference_of_an_event_is_named(tmp_path: Path) -> None:
    """Two log files are missing, and the log of a third node is cut off."""
    rows = [row("b", {"b": 1, "y": 2, "x": 2, "a": 4}), A[0]]
    audit = ketal.audit(read_log(write(tmp_path / "log.jsonl", rows)))
    assert [(fault.code, fault.message) for fault in audit.faults] == [
        ("A006", "b@1 refers to a@4, but the last event of a in the log is a@1"),
        ("A007", "b@1 refers to x@2, but no event of x is in the log"),
        ("A007", "b@1 refers to y@2, but no event of y is in the log"),
    ]
    assert len(repair(tmp_path / "log.jsonl", rows).left) == 3


def test_reference_that_the_clock_contradicts_is_wrong_unless_it_was_passed_on(
    tmp_path: Path,
) -> None:
    """b knows a@7, which is after a@1, but not c@1, which a@1 knows."""
    rows = [row("c", {"c": 1}), row("a", {"a": 1, "c": 1}), row("b", {"a": 7, "b": 1})]
    later = row("b", {"a": 7, "b": 2})
    for log, clock in ((rows, {"b": 1}), ([*rows, later], {"a": 7, "b": 1})):
        (part,) = examine_log(read_log(write(tmp_path / "log.jsonl", log)), None)
        assert [finding.code for finding in part.execution.findings] == ["A006"]
        assert part.execution.events[2].as_event().clock == clock


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row(node, {"z": 3, node: 1}) for node in "abc"],
            "a@1 refers to z@3, but no event of z is in the log; "
            "3 events in total refer to missing events of z",
        ),
        (
            # a@3 cannot show that it knows b@1.
            [
                row("b", {"a": 3, "b": 1}),
                *(row("a", {"a": n, "b": b}) for n, b in enumerate((1, 1, 99), 1)),
            ],
            "b@1 knows a@3, and a@1 knows b@1: a cycle in happened-before",
        ),
        (
            [A[0], row("a", {"a": 0}), A[2]],
            "a's own entry is zero; the event fits as a@2",
        ),
        ([A[0], row("a", {"b": 1}), *B], "a's own entry is missing; the event fits as a@2"),
    ],
)
def test_message_of_a_fault_names_the_events(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    assert ketal.audit(read_log(write(tmp_path / "log.jsonl", rows))).faults[0].message == message


def test_every_code_has_a_case_and_a_page() -> None:
    seen = {code for _, _, expected in CASES for _, code, _ in expected}
    assert seen | {"A009"} == set(HINTS)
    page = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text()
    assert [code for code in HINTS if f"## {code}" not in page] == []


def test_receive_without_its_send_in_the_clock_is_named(tmp_path: Path) -> None:
    rows = [*A, row("b", {"b": 1}, "recv", msg=1), row("b", {"b": 2})]
    assert faults(tmp_path / "log.jsonl", rows) == []
    found = faults(tmp_path / "log.jsonl", rows, match_messages=MATCH)
    assert found == [(4, "A009", "b@1")]


def test_ambiguous_messages_are_counted_not_guessed(tmp_path: Path) -> None:
    rows = [*A, row("a", {"a": 4}, "send", msg=1), row("b", {"b": 1}, "recv", msg=1)]
    rows += [row("b", {"b": 2}, "recv", msg=2)]
    audit = ketal.audit(read_log(write(tmp_path / "log.jsonl", rows)), match_messages=MATCH)
    assert audit.clean
    assert audit.statistics.messages == {
        "pairs": 0, "unreceived": 0, "unsent": 1, "ambiguous": 1,
    }  # fmt: skip


def test_entries_of_a_node_that_left_are_not_backwards(tmp_path: Path) -> None:
    rows = [A[0], row("b", {"a": 1, "b": 1}), {"type": "ketal.leave", "node": "a"}]
    rows += [row("b", {"b": 2}), row("c", {"b": 2, "c": 1}), row("c", {"b": 2, "c": 2})]
    audit = ketal.audit(read_log(write(tmp_path / "log.jsonl", rows)))
    assert audit.clean
    # The whole past of b@2 is in the past of c, also entries that its clock leaves out.
    assert audit.statistics.concurrent_pairs == 0
    view = [*rows[:2], {"type": "ketal.view", "members": ["b", "c"]}, *rows[3:]]
    assert faults(tmp_path / "log.jsonl", view) == []
    without = [line for line in rows if line["type"] != "ketal.leave"]
    join = [*rows[:2], {"type": "ketal.join", "node": "a"}, *rows[3:]]
    for remaining in (without, join):
        assert [code for _, code, _ in faults(tmp_path / "log.jsonl", remaining)] == ["A010"]


def test_wrong_own_entry_of_a_node_that_left_is_named(tmp_path: Path) -> None:
    rows = [{"type": "ketal.leave", "node": "a"}, row("a", {"a": 6}), row("c", {"a": 1, "c": 1})]
    rows += [row("a", {"a": 2, "c": 1})]
    assert [code for _, code, _ in faults(tmp_path / "log.jsonl", rows)] == ["A003"]


def test_outdated_entry_brought_back_by_a_message_is_no_fault(tmp_path: Path) -> None:
    """c has dropped a's entry, and receives a message from d with a lower entry of a."""
    rows = [
        *A,
        row("c", {"a": 3, "c": 1}), row("d", {"a": 1, "d": 1}),
        row("c", {"c": 2}), row("c", {"a": 1, "d": 1, "c": 3}), row("c", {"a": 1, "d": 1, "c": 4}),
        row("d", {"a": 1, "c": 4, "d": 2}),
        {"type": "ketal.leave", "node": "a"},
    ]  # fmt: skip
    audit = ketal.audit(read_log(write(tmp_path / "log.jsonl", rows)))
    assert audit.clean, str(audit)
    # Known entries stay known: all events of a are before the last event of d.
    assert audit.statistics.longest_chain == 3 + 5
    # An entry beyond a's last event is a fault, even though a has left.
    beyond = [*A, row("c", {"a": 4, "c": 1}), row("c", {"a": 1, "c": 2}), rows[-1]]
    assert faults(tmp_path / "log.jsonl", beyond) == [(4, "A006", "c@1")]


def test_outdated_entry_of_a_restarted_node_is_no_fault(tmp_path: Path) -> None:
    """c has dropped a's entry, and receives one of a's first run that no later run has reached."""
    rows = [
        *(row("a", {"a": n}, run=1) for n in range(1, 6)),
        row("c", {"a": 5, "c": 1}), row("d", {"a": 3, "d": 1}),
        *(row("a", {"a": n}, run=2) for n in range(1, 3)),
        row("c", {"c": 2}), row("c", {"a": 3, "d": 1, "c": 3}),
    ]  # fmt: skip
    assert faults(tmp_path / "log.jsonl", rows) == [(8, "A011", "a#2@1")]


@examples(40, 1_500)
@given(runs(restarts=False, events_max=40))
def test_entries_dropped_by_nodes_are_no_faults(drawn: tuple[Run, random.Random]) -> None:
    """Random executions with nodes that leave, clocks that shrink, and messages in flight."""
    run, rng = drawn
    items: list[Any] = [*run.stamped, *(Control("leave", node=name) for name in run.left)]
    audit = ketal.audit(Log.of(rng.sample(items, len(items))))
    assert audit.clean, str(audit)
    # The statistics are those of the whole clocks.
    whole, found = ketal.audit(run.true).statistics, audit.statistics
    assert (found.concurrent_pairs, found.longest_chain) == (
        whole.concurrent_pairs,
        whole.longest_chain,
    )


@examples(40, 1_500)
@given(runs(restarts=True, events_max=40))
def test_executions_with_restarts_have_no_faults_but_restarts(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    nodes = [event.node for event in run.true]
    again = {base(node) for node in nodes if "#" in node}
    left = [Control("leave", node=name) for name in run.left if base(name) not in again]
    expected = sorted({node for node in nodes if "#" in node})
    # A run of one event is a dot that is used twice.
    short = any(nodes.count(node) == 1 for node in nodes if base(node) in again)
    audit = ketal.audit(Log.of([*run.stamped, *left]))
    assert short or sorted(f.dot for f in audit.faults) == [f"{node}@1" for node in expected]
    shuffled = [run.stamped[item] for item in arrival(rng, run) if isinstance(item, int)]
    audit = ketal.audit(Log.of([*shuffled, *left]))
    assert short or [fault.code for fault in audit.faults] == ["A011"] * len(expected)


def names_read(log: list[Event]) -> list[tuple[str, dict[str, int]]]:
    """Return the events of a log under the names of incarnations that an audit gives."""
    part = ExaminedExecution("", None)
    for position, event in enumerate(log):
        part.add(position, event)
    return [(event.node, event.clock) for event in read_restarts(part.events, [], set()).events]


@examples(40, 1_500)
@given(runs(restarts=True, events_max=40))
def test_audit_names_incarnations_as_a_run_does(drawn: tuple[Run, random.Random]) -> None:
    """Up to the first clock with a dropped entry, in executions without rejected events."""
    run, _ = drawn
    whole = [
        {base(name) for name in true.clock} <= stamped.clock.keys()
        for stamped, true in zip(run.stamped, run.true, strict=True)
    ]
    log, true = (events[: [*whole, False].index(False)] for events in (run.stamped, run.true))
    (part,) = executions_of(log, DEFAULT).values()
    nodes = [event.node for event in true]
    again = {base(node) for node in nodes if "#" in node}
    # A run of one event is a dot that is used twice.
    short = any(nodes.count(node) == 1 for node in nodes if base(node) in again)
    if short or part.rejected:
        return
    for (node, clock), as_run in zip(names_read(log), part.events(), strict=True):
        assert node == as_run.node
        assert clock.items() <= as_run.clock.items()
        # A restored clock also has entries of the earlier incarnations of a node.
        assert {base(name): name for name in sorted(as_run.clock, key=number)} == {
            base(name): name for name in clock
        }


def test_entry_lower_than_a_known_one_is_of_a_later_incarnation() -> None:
    """b dropped a's entry in between; c has an entry a@2 and knows b@1, which knew a@3."""
    first = [ketal.Event("a", "x", {"a": n}) for n in (1, 2, 3)]
    again = [ketal.Event("a", "y", {"a": n}) for n in (1, 2, 3)]
    clocks = ({"a": 3, "b": 1}, {"b": 2}, {"a": 2, "b": 3}, {"a": 2, "b": 4})
    b = [ketal.Event("b", "x", clock) for clock in clocks]
    c = [ketal.Event("c", "x", {"b": 1, "c": 1}), ketal.Event("c", "x", {"a": 2, "b": 1, "c": 2})]
    found = [clock for _, clock in names_read([*first, *b[:2], *again, *b[2:], *c])]
    assert found[3:5] == list(clocks[:2])
    assert found[8:10] == [{"a#2": 2, "b": 3}, {"a#2": 2, "b": 4}]
    assert found[-1] == {"a#2": 2, "b": 1, "c": 2}
    (part,) = executions_of([*first, *b[:2], *again, *c], DEFAULT).values()
    assert part.events()[-1].clock["a#2"] == 2


def test_entry_of_a_missing_event_is_compared_with_the_event_before_it() -> None:
    """c lacks b@1, which a@2 lacks too, but a@4 has; so the missing a@3 can be of the first run."""
    first = [ketal.Event("a", "x", clock) for clock in ({"a": 1}, {"a": 2}, {"a": 4, "b": 1})]
    again = [ketal.Event("a", "y", {"a": n}) for n in (1, 2, 3)]
    b, c = ketal.Event("b", "x", {"b": 1}), ketal.Event("c", "x", {"a": 3, "c": 1})
    found = names_read([*first, b, *again, c])
    assert [node for node, _ in found[4:7]] == ["a#2"] * 3
    assert found[-1] == ("c", {"a": 3, "c": 1})


def test_unchanged_entry_keeps_its_incarnation() -> None:
    """c drops b's entry; that c@2 lacks b@1, which a@2 has, does not affect a's entry."""
    first = [ketal.Event("a", "x", {"a": 1}), ketal.Event("a", "x", {"a": 2, "b": 1})]
    again = [ketal.Event("a", "y", {"a": n}) for n in (1, 2, 3)]
    b = ketal.Event("b", "x", {"b": 1})
    c = [ketal.Event("c", "x", {"a": 2, "b": 1, "c": 1}), ketal.Event("c", "x", {"a": 2, "c": 2})]
    found = names_read([b, *first, *c, *again])
    assert found[4] == ("c", {"a": 2, "c": 2})


def test_incarnations_named_by_the_log_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    again = [row("a", {"a": n}, "again") for n in (1, 2, 3)]
    other = [row("b", {"a": 3, "b": 1}), row("b", {"a": 3, "b": 2})]
    assert faults(path, [*A, *other[:1], *again, *other[1:]]) == [(5, "A011", "a#2@1")]
    # By a name, by a number, or by control events.
    names = [row("a#2", {"a#2": n}, "again") for n in (1, 2, 3)]
    assert faults(path, [*A, *names]) == []
    numbered = [{**one, "incarnation": 2} for one in again]
    assert faults(path, [*A, *numbered, row("b", {"a": 3, "b": 1})]) == []
    for control in (
        {"type": "ketal.leave", "node": "a"},
        {"type": "ketal.join", "node": "a"},
        {"type": "ketal.view", "members": ["b"]},
    ):
        assert faults(path, [*A, *other[:1], control, *again, *other[1:]]) == []
    # A view with the node does not end its run.
    view = {"type": "ketal.view", "members": ["a", "b"]}
    assert faults(path, [*A, view, *again]) == [(5, "A011", "a#2@1")]


def test_restart_in_concatenated_files_is_named_once(tmp_path: Path) -> None:
    """The lines of other nodes may come before those of the restarted node."""
    b = [row("b", {"a": 3, "b": 1}), row("b", {"a": 2, "b": 2}), row("b", {"a": 3, "b": 3})]
    again = [row("a", {"a": n}, "again") for n in (1, 2, 3)]
    files = [write(tmp_path / "b.jsonl", b), write(tmp_path / "a.jsonl", [*A, *again])]
    audit = ketal.audit(read_log(*files))
    assert [(f.file, f.line, f.code) for f in audit.faults] == [(str(files[1]), 4, "A011")]
    assert audit.statistics.inversions == 5


def test_first_entry_of_a_restarted_node_is_of_an_incarnation_that_fits(
    tmp_path: Path,
) -> None:
    """c@1 lacks b@2, which a@2 of the first incarnation has: it knows the second incarnation."""
    rows = [
        row("a", {"a": 1}), row("b", {"b": 1}), row("b", {"b": 2}), row("a", {"a": 2, "b": 2}),
        row("a", {"a": 1}, "again"), row("a", {"a": 2}, "again"), row("c", {"a": 2, "c": 1}),
    ]  # fmt: skip
    assert faults(tmp_path / "log.jsonl", rows) == [(5, "A011", "a#2@1")]
    assert faults(tmp_path / "log.jsonl", rows[-1:] + rows[:-1]) == [(6, "A011", "a#2@1")]


def test_entry_of_a_restarted_node_is_not_below_that_of_an_event_that_the_clock_names() -> None:
    """b@1 knows d@3, which knows a@2 of the second run; so the entry a: 1 is of the third run."""
    first, second, third = (
        [ketal.Event("a", f"run {run}", {"a": n}) for n in (1, 2)] for run in range(3)
    )
    d = [ketal.Event("d", "x", {"a": known, "d": n}) for n, known in enumerate((2, 1, 2), 1)]
    b = ketal.Event("b", "x", {"a": 1, "b": 1, "d": 3})
    log = [*first, d[0], *second, *d[1:], *third, b]
    assert names_read(log)[-1] == ("b", {"a#3": 1, "b": 1, "d": 3})


def test_restored_entries_have_the_order_of_the_known_clock() -> None:
    names = [f"n{number}" for number in range(9)]
    events = [ketal.Event(node=name, type="x", clock={name: 1}) for name in names]
    everything = dict.fromkeys([*names, "a"], 1)
    log = [*events, ketal.Event(node="a", type="x", clock=everything)]
    log.append(ketal.Event(node="a", type="x", clock={"a": 2}))
    (part,) = examine_log(Log.of([*log, *(Control("leave", node=name) for name in names)]), None)
    assert list(part.execution.events[-1].clock) == ["a", *names]


def test_faults_beside_a_restart_are_named(tmp_path: Path) -> None:
    again = [row("a", {"a": n}, "again") for n in (1, 2, 4, 5)]
    lost = [row("c", {"c": 1}), row("c", {"c": 3})]
    assert faults(tmp_path / "log.jsonl", [*A, *again, *lost]) == [
        (4, "A011", "a#2@1"),
        (6, "A004", "a#2@3"),
        (9, "A004", "c@2"),
    ]


def test_restart_in_a_shuffled_file_is_the_only_fault(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [row("a", {"a": n}, f"run {run}", n=n) for run in (1, 2) for n in range(1, 30)]
    # Nor is a reference beyond its last event judged.
    rows += [row("b", {"a": 9 if n < 8 else 40, "b": n}) for n in range(1, 9)]
    rng.shuffle(rows)
    last = max(n for n, one in enumerate(rows, 1) if one["clock"] == {"a": 1})
    path = write(tmp_path / "log.jsonl", rows)
    (part,) = examine_log(read_log(path), None)
    assert [(f.code, f.event.line) for f in part.execution.findings] == [("A011", last)]
    done = repair_execution(part)
    assert [change.code for change in done.left] == ["A011"]
    assert not done.changed
    # Events that were not judged are unchanged in the log.
    assert [item.clock for item in done.items] == [one["clock"] for one in rows]  # type: ignore[union-attr]
    assert ketal.audit(read_log(path)).statistics.events == len(rows)


@examples(100, 5_000)
@given(executions(events_max=20))
def test_random_executions_are_clean_in_any_order(events: list[ketal.Event]) -> None:
    audit = ketal.audit(events)
    assert audit.clean, str(audit)
    pairs = [(x, y) for i, x in enumerate(events) for y in events[i + 1 :]]
    before = [happened_before(y, x) for x, y in pairs]
    assert audit.statistics.inverted_pairs == sum(before)
    unordered = sum(concurrent(x, y) for x, y in pairs)
    assert audit.statistics.concurrent_pairs == unordered


def test_statistics_of_a_chain(tmp_path: Path) -> None:
    numbers = ketal.audit(read_log(write(tmp_path / "log.jsonl", RUN[::-1]))).statistics
    assert (numbers.nodes, numbers.events, numbers.longest_chain) == (2, 5, 3)
    assert (numbers.concurrent_pairs, numbers.ordered_pairs) == (4, 6)
    assert numbers.concurrency_ratio == 0.4
    assert (numbers.inversions, numbers.held_back_max) == (2, 4)


def test_error_beyond_events_max_names_the_limit() -> None:
    events = [ketal.Event(node="a", type="x", clock={"a": n}) for n in (1, 2, 3)]
    with pytest.raises(ketal.SettingError, match="events_max"):
        ketal.audit(events, limits=ketal.Limits(events_max=2))


@pytest.mark.parametrize(
    "text",
    ["id=x", "id=x,send=type:a", "id=x,send=type,receive=type:b", "nonsense", "idd=x",
     "id=x,id=y,send=type:a,receive=type:b", "id=,send=type:a,receive=type:b"],
)  # fmt: skip
def test_invalid_message_keys_are_refused(text: str) -> None:
    with pytest.raises(ketal.SettingError):
        ketal.audit([], match_messages=text)


def test_message_keys_read_fields_and_values() -> None:
    match = Messages.of(r"id=msg.id+node,send=data.kind:s*|out\,1,receive=kind:in")
    event = ketal.Event(node="a", type="x", clock={"a": 1}, data={"msg": {"id": 7}, "kind": "sent"})
    assert match.name(event) == ("7", "a")
    assert match.send(event)
    assert not match.receive(event)


def test_message_keys_accept_many_values_of_any_text(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed, and a value may contain a byte that is not UTF-8."""
    values = "|".join(f"v{number}*" for number in range(4_000))
    match = Messages.of(f"id=id,send=type:{values},receive=type:\udcff*")
    event = ketal.Event(node="a", type="v3999x", clock={"a": 1})
    assert match.send(event)
    assert not match.receive(event)
    assert capfd.readouterr() == ("", "")


def test_long_message_keys_are_parsed_in_linear_time() -> None:
    """Adding characters one by one to values or paths would take a minute, to copy them."""
    long = "s" * 1_000_000
    started = time.process_time()
    match = Messages.of({"id": long, "send": f"type:{long[:50]}", "receive": f"{long}:x"})
    assert match.id == ((long,),) == (match.receive.path,)
    assert time.process_time() - started < 10


# --- repair -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "line", "clock"),
    [
        ([A[0], row("a", {"b": 0}), A[2]], 2, {"a": 2}),
        ([A[0], row("a", {"a": 9}), A[2]], 2, {"a": 2}),
        ([row("a", {"a": n - (n == 2)}, f"{n}") for n in range(1, 20)], 2, {"a": 2}),
        ([*A, *B, row("b", {"b": 3, "ghost": 4}), row("b", {"a": 1, "b": 4})],
         6, {"a": 1, "b": 3}),
        ([*A, *B, row("b", {"b": 3}), row("b", {"a": 1, "b": 4})], 6, {"a": 1, "b": 3}),
        ([*A, *B, row("b", {"a": 1, "b": 3, "ghost": 4}), row("b", {"a": 1, "b": 4})],
         6, {"a": 1, "b": 3}),
    ],
)  # fmt: skip
def test_unambiguous_fault_is_repaired(
    tmp_path: Path, rows: list[dict[str, Any]], line: int, clock: dict[str, int]
) -> None:
    done = repair(tmp_path / "log.jsonl", rows)
    assert [(change.line, done.left) for change in done.changed] == [(line, ())]
    item = done.items[line - 1]
    assert isinstance(item, ketal.Event)
    assert item.clock == clock
    assert ketal.audit([e for e in done.items if isinstance(e, ketal.Event)]).clean


@pytest.mark.parametrize(
    "rows",
    [
        [A[0], A[2]],
        [*A, row("a", {"a": 2}, "y")],
        # Three lines say little about the order of the file.
        [A[0], row("a", {"a": 1}, "y"), A[2]],
        [*A, row("b", {"a": 7, "b": 1})],
        # What b@2 knew of a lies between what it knew before and after.
        [*A, B[0], row("b", {"b": 2}), row("b", {"a": 3, "b": 3})],
    ],
)
def test_ambiguous_fault_is_left_and_reported(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    done = repair(tmp_path / "log.jsonl", rows)
    assert not done.changed
    assert len(done.left) == 1
    assert list(done.items) == list(read_log(tmp_path / "log.jsonl"))


def test_clocks_are_rebuilt_from_messages(tmp_path: Path) -> None:
    rows = [*A, row("b", {"b": 1}, "recv", msg=1), row("b", {"b": 2}), row("b", {"b": 3})]
    done = repair(tmp_path / "log.jsonl", rows, MATCH)
    assert [change.line for change in done.changed] == [4, 5, 6]
    clocks = [item.clock for item in done.items if isinstance(item, ketal.Event)][3:]
    assert clocks == [{"a": 1, "b": n} for n in (1, 2, 3)]


def test_clocks_of_nodes_that_never_merged_are_rebuilt_from_messages(tmp_path: Path) -> None:
    """Every event of a random run lacks the clocks received; the messages restore them."""
    rng = random.Random(5)
    truth: list[dict[str, Any]] = []
    clocks: dict[str, dict[str, int]] = {"a": {}, "b": {}, "c": {}}
    sent: list[tuple[int, dict[str, int]]] = []
    for moment in range(120):
        node = rng.choice("abc")
        clock = clocks[node]
        if sent and rng.random() < 0.4:
            number, past = sent.pop(rng.randrange(len(sent)))
            for name, value in past.items():
                clock[name] = max(value, clock.get(name, 0))
            clock[node] = clock.get(node, 0) + 1
            truth.append(row(node, dict(clock), "recv", msg=number))
        else:
            clock[node] = clock.get(node, 0) + 1
            truth.append(row(node, dict(clock), "send", msg=moment))
            sent.append((moment, dict(clock)))
    spoilt = [{**one, "clock": {one["node"]: one["clock"][one["node"]]}} for one in truth]
    done = repair(tmp_path / "log.jsonl", spoilt, MATCH)
    assert [i.clock for i in done.items if isinstance(i, ketal.Event)] == [
        one["clock"] for one in truth
    ]
    assert not done.left
