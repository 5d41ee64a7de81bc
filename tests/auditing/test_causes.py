"""One fault anywhere in a small log: the auditor against its slow definition.

`tests.auditing.explaining` finds the faults that explain a log by trying all of them.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import reject

import ketal
from ketal.auditing.repair import repair_execution
from ketal.auditing.report import ExaminedExecution, examine_log
from ketal.logs import Log
from tests.auditing.explaining import (
    Cause,
    Row,
    causes,
    log_of,
    reported_lines,
    valid,
    with_random_fault,
)
from tests.property.executions import execution
from tests.sampling import drawn

CODES = {
    "own": {"A001", "A003", "A005"},
    "extra": {"A003", "A005"},
    "lost": {"A004", "A006", "A007"},
    "low": {"A008", "A010"},
    "high": {"A006", "A007", "A008", "A010"},
}
"""Kind of fault → codes; an event with the dot and clock of another event is
a repeated one, whichever of the two was meant to have another dot."""


def spoilt_log(rng: random.Random) -> list[Row]:
    events = execution(rng, nodes_max=4, events_max=rng.choice((5, 9)))
    if len(events) < 2:
        reject()
    rows: list[Row] = [(event.node, dict(event.clock)) for event in events]
    return with_random_fault(rng, rows)


def examine_rows(rows: list[Row]) -> ExaminedExecution:
    lines = ((node, clock, {"number": number}) for number, (node, clock) in enumerate(rows, 1))
    (part,) = examine_log(log_of(lines), None)
    return part


def test_fault_is_named_with_a_line_that_explains_it() -> None:
    tried = dict.fromkeys(CODES, 0)

    @drawn(300, 10_000)
    def holds(rng: random.Random) -> None:
        rows = spoilt_log(rng)
        found = [] if valid(rows) else causes(rows)
        findings = examine_rows(rows).execution.findings
        reported = [(finding.event.line, finding.code) for finding in findings]
        if valid(rows):
            assert reported == [], rows
            return
        lines = reported_lines(found, rows)
        assert sorted(line for line, _ in reported) == lines, (rows, found)
        if len(lines) == 2:
            assert {code for _, code in reported} == {"A004"}
            return
        ((line, code),) = reported
        kinds = {cause.kind for cause in found if cause.line == line}
        assert any(code in CODES[kind] for kind in kinds), (rows, found, code)
        for kind in kinds:
            tried[kind] += 1

    assert min(tried.values()) > 0, tried


def right_logs(found: list[Cause]) -> set[tuple[Any, ...]]:
    """Return the possible repaired logs; one for each lost or repeated event."""
    return {
        tuple((node, *sorted(clock.items())) for node, clock in cause.rows) or cause[:3]
        for cause in found
    }


def test_exactly_the_logs_with_one_possible_original_are_repaired() -> None:
    changed = left = 0

    @drawn(70, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal changed, left
        rows = spoilt_log(rng)
        if valid(rows):
            return
        found = causes(rows)
        right = right_logs(found) if len(reported_lines(found, rows)) == 1 else set()
        done = repair_execution(examine_rows(rows))
        written = tuple((item.node, *sorted(item.clock.items())) for item in done.items)  # type: ignore[union-attr]
        if done.changed:
            changed += 1
            assert right == {written}, (rows, right)
            assert done.left == (), rows
            assert ketal.audit(Log.of(done.items)).clean  # type: ignore[arg-type]
        else:
            left += 1
            assert done.left, rows
            assert len(right) != 1 or not any(cause.rows for cause in found), rows
            assert written == tuple((node, *sorted(clock.items())) for node, clock in rows)

    assert changed > 10
    assert left > 10
