"""Where a record of a log stands, as text.

`file:line` of a file, `row N` of rows in memory, empty where it came from code. The one rule:
a record has a file and a line; of a row the file is empty, of what came from code the line is 0.
"""

from __future__ import annotations

_ROW = "row "


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
