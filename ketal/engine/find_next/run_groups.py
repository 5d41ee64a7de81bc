"""Groups of runs: how `find next` and `find strict` keep the events that runs have taken.

Runs that take the same event into the same configuration move alike from then on. They are one
*group*. Its parents are the groups that took the event, and so on back to the *starts*, groups of
one run that has taken one event. A match is a path from a start to the group that completes it;
nothing is copied before a match is listed.

Cost: an event that moves n groups takes O(n), and each group moves once. A match of k events is
listed in O(k). A run is removed in time proportional to the groups that only it is in.

The one rule: a group waits for an event, or is a parent of another group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from sys import maxsize
from typing import Any, Final

from ketal.engine.configurations import Configuration, Seen, SeenTable
from ketal.engine.find.findings import Live, Taken, rank
from ketal.model.events.event_time import TIME_MAX_US, TIME_MIN_US


class TimeSpan:
    """Bounds of the times of the events that some runs have taken, in microseconds."""

    __slots__ = ("greatest", "least", "newest", "oldest")

    def __init__(self, oldest: int, newest: int, least: int, greatest: int) -> None:
        self.oldest = oldest  # no run started before
        self.newest = newest  # no run started after
        self.least = least  # no event after the start was taken at an earlier time
        self.greatest = greatest  # no event was taken at a later time


class Run:
    """The run that one event started.

    Its groups do not refer to it, so both are freed at once when it ends.
    """

    __slots__ = ("matched", "start", "starts")

    def __init__(self, start: Seen) -> None:
        self.start = start
        # The groups of the event alone: one, unless several steps can be first.
        self.starts: list[RunGroup] = []
        self.matched = False


class RunGroup:
    """Runs that have taken the same event into the same configuration."""

    __slots__ = (
        "binding", "children", "configuration", "number", "parents", "span", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        configuration: Configuration,
        binding: tuple[int, Seen],
        parents: dict[RunGroup, None],
        span: TimeSpan | None,
    ) -> None:
        self.number = number  # in the order in which the groups of the scope were made
        self.configuration = configuration
        self.binding = binding  # the step and the event that were taken last
        self.parents = parents  # the groups that took the event; empty for a start
        self.children: list[RunGroup] = []  # the groups that have this one as a parent
        self.span = span  # the times of its runs' events, if there is a time window
        self.waiting = False  # whether its runs wait for another event

    @property
    def prior(self) -> Seen:
        """The event that was taken last."""
        return self.binding[1]

    @property
    def is_start(self) -> bool:
        """Whether the group is a start of the run that its event started."""
        return self.parents is NO_PARENTS


NO_PARENTS: Final[dict[RunGroup, None]] = {}
"""The parents of a start; never changed."""

Tail = tuple[tuple[int, Seen], Any] | None
"""The end of a match, as a linked list of bindings; several matches share their ends."""

_Longest = dict[RunGroup, tuple[int, Tail]]
"""The length of the longest path on from each group, the group included, and its events."""


def _joined_span(groups: Iterable[RunGroup], time_us: int) -> TimeSpan:
    """Return the span of all runs of some groups after they take an event at `time_us`."""
    joined = TimeSpan(TIME_MAX_US, TIME_MIN_US, time_us, time_us)
    for group in groups:
        span = group.span
        assert span is not None
        joined.oldest = min(joined.oldest, span.oldest)
        joined.newest = max(joined.newest, span.newest)
        joined.least = min(joined.least, span.least)
        joined.greatest = max(joined.greatest, span.greatest)
    return joined


class RunGroups:
    """The groups of one scope."""

    __slots__ = ("_made", "_window_us", "count", "live", "passed_us", "runs")

    def __init__(self, live: Live, window_us: int | None) -> None:
        self.live = live
        self._window_us = window_us
        self.runs: dict[int, Run] = {}  # by the place of the event that started them
        self.count = self._made = 0
        self.passed_us = TIME_MIN_US - 1  # runs that started then or before have expired

    # --- adding and removing groups ---

    def start(self, configuration: Configuration, binding: tuple[int, Seen]) -> RunGroup:
        """Add and return a start: the group of the run that begins with an event."""
        seen = binding[1]
        run = self.runs.get(seen.place)
        if run is None:
            run = self.runs[seen.place] = Run(seen)
            self.live.count += 1
        span = None
        if self._window_us is not None:
            time_us = seen.time_us
            span = TimeSpan(time_us, time_us, TIME_MAX_US, time_us)
        group = RunGroup(self._made, configuration, binding, NO_PARENTS, span)
        run.starts.append(group)
        return self._add(group)

    def extend(
        self,
        parents: dict[RunGroup, None],
        configuration: Configuration,
        binding: tuple[int, Seen],
    ) -> RunGroup:
        """Add and return the group of all runs of `parents`, which took an event."""
        span = None
        if self._window_us is not None:
            span = _joined_span(parents, binding[1].time_us)
        group = RunGroup(self._made, configuration, binding, parents, span)
        for parent in parents:
            parent.children.append(group)
        return self._add(group)

    def run_of(self, start: RunGroup) -> Run:
        """Return the run that a start is of."""
        return self.runs[start.prior.place]

    def _add(self, group: RunGroup) -> RunGroup:
        """Count a new group, and return it."""
        self.count += 1
        self._made += 1
        return group

    def release(self, group: RunGroup) -> None:
        """Remove a group unless it is needed, and then the parents that only it needed."""
        todo = [group]
        while todo:
            group = todo.pop()
            if group.waiting or group.children:
                continue
            self.count -= 1
            for parent in group.parents:
                parent.children.remove(group)
                todo.append(parent)
            if group.is_start:
                run = self.run_of(group)
                run.starts.remove(group)
                if not run.starts:
                    self._remove_run(run)

    def end(self, run: Run) -> list[RunGroup]:
        """Remove a run; return the waiting groups that had no other run."""
        ended: list[RunGroup] = []
        empty = list(run.starts)
        while empty:
            group = empty.pop()
            self.count -= 1
            if group.waiting:
                ended.append(group)
            for child in group.children:
                del child.parents[group]
                if not child.parents:
                    empty.append(child)
        self._remove_run(run)
        return ended

    def _remove_run(self, run: Run) -> None:
        del self.runs[run.start.place]
        self.live.count -= 1

    # --- time windows ---

    def split(self, group: RunGroup, time_us: int) -> tuple[RunGroup | None, RunGroup | None]:
        """Return a group of the runs whose windows include a time, and one of the others.

        Either is the group itself if it has all runs, and None if it has none.
        """
        halves = self._split_by_span(group, time_us, time_us)
        if halves is not None:
            return halves
        decided: dict[tuple[RunGroup, int, int], tuple[RunGroup | None, RunGroup | None]] = {}
        # (group, the least and the greatest time of the events taken after it)
        todo = [(group, time_us, time_us)]
        while todo:
            at = todo[-1]
            group, low, high = at
            if at not in decided:
                halves = self._split_by_span(*at)
                if halves is None:
                    own = group.prior.time_us
                    parents = [(p, min(low, own), max(high, own)) for p in group.parents]
                    missing = [parent for parent in parents if parent not in decided]
                    if missing:
                        todo += missing
                        continue
                    halves = self._split_by_parents(group, [decided[parent] for parent in parents])
                decided[at] = halves
            todo.pop()
        return decided[at]

    def _split_by_span(
        self, group: RunGroup, low: int, high: int
    ) -> tuple[RunGroup | None, RunGroup | None] | None:
        """Return the result of `split` if the span of the group decides it; None otherwise."""
        span, length, own = group.span, self._window_us, group.prior.time_us
        assert length is not None
        assert span is not None
        oldest = max(span.oldest, self.passed_us + 1)
        if max(high, span.greatest) - min(min(low, oldest), span.least) < length:
            return group, None
        if max(high, own) - min(min(low, own), span.newest) >= length:
            return None, group
        return None

    def _split_by_parents(
        self, group: RunGroup, halves: list[tuple[RunGroup | None, RunGroup | None]]
    ) -> tuple[RunGroup | None, RunGroup | None]:
        """Return the result of `split`, given the results for the group's parents."""
        fitting = {half: None for half, _ in halves if half is not None}
        others = {half: None for _, half in halves if half is not None}
        if not others:
            return group, None
        if not fitting:
            return None, group
        return (
            self.extend(fitting, group.configuration, group.binding),
            self.extend(others, group.configuration, group.binding),
        )

    # --- matches ---

    def paths(self, ends: Sequence[RunGroup], tail: Tail, most: int = maxsize) -> list[Taken]:
        """Return the events of each path to some groups, extended by `tail`; at most `most`."""
        out: list[Taken] = []
        todo = [(group, tail) for group in reversed(ends)]
        while todo and len(out) < most:
            group, tail = todo.pop()
            tail = (group.binding, tail)
            if group.is_start:
                out.append(_bindings(tail))
            else:
                todo += [(parent, tail) for parent in reversed(group.parents)]
        return out

    def mark_matched(self, groups: Iterable[RunGroup]) -> None:
        """Mark all runs of some groups as matched."""
        met: set[RunGroup] = set()
        todo = list(groups)
        while todo:
            group = todo.pop()
            if group.is_start:
                self.run_of(group).matched = True
                continue
            for parent in group.parents:
                if parent not in met:
                    met.add(parent)
                    todo.append(parent)

    def longest(self, run: Run) -> Taken:
        """Return the events of the longest path of a run; of several, the least by `rank`."""
        groups = run.starts
        out: list[tuple[int, Seen]] = []
        while len(groups) == 1:
            out.append(groups[0].binding)
            groups = groups[0].children
        return (*out, *_longest(groups)) if groups else tuple(out)

    # --- state ---

    def groups(self) -> Iterator[RunGroup]:
        """Yield all groups in the order in which they were made, each after its parents."""
        yield from _with_descendants(group for run in self.runs.values() for group in run.starts)

    def save(self, seens: SeenTable) -> Any:
        """Return `groups()` as plain data; `seens` numbers their events."""
        numbers: dict[RunGroup, int] = {}
        rows = []
        for group in self.groups():
            numbers[group] = len(numbers)
            step, seen = group.binding
            parents = [numbers[parent] for parent in group.parents]
            configuration = group.configuration.save(seens)
            rows.append((configuration, step, seens.number(seen), parents))
        matched = [run.start.place for run in self.runs.values() if run.matched]
        return {"groups": rows, "matched": matched}

    def load(self, value: dict[str, Any], seens: SeenTable) -> list[RunGroup]:
        """Load what `save` returned into a fresh object; return the groups in the same order."""
        groups: list[RunGroup] = []
        for saved, step, number, parents in value["groups"]:
            configuration = Configuration.load(saved, seens)
            binding = (step, seens[number])
            if parents:
                own = dict.fromkeys(groups[parent] for parent in parents)
                groups.append(self.extend(own, configuration, binding))
            else:
                groups.append(self.start(configuration, binding))
        for place in value["matched"]:
            self.runs[place].matched = True
        return groups

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        groups = list(self.groups())
        assert len(groups) == self.count
        for group in groups:
            assert group.waiting != bool(group.children)
            assert group.is_start != bool(group.parents)
            assert all(parent.children.count(group) == 1 for parent in group.parents)
            assert all(parent.number < group.number for parent in group.parents)
            assert all(group in child.parents for child in group.children)
            assert (group.span is not None) == (self._window_us is not None)
        for place, run in self.runs.items():
            assert place == run.start.place
            assert run.starts
            assert all(group.is_start and self.run_of(group) is run for group in run.starts)


def _bindings(tail: Tail) -> Taken:
    out = []
    while tail is not None:
        out.append(tail[0])
        tail = tail[1]
    return tuple(out)


def _with_descendants(groups: Iterable[RunGroup]) -> list[RunGroup]:
    """Return groups and all their descendants, in the order in which they were made."""
    met = dict.fromkeys(groups)
    todo = list(met)
    while todo:
        for child in todo.pop().children:
            if child not in met:
                met[child] = None
                todo.append(child)
    return sorted(met, key=lambda group: group.number)


def _longest(groups: list[RunGroup]) -> Taken:
    """Return the events of the longest path on from some groups; of several, the least."""
    longest: _Longest = {}
    for group in reversed(_with_descendants(groups)):
        length, tail = _best(group.children, longest)
        longest[group] = length + 1, (group.binding, tail)
    return _bindings(_best(groups, longest)[1])


def _best(groups: list[RunGroup], longest: _Longest) -> tuple[int, Tail]:
    """Return the longest of the paths that begin with some groups; of several, the least."""
    most = max([longest[group][0] for group in groups], default=0)
    ways = [longest[group] for group in groups if longest[group][0] == most]
    return min(ways, key=lambda way: rank(_bindings(way[1])), default=(0, None))
