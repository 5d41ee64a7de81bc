"""The slow, obvious definition of an audit: which single faults explain a log?

A log is a list of (node, clock), one per line. It is a vector-clocked execution if the three rules
of docs/audit.md hold. An explanation is one fault whose repair makes it an execution: a wrong
entry, a repeated event, lost events. Every event, entry and value is tried.

The one rule: nothing of ketal's auditor is used here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from ketal.logs import Log
from ketal.model.events.event import Draft, Event
from ketal.model.verdicts.execution_verdicts import Rejected

Clock = dict[str, int]
Row = tuple[str, Clock]


class Cause(NamedTuple):
    """One fault that explains a log.

    `kind` is `own`, `low` or `high` (the own entry is wrong, another entry is too low or too high),
    `extra` or `lost`; `line` is where the fault is reported, from 1; `rows` is the log without the
    fault, if that is unique.
    """

    kind: str
    line: int
    node: str
    rows: tuple[Row, ...] = ()


def log_of(lines: Iterable[tuple[str, Clock, dict[str, Any]]]) -> Log:
    """Return a log as a reader yields it: an event without an own entry is a draft."""
    items: list[Any] = []
    for number, (node, clock, data) in enumerate(lines, 1):
        if node in clock:
            items.append(Event(node, "x", clock, data=data))
        else:
            draft = Draft(node, "x", clock, None, data, None)
            items.append(Rejected(place=f"log:{number}", reason="no own entry", draft=draft))
    return Log(lambda: (("", item, "log", line) for line, item in enumerate(items, 1)))


def valid(rows: list[Row]) -> bool:
    """Return whether a log is a vector-clocked execution, by the three rules."""
    at: dict[tuple[str, int], Clock] = {}
    last: dict[str, int] = {}
    for node, clock in rows:
        counter = clock.get(node, 0)
        if counter < 1 or (node, counter) in at:
            return False
        at[node, counter] = clock
        last[node] = max(counter, last.get(node, 0))
    if sum(last.values()) != len(at):
        return False
    for (node, counter), clock in at.items():
        for name, value in clock.items():
            known = value - (name == node)
            if not known:
                continue
            if (name, known) not in at:
                return False
            for other, entry in at[name, known].items():
                if entry > clock.get(other, 0) or (other == node and entry >= counter):
                    return False
    return True


def causes(rows: list[Row]) -> list[Cause]:
    """Return all single faults that explain a log that is not an execution."""
    nodes = sorted({node for node, _ in rows} | {name for _, clock in rows for name in clock})
    return [*_wrong_entries(rows, nodes), *_extra(rows), *_lost(rows, nodes)]


def _wrong_entries(rows: list[Row], nodes: list[str]) -> Iterator[Cause]:
    top = 1 + max((value for _, clock in rows for value in clock.values()), default=0)
    for line, (node, clock) in enumerate(rows, 1):
        for name in nodes:
            was = clock.get(name, 0)
            for value in range(top + 1):
                if value == was:
                    continue
                right = {n: v for n, v in {**clock, name: value}.items() if v}
                whole = [*rows[: line - 1], (node, right), *rows[line:]]
                if valid(whole):
                    kind = "own" if name == node else "low" if value > was else "high"
                    yield Cause(kind, line, name, tuple(whole))


def _extra(rows: list[Row]) -> Iterator[Cause]:
    dots = [(node, clock.get(node, 0)) for node, clock in rows]
    for line, dot in enumerate(dots, 1):
        if dots.count(dot) > 1 and valid([*rows[: line - 1], *rows[line:]]):
            yield Cause("extra", line, dot[0])


def _lost(rows: list[Row], nodes: list[str]) -> Iterator[Cause]:
    for node in nodes:
        have = {clock.get(node, 0): clock for name, clock in rows if name == node}
        most = max(clock.get(node, 0) for _, clock in rows)
        for first in range(1, most + 1):
            for last in range(first, most + 1):
                if last in have:
                    break
                # If any clocks of the lost events are possible, the least ones are.
                before = have.get(first - 1, {})
                whole = rows + [(node, {**before, node: c}) for c in range(first, last + 1)]
                if valid(whole):
                    yield Cause("lost", _where_lost(rows, node, first, last), node)


def _where_lost(rows: list[Row], node: str, first: int, last: int) -> int:
    """Return the line of the node's next event, or of the first event that refers to the lost."""
    after = [
        (clock[node], line)
        for line, (name, clock) in enumerate(rows, 1)
        if name == node and clock.get(node, 0) > last
    ]
    if after:
        return min(after)[1]
    knows = [
        (sum(clock.values()) - clock[node], line)
        for line, (_, clock) in enumerate(rows, 1)
        if clock.get(node, 0) >= first
    ]
    return min(knows)[1]


def reported_lines(causes_found: list[Cause], rows: list[Row]) -> list[int]:
    """Return the lines that an audit reports, by the rules of docs/audit.md; mostly one."""
    kinds = {cause.kind for cause in causes_found}
    if "lost" in kinds:
        return [next(cause.line for cause in causes_found if cause.kind == "lost")]
    if "extra" in kinds or "own" in kinds:
        kind = "extra" if "extra" in kinds else "own"
        # The cause that leaves the fewest lines in the wrong order; of ties, the later one.
        _, _, line, cause = min(
            (_misorders(cause, rows), -cause.line, cause.line, cause)
            for cause in causes_found
            if cause.kind == kind
        )
        return [line] if kind == "extra" else _two_holes(cause, rows) or [line]
    lines = [cause.line for cause in causes_found if cause.kind == "low"]
    return [min(lines or [cause.line for cause in causes_found])]


def _two_holes(cause: Cause, rows: list[Row]) -> list[int]:
    """Return the lines after two holes, if these are more likely than one wrong own entry.

    The last event of a node, alone after a hole, may belong in another hole; but not if its line
    and its clock are those of a last event.
    """
    node, clock = rows[cause.line - 1]
    counter = clock.get(node, 0)
    place = cause.rows[cause.line - 1][1][node]
    lines = {
        of[node]: line
        for line, (name, of) in enumerate(rows, 1)
        if name == node and line != cause.line
    }
    below = max((c for c in lines if c < place), default=0)
    above = min((c for c in lines if c > place), default=0)
    if counter in lines or counter < 2 or not above or max(lines) >= counter - 1:
        return []
    last = rows[lines[max(lines)] - 1][1]
    if any(value > clock.get(name, 0) for name, value in last.items() if name != node):
        return []
    there = (below > 0 and lines[below] > cause.line) + (lines[above] < cause.line)
    if there <= (lines[max(lines)] > cause.line):
        return []
    return sorted((lines[above], cause.line))


def _misorders(cause: Cause, rows: list[Row]) -> int:
    """Count the neighbours on a node whose lines are in the wrong order after the repair."""
    lines = {
        clock[node]: line
        for line, (node, clock) in enumerate(cause.rows or rows, 1)
        if node == cause.node and not (cause.kind == "extra" and line == cause.line)
    }
    return sum(lines[a] > lines[b] for a, b in pairwise(sorted(lines)))


def with_random_fault(rng: random.Random, rows: list[Row]) -> list[Row]:
    """Return a log with one random fault, which may have no effect."""
    at = rng.randrange(len(rows))
    node, clock = rows[at]
    kind = rng.choice(("entry", "entry", "own", "own", "lost", "extra"))
    if kind == "lost":
        return [*rows[:at], *rows[at + 1 :]]
    if kind == "extra":
        place = rng.randint(0, len(rows))
        return [*rows[:place], (node, clock), *rows[place:]]
    names = [node] if kind == "own" else [*sorted({n for n, _ in rows} - {node}), "nobody"]
    name = rng.choice(names)
    was = clock.get(name, 0)
    value = rng.choice((0, was - 1, was + 1, was + 2, rng.randint(0, 9)))
    wrong = {n: v for n, v in {**clock, name: value}.items() if v > 0}
    return [*rows[:at], (node, wrong), *rows[at + 1 :]]
