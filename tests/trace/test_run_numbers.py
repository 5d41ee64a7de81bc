"""Numbers of runs of programs whose events go to a socket or a topic."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from ketal.trace import Collector, JsonLines, KafkaSink, SocketSink, Tracer
from ketal.trace.delivery.run_numbers import Claims, next_run, runs_folder
from tests.logged import ketal_records
from tests.trace.scripts import run_script
from tests.trace.test_log_sender import RecordingMonitor


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KETAL_TRACE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_each_run_sending_to_a_socket_is_a_new_incarnation() -> None:
    script = """
import sys
from ketal.trace import SocketSink, Tracer
Tracer("n/ö", SocketSink("127.0.0.1", int(sys.argv[1]))).record("t")
"""
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        for _ in range(3):
            run_script(script, collector.address[1])
        assert collector.wait(timeout_s=10)
    assert sorted(recorder.dots()) == ["n/ö#2@1", "n/ö#3@1", "n/ö@1"]


def test_runs_are_counted_per_destination_and_node() -> None:
    class Producer:
        def send(self, topic: str, **message: Any) -> None:
            pass

    assert [Tracer("n", KafkaSink(Producer(), "events")).node for _ in range(3)] == [
        "n", "n#2", "n#3",
    ]  # fmt: skip
    assert Tracer("n", KafkaSink(Producer(), "others")).node == "n"
    assert Tracer("m", KafkaSink(Producer(), "events")).node == "m"
    assert Tracer("n", KafkaSink(Producer(), "events"), incarnation=9).node == "n#9"
    assert Tracer("n", SocketSink("127.0.0.1", 9)).node == "n"


def test_simultaneous_runs_have_distinct_numbers() -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: next_run("n", "events", Claims()), range(400)))
    assert sorted(numbers) == list(range(1, 401))


LIVING = """
import sys
from ketal.trace import SocketSink, Tracer
path, port = sys.argv[1:]
tracers = [Tracer("worker", path), Tracer("worker", SocketSink("127.0.0.1", int(port)))]
print(*(tracer.node for tracer in tracers), flush=True)
sys.stdin.read()
"""


def test_a_run_that_begins_before_an_earlier_one_ended_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a worker of a pool, or a rolling restart: its number is the same either way."""
    path = tmp_path / "workers.jsonl"

    def begin() -> list[str]:
        caplog.clear()
        sinks = JsonLines(path), SocketSink("127.0.0.1", 9)
        nodes = [Tracer("worker", sink).node for sink in sinks]
        Tracer("other", sinks[0]), Tracer("other", sinks[1])
        for sink in sinks:
            sink.close()
        return nodes

    words = [sys.executable, "-c", LIVING, str(path), "9"]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as earlier:
        assert earlier.stdout is not None
        assert earlier.stdout.readline() == "worker worker\n"
        assert begin() == ["worker#2", "worker#2"]
        warning, again = (record.getMessage() for record in ketal_records(caplog))
        assert warning == again
        assert warning.startswith("worker#2 begins while an earlier run of worker is still alive;")
        assert warning.endswith('such as Tracer(f"worker-{os.getpid()}")')
        earlier.kill()
    Tracer("worker", path).record("t")
    assert begin() == ["worker#2", "worker#3"]
    assert not ketal_records(caplog)


def test_a_run_is_numbered_by_the_time_if_no_number_can_be_stored(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("no folder")
    before = time.time_ns() // 1_000_000
    numbers = [next_run("n", "events", Claims()), next_run("n", "events", Claims())]
    assert before <= numbers[0] <= numbers[1] <= time.time_ns() // 1_000_000
    assert all("numbered by the time" in record.getMessage() for record in ketal_records(caplog))
    folder.unlink()
    (folder / "events" / "n").mkdir(parents=True)
    assert next_run("n", "events", Claims()) >= before


def test_folder_of_run_numbers_is_in_the_users_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KETAL_TRACE_RUNS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert runs_folder() == tmp_path / "state" / "ketal" / "runs"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_folder() == tmp_path / ".local" / "state" / "ketal" / "runs"
