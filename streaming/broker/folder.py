"""The folder of a broker: its lock, its state, its log.

    lock               held by the broker's process as long as it lives
    broker.json        its port; while it runs, its process and since when
    server.properties  its properties at its last start
    broker.log         its log since its last start
    data/              the topics; they stay when it stops or is killed

Whether a broker runs is asked of the kernel and not of a file: the one that starts it takes a lock
on `lock` and hands it down, so the lock is held exactly as long as the broker lives. The process
number in broker.json is believed only while the lock is held; a number that another process has
been given since is never sent a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ketal.errors import KetalError
from ketal.files.file_locks import try_lock
from ketal.files.file_replacement import replace_file
from ketal.streaming.broker.settings import HOST

POLL_S = 0.05
"""How often it is looked whether a process has started or ended."""
_CLAIM_S = 2.0
_TAIL_LINES = 12
_WRONG = re.compile(
    r" (?:ERROR|FATAL) |^(?:Error|Exception|Caused by)\b|^[\w.$]+(?:Exception|Error)\b"
)


class BrokerError(KetalError):
    """A broker that could not be started, or is not there to be stopped."""


@dataclass(frozen=True, slots=True)
class Running:
    """What broker.json says."""

    port: int
    """Where clients connect; 0 if it never served."""
    pid: int | None = None
    """Its process; None while it is not yet there."""
    started: str | None = None
    """When that was: RFC 3339, UTC."""

    @property
    def bootstrap_servers(self) -> str:
        """What a client connects to."""
        return f"{HOST}:{self.port}"


class BrokerFolder:
    """A broker's folder, whichever process looks at it; `make` makes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        """The file that the broker logs to."""
        return self.path / "broker.log"

    def is_held(self) -> bool:
        """Return whether a broker lives, or is just being started."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            # Shared: two that ask at the same time do not take each other for a broker.
            return not try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)

    def state(self) -> Running | None:
        """Return the state in broker.json, None without one; a BrokerError if it is damaged."""
        path = self.path / "broker.json"
        try:
            return Running(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as fault:
            raise BrokerError(
                f"{path} does not tell of a broker ({fault})\n"
                "  hint: --dir names another folder; or remove this one, with its topics"
            ) from None

    def write(self, state: Running) -> None:
        """Write broker.json."""
        replace_file(self.path / "broker.json", (json.dumps(asdict(state)) + "\n").encode())

    def running(self) -> Running | None:
        """Return the broker that runs in this folder, if one does.

        Raises
        ------
        BrokerError
            If one is just being started by another process.
        """
        if not self.is_held():
            return None
        state = self.state()
        if state is None or state.pid is None:
            raise BrokerError(f"{self.path}: a broker is just being started here")
        return state

    def refuse_running(self) -> None:
        """Raise a BrokerError if a broker runs here."""
        if state := self.running():
            raise BrokerError(
                f"{self.path}: a broker runs here already: process {state.pid}, "
                f"since {state.started}, bootstrap_servers={state.bootstrap_servers}"
            )

    def make(self) -> None:
        """Make the folder; raise a BrokerError if it is there and is no broker's."""
        if self.path.is_dir() and not (self.path / "lock").exists():
            strangers = [path.name for path in self.path.iterdir()]
            if strangers:
                raise BrokerError(
                    f"{self.path}: holds {min(strangers)}, and is no broker's folder\n"
                    "  hint: --dir names an empty folder or one that is not there yet"
                )
        self.path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[int]:
        """Take the lock; the broker inherits it, and has it when this process has closed it."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            deadline = time.monotonic() + _CLAIM_S
            while not try_lock(descriptor):
                # Who only asks closes the file at once.
                if time.monotonic() > deadline:
                    self.refuse_running()
                time.sleep(POLL_S)
            yield descriptor
        finally:
            os.close(descriptor)

    def cluster(self) -> str:
        """Return the id that the data was formatted with."""
        path = self.path / "data" / "meta.properties"
        cluster = re.search(r"^cluster\.id=(\S+)$", path.read_text(), re.MULTILINE)
        if cluster is None:
            raise BrokerError(f"{path} names no cluster")
        return cluster[1]

    def log_tail(self, lines: int = _TAIL_LINES) -> list[str]:
        """Return the last lines of the log: of its errors if it has any, else of all."""
        try:
            log = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        # The frames of a trace say less than the lines above and between them.
        log = [line for line in log if not line.lstrip().startswith(("at ", "... "))]
        first = next((n for n, line in enumerate(log) if _WRONG.search(line)), None)
        if first is not None:
            log = [line for line in log[first:] if " INFO " not in line and line.strip()]
        return log[-lines:]
