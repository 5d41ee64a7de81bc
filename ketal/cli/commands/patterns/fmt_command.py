"""`ketal fmt`: rewrites pattern files in their canonical layout.

The one rule: a file is replaced whole or not at all, and a file that does not parse is not changed.
"""

from __future__ import annotations

import argparse
import difflib
import stat
from collections.abc import Iterator
from pathlib import Path

from ketal.cli import COULD_NOT_RUN, FINE, FOUND, options, report_error
from ketal.cli.output.output_lines import OutputLines, open_output
from ketal.errors import PatternError, SettingError, printable
from ketal.model.limits import Limits

EXAMPLE = """\
examples:
  ketal fmt patterns/*.ketal
  ketal fmt --check --diff stack.ketal
  ketal fmt - < stack.ketal
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "files",
        metavar="PATTERN",
        nargs="+",
        help="pattern files, formatted in place; - formats standard input to standard output",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="change no file; exit with 1 if a file is not formatted",
    )
    parser.add_argument("--diff", action="store_true", help="change no file; show the differences")
    options.add_limits(parser)


def execute(args: argparse.Namespace) -> int:
    """Format the files; return the exit code."""
    options.check_stdin(args.files)
    limits = options.parse_limits(args.limit)
    differ = failed = False
    with open_output(None) as sink:
        for path in args.files:
            try:
                differ |= _lay_out(path, args, limits, sink)
            except (PatternError, SettingError) as fault:
                report_error(fault)
                failed = True
    if failed:
        return COULD_NOT_RUN
    return FOUND if args.check and differ else FINE


def _lay_out(path: str, args: argparse.Namespace, limits: Limits, sink: OutputLines) -> bool:
    """Format one file, or report what would change; return whether its layout differs."""
    from ketal.grammar import format_text

    text, name = options.pattern_text(path, limits)
    laid_out = format_text(text, name=name, limits=limits)
    differs = laid_out != text
    if args.diff and differs:
        for line in _diff_lines(text, laid_out, name):
            sink.text(line)
    if args.check and differs:
        sink.line(f"would format {printable(name)}")
    if args.check or args.diff:
        return differs
    if path == options.STDIN:
        sink.text(laid_out)
    elif differs:
        _replace(path, laid_out)
        sink.line(f"formatted {printable(name)}")
    return differs


def _diff_lines(before: str, after: str, name: str) -> Iterator[str]:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, name
    )
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _replace(path: str, text: str) -> None:
    """Replace the text of a file, and keep its mode; a link to the file stays a link."""
    from ketal.errors import refused_as_setting
    from ketal.files.file_replacement import replace_file

    with refused_as_setting(f"cannot write {path}"):
        file = Path(path).resolve()
        if not file.is_file():
            raise OSError("it is not a regular file; `ketal fmt -` formats standard input")
        replace_file(file, text.encode(), mode=stat.S_IMODE(file.stat().st_mode))
