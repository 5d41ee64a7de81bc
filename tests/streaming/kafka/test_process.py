"""The process engine against a real broker: the same verdicts as `ketal.run`, and all accounted."""

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
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka import job_session as sessions
from ketal.streaming.kafka.connecting import client_errors, clients
from ketal.streaming.kafka.process_engine import ProcessEngine, new_session
from tests.streaming.jobs import (
    END,
    FORKS,
    WINDOWED_FORKS,
    Told,
    Topic,
    accept,
    committed,
    expire,
    job_of,
    produce,
    run,
    written,
)
from tests.test_corpus import CORPUS, Case


def test_verdicts_of_one_partition_are_written_in_the_order_of_a_file(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """What else is said of the corpus is held equal in `test_five_ways`, in no particular order."""
    case, one = Case("find_next"), topic()
    lines = (CORPUS / "find_next" / "events.jsonl").read_bytes().splitlines()
    produce(broker, [(one, 0, line) for line in [*lines, END]])
    run(job_of(broker, [one], tmp_path), case.program)
    assert len(case.verdicts) > 1
    assert written(tmp_path / "verdicts.jsonl") == case.verdicts


def test_a_job_that_is_started_again_goes_on(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """What was seen before the stop is part of what is found after it."""
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
    said = committed(broker, sink, least=2)
    assert [v["verdict"] for v in said] == ["rejected", "match"]
    assert said[0]["place"] == f"{source}/1/0"
    assert said[1]["events"] == ["a@1", "b@1"]
    assert first.summary is not None
    assert first.summary["events"]["accepted"] == 1
    assert second.summary is not None
    assert second.summary["events"] == {
        "read": 4, "accepted": 2, "duplicates": 1, "rejected": 1, "late": 0, "held_back": 0,
        "overflow": 0,
    }  # fmt: skip
    assert second.summary["kafka"] == {"messages": 4, "control": 0}
    assert len(list((tmp_path / "state").glob("*.sqlite"))) == 2


def test_windows_close_by_the_watermark_of_all_partitions(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A partition that is behind holds time back; a control event lets it go."""
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


def test_key_and_headers_are_fields(broker: Broker, topic: Topic, tmp_path: Path) -> None:
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
def test_the_time_that_kafka_has_for_a_message_is_an_events(
    unit: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Whatever the unit of times is; the window closes by it."""
    source = topic()
    stamps = (1_700_000_000_250, 1_700_000_030_750)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for counter, stamp in enumerate(stamps, start=1):
            producer.send(source, accept("a", counter), timestamp_ms=stamp)
    given = ketal.logs.Source(fields={"time": "kafka.timestamp"}, time_unit=unit)
    job = job_of(broker, [source], tmp_path, source=given, lateness_ms=0, until_end=True)
    run(job, ketal.compile(WINDOWED_FORKS))
    (said,) = written(tmp_path / "verdicts.jsonl")
    assert said["verdict"] == "timed_out"
    assert said["time"] == "2023-11-14T22:13:20.25Z"


def test_a_changed_pattern_stops_or_starts_anew(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source = topic()
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, ketal.compile(FORKS))
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    other = ketal.compile(FORKS.replace("hash != First.hash", "true"))
    with pytest.raises(StateError, match=r"another program.*steps(.|\n)*--on-change fresh"):
        run(job, other)
    told = Told()
    run(job_of(broker, [source], tmp_path, until_end=True, on_change="fresh"), other, told)
    assert any("starting anew" in sentence for sentence in told.sentences)
    # The events before the change are not part of it, and those after it were not lost.
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["b@1", "c@1"]]
    # Fresh is for a change only.
    produce(broker, [(source, 0, accept("d", 1))])
    run(job_of(broker, [source], tmp_path, until_end=True, on_change="fresh"), other)
    assert len(written(tmp_path / "verdicts.jsonl")) == 3


def test_a_job_whose_group_nobody_named_says_which_it_took(
    broker: Broker,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And its next start, which is no stranger's, goes on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    source = topic()
    pattern = tmp_path / f"{source}.ketal"
    pattern.write_text(FORKS)
    flags = ["-b", broker.bootstrap_servers, "--input", source, "--to", "file:/dev/null"]
    start = ["stream", str(pattern), *flags, "--until-end"]
    for _ in range(2):
        assert main(start) == 2
        said = capsys.readouterr().err
        assert f"the group is {source}, after the pattern file" in said
        assert f"no event was read: there is none to read in {source}" in said
    assert main([*start, "--group-id", f"named-{source}"]) == 2
    assert "the group is" not in capsys.readouterr().err


def test_state_that_is_gone_or_damaged_is_no_reason_to_begin_again(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    newest = max((tmp_path / "state").glob("*.sqlite"))
    content = newest.read_bytes()
    # The end of the last page may be blank.
    newest.write_bytes(content[: len(content) // 2])
    with pytest.raises(StateError, match="damaged"):
        run(job, program)
    newest.unlink()
    with pytest.raises(StateError, match="bring that folder back") as caught:
        run(job, program)
    assert "--on-change fresh" in str(caught.value)
    assert "drain" not in str(caught.value), "there is nothing to drain"
    newest.write_bytes(content)
    run(job, program)


def test_offsets_that_expired_are_no_reason_to_begin_again(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The folder knows that something was committed; only `fresh` says it all again."""
    source, program, told = topic(), ketal.compile(FORKS), Told()
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_groups([job.group_id])
    with pytest.raises(StateError, match=r"has no offsets (.|\n)*hint: --on-change fresh"):
        run(job, program)
    assert len(written(tmp_path / "verdicts.jsonl")) == 1
    run(replace(job, on_change="fresh"), program, told)
    assert any("beginning anew at the earliest messages" in said for said in told.sentences)
    first, again = written(tmp_path / "verdicts.jsonl")
    assert first["id"] == again["id"]


def test_a_job_of_other_topics_leaves_a_folder_alone(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Jobs of one pattern file go by its name, and so by one folder, unless they are told apart."""
    source, other, program = topic(), topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    for topics, group_id, said in (
        ([other], job.group_id, "they are two jobs, so give this one a --group-id"),
        ([source], "another", f"the state of group {job.group_id}, and this job's group is anot"),
    ):
        with pytest.raises(SettingError, match=said):
            run(replace(job, topics=topics, group_id=group_id), program)
    produce(broker, [(source, 0, accept("b", 1))])
    run(replace(job, topics=[other, source]), program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]]


def test_what_was_not_fetched_yet_is_unread(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """A client knows the end of a partition once it has fetched; time must not go on before."""
    source = topic(2)
    produce(broker, [(source, 1, accept("a", 1)), (source, 1, accept("b", 1))])
    job = job_of(broker, [source], tmp_path)
    engine = ProcessEngine(job, ketal.compile(FORKS), Told().hooks())
    session = new_session(engine, Outputs(job, engine.hooks))
    try:
        session.begin()
        session._check_clock()
    finally:
        session.close()
    assert engine.figures.lag == {f"{source}/0": 0, f"{source}/1": 2}


def test_what_is_not_there_is_said(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    program = ketal.compile(FORKS)
    with pytest.raises(SettingError, match="there is no topic nowhere"):
        run(job_of(broker, ["nowhere"], tmp_path), program)
    job = job_of(broker, [topic()], tmp_path, verdicts=Target("kafka", "nowhere"))
    with pytest.raises(SettingError, match="there is no topic nowhere"):
        run(job, program)


def test_messages_that_are_gone_are_no_empty_topic(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Retention has deleted what the group is to go on with: that is said, not skipped."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True)
    run(job, program)
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    expire(broker, source, 2)
    with pytest.raises(StateError, match="no longer in the topic"):
        run(job, program)


def test_a_verdict_that_kafka_would_not_take_is_an_overflow(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, sink = topic(), topic()
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    job = job_of(
        broker, [source], tmp_path, until_end=True, verdicts=Target("kafka", sink),
        limits=ketal.Limits(message_bytes_max=100),
    )  # fmt: skip
    run(job, ketal.compile(FORKS))
    (said,) = committed(broker, sink, least=1)
    assert said["verdict"] == "overflow"
    assert said["limit"] == "message_bytes_max"
    assert len(said["id"]) == 32


def test_a_topic_that_takes_no_message_so_large_ends_the_job_at_once(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python hangs in what it is called for while a message of the transaction fails."""
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


def test_latest_begins_at_the_end_and_stays_there(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Where the first start began is committed: nothing that came after it is skipped."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path, until_end=True, start="latest")
    run(job, program)
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    run(job, program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["b@1", "c@1"]]


def test_a_partition_that_is_added_is_read_from_its_beginning(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the job began at the end: what is in it came later."""
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
            # It is known now: an execution ends when all known partitions have.
            done.append("ended")
            produce(broker, [(source, 0, END), (source, 1, END)])

    told = Told()
    ProcessEngine(job, program, told.hooks(look)).run()
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [["a@1", "b@1"]]
    (said,) = told.sentences
    assert said.startswith("the topics have other partitions than before; going on")


def test_a_fenced_producer_ends_and_does_not_harm_its_successor(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python would ask for a new epoch, and abort what its successor does."""
    source, program = topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1))])
    job = job_of(broker, [source], tmp_path)
    told = Told()
    old = ProcessEngine(job, program, told.hooks(lambda figures: successor()))
    seen: list[ProcessEngine] = []

    def successor() -> None:
        if not seen:
            own = Target("file", str(tmp_path / "successor.jsonl"))
            given = job_of(broker, [source], tmp_path, until_end=True, verdicts=own, rejected=own)
            new = ProcessEngine(given, program, Told().hooks())
            seen.append(new)
            new.run()
            produce(broker, [(source, 0, accept("b", 1))])

    with pytest.raises(LostError, match="taken over"):
        old.run()
    run(job_of(broker, [source], tmp_path, until_end=True), program)
    ids = {v["id"] for v in written(tmp_path / "verdicts.jsonl")}
    assert len(ids) == 1


def test_the_errors_after_which_a_producer_would_bump_its_epoch_are_fatal(broker: Broker) -> None:
    """What is private in kafka-python may change: then this fails, and so does every start."""
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


def test_clients_are_back_soon_after_a_broker(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """Whoever tried for long would wait half a minute, with a lag that nothing shows."""
    job = job_of(broker, [topic()], tmp_path)
    consumer, producer = clients.make_consumer(job), clients.make_producer(job, "soon")
    try:
        waits_ms = {one.config["reconnect_backoff_max_ms"] for one in (consumer, producer)}
        assert waits_ms == {clients.RECONNECT_MS_MAX}
    finally:
        clients.close_consumer(consumer)
        clients.close_producer(producer)


def test_a_consumer_that_joins_its_group_goes_on_with_it(broker: Broker, topic: Topic) -> None:
    """kafka-python forgets it where `poll` returned meanwhile, unless its flag is set."""
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


def test_what_no_second_try_can_mend_is_found_among_the_causes() -> None:
    from kafka import errors

    first, second = errors.KafkaError("first"), errors.KafkaError("second")
    first.__cause__, second.__cause__ = second, first
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b", group_id="g")
    assert client_errors.settings_error(job, first) is None
    second.__cause__ = errors.TopicAuthorizationFailedError("events")
    said = client_errors.settings_error(job, first)
    assert said is not None
    assert "TopicAuthorizationFailedError" in str(said)


def test_a_topic_that_failed_a_transaction_before_is_the_one_that_is_named() -> None:
    """kafka-python refuses what comes after, with the error that came before as an argument."""
    from kafka import errors

    failed = errors.TopicAuthorizationFailedError({"verdicts"})
    refused = errors.KafkaError("a request has failed before", failed)
    job = Job(pattern="p", topics=["events"], bootstrap_servers="b", group_id="g")
    said = client_errors.settings_error(job, refused)
    assert said is not None
    assert "not allowed: topic verdicts (" in str(said)
