"""Five ways, one answer: `ketal.run`, `Monitor`, the process engine, Spark on topics and on tables.

What is expected is what `ketal.run` says of the events in a file; every other way gets the same
events as `tests.streaming.five_ways` lays them out, and must say the same verdicts with the same
ids and count the same. In `make test` some are left out of Spark's queries.
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
from tests.streaming.ways import Said
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
def expected(name: str) -> Said:
    with TemporaryDirectory() as folder:
        return ways.by_run(execution(name), Path(folder))


def agrees(name: str, said: Said, *, from_topics: bool = False) -> None:
    """Hold what was said equal to what `ketal.run` says, the counts included."""
    one, wanted = execution(name), expected(name)
    assert said.judged == wanted.judged
    assert said.patterns == wanted.patterns
    assert said.events == wanted.events
    assert not said.of("rejected")
    if from_topics:
        # One `ketal.end` a partition.
        assert (said.messages, said.control) == (len(one.lines) + one.slots, one.slots)


# --- what is compared -------------------------------------------------------------


def test_every_folder_of_the_corpus_takes_part() -> None:
    assert {name.removesuffix("-total") for name in OF_THE_CORPUS} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_lint_warns_where_the_answer_depends_on_arrival(name: str) -> None:
    """Of each pattern that may not be given its events in any order; of no other one."""
    warned = "K220" in {one.code for one in ketal.lint(text_of(name))}
    assert warned is not Case(name).compiled.order_independent
    if warned:
        in_any_order = Case(name).compiled.causal and name in OF_THE_CORPUS
        assert not in_any_order


@pytest.mark.parametrize("name", OF_THE_CORPUS)
def test_what_is_expected_is_what_the_corpus_says(name: str) -> None:
    """Under a total order, too: but for the ids, which name the pattern."""
    case, said = Case(name.removesuffix("-total")), expected(name)
    total = name.endswith("-total")
    plain = [{k: v for k, v in one.items() if not (total and k == "id")} for one in case.verdicts]
    found = [{k: v for k, v in one.items() if not (total and k == "id")} for one in said.verdicts]
    assert ways.ordered(found) == ways.ordered(plain)


def test_verdicts_of_every_kind_are_compared() -> None:
    for names in (EXECUTIONS, CONSUMED, STREAMED, TABLES):
        some = executions(names)
        kinds = {said["verdict"] for one in some for said in expected(one.name).verdicts}
        assert kinds == {"match", "violation", "incomplete", "timed_out"}


# --- the ways ---------------------------------------------------------------------


@pytest.mark.parametrize("name", EXECUTIONS)
def test_a_monitor(name: str) -> None:
    agrees(name, ways.by_monitor(execution(name)))


@pytest.fixture(scope="module")
def filled_topics(broker: Broker) -> dict[str, list[str]]:
    """Return the topics of each execution, filled."""
    some = executions([*CONSUMED, *STREAMED])
    return ways.produced(broker, some, f"ways-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("name", CONSUMED)
def test_the_process_engine(
    name: str, broker: Broker, filled_topics: dict[str, list[str]], tmp_path: Path
) -> None:
    agrees(
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
) -> dict[str, Said]:
    folder = tmp_path_factory.mktemp("streamed")
    return ways.by_spark_stream(executions(STREAMED), spark, broker, filled_topics, folder)


@pytest.mark.parametrize("name", STREAMED)
def test_spark_from_kafka(name: str, streamed: dict[str, Said]) -> None:
    agrees(name, streamed[name], from_topics=True)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    folder = tmp_path_factory.mktemp("tables")
    return ways.by_spark_table(executions(TABLES), spark, folder)


@pytest.mark.parametrize("name", TABLES)
def test_spark_from_parquet(name: str, tables: dict[str, Said]) -> None:
    agrees(name, tables[name])
