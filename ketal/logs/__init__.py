"""Readers and writers of event logs.

`read_log` gives a re-iterable `Log` of JSON lines, ShiViz logs, CSV, Parquet and rows in
memory; `write_jsonl` writes the first of these. A `Source` describes how a log is read,
`load_config` reads one from a TOML file. The one rule: malformed input is an item
(`Rejected`, with its place), a wrong option an error (`SettingError`), and nothing is
lost between them.
"""

from ketal.logs.formats.jsonl import decoded, write_jsonl
from ketal.logs.log_records import place
from ketal.logs.reading import Log, open_source, read_log, watched
from ketal.logs.regexes import compile_regex
from ketal.logs.shape import Item, Shape
from ketal.logs.source import (
    FIELDS,
    FORMATS,
    Config,
    Source,
    load_config,
    parse_fields,
    parse_nodes,
)
from ketal.model.log_arguments import Record, RecordBatch

__all__ = [
    "FIELDS",
    "FORMATS",
    "Config",
    "Item",
    "Log",
    "Record",
    "RecordBatch",
    "Shape",
    "Source",
    "compile_regex",
    "decoded",
    "load_config",
    "open_source",
    "parse_fields",
    "parse_nodes",
    "place",
    "read_log",
    "watched",
    "write_jsonl",
]
