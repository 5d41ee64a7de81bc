"""Random programs of activities, which are executed, with the actual happened-before.

A program is a tree of activities, each with a list of operations: an event, the start or the join
of a child, a put of a message into one of the queues, or a get if a message is available. The
running program records, independently of the clocks, a graph of its operations, with an edge from
each operation to the next one of its activity, from a start to the child's beginning, from the
child's end to its join, and from a put to the get of the same message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ketal.trace import TracedQueue, TracedThread, Tracer

Node = tuple[int, int]
"""An activity by its number, and the place of an operation in it."""


@dataclass
class Plan:
    """An activity: its number and its operations; starts and joins have the plan of the child."""

    number: int
    operations: list[tuple[str, Any]] = field(default_factory=list)

    def joins(self, child: Plan) -> bool:
        """Return whether the activity joins a child. One that is not joined is not referenced."""
        return ("join", child) in self.operations


def plan(rng: random.Random, *, activities_max: int = 6, operations_max: int = 7) -> Plan:
    """Return a random program."""
    count = 0

    def random_activity(depth: int) -> Plan:
        nonlocal count
        out = Plan(count)
        count += 1
        started: list[Plan] = []
        for _ in range(rng.randint(1, operations_max)):
            kind = rng.choice(("event", "event", "put", "get", "start", "start", "join", "wait"))
            if kind == "start" and count < activities_max and depth < 3:
                child = random_activity(depth + 1)
                started.append(child)
                out.operations.append(("start", child))
            elif kind == "join" and started:
                out.operations.append(("join", started.pop(rng.randrange(len(started)))))
            elif kind in ("put", "get"):
                out.operations.append((kind, rng.randrange(2)))
            else:
                out.operations.append(("wait" if kind == "wait" else "event", None))
        return out

    return random_activity(0)


class Account:
    """The actual execution: the graph of the operations, and the events of each activity."""

    def __init__(self) -> None:
        self.edges: list[tuple[Node, Node]] = []
        self.lengths: dict[int, int] = {}
        self.events: dict[int, list[Node]] = {}
        self.lines: dict[int, str] = {}
        self._puts: dict[str, Node] = {}
        self._gets: list[tuple[str, Node]] = []
        self._lock = threading.RLock()

    def begin(self, number: int) -> None:
        """Add an activity whose first operation is its start."""
        self.events[number] = []
        self.lengths[number] = 1

    def on_line(self, number: int, line: str) -> None:
        """Set the line of an activity, once it has an event: by then the tracer has chosen it."""
        if self.events[number]:
            self.lines.setdefault(number, line)

    def operation(self, number: int, *, event: bool = False) -> Node:
        """Add an operation to an activity; return it."""
        with self._lock:
            at = self.lengths[number]
            self.lengths[number] += 1
            self.edges.append(((number, at - 1), (number, at)))
            if event:
                self.events[number].append((number, at))
            return number, at

    def start(self, number: int, child: int) -> None:
        """Add an operation that starts another activity."""
        self.edges.append((self.operation(number), (child, 0)))

    def join(self, number: int, child: int) -> None:
        """Add an operation that has waited for the end of another activity."""
        self.edges.append(((child, self.lengths[child] - 1), self.operation(number)))

    def put(self, number: int, message: str = "") -> str:
        """Add an event that puts a message; return the message (by default a unique one)."""
        node = self.operation(number, event=True)
        message = message or f"{node}"
        self._puts[message] = node
        return message

    def get(self, number: int, message: str) -> None:
        """Add an event that gets a message."""
        self._gets.append((message, self.operation(number, event=True)))

    def before(self) -> dict[Node, set[Node]]:
        """Return for each operation the operations that happened before it."""
        sources: dict[Node, list[Node]] = {}
        for source, target in (
            *self.edges,
            *((self._puts[message], node) for message, node in self._gets),
        ):
            sources.setdefault(target, []).append(source)
        out: dict[Node, set[Node]] = {}

        def of(node: Node) -> set[Node]:
            if node not in out:
                out[node] = set()
                for source in sources.get(node, ()):
                    out[node] |= {source} | of(source)
            return out[node]

        for number, length in self.lengths.items():
            for at in range(length):
                of((number, at))
        return out


def check(account: Account, events: list[Mapping[str, Any]]) -> int:
    """Assert that the clocks order events as the account; return the number of concurrent pairs."""
    named: dict[tuple[str, int], Mapping[str, int]] = {
        (event["node"], event["clock"][event["node"]]): event["clock"] for event in events
    }
    assert len(named) == len(events), "two events have one identity"
    places: dict[tuple[str, int], Node] = {}
    counters: Counter[str] = Counter()
    for number, line in account.lines.items():  # in order of their first events
        for node in account.events[number]:
            counters[line] += 1
            places[line, counters[line]] = node
    assert set(places) == set(named)
    before = account.before()
    concurrent = 0
    for one, clock in named.items():
        for other in named:
            if one == other:
                continue
            knows = clock.get(other[0], 0) >= other[1]
            assert knows == (places[other] in before[places[one]]), (one, other, clock)
            concurrent += not knows and named[other].get(one[0], 0) < one[1]
    return concurrent // 2


def run_threads(root: Plan, tracer: Tracer) -> Account:
    """Run a program of threads."""
    account = Account()
    queues = [TracedQueue(queue.Queue(), tracer, f"q{n}") for n in range(2)]
    threads: dict[int, TracedThread] = {}

    def activity(own: Plan) -> None:
        number = own.number
        account.begin(number)
        for kind, operand in own.operations:
            if kind == "wait":
                time.sleep(0.0005)
            elif kind == "event":
                tracer.record("event")
                account.operation(number, event=True)
            elif kind == "put":
                queues[operand].put(account.put(number))
            elif kind == "get":
                with contextlib.suppress(queue.Empty):
                    account.get(number, queues[operand].get_nowait())
            elif kind == "start":
                thread = TracedThread(tracer, target=activity, args=(operand,))
                if own.joins(operand):
                    threads[operand.number] = thread
                account.start(number, operand.number)
                thread.start()
            else:
                threads[operand.number].join()
                account.join(number, operand.number)
            account.on_line(number, tracer.node)

    TracedThread(tracer, target=activity, args=(root,)).start()
    while alive := [
        one for one in threading.enumerate() if isinstance(one, TracedThread) and one.is_alive()
    ]:
        threading.Thread.join(alive.pop())
    return account


def run_tasks(root: Plan, tracer: Tracer) -> Account:
    """Run a program of asyncio tasks."""
    account = Account()
    tasks: dict[int, asyncio.Task[None]] = {}

    async def main() -> None:
        queues = [TracedQueue(asyncio.Queue(), tracer, f"q{n}") for n in range(2)]

        async def activity(own: Plan) -> None:
            number = own.number
            account.begin(number)
            for kind, operand in own.operations:
                if kind == "wait":
                    await asyncio.sleep(0)
                elif kind == "event":
                    tracer.record("event")
                    account.operation(number, event=True)
                elif kind == "put":
                    await queues[operand].put(account.put(number))
                elif kind == "get":
                    if not queues[operand].empty():
                        account.get(number, await queues[operand].get())
                elif kind == "start":
                    account.start(number, operand.number)
                    task = asyncio.create_task(activity(operand))
                    if own.joins(operand):
                        tasks[operand.number] = task
                    del task
                else:
                    await tracer.join(tasks[operand.number])
                    account.join(number, operand.number)
                account.on_line(number, tracer.node)

        running = {asyncio.create_task(activity(root))}
        while running:
            await asyncio.wait({running.pop()})
            running = asyncio.all_tasks() - {asyncio.current_task()}

    asyncio.run(main())
    return account


def run_processes(root: Plan, folder: Path) -> tuple[Account, list[Mapping[str, Any]]]:
    """Run a program of processes, each forked from the process that starts it.

    Each process writes its own account into a file. The clock of an ended process is not passed to
    its parent, so a join is is no edge here.
    """
    context = multiprocessing.get_context("fork")
    shared = [context.Queue() for _ in range(2)]

    def activity(own: Plan, tracer: Tracer) -> None:
        queues = [TracedQueue(queue, tracer, f"q{n}") for n, queue in enumerate(shared)]
        children = []
        with (folder / f"{own.number}.account").open("w") as file:
            print("begin", tracer.node, file=file)
            for at, (kind, operand) in enumerate(own.operations):
                if kind == "event":
                    tracer.record("event")
                    print("event", file=file)
                elif kind == "put":
                    print("put", f"{own.number}:{at}", file=file)
                    queues[operand].put(f"{own.number}:{at}")
                elif kind == "get":
                    try:
                        message = queues[operand].get(timeout=0.1)
                    except queue.Empty:
                        continue
                    print("get", message, file=file)
                elif kind == "start":
                    print("start", operand.number, file=file, flush=True)
                    children.append(context.Process(target=activity, args=(operand, tracer)))
                    children[-1].start()
        for child in children:
            child.join()

    def first() -> None:
        activity(root, Tracer("n", folder / "n.jsonl"))
        for one in shared:
            one.cancel_join_thread()

    process = context.Process(target=first)
    process.start()
    process.join()
    assert process.exitcode == 0
    for one in shared:
        one.close()
    events = [json.loads(line) for line in (folder / "n.jsonl").read_text().splitlines()]
    return _accounted(folder), events


def _accounted(folder: Path) -> Account:
    """Merge the accounts of processes from their files."""
    account = Account()
    for path in sorted(folder.glob("*.account"), key=lambda path: int(path.stem)):
        number = int(path.stem)
        (_, line), *operations = map(str.split, path.read_text().splitlines())
        account.begin(number)
        for kind, *operand in operations:
            if kind == "start":
                account.start(number, int(*operand))
            elif kind == "put":
                account.put(number, *operand)
            elif kind == "get":
                account.get(number, *operand)
            else:
                account.operation(number, event=True)
        account.on_line(number, line)
    return account
