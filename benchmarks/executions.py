"""The events of benchmarks: random executions, and files of them for peers and readers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import ketal

TYPES = "ABCDEFGHIJ"
KEYS = 1_000


def execution(
    count: int,
    *,
    nodes: int = 8,
    types: Sequence[str] = TYPES,
    first: str = "",
    merging: float = 0.3,
    per_s: int = 1_000,
) -> list[ketal.Event]:
    """Return events of nodes that send each other messages.

    Parameters
    ----------
    count : int
        How many events there are.
    nodes : int
        How many nodes there are.
    types : sequence of str
        The types of events; one is drawn for each event.
    first : str
        The type of the first event, which is in the past of all others; none by default.
    merging : float
        The probability that an event learns all that another node knows.
    per_s : int
        How many events there are in a second of event time.
    """
    rng = random.Random(1)
    names = [f"n{i}" for i in range(nodes)]
    clocks: dict[str, dict[str, int]] = {name: {} for name in names}
    events = []
    if first:
        clocks = {name: {names[0]: 1} for name in names}
        events.append(ketal.Event(names[0], first, {names[0]: 1}, 0.0, {"key": 0, "other": KEYS}))
    for number in range(len(events), count):
        node = rng.choice(names)
        clock = clocks[node]
        if rng.random() < merging:
            for other, counter in clocks[rng.choice(names)].items():
                if counter > clock.get(other, 0):
                    clock[other] = counter
        clock[node] = clock.get(node, 0) + 1
        # No value of `key` is one of `other`.
        data = {"key": rng.randrange(KEYS), "other": KEYS + rng.randrange(KEYS)}
        events.append(ketal.Event(node, rng.choice(types), clock, number / per_s, data))
    return events


def displaced(events: Sequence[ketal.Event], by: int) -> list[ketal.Event]:
    """Return the events, each moved by less than `by` places."""
    rng = random.Random(2)
    places = [number + rng.random() * by for number in range(len(events))]
    return [events[number] for number in sorted(range(len(events)), key=places.__getitem__)]


def shuffled(events: Sequence[ketal.Event]) -> list[ketal.Event]:
    """Return the events in a random order."""
    return random.Random(3).sample(events, len(events))


def write_log(path: Path, events: Iterable[ketal.Event]) -> Path:
    """Write events as JSON lines."""
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as out:
        for event in events:
            row = {"node": event.node, "type": event.type, "clock": event.clock}
            out.write(encode({**row, "time": event.time, "data": event.data}) + b"\n")
    return path


def write_for_peers(path: Path, events: Iterable[ketal.Event]) -> Path:
    """Write events as the Java harnesses read them: node, type, milliseconds, key, other."""
    with path.open("w") as out:
        for event in events:
            milliseconds = round((event.time_us or 0) / 1_000)
            values = (event.node, event.type, milliseconds, event.data["key"], event.data["other"])
            out.write(",".join(map(str, values)) + "\n")
    return path
