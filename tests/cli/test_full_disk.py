"""A full disk: exit code 2, the name of the file, the cause; never a traceback."""

from __future__ import annotations

import os
import sys

import pytest

from tests.cli.conftest import BROKEN, CONFLICT, PHASES, RUN, Ketal, Write

FULL = "/dev/full"
WHY = "No space left on device"
JUDGE = ("run", "phases.ketal", "broken.jsonl")

pytestmark = pytest.mark.skipif(not os.path.exists(FULL), reason="this machine has no /dev/full")


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("conflict.ketal", CONFLICT)
    write("phases.ketal", PHASES.replace("check", "  check"))
    write("run.jsonl", RUN)
    write("broken.jsonl", BROKEN)


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("run", "--help"),
        ("limits",),
        JUDGE,
        (*JUDGE, "--count"),
        (*JUDGE, "--live", "--output", "json"),
        ("lint", "phases.ketal"),
        ("fmt", "--diff", "phases.ketal"),
        ("graph", "phases.ketal"),
        ("audit", "run.jsonl"),
    ],
    ids=" ".join,
)
def test_full_disk_under_standard_output_is_reported(
    ketal: Ketal, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    with open(FULL, "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        result = ketal(*words)
    assert (result.code, result.err) == (2, f"ketal: cannot write <stdout>: {WHY}\n")


@pytest.mark.parametrize(
    "words",
    [
        JUDGE,
        (*JUDGE, "--live"),
        ("lint", "phases.ketal"),
        ("graph", "phases.ketal"),
        ("audit", "run.jsonl"),
        ("audit", "--repair", "run.jsonl"),
    ],
    ids=" ".join,
)
def test_full_disk_under_a_file_is_reported(ketal: Ketal, words: tuple[str, ...]) -> None:
    result = ketal(*words, "--write", FULL)
    assert (result.code, result.out, result.err) == (2, "", f"ketal: cannot write {FULL}: {WHY}\n")
