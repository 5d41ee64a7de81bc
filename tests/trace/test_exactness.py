"""The clocks of random programs against the actual happened-before."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ketal.clocks.scheme import Clock
from ketal.trace import TracedThread, Tracer
from ketal.trace.activities import Line
from tests.sampling import drawn
from tests.trace.programs import Account, Plan, check, plan, run_processes, run_tasks, run_threads


class ListSink(list[Mapping[str, Any]]):
    """A sink that stores the events in a list."""

    def write(self, event: Mapping[str, Any]) -> None:
        self.append(event)


@pytest.mark.parametrize(("kind", "run"), [("thread", run_threads), ("task", run_tasks)])
def test_clocks_of_threads_and_tasks_equal_happened_before(
    kind: Any, run: Callable[[Plan, Tracer], Account]
) -> None:
    lines = activities = messages = concurrent = 0

    @drawn(60, 3_000)
    def holds(rng: random.Random) -> None:
        nonlocal lines, activities, messages, concurrent
        events = ListSink()
        tracer = Tracer("n", events, activity=kind)
        account = run(plan(rng), tracer)
        assert not tracer.failures
        concurrent += check(account, events)
        lines += len({event["node"] for event in events})
        activities += sum(map(bool, account.events.values()))
        messages += sum("receives" in event for event in events)

    assert 100 < lines <= activities
    assert messages > 20
    assert concurrent > 100


def test_clocks_of_processes_equal_happened_before(tmp_path: Path) -> None:
    lines = messages = concurrent = 0
    folders = (tmp_path / str(number) for number in itertools.count())

    @drawn(12, 300)
    def holds(rng: random.Random) -> None:
        nonlocal lines, messages, concurrent
        folder = next(folders)
        folder.mkdir()
        account, events = run_processes(plan(rng), folder)
        concurrent += check(account, events)
        lines += len({event["node"] for event in events})
        messages += sum("receives" in event for event in events)

    assert lines > 20
    assert messages > 3
    assert concurrent > 20


def test_process_clock_orders_all_events_of_its_threads() -> None:
    """With `activity="process"` no two events are concurrent, and no order is missing."""

    @drawn(30, 500)
    def holds(rng: random.Random) -> None:
        events = ListSink()
        run_threads(plan(rng), Tracer("n", events))
        counters = [event["clock"]["n"] for event in events]
        assert sorted(counters) == list(range(1, len(events) + 1))
        assert {event["node"] for event in events} <= {"n"}


def test_joined_tasks_reuse_activity_names() -> None:
    events = ListSink()
    tracer = Tracer("n", events, activity="task")

    async def work() -> None:
        tracer.record("work")

    async def main() -> None:
        for _ in range(200):
            tasks = [asyncio.create_task(work()) for _ in range(3)]
            for task in tasks:
                await tracer.join(task)

    asyncio.run(main())
    assert len(events) == 600
    assert len({event["node"] for event in events}) <= 4
    assert max(len(event["clock"]) for event in events) <= 4


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_activities_that_begin_with_a_message_reuse_names_without_a_join(kind: Any) -> None:
    """A client asks a server again and again, which answers in a thread or task of its own."""
    events = ListSink()
    client, server = Tracer("client", events), Tracer("server", events, activity=kind)
    answers: list[dict[str, str]] = []

    def serve(request: dict[str, str]) -> None:
        server.receive(request)
        answers.append(server.send("answer"))

    async def serve_in_task(request: dict[str, str]) -> None:
        serve(request)

    async def main() -> None:
        for _ in range(500):
            request = client.send("request")
            if kind == "task":
                await asyncio.create_task(serve_in_task(request))
            else:
                thread = threading.Thread(target=serve, args=(request,))
                thread.start()
                thread.join()
                del thread
            client.receive(answers.pop())

    asyncio.run(main())
    assert not client.failures
    assert max(len(event["clock"]) for event in events) <= 3


def test_event_of_a_signal_handler_on_a_reused_line_knows_the_lines_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handler runs when the line is chosen, before the message that it is reused for."""
    events = ListSink()
    tracer = Tracer("n", events, activity="thread")
    headers: list[dict[str, str]] = []
    current = tracer._activities.current

    def interrupted(learned: Clock) -> Line:
        line = current(learned)
        if learned:
            monkeypatch.undo()
            tracer.record("handler")
        return line

    def run(function: Callable[[], object]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    tracer.record("first")
    run(tracer.bind(lambda: headers.append(tracer.send("answer"))))
    monkeypatch.setattr(tracer._activities, "current", interrupted)
    run(lambda: tracer.receive(headers[0]))
    assert [(event["type"], event["clock"]) for event in events] == [
        ("first", {"n": 1}),
        ("answer", {"n": 1, "n/1": 1}),
        ("handler", {"n": 1, "n/1": 2}),
        ("receive", {"n": 1, "n/1": 3}),
    ]


def test_thread_joined_twice_hands_over_its_final_clock_only() -> None:
    """It does not pass on later events of its line, which another thread reuses."""
    events = ListSink()
    tracer = Tracer("n", events, activity="thread")
    first = TracedThread(tracer, target=tracer.record, args=("first",))
    first.start()
    first.join()
    second = TracedThread(tracer, target=tracer.record, args=("second",))
    second.start()
    threading.Thread.join(second)
    assert events[0]["node"] == events[1]["node"]
    first.join()
    tracer.record("after")
    assert events[2]["clock"] == {events[0]["node"]: 1, events[2]["node"]: 1}
