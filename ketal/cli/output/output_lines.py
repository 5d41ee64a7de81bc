"""The output of a command: where its lines go, and how they look.

An `OutputLines` is standard output or a file. Text is plain; a terminal adds colour,
and progress on standard error, unless `NO_COLOR` is set. `rich`, which draws both, is
imported for a terminal only.

The one rule: one item is one line. Text of a log or a pattern file cannot break a line
or control a terminal: characters that do not print are shown as escapes.
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
from ketal.errors import SettingError, printable
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
    except UnicodeEncodeError:
        # A file's name may hold bytes that are no text.
        return msgspec.json.encode(_escaped(value)).decode()


def _escaped(value: Any) -> Any:
    """Return plain data in which each text is JSON already, in ASCII."""
    if isinstance(value, str):
        return msgspec.Raw(json.dumps(value).encode())
    if isinstance(value, Mapping):
        return {name: _escaped(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(one) for one in value]
    return value


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move the cursor and show colours."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


class OutputLines:
    """Lines of output; `name` is what messages call the stream.

    Raises
    ------
    SettingError
        From every method, if it cannot be written: the disk is full.
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
        with self._reported():
            self._console.print(styled)

    def lines(self, texts: Iterable[str]) -> None:
        """Write texts, each on a line; what does not print is written as an escape."""
        for text in texts:
            self.line(printable(text))

    def text(self, text: str) -> None:
        """Write text as it is."""
        # Each verdict has a line, and entering `_reported` costs more than writing one.
        try:
            self._stream.write(text)
        except OSError as fault:
            raise unwritten(self._name, fault) from None

    def flush(self) -> None:
        """Flush the stream."""
        with self._reported():
            self._stream.flush()

    def close(self) -> None:
        """Flush the stream, and close the file."""
        with self._reported():
            self._stream.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise unwritten(self._name, fault) from None


def unwritten(name: str, fault: OSError) -> Exception:
    """Return the error of a file that cannot be written; a closed pipe is no such fault."""
    if isinstance(fault, BrokenPipeError):
        return fault
    return SettingError(f"cannot write {name}: {fault.strerror or fault}")


def picture_form(
    to: str | None, path: str | None, suffixes: Mapping[str, str], *, output: str = "human"
) -> str | None:
    """Return the form of a picture: what `--to` says, else what FILE's name does, else None.

    `suffixes` maps the suffixes of FILE's name to forms; `output` is the `--output` of a command
    that writes numbers or a picture.

    Raises
    ------
    SettingError
        If FILE's name is that of a picture in another form, or numbers are asked for too.
    """
    suffix = os.path.splitext(path or "")[1].lower()
    if to is None:
        dot = f", or a .dot for Graphviz's `dot -T{suffix[1:]}`" if ".dot" in suffixes else ""
        forms = "|".join(dict.fromkeys(suffixes.values()))
        refuse_other_pictures(suffix, f"an .svg{dot} (--to {forms} says which, whatever the name)")
    form = to or suffixes.get(suffix)
    if form not in (None, "text") and output == "json":
        raise SettingError(f"--output json is for numbers, and a picture is asked for ({form})")
    return form


@contextmanager
def opened(path: str | None, *, inputs: Iterable[str] = ()) -> Iterator[OutputLines]:
    """Open where output goes: a file, or standard output.

    Parameters
    ----------
    path : str or None
        The `--write` of a command; None and `-` are standard output.
    inputs : iterable of str
        Files that are read, and so must not be written over.

    Raises
    ------
    SettingError
        If the file cannot be written, or is one of the inputs.
    """
    if path is None or path == "-":
        # Text is UTF-8 whatever the locale.
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        coloured = is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
        sink = OutputLines(sys.stdout, STDOUT_NAME, colour=coloured)
        yield sink
        sink.flush()
        return
    for name in inputs:
        if os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise SettingError(f"--write {path} would write over what is read")
    try:
        file = open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n")  # noqa: SIM115
    except OSError as fault:
        raise unwritten(path, fault) from None
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
        help=f"how results are written (default {formats[0]})",
    )
