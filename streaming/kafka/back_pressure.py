"""Pauses the partitions that are read ahead while many events are held back (`read_ahead`).

The one rule: a partition is paused only while others of its part have messages to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import TopicPartition

from ketal.runtime.read_ahead import PATIENCE_S
from ketal.streaming.kafka.connecting.clients import return_parked_records
from ketal.streaming.kafka.connection import Connection
from ketal.streaming.kafka.partition_state import FindUnread, Part

POLL_SHARE = 0.25
"""The share of `held_back_max` that a poll may add, or that one poll of each partition may add."""


class BackPressure:
    """The partitions that are paused because they are ahead of others of their part.

    `held_back_max` is the limit of a part's hold-back queues. `count_unread` returns how many
    messages of a partition are known and not read yet; of these, `find_unread` asks Kafka, messages
    of an open transaction cannot be read.
    """

    def __init__(
        self,
        connection: Connection,
        held_back_max: int,
        count_unread: Callable[[TopicPartition], int],
        find_unread: FindUnread,
    ) -> None:
        self._connection = connection
        self._held_back_max = held_back_max
        self._count_unread = count_unread
        self._find_unread = find_unread
        self._parts: list[Part] = []
        self._paused: set[TopicPartition] = set()
        self._read_s: dict[TopicPartition, float] = {}
        """When each partition returned messages, or reading began."""

    def begin(self, parts: Iterable[Part]) -> None:
        """Begin anew with the parts that are read from now on; none of their partitions is paused.

        A part of one partition has nothing to pause.
        """
        self._parts = [part for part in parts if len(part.positions) > 1]
        self._paused = set()
        self._read_s = {one: time.monotonic() for part in self._parts for one in part.positions}

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Pause and resume partitions, and return new messages of the others, by partition."""
        self._update()
        batches: dict[TopicPartition, list[Any]] = self._connection.consumer.poll(
            timeout_ms=timeout_ms, max_records=self._poll_records_max
        )
        self._read_s |= dict.fromkeys(batches, time.monotonic())
        return batches

    @property
    def _poll_records_max(self) -> int:
        """How many messages the next poll may return, which may all have to be held back.

        While partitions are paused, each of the others may add so many before it is paused too.
        """
        usual: int = self._connection.consumer.config["max_poll_records"]
        if not self._parts:
            return usual
        readers = max(len(part.positions) for part in self._parts) if self._paused else 1
        return max(1, min(usual, int(self._held_back_max * POLL_SHARE / readers)))

    def _update(self) -> None:
        """Pause the partitions that are ahead, and resume the others."""
        consumer = self._connection.consumer
        for part in self._parts:
            paused = self._paused & part.positions.keys()
            self._paused = self._paused - paused
            if part.ended:
                continue
            is_crowded = part.is_crowded(are_waiting=bool(paused))
            ahead = self._ahead(part, paused) if is_crowded else set()
            consumer.pause(*ahead - paused)
            consumer.resume(*paused - ahead)
            self._paused |= ahead
        return_parked_records(consumer)

    def _ahead(self, part: Part, paused: set[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that have more events held back than another, which is unread."""
        unread = {partition for partition in part.positions if self._count_unread(partition)}
        due_s = time.monotonic() - PATIENCE_S
        if silent := sorted(one for one in unread - paused if self._read_s[one] <= due_s):
            unread = unread.difference(silent).union(self._find_unread(silent))
        return part.ahead(unread)
