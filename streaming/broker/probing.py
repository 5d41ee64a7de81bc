"""Probing: whether a broker serves, by Kafka's client library.

A broker listens before it serves: its port accepts connections while the controller still fences
it, and a client finds no broker then. A client of kafka-python is ready once a broker serves; the
cluster's id shows whether another Kafka listens on the same port.

The one rule: a broker serves only if the answer has this cluster's id.
"""

from __future__ import annotations

import contextlib
import socket

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

_ANSWER_MS = 5_000


def serves(host: str, port: int, cluster: str) -> bool:
    """Return whether a broker of this cluster serves on a port."""
    with contextlib.suppress(OSError, KafkaError):
        # A client would try a port where nobody listens yet again and again, in pauses of its own.
        socket.create_connection((host, port), timeout=_ANSWER_MS / 1e3).close()
        with KafkaAdminClient(
            bootstrap_servers=f"{host}:{port}", bootstrap_timeout_ms=_ANSWER_MS
        ) as admin:
            return bool(admin.describe_cluster()["cluster_id"] == cluster)
    return False
