"""`ketal.streaming.spark.detect`: from streams and tables the verdicts of `ketal.run`."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ketal
from ketal.errors import NotAvailableError, SettingError
from ketal.logs import Source
from ketal.streaming.broker import Broker
from ketal.streaming.spark import detect
from tests.streaming.jobs import END, FORKS, WINDOWED_FORKS, Topic, produce, spread
from tests.test_corpus import CORPUS, Case, without_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:.*key.group:UserWarning")

SCHEMA = "node string, type string, clock string, time double, data string, height int, hash string"


def accept(node: str, counter: int, height: int, **more: Any) -> dict[str, Any]:
    own = {"node": node, "type": "accept", "clock": json.dumps({node: counter})}
    return {**own, "height": height, "hash": node, **more}


def table(spark: SparkSession, rows: Sequence[dict[str, Any]], schema: str = SCHEMA) -> DataFrame:
    """Return rows as a DataFrame; what a row does not have is null."""
    names = [column.split()[0] for column in schema.split(", ")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def stream(
    spark: SparkSession,
    folder: Path,
    batches: Sequence[Sequence[dict[str, Any]]],
    schema: str = SCHEMA,
) -> DataFrame:
    """Return a stream that has one file a batch, in their order."""
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


def said(verdicts: DataFrame, checkpoint: Path | None = None) -> list[dict[str, Any]]:
    """Return the verdicts; of a stream those until its end, from a checkpoint on."""
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


@pytest.mark.parametrize("name", ["design_forked_blocks", "find_any_causal"])
def test_a_topic_says_what_run_says(
    name: str, spark: SparkSession, broker: Broker, topic: Topic
) -> None:
    case, topics = Case(name), (topic(2), topic(2))
    lines = (CORPUS / name / "events.jsonl").read_bytes().splitlines()
    produce(broker, spread(lines, [(t, n) for t in topics for n in range(2)], seed=7))
    for streaming in (False, True):
        events = kafka(spark, broker, topics, streaming=streaming)
        found = said(detect(case.program, events, key_groups=4, partitions=4))
        assert without_time(found) == without_time(case.verdicts)


def test_windows_close_by_the_watermark_in_groups_that_are_quiet(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing more comes to the group of height 1, and yet its window ends; then an event is late.

    Spark would drop that event without a word. A group in which nothing waited for time, as that of
    height 2, and one that had no rows yet, go by the same watermark.
    """
    program = ketal.compile(WINDOWED_FORKS)
    batches = [
        [accept("a", 1, 1, time=100.0), accept("b", 1, 2, time=101.0), accept("c", 1, 2, time=102)],
        [accept("a", 2, 3, time=200.0)],
        [accept("a", 3, 3, time=200.5)],
        [accept("d", height, height, time=149.0) for height in (1, 2, 4)],
    ]
    events = stream(spark, tmp_path / "in", batches)
    found = said(detect(program, events, key_groups=64, lateness_ms=1_000))
    assert sorted(v["verdict"] for v in found) == ["late"] * 3 + ["match", "timed_out"]
    by_kind = {v["verdict"]: v for v in found if v["verdict"] != "late"}
    assert by_kind["timed_out"]["bindings"] == {"First": ["a@1"]}
    assert by_kind["match"]["events"] == ["b@1", "c@1"]
    assert sorted(v["event"] for v in found if v["verdict"] == "late") == ["d@1", "d@2", "d@4"]


def test_a_column_of_time_keeps_its_watermark(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

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


def test_one_group_holds_back_what_a_total_order_needs(
    spark: SparkSession, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    program, one = ketal.compile(TURNS), topic(4)
    produce(broker, spread(turns(), [(one, n) for n in range(4)], seed=3))
    wanted = run(program, turns(), tmp_path)
    assert len(wanted) > 3
    for streaming in (False, True):
        events = kafka(spark, broker, [one], streaming=streaming)
        found = said(detect(program, events, key_groups=4, partitions=4))
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


def test_patterns_of_several_partitions_each_have_their_groups(
    spark: SparkSession, broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """In the order of one topic partition, counted once, and what is malformed is told once."""
    program, one = ketal.compile(ARRIVAL), topic()
    lines = turns()
    poisoned = [*lines[:4], b"poison", *lines[4:], lines[2]]
    produce(broker, [(one, 0, line) for line in [*poisoned, END, lines[0]]])
    wanted = run(program, lines, tmp_path)
    assert {v["pattern"] for v in wanted} == {"Turns", "Same", "Keys"}
    found = []
    for streaming in (False, True):
        events = kafka(spark, broker, [one], streaming=streaming)
        found = said(detect(program, events, key_groups=4, partitions=1))
        rejected = [v for v in found if v["verdict"] == "rejected"]
        places = sorted((v["place"], v["reason"].split(" (")[0]) for v in rejected)
        assert [place for place, _ in places] == [f"{one}/0/24", f"{one}/0/4"]
        assert places[0][1] == "its partition has ended"
        assert without_time([v for v in found if v not in rejected]) == without_time(wanted)


def test_columns_of_an_event_come_in_many_types(spark: SparkSession, tmp_path: Path) -> None:
    """Clocks as maps or text, data as a struct, a map, text, or columns of their own."""
    from pyspark.sql import functions as F

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


def test_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    """A join leaves them; Spark tells names apart by more than the case of their letters."""
    program, events = ketal.compile(FORKS), table(spark, [accept("a", 1, 1)])
    names = events.columns
    for other in ("height", "Height"):
        twice = events.select(*names, events["height"].alias(other))
        with pytest.raises(SettingError, match=f"columns of one name: height, {other}; select"):
            detect(program, twice, key_groups=4)


def test_rows_that_are_no_events_are_verdicts(spark: SparkSession) -> None:
    rows = [
        accept("a", 1, 1),
        {"node": "b", "type": "accept"},
        accept("c", 1, 1, clock="nonsense"),
        accept("d", 1, 1, data="[1"),
        accept("e", 1, 1, data="[1]"),
        {"type": "ketal.none"},
    ]
    found = said(detect(ketal.compile(FORKS), table(spark, rows), key_groups=4))
    reasons = sorted(v["reason"] for v in found)
    assert {v["verdict"] for v in found} == {"rejected"}
    assert len(reasons) == 5
    assert any("data is not JSON" in reason for reason in reasons)
    assert any("data must be an object" in reason for reason in reasons)
    assert any("no clock" in reason for reason in reasons)
    assert any("ketal.none is no control event" in reason for reason in reasons)


def test_keys_and_headers_are_fields_and_groups(
    spark: SparkSession, broker: Broker, topic: Topic
) -> None:
    """Where the key is the partition, Spark hashes it, and reads the value of some to see that."""
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
    found = said(verdicts)
    assert sorted(v["verdict"] for v in found) == ["match", "rejected", "rejected"]


def test_a_dot_with_two_contents_is_told_once_by_whichever_family_sees_both(
    spark: SparkSession,
) -> None:
    other = FORKS.replace("Forks", "Other").replace("by height", "by hash")
    rows = [
        *(accept("a", 2, height, hash="x") for height in (1, 2)),
        *(accept("b", 2, 3, hash=text) for text in "yz"),
        *(accept("c", 2, 4, hash="w", time=time) for time in (1.0, 2.0)),
    ]
    found = said(detect(ketal.compile(FORKS + other), table(spark, rows), key_groups=64))
    rejected = [v for v in found if v["verdict"] == "rejected"]
    assert sorted(v["place"] for v in rejected) == ["a@2", "b@2", "c@2"]
    assert all("was read before with other content" in v["reason"] for v in rejected)


def test_equal_values_meet_in_one_group(spark: SparkSession) -> None:
    """17 and 17.0 are one scope, and so are 0 and -0.0."""
    rows = [
        accept(node, 1, None, data=json.dumps({"height": height, "hash": node}))  # type: ignore[arg-type]
        for node, height in zip("abcdef", (17, 17.0, 0, -0.0, 1e3, 1000), strict=True)
    ]
    events = table(spark, rows).drop("height", "hash")
    found = said(detect(ketal.compile(FORKS), events, key_groups=64))
    assert sorted(tuple(v["events"]) for v in found) == [
        ("a@1", "b@1"), ("c@1", "d@1"), ("e@1", "f@1"),
    ]  # fmt: skip


def test_a_batch_that_is_done_again_says_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A driver that was killed before the batch's commit: the same verdicts, with the same ids."""
    program = ketal.compile(FORKS)
    batches = [
        [accept("a", 1, 1), accept("a", 2, 2)],
        [accept("b", 1, 1)],
        [accept("c", 1, 2), accept("c", 2, 1)],
    ]
    events = stream(spark, tmp_path / "in", batches)
    checkpoint = tmp_path / "checkpoint"
    everything = said(detect(program, events, key_groups=4), checkpoint)
    assert len(everything) == 4
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    again = said(detect(program, events, key_groups=4), checkpoint)
    assert {v["id"] for v in again} < {v["id"] for v in everything}
    # And from there it goes on.
    more = [*batches, [accept("d", 1, 1)]]
    events = stream(spark, tmp_path / "in", more)
    found = said(detect(program, events, key_groups=4), checkpoint)
    assert sorted(v["events"] for v in found) == [["a@1", "d@1"], ["b@1", "d@1"], ["d@1", "c@2"]]


def test_what_cannot_run_in_parts_is_refused(spark: SparkSession) -> None:
    events = table(spark, [accept("a", 1, 1)])
    eager = ketal.compile(FORKS.replace("find any", "find next"))
    with pytest.raises(
        SettingError,
        match=r"Forks cannot run in 16 key groups.*frontier(.|\n)*"
        r"key_groups = 1 is one ordering stage",
    ):
        detect(eager, events)
    assert said(detect(eager, events, key_groups=1)) == []
    possibly = ketal.compile(TURNS.replace("(total, nodes = [\"a\", \"b\", \"c\"]);",
                                           "; mode possibly;"))  # fmt: skip
    with pytest.raises(NotAvailableError, match="mode possibly"):
        detect(possibly, events)
    for groups in (0, 100_000, True):
        with pytest.raises(SettingError, match="key_groups must be"):
            detect(eager, events, key_groups=groups)
    with pytest.raises(SettingError, match="these have node, type"):
        detect(ketal.compile(FORKS), events.select("node", "type"))
    with pytest.raises(TypeError, match="pyspark DataFrame"):
        detect(ketal.compile(FORKS), [])  # type: ignore[arg-type]


def test_a_pattern_of_one_group_is_warned_of(spark: SparkSession) -> None:
    program = ketal.compile(FORKS.replace("partition by height;", ""))
    with pytest.warns(UserWarning, match="Forks is not partitioned: `partition by` an attribute"):
        detect(program, table(spark, [accept("a", 1, 1)]))


def test_a_registered_guard_travels_with_the_program(spark: SparkSession) -> None:
    """One that stands in a module by its name; one of this test, a closure, as it is."""
    forbidden = {"b"}
    ketal.register_guard("allowed_here", lambda text: text not in forbidden, version="1")
    text = FORKS.replace("hash != First.hash", "allowed_here(hash)")
    rows = [accept("a", 1, 1), accept("b", 1, 1), accept("c", 1, 1)]
    found = said(detect(ketal.compile(text), table(spark, rows), key_groups=4))
    # Either may be the one that the guard is asked of, and b is never let through.
    pairs = [("a@1", "c@1"), ("b@1", "a@1"), ("b@1", "c@1"), ("c@1", "a@1")]
    assert sorted(tuple(v["events"]) for v in found) == pairs
    lock = threading.Lock()
    ketal.register_guard("allowed_here", lambda text: lock.locked(), version="2")
    with pytest.raises(SettingError, match=r"cannot be sent to Spark's executors.*pickle"):
        detect(ketal.compile(text), table(spark, rows), key_groups=4)
