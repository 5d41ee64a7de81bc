"""A real Kafka broker on this machine, for tests and for users who want to try something.

It is a KRaft cluster of one node, all of whose files are in one folder (`BrokerFolder`).

The one rule: when `start` has returned, the broker serves; when `stop` or `kill` has returned, its
process has ended.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ketal.errors import SettingError
from ketal.files.file_replacement import replace_file
from ketal.files.user_folders import state_folder
from ketal.streaming.broker.folder import POLL_S, BrokerError, BrokerFolder, Running
from ketal.streaming.broker.settings import HOST, LOGGING, free_port, is_free, properties_text
from ketal.streaming.jvm.artifacts import KAFKA, fetch_jars
from ketal.streaming.jvm.java import Java, find_java

START_S = 120.0
"""How long a broker may take to start: it took 3 s on an idle machine, up to 16 s on a busy one."""
STOP_S = 30.0
"""How long a broker may take to end before it is killed."""

_ANSWER_MS = 5_000
_PORT_TRIES = 3
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=log4j2.properties")


class _PortTaken(BrokerError):
    """Another program took the port between its choice and the broker's start."""


def default_folder() -> Path:
    """Return the default folder of `ketal broker`."""
    return state_folder() / "broker"


class Broker:
    """A broker, identified by its folder: any process can control it by naming the folder.

    As a context manager it starts the broker, and stops it at the end.

    Parameters
    ----------
    folder : path
        The folder for all files of the broker; made if it does not exist.
    port : int, optional
        The port for clients; by default that of the last start, at the first start a free port.
    properties : mapping of str to str, optional
        Additional broker properties of Kafka.
    jvm : sequence of str
        Additional options for Java.
    start_s : float
        How many seconds the broker may take until it serves.
    notify : callable, optional
        Called with one sentence about each step that may take long.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        start_s: float = START_S,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        if port is not None and not 1 <= port <= 65_535:
            raise SettingError(f"port must be an integer from 1 to 65535, not {port}")
        self.folder = Path(folder).absolute()
        self._folder = BrokerFolder(self.folder)
        self._port = port
        self._properties = dict(properties or {})
        self._jvm = (*_JVM, *jvm)
        self._start_s = start_s
        self._notify = notify
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running() is not None:
            self.stop()

    # --- state -----------------------------------------------------------------------

    @property
    def log(self) -> Path:
        """The file that the broker logs to."""
        return self._folder.log

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, which stays the same after a restart."""
        state = self._folder.state()
        if state is None or not state.port:
            raise BrokerError(f"{self.folder}: no broker has been started here yet")
        return state.bootstrap_servers

    def running(self) -> Running | None:
        """Return the broker that runs in this folder; None if none does."""
        return self._folder.running()

    def is_own(self) -> bool:
        """Return whether a broker runs, and this object started it."""
        return self._process is not None and self._process.poll() is None

    # --- starting --------------------------------------------------------------------

    def start(self) -> Running:
        """Start the broker; return when it serves.

        Raises
        ------
        BrokerError
            If a broker runs in this folder already; or if it does not serve within `start_s`, and
            then the message ends with the end of its log.
        JavaError, ArtifactsError
            If there is no Java, or the jars could not be downloaded.
        SettingError
            If `properties` has one that only ketal may set, or kafka-python is not installed.
        """
        if importlib.util.find_spec("kafka") is None:
            raise SettingError("kafka-python is not installed: pip install 'ketal[stream]'")
        self._folder.refuse_running()
        java = find_java()
        for reason in java.passed_over:
            self._notify(f"skipped {reason}")
        jars = fetch_jars(KAFKA, java, notify=self._notify)
        self._folder.make()
        with self._folder.locked() as lock:
            before = self._folder.state() or Running(0)
            for left in reversed(range(_PORT_TRIES)):
                port = self._prepare(java, jars, before)
                try:
                    return self._launch(java, jars, port, lock)
                except BaseException as error:
                    self._folder.write(before)
                    if not (left and isinstance(error, _PortTaken)):
                        raise
        raise AssertionError("the last try returns or raises")

    def _prepare(self, java: Java, jars: Path, before: Running) -> int:
        """Write the broker's properties, and format its data if there is none; return its port."""
        port = self._port or before.port or free_port()
        if not is_free(port):
            had = "" if self._port else ", which this broker used before,"
            raise BrokerError(
                f"port {port}{had} is taken by another program\n  hint: choose another --port"
            )
        # While the lock is held, a process id in broker.json counts as the broker's.
        self._folder.write(replace(before, pid=None))
        while (controller_port := free_port()) == port:
            pass

        def write_properties(data: str) -> None:
            text = properties_text(
                port=port, controller_port=controller_port, data=data, given=self._properties
            )
            replace_file(self.folder / "server.properties", text.encode("ascii"))

        replace_file(self.folder / "log4j2.properties", LOGGING.encode("ascii"))
        if not (self.folder / "data").exists():
            # The folder is renamed when it is complete, since a start may be interrupted any time.
            shutil.rmtree(self.folder / "data.new", ignore_errors=True)
            write_properties("data.new")
            self._format_data(java, jars)
            os.rename(self.folder / "data.new", self.folder / "data")
        write_properties("data")
        return port

    def _spawn(
        self, java: Java, jars: Path, main: str, *words: str, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a process that runs a main class of Kafka and writes to the broker's log."""
        with open(self.log, "wb") as log:
            return subprocess.Popen(
                [str(java.executable), *self._jvm, "-cp", f"{jars}/*", main, *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **options,
            )

    def _format_data(self, java: Java, jars: Path) -> None:
        # Kafka's ids are random UUIDs in base 64, whose first character is a letter.
        number = (uuid.uuid4().int >> 1).to_bytes(16)
        cluster = base64.urlsafe_b64encode(number).rstrip(b"=").decode()
        words = ("format", "-t", cluster, "-c", "server.properties")
        process = self._spawn(java, jars, "kafka.tools.StorageTool", *words)
        try:
            code = process.wait(self._start_s)
        except subprocess.TimeoutExpired:
            raise self._start_error(
                f"formatting its data took more than {self._start_s:g} s"
            ) from None
        finally:
            process.kill()
            process.wait()
        if code:
            raise self._start_error(f"formatting its data ended with exit code {code}")

    def _launch(self, java: Java, jars: Path, port: int, lock: int) -> Running:
        # Ctrl-C in a terminal must reach the starting process only, which then stops the broker.
        options = {"start_new_session": True, "pass_fds": (lock,)}
        self._process = process = self._spawn(
            java, jars, "kafka.Kafka", "server.properties", **options
        )
        try:
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            state = Running(port, process.pid, now)
            self._folder.write(state)
            self._wait_until_serving(process, port)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return state

    def _wait_until_serving(self, process: subprocess.Popen[bytes], port: int) -> None:
        cluster = self._folder.cluster()
        deadline = time.monotonic() + self._start_s
        while not is_serving(port, cluster):
            code = process.poll()
            if code is not None:
                error = self._start_error(f"it ended with exit code {code}")
                taken = "Address already in use" in str(error)
                raise _PortTaken(str(error)) if taken else error
            if time.monotonic() > deadline:
                raise self._start_error(f"it did not serve within {self._start_s:g} s")
            time.sleep(POLL_S)

    def _start_error(self, what: str) -> BrokerError:
        tail = "".join(f"\n  {line}" for line in self._folder.log_tail())
        return BrokerError(f"the broker did not start: {what}; {self.log} ends with{tail}")

    # --- ending ----------------------------------------------------------------------

    def stop(self) -> bool:
        """Shut the running broker down; return whether it had to be killed, after `STOP_S`."""
        self._send_signal(signal.SIGTERM)
        if self._wait_until_ended():
            return False
        self.kill()
        return True

    def kill(self) -> None:
        """Kill the broker as `kill -9` does; its stored messages are there after the next start."""
        self._send_signal(signal.SIGKILL)
        if not self._wait_until_ended():
            raise BrokerError(f"{self.folder}: the broker's process cannot be killed")

    def restart(self) -> Running:
        """Stop the broker if it runs, and start it again in the same folder at the same port."""
        if self.running() is not None:
            self.stop()
        return self.start()

    def wait(self) -> int:
        """Wait until the broker that this object started ends; return its exit code."""
        assert self._process is not None, "another process started this broker"
        return self._process.wait()

    def _send_signal(self, number: signal.Signals) -> None:
        state = self.running()
        if state is None or state.pid is None:
            raise BrokerError(
                f"{self.folder}: no broker is running here\n"
                "  hint: use the --dir that it was started with"
            )
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)

    def _wait_until_ended(self) -> bool:
        deadline = time.monotonic() + STOP_S
        while self._folder.is_held():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        if self._process is not None:
            # The parent process must collect the exit code, or the broker stays a zombie.
            self._process.wait()
        return True


def is_serving(port: int, cluster: str) -> bool:
    """Return whether a broker of this cluster serves on a port.

    A broker listens before it serves: its port accepts connections while the controller still
    fences the broker, and then a client finds no broker. The cluster id shows whether another Kafka
    listens on the port.
    """
    # Imported here, so that stopping a broker does not load a Kafka client.
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    with contextlib.suppress(OSError, KafkaError):
        # Where nobody listens yet, a Kafka client would retry for a long time with its own pauses.
        socket.create_connection((HOST, port), timeout=_ANSWER_MS / 1e3).close()
        with KafkaAdminClient(
            bootstrap_servers=f"{HOST}:{port}", bootstrap_timeout_ms=_ANSWER_MS
        ) as admin:
            return bool(admin.describe_cluster()["cluster_id"] == cluster)
    return False
