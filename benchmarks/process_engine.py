"""The process engine against its unavoidable work: decoding, and `Monitor.feed_many`.

Run by hand: `python benchmarks/process_engine.py [events]`; it starts a broker of its own. The
engine reads the events from a topic, judges them, writes verdicts to a topic (3 % of a `check`),
and commits each 500 ms, with patterns of several kinds. It is compared, in the same run and on the
same events, with the sum of a loop that reads and decodes the messages and of `Monitor.feed_many`
on the decoded events; the goal is 80 % of that rate. Only the time between the first message and
the last commit is measured, not start and end. The rate per CPU second is printed beside the rate
by the clock, as other processes on the machine disturb it less.
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
from ketal.cli.process_state import COLLECT_AFTER
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.messages import MessageReader
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.process_engine import ProcessEngine

KEYS = 10_000
ROUNDS = 3
EVENTS = 'event Good = type == "good"; event Bad = type == "bad";'
PATTERNS = {
    "check, order arrival": f"""
        pattern Turns {{ partition by key; {EVENTS} check Good*; on violation skip; }}""",
    "find next with a window, order arrival": f"""
        pattern Turns {{ partition by key; {EVENTS} find next Bad Good; within 10 s; }}""",
    "find any with a window, CausalOrder": f"""
        pattern Turns {{ order CausalOrder; partition by key; {EVENTS}
            find any Bad Good; within 10 s; }}""",
    "check, CausalOrder": f"""
        pattern Turns {{ order CausalOrder; partition by key; {EVENTS}
            check Good*; on violation skip; }}""",
}


def messages(count: int) -> list[bytes]:
    """Return the messages; each 33rd is a violation."""
    chance = random.Random(1)
    # The first event is in the past of all others.
    out = [b'{"node":"other","type":"other","clock":{"other":1},"time":0,"data":{}}']
    for number in range(1, count):
        kind = "bad" if number % 33 == 0 else "good"
        node = f"n{number % 10}"
        counter = (number + 9) // 10
        out.append(
            f'{{"node":"{node}","type":"{kind}","clock":{{"{node}":{counter},"other":1}},'
            f'"time":{number / 1000},"data":{{"key":{chance.randrange(KEYS)},'
            f'"text":"{"x" * 80}"}}}}'.encode()
        )
    return out


def decode_topic(job: Job, count: int) -> tuple[float, float, list[Any]]:
    """Return the seconds to read and decode the topic, the CPU seconds, and the decoded items."""
    consumer = clients.make_consumer(job)
    part = TopicPartition(job.topics[0], 0)
    consumer.assign([part])
    consumer.seek(part, 0)
    reader = MessageReader(job.source, job.limits)
    items: list[Any] = []
    begin_s = begin_core_s = 0.0
    while len(items) < count:
        for records in consumer.poll(timeout_ms=1_000).values():
            begin_s = begin_s or time.perf_counter()
            begin_core_s = begin_core_s or time.process_time()
            items += reader.items([record.value for record in records], records.__getitem__)
    took_s, core_s = time.perf_counter() - begin_s, time.process_time() - begin_core_s
    clients.close_consumer(consumer)
    return took_s, core_s, items


def run_engine(job: Job, program: ketal.Program) -> tuple[float, float, int]:
    """Return the seconds and CPU seconds from the claim to the last commit, and the commits."""
    engine = ProcessEngine(job, program, Hooks(lambda v: None, lambda: None, print))
    commits: list[tuple[float, float]] = []
    record_commit = engine.figures.count_commit

    def note_commit(took_s: float) -> None:
        commits.append((time.perf_counter(), time.process_time()))
        record_commit(took_s)

    engine.figures.count_commit = note_commit  # type: ignore[method-assign]
    engine.run()
    took_s, core_s = (last - first for first, last in zip(commits[0], commits[-1], strict=True))
    return took_s, core_s, len(commits) - 1


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    # As the commands set it.
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({t: {"num_partitions": 1} for t in ("events", "verdicts")})
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
            for value in messages(count):
                producer.send("events", value, partition=0)
            producer.flush()
        for number, (kind, text) in enumerate(PATTERNS.items()):
            program = ketal.compile(text)
            for again in range(ROUNDS):
                job = Job(
                    pattern="",
                    topics=["events"],
                    bootstrap_servers=broker.bootstrap_servers,
                    group_id=f"bench-{number}-{again}",
                    verdicts=Target("kafka", "verdicts"),
                    rejected=Target("kafka", "verdicts"),
                    store=Target("dir", f"{folder}/state-{number}-{again}"),
                    until_end=True,
                )
                decoding_s, _, items = decode_topic(job, count)
                begin = time.perf_counter()
                verdicts = ketal.Monitor(program).feed_many(items)
                judging_s = time.perf_counter() - begin
                job_s, core_s, commits = run_engine(job, program)
                print(
                    f"{kind}: {count:,} events, {len(verdicts) / count:.1%} verdicts, {commits} "
                    f"commits: decoding {count / decoding_s:,.0f}/s, judging "
                    f"{count / judging_s:,.0f}/s, engine {count / job_s:,.0f}/s, "
                    f"{count / core_s:,.0f}/s of a core: "
                    f"{(decoding_s + judging_s) / job_s:.0%} of the sum",
                    flush=True,
                )


if __name__ == "__main__":
    main()
