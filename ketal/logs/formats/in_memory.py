"""Rows in memory: mappings, and the tables of pandas, polars and Arrow.

A table is recognised by the module of its class, or by Arrow's stream protocol
(`__arrow_c_stream__`), without importing a library that the caller has not imported.
Rows are converted in slices, so that memory never holds a second copy of the table. A row with a
value that Python cannot represent is rejected in its place.

The one rule: the number of a row is its position among all rows of the log, from 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, Protocol

from ketal.errors import EventError, KetalError, SettingError, wrong_type
from ketal.logs.formats.cells import item_of_row
from ketal.logs.log_records import rejected_record
from ketal.logs.shape import Shape
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.log_arguments import Record
from ketal.model.verdicts.execution_verdicts import Rejected

_SLICE_ROWS = 4_096
_EXACT_MAX = 2**53
"""Floats represent all integers below this bound exactly."""
_NOT_ROWS = (str, bytes, bytearray, memoryview, Mapping)
"""Types of iterables that are not iterables of rows."""


class ArrowTable(Protocol):
    """A table with Arrow's stream protocol, as those of pyarrow, polars and DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream as a capsule."""


Rows = Iterable[Mapping[str, object]] | ArrowTable
"""The type of rows in memory; a DataFrame counts as an iterable of mappings."""


class RowOrigin:
    """An origin of a log's rows: mappings, or a table of pandas, polars or Arrow.

    Two columns of a table with the same name are an error. An iterator can be read only once.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._was_read = False
        self._is_iterator = hasattr(rows, "__next__")
        self.is_stored = isinstance(rows, Sized)
        """Whether all rows are available already: the rows have a length."""
        self._library = _table_library(rows)
        if self._library == "pandas":
            self._rows = _with_index(rows)
        elif self._library == "arrow":
            with need_pyarrow("an Arrow table"):
                import pyarrow  # noqa: F401

    @classmethod
    def takes(cls, where: object) -> bool:
        """Return whether an argument of `read_log` is rows rather than a path or a file."""
        if _table_library(where):
            # Before the test for `read`: a DataFrame's columns are attributes of it.
            return True
        if hasattr(where, "read") or isinstance(where, _NOT_ROWS):
            return False
        if isinstance(where, list | tuple | set):
            first = next(iter(where), None)
            attributes = ("read", "__fspath__", "__arrow_c_stream__")
            return not isinstance(first, str) and not any(
                hasattr(first, name) for name in attributes
            )
        return isinstance(where, Iterable)

    def records(self, shape: Shape, numbers: Iterator[int]) -> Iterator[Record]:
        """Yield the records of the rows, in order; `numbers` yields their row numbers."""
        if self._was_read and self._is_iterator:
            raise SettingError(
                "the rows of an iterator can be read only once; pass a list of them to read them "
                "again"
            )
        self._was_read = True
        typed = self._library in ("arrow", "polars")
        for row in self._iterate():
            if isinstance(row, Event | Control | Rejected):
                raise wrong_type("a row", "a dict (use ketal.Log.of for events)", row)
            yield record_of_row(row, "", next(numbers), shape, typed=typed)

    def _iterate(self) -> Iterator[Any]:
        rows = self._rows
        if self._library == "arrow":
            return arrow_rows(_arrow_batches(rows), "Arrow")
        if self._library == "polars":
            return _rows_in_slices(len(rows), lambda at, size: rows.slice(at, size).to_dicts())
        return _pandas_rows(rows) if self._library == "pandas" else iter(rows)


def record_of_row(row: Any, name: str, number: int, shape: Shape, *, typed: bool) -> Record:
    """Return the record of a row, or of the EventError in place of a row; see `item_of_row`."""
    try:
        if isinstance(row, EventError):
            raise row
        return "", item_of_row(row, shape, typed=typed), name, number
    except EventError as fault:
        return rejected_record(fault, name, number)


def arrow_rows(batches: Iterable[Any], what: str) -> Iterator[dict[str, Any] | EventError]:
    """Yield the rows of Arrow batches; damage is yielded as an EventError, as the last item.

    `what` is the kind of the data, for the error message.
    """
    import pyarrow

    try:
        for batch in batches:
            yield from _batch_rows(batch)
    except (pyarrow.ArrowException, OSError, ValueError) as fault:
        why = str(fault).partition("\n")[0]
        yield EventError(f"the {what} data is damaged from here on: {why}")


def _batch_rows(batch: Any) -> Iterator[Any]:
    return _rows_in_slices(len(batch), lambda at, size: batch.slice(at, size).to_pylist())


def _rows_in_slices(size: int, read: Callable[[int, int], list[Any]]) -> Iterator[Any]:
    """Yield the `size` rows of a table, which `read(start, size)` converts in slices.

    A row that cannot be converted is yielded as an EventError.
    """
    for start in range(0, size, _SLICE_ROWS):
        yield from _slice_rows(start, min(_SLICE_ROWS, size - start), read)


def _slice_rows(start: int, size: int, read: Callable[[int, int], list[Any]]) -> Iterator[Any]:
    try:
        rows = read(start, size)
    except (ValueError, TypeError, ArithmeticError, NotImplementedError) as fault:
        if size == 1:
            yield EventError(f"a value cannot be read: {fault}")
            return
        half = size // 2
        yield from _slice_rows(start, half, read)
        yield from _slice_rows(start + half, size - half, read)
    else:
        yield from rows


def _arrow_batches(table: Any) -> Iterator[Any]:
    """Yield the record batches of an Arrow table."""
    import pyarrow

    try:
        stream = pyarrow.RecordBatchReader.from_stream(table)
    except pyarrow.ArrowInvalid:
        raise wrong_type("Arrow data", "a table", table) from None
    check_columns(stream.schema.names)
    yield from stream


@contextmanager
def need_pyarrow(what: str) -> Iterator[None]:
    """Turn an ImportError in a `with` block into a SettingError: `what` requires pyarrow."""
    try:
        yield
    except ImportError:
        raise SettingError(
            f"{what} requires pyarrow, which is not installed: pip install 'ketal[parquet]'"
        ) from None


def _table_library(rows: object) -> str:
    """Return the library of a table: `pandas`, `polars` or `arrow`; empty if it is not a table."""
    for cls in type(rows).__mro__:
        library = cls.__module__.partition(".")[0]
        if cls.__name__ == "DataFrame" and library in ("pandas", "polars"):
            return library
    return "arrow" if hasattr(rows, "__arrow_c_stream__") else ""


def check_columns(
    names: Iterable[str], error: type[KetalError] = SettingError, what: str = "the table"
) -> None:
    """Raise an error if two columns of a table have the same name, or none."""
    for name, count in Counter(names).items():
        if count > 1:
            named = f"named {name!r}" if name else "without a name"
            raise error(f"{what} has two columns {named}, so no row can be read")


def _with_index(frame: Any) -> Any:
    """Return a DataFrame with the named levels of its index as columns."""
    levels = [name for name in frame.index.names if name is not None and name not in frame]
    check_columns(str(name) for name in (*levels, *frame.columns))
    return frame.reset_index(level=levels) if levels else frame


def _pandas_rows(frame: Any) -> Iterator[Any]:
    names = list(frame.columns)
    are_integers = [_has_optional_integers(frame[name]) for name in names]

    def read(start: int, size: int) -> list[Any]:
        part = frame.iloc[start : start + size]
        columns = [
            (part[name].astype("Int64") if is_integer else part[name]).tolist()
            for name, is_integer in zip(names, are_integers, strict=True)
        ]
        return [
            {name: column[at] for name, column in zip(names, columns, strict=True)}
            for at in range(size)
        ]

    return _rows_in_slices(len(frame), read)


def _has_optional_integers(column: Any) -> bool:
    """Return whether a column of floats holds integers, which are floats as some are absent."""
    if column.dtype.kind != "f" or not column.isna().any():
        return False
    present = column.dropna()
    return bool(((present % 1 == 0) & (present.abs() < _EXACT_MAX)).all())
