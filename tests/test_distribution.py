"""The distribution contains each module once and runs in an empty environment without Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS_ABOVE = ("grammar", "operators", "streaming")
PAPERS = ("pyproject.toml", "README.md", "LICENSE")

# One worker builds the distribution once for all these tests.
pytestmark = pytest.mark.xdist_group("distribution")


@dataclass(frozen=True)
class Built:
    """The built files, and a folder to work in."""

    folder: Path
    sdist: Path
    wheel: Path


def call(*words: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, target: Path) -> Path:
    """Build an sdist or a wheel with the build tools of this environment."""
    call(
        *(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", target),
        cwd=source,
    )
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("distribution")
    tree = folder / "tree"
    for top in ("ketal", *ROOMS_ABOVE):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / top, tree / top, symlinks=True, ignore=skip)
    for name in PAPERS:
        shutil.copy(ROOT / name, tree / name)
    return Built(
        folder, build("sdist", tree, folder / "sdist"), build("wheel", tree, folder / "wheel")
    )


def in_tree() -> dict[str, str]:
    """Return every file that a user needs: its path under `ketal/` and its path in the tree."""
    files = {}
    for top in ("ketal", *ROOMS_ABOVE):
        for folder, _, names in os.walk(ROOT / top):  # links are not followed
            for name in names:
                if Path(folder).name != "__pycache__":
                    here = (Path(folder) / name).relative_to(ROOT).as_posix()
                    files[here if top == "ketal" else f"ketal/{here}"] = here
    return files


def test_wheel_contains_each_file_once(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert Counter(names) == Counter(list(in_tree()))
    assert {"ketal/py.typed", "ketal/grammar/pattern.lark"} <= set(names)


def test_sdist_contains_each_file_once(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        files = [member.name.partition("/")[2] for member in archive if not member.isdir()]
    tops = ("ketal/", *(f"{room}/" for room in ROOMS_ABOVE))
    assert Counter(name for name in files if name.startswith(tops)) == Counter(in_tree().values())
    assert set(PAPERS) <= set(files)


def test_sdist_builds_the_same_wheel(built: Built) -> None:
    source = built.folder / "unpacked"
    with tarfile.open(built.sdist) as archive:
        archive.extractall(source, filter="data")
    (project,) = source.iterdir()
    again = build("wheel", project, built.folder / "again")
    with zipfile.ZipFile(built.wheel) as one, zipfile.ZipFile(again) as other:
        assert sorted((info.filename, info.CRC) for info in one.infolist()) == sorted(
            (info.filename, info.CRC) for info in other.infolist()
        )


PATTERN = """\
pattern Conflict {
    order CausalOrder;
    event Write = type == "write";
    First  = Write;
    Second = Conc(Write) && key == First.key;
    find any First Second;
}
"""
LOG = """\
{"node":"a","type":"write","clock":{"a":1},"data":{"key":"x"}}
{"node":"b","type":"write","clock":{"b":1},"data":{"key":"x"}}
{"node":"b","type":"write","clock":{"a":1,"b":2},"data":{"key":"x"}}
"""


def test_wheel_runs_in_an_empty_environment_without_java(built: Built) -> None:
    """The steps of a new user: install, write a pattern, run it over a log, read a match."""
    environment = built.folder / "environment"
    call(sys.executable, "-m", "venv", "--without-pip", environment, cwd=built.folder)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    constraints = ROOT / "constraints.txt"
    # Few modules are run here, so only these are compiled to bytecode.
    install = (*pip, "install", "-q", "--no-compile", "-c", constraints, built.wheel)
    call(*install, cwd=built.folder, PYTHONPATH="")  # a checkout on it would count as installed

    desk = built.folder / "desk"
    desk.mkdir()
    (desk / "conflict.ketal").write_text(PATTERN)
    (desk / "run.jsonl").write_text(LOG)

    def ketal(*words: str) -> str:
        # Only the new environment's commands are on the path, so Java is not.
        path = str(environment / "bin")
        return call(environment / "bin" / "ketal", *words, cwd=desk, PATH=path, PYTHONPATH="")

    assert ketal("--version").strip() == "ketal 0.1.0"
    output = ketal("run", "--output", "json", "conflict.ketal", "run.jsonl")
    match, summary = output.splitlines()
    assert '"events":["a@1","b@1"]' in match
    assert '"matches":1' in summary
