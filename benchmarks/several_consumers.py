"""State in a topic against state in a folder, and two consumers against one.

Run by hand: `python benchmarks/several_consumers.py [events] [rounds]`; it starts a broker of its
own. The events are JSON messages for a check that is partitioned by session, keyed by session over
four partitions: sessions of ten events, of which 5,000 are open at a time; 0.1 % are violations.
Each round runs `ketal stream --until-end`, as processes of their own, with `dir:` and one process,
`kafka:` and one, `kafka:` and two. It prints the seconds by the clock and the CPU seconds,
including start and end, and the size of the state topic. A job without messages, which is measured
first, is the cost of start and end.

The goals: one process with `kafka:` takes at most 1.25 times the CPU time of `dir:`; the busier one
of two takes at most 1 / 1.7 of the CPU time of one, so that two processes with a core each are 1.7
times as fast.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from ketal.streaming.broker.server import Broker

PARTITIONS = 4
OPEN, SESSION_EVENTS = 5_000, 10
PATTERN = """
pattern Turns { order arrival; partition by session;
    event Open = type == "open"; event Use = type == "use"; event Close = type == "close";
    check (Open Use* Close)*; on violation skip; }
"""
TOML = """\
pattern = "turns.ketal"
[kafka]
bootstrap_servers = "{servers}"
group_id = "{group}"
[source]
topics = ["{topic}"]
keyed_by = "session"
[output]
verdicts = "kafka:verdicts"
[state]
store = "{store}"
"""


def produce(servers: str, count: int) -> None:
    """Send the messages; each 1000th is a violation."""
    chance = random.Random(1)
    sessions = [[number, 0] for number in range(OPEN)]
    begun = OPEN
    with KafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
        for number in range(1, count + 1):
            at = chance.randrange(OPEN)
            session, events = sessions[at]
            kind = "open" if events == 0 else "close" if events == SESSION_EVENTS - 1 else "use"
            sessions[at][1] += 1
            if kind == "close":
                sessions[at] = [begun, 0]
                begun += 1
            if number % 1_000 == 0:
                kind = "open" if kind != "open" else "close"
            node = f"n{number % 10}"
            value = (
                f'{{"node":"{node}","type":"{kind}","clock":{{"{node}":{(number + 9) // 10}}},'
                f'"time":{number / 1000},"data":{{"session":{session},"text":"{"x" * 80}"}}}}'
            )
            producer.send("events", value.encode(), partition=session % PARTITIONS)
        producer.flush()


def create(servers: str, topic: str, partitions: int, policy: str = "delete") -> None:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        options = {"num_partitions": partitions, "configs": {"cleanup.policy": policy}}
        admin.create_topics({topic: options}, wait_for_metadata=True)


def topic_size(servers: str, topic: str) -> tuple[int, int]:
    """Return how many messages a topic holds, and their bytes."""
    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed")
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(parts)
    ends = consumer.end_offsets(parts)
    consumer.seek_to_beginning()
    count = size = 0
    while any(consumer.position(one) < ends[one] for one in parts):
        for records in consumer.poll(timeout_ms=200).values():
            count += len(records)
            size += sum(len(r.key or b"") + len(r.value or b"") for r in records)
    consumer.close(autocommit=False)
    return count, size


def run(folder: Path, servers: str, topic: str, store: str, processes: int) -> list[float]:
    """Run a job; return the seconds by the clock, and the CPU seconds of each process."""
    (folder / "turns.ketal").write_text(PATTERN)
    group = f"bench-{os.urandom(4).hex()}"
    text = TOML.format(servers=servers, group=group, topic=topic, store=store)
    (folder / "job.toml").write_text(text)
    command = [sys.executable, "-m", "ketal", "stream", "--config", "job.toml", "--until-end"]
    begin_s = time.monotonic()
    members = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(processes)
    ]
    cores_s = []
    for member in members:
        _, status, used = os.wait4(member.pid, 0)
        if status:
            raise SystemExit(f"{store}: ended with {os.waitstatus_to_exitcode(status)}")
        cores_s.append(used.ru_utime + used.ru_stime)
    return [time.monotonic() - begin_s, *cores_s]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "kafka") as broker:
        folder, servers = Path(name), broker.bootstrap_servers
        for topic, partitions in (("events", PARTITIONS), ("none", PARTITIONS), ("verdicts", 1)):
            create(servers, topic, partitions)
        produce(servers, count)
        create(servers, "state-none", PARTITIONS, "compact")
        starts_s = [run(folder, servers, "none", s, 1)[1] for s in ("dir:none", "kafka:state-none")]
        print("a job of no messages: dir: {:.1f}, kafka: {:.1f} s of a core".format(*starts_s))
        for again in range(rounds):
            _, of_dir_s = clock_and_core = run(folder, servers, "events", f"dir:state-{again}", 1)
            print("dir:, one: {:.1f} s, {:.1f} s of a core".format(*clock_and_core), flush=True)
            of_dir_s -= starts_s[0]
            one_s = 0.0
            for processes in (1, 2):
                state = f"state-{again}-{processes}"
                create(servers, state, PARTITIONS, "compact")
                clock_s, *cores_s = run(folder, servers, "events", f"kafka:{state}", processes)
                busier_s = max(cores_s) - starts_s[1]
                one_s = one_s or busier_s
                messages, size = topic_size(servers, state)
                times = (sum(cores_s) - starts_s[1] * processes) / of_dir_s
                print(
                    f"kafka:, {processes}: {clock_s:.1f} s, "
                    f"{' and '.join(f'{s:.1f}' for s in cores_s)} s of a core; {messages:,} state "
                    f"messages, {size / 1e6:.0f} MB; {times:.2f} times dir:; "
                    f"{one_s / busier_s:.2f} times the rate of one",
                    flush=True,
                )


if __name__ == "__main__":
    main()
