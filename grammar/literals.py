"""Literals, built from lark's tokens: strings, numbers, durations, regular expressions.

The one rule: a faulty literal is reported to `fault`, and another literal of its kind is returned
for it.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, cast

from lark import Token

from ketal.errors import Span
from ketal.grammar.parse_tree import Fault, ParseTree, span_of
from ketal.model import syntax as ast
from ketal.model import values
from ketal.model.language_words import UNIT_NS
from ketal.model.limits import Limits

UNITS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "S": "s", "m": "min",
    "mins": "min", "minute": "min", "minutes": "min", "hour": "h", "hours": "h", "hr": "h",
    "H": "h", "day": "d", "days": "d", "msec": "ms", "millis": "ms", "milliseconds": "ms",
    "usec": "us", "micros": "us", "microseconds": "us", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
DIGITS_MAX = 309
_NOT_IN_RE2 = "RE2 supports neither look-around nor backreferences"
_REGEX_HINTS = {
    "repetition size": "RE2 allows up to 1000 repetitions, and nested counts multiply: "
    "`(a{50}){40}` is 2000",
    "repetition operator": "use parentheses to repeat a repetition: `(?:a{2}){3}`; "
    "nested counts multiply, up to 1000",
    "operator": _NOT_IN_RE2,
    "escape": _NOT_IN_RE2,
    "memory": "use smaller counts or a shorter expression, or raise the limit",
    "surrogate": "write the character itself",
    "": "write `\\` before a special character to match it literally",
}
"""Part of a message of RE2 → the hint for it; the first part that the message has counts."""


class Literals:
    """Converts literals to values, and checks the limits of regular expressions."""

    def __init__(self, limits: Limits, fault: Fault) -> None:
        self.limits = limits
        self.fault = fault

    def string(self, token: Token) -> str:
        """Return the value of a string token."""
        try:
            text = cast(str, json.loads(str(token), strict=False))
            text.encode()
        except json.JSONDecodeError as error:
            at = Span(
                token.line or 1, (token.column or 1) + error.pos - 1,
                token.line or 1, (token.column or 1) + error.pos + 1,
            )  # fmt: skip
            self.fault(
                "K004", "unknown escape in a string", at,
                r'use \" \\ \/ \b \f \n \r \t or \u with four hexadecimal digits',
            )  # fmt: skip
            return ""
        except UnicodeEncodeError:
            self.fault(
                "K004", "half of a surrogate pair is not a character", span_of(token),
                "write both halves or the character itself",
            )  # fmt: skip
            return ""
        return text

    def name_or_string(self, token: Token) -> str:
        """Return the name of a node, which is written bare or as a string."""
        return self.string(token) if token.type == "STRING" else str(token)

    def number(self, token: Token) -> int | float:
        """Return the value of a number token."""
        text = str(token)
        if text[0] == "0" and text[1:2].isdigit():
            self.fault(
                "K004", "a number cannot begin with 0", span_of(token),
                f"write `{text.lstrip('0') or '0'}`; "
                'write text such as a date in quotes: `"2024-01-01"`',
            )  # fmt: skip
        whole = text.isdigit()
        if len(text) <= DIGITS_MAX:
            number = int(text) if whole else float(text)
            if number != float("inf"):
                return number
        self._too_large(span_of(token))
        return 0

    def duration(self, tree: ParseTree) -> ast.Duration:
        """Return a duration; an unknown unit is a fault."""
        amount, unit = cast("tuple[Token, Token]", tree.children)
        if unit not in UNIT_NS:
            meant = UNITS.get(str(unit))
            hint = f"did you mean `{amount} {meant}`?" if meant else ""
            self.fault(
                "K005", f"unknown time unit `{unit}`", span_of(unit),
                hint or "use ns, us, ms, s, min, h or d",
            )  # fmt: skip
            unit = Token("NAME", "s")
        length = ast.Duration(self.number(amount), cast(Any, str(unit)), span=span_of(tree))
        if length.microseconds > sys.float_info.max:
            self._too_large(span_of(tree))
            return ast.Duration(0, "s")
        return length

    def _too_large(self, span: Span) -> None:
        self.fault("K004", "this number is too large", span, "the largest number is about 10^308")

    def regex(self, token: Token) -> str:
        """Return a regular expression; one that does not compile is a fault."""
        text = str(token)[1:-1]
        # `\/` is only the way to write a slash between slashes.
        regex = re.sub(r"\\(.)", lambda m: "/" if m[1] == "/" else m[0], text, flags=re.DOTALL)
        size = len(regex.encode("utf-8", "surrogatepass"))
        if size > self.limits.regex_bytes_max:
            self.fault(
                "K003", f"this regular expression has {size} bytes, more than "
                f"{self.limits.regex_bytes_max} (limit regex_bytes_max)", span_of(token),
                "split it, or raise the limit",
            )  # fmt: skip
        elif reason := _regex_fault(regex, self.limits):
            self.fault(
                "K009", f"invalid regular expression: {reason}", span_of(token),
                next(hint for word, hint in _REGEX_HINTS.items() if word in reason),
            )  # fmt: skip
        return regex


def _regex_fault(regex: str, limits: Limits) -> str:
    """Return why a regular expression does not compile; empty if it does."""
    import re2

    try:
        values.regex(regex, limits.regex_memory_max)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if "too large" in text:
            return (
                f"it needs more than {limits.regex_memory_max} bytes of memory "
                "(limit regex_memory_max)"
            )
        return text
    except UnicodeEncodeError:
        return "it contains half of a surrogate pair"
    return ""
