"""Transcripts in Markdown: commands with the output that they have.

A fenced block marked `console` holds lines `$ command`, each followed by what the command prints.
Commands run in one place, the folder named by the block's `$ cd`, else the checkout's. The one
rule: what stands in a README is what happens, to the character.

`python -m tests.examples.transcripts FILE...` writes the output anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ketal.cli

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def blocks(path: Path) -> list[str]:
    """Return the console blocks of a Markdown file."""
    return [found[1] for found in _BLOCK.finditer(path.read_text(encoding="utf-8"))]


def commands(block: str) -> list[str]:
    """Return the commands of a block."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def replay(block: str) -> str:
    """Return a block with the output that its commands have now."""
    out = ""
    code = 0
    with _in_folder(ROOT):
        for command in commands(block):
            words = shlex.split(command)
            out += f"$ {command}\n"
            if words[0] == "cd":
                os.chdir(words[1])
            elif words == ["echo", "$?"]:
                out += f"{code}\n"
            else:
                code, text = _run(words)
                out += text
    return out


def _run(words: list[str]) -> tuple[int, str]:
    if words[0] == "ketal":
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            code = ketal.cli.main(words[1:])
        return code, stdout.getvalue()
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _write_anew(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = _BLOCK.sub(lambda found: f"```console\n{replay(found[1])}```", text)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _write_anew(Path(name))
