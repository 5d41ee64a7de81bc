"""Bounds of what can come before and after each event that is kept, raised as events come.

Where any event of a match may be offered last, what can come before an event in the word is not
known when it is offered. So each has two bounds: the latest start of what can come before it,
and the earliest end of what can come after it. A new event *pulls* its own from the events that
it can stand beside, and *pushes* them on: seen from one event these are a range of each column,
and seen from a range of events (its first and its last decide) they are a range again.

As a range is pushed on as a whole a bound may be later than any start there is, never earlier;
what is searched is bounded, no match is lost.

The one rule: no match starts after, or ends before, what the bounds of its events say.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ketal.engine.configurations import Seen
from ketal.engine.find_any.columns import NEVER, Column
from ketal.engine.find_any.kept_events import KeptEvents
from ketal.engine.find_any.roles import StepRole


def keep_bounded(kept: KeptEvents, seen: Seen, roles: Sequence[StepRole], at: float) -> None:
    """Keep an event in its roles, with its bounds, and raise those of others.

    The time or place that its window counts from is `at`; the same for all where there is none, as
    one start is then as good as another.
    """
    bounds = [_pulled(kept, role, seen, at) for role in roles]
    for role, of in zip(roles, bounds, strict=True):
        kept.columns(role).add(seen, NEVER, of)
    for role, (before, after) in zip(roles, bounds, strict=True):
        if before > NEVER:
            _push_before(kept, role, seen, seen, before)
        if after > NEVER:
            _push_after(kept, role, seen, seen, after)


def _pulled(kept: KeptEvents, role: StepRole, seen: Seen, at: float) -> tuple[float, float]:
    """Return the bounds of a new event in a role, from the events that are kept.

    They are the latest start of what can come before it, and the negative of the earliest end of
    what can come after it.
    """
    before = at if role.starts else NEVER
    if not role.starts:
        for columns in kept.into.get(role.edge.source, ()):
            for node, column in columns.nodes.items():
                assert column.before is not None
                if column.before.greatest > before:
                    low, high = _range_before(column, node, role, seen, seen)
                    before = max(before, column.before.top(low, high))
    after = -at if role.ends else NEVER
    if not role.ends:
        for columns in kept.out.get(role.edge.target, ()):
            for node, column in columns.nodes.items():
                assert column.after is not None
                if column.after.greatest > after:
                    low, high = _range_after(column, node, columns.role, seen, seen)
                    after = max(after, column.after.top(low, high))
    return min(before, at), min(after, -at)


def _push_before(kept: KeptEvents, role: StepRole, first: Seen, last: Seen, value: float) -> None:
    """Raise the bounds of what can come after events of one node, from `first` to `last`."""
    for columns in kept.out.get(role.edge.target, ()):
        for node, column in columns.nodes.items():
            low, high = _range_after(column, node, columns.role, first, last)
            assert column.before is not None
            if low < high and column.before.raise_range(low, high, value):
                _push_before(kept, columns.role, column.seens[low], column.seens[high - 1], value)


def _push_after(kept: KeptEvents, role: StepRole, first: Seen, last: Seen, value: float) -> None:
    """Raise the bounds of what can come before events of one node, from `first` to `last`."""
    for columns in kept.into.get(role.edge.source, ()):
        for node, column in columns.nodes.items():
            low, high = _range_before(column, node, role, first, last)
            assert column.after is not None
            if low < high and column.after.raise_range(low, high, value):
                _push_after(kept, columns.role, column.seens[low], column.seens[high - 1], value)


def _range_before(
    column: Column, node: str, role: StepRole, first: Seen, last: Seen
) -> tuple[int, int]:
    """Return the range that can come just before some event of a node, from `first` to `last`.

    The events, in the given role, are of one node; `last` knows most.
    """
    low, high = 0, len(column.seens)
    if role.causal:
        high = bisect_right(column.counters, last.last_before(node), low, high)
    else:
        high = column.first_knowing(last, low, high)
    if role.conc:
        low = bisect_right(column.counters, first.clock.get(node, 0), low, high)
    return low, high


def _range_after(
    column: Column, node: str, role: StepRole, first: Seen, last: Seen
) -> tuple[int, int]:
    """Return the range that can come, in a role, just after some event of a node."""
    low, high = bisect_right(column.counters, first.clock.get(node, 0)), len(column.seens)
    if role.causal:
        low = column.first_knowing(first, low, high)
    if role.conc:
        high = column.first_knowing(last, low, high)
    return low, high
