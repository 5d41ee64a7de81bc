"""Event time: seconds since the epoch, with a resolution of one microsecond.

The one rule: finer digits are rounded, so that a time is the same after it is written and read.
"""

from __future__ import annotations

import functools
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ketal.errors import EventError, value_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MIN_US: Final = -62_135_596_800_000_000
"""The first microsecond of the years 1 to 9999."""
TIME_MAX_US: Final = 253_402_300_800_000_000
"""The first microsecond after these years."""
_TIME_MIN_S = TIME_MIN_US / 1e6
_TIME_MAX_S = TIME_MAX_US / 1e6
_LAST_S = math.nextafter(_TIME_MAX_S, 0)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_LEAP_SECOND = re.compile(r"(?<=:\d\d):60(?!\d)", re.ASCII)
_FINER = re.compile(r"(?<=[.,]\d{6})\d+", re.ASCII)
_FINER_AT = len("2026-01-01T00:00:00.000000")
_DIGITS: Final = {1_000: 3, 1_000_000: 0, 1_000_000_000: -3}
"""To how many digits ms, us and ns are rounded to a microsecond, by how many are a second."""


def parsed_time(text: str) -> datetime:
    """Return the time in an RFC 3339 text; an EventError if it is not RFC 3339.

    A leap second is read as the second after it.
    """
    # Python also reads 20240101 as a day, which RFC 3339 does not allow.
    stripped = text.strip() if "-" in text else ""
    try:
        # Python would truncate finer digits.
        if not stripped[_FINER_AT : _FINER_AT + 1].isdigit():
            return datetime.fromisoformat(stripped)
    except ValueError:
        pass
    return _parse_rare_form(stripped, text)


def _parse_rare_form(stripped: str, text: str) -> datetime:
    """Read the parts of RFC 3339 that Python does not: lower case, leap seconds, finer digits."""
    extra = timedelta()
    stripped = stripped.upper()
    if finer := _FINER.search(stripped):
        stripped = _FINER.sub("", stripped)
        extra += _MICROSECOND * round(float(f"0.{finer[0]}"))
    if _LEAP_SECOND.search(stripped):
        stripped = _LEAP_SECOND.sub(":59", stripped)
        extra += _SECOND
    try:
        return datetime.fromisoformat(stripped) + extra
    except ValueError:
        raise EventError(
            f"time {text[:60]!r} is neither RFC 3339 nor seconds since the epoch"
        ) from None
    except OverflowError:
        raise _range_error(text) from None


def seconds(value: Any) -> float:
    """Return a time as seconds since the epoch, rounded to a microsecond.

    It is given as seconds since the epoch, as RFC 3339 text, or as a datetime (a naive one is read
    as UTC). An EventError if it is not a time between the years 1 and 9999.
    """
    if isinstance(value, float) and _TIME_MIN_S <= value < _TIME_MAX_S:
        return _whole(value * 1e6) / 1e6
    if isinstance(value, str):
        value = parsed_time(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        since = (aware - _EPOCH) / _MICROSECOND / 1e6
        if since == _TIME_MAX_S and aware.second == 59:
            return _LAST_S  # The last microseconds of the range would round up to its end.
        if not _TIME_MIN_S <= since < _TIME_MAX_S:
            raise _range_error(value.isoformat())
        return since
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EventError(f"time must be RFC 3339 or a number, not {value_text(value)[:60]}")
    if not _TIME_MIN_S <= value < _TIME_MAX_S or not math.isfinite(value):
        raise _range_error(value)
    return _whole(value * 1e6) / 1e6


def in_seconds(value: Any, per_second: int) -> float:
    """Return a number of ms, us or ns in seconds, by how many of them are a second.

    Digits finer than a microsecond are rounded before the division, since a time in seconds has
    too few digits for them.
    """
    # `value` is not declared as a float, to which mypyc would convert an integer before rounding.
    time_s: float = round(value, _DIGITS[per_second]) / per_second
    return time_s


def microseconds(time: Any) -> int | None:
    """Return seconds since the epoch (a float) in whole microseconds; None for None."""
    if time is None:
        return None
    time_s: float = time
    return _whole(time_s * 1e6)


def rounded(time_s: float) -> float:
    """Return a number of seconds rounded to a microsecond."""
    # From 2 ** 33 seconds on, neighbouring floats are more than a microsecond apart.
    return _whole(time_s * 1e6) / 1e6 if abs(time_s) < 2**33 else time_s


def _whole(value: float) -> int:
    """Return the whole number nearest to a value, of two the even one.

    It returns what `round` does. mypyc compiles this to arithmetic, but `round` to a call of the
    interpreter.
    """
    below = math.floor(value)
    fraction = value - float(below)
    return below + 1 if fraction > 0.5 or (fraction == 0.5 and below % 2 == 1) else below


def _range_error(value: Any) -> EventError:
    # Python does not print integers of more than 4,300 digits.
    long = isinstance(value, int) and value.bit_length() > 1_000
    shown = f"of {value.bit_length()} bits" if long else repr(value)
    return EventError(f"time {shown} is outside the years 1 to 9999")


@functools.lru_cache(maxsize=4_096)
def rfc3339(time: float) -> str:
    """Return seconds since the epoch as RFC 3339 text in UTC."""
    whole_s, us = divmod(_whole(time * 1e6), 1_000_000)
    text = _whole_second(whole_s)
    return text + (f".{us:06d}".rstrip("0") if us else "") + "Z"


@functools.lru_cache(maxsize=4_096)
def _whole_second(whole_s: int) -> str:
    return (_EPOCH + timedelta(seconds=whole_s)).isoformat(timespec="seconds")[:19]
