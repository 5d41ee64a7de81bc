"""Programs of a few lines that are run in a process of their own, and what they need."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def run_script(script: str, *words: str | int | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, which is to be a good one.

    From Python 3.12 on a fork of a program with threads is warned of, which is no fault of ours.
    """
    forks = "ignore:This process:DeprecationWarning"
    command = [sys.executable, "-W", forks, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
