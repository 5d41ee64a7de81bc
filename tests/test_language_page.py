"""The page about the language: its patterns compile, its examples print what they show."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import ketal
from ketal.analysis import registered_guards as guards
from ketal.cli import main
from ketal.engine.costs import cost_classes as costs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "language.md"
PATTERNS = re.findall(r"^```ketal\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("text", PATTERNS, ids=lambda text: text.partition(" {")[0].split()[-1])
def test_patterns_compile(text: str) -> None:
    assert ketal.compile(text).patterns
    assert not [d for d in ketal.lint(text) if d.code not in ("K220", "K221")]


def test_examples_print_the_documented_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_registry", {})
    text = re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.M)
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    result = doctest.DocTestRunner().run(examples)
    assert result.attempted > 10
    assert result.failed == 0


def test_cost_on_the_page_is_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.search(r"^\$ ketal (lint --explain-cost [^\n]*)\n(.*?)^```$", text, re.M | re.S)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conflict.ketal").write_text(PATTERNS[0], encoding="utf-8")
    assert main(shown[1].split()) == 0
    assert capsys.readouterr().out == shown[2]


def test_page_names_every_class_of_cost() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    names = [value for name, value in vars(costs).items() if name.isupper() and name[0] != "_"]
    classes = [name for name in names if isinstance(name, str)]
    assert len(classes) == 11
    assert [name for name in classes if name.lower() not in text.lower()] == []


@pytest.mark.parametrize(
    ("order", "body", "is_silent"),
    [
        ("arrival", "strict A B", False),
        ("CausalOrder", "strict A B", False),
        ("arrival", "next A not N B", True),
        ("CausalOrder", "next A not N B", False),
        ("arrival", "next A B", False),
    ],
)
def test_event_after_a_window_ends_a_run_without_a_verdict_only_by_a_not_under_arrival(
    order: str, body: str, is_silent: bool
) -> None:
    declared = "".join(f'event {name} = type == "{name}"; ' for name in "ABN")
    program = ketal.compile(f"pattern P {{ order {order}; {declared} find {body}; within 5 s; }}")
    start, end = (ketal.Event("n", t, {"n": i}, time=9 * i) for i, t in enumerate("AN", 1))
    assert len(list(ketal.run(program, [start, end]))) == (not is_silent)
    watermark = ketal.Control("watermark", time=18.0)
    monitor = ketal.Monitor(program)
    assert len([*monitor.feed_many([start, watermark, end]), *monitor.close()]) == 1


def test_mirror_images_of_the_page() -> None:
    # Two concurrent writes are one conflict, in either order.
    program = ketal.compile(PATTERNS[0])
    log = [
        ketal.Event(node=node, type="write", clock={node: 1}, data={"key": "x"}) for node in "ba"
    ]
    assert [str(v) for v in ketal.run(program, log)] == [
        "match Conflict (key=x): First=a@1, Second=b@1"
    ]
