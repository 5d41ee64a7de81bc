"""A real Kafka broker on this machine, for tests and for people who want to try.

One node, KRaft, in a folder of its own, which holds all there is of it (`BrokerFolder`).

The one rule: a broker that `start` has returned from serves; one that `stop` or `kill` has
returned from is gone.
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
from ketal.streaming.jvm.artifacts import KAFKA, jars_of
from ketal.streaming.jvm.java import Java, find_java

START_S = 120.0
"""How long a broker may take until it serves: 3 s on an idle machine, 16 s seen on a busy one."""
STOP_S = 30.0
"""How long a broker may take to end before it is killed."""

_ANSWER_MS = 5_000
_PORT_TRIES = 3
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=log4j2.properties")


class _PortTaken(BrokerError):
    """Another program took a port after it was chosen."""


def default_folder() -> Path:
    """Return the default folder of `ketal broker`."""
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
    start_s : float
        How long it may take to serve.
    notify : callable, optional
        Reports in one sentence what takes long.
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
            raise SettingError(f"port {port} is not from 1 to 65535")
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

    # --- asking ----------------------------------------------------------------------

    @property
    def log(self) -> Path:
        """The file that the broker logs to."""
        return self._folder.log

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients; the same after a restart."""
        state = self._folder.state()
        if state is None or not state.port:
            raise BrokerError(f"{self.folder}: no broker was ever started here")
        return state.bootstrap_servers

    def running(self) -> Running | None:
        """Return the broker that runs in this folder, if one does."""
        return self._folder.running()

    def is_own(self) -> bool:
        """Return whether a broker runs that this object started."""
        return self._process is not None and self._process.poll() is None

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
        if importlib.util.find_spec("kafka") is None:
            raise SettingError("kafka-python is not installed: pip install 'ketal[stream]'")
        self._folder.refuse_running()
        java = find_java()
        for reason in java.passed_over:
            self._notify(f"passed over: {reason}")
        jars = jars_of(KAFKA, java, notify=self._notify)
        self._folder.make()
        with self._folder.claimed() as lock:
            before = self._folder.state() or Running(0)
            for left in reversed(range(_PORT_TRIES)):
                port = self._prepared(java, jars, before)
                try:
                    return self._launched(java, jars, port, lock)
                except BaseException as error:
                    self._folder.write(before)
                    if not (left and isinstance(error, _PortTaken)):
                        raise
        raise AssertionError("the last try returns or raises")

    def _prepared(self, java: Java, jars: Path, before: Running) -> int:
        """Write the broker's properties, format its data if there is none; return its port."""
        port = self._port or before.port or free_port()
        if not is_free(port):
            had = "" if self._port else ", which this broker had before,"
            raise BrokerError(
                f"port {port}{had} is taken by another program\n  hint: --port names another"
            )
        # While the lock is held, a process that broker.json names is believed to be the broker.
        self._folder.write(replace(before, pid=None))
        while (controller_port := free_port()) == port:
            pass

        def put(data: str) -> None:
            text = properties_text(
                port=port, controller_port=controller_port, data=data, given=self._properties
            )
            replace_file(self.folder / "server.properties", text.encode("ascii"))

        replace_file(self.folder / "log4j2.properties", LOGGING.encode("ascii"))
        if not (self.folder / "data").exists():
            # It gets its name when it is whole: a start may be broken off at any point.
            shutil.rmtree(self.folder / "data.new", ignore_errors=True)
            put("data.new")
            self._format_data(java, jars)
            os.rename(self.folder / "data.new", self.folder / "data")
        put("data")
        return port

    def _spawned(
        self, java: Java, jars: Path, main: str, *words: str, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a class of Kafka, which logs to the broker's log."""
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
        # Kafka's ids are random UUIDs in base 64, whose first sign is a letter.
        number = (uuid.uuid4().int >> 1).to_bytes(16)
        cluster = base64.urlsafe_b64encode(number).rstrip(b"=").decode()
        words = ("format", "-t", cluster, "-c", "server.properties")
        process = self._spawned(java, jars, "kafka.tools.StorageTool", *words)
        try:
            code = process.wait(self._start_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"its data was not formatted after {self._start_s:g} s") from None
        finally:
            process.kill()
            process.wait()
        if code:
            raise self._failed(f"formatting its data ended with {code}")

    def _launched(self, java: Java, jars: Path, port: int, lock: int) -> Running:
        # Ctrl-C in a terminal is for whoever started it, who then ends it in order.
        options = {"start_new_session": True, "pass_fds": (lock,)}
        self._process = process = self._spawned(
            java, jars, "kafka.Kafka", "server.properties", **options
        )
        try:
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            state = Running(port, process.pid, now)
            self._folder.write(state)
            self._await(process, port)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return state

    def _await(self, process: subprocess.Popen[bytes], port: int) -> None:
        cluster = self._folder.cluster()
        deadline = time.monotonic() + self._start_s
        while not serves(port, cluster):
            code = process.poll()
            if code is not None:
                error = self._failed(f"it ended with {code}")
                taken = "Address already in use" in str(error)
                raise _PortTaken(str(error)) if taken else error
            if time.monotonic() > deadline:
                raise self._failed(f"it does not serve after {self._start_s:g} s")
            time.sleep(POLL_S)

    def _failed(self, what: str) -> BrokerError:
        tail = "".join(f"\n  {line}" for line in self._folder.log_tail())
        return BrokerError(f"the broker did not start: {what}; {self.log} ends with{tail}")

    # --- ending ----------------------------------------------------------------------

    def stop(self) -> bool:
        """End the broker that runs in order; return whether it had to be killed for that."""
        self._signalled(signal.SIGTERM)
        if self._gone():
            return False
        self.kill()
        return True

    def kill(self) -> None:
        """End the broker as `kill -9` does; what it has stored is there at its next start."""
        self._signalled(signal.SIGKILL)
        if not self._gone():
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

    def _gone(self) -> bool:
        deadline = time.monotonic() + STOP_S
        while self._folder.is_held():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        if self._process is not None:
            # Its own parent also gets its exit code.
            self._process.wait()
        return True


def serves(port: int, cluster: str) -> bool:
    """Return whether a broker of this cluster serves on a port.

    A broker listens before it serves: its port accepts connections while the controller still
    fences it, and a client finds no broker then. The cluster's id shows whether another Kafka
    listens there.
    """
    # To stop a broker no client of Kafka is loaded.
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    with contextlib.suppress(OSError, KafkaError):
        # A client would try a port where nobody listens yet again and again, in pauses of its own.
        socket.create_connection((HOST, port), timeout=_ANSWER_MS / 1e3).close()
        with KafkaAdminClient(
            bootstrap_servers=f"{HOST}:{port}", bootstrap_timeout_ms=_ANSWER_MS
        ) as admin:
            return bool(admin.describe_cluster()["cluster_id"] == cluster)
    return False
