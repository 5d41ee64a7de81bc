"""Spark runs on this machine, with its Kafka connector and with Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from ketal.streaming.broker.server import Broker

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession


def test_tests_that_need_spark_run_on_one_worker(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("these tests do not run as `make test` does: -n 5 --dist loadgroup")
    assert request.node.nodeid.endswith("@spark")


def test_topic_is_read_through_the_kafka_connector(
    spark: SparkSession, broker: Broker, topic: Callable[..., str]
) -> None:
    name = topic(partitions=2)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, key=b"%d" % (number % 4))
        producer.flush()

    def doubled(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for batch in batches:
            values = [2 * int(value) for value in batch["value"].to_pylist()]
            yield pyarrow.record_batch({"value": pyarrow.array(values, pyarrow.int64())})

    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", name)
        .load()
        .mapInArrow(doubled, "value long")
        .collect()
    )
    assert sorted(row.value for row in rows) == [2 * number for number in range(20)]
