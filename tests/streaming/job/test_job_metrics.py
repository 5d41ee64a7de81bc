"""The metrics of a job, over real sockets."""

from __future__ import annotations

import re
import socket
import struct
import time
from urllib.request import urlopen

import pytest

import ketal
from ketal.errors import SettingError
from ketal.runtime.execution import Execution
from ketal.streaming.job.file import read_job
from ketal.streaming.job.metrics import Figures, MetricsServer
from tests.page_blocks import PAGES

PATTERN = 'pattern P { partition by key; event A = type == "a"; check A*; }'


def test_metrics_are_prometheus_text() -> None:
    execution = Execution(ketal.compile(PATTERN))
    figures = Figures()
    figures.count_verdicts("match", "P")
    figures.count_verdicts("rejected", None)
    figures.count_commit(0.5)
    for now_s, messages in ((1.0, 100), (2.0, 150)):
        figures.update(
            now_s=now_s, messages=messages, control=3, lag={"t/0": 7},
            events=execution.counts.tally.to_dict(), live_runs=execution.counts.live_runs,
            watermark_s=1_700_000_000.5, parts=(2, 4),
        )  # fmt: skip
    server = MetricsServer(figures, 0)
    try:
        with urlopen(f"http://localhost:{server.port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
        with pytest.raises(SettingError, match="cannot be served on port"):
            MetricsServer(figures, server.port)
    finally:
        server.close()
    for line in (
        "ketal_messages_total 150",
        "ketal_messages_per_second 50.0",
        'ketal_records{outcome="control"} 3',
        'ketal_verdicts_total{verdict="match",pattern="P"} 1',
        'ketal_verdicts_total{verdict="rejected"} 1',
        'ketal_lag_messages{partition="t/0"} 7',
        "ketal_held_back_events 0",
        "ketal_live_runs 0",
        "ketal_commits_total 1",
        "ketal_parts 2",
        "ketal_watermark_seconds 1700000000.5",
    ):
        assert line in lines
    assert "lag 7" in figures.line()
    assert figures.line().startswith("2 of 4 parts · 150 messages")


def test_page_lists_every_metric() -> None:
    page = (PAGES / "streaming.md").read_text()
    table = page.split("## Metrics")[1].split("\n## ")[0]
    names = [line.split()[2] for line in Figures().text.splitlines() if line.startswith("# HELP")]
    first = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(\w+)`", first)) == sorted(n.removeprefix("ketal_") for n in names)


def test_metrics_are_served_while_kafka_is_unreachable() -> None:
    """Metrics that are not known yet are left out, and no rate from before is reported."""
    figures = Figures()
    assert "ketal_restarts_total 0" in figures.text.splitlines()
    figures.count_restart()
    lines = figures.text.splitlines()
    assert "ketal_restarts_total 1" in lines
    assert not [line for line in lines if line.startswith(("ketal_held_back", "ketal_live"))]
    described = [line.split()[:3] for line in lines if line.startswith("# ")]
    for now_s, messages in ((1.0, 100), (2.0, 150)):
        figures.update(now_s=now_s, messages=messages, control=0, lag={"t/0": 7}, events={},
                       live_runs=3, watermark_s=None)  # fmt: skip
    figures.clear_rate()
    lines = figures.text.splitlines()
    # Each metric's type is described before it has a value.
    assert described == [line.split()[:3] for line in lines if line.startswith("# ")]
    assert ["#", "TYPE", "ketal_live_runs"] in described
    for line in ("ketal_restarts_total 1", "ketal_messages_per_second 0.0", "ketal_live_runs 3"):
        assert line in lines


def test_metrics_are_served_at_the_given_address_only() -> None:
    """The same port of another address of this machine belongs to another server."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = MetricsServer(Figures(), port, "127.0.0.2")
        try:
            assert server.port == port
            with urlopen(f"http://127.0.0.2:{port}/metrics") as answer:
                assert answer.status == 200
        finally:
            server.close()
        with pytest.raises(SettingError, match=f"cannot be served on port {port}: "):
            MetricsServer(Figures(), port)
    with pytest.raises(SettingError, match=r"port 0 of 203\.0\.113\.1: "):
        MetricsServer(Figures(), 0, "203.0.113.1")
    flags = {"pattern": "p", "topics": ["t"], "metrics_host": "127.0.0.1", "metrics_port": 0}
    assert read_job(None, flags).metrics_host == "127.0.0.1"
    assert read_job(None, {**flags, "metrics_host": None}).metrics_host == ""
    with pytest.raises(SettingError, match="--metrics-host requires --metrics-port"):
        read_job(None, {**flags, "metrics_port": None})


def test_scraper_that_resets_its_connection_does_not_disturb_the_job(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The connection is reset within a request, or within the answer."""
    server = MetricsServer(Figures(), 0, "127.0.0.1")
    try:
        for request in (b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n") * 10:
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(request)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert answer.status == 200
        time.sleep(0.2)
    finally:
        server.close()
    assert capfd.readouterr() == ("", "")


def test_scraper_that_sends_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ketal.streaming.job.metrics._Handler.timeout", 0.1)
    server = MetricsServer(Figures(), 0, "127.0.0.1")
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            assert client.recv(1) == b""
    finally:
        server.close()


def test_metrics_are_served_at_an_ipv6_address() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as none:
        pytest.skip(f"there is no IPv6 here: {none}")
    server = MetricsServer(Figures(), 0, "::1")
    try:
        with urlopen(f"http://[::1]:{server.port}/metrics") as answer:
            assert answer.status == 200
    finally:
        server.close()
