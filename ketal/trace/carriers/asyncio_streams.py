"""Messages over a pair of asyncio streams, each with its clock.

The one rule: both ends speak in frames (`ketal.trace.carriers.frames`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ketal.trace.carriers.frames import PREFIX, checked, framed

if TYPE_CHECKING:
    from ketal.trace.tracer import Tracer


class TracedStreams:
    """The reader and the writer of a connection that carries messages.

    Parameters
    ----------
    reader : asyncio.StreamReader
        Where messages come from.
    writer : asyncio.StreamWriter
        Where they go.
    tracer : Tracer
        Who sends and receives.

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
        self._tracer = tracer

    async def send(self, payload: bytes, type: str = "send", **data: object) -> None:
        """Send a message, and wait until there is room for more.

        Parameters
        ----------
        payload : bytes
            The message.
        type : str
            The event's type.
        **data
            Its attributes.

        Raises
        ------
        OSError
            As the writer's own `drain`.
        ValueError
            If the message is too long.
        """
        self._writer.write(framed(self._tracer.send(type, **data), payload))
        await self._writer.drain()

    async def receive(self, type: str = "receive", **data: object) -> bytes:
        """Wait for a message and return it.

        Parameters
        ----------
        type : str
            The event's type.
        **data
            Its attributes.

        Raises
        ------
        asyncio.IncompleteReadError
            If the other end closed the connection; it is an EOFError.
        ValueError
            If what comes is no frame.
        """
        header, payload = PREFIX.unpack(await self._reader.readexactly(PREFIX.size))
        checked(header, payload)
        clock = await self._reader.readexactly(header)
        message = await self._reader.readexactly(payload)
        self._tracer.receive(clock or None, type, **data)
        return message
