"""The groups of runs that wait in one state, by the event they took last.

Seen from an event e, another node's events are a prefix that happened-before e, a suffix that e
happened-before, and a range between of concurrent ones. So the groups that e relates to are found
by bisection among those of each node, by counter (Garg, "Principles of distributed systems",
1996, section 2.2). Where no guard reads the causal relation they are sorted by place alone. Two
more things narrow a search where the pattern allows it:

- A *key*: `k == A.k` accepts only groups whose A had this k, so groups are also indexed by that
  value.
- Time: under `within 5 s` a run that started longer ago is of no use. A row has for each group
  the latest start up to it. These never fall, so the groups that are too old are a prefix too,
  even where a clock was set back.

The one rule: a group that waits is in one row and, for each key of which it has a value, in one
row of that value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final

from ketal.engine.configurations import Configuration, Seen
from ketal.engine.find_next.run_groups import RunGroup, RunGroups
from ketal.engine.machine import Machine, Plan, SubPlan
from ketal.model.values import Key

_NUMBER: Final = attrgetter("number")


class GroupRow:
    """The groups whose last event is of one node, or of any, in the order of these events."""

    __slots__ = ("_newest", "groups", "number", "positions")

    def __init__(self, number: int) -> None:
        self.number = number  # in the order in which the rows of the state were made
        # The counters of the events, or their places; groups with the same last event are sorted by
        # number.
        self.positions: list[int] = []
        self.groups: list[RunGroup] = []
        self._newest: list[int] = []  # under a time window, the latest start up to each

    def add(self, position: int, group: RunGroup) -> None:
        """Add a group by the counter or place of its last event; most are added at the end."""
        newest, own_us = self._newest, group.span.newest if group.span is not None else None
        if not self.positions or self.positions[-1] <= position:
            self.positions.append(position)
            self.groups.append(group)
            if own_us is not None:
                newest.append(max(own_us, newest[-1]) if newest else own_us)
            return
        i = bisect_right(self.positions, position)
        self.positions.insert(i, position)
        self.groups.insert(i, group)
        if own_us is not None:
            newest.insert(i, max(own_us, newest[i - 1]) if i else own_us)
            newest[i:] = accumulate(newest[i:], max)

    def remove(self, position: int, group: RunGroup) -> None:
        """Remove a group."""
        low = bisect_left(self.positions, position)
        high = bisect_right(self.positions, position, low)
        i = bisect_left(self.groups, group.number, low, high, key=_NUMBER)
        del self.positions[i], self.groups[i]
        if self._newest:
            del self._newest[i]  # those after it stay valid as upper bounds

    def first_started_after(self, time_us: int | None) -> int:
        """Return the index of the first group that may have a run that started after a time."""
        return bisect_right(self._newest, time_us) if self._newest and time_us is not None else 0

    def before(self, node: str, seen: Seen) -> int:
        """Return how many groups have last events, all of `node`, that happened before `seen`."""
        return bisect_right(self.positions, seen.last_before(node))

    def after(self, seen: Seen, low: int) -> int:
        """Return the index, from `low`, of the first group whose last event is after `seen`."""
        known = seen.node
        return bisect_left(
            self.groups, seen.counter, low, key=lambda group: group.prior.clock.get(known, 0)
        )

    def validate_state(self) -> None:
        """Assert that it is sorted."""
        numbers = [group.number for group in self.groups]
        places = list(zip(self.positions, numbers, strict=True))
        assert places == sorted(places)
        assert self._newest == sorted(self._newest)


GroupRows = dict[str, GroupRow]


class WaitingGroups:
    """The groups that wait in one state.

    `values` has, for each key (the number of its atom), the function that reads the value of a
    configuration; None means that no event can match it. `by_node` is whether a guard reads the
    causal relation to the last event. No row is empty, as new nodes and values appear without end.
    """

    __slots__ = ("_by_node", "_keyed", "_made", "_values", "count", "rows")

    def __init__(
        self,
        values: Mapping[int, Callable[[Configuration], Key | None]],
        *,
        by_node: bool,
    ) -> None:
        self._values = values
        self._by_node = by_node
        self.count = self._made = 0
        self.rows: GroupRows = {}  # the groups by node, or all of them under ""
        self._keyed: dict[int, dict[Key, GroupRows]] = {}  # made when first needed

    def add(self, group: RunGroup) -> None:
        """Add a group, which waits from now on."""
        group.waiting = True
        self._put(self.rows, group)
        for number in self._keyed:
            self._add_keyed(number, group)
        self.count += 1

    def _add_keyed(self, number: int, group: RunGroup) -> None:
        value = self._values[number](group.configuration)
        if value is not None:
            self._put(self._keyed[number].setdefault(value, {}), group)

    def _put(self, rows: GroupRows, group: RunGroup) -> None:
        node, position = self._position(group)
        row = rows.get(node)
        if row is None:
            row = rows[node] = GroupRow(self._made)
            self._made += 1
        row.add(position, group)

    def _position(self, group: RunGroup) -> tuple[str, int]:
        prior = group.binding[1]
        return (prior.node, prior.counter) if self._by_node else ("", prior.place)

    def remove(self, group: RunGroup) -> None:
        """Remove a group, which does not wait any more."""
        group.waiting = False
        node, position = self._position(group)
        _remove(self.rows, node, position, group)
        for number, by_value in self._keyed.items():
            value = self._values[number](group.configuration)
            if value is None:
                continue
            rows = by_value[value]
            _remove(rows, node, position, group)
            if not rows:
                del by_value[value]
        self.count -= 1

    def remove_all(self, groups: list[RunGroup]) -> None:
        """Remove some groups, which do not wait any more."""
        if len(groups) < self.count:
            for group in groups:
                self.remove(group)
            return
        for group in groups:
            group.waiting = False
        self.rows.clear()
        for by_value in self._keyed.values():
            by_value.clear()
        self.count = 0

    def _rows_having(self, key: int | None, value: Key | None) -> Iterable[tuple[str, GroupRow]]:
        """Return the rows, by node, of the groups with this value of a key (None: of all)."""
        if key is None:
            return self.rows.items()
        if value is None:
            return ()
        if key not in self._keyed:
            self._keyed[key] = {}
            for group in self:
                self._add_keyed(key, group)
        rows = self._keyed[key].get(value)
        return () if rows is None else self._in_order(rows)

    def _in_order(self, rows: GroupRows) -> list[tuple[str, GroupRow]]:
        """Return rows in the order of all rows.

        That order is saved, as it decides the order of the matches of an event.
        """
        return sorted(rows.items(), key=lambda item: self.rows[item[0]].number)

    def __iter__(self) -> Iterator[RunGroup]:
        for row in self.rows.values():
            yield from row.groups

    def groups_having(self, key: int | None, value: Key | None) -> list[RunGroup]:
        """Return the groups with this value of a key (None: all)."""
        return [group for _, row in self._rows_having(key, value) for group in row.groups]

    def candidates(
        self, plan: Plan, seen: Seen, value: Key | None, oldest_us: int | None
    ) -> list[tuple[SubPlan, list[RunGroup]]]:
        """Return (sub-plan, groups) for each relation of the groups' last events to an event.

        `value` is the event's value of the plan's key. Groups whose runs all started at
        `oldest_us` or before are out of the window and left out.
        """
        out: list[tuple[SubPlan, list[RunGroup]]] = []
        for node, row in self._rows_having(plan.key, value):
            groups = row.groups
            first = row.first_started_after(oldest_us)
            if first == len(groups):
                continue
            if not plan.reads_prior:
                assert plan.unbound is not None
                out.append((plan.unbound, groups[first:]))
                continue
            # Up to `before`: prior → e. From `after` on: e → prior. Between: concurrent.
            before = row.before(node, seen)
            after = row.after(seen, before)
            if plan.before is not None and before > first:
                out.append((plan.before, groups[first:before]))
            low = max(before, first)
            if plan.concurrent is not None and after > low:
                out.append((plan.concurrent, groups[low:after]))
            low = max(after, first)
            if plan.after is not None and low < len(groups):
                out.append((plan.after, groups[low:]))
        return out

    def validate_state(self) -> None:
        """Assert that rows are sorted, and that the rows of a key have the groups of its value."""
        own = set(self)
        assert len(own) == self.count == sum(len(row.positions) for row in self.rows.values())
        assert all(group.waiting for group in own)
        every = [self.rows, *(rows for by in self._keyed.values() for rows in by.values())]
        for row in (row for rows in every for row in rows.values()):
            assert row.groups
            row.validate_state()
        numbers = [row.number for row in self.rows.values()]
        assert numbers == sorted(numbers)
        for number, by_value in self._keyed.items():
            value_of = self._values[number]
            for value, rows in by_value.items():
                kept = [group for row in rows.values() for group in row.groups]
                assert set(kept) == {g for g in own if value_of(g.configuration) == value}


def _remove(rows: GroupRows, node: str, position: int, group: RunGroup) -> None:
    """Remove a group from the row of a node, and the row if it has no other."""
    row = rows[node]
    row.remove(position, group)
    if not row.groups:
        del rows[node]


class WaitingByState:
    """The groups that wait, by state."""

    __slots__ = ("_groups", "_machine", "by_state", "states")

    def __init__(self, machine: Machine, groups: RunGroups) -> None:
        self._machine = machine
        self._groups = groups
        # The index of each state in which groups have waited.
        self.by_state: dict[int, WaitingGroups] = {}
        self.states = 0  # the states in which groups wait now, as bits

    def add(self, group: RunGroup) -> None:
        """Add a group to those that wait in its state."""
        state = group.configuration.state
        waiting = self.by_state.get(state)
        if waiting is None:
            waiting = self._new(state)
        waiting.add(group)
        self.states |= 1 << state

    def _remove(self, state: int, groups: list[RunGroup]) -> None:
        """Remove groups that waited in a state."""
        waiting = self.by_state[state]
        waiting.remove_all(groups)
        if not waiting.count:
            self.states &= ~(1 << state)

    def _new(self, state: int) -> WaitingGroups:
        """Add and return an empty index for a state."""
        values = self._machine.relations.register_values
        by_node = self._machine.automaton.live[state].prior
        waiting = self.by_state[state] = WaitingGroups(values, by_node=by_node)
        return waiting

    def groups(self) -> Iterator[RunGroup]:
        """Yield all groups that wait."""
        for waiting in self.by_state.values():
            yield from waiting

    def take(self, state: int, groups: list[RunGroup], seen: Seen) -> list[RunGroup]:
        """Remove and return, as groups, the runs of a state whose windows include an event."""
        if self._machine.compiled.window_us is None:
            self._remove(state, groups)
            return groups
        out: list[RunGroup] = []
        taken: list[RunGroup] = []
        cut: list[tuple[RunGroup, RunGroup]] = []
        for group in groups:
            fitting, others = self._groups.split(group, seen.time_us)
            if fitting is not None:
                out.append(fitting)
                taken.append(group)
                if others is not None:
                    cut.append((group, others))
        self._remove(state, taken)
        for group, others in cut:
            self.add(others)
            self._groups.release(group)
        return out

    def end(self, groups: Iterable[RunGroup]) -> None:
        """Remove groups that have no runs any more."""
        for group in groups:
            self._remove(group.configuration.state, [group])

    def drop(self, state: int, groups: list[RunGroup]) -> None:
        """End the runs of some groups of a state."""
        if groups:
            self._remove(state, groups)
            for group in groups:
                self._groups.release(group)

    def drop_all(self) -> None:
        """End all runs."""
        for state, waiting in self.by_state.items():
            self.drop(state, list(waiting))

    def pass_over(self, seen: Seen) -> None:
        """Test an event that waiting groups did not take against their `not` guards."""
        machine = self._machine
        for state, waiting in self.by_state.items():
            plan = machine.not_plans[state, seen.mask]
            if not waiting.count or not plan.guards:
                continue
            ended = []
            value = machine.relations.key_value(plan.key, seen.event)
            for group in waiting.groups_having(plan.key, value):
                after = machine.skip(group.configuration, seen)
                if after is None:
                    ended.append(group)
                else:
                    group.configuration = after
            self.drop(state, ended)

    # --- state ---

    def save(self) -> Any:
        """Return the order in which groups are searched, as plain data.

        It decides the order of the matches that one event completes.
        """
        numbers = {group: number for number, group in enumerate(self._groups.groups())}
        return [
            [state, [numbers[group] for group in waiting]]
            for state, waiting in self.by_state.items()
        ]

    def load(self, value: Any, groups: Sequence[RunGroup]) -> None:
        """Load what `save` returned into a fresh object; it refers to `groups` by number."""
        for state, *_, numbers in value:  # earlier versions also saved the nodes of the rows
            self._new(state)
            for number in numbers:
                self.add(groups[number])

    def validate_state(self) -> None:
        """Assert that each group that waits is in the index of its state."""
        waiting = {group for group in self._groups.groups() if group.waiting}
        assert waiting == set(self.groups())
        states = [state for state, groups in self.by_state.items() if groups.count]
        assert self.states == sum(1 << state for state in states)
        for state, groups in self.by_state.items():
            groups.validate_state()
            assert all(group.configuration.state == state for group in groups)
