"""`ketal demo`: readable on 80 columns, without colour and offline, with correct statements."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ketal as library
from ketal.replicated_stack.cluster import RunPlan
from ketal.replicated_stack.demo import Demo
from ketal.replicated_stack.node import Bug
from tests.cli.conftest import Ketal
from tests.streaming.conftest import QUICK_JVM


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "JAVA_TOOL_OPTIONS": " ".join(QUICK_JVM)}
    command = [sys.executable, "-m", "ketal", "demo", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("bug", "carrier"), [("applies-when-off", []), ("stale-copy", ["--kafka"])]
)
def test_demo_finds_draws_and_explains_a_bug(bug: str, carrier: list[str], tmp_path: Path) -> None:
    """The events go to the monitor over TCP, or through a Kafka broker that the demo starts."""
    result = demo(*carrier, "--bug", bug, "--shuffles", "20", "--folder", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert carrier or result.stderr == ""
    # The first use of Kafka on a machine prints the path to which it is downloaded.
    lines = [one for one in result.stdout.splitlines() if not one.startswith("downloading ")]
    assert (lines[0] == "Starting a Kafka broker.") == bool(carrier)
    assert max(map(len, lines)) <= 80 or str(tmp_path) in max(lines, key=len)
    assert "\x1b" not in result.stdout
    assert any(line.startswith("  !! ") for line in lines)
    assert "Why:" in lines
    drawn = lines.index("The events around it, one column per node, time running downwards:")
    assert re.fullmatch(r"  (n\d(#\d)? *)+", lines[drawn + 1])
    assert "  with order CausalOrder   the same answer in 20 of 20" in lines
    names = {line.split()[2].rstrip(":") for line in lines if line.startswith("  !! ")}
    shuffled = "The same events, shuffled 20 times, and the automaton of {}:"
    assert any(shuffled.format(name) in lines for name in names)
    page = Path(lines[-1].strip())
    assert page.read_text().startswith("<!doctype html>")
    logs = sorted(Path(lines[-2].strip()).glob("*.jsonl"))
    events = sum(len(log.read_bytes().splitlines()) for log in logs)
    assert any(line.startswith(f"  {events} events, ") for line in lines)
    program = library.load(Path(library.__file__).parent / "replicated_stack" / "protocol.ketal")
    found = library.run(program, library.read_log(*logs))
    shown = sum(line.startswith("  !! ") for line in lines)
    assert len(found.matches) + len(found.violations) == shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_demo_and_its_processes_without_a_traceback(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "ketal", "demo", "--folder", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("  n") for line in process.stdout)  # an event of the first run
        # A terminal sends Ctrl-C to all processes, `kill` sends SIGTERM to one.
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err


def test_interrupted_demo_waits_for_the_connections_of_its_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed = threading.Event()

    def interrupted(plan: RunPlan, folder: Path) -> None:
        assert isinstance(plan.collector, tuple)
        connection = socket.create_connection(plan.collector)
        connection.sendall(b"\n")

        def close() -> None:
            time.sleep(0.3)
            closed.set()
            connection.close()

        threading.Thread(target=close).start()
        time.sleep(0.1)  # The collector has accepted the connection by then.
        raise KeyboardInterrupt

    monkeypatch.setattr("ketal.replicated_stack.demo.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Demo(1, Bug.STALE_COPY, tmp_path, 0, lambda line: None).run()
    assert closed.is_set()


def test_closed_pipe_ends_the_demo_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ketal", "demo", "--folder", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(line.startswith("  n1@") for line in process.stdout)
        process.stdout.close()
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "run1"]


def test_folder_that_cannot_be_created_is_an_error(ketal: Ketal, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("no folder")
    result = ketal("demo", "--folder", taken)
    assert result.code == 2
    assert result.err == f"ketal: cannot create {taken}/run1: Not a directory\n"


def test_negative_number_of_shuffles_is_refused(ketal: Ketal) -> None:
    result = ketal("demo", "--shuffles", "-1")
    assert (result.code, result.out) == (2, "")
    assert "--shuffles must be 0 or more, not -1" in result.err


def test_unknown_bug_is_refused(ketal: Ketal) -> None:
    result = ketal("demo", "--bug", "none")
    assert result.code == 2
    assert "invalid choice: 'none'" in result.err
