"""What the steps of a match bound, as JSON and as text.

The one rule: what each step bound is in match order; what a line shows of it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from ketal.model.events.dot import Dot

T = TypeVar("T")
Steps = tuple[tuple[str, Dot], ...]
"""(step, dot) pairs, in match order."""

PARTS_MAX: Final = 6
"""Dots that a line shows of one step; of more, so many ranges of dots."""


def bound_dots(steps: Steps) -> tuple[Dot, ...]:
    """Return the dots in match order."""
    return tuple([dot for _, dot in steps])


def by_step(steps: Steps, values: Sequence[T]) -> dict[str, list[T]]:
    """Return what each step has of values, one for each dot in match order."""
    out: dict[str, list[T]] = {}
    for i, value in enumerate(values):
        step = steps[i][0]
        if step in out:
            out[step].append(value)
        else:
            out[step] = [value]
    return out


def triples(steps: Steps) -> list[tuple[str, str, int]]:
    """Return the (step, node, counter) that an id is made of."""
    return [(step, dot.node, dot.counter) for step, dot in steps]


def steps_json(steps: Steps, places: Sequence[str] = ()) -> dict[str, Any]:
    """Return the dots, where they stand if that is known of any, and what each step bound."""
    # Not `str(dot)`: from compiled code that costs as much as all else here.
    events = [f"{dot.node}@{dot.counter}" for _, dot in steps]
    out: dict[str, Any] = {"events": events}
    if any(places):
        out["places"] = [place or None for place in places]
    out["bindings"] = by_step(steps, events)
    return out


def steps_text(steps: Steps) -> str:
    """Return what each step bound, as text."""
    bound = by_step(steps, bound_dots(steps))
    return ", ".join([f"{step}={_dots_text(dots)}" for step, dots in bound.items()])


def _dots_text(dots: list[Dot]) -> str:
    """Write the dots that a step bound; of many, of those that follow each other the ends."""
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
    """Yield the first and the last dot of each part whose dots follow each other."""
    first = last = dots[0]
    for dot in dots[1:]:
        if dot != (last.node, last.counter + 1):
            yield first, last
            first = dot
        last = dot
    yield first, last
