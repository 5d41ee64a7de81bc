"""Times of records: from text or a number to the time of an event.

Text is RFC 3339, or in the `strptime` format of the source; without an offset it is UTC. A number,
or text that is a number, counts units since the epoch, unless the format itself writes numbers, as
`%Y%m%d%H%M%S` does: then numbers are read by the format.

The one rule: a format reads back what it writes. A format without the date, or with a 12-hour clock
but no AM/PM, is refused, since its times would be silently wrong.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from ketal.errors import EventError, SettingError, value_text
from ketal.model.events.event_time import in_seconds, parsed_time, seconds

TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DIRECTIVE = re.compile(r"%(.)", re.DOTALL)
_UNKNOWN = re.compile(r"'(.)' is a bad directive", re.DOTALL)
_SAMPLE = datetime(2013, 11, 27, 22, 53, 39, tzinfo=UTC)
"""None of its parts equals the default that `strptime` assumes for a part the format lacks."""


def check_time_format(text: object) -> None:
    """Raise a SettingError if times cannot be read by a format."""
    if not isinstance(text, str):
        raise SettingError(
            "the time format must be a string, for example %Y-%m-%d %H:%M:%S, "
            f"not {value_text(text)}"
        )
    what = f"the time format {text!r}"
    directives = _DIRECTIVE.findall(text)
    try:
        text.encode()  # strftime refuses a lone surrogate only before Python 3.13
        parsed = datetime.strptime(_sample_text(text), text.strip())
    except (ValueError, re.error) as fault:
        unknown = _UNKNOWN.match(str(fault))
        why = f"has an unknown directive, %{unknown[1]}" if unknown else f"is invalid ({fault})"
        raise SettingError(
            f"{what} {why}; use the directives of strptime, for example %Y-%m-%d %H:%M:%S"
        ) from None
    if "Z" in directives:
        raise SettingError(
            f"{what} has %Z, but the name of a time zone does not determine an offset; use %z "
            "for an offset, or write a constant name, for example UTC, literally"
        )
    if parsed.date() != _SAMPLE.date():
        raise SettingError(
            f"{what} has no complete date; include year, month and day, for example %Y-%m-%d"
        )
    if ("I" in directives) != ("p" in directives):
        raise SettingError(
            f"{what} has only one of %I and %p; use both, or %H, since 10 may be morning or evening"
        )


def _sample_text(text: str) -> str:
    return _SAMPLE.strftime(text.strip())


class TimeReading:
    """Reads times of records: numbers by a unit, text by a format (None for RFC 3339).

    `hint` and `unit_hint` are appended to error messages; they name the options that set the format
    and the unit.
    """

    def __init__(self, unit: str, format: str | None, hint: str = "", unit_hint: str = "") -> None:
        self._divisor = TIME_UNITS[unit]
        self._format = None if format is None else format.strip()
        self._hint = hint
        self._unit_hint = unit_hint
        self.numeric = format is not None and bool(_NUMBER.fullmatch(_sample_text(format)))
        """Whether the format writes numbers, so that numbers are read by it."""

    def read(self, value: Any) -> Any:
        """Return the time as a datetime, or as seconds since the epoch.

        A value that is neither text nor a number is returned unchanged. Raises an EventError for
        text that is not a time.
        """
        if value.__class__ is str:
            value = value.strip()
            if self.numeric or not _NUMBER.fullmatch(value):
                return self._parse(value)
            # As the number would be: a float has too few digits for nanoseconds.
            value = int(value) if value.isdigit() and len(value) < 20 else float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.numeric:
                return self._parse(str(value) if isinstance(value, int) else f"{value:.17g}")
            if self._divisor != 1:
                value = in_seconds(value, self._divisor)
            try:
                return seconds(value)
            except EventError as fault:
                raise EventError(f"{fault.reason}{self._unit_hint}") from None
        return value

    def _parse(self, text: str) -> datetime:
        if self._format is None:
            try:
                return parsed_time(text)
            except EventError as fault:
                raise EventError(f"{fault.reason}{self._hint}") from None
        try:
            parsed = datetime.strptime(text, self._format)
            # Without separators `strptime` accepts fewer digits: it reads 1369652019 as year 1369.
            fits = not self.numeric or parsed.strftime(self._format).startswith(text)
        except ValueError:
            fits = False
        if not fits:
            raise EventError(f"time {text[:60]!r} does not match the time format {self._format!r}")
        return parsed
