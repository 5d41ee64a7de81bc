"""The terms in which a record is rejected: its nouns, and the hints that its reader can follow.

A record is a line of a file, a Kafka message, or a row of Spark with the columns of an event. Why
it is no event is found in one way; what it is called, and the option that would help, differ.

The one rule: a reason is written once, in the terms of its record, and never reworded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RecordTerms:
    """The terms of one kind of records."""

    text: str  # the noun for the text of a record
    record: str  # the noun for the record that the text is decoded to
    hints: Mapping[str, str]
    """Fault → the end of its reason, which names an option; a fault without a hint is absent."""
    nodes_option: str = ""  # the option that names the nodes of positional clocks
    is_message: bool = False
    """Whether fields can be in the key, the headers and the timestamp of a Kafka message."""
    has_keys: bool = True
    """Whether each record has keys of its own; the columns of rows are those of all rows."""

    def hint(self, fault: str) -> str:
        """Return the end of the reason for a fault; empty if there is none."""
        return self.hints.get(fault, "")


LINE = RecordTerms(
    text="line",
    record="record",
    hints={
        "node": " (pass --field node=PATH to name its field)",
        "type": " (pass --field type=PATH to name its field)",
        "clock": (
            " (pass --field clock=PATH to name its field, --rebuild KEYS to compute clocks from "
            "messages, or --clock none if the log has no clocks)"
        ),
        "nodes": "; name the nodes of its entries with --nodes A,B,C",
        "scheme": " (pass --clock SCHEME if it is not a vector clock)",
        "time": " (pass --time-format FORMAT to set the format of times)",
        "time unit": " (pass --time-unit UNIT to set the unit of numeric times)",
        "format": " (pass --format if the log has another format)",
        "array": " (convert an array to JSON lines with `jq -c '.[]' FILE`)",
        "object": (
            " (convert objects that span several lines with `jq -c . FILE`; else the line is "
            "truncated)"
        ),
        "trailing": " (a line holds one object and nothing else; `jq -c . FILE` writes such lines)",
    },
    nodes_option="--nodes",
)
MESSAGE_IN_TOPIC = RecordTerms(
    text="message",
    record="record",
    hints={
        "clock": ' (set `clock` of `fields` to its path, or `clock = "none"` of the source if the '
        "messages have no clocks)",
        "nodes": "; name the nodes of its entries with `nodes` of the source",
        "scheme": " (set `clock` of the source to its scheme if it is not a vector clock)",
        "time": " (set `time_format` of the source to the format of times)",
        "time unit": " (set `time_unit` of the source to the unit of numeric times)",
    },
    nodes_option="`nodes` of the source",
    is_message=True,
)
ROW_OF_EVENT = RecordTerms(text="row", record="row", hints={}, has_keys=False)
