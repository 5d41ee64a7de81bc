"""Topics, jobs and what came of them, for the tests of the process engine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

import ketal
from ketal.program import Program
from ketal.streaming.broker import Broker
from ketal.streaming.job import Job, Target
from ketal.streaming.metrics import Hooks
from ketal.streaming.process import Engine
from tests.streaming.test_kafka import consume

END = b'{"type": "ketal.end"}'
EVER_MS = 10**12
"""So late no event of a test is."""

Topic = Callable[..., str]
Message = tuple[str, int, bytes]
"""(topic, partition, value)."""


def produce(broker: Broker, messages: Iterable[Message]) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")) as producer:
        sent = [producer.send(t, value, partition=n) for t, n, value in messages]
        producer.flush()
        assert all(one.get(timeout=30) is not None for one in sent)


def spread(
    lines: Sequence[bytes], partitions: Sequence[tuple[str, int]], seed: int
) -> list[Message]:
    """Return lines in shuffled order over partitions, each of which then ends."""
    chance = random.Random(seed)
    shuffled = chance.sample(list(lines), len(lines))
    where = [chance.choice(partitions) for _ in shuffled]
    messages = [(t, n, line) for (t, n), line in zip(where, shuffled, strict=True)]
    return messages + [(t, n, END) for t, n in partitions]


def job_of(broker: Broker, topics: Sequence[str], folder: Path, **options: Any) -> Job:
    given: dict[str, Any] = {
        "pattern": "pattern.ketal",
        "group_id": f"group-{topics[0]}",
        "state": folder / "state",
        "lateness_ms": EVER_MS,
        "verdicts": Target("file", str(folder / "verdicts.jsonl")),
        "rejected": Target("file", str(folder / "rejected.jsonl")),
        "commit_interval_ms": 50,
    }
    return Job(
        topics=topics, bootstrap_servers=broker.bootstrap_servers, **{**given, **options}
    )  # fmt: skip


class Told:
    """What an engine told whoever ran it."""

    def __init__(self) -> None:
        self.verdicts: list[ketal.Verdict] = []
        self.sentences: list[str] = []

    def hooks(self, look: Callable[[Any], None] = lambda figures: None) -> Hooks:
        return Hooks(
            say=self.verdicts.append, flush=lambda: None, tell=self.sentences.append, look=look
        )


def run(job: Job, program: Program, told: Told | None = None) -> Engine:
    """Run a job to its end."""
    engine = Engine(job, program, (told or Told()).hooks())
    engine.run()
    return engine


def written(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def committed(broker: Broker, topic: str, *, least: int = 0) -> list[dict[str, Any]]:
    """Return the verdicts of a topic that are committed."""
    values = consume(broker, topic, least=least, isolation_level="read_committed")
    return [json.loads(value) for value in values]


def untimed(verdicts: Iterable[dict[str, Any]]) -> list[str]:
    """Return verdicts sorted; the time of a match is that of the event that came last."""
    return sorted(json.dumps({k: x for k, x in v.items() if k != "time"}) for v in verdicts)


def expected(program: Program, lines: Iterable[bytes], folder: Path) -> list[dict[str, Any]]:
    """Return what `ketal.run` says of the same events in a file."""
    path = folder / "expected.jsonl"
    path.write_bytes(b"".join(line.strip() + b"\n" for line in lines))
    return [v.to_dict() for v in ketal.run(program, ketal.read_log(path))]
