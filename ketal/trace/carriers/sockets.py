"""Messages over a stream socket, each with its clock.

The one rule: both ends speak in frames (`ketal.trace.carriers.frames`).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ketal.trace.carriers.frames import PREFIX, checked, framed

if TYPE_CHECKING:
    from ketal.trace.tracer import Tracer


class TracedSocket:
    """A connected stream socket that carries messages.

    Parameters
    ----------
    connected : socket.socket
        The socket.
    tracer : Tracer
        Who sends and receives.

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
        self._tracer = tracer

    def send(self, payload: bytes, type: str = "send", **data: object) -> None:
        """Send a message.

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
            As the socket's own `sendall`.
        ValueError
            If the message is too long.
        """
        self._socket.sendall(framed(self._tracer.send(type, **data), payload))

    def receive(self, type: str = "receive", **data: object) -> bytes:
        """Wait for a message and return it.

        Parameters
        ----------
        type : str
            The event's type.
        **data
            Its attributes.

        Raises
        ------
        EOFError
            If the other end closed the connection.
        OSError
            As the socket's own `recv`.
        ValueError
            If what comes is no frame.
        """
        header, payload = PREFIX.unpack(self._exactly(PREFIX.size))
        checked(header, payload)
        clock, message = self._exactly(header), self._exactly(payload)
        self._tracer.receive(clock or None, type, **data)
        return message

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise EOFError("the connection was closed")
            parts += part
        return bytes(parts)
