"""The replicated stack's events on Kafka: `ketal stream` says what `ketal run` says."""

from __future__ import annotations

from pathlib import Path

import ketal
from ketal.replicated_stack.cluster import RunPlan, run
from ketal.replicated_stack.node import Bug
from ketal.replicated_stack.tables import PATTERNS, events_of
from ketal.streaming.broker.server import Broker
from tests.streaming import ways


def test_a_job_on_kafka_finds_the_same(broker: Broker, tmp_path: Path) -> None:
    logs, job = tmp_path / "logs", tmp_path / "job"
    logs.mkdir()
    job.mkdir()
    run(RunPlan(3, Bug.EARLY_DELIVERY), logs)
    program = ketal.load(PATTERNS)
    lines = [
        line for path in sorted(logs.glob("*.jsonl")) for line in path.read_bytes().splitlines()
    ]
    execution = ways.shuffled("stack", program, lines, 3)
    topics = ways.produced(broker, [execution], "replicated-stack")["stack"]
    said = ways.by_process(execution, broker, topics, job)
    expected = ketal.run(program, events_of(logs))
    found = {one["id"] for one in said.verdicts if one["verdict"] in ("violation", "match")}
    assert found == {v.id for v in (*expected.matches, *expected.violations)} != set()
