"""ShiViz logs: a regular expression finds the events of a text.

The expression's named groups are the record: `event` is the type, `host` the
node, `clock` the clock, the others are attributes, all of them text. It may span
lines, so a file is read whole, up to `log_bytes_max`. A second expression, the
delimiter, cuts a file into executions. See "Debugging distributed systems:
challenges and options for validation and debugging" (Beschastnikh et al.), whose
tool this format belongs to.

Expressions are written in JavaScript's or in Python's syntax and run by RE2, in
time linear in the text; `^` and `$` match at every line, as ShiViz has it. The
one rule: nothing is lost in silence. Text between two matches that is not blank
is rejected, with its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ketal.errors import EventError, SettingError
from ketal.logs.decompression import TornError
from ketal.logs.formats.jsonl import Record, rejected
from ketal.logs.regexes import NAME, compile_regex
from ketal.logs.shape import Shape, brief
from ketal.logs.source import Source
from ketal.logs.streams import LineNumbers, whole
from ketal.model.limits import Limits
from ketal.model.wording import shortened

DEFAULT_REGEX = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
"""ShiViz's own: a line of text, then a line with host and clock."""

GROUPS = {"node": "host", "type": "event", "clock": "clock"}
"""Where an event's fields are by default; a group `time` is an attribute."""


def _groups(regex: Any) -> dict[str, int]:
    """Return the named groups and their numbers, in the order of the text."""
    named = sorted(regex.groupindex.items(), key=lambda group: group[1])
    return {name.decode(): index for name, index in named}


class _ShivizReader:
    """The compiled expressions and the shape of one log."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._limits = limits
        self._shape = Shape(source, GROUPS, limits)
        names = ("type", "node") if source.rebuild else ("type", "node", "clock")
        self._needed = [self._shape.paths[name][0] for name in names]
        self.text = source.regex
        self.regex = None if source.regex is None else self._event_regex(source.regex)
        self.delimiter = self.delimiter_of(source.delimiter)

    def _event_regex(self, text: str) -> Any:
        regex = compile_regex(text, limits=self._limits)
        missing = [name for name in self._needed if name not in _groups(regex)]
        if missing:
            raise SettingError(
                f"regex has no group {missing[0]!r}; "
                f"it needs the named groups {', '.join(self._needed)}, as (?<{missing[0]}>…)"
            )
        return regex

    def delimiter_of(self, text: str | None) -> Any:
        return compile_regex(text, what="delimiter", limits=self._limits) if text else None

    def header(self, text: bytes) -> tuple[int, Any, Any]:
        """Return where the log begins, and the expressions of its first two lines.

        A file may begin with its expression and its delimiter, the latter
        perhaps empty; options given from outside go before them.
        """
        first, _, rest = text.partition(b"\n")
        line = first.decode()
        names = NAME.findall(line)
        if not all(name in names for name in self._needed):
            if self.regex is None:
                self.text = DEFAULT_REGEX
                return 0, self._event_regex(DEFAULT_REGEX), self.delimiter
            return 0, self.regex, self.delimiter
        second = rest.partition(b"\n")[0]
        begin = min(len(text), len(first) + len(second) + 2)
        if self.regex is not None:
            return begin, self.regex, self.delimiter
        self.text = line.strip()
        regex = self._event_regex(self.text)
        return begin, regex, self.delimiter or self.delimiter_of(second.decode().strip())

    def item(self, groups: dict[str, int], match: Any) -> Any:
        record: dict[str, Any] = {}
        for name, index in groups.items():
            value = match[index]
            if value is not None:
                record[name] = value.decode()
        return self._shape.item(record)


def check_expressions(source: Source, limits: Limits) -> None:
    """Raise the SettingError of a regex or delimiter that cannot be used."""
    _ShivizReader(source, limits)


def read_text(
    name: str, chunks: Iterator[bytes], source: Source, limits: Limits, pieces: Iterator[int]
) -> Iterator[Record]:
    """Yield the records of a ShiViz log, in its order.

    Parameters
    ----------
    pieces : iterator of int
        Numbers for the executions that have no name, shared by the files of a log.
    """
    reader = _ShivizReader(source, limits)
    raw, damage = whole(name, chunks, limits.log_bytes_max, "ShiViz log")
    if isinstance(damage, TornError):
        # The line in which the data is truncated is incomplete.
        raw = raw[: raw.rfind(b"\n") + 1]
    text, invalid = _cleaned(raw)
    begin, regex, delimiter = reader.header(text)
    used: set[str] = set()
    lines = LineNumbers(text)
    for execution, start, end in _executions(text, begin, delimiter, pieces):
        named, count = execution, 1
        while named in used:
            count += 1
            named = f"{execution} ({count})"
        used.add(named)
        for item, at in _items(text, start, end, regex, reader, lines, invalid):
            if isinstance(item, EventError):
                yield rejected(item, name, lines.number(at), named)
            else:
                yield named, item, name, lines.number(at)
    if damage is not None:
        yield rejected(damage, name, lines.number(len(text)))


def _cleaned(raw: bytes) -> tuple[bytes, frozenset[int]]:
    """Return text that is UTF-8 with plain line ends, and the lines that were not UTF-8."""
    text = raw.replace(b"\r\n", b"\n")
    try:
        text.decode()
        return text, frozenset()
    except UnicodeDecodeError:
        pass
    lines, invalid = text.split(b"\n"), set()
    for index, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError:
            invalid.add(index + 1)
            lines[index] = line.decode(errors="replace").encode()
    return b"\n".join(lines), frozenset(invalid)


def _executions(
    text: bytes, begin: int, delimiter: Any, pieces: Iterator[int]
) -> Iterator[tuple[str, int, int]]:
    """Cut the text at the delimiter; yield (name, start, end) of each part that is not blank."""
    cuts = [] if delimiter is None else [m for m in delimiter.finditer(text, begin) if m.group()]
    if not cuts:
        yield "", begin, len(text)
        return
    groups = _groups(delimiter)
    index = groups.get("trace", next(iter(groups.values()), 0))
    starts = [(None, begin), *((cut, cut.end()) for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    for (cut, start), end in zip(starts, ends, strict=True):
        if text[start:end].strip():
            named = (cut[index] or b"").decode().strip() if cut is not None and index else ""
            number = str(next(pieces))
            yield named or number, start, end


def _items(
    text: bytes,
    start: int,
    end: int,
    regex: Any,
    reader: _ShivizReader,
    lines: LineNumbers,
    invalid: frozenset[int],
) -> Iterator[tuple[Any, int]]:
    """Yield (item or EventError, offset) of one execution."""
    groups = _groups(regex)
    at, matched = start, False
    for match in regex.finditer(text, start, end):
        first, last = match.span()
        if first == last:
            continue
        matched = True
        if lost := _between(text, at, first, invalid, lines):
            yield lost
        at = last
        head = _first_word(text, first, last)
        try:
            if invalid and _touches(invalid, lines, head, last):
                raise EventError("the event's text is not valid UTF-8")
            yield reader.item(groups, match), head
        except EventError as fault:
            yield fault, head
    if matched:
        if lost := _between(text, at, end, invalid, lines):
            yield lost
    elif b"\0" in text[start:end]:
        reason = "this is no text: it holds bytes that are zero (--format says what it is)"
        yield EventError(reason), _first_word(text, start, end)
    elif text[start:end].strip():
        reason = (
            f"the regular expression `{shortened(reader.text or '', 120)}` matches nothing here"
        )
        hint = "(--regex gives another one, --format another kind of log)"
        yield EventError(f"{reason} {hint}"), _first_word(text, start, end)


def _first_word(text: bytes, start: int, end: int) -> int:
    """Return the offset of the first byte that is not blank."""
    return end - len(text[start:end].lstrip())


def _touches(invalid: frozenset[int], lines: LineNumbers, start: int, end: int) -> bool:
    first = lines.number(start)
    return any(line in invalid for line in range(first, lines.number(end) + 1))


def _between(
    text: bytes, start: int, end: int, invalid: frozenset[int], lines: LineNumbers
) -> tuple[EventError, int] | None:
    """Return the fault of text that no match covers, unless it is blank."""
    left = text[start:end].strip()
    if not left:
        return None
    head = _first_word(text, start, end)
    if invalid and _touches(invalid, lines, head, head + len(left)):
        return EventError("the text is not valid UTF-8"), head
    count = left.count(b"\n") + 1
    much = f" ({count} lines)" if count > 1 else ""
    shown = brief(left[:240].decode(errors="replace").partition("\n")[0])
    return EventError(f"the regular expression does not match the text {shown}{much}"), head
