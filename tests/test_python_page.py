"""docs/python.md: its files, examples and test work, and it has every public name."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ketal
from ketal.analysis import registered_guards as guards
from tests.page_blocks import blocks, page, write_files

PAGE = page("python.md")
FILES = ["lock.ketal", "run.jsonl", "test_lock.py"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files of the page."""
    assert write_files(PAGE, tmp_path) == FILES
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(guards, "_registry", {})
    return tmp_path


def test_examples_print_the_documented_output(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    text = "\n".join(block for block in blocks(PAGE, "python") if block.startswith(">>> "))
    examples = doctest.DocTestParser().get_doctest(text, {}, "python.md", "python.md", 0)
    result = doctest.DocTestRunner().run(examples)
    assert result.attempted > 70
    assert result.failed == 0, capsys.readouterr().out


def test_every_program_is_tested() -> None:
    programs = [block for block in blocks(PAGE, "python") if not block.startswith(">>> ")]
    assert [program.splitlines()[-1].split("(")[0] for program in programs] == [
        "    assert not verdicts.matches",  # the file test_lock.py, below
        "detect",  # tests/streaming/spark/test_page.py
    ]


def test_pattern_has_no_warning() -> None:
    assert ketal.load("lock.ketal").warnings == ()


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lock.py"],
        cwd=folder, text=True, capture_output=True, check=False, timeout=600,
        env={
            **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )  # fmt: skip


def test_test_on_the_page_fails_with_the_shown_output(folder: Path) -> None:
    ended = run_pytest(folder)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    (shown,) = blocks(PAGE, "text")
    assert shown in ended.stdout


def test_test_on_the_page_passes_with_a_correct_log(folder: Path) -> None:
    lines = (folder / "run.jsonl").read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"b": 1', '"a": 2, "b": 1')
    (folder / "run.jsonl").write_text("".join(lines))
    ended = run_pytest(folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr


VERDICTS = {"Match", "Violation", "Incomplete", "TimedOut", "Late", "Gap", "Transition"}
PARTS = {"Audit", "Fault", "Dot", "Diagnostic", "Log", "LogCuts", "LogStats", "KetalError"}
"""Classes that the page names only by a lower-case word or by what returns them."""


def test_page_names_every_function() -> None:
    named = set(re.findall(r"\bketal\.(\w+)|`(\w+)`", PAGE))
    words = {word for pair in named for word in pair}
    assert set(ketal.__all__) - words <= VERDICTS | PARTS
