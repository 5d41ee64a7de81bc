"""Streams: the drivers that run executions over Kafka and Spark.

A driver reads events, feeds them to executions, writes verdicts, and commits state and offsets
together. Only this package imports kafka-python and pyspark, and only the command line imports
this package, lazily: `import ketal` needs neither.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "spark":
        return importlib.import_module(f"{__name__}.spark")
    raise AttributeError(f"module 'ketal.streaming' has no attribute {name!r}", name=name)
