"""One browser for all tests of the page, all on one worker (`tests/streaming/conftest.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pictures.chromium import started


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = started(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()
