"""Words that messages of several packages have in common.

The place of a record of a log is `file:line` of a file, `row N` of rows in memory, and empty where
it came from code: of a row the file is empty, of what came from code the line is 0.

The one rule: a number is written with its noun, and text of unknown length is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_ROW = "row "
_OF_OTHER_KIND = re.compile(r'true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?|".*"', re.DOTALL)


def place_at(file: str, line: int) -> str:
    """Return the place of a record."""
    if file:
        return f"{file}:{line}"
    return f"{_ROW}{line}" if line else ""


def file_and_line(place: str) -> tuple[str, int]:
    """Return what `place_at` was given; an empty file and 0 of another text."""
    file, _, line = place.rpartition(":")
    if not file:
        line = line.removeprefix(_ROW)
    return (file, int(line)) if line.isascii() and line.isdigit() else ("", 0)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things in words: `1 match`, `2,000 matches`.

    Parameters
    ----------
    number : int
        How many.
    noun : str
        What one of them is called.
    plural : str
        What several are called, if not the noun with an `s`.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, length: int = 60) -> str:
    """Return text, cut off if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def json_text(value: Any) -> str:
    """Return a value as JSON for people, in characters of its own."""
    return json.dumps(value, ensure_ascii=False)


def scope_text(scope: Mapping[str, Any]) -> str:
    """Return a scope for people, `key=x n=1`; a string that reads as another value is in quotes."""
    return " ".join(
        f"{name}={value if _reads_as_text(value) else json_text(value)}"
        for name, value in scope.items()
    )


def _reads_as_text(value: Any) -> bool:
    return isinstance(value, str) and _OF_OTHER_KIND.fullmatch(value) is None
