"""The file by which each engine marks a folder of state as its own.

The one rule: a folder contains the state of one engine. Another engine would not find its own state
there, begin at the start of the topics, and write all verdicts again.
"""

from __future__ import annotations

from collections.abc import Collection

from ketal.errors import SettingError

ENGINE_FILES = {"process": "group.json", "spark": "job.json"}
"""Engine → the name of its file in a folder of state."""


def check_engine(folder: object, names: Collection[str], engine: str) -> None:
    """Raise a SettingError if a folder with files of these names has state of another engine."""
    for other, file in ENGINE_FILES.items():
        if other != engine and file in names:
            raise SettingError(
                f"{folder} contains the state of a job of the engine {other}, but this job's "
                f"engine is {engine}: give this job its own folder, [state] store dir:PATH"
            )
