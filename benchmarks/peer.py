"""Other engines, each behind a small Java harness (`benchmarks/peers`).

The jars of Esper and Flink are downloaded like those of Kafka (`ketal.streaming.jvm.artifacts`),
those of Siddhi are in a wheel that pip downloads, and the harnesses are compiled by the Eclipse
compiler, which needs no JDK; all of them are cached in ketal's cache folder.

The one rule: a peer gets the same query on the same events. A harness prints the number of matches
and a digest of their events, and both must equal ketal's.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from benchmarks.measuring import Inspection, Run
from ketal.files.user_folders import cache_folder
from ketal.streaming.jvm.artifacts import Artifacts, fetch_jars
from ketal.streaming.jvm.java import Java, find_java

SOURCES = Path(__file__).parent / "peers"
ESPER, FLINK = "9.0.0", "2.2.1"
SIDDHI, SIDDHI_WHEEL = "5.1.7", "PySiddhi==5.1.0"
JARS = {
    "Esper": Artifacts(
        f"esper-{ESPER}",
        tuple(f"com.espertech:esper-{part}:{ESPER}" for part in ("common", "compiler", "runtime")),
    ),
    "Flink": Artifacts(
        f"flink-cep-{FLINK}",
        tuple(f"org.apache.flink:flink-{part}:{FLINK}" for part in ("cep", "clients")),
    ),
}
COMPILER = Artifacts("ecj-3.38.0", ("org.eclipse.jdt:ecj:3.38.0",))
VERSIONS = {"Esper": ESPER, "Flink": FLINK, "Siddhi": SIDDHI}
# The serial collector takes the least CPU time. Flink's serialisers need access to java.base.
OPTIONS = (
    *("-Xms1g", "-Xmx3g", "-XX:+UseSerialGC"),
    *(f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in ("lang", "util", "time")),
)


@dataclass(frozen=True, slots=True)
class Query:
    """A sequence of event types, as a query for ketal and its peers.

    Attributes
    ----------
    strategy : str
        `any` or `next`.
    steps : str
        The types, a letter each.
    window_ms : int
        The window: the last event is less than this after the first.
    keyed : str
        `partition`: all events have the same key. `equal`: `other` of the last event is the key of
        the first. `-`: neither.
    """

    strategy: str
    steps: str
    window_ms: int
    keyed: str = "-"

    @property
    def pattern(self) -> str:
        """The query as a pattern of ketal."""
        steps = list(self.steps)
        events = "".join(f'event {kind} = type == "{kind}"; ' for kind in self.steps)
        if self.keyed == "equal":
            steps[-1] = "Last"
            events += f"Last = {self.steps[-1]} && other == {steps[0]}.key; "
        partition = "partition by key; " if self.keyed == "partition" else ""
        return (
            f"pattern P {{ {partition}{events}find {self.strategy} {' '.join(steps)}; "
            f"within {self.window_ms} ms; }}"
        )


class Peer:
    """A running harness, which answers each line of input with a run.

    Parameters
    ----------
    name : str
        `Esper`, `Flink` or `Siddhi`.
    query : Query
        The query.
    events : Path
        The file of events.
    count : int
        How many events there are.
    unit : str
        What the rate counts: `events` or `matches`.
    """

    def __init__(
        self, name: str, query: Query, events: Path, count: int, *, unit: str = "events"
    ) -> None:
        self.name = name
        self._count = count
        self._unit = unit
        java = find_java()
        arguments = (query.strategy, ",".join(query.steps), str(query.window_ms), query.keyed)
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [
                *(str(java.executable), *OPTIONS, "-cp", class_path(name)),
                *(f"peers.{name}Harness", str(events), *arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._await("ready")

    def run(self) -> Run:
        """Process all events once."""
        matches, _, clock_ns, core_ns = self._ask("run")
        units = matches if self._unit == "matches" else self._count
        return Run(units, clock_ns / 1e9, core_ns / 1e9, matches, self._count)

    def inspect(self) -> Inspection:
        """Return the matches found."""
        matches, digest, _, _ = self._ask("inspect")
        return Inspection(matches, digest)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> list[int]:
        """Return the four numbers of a run."""
        pipe: IO[str] = self._process.stdin  # type: ignore[assignment]
        pipe.write(f"{line}\n")
        pipe.flush()
        return list(map(int, self._await(r"\d+ -?\d+ \d+ \d+").split()))

    def _await(self, form: str) -> str:
        """Return the next line that matches the form; lines that libraries print are skipped."""
        pipe: IO[str] = self._process.stdout  # type: ignore[assignment]
        for line in pipe:
            if re.fullmatch(form, line.strip()):
                return line.strip()
        raise SystemExit(f"{self.name} ended with {self._process.wait()}")


@cache
def class_path(name: str) -> str:
    """Return the class path of a harness, downloaded and compiled if it is not cached."""
    java = find_java()
    jars = siddhi_jars() if name == "Siddhi" else fetch_jars(JARS[name], java, notify=print)
    path = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
    sources = [SOURCES / "Harness.java", SOURCES / f"{name}Harness.java"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    classes = cache_folder() / "benchmarks" / f"{name}-{digest.hexdigest()[:12]}"
    if not classes.exists():
        compile_harness(java, sources, path, classes)
    return f"{classes}{os.pathsep}{path}"


def compile_harness(java: Java, sources: list[Path], path: str, classes: Path) -> None:
    """Compile sources into a folder, which is created atomically."""
    (jar,) = fetch_jars(COMPILER, java, notify=print).glob("*.jar")
    working = classes.with_name(f"{classes.name}-{os.getpid()}")
    subprocess.run(
        [
            *(str(java.executable), "-jar", str(jar), "-17", "-proc:none", "-nowarn"),
            *("-cp", path, "-d", str(working), *map(str, sources)),
        ],
        check=True,
    )
    working.rename(classes)


def siddhi_jars() -> Path:
    """Return the folder of Siddhi's jars; download their wheel if they are not cached."""
    folder = cache_folder() / "jars" / f"siddhi-{SIDDHI}"
    if folder.exists():
        return folder
    working = folder.with_name(f"{folder.name}-{os.getpid()}")
    working.mkdir(parents=True)
    print(f"downloading {SIDDHI_WHEEL} into {folder}, once")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary=:all:", "--dest", str(working), SIDDHI_WHEEL),
        ],
        check=True,
    )
    for wheel in working.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".jar"):
                    (working / Path(member).name).write_bytes(archive.read(member))
        wheel.unlink()
    working.rename(folder)
    return folder


def java_version() -> str:
    """Return the name and version of the Java that runs the peers, in one line."""
    words: Any = [find_java().executable, "-XshowSettings:properties", "-version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    text = done.stderr + done.stdout
    found = [re.search(rf"^\s*java\.vm\.{key} = (.*)$", text, re.M) for key in ("name", "version")]
    return " ".join(one[1] for one in found if one)
