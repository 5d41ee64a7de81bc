"""Events sent over TCP by real processes to a monitor, as they happen."""

from __future__ import annotations

import multiprocessing
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.streaming.broker.settings import free_port
from ketal.trace import (
    Collector,
    JsonLines,
    SocketSink,
    TopicCollector,
    TracedSocket,
    Tracer,
)
from ketal.trace.delivery import sending
from tests.trace.scripts import needs_fork, run_script
from tests.trace.test_log_sender import RecordingMonitor

CONFLICT = """
pattern Conflict {
    order CausalOrder;
    event Write = type == "write";
    First = Write; Second = Conc(Write) && key == First.key;
    find any First Second;
}
"""
WRITER = """
import sys, socket
from ketal.trace import SocketSink, TracedSocket, Tracer

class TwoSinks:
    def __init__(self, *sinks): self.sinks = sinks
    def write(self, event):
        for sink in self.sinks: sink.write(event)

from ketal.trace import JsonLines
name, port, path, peer = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
tracer = Tracer(name, TwoSinks(JsonLines(path), SocketSink("127.0.0.1", port)))
with socket.create_connection(("127.0.0.1", peer)) as connection:
    messages = TracedSocket(connection, tracer)
    for key in ("x", "y", "x"):
        tracer.record("write", key=key)
        messages.send(key.encode())
        messages.receive()
assert not tracer.failures
"""


class TwoSinks:
    """A sink that writes to two sinks."""

    def __init__(self, *sinks: Any) -> None:
        self._sinks = sinks

    def write(self, event: Any) -> None:
        for sink in self._sinks:
            sink.write(event)


def test_verdicts_as_events_happen_equal_those_of_the_collected_log(tmp_path: Path) -> None:
    """Two writers exchange messages through a server; the log is shuffled."""
    program = ketal.compile(CONFLICT)
    found: list[ketal.Verdict] = []
    monitor = ketal.Monitor(program, on={"match": found.append})
    with Collector(monitor) as collector, socket.create_server(("127.0.0.1", 0)) as listening:
        sink = SocketSink(*collector.address)
        hub = Tracer("hub", TwoSinks(JsonLines(tmp_path / "hub.jsonl"), sink))
        peer = listening.getsockname()[1]
        words = [str(collector.address[1])]
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, name, *words, str(tmp_path / f"{name}.jsonl"),
                 str(peer)]
            )
            for name in ("a", "b")
        ]  # fmt: skip
        connections = [listening.accept()[0] for _ in writers]
        for _ in range(3):
            for connection in connections:
                messages = TracedSocket(connection, hub)
                messages.receive()
                messages.send(b"ok")
        for connection in connections:
            connection.close()
        assert [one.wait(30) for one in writers] == [0, 0]
        sink.close()
        assert collector.wait(timeout_s=30)
        with collector.lock:
            monitor.close()
            summary: Any = monitor.summary
    assert summary["events"]["accepted"] == 2 * 9 + 12
    log = list(ketal.read_log(*sorted(tmp_path.glob("*.jsonl"))))
    for seed in range(5):
        shuffled = random.Random(seed).sample(log, len(log))
        assert sorted(map(str, ketal.run(program, shuffled))) == sorted(map(str, found))
    assert found


def test_a_collector_that_starts_late_gets_all_events() -> None:
    port = free_port()
    sink = SocketSink("127.0.0.1", port)
    tracer = Tracer("n", sink)
    for _ in range(10):
        tracer.record("t")
    time.sleep(0.1)
    recorder = RecordingMonitor()
    with Collector(recorder, port=port) as collector:
        sink.close()
        assert collector.wait(timeout_s=10)
    assert [item.counter for item in recorder.items] == list(range(1, 11))
    tracer.record("t")
    assert list(tracer.failures) == ["an event was not written: OSError: the sink is closed"]


def test_events_beyond_the_queue_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LINGER_S", 0.01)
    port = free_port()
    sink = SocketSink("127.0.0.1", port, unsent_max=5)
    tracer = Tracer("n", sink)
    began = time.monotonic()
    for _ in range(20):
        tracer.record("t")
    assert time.monotonic() - began < 5
    (reason,) = tracer.failures
    assert reason.endswith("5 events are already waiting to be sent")
    assert 14 <= tracer.failures[reason] <= 15
    sink.close()


def test_a_truncated_line_is_dropped_and_an_invalid_one_rejected() -> None:
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        with socket.create_connection(collector.address) as connection:
            connection.sendall(b'{"node":"n","type":"t","clock":{"n":1}}\nnonsense\n')
            connection.sendall(b'{"node":"n","type":"t","clock":{"n":2}}\n{"node":"n","ty')
        recorder.wait_for(3)
        assert collector.wait(timeout_s=10)
    assert [type(item).__name__ for item in recorder.items] == ["Event", "Rejected", "Event"]


def _disconnected_sink() -> tuple[int, SocketSink, Tracer]:
    """Return a port, a sink and its tracer, whose connection to the port was closed."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as first:
        sink = SocketSink("127.0.0.1", port)
        tracer = Tracer("n", sink)
        tracer.record("first")
        broken, _ = first.accept()
        assert broken.recv(100)
        broken.close()
    return port, sink, tracer


def test_a_broken_connection_is_reestablished() -> None:
    recorder = RecordingMonitor()
    port, sink, tracer = _disconnected_sink()
    with Collector(recorder, port=port) as collector:
        for _ in range(50):
            tracer.record("t")
            time.sleep(0.01)
        sink.close()
        assert collector.wait(timeout_s=10)
    counters = [item.counter for item in recorder.items]
    # Events in flight when the connection broke may be lost; counters show the gap.
    assert counters == sorted(set(counters))
    assert counters[-1] == 51
    assert not tracer.failures


def test_connection_that_broke_while_idle_loses_no_event() -> None:
    recorder = RecordingMonitor()
    port, sink, tracer = _disconnected_sink()
    time.sleep(0.2)
    with Collector(recorder, port=port) as collector:
        for _ in range(50):
            tracer.record("t")
        sink.close()
        assert collector.wait(timeout_s=10)
    assert [item.counter for item in recorder.items] == list(range(2, 52))


BUSY = """
import sys
from ketal.trace import SocketSink, Tracer
tracer = Tracer("n", SocketSink("127.0.0.1", int(sys.argv[1]), unsent_max=20_000))
for _ in range(100_000):
    tracer.record("t")
print(tracer.failures.total())
"""


def test_busy_program_sends_its_events_concurrently() -> None:
    """The program records five times as many events as the queue holds."""
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        failures = int(run_script(BUSY, collector.address[1]).stdout)
        assert collector.wait(timeout_s=60)
    assert len(recorder.items) == 100_000 - failures
    assert len(recorder.items) > 50_000


@needs_fork
def test_forked_child_has_its_own_connection() -> None:
    script = """
import os, sys
from ketal.trace import SocketSink, Tracer
sink = SocketSink("127.0.0.1", int(sys.argv[1]))
tracer = Tracer("n", sink)
tracer.record("parent")
child = os.fork()
tracer.record("after")
sink.close()
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        run_script(script, collector.address[1])
        assert collector.wait(timeout_s=10)
    assert sorted((item.node, item.counter) for item in recorder.items) == [
        ("n", 1), ("n", 2), ("n/f1", 1),
    ]  # fmt: skip


ENDING = """
import sys
from ketal.trace import SocketSink, Tracer
tracer = Tracer("n", SocketSink("127.0.0.1", int(sys.argv[1]), unsent_max=5))
while not tracer.failures:
    tracer.record("t")
print("full", flush=True)
"""


def test_a_program_that_ends_with_a_full_queue_sends_it() -> None:
    port = free_port()
    recorder = RecordingMonitor()
    words = [sys.executable, "-c", ENDING, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"full\n"
        with Collector(recorder, port=port) as collector:
            assert program.wait(30) == 0
            assert collector.wait(timeout_s=10)
    assert [item.counter for item in recorder.items][:5] == [1, 2, 3, 4, 5]


CHILDREN = """
import multiprocessing, sys
from ketal.trace import SocketSink, Tracer

def work(port, tracer):
    tracer = tracer or Tracer("child", SocketSink("127.0.0.1", port))
    for _ in range(500):
        tracer.record("t")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    port = int(sys.argv[1])
    inherited = Tracer("n", SocketSink("127.0.0.1", port)) if sys.argv[2] == "fork" else None
    process = context.Process(target=work, args=(port, inherited))
    process.start()
    process.join()
    assert process.exitcode == 0
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_multiprocessing_child_sends_its_events_before_it_ends(method: str, tmp_path: Path) -> None:
    """Such a process ends without calling functions of `atexit`."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method}")
    (tmp_path / "program.py").write_text(CHILDREN)
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        words = [sys.executable, str(tmp_path / "program.py"), str(collector.address[1]), method]
        subprocess.run(words, check=True, timeout=60)
        assert collector.wait(timeout_s=10)
    name = "n/f1" if method == "fork" else "child"
    assert [(item.node, item.counter) for item in recorder.items] == [
        (name, n) for n in range(1, 501)
    ]


def test_sending_threads_do_not_block_each_other() -> None:
    recorder = RecordingMonitor()
    with Collector(recorder) as collector:
        sinks = [SocketSink(*collector.address) for _ in range(4)]
        tracers = [Tracer(f"n{number}", sink) for number, sink in enumerate(sinks)]
        threads = [
            threading.Thread(target=lambda one=one: [one.record("t") for _ in range(200)])
            for one in tracers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for sink in sinks:
            sink.close()
        assert collector.wait(timeout_s=10)
    assert len(recorder.items) == 800


EMBEDDED = """
import os, sys, ketal
from ketal.trace import Collector, SocketSink, Tracer
program = ketal.compile('''
    pattern Alone { order CausalOrder; event Take = type == "take"; event Free = type == "free";
        at every node; check (Take Free)*; }
''')
def stop(violation):
    print(violation, flush=True)
    os._exit(3)
monitor = ketal.Monitor(program, on={"violation": stop})
with Collector(monitor) as collector:
    peer = Tracer("peer", SocketSink(*collector.address))
    own = Tracer("own", sys.argv[1], monitor=collector)
    own.record("take")
    headers = own.send("hello")
    peer.receive(headers)
    peer.record("free")
    peer_said = peer.send("bye")
    own.record("free")
    own.record("take")
    own.record("take")
    print("not reached")
"""


def test_program_is_halted_by_its_own_copy_of_a_pattern(tmp_path: Path) -> None:
    words = [sys.executable, "-c", EMBEDDED, str(tmp_path / "own.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("violation Alone (node=own): own@5 take")
    assert len(list(ketal.read_log(tmp_path / "own.jsonl"))) == 5


def test_failing_monitor_is_counted() -> None:
    class Broken:
        def feed(self, event: Any, *, place: str = "") -> None:
            raise RuntimeError("no")

    recorder = RecordingMonitor()
    tracer = Tracer("n", TwoSinks(), monitor=Broken())
    tracer.record("t")
    assert dict(tracer.failures) == {"an event was not fed to the monitor: RuntimeError: no": 1}
    Tracer("n", TwoSinks(), monitor=recorder).record("t")
    assert [str(item) for item in recorder.items] == ["n@1 t"]


def test_handler_may_close_the_collector_of_a_topic() -> None:
    line = b'{"node":"n","type":"a","clock":{"n":1}}'

    class Consumer:
        closed = threading.Event()

        def poll(self, timeout_ms: int) -> dict[str, list[SimpleNamespace]]:
            message = SimpleNamespace(topic="t", partition=0, offset=0, value=line)
            return {"t-0": [message]} if built.wait(10) else {}

        def close(self) -> None:
            self.closed.set()

    built = threading.Event()
    program = ketal.compile('pattern P { event A = type == "a"; find next A; }')
    monitor = ketal.Monitor(program, on={"match": lambda match: collector.close()})
    collector = TopicCollector(Consumer(), monitor)
    built.set()
    assert Consumer.closed.wait(10)
    collector.close()
    summary: Any = monitor.summary
    assert summary["events"]["accepted"] == 1
    assert "handler_failures" not in summary


def test_handler_may_record_events() -> None:
    program = ketal.compile('pattern P { event A = type == "a"; find next A; }')
    tracers: list[Tracer] = []
    monitor = ketal.Monitor(program, on={"match": lambda match: tracers[0].record("told")})
    with Collector(monitor) as collector:
        sink = SocketSink(*collector.address)
        tracers.append(Tracer("own", TwoSinks(), monitor=collector))
        peer = Tracer("peer", sink)

        def work() -> None:
            for _ in range(100):
                tracers[0].record("a")

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(100):
            peer.record("a")
        thread.join(30)
        assert not thread.is_alive()
        sink.close()
        assert collector.wait(timeout_s=30)
    events: Any = monitor.summary["events"]
    assert events["accepted"] == 400
    assert not tracers[0].failures


class EchoingMonitor:
    """A monitor whose handler records an event of another tracer, once both threads are in one."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.items: list[Any] = []

    def feed(self, event: Any, *, place: str = "") -> None:
        self.items.append(event)
        self.entered.set()
        if event.type == "first":
            self.other.entered.wait(0.5)
            self.tracer.record("second")

    other: EchoingMonitor
    tracer: Tracer


def test_handlers_may_record_events_of_tracers_of_each_other() -> None:
    one, two = EchoingMonitor(), EchoingMonitor()
    one.other, two.other = two, one
    tracers = [Tracer("n1", TwoSinks(), monitor=one), Tracer("n2", TwoSinks(), monitor=two)]
    two.tracer, one.tracer = tracers
    threads = [
        threading.Thread(target=tracer.record, args=("first",), daemon=True) for tracer in tracers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for monitor in (one, two):
        assert sorted(event.type for event in monitor.items) == ["first", "second"]


def test_monitor_or_port_that_is_invalid_is_an_error() -> None:
    program = ketal.compile(CONFLICT)
    with pytest.raises(TypeError, match=r"monitor must be a ketal\.Monitor or a Collector"):
        Collector(program)  # type: ignore[arg-type]
    for port in ("7007", -1, 99_999):
        with pytest.raises(SettingError, match="port must be an integer from 0 to 65535, not"):
            Collector(ketal.Monitor(program), port=port)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="consumer must be an object with poll"):
        TopicCollector("events", ketal.Monitor(program))


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not _has_ipv6(), reason="there is no IPv6")
def test_events_are_received_over_ipv6() -> None:
    recorder = RecordingMonitor()
    with Collector(recorder, host="::1") as collector:
        sink = SocketSink(*collector.address)
        Tracer("n", sink, incarnation=1).record("t")
        sink.close()
        assert collector.wait(timeout_s=10)
    assert recorder.dots() == ["n@1"]


def test_address_that_cannot_be_used_is_an_error() -> None:
    monitor = ketal.Monitor(ketal.compile(CONFLICT))
    with Collector(monitor) as collector:
        _, port = collector.address
        taken = f"events cannot be received on port {port} of 127.0.0.1: Address already in use"
        with pytest.raises(SettingError, match=taken):
            Collector(monitor, port=port)
    for unsent_max in ("5", 0):
        with pytest.raises(SettingError, match="unsent_max must be a positive integer, not"):
            SocketSink("127.0.0.1", port, unsent_max=unsent_max)  # type: ignore[arg-type]
    for make in (lambda host: Collector(monitor, host=host), lambda host: SocketSink(host, port)):
        with pytest.raises(SettingError, match=r"'a\.\.b' is not a valid host name: "):
            make("a..b")
        with pytest.raises(TypeError, match="host must be a str, not int"):
            make(5)
