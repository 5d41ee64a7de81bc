"""The vector clock of a message, as the text of one header.

    ketal-clock: 1;n1;n1=3,n2=5
    ketal-clock: 1;n1;n1=3,n2=5;n1=2

The fields are the version of the format, the sender's node, the clock of the send (whose own
counter is the sender's entry), and the events of the enclosing calls, if any. Clock and
calls are lists of members, as in W3C's headers `tracestate` and `baggage`. Names are
percent-encoded, so the text consists of visible ASCII characters, which HTTP, Kafka, gRPC and SMTP
transfer unchanged.

A program that passes on the headers of a message that it received, beside its own, sends several
clocks. The last is that of the send; libraries that join headers of one name separate them by
commas.

The one rule: `decoded(encoded(node, clock, calls))` returns the clock, and the dots of the send and
of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import quote, unquote

from ketal.clocks.vector import COUNTER_MAX
from ketal.errors import raise_of_signal

NAME = "ketal-clock"
"""The name of the header."""
VERSION = "1"
BYTES_MAX = 65_000
"""Maximum length of a header; longer ones are neither written nor read. `http.client` reads lines
of 65,536 bytes at most."""
SHORT_MAX = 4_096
"""Maximum length for HTTP and gRPC, whose servers refuse requests with about 8,000 bytes of
headers, and for OpenTelemetry, which drops longer entries of baggage."""

_COUNTER = re.compile(r"[0-9]{1,19}", re.ASCII)
_JOINED = re.compile(r", *(?=[0-9]+;)", re.ASCII)
"""The comma between two clocks; one between two members is never followed by a version."""

Text = str | bytes


class NamedHeaders(Protocol):
    """Headers by name, as in a mapping or an `email.message.Message`."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return names and values."""


Headers = NamedHeaders | Iterable[tuple[Text, Text]] | Text | None


class SenderKnowledge(NamedTuple):
    """The content of a message's header: the knowledge of its sender."""

    clock: dict[str, int]
    """The clock of the send."""
    dots: tuple[str, ...]
    """The dots of the send and of its enclosing calls, as `node@counter`."""


NO_KNOWLEDGE = SenderKnowledge({}, ())


def encoded(node: str, clock: Mapping[str, int], calls: Iterable[tuple[str, int]] = ()) -> str:
    """Return the header of a message: sender, clock, and the enclosing calls (node, counter).

    A call that the clock does not include is left out: another tracer of the process recorded it.
    """
    text = f"{VERSION};{quote(node, safe='')};{_members_text(clock.items())}"
    calls_text = _members_text(call for call in calls if call[1] <= clock.get(call[0], 0))
    return f"{text};{calls_text}" if calls_text else text


def decoded(text: str | bytes) -> SenderKnowledge:
    """Parse a header, the last of several joined ones.

    Raises a ValueError if it is malformed, too long or of another version.
    """
    if len(text) > BYTES_MAX:
        raise ValueError(f"the header has {len(text):,} bytes, more than {BYTES_MAX:,}")
    if isinstance(text, bytes):
        text = text.decode("ascii")
    text = _JOINED.split(text)[-1]
    if text.count(";") < 2:
        raise ValueError(f"{text[:60]!r} is not of the form version;node;clock")
    version, node, entries, *calls = text.split(";", 3)
    if version != VERSION:
        raise ValueError(f"the header has version {version[:20]!r}, not {VERSION}")
    sender = unquote(node, errors="strict")
    clock = dict(_members(entries))
    dots = [(sender, clock.get(sender, 0)), *(_members(calls[0]) if calls else ())]
    for name, counter in dots:
        if not 0 < counter <= clock.get(name, 0):
            raise ValueError(f"the clock does not include event {counter} of {name[:60]!r}")
    return SenderKnowledge(clock, tuple(f"{name}@{counter}" for name, counter in dots))


def _members_text(entries: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{quote(name, safe='')}={counter}" for name, counter in entries)


def _members(text: str) -> list[tuple[str, int]]:
    """Return the names and counters of a list of members, in order."""
    members = []
    for part in text.split(","):
        name, _, counter = part.rpartition("=")
        if not _COUNTER.fullmatch(counter) or int(counter) > COUNTER_MAX:
            raise ValueError(f"{part[:60]!r} is not a clock entry of the form name=counter")
        if not name:
            raise ValueError("a node name in the clock is empty")
        members.append((unquote(name, errors="strict"), int(counter)))
    return members


def sender_knowledge(headers: Headers, count_failure: Callable[[str], None]) -> SenderKnowledge:
    """Return the sender's knowledge from a message's headers, or from the text of its clock.

    If the clock is missing or malformed, calls `count_failure` with the reason and returns
    `NO_KNOWLEDGE`.
    """
    try:
        text = _clock_text(headers)
        if text is not None:
            return decoded(text)
        count_failure(f"a message without the header {NAME} was received")
    except Exception as error:  # The headers may be any object of the program.
        raise_of_signal(error)
        count_failure(f"a message's clock cannot be read: {error}")
    return NO_KNOWLEDGE


def _clock_text(headers: Headers) -> Text | None:
    """Return the last header with the case-insensitive name of the clock; None if it is missing."""
    if headers is None or isinstance(headers, str | bytes):
        return headers
    items = getattr(headers, "items", None)
    clock = None
    for name, value in cast("Iterable[tuple[Text, Text]]", headers if items is None else items()):
        if _is_clock(name):
            clock = value
    return clock


def without_clocks(headers: Iterable[tuple[Text, Text]]) -> list[tuple[Text, Text]]:
    """Return the headers of a message without the clocks of messages that they were received with.

    A carrier that adds a clock removes these first, so that headers that are passed on by many
    programs do not grow.
    """
    return [(name, value) for name, value in headers if not _is_clock(name)]


def _is_clock(name: Text) -> bool:
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    return text.lower() == NAME


def kafka_headers(headers: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """Convert the headers of a message to the headers of a Kafka record.

    `Tracer.receive` accepts the headers of a Kafka record unchanged.

    Parameters
    ----------
    headers : mapping
        The headers that `Tracer.send` returned.

    Examples
    --------
    >>> from ketal.trace import Tracer, kafka_headers
    >>> kafka_headers(Tracer("n1", "n1.jsonl").send("order"))
    [('ketal-clock', b'1;n1;n1=1')]
    """
    return [(name, text.encode("ascii")) for name, text in headers.items()]
