"""Readers and writers of event logs.

`read_log` returns a re-iterable `Log` of JSON lines, ShiViz logs, CSV, Parquet or rows in
memory; `write_jsonl` writes JSON lines. A `Source` describes how a log is read, and
`load_config` reads a `Source` from a TOML file. The one rule: malformed input is an item of the
log (`Rejected`, with its place), a wrong option is an error (`SettingError`), and no record is
dropped silently.
"""

from ketal.logs.formats.jsonl import write_jsonl
from ketal.logs.log_records import place
from ketal.logs.reading import Log, open_source, read_log, watched
from ketal.logs.source import Source, load_config, parse_fields, parse_nodes
from ketal.model.log_arguments import Record, RecordBatch

__all__ = [
    "Log",
    "Record",
    "RecordBatch",
    "Source",
    "load_config",
    "open_source",
    "parse_fields",
    "parse_nodes",
    "place",
    "read_log",
    "watched",
    "write_jsonl",
]
