"""The events that the steps of a match bound, as JSON and as text.

The one rule: the events of each step are in match order; a line of text shows a bounded number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from ketal.model.events.dot import Dot

T = TypeVar("T")
Steps = tuple[tuple[str, Dot], ...]
"""(step, dot) pairs, in match order."""

PARTS_MAX: Final = 6
"""The most dots that a line shows for one step; if there are more, the most ranges of dots."""


def bound_dots(steps: Steps) -> tuple[Dot, ...]:
    """Return the dots in match order."""
    return tuple([dot for _, dot in steps])


def by_step(steps: Steps, values: Sequence[T]) -> dict[str, list[T]]:
    """Return the values of each step; `values` has one value for each dot in match order."""
    out: dict[str, list[T]] = {}
    for i, value in enumerate(values):
        step = steps[i][0]
        if step in out:
            out[step].append(value)
        else:
            out[step] = [value]
    return out


def triples(steps: Steps) -> list[tuple[str, str, int]]:
    """Return the (step, node, counter) from which an id is computed."""
    return [(step, dot.node, dot.counter) for step, dot in steps]


def steps_json(steps: Steps, places: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON of bound events: their dots, their places if any is known, and by step."""
    # Not `str(dot)`: called from compiled code, it would take half of the time here.
    events = [f"{dot.node}@{dot.counter}" for _, dot in steps]
    out: dict[str, Any] = {"events": events}
    if any(places):
        out["places"] = [place or None for place in places]
    out["bindings"] = by_step(steps, events)
    return out


def steps_text(steps: Steps) -> str:
    """Return the dots that each step bound, as text."""
    bound = by_step(steps, bound_dots(steps))
    return ", ".join([f"{step}={_dots_text(dots)}" for step, dots in bound.items()])


def _dots_text(dots: list[Dot]) -> str:
    """Return the dots that a step bound, as text; if there are many, as ranges of dots."""
    if len(dots) <= PARTS_MAX:
        return "+".join(map(str, dots))
    parts: list[str] = []
    for first, last in _ranges(dots):
        if last.counter - first.counter < 2:
            parts += map(str, dict.fromkeys((first, last)))
        else:
            parts.append(f"{first}..{last}")
    if len(parts) > PARTS_MAX:
        parts[PARTS_MAX - 2 : -1] = ["…"]
    text = "+".join(parts)
    return f"{text} ({len(dots):,} events)"


def _ranges(dots: list[Dot]) -> Iterator[tuple[Dot, Dot]]:
    """Yield the first and the last dot of each range of consecutive dots of one node."""
    first = last = dots[0]
    for dot in dots[1:]:
        if dot != (last.node, last.counter + 1):
            yield first, last
            first = dot
        last = dot
    yield first, last
