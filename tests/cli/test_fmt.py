"""`ketal fmt`: in place, checked, shown, filtered."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import CONFLICT, PHASES, Ketal, Write
from tests.examples.transcripts import ROOT

UGLY = PHASES.replace("\n    ", "  ").replace("check", "// again\ncheck")
LAID_OUT = PHASES.replace('"close";', '"close";  // again')


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("ugly.ketal", UGLY)
    write("good.ketal", CONFLICT)


def test_file_is_formatted_in_place(ketal: Ketal, tmp_path: Path) -> None:
    result = ketal("fmt", "ugly.ketal", "good.ketal")
    assert (result.code, result.out) == (0, "formatted ugly.ketal\n")
    assert (tmp_path / "ugly.ketal").read_text() == LAID_OUT
    assert (tmp_path / "good.ketal").read_text() == CONFLICT
    assert ketal("fmt", "ugly.ketal").out == ""
    assert sorted(os.listdir(tmp_path)) == ["good.ketal", "ugly.ketal"]


def test_file_mode_and_symbolic_link_are_kept(ketal: Ketal, tmp_path: Path) -> None:
    (tmp_path / "ugly.ketal").chmod(0o640)
    (tmp_path / "link.ketal").symlink_to("ugly.ketal")
    assert ketal("fmt", "link.ketal").code == 0
    assert (tmp_path / "link.ketal").is_symlink()
    assert (tmp_path / "ugly.ketal").read_text() == LAID_OUT
    assert (tmp_path / "ugly.ketal").stat().st_mode & 0o777 == 0o640


def test_pipe_is_not_replaced_by_a_file(ketal: Ketal, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.ketal"
    os.mkfifo(pipe)
    # A daemon, which does not keep the test from ending if nobody reads the pipe.
    threading.Thread(target=pipe.write_text, args=(UGLY,), daemon=True).start()
    result = ketal("fmt", pipe)
    reason = "it is not a regular file; `ketal fmt -` formats standard input"
    assert (result.code, result.out) == (2, "")
    assert result.err == f"ketal: cannot write {pipe}: {reason}\n"
    assert pipe.is_fifo()


def test_check_names_files_without_changing_them(ketal: Ketal, tmp_path: Path) -> None:
    result = ketal("fmt", "--check", "ugly.ketal", "good.ketal")
    assert (result.code, result.out) == (1, "would format ugly.ketal\n")
    assert (tmp_path / "ugly.ketal").read_text() == UGLY
    assert ketal("fmt", "--check", "good.ketal").code == 0


def test_diff_is_printed_without_changing_files(ketal: Ketal, tmp_path: Path, write: Write) -> None:
    result = ketal("fmt", "--diff", "ugly.ketal")
    assert result.code == 0
    assert result.lines[:2] == ["--- ugly.ketal", "+++ ugly.ketal"]
    assert "+    check (Open Close)*;" in result.lines
    assert (tmp_path / "ugly.ketal").read_text() == UGLY
    assert ketal("fmt", "--diff", "good.ketal").out == ""
    write("end.ketal", CONFLICT[:-1])
    assert "\\ No newline at end of file" in ketal("fmt", "--diff", "end.ketal").lines
    assert ketal("fmt", "--diff", "--check", "ugly.ketal").code == 1


def test_standard_input_is_formatted_to_standard_output(ketal: Ketal) -> None:
    result = ketal("fmt", "-", stdin=UGLY)
    assert (result.code, result.out) == (0, LAID_OUT)
    assert ketal("fmt", "-", stdin=CONFLICT).out == CONFLICT
    assert ketal("fmt", "--check", "-", stdin=UGLY).out == "would format <stdin>\n"


def test_file_that_does_not_parse_is_not_changed(
    ketal: Ketal, tmp_path: Path, write: Write
) -> None:
    write("bad.ketal", "pattern P { check ; }")
    result = ketal("fmt", "bad.ketal", "none.ketal", "ugly.ketal")
    assert result.code == 2
    assert result.err.startswith("bad.ketal:1:")
    assert "none.ketal: No such file" in result.err
    assert (tmp_path / "bad.ketal").read_text() == "pattern P { check ; }"
    assert (tmp_path / "ugly.ketal").read_text() == LAID_OUT


def test_pattern_files_of_ketal_itself_are_formatted(ketal: Ketal) -> None:
    files = [*(ROOT / "examples").rglob("*.ketal"), *(ROOT / "ketal").rglob("*.ketal")]
    assert len(files) > 20
    result = ketal("fmt", "--check", *map(str, files))
    assert (result.code, result.out) == (0, "")
