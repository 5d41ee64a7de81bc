"""The folder of a broker: its lock, its state, its log.

    lock               locked by the broker's process as long as it lives
    broker.json        its port; while it runs, its process id and the time of its start
    server.properties  its properties at its last start
    broker.log         its log since its last start
    data/              the topics; they stay when it stops or is killed

Whether a broker runs is known from the lock, and not from the content of a file: the process that
starts the broker locks the file `lock`, and the broker inherits the lock, so the kernel holds it
exactly as long as the broker lives. The process id in broker.json is used only while the lock is
held, so that a process which was given the same id later is never sent a signal.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from ketal.errors import KetalError, refused_as_setting
from ketal.files.file_locks import try_lock
from ketal.files.file_replacement import replace_file
from ketal.streaming.broker.settings import HOST

POLL_S = 0.05
"""How often to check whether a process has started or ended."""
_CLAIM_S = 2.0
_TAIL_LINES = 12
_ERROR_LINE = re.compile(
    r" (?:ERROR|FATAL) |^(?:Error|Exception|Caused by)\b|^[\w.$]+(?:Exception|Error)\b"
)


class BrokerError(KetalError):
    """A broker could not be started, or there is none to stop."""


@dataclass(frozen=True, slots=True)
class Running:
    """The content of broker.json."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    """The port for clients; 0 if the broker never served."""
    pid: int | None = None
    """The id of the broker's process; None before it is started."""
    started: str | None = None
    """The time of the start: RFC 3339, UTC."""

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"


class BrokerFolder:
    """The folder of a broker; any process can use it to find the broker. `make` makes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        """The file that the broker logs to."""
        return self.path / "broker.log"

    def is_held(self) -> bool:
        """Return whether a broker runs or is being started."""
        try:
            with open(self.path / "lock", "rb") as file:
                # Shared: two processes that check at once do not take each other for a broker.
                return not try_lock(file.fileno(), shared=True)
        except FileNotFoundError:
            return False

    def state(self) -> Running | None:
        """Return the content of broker.json; None if there is none.

        Raises a BrokerError if the file is damaged.
        """
        path = self.path / "broker.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Running)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as fault:
            raise BrokerError(
                f"{path} is damaged ({fault})\n"
                "  hint: use another folder (--dir), or remove this one, with its topics"
            ) from None

    def write(self, state: Running) -> None:
        """Write broker.json."""
        replace_file(self.path / "broker.json", msgspec.json.encode(state) + b"\n")

    def running(self) -> Running | None:
        """Return the broker that runs in this folder; None if none does.

        Raises a BrokerError if another process is just starting a broker.
        """
        if not self.is_held():
            return None
        state = self.state()
        if state is None or state.pid is None:
            raise BrokerError(f"{self.path}: another process is starting a broker here")
        return state

    def refuse_running(self) -> None:
        """Raise a BrokerError if a broker runs here."""
        if state := self.running():
            raise BrokerError(
                f"{self.path}: a broker is already running here: process {state.pid}, "
                f"since {state.started}, bootstrap_servers={state.bootstrap_servers}"
            )

    def make(self) -> None:
        """Make the folder; raise a BrokerError if it exists, has files, and is not a broker's."""
        if self.path.is_dir() and not (self.path / "lock").exists():
            other_files = [path.name for path in self.path.iterdir()]
            if other_files:
                raise BrokerError(
                    f"{self.path} contains {min(other_files)}, and is not a broker's folder\n"
                    "  hint: use --dir with an empty folder, or one that does not exist yet"
                )
        with refused_as_setting(f"cannot create {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Take the lock; a broker that inherits the descriptor keeps it after this context ends."""
        with open(self.path / "lock", "ab") as file:
            deadline = time.monotonic() + _CLAIM_S
            while not try_lock(file.fileno()):
                # A process that only checks the lock (`is_held`) releases it at once.
                if time.monotonic() > deadline:
                    self.refuse_running()
                time.sleep(POLL_S)
            yield file.fileno()

    def cluster(self) -> str:
        """Return the cluster id that the data was formatted with."""
        path = self.path / "data" / "meta.properties"
        cluster = re.search(r"^cluster\.id=(\S+)$", path.read_text(), re.MULTILINE)
        if cluster is None:
            raise BrokerError(f"{path} is damaged: it has no cluster.id")
        return cluster[1]

    def log_tail(self, lines: int = _TAIL_LINES) -> list[str]:
        """Return the last lines of the log, from its first error on if it has one.

        Stack frames are left out, and after an error also lines of level INFO.
        """
        try:
            log = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        log = [line for line in log if not line.lstrip().startswith(("at ", "... "))]
        first = next((n for n, line in enumerate(log) if _ERROR_LINE.search(line)), None)
        if first is not None:
            log = [line for line in log[first:] if " INFO " not in line and line.strip()]
        return log[-lines:]
