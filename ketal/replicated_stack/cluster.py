"""A run of the replicated stack: processes on this machine, a seeded workload, and faults.

The one rule: a run ends when all that was sent is acknowledged, so that what is different then
stays so.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ketal.replicated_stack.node import FIRST, Bug, StackNode
from ketal.replicated_stack.transport import Faults, Transport
from ketal.trace import JsonLines, KafkaSink, SocketSink, Tracer

ROUNDS_MAX = 40
"""Rounds of comparing at the end; nodes with a bug may never agree."""
IDLE_S = 0.01


@dataclass(frozen=True)
class RunPlan:
    """What a run is to be.

    Parameters
    ----------
    seed : int
        What the workload and the faults are drawn with.
    bug : Bug
        What is wrong with the protocol.
    nodes : int
        How many nodes; the last one joins when the others are at work.
    steps : int
        What each does.
    faults : Faults
        What the network does.
    restarts : bool
        Whether a node may be stopped in the midst of its work, and started again.
    collector : tuple of (str, int), Topic or None
        Where events are sent to besides, as they happen.
    pause_s : float
        How long a node waits between two steps, at most.
    off : float
        The share of the steps that turn a node off.
    """

    seed: int
    bug: Bug = Bug.NONE
    nodes: int = 4
    steps: int = 14
    faults: Faults = field(default_factory=Faults)
    restarts: bool = True
    collector: tuple[str, int] | Topic | None = None
    pause_s: float = 0.006
    off: float = 0.08


@dataclass(frozen=True)
class Topic:
    """A topic of Kafka to which events are sent.

    Attributes
    ----------
    bootstrap_servers, name : str
        Where it is.
    """

    bootstrap_servers: str
    name: str


class _Both:
    """A sink that writes to a file, and to a collector or a topic."""

    def __init__(self, path: Path, collector: tuple[str, int] | Topic) -> None:
        self._file = JsonLines(path)
        self.incarnation = self._file.incarnation
        self._other: Any
        if isinstance(collector, Topic):
            from ketal.streaming.kafka.event_topics import producer_of

            producer = producer_of(collector.bootstrap_servers)
            self._other, self.close = KafkaSink(producer, collector.name), producer.close
        else:
            self._other = SocketSink(*collector)
            self.close = self._other.close

    def write(self, event: Mapping[str, Any]) -> None:
        self._file.write(event)
        self._other.write(event)


def run(plan: RunPlan, folder: Path) -> None:
    """Run the processes of a plan; their logs and histories are in a folder then."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    listeners = {f"n{number}": _listener() for number in range(1, plan.nodes + 1)}
    ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
    pipes: dict[str, Connection] = {}
    processes: dict[str, Any] = {}

    def start(name: str, stops_at: int | None) -> None:
        ours, theirs = context.Pipe()
        arguments = (plan, name, listeners[name], ports, folder, theirs, stops_at)
        processes[name] = context.Process(target=_process, args=arguments, daemon=True)
        processes[name].start()
        theirs.close()
        pipes[name] = ours

    rng = random.Random(f"{plan.seed} cluster")
    stopped = rng.choice([name for name in ports if name != FIRST])
    stops_at = rng.randint(2, plan.steps) if plan.restarts and rng.random() < 0.5 else None
    try:
        for name in ports:
            start(name, stops_at if name == stopped else None)
        for name in ports:
            try:
                pipes[name].recv()
            except EOFError:
                processes[name].join()
                start(name, None)
                pipes[name].recv()
        _settle(pipes)
        for pipe in pipes.values():
            pipe.send("end")
        for process in processes.values():
            process.join()
    finally:
        for process in processes.values():
            process.kill()
        for listener in listeners.values():
            listener.close()


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def _settle(pipes: Mapping[str, Connection]) -> None:
    """Have the nodes compare until nothing is sent any more but that."""
    before: list[Any] = []
    for _ in range(ROUNDS_MAX):
        _ask(pipes, "compare")
        while True:
            answers = _ask(pipes, "idle?")
            if all(idle for idle, _, _ in answers) and answers == _ask(pipes, "idle?"):
                break
            time.sleep(IDLE_S)
        have = [(on, operations) for _, _, (on, operations) in answers]
        if have == before:
            return
        before = have


def _ask(pipes: Mapping[str, Connection], question: str) -> list[Any]:
    for pipe in pipes.values():
        pipe.send(question)
    return [pipe.recv() for pipe in pipes.values()]


# --- one process ---


def _process(
    plan: RunPlan,
    name: str,
    listener: socket.socket,
    ports: Mapping[str, int],
    folder: Path,
    pipe: Connection,
    stops_at: int | None,
) -> None:
    path = folder / f"{name}.jsonl"
    sink: Any = path if plan.collector is None else _Both(path, plan.collector)
    tracer = Tracer(name, sink)
    node = StackNode(tracer, plan.bug, folder)
    rng = random.Random(f"{plan.seed} {tracer.node}")
    node.transport = Transport(tracer.node, listener, ports, plan.faults, rng, node.handle)
    work = random.Random(f"{plan.seed} {tracer.node} work")
    stopped = asyncio.run(_work(node, plan, work, pipe, stops_at))
    if plan.collector is not None:
        sink.close()  # What was recorded is sent: the program is stopped, its tracer is not.
    if stopped:
        os._exit(1)


async def _work(
    node: StackNode, plan: RunPlan, rng: random.Random, pipe: Connection, stops_at: int | None
) -> bool:
    """Work, and answer the parent's questions; return whether it was stopped in the midst."""
    await node.transport.start()
    if node.name == f"n{plan.nodes}":
        await asyncio.sleep(plan.pause_s * plan.steps / 3)  # It joins late.
    for step in range(plan.steps):
        if step == stops_at:
            return True
        _step(node, plan, rng)
        await asyncio.sleep(rng.random() * plan.pause_s)
    if not node.is_on:
        node.turn_on()
    pipe.send("done")
    while (question := await _next(pipe)) != "end":
        if question == "compare":
            node.compare()
        pipe.send((node.transport.idle, node.transport.sent, node.has))
    node.end()
    return False


async def _next(pipe: Connection) -> Any:
    while not pipe.poll():
        await asyncio.sleep(IDLE_S / 4)
    return pipe.recv()


def _step(node: StackNode, plan: RunPlan, rng: random.Random) -> None:
    choice = rng.random()
    if not node.is_on:
        node.turn_on()
    elif choice < 0.45:
        node.push(rng.randint(1, 99))
    elif choice < 0.7:
        node.pop()
    elif choice < 0.8:
        node.top()
    elif choice < 0.8 + plan.off and not node.name.startswith(FIRST):
        node.turn_off()
