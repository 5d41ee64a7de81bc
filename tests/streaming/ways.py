"""Five ways to have one program judge one execution: the same verdicts, the same counts.

An `Execution` is a program, its events in the order of a file, and the same events as messages on
Kafka. Each way takes an execution and returns its `Outcome`: `ketal.run` of the file, a `Monitor`
fed in the order in which the messages were produced, the process engine and Spark from the topics,
and Spark from a table in Parquet.

The one rule: no way sees the expected answer.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
import pyarrow.parquet
from kafka import KafkaAdminClient, KafkaProducer

import ketal
from ketal.errors import EventError
from ketal.logs.formats.jsonl import decoded
from ketal.logs.shape import Shape
from ketal.logs.source import Source
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT
from ketal.model.log_arguments import LogItem
from ketal.model.summaries import total
from ketal.model.values import base_node
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.runtime.silence.vacuity import add_findings
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.distribution import unsplittable_reason
from ketal.streaming.spark import group_rows
from ketal.streaming.spark.families import families, findings_of_groups
from ketal.streaming.spark.group import FIGURES
from tests.sampling import sample
from tests.streaming.jobs import END, EVER_MS, job_of, run, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_GROUPS = 4
TOPICS, PARTITIONS = 2, sample(2, 4)
"""Number of topics of an execution in any order, and of partitions of each topic."""
SLOTS = TOPICS * PARTITIONS
QUERIES_MAX = 4
"""Number of streaming queries that run side by side."""

_SHAPE = Shape(Source(), limits=DEFAULT)

Slotted = tuple[int, bytes]
"""(number of a partition, counted over all topics; value)."""


class Outcome(NamedTuple):
    """The verdicts and counts of an execution.

    Attributes
    ----------
    verdicts : list of dict
        As JSON, in no particular order.
    events : dict
        How many records were events, duplicates, late or rejected.
    patterns : dict
        The counts of each pattern.
    messages, control : int or None
        Messages consumed from topics, and control events among them; None without topics.
    """

    verdicts: list[dict[str, Any]]
    events: dict[str, int]
    patterns: dict[str, dict[str, int]]
    messages: int | None = None
    control: int | None = None

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the verdicts of these kinds."""
        return [one for one in self.verdicts if one["verdict"] in kinds]

    @property
    def judged(self) -> list[str]:
        """All verdicts but rejections, which name the place in a file or a topic; sorted."""
        return ordered(one for one in self.verdicts if one["verdict"] != "rejected")


def ordered(verdicts: Iterable[dict[str, Any]]) -> list[str]:
    """Return verdicts as sorted text, so that equal lists mean equal multisets."""
    return sorted(json.dumps(one, sort_keys=True) for one in verdicts)


@dataclass(frozen=True)
class Execution:
    """One program over one execution.

    Parameters
    ----------
    name : str
        The name of the execution in the tests.
    program : Program
        The patterns.
    lines : tuple of bytes
        The events as JSON, in the order of a file.
    messages : tuple of (int, bytes)
        Partition and value, in the order in which they are produced.
    topics, partitions : int
        How many topics, and how many partitions each of them has.
    """

    name: str
    program: ketal.Program
    lines: tuple[bytes, ...]
    messages: tuple[Slotted, ...]
    topics: int = TOPICS
    partitions: int = PARTITIONS

    @property
    def slots(self) -> int:
        """The number of partitions of all topics together."""
        return self.topics * self.partitions

    @property
    def in_order(self) -> bool:
        """Whether the place of a message is part of the answer."""
        return any(not compiled.causal for compiled in self.program.compiled)


# --- executions -------------------------------------------------------------------


def shuffled(name: str, program: ketal.Program, lines: Sequence[bytes], seed: int) -> Execution:
    """Return an execution in shuffled order over all partitions of its topics."""
    chance = random.Random(seed)
    mixed = chance.sample(list(lines), len(lines))
    messages = [(chance.randrange(SLOTS), line) for line in mixed]
    return Execution(name, program, tuple(lines), (*messages, *_ends(SLOTS)))


def by_scope(name: str, program: ketal.Program, lines: Sequence[bytes], seed: int) -> Execution:
    """Return an execution that has the events of each scope in one partition, in file order.

    A single scope has a single partition. The partitions are interleaved at random.
    """
    compiled = program.one
    if not compiled.partition:
        return in_one_partition(name, program, lines)
    keys = [read for _, read in compiled.partition]
    return _keyed(name, program, lines, seed, lambda event: [_equal(read(event)) for read in keys])


def by_node(name: str, program: ketal.Program, lines: Sequence[bytes], seed: int) -> Execution:
    """Return an execution that has all events of a node in one partition, in file order.

    As from a `KafkaSink`, an incarnation follows the earlier ones of its node, which have ended.
    The partitions are interleaved at random.
    """
    return _keyed(name, program, lines, seed, lambda event: base_node(event.node))


def _keyed(
    name: str,
    program: ketal.Program,
    lines: Sequence[bytes],
    seed: int,
    key_of: Callable[[Event], object],
) -> Execution:
    """Return an execution whose messages with equal keys are in one partition, in file order."""
    chance = random.Random(seed)
    queues: dict[int, list[bytes]] = {}
    for line in lines:
        event = item_of(line)
        assert isinstance(event, Event)
        slot = zlib.crc32(json.dumps(key_of(event)).encode()) % SLOTS
        queues.setdefault(slot, []).append(line)
    out: list[Slotted] = []
    while queues:
        slot = chance.choice(sorted(queues))
        out.append((slot, queues[slot].pop(0)))
        if not queues[slot]:
            del queues[slot]
    return Execution(name, program, tuple(lines), (*out, *_ends(SLOTS)))


def in_one_partition(name: str, program: ketal.Program, lines: Sequence[bytes]) -> Execution:
    """Return an execution that has all of its events in one partition, in file order."""
    messages = [(0, line) for line in lines]
    return Execution(name, program, tuple(lines), (*messages, *_ends(1)), 1, 1)


def _ends(slots: int) -> Iterator[Slotted]:
    return ((slot, END) for slot in range(slots))


def _equal(value: Any) -> Any:
    # 1 and 1.0 are one scope; the text of JSON tells them from true and "1".
    return int(value) if isinstance(value, float) and value.is_integer() else value


def in_total_order(text: str, lines: Sequence[bytes]) -> str:
    """Return a pattern's text under the total order of the nodes that the events have."""
    events = [item for line in lines if isinstance(item := item_of(line), Event)]
    nodes = sorted({node for event in events for node in (event.node, *event.clock)})
    named = ", ".join(json.dumps(node) for node in nodes)
    out, times = re.subn(
        r"order CausalOrder;", f"order CausalOrder(total, nodes = [{named}]);", text
    )
    assert times, "the pattern stands under CausalOrder"
    return out


def item_of(line: bytes) -> LogItem:
    """Return the event, control event or rejection that a line decodes to."""
    try:
        return decoded(line, _SHAPE)
    except EventError as fault:
        return Rejected(place="line", reason=fault.reason)


# --- in this process --------------------------------------------------------------


def by_run(execution: Execution, folder: Path) -> Outcome:
    """Have `ketal.run` judge the file."""
    path = folder / "events.jsonl"
    path.write_bytes(b"\n".join(execution.lines))
    verdicts = ketal.run(execution.program, ketal.read_log(path))
    written_verdicts = [one.to_dict() for one in verdicts]
    summary: Any = verdicts.summary
    return Outcome(written_verdicts, summary["events"], _without_folders(summary["patterns"]))


def by_monitor(execution: Execution) -> Outcome:
    """Feed a Monitor in the order in which messages are produced; restore it halfway."""
    program = execution.program
    monitor = ketal.Monitor(program)
    ended: set[int] = set()
    verdicts: list[ketal.Verdict] = []
    half = len(execution.messages) // 2
    for number, (slot, line) in enumerate(execution.messages):
        if number == half:
            monitor = ketal.Monitor.restore(program, monitor.snapshot())
        item = item_of(line)
        if isinstance(item, Control) and item.kind == "end":
            ended.add(slot)
        else:
            verdicts += monitor.feed(item)
    assert len(ended) == execution.slots
    verdicts += monitor.close()
    summary: Any = monitor.summary
    return Outcome(
        [one.to_dict() for one in verdicts],
        summary["events"],
        _without_folders(summary["patterns"]),
    )


# --- from Kafka -------------------------------------------------------------------


def produced(broker: Broker, executions: Iterable[Execution], prefix: str) -> dict[str, list[str]]:
    """Create and fill the topics of executions; return the topic names of each."""
    chosen = list(executions)
    topics = {
        one.name: [f"{prefix}-{number}-{topic}" for topic in range(one.topics)]
        for number, one in enumerate(chosen)
    }
    sizes = {name: one.partitions for one in chosen for name in topics[one.name]}
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(
            {name: {"num_partitions": size} for name, size in sizes.items()},
            wait_for_metadata=True,
        )
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", linger_ms=5)
    with closing(producer):
        sent = []
        for one in chosen:
            for slot, value in one.messages:
                topic = topics[one.name][slot // one.partitions]
                sent.append(producer.send(topic, value, partition=slot % one.partitions))
        producer.flush()
        assert all(one.get(timeout=120) is not None for one in sent)
    return topics


def _without_folders(patterns: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the counts of patterns with the folder of the pattern file removed from places."""
    for counts in patterns.values():
        for entry in (*counts.get("vacuous", ()), *counts.get("unknown", ())):
            entry["place"] = Path(entry["place"]).name
    return patterns


def by_process(
    execution: Execution, broker: Broker, topics: Sequence[str], folder: Path
) -> Outcome:
    """Have the process engine consume the topics."""
    engine = run(job_of(broker, topics, folder), execution.program)
    verdicts = written(folder / "verdicts.jsonl")
    rejected = folder / "rejected.jsonl"
    if rejected.exists():
        verdicts += written(rejected)
    summary = engine.summary
    assert summary is not None
    return Outcome(
        verdicts, summary["events"], _without_folders(summary["patterns"]), **summary["kafka"]
    )


def by_spark_stream(
    executions: Sequence[Execution],
    spark: SparkSession,
    broker: Broker,
    topics: dict[str, list[str]],
    folder: Path,
) -> dict[str, Outcome]:
    """Have streaming queries consume the topics, some side by side, each in several batches."""
    out: dict[str, Outcome] = {}
    for start in range(0, len(executions), QUERIES_MAX):
        query_executions = executions[start : start + QUERIES_MAX]
        rows: dict[str, list[Any]] = {one.name: [] for one in query_executions}
        queries = []
        for one in query_executions:
            half = max(1, len(one.messages) // 2)
            events = kafka_frame(spark, broker, topics[one.name], offsets_max=half)
            frame = _judged(one, events)
            writer = frame.writeStream.foreachBatch(_collecting(rows[one.name]))
            writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{one.name}"))
            queries.append(writer.trigger(availableNow=True).start())
        for query in queries:
            query.awaitTermination()
        out |= {one.name: _outcome(one, rows[one.name]) for one in query_executions}
    return out


def _collecting(rows: list[Any]) -> Any:
    return lambda batch, number: rows.extend(batch.collect())


def kafka_frame(
    spark: SparkSession, broker: Broker, topics: Sequence[str], *, offsets_max: int | None
) -> DataFrame:
    """Return topics as Spark's connector reads them.

    Parameters
    ----------
    offsets_max : int or None
        How many messages a batch of the stream has; None for a table.
    """
    reader = spark.read if offsets_max is None else spark.readStream
    if offsets_max is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(offsets_max))
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .load()
    )


def by_spark_batch(
    execution: Execution, spark: SparkSession, broker: Broker, topics: Sequence[str]
) -> Outcome:
    """Have Spark read the topics as a table."""
    frame = kafka_frame(spark, broker, topics, offsets_max=None)
    return _outcome(execution, _judged(execution, frame).collect())


# --- from Parquet -----------------------------------------------------------------

_PLACE = [("topic", pyarrow.string()), ("partition", pyarrow.int32()), ("offset", pyarrow.int64())]
_OWN = [
    ("node", pyarrow.string()),
    ("type", pyarrow.string()),
    ("clock", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    ("time", pyarrow.float64()),
    ("data", pyarrow.string()),
    ("receives", pyarrow.list_(pyarrow.string())),
]


def write_parquet(execution: Execution, path: Path) -> None:
    """Write the messages of an execution as a table; the end of a table needs no control event.

    Where the place of a message is not part of the answer, the table does not have it either.
    """
    rows: list[dict[str, Any]] = []
    offsets: dict[int, int] = {}
    for slot, line in execution.messages:
        offset = offsets[slot] = offsets.get(slot, -1) + 1
        item = item_of(line)
        if isinstance(item, Control) and item.kind == "end":
            continue
        assert isinstance(item, Event), "a table of events has no column for what is none"
        time = None if item.time is None else float(item.time)
        place = {"topic": f"t{slot // execution.partitions}", "offset": offset,
                 "partition": slot % execution.partitions}  # fmt: skip
        own = {"node": item.node, "type": item.type, "time": time}
        clock, data = list(item.clock.items()), json.dumps(item.data)
        receives = list(map(str, item.receives))
        rows.append({**place, **own, "clock": clock, "data": data, "receives": receives})
    schema = pyarrow.schema([*_PLACE, *_OWN] if execution.in_order else _OWN)
    table = pyarrow.Table.from_pylist(rows, schema=schema)
    # It ships no types.
    write: Any = pyarrow.parquet.write_table
    write(table, path)


def by_spark_table(
    executions: Sequence[Execution], spark: SparkSession, folder: Path
) -> dict[str, Outcome]:
    """Have Spark judge tables, all in one job."""
    from pyspark.sql import functions as F

    union: DataFrame | None = None
    for one in executions:
        path = folder / f"{one.name}.parquet"
        write_parquet(one, path)
        frame = _judged(one, spark.read.parquet(str(path))).withColumn("of", F.lit(one.name))
        union = frame if union is None else union.union(frame)
    assert union is not None
    rows: dict[str, list[Any]] = {one.name: [] for one in executions}
    for row in union.collect():
        rows[row["of"]].append(row)
    return {one.name: _outcome(one, rows[one.name]) for one in executions}


# --- Spark ------------------------------------------------------------------------


def key_groups(program: ketal.Program) -> int:
    """Return how many key groups a program may run in: one if a partitioned pattern must wait."""
    divided = [compiled for compiled in program.compiled if compiled.partition]
    return 1 if any(unsplittable_reason(compiled) for compiled in divided) else KEY_GROUPS


def _judged(execution: Execution, events: DataFrame) -> DataFrame:
    # `detect`, with the rows that count the messages.
    return group_rows(
        execution.program,
        events,
        key_groups=key_groups(execution.program),
        source=None,
        lateness_ms=EVER_MS,
        partitions=execution.slots,
        limits=None,
        figures=True,
    )


def _outcome(execution: Execution, rows: Iterable[Any]) -> Outcome:
    """Return the outcome in rows of verdicts and figures; the last figures of a group count."""
    verdicts: list[dict[str, Any]] = []
    groups: dict[int, dict[str, Any]] = {}
    for row in rows:
        verdict = json.loads(row.json)
        if row.verdict == FIGURES:
            groups[verdict["group"]] = verdict
        else:
            assert (row.verdict, row.id) == (verdict["verdict"], verdict.get("id"))
            verdicts.append(verdict)
    telling = [one for one in groups.values() if one["tells"]]
    patterns = total(one["patterns"] for one in groups.values())
    of_program = families(execution.program, key_groups(execution.program))
    add_findings(patterns, findings_of_groups(of_program, groups.values()))
    return Outcome(
        verdicts,
        total(one["events"] for one in telling),
        _without_folders(patterns),
        sum(one["messages"] for one in telling),
        sum(one["control"] for one in telling),
    )
