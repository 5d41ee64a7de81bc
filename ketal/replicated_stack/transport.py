"""Messages between the processes of the stack, over TCP with injected faults.

Each message is resent until it is acknowledged, and handled once. The faults: frames are lost,
duplicated, and delayed, so that they overtake each other.

The one rule: a message to a live process is eventually handled, exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
RESEND_S = 0.025
FRAME_BYTES_MAX = 2**30
"""A reader refuses longer frames: far more than the operations of any run."""


@dataclass(frozen=True)
class Faults:
    """The faults that the network injects."""

    lost: float = 0.1  # the share of frames that are lost
    doubled: float = 0.1  # the share of frames that are sent twice
    late_s: float = 0.012  # the longest delay of a frame


class Transport:
    """The messages of one process.

    `name` is the incarnation of the process, as `n3#2`: a restarted process has another one. The
    listening socket outlives the process. `ports` has the port of each node; `rng` draws the
    faults; `handle` is called with the sender's node and a message.
    """

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        ports: Mapping[str, int],
        faults: Faults,
        rng: random.Random,
        handle: Callable[[str, Message], None],
    ) -> None:
        self._name, self._node = name, name.partition("#")[0]
        self._listener, self._ports = listener, ports
        self._faults, self._rng = faults, rng
        self._handle = handle
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._unacknowledged: dict[str, asyncio.Task[None]] = {}
        self._handled: set[str] = set()
        self._readers: list[asyncio.Task[None]] = []
        self._in_flight: set[asyncio.Task[None]] = set()
        self.sent = 0

    async def start(self) -> None:
        """Begin to accept messages."""
        await asyncio.start_server(self._accept, sock=self._listener, limit=FRAME_BYTES_MAX)

    @property
    def idle(self) -> bool:
        """Whether all messages sent are acknowledged."""
        return not self._unacknowledged

    def send(self, to: str, message: Message) -> None:
        """Send a message, and resend it until it is acknowledged."""
        self.sent += 1
        identifier = f"{self._name}:{self.sent}"
        frame = {"id": identifier, "from": self._node, "message": message}
        task = asyncio.create_task(self._resend(to, frame))
        self._unacknowledged[identifier] = task

    async def _resend(self, to: str, frame: Message) -> None:
        while True:
            self._transmit(to, frame)
            await asyncio.sleep(RESEND_S)

    def _transmit(self, to: str, frame: Message) -> None:
        for _ in range(2 if self._rng.random() < self._faults.doubled else 1):
            if self._rng.random() >= self._faults.lost:
                late_s = self._rng.random() * self._faults.late_s
                task = asyncio.create_task(self._write(to, frame, late_s))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)

    async def _write(self, to: str, frame: Message, late_s: float) -> None:
        await asyncio.sleep(late_s)
        try:
            if to not in self._writers or self._writers[to].transport.is_closing():
                _, self._writers[to] = await asyncio.open_connection("127.0.0.1", self._ports[to])
            self._writers[to].write(json.dumps(frame).encode() + b"\n")
            await self._writers[to].drain()
        except OSError:
            self._writers.pop(to, None)  # The peer was killed; the message is resent.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of its own: asyncio would log the cancellation of a coroutine at the end.
        self._readers.append(asyncio.create_task(self._read(reader, writer)))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):  # The reference to the writer keeps the connection open.
            while line := await reader.readline():
                frame = json.loads(line)
                if "acknowledges" in frame:
                    task = self._unacknowledged.pop(frame["acknowledges"], None)
                    if task is not None:
                        task.cancel()
                    continue
                if frame["id"] not in self._handled:
                    self._handled.add(frame["id"])
                    self._handle(frame["from"], frame["message"])
                self._transmit(frame["from"], {"acknowledges": frame["id"]})
