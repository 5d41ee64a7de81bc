"""Commands in the READMEs print the output that is shown there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from .transcripts import ROOT, Block, blocks, replay

READMES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [*READMES, ROOT / "docs" / "debugging.md"]
TRANSCRIPTS = [
    pytest.param(block, id=f"{path.parent.name}-{path.stem}-{number}")
    for path in PAGES
    for number, block in enumerate(blocks(path), 1)
]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("block", TRANSCRIPTS)
def test_commands_print_the_output_in_the_readme(
    block: Block, request: pytest.FixtureRequest
) -> None:
    if "../shared/data" in block.text:
        request.getfixturevalue("shared_data")
    assert replay(block) == block.text


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_python_blocks_run_in_the_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    for code in PYTHON.findall(path.read_text(encoding="utf-8")):
        exec(code, {})
        assert capsys.readouterr().out


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_every_pattern_file_is_run_by_the_readme(path: Path) -> None:
    named_files = {
        Path(word).name
        for block in blocks(path)
        for command in block.commands
        for word in shlex.split(command)
    }
    assert {p.name for p in path.parent.glob("*.ketal")} <= named_files
