"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# No test is timed: on a busy machine an example may take long.
settings.register_profile("ketal", deadline=None)
settings.load_profile("ketal")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real logs beside the checkout; skips where there is none."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real logs of ../shared/data are not here")
    return SHARED_DATA
