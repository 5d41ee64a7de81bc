"""State in a topic: the changelog of part n is the topic's partition n (KIP-98, KIP-447).

A commit sends the changed records as segments (`segments`), in the same transaction as the verdicts
and the offsets. The topic is compacted by key. The key of a message is the number of its segment
and of its piece: a segment that is larger than a message may be is sent in pieces. To delete a
segment, a message without a value is sent for each of its keys. The headers of a message have the
number of pieces of its segment, the name of its commit, and the number of the oldest segment of the
log at that time.

A consumer that a part is assigned to asks Kafka for the committed offsets, and then reads the
partition with `read_committed` from its beginning to its end at that moment. It reaches the end
only when no transaction is open any more: then the last stable offset is the high watermark, and a
transaction of a process that was killed has been aborted.

The one rule: the restored state is whole and belongs to the committed offsets, or a StateError is
raised.
"""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from kafka import TopicPartition

from ketal.errors import StateError
from ketal.model.wording import counted
from ketal.runtime.state.records import OTHERS, Changes
from ketal.streaming.job.file import Job
from ketal.streaming.job.messages import place_of
from ketal.streaming.kafka.connecting import clients
from ketal.streaming.kafka.connecting.client_calls import StoppedError, call_with_deadline
from ketal.streaming.kafka.state.segments import Segments, first_hole

FORMAT = 2
PARTS = OTHERS + b"parts"
"""The name of the record with the number of parts of the job."""
POLL_MS = 200
Message = tuple[bytes, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""
Compacted = dict[bytes, Any]
"""Key → its newest ConsumerRecord, where that has a value."""


@dataclass
class Loaded:
    """The content of a partition of the topic."""

    segments: dict[int, bytes] = field(default_factory=dict)
    """The segments by number, from the oldest."""
    keys: list[bytes] = field(default_factory=list)
    """The keys of all messages."""
    commit: str = ""
    """The name of the newest commit."""
    fault: StateError | None = None
    """Why the segments cannot be restored; None if they can."""


class Changelog:
    """Saves and restores the state of part `number` of `parts` parts."""

    def __init__(self, job: Job, number: int, parts: int) -> None:
        self._topic = job.store.name
        self._bytes_max = job.limits.message_bytes_max
        self._number = number
        self._parts = parts
        self._segments = Segments(self._bytes_max)
        self._keys: dict[int, list[bytes]] = {}
        self._stale: list[bytes] = []
        """The keys of messages that the next commit will delete."""
        self._messages: list[Message] = []
        self._commits = 0
        self._session_id = uuid.uuid4().hex[:12]

    def write(self, changes: Changes) -> str:
        """Write dirty records; return a unique name for the commit."""
        self._commits += 1
        commit = f"{self._session_id}-{self._commits}"
        parts = json.dumps({"parts": self._parts}).encode()
        segments = self._segments.append({**changes, PARTS: parts})
        self._messages = [(key, None, []) for key in self._stale]
        for number, content in segments.items():
            self._messages += self._segment_messages(number, content, commit)
        return commit

    def _segment_messages(self, number: int, content: bytes | None, commit: str) -> list[Message]:
        """Return the messages that write a segment, or delete it if it has no content."""
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
        """Send the messages of the last `write` in the open transaction; return their futures.

        Each future comes with the topic of its message.
        """
        send = partial(producer.send, self._topic, partition=self._number)
        return [
            (self._topic, send(key=key, value=value, headers=headers))
            for key, value, headers in self._messages
        ]

    def mark_committed(self) -> None:
        """Discard the messages that were committed."""
        self._messages, self._stale = [], []

    def close(self) -> None:
        """Do nothing: the session owns the clients."""

    def restore(self, loaded: Loaded, commits: Collection[str]) -> dict[bytes, bytes]:
        """Restore the log of the part; return its records.

        Raises a StateError if there are no records, or they are damaged, or belong to another
        commit or to another number of parts.
        """
        if loaded.fault is not None:
            raise loaded.fault
        where = part_text(self._topic, self._number)
        try:
            for number, content in loaded.segments.items():
                self._segments.restore(number, content)
            records = self._segments.records()
            decode = msgspec.json.Decoder(dict[str, int]).decode
            parts = decode(records[PARTS])["parts"] if records else 0
        except (msgspec.DecodeError, KeyError, ValueError) as fault:
            raise StateError(f"{where} is damaged: {type(fault).__name__} {fault}") from None
        if not parts:
            raise StateError(f"{where} contains no state, but offsets are committed")
        if parts != self._parts:
            raise StateError(
                f"{where} is for topics with {counted(parts, 'partition')}, but they have "
                f"{self._parts}: keys, and with them scopes, are in other partitions than before"
            )
        if loaded.commit not in commits:
            raise StateError(
                f"{where} is of commit {loaded.commit}, but the last commit is {max(commits)}: the "
                "state does not belong to the commit"
            )
        for key in loaded.keys:
            self._keys.setdefault(_parse_key(key)[0], []).append(key)
        return records

    def discard(self, loaded: Loaded) -> None:
        """Make the next commit delete all messages of the part."""
        self._stale = list(loaded.keys)


def _key(segment: int, piece: int) -> bytes:
    return b"%d/%d" % (segment, piece)


def _parse_key(key: bytes) -> tuple[int, int]:
    """Return the numbers of the segment and the piece that a key names."""
    segment, _, piece = key.partition(b"/")
    return int(segment), int(piece)


def load(
    job: Job,
    numbers: Iterable[int],
    stopping: Callable[[], bool],
    *,
    open_too: bool = True,
) -> dict[int, Loaded]:
    """Read partitions of the changelog, each to its end; return an empty dict if `stopping` holds.

    With `open_too` the end is after the transactions that are open now, otherwise before them. The
    partitions are read on a thread of their own, so that a call of Kafka does not delay the end.

    Raises a TimeoutError if an open transaction does not end, so that the end of a partition cannot
    be reached.
    """
    wanted = [TopicPartition(job.store.name, number) for number in numbers]
    if not wanted:
        return {}
    cancelled = threading.Event()
    try:
        read = call_with_deadline(
            math.inf, "reading the state", _read, job, wanted, cancelled.is_set, open_too,
            should_stop=stopping,
        )  # fmt: skip
    except StoppedError:
        return {}
    finally:
        cancelled.set()
    return {n: assemble_messages(job, n, read.get(n, {})) for _, n in wanted}


def _read(
    job: Job, wanted: Sequence[TopicPartition], cancelled: Callable[[], bool], open_too: bool
) -> dict[int, Compacted]:
    """Read partitions of the changelog, each to its end, unless `cancelled`."""
    timeout_ms = job.call_timeout_ms
    with ExitStack() as stack:

        def make_consumer(*, committed_only: bool) -> Any:
            consumer = clients.make_consumer(job, of_group=False, committed_only=committed_only)
            stack.callback(clients.close_consumer, consumer)
            return consumer

        reader = make_consumer(committed_only=True)
        asked = make_consumer(committed_only=False) if open_too else reader
        ends = clients.partition_offsets(asked.end_offsets, wanted, timeout_ms)
        reader.assign(wanted)
        beginnings = clients.partition_offsets(reader.beginning_offsets, wanted, timeout_ms)
        for one, offset in beginnings.items():
            reader.seek(one, offset)
        return _read_to_ends(job, reader, ends, cancelled)


def _read_to_ends(
    job: Job, reader: Any, ends: Mapping[TopicPartition, int], cancelled: Callable[[], bool]
) -> dict[int, Compacted]:
    out: dict[int, Compacted] = {}
    patience_s = (clients.transaction_timeout_ms(job) + job.call_timeout_ms) / 1e3
    until_s = time.monotonic() + patience_s
    while not cancelled():
        batches = reader.poll(timeout_ms=POLL_MS)
        for one, records in batches.items():
            held = out.setdefault(one.partition, {})
            for record in records:
                held.pop(record.key, None)
                if record.value is not None:
                    held[record.key] = record
        behind = [
            str(one) for one, end in ends.items() if (clients.position(reader, one) or 0) < end
        ]
        if not behind:
            break
        if batches:
            until_s = time.monotonic() + patience_s
        elif time.monotonic() > until_s:
            raise TimeoutError(f"the open transaction in {', '.join(behind)} does not end")
    return out


def part_text(topic: str, number: int) -> str:
    """Return the name of a part of a state topic in messages."""
    return f"partition {number} of the state topic {topic}"


def assemble_messages(job: Job, number: int, messages: Compacted) -> Loaded:
    """Put the newest messages of a partition together to its content."""
    loaded = Loaded(keys=list(messages))
    where = part_text(job.store.name, number)
    try:
        loaded.segments, loaded.commit = _segments(where, messages)
    except StateError as fault:
        loaded.fault = fault
    return loaded


def _segments(where: str, messages: Compacted) -> tuple[dict[int, bytes], str]:
    """Return the segments by number, and the name of the newest commit.

    A missing segment or piece is a StateError, and so is a message that is not one of a changelog.
    """
    pieces: dict[int, dict[int, bytes]] = {}
    heads: dict[int, tuple[int, int, str]] = {}
    for key, record in messages.items():
        headers = dict(record.headers)
        try:
            segment, piece = _parse_key(key)
            format_, count, first = (int(headers[name]) for name in ("format", "pieces", "first"))
            heads[segment] = count, first, headers["commit"].decode()
        except (AttributeError, KeyError, TypeError, ValueError):
            raise StateError(
                f"{place_of(record)} is not a state of ketal: a state topic belongs to one job"
            ) from None
        if format_ != FORMAT:
            raise StateError(f"{where} has format {format_}; this version reads format {FORMAT}")
        pieces.setdefault(segment, {})[piece] = record.value
    for segment, (count, _, _) in heads.items():
        missing = first_hole([*pieces[segment], count], 0)
        if missing is not None:
            raise StateError(f"{where} is damaged: piece {missing} of segment {segment} is missing")
    _, first, commit = heads[max(heads)] if heads else (0, 0, "")
    hole = first_hole(pieces, first)
    if hole is not None:
        raise StateError(f"{where} is damaged: segment {hole} is missing")
    whole = {n: b"".join(value for _, value in sorted(pieces[n].items())) for n in sorted(pieces)}
    return whole, commit
