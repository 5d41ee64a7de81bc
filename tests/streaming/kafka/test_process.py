"""The process engine against a real broker: the verdicts of `ketal.run`, every message counted."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource

import ketal
from ketal.cli import main
from ketal.errors import LostError, SettingError, StateError
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka import job_session as sessions
from ketal.streaming.kafka.connecting import client_errors, clients
from ketal.streaming.kafka.process_engine import ProcessEngine, new_session
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import (
    END,
    FORKS,
    WINDOWED_FORKS,
    HookRecorder,
    Topic,
    accept,
    committed,
    expire,
    job_of,
    produce,
    recreate,
    run,
    written,
)
from tests.test_corpus import CORPUS, Case


def test_verdicts_of_one_partition_are_written_in_the_order_of_a_file(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """`test_five_ways` compares the other corpus cases, without regard to order."""
    case, one = Case("find_next"), topic()
    lines = (CORPUS / "find_next" / "events.jsonl").read_bytes().splitlines()
    produce(broker, [(one, 0, line) for line in [*lines, END]])
    run(job_of(broker, [one], tmp_path), case.program)
    assert len(case.verdicts) > 1
    assert written(tmp_path / "verdicts.jsonl") == case.verdicts


def test_restarted_job_resumes_its_runs(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """A match after the restart has an event from before it."""
    program = ketal.compile(FORKS)
    source, sink = topic(2), topic()
    job = job_of(
        broker, [source], tmp_path, verdicts=Target("kafka", sink), rejected=Target("kafka", sink),
        until_end=True,
    )  # fmt: skip
    produce(broker, [(source, 0, accept("a", 1)), (source, 1, b"poison")])
    first = run(job, program)
    produce(broker, [(source, 1, accept("b", 1)), (source, 0, accept("a", 1))])
    second = run(job, program)
    run(job, program)
    verdicts = committed(broker, sink, least=2)
    assert [v["verdict"] for v in verdicts] == ["rejected", "match"]
    assert verdicts[0]["place"] == f"{source}/1/0"
    assert verdicts[1]["events"] == ["a@1", "b@1"]
    assert first.summary is not None
    assert first.summary["events"]["accepted"] == 1
    assert second.summary is not None
    assert second.summary["events"] == {
        "read": 4, "accepted": 2, "duplicates": 1, "rejected": 1, "late": 0, "held_back": 0,
        "overflow": 0,
    }  # fmt: skip
    assert second.summary["kafka"] == {"messages": 4, "control": 0}
    assert len(list((tmp_path / "state").glob("*.sqlite"))) == 2


def test_windows_end_by_the_watermark_of_all_partitions(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A slow partition holds the watermark back until a control event advances it."""
    program = ketal.compile(WINDOWED_FORKS)
    source = topic(2)
    job = job_of(broker, [source], tmp_path, lateness_ms=1_000, until_end=True)
    produce(broker, [(source, 0, accept("a", 1, time=100)), (source, 0, accept("a", 2, time=200))])
    run(job, program)
    assert written(tmp_path / "verdicts.jsonl") == []
    produce(broker, [(source, 1, b'{"type": "ketal.watermark", "time": 150}')])
    engine = run(job, program)
    timed_out = written(tmp_path / "verdicts.jsonl")
    assert [v["bindings"] for v in timed_out] == [{"First": ["a@1"]}]
    produce(broker, [(source, 1, accept("b", 1, time=149))])
    engine = run(job, program)
    assert engine.summary is not None
    assert engine.summary["events"]["late"] == 1


def test_key_and_headers_of_a_message_can_be_fields(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source = topic()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for node in (b"a", b"b"):
            headers = [("vc", b"%s:1" % node), ("noise", b"\xff")]
            value = b'{"kind": "accept", "height": 1, "hash": "%s"}' % node
            producer.send(source, value, key=node, headers=headers)
        producer.send(source, b'{"kind": "accept"}', key=b"\xff", headers=[("vc", b"a:2")])
        producer.send(source, b'{"kind": "accept"}', key=b"a")
        producer.send(source, None, key=b"a")
    fields = {"node": "kafka.key", "clock": "kafka.header.vc", "type": "kind"}
    job = job_of(
        broker, [source], tmp_path, source=ketal.logs.Source(fields=fields), until_end=True
    )
    run(job, ketal.compile(FORKS))
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]]
    rejected = written(tmp_path / "rejected.jsonl")
    assert [(v["place"], v["reason"].split(" (")[0]) for v in rejected] == [
        (f"{source}/0/2", "the message's key is not valid UTF-8"),
        (f"{source}/0/3", "the record has no clock at kafka.header.vc"),
        (f"{source}/0/4", "the message has no value"),
    ]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_kafka_timestamp_of_a_message_can_be_the_time_of_its_event(
    unit: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Whatever unit times have; the window ends by this time."""
    source = topic()
    stamps = (1_700_000_000_250, 1_700_000_030_750)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for counter, stamp in enumerate(stamps, start=1):
            producer.send(source, accept("a", counter), timestamp_ms=stamp)
    given = ketal.logs.Source(fields={"time": "kafka.timestamp"}, time_unit=unit)
    job = job_of(broker, [source], tmp_path, source=given, lateness_ms=0, until_end=True)
    run(job, ketal.compile(WINDOWED_FORKS))
    (verdict,) = written(tmp_path / "verdicts.jsonl")
    assert verdict["verdict"] == "timed_out"
    assert verdict["time"] == "2023-11-14T22:13:20.25Z"


def test_job_with_a_changed_pattern_stops_or_starts_fresh(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source = topic()
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, ketal.compile(FORKS))
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    other = ketal.compile(FORKS.replace("hash != First.hash", "true"))
    with pytest.raises(StateError, match=r"another program.*steps\n.*fresh to continue at the"):
        run(job, other)
    recorder = HookRecorder()
    run(job_of(broker, [source], tmp_path, until_end=True, on_change="fresh"), other, recorder)
    assert any("continuing without the unfinished runs" in one for one in recorder.notices)
    # Events before the change are not matched; events after it are not lost.
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["b@1", "c@1"]]
    # `fresh` has no effect if nothing changed.
    produce(broker, [(source, 0, accept("d", 1))])
    run(job_of(broker, [source], tmp_path, until_end=True, on_change="fresh"), other)
    assert len(written(tmp_path / "verdicts.jsonl")) == 3


def test_job_without_a_named_group_prints_the_group_it_uses(
    broker: Broker,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The next start of the same job resumes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    source = topic()
    pattern = tmp_path / f"{source}.ketal"
    pattern.write_text(FORKS)
    flags = ["-b", broker.bootstrap_servers, "--input", source, "--to", "file:/dev/null"]
    start = ["stream", str(pattern), *flags, "--until-end"]
    for _ in range(2):
        assert main(start) == 2
        stderr = capsys.readouterr().err
        assert f"the consumer group is {source}, the name of the pattern file" in stderr
        assert f"no event was read: there are no new events in {source}" in stderr
    assert main([*start, "--group-id", f"named-{source}"]) == 2
    assert "the consumer group is" not in capsys.readouterr().err


def test_missing_or_damaged_state_is_an_error_instead_of_a_fresh_start(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    newest = max((tmp_path / "state").glob("*.sqlite"))
    content = newest.read_bytes()
    # Half of the file is cut off, since the end of the last page may be blank.
    newest.write_bytes(content[: len(content) // 2])
    with pytest.raises(StateError, match="damaged"):
        run(job, program)
    newest.unlink()
    with pytest.raises(StateError, match="restore that folder") as caught:
        run(job, program)
    assert "--on-change fresh" in str(caught.value)
    assert "drain" not in str(caught.value), "there is nothing to drain"
    newest.write_bytes(content)
    run(job, program)


def test_expired_offsets_are_an_error_instead_of_a_fresh_start(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The folder records that there was a commit; only `fresh` reports all verdicts again."""
    source, program, recorder = topic(), ketal.compile(FORKS), HookRecorder()
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_groups([job.group_id])
    hint = r"hint: use another \[state\] store(.|\n)*--on-change fresh to discard it"
    with pytest.raises(StateError, match=rf"has no offsets (.|\n)*{hint}"):
        run(job, program)
    assert len(written(tmp_path / "verdicts.jsonl")) == 1
    run(replace(job, on_change="fresh"), program, recorder)
    assert any("starting over at the earliest messages" in notice for notice in recorder.notices)
    first, again = written(tmp_path / "verdicts.jsonl")
    assert first["id"] == again["id"]


def test_job_with_other_topics_or_group_does_not_touch_the_folder(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Jobs of one pattern file share its name, and so one folder, unless settings differ."""
    source, other, program = topic(), topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    for topics, group_id, message in (
        ([other], job.group_id, "give this job its own --group-id"),
        ([source], "another", f"the state of group {job.group_id}, but this job's group is anot"),
    ):
        with pytest.raises(SettingError, match=message):
            run(replace(job, topics=topics, group_id=group_id), program)
    produce(broker, [(source, 0, accept("b", 1))])
    run(replace(job, topics=[other, source]), program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]]


@pytest.mark.parametrize("how", ["folder", "topic", "consumers"])
def test_state_is_the_newest_of_all_topics_that_the_job_has_read(
    broker: Broker, topic: Topic, tmp_path: Path, how: str
) -> None:
    """A topic that is read again after another one was read alone."""
    first, second, program = topic(), topic(), ketal.compile(FORKS)
    job = job_of(
        broker, [first, second], tmp_path, until_end=True,
        **({} if how == "folder" else {"store": Target("kafka", make_topic(broker, 1, "compact"))}),
        **({"source": Source(keyed_by="height")} if how == "consumers" else {}),
    )  # fmt: skip
    for number, topics in enumerate(([first, second], [second], [first], [first, second]), 1):
        produce(broker, [(topics[-1], 0, accept("abcd"[number - 1], 1, height=number % 2))])
        engine = run(replace(job, topics=topics), program)
        assert engine.summary is not None
        assert engine.summary["kafka"]["messages"] == number
    matches = [v["events"] for v in written(tmp_path / "verdicts.jsonl")]
    assert matches == [["a@1", "c@1"], ["b@1", "d@1"]]


def test_recreated_topic_beside_others_is_a_state_error_that_says_so(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Kafka deletes the offsets of a topic with it; those of the others still name the state."""
    kept, recreated, program = topic(), topic(), ketal.compile(FORKS)
    produce(broker, [(name, 0, accept(node)) for name, node in ((kept, "a"), (recreated, "b"))])
    job = job_of(broker, [kept, recreated], tmp_path, until_end=True)
    run(job, program)
    recreate(broker, recreated)
    for _ in range(2):
        with pytest.raises(StateError) as caught:
            run(job, program)
        assert str(caught.value) == (
            f"the saved state is of offset 1 of {recreated}/0, but the group continues at offset 0 "
            "there: the state does not belong to the commit, or the topic was deleted and "
            "recreated, with its offsets\n  hint: use --on-change fresh to continue at the stored "
            "offsets without what cannot be restored, or another group_id, and another [state] "
            "store if one is set, to start over where [kafka] start says"
        )
    produce(broker, [(recreated, 0, accept("c")), (kept, 0, accept("d"))])
    run(replace(job, on_change="fresh"), program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [
        ["a@1", "b@1"],
        ["c@1", "d@1"],
    ]


def test_state_begun_anew_follows_that_of_topics_which_are_not_read_any_more(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The older state was deleted, and the commit of a topic still names it."""
    first, second, program = topic(), topic(), ketal.compile(FORKS)
    job = job_of(broker, [first, second], tmp_path, until_end=True)
    for counter in range(1, 4):
        produce(broker, [(first, 0, accept("a", counter))])
        run(job, program)
    for database in (tmp_path / "state").glob("*.sqlite"):
        database.unlink()
    less = replace(job, topics=[first])
    run(replace(less, on_change="fresh"), program)
    produce(broker, [(first, 0, accept("a", 4))])
    engine = run(less, program)
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 1


def test_messages_not_fetched_yet_count_as_unread(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A client knows the end of a partition after its first fetch; time must not advance before."""
    source = topic(2)
    produce(broker, [(source, 1, accept("a", 1)), (source, 1, accept("b", 1))])
    job = job_of(broker, [source], tmp_path)
    engine = ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    session = new_session(engine, Outputs(job, engine.hooks))
    try:
        session.begin()
        session._check_clock()
    finally:
        session.close()
    assert engine.figures.lag == {f"{source}/0": 0, f"{source}/1": 2}


def test_missing_topics_are_reported(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    program = ketal.compile(FORKS)
    with pytest.raises(SettingError, match="the topic nowhere does not exist"):
        run(job_of(broker, ["nowhere"], tmp_path), program)
    job = job_of(broker, [topic()], tmp_path, verdicts=Target("kafka", "nowhere"))
    with pytest.raises(SettingError, match="the topic nowhere does not exist"):
        run(job, program)


def test_messages_deleted_by_retention_are_a_state_error(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The group's next messages were deleted by retention: the job does not skip them silently."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    expire(broker, source, 2)
    with pytest.raises(StateError, match=f"no longer in the topic: {source}/0/1\n"):
        run(job, program)


def test_verdict_too_large_for_kafka_is_replaced_by_an_overflow(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, sink = topic(), topic()
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    job = job_of(
        broker, [source], tmp_path, until_end=True, verdicts=Target("kafka", sink),
        limits=ketal.Limits(message_bytes_max=100),
    )  # fmt: skip
    run(job, ketal.compile(FORKS))
    (verdict,) = committed(broker, sink, least=1)
    assert verdict["verdict"] == "overflow"
    assert verdict["limit"] == "message_bytes_max"
    assert len(verdict["id"]) == 32


def test_verdict_too_large_for_its_topic_ends_the_job_at_once(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python blocks in a call while a message of the transaction fails."""
    source, sink = topic(), topic()
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_configs([ConfigResource("TOPIC", sink, {"max.message.bytes": "100"})])
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    patience_ms = 600_000
    job = job_of(
        broker, [source], tmp_path, until_end=True, verdicts=Target("kafka", sink),
        call_timeout_ms=patience_ms,
    )  # fmt: skip
    began_s = time.monotonic()
    with pytest.raises(SettingError, match=f"too large: .*{sink}\n.*max.message.bytes"):
        run(job, ketal.compile(FORKS))
    assert time.monotonic() - began_s < patience_ms / 2e3


def test_start_at_latest_commits_its_first_offsets(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The first start commits the end offsets, so that a later start skips no message."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True, start="latest")
    run(job, program)
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    run(job, program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["b@1", "c@1"]]


def test_restart_after_the_end_reports_that_the_execution_has_ended(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    job = job_of(broker, [source], tmp_path)
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, END)])
    run(job, program)
    produce(broker, [(source, 0, accept("b", 1))])
    recorder = HookRecorder()
    again = run(job, program, recorder)
    (notice,) = recorder.notices
    assert notice.startswith("the execution has ended (ketal.end); use another group_id")
    assert again.summary is not None
    assert again.summary["kafka"] == {"messages": 2, "control": 1}


def test_added_partition_is_read_from_its_beginning(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the job started at `latest`: the partition's messages came later."""
    monkeypatch.setattr(sessions, "PARTITIONS_S", 0.1)
    source, program = topic(), ketal.compile(FORKS)
    job = job_of(
        broker, [source], tmp_path, start="latest", properties={"metadata_max_age_ms": 300}
    )
    done: list[str] = []

    def look(figures: Any) -> None:
        if not done:
            done.append("added")
            with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.create_partitions({source: 2})
            produce(broker, [(source, 1, accept("a", 1)), (source, 0, accept("b", 1))])
        elif figures.restarts and done == ["added"]:
            # The partition is known now: an execution ends when all known partitions have ended.
            done.append("ended")
            produce(broker, [(source, 0, END), (source, 1, END)])

    recorder = HookRecorder()
    ProcessEngine(job, program, recorder.hooks(look)).run()
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]]
    (notice,) = recorder.notices
    assert notice.startswith("the partitions of the topics have changed; resuming")


def test_fenced_producer_ends_without_harming_its_successor(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python would request a new epoch, and abort its successor's transaction."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path)
    recorder = HookRecorder()
    old = ProcessEngine(job, program, recorder.hooks(lambda figures: successor()))
    seen: list[ProcessEngine] = []

    def successor() -> None:
        if not seen:
            own = Target("file", str(tmp_path / "successor.jsonl"))
            given = job_of(broker, [source], tmp_path, until_end=True, verdicts=own, rejected=own)
            new = ProcessEngine(given, program, HookRecorder().hooks())
            seen.append(new)
            new.run()
            produce(broker, [(source, 0, accept("b", 1))])

    with pytest.raises(LostError, match="taken over"):
        old.run()
    run(job_of(broker, [source], tmp_path, until_end=True), program)
    ids = {v["id"] for v in written(tmp_path / "verdicts.jsonl")}
    assert len(ids) == 1


def test_errors_that_would_bump_a_producers_epoch_are_fatal(broker: Broker) -> None:
    """Private names of kafka-python may change: then this test fails, and so does every start."""
    import kafka

    assert kafka.__version__ == clients.TESTED_VERSION
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="private")
    try:
        manager = producer._transaction_manager
        for error in (
            kafka.errors.InvalidProducerEpochError,
            kafka.errors.OutOfOrderSequenceNumberError,
            kafka.errors.UnknownProducerIdError,
        ):
            assert manager.classify_batch_error(error, None) == "NEEDS_EPOCH_BUMP"
        clients.make_fencing_fatal(producer)
        for error in (
            kafka.errors.InvalidProducerEpochError,
            kafka.errors.OutOfOrderSequenceNumberError,
            kafka.errors.UnknownProducerIdError,
        ):
            assert manager.classify_batch_error(error, None) == "FATAL"
        producer._transaction_manager = None
        with pytest.raises(SettingError, match="kafka-python"):
            clients.make_fencing_fatal(producer)
        producer._transaction_manager = manager
    finally:
        clients.close_producer(producer)


def test_clients_reconnect_soon_after_the_broker_returns(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The default backoff grows to half a minute, during which no metric shows the lag."""
    job = job_of(broker, [topic()], tmp_path)
    consumer, producer = clients.make_consumer(job), clients.make_producer(job, "soon")
    try:
        waits_ms = {one.config["reconnect_backoff_max_ms"] for one in (consumer, producer)}
        assert waits_ms == {clients.RECONNECT_MS_MAX}
    finally:
        clients.close_consumer(consumer)
        clients.close_producer(producer)


def test_consumer_keeps_joining_its_group(broker: Broker, topic: Topic) -> None:
    """kafka-python stops joining if `poll` returns in between, unless its flag is set."""
    with pytest.raises(SettingError, match="kafka-python"):
        clients.keep_joining(object())
    name = topic()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"group-{name}")
    try:
        consumer.subscribe([name])
        coordinator = consumer._coordinator
        coordinator.rejoin_needed = False
        coordinator._joined_subscription = {name}
        assert not coordinator.need_rejoin()
        clients.keep_joining(consumer)
        assert coordinator.need_rejoin()
    finally:
        clients.close_consumer(consumer)


def test_setting_error_is_found_among_the_causes_of_an_error() -> None:
    from kafka import errors

    first, second = errors.KafkaError("first"), errors.KafkaError("second")
    first.__cause__, second.__cause__ = second, first
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b", group_id="g")
    assert client_errors.settings_error(job, first) is None
    second.__cause__ = errors.TopicAuthorizationFailedError("events")
    error = client_errors.settings_error(job, first)
    assert error is not None
    assert "TopicAuthorizationFailedError" in str(error)


def test_error_names_the_topic_that_failed_the_transaction_earlier() -> None:
    """kafka-python refuses later calls with an error that has the first error as an argument."""
    from kafka import errors

    failed = errors.TopicAuthorizationFailedError({"verdicts"})
    refused = errors.KafkaError("a request has failed before", failed)
    job = Job(pattern="p", topics=["events"], bootstrap_servers="b", group_id="g")
    error = client_errors.settings_error(job, refused)
    assert error is not None
    assert "denies access: topic verdicts (" in str(error)
    fenced = errors.KafkaError("a request has failed before", errors.ProducerFencedError())
    assert client_errors.describe(fenced) == "[Error 90] ProducerFencedError"
    left = errors.CommitFailedError(errors.UnknownMemberIdError())
    assert "CommitFailedError" in client_errors.describe(left), "its argument is a reason"
    wrong = errors.KafkaError("a request has failed before", errors.InvalidTopicError("a/b"))
    assert str(client_errors.settings_error(job, wrong)).startswith("Kafka refused a request: ")
