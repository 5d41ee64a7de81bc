"""`ketal stats`: the nodes, types and attributes in a log, from which patterns are written.

The one rule: it counts and does not judge. The exit code is 0 if an event was read.
"""

from __future__ import annotations

import argparse

from ketal.cli import FINE, options
from ketal.cli.output.output_lines import add_output, as_json, open_output
from ketal.cli.whole_logs import read_with_progress, require_events

EXAMPLE = """\
examples:
  ketal stats run.jsonl
  ketal stats --regex '(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})' simpledb.log
  ketal stats --output json n1.jsonl n2.jsonl.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_logs(parser)
    add_output(parser, "human", "json")
    parser.add_argument("--write", metavar="FILE", help="write to FILE")
    parser.add_argument(
        "--rows",
        type=options.positive_integer,
        default=20,
        metavar="N",
        help="rows of each table in human output (default: 20); json has all rows",
    )
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the statistics of the logs; return the exit code."""
    from ketal.auditing.contents.contents_counting import stats
    from ketal.auditing.contents.contents_report import lines

    source, limits = options.source_and_limits(args)
    contents = read_with_progress(args.logs, source, limits, lambda log: stats(log, limits=limits))
    with open_output(args.write, inputs=options.input_files(args, *args.logs)) as sink:
        if args.output == "json":
            sink.line(as_json({"stats": contents.to_dict()}))
        else:
            sink.lines(lines(contents, args.rows, fields=source.fields))
    require_events(args.logs, contents.events, contents.rejected, contents.first_rejected)
    return FINE
