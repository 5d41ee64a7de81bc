"""Executions in the trace-event format, which Perfetto and Chrome's tracing open.

A process is an execution and a thread a node; an event is a complete event (`X`) of its thread, a
message a flow from one to another (`s`, `f`), a verdict an instant event (`i`). See "Trace Event
Format" (Google, 2016). Times are microseconds: those of the events where every event has one and
no message arrives before it is sent, else their places in the canonical order.

The one rule: a thread's events do not overlap, and a flow leads forwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DURATION_US = 1
STEP_US = 10
"""Between two events in the canonical order, where that gives the times."""


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """An event of a trace.

    Attributes
    ----------
    node : int
        The number of its node.
    name : str
        Its type.
    args : dict
        What is shown of it: dot, place, clock, attributes; plain data.
    time_us : int or None
        When it was.
    """

    node: int
    name: str
    args: dict[str, Any]
    time_us: int | None


def trace_events(
    number: int,
    name: str,
    nodes: Sequence[str],
    events: Sequence[TracedEvent],
    messages: Sequence[tuple[int, int]],
    verdicts: Iterable[tuple[int, str, dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the trace events of one execution, whose events are in canonical order.

    A message is the numbers of the events that sent it, and that received it; a verdict is the
    number of an event, a line, and more about it.
    """
    times = _times(events, messages)
    out: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name or "execution"}}
    ]
    for node, label in enumerate(nodes, 1):
        of: dict[str, Any] = {"pid": number, "tid": node}
        out.append({"ph": "M", "name": "thread_name", **of, "args": {"name": label}})
        out.append({"ph": "M", "name": "thread_sort_index", **of, "args": {"sort_index": node}})
    for event, ts in zip(events, times, strict=True):
        out.append(
            {
                "ph": "X", "name": event.name, "cat": "event", "ts": ts, "dur": DURATION_US,
                "pid": number, "tid": event.node + 1, "args": event.args,
            }
        )  # fmt: skip
    for flow, (source, target) in enumerate(messages, 1):
        of = {"name": "message", "cat": "message", "id": f"{number}.{flow}", "pid": number}
        out.append({"ph": "s", "ts": times[source], "tid": events[source].node + 1, **of})
        # Bound to the slice that encloses it, not to the next one.
        out.append(
            {"ph": "f", "bp": "e", "ts": times[target], "tid": events[target].node + 1, **of}
        )
    for at, line, args in verdicts:
        out.append(
            {
                "ph": "i", "s": "t", "name": line, "cat": "verdict", "ts": times[at],
                "pid": number, "tid": events[at].node + 1, "args": args,
            }
        )  # fmt: skip
    return out


def _times(events: Sequence[TracedEvent], messages: Sequence[tuple[int, int]]) -> list[int]:
    own = [event.time_us for event in events]
    known = [time for time in own if time is not None]
    if len(known) == len(own):
        last: dict[int, int] = {}
        forwards = all(known[source] <= known[target] for source, target in messages)
        for event, time in zip(events, known, strict=True):
            forwards &= last.get(event.node, time - DURATION_US) + DURATION_US <= time
            last[event.node] = time
        if forwards:
            start = min(known, default=0)
            return [time - start for time in known]
    return [STEP_US * number for number in range(len(events))]
