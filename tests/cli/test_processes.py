"""`ketal` as a process: live flushing, signals, closed pipes, full disks, terminals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from ketal.cli import Terminated, options
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.cli.conftest import BROKEN, CONFLICT, PHASES, ROOT, RUN, Ketal, Write, event

Start = Callable[..., "subprocess.Popen[str]"]
PATIENCE_S = 120


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("conflict.ketal", CONFLICT)
    write("phases.ketal", PHASES)
    write("run.jsonl", RUN)


def line_of(pipe: IO[str] | None) -> str:
    """Return the next line; fail if none arrives in time."""
    assert pipe is not None
    ready, _, _ = select.select([pipe], [], [], PATIENCE_S)
    assert ready, "no line came"
    return pipe.readline()


def put(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the remaining output; `communicate` would lose the buffer of `line_of`."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(timeout=PATIENCE_S)
    return out, err


def test_live_prints_each_verdict_when_its_event_arrives(start: Start) -> None:
    process = start("run", "--live", "conflict.ketal", "-", "--output", "json")
    one, two, _ = RUN.splitlines(keepends=True)
    put(process, one + two)
    assert '"verdict":"match"' in line_of(process.stdout)
    put(process, "rubbish\n")
    assert '"verdict":"rejected"' in line_of(process.stdout)
    put(process, event("c", "write", {"c": 1}, key="x"))
    assert '"c@1"' in line_of(process.stdout)
    out, err = rest_of(process)
    assert '"read":4,"accepted":3,"duplicates":0,"rejected":1' in out
    assert (process.returncode, err) == (0, "")


def test_live_run_ends_at_ketal_end(start: Start) -> None:
    process = start("run", "--live", "phases.ketal", "-")
    put(process, BROKEN)
    assert line_of(process.stdout).startswith("violation Phases: a@2")
    put(process, '{"type": "ketal.end"}\n')
    # The pipe stays open: the control event ends the run.
    assert line_of(process.stdout) == "3 read = 3 accepted\n"
    assert process.wait(timeout=PATIENCE_S) == 1


def test_live_of_several_executions_is_refused(ketal: Ketal, write: Write) -> None:
    write("two.log", '=== one ===\nwrite\na {"a":1}\n=== two ===\nwrite\na {"a":1}\n')
    words = ["--delimiter", "^=== (?<trace>.*) ===$", "--format", "shiviz"]
    result = ketal("run", "--live", "conflict.ketal", "two.log", *words)
    assert result.code == 2
    assert result.err == "ketal: --live judges one execution, but two.log has several\n"


def test_ctrl_c_prints_the_summary_before_the_exit(start: Start) -> None:
    process = start("run", "--live", "conflict.ketal", "-")
    one, two, _ = RUN.splitlines(keepends=True)
    put(process, one + two)
    assert line_of(process.stdout).startswith("match Conflict")
    process.send_signal(signal.SIGINT)
    out, err = rest_of(process)
    assert process.returncode == 130
    assert out == "2 read = 2 accepted\nConflict: 1 match\n"
    assert err == "ketal: interrupted: the log was not read and judged to the end\n"


def test_sigterm_ends_a_stream_like_ctrl_c(start: Start) -> None:
    process = start("run", "--live", "conflict.ketal", "-", "--output", "json")
    one, two, _ = RUN.splitlines(keepends=True)
    put(process, one + two)
    assert '"verdict":"match"' in line_of(process.stdout)
    process.send_signal(signal.SIGTERM)
    out, err = rest_of(process)
    assert process.returncode == 143
    assert json.loads(out)["summary"]["patterns"]["Conflict"]["matches"] == 1
    assert err == "ketal: terminated: the log was not read and judged to the end\n"


@pytest.mark.parametrize(
    ("stop", "code", "word"),
    [(KeyboardInterrupt, 130, "interrupted"), (Terminated, 143, "terminated")],
)
@pytest.mark.parametrize("command", ["run", "explain", "lint"])
def test_signal_while_a_command_starts_is_reported(
    ketal: Ketal,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    stop: type[KeyboardInterrupt],
    code: int,
    word: str,
) -> None:
    def stopped(*_: object) -> None:
        raise stop

    monkeypatch.setattr(options, "source_and_limits", stopped)
    result = ketal(command, "conflict.ketal", "run.jsonl")
    assert (result.code, result.out, result.err) == (code, "", f"ketal: {word}\n")


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGTERM, 0, ""), (signal.SIGINT, 130, "ketal: interrupted\n")],
)
def test_streaming_job_stopped_while_starting_exits_like_a_running_one(
    ketal: Ketal, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int, message: str
) -> None:
    """Its pattern compiles, or Spark is imported: a supervisor need not distinguish this."""
    before = signal.getsignal(number)
    monkeypatch.setattr(options, "load_program", lambda *_, **__: signal.raise_signal(number))
    result = ketal("stream", "conflict.ketal", "--input", "events")
    assert (result.code, result.out, result.err) == (code, "", message)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_lost_in_a_callback_still_ends_a_streaming_job(
    ketal: Ketal, monkeypatch: pytest.MonkeyPatch, write: Write, number: signal.Signals, code: int
) -> None:
    """Python drops what a handler raises in a weak reference's callback, as imports have them."""
    program_of = options.load_program

    def signalled(*args: Any, **words: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        return program_of(*args, **words)

    monkeypatch.setattr(options, "load_program", signalled)
    write("job.toml", '[source]\ntopics = ["t"]\n[kafka]\nlost_after_ms = 0\ngroup_id = "g"\n')
    result = ketal("stream", "conflict.ketal", "--config", "job.toml", "-b", "127.0.0.1:1")
    assert (result.code, result.out) == (code, "")


def test_second_sigterm_does_not_keep_a_job_from_its_last_commit(
    ketal: Ketal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` sends it to the process and to its group; only another Ctrl-C ends the job at once.

    The engine stands for one that is told to stop while it runs, and commits last.
    """
    numbers: list[signal.Signals] = []

    class Committing(ProcessEngine):
        def run(self) -> None:
            for number in numbers:
                signal.raise_signal(number)
            self.hooks.notify("committed")

    monkeypatch.setattr("ketal.streaming.kafka.process_engine.ProcessEngine", Committing)
    words = ("stream", "conflict.ketal", "--input", "events", "--state", "dir:state")
    for sent, code, last in (
        ([signal.SIGTERM] * 2, 0, "ketal: committed"),
        ([signal.SIGINT, signal.SIGTERM], 130, "ketal: committed"),
        ([signal.SIGTERM, signal.SIGINT], 130, "ketal: interrupted"),
    ):
        numbers[:] = sent
        result = ketal(*words)
        assert (result.code, result.err.splitlines()[-1]) == (code, last), sent


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_signal_while_a_finite_log_is_read_ends_the_run_with_a_reason(
    start: Start, number: signal.Signals, code: int, word: str
) -> None:
    process = start("run", "conflict.ketal", "-", "--output", "json")
    put(process, RUN + "rubbish\n" * 3000)
    # More rejections than the pipe holds, so that the signal comes while a line is written.
    assert '"place":"<stdin>:4"' in line_of(process.stdout)
    process.send_signal(number)
    out, err = rest_of(process)
    assert process.returncode == code
    *rejected, last = [json.loads(line) for line in out.splitlines()]
    counts = last["summary"]["events"]
    # The signal may arrive between the count of a rejection and its line.
    assert counts["rejected"] - len(rejected) in (1, 2)
    assert counts["read"] == counts["accepted"] + counts["rejected"]
    assert err == f"ketal: {word}: not all accepted events were judged\n"


def test_pipe_closed_by_the_reader_ends_the_run_quietly(start: Start, write: Write) -> None:
    lines = (event("a", "open", {"a": n}) for n in range(1, 20_001))
    write("long.jsonl", "".join(lines))
    write("resume.ketal", PHASES.replace("check", "on violation resume;\n    check"))
    process = start("run", "resume.ketal", "long.jsonl", "--output", "json")
    assert '"verdict":"violation"' in line_of(process.stdout)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err == ""
    assert process.returncode == 1


@pytest.mark.parametrize(
    "words", [("limits",), ("--help",), ("graph", "conflict.ketal"), ("run", "conflict.ketal", "-")]
)
def test_pipe_closed_before_the_start_ends_the_run_quietly(
    start: Start, words: tuple[str, ...]
) -> None:
    read, write_end = os.pipe()
    os.close(read)
    process = start(*words, stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(RUN, timeout=PATIENCE_S)
    assert err == ""
    assert process.returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disk_is_reported_with_a_reason(
    start: Start, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this machine has no /dev/full")
    # Without a buffer it is argparse that cannot write, and it ignores the error.
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        process = start("run", "--help", stdout=full)
        _, err = process.communicate(timeout=PATIENCE_S)
        silent = start("run", "missing.ketal", "run.jsonl", stderr=full)
        out, _ = silent.communicate(timeout=PATIENCE_S)
    reason = "ketal: cannot write <stdout>: No space left on device\n"
    assert (process.returncode, err) == (2, reason)
    assert (silent.returncode, out) == (2, "")


def test_ketal_runs_without_standard_streams(tmp_path: Path) -> None:
    ketal = f"{sys.executable} -m ketal"
    script = f"{ketal} run conflict.ketal run.jsonl <&- >&- && {ketal} lint - <&-"
    ran = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in ran.stderr


def test_output_is_utf8_whatever_the_locale(
    start: Start, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("log.jsonl", RUN.replace('"x"', '"é"'))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for words, text in (
        (("run", "conflict.ketal", "log.jsonl", "--output", "json"), '"scope":{"key":"é"}'),
        (("stream", "conflict.ketal", "--input", "t", "-b", "é:1", "--dry-run"), "Kafka: é:1"),
    ):
        out, _ = start(*words, encoding="utf-8").communicate(timeout=PATIENCE_S)
        assert text in out


# --- terminals ---------------------------------------------------------------------------


def on_terminal(tmp_path: Path, *words: str, **environment: str) -> str:
    """Return what `ketal` writes to a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ketal", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    try:
        while piece := os.read(leader, 65536):
            seen += piece
    except OSError:
        # Linux raises this error once the other side of a terminal is closed.
        pass
    os.close(leader)
    assert process.wait(timeout=PATIENCE_S) == 0
    return seen.decode()


def test_output_on_a_terminal_is_coloured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = on_terminal(tmp_path, "run", "conflict.ketal", "run.jsonl")
    assert "\x1b[1;32mmatch\x1b[0m Conflict (key=x): First=a@1, Second=b@1" in text


@pytest.mark.parametrize("colour", [True, False])
def test_lint_colours_severities_and_carets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = "pattern P { order arrival; event A = x == 1; event B = x == 2; find any A B; }"
    (tmp_path / "warned.ketal").write_text(text)
    seen = on_terminal(tmp_path, "lint", "warned.ketal", **({} if colour else {"NO_COLOR": "1"}))
    severity, carets = ("\x1b[33mwarning\x1b[0m", "\x1b[1m") if colour else ("warning", "  ")
    head, _, under, *_ = seen.splitlines()
    assert head.startswith(f"warned.ketal:1:73: {severity}[K220]: ")
    assert under.startswith(carets)
    assert ("\x1b[" in seen) == colour


def test_terminal_shows_the_progress_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    events = ({"node": "n", "type": "a", "clock": {"n": n}} for n in range(1, 60_001))
    (tmp_path / "long.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    (tmp_path / "all.ketal").write_text(
        'pattern P { order CausalOrder; event A = type == "a"; check A*; }'
    )
    seen = on_terminal(tmp_path, "run", "--count", "all.ketal", "long.jsonl")
    assert re.search(r"\d+%, [\d,]+ records (read|judged)", seen)


def test_no_color_disables_colours(tmp_path: Path) -> None:
    text = on_terminal(tmp_path, "run", "conflict.ketal", "run.jsonl", NO_COLOR="1")
    assert "match Conflict (key=x): First=a@1, Second=b@1" in text
    assert "\x1b[1;32m" not in text
    assert "\x1b[32m" not in text


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    text = on_terminal(tmp_path, "run", "conflict.ketal", "run.jsonl", TERM="dumb")
    assert text.splitlines() == [
        "match Conflict (key=x): First=a@1, Second=b@1 (run.jsonl:1, run.jsonl:2)",
        "3 read = 3 accepted",
        "Conflict: 1 match",
    ]


def test_long_line_is_not_wrapped(tmp_path: Path, write: Write) -> None:
    write("run.jsonl", RUN.replace('"x"', f'"{"x" * 300}"'))
    text = on_terminal(tmp_path, "run", "conflict.ketal", "run.jsonl", NO_COLOR="1")
    assert f"match Conflict (key={'x' * 300}): First=a@1, Second=b@1" in text
