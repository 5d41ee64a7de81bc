"""Records: the state of a monitor in pieces, in one format.

A state is a mapping of keys to values, both bytes, as a changelog holds it: Kafka Streams
keeps its stores so, and a removed record is a tombstone. What grows with the number of
events or of scopes is spread over many records, so that a commit writes what is new and no
more; the rest is a few small ones, written when they differ from what was written last.

==========================  ========================================================
key                         value
==========================  ========================================================
``program``                 each part of each pattern; the text of all
``core``                    tally, watermark, counters of nodes, membership
``queue/P``                 the hold-back queue whose first pattern by name is P
``held/N``                  an event that a queue holds
``refused/P/N``             what a queue had no room for
``reported/N``              what was reported already
``pattern/P``               counts of a pattern, copies of it
``scope/P/N``               scope N of a pattern, with its own events
``unlearned/P/N``           an event held for copies
``seen/N``                  contents of events, in chunks
``beyond/N/A``              counters of node A beyond holes, a bit each
``clocks/N``, ``first/N``   clocks of the last events in chunks; each node's entries
==========================  ========================================================

A snapshot is all of them in one piece, their format and a checksum before them. Nothing that
depends on hash order is written, and nothing read back is executed.

A value is msgpack: the format and a body, which is JSON where it has an integer of more than
64 bits. Numbers are in the order of creation, so that the order in which records
are read does not matter. What is of retiring patterns (`ketal.runtime.retirement`) is in records
of the same kinds, whose keys begin with ``retiring/``. No key begins with ``job/``: those are of
whatever stores the records.

The one rule: the body of a record that was encoded is read back as it was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ketal.errors import StateError

FORMAT = 12
"""The version of saved state: of records, of a snapshot, and of what a job saves around them."""
OTHERS = b"job/"
"""How the keys begin of what is saved beside a monitor's state."""
RETIRING = b"retiring/"
"""How the keys begin of the records of retiring patterns."""

Changes = dict[bytes, bytes | None]
"""The new value of each record; None where it is removed."""
_encode = msgspec.msgpack.Encoder().encode


def encode_record(body: Any) -> bytes:
    """Return the record of a body, which is plain data."""
    try:
        return _encode((FORMAT, body))
    except OverflowError:
        return _encode((FORMAT, json.dumps(body)))


def present(records: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    """Return the records that changes leave, without those that are removed."""
    return {key: value for key, value in records.items() if value is not None}


@contextmanager
def damage_refused() -> Iterator[None]:
    """Raise a StateError for what reading a damaged state raises."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"the state is damaged: {type(error).__name__} {error}") from None


class Records:
    """Records as they were read, decoded when they are asked for.

    Parameters
    ----------
    records : mapping of bytes to bytes
        What `ketal.runtime.state.recorder` returned, with later changes applied.

    Attributes
    ----------
    own : dict of bytes to bytes
        The records that are not of retiring patterns.
    retiring : Records or None
        The records of retiring patterns, where there are any.

    Raises
    ------
    StateError
        If one is damaged, of another format, or of an unknown kind.
    """

    KINDS = frozenset(
        b"program core queue held refused reported pattern scope unlearned seen beyond clocks first"
        .split()
    )  # fmt: skip

    def __init__(self, records: Mapping[bytes, bytes]) -> None:
        self.own: dict[bytes, bytes] = {}
        self._numbered: dict[bytes, list[bytes]] = {}  # the keys of `own`, by all but their ends
        retiring = {
            k.removeprefix(RETIRING): v for k, v in records.items() if k.startswith(RETIRING)
        }
        self.retiring = Records(retiring) if retiring else None
        # Of keys that begin alike, the longer ones have the higher numbers.
        for key in sorted(sorted(records), key=len):
            if key.startswith((OTHERS, RETIRING)):
                continue
            self.own[key] = records[key]
            if key.partition(b"/")[0] not in self.KINDS:
                decode_record(repr(key), records[key])  # of another format, there were other kinds
                raise StateError(f"{key!r} is no record of a monitor's state")
            self._numbered.setdefault(key.rpartition(b"/")[0], []).append(key)
        if not self.own.keys() >= {b"program", b"core"}:
            raise StateError("these records are no state of a monitor: some are missing")

    def one(self, *key: str) -> Any:
        """Return the body of the only record of a kind, or of the one of a name."""
        name = "/".join(key)
        if name.encode() not in self.own:
            raise StateError(f"the state is damaged: there is no record {name}")
        return decode_record(name, self.own[name.encode()])

    def numbered(self, *key: str) -> Iterator[tuple[int, Any]]:
        """Yield (number, body) of the records of a kind, or of one of a pattern, in order."""
        for one in self._numbered.get("/".join(key).encode(), ()):
            yield int(one.rpartition(b"/")[2]), decode_record(key[0], self.own[one])

    def all(self, kind: str) -> Iterator[Any]:
        """Yield the bodies of the records of a kind."""
        for key, value in self.own.items():
            if key.startswith(kind.encode() + b"/"):
                yield decode_record(kind, value)


def decode_record(name: str, value: bytes) -> Any:
    """Return the body of a record.

    Raises
    ------
    StateError
        If it is damaged, or of another format; it names the record.
    """
    try:
        format_, body = msgspec.msgpack.decode(value)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise StateError(f"the state is damaged: record {name}: {error}") from None
    if format_ != FORMAT:
        raise StateError(
            f"record {name} of the state has format {format_}; this ketal reads format {FORMAT}: "
            "start anew, or go on with the ketal that wrote it"
        )
    return json.loads(body) if isinstance(body, str) else body


# --- in one piece ---


def encoded(records: dict[bytes, bytes]) -> bytes:
    """Return records as bytes, the format first."""
    body = msgspec.msgpack.encode(records)
    return b"ketal" + bytes([FORMAT]) + zlib.crc32(body).to_bytes(4, "big") + body


def decoded(blob: bytes) -> dict[bytes, bytes]:
    """Return the records of a snapshot.

    Raises
    ------
    StateError
        If the bytes are no snapshot, of another format, or damaged.
    """
    if blob[:5] != b"ketal" or len(blob) < 10:
        raise StateError("these bytes are no ketal snapshot")
    if blob[5] != FORMAT:
        raise StateError(
            f"the snapshot has format {blob[5]}; this ketal reads format {FORMAT}: "
            "start anew, or restore it with the ketal that wrote it"
        )
    body = blob[10:]
    if zlib.crc32(body) != int.from_bytes(blob[6:10], "big"):
        raise StateError("the snapshot is damaged: its checksum does not fit")
    try:
        return msgspec.msgpack.decode(body, type=dict[bytes, bytes])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateError(f"the snapshot is damaged: {error}") from None
