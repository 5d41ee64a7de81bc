"""The steps of a check over columns, of all its scopes at once (DESIGN 6, 7).

A scope of a check with one plain key, whose guards ask nothing of registers, is a state, and a
table says where a mask leads from it, or that it is refused. So the rows are put in the order of
their scopes, and all scopes take their next row at once: as many rounds as the longest scope has
rows. Scopes do not see each other, so the order between them says nothing, but for who is first:
new scopes come up in the order of their first rows. What a table does not say is offered to the
scope as an event: a step that reads a register, a violation that depends on one, or that halts.

The one rule: after all rows each scope is where `PatternRun.offer` of the rows, one by one, would
have led it.
"""

from __future__ import annotations

import itertools
from functools import partial
from operator import itemgetter
from typing import Any

from ketal.columns import Columns, in_order
from ketal.runs import CheckRun, Configuration, Refusal
from ketal.scopes import PLAIN_KINDS, PatternRun, Scope
from ketal.verdicts import RunVerdict

TABLE_MAX = 65_536
"""Entries of a table; events of states beyond it are offered one by one."""
LANES_MIN = 16
"""Fewer scopes that have rows left take them one after another."""
CLOSELY, UNKNOWN, REFUSED = -1, -2, -3
"""Instead of a state: the event itself has to be offered; nobody has asked yet; the event is a
violation, of which the mask says all: from here on down, each number stands for a refusal."""

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
        self._rows = rows[in_order(keys, len(counts))]
        begins = numpy.cumsum(counts) - counts
        present = counts.nonzero()[0]
        values = columns.keys.values
        names = [((PLAIN_KINDS[values[key].__class__], values[key]),) for key in present.tolist()]
        isnew = numpy.array([name not in run.scopes for name in names])
        # The first row of a new scope is offered by itself.
        order = numpy.argsort(isnew - counts[present], kind="stable")
        self._names = [names[place] for place in order.tolist()]
        order = present[order]
        self._begins, self._counts = begins[order], counts[order]
        self._scopes: list[Scope | None] = list(map(run.scopes.get, self._names))
        self.fit = len(run.scopes) + int(isnew.sum()) <= run.limits.scopes_max
        # The states that occur, by number, each with a configuration: one that a scope without
        # registers is in, as all are that go where the table says. And where each mask leads.
        self._numbers: dict[int, int] = {}
        self._configurations: list[tuple[Configuration, ...]] = []
        self._states_max = TABLE_MAX // len(columns.masks.values)
        self._refusals: list[tuple[Refusal, int]] = []  # and the numbers of the states after them
        self._refused: list[tuple[int, int, Refusal]] = []  # row, lane, what
        self._table = numpy.full((1, len(columns.masks.values)), CLOSELY, dtype=numpy.int64)
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

    def _take_up(self, lane: int, scope: Scope) -> None:
        """Take up where a scope is."""
        assert isinstance(scope.run, CheckRun)
        found = scope.run.configurations
        self._places[lane] = scope.places
        self._at[lane] = self._number(found) if len(found) == 1 else CLOSELY

    def _number(self, configurations: tuple[Configuration, ...]) -> int:
        """Return the number of a state; the last row of the table is of what has none."""
        import numpy

        state = configurations[0].state
        number = self._numbers.get(state)
        if number is None:
            number = len(self._configurations)
            if number >= self._states_max:
                return CLOSELY
            self._numbers[state] = number
            self._configurations.append(configurations)
            if number + 1 >= len(self._table):
                grown = numpy.full((2 * number + 8, self._table.shape[1]), UNKNOWN)
                grown[:number] = self._table[:number]
                grown[-1] = CLOSELY
                self._table = grown
        return number

    def _lead(self, states: Any, masks: Any) -> Any:
        """Return where masks lead from states, all by their numbers."""
        to = self._table[states, masks]
        if (to == UNKNOWN).any():
            for state, mask in set(zip(states.tolist(), masks.tolist(), strict=True)):
                if self._table[state, mask] == UNKNOWN:
                    self._learn(state, mask)
            to = self._table[states, masks]
        return to

    def _learn(self, state: int, mask: int) -> int:
        at = self._configurations[state][0].state
        way = self._run.quick(at, self._columns.masks.values[mask])
        number = self._learn_refusal(at, mask) if way is None else self._number(way)
        self._table[state, mask] = number
        return number

    def _learn_refusal(self, at: int, mask: int) -> int:
        refusal = self._run.machine.refuses(at, self._columns.masks.values[mask])
        number = CLOSELY if refusal is None else self._number(refusal.after)
        if number == CLOSELY:
            return CLOSELY
        assert refusal is not None
        self._refusals.append((refusal, number))
        return REFUSED - len(self._refusals) + 1

    def run_through(self) -> None:
        """Have all lanes take their rows."""
        codes, lanes = self._columns.masks.codes[self._rows], len(self._at)
        for number in itertools.count():
            while lanes and self._counts[lanes - 1] <= number:
                lanes -= 1
            if lanes < LANES_MIN:
                break
            places = self._begins[:lanes] + number
            to = self._lead(self._at[:lanes], codes[places])
            for lane in (to <= REFUSED).nonzero()[0].tolist():
                refusal, to[lane] = self._refusals[REFUSED - to[lane]]
                self._refused.append((int(self._rows[places[lane]]), lane, refusal))
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
        for lane in range(lanes):
            self._run_alone(lane, codes, number)

    def _run_alone(self, lane: int, codes: Any, number: int) -> None:
        """Have a lane take its rows from a number on."""
        begin = int(self._begins[lane])
        some = slice(begin + number, begin + int(self._counts[lane]))
        ways: dict[tuple[int, int], int] = {}
        at, taken = int(self._at[lane]), 0
        for place, mask in enumerate(codes[some].tolist(), some.start):
            to = ways.get((at, mask))
            if to is None:
                to = int(self._table[at, mask])
                if to == UNKNOWN:
                    to = self._learn(at, mask)
                ways[at, mask] = to
            if to <= REFUSED:
                refusal, to = self._refusals[REFUSED - to]
                self._refused.append((int(self._rows[place]), lane, refusal))
            if to >= 0:
                at = to
                taken += 1
                continue
            self._at[lane] = at
            self._places[lane] += taken
            self._offer_closely(lane, int(self._rows[place]))
            at, taken = int(self._at[lane]), 0
        self._at[lane] = at
        self._places[lane] += taken

    def _offer_closely(self, lane: int, row: int) -> None:
        """Offer an event of which the table does not say where it leads."""
        scope, columns = self._settle(lane), self._columns
        mask = columns.masks.values[columns.masks.codes[row]]
        if said := self._run.offer_in(scope, mask, partial(columns.event, row)):
            self.said.append((row, said))
        self._take_up(lane, scope)

    def settle(self) -> None:
        """Tell the scopes where they are, and of the events that are not allowed."""
        rows = [row for row, _, _ in self._refused]
        told = self._columns.told(rows) if self._run.listing else itertools.repeat(None)
        for (row, lane, refusal), about in zip(self._refused, told, strict=False):
            scope = self._scopes[lane]
            assert scope is not None
            self._run.note_violation(scope.lost)
            if about is not None:
                self.said.append((row, [self._run.violation(scope, refusal, about, scope.lost)]))
        for lane, scope in enumerate(self._scopes):
            if scope is not None:
                self._settle(lane)

    def _settle(self, lane: int) -> Scope:
        scope, places = self._scopes[lane], int(self._places[lane])
        assert scope is not None
        if places > scope.places:
            self._run.goes(scope, self._configurations[self._at[lane]], places)
        return scope
