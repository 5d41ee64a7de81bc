"""Logs of unequal lengths that a collector reads side by side."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.model.limits import Limits
from ketal.trace import Collector, LogSender
from ketal.trace.delivery import connection_pauses, sending
from ketal.trace.delivery.log_sender import announcement

PATIENCE_S = 120
"""How long a test waits, on a busy machine."""
LIMIT = 200


def monitor_of(held_back_max: int = LIMIT) -> ketal.Monitor:
    program = ketal.compile('pattern P { order CausalOrder; event T = type == "t"; check T*; }')
    return ketal.Monitor(program, limits=Limits(held_back_max=held_back_max))


def line(node: str, counter: int, **past: int) -> bytes:
    event = {"node": node, "type": "t", "clock": {**past, node: counter}}
    return json.dumps(event).encode() + b"\n"


def counts(monitor: ketal.Monitor) -> dict[str, int]:
    with Collector.lock:
        summary: Any = monitor.summary
        return dict(summary["events"])


def until(monitor: ketal.Monitor, name: str, least: int) -> None:
    """Wait until a count is at least so high."""
    end_s = time.monotonic() + PATIENCE_S
    while counts(monitor)[name] < least:
        assert time.monotonic() < end_s, counts(monitor)
        time.sleep(0.01)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for connections that send nothing, as they may on a busy machine."""
    monkeypatch.setattr(connection_pauses, "PATIENCE_S", 2 * PATIENCE_S)


def opened(collector: Collector, lines: bytes, *, size_bytes: int | None) -> socket.socket:
    """Return a connection that has sent lines, of a log of that size or of a sink."""
    connection = socket.create_connection(collector.address, timeout=PATIENCE_S)
    if size_bytes is not None:
        connection.sendall(announcement(lines, size_bytes))
        assert connection.recv(10) == b"0\n"
    connection.sendall(lines)
    return connection


@pytest.mark.usefixtures("patient")
def test_late_collector_gives_no_event_of_logs_of_unequal_lengths_up(tmp_path: Path) -> None:
    """Each event of the short log knows four more of the long one."""
    for node, other, count, known in (("long", "short", 8_000, 0.25), ("short", "long", 2_000, 4)):
        past = [int(known * (n - 1)) for n in range(1, count + 1)]
        lines = [line(node, n, **({other: of} if of else {})) for n, of in enumerate(past, 1)]
        (tmp_path / f"{node}.jsonl").write_bytes(b"".join(lines))
    monitor = monitor_of()
    with Collector(monitor) as collector:
        senders = [
            LogSender(tmp_path / f"{node}.jsonl", *collector.address) for node in ("short", "long")
        ]
        until(monitor, "read", 10_000)
        assert all(sender.close() for sender in senders)
        assert collector.wait(timeout_s=PATIENCE_S)
    assert {name: count for name, count in counts(monitor).items() if count} == {
        "read": 10_000, "accepted": 10_000,
    }  # fmt: skip


def test_log_is_not_paused_for_a_connection_that_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pauses, "PATIENCE_S", 0.1)
    path = tmp_path / "n.jsonl"
    path.write_bytes(b"".join(line("n", n, lost=1) for n in range(1, 1_001)))
    monitor = monitor_of()
    with Collector(monitor) as collector, opened(collector, line("quiet", 1), size_bytes=1_000):
        sender = LogSender(path, *collector.address)
        until(monitor, "read", 1_001)
        sender.close()
    assert counts(monitor)["held_back"] == LIMIT


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("known", "size_bytes"),
    [({"behind": 2}, len(line("behind", 1))), ({"of_its_thread": 1}, 1_000)],
    ids=["log-that-grew", "log-that-was-longer"],
)
def test_sinks_are_never_paused_and_logs_only_while_others_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, int], size_bytes: int
) -> None:
    """The unsent events of a sink are lost when its program ends."""
    monkeypatch.setattr(connection_pauses, "STARTING_S", 0.0)
    monitor = monitor_of()
    path = tmp_path / "ahead.jsonl"
    path.write_bytes(b"".join(line("ahead", n, **known) for n in range(1, 151)))
    with Collector(monitor) as collector:
        behind = opened(collector, line("behind", 1), size_bytes=size_bytes)
        until(monitor, "read", 1)
        lines = b"".join(line("sink", n, **known) for n in range(1, 151))
        sink = opened(collector, lines, size_bytes=None)
        until(monitor, "read", 151)
        sender = LogSender(path, *collector.address)
        time.sleep(0.5)
        assert counts(monitor)["read"] < 200
        behind.close()
        until(monitor, "read", 301)
        sender.close()
        sink.close()
        assert collector.wait(timeout_s=PATIENCE_S)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("of_log", [True, False])
def test_log_is_not_paused_for_a_connection_that_is_not_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_log: bool
) -> None:
    """Otherwise an event that is lost would stop a log for as long as another one grows."""
    monkeypatch.setattr(connection_pauses, "STARTING_S", 0.0)
    path = tmp_path / "n.jsonl"
    path.write_bytes(b"".join(line("n", n, lost=1) for n in range(1, 1_001)))
    lines = line("growing", 1)
    monitor = monitor_of()
    with (
        Collector(monitor) as collector,
        opened(collector, lines, size_bytes=len(lines) if of_log else None) as growing,
    ):
        until(monitor, "read", 1)
        growing.sendall(line("growing", 2))
        until(monitor, "read", 2)
        sender = LogSender(path, *collector.address)
        until(monitor, "read", 1_002)
        sender.close()


def test_connections_of_equal_source_addresses_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They may be those to two addresses of the collector."""
    monitor = monitor_of()
    with Collector(monitor, host="0.0.0.0") as collector, socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(one.getsockname())
            for connection, host, node in ((one, "127.0.0.1", "a"), (other, "127.0.0.2", "b")):
                connection.connect((host, collector.address[1]))
                connection.sendall(announcement(line(node, 1), 1_000) + line(node, 1))
                until(monitor, "read", 1 if connection is one else 2)
        one.close()
        assert collector.wait(timeout_s=PATIENCE_S)
    assert not caplog.records


def test_sending_has_no_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = socket.socketpair()
    sender.settimeout(0.05)
    data, stop = bytes(8 << 20), threading.Event()
    received = bytearray()

    def receive() -> None:
        time.sleep(0.3)
        while part := receiver.recv(1 << 20):
            received.extend(part)

    with sender, receiver:
        thread = threading.Thread(target=receive)
        thread.start()
        sending.send_slowly(sender, data, stop)
        sender.shutdown(socket.SHUT_WR)
        thread.join(PATIENCE_S)
        assert received == data
    sender, receiver = socket.socketpair()
    sender.settimeout(0.05)
    stop.set()
    with sender, receiver, pytest.raises(TimeoutError):
        sending.send_slowly(sender, data, stop)
