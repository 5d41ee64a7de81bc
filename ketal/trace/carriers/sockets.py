"""Messages with clocks over a byte stream: a socket, or a pair of asyncio streams.

A message and its clock are sent as one frame, and both ends must use frames:

    length of the header (4 bytes, big-endian), length of the payload (4 bytes), header, payload

The one rule: a frame is used only when all of it has been received. One that is too long or
truncated raises an exception; after a timeout or a cancellation, the next call continues with it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping

from ketal.trace import message_header
from ketal.trace.tracer import Tracer, checked_tracer

PREFIX = struct.Struct("!II")
PAYLOAD_MAX = 64 * 1024 * 1024
"""Maximum bytes of a payload."""


def _frame(tracer: Tracer, payload: bytes, type: str, data: Mapping[str, object]) -> bytes:
    """Record the send of a payload, unless it is not valid; return its frame."""
    _, length = _checked_lengths(0, memoryview(payload).nbytes)
    header = tracer.send(type, **data).get(message_header.NAME, "").encode("ascii")
    return PREFIX.pack(len(header), length) + header + payload


def _checked_lengths(header: int, payload: int) -> tuple[int, int]:
    """Return the lengths of a frame's header and payload; raise ValueError if one is too long."""
    for length, length_max, part in (
        (header, message_header.BYTES_MAX, "header"),
        (payload, PAYLOAD_MAX, "payload"),
    ):
        if length > length_max:
            raise ValueError(
                f"the {part} of a frame has {length:,} bytes, more than {length_max:,}"
            )
    return header, payload


class _IncomingFrame:
    """The bytes of a frame that were received so far."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def missing(self) -> int:
        """Return how many bytes the frame lacks, or, without its lengths, how many these lack."""
        length = PREFIX.size
        if len(self._bytes) >= length:
            length += sum(_checked_lengths(*PREFIX.unpack_from(self._bytes)))
        return length - len(self._bytes)

    def add(self, part: bytes) -> None:
        """Append bytes, at most those that are missing."""
        self._bytes += part

    def take(self) -> tuple[bytes, bytes]:
        """Return the header and the payload of the complete frame, and begin the next one."""
        frame, self._bytes = self._bytes, bytearray()
        end = PREFIX.size + PREFIX.unpack_from(frame)[0]
        return bytes(frame[PREFIX.size : end]), bytes(frame[end:])


class TracedSocket:
    """A connected stream socket that carries messages with clocks.

    Parameters
    ----------
    connected : socket.socket
        The socket.
    tracer : Tracer
        The tracer of this end.

    Examples
    --------
    >>> import socket
    >>> from ketal.trace import TracedSocket, Tracer
    >>> left, right = socket.socketpair()
    >>> TracedSocket(left, Tracer("n1", "n1.jsonl")).send(b"hello", key="k")
    >>> TracedSocket(right, Tracer("n2", "n2.jsonl")).receive()
    b'hello'
    >>> left.close(), right.close()
    (None, None)
    """

    def __init__(self, connected: socket.socket, tracer: Tracer) -> None:
        self._socket = connected
        self._tracer = checked_tracer(tracer)
        self._incoming = _IncomingFrame()

    def send(self, payload: bytes, type: str = "send", **data: object) -> None:
        """Record a send, and send a message.

        Parameters
        ----------
        payload : bytes
            The message.
        type : str
            The type of the event.
        **data
            The attributes of the event.

        Raises
        ------
        OSError
            As the socket's own `sendall`.
        TypeError, ValueError
            If the message is not bytes, or too long; no send is recorded.
        """
        self._socket.sendall(_frame(self._tracer, payload, type, data))

    def receive(self, type: str = "receive", **data: object) -> bytes:
        """Wait for a message, record its receive, and return it.

        Parameters
        ----------
        type : str
            The type of the event.
        **data
            The attributes of the event.

        Raises
        ------
        EOFError
            If the other end closed the connection.
        OSError
            As the socket's own `recv`; after a timeout, the next call continues with the message.
        ValueError
            If the received bytes are not a valid frame.
        """
        while missing := self._incoming.missing():
            part = self._socket.recv(min(missing, 1 << 20))
            if not part:
                raise EOFError("the connection was closed")
            self._incoming.add(part)
        header, payload = self._incoming.take()
        self._tracer.receive(header or None, type, **data)
        return payload


class TracedStreams:
    """A pair of asyncio streams that carries messages with clocks.

    Parameters
    ----------
    reader : asyncio.StreamReader
        The stream of incoming messages.
    writer : asyncio.StreamWriter
        The stream of outgoing messages.
    tracer : Tracer
        The tracer of this end.

    Examples
    --------
    >>> import asyncio
    >>> from ketal.trace import TracedStreams, Tracer
    >>> async def main():
    ...     server, client = Tracer("server", "server.jsonl"), Tracer("client", "client.jsonl")
    ...     async def answer(reader, writer):
    ...         streams = TracedStreams(reader, writer, server)
    ...         await streams.send(await streams.receive() + b", too")
    ...         writer.close()
    ...     async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
    ...         port = listening.sockets[0].getsockname()[1]
    ...         reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ...         streams = TracedStreams(reader, writer, client)
    ...         await streams.send(b"hello")
    ...         print(await streams.receive())
    ...         writer.close()
    >>> asyncio.run(main())
    b'hello, too'
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tracer: Tracer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tracer = checked_tracer(tracer)
        self._incoming = _IncomingFrame()

    async def send(self, payload: bytes, type: str = "send", **data: object) -> None:
        """Record a send, send a message, and wait until the writer's buffer has drained.

        Parameters
        ----------
        payload, type, **data
            As for `TracedSocket.send`.

        Raises
        ------
        OSError
            As the writer's own `drain`.
        TypeError, ValueError
            If the message is not bytes, or too long; no send is recorded.
        """
        self._writer.write(_frame(self._tracer, payload, type, data))
        await self._writer.drain()

    async def receive(self, type: str = "receive", **data: object) -> bytes:
        """Wait for a message, record its receive, and return it.

        Parameters
        ----------
        type, **data
            As for `TracedSocket.receive`.

        Raises
        ------
        asyncio.IncompleteReadError
            If the other end closed the connection; a subclass of EOFError.
        ValueError
            If the received bytes are not a valid frame.
        """
        while missing := self._incoming.missing():
            self._incoming.add(await self._reader.readexactly(missing))
        header, payload = self._incoming.take()
        self._tracer.receive(header or None, type, **data)
        return payload
