"""The causal graph of an execution: the links by which one event happened before another.

There are two kinds of links: program order, from each event to the next of its node, and a message,
from an event to one of another node that happened immediately after it. A message is an edge
between nodes in the Hasse diagram of happened-before (Mattern, "Virtual time and global states of
distributed systems", 1989): no event of the log is between its ends. Events that the log lacks are
skipped: program order leads to the next event that the log has, and a message comes from the
sender's last event before it that the log has.

Only an index by node is built in advance. The links to an event are computed once. Paths to one
target share a breadth-first search backwards from it, which goes only as far back as a path needs.

The one rule: a path leads from one event to another if and only if it happened before the other.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from ketal.clocks import vector
from ketal.clocks.scheme import Clock
from ketal.errors import EventError, near
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before

NODES_SHOWN = 5
"""How many nodes are named in an error about a node that the log lacks."""
SEARCHES_MAX = 8
"""How many targets' searches are cached; a match has few targets, often those of the last match."""


class CausalGraph:
    """The events of one execution, with the links between them.

    The events are distinct and have complete clocks, as a run has them; their order does not
    matter.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        nodes: dict[str, list[Event]] = {}
        for event in events:
            nodes.setdefault(event.node, []).append(event)
        self.nodes = dict(sorted(nodes.items()))
        """The events of each node in program order; the nodes by name."""
        self._counters: dict[str, list[int]] = {}
        for node, own in self.nodes.items():
            own.sort(key=lambda event: event.counter)
            self._counters[node] = [event.counter for event in own]
        # An event's number is its index here; the events of a node are adjacent.
        self._events = [event for own in self.nodes.values() for event in own]
        self._numbers: dict[tuple[str, int], int]
        self._numbers = {event.dot: number for number, event in enumerate(self._events)}
        self._links: list[tuple[int, ...] | None] = [None] * len(self._events)
        self._search_to = functools.lru_cache(SEARCHES_MAX)(_PathSearch)

    def __contains__(self, dot: Dot) -> bool:
        return dot in self._numbers

    def __getitem__(self, dot: Dot) -> Event:
        """Return the event of a dot; KeyError if the log has none."""
        return self._events[self._numbers[dot]]

    # --- links ---

    def previous(self, event: Event) -> Event | None:
        """Return an event's predecessor on its node; None for the first event."""
        return self.last_upto(event.node, event.counter - 1)

    def messages_to(self, event: Event) -> tuple[Event, ...]:
        """Return the events of other nodes that happened immediately before an event, by node."""
        links = (self._events[number] for number in self._links_to(self._numbers[event.dot]))
        return tuple(link for link in links if link.node != event.node)

    def _links_to(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the events linked to one: its predecessor, then others by node."""
        links = self._links[number]
        if links is None:
            links = self._links[number] = tuple(self._find_links(self._events[number]))
        return links

    def _find_links(self, event: Event) -> Iterator[int]:
        before = self.previous(event)
        old = {} if before is None else before.clock
        if before is not None:
            yield self._numbers[before.dot]
        new: dict[tuple[str, int], Clock] = {}
        for node, counter in event.clock.items():
            if node != event.node and counter > old.get(node, 0):
                last = self.last_upto(node, counter)
                if last is not None and last.counter > old.get(node, 0):
                    new[last.dot] = last.clock
        for dot in sorted(vector.maximal_events(new)):
            yield self._numbers[dot]

    # --- pasts ---

    def last_upto(self, node: str, counter: int) -> Event | None:
        """Return a node's last event up to a counter; None if the log has none."""
        place = bisect_right(self._counters.get(node, ()), counter)
        return self.nodes[node][place - 1] if place else None

    def last_known(self, one: Event, other: Event) -> tuple[Event | None, Event | None]:
        """Return the last event of `one`'s node that `other` knows, and the reverse, or None."""
        return (
            self.last_upto(one.node, other.clock.get(one.node, 0)),
            self.last_upto(other.node, one.clock.get(other.node, 0)),
        )

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

    def path(self, source: Event, target: Event, *, links_max: int) -> tuple[Event, ...]:
        """Return the events of a shortest path; empty if it has more than `links_max` links.

        The source happened before the target. Of several shortest paths, the one returned, read
        backwards from the target, prefers program order to a message, and of messages that of the
        first node by name.

        An EventError if there is no path, since the clocks are not those of an execution.
        """
        assert happened_before(source, target)
        first, last = self._numbers[source.dot], self._numbers[target.dot]
        search = self._search_to(last)
        while first not in search.after and search.farthest and search.links < links_max:
            search.go_back(self._links_to)
        if first in search.after:
            path = search.path_from(first)
            return tuple(self._events[n] for n in path) if len(path) <= links_max + 1 else ()
        if any(happened_before(source, self._events[number]) for number in search.farthest):
            return ()
        raise EventError(
            f"inconsistent clocks: {target.dot} knows {source.dot}, but no chain of messages leads "
            f"from {source.dot} to {target.dot}; run `ketal audit` to find the fault"
        )


class _PathSearch:
    """A breadth-first search backwards from an event; events are given by number."""

    def __init__(self, target: int) -> None:
        self.after = {target: target}
        """For each event reached, the next event on the way to the target."""
        self.farthest = [target]
        """The events at a distance of exactly `links` links, in the order of their paths."""
        self.links = 0
        """How many links the search has gone back."""

    def go_back(self, links_to: Callable[[int], tuple[int, ...]]) -> None:
        """Go one link further back."""
        after, reached = self.after, []
        for event in self.farthest:
            for link in links_to(event):
                if link not in after:
                    after[link] = event
                    reached.append(link)
        self.farthest = reached
        self.links += 1

    def path_from(self, source: int) -> list[int]:
        """Return the path from an event reached to the target."""
        path = [source]
        while (event := self.after[path[-1]]) != path[-1]:
            path.append(event)
        return path


def missing_event_hint(dot: Dot, events: Sequence[Event]) -> str:
    """Return the end of a message about a missing event: the nearest events, or the nodes."""
    counters = sorted({event.counter for event in events if event.node == dot.node})
    if not counters:
        nodes = sorted({event.node for event in events})
        more = f" and {len(nodes) - NODES_SHOWN:,} more" if len(nodes) > NODES_SHOWN else ""
        shown = ", ".join(nodes[:NODES_SHOWN]) or "none"
        return f": it has no node {dot.node}{near(dot.node, nodes, f'its nodes are {shown}{more}')}"
    place = bisect_left(counters, dot.counter)
    beside = " and ".join(str(Dot(dot.node, c)) for c in counters[max(place - 1, 0) : place + 1])
    knower = next((event for event in events if event.clock.get(dot.node, 0) >= dot.counter), None)
    known = "" if knower is None else f", although {knower.dot} is after it"
    return f"{known}; nearest in the log: {beside}"
