"""What `setup.py` compiles; `make test-compiled` runs these and the tests of the engine with it."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ketal
from ketal.cli import main
from ketal.runtime.execution import Execution
from ketal.runtime.silence.vacuity import MetEvents
from tests.cases import p

ROOT = Path(__file__).parents[1]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `setup.py` defines, which asks for paths of the checkout."""
    monkeypatch.chdir(ROOT)
    return runpy.run_path("setup.py")


def test_every_path_that_is_compiled_or_left_out_is_there(named: dict[str, Any]) -> None:
    paths = (*named["PACKAGES"], *named["INTERPRETED"])
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert all(path.startswith(named["PACKAGES"]) for path in named["INTERPRETED"])


@pytest.mark.skipif(
    "KETAL_COMPILED" not in os.environ, reason="`make test-compiled` compiles ketal"
)
def test_every_module_that_is_to_be_compiled_is_an_extension(
    named: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [path.removesuffix(".py").replace("/", ".") for path in named["compiled_modules"]()]
    files = [str(importlib.import_module(name).__file__) for name in names]
    assert [file for file in files if not file.endswith(tuple(EXTENSION_SUFFIXES))] == []
    assert len(files) == len(set(files)) > 0
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ketal {ketal.__version__} (compiled)\n"


def test_no_star_is_handed_on_to_super(named: dict[str, Any]) -> None:
    """The compiled call would have the tuple itself for its first argument, without an error."""
    starred = [
        f"{path}:{call.lineno}"
        for path in named["compiled_modules"]()
        for call in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("super().")
        if any(isinstance(argument, ast.Starred) for argument in call.args)
        or any(keyword.arg is None for keyword in call.keywords)
    ]
    assert starred == []


def test_what_a_test_sets_is_looked_up_by_compiled_code_too(named: dict[str, Any]) -> None:
    """A constant that is `Final` is inlined; by name, in whichever module."""
    setting = re.compile(r"""setattr\(\s*[\w.]+, "([A-Z_]+)\"""")
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    names = {name for text in tests for name in setting.findall(text)}
    assert {"BLOCK", "SPAN"} <= names
    inlined = [
        f"{path}: {node.target.id}"
        for path in named["compiled_modules"]()
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Final")
        if isinstance(node.target, ast.Name) and node.target.id in names
    ]
    assert inlined == []


def test_what_events_met_is_read_by_its_annotations() -> None:
    """As the figures of key groups are, on Spark; no name in the pattern is one of the log."""
    execution = Execution(ketal.compile(p("find next A")))
    execution.feed(ketal.Event("n", "other", {"n": 1}))
    met = execution.counts.met_events
    assert met.names.unmet
    assert msgspec.json.decode(msgspec.json.encode(met), type=MetEvents) == met
