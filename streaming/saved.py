"""Saved state in a folder: snapshots that the offsets committed in Kafka name.

A snapshot is written under a new name and fsynced, and then the name is committed with the offsets
that it belongs to, in one transaction. So the committed name decides which one holds, however a
process ended, and its predecessor is kept beside it. What a process removes it has seen when it
began, or has written itself: one that was stopped and goes on later cannot remove what its
successor wrote.

The one rule: a snapshot is whole, and the one that is named, or it is a StateError.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from ketal.errors import SettingError, StateError
from ketal.streaming.folders import replaced

FORMAT = 1
_SUFFIX = ".snapshot"
_DIGEST_BYTES = 12


class Saved:
    """The snapshots of one job.

    Parameters
    ----------
    folder : Path
        Where they are; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._old = {path.name for path in folder.glob(f"*{_SUFFIX}")}
        except OSError as fault:
            raise SettingError(f"{folder}: {fault.strerror or fault}") from None
        self._kept: list[str] = []
        numbers = [int(name.split("-")[0]) for name in self._old if name.split("-")[0].isdigit()]
        self._number = max(numbers, default=0)

    def write(self, state: dict[str, Any]) -> str:
        """Write a snapshot to the disk itself; return its name.

        Raises
        ------
        SettingError
            If it cannot be written: the disk is full.
        """
        content = msgspec.msgpack.encode({"format": FORMAT, **state})
        self._number += 1
        name = f"{self._number:010d}-{_digest(content)}{_SUFFIX}"
        try:
            replaced(self.folder / name, content, mode=0o600, durable=True)
        except OSError as fault:
            raise SettingError(
                f"the state cannot be saved in {self.folder}: {fault.strerror or fault}; what was "
                "committed before holds, and the job goes on from there"
            ) from None
        return name

    def committed(self, name: str) -> None:
        """Say that a snapshot is the one that holds; remove those before its predecessor."""
        self._kept = [*self._kept[-1:], name]
        for old in sorted(self._old - set(self._kept)):
            with contextlib.suppress(OSError):
                os.unlink(self.folder / old)
        self._old = set(self._kept)

    def read(self, name: str) -> dict[str, Any]:
        """Return the snapshot of a name.

        Raises
        ------
        StateError
            If it is not there, damaged, or of another format.
        """
        path = self.folder / name
        if not name.endswith(_SUFFIX) or path.name != name:
            raise StateError(f"the offsets name {name!r}, which is no snapshot of ketal's")
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise StateError(
                f"the offsets name the snapshot {name}, and it is not in {self.folder}: bring that "
                "folder back, or take another group_id to start anew"
            ) from None
        except OSError as fault:
            raise SettingError(f"{path}: {fault.strerror or fault}") from None
        if name.removesuffix(_SUFFIX).rpartition("-")[2] != _digest(content):
            raise StateError(f"the snapshot {path} is damaged")
        state: dict[str, Any] = msgspec.msgpack.decode(content)
        if state.get("format") != FORMAT:
            raise StateError(
                f"the snapshot {path} has format {state.get('format')}; this version has {FORMAT}"
            )
        self._kept = [name]
        return state


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
