"""Errors, classified by who is at fault.

Three parties can be at fault: the author of a pattern (`PatternError`, which has a span of the
pattern's text), a peer that sent an event (`EventError`, which has the place in the log or the
dot), and the operator who runs ketal (`StateError` for saved state that does not fit,
`SettingError` for a setting that is unknown or has a wrong value).

The one rule: an error names the place, the fault, and what to do about it.
"""

from __future__ import annotations

import bisect
import errno
import functools
import inspect
import os
import signal
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any

_PACKAGE = os.path.join(os.path.dirname(__file__), "")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of text in a pattern file; `end_column` is the first column after it.

    Lines and columns are counted from 1.
    """

    line: int
    column: int
    end_line: int
    end_column: int


class KetalError(Exception):
    """The base class of errors whose cause is outside of ketal.

    Examples
    --------
    >>> import ketal
    >>> try:
    ...     ketal.load("nowhere.ketal")
    ... except ketal.KetalError as error:
    ...     print(type(error).__name__, error)
    SettingError cannot read pattern file nowhere.ketal: No such file or directory
    """


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a pattern file.

    Parameters
    ----------
    code : str
        The stable code, `K` and three digits; `docs/diagnostics.md` lists the codes.
    severity : str
        `error` or `warning`.
    message : str
        The fault, in one sentence.
    span : Span or None
        The place in the text; None for a pattern that was built in code.
    hint : str
        What to do about the fault; may be empty.
    pattern : str
        The name of the pattern that has the fault; empty for a whole file.

    Examples
    --------
    >>> import ketal
    >>> (diagnostic,) = ketal.lint('pattern P { event A = type = "a"; check A; }')
    >>> diagnostic.code, diagnostic.severity, diagnostic.span.line, diagnostic.span.column
    ('K001', 'error', 1, 28)
    >>> diagnostic.message
    '`=` is not a comparison operator'
    >>> diagnostic.hint
    'write `==`'
    """

    code: str
    severity: str
    message: str
    span: Span | None = None
    hint: str = ""
    pattern: str = ""


def diagnostic_place(diagnostic: Diagnostic) -> tuple[int, int, str]:
    """Return the key that sorts diagnostics by their place in the text, then by code."""
    span = diagnostic.span
    return (span.line, span.column, diagnostic.code) if span else (0, 0, diagnostic.code)


@dataclass(frozen=True, slots=True)
class PatternText:
    """The text that spans refer to, and the name of its file."""

    text: str
    name: str = "<pattern>"
    _lines: list[str] = field(default_factory=list, compare=False, repr=False)

    def line(self, number: int) -> str:
        """Return line `number` (from 1), without its line end."""
        if not self._lines:
            self._lines.extend(self.text.split("\n"))
        return self._lines[number - 1].rstrip("\r") if 1 <= number <= len(self._lines) else ""


def printable(text: str) -> str:
    """Return text with an escape for every character that is not printable, except tabs.

    A line of a pattern is shown with the tabs that indent it.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def at_place(place: str, reason: str) -> str:
    """Return a reason after the place that it is about, which may be empty."""
    return f"{place}: {reason}" if place else reason


def columns(text: str) -> int:
    """Return the number of columns of a text in a fixed-width font."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def diagnostic_text(diagnostic: Diagnostic, source: PatternText | None) -> str:
    """Return a diagnostic as text for people: place, message, line, caret, hint."""
    span = diagnostic.span
    if source is None or span is None:
        head = f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"
        return head + (f"\n  hint: {diagnostic.hint}" if diagnostic.hint else "")
    head = (
        f"{source.name}:{span.line}:{span.column}: "
        f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"
    )
    text = source.line(span.line)
    if len(text) > 200:
        # A generated or malicious line must not fill the terminal.
        start = max(0, span.column - 80)
        text, offset = text[start : start + 160], start
    else:
        offset = 0
    last = span.end_column if span.end_line == span.line else len(text) + offset + 1
    start = span.column - 1 - offset
    pad = "".join("\t" if c == "\t" else " " * columns(printable(c)) for c in text[:start])
    width = max(1, columns(printable(text[start : last - 1 - offset])))
    lines = [head, f"  {printable(text)}", f"  {pad}{'^' * width}"]
    if diagnostic.hint:
        lines.append(f"  hint: {diagnostic.hint}")
    return "\n".join(lines)


class PatternError(KetalError):
    """The author of a pattern is at fault.

    Attributes
    ----------
    diagnostics : tuple of Diagnostic
        All errors, in the order of the text; never empty.
    source : PatternText or None
        The text that the spans refer to.

    Examples
    --------
    >>> import ketal
    >>> try:
    ...     ketal.compile('pattern P { event A = type == "a"; check A B; }', name="p.ketal")
    ... except ketal.PatternError as error:
    ...     print(error)
    ...     print(error.diagnostics[0].code)
    p.ketal:1:44: error[K102]: unknown step `B`
      pattern P { event A = type == "a"; check A B; }
                                                 ^
      hint: declare `B = …;`
    K102
    """

    def __init__(
        self,
        diagnostics: tuple[Diagnostic, ...] | list[Diagnostic],
        source: PatternText | None = None,
    ) -> None:
        assert diagnostics, "a PatternError needs a diagnostic"
        self.diagnostics = tuple(diagnostics)
        self.source = source
        super().__init__("\n".join(diagnostic_text(d, source) for d in self.diagnostics))

    def __reduce__(self) -> tuple[object, ...]:
        return (PatternError, (self.diagnostics, self.source))


def pattern_error(
    code: str, message: str, span: Span | None = None, *, hint: str = ""
) -> PatternError:
    """Return a PatternError with one diagnostic."""
    return PatternError((Diagnostic(code, "error", message, span, hint),))


class EventError(KetalError):
    """A peer is at fault: a record is not a valid event.

    Attributes
    ----------
    reason : str
        The fault, in one sentence.
    place : str
        `file:line`, a dot, or empty for an event that was made in code.
    draft : object
        The fields of the record, if only its clock is at fault; else None.

    Examples
    --------
    >>> import ketal
    >>> try:
    ...     ketal.Event(node="n1", type="push", clock={"n2": 1})
    ... except ketal.EventError as error:
    ...     print(error.reason)
    clock: the node's own entry 'n1' is missing; counters start at 1
    """

    draft: object = None

    def __init__(self, reason: str, *, place: str = "") -> None:
        self.reason = reason
        self.place = place
        super().__init__(at_place(place, reason))


class StateError(KetalError):
    """Saved state is damaged, or does not fit the program that is to restore it.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('pattern P { event A = type == "a"; check A*; }')
    >>> try:
    ...     ketal.Monitor.restore(program, b"no snapshot")
    ... except ketal.StateError as error:
    ...     print(error)
    these bytes are not a ketal snapshot
    """


class OtherProgramError(StateError):
    """Saved state is intact, but of another program; `changes` is the difference, as text."""

    def __init__(self, changes: str) -> None:
        self.changes = changes
        super().__init__(changes)

    def __str__(self) -> str:
        return f"the state is of another program: {self.changes}"


class SettingError(KetalError):
    """A setting, an option or a file that ketal was given is wrong.

    Examples
    --------
    >>> import ketal
    >>> try:
    ...     ketal.read_log("nowhere.jsonl", format="xml")
    ... except ketal.SettingError as error:
    ...     print(error)
    unknown format 'xml'; choose from jsonl, shiviz, csv, parquet, otlp, zipkin, jaeger
    """


@contextmanager
def faults_placed(place: str) -> Iterator[None]:
    """Put the place of its fault, such as `job.toml: `, before the text of a SettingError."""
    try:
        yield
    except SettingError as fault:
        raise SettingError(f"{place}{fault}") from None


@contextmanager
def refused_as_setting(what: object) -> Iterator[None]:
    """Convert an OSError to a SettingError; `what` is the file, or what cannot be done with it."""
    try:
        yield
    except OSError as fault:
        # `mkdir` says that a file which is in its place exists.
        is_file = isinstance(fault, FileExistsError)
        reason = os.strerror(errno.ENOTDIR) if is_file else fault.strerror or fault
        raise SettingError(f"{what}: {reason}") from None


class ParameterError(SettingError):
    """The value given for a parameter of a pattern is wrong, or no pattern has the parameter."""

    def __init__(self, reason: str, parameter: str) -> None:
        self.parameter = parameter
        super().__init__(reason, parameter)

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def write_errors(name: str) -> Iterator[None]:
    """Convert an OSError of writing to the file `name` to a SettingError, see `write_error`."""
    try:
        if "\0" in name:
            raise OSError("the name of a file cannot contain U+0000")
        yield
    except OSError as fault:
        raise write_error(name, fault) from None


def write_error(name: str, fault: OSError) -> Exception:
    """Return the error for a file that cannot be written; for a closed pipe, `fault` itself."""
    if isinstance(fault, BrokenPipeError):
        return fault
    name = name or "a file without a name"
    return SettingError(f"cannot write {printable(name)}: {fault.strerror or fault}")


class LostError(KetalError):
    """Kafka or Spark is lost for good, or another process has taken over the job."""


class NotAvailableError(KetalError):
    """A pattern uses a feature of the language that this version cannot execute in this way.

    Examples
    --------
    >>> import ketal
    >>> text = 'pattern P { mode possibly; order CausalOrder; event A = type == "a"; check A*; }'
    >>> try:
    ...     ketal.Monitor(ketal.compile(text))
    ... except ketal.NotAvailableError as error:
    ...     print(error)
    pattern P: `mode possibly` concerns every linear extension of an ...
    """


NEIGHBOURS_MAX = 10
"""The most names before a name, and after it, that are compared with it for a proposal."""


def nearest(
    name: str, known: Iterable[str], cutoff: float = 0.6, *, any_case: bool = False
) -> str | None:
    """Return the known name that is most similar to a name; None if none is similar enough.

    Of many known names only the neighbours of the name are compared with it, those that begin or
    end like it: a misspelling leaves the beginning or the end as it is. `cutoff` is the least
    similarity, from 0 to 1 (`difflib.SequenceMatcher.ratio`); with `any_case`, upper and lower case
    are alike.
    """
    import difflib

    by_spelling, forwards, backwards = _spellings(frozenset(known), any_case)
    spelling = name.lower() if any_case else name
    candidates: Iterable[str] = forwards
    if len(forwards) > 4 * NEIGHBOURS_MAX:
        alike = {one[::-1] for one in _neighbours(spelling[::-1], backwards)}
        candidates = sorted(alike.union(_neighbours(spelling, forwards)))
    close = difflib.get_close_matches(spelling, candidates, 1, cutoff)
    return by_spelling[close[0]] if close else None


@functools.lru_cache(maxsize=8)
def _spellings(
    known: frozenset[str], any_case: bool
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return names by their spelling, the spellings sorted, and sorted when written backwards."""
    by_spelling = {one.lower() if any_case else one: one for one in sorted(known)}
    return by_spelling, sorted(by_spelling), sorted(one[::-1] for one in by_spelling)


def _neighbours(name: str, names: Sequence[str]) -> Sequence[str]:
    """Return the nearest of some sorted names before and after a name."""
    place = bisect.bisect(names, name)
    return names[max(0, place - NEIGHBOURS_MAX) : place + NEIGHBOURS_MAX]


def near(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message about an unknown name: `; did you mean …?`.

    If no known name is similar, it is `otherwise`; if that is empty, a list of the known names.
    """
    names = list(known)
    meant = nearest(str(name), names)
    if meant is not None:
        return f"; did you mean {meant}?"
    otherwise = otherwise or (f"choose from {', '.join(names)}" if names else "")
    return f"; {otherwise}" if otherwise else ""


def wrong_type(what: str, wanted: str, given: object) -> TypeError:
    """Return the TypeError for an argument that is not of the type `wanted`."""
    return TypeError(f"{what} must be {wanted}, not {class_name(given)}")


def class_name(given: object) -> str:
    """Return the name of a value's class for messages; `None` for None."""
    return "None" if given is None else type(given).__name__


def value_text(given: object) -> str:
    """Return a value for a message: its repr; `a boolean`; a date or a time as TOML has it.

    The repr of these three is Python's alone.
    """
    if isinstance(given, date | time):
        return given.isoformat()
    return "a boolean" if isinstance(given, bool) else repr(given)


def returns_coroutine(function: Any) -> bool:
    """Return whether a call of a function, a partial or another object returns a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    calls = function, type(function).__call__
    return any(map(inspect.iscoroutinefunction, calls))


def checked_text(what: str, given: str) -> str:
    """Return an argument after checking that it is a str; raise a TypeError otherwise."""
    if not isinstance(given, str):
        raise wrong_type(what, "a str", given)
    return given


def checked_name(what: str, given: str) -> str:
    """Return a name after checking that UTF-8 can encode it; raise a SettingError otherwise."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise SettingError(
            f"{given!r} is not a valid {what}: it cannot be encoded as UTF-8"
        ) from None
    return given


def checked_texts(what: str, given: Iterable[str]) -> list[str]:
    """Return an iterable of str as a list; raise a TypeError for others, and for a single str."""
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise wrong_type(what, "a list of str", given)
    texts = list(given)
    for text in texts:
        if not isinstance(text, str):
            raise wrong_type(f"an item of {what}", "a str", text)
    return texts


def raise_of_signal(error: Exception) -> None:
    """Raise an error again if a handler of a signal raised it, which belongs to the program.

    For code that suppresses errors of its own: a handler, as one that limits the time of a task,
    runs at any point of it.
    """
    called = set()
    place = error.__traceback__
    while place is not None:
        code = place.tb_frame.f_code
        # A handler takes two arguments. To ask for all handlers takes long.
        takes_two = code.co_argcount > 1 or code.co_flags & inspect.CO_VARARGS
        if takes_two and not code.co_filename.startswith(_PACKAGE):
            called.add(code)
        place = place.tb_next
    for number in signal.valid_signals() if called else ():
        handler = signal.getsignal(number)
        function = handler.func if isinstance(handler, functools.partial) else handler
        function = function if hasattr(function, "__code__") else type(function).__call__
        if getattr(function, "__code__", None) in called:
            raise error
