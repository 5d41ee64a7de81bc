"""Several consumers of one job: processes that share its partitions, join, leave and are killed.

`KETAL_CHAOS` is the number of changes of the group under load; `make chaos` sets a large one.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

import ketal
from ketal.cli import main
from ketal.errors import SettingError, StateError
from ketal.logs import Source
from ketal.model.events.event import Event
from ketal.programs.program import Program
from ketal.runtime.state.records import encode_record
from ketal.streaming import plan
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.distribution import PartitionCheck, check_shareable
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.group_session import GroupSession
from ketal.streaming.kafka.partition_state import PROGRESS, Part
from ketal.streaming.kafka.process_engine import ProcessEngine, new_session
from ketal.streaming.kafka.state import topic_store as changelog
from ketal.streaming.kafka.state.segments import Segments
from ketal.streaming.kafka.state.topic_store import Changelog, Loaded
from tests.sampling import sample
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import (
    END,
    FORKS,
    HookRecorder,
    Message,
    Topic,
    accept,
    committed,
    expected,
    job_of,
    produce,
    run,
)

CHANGES = int(os.environ.get("KETAL_CHAOS", "3"))
PARTITIONS = 4
HEIGHTS = 400
PATIENCE_S = 180
TOML = """\
pattern = "forks.ketal"
[kafka]
bootstrap_servers = "{servers}"
group_id = "{group}"
[kafka.properties]
max_poll_records = 20
session_timeout_ms = 3000
heartbeat_interval_ms = 500
[source]
topics = [{topics}]
keyed_by = "height"
[output]
verdicts = "kafka:{sink}"
[state]
store = "kafka:{state}"
commit_interval_ms = 20
[time]
lateness_ms = 1000000000
"""


def compacted(broker: Broker, partitions: int) -> str:
    """Create a compacted topic for state; return its name."""
    return make_topic(broker, partitions, "compact")


def shared(
    broker: Broker, topics: Sequence[str], folder: Path, state: str | None = None, **options: Any
) -> Job:
    """Return a job that several consumers may share."""
    return job_of(
        broker, topics, folder, source=Source(keyed_by="height"),
        until_end=options.pop("until_end", True),
        store=Target("kafka", state or compacted(broker, PARTITIONS)), **options,
    )  # fmt: skip


def keyed(lines: Sequence[tuple[int, bytes]], topics: Sequence[str], seed: int) -> list[Message]:
    """Return (height, line) in shuffled order, each in the partition of its height."""
    chance = random.Random(seed)
    shuffled = chance.sample(list(lines), len(lines))
    return [(chance.choice(topics), height % PARTITIONS, line) for height, line in shuffled]


def pairs(heights: range) -> list[tuple[int, bytes]]:
    """Return (height, line) of two events for each height, which are a match."""
    return [(h, accept(node, h, h)) for h in heights for node in "ab"]


def ends(topics: Sequence[str]) -> list[Message]:
    return [(topic, n, END) for topic in topics for n in range(PARTITIONS)]


def ids(program: Program, lines: Sequence[tuple[int, bytes]], folder: Path) -> list[str]:
    """Return the sorted ids of the verdicts of `ketal.run`."""
    return sorted(v["id"] for v in expected(program, [line for _, line in lines], folder))


def headers(commit: str, pieces: int = 1, first: int = 0) -> list[tuple[str, bytes]]:
    """Return the headers of a message of a changelog."""
    values = {"format": changelog.FORMAT, "pieces": pieces, "first": first, "commit": commit}
    return [(name, str(value).encode()) for name, value in values.items()]


class Group:
    """`ketal stream` with the job of a folder, run by any number of processes."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        topics: Sequence[str],
        sink: str,
        partitions: int = PARTITIONS,
    ) -> None:
        self.folder = folder
        self.members: list[subprocess.Popen[str]] = []
        (folder / "forks.ketal").write_text(FORKS)
        (folder / "job.toml").write_text(
            TOML.format(
                servers=broker.bootstrap_servers,
                group=f"group-{topics[0]}",
                topics=", ".join(f'"{topic}"' for topic in topics),
                sink=sink,
                state=compacted(broker, partitions),
            )
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start one more consumer."""
        log = open(self.folder / f"member-{len(self.members)}.err", "w")  # noqa: SIM115
        command = [sys.executable, "-m", "ketal", "stream", "--config", "job.toml", *words]
        with log:
            member = subprocess.Popen(
                [*command, "--output", "json"],
                cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.members.append(member)
        return member

    def stderr_of(self, member: subprocess.Popen[str]) -> str:
        """Return what a consumer has written to standard error."""
        return (self.folder / f"member-{self.members.index(member)}.err").read_text()

    def await_notice(self, member: subprocess.Popen[str], what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while what not in self.stderr_of(member):
            assert member.poll() is None, self.stderr_of(member)
            assert time.monotonic() < until_s, (what, self.stderr_of(member))
            time.sleep(0.02)

    def finish(self, member: subprocess.Popen[str]) -> dict[str, Any]:
        """Wait for the end of a consumer; return its summary."""
        out, _ = member.communicate(timeout=PATIENCE_S)
        assert member.returncode == 0, self.stderr_of(member)
        (summary,) = [json.loads(line)["summary"] for line in out.splitlines()]
        return dict(summary)

    def total(self) -> dict[str, Any]:
        """Return the summary of one more consumer, which is assigned all parts."""
        return self.finish(self.start("--until-end"))


MakeGroup = Callable[..., Group]


@pytest.fixture
def group(broker: Broker, tmp_path: Path) -> Iterator[MakeGroup]:
    """Return a function that creates a group; kills its processes at the end of the test."""
    made: list[Group] = []

    def make(topics: Sequence[str], sink: str, partitions: int = PARTITIONS) -> Group:
        made.append(Group(tmp_path, broker, topics, sink, partitions))
        return made[-1]

    yield make
    for one in made:
        for member in one.members:
            member.kill()
            member.communicate()


class Load(threading.Thread):
    """Sends messages little by little, and the rest at once when `finish` is called."""

    def __init__(self, broker: Broker, messages: Sequence[Message]) -> None:
        super().__init__(daemon=True)
        self._servers = broker.bootstrap_servers
        self._messages = messages
        self._hurry = threading.Event()

    def run(self) -> None:
        with KafkaProducer(bootstrap_servers=self._servers, acks="all") as producer:
            for topic, number, value in self._messages:
                producer.send(topic, value, partition=number)
                self._hurry.wait(0.005)
            producer.flush()

    def finish(self) -> None:
        self._hurry.set()
        self.join()


def test_consumers_share_partitions_of_two_topics_without_loss_or_duplicates(
    broker: Broker, topic: Topic, group: MakeGroup, tmp_path: Path
) -> None:
    """Two consumers, then three: each verdict is there once, and a consumer of all counts all."""
    topics, sink = (topic(PARTITIONS), topic(PARTITIONS)), topic()
    lines = pairs(range(1, HEIGHTS))
    ours = group(topics, sink)
    messages = keyed(lines, topics, seed=1)
    members = [ours.start(), ours.start()]
    for member in members:
        ours.await_notice(member, f"has 2 of {PARTITIONS} parts")
    produce(broker, messages[: len(lines) // 2])
    members.append(ours.start())
    ours.await_notice(members[-1], f"of {PARTITIONS} parts")
    produce(broker, messages[len(lines) // 2 :] + ends(topics))
    for member in members:
        assert ours.finish(member)["kafka"]["messages"] > 0
    total = ours.total()
    wanted = ids(ketal.compile(FORKS), lines, tmp_path)
    verdicts = committed(broker, sink, least=len(wanted))
    assert sorted(v["id"] for v in verdicts) == wanted
    assert total["kafka"] == {"messages": len(lines) + 8, "control": 8}
    assert total["events"]["accepted"] == len(lines)
    assert total["patterns"]["Forks"]["matches"] == len(wanted)


@pytest.mark.parametrize("seed", range((CHANGES + 2) // 3))
def test_joining_stopping_and_killed_consumers_lose_and_repeat_no_verdict(
    seed: int, broker: Broker, topic: Topic, group: MakeGroup, tmp_path: Path
) -> None:
    """Consumers stop on SIGTERM or are killed, under load."""
    chance = random.Random(seed)
    topics, sink = (topic(PARTITIONS), topic(PARTITIONS)), topic()
    lines = pairs(range(1, HEIGHTS))
    load = Load(broker, keyed(lines, topics, seed))
    load.start()
    ours = group(topics, sink)
    members = [ours.start()]
    ours.await_notice(members[0], f"has {PARTITIONS} of {PARTITIONS} parts")
    for number in chance.sample([None, signal.SIGTERM, signal.SIGKILL], 3):
        newcomer = ours.start()
        ours.await_notice(newcomer, f"of {PARTITIONS} parts")
        members.append(newcomer)
        if number is not None:
            time.sleep(chance.random() * 0.3)
            leaver = members.pop(chance.randrange(len(members)))
            leaver.send_signal(number)
            leaver.communicate(timeout=PATIENCE_S)
            assert leaver.returncode == (0 if number == signal.SIGTERM else -number), (
                ours.stderr_of(leaver)
            )
    load.finish()
    produce(broker, ends(topics))
    for member in members:
        ours.finish(member)
    assert ours.total()["kafka"]["messages"] == len(lines) + 8
    wanted = ids(ketal.compile(FORKS), lines, tmp_path)
    verdicts = committed(broker, sink, least=len(wanted))
    assert sorted(v["id"] for v in verdicts) == wanted


def test_state_is_restored_from_the_changelog(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """Records in several pieces are joined, and uncommitted messages of the topic are ignored."""
    program = ketal.compile(FORKS)
    source, sink = topic(PARTITIONS), topic()
    job = shared(
        broker, [source], tmp_path, verdicts=Target("kafka", sink),
        limits=ketal.Limits(message_bytes_max=60),
    )  # fmt: skip
    firsts = [(source, h % PARTITIONS, accept("a", h, h)) for h in range(1, 9)]
    produce(broker, firsts)
    recorder = HookRecorder()
    first = run(job, program, recorder)
    assert any(f"has 4 of {PARTITIONS} parts: 0, 1, 2, 3" in notice for notice in recorder.notices)
    torn = clients.make_producer(job, "somebody-else")
    torn.begin_transaction()
    torn.send(job.store.name, key=b"0/torn", value=b"?", partition=0).get(timeout=60)
    torn.abort_transaction()
    clients.close_producer(torn)
    produce(broker, [(source, h % PARTITIONS, accept("b", h, h)) for h in range(1, 9)])
    second = run(job, program)
    assert first.summary is not None
    assert first.summary["events"]["accepted"] == 8
    assert second.summary is not None
    assert second.summary["kafka"]["messages"] == 16
    lines = [accept(node, h, h) for node in "ab" for h in range(1, 9)]
    wanted = [v["id"] for v in expected(program, lines, tmp_path)]
    verdicts = committed(broker, sink, least=len(wanted))
    # A verdict longer than a message may be is replaced by an overflow with the match's id.
    assert sorted(v["id"] for v in verdicts) == sorted(wanted)
    loaded = changelog.load(job, range(PARTITIONS), lambda: False)
    assert all(len(one.keys) > len(one.segments) > 0 for one in loaded.values())


def test_part_does_not_wait_for_events_of_other_parts_once_a_node_has_left(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Also after it was restored; a single consumer waits for the past of each event."""
    source, leave = topic(PARTITIONS), b'{"type": "ketal.leave", "node": "a"}'
    job, counts = shared(broker, [source], tmp_path), []
    for events in ([accept("a"), leave, accept("b", 4)], [accept("c", 7)]):
        produce(broker, [(source, 1, event) for event in events])
        summary = run(job, ketal.compile(FORKS)).summary
        assert summary is not None
        counts.append((summary["patterns"]["Forks"]["matches"], summary["doubtful"]))
        assert summary["events"]["held_back"] == 0
    assert counts == [(1, 1), (3, 2)]


def test_scope_in_two_partitions_is_a_setting_error(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Also if an earlier process has read one of the two partitions."""
    source = topic(PARTITIONS)
    produce(broker, [(source, 1, accept("a", 1, 7))])
    job = shared(broker, [source], tmp_path)
    run(job, ketal.compile(FORKS))
    produce(broker, [(source, 3, accept("c", 1, 7))])
    for _ in range(2):
        with pytest.raises(SettingError, match=f"{source}/3/0: .* in partition 3 and in .* 1:"):
            run(job, ketal.compile(FORKS))


def test_source_or_state_topics_with_wrong_settings_are_refused(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    program = ketal.compile(FORKS)
    four, three = topic(4), topic(3)
    with pytest.raises(
        SettingError, match=f"different numbers of partitions .*{four} has 4, {three} has 3"
    ):
        run(shared(broker, [four, three], tmp_path), program)
    for state, message in (
        ("nowhere", "the topic nowhere does not exist"),
        (
            compacted(broker, 3),
            "has 3 partitions, but the input topics have 4: use a topic with 4\n  hint: if "
            "partitions were added to the input topics, use another group_id too",
        ),
        (topic(4), "cleanup.policy=delete"),
        (make_topic(broker, 4, "compact,delete"), "=compact,delete"),
    ):
        with pytest.raises(SettingError, match=message):
            run(shared(broker, [four], tmp_path, state), program)


def test_foreign_state_is_refused_and_discarded_by_fresh(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The state may be of another group, other offsets or another program."""
    program = ketal.compile(FORKS)
    source, sink = topic(PARTITIONS), topic()
    produce(broker, [(source, 0, accept("a", 1, 4))])
    job = shared(broker, [source], tmp_path, verdicts=Target("kafka", sink))
    run(job, program)
    with pytest.raises(
        StateError, match=r"the state belongs to another group(.|\n)*--on-change fresh"
    ):
        run(shared(broker, [source], tmp_path, job.store.name, group_id=f"{source}-2"), program)
    other = ketal.compile(FORKS.replace("hash != First.hash", "true"))
    with pytest.raises(StateError, match="another program"):
        run(job, other)
    with pytest.raises(SettingError, match="state elsewhere"):
        run(job_of(broker, [source], tmp_path, until_end=True), program)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        loaded = changelog.load(job, [0], lambda: False)[0]
        number = max(loaded.segments) + 1
        saved = {
            "counts": {"messages": 1, "control": 0},
            "watermarks": {"marks": [], "ended": [], "watermark": None},
            "offsets": [(source, 0, 99)],
        }
        segment = msgspec.msgpack.encode({PROGRESS: encode_record(saved)})
        producer.send(
            job.store.name, key=b"%d/0" % number, value=segment, partition=0,
            headers=headers(loaded.commit),
        )  # fmt: skip
    with pytest.raises(
        StateError, match=f"offset 99 of {source}/0, but the group continues at offset 1"
    ):
        run(job, program)
    produce(broker, [(source, 0, accept("b", 1, 4)), (source, 0, accept("c", 1, 4))])
    recorder = HookRecorder()
    run(replace(job, on_change="fresh"), program, recorder)
    assert any("part 0 starts over at the stored offsets" in notice for notice in recorder.notices)
    # Events before the change are not matched; events after it are not lost.
    run(job, program)
    assert [v["events"] for v in committed(broker, sink, least=1)] == [["b@1", "c@1"]]


@pytest.mark.parametrize(
    (("key", "headers", "message")),
    [
        (b"somebody's", [], "not a state of ketal: a state topic belongs to one job"),
        (b"99/0", headers("c", pieces=2), "damaged: piece 1 of segment 99 is missing"),
        (b"99/0", headers("c"), r"damaged: segment \d is missing"),
        (
            b"0/0",
            [*headers("c")[1:], ("format", b"1")],
            "has format 1; this version reads format 2",
        ),
    ],
)
def test_unreadable_changelog_is_refused_and_discarded_by_fresh(
    key: bytes, headers: list[tuple[str, bytes]], message: str,
    broker: Broker, topic: Topic, tmp_path: Path,
) -> None:  # fmt: skip
    """The first commit of `fresh` deletes foreign messages."""
    program, source = ketal.compile(FORKS), topic(PARTITIONS)
    produce(broker, [(source, 0, accept("a", 1, 4))])
    job = shared(broker, [source], tmp_path)
    run(job, program)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(job.store.name, key=key, value=b"?", headers=headers, partition=0)
    with pytest.raises(StateError, match=f"{message}(.|\n)*hint: use --on-change fresh"):
        run(job, program)
    recorder = HookRecorder()
    run(replace(job, on_change="fresh"), program, recorder)
    assert any("part 0 starts over at the stored offsets" in notice for notice in recorder.notices)
    run(job, program)


def test_commit_by_another_consumer_while_state_is_read_is_no_state_error(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another consumer commits between the reads of offsets and state; the next session works."""
    program, source, recorder = ketal.compile(FORKS), topic(PARTITIONS), HookRecorder()
    job, first = shared(broker, [source], tmp_path), TopicPartition(source, 0)
    run(job, program)
    loads = []

    def load(*given: Any, **options: Any) -> Any:
        loads.append(given)
        if len(loads) == 1:
            reader, predecessor = (
                clients.make_consumer(job),
                clients.make_producer(job, "predecessor"),
            )
            held = reader.committed(first, metadata=True)
            metadata = json.dumps({**json.loads(held.metadata), "commit": "later"})
            predecessor.begin_transaction()
            number = max(changelog.load(job, [0], lambda: False)[0].segments) + 1
            predecessor.send(
                job.store.name, key=b"%d/0" % number, value=msgspec.msgpack.encode({}), partition=0,
                headers=headers("later"),
            )  # fmt: skip
            offsets = {first: OffsetAndMetadata(held.offset, metadata, -1)}
            predecessor.send_offsets_to_transaction(offsets, job.group_id)
            predecessor.commit_transaction()
            clients.close_producer(predecessor)
            clients.close_consumer(reader)
        return changelog.load(*given, **options)

    monkeypatch.setattr("ketal.streaming.kafka.state.storage.load", load)
    engine = run(job, program, recorder)
    assert (len(loads), engine.figures.restarts) == (2, 1)
    assert any(
        "committed while this consumer read the state" in notice for notice in recorder.notices
    )


def test_group_is_joined_once(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python joins again when it gets its first metadata, if it has joined before."""
    job, assignments = shared(broker, [topic(PARTITIONS)], tmp_path), []
    assign = GroupSession.on_partitions_assigned

    def count(self: GroupSession, assigned: Any) -> None:
        assignments.append(assigned)
        assign(self, assigned)

    monkeypatch.setattr(GroupSession, "on_partitions_assigned", count)
    for _ in range(3):  # The first time Kafka may take longer to name the group's coordinator.
        run(job, ketal.compile(FORKS))
    assert len(assignments) == 3


def test_consumer_stays_in_the_group_while_it_reads_a_large_state(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading takes longer than `max_poll_interval_ms`."""
    program, source = ketal.compile(FORKS), topic(PARTITIONS)
    patience_ms = 12_000  # A busy machine may not run it for seconds.
    job = shared(
        broker, [source], tmp_path, lost_after_ms=0,
        properties={"max_poll_interval_ms": patience_ms},
    )  # fmt: skip

    def load(job: Job, numbers: Any, stopping: Callable[[], bool], **options: Any) -> Any:
        until_s = time.monotonic() + 1.25 * patience_ms / 1e3
        while time.monotonic() < until_s:
            assert not stopping()
            time.sleep(0.05)
        return changelog.load(job, numbers, stopping, **options)

    monkeypatch.setattr("ketal.streaming.kafka.state.storage.load", load)
    recorder = HookRecorder()
    engine = run(job, program, recorder)
    assert engine.figures.restarts == 0
    assert recorder.notices == [f"has 4 of {PARTITIONS} parts: 0, 1, 2, 3"]


def test_consumer_without_parts_does_not_report_an_empty_topic(
    broker: Broker, topic: Topic, group: MakeGroup
) -> None:
    source, sink = topic(), topic()
    ours = group((source,), sink, 1)
    working = ours.start()
    ours.await_notice(working, "has 1 of 1 parts")
    produce(broker, [(source, 0, line) for _, line in pairs(range(1, 6))])
    # One of all consumers has the part.
    idle = [ours.start("--until-end") for _ in range(sample(2, 3))]
    for member in idle:
        ours.finish(member)
        assert "no event was read" not in ours.stderr_of(member)
    produce(broker, [(source, 0, END)])
    assert ours.finish(working)["kafka"]["messages"] > 0


def test_consumer_of_some_parts_does_not_report_an_empty_topic(
    broker: Broker, topic: Topic, group: MakeGroup
) -> None:
    source, sink = topic(2), topic()
    ours = group((source,), sink, 2)
    working = ours.start()
    ours.await_notice(working, "has 2 of 2 parts")
    other = ours.start("--until-end")
    assert ours.finish(other)["events"]["read"] == 0
    assert "has 1 of 2 parts" in ours.stderr_of(other)
    assert "no event was read" not in ours.stderr_of(other)
    produce(broker, [(source, number, b"no event") for number in range(2)])
    refusing = ours.start("--until-end")
    refusing.communicate(timeout=PATIENCE_S)
    assert "has 1 of 2 parts" in ours.stderr_of(refusing)
    assert "no event was read: 1 record was rejected" in ours.stderr_of(refusing)
    assert refusing.returncode == 2
    produce(broker, [(source, number, END) for number in range(2)])
    ours.finish(working)


def test_consumer_evicted_from_its_group_repeats_no_verdict(
    broker: Broker, topic: Topic, group: MakeGroup, tmp_path: Path
) -> None:
    """It is suspended until others own its parts; once resumed it rejoins the group."""
    topics, sink = (topic(PARTITIONS),), topic()
    lines = pairs(range(1, HEIGHTS))
    load = Load(broker, keyed(lines, topics, seed=5))
    load.start()
    ours = group(topics, sink)
    zombie = ours.start()
    ours.await_notice(zombie, f"has {PARTITIONS} of {PARTITIONS} parts")
    zombie.send_signal(signal.SIGSTOP)
    successor = ours.start()
    ours.await_notice(successor, f"has {PARTITIONS} of {PARTITIONS} parts")
    zombie.send_signal(signal.SIGCONT)
    load.finish()
    produce(broker, ends(topics))
    for member in (successor, zombie):
        ours.finish(member)
    wanted = ids(ketal.compile(FORKS), lines, tmp_path)
    verdicts = committed(broker, sink, least=len(wanted))
    assert sorted(v["id"] for v in verdicts) == wanted


def test_partition_paused_with_fetched_messages_is_read_after_resume(
    broker: Broker, topic: Topic
) -> None:
    """The client buffers these messages, and fetches no others while they are buffered."""
    source = topic(2)
    one, other = TopicPartition(source, 0), TopicPartition(source, 1)
    produce(broker, [(source, n, str(count).encode()) for n in (0, 1) for count in range(20)])
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False)
    consumer.assign([one, other])
    consumer.seek_to_beginning(one, other)
    until_s = time.monotonic() + PATIENCE_S

    def read(partition: TopicPartition, count: int) -> None:
        while count > 0 and time.monotonic() < until_s:
            clients.return_parked_records(consumer)
            count -= len(consumer.poll(timeout_ms=100, max_records=5).get(partition, ()))
        assert count <= 0

    consumer.pause(other)
    read(one, 5)
    consumer.pause(one)
    consumer.resume(other)
    read(other, 20)
    consumer.seek(one, 0)
    consumer.resume(one)
    read(one, 20)
    consumer.close()


def test_consumer_that_fell_out_of_its_group_commits_nothing(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stalls after judging, and another consumer gets its part before it commits."""
    source, sink = topic(), topic()
    lines = pairs(range(1, 6))
    produce(broker, [(source, 0, line) for _, line in lines])
    wanted = ids(ketal.compile(FORKS), lines, tmp_path)
    job = shared(
        broker, [source], tmp_path, compacted(broker, 1), until_end=False,
        verdicts=Target("kafka", sink), properties={"max_poll_interval_ms": 2_000},
    )  # fmt: skip
    stands, goes_on = threading.Event(), threading.Event()
    take = Part.process

    def judge(self: Part, *given: Any) -> int:
        taken = take(self, *given)
        if threading.current_thread() is slow.thread and not stands.is_set():
            stands.set()
            assert goes_on.wait(PATIENCE_S)
        return taken

    monkeypatch.setattr(Part, "process", judge)
    slow, other = Consumer(job), Consumer(replace(job, rejected=job.verdicts))
    with slow, other:
        slow.thread.start()
        assert stands.wait(PATIENCE_S)
        other.thread.start()
        committed(broker, sink, least=len(wanted))
        goes_on.set()
        slow.await_notice(2, "parts: ")
    assert slow.engine.figures.restarts == 1
    assert any("(CommitFailedError" in notice for notice in slow.recorder.notices)
    verdicts = committed(broker, sink, least=len(wanted))
    assert sorted(v["id"] for v in verdicts) == wanted


class Consumer:
    """A job's engine, on a thread."""

    def __init__(self, job: Job) -> None:
        self.recorder = HookRecorder()
        self.engine = ProcessEngine(job, ketal.compile(FORKS), self.recorder.hooks())
        self.thread = threading.Thread(target=self.engine.run, daemon=True)

    def await_notice(self, times: int, what: str) -> None:
        """Wait until `times` notices contain a text."""
        until_s = time.monotonic() + PATIENCE_S
        while sum(what in notice for notice in self.recorder.notices) < times:
            assert self.thread.is_alive(), self.recorder.notices
            assert time.monotonic() < until_s, self.recorder.notices
            time.sleep(0.02)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()
        if self.thread.ident is not None:
            self.thread.join(PATIENCE_S)


class Stranger(threading.Thread):
    """Another member of a job's consumer group that is not a `ketal stream`."""

    def __init__(self, job: Job, topics: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._topics = topics
        self._over = threading.Event()

    def run(self) -> None:
        consumer = clients.make_consumer(replace(self._job, start="earliest"))
        consumer.subscribe(self._topics, listener=Heedless(consumer))
        while not self._over.is_set():
            consumer.poll(timeout_ms=50)
        clients.close_consumer(consumer)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def __enter__(self) -> Stranger:
        self.start()
        return self


class Heedless(ConsumerRebalanceListener):  # type: ignore[misc]
    """Pauses each partition that its consumer is assigned."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        clients.keep_joining(self._consumer)

    def on_partitions_assigned(self, assigned: Any) -> None:
        for one in assigned:
            self._consumer.pause(one)
            self._consumer.seek(one, 0)


def test_part_assigned_with_a_topic_missing_is_refused(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member of the group subscribes to one of the topics only."""
    one, other = topic(PARTITIONS), topic(PARTITIONS)
    monkeypatch.setattr("ketal.streaming.kafka.group_session.SETTLE_S", 1.0)
    job = shared(broker, [one, other], tmp_path, until_end=False)
    with (
        Stranger(job, [one]),
        pytest.raises(SettingError, match=r"part \d to this consumer without topic-"),
    ):
        run(job, ketal.compile(FORKS))


def test_member_whose_parts_are_revoked_keeps_rejoining(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python may forget to rejoin; the member would then never be assigned a part."""
    job = shared(broker, [topic(PARTITIONS)], tmp_path)
    hooks = HookRecorder().hooks()
    session = new_session(ProcessEngine(job, ketal.compile(FORKS), hooks), Outputs(job, hooks))
    assert isinstance(session, GroupSession)
    try:
        session.begin()
        while not session.parts:
            session._poll(100)
        coordinator = session.connection.consumer._coordinator
        for give_up in (session.on_partitions_revoked, session.on_partitions_lost):
            coordinator.rejoin_needed = False
            give_up(())
            assert session.listener_fault is None
            assert coordinator.rejoin_needed
            assert session.parts == []
    finally:
        session.close()


def test_failed_commit_on_revocation_ends_the_job(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The rebalance listener commits on another thread; nothing gets committed."""
    source = topic(PARTITIONS)
    job = shared(
        broker, [source], tmp_path, until_end=False, commit_interval_ms=10**9,
        verdicts=Target("file", "/dev/full"),
    )  # fmt: skip
    produce(broker, [(source, 1, accept("a", 1)), (source, 1, accept("b", 1))])
    stranger = Stranger(job, [source])

    def look(figures: Any) -> None:
        if figures.consumed == 2 and not stranger.is_alive():
            stranger.start()

    engine = ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks(look))
    with pytest.raises(SettingError, match="cannot write /dev/full"):
        engine.run()
    stranger.__exit__()
    done = run(replace(job, until_end=True, verdicts=job.rejected), ketal.compile(FORKS))
    assert done.summary is not None
    assert done.summary["patterns"]["Forks"]["matches"] == 1


# --- without a broker ---


def job(**options: Any) -> Job:
    given: dict[str, Any] = {
        "store": Target("kafka", "state"),
        "source": Source(keyed_by="height"),
        **options,
    }
    return Job(pattern="p", topics=["t"], bootstrap_servers="b", group_id="g", **given)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("partition by height;", "", "is not partitioned"),
        ("partition by height;", "partition by hash;", "set keyed_by = 'hash'"),
        ("order CausalOrder;", "order CausalOrder(total);", None),
        ("find any", "find next", "waits for each node's counters, but a part sees"),
        ("First Second;", "First Second; limit 3;", "lists the first 3 matches of all scopes"),
        ("First Second;", "First Second; within 9 events;", "because of `within … events`"),
        ("First Second;", "First not Accept Second;", "`find any` without `not`, or"),
        ("partition by height;", "partition by hash, height;", None),
    ],
)
def test_program_that_consumers_cannot_share_is_refused(
    old: str, new: str, message: str | None
) -> None:
    assert old in FORKS
    program = ketal.compile(FORKS.replace(old, new))
    check_shareable(job(store=Target("dir")), program)
    if message is None:
        check_shareable(job(), program)
        return
    with pytest.raises(SettingError, match=message) as caught:
        check_shareable(job(), program)
    assert "one consumer reads all partitions" in str(caught.value)


def test_dry_run_prints_which_consumers_read_the_topics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Kafka: jobs that several consumers may share, and jobs that they may not."""

    def planned(keyed_by: str, store: str, code: int = 0) -> str:
        text = TOML.format(servers="b:1", group="g", topics='"t"', sink="s", state="x")
        text = text.replace('"height"', f'"{keyed_by}"').replace("kafka:x", store)
        (tmp_path / "job.toml").write_text(text)
        assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    (tmp_path / "forks.ketal").write_text(FORKS)
    assert "one of several consumers, at most as many as a topic has partitions" in planned(
        "height", "kafka:x"
    )
    assert "in the consumer that reads the partitions of its height" in planned("height", "kafka:x")
    assert "several consumers could share them" in planned("height", "dir:x")
    assert "several consumers could share them" not in planned("hash", "dir:x")
    assert "set keyed_by = 'height'" in planned("hash", "kafka:x", code=2)
    arrival = "takes events in the order in which they are consumed"
    (tmp_path / "forks.ketal").write_text(
        FORKS.replace("order CausalOrder;", "").replace("Conc(Accept)", "Accept")
    )
    assert arrival in planned("height", "dir:x")
    assert arrival not in planned("height", "kafka:x")


@pytest.mark.parametrize(
    ("order", "whole", "divided"),
    [
        ("CausalOrder", "waits for its past", "counts as doubtful if its clock may be incomplete"),
        ("CausalOrder(frontier = 1 s)", "waits for time", "waits for time"),
    ],
)
def test_plan_says_what_events_wait_for_once_a_node_has_left(
    order: str, whole: str, divided: str
) -> None:
    program = ketal.compile(FORKS.replace("CausalOrder", order))
    in_groups = replace(job(store=Target("dir")), engine="spark")
    for one, then in (
        (job(), divided),
        (in_groups, divided),
        (job(store=Target("dir")), whole),
        (replace(in_groups, key_groups=1), whole),
    ):
        (line,) = [line for line in plan.lines(one, program) if "order:" in line]
        assert line.endswith(f"once a node has left or restarted, an event {then}")


def test_watch_evicts_the_oldest_key_value() -> None:
    def at(height: Any, number: int) -> None:
        event = Event(node="n", type="accept", clock={"n": 1}, data={"height": height})
        watch.check([event], number, "t/{}".format)

    watch = PartitionCheck(job(limits=ketal.Limits(placed_max=2)), ketal.compile(FORKS))
    at(1, 0)
    at(True, 1)
    at(1.0, 0)
    with pytest.raises(SettingError, match="height = True is in partition 2 and in partition 1"):
        at(True, 2)
    at("x", 3)
    at(1, 2)


def test_watch_error_names_the_place_of_the_event() -> None:
    watch = PartitionCheck(job(), ketal.compile(FORKS))
    heights = [1, 2, None, 3]
    events = [
        Event(node="n", type="accept", clock={"n": 1}, data={"height": height})
        for height in heights
    ]
    watch.check(events[1:3], 0, "t/0/{}".format)
    with pytest.raises(SettingError, match="t/1/1: the scope height = 2 is in partition 1 and in"):
        watch.check(events, 1, "t/1/{}".format)


class CompactedTopic:
    """Keeps the last message of each key, as a compacted topic does."""

    def __init__(self) -> None:
        self.pieces: changelog.Compacted = {}

    def send(self, topic: str, **message: Any) -> None:
        self.pieces.pop(message["key"], None)
        if message["value"] is not None:
            self.pieces[message["key"]] = SimpleNamespace(topic=topic, offset=0, **message)

    def load(self) -> Loaded:
        return changelog.assemble_messages(job(), 0, self.pieces)


def store(bytes_max: int = 50) -> Changelog:
    return Changelog(job(limits=ketal.Limits(message_bytes_max=bytes_max)), 0, 4)


def test_commit_is_sent_once_in_pieces_of_at_most_a_message() -> None:
    changelog_store, compacted_topic = store(), CompactedTopic()
    for value in (b"x" * 101, b"", b"y" * 51, None):
        name = changelog_store.write({b"a/b": value})
        assert changelog_store.send(compacted_topic)
        changelog_store.mark_committed()
        assert changelog_store.send(compacted_topic) == []
        assert all(len(piece.value) <= 50 for piece in compacted_topic.pieces.values())
        assert store().restore(compacted_topic.load(), [name]).get(b"a/b") == value


def test_discarded_changelog_is_empty() -> None:
    changelog_store, compacted_topic = store(), CompactedTopic()
    changelog_store.write({b"a": b"x" * 200})
    changelog_store.send(compacted_topic)
    compacted_topic.send("state", key=b"somebody's", value=b"?", headers=[], partition=0)
    assert compacted_topic.load().fault is not None
    other = store()
    other.discard(compacted_topic.load())
    name = other.write({b"b": b"1"})
    other.send(compacted_topic)
    assert store().restore(compacted_topic.load(), [name]).keys() == {b"b", changelog.PARTS}


def test_state_of_another_commit_than_the_committed_one_is_refused() -> None:
    """The offsets may be equal, if a commit has advanced only time."""
    changelog_store, compacted_topic = store(), CompactedTopic()
    name = changelog_store.write({b"a": b"1"})
    changelog_store.send(compacted_topic)
    loaded = compacted_topic.load()
    assert store().restore(loaded, ["older", name])[b"a"] == b"1"
    with pytest.raises(StateError, match=f"is of commit {name}, but the last commit is later"):
        store().restore(loaded, ["later"])


@pytest.mark.parametrize("header", ["format", "pieces", "first", "commit"])
def test_message_with_an_empty_header_is_no_state(header: str) -> None:
    changelog_store, compacted_topic = store(), CompactedTopic()
    changelog_store.write({b"a": b"1"})
    changelog_store.send(compacted_topic)
    for piece in compacted_topic.pieces.values():
        piece.headers = [(name, None if name == header else value) for name, value in piece.headers]
    with pytest.raises(StateError, match="is not a state of ketal"):
        store().restore(compacted_topic.load(), [""])


@pytest.mark.parametrize(
    "parts",
    [
        *("4", "[4]", '{"parts": [4]}', '{"parts": "x"}', '{"parts": null}', "[" * 10_000),
        *('{"parts": Infinity}', '{"parts": 4.5}'),
    ],
    ids=["no object", "a list", "a list of one", "text", "null", "nested", "infinite", "a half"],
)
def test_damaged_number_of_parts_is_reported(parts: str) -> None:
    compacted_topic, segments = CompactedTopic(), Segments(100_000)
    ((number, content),) = segments.append({b"a": b"1", changelog.PARTS: parts.encode()}).items()
    headers = [("format", b"2"), ("pieces", b"1"), ("first", b"0"), ("commit", b"c")]
    key = b"%d/0" % number
    compacted_topic.send("state", key=key, value=content, headers=headers, partition=0)
    with pytest.raises(StateError, match=r"partition 0 of the state topic \S+ is damaged: "):
        store().restore(compacted_topic.load(), ["c"])


def test_missing_segment_or_piece_is_damage() -> None:
    """If the whole newest segment is missing, the state's offsets are older than the group's."""
    changelog_store, compacted_topic = store(), CompactedTopic()
    for number in range(3):
        changelog_store.write({b"a": b"x" * 60, b"%d" % number: b"1"})
        changelog_store.send(compacted_topic)
    whole = dict(compacted_topic.pieces)
    newest = max(int(key.split(b"/")[0]) for key in whole)
    for key in whole:
        compacted_topic.pieces = {k: piece for k, piece in whole.items() if k != key}
        segment, piece = map(int, key.split(b"/"))
        if segment < newest:
            message = f"(piece {piece} of )?segment {segment} is missing"
            assert re.search(message, str(compacted_topic.load().fault))
