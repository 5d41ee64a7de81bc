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


def opened(collector: Collector, lines: bytes, *, of_log: bool) -> socket.socket:
    """Return a connection that has sent lines, of a log or of a sink, and may send more."""
    connection = socket.create_connection(collector.address, timeout=PATIENCE_S)
    if of_log:
        connection.sendall(announcement(lines, len(lines)))
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
    with Collector(monitor) as collector, opened(collector, line("quiet", 1), of_log=True):
        sender = LogSender(path, *collector.address)
        until(monitor, "read", 1_001)
        sender.close()
    assert counts(monitor)["held_back"] == LIMIT


@pytest.mark.usefixtures("patient")
def test_log_is_not_paused_for_one_that_has_sent_all_events_that_others_know(
    tmp_path: Path,
) -> None:
    """Else a lost event would stop all logs that wait for it, as long as any other is sent."""
    path = tmp_path / "n.jsonl"
    path.write_bytes(b"".join(line("n", n, lost=1, idle=1) for n in range(1, 1_001)))
    monitor = monitor_of()
    with Collector(monitor) as collector, opened(collector, line("idle", 1), of_log=True):
        until(monitor, "read", 1)
        sender = LogSender(path, *collector.address)
        until(monitor, "read", 1_001)
        sender.close()
    assert counts(monitor)["held_back"] == LIMIT


@pytest.mark.usefixtures("patient")
def test_sinks_are_never_paused_and_logs_only_while_others_are_open(tmp_path: Path) -> None:
    """The unsent events of a sink are lost when its program ends."""
    monitor = monitor_of()
    path = tmp_path / "ahead.jsonl"
    path.write_bytes(b"".join(line("ahead", n, behind=2) for n in range(1, 151)))
    with Collector(monitor) as collector:
        behind = opened(collector, line("behind", 1), of_log=True)
        until(monitor, "read", 1)
        sink = opened(
            collector, b"".join(line("sink", n, behind=2) for n in range(1, 151)), of_log=False
        )
        until(monitor, "read", 151)
        sender = LogSender(path, *collector.address)
        time.sleep(0.2)
        assert counts(monitor)["read"] < 200
        behind.close()
        until(monitor, "read", 301)
        sender.close()
        sink.close()
        assert collector.wait(timeout_s=PATIENCE_S)


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
