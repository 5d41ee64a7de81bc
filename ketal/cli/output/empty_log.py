"""What is to be said of records that are no events, by every command that reads a log.

The one rule: the reason names the logs, or the first record that is no event.
"""

from __future__ import annotations

from collections.abc import Sequence

from ketal.cli.options import STDIN, STDIN_NAME
from ketal.errors import printable
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import counted

MAPPING_HINT = (
    "hint: --field says where an event's fields are (--field type=event --field clock=pkt.vc), "
    "--format and --regex what kind of log it is; --rebuild id=msg.id,send=type:send,"
    "receive=type:recv makes clocks where there are none; see `ketal run --help`"
)


def rejection(rejected: Rejected | None) -> str:
    """Return the place of a rejected record and the reason; empty for none."""
    return "" if rejected is None else f"{rejected.place}: {rejected.reason}"


def nothing_read(logs: Sequence[str], rejected: int, first: str) -> str:
    """Return why no event was read; `first` is the first rejected record, with its reason."""
    if not rejected:
        names = ", ".join(STDIN_NAME if name == STDIN else name for name in logs)
        return f"no event was read: there is none in {names}"
    records = counted(rejected, "record was", "records were all")
    why = f"; the first is {printable(first)}" if first else ""
    return f"no event was read: {records} rejected{why}\n{MAPPING_HINT}"


def some_rejected(rejected: int, first: str) -> str:
    """Return how many records of a log were rejected, and the first, with its reason."""
    records = counted(rejected, "record was", "records were")
    return f"{records} rejected; the first is {printable(first)}"
