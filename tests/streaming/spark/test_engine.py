"""The Spark engine against a real broker, on the Spark of the tests."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ketal
from ketal.errors import LostError, SettingError, StateError
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Target
from ketal.streaming.spark.spark_engine import SparkEngine
from tests.streaming.jobs import (
    END,
    FORKS,
    HookRecorder,
    Running,
    Topic,
    accept,
    committed,
    expire,
    job_of,
    produce,
    spread,
    until,
    written,
)
from tests.streaming.spark.test_detect import turns

pytestmark = pytest.mark.usefixtures("spark")
PATIENCE_S = 180.0

SEVERAL = """
pattern Turns {
    partition by key;
    event Odd = n == 1; event Even = n == 0;
    check (Odd Even)*;
    on violation resume;
}
pattern Same {
    partition by key, node;
    event Odd = n == 1;
    find next Odd Odd; within 3 events;
}
"""


def spark_job(broker: Broker, topics: list[str], folder: Path, **options: Any) -> Any:
    return job_of(
        broker, topics, folder,
        **{"engine": "spark", "key_groups": 4, "trigger_ms": 100, "until_end": True, **options},
    )  # fmt: skip


def run(job: Any, program: ketal.Program, recorder: HookRecorder | None = None) -> SparkEngine:
    engine = SparkEngine(job, program, (recorder or HookRecorder()).hooks())
    engine.run()
    return engine


def job_after_an_event(broker: Broker, source: str, folder: Path, program: ketal.Program) -> Any:
    """Return a job that has read one event of `source`, and ended there."""
    produce(broker, [(source, 0, accept("a", 1))])
    job = spark_job(broker, [source], folder)
    run(job, program)
    return job


def by_line(verdicts: list[dict[str, Any]]) -> list[str]:
    return sorted(map(json.dumps, verdicts))


def test_job_reports_the_verdicts_of_run_and_its_counts_add_up(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """`ketal.end` in every partition ends the job; duplicates, poison and controls are counted."""
    one, program = topic(), ketal.compile(SEVERAL)
    lines = [
        *turns()[:9],
        b"poison",
        *turns()[9:],
        turns()[2],
        b'{"type": "ketal.join", "node": "z"}',
    ]
    produce(broker, [(one, 0, line) for line in [*lines, END]])
    engine = run(spark_job(broker, [one], tmp_path, until_end=False), program)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(turns()))
    wanted = ketal.run(program, ketal.read_log(path))
    assert by_line(written(tmp_path / "verdicts.jsonl")) == by_line([v.to_dict() for v in wanted])
    (rejected,) = written(tmp_path / "rejected.jsonl")
    assert rejected["place"] == f"{one}/0/9"
    assert engine.summary is not None
    assert engine.summary["events"] == {
        "read": 23, "accepted": 21, "duplicates": 1, "rejected": 1, "late": 0, "held_back": 0,
        "overflow": 0,
    }  # fmt: skip
    assert engine.summary["kafka"] == {"messages": 25, "control": 2}
    for name in program.names:
        found = engine.summary["patterns"][name]
        assert {k: v for k, v in found.items() if v} == {
            k: v for k, v in wanted.summary["patterns"][name].items() if v
        }
    verdict_count = len(written(tmp_path / "verdicts.jsonl")) + 1
    assert sum(engine.figures.verdicts.values()) == verdict_count
    assert 'ketal_records{outcome="duplicates"} 1' in engine.figures.text
    assert f'ketal_lag_messages{{partition="{one}/0"}} 0' in engine.figures.text
    recorder = HookRecorder()
    again = run(spark_job(broker, [one], tmp_path, until_end=False), program, recorder)
    assert recorder.notices == [
        "the execution has ended (ketal.end); use another [state] store to begin a new one"
    ]
    assert again.summary == engine.summary


def test_summary_counts_restarts_and_doubtful_clocks(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    one = topic()
    again = accept("a", data={"height": 1, "hash": "x"})
    lines = [accept("a"), again, accept("b", 4)]
    produce(broker, [(one, 0, line) for line in lines])
    engine = run(spark_job(broker, [one], tmp_path), ketal.compile(FORKS))
    assert engine.summary is not None
    assert (engine.summary["restarts"], engine.summary["doubtful"]) == (1, 1)


def test_restarted_job_resumes_but_not_with_a_changed_pattern(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, sink, program = topic(2), topic(), ketal.compile(FORKS)
    to = {"verdicts": Target("kafka", sink), "rejected": Target("kafka", sink)}
    job = spark_job(broker, [source], tmp_path, **to)
    produce(broker, [(source, 0, accept("a", 1)), (source, 1, b"poison")])
    run(job, program)
    produce(broker, [(source, 1, accept("b", 1)), (source, 0, accept("a", 1))])
    second = run(job, program)
    verdicts = committed(broker, sink, least=2)
    assert sorted(v["verdict"] for v in verdicts) == ["match", "rejected"]
    assert second.summary is not None
    assert second.summary["kafka"] == {"messages": 4, "control": 0}
    assert second.summary["events"]["duplicates"] == 1

    other = ketal.compile(FORKS.replace("hash != First.hash", "true"))
    with pytest.raises(StateError, match=r"another job: pattern Forks changed: .*(.|\n)*fresh"):
        run(job, other)
    produce(broker, [(source, 0, accept("c", 1)), (source, 0, accept("d", 1))])
    recorder = HookRecorder()
    run(spark_job(broker, [source], tmp_path, on_change="fresh", **to), other, recorder)
    assert any("starting over at the stored offsets" in s for s in recorder.notices)
    # Events before the change are not matched; events after it are not lost.
    found = committed(broker, sink, least=3)
    assert [v["events"] for v in found[2:]] == [["c@1", "d@1"]]


def test_written_batch_is_not_written_again_after_a_kill(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The kill is simulated between the sink's write and the batch's commit."""
    source, program = topic(), ketal.compile(FORKS)
    job = spark_job(broker, [source], tmp_path)
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    run(job, program)
    assert len(written(tmp_path / "verdicts.jsonl")) == 1
    uncommit(tmp_path)
    produce(broker, [(source, 0, accept("c", 1))])
    engine = run(job, program)
    assert [v["events"] for v in written(tmp_path / "verdicts.jsonl")] == [
        ["a@1", "b@1"], ["a@1", "c@1"], ["b@1", "c@1"],
    ]  # fmt: skip
    assert engine.summary is not None
    assert engine.summary["kafka"] == {"messages": 3, "control": 0}


def test_half_written_batch_is_written_again_with_the_same_ids(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    job = spark_job(broker, [source], tmp_path)
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    run(job, program)
    (progress,) = (tmp_path / "state").glob("checkpoint-?.json")
    progress.unlink()
    uncommit(tmp_path)
    run(job, program)
    ids = [v["id"] for v in written(tmp_path / "verdicts.jsonl")]
    assert len(ids) == 2
    assert len(set(ids)) == 1


def uncommit(folder: Path) -> None:
    commits = folder / "state" / "checkpoint-0" / "commits"
    last = max((one for one in commits.iterdir() if one.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def test_stop_ends_the_job_between_two_batches(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(2), ketal.compile(FORKS)
    produce(broker, spread([accept(n, 1) for n in "ab"], [(source, 0), (source, 1)], seed=1)[:2])
    engine = SparkEngine(
        spark_job(broker, [source], tmp_path, until_end=False), program, HookRecorder().hooks()
    )
    running = threading.Thread(target=engine.run)
    running.start()
    until(lambda: (tmp_path / "verdicts.jsonl").exists()
           and bool(written(tmp_path / "verdicts.jsonl")))  # fmt: skip
    other = SparkEngine(spark_job(broker, [source], tmp_path), program, HookRecorder().hooks())
    with pytest.raises(SettingError, match="another process is running the job"):
        other.run()
    engine.stop()
    running.join(PATIENCE_S)
    assert not running.is_alive()
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 2


def test_verdict_too_large_for_kafka_is_replaced_by_an_overflow(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A verdict for a file has no limit."""
    source, sink, program = topic(), topic(), ketal.compile(FORKS)
    produce(broker, [(source, 0, accept("a", 1)), (source, 0, accept("b", 1))])
    limits = ketal.Limits(message_bytes_max=100)
    run(spark_job(broker, [source], tmp_path / "file", limits=limits), program)
    (match,) = written(tmp_path / "file" / "verdicts.jsonl")
    job = spark_job(
        broker, [source], tmp_path / "kafka", limits=limits, verdicts=Target("kafka", sink)
    )
    engine = run(job, program)
    (overflow,) = committed(broker, sink, least=1)
    assert (match["verdict"], overflow["verdict"]) == ("match", "overflow")
    assert overflow["limit"] == "message_bytes_max"
    assert overflow["id"] == match["id"]
    assert engine.figures.verdicts == {("match", "Forks"): 1}


def test_missing_topics_or_broker_are_reported(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    program = ketal.compile(FORKS)
    with pytest.raises(SettingError, match="the topic nowhere does not exist"):
        run(spark_job(broker, ["nowhere"], tmp_path), program)
    job = spark_job(broker, [topic()], tmp_path, verdicts=Target("kafka", "nowhere"))
    with pytest.raises(SettingError, match="the topic nowhere does not exist"):
        run(job, program)
    gone = replace(
        spark_job(broker, ["any"], tmp_path, lost_after_ms=0),
        bootstrap_servers="127.0.0.1:1",
        call_timeout_ms=1_000,
    )
    with pytest.raises(
        LostError, match=r"the job has been failing for .*127\.0\.0\.1:1 does not answer"
    ):
        run(gone, program)


def test_messages_deleted_by_retention_are_a_state_error(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    job = job_after_an_event(broker, source, tmp_path, program)
    produce(broker, [(source, 0, accept("b", 1)), (source, 0, accept("c", 1))])
    expire(broker, source, 2)
    with pytest.raises(StateError, match="no longer in the topic"):
        run(job, program)


def test_missing_file_of_the_state_is_a_state_error(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program = topic(), ketal.compile(FORKS)
    job = job_after_an_event(broker, source, tmp_path, program)
    shutil.rmtree(tmp_path / "state" / "checkpoint-0" / "state" / "0" / "0")
    produce(broker, [(source, 0, accept("b", 1))])
    with pytest.raises(StateError, match=r"checkpoint is missing a file: .*/checkpoint-0/state/0"):
        run(job, program)


@pytest.mark.parametrize("damage", ["no offsets", "metadata"])
def test_damage_that_no_retry_repairs_ends_the_job(
    damage: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Without the offsets of its last batch, Spark repeats the one before and cannot record it."""
    source, program = topic(), ketal.compile(FORKS)
    job = spark_job(broker, [source], tmp_path, lost_after_ms=1_000)
    for counter in (1, 2):
        produce(broker, [(source, 0, accept("a", counter))])
        run(job, program)
    checkpoint = tmp_path / "state" / "checkpoint-0"
    if damage == "metadata":
        (checkpoint / "metadata").write_text("{")
    else:
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).name
        (checkpoint / "offsets" / last).unlink()
    produce(broker, [(source, 0, accept("b", 1))])
    running = Running(SparkEngine(job, program, HookRecorder().hooks()))
    running.start()
    running.join(PATIENCE_S)
    running.engine.stop()
    assert isinstance(running.fault, LostError)
    assert "failing" in str(running.fault)


def test_outage_is_over_once_a_query_has_read_everything(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A later outage is another one, also if no batch was due between the two."""
    source, program = topic(), ketal.compile(FORKS)
    job = job_after_an_event(broker, source, tmp_path, program)
    running = Running(SparkEngine(replace(job, until_end=False), program, HookRecorder().hooks()))
    running.engine.report_failure("it failed", "it has been failing", "x")
    running.start()
    until(lambda: "ketal_lag_messages{" in running.engine.figures.text)
    running.engine.stop()
    running.join(PATIENCE_S)
    assert running.fault is None
    assert running.engine.failing_since_s is None


@pytest.mark.parametrize(("progress", "is_over"), [(None, False), ({"batchId": 1}, True)])
def test_query_that_recorded_a_batch_and_failed_at_once_ends_an_outage(
    progress: Any, is_over: bool, broker: Broker, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    def fail(_: float) -> bool:
        raise StreamingQueryException("it failed")

    engine = SparkEngine(
        spark_job(broker, ["t"], tmp_path), ketal.compile(FORKS), HookRecorder().hooks()
    )
    engine.report_failure("it failed", "it has been failing", "x")
    query: Any = SimpleNamespace(awaitTermination=fail, lastProgress=progress, isActive=False)
    with pytest.raises(LostError):
        engine._follow(query, SimpleNamespace())  # type: ignore[arg-type]
    assert (engine.failing_since_s is None) == is_over


def test_batch_abandoned_on_stop_is_not_logged_as_a_fault_of_its_query(
    broker: Broker, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends while its first batch is prepared; Spark logs two screens for each fault."""
    one, queries = topic(), []
    produce(broker, [(one, 0, accept("a")), (one, 0, accept("b"))])
    live = SparkEngine._follow

    def stopped(engine: SparkEngine, query: Any, checkpoint: Any) -> None:
        queries.append(query)
        engine.stop()
        until(lambda: engine._is_waiting_for_stop or not query.isActive)
        live(engine, query, checkpoint)

    monkeypatch.setattr(SparkEngine, "_follow", stopped)
    job = spark_job(broker, [one], tmp_path, until_end=False)
    engine = SparkEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    engine.run()
    (query,) = queries
    assert query.exception() is None
    assert engine._is_waiting_for_stop
    assert not query.isActive
    assert query.status["message"] == "Stopped"
    assert not written(tmp_path / "verdicts.jsonl")
    monkeypatch.undo()
    again = run(spark_job(broker, [one], tmp_path), ketal.compile(FORKS))
    assert again.summary is not None
    assert again.summary["kafka"] == {"messages": 2, "control": 0}
    assert len(written(tmp_path / "verdicts.jsonl")) == 1
