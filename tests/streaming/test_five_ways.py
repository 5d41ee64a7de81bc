"""Five ways, one answer: `ketal.run`, `Monitor`, the process engine, Spark on topics and on tables.

`ketal.run` over the events in a file gives the expected verdicts. Every other way gets the same
events as `tests.streaming.five_ways` lays them out, and must report the same verdicts with the same
ids and the same counts. `make test` leaves some executions out of Spark's queries.
"""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

import ketal
from ketal.streaming.broker.server import Broker
from tests.streaming import ways
from tests.streaming.five_ways import (
    CONSUMED,
    EXECUTIONS,
    OF_THE_CORPUS,
    STREAMED,
    TABLES,
    execution,
    executions,
    is_here,
    text_of,
)
from tests.streaming.ways import Outcome
from tests.test_corpus import CASES, Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:.*key group:UserWarning")


@pytest.fixture(autouse=True)
def log_is_here(request: pytest.FixtureRequest) -> None:
    spec = getattr(request.node, "callspec", None)
    name = None if spec is None else spec.params.get("name")
    if name in EXECUTIONS and not is_here(name):
        pytest.skip("the real logs of ../shared/data are not here")


@cache
def expected(name: str) -> Outcome:
    with TemporaryDirectory() as folder:
        return ways.by_run(execution(name), Path(folder))


def assert_agrees(name: str, outcome: Outcome, *, from_topics: bool = False) -> None:
    """Assert that an outcome equals that of `ketal.run`, including the counts."""
    case, wanted = execution(name), expected(name)
    assert outcome.judged == wanted.judged
    assert outcome.patterns == wanted.patterns
    assert outcome.events == wanted.events
    assert not outcome.of("rejected")
    if from_topics:
        # One `ketal.end` a partition.
        assert (outcome.messages, outcome.control) == (len(case.lines) + case.slots, case.slots)


# --- what is compared -------------------------------------------------------------


def test_every_corpus_folder_is_an_execution() -> None:
    assert {name.removesuffix("-total") for name in OF_THE_CORPUS} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_lint_warns_where_the_answer_depends_on_arrival(name: str) -> None:
    """Lint warns of exactly the patterns that must not get their events in arbitrary order."""
    warned = "K220" in {finding.code for finding in ketal.lint(text_of(name))}
    assert warned is not Case(name).compiled.order_independent
    if warned:
        in_any_order = Case(name).compiled.causal and name in OF_THE_CORPUS
        assert not in_any_order


@pytest.mark.parametrize("name", OF_THE_CORPUS)
def test_run_gives_the_expected_verdicts_of_the_corpus(name: str) -> None:
    """The same under a total order, except for ids, which contain the pattern's fingerprint."""
    case, outcome = Case(name.removesuffix("-total")), expected(name)
    total = name.endswith("-total")
    plain = [
        {k: v for k, v in verdict.items() if not (total and k == "id")} for verdict in case.verdicts
    ]
    reported = [
        {k: v for k, v in verdict.items() if not (total and k == "id")}
        for verdict in outcome.verdicts
    ]
    assert ways.ordered(reported) == ways.ordered(plain)


def test_verdicts_of_every_kind_are_compared() -> None:
    for names in (EXECUTIONS, CONSUMED, STREAMED, TABLES):
        chosen = executions(names)
        kinds = {verdict["verdict"] for one in chosen for verdict in expected(one.name).verdicts}
        assert kinds == {"match", "violation", "incomplete", "timed_out"}


# --- the ways ---------------------------------------------------------------------


@pytest.mark.parametrize("name", EXECUTIONS)
def test_monitor_agrees_with_run(name: str) -> None:
    assert_agrees(name, ways.by_monitor(execution(name)))


@pytest.fixture(scope="module")
def filled_topics(broker: Broker) -> dict[str, list[str]]:
    """Return the topics of each execution, filled."""
    chosen = executions([*CONSUMED, *STREAMED])
    return ways.produced(broker, chosen, f"ways-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("name", CONSUMED)
def test_process_engine_agrees_with_run(
    name: str, broker: Broker, filled_topics: dict[str, list[str]], tmp_path: Path
) -> None:
    assert_agrees(
        name,
        ways.by_process(execution(name), broker, filled_topics[name], tmp_path),
        from_topics=True,
    )


@pytest.fixture(scope="module")
def streamed(
    spark: SparkSession,
    broker: Broker,
    filled_topics: dict[str, list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("streamed")
    return ways.by_spark_stream(executions(STREAMED), spark, broker, filled_topics, folder)


@pytest.mark.parametrize("name", STREAMED)
def test_spark_streaming_from_kafka_agrees_with_run(
    name: str, streamed: dict[str, Outcome]
) -> None:
    assert_agrees(name, streamed[name], from_topics=True)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("tables")
    return ways.by_spark_table(executions(TABLES), spark, folder)


@pytest.mark.parametrize("name", TABLES)
def test_spark_table_from_parquet_agrees_with_run(name: str, tables: dict[str, Outcome]) -> None:
    assert_agrees(name, tables[name])
