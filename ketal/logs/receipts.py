"""Which messages an event received, by an id that a log gives its messages: `--field message=PATH`.

Of the events that name a message, one sent it: the one that happened before the others. So the
clocks tell sends from receives, and no more than the id's place has to be known.

The one rule: an event receives the send of its message if the clock says that it came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ketal.errors import SettingError
from ketal.logs.formats.jsonl import Record
from ketal.logs.source import path_of
from ketal.logs.traces.message_pairing import text_at
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event, received
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits


def with_receipts(records: Iterable[Record], path: str, limits: Limits) -> Iterator[Record]:
    """Yield the records, each receive with its send in `receives`.

    Parameters
    ----------
    records : iterable of Record
        The log.
    path : str
        Where an event has its message's id.
    limits : Limits
        `events_max` bounds the events in memory.

    Raises
    ------
    SettingError
        If there are more records than `events_max`: a receive may be read before its send.
    """
    keys = path_of(path)
    held: list[Record] = []
    senders: dict[tuple[str, str], Event] = {}
    for record in records:
        if len(held) >= limits.events_max:
            raise SettingError(
                f"the log has more than {limits.events_max} records (limit events_max), and to "
                "pair messages by their ids holds them all"
            )
        held.append(record)
        event = record[1]
        name = text_at(event, keys) if isinstance(event, Event) else None
        if isinstance(event, Event) and name is not None:
            first = senders.setdefault((record[0], name), event)
            if canonical_key(event) < canonical_key(first):
                senders[record[0], name] = event
    for execution, item, file, line in held:
        name = text_at(item, keys) if isinstance(item, Event) else None
        sender = senders.get((execution, name)) if name is not None else None
        if isinstance(item, Event) and sender is not None:
            yield execution, _receiving(item, sender.dot), file, line
        else:
            yield execution, item, file, line


def _receiving(event: Event, send: Dot) -> Event:
    if event.dot == send or event.clock.get(send.node, 0) < send.counter:
        return event
    return msgspec.structs.replace(event, receives=(*received(event), send))
