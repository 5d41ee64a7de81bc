"""The output of a command: its destination and its colours.

An `OutputLines` is standard output or a file. Text is plain; on a terminal it has colours, unless
`NO_COLOR` is set. `rich`, which writes colours, is imported for a terminal only.

The one rule: one item is one line. Text of a log or a pattern file cannot break a line or control a
terminal, since unprintable characters are written as escapes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import msgspec

from ketal.cli import STDOUT_NAME
from ketal.errors import SettingError, printable, write_error, write_errors
from ketal.explanation.views.forms import refuse_other_pictures

STYLES = {
    "violation": "bold red",
    "error": "bold red",
    "incomplete": "yellow",
    "timed_out": "yellow",
    "warning": "yellow",
    "late": "magenta",
    "gap": "magenta",
    "rejected": "magenta",
    "overflow": "magenta",
    "match": "bold green",
    "transition": "dim",
    "caret": "bold",
}
"""First word of a line, or the severity of a diagnostic → its colour on a terminal."""
_SEVERITY = re.compile(r"\S+:\d+:\d+: (error|warning)\[")
_CARETS = re.compile(r" *\^+")


def as_json(value: object) -> str:
    """Return a value as one line of JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except ValueError:
        # The name of a file may have bytes that are not UTF-8, a number thousands of digits.
        return msgspec.json.encode(_as_raw(value)).decode()


def _as_raw(value: Any) -> Any:
    """Return plain data with each text and integer replaced by its JSON, which is in ASCII."""
    if isinstance(value, str):
        return msgspec.Raw(json.dumps(value).encode())
    if isinstance(value, int) and not isinstance(value, bool):
        from ketal.explanation.cuts.cut_report import digits

        return msgspec.Raw(digits(value).encode())
    if isinstance(value, Mapping):
        return {name: _as_raw(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_raw(one) for one in value]
    return value


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move the cursor and show colours."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


class OutputLines:
    """Lines of output to a stream; `name` is the name of the stream in messages.

    Every method raises a SettingError if the stream cannot be written, as when the disk is full.
    """

    def __init__(self, stream: TextIO, name: str, *, colour: bool = False) -> None:
        self._stream = stream
        self._name = name
        self._console: Any = None
        if colour:
            from rich.console import Console

            self._console = Console(
                file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True
            )

    def line(self, text: str) -> None:
        """Write one line."""
        if self._console is None:
            self.text(text + "\n")
            return
        from rich.text import Text

        styled = Text(text)
        first = text.partition(" ")[0]
        styled.stylize(STYLES.get(first, ""), 0, len(first))
        if severity := _SEVERITY.match(text):
            styled.stylize(STYLES[severity[1]], *severity.span(1))
        if _CARETS.fullmatch(text):
            styled.stylize(STYLES["caret"])
        with write_errors(self._name):
            self._console.print(styled)

    def lines(self, texts: Iterable[str]) -> None:
        """Write texts, each on a line, with escapes for unprintable characters."""
        for text in texts:
            self.line(printable(text))

    def text(self, text: str) -> None:
        """Write text as it is."""
        # This is called for each verdict; entering `write_errors` would cost more than the write.
        try:
            self._stream.write(text)
        except OSError as fault:
            raise write_error(self._name, fault) from None

    def flush(self) -> None:
        """Flush the stream."""
        with write_errors(self._name):
            self._stream.flush()

    def close(self) -> None:
        """Flush the stream, and close the file."""
        with write_errors(self._name):
            self._stream.close()


def picture_form(
    to: str | None, path: str | None, suffixes: Mapping[str, str], *, output: str = "human"
) -> str | None:
    """Return the form of a picture, from `--to` or the suffix of FILE; None if neither has one.

    `suffixes` maps suffixes to forms; `output` is the `--output` of a command that writes either
    numbers or a picture. A SettingError if FILE has the suffix of a form that the command does not
    write, or both a picture and JSON are requested.
    """
    suffix = os.path.splitext(path or "")[1].lower()
    if to is None:
        dot = f", or a .dot for Graphviz's `dot -T{suffix[1:]}`" if ".dot" in suffixes else ""
        forms = "|".join(dict.fromkeys(suffixes.values()))
        refuse_other_pictures(suffix, f"an .svg{dot} (--to {forms} overrides the extension)")
    form = to or suffixes.get(suffix)
    if form not in (None, "text") and output == "json":
        raise SettingError(
            f"--output json writes numbers and cannot be combined with a picture ({form})"
        )
    return form


def refuse_inputs(path: str, inputs: Iterable[str]) -> None:
    """Raise a SettingError if a file to be written is one of the `inputs`."""
    for name in inputs:
        if os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise SettingError(f"--write {path} would overwrite an input file")


@contextmanager
def open_output(path: str | None, *, inputs: Iterable[str] = ()) -> Iterator[OutputLines]:
    """Open the output of a command: a file, or standard output.

    `path` is the `--write` of a command; None and `-` are standard output. A SettingError if the
    file cannot be written, is one of the `inputs`, which the command reads, or has the name of a
    compressed one.
    """
    if path is None or path == "-":
        # UTF-8 in every locale.
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        coloured = is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
        sink = OutputLines(sys.stdout, STDOUT_NAME, colour=coloured)
        yield sink
        sink.flush()
        return
    from ketal.logs.formats.jsonl import refuse_compressed

    command = "gzip" if path.endswith(".gz") else "zstd"
    refuse_compressed(path, f"use `--write - | {command} > {path}`")
    refuse_inputs(path, inputs)
    with write_errors(path):
        file = open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n")  # noqa: SIM115
    sink = OutputLines(file, path)
    try:
        yield sink
    except BaseException:
        # The first exception is the reason to report.
        with suppress(OSError):
            file.close()
        raise
    sink.close()


def add_output(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Add `--output`."""
    parser.add_argument(
        "--output",
        choices=formats,
        default=formats[0],
        help=f"format of the results (default: {formats[0]})",
    )
