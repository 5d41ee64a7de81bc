"""The process engine against what it cannot do without: decoding, and `Monitor.feed_many`.

Run by hand: `python benchmarks/process_engine.py [events]`; it starts a broker of its own. The
engine reads the events from a topic, judges them, writes 3 % verdicts to a topic, and commits each
500 ms. It is compared with the serial sum, in the same run and on the same events, of a loop that
reads and decodes the messages and of `Monitor.feed_many` on what was decoded: 80 % of that rate
are asked for. Starting and ending are not part of it: only what is between the first message and
the last commit.
"""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

import ketal
from ketal.cli.running import COLLECT_AFTER
from ketal.streaming import clients
from ketal.streaming.broker import Broker
from ketal.streaming.job import Job, Target
from ketal.streaming.messages import Reader
from ketal.streaming.metrics import Hooks
from ketal.streaming.process import Engine

KEYS = 10_000
ROUNDS = 3
PATTERN = """
pattern Turns {
    partition by key;
    event Good = type == "good"; event Bad = type == "bad";
    check Good*;
    on violation skip;
}
"""


def messages(count: int) -> list[bytes]:
    """Make the messages: each 33rd is a violation."""
    chance = random.Random(1)
    out = []
    for number in range(1, count + 1):
        kind = "bad" if number % 33 == 0 else "good"
        node = f"n{number % 10}"
        counter = (number + 9) // 10
        out.append(
            f'{{"node":"{node}","type":"{kind}","clock":{{"{node}":{counter},"other":1}},'
            f'"time":{number / 1000},"data":{{"key":{chance.randrange(KEYS)},'
            f'"text":"{"x" * 80}"}}}}'.encode()
        )
    return out


def decode_only(job: Job, count: int) -> tuple[float, list[Any]]:
    """Return the seconds to read and decode the topic, and what was decoded."""
    consumer = clients.consumer_of(job)
    part = TopicPartition(job.topics[0], 0)
    consumer.assign([part])
    consumer.seek(part, 0)
    reader = Reader(job.source, job.limits)
    items: list[Any] = []
    begin = 0.0
    while len(items) < count:
        for records in consumer.poll(timeout_ms=1_000).values():
            begin = begin or time.perf_counter()
            items += map(reader.item, records)
    took = time.perf_counter() - begin
    clients.close_consumer(consumer)
    return took, items


def engine_s(job: Job, program: ketal.Program) -> tuple[float, int]:
    """Return the seconds from the claim to the last commit, and how many commits there were."""
    engine = Engine(job, program, Hooks(lambda v: None, lambda: None, print))
    commits: list[float] = []
    noted = engine.figures.committed

    def committed(took_s: float) -> None:
        commits.append(time.perf_counter())
        noted(took_s)

    engine.figures.committed = committed  # type: ignore[method-assign]
    engine.run()
    return commits[-1] - commits[0], len(commits) - 1


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    program = ketal.compile(PATTERN)
    # As the commands do it.
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({t: {"num_partitions": 1} for t in ("events", "verdicts")})
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
            for value in messages(count):
                producer.send("events", value, partition=0)
            producer.flush()
        for number in range(ROUNDS):
            job = Job(
                pattern="",
                topics=["events"],
                bootstrap_servers=broker.bootstrap_servers,
                group_id=f"bench-{number}",
                verdicts=Target("kafka", "verdicts"),
                rejected=Target("kafka", "verdicts"),
                state=Path(folder) / f"state-{number}",
                until_end=True,
            )
            decoding_s, items = decode_only(job, count)
            begin = time.perf_counter()
            verdicts = ketal.Monitor(program).feed_many(items)
            judging_s = time.perf_counter() - begin
            job_s, commits = engine_s(job, program)
            print(
                f"{count:,} events, {len(verdicts) / count:.1%} verdicts, {commits} commits: "
                f"decoding {count / decoding_s:,.0f}/s, judging {count / judging_s:,.0f}/s, "
                f"engine {count / job_s:,.0f}/s: {(decoding_s + judging_s) / job_s:.0%} of the sum"
            )


if __name__ == "__main__":
    main()
