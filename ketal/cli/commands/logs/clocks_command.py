"""`ketal clocks`: timestamping schemes on a log, and how two of its events are ordered.

`show` draws the events with the stamps of a scheme. `restamp` writes them with these stamps as
clocks. `compare` prints what each scheme costs and answers, or how two events are ordered.

The one rule: an answer is about one execution, and names it. The exit code is 0 whatever the answer
is.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ketal.cli import FINE, options
from ketal.cli.output.output_lines import add_output, as_json, open_output, picture_form
from ketal.cli.whole_logs import read_with_progress, report_rejected, require_events
from ketal.errors import EventError, SettingError
from ketal.model.events.dot import Dot

if TYPE_CHECKING:
    from ketal.explanation.comparisons.comparison import EventComparison
    from ketal.explanation.comparisons.scheme_comparison import SchemeComparison
    from ketal.logs.restamping import StampedExecution
    from ketal.model.events.event import Event
    from ketal.model.limits import Limits
    from ketal.runtime.admission.execution_events import ExecutionEvents

EXAMPLE = """\
examples:
  ketal clocks show itc run.jsonl                  the events with their stamps
  ketal clocks show vector run.jsonl --write run.svg
  ketal clocks compare run.jsonl                   each scheme: bytes, time, answers
  ketal clocks compare run.jsonl a@3 b@7           two events of the log
  ketal clocks restamp itc run.jsonl --write itc.jsonl
  ketal clocks restamp vector run.jsonl --only stack.ketal
"""
_SUFFIXES = {".svg": "svg"}
_ACTIONS = {
    "show": "SCHEME LOG...: draw the events with the stamps of a scheme",
    "compare": "LOG...: compare the costs and answers of the schemes; compare LOG... a@3 b@7: "
    "compare two events",
    "restamp": "SCHEME LOG...: write the log with the stamps of a scheme as its clocks",
}
_USAGE = {
    "show": "show takes a scheme, then logs: ketal clocks show itc run.jsonl",
    "compare": "compare takes logs, then two events: ketal clocks compare run.jsonl a@3 b@7",
    "restamp": "restamp takes a scheme, then logs: ketal clocks restamp itc run.jsonl",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "action",
        choices=tuple(_ACTIONS),
        help="; ".join(f"{action} {what}" for action, what in _ACTIONS.items()),
    )
    options.add_logs(parser, "words")
    add_output(parser, "human", "json")
    options.add_repeatable(parser, "--scheme", "SCHEME", "compare only this scheme (repeatable)")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="show or restamp only events in the alphabets of a pattern file, and renumber them",
    )
    parser.add_argument(
        "--to",
        choices=("text", "svg"),
        help="format of show, and of compare with two events (default: determined by the extension "
        "of FILE, otherwise text)",
    )
    parser.add_argument(
        "--execution", metavar="NAME", help="execution to use, if the log has several"
    )
    parser.add_argument("--write", metavar="FILE", help="write to FILE")
    options.add_reading(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    if args.scheme and args.action != "compare":
        raise SettingError(f"--scheme applies only to compare; {_USAGE['compare']}")
    if args.to and args.action == "restamp":
        raise SettingError(f"--to applies only to show and compare; {_USAGE['show']}")
    if args.only and args.action == "compare":
        raise SettingError(f"--only applies only to show and restamp; {_USAGE['restamp']}")
    return {"show": _show, "compare": _compare, "restamp": _restamp}[args.action](args)


# --- executions -----------------------------------------------------------------


def _executions(
    args: argparse.Namespace, logs: list[str]
) -> tuple[dict[str, ExecutionEvents], Limits]:
    """Return the executions of logs by name, and the limits; SettingError if there is no event.

    Progress and rejected records are reported on standard error.
    """
    from ketal.model.log_arguments import deciding_log
    from ketal.runtime.admission.execution_events import executions_of, rejected_of

    source, limits = options.source_and_limits(args)
    executions = read_with_progress(
        logs, source, limits, lambda log: executions_of(deciding_log(log), limits)
    )
    rejected, first = rejected_of(executions.values())
    require_events(logs, sum(map(len, executions.values())), rejected, first)
    report_rejected(rejected, first)
    return executions, limits


def _chosen_execution(executions: dict[str, ExecutionEvents], name: str | None) -> ExecutionEvents:
    from ketal.runtime.admission.execution_events import execution_named, only_execution

    if name is not None:
        return execution_named(executions, name)
    return only_execution(executions, "choose one with --execution NAME")


# --- compare ----------------------------------------------------------------------


def _event_pair(words: list[str]) -> tuple[Dot, Dot] | None:
    """Return the two events that the last two words name; None if both name logs.

    A SettingError if only one of them names an event, there is no log before them, or an earlier
    word names an event.
    """
    for word in words[:-2]:
        if _dot(word) is not None:
            raise SettingError(f"{word} is an event, where a log is expected; {_USAGE['compare']}")
    dots = [dot for word in words[-2:] if (dot := _dot(word)) is not None]
    if not dots:
        return None
    if len(words) == 1:
        raise SettingError(f"{words[0]} is only one event; {_USAGE['compare']}")
    if len(dots) == 1:
        wrong = next(word for word in words[-2:] if _dot(word) is None)
        raise SettingError(f"{wrong!r} is not a dot; {_USAGE['compare']}")
    first, second = dots
    if len(words) == 2:
        raise SettingError(f"no log is given before {first} and {second}; {_USAGE['compare']}")
    return first, second


def _dot(word: str) -> Dot | None:
    try:
        return None if os.path.exists(word) else Dot.parse(word)
    except EventError:
        return None


def _compare(args: argparse.Namespace) -> int:
    pair = _event_pair(args.words)
    logs = args.words if pair is None else args.words[:-2]
    form = picture_form(args.to, args.write, _SUFFIXES, output=args.output)
    if pair is not None and args.scheme:
        raise SettingError(
            "--scheme cannot be combined with two events, which are compared by their clocks"
        )
    executions, limits = _executions(args, logs)
    inputs = options.input_files(args, *logs)
    compared: EventComparison | SchemeComparison
    if pair is None:
        from ketal.clocks.schemes import SCHEMES, scheme_named
        from ketal.explanation.comparisons.scheme_comparison import compare_schemes

        if form == "svg":
            raise SettingError(f"--to svg requires two events; {_USAGE['compare']}")
        schemes = [scheme_named(name) for name in args.scheme or SCHEMES]
        part = _chosen_execution(executions, args.execution)
        compared = compare_schemes(part.possible_events(), schemes, limits, part.name)
    else:
        from ketal.explanation.comparisons.comparison import compare_events

        compared = compare_events(executions, *pair, limits, execution=args.execution)
        if form == "svg":
            with open_output(args.write, inputs=inputs) as sink:
                sink.text(compared.to_svg())
            return FINE
    with open_output(args.write, inputs=inputs) as sink:
        if args.output == "json":
            sink.line(as_json({"comparison": compared.to_dict()}))
        else:
            sink.lines(compared.lines())
    return FINE


# --- show and restamp -----------------------------------------------------------


def _stamped_execution(args: argparse.Namespace) -> tuple[StampedExecution, list[str], Limits]:
    """Return the execution with the stamps of the scheme, the files read, and the limits."""
    from ketal.clocks.schemes import scheme_named
    from ketal.logs.restamping import restamped

    name, *logs = args.words
    if not logs:
        raise SettingError(f"no log is given after {name!r}; {_USAGE[args.action]}")
    scheme = scheme_named(name)
    executions, limits = _executions(args, logs)
    events = _chosen_execution(executions, args.execution).possible_events()
    if args.only is not None:
        events = _alphabet_events(events, args.only, limits)
    inputs = options.input_files(args, args.only, *logs)
    return restamped(events, scheme, limits), inputs, limits


def _alphabet_events(events: list[Event], path: str, limits: Limits) -> list[Event]:
    """Return the events in the alphabet of some pattern of a file; SettingError if none is."""
    from ketal.compiler.predicates import evaluate

    program = options.load_program(path, limits)
    masks = zip(*(one.masks(events) for one in program.compiled), strict=True)
    guards = [one.counted.alphabet_guard for one in program.compiled]
    chosen = [
        event
        for event, of_event in zip(events, masks, strict=True)
        if any(map(evaluate, guards, of_event))
    ]
    if not chosen:
        raise SettingError(f"no event of the log is in the alphabet of any pattern of {path}")
    return chosen


def _restamp(args: argparse.Namespace) -> int:
    from ketal.logs.formats.jsonl import object_of

    execution, inputs, _ = _stamped_execution(args)
    with open_output(args.write, inputs=inputs) as sink:
        for draft in execution.drafts():
            sink.line(as_json(object_of(draft)))
    return FINE


def _show(args: argparse.Namespace) -> int:
    from ketal.explanation.views.stamped_diagram import svg, text

    form = picture_form(args.to, args.write, _SUFFIXES, output=args.output)
    execution, inputs, limits = _stamped_execution(args)
    if len(execution.events) > limits.stamped_events_max:
        raise SettingError(
            f"the log has {len(execution.events):,} events, but a diagram with stamps shows at "
            f"most {limits.stamped_events_max:,} (limit stamped_events_max); select events with "
            "--only PATTERN"
        )
    with open_output(args.write, inputs=inputs) as sink:
        if form == "svg":
            sink.text(svg(execution))
        elif args.output == "json":
            for event, stamp in zip(execution.events, execution.stamps, strict=True):
                written = execution.scheme.written(stamp)
                sink.line(as_json({"event": str(event.dot), "type": event.type, "stamp": written}))
        else:
            sink.lines(text(execution))
    return FINE
