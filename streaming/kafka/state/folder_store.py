"""Saved state in a folder of SQLite databases; the offsets committed in Kafka name a state in it.

A database has one table, `commits`. The first commit has all records of the state
(`ketal.runtime.state.records`), each later commit the records that it changed. Rows are added and
never updated, so a database holds the state as of each of its commits; the committed offsets name
the one that counts. A commit is on the disk before its name goes into Kafka's transaction. If that
transaction fails, nothing names the commit, and so it is ignored. Once the added rows are larger
than the state, a new database is begun, and the previous one is left for processes that are reading
it. (A table with one row for each record, updated in place, would write a page for each changed
record, 30 times as many bytes; one row for each record of a commit would take ten times the CPU
time of one row for all of them.)

The name of a state has the database, the commit, and the digest of all rows up to it: SQLite
detects a damaged page structure, the digest detects damaged content and missing rows.

A folder belongs to one group: its file `group.json` names the group, and the topics that were read
(`Claim`).

Each session of each process begins its own database, since a process that is stopped while it holds
SQLite's lock would block its successor. With a write-ahead log (WAL) readers do not wait for
writers, so the successor can read the database that a stopped process has open. A session removes
only databases that it found when it began, or has written itself.

The one rule: the restored state is whole and the one that is named, or a StateError is raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ketal.errors import SettingError, StateError, refused_as_setting
from ketal.files.file_replacement import replace_file
from ketal.runtime.state.records import Changes, without_removed
from ketal.streaming.job.engine_files import ENGINE_FILES, check_engine
from ketal.streaming.kafka.state.segments import chunks, decode, encode

ADDED_BYTES_LEAST = 4_000_000
"""The size of added rows up to which no new database is begun, however small the state is."""
ADDED_BYTES_MAX = 256_000_000
"""The size of added rows from which on a new database is begun, however large the state is.

A restore reads at most this much beside the state."""
PIECE_BYTES = 1_000_000
"""The largest size of a row, except for a row with a single larger record."""
PAGE_BYTES = 16_384
"""With this page size a commit of a megabyte costs half of what it costs with SQLite's 4,096."""
LOCK_TIMEOUT_S = 10.0
"""How long SQLite waits for a lock of another process."""

_SUFFIX = ".sqlite"
_DIGEST_BYTES = 12
_FILE = re.compile(r"(\d+)-[0-9a-f]+\.sqlite")
_NAME = re.compile(r"(\d{10}-[0-9a-f]{8}\.sqlite)@(\d{10})-([0-9a-f]{24})")
_CLAIM = ENGINE_FILES["process"]
_DISK_FAULTS = sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR
"""SQLite's error codes for which the disk may be at fault, and not the file."""
_MACHINE_FAULTS = *_DISK_FAULTS, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY
"""The codes for which the file is not at fault."""


class _ClaimContent(msgspec.Struct, frozen=True):
    group_id: str
    topics: list[str]


class Claim:
    """The claim of a group to a folder, made when it has committed with state in the folder.

    Raises a SettingError if the folder is another engine's or group's, or of a job that reads other
    topics only; or if the file of the claim cannot be read or made.
    """

    def __init__(self, folder: Path, group_id: str, topics: Sequence[str]) -> None:
        names = [name for name in ENGINE_FILES.values() if (folder / name).exists()]
        check_engine(folder, names, "process")
        self._path = folder / _CLAIM
        self._content = held = self._read()
        before = held.topics if held else []
        if held and held.group_id != group_id:
            raise SettingError(
                f"{folder} contains the state of group {held.group_id}, but this job's group is "
                f"{group_id}: give this job its own folder, [state] store dir:PATH"
            )
        if before and not set(before) & set(topics):
            raise SettingError(
                f"{folder} contains the state of a job of group {group_id} that reads "
                f"{', '.join(before)}, but this job reads {', '.join(topics)}: give this job its "
                "own --group-id, and its own --state if one is set"
            )
        self._claim_content = _ClaimContent(group_id, sorted({*before, *topics}))

    @property
    def has_commits(self) -> bool:
        """Whether a commit with state in this folder exists."""
        return self._content is not None

    def includes(self, topic: str) -> bool:
        """Whether commits with state in this folder include partitions of a topic."""
        return self._content is not None and topic in self._content.topics

    def mark_committed(self) -> None:
        """Record in the claim's file that a commit with state in this folder exists."""
        if self._claim_content != self._content:
            with refused_as_setting(f"cannot write {self._path}"):
                replace_file(self._path, msgspec.json.encode(self._claim_content), durable=True)
            self._content = self._claim_content

    def _read(self) -> _ClaimContent | None:
        try:
            with refused_as_setting(self._path):
                if not self._path.exists():
                    return None
                return msgspec.json.decode(self._path.read_bytes(), type=_ClaimContent)
        except (ValueError, RecursionError):
            raise SettingError(
                f"{self._path} is damaged: it does not name the group of this state\n  hint: "
                "restore the whole folder, or give this job another [state] store and another "
                "group_id"
            ) from None


class FolderStore:
    """Saves and restores the state of one job, for one session; its commits record the claim.

    Its databases are numbered after those in the folder, and after those of the states `names`.
    """

    def __init__(self, folder: Path, claim: Claim | None = None, names: Sequence[str] = ()) -> None:
        self.folder = folder
        self._claim = claim
        with refused_as_setting(folder):
            folder.mkdir(parents=True, exist_ok=True)
            files = [one for path in folder.iterdir() if (one := _FILE.match(path.name))]
        named = [one for name in names if (one := _NAME.fullmatch(name))]
        self._number = max([0, *(int(one[1]) for one in files), *(int(one[2]) for one in named)])
        self._old = {one[0] for one in files}
        self._retained: list[str] = []
        self._whole: dict[bytes, bytes] = {}
        self._database: sqlite3.Connection | None = None
        self._name = ""
        self._base_bytes = self._added_bytes = 0
        self._digest = _new_digest()

    # --- writing ---

    def write(self, changes: Mapping[bytes, bytes | None]) -> str:
        """Write dirty records, with fsync; return the name of the state.

        `changes` has the records changed since the last call, or since the state that was read; for
        a new job, all records. A removed record has None for its value.

        Raises a SettingError if the records cannot be written, for example because the disk is
        full, or if the folder was removed: SQLite would go on with files that no start can open.
        """
        if not self.folder.exists():
            raise SettingError(
                f"the folder {self.folder} was removed while the job runs, and the saved state "
                "with it\n  hint: restore that folder, or give this job another [state] store and "
                "another group_id"
            )
        try:
            if self._database is None:
                self._begin_database({**self._whole, **changes})
                self._whole = {}
            elif self._added_bytes > min(max(self._base_bytes, ADDED_BYTES_LEAST), ADDED_BYTES_MAX):
                path, digest = self.folder / self._name, self._digest.hexdigest()
                self._begin_database(
                    {**_read_records(self._database, path, self._number, digest), **changes}
                )
            else:
                self._added_bytes += self._add_commit(self._database, changes)
        except (OSError, sqlite3.Error) as fault:
            cause = getattr(fault, "strerror", None) or fault
            raise SettingError(
                f"cannot save the state in {self.folder}: {cause}; the last commit remains valid, "
                "and the next start resumes from it"
            ) from None
        return f"{self._name}@{self._number:010d}-{self._digest.hexdigest()}"

    def _begin_database(self, records: Mapping[bytes, bytes | None]) -> None:
        """Begin a new database, whose first commit has all records."""
        self.close()
        self._name = f"{self._number + 1:010d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        self._digest = _new_digest()
        path = self.folder / self._name
        path.touch(0o600, exist_ok=False)  # SQLite's other files are made with the same mode.
        database = _connect(path, "rw")
        try:
            database.execute("PRAGMA synchronous = EXTRA")  # of the folder too
            database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            # All records are written before the WAL is enabled, which would write them twice.
            database.execute("BEGIN")
            database.execute("CREATE TABLE commits (number INTEGER, records BLOB)")
            whole = without_removed(records)
            self._base_bytes, self._added_bytes = self._add_commit(database, whole), 0
            (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise OSError(
                    "SQLite cannot use a write-ahead log there; choose a local file system"
                )
            # This makes the WAL's file now: a successor may remove the database's files, and a
            # replaced process must be able to go on with them.
            database.execute("SELECT NULL FROM commits LIMIT 1").fetchall()
        except BaseException:
            database.close()
            _remove(path)
            raise
        self._database = database

    def _add_commit(
        self, database: sqlite3.Connection, changes: Mapping[bytes, bytes | None]
    ) -> int:
        """Add the rows of a commit; return their size in bytes."""
        # SQLite stores no value of a gigabyte or more.
        pieces = [encode(piece) for piece in chunks(changes, PIECE_BYTES)]
        rows = [(self._number + 1, piece) for piece in pieces]
        with database:
            database.executemany("INSERT INTO commits VALUES (?, ?)", rows)
        self._number += 1
        for piece in pieces:
            self._digest.update(piece)
        return sum(map(len, pieces))

    def send(self, producer: Any) -> list[tuple[str, Any]]:
        """Send nothing in the transaction: the state is on the disk already."""
        return []

    def mark_committed(self) -> None:
        """Mark the last write as committed; remove all databases but its own and the one before."""
        if self._claim is not None:
            self._claim.mark_committed()
        if self._name in self._retained[-1:]:
            return
        self._retained = [*self._retained[-1:], self._name]
        for old in sorted(self._old - set(self._retained)):
            _remove(self.folder / old)
        self._old = set(self._retained)

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    # --- reading ---

    def read(self, name: str) -> dict[bytes, bytes]:
        """Return the records of the state with a name; the next commit is based on them.

        Raises
        ------
        StateError
            If the state is missing, damaged, or of another format.
        SettingError
            If it cannot be read for another reason.
        """
        named = _NAME.fullmatch(name)
        if named is None:
            raise StateError(f"the offsets name {name!r}, which is not a state of ketal")
        file, number, digest = named.groups()
        path = self.folder / file
        try:
            if not path.exists():
                raise StateError(
                    f"the offsets name the state {file}, which is not in {self.folder}: restore "
                    "that folder"
                )
            with refused_as_setting(path), contextlib.closing(_connect(path, "ro")) as database:
                self._whole = _read_records(database, path, int(number), digest)
        except (sqlite3.Error, TypeError, ValueError) as fault:
            code = getattr(fault, "sqlite_errorcode", 0) & 0xFF
            if code in _MACHINE_FAULTS:
                # To read a database with a write-ahead log, SQLite makes files beside it.
                hint = (
                    "\n  hint: check whether the disk of this folder is full, and whether files "
                    "can be made in it"
                )
                raise SettingError(
                    f"cannot read the state {path}: {fault}{hint if code in _DISK_FAULTS else ''}"
                ) from None
            raise StateError(f"the saved state {path} is damaged: {fault}") from None
        self._number = max(self._number, int(number))
        self._retained = [file]
        return dict(self._whole)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open an existing database to read (`ro`) or to write (`rw`)."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, timeout=LOCK_TIMEOUT_S, uri=True)


def _read_records(
    database: sqlite3.Connection, path: Path, number: int, digest: str
) -> dict[bytes, bytes]:
    """Return the records as of a commit; raise a StateError if its rows have another digest."""
    records: Changes = {}
    actual = _new_digest()
    rows = database.execute(
        "SELECT records FROM commits WHERE number <= ? ORDER BY rowid", (number,)
    )
    for (piece,) in rows:
        actual.update(piece)
        records.update(decode(piece))
    if actual.hexdigest() != digest:
        raise StateError(
            f"the saved state {path} is damaged: the digest of its rows does not match"
        )
    return without_removed(records)


def _new_digest() -> Any:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


def _remove(path: Path) -> None:
    """Remove a database and SQLite's files beside it; ignore errors."""
    for suffix in ("-wal", "-shm", "-journal", ""):
        with contextlib.suppress(OSError):
            path.with_name(path.name + suffix).unlink()
