"""Transcripts in Markdown: commands with their output.

A fenced block marked `console` holds lines `$ command`, each followed by what the command prints.
The commands of a file begin in the folder of the checkout, and a `$ cd` holds for the blocks after
it too. The one rule: a README shows the exact output, to the character; only the text that a
rejection quotes from a log, which has other authors, is left out.

`python -m tests.examples.transcripts FILE...` regenerates the output.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ketal.cli

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
_QUOTED = re.compile(r"^((?:first )?rejected .* the text) '.*'(?=$|: \d+ times)", re.M)


class Block(NamedTuple):
    """A block, and the folder in which its commands start."""

    text: str
    folder: Path

    @property
    def commands(self) -> list[str]:
        """The commands of the block."""
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


def blocks(path: Path) -> list[Block]:
    """Return the console blocks of a Markdown file."""
    out = []
    folder = ROOT
    for found in _BLOCK.finditer(path.read_text(encoding="utf-8")):
        out.append(Block(found[1], folder))
        for command in out[-1].commands:
            if command.startswith("cd "):
                folder = folder / command[3:]
    return out


def replay(block: Block) -> str:
    """Return a block's text with the current output of its commands."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = block.folder
        if folder != ROOT:
            # Files that a command writes must not stay in the checkout.
            folder = Path(shutil.copytree(folder, Path(scratch) / folder.name))
        return replayed(block.commands, folder)


def replayed(commands: Sequence[str], folder: Path) -> str:
    """Run commands in a folder; return them with their current output."""
    out = ""
    code = 0
    with contextlib.chdir(folder):
        for command in commands:
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
        return code, _QUOTED.sub(r"\1 …", stdout.getvalue())
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout


def _regenerate(path: Path) -> None:
    now = iter([replay(block) for block in blocks(path)])
    text = path.read_text(encoding="utf-8")
    text = _BLOCK.sub(lambda _: f"```console\n{next(now)}```", text)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _regenerate(Path(name))
