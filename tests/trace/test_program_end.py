"""Programs that end or fork while they send or receive events."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ketal.streaming.broker.settings import free_port
from ketal.trace import Collector, SocketSink, Tracer, forks
from ketal.trace.delivery import collecting, sending
from tests.trace.scripts import needs_fork, run_script
from tests.trace.test_log_sender import RecordingMonitor


def test_all_senders_finish_at_once_and_share_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LINGER_S", 0.1)
    calls: list[tuple[str, float]] = []

    class Lasting(sending.SenderThread):
        def wait_sent(self, timeout_s: float) -> None:
            calls.append(("wait", timeout_s))
            super().wait_sent(timeout_s)

    lasting = [
        Lasting("lasting", threading.Event.wait, lambda: calls.append(("finish", 0)))
        for _ in range(2)
    ]
    sending.end_all(lasting)
    assert [name for name, _ in calls] == ["finish", "finish", "wait", "wait"]
    assert sum(timeout_s for _, timeout_s in calls) <= 0.1


NOBODY = """
import sys
from ketal.trace import LogSender, SocketSink, Tracer
from ketal.trace.delivery import sending
sending.LINGER_S = float(sys.argv[3])
path, port = sys.argv[1], int(sys.argv[2])
Tracer("n", path).record("t")
senders = [LogSender(path, "127.0.0.1", port) for _ in range(40)]
for number in range(40):
    Tracer(f"m{number}", SocketSink("127.0.0.1", port)).record("t")
print("ends", flush=True)
"""


def test_program_without_a_collector_ends(tmp_path: Path) -> None:
    assert run_script(NOBODY, tmp_path / "n.jsonl", free_port(), 5).stderr == ""


def test_program_waiting_at_its_end_can_be_interrupted(tmp_path: Path) -> None:
    # A shell starts background jobs with SIGINT ignored, and their children inherit that.
    heeding = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    words = [sys.executable, "-c", heeding + NOBODY, str(tmp_path / "n.jsonl")]
    words += [str(free_port()), "600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ends\n"
        deadline = time.monotonic() + 120
        while program.poll() is None and time.monotonic() < deadline:
            # The first signal may arrive before the program waits.
            program.send_signal(signal.SIGINT)
            time.sleep(0.1)
        program.kill()
        assert program.wait() != -signal.SIGKILL


BUSY = """
import os, signal, sys, threading, ketal
from ketal.trace import Collector, Tracer
entered, go_on = threading.Event(), threading.Event()
program = ketal.compile('pattern P { event A = type == "slow"; find next A; }')
def handler(match):
    entered.set()
    go_on.wait()
with Collector(ketal.Monitor(program, on={"match": handler})) as collector:
    tracer = Tracer("n", sys.argv[1], monitor=collector)
    thread = threading.Thread(target=tracer.record, args=("slow",))
    thread.start()
    entered.wait()
    threading.Timer(0.2, go_on.set).start()
    child = os.fork()
    signal.alarm(60)
    tracer.record("after")
    assert not tracer.failures
    if not child:
        assert collector.wait(timeout_s=0)
if child:
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@needs_fork
def test_fork_while_the_monitor_is_fed_leaves_it_usable(tmp_path: Path) -> None:
    """The child's monitor is consistent, its lock is free, and there is no server to shut down."""
    done = run_script(BUSY, tmp_path / "n.jsonl")
    assert (done.stdout, done.stderr) == ("done\ndone\n", "")


WAITING = """
import os, signal, sys, threading, ketal
from ketal.trace import Collector, Tracer, forks
signal.alarm(60)
forks.WAIT_S = 0.1
entered, forked = threading.Event(), threading.Event()
program = ketal.compile('pattern P { event A = type == "a"; find next A; }')
def handler(match):
    entered.set()
    forked.wait()
with Collector(ketal.Monitor(program, on={"match": handler})) as collector:
    tracer = Tracer("n", sys.argv[1], monitor=collector)
    thread = threading.Thread(target=tracer.record, args=("a",))
    thread.start()
    entered.wait()
    child = os.fork()
    forked.set()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    tracer.record("after")
    assert not tracer.failures
"""


@needs_fork
def test_handler_may_wait_for_a_fork(tmp_path: Path) -> None:
    assert run_script(WAITING, tmp_path / "n.jsonl").stderr == ""


SURVIVED = """
import os, sys, time
from ketal.trace import Collector, SocketSink, Tracer
class RecordingMonitor:
    def feed(self, event, *, place=""):
        pass
collector = Collector(RecordingMonitor())
Tracer("n", SocketSink("127.0.0.1", int(sys.argv[1]))).record("t")
time.sleep(0.5)
if not os.fork():
    os.close(1)
    time.sleep(120)
print(collector.address[1], os.getpid(), flush=True)
time.sleep(120)
"""


@needs_fork
def test_surviving_child_keeps_no_connection_or_port_of_its_parent() -> None:
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        words = [sys.executable, "-c", SURVIVED, str(collector.address[1])]
        with subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0) as program:
            assert program.stdout is not None
            port = int(program.stdout.readline().split()[0])
            recorder.wait_for(1)
            program.kill()
            program.wait()
            try:
                assert collector.wait(timeout_s=10)
                Collector(recorder, port=port).close()
            finally:
                os.killpg(program.pid, signal.SIGKILL)


def test_a_connection_to_itself_is_refused() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.connect(one.getsockname())
        with pytest.raises(ConnectionError):
            sending.refuse_self_connection(one)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        sending.refuse_self_connection(connection)


def test_connections_beyond_the_limit_are_closed_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(collecting, "CONNECTIONS_MAX", 1)
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        with socket.create_connection(collector.address) as first:
            for _ in range(2):
                with socket.create_connection(collector.address, timeout=60) as other:
                    assert other.recv(1) == b""
            first.sendall(b'{"node":"n","type":"t","clock":{"n":1}}\n')
        assert collector.wait(timeout_s=60)
        sink = SocketSink(*collector.address)
        Tracer("m", sink).record("t")
        sink.close()
        assert collector.wait(timeout_s=60)
    assert recorder.dots() == ["n@1", "m@1"]
    assert caplog.text.count("more than 1 connections") == 1


def test_accepted_connections_use_keepalive() -> None:
    """Keep-alive is enabled; waiting until it detects a gone peer would take too long."""
    with (
        Collector(RecordingMonitor()) as collector,
        socket.create_connection(collector.address) as peer,
    ):
        peer.sendall(b"\n")
        deadline = time.monotonic() + 20
        while not (ours := _accepted(collector)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for one in ours] == [1]


def _accepted(collector: Collector) -> list[socket.socket]:
    return [
        one
        for one in [*forks.OWN_SOCKETS]
        if one.fileno() >= 0
        and one.getsockname()[:2] == collector.address
        and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_the_backlog_is_as_large_as_the_connection_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection attempt that finds the backlog full is retried only after a second or more."""
    with Collector(RecordingMonitor()) as collector:
        server: Any = collector._server
        # `tcpi_sacked` of a listening socket is its backlog.
        info = server.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        most = int(Path("/proc/sys/net/core/somaxconn").read_text())
        assert struct.unpack_from("I", info, 28)[0] == min(collecting.CONNECTIONS_MAX, most)


def test_many_simultaneous_senders_are_all_accepted(tmp_path: Path) -> None:
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        sinks = [SocketSink(*collector.address) for _ in range(200)]
        threads = [
            threading.Thread(target=Tracer(f"n{number}", sink).record, args=("t",))
            for number, sink in enumerate(sinks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sending.end_all([sink._sender for sink in sinks])
        assert collector.wait(timeout_s=60)
    assert sorted(recorder.dots()) == sorted(f"n{number}@1" for number in range(200))
