"""Runs the tutorial in an empty directory and compares the output with the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.examples.transcripts import ROOT, blocks, replayed

PAGE = ROOT / "docs" / "tracing.md"
_FILE = re.compile(r"^```\w+\n(?:#|//) (\S+\.\w+)\n(.*?)^```$", re.M | re.S)


def shown(folder: Path) -> list[tuple[str, str]]:
    """Return each block of the page, and the output of its commands in a folder."""
    for name, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")
    return [(block.text, replayed(block.commands, folder)) for block in blocks(PAGE)]


def test_the_commands_of_the_tutorial_print_the_shown_output(tmp_path: Path) -> None:
    for written, printed in shown(tmp_path):
        assert printed == written


def test_tutorial_test_records_the_tutorial_program(
    tmp_path: Path,
) -> None:
    for name, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(
            re.sub(r'Tracer\("(\w+)", "\w+.jsonl"\)', r'Tracer("\1")', text)
        )
    right = _pytest(tmp_path)
    assert (right.returncode, right.stderr) == (0, "")
    program = (tmp_path / "store.py").read_text()
    (tmp_path / "store.py").write_text(program.replace('"early" in sys.argv', "True"))
    wrong = _pytest(tmp_path)
    assert wrong.returncode == 1
    assert "match AnsweredEarly: Answer=client@3, Late=server@3" in wrong.stdout
    assert "the page of this run: " in wrong.stdout


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plain["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = ["-p", "no:cacheprovider", "-p", "ketal.pytest_plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "test_store.py"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120, env=plain,
    )  # fmt: skip


def main() -> None:
    """Regenerate the output in the page: `python -m tests.trace.test_tutorial FOLDER`."""
    text = PAGE.read_text(encoding="utf-8")
    for written, printed in shown(Path(sys.argv[1])):
        text = text.replace(f"```console\n{written}```", f"```console\n{printed}```")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
