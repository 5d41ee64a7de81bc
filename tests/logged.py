"""The records that ketal logged, without those of libraries.

A client of Kafka that an earlier test abandoned logs warnings at any time.
"""

from __future__ import annotations

import logging

import pytest


def ketal_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the captured records of ketal's loggers."""
    return [record for record in caplog.records if record.name.partition(".")[0] == "ketal"]
