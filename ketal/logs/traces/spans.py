"""Convert the spans of a distributed trace to events with vector clocks.

A span records when an operation of a service began and ended, and which span called it.
Its begin and its end become two events of the service's node, and happened-before is
rebuilt from the causes that a trace records (Sigelman et al., "Dapper, a large-scale
distributed systems tracing infrastructure", 2010):

- a span begins before it ends, and after the begin of its parent and of the spans that it links
  to, whose context it received;
- the end of a server's span is before the end of its client's span, the reply to the call, if the
  client did not fail and took at least as long;
- the events of one service are ordered by that service's own wall clock.

Times of different services are never compared. If the wall clock of a service contradicts the
causes, the causes win, and an event that is moved within its node gets the attribute `moved`.

The one rule: a node is one process. Each instance of a service that the trace names is a node of
its own, and so is each span without a service, which is ordered by its causes alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ketal.clocks.vector import next_clock
from ketal.errors import EventError
from ketal.logs.log_records import rejected_record, too_many_error
from ketal.logs.shape import checked_size
from ketal.logs.traces.rebuilding import Rebuilding, waiting_cycle
from ketal.logs.traces.span_fields import CLIENT, SERVER
from ketal.model.events.event import Event
from ketal.model.events.event_time import in_seconds
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record

NO_SERVICE = "unknown_service"

Name = tuple[str, ...]
"""A name by which a span is referenced: trace id, span id, and perhaps the side of a call."""


@dataclass(slots=True)
class TraceSpan:
    """A span of any format, with times by the clock of its service.

    Equality ignores the place of a span in its file.
    """

    names: tuple[Name, ...] = field(compare=False)
    """Its names; the first one identifies it."""
    parents: tuple[Name, ...]
    """Possible names of its parent, the most likely first; empty for a root."""
    links: tuple[Name, ...]
    service: str
    """The node of its events; empty if the trace does not name the service."""
    name: str
    kind: str
    """One of `KINDS`."""
    begin_ns: int
    end_ns: int | None
    """None if the end was not reported."""
    failed: bool
    has_parent: bool
    """Whether the trace names a parent, which may be missing."""
    data: dict[str, Any]
    """The attributes of its events."""
    file: str = field(compare=False)
    line: int = field(compare=False)
    parent: TraceSpan | None = field(default=None, compare=False)
    depth: int = field(default=0, compare=False)

    @property
    def key(self) -> Name:
        """The name that identifies the span."""
        return self.names[0]

    @property
    def node(self) -> str:
        """The node of its events."""
        if self.service:
            return self.service
        # With the side, since client and server of a call may share an id.
        return "/".join((NO_SERVICE, *filter(None, self.key[1:])))


def span_data(
    trace: str, span: str, parent: str, kind: str, attributes: dict[str, Any], *, failed: bool
) -> dict[str, Any]:
    """Return the attributes of the events of a span, without empty ones."""
    data = {
        "trace": trace, "span": span, "parent": parent, "kind": kind, "attributes": attributes,
        "failed": failed,
    }  # fmt: skip
    return {name: value for name, value in data.items() if value}


@dataclass(slots=True, eq=False)
class _SpanEvent:
    """The begin or the end of a span."""

    span: TraceSpan
    is_begin: bool
    number: int
    causes: list[_SpanEvent] = field(default_factory=list)
    linked: list[_SpanEvent] = field(default_factory=list)
    open_causes: int = 0  # the number of its causes that have no clock yet
    open_links: int = 0
    clock: dict[str, int] | None = None
    moved: bool = False

    def by_time(self) -> tuple[int, int, int, int]:
        """Return the sort key that orders the events of a node by its wall clock."""
        span = self.span
        if self.is_begin:
            return span.begin_ns, 1, span.depth, self.number
        end = span.end_ns if span.end_ns is not None else span.begin_ns
        # At equal times, ends of earlier spans come before begins; inner spans end first.
        return end, 0 if span.begin_ns < end else 2, -span.depth, self.number


def events_of_spans(
    spans: Iterable[TraceSpan | Record], limits: Limits, rebuilding: Rebuilding
) -> Iterator[Record]:
    """Yield the events of spans with their clocks, in a linear extension.

    Rejected records are yielded first. Missing causes are counted in `rebuilding`.
    """
    by_key: dict[Name, TraceSpan] = {}
    duplicates: list[tuple[TraceSpan, TraceSpan]] = []
    for item in spans:
        if not isinstance(item, TraceSpan):
            yield item
            continue
        first = by_key.setdefault(item.key, item)
        if first is item:
            continue
        if first == item:
            duplicates.append((item, first))
        else:
            yield _rejected_span(
                item,
                f"the span {item.key[1]} was reported before with other content, "
                f"at {first.file}:{first.line}",
            )
    yield from _link_parents(by_key)
    span_events = _unordered_events(by_key, rebuilding)
    if len(span_events) > limits.events_max:
        raise too_many_error("events", limits, "rebuilding clocks")
    events_by_span: dict[Name, list[Event]] = {}
    for span_event in _stamp_in_order(span_events, rebuilding):
        try:
            event = _event(span_event, limits)
        except EventError as fault:
            yield rejected_record(fault, span_event.span.file, span_event.span.line)
            continue
        events_by_span.setdefault(span_event.span.key, []).append(event)
        yield "", event, span_event.span.file, span_event.span.line
    for copy, first in duplicates:
        # Same dots and content: the reader of the log deduplicates and counts them.
        for event in events_by_span.get(first.key, ()):
            yield "", event, copy.file, copy.line


def _rejected_span(span: TraceSpan, reason: str) -> Record:
    return rejected_record(EventError(reason), span.file, span.line)


def _spans_by_name(by_key: dict[Name, TraceSpan]) -> dict[Name, TraceSpan]:
    """Return the spans by each of their names; a name that several spans share is left out."""
    by_name: dict[Name, TraceSpan] = {}
    ambiguous: set[Name] = set()
    for span in by_key.values():
        for name in span.names:
            if by_name.setdefault(name, span) is not span:
                ambiguous.add(name)
    return {name: span for name, span in by_name.items() if name not in ambiguous}


def _link_parents(by_key: dict[Name, TraceSpan]) -> Iterator[Record]:
    """Set the parent and depth of each span; remove and reject spans in a cycle of parents."""
    by_name = _spans_by_name(by_key)
    for span in by_key.values():
        span.parent = next((by_name[name] for name in span.parents if name in by_name), None)
    visited: set[Name] = set()
    removed: set[Name] = set()
    for span in list(by_key.values()):
        path: list[TraceSpan] = []
        positions: dict[Name, int] = {}
        current: TraceSpan | None = span
        while current is not None and current.key not in visited and current.key not in positions:
            positions[current.key] = len(path)
            path.append(current)
            current = current.parent
        cycle_start = len(path) if current is None else positions.get(current.key, len(path))
        members = path[cycle_start:]
        ids = " → ".join(member.key[1] for member in [*members[:8], *members[:1]])
        for member in members:
            removed.add(member.key)
            del by_key[member.key]
            yield _rejected_span(member, f"the span is its own ancestor: {ids}")
        for member in reversed(path[:cycle_start]):
            if member.parent is not None and member.parent.key in removed:
                member.parent = None
            member.depth = 0 if member.parent is None else member.parent.depth + 1
        visited.update(positions)


def _unordered_events(by_key: dict[Name, TraceSpan], rebuilding: Rebuilding) -> list[_SpanEvent]:
    """Return the events of spans with their causes; count missing parents and links."""
    begins: dict[Name, _SpanEvent] = {}
    ends: dict[Name, _SpanEvent] = {}
    span_events: list[_SpanEvent] = []
    for span in by_key.values():
        begins[span.key] = _SpanEvent(span, True, len(span_events))
        span_events.append(begins[span.key])
        if span.end_ns is not None:
            ends[span.key] = _SpanEvent(span, False, len(span_events), [begins[span.key]])
            span_events.append(ends[span.key])
    for span in by_key.values():
        begin = begins[span.key]
        if span.parent is not None:
            begin.causes.append(begins[span.parent.key])
            if _is_reply(span, span.parent):
                ends[span.parent.key].causes.append(ends[span.key])
        else:
            span.data["orphan" if span.has_parent else "root"] = True
            rebuilding.orphans += span.has_parent
        begin.linked += [begins[key] for key in span.links if key in begins and key != span.key]
        rebuilding.round_links += span.links.count(span.key)
        if lost_links := sum(key not in begins for key in span.links):
            span.data["lost_links"] = lost_links
            rebuilding.lost_links += lost_links
    return span_events


def _is_reply(span: TraceSpan, parent: TraceSpan) -> bool:
    """Return whether the end of a span is the reply to its parent's call, and so before its end."""
    if span.kind != SERVER or parent.kind != CLIENT or parent.failed:
        return False
    if span.end_ns is None or parent.end_ns is None:
        return False
    # Comparing durations needs no common clock: a server's span that lasted longer than the
    # client's ended after it.
    return span.end_ns - span.begin_ns <= parent.end_ns - parent.begin_ns


def _stamp_in_order(span_events: list[_SpanEvent], rebuilding: Rebuilding) -> Iterator[_SpanEvent]:
    """Stamp and yield the events, each after its causes and the earlier events of its node.

    Where causes, links and the orders of nodes form a cycle, an event of it is moved ahead within
    its node, or, if it has no two events of one node in turn, one of its links is dropped and
    counted: two spans cannot each have begun after the other. Parents form no cycles.
    """
    by_time = sorted(span_events, key=_SpanEvent.by_time)
    queues: dict[str, deque[_SpanEvent]] = {}
    for span_event in by_time:
        queues.setdefault(span_event.span.node, deque()).append(span_event)
    effects: dict[int, list[tuple[_SpanEvent, bool]]] = {}
    for span_event in span_events:
        span_event.open_causes, span_event.open_links = (
            len(span_event.causes),
            len(span_event.linked),
        )
        for causes, is_link in ((span_event.causes, False), (span_event.linked, True)):
            for cause in causes:
                effects.setdefault(cause.number, []).append((span_event, is_link))
    last: dict[str, dict[str, int]] = {}
    ready = sorted(queues)
    unstamped = deque(by_time)
    for _ in span_events:
        while (next_event := _next_ready(queues, ready)) is None:
            while unstamped[0].clock is not None:
                unstamped.popleft()
            cycle = waiting_cycle(unstamped[0], lambda waiting: _awaited(waiting, queues))
            first, awaited = min(
                (
                    (one, after)
                    for one, after in pairwise([*cycle, cycle[0]])
                    if not one.open_causes
                ),
                key=lambda pair: (pair[0].open_links > 0, pair[0].by_time()[0], pair[0].number),
            )
            ready.append(first.span.node)
            if not first.open_links:
                first.moved = True
                next_event = first
                break
            first.linked.remove(awaited)
            first.open_links -= 1
            effects[awaited.number].remove((first, True))
            rebuilding.round_links += 1
        _stamp(next_event, last)
        yield next_event
        for effect, is_link in effects.get(next_event.number, ()):
            effect.open_causes -= not is_link
            effect.open_links -= is_link
            ready.append(effect.span.node)


def _next_ready(queues: dict[str, deque[_SpanEvent]], ready: list[str]) -> _SpanEvent | None:
    """Return the first event of a node whose causes are all stamped; None if there is none."""
    while ready:
        queue = queues[ready[-1]]
        while queue and queue[0].clock is not None:
            queue.popleft()
        if queue and not queue[0].open_causes and not queue[0].open_links:
            return queue[0]
        ready.pop()
    return None


def _awaited(span_event: _SpanEvent, queues: dict[str, deque[_SpanEvent]]) -> _SpanEvent:
    """Return an event that comes before one whose turn has not come.

    It is a cause without a clock, else a linked event without one, else the first event of the
    node.
    """
    open_causes = span_event.causes if span_event.open_causes else span_event.linked
    waiting = (cause for cause in open_causes if cause.clock is None)
    return min(waiting, key=_SpanEvent.by_time, default=queues[span_event.span.node][0])


def _stamp(span_event: _SpanEvent, last: dict[str, dict[str, int]]) -> None:
    node = span_event.span.node
    causes = (cause.clock or {} for cause in (*span_event.causes, *span_event.linked))
    span_event.clock = last[node] = next_clock(node, [last.get(node, {}), *causes])


def _event(span_event: _SpanEvent, limits: Limits) -> Event:
    span = span_event.span
    clock = checked_size(span_event.clock or {}, limits.clock_entries_max)
    time_ns = span.begin_ns if span_event.is_begin else span.end_ns or 0
    time = in_seconds(time_ns, 10**9)
    data = {"phase": "start" if span_event.is_begin else "end", **span.data}
    if span_event.moved:
        data["moved"] = True
    return Event(node=span.node, type=span.name, clock=clock, time=time, data=data)
