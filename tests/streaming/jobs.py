"""Topics, jobs and their output, for the tests of both engines."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

import ketal
from ketal.programs.program import Program
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.kafka.process_engine import ProcessEngine

END = b'{"type": "ketal.end"}'
EVER_MS = 10**12
"""A lateness that no event of a test exceeds."""

FORKS = """
pattern Forks {
    order CausalOrder; partition by height;
    event Accept = type == "accept";
    First = Accept; Second = Conc(Accept) && hash != First.hash;
    find any First Second;
}
"""
WINDOWED_FORKS = FORKS.replace("Second;\n}", "Second; within 10 s;\n}")

POLL_MS, PATIENCE_POLLS = 1_000, 180

Topic = Callable[..., str]
Message = tuple[str, int, bytes]
"""(topic, partition, value)."""


def accept(node: str, counter: int = 1, height: int = 1, **more: Any) -> bytes:
    """Return a message with an event for `FORKS`: a node accepts a block of its own."""
    own = {"node": node, "type": "accept", "clock": {node: counter}}
    return json.dumps({**own, "data": {"height": height, "hash": node}, **more}).encode()


def produce(broker: Broker, messages: Iterable[Message]) -> None:
    options = {"bootstrap_servers": broker.bootstrap_servers, "metadata_max_age_ms": 200}
    with closing(KafkaProducer(acks="all", **options)) as producer:
        sent = []
        for topic, partition, value in messages:
            # A partition that was just added is not in the metadata at once.
            deadline = time.monotonic() + 120
            while partition not in (producer.partitions_for(topic) or ()):
                assert time.monotonic() < deadline, f"{topic} has no partition {partition}"
                time.sleep(0.05)
            sent.append(producer.send(topic, value, partition=partition))
        producer.flush()
        assert all(one.get(timeout=120) is not None for one in sent)


def expire(broker: Broker, topic: str, upto: int) -> None:
    """Delete the messages of partition 0 below an offset, as retention does."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): upto})


def recreate(broker: Broker, topic: str, policy: str = "delete", *, pause_s: float = 0) -> None:
    """Delete a topic, and after a pause make one of the same name, with one partition."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics())
        time.sleep(pause_s)
        made = {"num_partitions": 1, "configs": {"cleanup.policy": policy}}
        admin.create_topics({topic: made}, wait_for_metadata=True)


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
        "store": Target("dir", str(folder / "state")),
        "lateness_ms": EVER_MS,
        "verdicts": Target("file", str(folder / "verdicts.jsonl")),
        "rejected": Target("file", str(folder / "rejected.jsonl")),
        "commit_interval_ms": 50,
    }
    return Job(
        topics=topics, bootstrap_servers=broker.bootstrap_servers, **{**given, **options}
    )  # fmt: skip


class HookRecorder:
    """The verdicts and notices that an engine passed to its hooks."""

    def __init__(self) -> None:
        self.verdicts: list[ketal.Verdict] = []
        self.notices: list[str] = []

    def hooks(self, look: Callable[[Any], None] = lambda figures: None) -> Hooks:
        return Hooks(
            show=self.verdicts.append,
            flush=lambda: None,
            notify=self.notices.append,
            report=look,
        )


class Running(threading.Thread):
    """An engine, of whichever kind, on a thread of its own."""

    def __init__(self, engine: Any) -> None:
        super().__init__(daemon=True)
        self.engine = engine
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            self.engine.run()
        except BaseException as fault:
            self.fault = fault


def until(
    holds: Callable[[], object], failure: str = "it does not come", patience_s: float = 180.0
) -> None:
    """Return once a condition holds; fail after `patience_s`."""
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s, failure
        time.sleep(0.05)


def run(job: Job, program: Program, recorder: HookRecorder | None = None) -> ProcessEngine:
    """Run a job to its end."""
    engine = ProcessEngine(job, program, (recorder or HookRecorder()).hooks())
    engine.run()
    return engine


def written(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def consume(broker: Broker, topic: str, *, least: int = 0, **options: str) -> list[bytes]:
    """Return the messages of a topic up to its end, waiting for at least `least` messages.

    A commit is acknowledged before its marker is in every partition, so the last committed
    message may become visible a moment later.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )
    with closing(consumer):
        parts = [TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(parts)
        values: list[bytes] = []
        for _ in range(PATIENCE_POLLS):
            ends = consumer.end_offsets(parts)
            if len(values) >= least and all(consumer.position(p) >= ends[p] for p in parts):
                return values
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                values += [record.value for record in records]
    raise AssertionError(f"{topic} does not come to its end")


def committed(broker: Broker, topic: str, *, least: int = 0) -> list[dict[str, Any]]:
    """Return the committed verdicts of a topic."""
    values = consume(broker, topic, least=least, isolation_level="read_committed")
    return [json.loads(value) for value in values]


def expected(program: Program, lines: Iterable[bytes], folder: Path) -> list[dict[str, Any]]:
    """Return the verdicts of `ketal.run` over the same events in a file."""
    path = folder / "expected.jsonl"
    path.write_bytes(b"".join(line.strip() + b"\n" for line in lines))
    return [v.to_dict() for v in ketal.run(program, ketal.read_log(path))]
