"""Is a broker ready? One Metadata request, as Kafka's protocol has it.

A broker listens before it serves: its port accepts connections while it is still fenced off by the
controller, and a client that came then would be told that there is no broker. The answer to a
Metadata request lists the brokers that serve, and the id of the cluster, by which another Kafka
that sits on the same port is recognised. The broker itself needs no Kafka client, so the request
is made here:

    size, key 3 (Metadata), version 2, correlation, client id; the topics asked for: none

The one rule: what is not the whole answer of this cluster is no answer.
"""

from __future__ import annotations

import socket
import struct

_METADATA, _VERSION, _CORRELATION, _CLIENT = 3, 2, 1, b"ketal"
_ANSWER_S = 5.0
_ANSWER_BYTES_MAX = 1_048_576


def serves(host: str, port: int, cluster: str) -> bool:
    """Return whether a broker of this cluster serves on a port."""
    request = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
    request += struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                if not 0 < size <= _ANSWER_BYTES_MAX:
                    return False
                brokers, found = _read(stream.read(size))
    except (OSError, struct.error, ValueError):
        return False
    return brokers > 0 and found == cluster


def _read(answer: bytes) -> tuple[int, str]:
    """Return the number of brokers and the cluster's id."""
    correlation, brokers = struct.unpack_from(">ii", answer)
    if correlation != _CORRELATION:
        raise ValueError("the answer to another request")
    at = 8
    for _ in range(brokers):
        at += 4
        at += _string(answer, at)[1] + 4
        at += _string(answer, at)[1]
    return brokers, _string(answer, at)[0]


def _string(answer: bytes, at: int) -> tuple[str, int]:
    """Return a string that may be null, and how many bytes it takes."""
    (length,) = struct.unpack_from(">h", answer, at)
    if length < 0:
        return "", 2
    return answer[at + 2 : at + 2 + length].decode(), 2 + length
