"""ShiViz's format written: a line of text, then a line with host and clock.

The text is the type, after a tab the attributes as JSON, and after others the time and what is
received where there is any. ShiViz's own expression reads it as one text; `WRITTEN_REGEX` reads the
parts apart, and with `WRITTEN_FIELDS` the log is what was written.

The one rule: what cannot be written so that it reads back is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from ketal.errors import SettingError
from ketal.model.events.event import Event
from ketal.model.events.event_time import rfc3339

WRITTEN_REGEX = (
    r"(?<event>.*)\t(?<data>{.*})(?:\t(?<time>[^\s\[]+))?(?:\t(?<receives>\[.*\]))?"
    r"\n(?<host>\S*) (?<clock>{.*})"
)
"""The expression that reads what is written."""
WRITTEN_FIELDS = {"data": "data", "time": "time", "receives": "receives"}
"""The fields that it reads beside ShiViz's own."""


def shiviz_text(executions: Iterable[tuple[str, Iterable[Event]]]) -> str:
    """Return executions as ShiViz reads them.

    Parameters
    ----------
    executions : iterable of (str, iterable of Event)
        The name and the events of each; several are divided by `=== NAME ===`.
    """
    parts = [(name, list(events)) for name, events in executions]
    lines: list[str] = []
    for name, events in parts:
        if len(parts) > 1:
            lines.append(f"=== {name} ===")
        for event in events:
            if len(event.node.split()) != 1 or event.node.strip() != event.node:
                raise SettingError(
                    f"{event.dot}: a host of ShiViz's holds no white space, and {event.node!r} does"
                )
            if len(event.type.splitlines()) != 1:
                raise SettingError(f"{event.dot}: the type {event.type!r} is not one line")
            data = msgspec.json.encode(event.data).decode()
            clock = json.dumps(event.clock, ensure_ascii=False)
            time = "" if event.time is None else f"\t{rfc3339(float(event.time))}"
            receives = msgspec.json.encode(list(map(str, event.receives))).decode()
            received = f"\t{receives}" if event.receives else ""
            lines += [f"{event.type}\t{data}{time}{received}", f"{event.node} {clock}"]
    return "".join(f"{line}\n" for line in lines)
