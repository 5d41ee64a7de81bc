"""Tables: CSV with a header row, and Parquet.

A row is a record, and its columns are the keys. The separator of CSV columns is a comma,
tab, semicolon or bar, whichever is most frequent in the header. Blanks before a cell are ignored
(unless quoted), as are blanks after a name in the header. Columns that are not fields of the
event are attributes. The text of a CSV cell is converted (`ketal.logs.formats.cells`), and an empty
cell is absent. The columns of node, type and id stay text, and so does the time if the time format
writes numbers. A clock is a JSON object, a JSON array with `--nodes`, or `node:3;m:2`; a `data`
column is a JSON object.

In Parquet a clock is a map, a struct, a list with `--nodes`, or text as in CSV;
`data` is a map, a struct or a JSON object as text; null and NaN are absent. The one rule:
rows are streamed in batches, and memory never holds a whole table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

from ketal.errors import EventError
from ketal.logs.formats.cells import value_of_text
from ketal.logs.formats.in_memory import arrow_rows, check_columns, need_pyarrow, record_of_row
from ketal.logs.log_records import rejected_record
from ketal.logs.shape import Shape
from ketal.logs.streams import blocks
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record
from ketal.model.wording import counted

_BATCH_ROWS = 4_096
SEPARATORS = ",\t;|"
"""Possible separators of the columns of a CSV file."""
PARQUET = b"PAR1"
"""The first bytes of a Parquet file."""
_CSV_FAULTS = (
    ("unexpected end of data", "a quote is not closed"),
    ("new-line character", "a carriage return without a line feed; end lines with \\n or \\r\\n"),
)
"""Parts of error messages of the csv module, and clearer wordings for them."""


def read_csv(name: str, chunks: Iterator[bytes], shape: Shape, limits: Limits) -> Iterator[Record]:
    """Yield the records of a CSV file, in order."""
    # Conversion to a number would lose digits that the time format needs, as trailing zeros.
    texts = ("node", "type", "id", "time") if shape.times.numeric else ("node", "type", "id")
    as_text = {shape.paths[field][0] for field in texts}
    header: list[str] | None = None
    for line, last, row in _rows(chunks, limits):
        try:
            if header is None:
                header = _checked_header(row)
                continue
            if isinstance(row, EventError):
                raise row
            yield "", shape.item(_row_record(header, row, as_text)), name, line
        except EventError as fault:
            yield rejected_record(_with_line_range(fault, line, last), name, line)
            if header is None:
                return


def _with_line_range(fault: EventError, first: int, last: int) -> EventError:
    """Return the error of a row, with its range of lines appended if it spans several."""
    if last <= first:
        return fault
    error = EventError(f"{fault.reason} (the row spans lines {first} to {last})")
    error.draft = fault.draft
    return error


def _checked_header(row: list[str] | EventError) -> list[str]:
    if isinstance(row, EventError):
        raise EventError(f"no row can be read without the header: {row.reason}")
    header = [cell.strip() for cell in row]
    check_columns(header, EventError, "the header")
    return header


def _row_record(header: list[str], row: list[str], as_text: set[str]) -> dict[str, Any]:
    if len(row) != len(header):
        raise EventError(
            f"the row has {counted(len(row), 'cell')}, but the header (the first row) has "
            f"{len(header)}"
        )
    record: dict[str, Any] = {}
    for column, cell in zip(header, row, strict=True):
        if cell:
            record[column] = cell if column in as_text else value_of_text(cell)
    return record


def _split_block(block: bytes | EventError) -> list[bytes | EventError]:
    return [block] if isinstance(block, EventError) else [*block.split(b"\n")]


class _CsvLines:
    """An iterator of decoded lines for the csv module; raises an EventError for a bad line."""

    def __init__(self, chunks: Iterator[bytes], limits: Limits) -> None:
        self._max = limits.line_bytes_max
        self._lines: Iterator[tuple[int, bytes | EventError]] = (
            item
            for number, block in blocks(chunks, self._max)
            for item in enumerate(_split_block(block), number)
        )
        self._size = 0
        self.first = self.last = 0
        """The numbers of the first and the last line of the current row."""

    def begin(self) -> None:
        """Start a new row at the next line."""
        self.first = self._size = 0

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        is_continuation = self.first != 0
        self.first = self.first or number
        self.last = number
        if isinstance(line, EventError):
            raise line
        self._size += is_continuation + len(line)  # counts the line end before it
        if self._size > self._max:
            raise EventError(
                f"the row is longer than {self._max} bytes (limit line_bytes_max); check for an "
                "unclosed quote"
            )
        try:
            return line.removesuffix(b"\r").decode() + "\n"
        except UnicodeDecodeError as fault:
            raise EventError(f"line {number} is not valid UTF-8 (byte {fault.start + 1})") from None


def _rows(
    chunks: Iterator[bytes], limits: Limits
) -> Iterator[tuple[int, int, list[str] | EventError]]:
    """Yield (first line, last line, cells or an EventError) of each row."""
    # The csv module has one limit for the whole process, hence it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), limits.line_bytes_max))
    lines = _CsvLines(chunks, limits)
    opening = "\n"
    while opening.isspace():
        lines.begin()
        try:
            opening = next(lines)
        except StopIteration:
            return
        except EventError as fault:
            yield lines.first, lines.last, fault
            return
    delimiter = max(SEPARATORS, key=opening.count)
    reader = csv.reader(
        chain([opening], lines), strict=True, delimiter=delimiter, skipinitialspace=True
    )
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except EventError as fault:
            yield lines.first, lines.last, fault
        except csv.Error as fault:
            why = next(
                (wording for original, wording in _CSV_FAULTS if original in str(fault)), str(fault)
            )
            yield lines.first, lines.last, EventError(f"the row is not valid CSV: {why}")
        else:
            if row:
                yield lines.first, lines.last, row
        lines.begin()


def read_parquet(name: str, file: BinaryIO, shape: Shape) -> Iterator[Record]:
    """Yield the records of a Parquet file, in order; their line is the number of the row."""
    with need_pyarrow(f"{name}: Parquet"):
        import pyarrow
        import pyarrow.parquet

    start = file.tell()
    if file.read(len(PARQUET)) != PARQUET:
        why = f"this is not a Parquet file: it does not begin with {PARQUET.decode()}"
        yield rejected_record(EventError(why), name, 1)
        return
    file.seek(start)
    # Only some versions of pyarrow have type annotations here.
    open_parquet: Any = pyarrow.parquet.ParquetFile

    def batches() -> Iterator[Any]:
        table = open_parquet(file)
        check_columns(table.schema_arrow.names, EventError)
        yield from table.iter_batches(batch_size=_BATCH_ROWS)

    try:
        for number, row in enumerate(arrow_rows(batches(), "Parquet"), 1):
            yield record_of_row(row, name, number, shape, typed=True)
    except EventError as fault:
        yield rejected_record(fault, name, 1)
