"""State in a topic: the changelog of each part is the partition of its number (KIP-98, KIP-447).

A commit sends what changed as segments (`segments`), in the transaction of
the verdicts and the offsets. The topic is compacted by key, and a segment's key is its number: one
that is deleted gets a message without a value. A segment that is larger than a message may be is
sent in pieces. Each message says in its headers how many these are, which commit it is of, and
which segment was the oldest one then.

A consumer that a part is assigned to asks Kafka for the committed offsets, and then reads the
partition from its beginning to its end at that moment, read committed. It reaches the end only when
no transaction is open any more, so that the last stable offset is the high watermark, and the
transaction of a process that was killed is aborted.

The one rule: state is that of the offsets that are committed, whole, or it is a StateError.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from kafka import TopicPartition

from ketal.errors import StateError
from ketal.runtime.state.records import OTHERS, Changes
from ketal.streaming.job.file import Job
from ketal.streaming.job.messages import place_of
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.state.segments import Segments, hole_in

FORMAT = 2
PARTS = OTHERS + b"parts"
"""The record of how many parts the job has."""
POLL_MS = 200
Message = tuple[bytes, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""
Compacted = dict[bytes, Any]
"""Key → its newest ConsumerRecord, where that has a value."""


@dataclass
class Loaded:
    """What a partition of the topic holds."""

    segments: dict[int, bytes] = field(default_factory=dict)
    """The segments by number, from the oldest."""
    keys: list[bytes] = field(default_factory=list)
    """The keys of all messages."""
    commit: str = ""
    """The name of the newest commit."""
    fault: StateError | None = None
    """Why it cannot be restored."""


class Changelog:
    """The state of part `number` of so many `parts`."""

    def __init__(self, job: Job, number: int, parts: int) -> None:
        self._topic = job.store.name
        self._bytes_max = job.limits.message_bytes_max
        self._number = number
        self._parts = parts
        self._segments = Segments(self._bytes_max)
        self._keys: dict[int, list[bytes]] = {}
        self._stale: list[bytes] = []
        """The keys of messages that the next commit is to delete."""
        self._messages: list[Message] = []
        self._commits = 0
        self._life = uuid.uuid4().hex[:12]

    def write(self, changes: Changes) -> str:
        """Write dirty records; return a unique name for the commit."""
        self._commits += 1
        commit = f"{self._life}-{self._commits}"
        parts = json.dumps({"parts": self._parts}).encode()
        segments = self._segments.append({**changes, PARTS: parts})
        self._messages = [(key, None, []) for key in self._stale]
        for number, content in segments.items():
            self._messages += self._sent(number, content, commit)
        return commit

    def _sent(self, number: int, content: bytes | None, commit: str) -> list[Message]:
        """Return the messages of a segment that is written, or deleted."""
        if content is None:
            return [(key, None, []) for key in self._keys.pop(number)]
        size = self._bytes_max
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        keys = self._keys[number] = [_key(number, at) for at in range(len(pieces))]
        first = self._segments.first
        fields = {"format": FORMAT, "pieces": len(pieces), "first": first, "commit": commit}
        headers = [(name, str(value).encode()) for name, value in fields.items()]
        return [(key, piece, headers) for key, piece in zip(keys, pieces, strict=True)]

    def send(self, producer: Any) -> list[tuple[str, Any]]:
        """Send the segments into the transaction; return topic and future of each message."""
        send = partial(producer.send, self._topic, partition=self._number)
        return [
            (self._topic, send(key=key, value=value, headers=headers))
            for key, value, headers in self._messages
        ]

    def committed(self) -> None:
        """Discard the messages that were committed."""
        self._messages, self._stale = [], []

    def close(self) -> None:
        """Close nothing: what is open is the session's."""

    def restore(self, loaded: Loaded, commits: Collection[str]) -> dict[bytes, bytes]:
        """Restore the log that the topic holds; return its records.

        Raises
        ------
        StateError
            If there are no records, or they are damaged, or of another commit, or of another number
            of parts.
        """
        if loaded.fault is not None:
            raise loaded.fault
        where = f"the changelog {self._topic}/{self._number}"
        try:
            for number, content in loaded.segments.items():
                self._segments.restore(number, content)
            records = self._segments.records()
            parts = json.loads(records[PARTS])["parts"] if records else 0
        except (msgspec.DecodeError, KeyError, ValueError) as fault:
            raise StateError(f"{where} is damaged: {type(fault).__name__} {fault}") from None
        if not parts:
            raise StateError(f"{where} holds no state, and there are offsets committed")
        if parts != self._parts:
            raise StateError(
                f"{where} is of topics with {parts} partitions, and they have {self._parts}: keys "
                "are in other partitions than before, and scopes with them"
            )
        if loaded.commit not in commits:
            raise StateError(
                f"{where} is of commit {loaded.commit}, and committed is {max(commits)}: it does "
                "not belong to what is committed"
            )
        for key in loaded.keys:
            self._keys.setdefault(_numbers(key)[0], []).append(key)
        return records

    def discard(self, loaded: Loaded) -> None:
        """Mark all messages of the topic to be deleted by the next commit."""
        self._stale = list(loaded.keys)


def _key(segment: int, piece: int) -> bytes:
    return b"%d/%d" % (segment, piece)


def _numbers(key: bytes) -> tuple[int, int]:
    """Return segment and piece of a key."""
    segment, _, piece = key.partition(b"/")
    return int(segment), int(piece)


def load(
    job: Job,
    numbers: Iterable[int],
    stopping: Callable[[], bool],
    *,
    open_too: bool = True,
) -> dict[int, Loaded]:
    """Read partitions of the changelog, each to its end; return nothing if the job is to end.

    With `open_too` that is after the transactions that are open, else before them.

    Raises
    ------
    TimeoutError
        If nothing more comes and it is not the end: a transaction is still open.
    """
    wanted = [TopicPartition(job.store.name, number) for number in numbers]
    if not wanted:
        return {}
    timeout_ms = job.call_timeout_ms
    with ExitStack() as stack:

        def consumer_of(*, committed_only: bool) -> Any:
            consumer = clients.consumer_of(job, of_group=False, committed_only=committed_only)
            stack.callback(clients.close_consumer, consumer)
            return consumer

        reader = consumer_of(committed_only=True)
        asked = consumer_of(committed_only=False) if open_too else reader
        ends = asked.end_offsets(wanted, timeout_ms=timeout_ms)
        reader.assign(wanted)
        for one, offset in reader.beginning_offsets(wanted, timeout_ms=timeout_ms).items():
            reader.seek(one, offset)
        read = _read(job, reader, ends, stopping)
    return {} if read is None else {n: loaded_of(job, n, read.get(n, {})) for n in numbers}


def _read(
    job: Job, reader: Any, ends: Mapping[TopicPartition, int], stopping: Callable[[], bool]
) -> dict[int, Compacted] | None:
    out: dict[int, Compacted] = {}
    patience_s = (clients.transaction_timeout_ms(job) + job.call_timeout_ms) / 1e3
    until_s = time.monotonic() + patience_s
    while not stopping():
        batches = reader.poll(timeout_ms=POLL_MS)
        for one, records in batches.items():
            held = out.setdefault(one.partition, {})
            for record in records:
                held.pop(record.key, None)
                if record.value is not None:
                    held[record.key] = record
        behind = [
            str(one)
            for one, end in ends.items()
            if (reader.position(one, timeout_ms=job.call_timeout_ms) or 0) < end
        ]
        if not behind:
            return out
        if batches:
            until_s = time.monotonic() + patience_s
        elif time.monotonic() > until_s:
            raise TimeoutError(f"a transaction is open in {', '.join(behind)} and does not end")
    return None


def loaded_of(job: Job, number: int, messages: Compacted) -> Loaded:
    """Return what the newest messages of a partition are, put together."""
    loaded = Loaded(keys=list(messages))
    where = f"the changelog {job.store.name}/{number}"
    try:
        loaded.segments, loaded.commit = _segments(where, messages)
    except StateError as fault:
        loaded.fault = fault
    return loaded


def _segments(where: str, messages: Compacted) -> tuple[dict[int, bytes], str]:
    """Return the segments by number, and the newest commit; a StateError if they are not whole."""
    pieces: dict[int, dict[int, bytes]] = {}
    heads: dict[int, tuple[int, int, str]] = {}
    for key, record in messages.items():
        headers = dict(record.headers)
        try:
            segment, piece = _numbers(key)
            format_, count, first = (int(headers[name]) for name in ("format", "pieces", "first"))
            heads[segment] = count, first, headers["commit"].decode()
        except (AttributeError, KeyError, ValueError):
            raise StateError(
                f"{place_of(record)} is no state of ketal's: a changelog is of one job alone"
            ) from None
        if format_ != FORMAT:
            raise StateError(f"{where} has format {format_}; this version has {FORMAT}")
        pieces.setdefault(segment, {})[piece] = record.value
    for segment, (count, _, _) in heads.items():
        missing = hole_in([*pieces[segment], count], 0)
        if missing is not None:
            raise StateError(f"{where} is damaged: segment {segment} lacks piece {missing}")
    _, first, commit = heads[max(heads)] if heads else (0, 0, "")
    hole = hole_in(pieces, first)
    if hole is not None:
        raise StateError(f"{where} is damaged: segment {hole} is missing")
    whole = {n: b"".join(value for _, value in sorted(pieces[n].items())) for n in sorted(pieces)}
    return whole, commit
