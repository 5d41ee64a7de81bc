"""`ketal graph`: the automaton of a pattern.

The one rule: it shows the compiled automaton that runs, and not the text.
"""

from __future__ import annotations

import argparse

from ketal.cli import FINE, options
from ketal.cli.output.output_lines import open_output, picture_form
from ketal.errors import SettingError

EXAMPLE = """\
examples:
  ketal graph stack.ketal
  ketal graph --to svg --write stack.svg --pattern ReplicatedStack stack.ketal
"""
_SUFFIXES = {".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".svg": "svg", ".json": "json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="PATTERN", help="pattern file; - is standard input")
    parser.add_argument(
        "--to",
        choices=tuple(dict.fromkeys(_SUFFIXES.values())),
        help="format of the graph (default: determined by the extension of FILE, otherwise dot)",
    )
    parser.add_argument(
        "--pattern", metavar="NAME", help="pattern to draw, if the file has several"
    )
    parser.add_argument("--write", metavar="FILE", help="write to FILE")
    options.add_params(parser)
    options.add_limits(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the picture; return the exit code."""
    limits = options.parse_limits(args.limit)
    program = options.load_program(args.file, limits, settings=args.set, chosen=args.pattern)
    if len(program.names) > 1:
        names = ", ".join(program.names)
        raise SettingError(f"{args.file} has several patterns: {names}; choose one with --pattern")
    form = picture_form(args.to, args.write, _SUFFIXES) or "dot"
    text = str(getattr(program.graph(), f"to_{form}")())
    with open_output(args.write, inputs=(args.file,)) as sink:
        sink.text(text)
    return FINE
