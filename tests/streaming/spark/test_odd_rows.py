"""Events in columns are judged as the same events in a log, whatever the types of columns.

Each case is a schema, a program and rows: most rows are plain, with some between them that a column
could represent wrongly. A table and a stream must give the verdicts of `ketal.run` over the same
events, with the same ids.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ketal
from ketal.model import syntax
from ketal.streaming.spark import detect
from tests.streaming.spark.frames import data_frame
from tests.streaming.spark.test_detect import run
from tests.test_corpus import without_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore:.*key_groups = 1:UserWarning")

PLACED = "topic string, partition int, offset bigint"
ODD = ('say "a"', "line\nline", "zero\0", "zero\0other", "zero", "größer", "\U0001f600", "\\u0041")
"""Texts, of which three are equal as C strings."""
AT_S = 1_700_000_000.25


def text_of(key: str = "k", guard: str = "true") -> str:
    """Return a check that is partitioned by a key, and has a guard on one of its events."""
    return f"""
    pattern Work {{
        partition by {key};
        event Open = type == "o"; event Close = type == "c";
        event Do = type == "w" && {guard};
        check (Open Do* Close)+;
        on violation resume;
    }}
    """


def plain(count: int, *, first: int = 1, seed: int = 0, nodes: str = "abc") -> list[Row]:
    """Return ordinary rows of the nodes in turn."""
    chance = random.Random(seed)
    out = []
    for number in range(count):
        node = nodes[number % len(nodes)]
        own = {node: first + number // len(nodes), "z": 1 + number}
        fields = {
            "node": node,
            "type": chance.choice("owwwcq"),
            "clock": own,
            "time": AT_S + number,
        }
        out.append({**fields, "k": chance.randint(1, 3), "x": chance.choice("pqr"),
                    "n": chance.randint(-1, 3)})  # fmt: skip
    return out


def around(odd: Sequence[Row], count: int = 150) -> list[Row]:
    """Return rows with many plain rows before and after them."""
    return [*plain(count), *odd, *plain(count, first=1 + count // 3, seed=1)]


def keyed(of: Sequence[Row], spell: Callable[[Any], Any] = str) -> list[Row]:
    """Return rows with their keys spelt in another way."""
    return [{**row, "k": spell(row["k"])} if "k" in row else row for row in of]


def in_data(of: Sequence[Row], *names: str) -> list[Row]:
    """Return rows with some attributes moved into the column `data`."""
    out = []
    for row in of:
        data = {name: row[name] for name in names if name in row}
        out.append(
            {"data": data, **{name: value for name, value in row.items() if name not in names}}
        )
    return out


@dataclass(frozen=True)
class Case:
    """Rows of events, and how they are judged.

    Parameters
    ----------
    schema : str
        The columns, without those of the place.
    batches : sequence of sequence of dict
        The rows; a column that a row lacks is null.
    program : str
        The patterns that judge the rows.
    placed : bool
        Whether the rows have an offset.
    groups : int
        The key groups.
    change : callable, optional
        A last change of the DataFrame.
    nulls : bool
        Whether null attributes are present, as in a map.
    settings : mapping, optional
        Settings of the Spark session.
    event : callable, optional
        Maps a row to its event, if not by `event_of`.
    """

    schema: str
    batches: Sequence[Sequence[Row]]
    program: str = field(default_factory=text_of)
    placed: bool = True
    groups: int = 2
    nulls: bool = False
    change: Callable[[DataFrame], DataFrame] = lambda frame: frame
    settings: Mapping[str, str] = field(default_factory=dict)
    event: Callable[[Row], Row] | None = None


def with_bytes(names: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    """Return a function that replaces the text `bad` by bytes that are not UTF-8."""

    def change(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        bad = F.unhex(F.lit("41ff42")).cast("string")
        changed = {name: F.when(F.col(name) == "bad", bad).otherwise(F.col(name)) for name in names}
        return frame.withColumns(changed)

    return change


def of_own(row: Row) -> Row:
    return {name: value for name, value in row.items() if name in ("node", "type", "clock", "time")}


def one(node: str | None = "a", counter: int = 900, **more: Any) -> Row:
    """Return a row that opens scope `1`."""
    return {"node": node, "type": "o", "clock": {node: counter}, "k": "1", "x": "p", "n": 1, **more}


def odd_rows() -> list[Row]:
    """Return rows with all kinds of values in the columns of an event, without duplicates."""
    clocks: list[Any] = [
        {"a": 901, "z": None}, {"a": 902, "z": 0}, {"a": 903, "": 1}, {"z": 9}, {}, None,
        {"a": 0}, {"a": -1}, {"a": None}, {"a": 904, "z": -2}, {"a": 905, "z": 2**63 - 1},
    ]  # fmt: skip
    times = [math.nan, math.inf, -math.inf, -5.0, -0.0, None, 1e-7, 253_402_300_799.0,
             253_402_300_799.9, 253_402_300_800.0, -62_135_596_800.0, 1e300]  # fmt: skip
    out = [one(clock=clock) for clock in clocks]
    out += [one(counter=910 + n, time=time) for n, time in enumerate(times)]
    out += [one(node=node, clock={"": 1, "a": 930}) for node in ("", None)]
    out += [one(type=kind, counter=940 + n) for n, kind in enumerate(("", None, "q", "O"))]
    out.append(one(counter=950, x="y" * 50_001))
    out.append(one(counter=951, clock={"a": 951} | {f"n{n}": 1 for n in range(10_000)}))
    # The following rows can be judged as columns, except for some of the texts.
    out += [one("far", 2**63 - 1), one("a.b", 1, type="w", x=None)]
    for n, text in enumerate(ODD):
        out += [one(counter=960 + n, k=text), one(counter=980 + n, type="w", k=text, x=text)]
        out += [one(node=text, counter=1 + 2 * n), one(counter=1_000 + n, type=f"c\0{text}")]
        out.append(one(node=text, counter=2 + 2 * n, type="c", k=text))
    return out


def again() -> list[Row]:
    """Return many rows, then a row that repeats with the same and with other content."""
    of = one("again", 1, type="w")
    before = [one(clock=None), *keyed(plain(150, first=200)), one(clock=None)]
    rest = [one("none", 1, k=None), *keyed(plain(150, first=300)), of, of]
    return [*before, *rest, {**of, "type": "c"}, {**of, "x": "q"}]


UNREAD = (
    'f double, b binary, d date, `a.b c` string, `it\'s "so"` int, `größe` float, '
    "inner struct<p: int, q: struct<r: double>>, many array<double>, m map<string, int>"
)


def unread() -> Row:
    """Return attributes that no pattern reads."""
    return {
        "f": math.nan, "b": b"\0\xff", "d": date(2024, 2, 29), "a.b c": 'x"y\n', 'it\'s "so"': 3,
        "größe": 1.5, "inner": {"p": None, "q": {"r": -math.inf}}, "many": [1.0, None, math.inf],
        "m": {"p": None, "q": 1},
    }  # fmt: skip


def controls(first: int) -> list[Row]:
    """Return rows of two partitions, of which one ends, and has rows after its end."""
    before, after = (plain(6, first=n, nodes="de") for n in (first, first + 3))
    elsewhere = plain(6, first=first, nodes="fg")
    mark: Row = {"type": "ketal.watermark", "time": 1.0}
    ended: Row = {"type": "ketal.end"}
    out = [*before, mark, ended, *({**row, "over": True} for row in after)]
    out += [{**row, "partition": 1} for row in (mark, *elsewhere)]
    return keyed(out)


def as_timestamps(of: Sequence[Row]) -> list[Row]:
    return [
        {**row, "time": row.get("time") and datetime.fromtimestamp(row["time"], UTC)} for row in of
    ]


def cases() -> dict[str, Case]:
    own = "node string, type string, clock map<string, bigint>"
    short = around([])
    few = plain(40)
    alone = [{**row, "clock": {row["node"]: row["clock"][row["node"]]}} for row in short]
    whole = [one("w", 1 + n, k=k, n=1) for n, k in enumerate((2**62, -(2**63), 0, None))]
    whole += [one("y", 1 + n, k=1, n=k) for n, k in enumerate((-128, 127, None))]
    struct = [
        {**of_own(one(counter=900)), "data": None},
        {**of_own(one(counter=901, time=-5.0)), "data": {"k": None, "x": None}},
        {**of_own(one(counter=902)), "data": {"k": "1", "x": 'a\0"b', "f": math.nan}},
    ]
    mapped = [
        {**of_own(one(counter=900)), "data": None},
        {**of_own(one(counter=901)), "data": {"k": None, "x": "p"}},
        {**of_own(one(counter=902)), "data": {"k": "1", "incarnation": "2"}},
        {**of_own(one(counter=903)), "data": {"k": "1", "incarnation": None}},
        {**of_own(one(counter=904)), "data": {"k": "1", "": "e", "a.b": "'"}},
    ]
    reads_all = text_of(guard='x != "q" && n >= 0 && node != "b"')
    flat = f"{own}, time double, k string, x string, n int"
    return {
        "texts": Case(
            f"{flat}, {UNREAD}, id int",
            [[{**row, **unread(), "id": 7} for row in [*keyed(around(odd_rows())), *again()]]],
            reads_all,
            groups=1,
        ),
        "control events": Case(flat, [keyed(short), controls(1)], reads_all),
        "whole numbers": Case(
            "node string, type string, clock map<string, tinyint>, "
            "time bigint, k bigint, n tinyint",
            [[{**row, "time": 5} for row in of] for of in (alone[:90], [*alone[90:120], *whole])],
            text_of(guard="n >= 0"),
        ),
        "whole numbers, no nulls": Case(
            "node string, type string, clock map<string, tinyint>, k smallint, n bigint",
            [alone],
            text_of(guard="n >= 0"),
        ),
        "struct": Case(
            "node string, type string, clock map<string, int>, time timestamp, data "
            "struct<k: string, x: string, f: double, b: boolean, inner: struct<p: int>>",
            [as_timestamps(in_data(keyed(short), "k", "x")), as_timestamps(struct)],
            text_of(guard='x != "q"'),
        ),
        "map": Case(
            "node string, type string, clock map<string, smallint>, data map<string, string>",
            [[of | {"data": {**of["data"], "more": None}} for of in
              in_data(keyed(short), "k", "x")] + mapped],
            text_of(guard='x != "q"'),
            placed=False,
            nulls=True,
        ),
        "a map whose keys are numbers": Case(
            f"{own}, m map<int, string>",
            [[{**of_own(row), "m": {7: row["k"], -1: "p"}} for row in keyed(few)]],
            text_of('m["7"]'),
        ),
        "attributes that no row has": Case(
            f"{own}, k string, id string",
            [[{**row, "k": "1", "id": "i"} for row in short]],
            text_of(guard="!exists(nothing)"),
        ),
        "attributes in two places": Case(
            f"{own}, data struct<k: string, y: int>, y int",
            [[row | {"y": 1 if n % 9 == 0 else None} for n, row in
              enumerate(in_data(keyed(few), "k"))],
             [row | {"data": {**row["data"], "y": 2}, "y": n % 2 or None} for n, row in
              enumerate(in_data(keyed(plain(9, first=50)), "k"))]],
        ),
        "a column that says the life of a node": Case(
            f"{own}, k string, incarnation int",
            [[{**row, "incarnation": 1} for row in keyed(few)]],
        ),
        "data that may say the life of a node": Case(
            f"{own}, data struct<k: int, incarnation: int>",
            [in_data([row | {"incarnation": 1} if n % 3 else row for n, row in enumerate(few)],
                     "k", "incarnation")],
        ),
        "names that differ in the case of their letters": Case(
            f"{own}, data struct<k: int, x: string, X: string>",
            [in_data([{**row, "X": "q"} for row in few], "k", "x", "X")],
            text_of(guard='x != "q"'),
        ),
        "other names that differ so": Case(
            f"{own}, data struct<k: int, X: string, y: int, Y: int>",
            [in_data([{**row, "X": "q", "y": 1, "Y": 2} for row in few], "k", "X", "y", "Y")],
            text_of(guard='!exists(x)'),
        ),
        "texts that equal others": Case(
            "node string collate UTF8_LCASE, type string, clock map<string, bigint>, k string",
            [[{**row, "node": row["node"].upper()} if n % 5 == 0 else row
              for n, row in enumerate(keyed(few))]],
        ),
        "a clock whose names equal others": Case(
            "node string collate UTF8_LCASE, type string, "
            "clock map<string collate UTF8_LCASE, bigint>, k string",
            [[{**row, "node": row["node"].upper()} if n % 5 == 0 else row
              for n, row in enumerate(keyed(few))]],
        ),
        "bytes that are no text": Case(
            f"{own}, k string, x string",
            [[*keyed(short),
              one(counter=900, k="bad"), one(counter=901, x="bad", type="w"),
              one(counter=902, type="bad"), one("bad", 1), one(counter=903, k="A\ufffdB")]],
            text_of(guard='x != "q"'),
            change=with_bytes(("node", "type", "k", "x")),
            event=lambda row: {name: "A\ufffdB" if value == "bad" else value
                               for name, value in row.items()} | {
                                   "clock": {"bad": 1} if row["node"] == "bad" else row["clock"]},
        ),
        "nulls that are written": Case(
            f"{own}, time double, data struct<k: int, x: string>",
            [[*in_data(short, "k", "x"), {**of_own(one(counter=900)), "data": None}] * 2],
            text_of(guard='x != "q"'),
            settings={"spark.sql.jsonGenerator.ignoreNullFields": "false"},
        ),
        "guards of a boolean": Case(
            f"{own}, k string, b boolean",
            [[{**row, "b": bool(row["n"])} for row in keyed(few)]],
            text_of(guard="b == true"),
        ),
        "guards of a double": Case(
            f"{own}, k string, f double",
            [[{**row, "f": (1.0, -0.0, math.nan, None)[n % 4]} for n, row in
              enumerate(keyed(few))]],
            text_of(guard="f >= 0"),
        ),
        **{
            f"keys of {kind}": Case(f"{own}, k {kind}", [keyed(few, spell)], program)
            for kind, spell, program in [
                ("boolean", lambda k: (True, False, None)[k % 3], text_of()),
                ("double", lambda k: (1.0, -0.0, 1.5, math.nan)[k % 4], text_of()),
                ("decimal(4, 2)", lambda k: Decimal(k) / 2, text_of()),
                ("struct<in: int>", lambda k: {"in": k}, text_of("k.in")),
            ]
        },
        "a clock and data that are JSON, a time that is text": Case(
            "node string, type string, clock string, time string, data string",
            [[{**row, "clock": json.dumps(row["clock"]), "data": json.dumps(row["data"]),
               "time": "2024-01-01T00:00:00Z"} for row in in_data(few, "k", "n")]],
            text_of(guard="n >= 0"),
            event=lambda row: {**row, "clock": json.loads(row["clock"]),
                               "data": json.loads(row["data"])},
        ),
        "a time that is a decimal": Case(
            f"{own}, time decimal(20, 3), k string",
            [[{**row, "time": Decimal("1.5")} for row in keyed(few)]],
        ),
        "nodes that are numbers": Case(
            "node int, type string, clock map<string, decimal(3, 0)>, k string",
            [[{**row, "node": 7, "clock": {"7": Decimal(n + 1)}} for n, row in
              enumerate(keyed(few))]],
        ),
    }  # fmt: skip


CASES = cases()


def names_of(spark: SparkSession, schema: str) -> list[str]:
    return data_frame(spark, [], schema).schema.names


def frame_of(spark: SparkSession, case: Case, batch: int | None = None) -> DataFrame:
    """Return the rows of a case as a DataFrame, with their places if the case has these."""
    schema = f"{case.schema}, {PLACED}, batch int"
    names = names_of(spark, schema)
    numbered = [(n, row) for n, rows in enumerate(case.batches) for row in rows]
    given = [
        {**row, "topic": "t", "partition": row.get("partition", 0), "offset": offset, "batch": n}
        for offset, (n, row) in enumerate(numbered)
        if batch in (None, n)
    ]
    events = data_frame(spark, [[*map(row.get, names)] for row in given], schema).coalesce(1)
    events = case.change(events)
    return events if case.placed else events.drop("topic", "partition", "offset")


def event_of(row: Row, *, nulls: bool) -> Row:
    """Return the event of a row as a JSON object."""
    own: Row = {name: row[name] for name in ("node", "type", "clock", "time", "id") if name in row}
    beyond = {name: value for name, value in row.items() if name not in {*own, "data"}}
    if "data" in row and beyond:
        own |= beyond
        beyond = {}
    data = {**(row.get("data") or {}), **beyond}
    fields = {name: as_json(value) for name, value in own.items() if value is not None}
    return {**fields, "data": {k: as_json(v) for k, v in data.items() if nulls or v is not None}}


def as_json(value: Any) -> Any:
    """Return a value as Spark writes it in JSON."""
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return float(value) if value % 1 else int(value)
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def events_of(case: Case, names: Sequence[str]) -> tuple[list[bytes], int]:
    """Return the events of a case as JSON lines, and how many rows follow their partition's end."""
    rows = [row for batch in case.batches for row in batch]
    given = [
        {name: row[name] for name in names if name in row}
        for row in rows
        if not row.get("over") and row["type"] != "ketal.end"
    ]
    events = [event_of(case.event(row) if case.event else row, nulls=case.nulls) for row in given]
    return [json.dumps(event).encode() for event in events], sum("over" in row for row in rows)


@contextmanager
def settings_of(spark: SparkSession, case: Case) -> Iterator[None]:
    """Apply the settings of a case to the session for the duration of the context."""
    for name, value in case.settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in case.settings:
            spark.conf.unset(name)


def judged(case: Case, frame: DataFrame) -> DataFrame:
    """Return the verdicts of `detect` over a DataFrame."""
    return detect(ketal.compile(case.program), frame, key_groups=case.groups)


Verdicts = list[dict[str, Any]]


def check(
    spark: SparkSession, case: Case, found: Verdicts, folder: Path, *, ended: bool = True
) -> None:
    """Compare verdicts with `ketal.run`; a stream that has not ended reports no `incomplete`."""
    lines, over = events_of(case, names_of(spark, case.schema))
    wanted = run(ketal.compile(case.program), lines, folder)
    given = [json.loads(row["json"]) for row in found]
    rejected = [[one for one in of if one["verdict"] == "rejected"] for of in (given, wanted)]
    assert len(rejected[0]) == len(rejected[1]) + over
    skipped = {"rejected"} if ended else {"rejected", "incomplete"}
    of = [[one for one in all_ if one["verdict"] not in skipped] for all_ in (given, wanted)]
    assert without_time(of[0]) == without_time(of[1])
    assert of[0]


@pytest.mark.parametrize("name", CASES)
def test_table_gives_the_verdicts_of_a_log(name: str, spark: SparkSession, tmp_path: Path) -> None:
    case = CASES[name]
    with settings_of(spark, case):
        collected = judged(case, frame_of(spark, case).drop("batch")).collect()
    check(spark, case, [row.asDict() for row in collected], tmp_path)


def test_rows_are_placed_by_the_keys_that_their_json_has(spark: SparkSession) -> None:
    from ketal.streaming.spark.rows.events import EventColumns

    keys = {"string": "q", "int": 7, "date": date(1970, 1, 8), "timestamp": datetime(1970, 1, 8),
            "double": 1e10, "decimal(4, 2)": Decimal("1.5"), "boolean": True}  # fmt: skip
    maps = "".join(f", `by {kind}` map<{kind}, string>" for kind in keys)
    row = ["n", *({key: "v"} for key in keys.values())]
    frame = data_frame(spark, [row], f"node string{maps}")
    columns = EventColumns(frame, ())
    ((value,),) = frame.select(columns.columns()["value"]).collect()
    paths = [(name, *of) for name, of in json.loads(value)["data"].items()]
    assert len(paths) == len(keys)
    placed = frame.select(*columns.partition(tuple(syntax.Attribute(path) for path in paths)))
    assert [*placed.collect()] == [("v",) * len(keys)]


def streamed(spark: SparkSession, frame: DataFrame, folder: Path) -> DataFrame:
    """Return a DataFrame with a column `batch` as a stream of these batches."""
    frame.coalesce(1).write.partitionBy("batch").parquet(str(folder / "written"))
    (folder / "in").mkdir()
    for number, path in enumerate(sorted((folder / "written").glob("batch=*/*.parquet"))):
        path = path.rename(folder / "in" / f"{number}.parquet")
        # Spark reads files in the order of their age, in seconds.
        os.utime(path, (1e9 + 10 * number, 1e9 + 10 * number))
    reader = spark.readStream.schema(frame.drop("batch").schema)
    return reader.option("maxFilesPerTrigger", "1").parquet(str(folder / "in"))


def test_stream_gives_the_verdicts_of_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """The stream has batches of several cases."""
    texts, controlled = CASES["texts"], CASES["control events"]
    nulls = [one("n", 1 + n, n=None) for n in range(3)]
    batches = [*texts.batches, [*keyed(plain(99, first=400)), *nulls], controlled.batches[1]]
    case = replace(texts, batches=batches)
    verdicts = judged(case, streamed(spark, frame_of(spark, case), tmp_path))
    streamed_verdicts: Verdicts = []

    def take(batch: DataFrame, number: int) -> None:
        streamed_verdicts.extend(row.asDict() for row in batch.collect())

    query = verdicts.writeStream.foreachBatch(take).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(query.recentProgress) == len(batches)
    check(spark, case, streamed_verdicts, tmp_path, ended=False)
