"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sampling import load_profile

load_profile()

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real logs beside the checkout; skips where there is none."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real logs of ../shared/data are not here")
    return SHARED_DATA
