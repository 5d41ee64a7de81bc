"""The tutorial, from an empty directory: its files and commands, with the output that it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.examples.transcripts import ROOT, blocks, replayed

PAGE = ROOT / "docs" / "tracing.md"
_FILE = re.compile(r"^```\w+\n(?:#|//) (\S+\.\w+)\n(.*?)^```$", re.M | re.S)


def shown(folder: Path) -> list[tuple[str, str]]:
    """Return what each block of the page shows, and what its commands print in a folder."""
    for name, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")
    return [(block.text, replayed(block.commands, folder)) for block in blocks(PAGE)]


def test_the_commands_of_the_tutorial_print_what_it_says(tmp_path: Path) -> None:
    for said, printed in shown(tmp_path):
        assert printed == said


def main() -> None:
    """Write the output of the page anew: `python -m tests.trace.test_tutorial FOLDER`."""
    text = PAGE.read_text(encoding="utf-8")
    for said, printed in shown(Path(sys.argv[1])):
        text = text.replace(f"```console\n{said}```", f"```console\n{printed}```")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
