"""Rows of a key group as columns, which is how Spark hands them over.

Most rows are judged without ever being a row (`ketal.columns`); of the others some are looked at.

The one rule: a column is Spark's array until somebody asks for its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ketal.columns import Coded, coded

Row = tuple[Any, ...]


class Table:
    """The columns of some rows, in the order in which the rows are taken.

    Parameters
    ----------
    columns : mapping of str to array
        Arrays of numpy, all of one length.
    order : array of int, optional
        Which rows of them these are, in turn; all of them, if it is not given. A column is put in
        that order when it is asked for, which most are not.
    """

    def __init__(self, columns: Mapping[str, Any], order: Any = None) -> None:
        self._columns = columns
        self._order = order
        self.count = len(next(iter(columns.values())) if order is None else order)

    def array(self, name: str) -> Any:
        """Return a column."""
        column = self._columns[name]
        return column if self._order is None else column[self._order]

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return self.array(name).tolist()  # type: ignore[no-any-return]

    def coded(self, name: str) -> Coded:
        """Return a column with its values numbered; nulls have none."""
        column = self.array(name)
        if column.dtype.kind == "O":
            return coded(column.tolist())  # To pandas a text ends at a zero.
        import pandas

        codes, values = pandas.factorize(column)
        return Coded(codes, values.tolist())

    def values(self, name: str) -> set[Any]:
        """Return the different values of a column of numbers."""
        import numpy

        return set(numpy.unique(self.array(name)).tolist())

    def whole_numbers(self, name: str) -> bool:
        """Return whether numbers of a column, if it has any, are as they came.

        Of integers with nulls between them pandas makes floats.
        """
        return bool(self._columns[name].dtype.kind != "f")

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Yield rows from one on, up to another."""
        some = self.part(first, self.count if last is None else last)
        return zip(*map(some.column, some._columns), strict=True)

    def part(self, first: int, last: int) -> Table:
        """Return the rows from one on, up to another."""
        some = slice(first, last)
        if self._order is not None:
            return Table(self._columns, self._order[some])
        return Table({name: column[some] for name, column in self._columns.items()})

    def where(self, chosen: Any) -> Table:
        """Return the rows that an array of booleans chooses."""
        order = chosen.nonzero()[0]
        return Table(self._columns, order if self._order is None else self._order[order])
