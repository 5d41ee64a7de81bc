"""A real Kafka broker on this machine, for tests and for people who want to try.

One node, KRaft, in a folder of its own, which holds all there is of it:

    lock               held by the broker's process as long as it lives
    broker.json        its port; while it runs, its process and since when
    server.properties  what it was told at its last start
    broker.log         what it said since its last start
    data/              the topics; they stay when it stops or is killed

Whether a broker runs is asked of the kernel and not of a file: the one that starts it takes a lock
on `lock` and hands it down, so the lock is held exactly as long as the broker lives. The process
number in broker.json is believed only while the lock is held; a number that another process has
been given since is never sent a signal.

The one rule: a broker that `start` has returned from serves; one that `stop` or `kill` has
returned from is gone.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from ketal.errors import KetalError, SettingError
from ketal.streaming.broker.settings import HOST, LOGGING, free_port, is_free, properties_text
from ketal.streaming.folders import replaced, state_folder
from ketal.streaming.jvm.artifacts import KAFKA, jars_of
from ketal.streaming.jvm.java import Java, find_java

START_S = 120.0
"""How long a broker may take until it serves: 3 s on an idle machine, 16 s seen on a busy one."""
STOP_S = 30.0
"""How long a broker may take to end before it is killed."""

_POLL_S = 0.05
_CLAIM_S = 2.0
_PORT_TRIES = 3
_TAIL_LINES = 12
_WRONG = re.compile(
    r" (?:ERROR|FATAL) |^(?:Error|Exception|Caused by)\b|^[\w.$]+(?:Exception|Error)\b"
)
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=log4j2.properties")


class BrokerError(KetalError):
    """A broker that could not be started, or is not there to be stopped."""


class _PortTaken(BrokerError):
    """Between the look and the start another program took a port."""


@dataclass(frozen=True, slots=True)
class Running:
    """What broker.json says.

    Attributes
    ----------
    port : int
        Where clients connect; 0 if it never served.
    pid : int or None
        Its process; None while it is not yet there.
    started : str or None
        When that was: RFC 3339, UTC.
    """

    port: int
    pid: int | None = None
    started: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What a client connects to."""
        return f"{HOST}:{self.port}"


def default_folder() -> Path:
    """Return the folder of the broker that `ketal broker` starts when it is told none."""
    return state_folder() / "broker"


class Broker:
    """A broker in a folder; the folder is the broker, whichever process looks at it.

    As a context manager it is started, and stopped at the end.

    Parameters
    ----------
    folder : path
        Where all of it is; made if it is not there.
    port : int, optional
        Where clients connect; default the port it had before, at its first start a free one.
    properties : mapping of str to str, optional
        More of Kafka's broker properties.
    jvm : sequence of str
        More options for its Java.
    start_s, stop_s : float
        How long it may take to serve, and to end.
    say : callable, optional
        Is told in one sentence what takes long.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        start_s: float = START_S,
        stop_s: float = STOP_S,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if port is not None and not 1 <= port <= 65_535:
            raise SettingError(f"port {port} is not from 1 to 65535")
        self.folder = Path(folder).absolute()
        self._port = port
        self._properties = dict(properties or {})
        self._jvm = (*_JVM, *jvm)
        self._start_s, self._stop_s = start_s, stop_s
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running() is not None:
            self.stop()

    # --- asking ----------------------------------------------------------------------

    @property
    def log(self) -> Path:
        """The file that the broker logs to."""
        return self.folder / "broker.log"

    @property
    def bootstrap_servers(self) -> str:
        """What a client connects to; it stays the same when the broker is started again."""
        state = self._state()
        if state is None or not state.port:
            raise BrokerError(f"{self.folder}: no broker was ever started here")
        return state.bootstrap_servers

    def running(self) -> Running | None:
        """Return the broker that runs in this folder, if one does.

        Raises
        ------
        BrokerError
            If one is just being started by another process.
        """
        if not self._is_held():
            return None
        state = self._state()
        if state is None or state.pid is None:
            raise BrokerError(f"{self.folder}: a broker is just being started here")
        return state

    def is_own(self) -> bool:
        """Return whether a broker runs that this object started."""
        return self._process is not None and self._process.poll() is None

    def _is_held(self) -> bool:
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            # Shared: two that ask at the same time do not take each other for a broker.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def _state(self) -> Running | None:
        path = self.folder / "broker.json"
        try:
            return Running(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as fault:
            raise BrokerError(
                f"{path} does not tell of a broker ({fault})\n"
                "  hint: --dir names another folder; or remove this one, with its topics"
            ) from None

    def _write(self, state: Running) -> None:
        replaced(self.folder / "broker.json", (json.dumps(asdict(state)) + "\n").encode())

    # --- starting --------------------------------------------------------------------

    def start(self) -> Running:
        """Start the broker; return when it serves.

        Raises
        ------
        BrokerError
            If one runs in this folder already, or it does not come to serve; the message ends
            with what it logged.
        JavaError, ArtifactsError
            If there is no Java, or the jars could not be downloaded.
        SettingError
            If a property is not to be set, or kafka-python is not installed.
        """
        _require_client()
        self._refuse_running()
        java = find_java()
        for reason in java.passed_over:
            self._say(f"passed over: {reason}")
        jars = jars_of(KAFKA, java, say=self._say)
        self._make_folder()
        with self._claimed() as lock:
            before = self._state() or Running(0)
            for left in reversed(range(_PORT_TRIES)):
                port = self._prepared(java, jars, before)
                try:
                    return self._launched(java, jars, port, lock)
                except BaseException as error:
                    self._write(before)
                    if not (left and isinstance(error, _PortTaken)):
                        raise
        raise AssertionError("the last try returns or raises")

    def _refuse_running(self) -> None:
        if state := self.running():
            raise BrokerError(
                f"{self.folder}: a broker runs here already: process {state.pid}, "
                f"since {state.started}, bootstrap_servers={state.bootstrap_servers}"
            )

    def _make_folder(self) -> None:
        if self.folder.is_dir() and not (self.folder / "lock").exists():
            strangers = [path.name for path in self.folder.iterdir()]
            if strangers:
                raise BrokerError(
                    f"{self.folder}: holds {min(strangers)}, and is no broker's folder\n"
                    "  hint: --dir names an empty folder or one that is not there yet"
                )
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[int]:
        """Take the lock; the broker is given it, and holds it when this process lets go."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            deadline = time.monotonic() + _CLAIM_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    # One that only asks lets go at once.
                    if time.monotonic() > deadline:
                        self._refuse_running()
                time.sleep(_POLL_S)
            yield descriptor
        finally:
            os.close(descriptor)

    def _prepared(self, java: Java, jars: Path, before: Running) -> int:
        """Write what the broker reads, format its data if there is none; return its port."""
        port = self._port or before.port or free_port()
        if not is_free(port):
            had = "" if self._port else ", which this broker had before,"
            raise BrokerError(
                f"port {port}{had} is taken by another program\n  hint: --port names another"
            )
        # While the lock is held, a process that broker.json names is believed to be the broker.
        self._write(replace(before, pid=None))
        controller_port = free_port()
        while controller_port == port:
            controller_port = free_port()

        def put(data: str) -> None:
            text = properties_text(
                port=port, controller_port=controller_port, data=data, given=self._properties
            )
            replaced(self.folder / "server.properties", text.encode("ascii"))

        replaced(self.folder / "log4j2.properties", LOGGING.encode("ascii"))
        if not (self.folder / "data").exists():
            # It gets its name when it is whole: a start may be broken off at any point.
            shutil.rmtree(self.folder / "data.new", ignore_errors=True)
            put("data.new")
            self._format(java, jars)
            os.rename(self.folder / "data.new", self.folder / "data")
        put("data")
        return port

    def _command(self, java: Java, jars: Path, main: str, *words: str) -> list[str]:
        """Return the command that runs a class of Kafka."""
        return [str(java.executable), *self._jvm, "-cp", f"{jars}/*", main, *words]

    def _format(self, java: Java, jars: Path) -> None:
        words = ("format", "-t", _new_id(), "-c", "server.properties")
        with open(self.log, "wb") as log:
            try:
                done = subprocess.run(
                    self._command(java, jars, "kafka.tools.StorageTool", *words),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    check=False,
                    timeout=self._start_s,
                )
            except subprocess.TimeoutExpired:
                raise self._failed(
                    f"its data was not formatted after {self._start_s:g} s"
                ) from None
        if done.returncode:
            raise self._failed(f"formatting its data ended with {done.returncode}")

    def _launched(self, java: Java, jars: Path, port: int, lock: int) -> Running:
        self._process = None
        try:
            with open(self.log, "wb") as log:
                self._process = subprocess.Popen(
                    self._command(java, jars, "kafka.Kafka", "server.properties"),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in a terminal is for whoever started it, who then ends it in order.
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            state = Running(port, self._process.pid, now)
            self._write(state)
            self._await(self._process, port)
        except BaseException:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            raise
        return state

    def _await(self, process: subprocess.Popen[bytes], port: int) -> None:
        # To stop a broker no client of Kafka is loaded.
        from ketal.streaming.broker.probing import serves

        cluster = self._cluster()
        deadline = time.monotonic() + self._start_s
        while not serves(HOST, port, cluster):
            code = process.poll()
            if code is not None:
                error = self._failed(f"it ended with {code}")
                taken = "Address already in use" in str(error)
                raise _PortTaken(str(error)) if taken else error
            if time.monotonic() > deadline:
                raise self._failed(f"it does not serve after {self._start_s:g} s")
            time.sleep(_POLL_S)

    def _cluster(self) -> str:
        """Return the id that the data was formatted with."""
        path = self.folder / "data" / "meta.properties"
        found = re.search(r"^cluster\.id=(\S+)$", path.read_text(), re.MULTILINE)
        if found is None:
            raise BrokerError(f"{path} names no cluster")
        return found[1]

    def _failed(self, what: str) -> BrokerError:
        tail = "".join(f"\n  {line}" for line in self.log_tail())
        return BrokerError(f"the broker did not start: {what}; {self.log} ends with{tail}")

    def log_tail(self, lines: int = _TAIL_LINES) -> list[str]:
        """Return the last lines of the log: of its errors if it has any, else of all it says."""
        try:
            said = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        # A trace of fifty frames says less than the sentences above and between them.
        said = [line for line in said if not line.lstrip().startswith(("at ", "... "))]
        first = next((n for n, line in enumerate(said) if _WRONG.search(line)), None)
        if first is not None:
            said = [line for line in said[first:] if " INFO " not in line and line.strip()]
        return said[-lines:]

    # --- ending ----------------------------------------------------------------------

    def stop(self) -> bool:
        """End the broker in order; return whether it had to be killed for that.

        Raises
        ------
        BrokerError
            If none runs in this folder.
        """
        self._signalled(signal.SIGTERM)
        if self._gone(self._stop_s):
            return False
        self.kill()
        return True

    def kill(self) -> None:
        """End the broker at once, as `kill -9` does; what it has stored is there at its next start.

        Raises
        ------
        BrokerError
            If none runs in this folder.
        """
        self._signalled(signal.SIGKILL)
        if not self._gone(self._stop_s):
            raise BrokerError(f"{self.folder}: the broker's process cannot be killed")

    def restart(self) -> Running:
        """Stop the broker if it runs; start it with the same folder and port."""
        if self.running() is not None:
            self.stop()
        return self.start()

    def wait(self) -> int:
        """Wait until the broker that this object started has ended; return its exit code."""
        assert self._process is not None, "another process started this broker"
        return self._process.wait()

    def _signalled(self, number: signal.Signals) -> None:
        state = self.running()
        if state is None or state.pid is None:
            raise BrokerError(
                f"{self.folder}: no broker runs here\n"
                "  hint: --dir names the folder that it was started with"
            )
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)

    def _gone(self, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while self._is_held():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        if self._process is not None:
            # Its own parent is also told how it ended.
            self._process.wait()
        return True


def _require_client() -> None:
    if importlib.util.find_spec("kafka") is None:
        raise SettingError("kafka-python is not installed: pip install 'ketal[stream]'")


def _new_id() -> str:
    """Return an id as Kafka makes them: a random UUID in base 64 that looks like no option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
