"""Jobs that no verdict is to be expected of: both engines warn, and serve it as a metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ketal
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job
from ketal.streaming.kafka.process_engine import ProcessEngine
from ketal.streaming.spark.spark_engine import SparkEngine
from tests.streaming.jobs import END, FORKS, Running, Told, Topic, accept, job_of, produce, until

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
NEAR = "no event has the type `acept`, which is near `accept`"


def running(job: Job, program: ketal.Program, told: Told) -> Running:
    engine: Any = SparkEngine if job.engine == "spark" else ProcessEngine
    out = Running(engine(job, program, told.hooks()))
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


def test_a_pattern_that_no_event_meets_is_warned_of(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, program, told = topic(), ketal.compile(MISSPELT), Told()
    produce(broker, [(source, 0, accept("a", n, height=n % 3)) for n in range(1, 7)])
    job = running(job_of(broker, [source], tmp_path, **options(engine)), program, told)
    until(lambda: any(NEAR in one for one in told.sentences), "it warns of nothing", PATIENCE_S)
    figures = job.engine.figures
    until(
        lambda: 'ketal_vacuous{pattern="Turns"} ' in figures.text, "there is no metric", PATIENCE_S
    )
    stop(job)
    said = [one for one in told.sentences if "vacuous" in one]
    assert len(said) == 1, "once"
    assert "warning: Turns: vacuous: 0 of 6 events are in the alphabet" in said[0]
    # A job that goes on from there knows it.
    again = job_of(broker, [source], tmp_path, **options(engine, until_end=True))
    ended = running(again, program, Told())
    ended.join(PATIENCE_S)
    entries = ended.engine.summary["patterns"]["Turns"]["vacuous"]
    assert [(one["what"], one.get("near"), one.get("near_events")) for one in entries] == [
        ("alphabet", None, None),
        ("type", "accept", 6),
    ]


def test_a_pattern_that_one_part_of_the_stream_meets_is_not(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Most partitions and key groups see no event of a rare type."""
    source, program = topic(partitions=2), ketal.compile(MISSPELT.replace("acept", "rare"))
    rare = [accept("b", n, height=7, type="rare", data={"height": 7, "n": n % 2}) for n in (1, 2)]
    messages = [(source, 0, accept("a", n, height=n)) for n in range(1, 5)]
    produce(broker, [*messages, *((source, 1, one) for one in rare), (source, 0, END)])
    told = Told()
    job = running(
        job_of(broker, [source], tmp_path, **options(engine, until_end=True)), program, told
    )
    job.join(PATIENCE_S)
    summary = job.engine.summary
    assert summary["events"]["accepted"] == 6
    assert "vacuous" not in summary["patterns"]["Turns"]
    assert not [one for one in told.sentences if "vacuous" in one]


def test_a_topic_that_is_empty_is_warned_of(
    engine: str, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, told = topic(), Told()
    job = running(job_of(broker, [source], tmp_path, **options(engine)), ketal.compile(FORKS), told)
    until(
        lambda: f"warning: no message has come from {source} since the job began" in told.sentences,
        "it warns of nothing",
        PATIENCE_S,
    )
    stop(job)
