"""The lock lease example: the program writes the shipped logs, and ketal finds the fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ketal

from .transcripts import ROOT

FOLDER = ROOT / "examples" / "lock_lease"
RUNS = {"in_time": ("10", "0", 2), "too_late": ("0.2", "2", 1)}


def events(path: Path) -> list[Any]:
    """Return the events of a log without times, in a fixed order."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all(line.pop("time") for line in lines)
    return sorted(lines, key=lambda line: (line["node"], line["clock"][line["node"]]))


@pytest.mark.parametrize("name", RUNS)
def test_program_writes_the_shipped_log(name: str, tmp_path: Path) -> None:
    lease_s, work_s, number = RUNS[name]
    log = tmp_path / f"{name}.jsonl"
    words: list[str | Path] = [sys.executable, FOLDER / "lease.py", log, lease_s, work_s]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == f"2 workers added one each, and the number is {number}\n"
    assert events(log) == events(FOLDER / log.name)
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("name", RUNS)
def test_only_the_lost_update_is_found(name: str) -> None:
    verdicts = ketal.run(
        ketal.load(FOLDER / "lease.ketal"), ketal.read_log(FOLDER / f"{name}.jsonl")
    )
    found = [str(verdict.pattern) for verdict in verdicts if isinstance(verdict, ketal.Match)]
    assert found == (["LostUpdate"] if name == "too_late" else [])
    assert verdicts.summary["patterns"]["OneHolder"]["violations"] == 0
    assert ketal.audit(ketal.read_log(FOLDER / f"{name}.jsonl")).clean


def test_patterns_have_no_warnings() -> None:
    assert ketal.lint((FOLDER / "lease.ketal").read_text(encoding="utf-8")) == []


def test_readme_shows_how_the_logs_were_made() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, (lease_s, work_s, _) in RUNS.items():
        assert f"\npython lease.py {name}.jsonl {lease_s} {work_s}\n" in text
    quoted = text.partition("```json\n")[2].partition("\n")[0]
    assert quoted in (FOLDER / "in_time.jsonl").read_text(encoding="utf-8").splitlines()
