"""Vector clocks for a Python program: `Tracer` stamps its events and its messages.

Modules are imported when a name is first used, as in `ketal`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Tracer": "tracer", "JsonLines": "delivery.sinks", "KafkaSink": "delivery.sinks",
    "TracedQueue": "carriers.queues", "TracedThread": "carriers.threads",
    "TracedSocket": "carriers.sockets", "TracedStreams": "carriers.sockets",
    "Collector": "delivery.collecting", "SocketSink": "delivery.socket_sink",
    "AsgiMiddleware": "carriers.http", "LogHandler": "log_handler",
    "LogSender": "delivery.log_sender", "TopicCollector": "delivery.collecting",
    "kafka_headers": "message_header",
}  # fmt: skip

if TYPE_CHECKING:
    from ketal.trace.carriers.http import AsgiMiddleware as AsgiMiddleware
    from ketal.trace.carriers.queues import TracedQueue as TracedQueue
    from ketal.trace.carriers.sockets import TracedSocket as TracedSocket
    from ketal.trace.carriers.sockets import TracedStreams as TracedStreams
    from ketal.trace.carriers.threads import TracedThread as TracedThread
    from ketal.trace.delivery.collecting import Collector as Collector
    from ketal.trace.delivery.collecting import TopicCollector as TopicCollector
    from ketal.trace.delivery.log_sender import LogSender as LogSender
    from ketal.trace.delivery.sinks import JsonLines as JsonLines
    from ketal.trace.delivery.sinks import KafkaSink as KafkaSink
    from ketal.trace.delivery.socket_sink import SocketSink as SocketSink
    from ketal.trace.log_handler import LogHandler as LogHandler
    from ketal.trace.message_header import kafka_headers as kafka_headers
    from ketal.trace.tracer import Tracer as Tracer

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
