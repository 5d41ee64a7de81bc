"""Streams: Kafka and Spark drivers around the core (DESIGN 7).

A driver reads events, hands them to the core, writes verdicts, and stores state and offsets
together; what an event means is not decided here. kafka-python and pyspark are imported in this
room alone, and only the command line imports this room, lazily: `import ketal` needs neither.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "spark":
        home = f"{__name__}.spark"
        try:
            return importlib.import_module(home)
        except ModuleNotFoundError as missing:
            if missing.name != home:
                raise
        raise AttributeError(f"{home} is not available yet", name=name)
    raise AttributeError(f"module 'ketal.streaming' has no attribute {name!r}", name=name)
