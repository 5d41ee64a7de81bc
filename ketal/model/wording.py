"""Words that messages of several packages have in common.

The place of a record of a log is `file:line` of a file, `row N` of rows in memory, and empty where
it came from code: of a row the file is empty, of what came from code the line is 0.

The one rule: a number is written with its noun, and text of unknown length is cut.
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
