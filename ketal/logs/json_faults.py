"""Why a text is not JSON, for the message of a record that is rejected.

The one rule: the reason names what the text has, not where a decoder gave up.
"""

from __future__ import annotations

import json
import math
import re

from ketal.model.attributes import DIGITS_MAX
from ketal.model.wording import shortened

_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)', re.ASCII)
_SURROGATE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.")
"""An escape: a surrogate pair, the half of one (group 1), or another."""


def why_not_json(text: str, fault: Exception) -> str:
    """Return why msgspec does not read a text as JSON: a syntax error, or a number out of range."""
    why = f"is not JSON: {str(fault).removeprefix('JSON is malformed: ')}"
    if "out of range" not in why:
        return f"is not JSON: {foreign}" if (foreign := _only_pythons(text)) else why
    # The text before the number was read, so its strings are whole.
    for token in _STRING_OR_NUMBER.finditer(text):
        number = token[1] or "0"
        whole = number.lstrip("-").isdigit()
        if len(number) > DIGITS_MAX if whole else math.isinf(float(number)):
            return f"cannot be read: the number {shortened(number, 40)} is out of range"
    return why


def _only_pythons(text: str) -> str:
    """Return what a text has that Python's json writes and reads, and JSON has not; else nothing.

    That is a number that is none, or half of a surrogate pair, as of bytes that are no text.
    """
    constants: list[str] = []
    try:
        json.loads(text, parse_constant=constants.append)
    except (ValueError, RecursionError):
        return ""
    if constants:
        return f"it has no {constants[0]} (null is written for what is no number)"
    half = next((escape[1] for escape in _SURROGATE.finditer(text) if escape[1]), "")
    return half and f"{half} is half of a surrogate pair, and no character"
