"""The vector clock of a message, as the text of one header.

    ketal-clock: 1;n1;n1=3,n2=5

The version of the format, the node that sent, and the clock of the send event, whose own counter
is the sender's entry. Names are percent-encoded, so the text is one of visible ASCII characters
that HTTP, Kafka, gRPC and SMTP carry unchanged.

The one rule: `decoded(encoded(node, clock)) == (node, clock)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

NAME = "ketal-clock"
"""The name of the header."""
VERSION = "1"
BYTES_MAX = 65_536
"""A longer header is refused when it is read."""


def encoded(node: str, clock: Mapping[str, int]) -> str:
    """Return the text of a header.

    Parameters
    ----------
    node : str
        The node that sends.
    clock : mapping
        The clock of the send event.
    """
    entries = ",".join(f"{quote(name, safe='')}={counter}" for name, counter in clock.items())
    return f"{VERSION};{quote(node, safe='')};{entries}"


def decoded(text: str | bytes) -> tuple[str, dict[str, int]]:
    """Return the node that sent, and the clock of the send event.

    Raises
    ------
    ValueError
        If the text is no header of this version.
    """
    if len(text) > BYTES_MAX:
        raise ValueError(f"the header has {len(text):,} bytes, and {BYTES_MAX:,} are read at most")
    if isinstance(text, bytes):
        text = text.decode("ascii")
    version, node, entries = text.split(";")
    if version != VERSION:
        raise ValueError(f"the header is of version {version[:20]!r}, not {VERSION}")
    clock = {}
    for entry in entries.split(","):
        name, _, counter = entry.rpartition("=")
        if not counter.isascii() or not counter.isdigit():
            raise ValueError(f"{entry[:60]!r} is no entry of a clock")
        clock[unquote(name, errors="strict")] = int(counter)
    sender = unquote(node, errors="strict")
    if clock.get(sender, 0) < 1:
        raise ValueError(f"the clock has no counter of its sender {sender[:60]!r}")
    return sender, clock
