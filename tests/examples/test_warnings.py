"""Examples and real logs without mistakes give no warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

import ketal
from ketal.runtime.silence import unknown_comparisons, vacuity
from tests.examples.test_real_logs import LOGS, verdicts_of

from .transcripts import ROOT

EXAMPLES = ROOT / "examples"
STACK = EXAMPLES / "replicated_stack"
OF_ONE_LOG = {"fig02": ["fig01"], "fig04": ["fig05"]}
"""Patterns for the execution of one figure; the others are for logs of programs."""


def warnings(program: ketal.Program, summary: ketal.Summary) -> list[str]:
    """Return the warnings of a run."""
    out = []
    for compiled in program.compiled:
        counts = summary["patterns"][compiled.name]
        out += vacuity.warnings(compiled.kind, counts.get("vacuous", []))
        out += unknown_comparisons.warnings(counts.get("unknown", []))
    return out


def warnings_for_files(pattern: Path, log: Path) -> list[str]:
    program = ketal.load(pattern)
    return warnings(program, ketal.run(program, ketal.read_log(log)).summary)


COOKBOOK = [
    (pattern, pattern.with_suffix(f".{kind}.jsonl"))
    for pattern in sorted((EXAMPLES / "cookbook").glob("*.ketal"))
    for kind in ("good", "bad")
]
LEASES = [
    (EXAMPLES / "lock_lease" / "lease.ketal", log)
    for log in sorted((EXAMPLES / "lock_lease").glob("*.jsonl"))
]
LOGGED = sorted(log.stem for log in STACK.glob("*.jsonl") if not log.stem.startswith("fig"))
STACKS = [
    (pattern, STACK / f"{log}.jsonl")
    for pattern in sorted(STACK.glob("*.ketal"))
    for log in OF_ONE_LOG.get(pattern.stem, LOGGED)
]


def test_number_of_example_cases() -> None:
    assert (len(COOKBOOK), len(LEASES)) == (32, 2)
    assert len(STACKS) >= 24


@pytest.mark.parametrize(
    ("pattern", "log"), [*COOKBOOK, *LEASES, *STACKS], ids=lambda path: path.stem
)
def test_example_has_no_warnings(pattern: Path, log: Path) -> None:
    assert warnings_for_files(pattern, log) == []


@pytest.mark.parametrize("name", LOGS)
def test_real_log_has_no_warnings(name: str, shared_data: Path) -> None:
    program = ketal.load(ROOT / "examples" / "real_logs" / f"{name}.ketal")
    assert warnings(program, verdicts_of(name, shared_data).summary) == []
