"""The folder of a job on Spark: it keeps program, groups, offsets and outputs consistent."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import ketal
from ketal.errors import LostError, SettingError, StateError
from ketal.logs import Source
from ketal.model.limits import DEFAULT
from ketal.runtime.state.records import FORMAT
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.spark import spark_engine
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.families import HASHING, families, row_placements
from ketal.streaming.spark.group import Group, Work
from ketal.streaming.spark.rows.row_reader import RowShape
from ketal.streaming.spark.spark_engine import SparkEngine, _worker_fault
from tests.streaming.jobs import FORKS, HookRecorder, Topic, accept, produce, written
from tests.streaming.spark.frames import data_frame
from tests.streaming.spark.test_engine import run, spark_job

PLAIN = ("copy", "topic", "partition", "offset", "value")
"""The columns of a row whose fields are all in its value."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERN = """
pattern %s {
    order arrival; partition by %s;
    event E = type == "accept";
    First = E; Second = E && hash != First.hash;
    find any First Second;
}
"""
A, B = PATTERN % ("A", "height"), PATTERN % ("B", "node")


def job(folder: Path, **options: Any) -> Job:
    given: dict[str, Any] = {"topics": ("t",), "source": Source(keyed_by="height")}
    return Job(
        pattern="p", bootstrap_servers="b", group_id="g", engine="spark",
        store=Target("dir", str(folder)), **{**given, **options},
    )  # fmt: skip


def write_committed_batch(folder: Path, offsets: str, batch: int = 0, generation: int = 0) -> None:
    """Write the checkpoint files of a committed batch, as Spark does."""
    for name, text in (("offsets", f"v1\n{{}}\n{offsets}"), ("commits", "v1\n{}")):
        at = folder / f"checkpoint-{generation}" / name
        at.mkdir(parents=True, exist_ok=True)
        (at / str(batch)).write_text(text)


def test_folder_of_the_engine_process_is_refused(tmp_path: Path) -> None:
    """Spark would begin at the start of the topics, and write all verdicts again."""
    (tmp_path / "group.json").write_text("{}")
    with pytest.raises(
        SettingError, match="contains the state of a job of the engine process, but"
    ):
        Checkpoint(job(tmp_path), ketal.compile(A))
    assert not (tmp_path / "job.json").exists()


def begin_job(one: Job, text: str, counts: dict[str, int]) -> tuple[str, str]:
    """Return the starting offsets of a job, and the notice if it starts fresh."""
    notices: list[str] = []
    checkpoint = Checkpoint(one, ketal.compile(text), notify=notices.append)
    try:
        return checkpoint.begin(counts), "".join(notices)
    finally:
        checkpoint.close()


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        (
            A,
            Source(),
            "`partition by height` was hashed from the messages' key, and is now from data.height",
        ),
        (
            B,
            Source(keyed_by="node"),
            "`partition by node` was hashed from node, and is now from the messages' k",
        ),
        (
            B,
            Source(keyed_by="height", fields={"node": "kafka.header.n"}),
            "`partition by node` was hashed from node, and is now from kafka.header.n",
        ),
    ],
)
def test_change_of_a_setting_that_decides_key_groups_is_refused(
    text: str, source: Source, message: str, tmp_path: Path
) -> None:
    one = job(tmp_path)
    begin_job(one, text, {"t": 1})
    write_committed_batch(tmp_path, '{"t":{"0":5}}')
    with pytest.raises(
        StateError, match=f"belongs to another job: {message}.*(.|\n)*--on-change fresh"
    ):
        begin_job(replace(one, source=source), text, {"t": 1})
    starting, anew = begin_job(replace(one, source=source, on_change="fresh"), text, {"t": 1})
    assert json.loads(starting) == {"t": {"0": 5}}
    assert message in anew


def test_settings_that_do_not_decide_key_groups_may_change(tmp_path: Path) -> None:
    one = job(tmp_path, source=Source())
    begin_job(one, A, {"t": 1})
    write_committed_batch(tmp_path, '{"t":{"0":5}}')
    for source in (Source(keyed_by="other"), Source(fields={"node": "n"})):
        assert begin_job(replace(one, source=source), A, {"t": 1})[1] == ""
    both = job(tmp_path / "both", source=Source())
    begin_job(both, A + B, {"t": 1})
    write_committed_batch(tmp_path / "both", '{"t":{"0":5}}')
    # A pattern with another partition runs in a group that gets all events.
    assert begin_job(replace(both, source=Source(keyed_by="node")), A + B, {"t": 1})[1] == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hashing", f"hashing was 0, and is now {HASHING}"),
        ("key_groups", "key_groups was 0, and is now 16"),
        ("format", f"it has format 0; this version reads format {FORMAT}"),
    ],
)
def test_checkpoint_with_another_hashing_of_keys_is_refused(
    name: str, message: str, tmp_path: Path
) -> None:
    one, note = job(tmp_path), tmp_path / "job.json"
    begin_job(one, A, {"t": 1})
    write_committed_batch(tmp_path, '{"t":{"0":5}}')
    note.write_text(json.dumps({**json.loads(note.read_text()), name: 0}))
    with pytest.raises(StateError, match=message):
        begin_job(one, A, {"t": 1})


def test_checkpoint_of_other_topics_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path)
    begin_job(one, A, {"t": 1})
    write_committed_batch(tmp_path, '{"t":{"0":5}}')
    with pytest.raises(StateError, match="the topics were t, and are now t, u\n"):
        begin_job(replace(one, topics=["u", "t"]), A, {"t": 1, "u": 1})


@pytest.mark.parametrize("now", [A.replace("!= First", "== First"), A + B, B])
def test_changed_pattern_is_refused_with_the_hint_to_start_a_second_job(
    now: str, tmp_path: Path
) -> None:
    one = job(tmp_path)
    begin_job(one, A, {"t": 1})
    write_committed_batch(tmp_path, '{"t":{"0":5}}')
    noted = (tmp_path / "job.json").read_bytes()
    with pytest.raises(
        StateError, match=r"pattern . (.|\n)*fresh(.|\n)*in a second job with another"
    ):
        begin_job(one, now, {"t": 1})
    assert (tmp_path / "job.json").read_bytes() == noted
    starting, anew = begin_job(replace(one, on_change="fresh"), now, {"t": 1})
    assert json.loads(starting) == {"t": {"0": 5}}
    assert "belongs to another job: pattern" in anew


def test_fresh_start_has_offsets_of_exactly_the_current_partitions(tmp_path: Path) -> None:
    one = job(tmp_path, topics=("gone", "t"))
    begin_job(one, A, {"gone": 1, "t": 2})
    write_committed_batch(tmp_path, '{"gone":{"0":3},"t":{"0":5,"1":6}}', batch=4)
    noted = (tmp_path / "job.json").read_bytes()
    other = replace(one, topics=("new", "t"), on_change="fresh")
    checkpoint = Checkpoint(other, ketal.compile(A))
    checkpoint.close()
    # The note is unchanged until Kafka has confirmed that the topics exist.
    assert (tmp_path / "job.json").read_bytes() == noted
    assert Path(checkpoint.path).name == "checkpoint-1"
    for start, first in (("latest", -1), ("earliest", -2)):
        starting, _ = begin_job(replace(other, start=start), A, {"new": 1, "t": 3, "out": 1})
        assert json.loads(starting) == {
            "new": {"0": first},
            # No message of an added partition was read: it starts at its first message.
            "t": {"0": 5, "1": 6, "2": -2},
        }
    assert json.loads((tmp_path / "job.json").read_bytes())["generation"] == 1
    # A second change before the first batch: the offsets stay the same.
    starting, _ = begin_job(replace(other, key_groups=2, on_change="stop"), A, {"new": 1, "t": 2})
    assert json.loads(starting)["t"] == {"0": 5, "1": 6}


@pytest.mark.parametrize(
    "text", ["", '{"a":' * 20_000, '{"t":{"0":"5"}}'], ids=["cut", "nested", "no number"]
)
@pytest.mark.parametrize("name", ["checkpoint-0/offsets/0", "checkpoint-0.json", "job.json"])
def test_damaged_file_is_reported(name: str, text: str, tmp_path: Path) -> None:
    begin_job(job(tmp_path), A, {"t": 1})
    write_committed_batch(tmp_path, "{}")
    (tmp_path / name).write_text(f"v1\n{{}}\n{text}" if "offsets" in name else text)
    with pytest.raises(StateError, match=f"{name} is damaged"):
        begin_job(job(tmp_path, key_groups=2, on_change="fresh"), A, {"t": 1})


@pytest.mark.parametrize("starting", ["{", '{"t": 1}', {"t": {"0": 1}}, "first", None])
def test_damaged_start_offsets_are_reported(starting: object, tmp_path: Path) -> None:
    begin_job(job(tmp_path), A, {"t": 1})
    noted = json.loads((tmp_path / "job.json").read_bytes())
    (tmp_path / "job.json").write_text(json.dumps({**noted, "starting": starting}))
    with pytest.raises(StateError, match=r"job\.json is damaged"):
        begin_job(job(tmp_path), A, {"t": 1})


def test_numbers_of_groups_do_not_depend_on_the_order_of_patterns(tmp_path: Path) -> None:
    whole = PATTERN.replace("partition by %s;", "") % "W"
    both = PATTERN % ("C", "node, height"), PATTERN % ("D", "height, node")
    texts = [A, B, whole, *both]
    one, other = (families(ketal.compile("".join(t)), 4) for t in (texts, texts[::-1]))
    numbering = [(set(f.program.names), f.partition, f.first) for f in one]
    assert numbering == [(set(f.program.names), f.partition, f.first) for f in other]
    assert [names for names, _, _ in numbering] == [{"W", "A", "B"}, {"C", "D"}]
    begin_job(job(tmp_path), "".join(texts), {"t": 1})
    write_committed_batch(tmp_path, '{"t":{"0":5}}')
    assert begin_job(job(tmp_path), "".join(texts[::-1]), {"t": 1})[1] == ""
    before, now = (
        Work(
            families=found, limits=DEFAULT, shape=RowShape(PLAIN, (), Source()),
            partitions=None, timed=False, figures=False, counts=False,
            placements=row_placements(found, None),
        )
        for found in (one, other)
    )  # fmt: skip
    values = accept("a", 1), accept("a", 2).replace(b'"hash": "a"', b'"hash": "z"')
    rows = [(0, "t", 0, n, value) for n, value in enumerate(values)]
    for number, matches in ((0, 3), (1, 2)):
        group = Group(before, number, None)
        assert list(group.process(rows[:1])) == []
        found = sorted(v.to_dict()["id"] for v in group.process(rows[1:]))
        assert len(found) == matches
        group = Group(before, number, None)
        list(group.process(rows[:1]))
        group = Group(now, number, group.state())
        assert sorted(v.to_dict()["id"] for v in group.process(rows[1:])) == found


def test_batch_is_identified_by_its_number_and_its_offsets(tmp_path: Path) -> None:
    one, program = job(tmp_path), ketal.compile(A)
    checkpoint = Checkpoint(one, program)
    for batch in (0, 1):
        write_committed_batch(tmp_path, f'{{"t":{{"0":{batch}}}}}', batch)
        checkpoint.record_written(batch, {str(batch): {"messages": 1}})
    checkpoint.close()
    notices: list[str] = []
    checkpoint = Checkpoint(one, program, notify=notices.append)
    assert (checkpoint.has_written(0), checkpoint.has_written(1)) == (False, True)
    assert notices == []
    checkpoint.close()
    # The last batch was lost, and another batch has its number.
    shutil.rmtree(checkpoint.path)
    checkpoint = Checkpoint(one, program, notify=notices.append)
    assert "is missing batches up to 1" in notices[0]
    assert not checkpoint.has_written(1)
    write_committed_batch(tmp_path, '{"t":{"0":7}}', 1)
    assert not checkpoint.has_written(1)
    checkpoint.record_written(0, {"2": {"messages": 7}})
    assert checkpoint.written.groups == {"2": {"messages": 7}}
    checkpoint.close()


@pytest.mark.parametrize(
    ("last", "kind", "message"),
    [
        (
            "ketal.errors.StateError: is of another",
            StateError,
            r"is of another\n  hint: use another \[state\] store to start over",
        ),
        ("ketal.errors.SettingError: wrong", SettingError, "wrong"),
        (
            "ModuleNotFoundError: No module named 'ketal'",
            SettingError,
            "failed to import a module: .*'ketal'",
        ),
        ("TypeError: no", RuntimeError, "executor failed: TypeError: no"),
        ("EOFError: ", None, ""),
        ("py4j.protocol.Py4JJavaError: An error occurred", None, ""),
    ],
)
def test_permanent_error_of_an_executor_is_not_treated_as_a_lost_broker(
    last: str, kind: type[Exception] | None, message: str
) -> None:
    outer = (
        "Traceback (most recent call last):\n  File x\n    call()\npy4j.protocol.Py4JError: An\n"
    )
    text = f"{outer}: Caused by\nTraceback (most recent call last):\n  File y\n    z()\n{last}\n"
    fault = _worker_fault(text)
    if kind is None:
        assert fault is None
    else:
        with pytest.raises(kind, match=message):
            raise fault or AssertionError


@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        ("RecordTooLargeException: The request", "too large: .*forks.*\n.*max.message.bytes"),
        ("TopicAuthorizationException: Not authorized to access topics: [f]", r"access.*\[f\]"),
        ("SaslAuthenticationException: Authentication failed", "Authentication failed"),
    ],
)
def test_permanent_error_of_kafka_is_not_treated_as_a_lost_broker(
    thrown: str, message: str
) -> None:
    job = Job(
        pattern="p", topics=["t"], bootstrap_servers="b", group_id="g", engine="spark",
        verdicts=Target("kafka", "forks"), rejected=Target("kafka", "forks"),
    )  # fmt: skip
    engine = SparkEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    fault = engine._classified_fault(
        f"it\n\tat x\nCaused by: org.apache.kafka.common.errors.{thrown}\n"
    )
    with pytest.raises(SettingError, match=message):
        raise fault


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("File file:/s/checkpoint-0/state/0/0/1.changelog does not exist", StateError),
        ("/s/checkpoint-0/offsets/1 (No such file or directory)", StateError),
        ("Item not found: 'gs://s/checkpoint-0/state/0/0/1.zip'", StateError),
        (
            "/s/checkpoint-0/state/0/0/..6.changelog.1-2.TID3.tmp.crc (No space left on device)",
            LostError,
        ),
        ("/s/checkpoint-0/state/0/0/6.sst (Too many open files)", LostError),
        ("rename source /s/checkpoint-0/offsets/.6.1-2.tmp not found.", LostError),
    ],
)
def test_file_that_cannot_be_opened_is_not_missing(what: str, kind: type[Exception]) -> None:
    """A retry may succeed, once the disk has room. Nor is one missing that is being written."""
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b", group_id="g", engine="spark")
    engine = SparkEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    fault = engine._classified_fault(f"it\nCaused by: java.io.FileNotFoundException: {what}\n")
    assert type(fault) is kind


@pytest.mark.parametrize(("answer", "is_lost"), [("x", True), ("xsjava.lang.E: no", False)])
def test_call_that_spark_does_not_answer_loses_the_connection(
    answer: str, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Spark ends during a call, py4j takes the error `x` for the answer."""
    from py4j.protocol import Py4JError, get_return_value

    def counted(*_: object) -> None:
        get_return_value(answer, None, "z:org.apache.spark.sql.functions", "lit")

    monkeypatch.setattr(spark_engine, "partition_counts", counted)
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b", group_id="g", engine="spark")
    engine = SparkEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    checkpoint: Any = SimpleNamespace(written=SimpleNamespace(batch=-1))
    session: Any = None
    outputs: Any = None
    error: type[Exception] = LostError if is_lost else Py4JError
    with pytest.raises(error, match=r"functions\.lit"):
        engine._run(session, checkpoint, outputs)


def test_control_events_do_not_move_the_watermark(spark: SparkSession) -> None:
    from ketal.streaming.spark.rows import shaping
    from ketal.streaming.spark.rows.events import EventColumns
    from ketal.streaming.spark.rows.message_columns import MessageColumns

    values = [b'{"type": "e", "time": 7}', b'{"type": "ketal.watermark", "time": 9}']
    rows = [(None, value, "t", 0, n) for n, value in enumerate(values)]
    kafka = "key binary, value binary, topic string, partition int, offset bigint"
    messages = data_frame(spark, rows, kafka)
    events = data_frame(
        spark,
        [("a", "e", "{}", 7.0), ("a", "ketal.watermark", "{}", 9.0)],
        "node string, type string, clock string, time double",
    )
    both = ((MessageColumns(messages, Source(), ()), messages), (EventColumns(events, ()), events))
    for columns, frame in both:
        at = shaping.with_watermark(frame, columns, 0).selectExpr("unix_timestamp(_at) AS at")
        assert [row["at"] for row in at.collect()] == [7, None]


@pytest.mark.usefixtures("spark")
def test_lost_batches_new_topics_and_foreign_state_on_spark(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    source, folder = topic(), tmp_path / "a folder"
    folder.mkdir()
    produce(broker, [(source, 0, accept("a", 1))])
    one = spark_job(broker, [source], folder, key_groups=2, batch_messages_max=1)
    run(one, ketal.compile(A + B))
    produce(broker, [(source, 0, accept(node, 1)) for node in "bc"])
    # The patterns are in another order, and each message is in its own batch.
    run(one, ketal.compile(B + A))
    state = folder / "state"
    assert len([p for p in (state / "checkpoint-0" / "commits").iterdir() if p.name.isdigit()]) >= 3
    ids = [v["id"] for v in written(folder / "verdicts.jsonl")]
    assert len(ids) == len(set(ids)) == 3
    # Spark's checkpoint is removed, and the note beside it is not.
    shutil.rmtree(state / "checkpoint-0")
    recorder = HookRecorder()
    engine = run(one, ketal.compile(A + B), recorder)
    assert "is missing batches up to" in recorder.notices[0]
    again = [v["id"] for v in written(folder / "verdicts.jsonl")]
    assert (len(again), set(again)) == (6, set(ids))
    assert engine.summary is not None
    assert engine.summary["kafka"]["messages"] == 3

    # Another topic, with --on-change fresh.
    second = topic(2)
    produce(broker, [(second, 1, accept("x", 1)), (source, 0, accept("y", 1))])
    other = replace(one, topics=[second, source], on_change="fresh")
    run(other, ketal.compile(A))
    assert [v["events"] for v in written(folder / "verdicts.jsonl")[6:]] in (
        [["x@1", "y@1"]], [["y@1", "x@1"]],
    )  # fmt: skip

    # State that contradicts job.json is reported at once, without two minutes of retries.
    changed = ketal.compile(A.replace("hash != First.hash", "true"))
    elsewhere = replace(other, store=Target("dir", str(tmp_path / "elsewhere")))
    Checkpoint(elsewhere, changed).close()
    held, foreign = state / "job.json", json.loads((tmp_path / "elsewhere/job.json").read_bytes())
    held.write_text(json.dumps({**json.loads(held.read_bytes()), "program": foreign["program"]}))
    produce(broker, [(source, 0, accept("z", 1))])
    recorder = HookRecorder()
    with pytest.raises(StateError, match="of another program: pattern A changed"):
        run(replace(other, on_change="stop"), changed, recorder)
    assert recorder.notices == []
