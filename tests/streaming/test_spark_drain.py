"""A pattern that changes under a job on Spark: each occurrence is said by one program."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import pytest

import ketal
from ketal.errors import StateError
from ketal.event import Event
from ketal.logs import Source
from ketal.monitor import Monitor
from ketal.program import Program
from ketal.streaming.broker import Broker
from ketal.streaming.drain import Draining, take_up
from ketal.streaming.spark import verdicts
from ketal.streaming.spark.change import Change
from ketal.streaming.spark.checkpoint import Checkpoint
from ketal.streaming.spark.engine import Engine
from ketal.streaming.spark.families import families
from ketal.streaming.spark.group import ALONE, FIGURES, HOMES, PLAIN, TOUCH, Group, Work
from ketal.verdicts import Verdict
from tests.property.executions import execution
from tests.streaming.jobs import (
    FORKS,
    WINDOWED_FORKS,
    Told,
    Topic,
    accept,
    expected,
    job_of,
    produce,
    until,
    written,
)
from tests.streaming.jobs import run as run_in_process
from tests.streaming.test_spark_checkpoint import job, ran
from tests.streaming.test_spark_engine import PATIENCE_S, run, spark_job, uncommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER = WINDOWED_FORKS.replace('"accept";', '"accept" && height > 0;')
KEY_GROUPS = 3
PATTERN = """
pattern %s { order %s; partition by %s;
    event A = type == "%s"; event B = type == "S.b"; event N = type == "%s"; %s; within 4 s; }
"""
FINDS = {
    "CausalOrder": "find any A B",
    "arrival": "find next A B",
    # What a queue releases at once is in canonical order, so only this is the same in any batches.
    "CausalOrder(frontier = 1 h)": "find any A not N B",
}


def program(order: str, first: str, other: str) -> Program:
    """Return a program of two families, whose patterns P and Q have that first step."""
    return ketal.compile(
        PATTERN % ("P", order, "key", first, other, FINDS[order])
        + PATTERN % ("Q", "arrival", "node", first, other, "find next A B")
        + PATTERN % ("Kept", "CausalOrder", "key", "S.c", "S.a", "find any A B")
    )


def work(now: Program, was: Program | None = None) -> Work:
    return Work(
        programs=tuple((f.first, f.program) for f in families(now, KEY_GROUPS)),
        limits=ketal.Limits(), source=Source(), columns=(*PLAIN, HOMES), headers=(),
        partitions=1, timed=True, figures=True, change=int(was is not None),
        was=() if was is None else tuple(f.program for f in families(was, KEY_GROUPS)),
    )  # fmt: skip


class Groups:
    """Key groups as Spark calls them: each has its state, and nothing else from batch to batch."""

    def __init__(self, now: Program, events: Sequence[Event]) -> None:
        self.work = work(now)
        self.states: dict[int, bytes] = {}
        self.figures: dict[int, dict[str, Any]] = {}
        self._events = events
        count = KEY_GROUPS * len(families(now, KEY_GROUPS))
        self._all = range(count)

    def homes(self, event: Event) -> list[int]:
        """Return the group of an event in each of the two families."""
        values = (event.data.get("key"), event.node)
        return [crc32(repr(v).encode()) % KEY_GROUPS + KEY_GROUPS * n for n, v in enumerate(values)]

    def batch(self, start: int, stop: int, mark_ms: int, *, touch: bool = False) -> list[Verdict]:
        rows: dict[int, list[Any]] = {}
        for at in range(start, stop):
            event = self._events[at]
            value = msgspec.json.encode(
                {"node": event.node, "type": event.type, "clock": event.clock, "data": event.data}
                | ({} if event.time is None else {"time": event.time})
            )
            homes = self.homes(event)
            for number in homes:
                rows.setdefault(number, []).append((ALONE, "t", 0, at, value, homes))
            for number in self._all if touch else ():
                rows.setdefault(number, []).append((TOUCH, "t", 0, at, value, homes))
        out: list[Verdict] = []
        for number in self._all:
            group = Group(self.work, number, self.states.get(number))
            if number not in rows and not (number in self.states and group.waits):
                continue  # Spark does not call it.
            out += [*group.advance(mark_ms), *group.take(rows.get(number, ()))]
            self.figures[number] = json.loads(str(group.figures()[5]))
            self.states[number] = group.state()
        return out


def ids(verdicts: Iterable[Verdict]) -> Counter[str]:
    return Counter(v.id for v in verdicts if isinstance(v, ketal.Match | ketal.TimedOut))


@pytest.mark.parametrize("order", FINDS)
def test_groups_say_what_the_process_engine_says_when_they_drain(order: str) -> None:
    """Whenever a group takes the change up, and however its rows are cut into batches."""
    said_since = sum(_drained_alike(order, seed) for seed in range(12))
    assert said_since > 5


def _drained_alike(order: str, seed: int) -> int:
    """Hold the groups against one monitor; return how many verdicts the old patterns said."""
    rng = random.Random(seed)
    events = execution(rng, events_max=40, untimed=0.0, linear=True)
    # No event has an earlier time than one that it depends on (docs/spark.md).
    events = [msgspec.structs.replace(e, time=1 + 0.4 * n) for n, e in enumerate(events)]
    times_ms = {e.dot: 1000 + 400 * n for n, e in enumerate(events)}
    if order != "arrival":
        rng.shuffle(events)
    old, new = program(order, "S.a", "S.c"), program(order, "S.c", "S.a")
    groups, whole = Groups(old, events), Monitor(old)
    cut = rng.randint(0, len(events))
    stops = sorted({cut, *(rng.randint(0, len(events)) for _ in range(6)), len(events)})
    said: list[Verdict] = []
    wanted: list[Verdict] = []
    one: Monitor | Draining = whole
    start, mark_ms, changed = 0, 1, False
    for stop in stops:
        if start == cut and not changed:
            one = take_up(new, whole.snapshot(), on_change="drain").monitor
            groups.work, changed = work(new, old), True
        said += groups.batch(start, stop, mark_ms, touch=changed and rng.random() < 0.5)
        wanted += one.advance_time(mark_ms / 1e3)
        for event in events[start:stop]:
            wanted += one.feed(event)
        mark_ms = max(mark_ms, min((times_ms[e.dot] for e in events[stop:]), default=mark_ms))
        start = stop
    said += groups.batch(start, start, 1_000_000)
    wanted += one.advance_time(1_000)
    assert ids(said) == ids(wanted), (order, seed)
    assert not any(of["under_way"] for of in groups.figures.values())
    if not isinstance(one, Draining):
        return 0
    assert one.over
    told: dict[str, Counter[str]] = {}
    for of in groups.figures.values():
        for name, counts in of["draining"].items():
            told.setdefault(name, Counter()).update(counts)
    wanted_counts = {n: Counter(c) for n, c in one.summary["draining"].items()}
    assert {n: +c for n, c in told.items() if +c} == {n: +c for n, c in wanted_counts.items() if +c}
    return sum(c.total() for c in told.values())


def test_some_messages_call_all_groups_and_count_once(spark: SparkSession) -> None:
    beside = WINDOWED_FORKS.replace("Forks", "Other").replace("by height", "by node")
    old, new = ketal.compile(WINDOWED_FORKS + beside), ketal.compile(OTHER + beside)
    rows = [("t", n, accept("a", n + 1, time=n)) for n in range(5)]
    rows += [("u", n, accept("b", n + 1, 2, time=n)) for n in range(5)]
    kafka = "key binary, value binary, topic string, partition int, offset bigint"
    table = spark.createDataFrame(
        [(bytearray(b"k"), bytearray(value), topic, 0, at) for topic, at, value in rows], kafka
    )
    change = Change(1, old, ("Forks",), timed=True)
    called = {}
    for first in (3, 5):
        found = verdicts(
            new, table, key_groups=8, source=Source(keyed_by="height"), lateness_ms=0,
            partitions=2, limits=None, figures=True, change=change,
            since={"t": {"0": first}, "u": {"0": 5}},
        )  # fmt: skip
        said = [json.loads(row.json) for row in found.collect() if row.verdict == FIGURES]
        assert sum(of["messages"] for of in said if of["tells"]) == len(rows)
        assert sum(of["events"]["accepted"] for of in said) == 2 * len(rows)
        called[first] = len(said)
    assert called[3] == 16
    assert called[5] <= 5, "one by the key, two by the node, two that are told of a value"


EXECUTOR = """
import pickle, sys
for name in ("lark", "automata", "kafka", "pyspark.sql"):
    sys.modules[name] = None
from ketal.streaming.spark.group import Group
work, state, rows = pickle.load(sys.stdin.buffer)
group = Group(work, 0, state)
said = list(group.take(rows))
group = Group(work, 0, group.state())
said += group.advance(200_000)
print([v.kind for v in said], group.state() and "under_way" in str(group.figures()))
for name in ("lark", "automata", "ketal.grammar.reader"):
    assert sys.modules.get(name) is None, name
"""


def test_executors_need_no_compiler_to_drain() -> None:
    old, new = ketal.compile(WINDOWED_FORKS), ketal.compile(OTHER)
    before = Group(one_work(old), 0, None)
    assert list(before.take([(ALONE, "t", 0, 0, accept("a", time=100))])) == []
    given = (one_work(new, old), before.state(), [(ALONE, "t", 0, 1, accept("b", time=101))])
    done = subprocess.run(
        [sys.executable, "-c", EXECUTOR], input=pickle.dumps(given), capture_output=True,
        check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().startswith("['match', 'timed_out']")


def one_work(now: Program, was: Program | None = None) -> Work:
    return replace(
        work(now), columns=PLAIN, was=() if was is None else (was,), change=int(was is not None)
    )


def test_a_state_of_neither_program_is_refused() -> None:
    old, new = ketal.compile(WINDOWED_FORKS), ketal.compile(OTHER)
    third = ketal.compile(OTHER.replace("height > 0", "height > 1"))
    state = Group(one_work(third), 0, None).state()
    with pytest.raises(StateError, match="of neither program of the change: it has Forks"):
        Group(one_work(new, old), 0, state)
    drains = Group(one_work(new, old), 0, Group(one_work(old), 0, None).state())
    with pytest.raises(StateError, match="pattern Forks changed"):
        Group(one_work(third), 0, drains.state())


def opened(folder: Path, text: str, **options: Any) -> Checkpoint:
    one = job(folder, on_change="drain", key_groups=KEY_GROUPS, **options)
    checkpoint = Checkpoint(one, ketal.compile(text))
    checkpoint.close()
    return checkpoint


def figures(change: int, *, under_way: bool = False) -> dict[str, dict[str, Any]]:
    return {str(n): {"change": change, "under_way": under_way} for n in range(KEY_GROUPS)}


def test_the_folder_of_a_job_that_drains(tmp_path: Path) -> None:
    """It has both programs until each group has said that it is over, in a committed batch."""
    opened(tmp_path, WINDOWED_FORKS).begin({"t": 1})
    ran(tmp_path, '{"t":{"0":5}}')
    noted = (tmp_path / "job.json").read_text()
    # A job of an earlier ketal is read as well.
    earlier = {k: v for k, v in json.loads(noted).items() if k not in ("change", "timed")}
    (tmp_path / "job.json").write_text(json.dumps({**earlier, "format": 2}))
    assert opened(tmp_path, WINDOWED_FORKS).change.timed

    first = opened(tmp_path, OTHER)
    assert first.told.startswith("draining Forks")
    assert first.finishing is None
    assert first.change.was is None, "the change begins when the topics are known to be there"
    first.begin({"t": 1})
    assert first.since() == {"t": {"0": 5}}
    again = opened(tmp_path, OTHER)
    for one in (first, again):
        assert one.change.number == 1
        assert one.change.was is not None
        assert one.change.was.fingerprint == ketal.compile(WINDOWED_FORKS).fingerprint
    with pytest.raises(StateError, match="still drains an earlier change of Forks"):
        opened(tmp_path, WINDOWED_FORKS)

    for said, committed, over in (
        (figures(0), True, False),
        (figures(1, under_way=True), True, False),
        ({"0": figures(1)["0"]}, True, False),
        (figures(1), False, False),
        (figures(1), True, True),
    ):
        one = opened(tmp_path, OTHER)
        one.progress.groups.clear()
        batch = one.progress.batch + 1
        one.wrote(batch, said)
        if committed:
            ran(tmp_path, '{"t":{"0":6}}', batch)
        assert one.is_drained == over, said
        if not over:
            assert not one.take_leave()
    after = opened(tmp_path, OTHER)
    assert (after.told, after.change.was) == ("Forks: drained, the old patterns are over", None)
    assert opened(tmp_path, OTHER).told == "", "it is told once"
    # Now it may change again, and a batch that was begun is finished first.
    (tmp_path / "checkpoint-0" / "offsets" / "7").write_text("v1\n{}\n{}")
    second = opened(tmp_path, WINDOWED_FORKS)
    assert second.finishing is not None
    assert second.finishing.fingerprint == ketal.compile(OTHER).fingerprint
    assert (second.change.number, second.change.was) == (1, None)
    second.begin({"t": 1})
    assert second.change.number == 2


def test_what_groups_said_in_lost_batches_does_not_end_draining(tmp_path: Path) -> None:
    opened(tmp_path, WINDOWED_FORKS).begin({"t": 1})
    ran(tmp_path, '{"t":{"0":5}}')
    first = opened(tmp_path, OTHER)
    first.begin({"t": 1})
    ran(tmp_path, '{"t":{"0":6}}', 1)
    first = opened(tmp_path, OTHER)
    first.wrote(5, figures(1))
    again = opened(tmp_path, OTHER)
    assert "has lost batches up to 5" in again.lost
    for batch, said, over in ((2, {"0": figures(1)["0"]}, False), (3, figures(1), True)):
        again.wrote(batch, said)
        ran(tmp_path, '{"t":{"0":7}}', batch)
        assert again.is_drained == over
        again = opened(tmp_path, OTHER) if not over else again


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (WINDOWED_FORKS, OTHER.replace("by height", "by node"), "keys would leave the groups"),
        (WINDOWED_FORKS, OTHER + FORKS.replace("Forks {", "G {").replace("by height", "by node"),
         "3 for partition by height, and would be 3 for partition by height, 3 for partition by n"),
        (FORKS, OTHER, "no time window"),
        (FORKS, FORKS + OTHER.replace("Forks {", "G {"), "nothing went by time when"),
    ],
)  # fmt: skip
def test_what_cannot_be_drained_is_refused(before: str, now: str, why: str, tmp_path: Path) -> None:
    opened(tmp_path, before)
    ran(tmp_path, '{"t":{"0":5}}')
    noted = (tmp_path / "job.json").read_bytes()
    with pytest.raises(StateError, match=rf"{why}(.|\n)*--on-change fresh"):
        opened(tmp_path, now)
    with pytest.raises(StateError, match=r"topics was \['t'\], and is \['u'\]"):
        opened(tmp_path, now, topics=("u",))
    assert (tmp_path / "job.json").read_bytes() == noted


def told_of(told: Told, word: str) -> list[str]:
    return [sentence for sentence in told.sentences if word in sentence]


def events_of(folder: Path) -> list[list[str]]:
    said = written(folder / "verdicts.jsonl")
    return sorted(v["events"] for v in said if v["verdict"] == "match")


class Both:
    """A job on Spark and its twin in process, which read the same messages in the same stages."""

    def __init__(self, broker: Broker, source: str, folder: Path) -> None:
        self.folders = (folder / "spark", folder / "process")
        for one in self.folders:
            one.mkdir()
        self.spark = spark_job(broker, [source], self.folders[0], lateness_ms=0)
        self.process = job_of(
            broker, [source], self.folders[1], lateness_ms=0, until_end=True, commit_interval_ms=1
        )

    def run(self, program: Program, on_change: str = "stop") -> tuple[Told, dict[str, Any]]:
        """Run both; return what the job on Spark told, and its summary."""
        told = Told()
        of_process = run_in_process(replace(self.process, on_change=on_change), program)
        engine = run(replace(self.spark, on_change=on_change), program, told)
        assert engine.summary is not None
        assert of_process.summary is not None
        assert self.ids(0) == self.ids(1)
        assert engine.summary.get("draining") == of_process.summary.get("draining")
        return told, engine.summary

    def ids(self, which: int) -> set[str]:
        path = self.folders[which] / "verdicts.jsonl"
        return {v["id"] for v in written(path)} if path.exists() else set()

    @property
    def matches(self) -> list[list[str]]:
        said = written(self.folders[0] / "verdicts.jsonl")
        return sorted(v["events"] for v in said if v["verdict"] == "match")


@pytest.mark.usefixtures("spark")
def test_a_job_drains_as_in_process(broker: Broker, topic: Topic, tmp_path: Path) -> None:
    """Each start goes on where the one before was: also in the middle of draining."""
    source = topic()
    both = Both(broker, source, tmp_path)
    gone = WINDOWED_FORKS.replace("Forks {", "Gone {").replace('"accept";', '"never";')
    old, new = ketal.compile(WINDOWED_FORKS + gone), ketal.compile(OTHER)
    produce(broker, [(source, 0, accept("a", 1, time=100))])
    both.run(old)
    with pytest.raises(StateError, match=r"pattern Forks changed: .*events(.|\n)*fresh.*; drain"):
        run(both.spark, new)

    produce(broker, [(source, 0, accept("b", 1, time=101))])
    told, summary = both.run(new, "drain")
    assert told_of(told, "draining Forks, Gone")
    assert both.matches == [["a@1", "b@1"]], "a@1 is from before: the old pattern says it"
    none = {"matches": 0, "timed_out": 0}
    assert summary["draining"] == {"Forks": {**none, "matches": 1}, "Gone": none}
    assert list(summary["patterns"]) == ["Forks"]
    assert summary["kafka"] == {"messages": 2, "control": 0}

    with pytest.raises(StateError, match="still drains an earlier change of Forks, Gone"):
        run(replace(both.spark, on_change="drain"), old)
    produce(broker, [(source, 0, accept("c", 1, time=105))])
    both.run(new)
    assert both.matches == [["a@1", "b@1"], ["a@1", "c@1"], ["b@1", "c@1"]]
    assert len(both.ids(0)) == 3

    produce(broker, [(source, 0, accept("d", n, 2, time=115 + n)) for n in (1, 2)])
    told, summary = both.run(new)
    assert told_of(told, "Forks, Gone: drained")
    assert summary["events"]["accepted"] == 5
    assert "draining" not in summary


@pytest.mark.usefixtures("spark")
def test_a_batch_that_was_begun_is_finished_by_the_old_program(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """And the query goes on with the new program alone when the old one is over."""
    source = topic()
    old, new = ketal.compile(WINDOWED_FORKS), ketal.compile(OTHER)
    job = spark_job(broker, [source], tmp_path, lateness_ms=0)
    path = tmp_path / "verdicts.jsonl"
    produce(broker, [(source, 0, accept("a", 1, time=100))])
    run(job, old)
    produce(broker, [(source, 0, accept("b", 1, time=101))])
    run(job, old)
    before = written(path)
    assert [v["events"] for v in before] == [["a@1", "b@1"]]
    # The driver died when it had written that, and before it noted it: what came after it, a batch
    # that has no rows and passes the time on, did not.
    checkpoint = tmp_path / "state" / "checkpoint-0"
    uncommit(tmp_path)
    for one in (checkpoint / "offsets").glob("*3*"):
        one.unlink()
    uncommit(tmp_path)
    (tmp_path / "state" / "checkpoint-0.json").unlink()
    assert {p.name for p in (checkpoint / "offsets").glob("[0-9]*")} == {"0", "1", "2"}
    assert {p.name for p in (checkpoint / "commits").glob("[0-9]*")} == {"0", "1"}

    after = [accept("x", 1, 3, time=102), accept("y", 1, 3, time=102)]
    produce(broker, [(source, 0, line) for line in (accept("c", 1, time=102), *after)])
    told = Told()
    engine = Engine(replace(job, on_change="drain", until_end=False), new, told.hooks())
    running = threading.Thread(target=engine.run)
    running.start()
    try:
        until(lambda: len(written(path)) == 5)
        for n, time in enumerate((120, 121, 130)):
            produce(broker, [(source, 0, accept("d", n + 1, 2, time=time))])
        until(lambda: bool(told_of(told, "Forks: drained")))
        produce(broker, [(source, 0, accept("e", 1, 2, time=131))])
        until(lambda: any(v.get("events") == ["e@1", "d@3"] for v in written(path)))
    finally:
        engine.stop()
        running.join(PATIENCE_S)
    assert not running.is_alive()
    again, *later = written(path)[1:]
    assert again == before[0], "what was half written comes again with its id"
    said = [(sorted(v["events"]), v["id"]) for v in later if v["verdict"] == "match"]
    first = [accept(node, 1, time=100 + n) for n, node in enumerate("abc")]
    last = [accept("d", 3, 2, time=130), accept("e", 1, 2, time=131)]
    wanted = [v for v in expected(old, first, tmp_path) if v["events"] != ["a@1", "b@1"]]
    wanted += [v for v in expected(new, [*after, *last], tmp_path) if v["verdict"] == "match"]
    assert sorted(said) == sorted((sorted(v["events"]), v["id"]) for v in wanted)
