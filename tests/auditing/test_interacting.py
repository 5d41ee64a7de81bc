"""Several faults that may interact: the guarantees for any log.

A log is clean exactly if it is an execution. Which of several explanations of
contradictions was meant nobody can say, so this is all that is promised: each
contradiction has one of its events named, or one before them on the line that lacks
it; and what a repair writes has no fault that was not left.
"""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.auditing.repair import repair_execution
from tests.auditing.explaining import Row, log_of, valid, with_random_fault
from tests.auditing.test_causes import examine_rows
from tests.property.executions import executions
from tests.sampling import chances


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    """Return an execution with up to four random faults."""
    events = draw(executions(nodes_max=4, events_max=12).filter(lambda found: len(found) > 2))
    rows: list[Row] = [(event.node, dict(event.clock)) for event in events]
    rng = draw(chances())
    for _ in range(draw(st.integers(0, 4))):
        rows = with_random_fault(rng, rows)
    return rows


@given(logs())
def test_log_is_clean_exactly_if_it_is_an_execution(rows: list[Row]) -> None:
    assert (examine_rows(rows).execution.findings == []) is valid(rows)


@given(logs())
def test_repaired_log_has_only_faults_that_were_left(rows: list[Row]) -> None:
    done = repair_execution(examine_rows(rows))
    written: list[Row] = [(item.node, item.clock) for item in done.items]  # type: ignore[union-attr, misc]
    again = ketal.audit(log_of((n, c, {"number": at}) for at, (n, c) in enumerate(written, 1)))
    assert {(f.line, f.code) for f in again.faults} <= {(c.line, c.code) for c in done.left}
    assert done.left or valid(written)


@given(executions(nodes_max=4, events_max=20).filter(bool), chances())
def test_each_contradiction_of_clocks_is_named(
    events: list[ketal.Event], rng: random.Random
) -> None:
    """Own entries are correct; any other entry may be any counter up to its node's last event."""
    rows: list[Row] = [(event.node, dict(event.clock)) for event in events]
    top = {node: sum(name == node for name, _ in rows) for node, _ in rows}
    for _ in range(rng.randint(1, 5) if len(top) > 1 else 0):
        node, clock = rng.choice(rows)
        name = rng.choice(sorted(top.keys() - {node}))
        clock[name] = rng.randint(1, top[name])
    at = {(node, clock[node]): (line, clock) for line, (node, clock) in enumerate(rows, 1)}
    named = {finding.event.line for finding in examine_rows(rows).execution.findings}
    for node, clock in rows:
        earlier = {at[node, counter][0] for counter in range(1, clock[node] + 1)}
        for name, value in clock.items():
            line, known = at.get((name, value - (name == node)), (0, {}))
            if any(v > clock.get(n, 0) - (n == node) for n, v in known.items() if name != node):
                assert named & (earlier | {line}), (rows, node, clock, name)
