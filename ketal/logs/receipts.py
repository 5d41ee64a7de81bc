"""Which messages an event received, by an id that a log gives its messages: `--field message=PATH`.

Of the events that name a message, one sent it: the one that happened before the others. So the
clocks tell sends from receives, and no more than the id's place has to be known.

The one rule: an event receives the send of its message if the clock says that it came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ketal.logs.log_records import Record, held
from ketal.logs.source import path_of
from ketal.logs.traces.message_pairing import text_at
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event, received
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits


def with_receipts(records: Iterable[Record], path: str, limits: Limits) -> Iterator[Record]:
    """Yield the records, each receive with its send in `receives`.

    `path` is where an event has its message's id.
    """
    keys = path_of(path)
    whole = held(records, limits, "to pair messages by their ids")
    senders: dict[tuple[str, str], Event] = {}
    for execution, item, _, _ in whole:
        if isinstance(item, Event) and (name := text_at(item, keys)) is not None:
            first = senders.setdefault((execution, name), item)
            if canonical_key(item) < canonical_key(first):
                senders[execution, name] = item
    for execution, item, file, line in whole:
        if isinstance(item, Event) and (name := text_at(item, keys)) is not None:
            item = _receiving(item, senders[execution, name].dot)
        yield execution, item, file, line


def _receiving(event: Event, send: Dot) -> Event:
    if event.dot == send or event.clock.get(send.node, 0) < send.counter:
        return event
    return msgspec.structs.replace(event, receives=(*received(event), send))
