"""Saved state in a folder: logs of records, of which the offsets committed in Kafka name one place.

A log is a file: a first frame with all records of the state, then a frame for each commit, with
what changed (`ketal.runtime.state_records`). A frame is its length, a digest and its content; the
digest goes over the one before as well, so that the last one stands for the whole file up to
there. What is written is on the disk itself before its name, which is file, length and digest, is
committed with the offsets in one transaction. So the committed name decides: whatever stands
behind that length, whole or torn, never was. Append and compact, as in "The design and
implementation of a log-structured file system" (Rosenblum and Ousterhout, 1992): once the frames
that were added are larger than the state, a new log begins, and the one before is kept beside it.

A folder is of one group: its file `group.json` says so, and which topics were read (`Claim`).

Each process, and each session of it, begins a log of its own. One that was stopped and goes on
later writes to a file that nobody else has, and what it removes it has seen when it began, or has
written itself.

The one rule: the state is whole, and the one that is named, or it is a StateError.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ketal.errors import SettingError, StateError
from ketal.runtime.state_records import Changes

APPENDED_BYTES_LEAST = 4_000_000
"""A log that is shorter is not worth a new one, however small the state is."""
APPENDED_BYTES_MAX = 256_000_000
"""So much is read at most beside the state when it is taken up."""

FORMAT = 2
_MAGIC = b"ketal state %d\n" % FORMAT
_SUFFIX = ".state"
_OLD_SUFFIX = ".snapshot"
_DIGEST_BYTES = 12
_HEAD = struct.Struct(f">Q{_DIGEST_BYTES}s")
_NAME = re.compile(r"(\d{10}-[0-9a-f]{8}\.state)@(\d{12})-([0-9a-f]{24})")
_KEPT = "what was committed before holds, and the job goes on from there"
_CLAIM = "group.json"


class Frame(NamedTuple):
    """A frame of a log.

    Attributes
    ----------
    number : int
        How many commits were tried before, in this folder.
    changes : dict of bytes to (bytes or None)
        What it says of each record; None: that it is gone.
    end : int
        How long the log is with it.
    digest : bytes
        Of this frame and all before.
    """

    number: int
    changes: Changes
    end: int
    digest: bytes


def frames(content: bytes) -> Iterator[Frame]:
    """Yield the whole frames of a log; what is torn, or damaged, is their end."""
    if not content.startswith(_MAGIC):
        return
    at, digest = len(_MAGIC), b""
    while at + _HEAD.size <= len(content):
        length, said = _HEAD.unpack_from(content, at)
        begin, at = at + _HEAD.size, at + _HEAD.size + length
        body = content[begin:at]
        digest = _digest(digest, body)
        if len(body) < length or digest != said:
            return
        number, changes = msgspec.msgpack.decode(body, type=tuple[int, dict[bytes, bytes | None]])
        yield Frame(number, changes, at, digest)


def _digest(before: bytes, body: bytes) -> bytes:
    digest = hashlib.blake2b(before, digest_size=_DIGEST_BYTES)
    digest.update(body)
    return digest.digest()


def _number_of(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else 0


class Claim:
    """Whose folder it is: of the group that has committed with state of it.

    Parameters
    ----------
    folder : Path
        Where the state is; made if it is not there.
    group_id : str
        Who reads.
    topics : sequence of str
        What is read.

    Attributes
    ----------
    begun : bool
        Whether something was committed with state of this folder.

    Raises
    ------
    SettingError
        If it is another group's, or of a job of other topics alone; or it cannot be read or made.
    """

    def __init__(self, folder: Path, group_id: str, topics: Sequence[str]) -> None:
        self._folder = folder
        self._group_id = group_id
        held = self._read()
        self.begun = bool(held)
        self._before = before = held.get("topics", [])
        if held.get("group_id", group_id) != group_id:
            raise SettingError(
                f"{folder} holds the state of group {held['group_id']}, and this job's group is "
                f"{group_id}: give this job a folder of its own, [state] store dir:PATH"
            )
        if before and not set(before) & set(topics):
            raise SettingError(
                f"{folder} holds the state of a job of group {group_id} that reads "
                f"{', '.join(before)}, and this one reads {', '.join(topics)}: they are two jobs, "
                "so give this one a --group-id of its own, and a --state where that is set"
            )
        self._topics = sorted({*before, *topics})

    def committed(self) -> None:
        """Say that something is committed with state of this folder."""
        if self._topics != self._before:
            self._write()
            self.begun, self._before = True, self._topics

    def _read(self) -> dict[str, Any]:
        path = self._folder / _CLAIM
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            held = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as fault:
            raise SettingError(f"{path}: {fault.strerror or fault}") from None
        except ValueError:
            held = None
        if not isinstance(held, dict) or not {"group_id", "topics"} <= held.keys():
            raise SettingError(f"{path} is not the file that says whose state this is")
        return held

    def _write(self) -> None:
        held = {"group_id": self._group_id, "topics": self._topics}
        path = self._folder / _CLAIM
        whole = path.with_name(f"{_CLAIM}.{uuid.uuid4().hex[:8]}")
        try:
            with open(whole, "x", encoding="utf-8") as file:
                json.dump(held, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(whole, path)
            _sync_folder(self._folder)
        except OSError as fault:
            with contextlib.suppress(OSError):
                whole.unlink()
            raise SettingError(f"{path}: {fault.strerror or fault}") from None


class Saved:
    """The saved state of one job, for one session.

    Parameters
    ----------
    folder : Path
        Where it is; made if it is not there.

    Raises
    ------
    SettingError
        If it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = [*folder.glob(f"*{_SUFFIX}"), *folder.glob(f"*{_OLD_SUFFIX}")]
            self._old = {path.name for path in found}
            self._number = max(map(_number_of, self._old), default=0)
            last = folder / max(self._old, default="")
            if last.suffix == _SUFFIX:
                for frame in frames(last.read_bytes()):
                    self._number = max(self._number, frame.number)
        except OSError as fault:
            raise SettingError(f"{folder}: {fault.strerror or fault}") from None
        self._kept: list[str] = []
        self._whole: dict[bytes, bytes] = {}
        self._file: Any = None
        self._name = ""
        self._base = self._end = 0
        self._digest = b""

    # --- writing ---

    def write(self, changes: Mapping[bytes, bytes | None]) -> str:
        """Write what changed to the disk itself; return the name of the state that it makes.

        Parameters
        ----------
        changes : mapping of bytes to (bytes or None)
            Since the last call, or since the state that was read; of a new job, all.

        Raises
        ------
        SettingError
            If it cannot be written: the disk is full.
        """
        self._number += 1
        try:
            if self._file is None:
                self._begin({**self._whole, **changes})
                self._whole = {}
            elif self._end - self._base > self._appended_max():
                self._begin({**self._read_back(), **changes})
            else:
                self._append(changes)
        except OSError as fault:
            raise SettingError(
                f"the state cannot be saved in {self.folder}: {fault.strerror or fault}; {_KEPT}"
            ) from None
        return f"{self._name}@{self._end:012d}-{self._digest.hex()}"

    def _appended_max(self) -> int:
        return min(max(self._base, APPENDED_BYTES_LEAST), APPENDED_BYTES_MAX)

    def _read_back(self) -> dict[bytes, bytes]:
        self._file.seek(0)
        return _records(frames(self._file.read()), self._digest)

    def _begin(self, records: Mapping[bytes, bytes | None]) -> None:
        """Begin a log with all records."""
        before, self._file = self._file, None
        if before is not None:
            before.close()
        self._name = f"{self._number:010d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        path = self.folder / self._name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115
        try:
            self._digest, self._end = b"", len(_MAGIC)
            _write(file, _MAGIC)
            self._file = file
            self._append({key: value for key, value in records.items() if value is not None})
            _sync_folder(self.folder)
        except BaseException:
            self._file = None
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._base = self._end

    def _append(self, changes: Mapping[bytes, bytes | None]) -> None:
        body = msgspec.msgpack.encode((self._number, changes))
        digest = _digest(self._digest, body)
        _write(self._file, _HEAD.pack(len(body), digest) + body)
        os.fsync(self._file.fileno())
        self._digest, self._end = digest, self._end + _HEAD.size + len(body)

    def send(self, producer: Any) -> list[Any]:
        """Send nothing into the transaction: what was written is on the disk already."""
        return []

    def committed(self, name: str) -> None:
        """Say that a state is the one that holds; remove the logs before its predecessor."""
        log = name.partition("@")[0]
        if log in self._kept[-1:]:
            return
        self._kept = [*self._kept[-1:], log]
        for old in sorted(self._old - set(self._kept)):
            with contextlib.suppress(OSError):
                os.unlink(self.folder / old)
        self._old = set(self._kept)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()

    # --- reading ---

    def read(self, name: str) -> dict[bytes, bytes]:
        """Return the records of the state of a name; what is written next goes on from there.

        Raises
        ------
        StateError
            If it is not there, damaged, or of another format.
        """
        if name.endswith(_OLD_SUFFIX):
            raise StateError(
                f"the offsets name the snapshot {name}, which an earlier ketal wrote (format 1); "
                f"this ketal has format {FORMAT}: start anew, or go on with the one that wrote it"
            )
        named = _NAME.fullmatch(name)
        if named is None:
            raise StateError(f"the offsets name {name!r}, which is no state of ketal's")
        log, end, digest = named.groups()
        path = self.folder / log
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise StateError(
                f"the offsets name the state {log}, and it is not in {self.folder}: bring that "
                "folder back, or take another group_id to start anew"
            ) from None
        except OSError as fault:
            raise SettingError(f"{path}: {fault.strerror or fault}") from None
        try:
            self._whole = _records(frames(content[: int(end)]), bytes.fromhex(digest))
        except (StateError, msgspec.DecodeError):
            raise StateError(f"the saved state {path} is damaged") from None
        self._kept = [log]
        return dict(self._whole)


def _records(log: Iterator[Frame], digest: bytes) -> dict[bytes, bytes]:
    """Return what a log's frames come to, up to the one of a digest.

    Raises
    ------
    StateError
        If there is no such frame.
    """
    records: Changes = {}
    for frame in log:
        records.update(frame.changes)
        if frame.digest == digest:
            return {key: value for key, value in records.items() if value is not None}
    raise StateError("the log is damaged")


def _write(file: Any, content: bytes) -> None:
    """Write all; without a buffer, one call may write a part."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
