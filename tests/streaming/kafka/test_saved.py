"""Logs of saved state: the committed name decides, whatever else is in the folder."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import msgspec
import pytest

from ketal.errors import SettingError, StateError
from ketal.streaming.kafka import file_state_store as saved_module
from ketal.streaming.kafka.file_state_store import Claim, Saved, frames


def content(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def log_of(name: str) -> str:
    return name.partition("@")[0]


def test_a_session_reads_what_another_committed_and_writes_a_log_of_its_own(tmp_path: Path) -> None:
    one = Saved(tmp_path)
    first = one.write({b"a": b"1", b"b": b"2"})
    second = one.write({b"a": b"3", b"b": None, b"c": b"4"})
    one.committed(second)
    assert log_of(first) == log_of(second)
    two = Saved(tmp_path)
    assert two.read(first) == {b"a": b"1", b"b": b"2"}
    assert two.read(second) == {b"a": b"3", b"c": b"4"}
    third = two.write({b"c": None, b"d": b"5"})
    assert log_of(third) != log_of(second)
    assert max(first, second, third) == third, "a later state has the larger name"
    assert Saved(tmp_path).read(third) == {b"a": b"3", b"d": b"5"}


def test_what_stands_behind_the_committed_length_never_was(tmp_path: Path) -> None:
    one = Saved(tmp_path)
    name = one.write({b"a": b"1"})
    one.write({b"a": b"2"})
    path = tmp_path / log_of(name)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length >= int(name.partition("@")[2].partition("-")[0]):
            assert Saved(tmp_path).read(name) == {b"a": b"1"}
        else:
            with pytest.raises(StateError, match="is damaged"):
                Saved(tmp_path).read(name)
    path.write_bytes(whole + b"\0" * 100)
    again = Saved(tmp_path)
    assert again.read(name) == {b"a": b"1"}
    assert Saved(tmp_path).read(again.write({})) == {b"a": b"1"}


def test_a_bit_that_fell_over_is_seen(tmp_path: Path) -> None:
    one = Saved(tmp_path)
    one.write({b"key": b"value"})
    name = one.write({b"key": b"other"})
    path = tmp_path / log_of(name)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StateError, match="is damaged"):
            Saved(tmp_path).read(name)


def test_a_log_that_has_grown_is_begun_anew_and_its_predecessor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_module, "APPENDED_BYTES_LEAST", 500)
    chance = random.Random(1)
    one = Saved(tmp_path)
    state: dict[bytes, bytes] = {}
    logs: list[str] = []
    for _ in range(300):
        changes: dict[bytes, bytes | None] = {
            b"%d" % chance.randrange(10): chance.choice((None, os.urandom(20))) for _ in range(3)
        }
        state = {k: v for k, v in {**state, **changes}.items() if v is not None}
        name = one.write(changes)
        if chance.random() < 0.5:
            one.committed(name)
            logs = list(dict.fromkeys([*logs, log_of(name)]))
            assert content(tmp_path) == sorted(logs[-2:])
            assert Saved(tmp_path).read(name) == state
    assert len(logs) > 5
    largest = max(path.stat().st_size for path in tmp_path.iterdir())
    assert largest < 2_000, "neither is large"


def test_the_state_is_what_bounds_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_module, "APPENDED_BYTES_LEAST", 10)
    one = Saved(tmp_path)
    name = one.write({b"large": b"x" * 10_000})
    for _ in range(50):
        assert log_of(one.write({b"small": b"y" * 100})) == log_of(name)
    monkeypatch.setattr(saved_module, "APPENDED_BYTES_MAX", 1_000)
    assert log_of(one.write({b"small": b"y" * 100})) != log_of(name)


def test_one_that_was_stopped_removes_nothing_of_its_successor(tmp_path: Path) -> None:
    old = Saved(tmp_path)
    name = old.write({b"n": b"0"})
    old.committed(name)
    for number in range(1, 4):
        new = Saved(tmp_path)
        new.read(name)
        name = new.write({b"n": b"%d" % number})
        new.committed(name)
    theirs = content(tmp_path)
    assert len(theirs) == 2, "the log of the one that was stopped is gone"
    old.committed(old.write({b"n": b"9"}))
    assert content(tmp_path) == theirs, "what it appends, nobody sees"
    zombie = Saved(tmp_path)
    zombie.read(name)
    new.committed(new.write({b"n": b"4"}))
    zombie.committed(zombie.write({b"n": b"9"}))
    assert log_of(name) in content(tmp_path)
    assert Saved(tmp_path).read(new.write({})) == {b"n": b"4"}


def test_commits_are_numbered_through_all_logs(tmp_path: Path) -> None:
    one = Saved(tmp_path)
    names = [one.write({b"n": b"0"}) for _ in range(3)]
    two = Saved(tmp_path)
    two.read(names[-1])
    names.append(two.write({}))
    logs = dict.fromkeys(map(log_of, names))
    numbers = [f.number for log in logs for f in frames((tmp_path / log).read_bytes())]
    assert numbers == [1, 2, 3, 4]


def test_a_full_disk_is_said_and_what_is_committed_holds(tmp_path: Path) -> None:
    one = Saved(tmp_path)
    name = one.write({b"n": b"0"})
    one._file.close()
    one._file = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115
    with pytest.raises(SettingError, match=r"cannot be saved in .*: No space left .* holds"):
        one.write({b"n": b"1"})
    assert Saved(tmp_path).read(name) == {b"n": b"0"}


def test_only_a_state_is_read(tmp_path: Path) -> None:
    one = Saved(tmp_path)
    name = one.write({})
    for wrong in ("", f"../{name}", "/etc/passwd", name.replace("@", "/"), name[:-1]):
        with pytest.raises(StateError, match="no state of ketal's"):
            one.read(wrong)
    (tmp_path / log_of(name)).unlink()
    with pytest.raises(StateError, match="bring that folder back"):
        one.read(name)


def test_a_snapshot_of_an_earlier_version_is_said_to_be_one(tmp_path: Path) -> None:
    name = "0000000007-0123456789abcdef01234567.snapshot"
    (tmp_path / name).write_bytes(msgspec.msgpack.encode({"format": 1}))
    one = Saved(tmp_path)
    with pytest.raises(StateError, match=r"an earlier ketal wrote \(format 1\)"):
        one.read(name)
    one.committed(one.write({b"n": b"0"}))
    assert name not in content(tmp_path), "it goes when there is another state"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="file"):
        Saved(tmp_path / "file" / "state")


def test_a_folder_is_of_one_group_and_knows_its_topics(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert not Claim(folder, "somebody who never committed", ["z"]).begun
    first = Claim(folder, "g", ["a"])
    assert not first.begun
    first.committed()
    assert first.begun
    # Topics may come and go, one by one.
    for topics in (["a", "b"], ["b"], ["a", "c"]):
        again = Claim(folder, "g", topics)
        assert again.begun
        again.committed()
    for group_id, topics, said in (("h", ["a"], "group g, and"), ("g", ["d"], "reads a, b, c")):
        with pytest.raises(SettingError, match=said):
            Claim(folder, group_id, topics)
    (path,) = folder.iterdir()
    assert json.loads(path.read_text())["topics"] == ["a", "b", "c"]
    for damaged in ("", "[]", "{"):
        path.write_text(damaged)
        with pytest.raises(SettingError, match="not the file that says whose state this is"):
            Claim(folder, "g", ["a"])
