"""`ketal cuts`: how many consistent cuts and linear extensions an execution has.

The one rule: a picture shows one execution; numbers are given for each execution. The exit code is
0 if an event was read, even if a number could not be computed: the limit is named in its place.
"""

from __future__ import annotations

import argparse

from ketal.cli import FINE, options
from ketal.cli.output.output_lines import add_output, as_json, open_output, picture_form
from ketal.cli.whole_logs import read_with_progress, report_rejected, require_events

EXAMPLE = """\
examples:
  ketal cuts run.jsonl
  ketal cuts --output json --limit counted_cuts_max=100000000 run.jsonl
  ketal cuts --write lattice.svg run.jsonl
"""
_SUFFIXES = {".dot": "dot", ".gv": "dot", ".svg": "svg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_logs(parser)
    add_output(parser, "human", "json")
    parser.add_argument(
        "--to",
        choices=tuple(dict.fromkeys(_SUFFIXES.values())),
        help="draw the lattice of the cuts in this format (default: determined by the extension of "
        "FILE, otherwise print numbers)",
    )
    parser.add_argument(
        "--execution", metavar="NAME", help="count only this execution, if the log has several"
    )
    parser.add_argument("--write", metavar="FILE", help="write to FILE")
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the numbers, or draw the lattice; return the exit code."""
    from ketal.explanation.cuts.cut_report import cuts

    source, limits = options.source_and_limits(args)
    form = picture_form(args.to, args.write, _SUFFIXES, output=args.output)
    unfinished = "not all cuts were counted"
    counted = read_with_progress(
        args.logs, source, limits, lambda log: cuts(log, limits=limits), unfinished
    )
    require_events(args.logs, counted.events, counted.rejected, counted.first_rejected)
    if args.execution is not None:
        counted = counted.only(args.execution)
    if form is not None:
        text = str(getattr(counted, f"to_{form}")())
        report_rejected(counted.rejected, counted.first_rejected)
    elif args.output == "json":
        text = as_json({"cuts": counted.to_dict()}) + "\n"
    else:
        text = f"{counted}\n"
    with open_output(args.write, inputs=options.input_files(args, *args.logs)) as sink:
        sink.text(text)
    return FINE
