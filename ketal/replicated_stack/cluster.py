"""Runs the replicated stack: processes on this machine, a seeded workload, and faults.

The one rule: a run ends when all messages are acknowledged, so that a difference between nodes is
then permanent.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ketal.errors import refused_as_setting
from ketal.replicated_stack.node import FIRST, Bug, StackNode
from ketal.replicated_stack.transport import Faults, Transport
from ketal.trace import JsonLines, KafkaSink, LogSender, Tracer

ROUNDS_MAX = 40
"""How often nodes compare their operations at the end; with a bug they may never agree."""
IDLE_S = 0.01


@dataclass(frozen=True)
class RunPlan:
    """The parameters of a run; one node may be killed during its work, and restarted."""

    seed: int  # the seed of the workload and of the faults
    bug: Bug = Bug.NONE
    nodes: int = 4  # how many nodes there are; the last one joins while the others are at work
    steps: int = 14  # how many steps each node takes
    faults: Faults = field(default_factory=Faults)
    collector: tuple[str, int] | Topic | None = None
    """A destination to which events are also sent, as they happen."""
    pause_s: float = 0.006  # the longest pause of a node between two steps
    off: float = 0.08  # the share of the steps that turn a node off
    monitor: Callable[[str, Path], Any] | None = None
    """Called in each process with its name and its log. The result has a `collector`, which is fed
    the events of the process, the addresses of its `peers`, to which they are also sent, and `end`,
    which is called when all processes have sent their events."""


@dataclass(frozen=True)
class Topic:
    """A Kafka topic to which events are sent."""

    bootstrap_servers: str
    name: str


class _EventSinks:
    """A sink that writes to a file and to topics; the file is also sent to collectors."""

    def __init__(self, path: Path, others: Iterable[tuple[str, int] | Topic]) -> None:
        file = JsonLines(path)
        self.incarnation = file.incarnation
        self._sinks: list[Any] = [file]
        self._producers: list[Any] = []
        self._senders: list[LogSender] = []
        for other in others:
            if isinstance(other, Topic):
                from ketal.streaming.kafka.event_topics import make_producer

                producer = make_producer(other.bootstrap_servers)
                self._sinks.append(KafkaSink(producer, other.name))
                self._producers.append(producer)
            else:
                self._senders.append(LogSender(path, *other))

    def write(self, event: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            sink.write(event)

    def flush(self) -> None:
        """Send unsent events to the topics; the file needs no flush."""
        for producer in self._producers:
            producer.flush()

    def close(self) -> None:
        """Send unsent events to all destinations."""
        self.flush()
        for sender in self._senders:
            sender.close()


def run(plan: RunPlan, folder: Path) -> None:
    """Run the processes of a plan; the folder then has their logs and histories, and no others."""
    with refused_as_setting(f"cannot create {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    for left in (*folder.glob("*.jsonl"), *folder.glob("*.history")):
        left.unlink()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    names = [f"n{number}" for number in range(1, plan.nodes + 1)]
    listeners = {name: socket.create_server(("127.0.0.1", 0), backlog=64) for name in names}
    ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
    pipes: dict[str, Connection] = {}
    processes: dict[str, Any] = {}

    def start(name: str, stops_at: int | None) -> None:
        ours, theirs = context.Pipe()
        arguments = (plan, name, listeners[name], ports, folder, theirs, stops_at)
        processes[name] = context.Process(target=_run_process, args=arguments, daemon=True)
        processes[name].start()
        theirs.close()
        pipes[name] = ours

    rng = random.Random(f"{plan.seed} cluster")
    stopped = rng.choice([name for name in ports if name != FIRST])
    stops_at = rng.randint(2, plan.steps) if rng.random() < 0.5 else None
    try:
        for name in ports:
            start(name, stops_at if name == stopped else None)
        _ask_all(pipes, "ready?")
        for pipe in pipes.values():
            pipe.send("work")
        for name in ports:
            try:
                pipes[name].recv()
            except EOFError:
                processes[name].join()
                start(name, None)
                _ask_all({name: pipes[name]}, "ready?")
                pipes[name].send("work")
                pipes[name].recv()
        _compare_until_stable(pipes)
        _ask_all(pipes, "end")
        for pipe in pipes.values():
            pipe.send("all have ended")
        for process in processes.values():
            process.join()
    finally:
        for process in processes.values():
            process.kill()
        for listener in listeners.values():
            listener.close()


def _compare_until_stable(pipes: Mapping[str, Connection]) -> None:
    """Have the nodes compare their operations until that changes nothing any more."""
    before: list[Any] = []
    for _ in range(ROUNDS_MAX):
        _ask_all(pipes, "compare")
        while True:
            answers = _ask_all(pipes, "idle?")
            if all(idle for idle, _, _ in answers) and answers == _ask_all(pipes, "idle?"):
                break
            time.sleep(IDLE_S)
        have = [(on, operations) for _, _, (on, operations) in answers]
        if have == before:
            return
        before = have


def _ask_all(pipes: Mapping[str, Connection], question: str) -> list[Any]:
    for pipe in pipes.values():
        pipe.send(question)
    return [pipe.recv() for pipe in pipes.values()]


# --- one process ---


def _run_process(
    plan: RunPlan,
    name: str,
    listener: socket.socket,
    ports: Mapping[str, int],
    folder: Path,
    pipe: Connection,
    stops_at: int | None,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C, and kills this one.
    log = folder / f"{name}.jsonl"
    own = None if plan.monitor is None else plan.monitor(name, log)
    others = [] if plan.collector is None else [plan.collector]
    sink = _EventSinks(log, others if own is None else [*others, *own.peers])
    tracer = Tracer(name, sink, monitor=None if own is None else own.collector)
    node = StackNode(tracer, plan.bug, folder)
    rng = random.Random(f"{plan.seed} {tracer.node}")
    node.transport = Transport(tracer.node, listener, ports, plan.faults, rng, node.handle)
    work = random.Random(f"{plan.seed} {tracer.node} work")
    stopped = asyncio.run(_work(node, plan, work, pipe, stops_at))
    if stopped:
        sink.flush()
        os._exit(1)
    sink.close()
    pipe.send("sent")
    pipe.recv()
    if own is not None:
        own.end()


async def _work(
    node: StackNode, plan: RunPlan, rng: random.Random, pipe: Connection, stops_at: int | None
) -> bool:
    """Do the work and answer the parent's questions; return whether the node is to be killed."""
    await node.transport.start()
    await _receive(pipe)
    pipe.send("ready")
    await _receive(pipe)
    if node.name == f"n{plan.nodes}":
        await asyncio.sleep(plan.pause_s * plan.steps / 3)  # It joins late.
    for step in range(plan.steps):
        if step == stops_at:
            return True
        _take_random_step(node, plan, rng)
        await asyncio.sleep(rng.random() * plan.pause_s)
    if not node.is_on:
        node.turn_on()
    pipe.send("done")
    while (question := await _receive(pipe)) != "end":
        if question == "compare":
            node.compare()
        pipe.send((node.transport.idle, node.transport.sent, node.status))
    node.end()
    return False


async def _receive(pipe: Connection) -> Any:
    while not pipe.poll():
        await asyncio.sleep(IDLE_S / 4)
    return pipe.recv()


def _take_random_step(node: StackNode, plan: RunPlan, rng: random.Random) -> None:
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
