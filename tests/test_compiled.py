"""What `setup.py` compiles; `make test-compiled` runs these and the tests of the engine with it."""

from __future__ import annotations

import importlib
import os
import runpy
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

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
def test_every_module_that_is_to_be_compiled_is_an_extension(named: dict[str, Any]) -> None:
    names = [path.removesuffix(".py").replace("/", ".") for path in named["compiled_modules"]()]
    files = [str(importlib.import_module(name).__file__) for name in names]
    assert [file for file in files if not file.endswith(tuple(EXTENSION_SUFFIXES))] == []
    assert len(files) == len(set(files)) > 0
