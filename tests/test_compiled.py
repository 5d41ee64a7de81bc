"""The modules that `setup.py` compiles; `make test-compiled` also runs the engine's tests."""

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
def setup_names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that `setup.py` defines, run in the checkout because it reads paths there."""
    monkeypatch.chdir(ROOT)
    return runpy.run_path("setup.py")


def test_every_compiled_or_excluded_path_exists(setup_names: dict[str, Any]) -> None:
    paths = (*setup_names["PACKAGES"], *setup_names["INTERPRETED"])
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert all(path.startswith(setup_names["PACKAGES"]) for path in setup_names["INTERPRETED"])


@pytest.mark.skipif(
    "KETAL_COMPILED" not in os.environ, reason="`make test-compiled` compiles ketal"
)
def test_every_module_to_compile_is_an_extension(
    setup_names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        path.removesuffix(".py").replace("/", ".") for path in setup_names["compiled_modules"]()
    ]
    files = [str(importlib.import_module(name).__file__) for name in names]
    assert [file for file in files if not file.endswith(tuple(EXTENSION_SUFFIXES))] == []
    assert len(files) == len(set(files)) > 0
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ketal {ketal.__version__} (compiled)\n"


def test_no_starred_argument_is_passed_to_super(setup_names: dict[str, Any]) -> None:
    """The compiled call would pass the tuple itself as the first argument, without an error."""
    starred = [
        f"{path}:{call.lineno}"
        for path in setup_names["compiled_modules"]()
        for call in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("super().")
        if any(isinstance(argument, ast.Starred) for argument in call.args)
        or any(keyword.arg is None for keyword in call.keywords)
    ]
    assert starred == []


def test_constants_that_tests_patch_are_not_final(setup_names: dict[str, Any]) -> None:
    """Compiled code inlines a `Final` constant; constants are compared by name in all modules."""
    setting = re.compile(r"""setattr\(\s*[\w.]+, "([A-Z_]+)\"""")
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    names = {name for text in tests for name in setting.findall(text)}
    assert {"BLOCK", "SPAN"} <= names
    inlined = [
        f"{path}: {node.target.id}"
        for path in setup_names["compiled_modules"]()
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Final")
        if isinstance(node.target, ast.Name) and node.target.id in names
    ]
    assert inlined == []


def test_met_events_is_accessible_through_its_annotations() -> None:
    """As for the counts of key groups on Spark; no event name of the pattern is in the log."""
    execution = Execution(ketal.compile(p("find next A")))
    execution.feed(ketal.Event("n", "other", {"n": 1}))
    met = execution.counts.met_events
    assert met.names.unmet
    assert msgspec.json.decode(msgspec.json.encode(met), type=MetEvents) == met
