"""The causal graph of an execution: how one event is before another, link by link.

Two links put an event directly before another: program order, from each event to the next of its
node, and a message, from an event to one of another node that happened immediately after it. A
message is an edge of the Hasse diagram of happened-before between nodes (Mattern, "Virtual time and
global states of distributed systems", 1989): no event of the log is between its ends. What a log
lacks is passed over, so program order leads to the next event that the log has, and a message
comes from the last event that it has of what the sender had done.

Nothing but an index by node is made before it is asked for. The links to an event cost a comparison
of its clock with that of the event before it on its node, and of the messages with each other; a
path costs that for each event that is visited, all of which are after its start and before its end.

The one rule: happened-before is that of the log's events, and each pair that it orders has a path.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ketal.clocks import vector
from ketal.clocks.scheme import Clock
from ketal.errors import EventError
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before

LinkKind = Literal["program order", "message"]


@dataclass(frozen=True, slots=True)
class CausalLink:
    """One link of a path.

    Attributes
    ----------
    source, target : Event
        The event before and the one after.
    """

    source: Event
    target: Event

    @property
    def kind(self) -> LinkKind:
        """`program order` on one node, `message` between two."""
        return "program order" if self.source.node == self.target.node else "message"

    @property
    def missing(self) -> int:
        """How many events of the source's node, after it, the target knows and the log lacks."""
        between = self.target.clock[self.source.node] - self.source.counter
        return between - 1 if self.kind == "program order" else between

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: `from`, `to`, `kind`, and `missing` where that is not 0."""
        ends = {"from": str(self.source.dot), "to": str(self.target.dot), "kind": self.kind}
        return {**ends, "missing": self.missing} if self.missing else ends


class CausalGraph:
    """The events of one execution, with the links between them.

    Parameters
    ----------
    events : iterable of Event
        Distinct events of one execution, in any order; clocks are whole, as a run has them.

    Attributes
    ----------
    nodes : dict of str to list of Event
        The events of each node in program order; the nodes by name.

    Raises
    ------
    EventError
        If two events have one dot.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_dot: dict[tuple[str, int], Event] = {}
        nodes: dict[str, list[Event]] = {}
        for event in events:
            if self._by_dot.setdefault(event.dot, event) is not event:
                raise EventError(f"two events have the dot {event.dot}; a dot is unique")
            nodes.setdefault(event.node, []).append(event)
        self.nodes = dict(sorted(nodes.items()))
        self._counters: dict[str, list[int]] = {}
        for node, own in self.nodes.items():
            own.sort(key=lambda event: event.counter)
            self._counters[node] = [event.counter for event in own]
        self._messages: dict[tuple[str, int], tuple[Event, ...]] = {}

    def __len__(self) -> int:
        return len(self._by_dot)

    def __contains__(self, dot: Dot) -> bool:
        return dot in self._by_dot

    def __getitem__(self, dot: Dot) -> Event:
        """Return the event of a dot; KeyError if the log has none."""
        return self._by_dot[dot]

    # --- links ---

    def previous(self, event: Event) -> Event | None:
        """Return the event before one on its node; None for the first."""
        return self.last_upto(event.node, event.counter - 1)

    def following(self, event: Event) -> Event | None:
        """Return the event after one on its node; None for the last."""
        place = bisect_right(self._counters[event.node], event.counter)
        own = self.nodes[event.node]
        return own[place] if place < len(own) else None

    def messages_to(self, event: Event) -> tuple[Event, ...]:
        """Return the events of other nodes that happened immediately before one, by node."""
        messages = self._messages.get(event.dot)
        if messages is None:
            messages = self._messages[event.dot] = tuple(self._received(event))
        return messages

    def messages_from(self, event: Event) -> tuple[Event, ...]:
        """Return the events of other nodes that happened immediately after one, by node."""
        return tuple(
            first
            for node in self.nodes
            if node != event.node
            and (first := self.first_after(event, node)) is not None
            and event in self.messages_to(first)
        )

    def _received(self, event: Event) -> Iterator[Event]:
        before = self.previous(event)
        old = {} if before is None else before.clock
        new: dict[tuple[str, int], Clock] = {}
        for node, counter in event.clock.items():
            if node != event.node and counter > old.get(node, 0):
                last = self.last_upto(node, counter)
                if last is not None and last.counter > old.get(node, 0):
                    new[last.dot] = last.clock
        for dot in sorted(vector.latest(new)):
            yield self._by_dot[dot]

    # --- pasts ---

    def last_upto(self, node: str, counter: int) -> Event | None:
        """Return a node's last event up to a counter; None where the log has none."""
        place = bisect_right(self._counters.get(node, ()), counter)
        return self.nodes[node][place - 1] if place else None

    def first_after(self, event: Event, node: str) -> Event | None:
        """Return a node's first event that another one happened before; None where there is none.

        Along a node the entries of clocks never fall.
        """
        own = self.nodes.get(node, [])
        place = bisect_left(
            own, event.counter + (node == event.node), key=lambda e: e.clock.get(event.node, 0)
        )
        return own[place] if place < len(own) else None

    def common_past(self, one: Event, other: Event) -> tuple[Event, ...]:
        """Return the last event of each node that happened before both of two events, by node."""
        lasts = []
        for node in sorted(one.clock.keys() & other.clock.keys()):
            upto = min(e.clock[node] - (e.node == node) for e in (one, other))
            last = self.last_upto(node, upto)
            if last is not None:
                lasts.append(last)
        return tuple(lasts)

    # --- paths ---

    def path(self, source: Event, target: Event) -> tuple[CausalLink, ...]:
        """Return a shortest path, by its number of links.

        Of several, read backwards from the target, it is the one that takes program order before a
        message, and of messages the one of the first node by name.

        Parameters
        ----------
        source, target : Event
            Two events of the log; the source happened before the target.

        Raises
        ------
        EventError
            If there is no path, as the clocks are not those of an execution.
        ValueError
            If the source did not happen before the target.
        """
        if not happened_before(source, target):
            raise ValueError(f"{source.dot} did not happen before {target.dot}")
        after: dict[tuple[str, int], Event] = {}
        visited = {target.dot}
        left = deque([target])
        while left:
            event = left.popleft()
            before = self.previous(event)
            for link in (*(() if before is None else (before,)), *self.messages_to(event)):
                if link.dot == source.dot:
                    after[link.dot] = event
                    return tuple(self._links(source, target, after))
                if link.dot not in visited and happened_before(source, link):
                    visited.add(link.dot)
                    after[link.dot] = event
                    left.append(link)
        raise EventError(
            f"the clocks are not those of an execution: {target.dot} knows {source.dot}, and no "
            "messages lead from one to the other; `ketal audit` says what is wrong"
        )

    def _links(
        self, source: Event, target: Event, after: dict[tuple[str, int], Event]
    ) -> Iterator[CausalLink]:
        while source.dot != target.dot:
            following = after[source.dot]
            yield CausalLink(source, following)
            source = following
