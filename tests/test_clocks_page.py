"""docs/clocks.md: its commands, pictures and table equal the output of `ketal clocks`.

`python -m tests.test_clocks_page` regenerates pictures and table after a scheme has changed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ketal
from examples.clocks.figures import FIGURES
from ketal.cli import main
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.explanation.comparisons.scheme_comparison import compare_schemes
from ketal.runtime.admission.execution_events import executions_of
from tests.examples.transcripts import ROOT, Block, blocks, replay

PAGE = ROOT / "docs" / "clocks.md"
RUN = ROOT / "examples" / "clocks" / "run.jsonl"
PICTURES = ROOT / "docs" / "clocks"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = re.findall(r"^`--clock ([\w:]+)`\. ", TEXT, re.M)
_ROW = re.compile(r"^\| \[`([\w:]+)`\]\(#[\w-]+\) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.M)
_BLOCKS = blocks(PAGE)


def _drawn(name: str, tmp_path: Path) -> str:
    target = tmp_path / "picture.svg"
    assert main(["clocks", "show", name, str(RUN), "--write", str(target)]) == 0
    return target.read_text(encoding="utf-8")


def _areas(folder: Path) -> str:
    target = folder / "areas.svg"
    assert main(["clocks", "compare", str(RUN), "b@3", "c@3", "--write", str(target)]) == 0
    return target.read_text(encoding="utf-8")


def test_pictures_show_every_stamp_in_full() -> None:
    assert [path.name for path in PICTURES.glob("*.svg") if "…" in path.read_text("utf-8")] == []


def _rows() -> dict[str, tuple[str, str, str]]:
    """Return for each scheme on the page its current row of the table."""
    (execution,) = executions_of(ketal.read_log(RUN), ketal.Limits()).values()
    schemes = [scheme_named(name) for name in NAMES]
    reports = compare_schemes(execution.events(), schemes, ketal.Limits()).reports
    answer = {True: "yes", False: "no"}
    return {
        name: (
            answer[scheme.decides],
            f"{report.bytes_median:.0f}, {report.bytes_max}",
            answer[scheme.states_clocks],
        )
        for name, scheme, report in zip(NAMES, schemes, reports, strict=True)
    }


def test_every_scheme_is_on_the_page() -> None:
    assert sorted(name.partition(":")[0] for name in NAMES) == sorted(SCHEMES)


@pytest.mark.parametrize("block", _BLOCKS, ids=lambda block: block.commands[0])
def test_commands_print_the_output_on_the_page(block: Block) -> None:
    assert replay(block) == block.text


def test_programs_print_the_output_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", TEXT, re.M | re.S)
    assert len(programs) == TEXT.count("```python") > 1
    for code, shown in programs:
        exec(code, {})
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", NAMES)
def test_pictures_equal_the_output_of_the_command(name: str, tmp_path: Path) -> None:
    file = f"{name.partition(':')[0]}.svg"
    assert f"](clocks/{file})" in TEXT
    assert (PICTURES / file).read_text(encoding="utf-8") == _drawn(name, tmp_path)


def test_areas_of_two_events_equal_the_output_of_the_command(tmp_path: Path) -> None:
    assert (PICTURES / "areas.svg").read_text(encoding="utf-8") == _areas(tmp_path)


def test_forks_picture_equals_that_of_the_example() -> None:
    assert (PICTURES / "forks.svg").read_text(encoding="utf-8") == FIGURES["forks"]()


def test_no_picture_is_unused() -> None:
    shown = set(re.findall(r"\]\(clocks/(.*?)\)", TEXT))
    assert {path.name for path in PICTURES.iterdir()} == shown


def test_table_equals_the_output_of_the_commands() -> None:
    table = {name: (decides, size, stream) for name, decides, size, _, stream in _ROW.findall(TEXT)}
    assert table == _rows()


def _write() -> None:
    """Regenerate the pictures and the table."""
    rows = _rows()

    def row(found: re.Match[str]) -> str:
        decides, size, stream = rows[found[1]]
        head = found[0].split(" | ")[0]
        return f"{head} | {decides} | {size} | {found[4]} | {stream} |"

    PAGE.write_text(_ROW.sub(row, TEXT), encoding="utf-8")
    for name in NAMES:
        target = PICTURES / f"{name.partition(':')[0]}.svg"
        main(["clocks", "show", name, str(RUN), "--write", str(target)])
    _areas(PICTURES)
    (PICTURES / "forks.svg").write_text(FIGURES["forks"](), encoding="utf-8")


if __name__ == "__main__":
    _write()
