"""The replicated stack's events on Kafka: `ketal stream` reports what `ketal run` reports."""

from __future__ import annotations

from pathlib import Path

import pytest

import ketal
from ketal.replicated_stack.cluster import RunPlan, run
from ketal.replicated_stack.node import Bug
from ketal.replicated_stack.tables import PATTERNS, events_of
from ketal.streaming.broker.server import Broker
from tests.streaming import ways


@pytest.mark.parametrize(
    ("bug", "pattern"),
    [(Bug.EARLY_DELIVERY, "Dependencies"), (Bug.APPLIES_WHEN_OFF, "Session")],
)
def test_kafka_job_reports_the_verdicts_of_run(
    bug: Bug, pattern: str, broker: Broker, tmp_path: Path
) -> None:
    """`Session` is `at every node receiving`, the other is not."""
    program, job = ketal.load(PATTERNS), tmp_path / "job"
    job.mkdir()
    for seed in range(30):  # In which run the bug shows depends on the machine.
        logs = tmp_path / f"logs{seed}"
        logs.mkdir()
        run(RunPlan(seed, bug, off=0.3), logs)
        result = ketal.run(program, events_of(logs))
        expected = (*result.matches, *result.violations)
        if pattern in {verdict.pattern for verdict in expected}:
            break
    else:
        raise AssertionError("the bug showed in none of 30 runs")
    lines = [
        line for path in sorted(logs.glob("*.jsonl")) for line in path.read_bytes().splitlines()
    ]
    execution = ways.by_node("stack", program, lines, 3)
    topics = ways.produced(broker, [execution], f"replicated-stack-{bug.value}")["stack"]
    outcome = ways.by_process(execution, broker, topics, job)
    ids = {one["id"] for one in outcome.verdicts if one["verdict"] in ("violation", "match")}
    assert ids == {verdict.id for verdict in expected}
