"""The fenced blocks of a documentation page, and the files that it shows.

A block is a file if the line before it ends in the file's name: "`lock.ketal`:".
"""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"`(\w+\.(?:ketal|jsonl|py))`:\n\n```\w+\n(.*?)^```$", re.M | re.S)


def page(name: str) -> str:
    """Return the text of a page of docs/."""
    return (PAGES / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of a page in a language, in order."""
    return [block for kind, block in _BLOCK.findall(text) if kind == language]


def write_files(text: str, folder: Path) -> list[str]:
    """Write the files shown on a page into a folder; return their names."""
    shown = _FILE.findall(text)
    for name, block in shown:
        (folder / name).write_text(block, encoding="utf-8")
    return [name for name, _ in shown]
