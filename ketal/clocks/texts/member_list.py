"""Clocks as a list of members, `n1=3,n2=5`: the form of W3C's headers `tracestate` and `baggage`.

Names are percent-encoded, so the text is one of visible ASCII characters, which headers of HTTP,
Kafka, gRPC and SMTP carry unchanged. The header of `ketal.trace.message_header` has its clock in
this form.

The one rule: every name can be written, and is read as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from ketal.clocks.scheme import Clock, counter_of
from ketal.errors import EventError

_COUNTER = re.compile(r"[0-9]{1,19}", re.ASCII)


def members_text(entries: Iterable[tuple[str, int]]) -> str:
    """Return names and counters as a list of members: `n1=3,n2=5`."""
    return ",".join(f"{quote(name, safe='')}={counter}" for name, counter in entries)


def members_of(text: str) -> list[tuple[str, int]]:
    """Return the names and counters of a list of members, in its order.

    Raises
    ------
    EventError
        If the text is none.
    """
    return [_member(part) for part in text.split(",")]


def header_text(clock: Clock) -> str:
    """Return a clock as a list of members, names sorted."""
    return members_text(sorted(clock.items()))


def header_clock(text: str) -> dict[str, int]:
    """Return the clock of a list of members, zeros dropped.

    Raises
    ------
    EventError
        If the text is none, or has a name twice.

    Examples
    --------
    >>> from ketal.clocks.texts.member_list import header_clock, header_text
    >>> header_text({"shop": 3, "a bank": 5})
    'a%20bank=5,shop=3'
    >>> header_clock("a%20bank=5,shop=3")
    {'a bank': 5, 'shop': 3}
    """
    entries = members_of(text) if text else []
    clock = dict(entries)
    if len(clock) < len(entries):
        raise EventError(f"clock: {text[:60]!r} has two entries of one name")
    return {name: counter for name, counter in clock.items() if counter}


def _member(text: str) -> tuple[str, int]:
    name, _, counter = text.rpartition("=")
    if not _COUNTER.fullmatch(counter):
        raise EventError(f"clock: {text[:60]!r} is no entry of a clock: name=counter")
    try:
        name = unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise EventError(f"clock: the name in {text[:60]!r} is no UTF-8") from None
    return name, counter_of(int(counter), f"the entry of {name[:60]!r}")
