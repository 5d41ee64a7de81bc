"""Users' regular expressions, in JavaScript's or Python's syntax, run by RE2.

RE2 matches in time linear in the text (Cox, "Regular expression matching can be simple
and fast", 2007), and so has neither lookaround nor backreferences. Where the two
syntaxes differ from RE2's, the expression is rewritten; `^` and `$` match at every line, as
in ShiViz.

The one rule: an error in an expression is reported in terms of the text that the user wrote,
with its column.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any, NamedTuple

import re2

from ketal.errors import SettingError
from ketal.model.limits import DEFAULT, Limits
from ketal.model.wording import shortened

_MULTILINE = "(?m)"
"""Makes `^` and `$` match at every line."""
NAME = re.compile(r"\(\?P?<([^=!>][^>]*)>")
"""The name of a group, in either syntax."""
_HEX = re.compile(r"u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})")
_UNSUPPORTED_SYNTAX = {
    "(?=": "lookahead",
    "(?!": "lookahead",
    "(?<=": "lookbehind",
    "(?<!": "lookbehind",
    "(?P=": "a backreference",
    "(?>": "an atomic group",
    "(?(": "a conditional group",
}


def compile_regex(text: str, *, what: str = "regex", limits: Limits = DEFAULT) -> Any:
    """Compile an expression that matches UTF-8 bytes, with `^` and `$` at every line.

    `text` is in JavaScript's or Python's syntax; `what` names it in error messages. Raises a
    SettingError if it is not a regular expression, is longer than `regex_bytes_max`, requires more
    than `regex_memory_max`, or uses what cannot be matched in linear time.
    """
    if len(text.encode(errors="replace")) > limits.regex_bytes_max:
        raise SettingError(
            f"{what} is longer than {limits.regex_bytes_max} bytes (limit regex_bytes_max)"
        )
    names = NAME.findall(text)
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"{what} has two groups named {name!r}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = limits.regex_memory_max
    translation = _translate(text, what)
    try:
        return re2.compile((_MULTILINE + translation.text).encode(), options)
    except re2.error as fault:
        why = _why_invalid(text, translation, fault, options)
        raise SettingError(f"{what} is not a valid regular expression (RE2): {why}") from None
    except UnicodeEncodeError:
        raise SettingError(f"{what} is not valid Unicode") from None


class _Translation(NamedTuple):
    """An expression in RE2's syntax, with offsets into the user's text."""

    text: str
    places: list[int]
    """For each character of `text`, its offset in the user's text."""
    opened: list[int]
    """The offsets of `(` that are not closed."""
    closed: int | None
    """The offset of the first `)` that closes no group."""


def _translate(text: str, what: str) -> _Translation:
    """Translate an expression from JavaScript's or Python's syntax to RE2's."""
    out: list[tuple[str, int]] = []
    opened: list[int] = []
    closed: int | None = None
    at, in_class = 0, False
    while at < len(text):
        char, start = text[at], at
        if char == "\\":
            piece, at = _translate_escape(text, at + 1, in_class, what)
            out.append((piece, start))
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            # In JavaScript, [] matches nothing and [^] everything.
            for spelling, meaning in (("[^]", r"[\s\S]"), ("[]", r"[^\s\S]")):
                if text.startswith(spelling, at):
                    char = meaning
                    at += len(spelling) - 1
                    break
            else:
                in_class = True
        elif char == "(":
            for opening, name in _UNSUPPORTED_SYNTAX.items():
                if text.startswith(opening, at):
                    raise _unsupported_error(what, name, at)
            opened.append(at)
            if text.startswith("(?<", at):
                char = "(?P<"
                at += 2
        elif char == ")":
            if opened:
                opened.pop()
            elif closed is None:
                closed = at
        out.append((char, start))
        at += 1
    places = [place for piece, place in out for _ in piece]
    return _Translation("".join(piece for piece, _ in out), places, opened, closed)


def _why_invalid(text: str, translation: _Translation, fault: Exception, options: Any) -> str:
    """Return RE2's error message for an expression, with the column in the user's text."""
    message = _error_message(fault)
    kind, _, piece = message.partition(": ")
    end = None
    if kind == "missing )":
        start = translation.opened[-1] if translation.opened else 0
    elif kind == "unexpected )":
        start = translation.closed or 0
    else:
        # RE2 reads from the left and stops at the first error, so the shortest prefix with this
        # error ends where the error is.
        last = bisect_left(
            range(len(translation.text) + 1),
            True,
            key=lambda n: _compile_error(translation.text[:n], options) == message,
        )
        first = last - len(piece)
        if not piece or not 0 <= first < len(translation.places):
            return kind
        start = translation.places[first]
        end = next((p for p in translation.places[last:] if p > start), len(text))
    return f"{kind} at column {start + 1}: `{shortened(text[start:end])}`"


def _compile_error(text: str, options: Any) -> str:
    """Return RE2's error message for an expression; empty if it compiles."""
    try:
        re2.compile((_MULTILINE + text).encode(), options)
    except re2.error as fault:
        return _error_message(fault)
    return ""


def _error_message(fault: Exception) -> str:
    why = fault.args[0] if fault.args else fault
    return why.decode(errors="replace") if isinstance(why, bytes) else str(why)


def _translate_escape(text: str, at: int, in_class: bool, what: str) -> tuple[str, int]:
    """Translate the escape sequence whose backslash is before `at`; return it and its end."""
    char = text[at : at + 1]
    if not in_class and ((char and char in "123456789") or text.startswith("k<", at)):
        raise _unsupported_error(what, "a backreference", at - 1)
    if char == "u" and (code := _HEX.match(text, at)):
        return f"\\x{{{code[1] or code[2]}}}", code.end()
    if char == "c" and text[at + 1 : at + 2].isalpha():
        return f"\\x{{{ord(text[at + 1]) % 32:x}}}", at + 2
    if char == "0" and not text[at + 1 : at + 2].isdigit():
        return r"\x00", at + 1
    if char == "b" and in_class:
        return r"\x08", at + 1
    if char == "C":  # RE2 would match one byte, which may be a part of a character.
        return "C", at + 1
    if char == "Z":
        return r"\z", at + 1
    return "\\" + char, at + 1


def _unsupported_error(what: str, name: str, at: int) -> SettingError:
    return SettingError(
        f"{what} uses {name} at column {at + 1}, which cannot be matched in linear time; "
        "rewrite the expression without it"
    )
