"""Where verdicts go: a topic, a file, standard output.

Verdicts wait until the commit. Those for a topic leave inside its transaction; those for a file are
on the disk before it begins, so that one that a crash undoes is written again, with the same id:
at least once. A line that a crash tore apart is cut off at the next start, for the commit that it
belonged to never was, and it comes again. So a file is one job's as long as the job lives: it is
locked, for two would take each other's lines for torn ones.

The one rule: a verdict leaves once for each commit that was tried, and a commit that succeeded has
all of its verdicts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Any

import msgspec

from ketal.errors import SettingError
from ketal.model.verdicts import Rejected, Verdict
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.locks import lock

PENDING_BYTES_MAX = 4_000_000
"""So many bytes of verdicts bring the commit forward."""
_TAIL_BYTES = 65_536
_BEGINNING = b'{"verdict":'

Show = Callable[[Verdict], None]


class ClosedPipeError(Exception):
    """Nobody reads standard output any more."""


class Outputs:
    """The verdicts between two commits, and the files of a job as long as it lives.

    Parameters
    ----------
    job : Job
        Says where they go.
    show : callable
        Shows one on standard output.
    flush : callable
        Hands over what was shown.

    Raises
    ------
    SettingError
        If a file cannot be opened, or is another job's.
    """

    def __init__(self, job: Job, show: Show, flush: Callable[[], None]) -> None:
        self._job = job
        self._show = show
        self._flush = flush
        self._pending: list[tuple[Target, bytes | None, bytes]] = []
        self._shown: list[Verdict] = []
        self._files: dict[Target, Any] = {}
        self.bytes = 0
        self._open([target for target in job.outputs if target.kind == "file"])

    def _open(self, targets: list[Target]) -> None:
        """Open the files; one that has two names is opened once."""
        opened: dict[str, Any] = {}
        try:
            for target in targets:
                path = os.path.realpath(target.name)
                if path not in opened:
                    opened[path] = _opened(target.name)
                self._files[target] = opened[path]
        except BaseException:
            self.close()
            raise

    def __bool__(self) -> bool:
        return bool(self._pending or self._shown)

    def add(self, verdict: Verdict, key: bytes | None = None) -> None:
        """Take a verdict; `key` is that of the message that was rejected.

        A key that Kafka would not take together with the verdict is left out: it came compressed.
        """
        target = self._job.rejected if isinstance(verdict, Rejected) else self._job.verdicts
        if target.kind == "stdout":
            self._shown.append(verdict)
            self.bytes += 200
            return
        identity, line = verdict.written()
        most = self._job.limits.message_bytes_max
        if target.kind == "kafka" and len(line) > most:
            line = _too_large(verdict.to_dict(), len(line))
        if key is not None and len(key) + len(line) > most:
            key = None
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
                # A device or a FIFO is on no disk.
                if _is_regular(self._files[target]):
                    os.fsync(self._files[target].fileno())
            except OSError as fault:
                raise _unwritten(target, fault) from None
        if self._shown:
            self._write_stdout()

    def _write_stdout(self) -> None:
        try:
            for verdict in self._shown:
                self._show(verdict)
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
    """Open a file to append to, without a line that a crash tore apart.

    A device, as /dev/null, and a FIFO are nobody's, and hold no lines from before.
    """
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            return _special(path)
        file = open(path, "a+b")  # noqa: SIM115
    except OSError as fault:
        raise _unwritten(Target("file", path), fault) from None
    try:
        if not lock(file.fileno(), path):
            raise SettingError(
                f"{path}: another job writes to this file, and has locked it\n  hint: give each "
                "job an output of its own, each of several consumers too ([output] verdicts and "
                "rejected; --to), or choose a topic"
            )
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
        file.close()
        raise _unwritten(Target("file", path), fault) from None
    except BaseException:
        file.close()
        raise
    return file


def _special(path: str) -> Any:
    """Open a device or a FIFO; one that nobody reads would hold the job up until somebody does."""
    try:
        file = open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb")  # noqa: SIM115
    except OSError as fault:
        if fault.errno != errno.ENXIO:
            raise
        raise SettingError(
            f"cannot write {path}: nobody reads this FIFO\n  hint: start its reader first"
        ) from None
    os.set_blocking(file.fileno(), True)
    return file


def _is_regular(file: Any) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def _unwritten(target: Target, fault: OSError) -> SettingError:
    return SettingError(f"cannot write {target.name}: {fault.strerror or fault}")
