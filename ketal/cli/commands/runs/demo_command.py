"""`ketal demo`: runs a replicated stack with a bug, judges it while it runs, and explains the bug.

The one rule: the exit code is 0 if the bug was found.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ketal.cli import COULD_NOT_RUN, FINE, complain, options
from ketal.cli.output.output_lines import open_output
from ketal.cli.process_state import LineSignals
from ketal.errors import SettingError

EXAMPLE = """\
examples:
  ketal demo
  ketal demo --bug early-delivery --seed 7 --folder demo
"""
DEFAULT_BUG = "applies-when-off"
BUGS = (
    DEFAULT_BUG,
    "old-session",
    "early-delivery",
    "early-acknowledgement",
    "lost-update",
    "stale-copy",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--bug", choices=BUGS, default=DEFAULT_BUG, metavar="BUG",
        help=f"bug of the stack: {', '.join(BUGS)} (default: {DEFAULT_BUG})",
    )  # fmt: skip
    parser.add_argument(
        "--seed",
        type=options.integer,
        default=1,
        metavar="N",
        help="seed of the workload (default: 1)",
    )
    parser.add_argument(
        "--shuffles", type=options.integer, default=1_000, metavar="N",
        help="number of orders of arrival to try afterwards (default: 1000)",
    )  # fmt: skip
    parser.add_argument(
        "--kafka", action="store_true",
        help="stream the events through a Kafka broker (pip install 'ketal[stream,spark,java]')",
    )  # fmt: skip
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="folder for the logs and the page (default: a temporary one)",
    )


def execute(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    if args.shuffles < 0:
        raise SettingError(f"--shuffles must be 0 or more, not {args.shuffles}")
    from ketal.replicated_stack.demo import Demo
    from ketal.replicated_stack.node import Bug

    folder = Path(args.folder) if args.folder else None
    with open_output(None) as output, LineSignals().handled():

        def line(text: str) -> None:
            output.line(text)
            output.flush()

        demo = Demo(args.seed, Bug(args.bug), folder, args.shuffles, line, kafka=args.kafka)
        if demo.run():
            return FINE
    complain("no run showed the bug; try another --seed")
    return COULD_NOT_RUN
