"""`ketal broker` as users start it: its processes, its output, and the files it leaves behind."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ketal.cli import main
from ketal.errors import SettingError
from ketal.files.user_folders import cache_folder
from ketal.streaming.broker.folder import BrokerError, BrokerFolder
from ketal.streaming.broker.server import Broker, default_folder, is_serving
from ketal.streaming.broker.settings import free_port, is_free, properties_text
from tests.streaming.conftest import QUICK_JVM
from tests.streaming.jobs import until

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 180

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, jars: Path) -> Iterator[Start]:
    """Return a function that starts `ketal broker`; no broker is left behind."""
    started = []

    def process(*words: str, **environment: str) -> subprocess.Popen[str]:
        one = subprocess.Popen(
            [sys.executable, "-m", "ketal", "broker", *words],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "XDG_STATE_HOME": str(tmp_path / "stäte"),
                "JAVA_TOOL_OPTIONS": " ".join(QUICK_JVM),
                **environment,
            },
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(one)
        return one

    yield process
    for one in started:
        if one.poll() is None:
            one.kill()
        one.communicate()
    for lock in tmp_path.glob("**/lock"):
        broker = Broker(lock.parent)
        if broker.running() is not None:
            broker.kill()


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the address that a broker prints once it serves."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("bootstrap_servers=127.0.0.1:")
    return line.strip().split("=")[1]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# --- the command -----------------------------------------------------------------------


def test_start_and_stop_in_the_default_folder(start: Start, tmp_path: Path) -> None:
    """The default folder is in the user's state folder."""
    folder = tmp_path / "stäte" / "ketal" / "broker"
    code, out, err = finished(start("start"))
    assert code == 0, err
    name, address = out.strip().split("=")
    host, port = address.split(":")
    assert (name, host) == ("bootstrap_servers", "127.0.0.1")
    running = Broker(folder).running()
    assert running is not None
    assert running.bootstrap_servers == address
    assert err == f"ketal: process {running.pid} in {folder}; `ketal broker stop` stops it\n"
    socket.create_connection((host, int(port)), timeout=10).close()

    code, out, err = finished(start("start", "--port", "9092"))
    assert (code, out) == (2, "")
    assert err == (
        f"ketal: {folder}: a broker is already running here: process {running.pid}, "
        f"since {running.started}, bootstrap_servers={address}\n"
    )

    # The output is UTF-8 whatever the locale.
    stop = start("stop", PYTHONIOENCODING="ascii")
    assert finished(stop) == (0, f"stopped the broker in {folder}\n", "")
    assert is_free(int(port))
    assert "shut down completed" in Broker(folder).log.read_text()

    code, out, err = finished(start("stop"))
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"ketal: {folder}: no broker is running here",
        "  hint: use the --dir that it was started with",
    ]


def test_foreground_broker_runs_until_it_is_interrupted(start: Start, tmp_path: Path) -> None:
    """It ends on Ctrl-C, on SIGTERM, or with the broker itself; a folder runs one at a time."""
    folder = tmp_path / "a folder, mine"
    broker = Broker(folder)
    words = ("start", "--dir", str(folder))
    first = start(*words, "--foreground")
    until((folder / "broker.json").exists, patience_s=PATIENCE_S)
    rival = start(*words)
    address = address_of(first)
    code, out, err = finished(rival)
    assert (code, out) == (2, "")
    assert (
        "another process is starting a broker here" in err
        or "a broker is already running here" in err
    )
    first.send_signal(signal.SIGINT)
    code, out, err = finished(first)
    assert (code, out) == (130, f"stopped the broker in {folder}\n")
    assert err.endswith("; Ctrl-C stops it\n")
    assert broker.running() is None

    second = start(*words, "--foreground")
    # A restarted broker has the same address.
    assert address_of(second) == address
    second.terminate()
    assert finished(second)[:2] == (0, f"stopped the broker in {folder}\n")
    assert broker.running() is None

    third = start(*words, "--foreground")
    assert address_of(third) == address
    broker.kill()
    code, out, err = finished(third)
    assert (code, out) == (4, "")
    assert f"the broker ended by itself with exit code -9; see {broker.log}" in err

    hasty = Broker(folder, start_s=0.2)
    with pytest.raises(BrokerError, match=r"it did not serve within 0\.2 s"):
        hasty.start()
    assert hasty.running() is None
    assert hasty.bootstrap_servers == address
    assert is_free(int(address.split(":")[1]))


def test_terminating_the_start_command_ends_the_starting_broker(
    start: Start, tmp_path: Path
) -> None:
    broker = Broker(tmp_path / "kafka")
    process = start("start", "--dir", str(broker.folder))
    message = broker.folder / "broker.json"
    until(lambda: '"pid":null' not in (read(message) or '"pid":null'), patience_s=PATIENCE_S)
    process.terminate()
    code, out, _ = finished(process)
    assert (code, out) == (143, "")
    assert broker.running() is None
    with pytest.raises(BrokerError, match="no broker has been started here yet"):
        _ = broker.bootstrap_servers


@pytest.mark.parametrize("words", [("--port", "9092"), ("--property", "a=b"), ("--foreground",)])
def test_stop_refuses_options_of_start(start: Start, words: tuple[str, ...]) -> None:
    assert finished(start("stop", *words)) == (
        2,
        "",
        "ketal: `ketal broker stop` takes only --dir\n",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--port", "80000"), "port must be an integer from 1 to 65535, not 80000"),
        (
            ("--property", "num.partitions"),
            "--property 'num.partitions' is not of the form NAME=VALUE",
        ),
    ],
)
def test_wrong_options_of_start_are_refused(
    start: Start, words: tuple[str, ...], message: str
) -> None:
    code, out, err = finished(start("start", "--dir", "kafka", *words))
    assert (code, out) == (2, "")
    assert message in err


# --- starts that fail --------------------------------------------------------------------


def test_invalid_broker_property_is_reported_with_the_log_tail(jars: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path, properties={"num.partitions": "-3"}, jvm=QUICK_JVM)
    with pytest.raises(BrokerError) as raised:
        broker.start()
    first, *tail = str(raised.value).splitlines()
    assert first == (
        "the broker did not start: formatting its data ended with exit code 1; "
        f"{broker.log} ends with"
    )
    assert "Invalid value -3 for configuration num.partitions" in tail[-1]
    # A corrected start is not blocked by a half-formatted data folder.
    assert not (tmp_path / "data").exists()


def test_broker_that_exits_at_startup_is_reported_with_its_reason(
    jars: Path, tmp_path: Path
) -> None:
    """The data folder belongs to another node id."""
    broker = Broker(tmp_path, jvm=QUICK_JVM)
    (tmp_path / "lock").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(
        "version=1\nnode.id=7\ncluster.id=FSOrP2xMR3GEJhsq4UEmHA\n"
    )
    with pytest.raises(BrokerError) as raised:
        broker.start()
    first, *tail = str(raised.value).splitlines()
    assert first == f"the broker did not start: it ended with exit code 1; {broker.log} ends with"
    assert any("node id" in line or "node.id" in line for line in tail)
    assert not broker.is_own()
    assert broker.running() is None
    with pytest.raises(BrokerError, match="no broker is running here"):
        broker.stop()


def test_port_in_use_is_named_in_the_error(jars: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} is taken by another program"):
            Broker(tmp_path, port=port).start()


def test_folder_with_foreign_files_is_refused_and_left_untouched(
    jars: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("chapter 1")
    with pytest.raises(BrokerError, match=r"contains thesis\.tex, and is not a broker's folder"):
        Broker(tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# --- what a folder says --------------------------------------------------------------------


def test_reused_process_id_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    """The broker of this folder ended long ago, and the kernel gave its process id away."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        state = {"port": 9092, "pid": stranger.pid, "started": "2026-01-01T00:00:00Z"}
        (tmp_path / "broker.json").write_text(json.dumps(state))
        (tmp_path / "lock").touch()
        broker = Broker(tmp_path)
        assert broker.running() is None
        for end in (broker.stop, broker.kill):
            with pytest.raises(BrokerError, match="no broker is running here"):
                end()
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize(
    "text",
    ['{"port": 90', '{"a":' * 20_000, '{"port": 65536}', '{"port": -1}'],
    ids=["cut", "nested", "large", "negative"],
)
def test_unreadable_state_file_is_named_in_the_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(text)
    with pytest.raises(BrokerError, match=r"broker\.json is damaged"):
        _ = Broker(tmp_path).bootstrap_servers


def test_log_tail_starts_at_the_error_without_stack_frames(tmp_path: Path) -> None:
    folder = BrokerFolder(tmp_path)
    assert folder.log_tail() == []
    folder.log.write_text("one INFO begins\ntwo WARN goes on\nthree INFO ends\n")
    assert folder.log_tail(lines=2) == ["two WARN goes on", "three INFO ends"]
    folder.log.write_text(
        "one INFO begins\ntwo ERROR fails\n\tat Kafka.main(Kafka.scala)\n\t... 3 more\n"
        "Caused by: a reason\nthree INFO ends\n"
    )
    assert folder.log_tail() == ["two ERROR fails", "Caused by: a reason"]


def test_cache_and_state_folders_follow_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KETAL_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ketal"
    assert default_folder() == tmp_path / ".local" / "state" / "ketal" / "broker"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == tmp_path / ".cache" / "ketal"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert cache_folder() == tmp_path / "cache" / "ketal"
    assert default_folder() == tmp_path / "state" / "ketal" / "broker"
    monkeypatch.setenv("KETAL_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


# --- properties and probes -----------------------------------------------------------------


def test_properties_are_single_node_defaults_plus_user_settings() -> None:
    given = {"num.partitions": "4", "group.min.session.timeout.ms": "6", "a": " \\ü\b"}
    text = properties_text(port=1, controller_port=2, data="data", given=given)
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert lines["num.partitions"] == "4"
    assert lines["group.min.session.timeout.ms"] == "6"
    assert lines["offsets.topic.replication.factor"] == "1"
    assert lines["a"] == "\\u0020\\\\\\u00fc\\u0008"


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "log.dir", "node.id", "two words", ""])
def test_reserved_or_malformed_property_names_are_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"set by ketal itself|is not the name of a property"):
        properties_text(port=1, controller_port=2, data="data", given={name: "1"})


def test_broker_of_another_cluster_is_not_recognised(broker: Broker) -> None:
    port = int(broker.bootstrap_servers.split(":")[1])
    meta = (broker.folder / "data" / "meta.properties").read_text()
    cluster = next(line[11:] for line in meta.splitlines() if line.startswith("cluster.id="))
    assert is_serving(port, cluster)
    assert not is_serving(port, "another")


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\x08", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_server_that_is_not_kafka_is_not_recognised(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ketal.streaming.broker.server._ANSWER_MS", 1_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = threading.Thread(target=answer_each_connection, args=(server, answer))
        asked.start()
        try:
            assert not is_serving(server.getsockname()[1], "cluster")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            asked.join(PATIENCE_S)


def answer_each_connection(server: socket.socket, answer: bytes) -> None:
    """Send each connection the same answer, until the server is shut down."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)


def test_missing_kafka_python_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["broker", "start", "--dir", str(tmp_path)]) == 2
    assert "kafka-python is not installed: pip install 'ketal[stream]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
