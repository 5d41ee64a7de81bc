"""Formatting of text that the messages of several packages share.

The place of a record of a log is `file:line` if it is in a file, `row N` for a row in memory (then
the file is empty), and empty for an event made by code (then the line is 0).

The one rule: a number is written with its noun, and text of unknown length is truncated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ketal.clocks.scheme import NO_CLOCKS
from ketal.errors import SettingError, columns

_ROW = "row "
_OF_OTHER_KIND = re.compile(r'true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?|".*"', re.DOTALL)


def place_at(file: str, line: int) -> str:
    """Return the place of a record."""
    if file:
        return f"{file}:{line}"
    return f"{_ROW}{line}" if line else ""


def file_and_line(place: str) -> tuple[str, int]:
    """Return the file and the line of a place; ("", 0) for any other text."""
    file, _, line = place.rpartition(":")
    if not file:
        line = line.removeprefix(_ROW)
    return (file, int(line)) if line.isascii() and line.isdigit() else ("", 0)


def undetermined(scheme: str) -> str:
    """Return the beginning of a sentence about what clocks of a scheme do not determine."""
    if scheme == NO_CLOCKS:
        return "a log without clocks does not determine"
    return f"{scheme} clocks do not determine"


def preformatted(text: str) -> str:
    """Return the HTML of a text as it is printed, for notebooks."""
    from html import escape  # here, as commands need not load it

    return f"<pre>{escape(text)}</pre>"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 match`, `2,000 matches`.

    `plural` is the plural of the noun, if it is not the singular with an `s`.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, length: int = 60) -> str:
    """Return a text, truncated to `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def unreadable_error(name: str, fault: Exception, instead: str, kind: str = "") -> SettingError:
    """Return the error for a file that cannot be opened; `kind` is written before its name.

    `instead` is what to do if the text of a file was given instead of its name.
    """
    if "{" in name or "\n" in name:
        text = shortened(" ".join(name.split()))
        return SettingError(f"{text!r} is not a file; {instead}")
    return SettingError(f"cannot read {kind}{name}: {getattr(fault, 'strerror', None) or fault}")


def divided(text: str, columns_max: int) -> tuple[str, str]:
    """Return the longest beginning of a text within `columns_max` columns, and the rest."""
    width = 0
    for index, character in enumerate(text):
        width += columns(character)
        if width > columns_max:
            return text[:index], text[index:]
    return text, ""


def fitted(text: str, columns_max: int) -> str:
    """Return a text, truncated to `columns_max` columns."""
    if columns(text) <= columns_max:
        return text
    return divided(text, columns_max - 1)[0] + "…"


def padded(text: str, width: int) -> str:
    """Return a text, padded with blanks to `width` columns."""
    return text + " " * (width - columns(text))


def json_text(value: Any) -> str:
    """Return a value as JSON for people, with non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def scope_text(scope: Mapping[str, Any]) -> str:
    """Return a scope as text, `key=x n=1`; a string that looks like another value is quoted."""
    return " ".join(
        f"{name}={value if _reads_as_text(value) else json_text(value)}"
        for name, value in scope.items()
    )


def _reads_as_text(value: Any) -> bool:
    return isinstance(value, str) and _OF_OTHER_KIND.fullmatch(value) is None


def unquoted(value: object) -> str:
    """Return a value as text without quotes; a boolean as in patterns, TOML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
