"""Fixtures and hooks for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sampling import load_profile

load_profile()

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect garbage cycles seldom, and never among the collected tests, which live to the end.

    Scanning them and the caches of compiled patterns again and again took a tenth of the tests'
    time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 20)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _runs_of_nodes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the run numbers of traced nodes in a temporary folder."""
    os.environ["KETAL_TRACE_RUNS"] = str(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real logs beside the checkout; skip the test if it is missing."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real logs of ../shared/data are not here")
    return SHARED_DATA
