"""The sockets of this process, which the child of a fork does not share.

A copy in a child would leave a connection open, or a port taken, when the process that serves it is
gone.

The one rule: of the sockets here a child has none.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from ketal.errors import SettingError

TIMEOUT_S = 30.0
_OWN: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def own(one: socket.socket) -> socket.socket:
    """Return a socket, which a child of a fork will not have."""
    _OWN.add(one)
    return one


def address_of(host: str, port: int) -> tuple[str, int]:
    """Return where to connect to.

    Raises
    ------
    SettingError
        If the port is none.
    """
    if port.__class__ is not int or not 0 < port < 1 << 16:
        raise SettingError(f"port is a whole number from 1 to 65,535, not {port!r}")
    return host, port


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Connect for the time of a `with`; what takes longer than `TIMEOUT_S` raises.

    Raises
    ------
    OSError
        If there is no connection.
    """
    try:
        connection = socket.create_connection(address, timeout=TIMEOUT_S)
    except UnicodeError as error:
        raise OSError(f"{address[0]!r} is no name of a host: {error}") from None
    with connection:
        refuse_itself(connection)
        yield own(connection)


def received_within(connection: socket.socket, wait_s: float) -> bytes | None:
    """Return a byte that the other end sent, none if it closed the connection; None if neither."""
    connection.settimeout(wait_s)
    try:
        return connection.recv(1)
    except (BlockingIOError, TimeoutError):
        return None
    finally:
        connection.settimeout(TIMEOUT_S)


def refuse_itself(connection: socket.socket) -> None:
    """Raise if a connection is one with itself.

    That comes about where nobody listens at a port of those that the system gives to who connects,
    and it is tried long enough. It would take all that is sent.

    Raises
    ------
    ConnectionError
        If it is.
    """
    if connection.getsockname() == connection.getpeername():
        raise ConnectionError("nobody listens there")


def _after_fork_in_child() -> None:
    for one in [*_OWN]:
        one.close()
    _OWN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
