"""Databases of saved state: the committed name decides what is read, whatever the folder holds."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from kafka.structs import OffsetAndMetadata

from ketal.errors import SettingError, StateError
from ketal.streaming.kafka.running_job import Commit
from ketal.streaming.kafka.state import folder_store as saved_module
from ketal.streaming.kafka.state.folder_store import Claim, FolderStore

FILES = ("", "-wal", "-shm")
"""Suffixes of the files of an open SQLite database."""


def content(path: Path) -> list[str]:
    """Return the databases of a folder; assert that it holds no other files."""
    names = {one.name for one in path.iterdir()}
    databases = {name for name in names if name.endswith(".sqlite")}
    assert names <= {name + suffix for name in databases for suffix in FILES}
    return sorted(databases)


def file_of(name: str) -> str:
    return name.partition("@")[0]


def test_session_reads_a_committed_database_and_writes_its_own(
    tmp_path: Path,
) -> None:
    one = FolderStore(tmp_path)
    first = one.write({b"a": b"1", b"b": b"2"})
    second = one.write({b"a": b"3", b"b": None, b"c": b"4"})
    one.mark_committed()
    assert file_of(first) == file_of(second)
    two = FolderStore(tmp_path)
    assert two.read(first) == {b"a": b"1", b"b": b"2"}
    assert two.read(second) == {b"a": b"3", b"c": b"4"}
    third = two.write({b"c": None, b"d": b"5"})
    assert file_of(third) != file_of(second)
    assert max(first, second, third) == third, "a later state has the larger name"
    assert FolderStore(tmp_path).read(third) == {b"a": b"3", b"d": b"5"}


def broken(whole: bytes, chance: random.Random) -> Iterable[bytes]:
    """Yield a file truncated at random places, and with random bits flipped."""
    for at in sorted(chance.sample(range(len(whole)), min(len(whole), 150))):
        yield whole[:at]
        flipped = whole[at] ^ (1 << chance.randrange(8))
        yield whole[:at] + bytes([flipped]) + whole[at + 1 :]


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_damaged_database_is_never_read_as_another_state(tmp_path: Path, suffix: str) -> None:
    """Wherever the damage is, the state read is the written one, or it is an error."""
    one = FolderStore(tmp_path / "written")
    one.write({b"key": b"value", b"other": os.urandom(20_000)})
    changes = {b"key": os.urandom(50), b"third": os.urandom(20_000)}
    name = one.write(changes)
    if not suffix:
        one.close()  # Moves the write-ahead log into the database.
    files = {f.name: f.read_bytes() for f in (tmp_path / "written").iterdir()}
    one.close()
    files = {k: v for k, v in files.items() if not k.endswith("-shm")}
    folder, errors = tmp_path / "damaged", list[str]()
    for content in broken(files[file_of(name) + suffix], random.Random(1)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file, whole in files.items():
            (folder / file).write_bytes(whole)
        (folder / (file_of(name) + suffix)).write_bytes(content)
        try:
            records = FolderStore(folder).read(name)
        except StateError as fault:
            errors.append(str(fault))
        else:
            assert records.keys() == {b"key", b"other", b"third"}
            assert changes.items() <= records.items()
    assert len(errors) > 150, "each that is cut off, and most of the bits"
    assert all(f"{folder / file_of(name)} is damaged" in one for one in errors)


def test_database_syncs_each_commit_to_disk(tmp_path: Path) -> None:
    """SQLite syncs its files after each commit, and the folder when it creates a file."""
    one = FolderStore(tmp_path)
    one.write({b"a": b"1"})
    assert one._database is not None
    assert one._database.execute("PRAGMA synchronous").fetchone() == (3,), "EXTRA"
    assert one._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_state_written_after_the_committed_one_is_not_read(tmp_path: Path) -> None:
    one = FolderStore(tmp_path)
    name = one.write({b"a": b"1"})
    one.write({b"a": b"2", b"b": b"2"})
    again = FolderStore(tmp_path)
    assert again.read(name) == {b"a": b"1"}
    assert FolderStore(tmp_path).read(again.write({})) == {b"a": b"1"}


STOPPED = """
import os, pathlib, signal, sys
from ketal.streaming.kafka.state.folder_store import FolderStore
saved = FolderStore(pathlib.Path(sys.argv[1]))
name = saved.write({b"a": b"1"})
saved.mark_committed()
saved._database.execute("BEGIN EXCLUSIVE")
saved._database.execute("INSERT INTO commits VALUES (2, x'80')")
print(name, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_session_suspended_or_killed_while_writing_blocks_no_other(
    tmp_path: Path, number: int
) -> None:
    """It holds SQLite's lock on its own database, which the next session only reads."""
    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        process.send_signal(number)
        for _ in range(3):
            new = FolderStore(tmp_path)
            assert new.read(name) == {b"a": b"1"}
            name = new.write({b"a": b"1"})
            new.mark_committed()
    finally:
        process.kill()
        process.communicate()
    assert len(content(tmp_path)) == 2


def test_grown_database_is_replaced_and_its_predecessor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_module, "ADDED_BYTES_LEAST", 500)
    chance = random.Random(1)
    one = FolderStore(tmp_path)
    state: dict[bytes, bytes] = {}
    databases: list[str] = []
    for _ in range(300):
        changes: dict[bytes, bytes | None] = {
            b"%d" % chance.randrange(10): chance.choice((None, os.urandom(20))) for _ in range(3)
        }
        state = {k: v for k, v in {**state, **changes}.items() if v is not None}
        name = one.write(changes)
        if chance.random() < 0.5:
            one.mark_committed()
            databases = list(dict.fromkeys([*databases, file_of(name)]))
            assert content(tmp_path) == sorted(databases[-2:])
            assert FolderStore(tmp_path).read(name) == state
    assert len(databases) > 5
    largest = max(path.stat().st_size for path in tmp_path.iterdir())
    assert largest < 200_000, "neither is large, and SQLite's log is not"


def test_size_of_the_database_is_bounded_by_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_module, "ADDED_BYTES_LEAST", 10)
    one = FolderStore(tmp_path)
    name = one.write({b"large": b"x" * 10_000})
    for _ in range(50):
        assert file_of(one.write({b"small": b"y" * 100})) == file_of(name)
    monkeypatch.setattr(saved_module, "ADDED_BYTES_MAX", 1_000)
    assert file_of(one.write({b"small": b"y" * 100})) != file_of(name)


def test_suspended_session_removes_no_database_of_its_successor(tmp_path: Path) -> None:
    old = FolderStore(tmp_path)
    name = old.write({b"n": b"0"})
    old.mark_committed()
    for number in range(1, 4):
        new = FolderStore(tmp_path)
        new.read(name)
        name = new.write({b"n": b"%d" % number})
        new.mark_committed()
    theirs = content(tmp_path)
    assert len(theirs) == 2, "the one of the session that was stopped is gone"
    old.write({b"n": b"9"})
    old.mark_committed()
    assert content(tmp_path) == theirs, "what it adds, nobody sees"
    zombie = FolderStore(tmp_path)
    zombie.read(name)
    new.write({b"n": b"4"})
    new.mark_committed()
    zombie.write({b"n": b"9"})
    zombie.mark_committed()
    assert file_of(name) in content(tmp_path)
    assert FolderStore(tmp_path).read(new.write({})) == {b"n": b"4"}


def test_commits_are_numbered_consecutively_across_databases(tmp_path: Path) -> None:
    one = FolderStore(tmp_path)
    names = [one.write({b"n": b"0"}) for _ in range(3)]
    two = FolderStore(tmp_path)
    two.read(names[-1])
    names.append(two.write({}))
    assert [int(name.partition("@")[2].partition("-")[0]) for name in names] == [1, 2, 3, 4]
    assert names == sorted(names)
    assert FolderStore(tmp_path).write({}) > names[-1], "of one that has read nothing too"


def test_removed_folder_is_reported(tmp_path: Path) -> None:
    one = FolderStore(tmp_path / "state")
    one.write({b"a": b"1"})
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(SettingError, match="state was removed while the job runs"):
        one.write({b"a": b"2"})


def test_full_disk_is_reported_and_the_committed_state_stays(tmp_path: Path) -> None:
    one = FolderStore(tmp_path)
    name = one.write({b"n": b"0"})
    assert one._database is not None
    one._database.execute("PRAGMA max_page_count = 2")
    full = f"cannot save the state in {tmp_path}: database or disk is full; the last commit rem"
    with pytest.raises(SettingError, match=full):
        one.write({b"n": b"1" * 100_000})
    assert FolderStore(tmp_path).read(name) == {b"n": b"0"}
    one.close()
    assert FolderStore(tmp_path).read(name) == {b"n": b"0"}


def test_state_that_a_full_disk_does_not_let_sqlite_read_is_reported_as_such(
    tmp_path: Path,
) -> None:
    """SQLite makes a file beside the database, and says no more than `disk I/O error`."""
    one = FolderStore(tmp_path)
    name = one.write({b"n": b"0"})
    one.close()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(SettingError) as caught:
            FolderStore(tmp_path).read(name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(caught.value).startswith(f"cannot read the state {tmp_path / file_of(name)}: disk")
    assert "hint: check whether the disk of this folder is full" in str(caught.value)
    assert FolderStore(tmp_path).read(name) == {b"n": b"0"}


def test_state_that_another_process_locks_is_not_said_to_be_on_a_full_disk(tmp_path: Path) -> None:
    one = FolderStore(tmp_path)
    name = one.write({b"n": b"0"})
    one.close()
    with contextlib.closing(sqlite3.connect(tmp_path / file_of(name))) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SettingError, match=r"cannot read the state .*: database is locked$"):
            FolderStore(tmp_path).read(name)


def test_database_that_cannot_be_created_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = FolderStore(tmp_path)
    monkeypatch.setattr(
        saved_module,
        "_connect",
        lambda path, mode: sqlite3.connect(f"file:{path}?mode=ro", uri=True),
    )
    with pytest.raises(
        SettingError, match=r"cannot save the state in .*: attempt to write a readonly"
    ):
        one.write({b"n": b"0"})
    assert content(tmp_path) == []
    # Without shared memory, SQLite has no write-ahead log.
    monkeypatch.setattr(saved_module, "_connect", lambda path, mode: sqlite3.connect(":memory:"))
    with pytest.raises(
        SettingError, match="cannot use a write-ahead log there; choose a local file system"
    ):
        one.write({b"n": b"0"})
    assert content(tmp_path) == []


def test_state_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """The state contains attributes of events."""
    one = FolderStore(tmp_path)
    one.write({b"n": b"0"})
    one.write({b"n": b"1"})
    files = list(tmp_path.iterdir())
    assert len(files) == len(FILES)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_name_that_is_not_a_saved_state_is_refused(tmp_path: Path) -> None:
    one = FolderStore(tmp_path)
    name = one.write({})
    for wrong in ("", f"../{name}", "/etc/passwd", name.replace("@", "/"), name[:-1]):
        with pytest.raises(StateError, match="is not a state of ketal"):
            one.read(wrong)
    shutil.rmtree(tmp_path)
    with pytest.raises(StateError, match="restore that folder"):
        one.read(name)


def test_foreign_files_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    one = FolderStore(tmp_path)
    name = one.write({b"n": b"0"})
    one.mark_committed()
    one.close()
    assert {path.name for path in tmp_path.iterdir()} == {file_of(name), "mine.txt"}


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="file"):
        FolderStore(tmp_path / "file" / "state")


def test_folder_of_the_engine_spark_is_refused(tmp_path: Path) -> None:
    """This engine would begin at the start of the topics, and write all verdicts again."""
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(SettingError, match="contains the state of a job of the engine spark, but"):
        Claim(tmp_path, "g", ["a"])
    assert [one.name for one in tmp_path.iterdir()] == ["job.json"]


def test_folder_belongs_to_one_group_and_its_topics(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert not Claim(folder, "somebody who never committed", ["z"]).has_commits
    first = Claim(folder, "g", ["a"])
    assert not first.has_commits
    first.mark_committed()
    assert first.has_commits
    # Topics may be added and removed one by one.
    for topics in (["a", "b"], ["b"], ["a", "c"]):
        again = Claim(folder, "g", topics)
        assert again.has_commits
        again.mark_committed()
    for group_id, topics, message in (("h", ["a"], "group g, but"), ("g", ["d"], "reads a, b, c")):
        with pytest.raises(SettingError, match=message):
            Claim(folder, group_id, topics)
    (path,) = folder.iterdir()
    assert json.loads(path.read_text())["topics"] == ["a", "b", "c"]
    wrong_topics = ("5", "null", "[1]", '"a"', "[" * 100_000)
    damaged_topics = [f'{{"group_id":"g","topics":{topics}}}' for topics in wrong_topics]
    for damaged in ("", "[]", "{", *damaged_topics):
        path.write_text(damaged)
        with pytest.raises(SettingError, match="damaged: it does not name the group of this state"):
            Claim(folder, "g", ["a"])


@pytest.mark.parametrize("metadata", ["", "text", "5", "[" * 4_000])
def test_offset_of_another_program_has_no_metadata(metadata: str) -> None:
    assert Commit.of(OffsetAndMetadata(7, metadata, -1)) == Commit(7, {})
