"""The body area network example: five real processes, and alarms with causes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ketal

from .transcripts import ROOT

FOLDER = ROOT / "examples" / "body_area_network"


@pytest.mark.parametrize(("mode", "stale"), [("right", 0), ("stale", 1)])
def test_only_the_injected_fault_is_found_and_every_alarm_has_a_cause(
    mode: str, stale: int, tmp_path: Path
) -> None:
    words: list[str | Path] = [sys.executable, FOLDER / "network.py", mode]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    log = ketal.read_log(*sorted(tmp_path.glob("*.jsonl")))
    events = list(log)
    assert ketal.audit(events).clean
    result = ketal.run(ketal.load(FOLDER / "alarms.ketal"), events)
    matches = [verdict.pattern for verdict in result if isinstance(verdict, ketal.Match)]
    alarms = sum(event.type == "alarm" for event in events)
    assert matches.count("Grounded") == alarms == 1 + stale
    assert matches.count("Stale") == stale
