"""Why a text is not JSON, for the reason of a rejected record.

The one rule: the reason names what is wrong in the text, not the state of the decoder.
"""

from __future__ import annotations

import json
import math
import re

from ketal.model.attributes import DIGITS_MAX
from ketal.model.wording import shortened

_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)', re.ASCII)
_SURROGATE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.")
"""An escape sequence: a surrogate pair, half of a pair (group 1), or any other escape."""


def why_not_json(text: str, fault: Exception) -> str:
    """Return why msgspec rejected a text: its syntax, its depth, or a number out of range."""
    if isinstance(fault, RecursionError):
        return "is nested too deeply"
    why = f"is not JSON: {str(fault).removeprefix('JSON is malformed: ')}"
    if "out of range" not in why:
        return f"is not JSON: {extension}" if (extension := _python_extension(text)) else why
    # The decoder accepted all text before the number, so strings there are well-formed.
    for token in _STRING_OR_NUMBER.finditer(text):
        number = token[1] or "0"
        is_integer = number.lstrip("-").isdigit()
        if len(number) > DIGITS_MAX if is_integer else math.isinf(float(number)):
            return f"cannot be read: the number {shortened(number, 40)} is out of range"
    return why


def _python_extension(text: str) -> str:
    """Return which extension of Python's `json` module a text uses; empty if none.

    The extensions are NaN and the infinities, and half of a surrogate pair, which Python writes for
    bytes that are not text.
    """
    constants: list[str] = []
    try:
        json.loads(text, parse_constant=constants.append)
    except (ValueError, RecursionError):
        return ""
    if constants:
        return f"{constants[0]} is not a JSON value (write null instead)"
    half = next((escape[1] for escape in _SURROGATE.finditer(text) if escape[1]), "")
    return half and f"{half} is half of a surrogate pair, not a character"
