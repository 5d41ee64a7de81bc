"""Rows of a key group as columns, which is how Spark hands them over.

Most rows are judged without ever being a row (`ketal.columns`); of the others some are looked at.

The one rule: a column is Spark's arrays until somebody asks for its values.
"""

from __future__ import annotations

import copy
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from ketal.columns import Coded, coded

Row = tuple[Any, ...]


class Picked(Sequence[Any]):
    """Some values of arrays that follow one another, looked up when they are asked for.

    Parameters
    ----------
    parts : sequence of array
        The arrays.
    begins : sequence of int
        Which number the first value of each has.
    order : array of int
        The numbers of the values, in turn.
    """

    def __init__(self, parts: Sequence[Any], begins: Sequence[int], order: Any) -> None:
        self._parts, self._begins, self._order = parts, begins, order

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Picked: ...
    def __getitem__(self, at: int | slice) -> Any:
        """Return a value, or some of them."""
        if isinstance(at, slice):
            return Picked(self._parts, self._begins, self._order[at])
        number = int(self._order[at])
        part = bisect_right(self._begins, number) - 1
        return self._parts[part][number - self._begins[part]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def values(self) -> list[Any]:
        """Return all of them."""
        import numpy

        found = numpy.empty(len(self._order), dtype=object)
        for part, begin in zip(self._parts, self._begins, strict=True):
            here = (self._order >= begin) & (self._order < begin + len(part))
            found[here] = part[self._order[here] - begin]
        return found.tolist()


class Table:
    """The columns of some rows, in the order in which the rows are taken.

    Parameters
    ----------
    parts : sequence of mapping of str to array
        Arrays of numpy, in each part all of one length; all parts have the same columns.
    """

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        counts = [len(next(iter(part.values()))) for part in parts]
        *begins, self.count = itertools.accumulate(counts, initial=0)
        self._parts = parts
        self._begins = begins
        self._whole: dict[str, Any] = {}  # columns that were put together
        self._order: Any = slice(0, self.count)

    def ordered(self, order: Any) -> Table:
        """Return the rows of some numbers, in that order.

        A column is put in that order when it is asked for, which most are not.
        """
        return self._of(self._numbers[order], len(order))

    def _of(self, order: Any, count: int) -> Table:
        table = copy.copy(self)
        table._order, table.count = order, count
        return table

    @property
    def _numbers(self) -> Any:
        """Which rows of the parts these are."""
        import numpy

        order = self._order
        return numpy.arange(order.start, order.stop) if isinstance(order, slice) else order

    def _all(self, name: str) -> Any:
        """Return a column of all parts."""
        import numpy

        whole = self._whole.get(name)
        if whole is None:
            arrays = [part[name] for part in self._parts]
            whole = arrays[0] if len(arrays) == 1 else numpy.concatenate(arrays)
            self._whole[name] = whole
        return whole

    def array(self, name: str) -> Any:
        """Return a column."""
        return self._all(name)[self._order]

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return self.array(name).tolist()  # type: ignore[no-any-return]

    def picked(self, name: str) -> Picked:
        """Return a column of objects, of which few are asked for."""
        return Picked([part[name] for part in self._parts], self._begins, self._numbers)

    def coded(self, name: str) -> Coded:
        """Return a column with its values numbered; nulls have none."""
        import pandas

        kinds = {part[name].dtype.kind for part in self._parts}
        if kinds == {"O"}:
            return self._coded_objects(name)
        if "O" in kinds:
            return coded(self.column(name))
        codes, values = pandas.factorize(self.array(name))
        return Coded(codes, values.tolist())

    def _coded_objects(self, name: str) -> Coded:
        """Return a column of objects with its values numbered.

        Arrow makes one object of the texts in a batch that are equal, so where they are in memory
        tells nearly all of them apart; `pandas.factorize` would end a text at a zero.
        """
        import numpy
        import pandas

        columns = [part[name] for part in self._parts]
        where = numpy.concatenate(list(map(_addresses, columns)))[self._order]
        codes, addresses = pandas.factorize(where)
        rows = numpy.empty(len(addresses), dtype=numpy.int64)
        rows[codes] = numpy.arange(len(codes))  # of each address one row that has it
        found = coded(Picked(columns, self._begins, self._numbers[rows]).values())
        return Coded(found.codes[codes], found.values)

    def values(self, name: str) -> set[Any]:
        """Return the different values of a column of numbers."""
        import numpy

        return set(numpy.unique(self.array(name)).tolist())

    def whole_numbers(self, name: str) -> bool:
        """Return whether numbers of a column, if it has any, are as they came.

        Of integers with nulls between them pandas makes floats.
        """
        return all(part[name].dtype.kind != "f" for part in self._parts)

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Yield rows from one on, up to another."""
        some = self.part(first, self.count if last is None else last)
        return zip(*map(some.column, self._parts[0]), strict=True)

    def part(self, first: int, last: int) -> Table:
        """Return the rows from one on, up to another."""
        order = self._order
        if isinstance(order, slice):
            some: Any = slice(order.start + first, order.start + last)
        else:
            some = order[first:last]
        return self._of(some, last - first)

    def where(self, chosen: Any) -> Table:
        """Return the rows that an array of booleans chooses."""
        return self.ordered(chosen.nonzero()[0])


class _Addresses:
    """The objects of a column as where they are in memory, for `numpy.asarray`."""

    def __init__(self, column: Any) -> None:
        import numpy

        self.column = column  # as long as this is there, they are
        kind = numpy.dtype(numpy.intp).str
        same = {**column.__array_interface__, "typestr": kind, "descr": [("", kind)]}
        self.__array_interface__ = same


def _addresses(column: Any) -> Any:
    """Return where in memory the objects of a column are."""
    import numpy

    return numpy.asarray(_Addresses(column))
