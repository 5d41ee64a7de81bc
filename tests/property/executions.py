"""Random executions with valid vector clocks, from a simulation of message passing.

`execution` takes a `random.Random`: one of a seed, or `tests.sampling.Chances`, which shrink.
Values come from small domains, so that guards are often true and often unknown.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from tests.sampling import chances

TYPES = ("S.a", "S.b", "S.c")
_ABSENT = object()
_DOMAINS: dict[str, tuple[Any, ...]] = {
    "x": (1, 1, 2, 2, 3, "a", True, None, 1.0, _ABSENT),
    "y": (1, 2, "a", _ABSENT),
    "key": (1, 1, 1.0, 2, 2, 2, True, _ABSENT),
}


def execution(
    rng: random.Random,
    *,
    nodes_max: int = 5,
    events_min: int = 0,
    events_max: int = 10,
    types: tuple[str, ...] = TYPES,
    linear: bool | None = None,
    untimed: float = 0.1,
) -> list[Event]:
    """Return a random execution in a random order.

    Parameters
    ----------
    rng : random.Random
        Where the choices come from.
    nodes_max : int
        How many nodes it may have.
    events_min, events_max : int
        How many events it may have.
    types : tuple of str
        The types of the events.
    linear : bool or None
        True: a random linear extension; False: any order; None: either.
    untimed : float
        The share of events without a time.
    """
    names = [f"n{i}" for i in range(1, rng.randint(1, nodes_max) + 1)]
    clocks: dict[str, dict[str, int]] = {n: {} for n in names[: rng.randint(1, len(names))]}
    unborn = [n for n in names if n not in clocks]
    sent: list[tuple[dict[str, int], list[str]]] = []
    chatter = rng.choice((0.1, 0.35, 0.7))
    events = []
    count = max(rng.randint(events_min, events_max), rng.randint(events_min, events_max))
    for moment in range(count):
        node = rng.choice(sorted(clocks))
        clock = clocks[node]
        receives: list[str] = []
        if sent and rng.random() < chatter:
            for known, dots in rng.sample(sent, min(len(sent), rng.choice((1, 1, 2)))):
                for other, counter in known.items():
                    clock[other] = max(clock.get(other, 0), counter)
                receives += dots
        clock[node] = clock.get(node, 0) + 1
        events.append(_event(rng, node, clock, moment, types, untimed, receives))
        if rng.random() < chatter:
            # A message sent within a call may also refer to an earlier event of that call.
            counters = {clock[node], rng.randint(1, clock[node])}
            sent.append((dict(clock), [f"{node}@{counter}" for counter in sorted(counters)]))
        if unborn and rng.random() < 0.3:
            # A fork: the child's first event is after all events known to its parent.
            clocks[unborn.pop()] = dict(clock)
    if linear is None:
        linear = rng.random() < 0.5
    return linear_extension(rng, events) if linear else rng.sample(events, len(events))


def _event(
    rng: random.Random,
    node: str,
    clock: dict[str, int],
    moment: int,
    types: tuple[str, ...],
    untimed: float,
    receives: list[str],
) -> Event:
    data = attributes(rng)
    # Local clocks are skewed, so times need not respect happened-before.
    time = None if rng.random() < untimed else moment + rng.choice((-1.5, 0.0, 0.0, 0.5))
    return Event(
        node=node,
        type=rng.choice(types),
        clock=dict(clock),
        time=time,
        data=data,
        receives=receives,
    )


def attributes(rng: random.Random) -> dict[str, Any]:
    """Return random attributes of an event."""
    data = {name: rng.choice(domain) for name, domain in _DOMAINS.items()}
    return {name: value for name, value in data.items() if value is not _ABSENT}


def linear_extension(rng: random.Random, events: list[Event]) -> list[Event]:
    """Return the events in a random order that respects happened-before."""
    left = list(events)
    order = []
    while left:
        ready = [e for e in left if not any(happened_before(other, e) for other in left)]
        order.append(rng.choice(ready))
        left.remove(order[-1])
    return order


def executions(**knobs: Any) -> st.SearchStrategy[list[Event]]:
    """Return a strategy of executions; `knobs` are those of `execution`."""
    return chances().map(lambda rng: execution(rng, **knobs))


def with_watermarks(events: Sequence[Event], rng: random.Random) -> Iterator[Any]:
    """Yield events, some followed by a watermark: the latest time so far minus a lateness."""
    latest_s, lateness_s = 0.0, rng.choice((0, 1, 4))
    for event in events:
        yield event
        if isinstance(event.time, float):
            latest_s = max(latest_s, event.time)
            if rng.random() < 0.7:
                yield Control("watermark", time=latest_s - lateness_s)
