"""Jobs whose pattern is vacuous: both engines warn, and export a metric."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ketal
from ketal.logs.source import Source
from ketal.model.events.dot import Dot
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.spark.spark_engine import SparkEngine
from tests.driven import Driven
from tests.streaming.jobs import (
    END,
    FORKS,
    HookRecorder,
    Running,
    Topic,
    accept,
    job_of,
    produce,
    until,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 180.0
MISSPELT = """
pattern Turns {
    partition by height;
    event Odd = type == "acept" && n == 1; event Even = type == "acept" && n == 0;
    check (Odd Even)*;
}
"""
WAITING = """
pattern Pairs {
    order CausalOrder;
    event Accept = type == "accept";
    find next Accept Accept;
}
"""
NEAR = "no event has the type `acept`, which is similar to `accept`"


def running(job: Job, program: ketal.Program, recorder: HookRecorder) -> Running:
    engine: Any = SparkEngine if job.engine == "spark" else ProcessEngine
    out = Running(engine(job, program, recorder.hooks()))
    out.start()
    return out


def stop(job: Running) -> None:
    job.engine.stop()
    job.join(PATIENCE_S)
    assert not job.is_alive()
    assert job.fault is None


def options(engine: str, **more: Any) -> dict[str, Any]:
    own = {"key_groups": 4, "trigger_ms": 100} if engine == "spark" else {}
    return {"engine": engine, "vacuous_after_ms": 1, **own, **more}


@pytest.fixture(params=["process", "spark"])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> str:
    return str(request.param)


def test_vacuous_pattern_is_warned_of_and_exported_as_a_metric(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program, recorder = topic(), ketal.compile(MISSPELT), HookRecorder()
    produce(broker, [(source, 0, accept("a", n, height=n % 3)) for n in range(1, 7)])
    job = running(job_of(broker, [source], tmp_path, **options(engine)), program, recorder)
    until(lambda: any(NEAR in one for one in recorder.notices), "it warns of nothing", PATIENCE_S)
    figures = job.engine.figures
    until(
        lambda: 'ketal_vacuous{pattern="Turns"} ' in figures.text, "there is no metric", PATIENCE_S
    )
    stop(job)
    warnings = [one for one in recorder.notices if "vacuous" in one]
    assert len(warnings) == 1, "once"
    assert "warning: Turns: vacuous: 0 of 6 events are in the alphabet" in warnings[0]
    # A job that resumes from this state still knows that the pattern is vacuous.
    again = job_of(broker, [source], tmp_path, **options(engine, until_end=True))
    ended = running(again, program, HookRecorder())
    ended.join(PATIENCE_S)
    entries = ended.engine.summary["patterns"]["Turns"]["vacuous"]
    assert [(one["what"], one.get("near"), one.get("near_events")) for one in entries] == [
        ("alphabet", None, None),
        ("type", "accept", 6),
    ]


def test_pattern_met_in_one_partition_only_is_not_vacuous(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Most partitions and key groups see no event of a rare type."""
    source, program = topic(partitions=2), ketal.compile(MISSPELT.replace("acept", "rare"))
    rare = [accept("b", n, height=7, type="rare", data={"height": 7, "n": n % 2}) for n in (1, 2)]
    messages = [(source, 0, accept("a", n, height=n)) for n in range(1, 5)]
    produce(broker, [*messages, *((source, 1, one) for one in rare), (source, 0, END)])
    recorder = HookRecorder()
    job = running(
        job_of(broker, [source], tmp_path, **options(engine, until_end=True)), program, recorder
    )
    job.join(PATIENCE_S)
    summary = job.engine.summary
    assert summary["events"]["accepted"] == 6
    assert "vacuous" not in summary["patterns"]["Turns"]
    assert not [one for one in recorder.notices if "vacuous" in one]


def test_empty_topic_is_warned_of(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, recorder = topic(), HookRecorder()
    job = running(
        job_of(broker, [source], tmp_path, **options(engine)), ketal.compile(FORKS), recorder
    )
    until(
        lambda: (
            f"warning: no message received from {source} since the job started" in recorder.notices
        ),
        "it warns of nothing",
        PATIENCE_S,
    )
    stop(job)


def test_topic_is_not_called_empty_before_it_was_read(tmp_path: Path) -> None:
    """The first batch of a job on Spark may take longer than `vacuous_after_ms`."""
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b:1", group_id="g",
              store=Target("dir", str(tmp_path)), vacuous_after_ms=1)  # fmt: skip
    recorder = HookRecorder()
    engine = ProcessEngine(job, ketal.compile(FORKS), recorder.hooks())
    for now_s in (0.0, 100.0):
        engine.vacuity_watch.update(now_s, dict)
    assert recorder.notices == []
    engine.figures.update(now_s=200.0, messages=0, control=0, lag={"t/0": 0}, events={},
                          live_runs=0, watermark_s=None)  # fmt: skip
    engine.vacuity_watch.update(200.0, dict)
    assert recorder.notices == ["warning: no message received from t since the job started"]


def test_event_that_others_wait_for_without_end_is_warned_of(tmp_path: Path) -> None:
    """Not while messages are unread, nor for waits that end, and once only."""
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b:1", group_id="g",
              store=Target("dir", str(tmp_path)), vacuous_after_ms=60_000)  # fmt: skip
    recorder = HookRecorder()
    engine = ProcessEngine(job, ketal.compile(WAITING), recorder.hooks())
    patient = ProcessEngine(
        job, ketal.compile(WAITING.replace("Order;", "Order(gap = 9 h);")), recorder.hooks()
    )

    def update(now_s: float, lag: int, **awaited: int) -> None:
        dots = Counter({Dot(node, 2): count for node, count in awaited.items()})
        for one in (engine, patient):
            one.figures.update(now_s=now_s, messages=9, control=0, lag={"t/0": lag}, events={},
                               live_runs=0, watermark_s=None)  # fmt: skip
            one.vacuity_watch.update(now_s, dict, lambda: dots)

    for now_s, lag, awaited in (
        (0.0, 0, {"a": 1}), (70.0, 0, {"a": 1}), (140.0, 0, {"b": 5}), (210.0, 3, {"b": 5, "c": 9}),
        (215.0, 0, {"c": 9, "d": 1}), (270.0, 0, {"c": 9, "d": 1}),
    ):  # fmt: skip
        update(now_s, lag, **awaited)
        assert recorder.notices == []
    for now_s in (280.0, 350.0, 420.0):
        update(now_s, 0, c=9, d=1)
    assert recorder.notices == [
        "warning: 9 events held back: c@2, which clocks know of, has not arrived for 60 s; without "
        "`gap` in CausalOrder, events wait for it for ever"
    ]


def test_event_that_a_gap_gives_up_is_not_awaited_for_ever() -> None:
    """A pattern of the job may wait without end, and not be the one that waits."""
    losing = WAITING.replace("Pairs", "Losing").replace("Order;", "Order(gap = 9 h);")
    free = WAITING.replace("Pairs", "Free").replace("next Accept", "any Accept")
    late = [
        ketal.Event(node="a", type="accept", clock={"a": n, "b": 1}, time=float(n)) for n in (1, 2)
    ]
    for text, awaited in ((losing + free, {}), (losing + WAITING, {Dot("b", 1): 2})):
        execution = Driven(ketal.compile(text))
        execution.feed_many(late)
        assert [dot for _, dot in execution.held_back()] == [Dot("b", 1)] * 2
        held = execution.release.held_back(for_ever=True)
        assert Counter(dot for _, dot in held) == awaited


def test_running_job_warns_of_what_is_awaited_for_ever(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The pattern with a gap holds back the event of c too, which is no node of the other."""
    source, recorder = topic(), HookRecorder()
    losing = WAITING.replace("Pairs", "Losing").replace("Order;", "Order(gap = 9 h);")
    waiting = WAITING.replace("Order;", "Order;\n    topology { a -> b; }")
    produce(broker, [(source, 0, accept(node, clock={node: 1, "b": 1})) for node in "ac"])
    job = job_of(broker, [source], tmp_path, vacuous_after_ms=1)
    started = running(job, ketal.compile(losing + waiting), recorder)
    warning = "warning: 1 event held back: b@1, which clocks know of"
    until(lambda: any(warning in one for one in recorder.notices), "no warning", PATIENCE_S)
    stop(started)


def test_job_that_ends_knows_what_its_events_wait_for(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source = topic()
    after = [accept("a", n, clock={"a": n, "b": 3}) for n in (2, 3)]
    messages = [accept("a", 1), *after, accept("b", 1)]
    produce(broker, [(source, 0, one) for one in messages])
    job = job_of(broker, [source], tmp_path, until_end=True)
    ended = running(job, ketal.compile(WAITING), HookRecorder())
    ended.join(PATIENCE_S)
    assert ended.engine.summary["events"]["held_back"] == 2
    assert ended.engine.awaited == {Dot("b", 2): 2}


def test_mapped_field_that_no_message_has_is_warned_of(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """A path in the message, or a header; the field `id` is in one of the messages."""
    source, recorder = topic(), HookRecorder()
    produce(broker, [(source, 0, accept("a", 1, serial="s")), (source, 0, accept("b", 1))])
    fields = {"time": "at", "id": "serial", "incarnation": "kafka.header.run"}
    job = job_of(broker, [source], tmp_path, source=Source(fields=fields), **options(engine))
    started = running(job, ketal.compile(FORKS), recorder)
    reason = "no record that was read has a value at this path"
    until(lambda: any(reason in one for one in recorder.notices), "no warning", PATIENCE_S)
    stop(started)
    assert [one for one in recorder.notices if reason in one] == [
        f"warning: [source] fields: {name}={fields[name]}: {reason}"
        for name in ("time", "incarnation")
    ]
