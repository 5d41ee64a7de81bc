"""The command line: `ketal COMMAND`.

Each command is a module `NAME_command` of `ketal.cli.commands`, with the functions `add_arguments`
and `execute` and the text `EXAMPLE`. This module dispatches to the command, and maps exceptions to
exit codes. Nothing heavy is imported before a command needs it, so that `--help` and `--version`
answer at once.

The one rule: the exit code is the result. 0 fine, 1 found, 2 could not run, 3 saved state does not
fit, 4 Kafka lost, 130 Ctrl-C, 143 SIGTERM; for 2 the reason is on standard error, and an error of a
user is never a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Any, NoReturn, TextIO

FINE, FOUND, COULD_NOT_RUN, STATE_DOES_NOT_FIT, LOST = 0, 1, 2, 3, 4
INTERRUPTED, TERMINATED = 130, 143

STDOUT_NAME = "<stdout>"


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM by commands that handle it like Ctrl-C."""


COMMANDS = {
    "run": ("runs", "run the patterns of a file over a log"),
    "lint": ("patterns", "report errors and warnings in pattern files"),
    "fmt": ("patterns", "rewrite pattern files in the canonical layout"),
    "explain": ("runs", "explain why each verdict holds, or how the patterns treated an event"),
    "view": ("logs", "render an execution as a page or a picture, or for Perfetto and ShiViz"),
    "graph": ("patterns", "draw the automaton of a pattern, or write it as data"),
    "stats": (
        "logs",
        "list the content of a log: nodes, types, attributes, times, concurrency, messages",
    ),
    "audit": (
        "logs",
        "check whether a log can be a vector-clocked execution, and report each fault",
    ),
    "cuts": ("logs", "count the consistent cuts and linear extensions of an execution"),
    "clocks": ("logs", "apply timestamping schemes to a log, or compare two of its events"),
    "stream": ("runs", "run a streaming job on Kafka topics"),
    "broker": ("runs", "run a real Kafka broker for tests and experiments"),
    "demo": ("runs", "find a bug in a replicated stack while it runs, and explain it"),
    "limits": ("patterns", "list every limit: name, default, unit, and what it bounds"),
}
"""Name of a command → the folder of its module in `ketal.cli.commands`, and a description."""

_EXAMPLE = """\
example:
  ketal run stack.ketal run.jsonl

`ketal COMMAND --help` lists the options of a command. Exit codes: 0 success; 1 something was found
(a violation, a lint error, a difference in fmt --check); 2 the command could not run; 3 the saved
state does not fit; 4 Kafka was lost; 130 Ctrl-C; 143 SIGTERM.
"""


class _Parser(argparse.ArgumentParser):
    """A parser without abbreviated options, which reports output that cannot be written.

    argparse ignores the error of a write, and exits as if the write had succeeded.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; for an unknown option exit with 2, and suggest the nearest option."""
        parsed, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            from ketal.errors import nearest

            option = unknown[0].partition("=")[0]
            nearest_option = option.startswith("-") and nearest(option, self._option_string_actions)
            hint = f"; did you mean {nearest_option}?" if nearest_option else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Exit with 2 after printing the message, then the usage."""
        self.exit(COULD_NOT_RUN, f"{self.prog}: error: {message}\n{self.format_usage()}")

    def _print_message(self, message: str, file: Any = None) -> None:
        stream = file or sys.stderr
        try:
            stream.write(message or "")
        except OSError as fault:
            from ketal.errors import write_error

            raise write_error(stream.name, fault) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, by default that of this process's command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        code = _dispatch(words)
    except SystemExit as stop:
        # argparse has printed everything already.
        code = stop.code if isinstance(stop.code, int) else COULD_NOT_RUN
    except KeyboardInterrupt as stop:
        code = report_interruption(stop)
    except BrokenPipeError:
        leave_closed_pipe()
        code = FINE
    except Exception as error:
        code = report_error(error)
    return _flush_stdout(code)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that this process was started without."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _flush_stdout(code: int) -> int:
    """Flush standard output; return `code`, or `COULD_NOT_RUN` if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        leave_closed_pipe()
    except OSError as fault:
        # Without this Python would report the failed output again when it exits.
        leave_closed_pipe()
        if code != COULD_NOT_RUN:
            complain(f"cannot write {STDOUT_NAME}: {fault.strerror}")
        return COULD_NOT_RUN
    return code


def _dispatch(words: list[str]) -> int:
    head = words[0] if words else ""
    if head in COMMANDS:
        folder, about = COMMANDS[head]
        module = importlib.import_module(f"ketal.cli.commands.{folder}.{head}_command")
        description = f"{about[0].upper()}{about[1:]}."
        parser = _Parser(prog=f"ketal {head}", description=description, epilog=module.EXAMPLE)
        module.add_arguments(parser)
        return int(module.execute(parser.parse_intermixed_args(words[1:])))
    top = _top_parser()
    if head and not head.startswith("-"):
        from ketal.errors import near

        top.error(f"unknown command {head!r}{near(head, COMMANDS)}")
    top.parse_intermixed_args(words)
    top.print_help(sys.stderr)
    return COULD_NOT_RUN


def _version() -> str:
    """Return ketal's version, and whether its engine is compiled (`setup.py`)."""
    from ketal import __version__

    engine = find_spec("ketal.engine.machine")
    compiled = engine is not None and str(engine.origin).endswith(tuple(EXTENSION_SUFFIXES))
    return f"ketal {__version__}{' (compiled)' if compiled else ''}"


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items())
    parser = _Parser(
        prog="ketal",
        usage="ketal COMMAND ...",
        description=f"Causal complex event detection.\n\ncommands:\n{listed}",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--version", action="version", version=_version())
    return parser


def complain(message: str) -> None:
    """Print a message on standard error, after `ketal: `."""
    print_error(f"ketal: {message}")


@contextmanager
def interruption_named(unfinished: str) -> Iterator[None]:
    """Name what is left `unfinished` if Ctrl-C interrupts the body of a `with`, for `main`."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.args = (unfinished,)
        raise


def print_error(text: str) -> None:
    """Print one or several lines on standard error, with escapes for unprintable characters."""
    from ketal.errors import printable

    try:
        print("\n".join(map(printable, text.split("\n"))), file=sys.stderr)
    except OSError:
        leave_closed_pipe(sys.stderr)


def leave_closed_pipe(stream: TextIO | None = None) -> None:
    """Redirect a stream whose reader is gone, by default standard output, to the null device.

    Otherwise Python would fail when it flushes the stream at exit.
    """
    stream = stream or sys.stdout
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def report_interruption(stop: KeyboardInterrupt) -> int:
    """Print what is unfinished after Ctrl-C or SIGTERM, as far as it is named; return the code."""
    is_sigterm = isinstance(stop, Terminated)
    complain(": ".join(["terminated" if is_sigterm else "interrupted", *stop.args]))
    return TERMINATED if is_sigterm else INTERRUPTED


def report_error(error: Exception) -> int:
    """Print an error for the user, or a traceback for a fault of ketal; return the exit code."""
    from ketal.errors import KetalError, PatternError, StateError

    if isinstance(error, PatternError):
        print_error(str(error))
    elif isinstance(error, KetalError):
        complain(str(error))
    elif isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        complain(f"{name}{error.strerror or error}")
    elif isinstance(error, MemoryError):
        complain("out of memory; lower one of the limits that `ketal limits` lists")
    elif isinstance(error, RecursionError):
        complain(
            "too deeply nested for Python; lower the limit nesting_max (a pattern) or "
            "match_events_max (the events of a match)"
        )
    else:
        import traceback

        traceback.print_exception(error)
        complain("this is a bug in ketal; please report it")
    return STATE_DOES_NOT_FIT if isinstance(error, StateError) else COULD_NOT_RUN
