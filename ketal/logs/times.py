"""Times of records: text or a number to what an event takes for its time.

Text is RFC 3339, or in the format that the source names, one of `strptime` as in C; without
an offset it is UTC. A number, as text too, counts units since the epoch, unless the format
itself writes numbers, as `%Y%m%d%H%M%S`: then a number is read by it.

The one rule: a format reads back what it writes. One that loses the date or half of the day
is refused, since its times would be wrong in silence.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from ketal.errors import EventError, SettingError
from ketal.model.events.event_time import parsed_time, seconds

TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DIRECTIVE = re.compile(r"%(.)", re.DOTALL)
_UNKNOWN = re.compile(r"'(.)' is a bad directive", re.DOTALL)
_SAMPLE = datetime(2013, 11, 27, 22, 53, 39, tzinfo=UTC)
"""No part of it is what `strptime` assumes where a format has no such part."""


def check_time_format(text: object) -> None:
    """Raise the SettingError of a format by which times cannot be read."""
    if not isinstance(text, str):
        raise SettingError(f"the time format must be a text as %Y-%m-%d %H:%M:%S, not {text!r}")
    what = f"the time format {text!r}"
    directives = _DIRECTIVE.findall(text)
    try:
        text.encode()  # strftime refuses a lone surrogate only before Python 3.13
        read = datetime.strptime(_written(text), text.strip())
    except (ValueError, re.error) as fault:
        unknown = _UNKNOWN.match(str(fault))
        why = f"has an unknown directive, %{unknown[1]}" if unknown else f"is none: {fault}"
        raise SettingError(f"{what} {why}; it is one of strptime, as %Y-%m-%d %H:%M:%S") from None
    if "Z" in directives:
        raise SettingError(
            f"{what} has %Z, and a zone's name is no offset; %z reads offsets, and a name that "
            "is always the same, as UTC, is written as it is"
        )
    if read.date() != _SAMPLE.date():
        raise SettingError(f"{what} has no date; it needs year, month and day, as %Y-%m-%d")
    if ("I" in directives) != ("p" in directives):
        raise SettingError(f"{what} needs %I and %p together, or %H: 10 is morning or evening")


def _written(text: str) -> str:
    return _SAMPLE.strftime(text.strip())


class TimeReading:
    """How times of records are read: numbers by a unit, text by a format, None for RFC 3339.

    Messages of faults say in `hint` what says how text is read, in `unit_hint` in which unit
    numbers are.
    """

    def __init__(self, unit: str, format: str | None, hint: str = "", unit_hint: str = "") -> None:
        self._divisor = TIME_UNITS[unit]
        self._format = None if format is None else format.strip()
        self._hint = hint
        self._unit_hint = unit_hint
        self.numeric = format is not None and bool(_NUMBER.fullmatch(_written(format)))
        """Whether the format writes numbers, so that a number is read by it."""

    def read(self, value: Any) -> Any:
        """Return what an event takes: a datetime, or seconds since the epoch.

        What is neither text nor a number is returned as it is; text that is no time is an
        EventError.
        """
        if value.__class__ is str:
            value = value.strip()
            if self.numeric or not _NUMBER.fullmatch(value):
                return self._parsed(value)
            value = float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.numeric:
                return self._parsed(str(value) if isinstance(value, int) else f"{value:.17g}")
            if self._divisor != 1:
                value = value / self._divisor
            try:
                return seconds(value)
            except EventError as fault:
                raise EventError(f"{fault.reason}{self._unit_hint}") from None
        return value

    def _parsed(self, text: str) -> datetime:
        if self._format is None:
            try:
                return parsed_time(text)
            except EventError as fault:
                raise EventError(f"{fault.reason}{self._hint}") from None
        try:
            read = datetime.strptime(text, self._format)
            # Where nothing stands between digits `strptime` takes fewer: 1369652019 as of 1369.
            fits = not self.numeric or read.strftime(self._format).startswith(text)
        except ValueError:
            fits = False
        if not fits:
            raise EventError(f"time {text[:60]!r} does not fit the time format {self._format!r}")
        return read
