"""The events that one scope of a `find any` keeps, by the role in which each can stand.

An event that the window has passed stays in its columns until these are swept; a search skips it.

The one rule: an event is kept once in each role that it has.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Final

from ketal.engine.configurations import Seen
from ketal.engine.find.findings import Taken
from ketal.engine.find_any.columns import NOTHING, Column, Columns, IsKept, NamedColumns
from ketal.engine.find_any.paths import RequiredRelations, last_of
from ketal.engine.find_any.roles import Equality, Path, Roles, StepRole
from ketal.model.values import Key

_SORT_KEY: Final = attrgetter("role.sort_key")
Indexed = tuple[bool, int]
"""An index over an equality: whether by the later event's value, and the number of its atom."""


class RoleColumns:
    """The events kept in one role: a column for each node, and for each value of an equality.

    `searched` is whether events of a match may be offered in any order.
    """

    __slots__ = ("_by_place", "_indexes", "_new_column", "_roles", "keyed", "nodes", "role")

    def __init__(
        self, roles: Roles, *, by_place: bool, searched: bool, counting: bool, role: StepRole
    ) -> None:
        self._roles = roles
        self.role = role
        self._by_place = by_place  # whether one column holds the events of all nodes
        bounded = searched and roles.bounding
        self._new_column = partial(Column, bounded=bounded, counting=counting)
        self.nodes = Columns()
        indexes: list[Indexed] = [(False, n) for n in roles.anchors[role.edge.step]]
        if searched:
            indexes += [(True, equality.atom) for equality in role.equalities]
        self._indexes = tuple(indexes)
        self.keyed: dict[Indexed, dict[Key, Columns]] = {index: {} for index in indexes}

    def add(
        self, seen: Seen, start: float, bounds: tuple[float, float], beginnings: int = 0
    ) -> None:
        """Add an event; the other arguments are those of `Column.add`."""
        name, position = ("", seen.place) if self._by_place else (seen.node, seen.counter)
        every = [self.nodes]
        for index, value in self._index_values(seen):
            columns = self.keyed[index].get(value)
            if columns is None:
                columns = self.keyed[index][value] = Columns()
            every.append(columns)
        for columns in every:
            column = columns.get(name)
            if column is None:
                column = self._new_column()
                columns.add(name, column)
            column.add(position, seen, start, bounds, beginnings)

    def _index_values(self, seen: Seen) -> Iterator[tuple[Indexed, Key]]:
        for index in self._indexes:
            later, atom = index
            if later:
                value = self._roles.relations.key_value(atom, seen.event)
            else:
                value = self._roles.anchor_value(atom, self.role.edge.step, seen.event)
            if value is not None:
                yield index, value

    def sweep(self, is_kept: IsKept) -> None:
        """Remove the events that `is_kept` rejects."""
        self.nodes.sweep(is_kept)
        for keyed in self.keyed.values():
            for value, columns in list(keyed.items()):
                columns.sweep(is_kept)
                if not columns.sorted:
                    del keyed[value]

    def having(self, index: Indexed, value: Key | None) -> Columns:
        """Return the columns of the events that have a value in an index."""
        return NOTHING if value is None else self.keyed[index].get(value, NOTHING)

    def seens(self, is_kept: IsKept) -> Iterator[Seen]:
        """Yield the events that `is_kept` accepts."""
        for _, column in self.nodes.sorted:
            for seen, start in zip(column.seens, column.starts, strict=True):
                if is_kept(seen, start):
                    yield seen

    def validate_state(self) -> None:
        """Assert the rule of this module and of columns, and that the indexes hold the same."""
        self.nodes.validate_state()
        own = {seen.place for _, column in self.nodes.sorted for seen in column.seens}
        for index, keyed in self.keyed.items():
            indexed: list[int] = []
            for value, columns in keyed.items():
                columns.validate_state()
                for _, column in columns.sorted:
                    for seen in column.seens:
                        assert (index, value) in set(self._index_values(seen))
                        indexed.append(seen.place)
            assert len(indexed) == len(set(indexed))
            assert own >= set(indexed)


class KeptEvents:
    """The roles that have events, by the states that they lead from and to.

    The arguments are those of `RoleColumns`.
    """

    __slots__ = (
        "_by_role", "_new_columns", "_past", "_reach", "_roles", "by_place", "into", "out",
    )  # fmt: skip

    def __init__(self, roles: Roles, *, by_place: bool, searched: bool, counting: bool) -> None:
        self._roles = roles
        # By node, the greatest counter known to have happened before an event in `into`; None if
        # no search goes forwards along `Causal`.
        self._past: dict[str, int] | None = {} if searched and roles.reads_past else None
        self.by_place = by_place
        self._new_columns = partial(
            RoleColumns, roles, by_place=by_place, searched=searched, counting=counting
        )
        self._by_role: dict[StepRole, RoleColumns] = {}
        # By state, sorted: the roles with events whose edges enter it, and whose edges leave it.
        self.into: dict[int, list[RoleColumns]] = {}
        self.out: dict[int, list[RoleColumns]] = {}
        self._reach: tuple[frozenset[int], frozenset[int]] | None = None

    def columns(self, role: StepRole) -> RoleColumns:
        """Return the columns of a role; new ones are empty, so an event must be added to them."""
        made = self._by_role.get(role)
        if made is None:
            made = self._by_role[role] = self._new_columns(role=role)
            insort(self.into.setdefault(role.edge.target, []), made, key=_SORT_KEY)
            insort(self.out.setdefault(role.edge.source, []), made, key=_SORT_KEY)
            self._reach = None
        return made

    def sweep(self, is_kept: IsKept) -> None:
        """Remove the events that `is_kept` rejects."""
        for role, columns in list(self._by_role.items()):
            columns.sweep(is_kept)
            if not columns.nodes.sorted:
                del self._by_role[role]
                self.into[role.edge.target].remove(columns)
                self.out[role.edge.source].remove(columns)
        self._reach = None
        if self._past is not None:
            self._past.clear()
            for columns in self._by_role.values():
                for _, column in columns.nodes.sorted:
                    for seen in column.seens:
                        self.record_past(seen)

    def record_past(self, seen: Seen) -> None:
        """Record what happened before an event that is kept."""
        past = self._past
        if past is not None:
            for node in seen.clock:
                counter = seen.last_before(node)
                if counter > past.get(node, 0):
                    past[node] = counter

    def may_be_followed(self, seen: Seen) -> bool:
        """Return whether an event that is kept may have happened after an event."""
        return self._past is None or self._past.get(seen.node, 0) >= seen.counter

    def can_stand(self, role: StepRole) -> bool:
        """Return whether there are events for the steps before and after one in a role."""
        if self._reach is None:
            self._reach = self._compute_reach()
        comes, leads = self._reach
        return role.edge.source in comes and role.edge.target in leads

    def _compute_reach(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the states that events lead to, and those from which events lead to a final."""
        edges = [role.edge for role in self._by_role]
        comes, leads = {0}, set(self._roles.machine.automaton.finals)
        while more := {e.target for e in edges if e.source in comes} - comes:
            comes |= more
        while more := {e.source for e in edges if e.target in leads} - leads:
            leads |= more
        return frozenset(comes), frozenset(leads)

    def columns_after_word(
        self, after: RoleColumns, taken: Taken, required: RequiredRelations
    ) -> NamedColumns:
        """Return the columns to search for the event just after a part of a word.

        It must have the `required` relations to events of the part.
        """
        if any(not concurrent and not self.may_be_followed(x) for x, concurrent in required):
            return []
        for equality in after.role.equalities:
            anchor = last_of(taken, equality.step)
            if anchor is not None:
                value = self._roles.anchor_value(equality.atom, equality.step, anchor.event)
                return after.having((True, equality.atom), value).sorted
        return after.nodes.sorted

    def columns_before_word(
        self, before: RoleColumns, path: Path, taken: Taken, required: RequiredRelations
    ) -> NamedColumns:
        """Return the columns to search for the event just before a part of a word.

        It must have the `required` relations to events of the part: one that happened before an
        event is of a node in its clock. Where an event of the part has an equality with it, the
        columns are those of the value.
        """
        clock: Mapping[str, int] | None = None
        for x, concurrent in required:
            if not concurrent and (clock is None or len(x.clock) < len(clock)):
                clock = x.clock
        return self._of_value(before, path, taken).known_to(clock)

    def _of_value(self, before: RoleColumns, path: Path, taken: Taken) -> Columns:
        step = before.role.edge.step
        for i, later in enumerate(path):
            for equality in later.equalities:
                if equality.step == step:
                    value = self._roles.relations.key_value(equality.atom, taken[i][1].event)
                    return before.having((False, equality.atom), value)
            if later.edge.step == step:
                break
        return before.nodes

    def earliest_place(self, path: Path, taken: Taken, *, forward: bool) -> int | None:
        """Return a lower bound of the place of the event just before a part of a word.

        Each equality of the part whose earlier event is still to be found is looked up in its
        index first. If the index has no event of the value there is no match (None); if the word
        is in the order offered, the event just before is not before the first of them.
        """
        passed: set[int] = set()
        earliest = -1
        for i, role in enumerate(path):
            for equality in role.equalities:
                if equality.step not in passed:
                    value = self._roles.relations.key_value(equality.atom, taken[i][1].event)
                    first = self.first_place(equality, value)
                    if first is None:
                        return None
                    if forward:
                        earliest = max(earliest, first)
            passed.add(role.edge.step)
        return earliest

    def first_place(self, equality: Equality, value: Key | None) -> int | None:
        """Return a lower bound of the places of the events with a value; None if there are none.

        The value is the one that an equality requires of its earlier event.
        """
        index = (False, equality.atom)
        places = [
            column.places[0] if column.rising else 0
            for role, columns in self._by_role.items()
            if role.edge.step == equality.step
            for _, column in columns.having(index, value).sorted
        ]
        return min(places, default=None)

    def entries(self, is_kept: IsKept) -> Iterator[tuple[int, Seen]]:
        """Yield the events that `is_kept` accepts, each with the number of its role's edge."""
        for role, columns in self._by_role.items():
            for seen in columns.seens(is_kept):
                yield role.edge.number, seen

    def validate_state(self) -> None:
        """Assert the rules of this module and of columns."""
        for role, columns in self._by_role.items():
            assert columns.nodes.sorted
            assert columns in self.into[role.edge.target]
            assert columns in self.out[role.edge.source]
            columns.validate_state()
