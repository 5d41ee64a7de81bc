"""Run short programs in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def run_script(script: str, *words: str | int | Path) -> subprocess.CompletedProcess[str]:
    """Run a program, and assert that it succeeds.

    Ignores the warning of Python 3.12 and later about forking a program with threads.
    """
    forks = "ignore:This process:DeprecationWarning"
    command = [sys.executable, "-W", forks, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done
