"""The settings that a job on Spark accepts, refuses and ships, without running Spark."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ketal
from ketal.errors import SettingError
from ketal.streaming import plan
from ketal.streaming.job.file import Job, read_job
from ketal.streaming.spark.families import (
    batch_messages_max,
    families,
    row_placements,
    warnings,
)
from ketal.streaming.spark.java_clients import kafka_options
from tests.streaming.jobs import FORKS

EVENTS = 'pattern %s { partition by %s; event E = type == "e"; find next E E; }'


def job_file(folder: Path, text: str) -> str:
    (folder / "forks.ketal").write_text(FORKS)
    path = folder / "job.toml"
    path.write_text(f'pattern = "forks.ketal"\n[source]\ntopics = ["blocks"]\n{text}')
    return str(path)


def test_job_file_sets_how_spark_runs_the_job(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    text = '[spark]\nkey_groups = 8\ntrigger_ms = 250\njars = ["a.jar"]\n'
    job = read_job(job_file(tmp_path, text), {"engine": "spark"})
    assert (job.engine, job.key_groups, job.trigger_ms) == ("spark", 8, 250)
    assert job.jars == (tmp_path / "a.jar",)
    plan_text = "\n".join(plan.lines(job, ketal.compile(FORKS)))
    assert (
        "engine: spark, 8 key groups, at most one batch every 250 ms, of at most 500,000 messages"
        in plan_text
    )
    assert f"Spark's checkpoint in {job.state}" in plan_text
    assert "exactly once" not in plan_text
    assert "in 8 key groups, by the hash of its partition" in plan_text
    assert "so no event waits; once a node has left or restarted, an event" in plan_text
    other = FORKS.replace("Forks", "Other").replace("by height", "by node, height")
    plan_text = "\n".join(plan.lines(job, ketal.compile(FORKS + other)))
    assert "one for each height; in 8 key groups, by the hash" in plan_text
    assert "one for each node, height; all of them in one key group" in plan_text


@pytest.mark.parametrize(
    ("order", "key_groups", "messages_max"),
    [
        ("arrival", 1, 500_000),
        ("CausalOrder", 1, 1_000),
        ("CausalOrder(frontier = 1 s)", 1, 1_000),
        ("CausalOrder(frontier = 1 s)", 16, 16_000),
    ],
)
def test_batch_has_no_more_messages_than_half_of_what_its_groups_can_hold_back(
    order: str, key_groups: int, messages_max: int, tmp_path: Path
) -> None:
    text = f"[limits]\nheld_back_max = 2000\n[spark]\nkey_groups = {key_groups}\n"
    job = read_job(job_file(tmp_path, text), {"engine": "spark"})
    program = ketal.compile(
        f"pattern P {{ order {order}; partition by k; event E = exists(k); check E*; }}"
    )
    assert batch_messages_max(families(program, key_groups), job) == messages_max
    assert f"of at most {messages_max:,} messages" in next(plan.lines(job, program))


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("[spark]\nkey_groups = 0\n", {}, "key_groups must be an integer of 1 or more"),
        ("[spark]\ntrigger = 1\n", {}, r"unknown key 'trigger' in \[spark\]"),
        ('[spark]\njars = "a.jar"\n', {}, r"\[spark\] jars must be a list of files, not 'a.jar'"),
        ('[spark]\njars = ["no.jar"]\n', {}, r"\[spark\] jars: \S*no\.jar is not a file"),
        (
            'keyed_by = "height"\n[state]\nstore = "kafka:x"\n',
            {},
            "Spark|spark stores its state in a checkpoint",
        ),
        ("", {"on_change": "drain"}, "use stop or fresh, or run the new patterns in a second job"),
    ],
)
def test_settings_that_spark_does_not_support_are_refused(
    text: str, flags: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=message):
        read_job(job_file(tmp_path, text), {"engine": "spark", **flags})


def job(**properties: object) -> Job:
    return Job(
        pattern="p", topics=["t"], bootstrap_servers="k:9092", group_id="g", properties=properties
    )


def test_kafka_properties_are_translated_to_java_names(tmp_path: Path) -> None:
    options = kafka_options(
        job(
            security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="me",
            sasl_plain_password='a"b', ssl_cafile="ca.pem", **{"max.poll.records": 7},
        )
    )  # fmt: skip
    assert options == {
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="me" password="a\\"b";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
        "kafka.max.poll.records": "7",
        "kafka.request.timeout.ms": "30000",
        "kafka.default.api.timeout.ms": "30000",
        "kafka.max.block.ms": "30000",
    }
    with pytest.raises(SettingError, match="unknown property 'linger_ms' for the engine spark"):
        kafka_options(job(linger_ms=1))
    with pytest.raises(SettingError, match="No such file"):
        kafka_options(job(ssl_certfile=str(tmp_path / "none.pem")))
    (der := tmp_path / "key.der").write_bytes(b"\x30\x82")
    for other, why in ((str(der), "not PEM text"), ("", "Is a directory"), (3, "No such file")):
        with pytest.raises(SettingError, match=rf"properties\] cannot read .*{why}"):
            kafka_options(job(ssl_keyfile=other))


def test_call_timeout_of_the_job_file_applies_to_java_clients() -> None:
    names = ("request.timeout.ms", "default.api.timeout.ms", "max.block.ms")

    def timeouts(call_ms: int, **properties: object) -> list[int]:
        one = replace(job(**properties), call_timeout_ms=call_ms)
        options = kafka_options(one)
        return [int(options[f"kafka.{name}"]) for name in names]

    assert timeouts(5_000) == [5_000, 5_000, 5_000]
    assert timeouts(90_000) == [30_000, 90_000, 90_000]
    # Java's clients refuse a timeout of a call below that of its request.
    assert timeouts(5_000, request_timeout_ms=7_000) == [7_000, 7_000, 7_000]
    assert timeouts(90_000, **{"max.block.ms": 1}) == [30_000, 90_000, 1]


def test_job_is_partitioned_as_most_of_its_patterns() -> None:
    text = "\n".join(
        [EVENTS % ("A", "x"), EVENTS % ("B", "x, y"), EVENTS % ("C", "x"),
         'pattern D { event E = type == "e"; find next E E; }']
    )  # fmt: skip
    program = ketal.compile(text)
    found = families(program, 8)
    assert [(f.program.names, f.first, f.groups) for f in found] == [
        (("B", "D"), 0, 1), (("A", "C"), 1, 8),
    ]  # fmt: skip
    assert [w.split()[0] for w in warnings(program, 8)] == ["B", "D"]
    assert "B is partitioned by x, y, but the job by x; unless" in next(warnings(program, 8))
    two = ketal.compile("".join(EVENTS % of for of in (("A", "y"), ("B", "x"))))
    assert [f.program.names for f in families(two, 8)] == [("A",), ("B",)], "the first by name"
    (whole,) = families(program, 1)
    assert whole.program is program


EXECUTOR = """
import pickle, sys
for name in ("lark", "automata", "kafka", "pyspark.sql"):
    sys.modules[name] = None
from ketal.streaming.spark.group import Group
from ketal.streaming.spark.operator import Operator, _load_work
operator = pickle.load(sys.stdin.buffer)
work = _load_work(operator.pickled, operator.digest)
group = Group(work, 0, None)
rows = [(0, "t", 0, n, value) for n, value in enumerate([
    b'{"node": "a", "type": "accept", "clock": {"a": 1}, "data": {"height": 1, "hash": "a"}}',
    b'{"node": "b", "type": "accept", "clock": {"b": 1}, "data": {"height": 1, "hash": "b"}}',
])]
said = list(group.process(rows[:1]))
group = Group(work, 0, group.state())
said += list(group.process(rows[1:]))
print(*[v.events for v in said])
for name in ("lark", "automata", "ketal.grammar.reader"):
    assert sys.modules.get(name) is None, name
"""


def test_executors_need_neither_lark_nor_automata_lib() -> None:
    import pickle

    from pyspark import cloudpickle

    from ketal.logs import Source
    from ketal.streaming.spark.group import Work
    from ketal.streaming.spark.operator import Operator
    from ketal.streaming.spark.rows.row_reader import RowShape

    found = families(ketal.compile(FORKS), 1)
    work = Work(
        families=found, placements=row_placements(found, None), limits=ketal.Limits(),
        shape=RowShape(("copy", "topic", "partition", "offset", "value"), (), Source()),
        partitions=1, timed=False, figures=False, counts=False,
    )  # fmt: skip
    operator = Operator(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    done = subprocess.run(
        [sys.executable, "-c", EXECUTOR], input=pickle.dumps(operator), capture_output=True,
        check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert b"Dot(node='b', counter=1)" in done.stdout


def test_streaming_can_be_imported_without_pyspark_and_kafka() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['kafka'] = None\n"
        "import ketal.streaming.spark, ketal.streaming.plan, ketal.streaming.spark.spark_engine\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False,
                          cwd=Path(__file__).parents[3])  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
