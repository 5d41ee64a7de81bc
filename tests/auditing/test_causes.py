"""One fault anywhere in a small log: the auditor against the slow, obvious meaning.

Which faults explain a log is found by trying all (`tests.auditing.explaining`).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import ketal
from ketal.auditing.repair import repaired
from ketal.auditing.report import Examined, examined
from ketal.logs import Log
from tests.auditing.explaining import Cause, Row, causes, log_of, named, spoilt, valid
from tests.property.executions import execution

CODES = {
    "own": {"A001", "A003", "A005"},
    "extra": {"A003", "A005"},
    "lost": {"A004", "A006", "A007"},
    "low": {"A008", "A010"},
    "high": {"A006", "A007", "A008", "A010"},
}
"""What a fault of each kind may be called; an event with the dot and clock of another is
one that is there twice, whichever of the two was meant to have another dot."""


def spoilt_log(seed: int) -> list[Row]:
    rng = random.Random(seed)
    rows: list[Row] = []
    while len(rows) < 2:
        events = execution(rng, nodes_max=4, events_max=rng.choice((5, 9)))
        rows = [(event.node, dict(event.clock)) for event in events]
    return spoilt(rng, rows)


def judged(rows: list[Row]) -> Examined:
    lines = ((node, clock, {"number": number}) for number, (node, clock) in enumerate(rows, 1))
    (part,) = examined(log_of(lines), None)
    return part


@pytest.mark.parametrize("block", range(6))
def test_a_fault_is_named_where_it_is(block: int) -> None:
    tried = dict.fromkeys(CODES, 0)
    for seed in range(500 * block, 500 * block + 500):
        rows = spoilt_log(seed)
        found = [] if valid(rows) else causes(rows)
        findings = judged(rows).execution.findings
        said = [(finding.event.line, finding.code) for finding in findings]
        if valid(rows):
            assert said == [], (seed, rows)
            continue
        lines = named(found, rows)
        assert sorted(line for line, _ in said) == lines, (seed, rows, found)
        if len(lines) == 2:
            assert {code for _, code in said} == {"A004"}
            continue
        ((line, code),) = said
        kinds = {cause.kind for cause in found if cause.line == line}
        assert any(code in CODES[kind] for kind in kinds), (seed, rows, found, code)
        for kind in kinds:
            tried[kind] += 1
    assert min(tried.values()) > 0, tried


def right_logs(found: list[Cause]) -> set[tuple[Any, ...]]:
    """Return the logs that could have been meant; one for each event that was lost or extra."""
    return {
        tuple((node, *sorted(clock.items())) for node, clock in cause.rows) or cause[:3]
        for cause in found
    }


@pytest.mark.parametrize("block", range(3))
def test_what_can_be_one_log_only_is_repaired_and_nothing_else(block: int) -> None:
    changed = left = 0
    for seed in range(10_000 + 300 * block, 10_300 + 300 * block):
        rows = spoilt_log(seed)
        if valid(rows):
            continue
        found = causes(rows)
        right = right_logs(found) if len(named(found, rows)) == 1 else set()
        done = repaired(judged(rows))
        written = tuple((item.node, *sorted(item.clock.items())) for item in done.items)  # type: ignore[union-attr]
        if done.changed:
            changed += 1
            assert right == {written}, (seed, rows, right)
            assert done.left == (), (seed, rows)
            assert ketal.audit(Log.of(done.items)).clean  # type: ignore[arg-type]
        else:
            left += 1
            assert done.left, (seed, rows)
            assert len(right) != 1 or not any(cause.rows for cause in found), (seed, rows)
            assert written == tuple((node, *sorted(clock.items())) for node, clock in rows)
    assert changed > 10
    assert left > 10
