"""Records: the state of a monitor in pieces, in one format.

A state is a mapping of keys to values, both bytes, as in a changelog: Kafka Streams
saves its stores in this way, and a removed record is a tombstone. State that grows with the number
of events or of scopes is spread over many records, so that a commit writes only the new ones; the
rest is in a few small records, written when they differ from those written last.

==========================  ========================================================
key                         value
==========================  ========================================================
``program``                 each part of each pattern; the text of all
``core``                    tally, watermark, counters of nodes, membership
``queue/P``                 the hold-back queue whose first pattern by name is P
``held/N``                  an event that a queue holds
``refused/P/N``             the dot of an event that a full queue refused
``reported/N``              a dot that was reported already
``pattern/P``               counts of a pattern, copies of it
``scope/P/N``               scope N of a pattern, with its own events
``unlearned/P/N``           an event held for copies
``seen/N``                  contents of events, in chunks
``beyond/N/A``              counters of node A beyond holes, a bit each
``clocks/N``, ``first/N``   clocks of the last events in chunks; each node's entries
==========================  ========================================================

A snapshot is all records in one piece, preceded by their format and a checksum. Nothing that
depends on hash order is written, and nothing that is read back is executed.

A value is msgpack: the format and a body, which is JSON if it has an integer of more than
64 bits. Numbers in keys ascend in the order of creation, so that the order in which records
are read does not matter. The state of retiring patterns (`ketal.runtime.retirement`) is in records
of the same kinds, whose keys begin with ``retiring/``. Keys that begin with ``job/`` are reserved
for the job that stores the records.

The one rule: a record's body is decoded as it was before it was encoded.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ketal.errors import StateError

FORMAT = 13
"""The version of saved state: of records, of snapshots, and of a job's own records."""
OTHERS = b"job/"
"""The prefix of the keys of records that are not part of a monitor's state."""
RETIRING = b"retiring/"
"""The prefix of the keys of the records of retiring patterns."""

Changes = dict[bytes, bytes | None]
"""The new value of each record; None where it is removed."""
_encode = msgspec.msgpack.Encoder().encode


def encode_record(body: Any) -> bytes:
    """Return the value of a record, given its body as plain data."""
    try:
        return _encode((FORMAT, body))
    except OverflowError:
        return _encode((FORMAT, json.dumps(body)))


def without_removed(records: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    """Return the records without those that are removed."""
    return {key: value for key, value in records.items() if value is not None}


@contextmanager
def damage_refused() -> Iterator[None]:
    """Turn the exceptions that a damaged state causes into a StateError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"the state is damaged: {type(error).__name__} {error}") from None


class Records:
    """The records of a saved state, with later changes applied, each decoded when it is accessed.

    A StateError if a record is damaged, of another format, or of an unknown kind.
    """

    KINDS = frozenset(
        b"program core queue held refused reported pattern scope unlearned seen beyond clocks first"
        .split()
    )  # fmt: skip

    def __init__(self, records: Mapping[bytes, bytes]) -> None:
        self.own: dict[bytes, bytes] = {}  # those neither of retiring patterns nor of a job
        self._numbered: dict[bytes, list[bytes]] = {}  # keys of `own` by their prefixes
        retiring = {
            k.removeprefix(RETIRING): v for k, v in records.items() if k.startswith(RETIRING)
        }
        self.retiring = Records(retiring) if retiring else None
        # Among keys with one prefix, longer keys have higher numbers.
        for key in sorted(sorted(records), key=len):
            if key.startswith((OTHERS, RETIRING)):
                continue
            self.own[key] = records[key]
            if key.partition(b"/")[0] not in self.KINDS:
                decode_record(repr(key), records[key])  # another format, if it is, is the cause
                raise StateError(f"{key!r} is not a record of a monitor's state")
            self._numbered.setdefault(key.rpartition(b"/")[0], []).append(key)
        if not self.own.keys() >= {b"program", b"core"}:
            raise StateError("these records are not the state of a monitor: some are missing")

    def body(self, *key: str) -> Any:
        """Return the body of the record with a key, given as its parts."""
        name = "/".join(key)
        if name.encode() not in self.own:
            raise StateError(f"the state is damaged: record {name} is missing")
        return decode_record(name, self.own[name.encode()])

    def numbered(self, *key: str) -> Iterator[tuple[int, Any]]:
        """Yield (number, body) of the records whose keys are a prefix and a number, in order."""
        for one in self._numbered.get("/".join(key).encode(), ()):
            yield int(one.rpartition(b"/")[2]), decode_record(key[0], self.own[one])

    def bodies(self, kind: str) -> Iterator[Any]:
        """Yield the bodies of all records of a kind."""
        for key, value in self.own.items():
            if key.startswith(kind.encode() + b"/"):
                yield decode_record(kind, value)


def decode_record(name: str, value: bytes) -> Any:
    """Return the body of a record; a StateError, which names it, if it is damaged."""
    try:
        format_, body = msgspec.msgpack.decode(value)
        if format_ == FORMAT:
            return json.loads(body) if isinstance(body, str) else body
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(f"the state is damaged: record {name}: {error}") from None
    raise StateError(
        f"record {name} of the state has format {format_}; this version reads format {FORMAT}: "
        "start without saved state, or use the version of ketal that wrote it"
    )


# --- snapshots ---


def encode_snapshot(records: dict[bytes, bytes]) -> bytes:
    """Return the snapshot of records: format, checksum and records as bytes."""
    body = msgspec.msgpack.encode(records)
    return b"ketal" + bytes([FORMAT]) + zlib.crc32(body).to_bytes(4, "big") + body


def decode_snapshot(blob: bytes) -> dict[bytes, bytes]:
    """Return the records of a snapshot; a StateError if the bytes are damaged, or are none."""
    if blob[:5] != b"ketal" or len(blob) < 10:
        raise StateError("these bytes are not a ketal snapshot")
    if blob[5] != FORMAT:
        raise StateError(
            f"the snapshot has format {blob[5]}; this version reads format {FORMAT}: "
            "start without it, or use the version of ketal that wrote it"
        )
    body = blob[10:]
    if zlib.crc32(body) != int.from_bytes(blob[6:10], "big"):
        raise StateError("the snapshot is damaged: its checksum does not match")
    try:
        return msgspec.msgpack.decode(body, type=dict[bytes, bytes])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateError(f"the snapshot is damaged: {error}") from None
