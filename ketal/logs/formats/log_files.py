"""The records of one log file, in whatever format it is: detects the format, and reads it.

The one rule: each format of `ketal.logs.source.FORMATS` is read here, except those of traces, whose
files are read together (`ketal.logs.traces.formats`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ketal.errors import SettingError
from ketal.logs.decompression import read_head
from ketal.logs.formats import jsonl, shiviz, tabular
from ketal.logs.shape import Shape
from ketal.logs.source import TRACES, Source
from ketal.logs.streams import BYTE_ORDER_MARK, LogOrigin
from ketal.logs.traces.documents import trace_format
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record, RecordBatch, batched

_FIRST_LINE_BYTES = 65_536
_JSON = re.compile(rb'\{|\[[\s\[]*["{\]]')
"""The beginning of JSON lines; a line of text may begin with a time or a level in brackets."""
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".shiviz": "shiviz",
}
"""The formats of names; JSON lines are also tested for traces."""


def file_batches(
    origin: LogOrigin, source: Source, shape: Shape, limits: Limits, piece_numbers: Iterator[int]
) -> Iterator[RecordBatch]:
    """Yield the records of a file; `piece_numbers` is as in `shiviz.read_text`."""
    with origin.opened() as file:
        chunks = origin.chunks(file)
        format_name = source.format or ("shiviz" if source.regex else None)
        if format_name is None:
            format_name, chunks = _detected_format(origin.name, chunks)
            if format_name in TRACES and not source.fields:
                raise SettingError(
                    f"{origin.name} contains spans of a trace, not events; "
                    f"use --format {format_name} to convert them to events"
                )
        if source.delimiter and format_name != "shiviz":
            raise SettingError(
                f"{origin.name}: delimiter applies only to ShiViz logs, but the format is "
                f"{format_name}"
            )
        records: Iterator[Record]
        if format_name == "parquet":
            origin.rewind(file, "Parquet")
            records = tabular.read_parquet(origin.name, file, shape)
        elif format_name == "csv":
            records = tabular.read_csv(origin.name, chunks, shape, limits)
        elif format_name == "shiviz":
            records = shiviz.read_text(
                origin.name, chunks, source, limits, piece_numbers, shape.mapped
            )
        else:
            yield from jsonl.read_lines(origin.name, chunks, shape, limits)
            return
        yield from batched(records, together=origin.is_stored)


def _detected_format(name: str, chunks: Iterator[bytes]) -> tuple[str, Iterator[bytes]]:
    """Return the format of a log, from its name or else its first lines, and all of its bytes.

    JSON is tested for traces, whatever the name.
    """
    stem, suffix = os.path.splitext(name.lower())
    if suffix in (".gz", ".zst"):
        suffix = os.path.splitext(stem)[1]
    format_of_name = _SUFFIXES.get(suffix)
    if format_of_name not in (None, "jsonl"):
        return format_of_name, chunks
    # JSON may be indented: lines of brackets alone do not identify a format.
    head, chunks = read_head(
        chunks,
        lambda seen: (
            b"\n" in seen.lstrip(BYTE_ORDER_MARK + b" \t\r\n[{") or len(seen) >= _FIRST_LINE_BYTES
        ),
    )
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    return trace_format(text) or format_of_name or _format_from_head(text), chunks


def _format_from_head(text: bytes) -> str:
    if text.startswith(tabular.PARQUET):
        return "parquet"
    line = text.partition(b"\n")[0]
    if not line or _JSON.match(text):
        return "jsonl"
    separator = max(tabular.SEPARATORS, key=lambda s: line.count(s.encode())).encode()
    columns = {c.strip(b' "\r') for c in line.split(separator)}
    if {b"node", b"clock"} <= columns and b"(?" not in line:
        return "csv"
    return "shiviz"
