"""Is a broker ready? Kafka's client library is asked.

A broker listens before it serves: its port accepts connections while it is still fenced off by the
controller, and a client that came then would be told that there is no broker. A client of
kafka-python is ready once a broker serves; the id of the cluster recognises another Kafka that sits
on the same port.

The one rule: what is not the whole answer of this cluster is no answer.
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
