"""Rows of the process engine on Kafka's JSON, compared with decoding and feeding in series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer

import ketal
from benchmarks.measuring import Run
from benchmarks.process_engine import EVENTS, decode_topic, messages, run_engine
from benchmarks.rows import AtLeast, Bench, Row
from benchmarks.works import MonitorFeed
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target

_numbers = count()


@dataclass
class KafkaWork:
    """The common part of the works: the topic, and a job over it.

    Attributes
    ----------
    program : ketal.Program
        The patterns.
    servers : str
        The address of the broker.
    folder : Path
        The folder for the state of jobs.
    topic : str
        The topic of the events; verdicts go to the one whose name ends in `-out`.
    events : int
        How many events the topic holds.
    """

    program: ketal.Program
    servers: str
    folder: Path
    topic: str
    events: int

    def job(self) -> Job:
        """Return a new job, without commits."""
        name = f"bench-{next(_numbers)}"
        return Job(
            pattern="",
            topics=[self.topic],
            bootstrap_servers=self.servers,
            group_id=name,
            verdicts=Target("kafka", f"{self.topic}-out"),
            rejected=Target("kafka", f"{self.topic}-out"),
            store=Target("dir", str(self.folder / name)),
            until_end=True,
        )

    def inspect(self) -> None:
        """Return None: there are no matches to compare."""


class SerialWork(KafkaWork):
    """Decoding all messages, then feeding the decoded events."""

    def run(self) -> Run:
        """Decode the topic and feed it once."""
        clock_s, core_s, items = decode_topic(self.job(), self.events)
        fed = MonitorFeed(self.program, items).run()
        return Run(self.events, clock_s + fed.clock_s, core_s + fed.core_s, 0, self.events)


class EngineWork(KafkaWork):
    """The process engine."""

    def run(self) -> Run:
        """Run a job from the first message to the last commit."""
        clock_s, core_s, _ = run_engine(self.job(), self.program)
        return Run(self.events, clock_s, core_s, 0, self.events)


def hundred_patterns() -> str:
    """Return a hundred patterns, each about keys of its own."""
    return "\n".join(
        f"pattern P{number} {{ {EVENTS} Bad1 = Bad && key % 100 == {number}; "
        "Good1 = Good && key == Bad1.key; find next Bad1 Good1; within 100 ms; }"
        for number in range(100)
    )


def kafka(bench: Bench) -> Iterator[Row]:
    """Yield jobs and their decoding and feeding: a check, a find, and a hundred patterns."""
    broker = bench.stack.enter_context(Broker(bench.folder / "kafka"))
    servers = broker.bootstrap_servers
    check = f"pattern P {{ partition by key; {EVENTS} check Good*; on violation skip; }}"
    again = "Good1 = Good && key == Bad1.key; find next Bad1 Good1; within 100 ms;"
    window = f"pattern P {{ {EVENTS} Bad1 = Bad && key % 100 == 7; {again} }}"
    works = (
        ("a check", check, 100_000),
        ("a find in a window", window, 50_000),
        ("100 patterns", hundred_patterns(), 10_000),
    )
    for name, text, size in works:
        topic = name.replace(" ", "-")
        values = messages(bench.size(size))
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({one: {"num_partitions": 1} for one in (topic, f"{topic}-out")})
        with KafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
            for value in values:
                producer.send(topic, value, partition=0)
            producer.flush()
        given = (ketal.compile(text), servers, bench.folder, topic, len(values))
        series = f"Kafka's JSON, decode and feed in series, {name}"
        yield Row(series, SerialWork(*given))
        yield Row(
            f"Kafka's JSON, process engine, {name}",
            EngineWork(*given),
            goals=(AtLeast(0.8, series),),
        )
