"""The settings of a broker of one node: its properties, its logging, its ports.

Kafka's defaults are for a cluster of three nodes or more; with one node the internal topics could
not be created, and `init_transactions` would time out. The settings here adapt replication to one
node, and remove delays that matter only in production.

The one rule: a property that the user gives takes effect, unless `Broker` itself relies on it: then
it is refused by name.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
from collections.abc import Mapping

from ketal.errors import SettingError

HOST = "127.0.0.1"
NODE_ID = 1

# Below the ephemeral ports (from 32768 on Linux). A client that keeps trying to reach a broker that
# is down could otherwise be given the broker's port as its own, connect to itself, and so prevent
# the broker from starting again.
_PORTS = range(20_000, 32_000)
_PORT_TRIES = 200

_ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A consumer group does not wait for more members after its first one.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Retention uses the times of the messages, so the messages of an old log that is replayed would
    # be deleted at once. Messages stay until the folder is removed.
    "log.retention.ms": "-1",
}


def properties_text(*, port: int, controller_port: int, data: str, given: Mapping[str, str]) -> str:
    """Return the text of `server.properties`, with the properties `given` by the user.

    `port` is for clients, `controller_port` for the controller of the node itself. `data` is the
    folder of the topics, relative to the working directory of the broker: an absolute path could
    have characters that a property cannot have.

    Raises a SettingError if `given` has a property that ketal itself sets.
    """
    own = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
    }
    for name in given:
        if name in own or name in ("log.dir", "broker.id"):
            raise SettingError(f"the property {name} is set by ketal itself")
        if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            raise SettingError(f"{name!r} is not the name of a property")
    lines = {**_ONE_NODE, **given, **own}
    return "".join(f"{name}={_escaped(value)}\n" for name, value in lines.items())


def _escaped(value: str) -> str:
    # Java reads properties as Latin-1, with JSON's escapes except \b, and strips blanks.
    return "".join(
        json.dumps(char)[1:-1] if char > " " else f"\\u{ord(char):04x}" for char in value
    )


LOGGING = """\
status = warn
# Kafka logs how it shuts down when Java does; log4j would have shut itself down by then.
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
# Eight hundred lines of settings at each start.
logger.settings.name = org.apache.kafka.common.config
logger.settings.level = warn
"""


def free_port() -> int:
    """Return a port on which no program listens; raise a SettingError if none was found."""
    # Not seeded, so that two processes that search at once find different ports.
    for port in random.SystemRandom().sample(_PORTS, _PORT_TRIES):
        if is_free(port):
            return port
    raise SettingError(
        f"none of {_PORT_TRIES} ports tried from {_PORTS.start} to {_PORTS.stop - 1} is free; "
        "choose one with --port"
    )


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of `HOST`."""
    with contextlib.closing(socket.socket()) as server:
        # As Java does, so that connections in the state TIME_WAIT do not count.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((HOST, port))
            server.listen(1)
        except PermissionError:
            raise SettingError(f"port {port} is reserved for privileged programs") from None
        except OSError:
            return False
    return True
