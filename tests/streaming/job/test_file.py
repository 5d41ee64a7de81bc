"""The job file and its flags, and the parts of the engine that need no broker."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ketal.cli import main
from ketal.errors import SettingError
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.streaming.job.file import Job, Target, read_job
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.job.outputs import Outputs
from ketal.streaming.kafka.connecting.properties import check_properties
from ketal.streaming.kafka.watermarks import Watermarks

FULL = """\
pattern = "forks.ketal"
engine = "process"
[kafka]
bootstrap_servers = "kafka.example:9092"
group_id = "forks"
start = "latest"
[kafka.properties]
sasl_plain_password = "${KETAL_TEST_PASSWORD}"
[source]
topics = ["blocks"]
fields = { type = "event", clock = "pkt.vc", node = "kafka.header.node" }
[output]
verdicts = "kafka:forks.verdicts"
rejected = "file:rejected.jsonl"
[state]
store = "dir:state"
commit_interval_ms = 200
[time]
lateness_ms = 1000
idle_ms = 2000
[limits]
held_back_max = 10
[spark]
key_groups = 16
batch_messages_max = 1000
"""
PATTERN = 'pattern P { partition by key; event A = type == "a"; check A*; }'


def job_of(folder: Path, text: str, **flags: Any) -> Job:
    (folder / "job.toml").write_text(text)
    return read_job(str(folder / "job.toml"), flags)


def test_job_file_is_read_into_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KETAL_TEST_PASSWORD", "secret")
    job = job_of(tmp_path, FULL)
    assert job.pattern == str(tmp_path / "forks.ketal")
    assert (job.bootstrap_servers, job.group_id, job.start) == (
        "kafka.example:9092", "forks", "latest",
    )  # fmt: skip
    assert job.properties == {"sasl_plain_password": "secret"}
    assert "secret" not in repr(job)
    assert list(job.topics) == ["blocks"]
    assert job.verdicts == Target("kafka", "forks.verdicts")
    assert job.rejected == Target("file", str(tmp_path / "rejected.jsonl"))
    assert job.state == tmp_path / "state"
    assert (job.commit_interval_ms, job.lateness_ms, job.idle_ms) == (200, 1_000, 2_000)
    assert (job.limits.held_back_max, job.batch_messages_max) == (10, 1_000)


def test_paths_in_the_job_file_are_relative_to_its_folder(tmp_path: Path) -> None:
    text = """\
pattern = "p.ketal"
[kafka.properties]
ssl_cafile = "ca.pem"
ssl_keyfile = "/keys/key.pem"
[source]
topics = ["t"]
[output]
verdicts = "file:out"
[state]
store = "dir:state"
"""
    job = job_of(tmp_path, text)
    assert (job.pattern, job.verdicts.name, job.store.name) == (
        str(tmp_path / "p.ketal"), str(tmp_path / "out"), str(tmp_path / "state"),
    )  # fmt: skip
    assert job.properties == {
        "ssl_cafile": str(tmp_path / "ca.pem"), "ssl_keyfile": "/keys/key.pem",
    }  # fmt: skip
    for wrong in ("3", '""'):
        job = job_of(tmp_path, text.replace('"ca.pem"', wrong))
        with pytest.raises(SettingError, match="ssl_cafile must be a non-empty string"):
            check_properties(job.properties)


def test_flags_override_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KETAL_TEST_PASSWORD", "secret")
    job = job_of(
        tmp_path, FULL, pattern="other.ketal", bootstrap_servers="b:1", topics=["x", "y"],
        to="-", group_id="g", state="dir:elsewhere", metrics_port=9100, until_end=True,
    )  # fmt: skip
    assert (job.pattern, job.bootstrap_servers, job.group_id) == ("other.ketal", "b:1", "g")
    assert (list(job.topics), job.verdicts, job.state) == (
        ["x", "y"], Target("stdout"), Path("elsewhere"),
    )  # fmt: skip
    assert (job.metrics_port, job.until_end) == (9100, True)


@pytest.mark.parametrize(
    ("given", "state", "address"),
    [
        ("dir:s3a://bucket/job", None, "s3a://bucket/job"),
        ("dir:hdfs:///job", None, "hdfs:///job"),
        ("dir:file:///mnt/job", Path("/mnt/job"), ""),
        ("dir:a://", None, "a://"),
        ("dir:a:b", Path("a:b"), ""),
    ],
)
def test_remote_state_folder_is_for_spark_only(
    given: str, state: Path | None, address: str
) -> None:
    job = read_job(None, {"pattern": "p", "topics": ["t"], "engine": "spark", "state": given})
    assert job.store.is_remote == (state is None)
    assert str(job.store) == (f"dir:{address}" if address else f"dir:{state}")
    if state is not None:
        assert job.state == state
    else:
        with pytest.raises(SettingError, match=f"on this machine, not in {address}: choose dir:"):
            read_job(None, {"pattern": "p", "topics": ["t"], "state": given})


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        ("localhost", "localhost:9092"),
        ("a, b:1", "a:9092,b:1"),
        ("[::1],[::1]:7", "[::1]:9092,[::1]:7"),
        ("::1", "[::1]:9092"),
        ("SASL_SSL://a", "SASL_SSL://a:9092"),
        ("EXTERNAL://a:1", "EXTERNAL://a:1"),
    ],
)
def test_server_without_a_port_gets_kafkas_default_port(given: str, servers: str) -> None:
    """As in kafka-python and librdkafka; Java's clients would refuse such an address."""
    flags = {"pattern": "p", "topics": ["t"], "bootstrap_servers": given}
    assert read_job(None, flags).bootstrap_servers == servers
    with pytest.raises(SettingError, match=r"^--bootstrap-servers must be HOST:PORT,.* 'a,,b'"):
        read_job(None, {**flags, "bootstrap_servers": "a,,b"})


def test_byte_order_mark_of_a_job_file_is_ignored(tmp_path: Path) -> None:
    text = 'pattern = "p"\n[source]\ntopics = ["t"]\n'
    assert job_of(tmp_path, "\ufeff" + text) == job_of(tmp_path, text)


def test_params_of_the_job_file_set_parameters_and_set_overrides_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiler reports a name that no pattern declares."""
    (tmp_path / "p.ketal").write_text(
        'param w = 10 s; param flag = false; param n = 1; param text = "x";'
        "pattern P { partition by key; event A = type == text && 3 > n && flag == true;"
        " find A A; within w; }"
    )

    def fingerprint(params: str, *words: str) -> str:
        text = f'pattern = "p.ketal"\n[params]\n{params}\n[source]\ntopics = ["t"]\n'
        (tmp_path / "job.toml").write_text(text)
        code = main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run", *words])
        out, err = capsys.readouterr()
        return out.partition("fingerprint ")[2].split()[0] if code == 0 else err

    flags = ("--set", "w=30s", "--set", "flag=true", "--set", "n=2")
    wanted = fingerprint("", *flags)
    assert wanted != fingerprint("")
    assert fingerprint('w = "30 s"\nflag = true\nn = 2') == wanted
    assert fingerprint('w = "20 s"\nflag = false\nn = 3', *flags) == wanted
    place = f"ketal: {tmp_path / 'job.toml'}: [params] "
    assert fingerprint('v = "20 s"', *flags).startswith(f"{place}unknown parameter 'v'")
    assert fingerprint("w = 3", "--set", "n=2").startswith(f"{place}parameter w is declared as")
    assert fingerprint("text = 3").startswith(f"{place}a parameter named 'text' cannot be set")
    assert fingerprint("w = [1]").startswith(f"{place}w must be")
    assert fingerprint("n = 3", "--set", "v=20s").startswith("ketal: unknown parameter 'v'")
    with pytest.raises(SettingError, match=r"params must be a table, \[params\]"):
        job_of(tmp_path, "params = 1\n" + FULL.replace("${KETAL_TEST_PASSWORD}", "x"))


def test_property_name_with_dots_is_read_quoted_or_bare(tmp_path: Path) -> None:
    """TOML reads a bare dotted name as nested tables."""
    for name in ("security.protocol", '"security.protocol"'):
        lines = FULL.replace('sasl_plain_password = "${KETAL_TEST_PASSWORD}"', f'{name} = "SSL"')
        job = job_of(tmp_path, lines)
        assert job.properties == {"security.protocol": "SSL"}
        with pytest.raises(SettingError, match="did you mean security_protocol"):
            check_properties(job.properties)
    with pytest.raises(SettingError, match=r"properties\] a\.b must be a string, a number"):
        job_of(tmp_path, lines.replace('"security.protocol" = "SSL"', "a.b = {}"))


def test_flags_alone_define_a_job() -> None:
    job = read_job(None, {"pattern": "forks.ketal", "topics": ["blocks"]})
    assert (job.group_id, job.bootstrap_servers) == ("forks", "localhost:9092")
    assert not job.group_id_given
    assert read_job(None, {"pattern": "p", "topics": ["t"], "group_id": "g"}).group_id_given
    assert job.verdicts == job.rejected == Target("stdout")
    assert job.state.name == "forks"


def test_output_that_is_not_text_is_refused_even_if_a_flag_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('pattern = "p"\n[output]\nverdicts = 3\n')
    with pytest.raises(SettingError, match=r"\[output\] verdicts must be a non-empty string"):
        read_job(str(tmp_path / "job.toml"), {"to": "-", "topics": ["t"]})


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("group_id =", "groupid =", r"unknown key 'groupid' in \[kafka\]; did you mean group_id\?"),
        ("lateness_ms =", "lateness =", "did you mean lateness_ms"),
        (
            "[kafka]",
            '[kafka]\nstore = "dir:a"',
            r"unknown key 'store' in \[kafka\]; it belongs in \[state\]$",
        ),
        ("[kafka]", 'topics = ["a"]\n[kafka]', r"key 'topics'; it belongs in \[source\]$"),
        ("[time]", '[time]\npattern = "p"', r"in \[time\]; it belongs before the first table$"),
        ("[state]", "[state]\nheld_back_max = 9", r"in \[state\]; it belongs in \[limits\]$"),
        (
            "[source]",
            '[source]\nnode = "a"',
            r"'node' in \[source\]; it belongs in \[source.fields\]$",
        ),
        ("[state]", "[stat]", "unknown key 'stat'; did you mean state"),
        ('start = "latest"', 'start = "middle"', "earliest or latest"),
        ("idle_ms = 2000", "idle_ms = 0", "integer of 1 or more, not 0"),
        ("idle_ms = 2000", "idle_ms = true", "not a boolean"),
        ('"kafka:forks.verdicts"', '"forks.verdicts"', "kafka:TOPIC, file:PATH or -"),
        ('"kafka:forks.verdicts"', '"dir:verdicts"', "kafka:TOPIC, file:PATH or -"),
        ('"kafka:forks.verdicts"', '"kafka:blocks"', "blocks is both an input and an output"),
        ('topics = ["blocks"]', 'topics = "blocks"', "must be a list"),
        ('topics = ["blocks"]', "topics = []", r"job file \(--config FILE\), or pass --input NAME"),
        ('topics = ["blocks"]', 'topics = ["a b"]', "'a b' is not the name of a topic"),
        ('topics = ["blocks"]', 'topics = [".."]', "'..' is not the name of a topic"),
        ('"kafka:forks.verdicts"', '"kafka:a/b"', "'a/b' is not the name of a topic"),
        ('"dir:state"', '"kafka:a b"', "'a b' is not the name of a topic"),
        ('topics = ["blocks"]', 'topics = ["a", "a"]', "the topic a is given twice"),
        ("[source]", '[source]\nformat = "csv"', "one JSON object"),
        ("[source]", '[source]\nregex = "x"', "regex applies only to files"),
        ("KETAL_TEST_PASSWORD", "KETAL_TEST_NOTHING", "variable 'KETAL_TEST_NOTHING' is not set"),
        ('"kafka.example:9092"', '"${HOST}"', "kafka.bootstrap_servers: .* only"),
        ('"process"', '"proces"', "did you mean process"),
        ('store = "dir:state"', 'store = "state"', "dir:PATH or kafka:TOPIC"),
        ("[source]", "[source]\nkeyed_by = 1", "must be the name of an attribute, not 1"),
        ("[source]", '[source]\nclock = "ict"', "unknown clock scheme 'ict'; did you mean itc"),
        (
            "[source]",
            '[source]\nclock = "itc"',
            "clock itc: converting these clocks to vector clocks requires",
        ),
        (
            "[source]",
            "[source]\ntime_format = '%H:%M'",
            "the time format '%H:%M' has no complete date",
        ),
        ('type = "event"', 'message = "m"', "the field message pairs the sends and receives"),
        ("[source]", '[source]\nkeyed_by = ""', "must be the name of an attribute, not ''"),
        ("key_groups = 16", 'jars = "a.jar"', "jars must be a list of files, not 'a.jar'"),
        ("key_groups = 16", "jars = [1]", r"jars must be a list of files, not \[1\]"),
        ("key_groups = 16", "key_groups = 0", "key_groups must be an integer of 1 or more, not 0"),
        ("key_groups = 16", "key_groups = 32769", "key_groups must be at most 32768$"),
        ("messages_max = 1000", "messages_max = 0", "batch_messages_max must be"),
        ("[kafka]", "[kafka]\ncall_timeout_ms = 2147483648", "at most 2147483647$"),
        ("idle_ms = 2000", f"idle_ms = {10**15 + 1}", f"idle_ms must be at most {10**15}"),
        ("idle_ms = 2000", f"idle_ms = {2**63}", "time.idle_ms: an integer in TOML has at most 64"),
        ('"dir:state"', '"dir:\\u0000"', r"\[state\] store must not contain the character"),
        ('"dir:state"', '"dir:job.toml"', r"\[state\] store: .*job.toml is not a folder"),
        (
            "kafka.header.node",
            "kafka.headers.node",
            r"\[source\] unknown path 'kafka.headers.node' of node; choose from kafka.key, "
            "kafka.timestamp, kafka.header.NAME",
        ),
        ("[source]", '[source]\ntime_unit = "h"', r"toml: \[source\] unknown time unit 'h'"),
        (
            '"kafka:forks.verdicts"',
            '"file:a\\u0000"',
            "must not contain the character U.0000: 'file:a",
        ),
    ],
)
def test_wrong_settings_are_refused_with_their_reason(
    old: str, new: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETAL_TEST_PASSWORD", "secret")
    assert old in FULL
    with pytest.raises(SettingError, match=reason) as caught:
        job_of(tmp_path, FULL.replace(old, new, 1))
    assert str(caught.value).startswith(str(tmp_path / "job.toml"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("to", "forks", "--to must be kafka:TOPIC, file:PATH or -, not 'forks'"),
        ("to", "kafka:a b", "--to: 'a b' is not the name of a topic: use 1 to 249"),
        ("to", "kafka:blocks", "the topic blocks is both an input and an output"),
        ("topics", ["a b"], "--input: 'a b' is not the name of a topic"),
        ("topics", ["a", "a"], "--input: the topic a is given twice"),
        ("state", "state", "--state must be dir:PATH or kafka:TOPIC, not 'state'"),
        ("state", "dir:README", "--state: README is not a folder"),
        ("state", "dir:s3a://b", "the engine process stores its state on this machine"),
        ("group_id", "\n", r"--group-id must be printable and at most 200 characters, not '\n'"),
        ("bootstrap_servers", "a:b", "--bootstrap-servers must be HOST:PORT,..., with ports"),
        ("bootstrap_servers", "a..b", "--bootstrap-servers must be HOST:PORT,..., with ports"),
        ("engine", "sprak", "unknown engine 'sprak'; did you mean spark?"),
        ("metrics_host", "ä..b", "--metrics-host must be the name or the address of a host"),
        ("metrics_port", -1, "--metrics-port must be an integer from 0 to 65535, not -1"),
    ],
)
def test_fault_of_a_flag_does_not_name_the_job_file(
    flag: str, value: object, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETAL_TEST_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    Path("README").touch()
    with pytest.raises(SettingError) as caught:
        job_of(tmp_path, FULL, **{flag: value})
    assert str(caught.value).startswith(reason)


def test_faults_of_a_job_file_are_refused_even_if_flags_override_them(tmp_path: Path) -> None:
    """All but settings that exclude each other, which a flag may reconcile."""
    for text in ('engine = "sprak"', "[source]\ntopics = [1]", '[state]\nstore = "x"'):
        with pytest.raises(SettingError, match=r"job\.toml: "):
            job_of(tmp_path, text, pattern="p", topics=["t"], engine="spark", state="dir:s")
    job = job_of(tmp_path, '[source]\ntopics = ["t"]\n[output]\nverdicts = "kafka:t"\n',
                 pattern="p", to="-")  # fmt: skip
    assert job.verdicts == Target("stdout")


def test_hostile_job_files_are_refused_without_a_crash(tmp_path: Path) -> None:
    """Inputs that the TOML reader, or a recursive walk over its tables, would fail on."""
    for text, why in (
        (f"pattern = 1{'0' * 5000}", "is not valid TOML: Exceeds the limit"),
        (f"pattern = 0x{'f' * 5000}", "pattern: an integer in TOML has at most 64 bits"),
        (f"pattern = {'[' * 5000}", "is nested too deeply"),
        (f"[params]\n{'a.' * 5000}b = 1", "params.a.a is nested too deeply"),
    ):
        with pytest.raises(SettingError, match=why) as caught:
            job_of(tmp_path, text)
        assert str(caught.value).startswith(str(tmp_path / "job.toml"))


def test_state_topic_is_shared_by_consumers_only_if_the_topics_are_keyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETAL_TEST_PASSWORD", "secret")
    text = FULL.replace('store = "dir:state"', 'store = "kafka:forks.state"')
    one = job_of(tmp_path, text)
    assert (one.store, one.is_shared) == (Target("kafka", "forks.state"), False)
    several = job_of(tmp_path, text.replace("[source]", '[source]\nkeyed_by = "height"'))
    assert (several.store, several.is_shared) == (one.store, True)
    assert not job_of(tmp_path, FULL).is_shared


def test_dry_run_prints_the_plan_without_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KETAL_TEST_PASSWORD", "secret")
    (tmp_path / "forks.ketal").write_text(PATTERN)
    own_clocks = ', clock = "pkt.vc", node = "kafka.header.node" }'
    text = FULL.replace(own_clocks, ' }\nclock = "none"')
    (tmp_path / "job.toml").write_text(text)
    assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    for text in (
        "blocks", "clock: none", "kafka:forks.verdicts", "sasl_plain_password", "pattern P: check",
        "one for each key", "order: arrival",
        "warning: P takes events in the order in which they are consumed",
    ):  # fmt: skip
        assert text in out
    assert "secret" not in out
    assert "to the ends" not in out
    assert "metrics" not in out
    assert "if the saved state is of another program: stop\n" in out
    flags = ["--until-end", "--on-change", "drain", "--metrics-port", "0"]
    assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run", *flags]) == 0
    out = capsys.readouterr().out
    for text in (
        "topics: blocks, from the end if nothing is committed, to the ends that they have at the",
        "if the saved state is of another program: drain\n", "metrics: at port 0, path /metrics",
    ):  # fmt: skip
        assert text in out


@pytest.mark.parametrize(
    ("engine", "wrong"),
    [("process", 'secuirty_protocol = "SSL"'), ("spark", "max_poll_records = 5")],
)
def test_dry_run_refuses_what_the_job_would_refuse(
    engine: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.ketal").write_text(PATTERN)
    (tmp_path / "job.toml").write_text(
        f'pattern = "p.ketal"\nengine = "{engine}"\n[source]\ntopics = ["t"]\n'
        f"[kafka.properties]\n{wrong}\n"
    )
    assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"ketal: {tmp_path / 'job.toml'}: [kafka.properties] ")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ('[output]\nverdicts = "file:absent/v"', "cannot write {}/absent/v: No such file or"),
        ('[output]\nrejected = "file:folder"', "cannot write {}/folder: Is a directory"),
        ('[output]\nverdicts = "file:p.ketal"', "{}/p.ketal does not end with a verdict"),
        ('[output]\nverdicts = "file:p.ketal/v"', "cannot write {}/p.ketal/v: Not a directory"),
        ('[state]\nstore = "dir:p.ketal/s"', "cannot store state in {}/p.ketal/s: Not a dir"),
        ('[state]\nstore = "dir:/proc/s"', "cannot store state in /proc/s: No such file or dir"),
    ],
)
def test_dry_run_refuses_what_cannot_be_written(
    settings: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.ketal").write_text(PATTERN)
    (tmp_path / "folder").mkdir()
    job = f'pattern = "p.ketal"\n[source]\ntopics = ["t"]\n{settings}\n'
    (tmp_path / "job.toml").write_text(job)
    assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"ketal: {why.format(tmp_path)}")


def test_dry_run_changes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.ketal").write_text(PATTERN)
    (tmp_path / "job.toml").write_text(
        'pattern = "p.ketal"\n[source]\ntopics = ["t"]\n[state]\nstore = "dir:a/b"\n'
        '[output]\nverdicts = "file:torn"\nrejected = "file:link"\n'
    )
    torn = b'{"verdict":"match"}\n{"verd'
    (tmp_path / "torn").write_bytes(torn)
    (tmp_path / "link").symlink_to("made")
    names = {path.name for path in tmp_path.iterdir()}
    assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "torn").read_bytes() == torn


def test_dry_run_accepts_a_pipe_as_an_output(tmp_path: Path) -> None:
    """As /dev/stdout is one, whose links end at no path."""
    (tmp_path / "p.ketal").write_text(PATTERN)
    reader, writer = os.pipe()
    (tmp_path / "job.toml").write_text(
        'pattern = "p.ketal"\n[source]\ntopics = ["t"]\n'
        f'[output]\nverdicts = "file:/dev/fd/{writer}"\n'
    )
    try:
        assert main(["stream", "--config", str(tmp_path / "job.toml"), "--dry-run"]) == 0
    finally:
        os.close(reader)
        os.close(writer)


def test_stream_without_a_pattern_is_refused_before_kafka_is_needed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["stream"]) == 2
    assert "no pattern" in capsys.readouterr().err


# --- watermarks ---

A, B = ("t", 0), ("t", 1)


def watermarks(**options: int) -> Watermarks:
    given = {"lateness_ms": 1_000, "idle_ms": 500, **options}
    return Watermarks([A, B], now_ms=0, **given)


def test_watermark_is_that_of_the_slowest_partition() -> None:
    both = watermarks()
    both.observe(A, 10.0)
    assert both.advance() is None
    both.observe(B, 5.0)
    assert both.advance() == 4.0
    assert both.advance() is None
    both.observe(B, 20.0)
    assert both.advance() == 9.0
    assert not both.observe(A, 9.0)


def test_idle_partition_does_not_hold_the_watermark_back_until_it_resumes() -> None:
    both = watermarks()
    both.observe(A, 10.0)
    both.mark_active([A], 400)
    both.mark_idle((), 500)
    assert both.advance() == 9.0
    both.observe(A, 30.0)
    both.mark_active([B], 600)
    both.observe(B, 12.0)
    assert both.advance() == 11.0


def test_partition_with_unread_messages_is_not_idle() -> None:
    both = watermarks()
    both.observe(A, 10.0)
    both.mark_active([A], 400)
    both.mark_idle([B], 600)
    assert both.advance() is None


def test_watermark_is_that_of_the_fastest_partition_if_all_are_idle() -> None:
    both = watermarks()
    both.observe(A, 10.0)
    both.observe(B, 5.0)
    assert both.advance() == 4.0
    both.mark_idle((), 500)
    assert both.advance() == 9.0


def test_end_of_a_partition_ends_that_partition_only() -> None:
    both = watermarks()
    both.ended.add(A)
    assert not both.all_ended
    both.observe(B, 5.0)
    assert both.advance() == 4.0
    again = watermarks()
    again.restore(both.state())
    assert again.ended == {A}
    assert again.watermark_s == 4.0
    again.ended.add(B)
    assert again.all_ended


# --- outputs, metrics ---


def outputs(path: Path) -> Outputs:
    target = Target("file", str(path))
    job = Job(
        pattern="p", topics=["t"], bootstrap_servers="b", group_id="g",
        verdicts=target, rejected=target,
    )  # fmt: skip
    return Outputs(job, Hooks(lambda verdict: None, lambda: None, lambda notice: None))


def test_torn_last_line_of_verdicts_is_truncated_but_other_text_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b'{"verdict":"match"}\n{"verdict":"mat')
    out = outputs(path)
    out.add(Rejected(place="t/0/1", reason="no"))
    out.write()
    out.close()
    assert path.read_bytes() == (
        b'{"verdict":"match"}\n{"verdict":"rejected","place":"t/0/1","reason":"no"}\n'
    )
    for other in (b"a letter\nwithout an end", b"pattern P {\n}\n", b"{}\n"):
        path.write_bytes(other)
        with pytest.raises(SettingError, match=r"verdicts\.jsonl does not end with a verdict"):
            outputs(path)
        assert path.read_bytes() == other


def test_last_line_of_verdicts_may_be_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    line = b'{"verdict":"' + b"x" * 200_000
    for end in (b'"}\n', b""):
        path.write_bytes(b'{"verdict":"match"}\n' + line + end)
        outputs(path).close()
        assert path.read_bytes() == b'{"verdict":"match"}\n' + (line + end if end else b"")


def test_verdicts_can_be_written_to_devices_and_fifos(tmp_path: Path) -> None:
    """Neither is synced or repaired; opening a FIFO without a reader fails instead of blocking."""
    rejected = Rejected(place="t/0/1", reason="no")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(SettingError, match="this FIFO has no reader\n  hint: start its reader"):
        outputs(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    for path in (Path("/dev/null"), fifo):
        out = outputs(path)
        for _ in range(2):
            out.add(rejected)
            out.write()
            out.clear()
        out.close()
    assert os.read(reader, 10_000).count(b'"rejected"') == 2
    out = outputs(fifo)
    os.close(reader)
    out.add(rejected)
    with pytest.raises(SettingError, match=r"cannot write .*fifo: Broken pipe"):
        out.write()
    out.close()


def test_removed_file_of_verdicts_is_reported_and_a_renamed_one_is_written(tmp_path: Path) -> None:
    path, renamed = tmp_path / "verdicts.jsonl", tmp_path / "verdicts.jsonl.1"
    out = outputs(path)
    out.add(Rejected(place="t/0/1", reason="no"))
    out.write()
    path.rename(renamed)
    out.write()
    assert renamed.read_bytes().count(b'"rejected"') == 2
    renamed.unlink()
    with pytest.raises(SettingError, match=r"verdicts.jsonl was removed while the job runs"):
        out.write()
    out.close()


def test_standard_output_may_be_a_file_without_a_name(tmp_path: Path) -> None:
    """As where a program reads a job's output from a temporary file: no job has removed it."""
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        out = outputs(Path(f"/dev/fd/{file.fileno()}"))
        out.add(Rejected(place="t/0/1", reason="no"))
        out.write()
        out.close()
        file.seek(0)
        assert file.read().count(b'"rejected"') == 1


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("pattern", "PATTERN"),
        ("engine", "--engine"),
        ("bootstrap_servers", "--bootstrap-servers"),
        ("group_id", "--group-id"),
        ("to", "--to"),
        ("state", "--state"),
        ("metrics_host", "--metrics-host"),
    ],
)
def test_empty_flag_is_refused_instead_of_replaced_by_a_default(name: str, flag: str) -> None:
    flags = {"pattern": "p", "topics": ["t"], "metrics_port": 0, name: ""}
    with pytest.raises(SettingError, match=f"{flag} must be a non-empty string, not ''"):
        read_job(None, flags)


@pytest.mark.parametrize(
    "server",
    ["a:0", "a:65536", "a:99999999999", "a:", "a:x", "a:-1", "[::1]:-1", "http://a:1", "ssl://a"],
)
def test_server_with_an_invalid_port_or_a_protocol_is_refused(server: str) -> None:
    """A job would retry such a server until it gives Kafka up."""
    flags = {"pattern": "p", "topics": ["t"], "bootstrap_servers": f"b:9092,{server}"}
    with pytest.raises(SettingError, match=r"^--bootstrap-servers must be .* from 1 to 65535"):
        read_job(None, flags)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_invalid_metrics_port_is_refused(port: int) -> None:
    flags = {"pattern": "p", "topics": ["t"], "metrics_port": port}
    with pytest.raises(
        SettingError, match=f"--metrics-port must be an integer from 0 to 65535, not {port}"
    ):
        read_job(None, flags)


def test_engine_spark_without_pyspark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.ketal").write_text(PATTERN)
    (tmp_path / "job.toml").write_text(
        'pattern = "p.ketal"\nengine = "spark"\n[source]\ntopics = ["t"]\n'
        '[state]\nstore = "dir:state"\n'
    )
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(["stream", "--config", str(tmp_path / "job.toml")]) == 2
    assert "ketal: pyspark is not installed: pip install 'ketal[spark]'" in capsys.readouterr().err
