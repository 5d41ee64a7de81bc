"""`ketal audit`: whether a log is a possible vector-clocked execution, and where it is not.

The one rule: the exit code is about the log that was read. A repair that corrects every fault does
not make it 0.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ketal.cli import FINE, FOUND, complain, interruption_named, options
from ketal.cli.output.output_lines import add_output, as_json, open_output, refuse_inputs
from ketal.cli.whole_logs import read_with_progress, require_events
from ketal.errors import SettingError
from ketal.model.wording import counted

if TYPE_CHECKING:
    from ketal.auditing.faults import Audit
    from ketal.auditing.repair import Repair
    from ketal.auditing.report import ExaminedExecution
    from ketal.logs import Log

    Written = tuple[str, str, Repair]
    """An execution, the file of its corrected log, and what was corrected."""

EXAMPLE = """\
examples:
  ketal audit run.jsonl
  ketal audit --match-messages 'id=msg.id,send=type:send,receive=type:recv' n1.jsonl n2.jsonl
  ketal audit --repair --write corrected.jsonl run.jsonl
  ketal audit --output json --format zipkin traces.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_logs(parser)
    parser.add_argument(
        "--match-messages",
        metavar="KEYS",
        help="keys that pair sends with receives: id=msg.id,send=type:send,receive=type:recv",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="write a corrected log to --write FILE, and list the changes; of several executions, "
        "each is written to FILE with its number",
    )
    add_output(parser, "human", "json")
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="write the findings to FILE; with --repair, the corrected log",
    )
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Audit the logs; return the exit code."""
    from ketal.auditing.report import examine_log, summarise
    from ketal.logs.formats.jsonl import refuse_compressed
    from ketal.logs.traces.message_pairing import Messages

    if args.repair and args.write in (None, "-"):
        raise SettingError("--repair requires --write FILE for the corrected log")
    if args.repair:
        refuse_compressed(args.write)
    source, limits = options.source_and_limits(args)
    messages = None if args.match_messages is None else Messages.of(args.match_messages)

    def audited(log: Log) -> tuple[list[ExaminedExecution], Audit]:
        parts = examine_log(log, messages, limits)
        return parts, summarise(parts)

    unfinished = "the log was not audited to the end, so no faults are reported"
    parts, audit = read_with_progress(args.logs, source, limits, audited, unfinished)
    repairs = _write_repairs(parts, args) if args.repair else []
    if args.match_messages != source.rebuild:
        # With the same keys `report_reading` has reported it already.
        _report_unmatched_keys(parts)
    inputs = options.input_files(args, *args.logs)
    with open_output(None if args.repair else args.write, inputs=inputs) as sink:
        if args.output == "json":
            for line in _json_lines(audit, repairs):
                sink.line(line)
        else:
            sink.lines(_human_lines(audit, repairs))
    if not audit.clean:
        return FOUND
    read = audit.statistics
    require_events(args.logs, read.events, read.rejected, read.first_rejected)
    return FINE


def _report_unmatched_keys(parts: list[ExaminedExecution]) -> None:
    """Print on standard error the keys of --match-messages that fit no event of any execution."""
    from ketal.logs.traces.message_pairing import keys_void

    executions = [part.execution for part in parts if part.execution.events]
    pairings = [execution.pairing for execution in executions if execution.pairing]
    for key in keys_void(pairings):
        complain(
            f"--match-messages: no event fits {key}, so no message is paired; "
            "does the log have this field?"
        )


def _write_repairs(parts: list[ExaminedExecution], args: argparse.Namespace) -> list[Written]:
    """Write the corrected log; several executions get a file each, as JSON lines require."""
    from ketal.auditing.repair import repair_execution
    from ketal.logs import write_jsonl

    paths = [args.write]
    if len(parts) > 1:
        base, suffix = os.path.splitext(args.write)
        paths = [f"{base}.{number}{suffix}" for number in range(1, len(parts) + 1)]
    written, inputs = [], options.input_files(args, *args.logs)
    for part, path in zip(parts, paths, strict=False):
        repair = repair_execution(part)
        refuse_inputs(path, inputs)
        with interruption_named(f"{path} was not written to the end"):
            write_jsonl(repair.items, path)
        written.append((part.name, path, repair))
    return written


# --- forms of output --------------------------------------------------------------


def _json_lines(audit: Audit, repairs: list[Written]) -> Iterator[str]:
    yield from (as_json(fault.to_dict()) for fault in audit.faults)
    for execution, _, repair in repairs:
        named = {"execution": execution} if execution else {}
        for kind, changes in (("changed", repair.changed), ("left", repair.left)):
            yield from (as_json(change.to_dict(kind) | named) for change in changes)
    yield as_json({"statistics": audit.statistics.to_dict(), "faults": len(audit.faults)})


def _human_lines(audit: Audit, repairs: list[Written]) -> Iterator[str]:
    from ketal.auditing.faults import fault_lines, statistics_lines

    yield from fault_lines(audit)
    for _, _, repair in repairs:
        yield from (f"changed {change}" for change in repair.changed)
        yield from (f"left {change}" for change in repair.left)
    yield from statistics_lines(audit)
    for execution, path, repair in repairs:
        sentence = (
            f"{path}: {counted(len(repair.items), 'record')}, "
            f"{len(repair.changed):,} changed, {len(repair.left):,} left"
        )
        if repair.duplicates:
            sentence += f"; {counted(repair.duplicates, 'duplicate')} omitted"
        yield f"{sentence} (execution {execution})" if execution else sentence
