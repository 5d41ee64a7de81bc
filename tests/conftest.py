"""What all tests share."""

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
    """Keep what the collection makes, which lives as long as the tests, from the collector.

    A tenth of the tests' time went into looking through it again and again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _runs_of_nodes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the runs of traced nodes counted in a folder of the tests'."""
    os.environ["KETAL_TRACE_RUNS"] = str(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real logs beside the checkout; skips where there is none."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real logs of ../shared/data are not here")
    return SHARED_DATA
