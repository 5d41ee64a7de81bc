"""The outputs for verdicts, the sinks of a job: a topic, a file, standard output.

Verdicts are pending until the next commit. Verdicts for a topic are sent in the commit's
transaction (exactly once). Verdicts for a file are on the disk before the transaction begins, so
after a crash they are written again, with the same ids (at least once). The next start truncates a
line that a crash left incomplete: its commit failed, so the line is written again. Two jobs would
truncate each other's lines, so a file is locked as long as its job lives.

The one rule: a verdict is written once for each attempt to commit it, and a commit that succeeded
has all of its verdicts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from ketal.errors import SettingError, refused_as_setting
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.streaming.job.file import Job, Target
from ketal.streaming.job.locks import lock
from ketal.streaming.job.metrics import Hooks
from ketal.streaming.job.verdict_messages import written_message

PENDING_BYTES_MAX = 4_000_000
"""Size of the pending verdicts from which on a commit is due."""
_TAIL_BYTES = 65_536
_LINE_PREFIX = b'{"verdict":'


class ClosedPipeError(Exception):
    """The reader of standard output has closed it."""


class Outputs:
    """The verdicts that are pending for the next commit, and the open files of a job.

    Raises a SettingError if a file cannot be opened, or is another job's.
    """

    def __init__(self, job: Job, hooks: Hooks) -> None:
        self._job = job
        self._hooks = hooks
        self._pending: list[tuple[Target, bytes | None, bytes]] = []
        self._for_stdout: list[Verdict] = []
        self._files: dict[Target, Any] = {}
        self._named: set[Any] = set()  # the files that had a name when they were opened
        self.pending_bytes = 0
        open_files: dict[str, Any] = {}
        try:
            for target in job.outputs:
                if target.kind == "file":
                    # A file under two names is opened once.
                    path = os.path.realpath(target.name)
                    if path not in open_files:
                        open_files[path] = _open_file(target.name)
                    self._files[target] = open_files[path]
            self._named = {file for file in open_files.values() if _has_name(file)}
        except BaseException:
            self.close()
            raise

    def add(self, verdict: Verdict, key: bytes | None = None) -> None:
        """Add a verdict to the pending ones; `key` is the message key of a dead letter.

        If key and verdict together are too large for a message, the key is left out: the message
        that it came from was compressed.
        """
        target = self._job.output_of(verdict.kind)
        if target.kind == "stdout":
            self._for_stdout.append(verdict)
            self.pending_bytes += 200
            return
        identity, line = written_message(verdict, self._job.bytes_max(target))
        if key is not None and len(key) + len(line) > self._job.limits.message_bytes_max:
            key = None
        self._pending.append((target, key if identity is None else identity.encode(), line))
        self.pending_bytes += len(line)

    def write(self) -> None:
        """Write the pending verdicts for files, with fsync, and for standard output."""
        lines: dict[Any, tuple[str, list[bytes]]] = {}
        for target, _, line in self._pending:
            if target.kind == "file":
                lines.setdefault(self._files[target], (target.name, []))[1].append(line + b"\n")
        for file, (name, file_lines) in lines.items():
            with refused_as_setting(f"cannot write {name}"):
                file.writelines(file_lines)
                file.flush()
                # A device or a FIFO has no fsync.
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    os.fsync(file.fileno())
                    if file in self._named and not _has_name(file):
                        raise SettingError(
                            f"{name} was removed while the job runs; the next start writes the "
                            "verdicts since the last commit to a new file"
                        )
        if self._for_stdout:
            try:
                for verdict in self._for_stdout:
                    self._hooks.show(verdict)
                self._hooks.flush()
            except BrokenPipeError:
                raise ClosedPipeError from None

    def send(self, producer: Any) -> list[tuple[str, Any]]:
        """Send the pending verdicts for topics; return topic and future of each message."""
        return [
            (target.name, producer.send(target.name, value=line, key=key))
            for target, key, line in self._pending
            if target.is_topic
        ]

    def clear(self) -> None:
        """Discard the pending verdicts: they are committed, or will be judged again."""
        self._pending.clear()
        self._for_stdout.clear()
        self.pending_bytes = 0

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()


def _has_name(file: Any) -> bool:
    """Return whether an open file has a name; one without can be read only where it is open."""
    return os.fstat(file.fileno()).st_nlink > 0


def too_large_error(job: Job, why: str) -> SettingError:
    """Return the error for a message that is larger than its topic allows."""
    return SettingError(
        f"Kafka refused a message as too large: {why}\n"
        "  hint: set the topic's max.message.bytes above [limits] message_bytes_max "
        f"({job.limits.message_bytes_max}), or lower message_bytes_max"
    )


def check_writable(job: Job) -> None:
    """Raise a SettingError if an output file or the state folder of a job cannot be written.

    No file is made, changed or locked.
    """
    for target in job.outputs:
        if target.kind == "file":
            with refused_as_setting(f"cannot write {target.name}"):
                _check_file(target.name)
    if job.store.kind == "dir" and not job.store.is_remote:
        with refused_as_setting(f"cannot store state in {job.state}"):
            folders = (job.state, *job.state.absolute().parents)
            _check_folder(next(folder for folder in folders if os.path.lexists(folder)))


def _check_file(path: str) -> None:
    if not os.path.exists(path):
        # Where a symbolic link points; not that of a pipe, such as /dev/stdout, which has no path.
        _check_folder(Path(os.path.realpath(path)).parent)
    elif os.path.isfile(path):
        with open(path, "r+b") as file:
            _last_line_start(file, path)
    elif os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    elif not os.access(path, os.W_OK):
        # A FIFO is not opened, since closing it would end its reader.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_folder(folder: Path) -> None:
    """Raise an OSError if no file can be made in a folder."""
    # The file has no name, or has it for a moment where the file system requires one.
    with tempfile.TemporaryFile(dir=folder):
        pass


def _open_file(path: str) -> Any:
    """Open a file to append to, and lock it; truncate a last line that a crash left incomplete.

    A device, such as /dev/null, and a FIFO are not locked, and have no earlier lines.
    """
    with refused_as_setting(f"cannot write {path}"):
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            return _open_special_file(path)
        file = open(path, "a+b")  # noqa: SIM115
        try:
            if not lock(file.fileno(), path):
                raise SettingError(
                    f"{path}: another job writes to this file, and has locked it\n  hint: give "
                    "each job, and each of several consumers, its own output ([output] verdicts "
                    "and rejected; --to), or choose a topic"
                )
            _truncate_last_line(file, path)
        except BaseException:
            file.close()
            raise
        return file


def _truncate_last_line(file: Any, path: str) -> None:
    """Truncate a last line that has no newline; leave the file positioned at its end."""
    start = _last_line_start(file, path)
    end = file.seek(0, os.SEEK_END)
    file.seek(max(start, end - 1))
    if file.read() != b"\n":
        file.truncate(start)
    file.seek(0, os.SEEK_END)


def _last_line_start(file: Any, path: str) -> int:
    """Return where the last line of a file begins.

    A file whose last line is no verdict is another file, such as the pattern's, and is refused.
    """
    end: int = file.seek(0, os.SEEK_END)
    start = end
    while start > 0:
        start = max(0, start - _TAIL_BYTES)
        file.seek(start)
        newline = file.read(min(_TAIL_BYTES, end - 1 - start)).rfind(b"\n")
        if newline >= 0:
            start += newline + 1
            break
    file.seek(start)
    if not file.read(len(_LINE_PREFIX)).startswith(_LINE_PREFIX[: end - start]):
        raise SettingError(f"{path} does not end with a verdict: choose another file")
    return start


def _open_special_file(path: str) -> Any:
    """Open a device or a FIFO; refuse a FIFO without a reader, since opening it would block."""
    try:
        file = open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb")  # noqa: SIM115
    except OSError as fault:
        if fault.errno != errno.ENXIO:
            raise
        raise SettingError(
            f"cannot write {path}: this FIFO has no reader\n  hint: start its reader first"
        ) from None
    os.set_blocking(file.fileno(), True)
    return file
