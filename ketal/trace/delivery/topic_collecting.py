"""Events from Kafka, taken: those that `KafkaSink` writes, for a running `Monitor`.

The one rule: the monitor is fed one event at a time; a message that is none is fed as a rejection.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from ketal.logs.formats.jsonl import read_lines
from ketal.logs.source import Source
from ketal.model.limits import DEFAULT
from ketal.trace.delivery.monitor_feeding import MonitorFeeder, wait_until
from ketal.trace.delivery.sinks import Feeding

_LOG = logging.getLogger("ketal.trace")
POLL_MS = 100


class TopicCollector(MonitorFeeder):
    """Takes the events of tracers from topics of Kafka, and feeds them to a monitor.

    Its handlers (`Monitor(program, on=…)`) are called in the collector's thread. The order in
    which events come does not matter to a pattern with `order CausalOrder`.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        Anything with `poll(timeout_ms=…)` that returns lists of messages by partition, whose values
        are bytes. It is polled in the collector's thread until `close`, and closed there.
    monitor : Monitor
        What is fed; `collector.lock` is held meanwhile.

    Attributes
    ----------
    lock : Lock
        To be held by who uses the monitor besides.
    taken : int
        How many messages were taken.

    Examples
    --------
    >>> import ketal
    >>> from collections import namedtuple
    >>> from ketal.trace import TopicCollector
    >>> Message = namedtuple("Message", "topic partition offset value")
    >>> line = b'{"node": "n", "type": "a", "clock": {"n": 1}}'
    >>> class Consumer:
    ...     batches = [{"events": [Message("events", 0, 0, line)]}]
    ...     def poll(self, timeout_ms):
    ...         return self.batches.pop() if self.batches else {}
    ...     def close(self):
    ...         print("closed")
    >>> program = ketal.compile('pattern P { event A = type == "a"; find next A; }')
    >>> monitor = ketal.Monitor(program, on={"match": print})
    >>> with TopicCollector(Consumer(), monitor) as collector:
    ...     collector.wait(1, timeout_s=10)
    ...     collector.feed(ketal.Event(node="n", type="b", clock={"n": 2}))
    ...     collector.close()
    match P: A=n@1
    True
    []
    closed
    """

    def __init__(self, consumer: Any, monitor: Feeding) -> None:
        super().__init__(monitor)
        self.taken = 0
        self._consumer = consumer
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._closed.is_set():
                for messages in self._consumer.poll(timeout_ms=POLL_MS).values():
                    for message in messages:
                        self._take(message)
        except Exception:
            _LOG.exception("events are taken from Kafka no more")
        finally:
            self._consumer.close()

    def _take(self, message: Any) -> None:
        place = f"{message.topic}/{message.partition}/{message.offset}"
        lines = iter([(message.value or b"").replace(b"\n", b" ") + b"\n"])
        for records in read_lines(place, lines, Source(), DEFAULT):
            with self.lock:
                for _, item, name, _ in records:
                    self._monitor.feed(item, place=name)
        self.taken += 1

    def wait(self, messages: int, *, timeout_s: float | None = None) -> bool:
        """Wait until so many messages were taken; return whether they were.

        Parameters
        ----------
        messages : int
            How many.
        timeout_s : float, optional
            How long at most.
        """
        wait_until(lambda: self.taken >= messages or not self._thread.is_alive(), timeout_s)
        return self.taken >= messages

    def close(self) -> None:
        """Take no more, and close the consumer."""
        self._closed.set()
        if threading.current_thread() is not self._thread:  # A handler is called in it.
            self._thread.join()
