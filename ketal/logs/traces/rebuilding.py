"""Rebuild vector clocks of events from messages and the order of each node's events.

Happened-before is the least order that contains the order of each node and puts each send
before its receives (Lamport, "Time, clocks, and the ordering of events in a distributed
system", 1978), and vector clocks represent that order. So a log that identifies its
messages determines vector clocks, even if its events have none: the sequence of a node's events in
the log is the node's order, and `Messages` pairs sends and receives. Conversely, if events have
vector clocks, these determine which event of a message is its send (`add_receives`).

The one rule: the clocks claim no more order than the log shows. A receive whose send is missing or
ambiguous is ordered by its node alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import msgspec

from ketal.clocks.vector import next_clock
from ketal.errors import EventError
from ketal.logs.log_records import map_events, place, read_all
from ketal.logs.shape import with_clock
from ketal.logs.source import MESSAGE, MappedFields, path_of
from ketal.logs.traces.message_pairing import Messages, Pairing, keys_void, paired, text_at
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event, received
from ketal.model.events.happened_before import canonical_key
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record
from ketal.model.wording import counted

Waiting = TypeVar("Waiting")


@dataclass
class Rebuilding:
    """Counts of the causes that could not be used to rebuild clocks, since the log lacks them.

    `sentences` describes each count. `void` has the keys that match no event of any execution, as
    `id=msg.id`: most likely mistyped.
    """

    unsent: int = 0
    ambiguous: int = 0
    unnamed: int = 0
    void: tuple[str, ...] = ()
    orphans: int = 0
    lost_links: int = 0
    round_links: int = 0

    def reset(self) -> None:
        """Reset the counts, for another reading of the log."""
        for counter in fields(self):
            setattr(self, counter.name, counter.default)

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each kind of cause that could not be used."""
        for key in self.void:
            yield f"no event fits {key}"
        counts = (
            (self.unsent, "receive", "whose send is not in the log"),
            (self.ambiguous, "receive", "of a message that several events send"),
            (self.unnamed, "receive", "without a message id"),
            (self.orphans, "span", "whose parent is missing"),
            (self.lost_links, "link", "to a missing span"),
            # Links of a span to itself are counted here, too.
            (self.round_links, "link", "dropped to avoid a cycle"),
        )
        for number, what, why in counts:
            if number:
                yield f"{counted(number, what)} {why}"


def rebuilt(
    records: Iterable[Record],
    messages: Messages,
    limits: Limits,
    rebuilding: Rebuilding,
) -> Iterator[Record]:
    """Yield the records, each event with a clock rebuilt from messages and its node's order.

    `receives` of a receive names its send. Clocks that events have already are ignored. A receive
    that happened before its own send, through other messages, has no valid clock and is rejected.
    Resets the counts in `rebuilding`, and counts unusable causes there.
    """
    rebuilding.reset()
    all_records = read_all(records, limits, "rebuilding clocks")
    executions: dict[str, list[int]] = {}
    for at, (execution, item, _, _) in enumerate(all_records):
        if isinstance(item, Event):
            executions.setdefault(execution, []).append(at)
    clocks: dict[int, dict[str, int]] = {}
    refused: dict[int, int] = {}
    receives: dict[int, tuple[Dot, ...]] = {}
    pairings: list[Pairing] = []
    for places in executions.values():
        events = [item for at in places if isinstance(item := all_records[at][1], Event)]
        pairing = paired(events, messages)
        rebuilding.unsent += len(pairing.unsent)
        rebuilding.ambiguous += len(pairing.ambiguous)
        rebuilding.unnamed += pairing.unnamed
        pairings.append(pairing)
        part_clocks, round_trips = clocks_from_sends(events, pairing.sends)
        clocks |= {places[at]: clock for at, clock in part_clocks.items()}
        for receive, send in pairing.sends.items():
            if send in part_clocks:
                node = events[send].node
                receives[places[receive]] = (Dot(node, part_clocks[send][node]),)
        refused |= {places[at]: places[send] for at, send in round_trips.items()}
    rebuilding.void = tuple(keys_void(pairings))

    def with_rebuilt_clock(at: int, event: Event) -> Event:
        if at in refused:
            raise EventError(
                "the event receives a message that is sent after it, "
                f"at {place(all_records[refused[at]])}, so it has no valid clock"
            )
        return with_clock(event, clocks[at], receives.get(at, ()), limits.clock_entries_max)

    yield from map_events(all_records, with_rebuilt_clock)


def add_receives(
    records: Iterable[Record], path: str, limits: Limits, mapped: MappedFields
) -> Iterator[Record]:
    """Yield the records, with the send of each receive added to `receives`: `--field message=PATH`.

    `path` is the path of the message id in an event. Of the events with the same id the first one
    in canonical order is the send, and those that it happened before are its receives; so clocks
    distinguish sends from receives, and only the path of the id has to be given. `mapped` tracks
    whether some event has an id, and counts the events that are neither.
    """
    keys = path_of(path)
    all_records = read_all(records, limits, "pairing messages by their ids")
    names: dict[int, tuple[str, str]] = {}
    senders: dict[tuple[str, str], Event] = {}
    for number, (execution, item, _, _) in enumerate(all_records):
        if not isinstance(item, Event):
            continue
        mapped.is_read = True
        if (text := text_at(item, keys)) is not None:
            mapped.absent.pop(MESSAGE, None)
            name = names[number] = (execution, text)
            senders[name] = min(senders.get(name, item), item, key=canonical_key)

    def with_send(number: int, event: Event) -> Event:
        if number not in names:
            return event
        send = senders[names[number]].dot
        if event.dot == send:
            return event
        if event.clock.get(send.node, 0) < send.counter:
            mapped.unpaired += 1
            return event
        return msgspec.structs.replace(event, receives=(*received(event), send))

    yield from map_events(all_records, with_send)


def clocks_from_sends(
    events: Sequence[Event], sends: Mapping[int, int]
) -> tuple[dict[int, dict[str, int]], dict[int, int]]:
    """Compute the clocks of the events of one execution, which are in the order of their nodes.

    Events are given by their position. `sends` maps each paired receive to its send. Returns the
    clocks by event, and the receives that happened before their own send and so have no clock, with
    that send.
    """
    send_of: dict[int, int] = dict(sends)
    receivers: dict[int, list[int]] = {}
    for receive, send in send_of.items():
        receivers.setdefault(send, []).append(receive)
    pending: dict[str, deque[int]] = {}
    for at, event in enumerate(events):
        pending.setdefault(event.node, deque()).append(at)
    clocks: dict[int, dict[str, int]] = {}
    refused: dict[int, int] = {}
    last: dict[str, dict[str, int]] = {}
    ready = deque(pending)
    first = 0
    remaining = len(events)
    while remaining:
        while ready:
            node = ready.popleft()
            queue = pending[node]
            while queue and (send_of.get(queue[0]) is None or send_of[queue[0]] in clocks):
                at = queue.popleft()
                send_clocks = [clocks[send_of[at]]] if at in send_of else []
                last[node] = clocks[at] = next_clock(node, [last.get(node, {}), *send_clocks])
                remaining -= 1
                ready.extend(events[receive].node for receive in receivers.get(at, ()))
        if remaining:
            # Each head waits for a send behind another head: some wait for each other in a cycle.
            while first in clocks or first in refused:
                first += 1
            at = min(waiting_cycle(first, lambda head: pending[events[send_of[head]].node][0]))
            refused[at] = send_of.pop(at)
            pending[events[at].node].popleft()
            remaining -= 1
            for receive in receivers.get(at, ()):
                # The rejected event has no clock, so its own messages order nothing.
                send_of.pop(receive, None)
                ready.append(events[receive].node)
            ready.append(events[at].node)
    return clocks, refused


def waiting_cycle(first: Waiting, awaited: Callable[[Waiting], Waiting]) -> list[Waiting]:
    """Return the cycle that `awaited` leads to from `first`, in which each waits for the next one.

    What is on the way to the cycle waits for it, but not for itself.
    """
    path: dict[Waiting, None] = {}
    while first not in path:
        path[first] = None
        first = awaited(first)
    waiting = list(path)
    return waiting[waiting.index(first) :]
