"""Queues as channels of messages: `put` is a send, `get` is a receive.

A send is recorded before its item is put, since the clock travels with the item. So a `put` that
waits in vain leaves the send of a message that was lost.

The one rule: an item is put with its headers. An item that was put by other means is returned
unchanged, and counted as a message without a clock.
"""

from __future__ import annotations

import asyncio
import inspect
import queue as queues
from dataclasses import dataclass
from typing import Any

from ketal.trace.tracer import Tracer, checked_tracer


@dataclass(frozen=True, slots=True)
class TracedItem:
    """An item with its headers; compares like the item, for priority queues."""

    headers: dict[str, str]
    item: Any

    def __lt__(self, other: Any) -> bool:
        return bool(self.item < (other.item if isinstance(other, TracedItem) else other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.item > (other.item if isinstance(other, TracedItem) else other))


class TracedQueue:
    """A queue of `queue`, `asyncio` or `multiprocessing` between traced activities.

    `put` and `get` of an asyncio queue must be awaited, as usual. Each process wraps the queue with
    its own tracer.

    Parameters
    ----------
    queue : queue.Queue, asyncio.Queue or multiprocessing.Queue
        The queue.
    tracer : Tracer
        The tracer of this process.
    name : str
        The attribute `queue` of the events.

    Examples
    --------
    >>> import queue
    >>> from ketal.trace import TracedQueue, Tracer
    >>> jobs = queue.Queue()
    >>> left = TracedQueue(jobs, Tracer("n1", "n1.jsonl"), "jobs")
    >>> right = TracedQueue(jobs, Tracer("n2", "n2.jsonl"), "jobs")
    >>> left.put("job")
    >>> left.put_nowait("another")
    >>> right.get(), right.get_nowait()
    ('job', 'another')
    >>> import ketal
    >>> [event.clock.copy() for event in ketal.read_log("n2.jsonl")]
    [{'n1': 1, 'n2': 1}, {'n1': 2, 'n2': 2}]
    """

    def __init__(self, queue: Any, tracer: Tracer, name: str = "queue") -> None:
        self._queue = queue
        self._tracer = checked_tracer(tracer)
        self._name = name

    def put(self, item: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a send, and put an item.

        Parameters
        ----------
        item : object
            The item.
        *args, **kwargs
            As for the queue's own `put`; without `block`, this is `put_nowait`.
        """
        if not (args[0] if args else kwargs.get("block", True)):
            return self.put_nowait(item)
        return self._queue.put(TracedItem(self._record_send(), item), *args, **kwargs)

    def put_nowait(self, item: Any) -> None:
        """Record a send, and put an item; record nothing if the queue is full.

        Parameters
        ----------
        item : object
            The item.

        Raises
        ------
        queue.Full, asyncio.QueueFull
            If the queue is full.
        """
        is_full = getattr(self._queue, "full", None)  # A SimpleQueue is never full.
        if is_full is not None and is_full():
            is_awaited = inspect.iscoroutinefunction(self._queue.put)
            raise asyncio.QueueFull if is_awaited else queues.Full
        self._queue.put_nowait(TracedItem(self._record_send(), item))

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Get an item, and record its receive.

        Parameters
        ----------
        *args, **kwargs
            As for the queue's own `get`.
        """
        item = self._queue.get(*args, **kwargs)
        return self._await_item(item) if inspect.isawaitable(item) else self._record_receive(item)

    def get_nowait(self) -> Any:
        """Get an item, and record its receive; raises the queue's own exception if it is empty."""
        return self._record_receive(self._queue.get_nowait())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._queue, name)

    def _record_send(self) -> dict[str, str]:
        return self._tracer.send("put", queue=self._name)

    async def _await_item(self, item: Any) -> Any:
        return self._record_receive(await item)

    def _record_receive(self, item: Any) -> Any:
        traced_item = item if isinstance(item, TracedItem) else TracedItem({}, item)
        self._tracer.receive(traced_item.headers, "get", queue=self._name)
        return traced_item.item
