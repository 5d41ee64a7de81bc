"""Executions in the trace-event format, which Perfetto and Chrome's tracing open.

A process is an execution and a thread a node; an event is a complete event (`X`) of its thread, a
message a flow between two events (`s`, `f`), a verdict an instant event (`i`). See "Trace Event
Format" (Google, 2016). Times are microseconds: those of the events where every event has one and
no message arrives before it is sent, otherwise their places in the canonical order.

The one rule: a thread's events do not overlap, and a flow leads forwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ketal.explanation.views.space_time import SpaceTime

DURATION_US = 1
STEP_US = 10
"""The time between two consecutive events if the canonical order gives the times."""


def trace_events(number: int, drawn: SpaceTime) -> Iterator[dict[str, Any]]:
    """Yield the trace events of an execution, as the process with the given number."""
    title = _encodable(": ".join(filter(None, (drawn.title, drawn.note)))) or "execution"
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": title}}
    threads = {node: thread for thread, node in enumerate(drawn.nodes, 1)}
    for node, thread in threads.items():
        metadata: dict[str, Any] = {"ph": "M", "pid": number, "tid": thread}
        yield {"name": "thread_name", **metadata, "args": {"name": node}}
        yield {"name": "thread_sort_index", **metadata, "args": {"sort_index": thread}}
    at = [
        {"ts": time, "pid": number, "tid": threads[event.node]}
        for event, time in zip(drawn.events, _times(drawn), strict=True)
    ]
    for event, here in zip(drawn.events, at, strict=True):
        args = {
            "event": str(event.dot), "place": _encodable(drawn.place(event)),
            "clock": event.clock, "data": event.data,
        }  # fmt: skip
        yield {
            "ph": "X", "name": event.type, "cat": "event", "dur": DURATION_US, **here, "args": args,
        }  # fmt: skip
    for flow, (source, target) in enumerate(drawn.messages, 1):
        message = {"name": "message", "cat": "message", "id": f"{number}.{flow}"}
        yield {"ph": "s", **at[source], **message}
        # Bound to the slice that encloses it, not to the next one.
        yield {"ph": "f", "bp": "e", **at[target], **message}
    for verdict in drawn.verdicts:
        if verdict["events"]:
            args = {"id": verdict["id"], "why": _encodable("\n".join(verdict["lines"]))}
            yield {
                "ph": "i", "s": "t", "name": verdict["text"], "cat": "verdict",
                **at[max(verdict["events"])], "args": args,
            }  # fmt: skip


def _times(drawn: SpaceTime) -> list[int]:
    times = [event.time_us for event in drawn.events if event.time_us is not None]
    if len(times) == len(drawn.events):
        last: dict[str, int] = {}
        forwards = all(times[source] <= times[target] for source, target in drawn.messages)
        for event, time in zip(drawn.events, times, strict=True):
            forwards &= last.get(event.node, time - DURATION_US) + DURATION_US <= time
            last[event.node] = time
        if forwards:
            start = min(times, default=0)
            return [time - start for time in times]
    return [STEP_US * number for number in range(len(drawn.events))]


def _encodable(text: str) -> str:
    """Return text with the undecodable bytes of file names replaced by escapes."""
    return text.encode(errors="backslashreplace").decode()
