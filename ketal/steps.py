"""The steps of a check over columns, of all its scopes at once (DESIGN 6, 7).

A scope of a check with one plain key, whose guards ask nothing of registers, is a state, and a
table says where a mask leads from it. So the rows are put in the order of their scopes, and all
scopes take their next row at once: as many rounds as the longest scope has rows. Scopes do not see
each other, so the order between them says nothing, but for who is first: new scopes come up in the
order of their first rows. What a table does not say, a violation or a step that reads a register,
is offered to the scope as an event.

The one rule: after all rows each scope is where `PatternRun.offer` of the rows, one by one, would
have led it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from ketal.columns import Columns
from ketal.runs import CheckRun, Configuration
from ketal.scopes import PLAIN_KINDS, PatternRun, Scope
from ketal.verdicts import RunVerdict

TABLE_MAX = 65_536
"""Entries of a table; beyond it events are offered one by one."""
CLOSELY = -1
"""Instead of a state: the event itself has to be offered."""

Said = list[tuple[int, list[RunVerdict]]]


class Steps:
    """Offers columns to the run of a check of which `ketal.columns.reads` says enough.

    Parameters
    ----------
    run : PatternRun
        The run.
    """

    def __init__(self, run: PatternRun) -> None:
        self._run = run

    def offer(self, columns: Columns) -> Said:
        """Offer events that were admitted, none of them after a gap.

        Parameters
        ----------
        columns : Columns
            The events.

        Returns
        -------
        list of (int, list of RunVerdict)
            Of each that brought something about, its row, and what.
        """
        import numpy

        if not columns.rows:
            return []
        run = self._run
        member = numpy.array([run.in_alphabet(mask) for mask in columns.masks.values])
        rows = member[columns.masks.codes].nonzero()[0]
        keys = columns.keys.codes[rows]
        if not len(rows):
            return []
        if keys.min() < 0:
            return self._one_by_one(columns, rows)
        lanes = _Lanes(run, columns, rows, keys)
        if not lanes.fit:
            return self._one_by_one(columns, rows)
        try:
            lanes.run_through()
        finally:
            lanes.settle()
        return sorted(lanes.said, key=itemgetter(0))

    def _one_by_one(self, columns: Columns, rows: Any) -> Said:
        offered = ((row, self._run.offer(columns.event(row))) for row in rows.tolist())
        return [(row, said) for row, said in offered if said]


class _Lanes:
    """The scopes of some rows, each a lane: where it is, and its rows in turn.

    Lanes are in the order of how many rows they take together, the longest first, so that those
    which have a next row are the first ones.
    """

    def __init__(self, run: PatternRun, columns: Columns, rows: Any, keys: Any) -> None:
        import numpy

        self._run, self._columns = run, columns
        self.said: Said = []
        counts = numpy.bincount(keys, minlength=len(columns.keys.values))
        self._rows = rows[numpy.argsort(keys.astype(numpy.uint32), kind="stable")]
        begins = numpy.cumsum(counts) - counts
        names = [((PLAIN_KINDS[value.__class__], value),) for value in columns.keys.values]
        present = counts.nonzero()[0]
        isnew = numpy.array([names[key] not in run.scopes for key in present.tolist()])
        # The first row of a new scope is offered by itself.
        order = present[numpy.argsort(isnew - counts[present], kind="stable")]
        self._begins, self._counts = begins[order], counts[order]
        self._names = [names[key] for key in order.tolist()]
        self._scopes: list[Scope | None] = list(map(run.scopes.get, self._names))
        self.fit = len(run.scopes) + int(isnew.sum()) <= run.limits.scopes_max
        # The states that occur, by number, and where each mask leads from them.
        self._numbers: dict[int, int] = {}
        self._configurations: list[tuple[Configuration, ...]] = []
        self._table: Any = None
        self._at = numpy.full(len(order), CLOSELY, dtype=numpy.int64)
        self._places = numpy.zeros(len(order), dtype=numpy.int64)
        if self.fit:
            self._begin()

    def _begin(self) -> None:
        """Take up where the scopes are; new ones begin with their first rows."""
        scopes, columns = self._scopes, self._columns
        new = [lane for lane, scope in enumerate(scopes) if scope is None]
        firsts = self._rows[self._begins]
        for lane in sorted(new, key=firsts.__getitem__):
            row = int(firsts[lane])
            if said := self._run.offer(columns.event(row)):
                self.said.append((row, said))
            scopes[lane] = self._run.scopes[self._names[lane]]
        if new:
            self._begins[new] += 1
            self._counts[new] -= 1
        for lane, scope in enumerate(scopes):
            assert scope is not None
            self._take_up(lane, scope)
        self._learn()

    def _take_up(self, lane: int, scope: Scope) -> None:
        """Take up where a scope is."""
        assert isinstance(scope.run, CheckRun)
        found = scope.run.configurations
        self._places[lane] = scope.places
        self._at[lane] = self._number(found) if len(found) == 1 else CLOSELY

    def _number(self, configurations: tuple[Configuration, ...]) -> int:
        state = configurations[0].state
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._numbers)
            self._configurations.append(configurations)
        return number

    def _learn(self) -> None:
        """Make the table of all states that those which occur lead to."""
        import numpy

        masks = self._columns.masks.values
        table: list[list[int]] = []
        while len(table) < len(self._configurations):
            if (len(table) + 2) * len(masks) > TABLE_MAX:
                break
            state = self._configurations[len(table)][0].state
            ways = [self._run.quick(state, mask) for mask in masks]
            table.append([CLOSELY if way is None else self._number(way) for way in ways])
        # States beyond the table, and what is in no one state, are looked at closely: the last row.
        self._table = numpy.array([*table, [CLOSELY] * len(masks)], dtype=numpy.int64)
        self._table[self._table >= len(table)] = CLOSELY
        self._at[self._at >= len(table)] = CLOSELY

    def run_through(self) -> None:
        """Have all lanes take their rows."""
        codes, lanes = self._columns.masks.codes[self._rows], len(self._at)
        longest = int(self._counts.max()) if lanes else 0
        for number in range(longest):
            while lanes and self._counts[lanes - 1] <= number:
                lanes -= 1
            places = self._begins[:lanes] + number
            to = self._table[self._at[:lanes], codes[places]]
            closely = (to < 0).nonzero()[0]
            if not len(closely):
                self._at[:lanes] = to
                self._places[:lanes] += 1
                continue
            fine = to >= 0
            self._at[:lanes][fine] = to[fine]
            self._places[:lanes] += fine
            for lane in closely.tolist():
                self._offer_closely(lane, int(self._rows[places[lane]]))

    def _offer_closely(self, lane: int, row: int) -> None:
        """Offer an event of which the table does not say where it leads."""
        scope, columns = self._settle(lane), self._columns
        mask = columns.masks.values[columns.masks.codes[row]]
        if said := self._run.offer_in(scope, columns.event(row), mask):
            self.said.append((row, said))
        self._take_up(lane, scope)
        if self._at[lane] >= len(self._table) - 1:
            self._learn()

    def settle(self) -> None:
        """Tell the scopes where they are."""
        for lane, scope in enumerate(self._scopes):
            if scope is not None:
                self._settle(lane)

    def _settle(self, lane: int) -> Scope:
        scope, places = self._scopes[lane], int(self._places[lane])
        assert scope is not None
        if places > scope.places:
            self._run.goes(scope, self._configurations[self._at[lane]], places)
        return scope
