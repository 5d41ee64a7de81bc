"""Where verdicts go: a topic, a file, standard output.

Verdicts wait until the commit. Those for a topic leave inside its transaction; those for a file are
on the disk before it begins, so that one that a crash undoes is written again, with the same id:
at least once. A line that a crash tore apart is cut off at the next start, for the commit that it
belonged to never was, and it comes again.

The one rule: a verdict leaves once for each commit that was tried, and a commit that succeeded has
all of its verdicts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import msgspec

from ketal.errors import SettingError
from ketal.streaming.job import Job, Target
from ketal.verdicts import Rejected, Verdict

PENDING_BYTES_MAX = 4_000_000
"""So many bytes of verdicts bring the commit forward."""
_TAIL_BYTES = 65_536
_BEGINNING = b'{"verdict":'

Say = Callable[[Verdict], None]


class ClosedPipeError(Exception):
    """Nobody reads standard output any more."""


class Outputs:
    """The verdicts between two commits.

    Parameters
    ----------
    job : Job
        Says where they go.
    say : callable
        Shows one on standard output.
    flush : callable
        Hands over what was shown.
    """

    def __init__(self, job: Job, say: Say, flush: Callable[[], None]) -> None:
        self._job = job
        self._say = say
        self._flush = flush
        self._pending: list[tuple[Target, bytes | None, bytes]] = []
        self._shown: list[Verdict] = []
        self._files = {t: _opened(t.name) for t in job.outputs if t.kind == "file"}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pending or self._shown)

    def add(self, verdict: Verdict, key: bytes | None = None) -> None:
        """Take a verdict; `key` is that of the message that was rejected."""
        rejected = isinstance(verdict, Rejected)
        target = self._job.rejected if rejected else self._job.verdicts
        if target.kind == "stdout":
            self._shown.append(verdict)
            self.bytes += 200
            return
        said = verdict.to_dict()
        line = msgspec.json.encode(said)
        if target.kind == "kafka" and len(line) > self._job.limits.message_bytes_max:
            line = _too_large(said, len(line))
        identity = said.get("id")
        self._pending.append((target, key if identity is None else identity.encode(), line))
        self.bytes += len(line)

    def write_files(self) -> None:
        """Write what goes to files and to standard output, to the disk itself.

        Raises
        ------
        SettingError
            If it cannot be written.
        """
        touched = set()
        for target, _, line in self._pending:
            if target.kind == "file":
                self._written(target, line + b"\n")
                touched.add(target)
        for target in touched:
            try:
                self._files[target].flush()
                os.fsync(self._files[target].fileno())
            except OSError as fault:
                raise _unwritten(target, fault) from None
        if self._shown:
            self._show()

    def _show(self) -> None:
        try:
            for verdict in self._shown:
                self._say(verdict)
            self._flush()
        except BrokenPipeError:
            raise ClosedPipeError from None

    def _written(self, target: Target, line: bytes) -> None:
        try:
            self._files[target].write(line)
        except OSError as fault:
            raise _unwritten(target, fault) from None

    def send(self, producer: Any) -> list[Any]:
        """Send what goes to topics; return the future of each message."""
        return [
            producer.send(target.name, value=line, key=key)
            for target, key, line in self._pending
            if target.kind == "kafka"
        ]

    def clear(self) -> None:
        """Forget what has left, or is to be found again."""
        self._pending.clear()
        self._shown.clear()
        self.bytes = 0

    def close(self) -> None:
        """Close the files; what is committed is on the disk by now."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()


def _too_large(said: dict[str, Any], size: int) -> bytes:
    """Return what to say instead of a verdict that Kafka would not take."""
    kept = {key: said[key] for key in ("pattern", "id", "execution") if key in said}
    given_up = f"the content of a {said['verdict']} verdict of {size} bytes"
    return msgspec.json.encode(
        {"verdict": "overflow", **kept, "limit": "message_bytes_max", "given_up": given_up}
    )


def _opened(path: str) -> Any:
    """Open a file to append to, without a line that a crash tore apart."""
    try:
        file = open(path, "a+b")  # noqa: SIM115
        end = file.seek(0, os.SEEK_END)
        start = end
        while start > 0:
            start = max(0, start - _TAIL_BYTES)
            file.seek(start)
            newline = file.read(min(_TAIL_BYTES, end - start)).rfind(b"\n")
            if newline >= 0:
                start += newline + 1
                break
        if start < end:
            file.seek(start)
            if not file.read(len(_BEGINNING)).startswith(_BEGINNING[: end - start]):
                raise SettingError(f"{path} does not end in a line of verdicts: not added to")
            file.truncate(start)
        file.seek(0, os.SEEK_END)
    except OSError as fault:
        raise _unwritten(Target("file", path), fault) from None
    return file


def _unwritten(target: Target, fault: OSError) -> SettingError:
    return SettingError(f"cannot write {target.name}: {fault.strerror or fault}")
