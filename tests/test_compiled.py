"""The compiled ketal: `make test-compiled` runs these and the tests of the engine with it."""

from __future__ import annotations

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import ketal

pytestmark = pytest.mark.skipif(
    "KETAL_COMPILED" not in os.environ, reason="`make test-compiled` compiles ketal"
)


def test_the_packages_that_take_each_event_are_extensions() -> None:
    root = Path(ketal.__file__).parent
    for name in ("engine/check_run", "operators/order/eager", "runtime/admission/deduplication"):
        module = importlib.import_module(f"ketal.{name.replace('/', '.')}")
        assert module.__file__ is not None
        assert module.__file__.startswith(str(root))
        assert module.__file__.endswith(tuple(EXTENSION_SUFFIXES)), module.__file__
