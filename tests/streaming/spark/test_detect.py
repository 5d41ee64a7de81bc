"""`ketal.streaming.spark.detect`: streams and tables give the verdicts of `ketal.run`."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import ketal
from ketal.errors import NotAvailableError, SettingError
from ketal.logs import Source
from ketal.logs.times import TimeReading
from ketal.model.events.event_time import seconds
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.messages import MessageReader
from ketal.streaming.spark import detect, families
from ketal.streaming.spark.rows import shaping
from ketal.streaming.spark.rows.message_columns import MessageColumns
from ketal.streaming.spark.rows.row_reader import RowReader, RowShape
from ketal.streaming.spark.rows.text import timestamp_of
from tests.sampling import sample
from tests.streaming.jobs import END, FORKS, WINDOWED_FORKS, Topic, produce, spread
from tests.streaming.jobs import accept as message
from tests.streaming.spark.frames import data_frame
from tests.test_corpus import CORPUS, Case, without_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:.*key.group:UserWarning")

SCHEMA = "node string, type string, clock string, time double, data string, height int, hash string"


def accept(node: str, counter: int, height: int, **more: Any) -> dict[str, Any]:
    own = {"node": node, "type": "accept", "clock": json.dumps({node: counter})}
    return {**own, "height": height, "hash": node, **more}


def table(spark: SparkSession, rows: Sequence[dict[str, Any]], schema: str = SCHEMA) -> DataFrame:
    """Return rows as a DataFrame; a column that a row lacks is null."""
    names = [column.split()[0] for column in schema.split(", ")]
    return data_frame(spark, [[row.get(name) for name in names] for row in rows], schema)


def stream(
    spark: SparkSession,
    folder: Path,
    batches: Sequence[Sequence[dict[str, Any]]],
    schema: str = SCHEMA,
) -> DataFrame:
    """Return a stream that reads one file per batch, in their order."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(batches):
        path = folder / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        # Spark reads files in the order of their age, in seconds.
        os.utime(path, (1e9 + 10 * number, 1e9 + 10 * number))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(str(folder))


def kafka(spark: SparkSession, broker: Broker, topics: Sequence[str], *, streaming: bool) -> Any:
    reader = spark.readStream if streaming else spark.read
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )


def collected_verdicts(verdicts: DataFrame, checkpoint: Path | None = None) -> list[dict[str, Any]]:
    """Collect the verdicts of a table, or of a stream from its checkpoint to its end."""
    rows: list[Any] = []
    if verdicts.isStreaming:
        writer = verdicts.writeStream.foreachBatch(
            lambda batch, number: rows.extend(batch.collect())
        )
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        rows += verdicts.collect()
    out = [json.loads(row.json) for row in rows]
    for row, verdict in zip(rows, out, strict=True):
        assert row.verdict == verdict["verdict"]
        assert (row.pattern, row.id) == (verdict.get("pattern"), verdict.get("id"))
        assert json.loads(row.scope or "null") == verdict.get("scope")
    return out


def run(program: ketal.Program, lines: Sequence[bytes], folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    path.write_bytes(b"\n".join(lines))
    return [v.to_dict() for v in ketal.run(program, ketal.read_log(path))]


@pytest.mark.parametrize("name", ["design_forked_blocks", *sample([], ["find_any_causal"])])
def test_detect_on_a_topic_gives_the_verdicts_of_run(
    name: str, spark: SparkSession, broker: Broker, topic: Topic
) -> None:
    case, topics = Case(name), (topic(2), topic(2))
    lines = (CORPUS / name / "events.jsonl").read_bytes().splitlines()
    produce(broker, spread(lines, [(t, n) for t in topics for n in range(2)], seed=7))
    for streaming in (False, True):
        events = kafka(spark, broker, topics, streaming=streaming)
        found = collected_verdicts(detect(case.program, events, key_groups=4, partitions=4))
        assert without_time(found) == without_time(case.verdicts)


def test_windows_end_by_the_watermark_in_groups_without_new_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The group of height 1 gets no more events, but its window ends; then an event is late.

    Spark alone would drop that event silently. A group without a timer, as that of height 2, and a
    group without rows so far use the same watermark.
    """
    program = ketal.compile(WINDOWED_FORKS)
    batches = [
        [accept("a", 1, 1, time=100.0), accept("b", 1, 2, time=101.0), accept("c", 1, 2, time=102)],
        [accept("a", 2, 3, time=200.0)],
        [accept("a", 3, 3, time=200.5)],
        [accept("d", height, height, time=149.0) for height in (1, 2, 4)],
    ]
    events = stream(spark, tmp_path / "in", batches)
    found = collected_verdicts(detect(program, events, key_groups=64, lateness_ms=1_000))
    assert sorted(v["verdict"] for v in found) == ["late"] * 3 + ["match", "timed_out"]
    by_kind = {v["verdict"]: v for v in found if v["verdict"] != "late"}
    assert by_kind["timed_out"]["bindings"] == {"First": ["a@1"]}
    assert by_kind["match"]["events"] == ["b@1", "c@1"]
    assert sorted(v["event"] for v in found if v["verdict"] == "late") == ["d@1", "d@2", "d@4"]


def test_time_column_keeps_its_own_watermark(spark: SparkSession, tmp_path: Path) -> None:
    program = ketal.compile(WINDOWED_FORKS)
    events = stream(spark, tmp_path / "in", [[accept("a", 1, 1)]])
    own = events.withColumn("time", F.timestamp_seconds("time")).withWatermark("time", "7 minutes")
    for given, wanted in ((events, "_at"), (own, "time")):
        plan = detect(program, given, lateness_ms=1_000)._jdf.queryExecution().logical().toString()
        (mark,) = [line for line in plan.splitlines() if "EventTimeWatermark" in line]
        assert f" {wanted}#" in mark
    with pytest.raises(SettingError, match="have no column time"):
        detect(program, events.drop("time"))


TURNS = """
pattern Turns {
    order CausalOrder(total, nodes = ["a", "b", "c"]);
    event Odd = n == 1; event Even = n == 0;
    check (Odd Even)*;
    on violation resume;
}
"""


def turns() -> list[bytes]:
    chance = random.Random(5)
    return [
        f'{{"node": "{node}", "type": "turn", "clock": {{"{node}": {k}}}, '
        f'"data": {{"n": {chance.randint(0, 1)}, "key": {chance.randint(0, 5)}}}}}'.encode()
        for k in range(1, 8)
        for node in "abc"
    ]


def test_total_order_runs_in_one_key_group(
    spark: SparkSession, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    program, one = ketal.compile(TURNS), topic(4)
    produce(broker, spread(turns(), [(one, n) for n in range(4)], seed=3))
    wanted = run(program, turns(), tmp_path)
    assert len(wanted) > 3
    for streaming in (False, True):
        events = kafka(spark, broker, [one], streaming=streaming)
        found = collected_verdicts(detect(program, events, key_groups=4, partitions=4))
        assert without_time(found) == without_time(wanted)


ARRIVAL = """
pattern Turns {
    partition by key;
    event Odd = n == 1; event Even = n == 0;
    check (Odd Even)*;
    on violation resume;
}
pattern Same {
    event Odd = n == 1;
    find next Odd Odd; within 3 events;
}
pattern Keys { partition by key, node; event Any = exists(n); find next Any Any; }
"""


def test_patterns_with_different_partitions_have_their_own_key_groups(
    spark: SparkSession, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """Events keep the order of a topic partition and count once; a rejection is reported once."""
    program, one = ketal.compile(ARRIVAL), topic()
    lines = turns()
    poisoned = [*lines[:4], b"poison", *lines[4:], lines[2]]
    produce(broker, [(one, 0, line) for line in [*poisoned, END, lines[0]]])
    wanted = run(program, lines, tmp_path)
    assert {v["pattern"] for v in wanted} == {"Turns", "Same", "Keys"}
    found = []
    for streaming in (False, True):
        events = kafka(spark, broker, [one], streaming=streaming)
        found = collected_verdicts(detect(program, events, key_groups=4, partitions=1))
        rejected = [v for v in found if v["verdict"] == "rejected"]
        places = sorted((v["place"], v["reason"].split(" (")[0]) for v in rejected)
        assert [place for place, _ in places] == [f"{one}/0/24", f"{one}/0/4"]
        assert places[0][1] == "its partition has ended"
        assert without_time([v for v in found if v not in rejected]) == without_time(wanted)


def test_columns_of_an_event_can_have_many_types(spark: SparkSession, tmp_path: Path) -> None:
    """Clocks as maps or text, data as a struct, a map, text, or columns of their own."""
    rows = [accept(node, height, height) for height in (1, 2) for node in "ab"]
    program = ketal.compile(FORKS)
    lines = [json.dumps({**row, "clock": json.loads(row["clock"])}).encode() for row in rows]
    wanted = without_time(run(program, lines, tmp_path))
    assert len(wanted) == 2
    plain = table(spark, rows).drop("time", "data").coalesce(1)
    clock = F.from_json("clock", "map<string,bigint>")
    struct = F.struct(F.col("height").cast("double").alias("height"), "hash")
    own = ("node", "type", "clock")
    shapes = {
        "columns": plain,
        "map and struct": plain.select("node", "type", clock.alias("clock"), struct.alias("data")),
        "text": plain.select(*own, F.to_json(struct).alias("data")),
        "map": plain.select(*own, F.create_map(F.lit("height"), F.col("height").cast("string"),
                                               F.lit("hash"), F.col("hash")).alias("data")),
        "struct and columns": plain.select(*own, "height", F.struct("hash").alias("data")),
        "a number for a node": plain.withColumn("id", F.lit(7)),
    }  # fmt: skip
    union = None
    for name, events in shapes.items():
        one = detect(program, events, key_groups=4).withColumn("shape", F.lit(name))
        union = one if union is None else union.union(one)
    assert union is not None
    found: dict[str, list[Any]] = {}
    for row in union.collect():
        found.setdefault(row["shape"], []).append(json.loads(row.json))
    assert found.keys() == shapes.keys()
    for name, of in found.items():
        if name == "map":
            assert sorted(v["scope"]["height"] for v in of) == ["1", "2"]
        else:
            assert [v["events"] for v in sorted(of, key=lambda v: v["scope"]["height"])] == [
                ["a@1", "b@1"],
                ["a@2", "b@2"],
            ], name
    assert without_time(found["columns"]) == wanted


def test_columns_with_the_same_name_are_refused(spark: SparkSession) -> None:
    """A join may leave such columns; Spark does not distinguish names by case."""
    program, events = ketal.compile(FORKS), table(spark, [accept("a", 1, 1)])
    names = events.columns
    for other in ("height", "Height"):
        twice = events.select(*names, events["height"].alias(other))
        with pytest.raises(
            SettingError, match=f"columns with the same name: height, {other}; select"
        ):
            detect(program, twice, key_groups=4)


CLOCK_TYPE = "the column clock must be a map to integers, a struct of integers, or a string, not "


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("array(1) AS clock", f"{CLOCK_TYPE}array<int>"),
        ("1 AS clock", f"{CLOCK_TYPE}int"),
        ("map('a', '1') AS clock", f"{CLOCK_TYPE}map<string,string>"),
        ("map('a', 1.5D) AS clock", f"{CLOCK_TYPE}map<string,double>"),
        ("struct('1' AS a) AS clock", f"{CLOCK_TYPE}struct<a:string>"),
        ("true AS node", "the column node must be a string or an integer, not boolean"),
        ("1 AS type", "the column type must be a string, not int"),
        ("true AS time", "the column time must be a timestamp, a number or a string, not boolean"),
        ("1.5D AS id", "the column id must be a string or an integer, not double"),
        (
            "array(1) AS data",
            "the column data must be a struct, a map, or a JSON string, not array<int>",
        ),
        ("'1' AS offset", "the column offset must be an integer, not string"),
    ],
)
def test_event_column_of_a_wrong_type_is_an_error_before_a_row_is_read(
    column: str, message: str, spark: SparkSession
) -> None:
    name = column.split()[-1]
    events = table(spark, [accept("a", 1, 1)]).selectExpr("*", "0L AS offset")
    events = events.selectExpr(*(f"`{one}`" for one in events.columns if one != name), column)
    with pytest.raises(SettingError, match=re.escape(message)):
        detect(ketal.compile(FORKS), events, key_groups=1)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("'{}' AS value", "the column value must be binary, as from Kafka's connector, not string"),
        ("'k' AS key", "the column key must be binary, as from Kafka's connector, not string"),
        ("1 AS topic", "the column topic must be a string, not int"),
        ("'0' AS offset", "the column offset must be an integer, not string"),
    ],
)
def test_kafka_column_of_a_wrong_type_is_an_error_before_a_row_is_read(
    column: str, message: str, spark: SparkSession
) -> None:
    kafka = {"key": "X'6b'", "value": "X'7b7d'", "topic": "'t'", "partition": "0", "offset": "0L"}
    columns = [f"{text} AS {name}" for name, text in kafka.items() if name != column.split()[-1]]
    events = spark.range(1).selectExpr(*columns, column)
    with pytest.raises(SettingError, match=re.escape(message)):
        detect(ketal.compile(FORKS), events, key_groups=1)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("unit", sample(["s", "ns"], ["s", "ms", "us", "ns"]))
def test_kafka_timestamp_of_a_message_can_be_the_time_of_its_event(
    unit: Literal["s", "ms", "us", "ns"], groups: int, spark: SparkSession
) -> None:
    """Whatever unit times have; a message without a timestamp (-1) has no time."""
    stamps = {("a", 1): 1_700_000_000_250, ("b", 1): 1_700_000_003_250, ("a", 2): -1, ("b", 2): -1}
    rows = [(message(node, n, n), at) for (node, n), at in stamps.items()]
    events = data_frame(spark, rows, "value binary, at long").selectExpr(
        "CAST(NULL AS BINARY) AS key", "value", "'t' AS topic", "0 AS partition",
        "monotonically_increasing_id() AS offset", "timestamp_millis(at) AS timestamp",
    )  # fmt: skip
    source = Source(fields={"time": "kafka.timestamp"}, time_unit=unit)
    program = ketal.compile(WINDOWED_FORKS)
    found = detect(program, events, key_groups=groups, source=source).collect()
    assert [(row.verdict, row.events) for row in found] == [("match", ["a@1", "b@1"])]
    assert found[0].time.timestamp() == 1_700_000_003.25
    with pytest.raises(SettingError, match="the events have no column timestamp"):
        detect(program, events.drop("timestamp"), key_groups=groups, source=source)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_kafka_timestamp_advances_the_watermark_whatever_unit_times_have(
    unit: Literal["s", "ms", "us", "ns"], spark: SparkSession
) -> None:
    rows = data_frame(spark, [(1_700_000_000_250,), (-1,)], "at long").selectExpr(
        "CAST(NULL AS BINARY) AS key", "CAST('{}' AS BINARY) AS value", "'t' AS topic",
        "0 AS partition", "0L AS offset", "timestamp_millis(at) AS timestamp",
    )  # fmt: skip
    source = Source(fields={"time": "kafka.timestamp"}, time_unit=unit)
    columns = MessageColumns(rows, source, families.families(ketal.compile(FORKS), 1))
    at_us, without = [row[0] for row in rows.select(F.unix_micros(columns.time())).collect()]
    assert at_us == pytest.approx(1_700_000_000_250_000, abs=1)
    assert without is None


@pytest.mark.parametrize("format", ["%m/%d/%Y %I:%M:%S %p", "%Y%m%d%H%M%S"])
def test_times_are_read_in_the_format_of_the_source(format: str, spark: SparkSession) -> None:
    """Both the times of events and the column of the watermark."""
    times = [datetime(2013, 5, 27, 22, 53, second, tzinfo=UTC) for second in (30, 33)]
    texts = [time.strftime(format) for time in times]
    values = [message(node, 1, time=text) for node, text in zip("ab", texts, strict=True)]
    rows = [(value,) for value in (*values, message("a", 2), message("b", 2, time="soon"))]
    events = data_frame(spark, rows, "value binary").selectExpr(
        "CAST(NULL AS BINARY) AS key", "value", "'t' AS topic", "0 AS partition",
        "monotonically_increasing_id() AS offset",
    )  # fmt: skip
    source = Source(time_format=format)
    found = detect(ketal.compile(WINDOWED_FORKS), events, key_groups=1, source=source).collect()
    assert [(row.verdict, row.time) for row in found if row.verdict == "match"] == [
        ("match", times[1].replace(tzinfo=None))
    ]
    (fault,) = [json.loads(row.json)["reason"] for row in found if row.verdict == "rejected"]
    assert fault == f"time 'soon' does not match the time format {format!r}"
    marked = shaping.with_watermark(events, MessageColumns(events, source, ()), 0)
    at = [row["at"] for row in marked.selectExpr("unix_timestamp(_at) AS at").collect()]
    assert at == [*(time.timestamp() for time in times), None, None]


def test_watermark_uses_the_time_format_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """The window of height 1 ends, though its group gets no more events."""
    at = [(("a", 1, 1), "5/27/2013 11:59:00 PM"), (("a", 2, 3), "5/28/2013 12:01:00 AM")]
    at += [(("a", 3, 3), "5/28/2013 12:01:01 AM"), (("d", 1, 4), "5/27/2013 11:59:30 PM")]
    batches = [
        [{"value": message(*event, time=time).decode(), "offset": offset}]
        for offset, (event, time) in enumerate(at)
    ]
    events = stream(spark, tmp_path / "in", batches, "value string, offset long").selectExpr(
        "CAST(NULL AS BINARY) AS key", "CAST(value AS BINARY) AS value", "'t' AS topic",
        "0 AS partition", "offset",
    )  # fmt: skip
    source = Source(time_format="%m/%d/%Y %I:%M:%S %p")
    program = ketal.compile(WINDOWED_FORKS)
    found = collected_verdicts(
        detect(program, events, key_groups=64, source=source, lateness_ms=1_000)
    )
    assert [(v["verdict"], v.get("event")) for v in found if v["verdict"] == "late"] == [
        ("late", "d@1")
    ]
    (ended,) = (v for v in found if v["verdict"] == "timed_out")
    assert ended["bindings"] == {"First": ["a@1"]}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_text_that_is_a_time_advances_the_watermark(zone: str, spark: SparkSession) -> None:
    """Spark itself reads no lower case, no offset after hours or minutes, and not all as UTC."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    texts = [
        *("17", "-1.5", "1e3", "2026-05-04", "2026-05-04T12:00:00.123456Z"),
        *("2026-05-04T12:00:00+02:00", "2026-05-04 12:00:00", "2026-05-04T12:00:00-0130"),
        *("2026-05-04T12:00", "2026-05-04T12:00:00.5", " 2026-05-04T12:00:00 ", "0001-01-01"),
        *("2026-05-04t12:00:00.25z", "2026-05-04t12:00:00+02:00", "2026-05-04t12:00z"),
        *("2026-05-04T12:00Z", "2026-05-04 12:00-01:00", "2026-05-04T12:00+02:00"),
        *("2026-05-04T12", "2026-05-04 12Z", "2026-05-04t12+02:00", "\t2026-05-04T12:00:00\n"),
    ]
    at = timestamp_of(F.col("text"), 1)
    rows = data_frame(session, [(one,) for one in texts], "text string").select(
        "text", F.unix_micros(at).alias("us")
    )
    read = TimeReading("s", None).read
    assert {row.text: row.us for row in rows.collect()} == {
        one: round(seconds(read(one)) * 1e6) for one in texts
    }


def test_text_without_a_date_is_no_time(spark: SparkSession) -> None:
    """Spark would read it as a time of today, and the event itself is rejected."""
    texts = data_frame(spark, [("12:00:00",), ("T12:00:00Z",)], "text string")
    assert [row[0] for row in texts.select(timestamp_of(F.col("text"), 1)).collect()] == [None] * 2


def test_time_column_of_an_event_has_no_format() -> None:
    columns = RowReader(RowShape(("copy", "value"), (), None), ketal.Limits())
    (item,) = columns.items([(0, message("a", time="5/27/2013"))])
    assert isinstance(item, ketal.Rejected)
    assert item.reason == "time '5/27/2013' is neither RFC 3339 nor seconds since the epoch"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"[1]", "the row is an array, not a JSON object"),
        (b'{"node": "a", "type": "t"}', "the row has no clock"),
        (b'{"node": "a", "type": "t", "data": {"x": 1}}', "the row has no clock"),
        (b'{"node": "a", "type": "t", "clock": [1]}', "the clock is positional"),
        (
            b'{"node": "a", "type": "t", "clock": {"a": 1}, "time": 1e300}',
            "time 1e+300 is outside the years 1 to 9999",
        ),
        (None, "the row has no value (a tombstone)"),
    ],
)
def test_rejection_of_a_row_names_the_row_and_no_setting(value: bytes | None, reason: str) -> None:
    """A DataFrame with the columns of events has no source whose settings a hint could name."""
    (item,) = RowReader(RowShape(("copy", "value"), (), None), ketal.Limits()).items([(0, value)])
    assert item == ketal.Rejected(place="a row", reason=reason)


def test_partition_key_without_a_column_is_an_error_before_a_row_is_read(
    spark: SparkSession,
) -> None:
    program = ketal.compile(FORKS)
    plain = table(spark, [accept("a", 1, 1)]).drop("time", "data", "height")
    message = (
        r"pattern Forks is partitioned by height, which is in no column; the columns are node, type"
    )
    for groups in (1, 4):
        for events in (
            plain,
            plain.withColumnRenamed("hash", "Height"),
            plain.selectExpr("*", "struct(1 AS other) AS data"),
        ):
            with pytest.raises(SettingError, match=message):
                detect(program, events, key_groups=groups)
        for data in ("'{}'", "map('a', 'b')", "struct(1 AS height)"):
            detect(program, plain.selectExpr("*", f"{data} AS data"), key_groups=groups)
    deep = ketal.compile(FORKS.replace("by height", "by block.height, id"))
    with pytest.raises(SettingError, match=r"partitioned by block\.height, which is in no column"):
        detect(deep, plain.selectExpr("*", "'a' AS id", "struct(1 AS other) AS block"))
    with pytest.raises(SettingError, match="partitioned by id, which is in no column"):
        detect(deep, plain.selectExpr("*", "struct(1 AS height) AS block"))


def test_pattern_with_a_limit_cannot_run_in_several_key_groups(spark: SparkSession) -> None:
    """The limit counts the matches of all scopes, in any order of events."""
    events = table(spark, [accept("a", 1, 1), accept("b", 1, 1), accept("c", 1, 1)])
    for text in (FORKS, FORKS.replace("order CausalOrder; ", "").replace("Conc(Accept)", "Accept")):
        program = ketal.compile(text.replace("Second;\n}", "Second; limit 1;\n}"))
        with pytest.raises(
            SettingError,
            match=r"in 4 key groups: it lists the first 1 match of all scopes.*remove `limit`",
        ):
            detect(program, events, key_groups=4)
        assert len(collected_verdicts(detect(program, events, key_groups=1))) == 1


def test_verdict_columns_are_typed(spark: SparkSession) -> None:
    rows = [
        accept("a", 1, 1, time=1e9),
        accept("b", 1, 1, time=1e9 + 0.123456),
        {"node": "c", "type": "accept"},
    ]
    found = detect(ketal.compile(FORKS), table(spark, rows), key_groups=4)
    assert found.schema.simpleString() == (
        "struct<verdict:string,pattern:string,id:string,execution:string,scope:string,"
        "time:timestamp,events:array<string>,bindings:map<string,array<string>>,json:string>"
    )
    by_kind = {row.verdict: row for row in found.orderBy("verdict").collect()}
    match, rejected = by_kind["match"], by_kind["rejected"]
    assert match.events == ["a@1", "b@1"]
    assert match.bindings == {"First": ["a@1"], "Second": ["b@1"]}
    times = found.selectExpr("CAST(unix_micros(time) AS bigint) AS at").where("at IS NOT NULL")
    assert [row["at"] for row in times.collect()] == [10**15 + 123_456]
    assert (rejected.time, rejected.events, rejected.bindings) == (None, None, None)


def test_time_that_python_cannot_collect_is_in_the_json_only(spark: SparkSession) -> None:
    rows = [accept(node, 1, 1, time=-62_135_596_800.0) for node in "ab"]
    (match,) = detect(ketal.compile(FORKS), table(spark, rows), key_groups=4).collect()
    assert match.time is None
    assert json.loads(match.json)["time"].startswith("0001-01-01T00:00:0")


def test_counts_of_a_table_are_observed(spark: SparkSession) -> None:
    from pyspark.sql import Observation

    other = FORKS.replace("Forks", "Hashes").replace("by height", "by hash")
    program = ketal.compile(WINDOWED_FORKS + other)
    rows = [
        *(accept(node, 1, 1, time=1.0) for node in "ab"),
        accept("a", 1, 1, time=1.0),
        accept("c", 1, None, time=1.0),  # type: ignore[arg-type]
        accept("d", 1, 1),
        {"node": "e", "type": "accept"},
    ]
    counts = Observation("counts")
    found = collected_verdicts(detect(program, table(spark, rows), key_groups=4, counts=counts))
    assert sorted(v["verdict"] for v in found) == ["match", "rejected"]
    counted = counts.get
    expected = {
        "read": 6, "accepted": 4, "duplicates": 1, "rejected": 1, "late": 0, "held_back": 0,
        "overflow": 0, "gaps": 0, "Forks.matches": 1, "Forks.unscoped": 1, "Forks.untimed": 1,
        "Hashes.matches": 0, "Hashes.unscoped": 0, "Hashes.untimed": 0,
    }  # fmt: skip
    assert {name: counted[name] for name in expected} == expected
    assert counted.keys() > expected.keys()


def test_restarts_and_doubtful_clocks_of_a_table_are_counted(spark: SparkSession) -> None:
    from pyspark.sql import Observation

    rows = [accept("a", 1, 1), accept("a", 1, 1, hash="x"), accept("b", 4, 1)]
    counts = Observation("counts")
    found = detect(ketal.compile(FORKS), table(spark, rows), key_groups=4, counts=counts)
    assert len(found.collect()) == 3
    assert (counts.get["restarts"], counts.get["doubtful"]) == (1, 1)


def test_restart_that_two_groups_detect_is_counted_once(spark: SparkSession) -> None:
    from pyspark.sql import Observation

    program = ketal.compile(f"{FORKS} pattern Whole {{ event A = true; find any A A; }}")
    rows = [accept("a", 1, 1), accept("a", 1, 1, hash="x")]
    counts = Observation("counts")
    detect(program, table(spark, rows), key_groups=4, counts=counts).collect()
    assert counts.get["restarts"] == 1


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"counts": 3}, TypeError, "counts must be a pyspark Observation, or a str for a stream"),
        (
            {"lateness_ms": -1},
            SettingError,
            "lateness_ms must be from 0 to 1000000000000000, not -1",
        ),
        ({"lateness_ms": 1.5}, TypeError, "lateness_ms must be an integer, not float"),
        ({"partitions": 0}, SettingError, "partitions must be from 1 to 2147483647, not 0"),
    ],
)
def test_invalid_arguments_are_refused(
    given: dict[str, Any], error: type[Exception], why: str, spark: SparkSession
) -> None:
    with pytest.raises(error, match=why):
        detect(ketal.compile(FORKS), table(spark, [accept("a", 1, 1)]), **given)


def test_counts_of_each_batch_of_a_stream_are_observed(spark: SparkSession, tmp_path: Path) -> None:
    """Counts are per batch, whether a worker kept its group or another worker restored it."""
    batches = [
        [accept("a", 1, 1, time=100.0), accept("b", 1, 1, time=101.0), accept("c", 1, 2)],
        [accept("a", 2, 3, time=200.0), accept("z", 1, None, time=200.0)],  # type: ignore[arg-type]
        [accept("d", height, height, time=149.0) for height in (1, 2)],
        [accept("d", 3, 1, time=300.0), accept("a", 2, 3, time=200.0)],
    ]
    events = stream(spark, tmp_path / "in", batches)
    found = detect(ketal.compile(WINDOWED_FORKS), events, key_groups=4, lateness_ms=1_000,
                   counts="counts")  # fmt: skip
    kinds: list[str] = []
    query = (
        found.writeStream.foreachBatch(
            lambda batch, number: kinds.extend(row.verdict for row in batch.collect())
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    counted = [one["observedMetrics"]["counts"].asDict() for one in query.recentProgress]
    assert Counter(kinds) == {"match": 1, "late": 2, "timed_out": 1}
    summed = {name: sum(one[name] for one in counted) for name in counted[0]}
    expected = {
        "read": 9, "accepted": 6, "duplicates": 1, "late": 2, "rejected": 0, "Forks.matches": 1,
        "Forks.timed_out": 1, "Forks.unscoped": 1, "Forks.untimed": 1,
    }  # fmt: skip
    assert {name: summed[name] for name in expected} == expected
    assert [one["read"] for one in counted if one["read"]] == [3, 2, 2, 2]


def test_last_value_of_a_repeated_json_key_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Also where it decides the key group, whatever else is in the message.

    JSON text in a column is read in the same way.
    """
    height = '"data": {"height": 0, "hash": "a", "height": %d}'
    shapes = (
        '"height": 0, "hash": "a", "height": %d',
        height,
        '"data": {"height": 0}, ' + height,
        f'{height}, "long": {"1" * 3_000}, "deep": {"[" * 150 + "]" * 150}',
    )
    lines = []
    for number, shape in enumerate(shapes, 1):
        for scope in range(number * 100, number * 100 + 5):
            own = shape % scope
            lines.append(f'{{"node": "a", "type": "accept", "clock": {{"a": {scope}}}, {own}}}')
            lines.append(
                f'{{"node": "b", "type": "accept", "clock": {{"b": {scope}}}, '
                f'"data": {{"height": {scope}, "hash": "b"}}}}'
            )
    program = ketal.compile(FORKS)
    wanted = run(program, [line.encode() for line in lines], tmp_path)
    assert len(wanted) == 5 * len(shapes)
    rows = [(None, bytearray(line, "ascii"), "t", 0, n) for n, line in enumerate(lines)]
    kafka = "key binary, value binary, topic string, partition int, offset bigint"
    messages = data_frame(spark, rows, kafka)
    found = collected_verdicts(detect(program, messages, key_groups=16))
    assert without_time(found) == without_time(wanted)
    texts = [
        (
            node,
            "accept",
            f'{{"{node}": {scope}}}',
            f'{{"height": {first}, "height": {scope}}}',
            node,
        )
        for scope in range(1, 6)
        for node, first in (("a", 0), ("b", scope))
    ]
    events = data_frame(
        spark, texts, "node string, type string, clock string, data string, hash string"
    )
    assert len(collected_verdicts(detect(program, events, key_groups=16))) == 5


def test_paths_that_differ_in_case_only_are_distinct(spark: SparkSession) -> None:
    """Spark could not distinguish these fields in one struct."""
    program = ketal.compile(FORKS.replace("by height", "by height, Height, at.x"))
    lines = [
        f'{{"node": "{node}", "type": "accept", "clock": {{"{node}": 1}}, "Height": {n},'
        f' "height": 1, "hash": "{node}", "at": {{"x": 7}}}}'
        for node, n in (("a", 1), ("b", 1), ("c", 2))
    ]
    rows = [(None, bytearray(line, "ascii"), "t", 0, n) for n, line in enumerate(lines)]
    kafka = "key binary, value binary, topic string, partition int, offset bigint"
    messages = data_frame(spark, rows, kafka)
    (match,) = collected_verdicts(detect(program, messages, key_groups=16))
    assert match["events"] == ["a@1", "b@1"]


def test_rows_that_are_no_events_are_rejected(spark: SparkSession) -> None:
    rows = [
        accept("a", 1, 1),
        {"node": "b", "type": "accept"},
        accept("c", 1, 1, clock="nonsense"),
        accept("d", 1, 1, data="[1"),
        accept("e", 1, 1, data="[1]"),
        {"type": "ketal.none"},
    ]
    found = collected_verdicts(detect(ketal.compile(FORKS), table(spark, rows), key_groups=4))
    reasons = sorted(v["reason"] for v in found)
    assert {v["verdict"] for v in found} == {"rejected"}
    assert len(reasons) == 5
    assert any("data is not JSON" in reason for reason in reasons)
    assert any("data must be an object" in reason for reason in reasons)
    assert any("no clock" in reason for reason in reasons)
    assert any("ketal.none is not a control event" in reason for reason in reasons)


def test_key_and_headers_of_a_message_can_be_fields_and_partition_keys(
    spark: SparkSession, broker: Broker, topic: Topic
) -> None:
    """If the key is the partition key, Spark hashes it, and reads a sample of values to check."""
    from kafka import KafkaProducer

    one = topic(2)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for node in ("a", "b"):
            headers = [("vc", f"{node}:1".encode()), ("noise", b"\xff"), ("node", node.encode())]
            value = f'{{"kind": "accept", "height": 1, "hash": "{node}"}}'.encode()
            producer.send(one, value, key=b"1", headers=headers)
        producer.send(one, b'{"kind": "accept"}', key=b"1")
        producer.send(one, None, key=b"1")
    fields = {"node": "kafka.header.node", "clock": "kafka.header.vc", "type": "kind"}
    source = Source(fields=fields, keyed_by="height")
    events = kafka(spark, broker, [one], streaming=False)
    verdicts = detect(ketal.compile(FORKS), events, key_groups=4, source=source)
    plan = verdicts._jdf.queryExecution().optimizedPlan().toString()
    assert "hash(key#" in plan
    assert "L < 10000)" in plan, "the watch looks at the value of few messages"
    found = collected_verdicts(verdicts)
    assert sorted(v["verdict"] for v in found) == ["match", "rejected", "rejected"]


def test_last_of_several_headers_with_one_name_counts_in_both_engines(spark: SparkSession) -> None:
    given: list[list[tuple[str, bytes | None]]] = [
        [("type", b"a"), ("type", b"b")],
        [("type", b"c"), ("type", None)],
        [("type", b"\xff"), ("type", b"d")],
        [("type", b"e"), ("type", b"\xff")],
    ]
    source = Source(fields={"type": "kafka.header.type"})
    value = b'{"node": "n", "clock": {"n": %d}}'
    rows = [(None, value % n, "t", 0, n, headers) for n, headers in enumerate(given, 1)]
    names = ("key", "value", "topic", "partition", "offset", "headers")
    records = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]
    values = [record.value for record in records]
    items = MessageReader(source, ketal.Limits()).items(values, records.__getitem__)
    assert [getattr(item, "type", None) for item in items] == ["b", None, "d", None]
    events = data_frame(
        spark, rows, "key binary, value binary, topic string, partition int, offset long, "
        "headers array<struct<key string, value binary>>"
    )  # fmt: skip
    program = ketal.compile("pattern P { event A = true; find next A; return type = A.type; }")
    found = collected_verdicts(detect(program, events, key_groups=1, source=source))
    types = [verdict["return"]["type"] for verdict in found if verdict["verdict"] == "match"]
    assert types == ["b", "d"]
    assert [v["reason"] for v in found if v["verdict"] == "rejected"] == [
        item.reason for item in items if isinstance(item, Rejected)
    ]


@pytest.mark.parametrize("groups", [1, 4])
def test_events_without_clocks_are_named_by_their_partitions(
    groups: int, spark: SparkSession
) -> None:
    """The node is `topic/partition`, also as the key of `partition by`."""
    rows = [(b'{"type": "accept"}', partition, 7 + n) for n in range(2) for partition in range(2)]
    events = data_frame(spark, rows, "value binary, partition int, offset long").selectExpr(
        "CAST(NULL AS BINARY) AS key", "value", "'t' AS topic", "partition", "offset"
    )
    text = """pattern Two { partition by node; event Accept = type == "accept";
        First = Accept; Second = Accept; find next First Second; }"""
    source = Source(clock="none")
    found = detect(ketal.compile(text), events, key_groups=groups, source=source).collect()
    assert sorted(row.events for row in found) == [["t/0@8", "t/0@9"], ["t/1@8", "t/1@9"]]
    with pytest.raises(ketal.PatternError, match="a log without clocks does not determine"):
        detect(ketal.compile(FORKS), events, key_groups=groups, source=source)


def test_contradiction_is_reported_once_by_the_family_that_gets_both_events(
    spark: SparkSession,
) -> None:
    other = FORKS.replace("Forks", "Other").replace("by height", "by hash")
    rows = [
        *(accept("a", 2, height, hash="x") for height in (1, 2)),
        *(accept("b", 2, 3, hash=text) for text in "yz"),
        *(accept("c", 2, 4, hash="w", time=time) for time in (1.0, 2.0)),
    ]
    found = collected_verdicts(
        detect(ketal.compile(FORKS + other), table(spark, rows), key_groups=64)
    )
    rejected = [v for v in found if v["verdict"] == "rejected"]
    assert sorted(v["place"] for v in rejected) == ["a@2", "b@2", "c@2"]
    assert all("was read before with other content" in v["reason"] for v in rejected)


def test_equal_numbers_are_in_one_key_group(spark: SparkSession) -> None:
    """17 and 17.0 are the same scope, and so are 0 and -0.0."""
    rows = [
        accept(node, 1, None, data=json.dumps({"height": height, "hash": node}))  # type: ignore[arg-type]
        for node, height in zip("abcdef", (17, 17.0, 0, -0.0, 1e3, 1000), strict=True)
    ]
    events = table(spark, rows).drop("height", "hash")
    found = collected_verdicts(detect(ketal.compile(FORKS), events, key_groups=64))
    assert sorted(tuple(v["events"]) for v in found) == [
        ("a@1", "b@1"), ("c@1", "d@1"), ("e@1", "f@1"),
    ]  # fmt: skip


def test_repeated_batch_gives_the_same_verdicts(spark: SparkSession, tmp_path: Path) -> None:
    """As after a driver was killed before the batch's commit: the ids are the same."""
    program = ketal.compile(FORKS)
    batches = [
        [accept("a", 1, 1), accept("a", 2, 2)],
        [accept("b", 1, 1)],
        [accept("c", 1, 2), accept("c", 2, 1)],
    ]
    events = stream(spark, tmp_path / "in", batches)
    checkpoint = tmp_path / "checkpoint"
    everything = collected_verdicts(detect(program, events, key_groups=4), checkpoint)
    assert len(everything) == 4
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    again = collected_verdicts(detect(program, events, key_groups=4), checkpoint)
    assert {v["id"] for v in again} < {v["id"] for v in everything}
    # A new stream resumes from there.
    more = [*batches, [accept("d", 1, 1)]]
    events = stream(spark, tmp_path / "in", more)
    found = collected_verdicts(detect(program, events, key_groups=4), checkpoint)
    assert sorted(v["events"] for v in found) == [["a@1", "d@1"], ["b@1", "d@1"], ["d@1", "c@2"]]


def test_pattern_that_cannot_run_in_key_groups_is_refused(spark: SparkSession) -> None:
    events = table(spark, [accept("a", 1, 1)])
    eager = ketal.compile(FORKS.replace("find any", "find next"))
    with pytest.raises(
        SettingError,
        match=r"Forks cannot run in 16 key groups.*frontier(.|\n)*"
        r"key_groups = 1 for a single ordering stage",
    ):
        detect(eager, events)
    assert collected_verdicts(detect(eager, events, key_groups=1)) == []
    possibly = ketal.compile(TURNS.replace("(total, nodes = [\"a\", \"b\", \"c\"]);",
                                           "; mode possibly;"))  # fmt: skip
    with pytest.raises(NotAvailableError, match="mode possibly"):
        detect(possibly, events)
    for groups in (0, 100_000):
        with pytest.raises(SettingError, match=f"key_groups must be from 1 to 32768, not {groups}"):
            detect(eager, events, key_groups=groups)
    with pytest.raises(TypeError, match="key_groups must be an integer, not bool"):
        detect(eager, events, key_groups=True)
    with pytest.raises(SettingError, match="not node, type"):
        detect(ketal.compile(FORKS), events.select("node", "type"))
    with pytest.raises(TypeError, match="pyspark DataFrame"):
        detect(ketal.compile(FORKS), [])  # type: ignore[arg-type]


def test_pattern_of_a_single_key_group_is_warned_of(spark: SparkSession) -> None:
    program = ketal.compile(FORKS.replace("partition by height;", ""))
    with pytest.warns(UserWarning, match="Forks is not partitioned: `partition by` an attribute"):
        detect(program, table(spark, [accept("a", 1, 1)]))


def test_registered_guard_is_sent_to_executors_with_the_program(spark: SparkSession) -> None:
    """A guard of a module is sent by name; a closure, as in this test, by value."""
    forbidden = {"b"}
    ketal.register_guard("allowed_here", lambda text: text not in forbidden, version="1")
    text = FORKS.replace("hash != First.hash", "allowed_here(hash)")
    rows = [accept("a", 1, 1), accept("b", 1, 1), accept("c", 1, 1)]
    found = collected_verdicts(detect(ketal.compile(text), table(spark, rows), key_groups=4))
    # Either event of a pair may be the one under the guard, which never accepts b.
    pairs = [("a@1", "c@1"), ("b@1", "a@1"), ("b@1", "c@1"), ("c@1", "a@1")]
    assert sorted(tuple(v["events"]) for v in found) == pairs
    lock = threading.Lock()
    ketal.register_guard("allowed_here", lambda text: lock.locked(), version="2")
    with pytest.raises(SettingError, match=r"cannot be sent to Spark's executors.*pickle"):
        detect(ketal.compile(text), table(spark, rows), key_groups=4)


@pytest.mark.parametrize("groups", [1, 7, 300])
def test_number_of_key_groups_does_not_change_the_verdicts(
    spark: SparkSession, groups: int
) -> None:
    program = ketal.compile(FORKS)
    rows = [accept(f"n{node}", height + 1, height) for node in range(3) for height in range(20)]
    events = [
        ketal.Event(
            row["node"],
            row["type"],
            json.loads(row["clock"]),
            data={name: row[name] for name in ("height", "hash")},
        )
        for row in rows
    ]
    alone = [verdict.to_dict()["id"] for verdict in ketal.run(program, events)]
    assert alone
    found = detect(program, table(spark, rows), key_groups=groups).collect()
    assert sorted(verdict.id for verdict in found) == sorted(alone)


@pytest.mark.parametrize(
    ("wide", "message"),
    [
        (True, "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
        (False, r"\(hashing 2\), but would now be in .* \(hashing 3\)"),
    ],
)
def test_checkpoint_of_an_older_hashing_is_refused(
    wide: bool, message: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before hashing 3 the keys of up to 256 groups were no group numbers, and had a wider type."""
    program = ketal.compile(FORKS)

    def query(number: int) -> None:
        events = stream(
            spark, tmp_path / "events", [[accept("n0", n + 1, n)] for n in range(number)]
        )
        begun = detect(program, events).writeStream.format("noop").trigger(availableNow=True)
        begun.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    def keyed(*given: Any) -> DataFrame:
        frame = divided(*given)
        return frame.withColumn("group", frame["group"].cast("bigint"))

    divided = shaping._row_per_group
    with monkeypatch.context() as before:
        before.setattr(families, "HASHING", 2)
        if wide:
            before.setattr(shaping, "_row_per_group", keyed)
        query(1)
        query(2)
    with pytest.raises(StreamingQueryException, match=message):
        query(40)
