"""Pages agree with the code: paths and functions of the developer pages, fields of verdicts."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.execution_verdicts import Gap, Late, Rejected
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow, Transition
from ketal.model.verdicts.verdict_kinds import KINDS, Verdict

ROOT = Path(__file__).resolve().parents[1]
PATH = re.compile(r"(?:ketal|grammar|operators|streaming|docs|tests)/[\w./]*|pyproject\.toml")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """Return the cells of the page's tables without heads and rules."""
    lines = page(name).splitlines()
    after_rule = [i for i, line in enumerate(lines) if line.startswith("|---")]
    heads = {n for i in after_rule for n in (i - 1, i)}
    table = [line for n, line in enumerate(lines) if line.startswith("|") and n not in heads]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def defined(path: str) -> set[str]:
    """Return the functions, classes and methods that a module defines."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            names |= {f"{node.name}.{method.name}" for method in methods}
    return names


@pytest.mark.parametrize("name", ["architecture.md", "glossary.md"])
def test_every_path_on_a_page_exists(name: str) -> None:
    paths = set(PATH.findall(page(name)))
    assert len(paths) > 20
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_every_glossary_word_has_a_sentence_and_a_module() -> None:
    for word, meaning, _, module in rows("glossary.md"):
        assert re.fullmatch(r"[^.]+\.", meaning), word
        assert re.fullmatch(r"`[\w/]+\.py`", module), word


def test_glossary_is_sorted() -> None:
    words = [row[0] for row in rows("glossary.md")]
    assert len(words) >= 40
    assert words == sorted(set(words))


def test_functions_on_the_path_of_an_event_exist() -> None:
    text = "\n".join(" ".join(row[1:]) for row in rows("architecture.md") if len(row) == 3)
    hops = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", text)
    assert len(hops) >= 15
    assert [hop for hop in hops if hop[1] not in defined(hop[0])] == []


def test_architecture_picture_has_every_package() -> None:
    picture = re.findall(r"^```\n(.*?)^```$", page("architecture.md"), re.M | re.S)[0]
    top = {
        p.name for p in (ROOT / "ketal").iterdir() if p.is_dir() and (p / "__init__.py").exists()
    }
    assert [name for name in sorted(top) if f"{name}/" not in picture] == []


def test_fields_of_verdicts_on_the_page_are_those_of_their_json() -> None:
    dot = ketal.Dot("n", 1)
    common: dict[str, Any] = {
        "pattern": "P", "fingerprint": "", "execution": "x", "time": 0.0, "certain": False,
    }  # fmt: skip
    steps = (("A", dot),)
    verdicts: list[Verdict] = [
        Match(**common, steps=steps, returns={"key": 1}),
        Violation(**common, event=dot),
        Incomplete(**common),
        TimedOut(**common, steps=steps),
        Late(**common, event=dot, reason=""),
        Gap(**common, dot=dot),
        Overflow(**common, limit="runs_max", given_up="", event=dot),
        Rejected(place="log:1", reason=""),
        Transition(**common, event=dot),
    ]
    shared = {"pattern", "id", "execution", "scope", "time", "certain", "depends_on"}
    text = page("cli.md")
    for field in shared - {"certain"}:
        assert f"`{field}`" in text
    documented = {
        kind.strip("`"): set(re.findall(r"`(\w+)`", fields))
        for kind, _, fields in (row for row in rows("cli.md") if len(row) == 3)
        if kind.strip("`") in KINDS
    }
    for verdict in verdicts:
        written = verdict.to_dict()
        own = set(written) - {"verdict"} - (set() if verdict.kind == "rejected" else shared)
        assert documented[verdict.kind] == own
        if verdict.kind != "rejected":
            assert shared <= set(written)
    assert [verdict.kind for verdict in verdicts] == list(documented)
    assert sorted(documented) == sorted(KINDS)
