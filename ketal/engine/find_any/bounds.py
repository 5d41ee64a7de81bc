"""Bounds of the start and the end of matches through each kept event, raised as events come.

Where any event of a match may be offered last, the events before an event in the word are not all
known when it is offered. So each event has two bounds: the latest start of a match before it, and
the earliest end of a match after it. A new event *pulls* its bounds from the events that it can
stand beside, and *pushes* them on to these. Seen from one event these are a range of each column;
seen from a range of events (its first and its last decide) they are a range again.

As bounds are pushed to whole ranges, one for each column, one may be later than any existing start,
never earlier: a search visits more events than it needs, but loses no match. An event that raises
the bounds of many nodes' events pushes on from all of these at once, and most columns are raised as
a whole after the first of them.

The one rule: no match starts after, or ends before, the bounds of its events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ketal.clocks import vector
from ketal.engine.configurations import Seen
from ketal.engine.find_any.columns import NEVER, Column
from ketal.engine.find_any.kept_events import KeptEvents
from ketal.engine.find_any.roles import StepRole

Ranges = list[tuple[Seen, Seen]]
"""The first and the last event of some ranges of columns."""


def keep_bounded(kept: KeptEvents, seen: Seen, roles: Sequence[StepRole], position: float) -> None:
    """Keep an event in its roles, with its bounds, and raise those of others.

    Its window starts at `position`, which is the same for all events if there is no window, as one
    start is then as good as another.
    """
    bounds = [_pull_bounds(kept, role, seen, position) for role in roles]
    for role, own_bounds in zip(roles, bounds, strict=True):
        kept.columns(role).add(seen, NEVER, own_bounds)
    for role, (before, after) in zip(roles, bounds, strict=True):
        if before > NEVER:
            _push_before(kept, role, [(seen, seen)], before)
        if after > NEVER:
            _push_after(kept, role, [(seen, seen)], after)


def _pull_bounds(
    kept: KeptEvents, role: StepRole, seen: Seen, position: float
) -> tuple[float, float]:
    """Return the bounds of a new event in a role, from the events that are kept.

    They are the latest start of a match before it, and the negative of the earliest end after it.
    """
    before = position if role.starts else NEVER
    if not role.starts:
        for columns in kept.into.get(role.edge.source, ()):
            for node, column in columns.nodes.known_to(seen.clock if role.causal else None):
                assert column.before is not None
                if column.before.greatest > before:
                    low, high = _preceding_range(column, node, role, seen, seen)
                    before = max(before, column.before.maximum(low, high))
    after = -position if role.ends else NEVER
    if not role.ends:
        for columns in kept.out.get(role.edge.target, ()):
            if not _may_follow(kept, columns.role, seen):
                continue
            for node, column in columns.nodes.sorted:
                assert column.after is not None
                if column.after.greatest > after:
                    low, high = _following_range(column, node, columns.role, seen, seen)
                    after = max(after, column.after.maximum(low, high))
    return min(before, position), min(after, -position)


def _push_before(kept: KeptEvents, role: StepRole, pushing: Ranges, value: float) -> None:
    """Raise `before` of the events that can follow one of `pushing`, which are in a role."""
    pending = [(role, pushing)]
    while pending:
        role, pushing = pending.pop()
        for columns in kept.out.get(role.edge.target, ()):
            followed = [some for some in pushing if _may_follow(kept, columns.role, some[0])]
            raised: Ranges = []
            for node, column in columns.nodes.sorted if followed else ():
                low, high = _spanned(column, node, columns.role, followed, ahead=True)
                assert column.before is not None
                if low < high and column.before.raise_range(low, high, value):
                    raised.append((column.seens[low], column.seens[high - 1]))
            if raised:
                pending.append((columns.role, raised))


def _push_after(kept: KeptEvents, role: StepRole, pushing: Ranges, value: float) -> None:
    """Raise `after` of the events that can precede one of `pushing`, which are in a role."""
    pending = [(role, pushing)]
    while pending:
        role, pushing = pending.pop()
        known = vector.join([last.clock for _, last in pushing]) if role.causal else None
        for columns in kept.into.get(role.edge.source, ()):
            raised: Ranges = []
            for node, column in columns.nodes.known_to(known):
                low, high = _spanned(column, node, role, pushing, ahead=False)
                assert column.after is not None
                if low < high and column.after.raise_range(low, high, value):
                    raised.append((column.seens[low], column.seens[high - 1]))
            if raised:
                pending.append((columns.role, raised))


def _spanned(
    column: Column, node: str, role: StepRole, pushing: Ranges, *, ahead: bool
) -> tuple[int, int]:
    """Return the least range of a column that spans those just after, or before, each range."""
    low, high = len(column.seens), 0
    for first, last in pushing:
        if ahead:
            start, end = _following_range(column, node, role, first, last)
        else:
            start, end = _preceding_range(column, node, role, first, last)
        if start < end:
            low, high = min(low, start), max(high, end)
            if high - low == len(column.seens):
                break
    return low, high


def _may_follow(kept: KeptEvents, role: StepRole, seen: Seen) -> bool:
    """Return whether an event that is kept in a role may come just after an event."""
    return not role.causal or kept.may_be_followed(seen)


def _preceding_range(
    column: Column, node: str, role: StepRole, first: Seen, last: Seen
) -> tuple[int, int]:
    """Return the range of a column that can come just before one of the events `first` to `last`.

    These are events of one node in the given role; the clock of `last` covers the others.
    """
    low, high = 0, len(column.seens)
    if role.causal:
        high = bisect_right(column.counters, last.last_before(node), low, high)
    else:
        high = column.first_knowing(last, low, high)
    if role.conc:
        low = bisect_right(column.counters, first.clock.get(node, 0), low, high)
    return low, high


def _following_range(
    column: Column, node: str, role: StepRole, first: Seen, last: Seen
) -> tuple[int, int]:
    """Return the range of a role's column that can come just after one of `first` to `last`."""
    low, high = bisect_right(column.counters, first.clock.get(node, 0)), len(column.seens)
    if role.causal:
        low = column.first_knowing(first, low, high)
    if role.conc:
        high = column.first_knowing(last, low, high)
    return low, high
