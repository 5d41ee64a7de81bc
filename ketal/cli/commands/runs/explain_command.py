"""`ketal explain`: why the verdicts of a finite log hold, or what became of an event.

The one rule: it explains the verdicts of `ketal run`, whatever they are: the exit code is 0 if an
event was read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ketal.cli import FINE, complain, options
from ketal.cli.output.output_lines import add_output, as_json, open_output
from ketal.cli.whole_logs import read_with_progress, rejection_text, report_rejected, require_events
from ketal.model.events.dot import given_dot
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import counted

if TYPE_CHECKING:
    from ketal.explanation.judged_log import JudgedLog
    from ketal.explanation.reasons import Explanation
    from ketal.logs import Log

EXAMPLE = """\
examples:
  ketal explain stack.ketal run.jsonl
  ketal explain --verdict 3f2a stack.ketal run.jsonl
  ketal explain --event n3@7 stack.ketal run.jsonl
  ketal explain --output json --first 1 forks.ketal n1.jsonl n2.jsonl.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_pattern_and_logs(parser, "explain")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--verdict",
        metavar="ID",
        help="explain the verdict with this id, or with an id that begins with it",
    )
    what.add_argument(
        "--event", metavar="NODE@N", help="explain how each pattern treated this event"
    )
    what.add_argument(
        "--first",
        type=options.positive_integer,
        metavar="N",
        help="explain the first N verdicts (default: 10)",
    )
    add_output(parser, "human", "json")
    parser.add_argument("--write", metavar="FILE", help="write to FILE")
    options.add_params(parser)
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the explanations; return the exit code."""
    from ketal.explanation.explaining import FIRST, explanations
    from ketal.explanation.judged_log import JudgedLog

    options.check_stdin([args.pattern, *args.logs])
    source, limits = options.source_and_limits(args)
    program = options.load_program_beside_logs(args, limits, "explain")
    event = None if args.event is None else given_dot(args.event)

    def judge(log: Log) -> tuple[JudgedLog, tuple[Explanation, ...]]:
        judged = JudgedLog(program, log, limits, event=event)
        return judged, explanations(judged, verdict=args.verdict, first=args.first or FIRST)

    judged, explained = read_with_progress(
        args.logs, source, limits, judge, "nothing was explained"
    )
    events = judged.summary["events"]
    first = rejection_text(
        next((one for one in judged.verdicts if isinstance(one, Rejected)), None)
    )
    require_events(args.logs, events["accepted"], events["rejected"], first)
    inputs = options.input_files(args, args.pattern, *args.logs)
    with open_output(args.write, inputs=inputs) as sink:
        for number, one in enumerate(explained):
            if args.output == "json":
                sink.line(as_json(one.to_dict()))
            else:
                sink.lines(["", *one.lines()] if number else one.lines())
    report_rejected(events["rejected"], first)
    _report(args, judged, explained)
    return FINE


def _report(args: argparse.Namespace, judged: JudgedLog, explained: Sequence[Explanation]) -> None:
    """Print on standard error which verdicts were not explained, and faults that affect them."""
    from ketal.explanation.judged_log import overflow_text
    from ketal.runtime.log_verdicts import impossible_clocks

    for sentence in impossible_clocks(judged.summary):
        complain(sentence)
    if reached := overflow_text(judged.overflows):
        complain(reached)
    if args.event is not None:
        return
    matched = {one.pattern for one in judged.explainable if one.kind == "match"}
    unlisted = [
        name
        for name, counts in judged.summary["patterns"].items()
        if counts["matches"] and name not in matched
    ]
    for name in unlisted:
        complain(f"the matches of {name} are only counted (return count), so none is explained")
    if not explained and not unlisted:
        complain(
            "no verdict to explain: there is no match and no violation; use `ketal run` for the "
            "summary, or --event NODE@N to explain how an event was treated"
        )
    left = len(judged.explainable) - sum(one.verdict is not None for one in explained)
    if args.verdict is None and left:
        complain(
            f"{counted(left, 'more verdict')}; use --first N or --verdict ID to explain others"
        )
