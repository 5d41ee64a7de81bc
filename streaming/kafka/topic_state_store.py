"""State in a topic: the changelog of each part is the partition of its number (KIP-98, KIP-447).

State is a set of records, each under a name. A commit sends those that changed, in the transaction
of the verdicts and the offsets; the topic is compacted by name, so that what it keeps is the newest
of each. A record that is larger than a message may be is sent in pieces; one that is gone, and a
piece that is no longer needed, gets a message without a value. Each message says in a header which
offsets of the input its commit reached.

Whoever takes a part over learns from Kafka which offsets are committed, and then reads the
partition from its beginning to the end that it has at that moment, as far as it is committed: that
gets there only when no transaction is open any more, so that the last stable offset is the high
watermark, and what a process left that was killed has been given up.

The one rule: state is that of the offsets that are committed, whole, or it is a StateError.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition

from ketal.errors import SettingError, StateError
from ketal.runtime.state_records import Changes
from ketal.streaming.job.file import Job
from ketal.streaming.job.messages import place_of
from ketal.streaming.kafka import clients
from ketal.streaming.kafka.partition_state import OFFSETS

FORMAT = 1
TOPICS = b"job/topics"
"""The record that says of how many partitions the topics are."""
POLL_MS = 200
Message = tuple[bytes, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""


@dataclass
class Loaded:
    """What a partition of the topic holds.

    Parameters
    ----------
    records : dict
        The records, by name.
    pieces : dict
        The number of pieces of each record that has several.
    names : set
        The names of all records, whole or not.
    foreign : list of bytes
        The keys of messages that are no state of ketal's.
    fault : StateError, optional
        Why it is not to be used.
    """

    records: dict[bytes, bytes] = field(default_factory=dict)
    pieces: dict[bytes, int] = field(default_factory=dict)
    names: set[bytes] = field(default_factory=set)
    foreign: list[bytes] = field(default_factory=list)
    fault: StateError | None = None


class Changelog:
    """The state of one part.

    Parameters
    ----------
    job : Job
        Names the topic, and says how large a message may be.
    number : int
        The number of the part.
    parts : int
        How many parts there are.
    loaded : Loaded
        What its partition of the topic holds; by default nothing.
    """

    def __init__(self, job: Job, number: int, parts: int, loaded: Loaded | None = None) -> None:
        assert job.changelog is not None
        self._topic = job.changelog
        self._bytes_max = job.limits.message_bytes_max
        self._number = number
        self._parts = parts
        self._pieces = {} if loaded is None else dict(loaded.pieces)
        self._foreign = [] if loaded is None else list(loaded.foreign)
        self._messages: list[Message] = []
        self._commits = 0
        self._life = uuid.uuid4().hex[:12]

    def write(self, changes: Changes) -> str:
        """Take what changed; return a name for the commit that no other one has."""
        offsets = changes[OFFSETS]
        assert offsets is not None
        topics = json.dumps({"format": FORMAT, "partitions": self._parts}).encode()
        self._messages = [(key, None, []) for key in self._foreign]
        for name, value in {**changes, TOPICS: topics}.items():
            self._messages += self._sent(name, value, offsets)
        self._commits += 1
        return f"{self._life}-{self._commits}"

    def _sent(self, name: bytes, value: bytes | None, offsets: bytes) -> list[Message]:
        """Return the messages of a record: its pieces, and the pieces that it no longer has."""
        size = self._bytes_max
        pieces = (
            [] if value is None else [value[at : at + size] for at in range(0, len(value), size)]
        )
        if value == b"":
            pieces = [b""]
        before = self._pieces.pop(name, 1)
        if len(pieces) > 1:
            self._pieces[name] = len(pieces)
        headers = [("offsets", offsets), ("pieces", b"%d" % len(pieces))]
        out: list[Message] = [(_key(n, name), piece, headers) for n, piece in enumerate(pieces)]
        return out + [(_key(n, name), None, headers) for n in range(len(pieces), before)]

    def send(self, producer: Any) -> list[Any]:
        """Send the changes into the transaction; return the future of each message."""
        return [
            producer.send(
                self._topic, key=key, value=value, headers=headers, partition=self._number
            )
            for key, value, headers in self._messages
        ]

    def committed(self, name: str) -> None:
        """Forget what was sent."""
        self._messages, self._foreign = [], []

    def close(self) -> None:
        """Let go of nothing: what is open is the session's."""

    def take(self, loaded: Loaded) -> dict[bytes, bytes]:
        """Return the records of the part, where there is a part that has been committed.

        Raises
        ------
        StateError
            If there are none, or they are damaged, or of another number of partitions.
        """
        if loaded.fault is not None:
            raise loaded.fault
        where = f"the changelog {self._topic}/{self._number}"
        if TOPICS not in loaded.records:
            raise StateError(f"{where} holds no state, and there are offsets committed")
        said = json.loads(loaded.records[TOPICS])
        if said["format"] != FORMAT:
            raise StateError(f"{where} has format {said['format']}; this version has {FORMAT}")
        if said["partitions"] != self._parts:
            raise StateError(
                f"{where} is of topics with {said['partitions']} partitions, and they have "
                f"{self._parts}: keys are in other partitions than before, and scopes with them"
            )
        return loaded.records


def _key(number: int, name: bytes) -> bytes:
    return b"%d/%s" % (number, name)


def load(job: Job, numbers: Iterable[int], stopping: Callable[[], bool]) -> dict[int, Loaded]:
    """Read partitions of the changelog, each to its end.

    Parameters
    ----------
    job : Job
        Names the topic.
    numbers : iterable of int
        The numbers of the parts.
    stopping : callable
        Returns whether to give up: nothing is returned then. It is called several times a second.

    Raises
    ------
    TimeoutError
        If nothing more comes and it is not the end: a transaction is still open.
    """
    assert job.changelog is not None
    wanted = [TopicPartition(job.changelog, number) for number in numbers]
    if not wanted:
        return {}
    with ExitStack() as stack:
        consumers = []
        for committed_only in (False, True):
            consumer = clients.reader_of(job, committed_only=committed_only)
            stack.callback(clients.close_consumer, consumer)
            consumers.append(consumer)
        every, reader = consumers
        timeout_ms = job.call_timeout_ms
        ends = every.end_offsets(wanted, timeout_ms=timeout_ms)
        reader.assign(wanted)
        for one, offset in reader.beginning_offsets(wanted, timeout_ms=timeout_ms).items():
            reader.seek(one, offset)
        pieces = _read(job, reader, ends, stopping)
    return {} if pieces is None else {n: _whole(job, n, pieces.get(n, {})) for n in numbers}


Pieces = dict[bytes, tuple[bytes, int, bytes]]
"""Key of a message → (value, number of pieces, offsets); of one that is foreign, its place, 0."""


def _read(
    job: Job, reader: Any, ends: Mapping[TopicPartition, int], stopping: Callable[[], bool]
) -> dict[int, Pieces] | None:
    out: dict[int, Pieces] = {}
    patience_s = (clients.transaction_timeout_ms(job) + job.call_timeout_ms) / 1e3
    until_s = time.monotonic() + patience_s
    while not stopping():
        batches = reader.poll(timeout_ms=POLL_MS)
        for one, records in batches.items():
            held = out.setdefault(one.partition, {})
            for record in records:
                _take(held, record)
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


def _take(held: Pieces, record: Any) -> None:
    if record.value is None:
        held.pop(record.key, None)
        return
    headers = dict(record.headers)
    try:
        held[record.key] = (record.value, int(headers["pieces"]), headers["offsets"])
    except (KeyError, ValueError):
        held[record.key] = (place_of(record).encode(), 0, b"")


def _whole(job: Job, number: int, pieces: Pieces) -> Loaded:
    """Put the pieces of each record together."""
    loaded = Loaded()
    for key, (value, count, offsets) in pieces.items():
        at, _, name = key.partition(b"/")
        if count == 0:
            loaded.foreign.append(key)
            loaded.fault = StateError(
                f"{value.decode()} is no state of ketal's: a changelog is of one job alone"
            )
            continue
        loaded.names.add(name)
        if count > 1:
            loaded.pieces[name] = max(count, loaded.pieces.get(name, 0))
        if at != b"0":
            continue
        values = [value]
        for n in range(1, count):
            other = pieces.get(_key(n, name))
            if other is None or other[1:] != (count, offsets):
                loaded.fault = StateError(
                    f"the changelog {job.changelog}/{number} is damaged: a record lacks piece {n}"
                )
                break
            values.append(other[0])
        else:
            loaded.records[name] = b"".join(values)
    return loaded


def check_topic(job: Job, parts: int, partitions: Callable[[str], set[int]]) -> None:
    """Refuse a topic that would not hold the state.

    Parameters
    ----------
    job : Job
        Names the topic.
    parts : int
        How many partitions it must have.
    partitions : callable
        Returns the partitions of a topic.

    Raises
    ------
    SettingError
        If there is none, or it has other partitions, or is not compacted.
    """
    assert job.changelog is not None
    found = len(partitions(job.changelog))
    if found != parts:
        raise SettingError(
            f"the state topic {job.changelog} has {found} partitions, and the topics that are read "
            f"have {parts}: create it with {parts}"
        )
    policy = clients.topic_setting(job, job.changelog, "cleanup.policy")
    if policy != "compact":
        raise SettingError(
            f"the state topic {job.changelog} has cleanup.policy={policy}, and would lose state: "
            "set it to compact"
        )
