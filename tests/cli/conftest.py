"""The command line, called in this process or started as a process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ketal.cli import main

ROOT = Path(__file__).resolve().parents[2]

CONFLICT = """pattern Conflict {
    order CausalOrder;
    partition by key;
    event Write = type == "write";
    First = Write;
    Second = Conc(Write);
    find any First Second;
}
"""
PHASES = """pattern Phases {
    event Open = type == "open";
    event Close = type == "close";
    check (Open Close)*;
}
"""


@dataclass(frozen=True)
class CommandResult:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def summary(self) -> Any:
        return self.objects[-1]["summary"]


Ketal = Callable[..., CommandResult]


@pytest.fixture
def ketal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Ketal:
    """Return a function that runs `ketal` with the given arguments, in a temporary folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path, stdin: str | bytes = b"") -> CommandResult:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        capfd.readouterr()
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Return a function that writes a file and returns its name."""

    def into(name: str, text: str | bytes) -> Path:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return Path(name)

    return into


Write = Callable[[str, "str | bytes"], Path]


def event(node: str, type: str, clock: dict[str, int], **data: Any) -> str:
    """Return an event as a JSON line."""
    return json.dumps({"node": node, "type": type, "clock": clock, **data}) + "\n"


RUN = (
    event("a", "write", {"a": 1}, key="x")
    + event("b", "write", {"b": 1}, key="x")
    + event("b", "write", {"a": 1, "b": 2}, key="x")
)
"""Two concurrent writes, and a third write after both."""

BROKEN = event("a", "open", {"a": 1}) + event("a", "open", {"a": 2}) + event("a", "close", {"a": 3})
"""A run with two `open` in a row."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts `ketal` as a process."""
    started = []

    def process(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        one = subprocess.Popen(
            [sys.executable, "-m", "ketal", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
            **{**pipes, **options},
        )
        started.append(one)
        return one

    yield process
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait()
        for pipe in (one.stdin, one.stdout, one.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
