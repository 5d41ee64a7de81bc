"""Run the commands of examples/first_job/README.md, in order, as a new user would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.streaming.conftest import QUICK_JVM

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "examples" / "first_job" / "README.md"
_BLOCK = re.compile(r"^```(sh|text|json)\n(.*?)^```$", re.M | re.S)


@pytest.mark.usefixtures("jars")  # Downloads the jars, or skips with the reason.
def test_readme_walkthrough_reports_each_verdict_exactly_once(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    script = "".join(text for kind, text in blocks if kind == "sh" and "pip install" not in text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    state = str(tmp_path / "state")
    ended = subprocess.run(
        ["bash", "-eu", "-c", f"trap 'ketal broker stop --dir first-job.broker' ERR\n{script}"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": path,
            "XDG_STATE_HOME": state,
            "NO_COLOR": "1",
            "JAVA_TOOL_OPTIONS": " ".join(QUICK_JVM),
        },
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for kind, text in blocks:
        if kind == "text":
            assert text in ended.stdout
    verdicts = [line for line in ended.stdout.splitlines() if line.startswith('{"verdict"')]
    shown = next(text.strip() for kind, text in blocks if kind == "json")
    assert verdicts[0] == shown
    by_file = json.loads(verdicts[1])
    assert len(verdicts) == 2
    assert by_file["id"] == json.loads(shown)["id"]
    assert not (tmp_path / "first-job.broker").exists()
