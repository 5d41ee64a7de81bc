"""Options that commands share, and how they combine.

A `--config` file is read first, and each flag overrides one setting of it: a `--field` replaces the
path of that field only, a `--limit` that limit only.

The one rule: options are checked before an event is read; a fault in them is a SettingError.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ketal.cli import interruption_named
from ketal.errors import KetalError, ParameterError, SettingError
from ketal.model.attributes import DIGITS_MAX
from ketal.model.language_words import ARGUMENTS
from ketal.model.limits import DEFAULT, Limits
from ketal.model.wording import shortened

if TYPE_CHECKING:
    from ketal.analysis.parameters import ParamValue
    from ketal.logs import Source
    from ketal.programs.program import Program

STDIN = "-"
STDIN_NAME = "<stdin>"
PATTERN_AS_LOG = "is a pattern file, but a log is expected here"

_READING = {
    "format": (
        "FORMAT",
        "jsonl, shiviz, csv or parquet (default: determined by the file's name, or else its first "
        "lines); otlp, zipkin or jaeger for traces",
    ),
    "regex": ("RE", "regular expression that matches an event of a ShiViz log"),
    "delimiter": ("RE", "regular expression that separates the executions of a ShiViz log"),
    "field": (
        "NAME=PATH",
        "path of node, type, clock, time, id, data, receives or incarnation in a record: "
        "clock=pkt.vc (repeatable); message=PATH is the attribute with the id of a message",
    ),
    "nodes": ("A,B,C", "nodes of the entries of positional clocks, in order"),
    "time_unit": ("UNIT", "unit of times that are numbers: s (default), ms, us, ns"),
    "time_format": (
        "FORMAT",
        "strptime format of times that are text but not RFC 3339: "
        "'%%m/%%d/%%Y %%I:%%M:%%S %%p'; without %%z they are UTC",
    ),
    "rebuild": (
        "KEYS",
        "rebuild the clocks from messages and the order of each node: "
        "id=msg.id,send=type:send,receive=type:recv",
    ),
    "clock": (
        "SCHEME",
        "timestamping scheme of the clocks: itc, dvv, history, ..., lamport (default: vector; see "
        "docs/clocks.md); none if the log has no clocks",
    ),
}
"""The options for reading a log, with their help.

Each but `field` has the name of a setting of `Source`.
"""


# --- arguments of commands -----------------------------------------------------


def add_logs(parser: argparse.ArgumentParser, name: str = "logs") -> None:
    """Add the positional argument for the logs that a command reads."""
    parser.add_argument(
        name,
        metavar="LOG",
        nargs="+",
        help="logs of one execution, also .gz and .zst; - is standard input",
    )


def add_pattern_and_logs(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add a pattern file, `--pattern` for the one pattern of it to `verb`, and logs."""
    parser.add_argument("pattern", metavar="PATTERN", help="pattern file; - is standard input")
    add_logs(parser)
    parser.add_argument(
        "--pattern", dest="chosen", metavar="NAME", help=f"{verb} only this pattern of the file"
    )


def add_repeatable(
    parser: argparse._ActionsContainer, option: str, metavar: str, about: str
) -> None:
    """Add an option that may be given several times."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=about)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add `--limit`."""
    add_repeatable(parser, "--limit", "NAME=VALUE", "change a limit; `ketal limits` lists them")


def add_params(parser: argparse.ArgumentParser) -> None:
    """Add `--set`."""
    add_repeatable(
        parser, "--set", "NAME=VALUE", "set the value of a `param`: 30s, 1.5, true, text"
    )


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add `--limit` and the options for reading a log."""
    add_limits(parser)
    group = parser.add_argument_group("reading a log")
    for name, (value, about) in _READING.items():
        action = "append" if name == "field" else "store"
        group.add_argument(_flag(name), action=action, metavar=value, help=about)
    group.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file with these options in [source], and limits in [limits]",
    )


def input_files(args: argparse.Namespace, *given: str | None) -> list[str]:
    """Return the files that a command reads: those given, without None, and that of `--config`."""
    return [name for name in (*given, args.config) if name is not None]


def reading_options(args: argparse.Namespace) -> list[str]:
    """Return the given options for reading a log, except `--config`, which may set only limits."""
    return [_flag(name) for name in _READING if getattr(args, name)]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- values of arguments ---------------------------------------------------------


def integer(text: str, kind: str = "an integer", least: float = -math.inf) -> int:
    """Return the value of an option that is an integer; `kind` is for the error message."""
    if len(text) > DIGITS_MAX:
        raise argparse.ArgumentTypeError(f"must be {kind} of at most {DIGITS_MAX} digits")
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII) or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be {kind}, not {shortened(text)!r}")
    return int(text)


def positive_integer(text: str) -> int:
    """Return the value of an option that is an integer of 1 or more."""
    return integer(text, "a positive integer", least=1)


def split_pair(option: str, text: str, example: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE; `example` is for the error message."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingError(
            f"{option} {text!r} is not of the form NAME=VALUE, for example {option} {example}"
        )
    return name.strip(), value.strip()


def parse_limits(settings: list[str], base: Limits = DEFAULT) -> Limits:
    """Return `base` with the limits that `--limit` options change."""
    given: dict[str, Any] = {}
    for text in settings:
        name, value = split_pair("--limit", text, "held_back_max=100000")
        digits = value.replace("_", "")
        is_integer = re.fullmatch(r"-?\d+", digits, re.ASCII) and len(digits) <= DIGITS_MAX
        given[name] = int(digits) if is_integer else value
    # The names are checked against the defaults, the values against the type.
    Limits.named(given)
    return replace(base, **given)


def parse_params(settings: Sequence[str]) -> dict[str, ParamValue]:
    """Return the values of parameters from `--set` options."""
    from ketal.analysis import parameters as params

    given: dict[str, ParamValue] = {}
    for text in settings:
        name, value = split_pair("--set", text, "w=30s")
        if name in given:
            raise SettingError(f"--set {name} is given twice")
        if name in ARGUMENTS:
            raise ParameterError(
                f"a parameter named {name!r} cannot be set: `ketal.compile` has an argument of "
                "that name; choose another name",
                name,
            )
        given[name] = params.parse_value(value)
    return given


def source_and_limits(args: argparse.Namespace) -> tuple[Source, Limits]:
    """Return the source and the limits from the options and `--config`."""
    from ketal.logs import Source, load_config, parse_fields, parse_nodes

    source, limits = Source(), DEFAULT
    if args.config is not None:
        config = load_config(args.config)
        source, limits = config.source, config.limits
    changed = {name: value for name in _READING if (value := getattr(args, name)) is not None}
    if args.nodes is not None:
        changed["nodes"] = parse_nodes(args.nodes)
    if fields := changed.pop("field", ()):
        changed["fields"] = {**source.fields, **parse_fields(fields)}
    return replace(source, **changed), parse_limits(args.limit, limits)


def pattern_text(path: str, limits: Limits) -> tuple[str, str]:
    """Return the text of a pattern file, or of standard input, and the name for messages."""
    from ketal.programs.compiling import decoded_pattern, read_at_most, read_pattern

    if path != STDIN:
        return read_pattern(path, limits), path
    raw = read_at_most(sys.stdin.buffer, limits.pattern_bytes_max + 1)
    return decoded_pattern(raw, STDIN_NAME, limits), STDIN_NAME


def check_stdin(paths: list[str]) -> None:
    """Raise a SettingError if standard input is among the paths more than once."""
    if paths.count(STDIN) > 1:
        raise SettingError("standard input (-) is given twice, but can be read only once")


def load_program(
    path: str, limits: Limits, *, settings: Sequence[str] = (), chosen: str | None = None
) -> Program:
    """Compile a pattern file with `--set` options; return only the pattern `chosen`, if given."""
    import ketal

    params = parse_params(settings)
    text, name = pattern_text(path, limits)
    with interruption_named(f"{name} was not compiled"):
        program = ketal.compile(text, name=name, limits=limits, **params)
    if chosen is None:
        return program
    try:
        return program[chosen]
    except KeyError as missing:
        raise SettingError(f"{name}: {missing.args[0]}") from None


def load_program_beside_logs(args: argparse.Namespace, limits: Limits, command: str) -> Program:
    """Compile the pattern file of a command that takes logs too.

    If it is not a pattern file, and one of the logs is, the error asks whether they are swapped.
    """
    try:
        return load_program(args.pattern, limits, settings=args.set, chosen=args.chosen)
    except KetalError:
        for log in () if is_pattern(args.pattern, limits) else args.logs:
            if is_pattern(log, limits):
                words = [log, args.pattern, *(one for one in args.logs if one != log)]
                raise SettingError(
                    f"{log} {PATTERN_AS_LOG}; are the arguments swapped? use "
                    f"`ketal {command} {' '.join(words)}`"
                ) from None
        raise


def is_pattern(path: str, limits: Limits = DEFAULT) -> bool:
    """Return whether a path is that of a pattern file, as far as it can be read."""
    from ketal.grammar import parse
    from ketal.programs.compiling import read_pattern

    # Reading a pipe could block for ever.
    if not os.path.isfile(path):
        return False
    try:
        parse(read_pattern(path, limits), limits=limits)
    except KetalError:
        return path.endswith(".ketal")
    return True
