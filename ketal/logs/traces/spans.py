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

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ketal.clocks.vector import next_clock
from ketal.errors import EventError
from ketal.logs.log_records import rejected
from ketal.logs.shape import checked_size, json_type_of
from ketal.logs.traces.rebuilding import Rebuilding
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record

NO_SERVICE = "unknown_service"
CLIENT, SERVER = "client", "server"
KINDS = ("", "internal", SERVER, CLIENT, "producer", "consumer")
"""The kinds of spans, indexed by OTLP's numbers."""
TIME_NS_MAX = 253_402_300_800 * 10**9
"""The end of the year 9999."""

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


def checked_object(value: Any, what: str) -> dict[str, Any]:
    """Return a JSON object, empty if it is absent or null; raise an EventError for other types."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise EventError(f"{what} must be an object, not {json_type_of(value)}")
    return value


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
    begins: bool
    number: int
    causes: list[_SpanEvent] = field(default_factory=list)
    linked: list[_SpanEvent] = field(default_factory=list)
    clock: dict[str, int] | None = None
    moved: bool = False

    def by_time(self) -> tuple[int, int, int, int]:
        """Return the sort key that orders the events of a node by its wall clock."""
        span = self.span
        if self.begins:
            return span.begin_ns, 1, span.depth, self.number
        end = span.end_ns if span.end_ns is not None else span.begin_ns
        # At equal times, ends of earlier spans come before begins; inner spans end first.
        return end, 0 if span.begin_ns < end else 2, -span.depth, self.number


def stamped(
    spans: Iterable[TraceSpan | Record], limits: Limits, rebuilding: Rebuilding
) -> Iterator[Record]:
    """Yield the events of spans with their clocks, in a linear extension.

    Rejected records are yielded first. Missing causes are counted in `rebuilding`.
    """
    known: dict[Name, TraceSpan] = {}
    again: list[tuple[TraceSpan, TraceSpan]] = []
    for item in spans:
        if not isinstance(item, TraceSpan):
            yield item
            continue
        first = known.setdefault(item.key, item)
        if first is item:
            continue
        if first == item:
            again.append((item, first))
        else:
            yield _rejected(
                item,
                f"the span {item.key[1]} was reported before with other content, "
                f"at {first.file}:{first.line}",
            )
    yield from _without_rounds(known)
    moments = _moments(known, rebuilding)
    of_span: dict[Name, list[Event]] = {}
    for moment in _ordered(moments, rebuilding):
        try:
            event = _event(moment, limits)
        except EventError as fault:
            yield rejected(fault, moment.span.file, moment.span.line)
            continue
        of_span.setdefault(moment.span.key, []).append(event)
        yield "", event, moment.span.file, moment.span.line
    for copy, first in again:
        # Same dots and content: the reader of the log deduplicates and counts them.
        for event in of_span.get(first.key, ()):
            yield "", event, copy.file, copy.line


def _rejected(span: TraceSpan, reason: str) -> Record:
    return rejected(EventError(reason), span.file, span.line)


def _called(known: dict[Name, TraceSpan]) -> dict[Name, TraceSpan]:
    """Return the spans by each of their names; a name that several spans share is left out."""
    called: dict[Name, TraceSpan] = {}
    ambiguous: set[Name] = set()
    for span in known.values():
        for name in span.names:
            if called.setdefault(name, span) is not span:
                ambiguous.add(name)
    return {name: span for name, span in called.items() if name not in ambiguous}


def _without_rounds(known: dict[Name, TraceSpan]) -> Iterator[Record]:
    """Set the parent and depth of each span; remove and reject spans in a cycle of parents."""
    called = _called(known)
    for span in known.values():
        span.parent = next((called[name] for name in span.parents if name in called), None)
    settled: set[Name] = set()
    gone: set[Name] = set()
    for span in list(known.values()):
        path: list[TraceSpan] = []
        at: dict[Name, int] = {}
        walk: TraceSpan | None = span
        while walk is not None and walk.key not in settled and walk.key not in at:
            at[walk.key] = len(path)
            path.append(walk)
            walk = walk.parent
        own = len(path) if walk is None else at.get(walk.key, len(path))
        members = path[own:]
        ids = " → ".join(member.key[1] for member in [*members[:8], *members[:1]])
        for member in members:
            gone.add(member.key)
            del known[member.key]
            yield _rejected(member, f"the span is its own ancestor: {ids}")
        for member in reversed(path[:own]):
            if member.parent is not None and member.parent.key in gone:
                member.parent = None
            member.depth = 0 if member.parent is None else member.parent.depth + 1
        settled.update(at)


def _moments(known: dict[Name, TraceSpan], rebuilding: Rebuilding) -> list[_SpanEvent]:
    """Return the events of spans with their causes; count missing parents and links."""
    begins: dict[Name, _SpanEvent] = {}
    ends: dict[Name, _SpanEvent] = {}
    moments: list[_SpanEvent] = []
    for span in known.values():
        begins[span.key] = _SpanEvent(span, True, len(moments))
        moments.append(begins[span.key])
        if span.end_ns is not None:
            ends[span.key] = _SpanEvent(span, False, len(moments), [begins[span.key]])
            moments.append(ends[span.key])
    for span in known.values():
        begin = begins[span.key]
        if span.parent is not None:
            begin.causes.append(begins[span.parent.key])
            if _replied(span, span.parent):
                ends[span.parent.key].causes.append(ends[span.key])
        else:
            span.data["orphan" if span.has_parent else "root"] = True
            rebuilding.orphans += span.has_parent
        begin.linked += [begins[key] for key in span.links if key in begins and key != span.key]
        rebuilding.round_links += span.links.count(span.key)
        if lost := sum(key not in begins for key in span.links):
            span.data["lost_links"] = lost
            rebuilding.lost_links += lost
    return moments


def _replied(span: TraceSpan, parent: TraceSpan) -> bool:
    """Return whether the end of a span is the reply to its parent's call, and so before its end."""
    if span.kind != SERVER or parent.kind != CLIENT or parent.failed:
        return False
    if span.end_ns is None or parent.end_ns is None:
        return False
    # Comparing durations needs no common clock: a server's span that lasted longer than the
    # client's ended after it.
    return span.end_ns - span.begin_ns <= parent.end_ns - parent.begin_ns


def _ordered(moments: list[_SpanEvent], rebuilding: Rebuilding) -> Iterator[_SpanEvent]:
    """Stamp and yield the events, each after its causes and the earlier events of its node."""
    lines: dict[str, list[_SpanEvent]] = {}
    for moment in moments:
        lines.setdefault(moment.span.node, []).append(moment)
    effects: dict[int, list[_SpanEvent]] = {}
    for moment in moments:
        for cause in (*moment.causes, *moment.linked):
            effects.setdefault(cause.number, []).append(moment)
    for line in lines.values():
        line.sort(key=_SpanEvent.by_time)
    heads = dict.fromkeys(lines, 0)
    last: dict[str, dict[str, int]] = {}
    ready = sorted(lines)
    left = len(moments)
    # Candidates to be taken before earlier events of their node, if all nodes wait for each other.
    free: list[tuple[bool, int, int]] = []

    def offer(moment: _SpanEvent) -> None:
        if moment.clock is None and all(c.clock is not None for c in moment.causes):
            waits = any(link.clock is None for link in moment.linked)
            heapq.heappush(free, (waits, moment.by_time()[0], moment.number))

    for moment in moments:
        offer(moment)
    while left:
        ready_moment = _next(lines, heads, ready)
        moment = ready_moment or _ahead(moments, free, rebuilding)
        if ready_moment is None:
            # The first event of a node keeps its place: only a link of it was dropped.
            node = moment.span.node
            moment.moved = lines[node][heads[node]] is not moment
            ready.append(node)
        _stamp(moment, last)
        left -= 1
        yield moment
        for effect in effects.get(moment.number, ()):
            ready.append(effect.span.node)
            offer(effect)


def _next(
    lines: dict[str, list[_SpanEvent]], heads: dict[str, int], ready: list[str]
) -> _SpanEvent | None:
    """Return the first event of a node whose causes are all stamped; None if there is none."""
    while ready:
        node = ready[-1]
        line = lines[node]
        while heads[node] < len(line) and line[heads[node]].clock is not None:
            heads[node] += 1
        if heads[node] < len(line):
            moment = line[heads[node]]
            if all(c.clock is not None for c in (*moment.causes, *moment.linked)):
                return moment
        ready.pop()
    return None


def _ahead(
    moments: list[_SpanEvent], free: list[tuple[bool, int, int]], rebuilding: Rebuilding
) -> _SpanEvent:
    """Return an event to take out of its node's order: all its causes but links are stamped.

    Drops and counts its links to events without a stamp, which close a cycle: two spans cannot each
    have begun after the other. Parents form no cycles, so there always is such an event.
    """
    moment = moments[heapq.heappop(free)[2]]
    while moment.clock is not None:
        moment = moments[heapq.heappop(free)[2]]
    linked = [link for link in moment.linked if link.clock is not None]
    rebuilding.round_links += len(moment.linked) - len(linked)
    moment.linked = linked
    return moment


def _stamp(moment: _SpanEvent, last: dict[str, dict[str, int]]) -> None:
    node = moment.span.node
    causes = (cause.clock or {} for cause in (*moment.causes, *moment.linked))
    moment.clock = last[node] = next_clock(node, [last.get(node, {}), *causes])


def _event(moment: _SpanEvent, limits: Limits) -> Event:
    span = moment.span
    clock = checked_size(moment.clock or {}, limits.clock_entries_max)
    time_ns = span.begin_ns if moment.begins else span.end_ns or 0
    data = {"phase": "start" if moment.begins else "end", **span.data}
    if moment.moved:
        data["moved"] = True
    return Event(node=span.node, type=span.name, clock=clock, time=time_ns / 1e9, data=data)
