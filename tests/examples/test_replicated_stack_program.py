"""The replicated stack as a program: its bugs, its checker, and the patterns' verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.replicated_stack import checker, transport
from ketal.replicated_stack.cluster import RunPlan, run
from ketal.replicated_stack.node import Bug
from ketal.replicated_stack.tables import (
    ALSO_FOUND_BY,
    PATTERN_OF,
    PATTERNS,
    SESSION_BUGS,
    Tables,
    events_of,
    shuffled_arrival,
)
from ketal.replicated_stack.transport import Faults, Transport
from ketal.trace import Collector
from tests.sampling import sample

RUNS = sample(3, 200)
ALWAYS = (Bug.EARLY_ACKNOWLEDGEMENT, Bug.STALE_COPY, Bug.EARLY_DELIVERY)
"""Bugs that certainly show within a few runs."""
NAMES = ("n1", "n2", "n3", "n4")
A_NODE_IS_STOPPED = 2
"""The first seed of a run in which a node is stopped and restarted."""


def test_exactly_the_wrong_runs_are_found() -> None:
    tables = Tables(RUNS)
    tables.run()
    for counts in tables.bugs.values():
        assert counts["runs"] == RUNS
        assert (counts["found"], counts["false"]) == (counts["wrong"], 0)
    assert tables.bugs[Bug.NONE]["wrong"] == 0
    assert all(tables.bugs[bug]["wrong"] for bug in ALWAYS)
    assert tables.operators[True, True]["false"] == 0
    text = tables.text()
    assert f"| none | {RUNS} | 0 | 0 | 0 |" in text
    assert "| on | on | 0 of " in text


def test_every_process_records_the_run_and_replicas_converge(tmp_path: Path) -> None:
    """The correct protocol, under faults and with restarted processes."""
    restarted = 0
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(RunPlan(seed), folder)
        restarted += any(path.stem.endswith("#2") for path in folder.glob("*.history"))
        events = events_of(folder)
        assert {event.node.partition("#")[0] for event in events} == {"n1", "n2", "n3", "n4"}
        assert not checker.faults_of(folder)
        ends = [line for history in checker.histories(folder).values() for line in history[-1:]]
        states = [end["elements"] for end in ends if end.get("on")]
        assert states == states[:1] * len(states) != []
        assert ketal.audit(ketal.read_log(*folder.glob("*.jsonl"))).faults == ()
    assert restarted


def test_verdicts_are_equal_live_offline_and_in_every_order(tmp_path: Path) -> None:
    program = ketal.load(PATTERNS)
    live: set[str] = set()
    handlers: dict[str, Any] = {kind: lambda verdict: live.add(verdict.id)
                                for kind in ("violation", "match")}  # fmt: skip

    def recorded(seed: int, folder: Path) -> bool:
        monitor = ketal.Monitor(program, on=handlers)
        with Collector(monitor) as collector:
            run(RunPlan(seed, Bug.EARLY_DELIVERY, collector=collector.address), folder)
            assert collector.wait(timeout_s=30)
            with collector.lock:
                monitor.close()
        assert live == verdict_ids(ketal.run(program, events_of(folder)))
        return bool(live)

    folder = _first_that(recorded, tmp_path)
    events = events_of(folder)
    rng = random.Random(3)
    for _ in range(sample(5, 20)):
        shuffled = rng.sample(events, len(events))
        for order in (shuffled, shuffled_arrival(events, rng)):
            assert verdict_ids(ketal.run(program, order)) == live


class _OwnMonitor:
    """The monitor of a process; at the end, the ids of its verdicts are in `NODE.verdicts`.

    When the process is restarted, the monitor is fed the log of its earlier runs, and its peers
    send theirs from the beginning. `ports` are those to which events are sent, by process.
    """

    def __init__(self, ports: Mapping[str, int], name: str, log: Path) -> None:
        self.peers = [("127.0.0.1", port) for peer, port in ports.items() if peer != name]
        self._written = log.with_suffix(".verdicts")
        self._verdict_ids: list[str] = []
        handlers = dict.fromkeys(("violation", "match"), self._record)
        self._monitor = ketal.Monitor(ketal.load(PATTERNS), on=handlers)
        if log.exists():
            for event in ketal.read_log(log):
                self._monitor.feed(event)
        self.collector = Collector(self._monitor, port=ports[name])

    def _record(self, verdict: Any) -> None:
        self._verdict_ids.append(verdict.id)

    def end(self) -> None:
        self.collector.wait()
        self.collector.close()
        self._monitor.close()
        self._written.write_text("".join(f"{name}\n" for name in self._verdict_ids))


def test_monitors_in_each_process_find_the_same_verdicts(tmp_path: Path) -> None:
    """This includes a process that was killed and restarted."""
    again = 0

    def recorded(seed: int, folder: Path) -> bool:
        nonlocal again
        with contextlib.ExitStack() as reserved:
            ports = {name: reserved.enter_context(_reserved_port()) for name in NAMES}
            run(RunPlan(seed, Bug.EARLY_DELIVERY, monitor=partial(_OwnMonitor, ports)), folder)
        expected = verdict_ids(ketal.run(ketal.load(PATTERNS), events_of(folder)))
        for name in NAMES:
            assert set((folder / f"{name}.verdicts").read_text().split()) == expected
        again += any(folder.glob("*#2.history"))
        return bool(expected) and again > 0

    _first_that(recorded, tmp_path, A_NODE_IS_STOPPED)


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a free port, where a server that reuses addresses can listen."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def _first_that(recorded: Callable[[int, Path], bool], parent: Path, first: int = 0) -> Path:
    """Return the folder of the first run that shows the bug, which depends on the machine."""
    for seed in range(first, first + 20):
        folder = parent / str(seed)
        folder.mkdir()
        if recorded(seed, folder):
            return folder
    raise AssertionError("the bug showed in none of 20 runs")


def verdict_ids(result: ketal.Verdicts) -> set[str]:
    return {verdict.id for verdict in (*result.matches, *result.violations)}


def test_every_bug_has_a_pattern_in_the_file() -> None:
    assert PATTERN_OF.keys() == {*Bug} - {Bug.NONE}
    assert {*PATTERN_OF.values(), *ALSO_FOUND_BY.values()} == {*ketal.load(PATTERNS).names}
    assert set(SESSION_BUGS) <= PATTERN_OF.keys()


def test_frames_to_a_stopped_process_are_resent_without_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It restarts on the same port and receives the resent frames."""
    handled: list[Any] = []
    monkeypatch.setattr(transport, "RESEND_S", 0.2)

    async def program() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as here,
            socket.create_server(("127.0.0.1", 0)) as there,
        ):
            ports = {"a": here.getsockname()[1], "b": there.getsockname()[1]}
            perfect = Faults(lost=0, doubled=0, late_s=0)
            rng = random.Random(0)
            a = Transport("a", here, ports, perfect, rng, lambda *message: None)
            b = Transport("b", there, ports, perfect, rng, lambda *message: handled.append(message))
            await a.start()
            a.send("b", {"n": 0})
            loop = asyncio.get_running_loop()
            there.setblocking(False)
            connection, _ = await loop.sock_accept(there)
            await loop.sock_recv(connection, 1_000)
            connection.close()
            await asyncio.sleep(0.05)
            a.send("b", {"n": 1})
            await asyncio.sleep(0.05)
            for n in range(2, 40):
                a.send("b", {"n": n})
            await b.start()
            while not a.idle:
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, "asyncio"):
        asyncio.run(program())
    assert sorted(message["n"] for _, message in handled) == list(range(40))
    # Threads of clients that earlier tests abandoned log their own warnings.
    assert [r for r in caplog.records if not r.name.startswith("kafka.")] == []


def test_a_message_with_the_operations_of_a_long_run_is_handled() -> None:
    handled: list[Any] = []

    async def program() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as here,
            socket.create_server(("127.0.0.1", 0)) as there,
        ):
            ports = {"a": here.getsockname()[1], "b": there.getsockname()[1]}
            rng = random.Random(0)
            a = Transport("a", here, ports, Faults(), rng, lambda *message: None)
            b = Transport(
                "b", there, ports, Faults(), rng, lambda *message: handled.append(message)
            )
            await a.start()
            await b.start()
            a.send("b", {"operations": "x" * 200_000})
            async with asyncio.timeout(20):
                while not a.idle:
                    await asyncio.sleep(0.01)

    asyncio.run(program())
    assert [len(message["operations"]) for _, message in handled] == [200_000]


# --- the checker, on histories that are written here ---

PUSHED = {"op": "a:1", "kind": "push", "value": 3, "after": []}
POPPED = {"op": "b:1", "kind": "pop", "value": "a:1", "after": ["a:1"]}


def applied(operation: dict[str, Any], *elements: str, **more: Any) -> dict[str, Any]:
    line = {"what": "apply", "operation": operation, "elements": elements, "by": "message"}
    return {**line, "session": "n1/1", **more}


ON = {"what": "on", "session": "n1/1", "operations": [], "elements": []}
HISTORIES: dict[Bug, list[dict[str, Any]]] = {
    Bug.NONE: [ON, applied(PUSHED, "a:1"), {"what": "acknowledge", "op": "a:1"}, applied(POPPED)],
    Bug.EARLY_DELIVERY: [ON, applied(POPPED), applied(PUSHED, "a:1")],
    Bug.APPLIES_WHEN_OFF: [ON, {"what": "off"}, applied(PUSHED, "a:1")],
    Bug.OLD_SESSION: [ON, applied(PUSHED, "a:1", session="n1/0")],
    Bug.EARLY_ACKNOWLEDGEMENT: [ON, {"what": "acknowledge", "op": "a:1"}, applied(PUSHED, "a:1")],
    Bug.LOST_UPDATE: [ON, applied(PUSHED)],
    Bug.STALE_COPY: [ON, applied(PUSHED, "a:1"),
                     {"what": "serve", "operations": [], "elements": []}],
}  # fmt: skip


@pytest.mark.parametrize("bug", HISTORIES)
def test_checker_names_the_bug(bug: Bug, tmp_path: Path) -> None:
    lines = [json.dumps(line) for line in HISTORIES[bug]]
    (tmp_path / "n1.history").write_text("\n".join(lines))
    assert list(checker.faults_of(tmp_path)) == [bug] * (bug is not Bug.NONE)
