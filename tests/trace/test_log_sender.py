"""Logs sent while they are written: no event is lost, and hardly any is sent twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.model.limits import DEFAULT
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.streaming.broker.settings import free_port
from ketal.trace import Collector, LogSender, SocketSink, Tracer
from ketal.trace.delivery import collecting, log_sender, sending
from tests.logged import ketal_records
from tests.trace.scripts import needs_fork, run_script


class RecordingMonitor:
    """A monitor that records the lines that a collector feeds."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def feed(self, event: Any, *, place: str = "") -> None:
        self.items.append(event)

    def dots(self) -> list[str]:
        return [str(item.dot) if isinstance(item, ketal.Event) else "?" for item in self.items]

    def assert_delivered(self, logged_events: list[str]) -> None:
        """Assert that all lines arrived in order, few of them twice, and all rejections.

        Lines of a broken connection may not be fed yet when the next connection begins.
        """
        dots = self.dots()
        events = [dot for dot in dots if dot != "?"]
        assert list(dict.fromkeys(events)) == [dot for dot in logged_events if dot != "?"]
        assert ("?" in dots) == ("?" in logged_events)
        assert dots.count("?") >= logged_events.count("?")
        assert len(dots) <= len(logged_events) + 1_000

    def wait_for(self, number: int) -> None:
        deadline = time.monotonic() + 20
        while len(self.items) < number and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(self.items) >= number


def logged_events(path: Path) -> list[str]:
    """Return the events of a log, in order; a line truncated by `kill -9` is `?`."""
    return [
        str(item.dot) if isinstance(item, ketal.Event) else "?"
        for _, item, _, _ in ketal.read_log(path).records()
    ]


KILLED = """
import sys, time
from ketal.trace import LogSender, Tracer
tracer = Tracer("n", sys.argv[1])
sender = LogSender(sys.argv[1], "127.0.0.1", int(sys.argv[2]))
for number in range(int(sys.argv[3])):
    tracer.record("t", text="x" * 200)
    if number == 300:
        print("ready", flush=True)
"""


def test_killed_program_sends_the_rest_of_its_log_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        words = [sys.executable, "-c", KILLED, str(path), str(collector.address[1]), "10000000"]
        for _ in range(3):
            with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
                assert program.stdout is not None
                program.stdout.readline()
                program.kill()
        run_script(KILLED, path, collector.address[1], 10)
        assert collector.wait(timeout_s=20)
    recorder.assert_delivered(logged_events(path))
    runs = {dot.partition("@")[0] for dot in recorder.dots() if dot != "?"}
    assert runs == {"n", "n#2", "n#3", "n#4"}


class _ByteHandler(socketserver.StreamRequestHandler):
    """Receives logs like a collector, and stores their bytes."""

    server: _ByteServer

    def handle(self) -> None:
        announcement = log_sender.parse_announcement(self.rfile.readline())
        assert announcement is not None
        log, stored = announcement[0], self.server.taken
        position = len(stored[log])
        self.wfile.write(b"%d\n" % position)
        sent = self.rfile.read()
        stored[log] += sent
        self.server.sent.append(sent)
        self.wfile.write(b"%d\n" % (position + len(sent)))


class _ByteServer(socketserver.TCPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ByteHandler)
        self.taken: defaultdict[str, bytes] = defaultdict(bytes)
        self.sent: list[bytes] = []

    def sent_bytes(self, path: Path) -> bytes:
        """Return the bytes that a sender sends if it starts and is closed now."""
        host, port = self.server_address[:2]
        assert LogSender(path, str(host), port).close()
        return self.sent.pop()


def test_an_incomplete_line_is_not_sent_until_it_is_complete(tmp_path: Path) -> None:
    whole, line = (
        json.dumps({"node": "n", "type": "t", "clock": {"n": n}}).encode() + b"\n" for n in (1, 2)
    )
    with _ByteServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        host, port = server.server_address[:2]
        for cut in range(1, len(line)):
            path = tmp_path / f"{cut}.jsonl"
            path.write_bytes(b" " * cut + whole)  # Each is a different log.
            sender = LogSender(path, str(host), port)
            with open(path, "ab") as file:
                file.write(line[:cut])
            assert sender.close()
            assert server.sent.pop() == b" " * cut + whole
            assert server.sent_bytes(path) == b""
            Tracer("n", path).record("next")
            assert server.sent_bytes(path) == path.read_bytes().removeprefix(b" " * cut + whole)
        server.shutdown()


def test_a_truncated_line_is_one_rejection_and_no_other_line_is_lost(tmp_path: Path) -> None:
    """One sender runs all the time, and another one starts after all is written."""
    path = tmp_path / "n.jsonl"
    line = json.dumps({"node": "n", "type": "t", "clock": {"n": 2}})
    first, second = RecordingMonitor(), RecordingMonitor()
    with Collector(first) as collector:
        sender = LogSender(path, *collector.address)
        for cut in range(1, len(line)):
            Tracer("n", path).record("t")
            with open(path, "a") as file:
                file.write(line[:cut])
        assert sender.close()
        assert collector.wait(timeout_s=20)
    # The last line is never completed.
    expected = [one for cut in range(1, len(line)) for one in (f"n#{cut}@1", "?")][:-1]
    expected[0] = "n@1"
    assert first.dots() == expected
    reasons = {item.reason for item in first.items if isinstance(item, Rejected)}
    assert all(reason.startswith("the line is not JSON: ") for reason in reasons), reasons
    with Collector(second) as collector:
        assert LogSender(path, *collector.address).close()
        assert collector.wait(timeout_s=20)
    assert second.dots() == expected


def test_logs_with_a_cut_first_line_are_distinct(tmp_path: Path) -> None:
    recorder = RecordingMonitor()
    line = json.dumps({"node": "m", "type": "t", "clock": {"m": 1}})
    with Collector(recorder) as collector:
        for cut in range(1, len(line)):
            for node in ("m", "n"):
                path = tmp_path / f"{node}{cut}.jsonl"
                path.write_text(line[:cut])
                Tracer(node, path, incarnation=cut).record("t")
                assert LogSender(path, *collector.address).close()
        assert collector.wait(timeout_s=20)
    events = Counter(dot for dot in recorder.dots() if dot != "?")
    assert set(events.values()) == {1}
    assert len(events) == 2 * (len(line) - 1)
    assert recorder.dots().count("?") == len(events)


def test_lines_of_a_log_without_events_are_sent_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text("no event\nneither\nnor th")
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        assert LogSender(path, *collector.address).close()
        assert collector.wait(timeout_s=20)
    assert recorder.dots() == ["?", "?"]


def test_line_written_in_parts_is_sent_once_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sender, "_PART_BYTES", 100)
    path = tmp_path / "n.jsonl"
    Tracer("n", path).record("t")
    event = {"node": "n", "type": "t", "clock": {"n": 2}, "data": {"text": "x" * 1_000}}
    line = json.dumps(event)
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        sender = LogSender(path, *collector.address)
        recorder.wait_for(1)
        for begin in range(0, len(line), 350):
            with open(path, "a") as file:
                file.write(line[begin : begin + 350])
            time.sleep(0.03)
        with open(path, "a") as file:
            file.write("\n")
        assert sender.close()
        assert collector.wait(timeout_s=20)
    assert recorder.dots() == ["n@1", "n@2"]


def test_restarted_collector_gets_the_whole_log_without_new_events(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    tracer = Tracer("n", path)
    port = free_port()
    sender = LogSender(path, "127.0.0.1", port)
    for _ in range(5):
        tracer.record("t")
    for _ in range(3):
        recorder = RecordingMonitor()
        listening = _Relay(port)
        with Collector(recorder) as collector:
            listening.forward_to(collector.address)
            recorder.wait_for(5)
            listening.close()
        assert recorder.dots() == logged_events(path)
    last = RecordingMonitor()
    with Collector(last, port=port) as collector:
        assert sender.close()
        assert collector.wait(timeout_s=10)
    assert last.dots() == logged_events(path)


def test_broken_connections_lose_no_line_and_repeat_few(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    recorder = RecordingMonitor()
    rng = random.Random(7)
    with Collector(recorder) as collector:
        relay = _Relay(0)
        relay.forward_to(collector.address)
        tracer = Tracer("n", path)
        sender = LogSender(path, "127.0.0.1", relay.port)
        for number in range(3_000):
            tracer.record("t", text="x" * rng.randrange(2_000))
            if number % 500 == 250:
                time.sleep(0.05)
                relay.break_connections()
        recorder.wait_for(3_000)
        assert sender.close()
        relay.close()
        assert collector.wait(timeout_s=10)
    assert relay.broken >= 3
    recorder.assert_delivered(logged_events(path))


class _Relay:
    """A TCP proxy of a collector that can break its connections."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.broken = 0

    def forward_to(self, address: tuple[str, int]) -> None:
        self._address = address
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(self._address)
            self._pairs.append((ours, theirs))
            for one, other in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while part := one.recv(1_000):
                other.sendall(part)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def break_connections(self) -> None:
        for pair in self._pairs:
            self.broken += 1
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()


def _announce(path: Path, address: tuple[str, int]) -> tuple[socket.socket, int]:
    connection = socket.create_connection(address, timeout=10)
    with open(path, "rb") as log:
        connection.sendall(log_sender.announcement(log.readline(), path.stat().st_size))
    return connection, log_sender._read_offset(connection)


def test_log_is_the_same_after_its_program_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Tracer("n", "n.jsonl").record("t")
    port = free_port()
    sender = LogSender("n.jsonl", "127.0.0.1", port)
    time.sleep(0.05)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    recorder = RecordingMonitor()
    with Collector(recorder, port=port) as collector:
        assert sender.close()
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == ["n@1"]


def test_the_greater_offset_of_two_connections_of_one_log_counts(tmp_path: Path) -> None:
    """The earlier connection may not be at its end when the later one begins."""
    path = tmp_path / "n.jsonl"
    tracer = Tracer("n", path)
    for _ in range(4):
        tracer.record("t")
    lines = path.read_bytes().splitlines(keepends=True)
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        earlier, at = _announce(path, collector.address)
        later, also = _announce(path, collector.address)
        assert (at, also) == (0, 0)
        for connection in (earlier, later):
            connection.sendall(b"".join(lines[:2]))
            connection.shutdown(socket.SHUT_WR)
            assert log_sender._read_offset(connection) == len(b"".join(lines[:2]))
            assert connection.recv(1) == b""
            connection.close()
        again, position = _announce(path, collector.address)
        assert position == len(b"".join(lines[:2]))
        again.close()
        assert collector.wait(timeout_s=10)


def test_too_long_line_is_rejected_once_and_does_not_shift_the_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "DEFAULT", replace(DEFAULT, line_bytes_max=100_000))
    path = tmp_path / "n.jsonl"
    lines = [json.dumps({"node": "n", "type": "t", "clock": {"n": n}}) for n in (1, 2, 3)]
    path.write_text("\n".join([lines[0], "x" * 450_000, lines[1]]) + "\n")
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        assert LogSender(path, *collector.address).close()
        with open(path, "a") as file:
            file.write(lines[2] + "\n")
        assert LogSender(path, *collector.address).close()
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == ["n@1", "?", "n@2", "n@3"]


def test_a_collector_evicts_the_least_recently_used_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "LOGS_MAX", 2)
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        for name in ("a", "b", "c", "a"):
            path = tmp_path / f"{name}.jsonl"
            if not path.exists():
                Tracer(name, path).record("t")
            assert LogSender(path, *collector.address).close()
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == ["a@1", "b@1", "c@1", "a@1"]


def test_logs_being_sent_are_not_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "LOGS_MAX", 2)
    path = tmp_path / "n.jsonl"
    tracer = Tracer("n", path)
    for _ in range(5):
        tracer.record("t")
    log = path.read_bytes()
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        lasting, _ = _announce(path, collector.address)
        for number, line in enumerate(log.splitlines(keepends=True)):
            lasting.sendall(line)
            recorder.wait_for(2 * number + 1)
            other = tmp_path / f"{number}.jsonl"
            Tracer(f"n{number}", other).record("t")
            assert LogSender(other, *collector.address).close()
        lasting.shutdown(socket.SHUT_WR)
        assert log_sender._read_offset(lasting) == len(log)
        lasting.close()
        assert len(collector._offsets) == 2
        again, position = _announce(path, collector.address)
        assert position == len(log)
        again.close()
        assert collector.wait(timeout_s=10)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n", b"9" * 19 + b"\n", b"9" * 18 + b"\n"]
)
def test_a_peer_that_is_no_collector_is_logged_once(
    answer: bytes,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "LINGER_S", 0.5)
    path = tmp_path / "n.jsonl"
    Tracer("n", path).record("t")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            while True:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1_000)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        port = other.getsockname()[1]
        sender = LogSender(path, "127.0.0.1", port)
        time.sleep(0.1)
        assert not sender.close()
        other.shutdown(socket.SHUT_RDWR)
    (logged,) = [record.getMessage() for record in ketal_records(caplog)]
    assert logged.startswith(f"127.0.0.1:{port} is not a collector")


def test_an_unreadable_log_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "LINGER_S", 0.5)
    with Collector(RecordingMonitor()) as collector:
        assert not LogSender(tmp_path, *collector.address).close()
    (logged,) = [record.getMessage() for record in ketal_records(caplog)]
    assert logged.startswith(f"cannot send {tmp_path}: ")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot send .*a\\x00b: .* cannot contain U\+0000"):
        LogSender(tmp_path / "a\0b", "127.0.0.1", free_port())


@pytest.mark.parametrize("port", [0, 70_000, "7007"])
def test_an_invalid_port_is_refused(port: Any, tmp_path: Path) -> None:
    for made in (lambda: LogSender(tmp_path / "n", "h", port), lambda: SocketSink("h", port)):
        with pytest.raises(SettingError, match="port must be an integer from 1 to 65535"):
            made()


def test_truncated_or_replaced_log_is_sent_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        tracer = Tracer("n", path)
        sender = LogSender(path, *collector.address)
        for _ in range(20):
            tracer.record("t")
        recorder.wait_for(20)
        os.truncate(path, 0)
        for _ in range(2):
            tracer.record("t", text="x" * 4_000)
        recorder.wait_for(22)
        path.unlink()
        other = Tracer("m", path)
        for _ in range(3):
            other.record("t")
        recorder.wait_for(25)
        other.record("t")
        assert sender.close()
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == [*(f"n@{n}" for n in range(1, 23)), *(f"m@{n}" for n in range(1, 5))]


def test_a_log_truncated_meanwhile_is_sent_from_its_beginning(tmp_path: Path) -> None:
    """Its first line is unchanged, so it is identified as the same log."""
    path = tmp_path / "n.jsonl"
    tracer = Tracer("n", path)
    for _ in range(5):
        tracer.record("t")
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        assert LogSender(path, *collector.address).close()
        first, second, *_ = path.read_bytes().splitlines(keepends=True)
        os.truncate(path, len(first) + len(second))
        assert LogSender(path, *collector.address).close()
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == ["n@1", "n@2", "n@3", "n@4", "n@5", "n@1", "n@2"]


def test_replaced_empty_log_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.touch()
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        sender = LogSender(path, *collector.address)
        time.sleep(0.1)
        path.unlink()
        Tracer("n", path).record("t")
        recorder.wait_for(1)
        assert sender.close()
    assert recorder.dots() == ["n@1"]


def test_events_that_a_monitor_refused_are_not_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def feed(self, event: Any, *, place: str = "") -> None:
            raise RuntimeError("no")

    monkeypatch.setattr(sending, "LINGER_S", 1.0)
    path = tmp_path / "n.jsonl"
    Tracer("n", path).record("t")
    with Collector(Broken()) as collector:
        sender = LogSender(path, *collector.address)
        assert not sender.close()
        assert not sender.close()
    assert "stopped receiving events from" in caplog.text


def test_closed_sender_has_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LINGER_S", 0.1)
    path = tmp_path / "n.jsonl"
    Tracer("n", path).record("t")
    before = set(threading.enumerate())
    sink = SocketSink("127.0.0.1", free_port())
    Tracer("m", sink).record("t")
    senders: list[Any] = [LogSender(path, "127.0.0.1", free_port()), sink]
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    for one in senders:
        one.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


MANY_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from ketal.trace import Collector, LogSender, Tracer
class RecordingMonitor:
    def feed(self, event, *, place=""):
        print(event)
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_100)]
Tracer("n", sys.argv[1]).record("t")
with Collector(RecordingMonitor()) as collector:
    assert LogSender(sys.argv[1], *collector.address).close()
    assert collector.wait(timeout_s=60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_program_with_many_open_files_sends_and_collects(tmp_path: Path) -> None:
    done = run_script(MANY_FILES, tmp_path / "n.jsonl")
    assert (done.stdout, done.stderr) == ("n@1 t\n", "")


def test_nothing_is_sent_of_a_log_that_does_not_exist(tmp_path: Path) -> None:
    assert LogSender(tmp_path / "none.jsonl", "127.0.0.1", free_port()).close()
    (tmp_path / "empty.jsonl").touch()
    with Collector(RecordingMonitor()) as collector:
        assert LogSender(tmp_path / "empty.jsonl", *collector.address).close()


def test_lines_written_before_a_sender_is_closed_are_sent(tmp_path: Path) -> None:
    """Its thread may have polled just before the log, or a line of it, existed."""
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        for number in range(200):
            path = tmp_path / f"n{number}.jsonl"
            if number % 2:
                path.touch()
            sender = LogSender(path, *collector.address)
            path.write_text(f'{{"node":"n{number}","type":"t","clock":{{"n{number}":1}}}}\n')
            assert sender.close()
        assert collector.wait(timeout_s=20)
    assert recorder.dots() == [f"n{number}@1" for number in range(200)]


@needs_fork
def test_parent_sends_the_lines_of_a_forked_child(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    script = """
import os, sys
from ketal.trace import LogSender, Tracer
tracer = Tracer("n", sys.argv[1])
sender = LogSender(sys.argv[1], "127.0.0.1", int(sys.argv[2]))
tracer.record("parent")
child = os.fork()
tracer.record("after")
if not child:
    sys.exit(0)
os.waitpid(child, 0)
"""
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        run_script(script, path, collector.address[1])
        assert collector.wait(timeout_s=10)
    assert sorted(recorder.dots()) == ["n/f1@1", "n@1", "n@2"]


@needs_fork
def test_forked_child_closes_the_connection_of_a_sender_that_waits(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text('{"node":"n","type":"t","clock":{"n":1}}\n')
    script = """
import os, socket, sys, time
from ketal.trace import LogSender, forks
server = socket.create_server(("127.0.0.1", 0))
sender = LogSender(sys.argv[1], *server.getsockname())
connection, _ = server.accept()
connection.recv(1_000)
time.sleep(0.5)
(sending,) = [one.fileno() for one in forks.OWN_SOCKETS]
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    os.fstat(sending)
except OSError:
    os._exit(0)
os._exit(1)
"""
    run_script(script, path)


UNJOINED = """
import multiprocessing, sys, time
from ketal.trace import LogSender, Tracer

def work():
    time.sleep(0.5)
    tracer.record("child")

if __name__ == "__main__":
    tracer = Tracer("n", sys.argv[1])
    sender = LogSender(sys.argv[1], "127.0.0.1", int(sys.argv[2]))
    tracer.record("parent")
    multiprocessing.get_context("fork").Process(target=work).start()
"""


@needs_fork
def test_lines_of_an_unjoined_multiprocessing_child_are_sent(tmp_path: Path) -> None:
    """The program waits for its children at its end, before its senders stop."""
    path = tmp_path / "n.jsonl"
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        run_script(UNJOINED, path, collector.address[1])
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == ["n@1", "n/f1@1"]
