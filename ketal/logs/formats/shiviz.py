"""Read and write ShiViz logs: a regular expression matches the events of a text.

The named groups of the expression are the record: `event` is the type, `host` the
node, `clock` the clock, the others are attributes, all of them text. A match may span
lines, so a file is read whole, up to `log_bytes_max`. A second expression, the
delimiter, splits a file into executions. See "Debugging distributed systems:
challenges and options for validation and debugging" (Beschastnikh et al.), whose
tool defines this format.

Expressions are written in JavaScript's or in Python's syntax and run by RE2, in
time linear in the text; `^` and `$` match at every line, as in ShiViz. The
one rule: no text is dropped silently. Text between two matches that is not blank
is rejected, with its place, and an event that could not be read back is not written but an error.

An event is written as a line of text, then a line with host and clock. The text is, separated by
tabs, the type, the attributes as JSON, and if present the id, the time and the received sends.
ShiViz's own expression reads the line as one text; `WRITTEN_REGEX` with `WRITTEN_FIELDS` separates
its parts and so reads back the events that were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ketal.errors import EventError, SettingError
from ketal.logs.decompression import TornError
from ketal.logs.log_records import rejected_record
from ketal.logs.regexes import NAME, compile_regex
from ketal.logs.shape import Item, Shape, brief
from ketal.logs.source import MappedFields, Source
from ketal.logs.streams import LineNumbers, read_whole
from ketal.model.events.event import Event
from ketal.model.events.event_time import rfc3339
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record
from ketal.model.wording import json_text, shortened

DEFAULT_REGEX = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
"""ShiViz's own default: a line of text, then a line with host and clock."""

CLOCK_FIRST_REGEX = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
"""The expression of logs in which the clock comes before the text, as GoVector writes them."""
_CLOCK_FIRST_HINT = (
    "(if a clock comes before the text of its event, as in logs of GoVector, pass --regex "
    f"'{CLOCK_FIRST_REGEX}')"
)
# A text such as `sent {"x":1}` looks like a host and a clock, but the line after it is one too.
_CLOCK_FIRST = re.compile(rb"\s*\S+ \{.*\}$(?!\n\S+ \{.*\}$)", re.MULTILINE)

WRITTEN_REGEX = (
    r"(?<event>.*)\t(?<data>{[^\t\n]*})(?:\tid=(?<id>[^\t\n]*))?(?:\t(?<time>[^\s\[]+))?"
    r"(?:\t(?<receives>\[.*\]))?\n(?<host>\S*) (?<clock>{.*})"
)
"""The expression that reads the output of `shiviz_text`."""
WRITTEN_FIELDS = {"data": "data", "id": "id", "time": "time", "receives": "receives"}
"""The groups of `WRITTEN_REGEX` that are fields, besides ShiViz's own."""

GROUPS = {"node": "host", "type": "event", "clock": "clock"}
"""The default paths of the fields; by default a group `time` is an attribute."""


class _EventRegex(NamedTuple):
    """The expression of events: its text, compiled, and the numbers of its named groups."""

    text: str
    regex: Any
    groups: dict[str, int]


class _ShivizText:
    """The text of a log, as UTF-8 with Unix line ends, and the numbers of its invalid lines."""

    def __init__(self, raw: bytes) -> None:
        self._invalid_lines: set[int] = set()
        self.text = raw.replace(b"\r\n", b"\n")
        try:
            self.text.decode()
        except UnicodeDecodeError:
            lines = self.text.split(b"\n")
            valid = [line.decode(errors="replace").encode() for line in lines]
            self._invalid_lines = {n for n, line in enumerate(lines, 1) if line != valid[n - 1]}
            self.text = b"\n".join(valid)
        self.line = LineNumbers(self.text).number

    def first_nonblank(self, start: int, end: int) -> int:
        """Return the offset of the first non-blank byte in a range."""
        return end - len(self.text[start:end].lstrip())

    def begins_with_clock(self, start: int, end: int) -> bool:
        """Return whether a range begins with a host and a clock that no other clock follows.

        The default expression would give every event the text of the event before it.
        """
        return _CLOCK_FIRST.match(self.text, start, end) is not None

    def has_invalid_line(self, start: int, end: int) -> bool:
        """Return whether a line in a range was not UTF-8."""
        if not self._invalid_lines:
            return False
        return not self._invalid_lines.isdisjoint(range(self.line(start), self.line(end) + 1))

    def unmatched_error(self, start: int, end: int) -> tuple[EventError, int] | None:
        """Return the error for text that no match covers, and its offset; None if it is blank."""
        content = self.text[start:end].strip()
        if not content:
            return None
        head = self.first_nonblank(start, end)
        if self.has_invalid_line(head, head + len(content)):
            return EventError("the text is not valid UTF-8"), head
        count = content.count(b"\n") + 1
        note = f" ({count} lines)" if count > 1 else ""
        excerpt = brief(content[:240].decode(errors="replace").partition("\n")[0])
        return EventError(f"the regular expression does not match the text {excerpt}{note}"), head


def _named_groups(regex: Any) -> dict[str, int]:
    """Return the named groups with their numbers, in the order of the expression."""
    groups = sorted(regex.groupindex.items(), key=lambda group: group[1])
    return {name.decode(): index for name, index in groups}


class _ShivizReader:
    """The compiled expressions and the shape of one log."""

    def __init__(self, source: Source, limits: Limits, mapped: MappedFields | None = None) -> None:
        self._limits = limits
        self._shape = Shape(source, GROUPS, limits, mapped=mapped)
        self._required_groups = [self._shape.paths[name][0] for name in self._shape.required]
        self._regex = None if source.regex is None else self._compile_event_regex(source.regex)
        self._delimiter = self._compile_delimiter(source.delimiter)

    def _compile_event_regex(self, text: str) -> _EventRegex:
        regex = compile_regex(text, limits=self._limits)
        groups = _named_groups(regex)
        missing = [name for name in self._required_groups if name not in groups]
        if missing:
            raise SettingError(
                f"regex has no group {missing[0]!r}; "
                f"it must have the named groups {', '.join(self._required_groups)}, "
                f"for example (?<{missing[0]}>…)"
            )
        return _EventRegex(text, regex, groups)

    def _compile_delimiter(self, text: str | None) -> Any:
        return compile_regex(text, what="delimiter", limits=self._limits) if text else None

    def read_header(self, text: bytes) -> tuple[int, _EventRegex, Any]:
        """Return the offset of the first event, the expression of events, and the delimiter.

        The first two lines of a file may be its expression and its delimiter, which may be empty.
        Options of the source take precedence over them.
        """
        first, _, rest = text.partition(b"\n")
        line = first.decode()
        if not set(NAME.findall(line)).issuperset(self._required_groups):
            return 0, self._regex or self._compile_event_regex(DEFAULT_REGEX), self._delimiter
        second = rest.partition(b"\n")[0]
        begin = min(len(text), len(first) + len(second) + 2)
        if self._regex is not None:
            return begin, self._regex, self._delimiter
        delimiter = self._delimiter or self._compile_delimiter(second.decode().strip())
        return begin, self._compile_event_regex(line.strip()), delimiter

    def items(
        self, text: _ShivizText, start: int, end: int, events: _EventRegex
    ) -> Iterator[tuple[Item | EventError, int]]:
        """Yield (item or EventError, offset) of one execution."""
        needs_hint = events.text == DEFAULT_REGEX and text.begins_with_clock(start, end)
        for item, at in self._matched_items(text, start, end, events):
            if needs_hint and isinstance(item, EventError):
                needs_hint, draft = False, item.draft
                item = EventError(f"{item.reason} {_CLOCK_FIRST_HINT}")
                item.draft = draft
            yield item, at

    def _matched_items(
        self, text: _ShivizText, start: int, end: int, events: _EventRegex
    ) -> Iterator[tuple[Item | EventError, int]]:
        at, matched, bytes_max = start, False, self._limits.line_bytes_max
        for match in events.regex.finditer(text.text, start, end):
            first, last = match.span()
            if first == last:
                continue
            matched = True
            if unmatched := text.unmatched_error(at, first):
                yield unmatched
            at = last
            head = text.first_nonblank(first, last)
            try:
                if last - head > bytes_max:
                    raise EventError(
                        f"the event's text is longer than {bytes_max} bytes "
                        "(limit line_bytes_max) and was skipped"
                    )
                if text.has_invalid_line(head, last):
                    raise EventError("the event's text is not valid UTF-8")
                cells = {name: match[index] for name, index in events.groups.items()}
                record = {name: cell.decode() for name, cell in cells.items() if cell is not None}
                yield self._shape.item(record), head
            except EventError as fault:
                yield fault, head
        if matched:
            if unmatched := text.unmatched_error(at, end):
                yield unmatched
        elif b"\0" in text.text[start:end]:
            reason = "this is not text: it contains NUL bytes"
            hint = "(pass --format if the log has another format)"
            yield EventError(f"{reason} {hint}"), text.first_nonblank(start, end)
        elif text.text[start:end].strip():
            reason = f"the regular expression `{shortened(events.text, 120)}` matches nothing here"
            hint = "(pass --regex for another expression, or --format for another format)"
            yield EventError(f"{reason} {hint}"), text.first_nonblank(start, end)


def check_expressions(source: Source, limits: Limits) -> None:
    """Raise a SettingError if the regex or the delimiter of a source is invalid."""
    _ShivizReader(source, limits)


def read_text(
    name: str,
    chunks: Iterator[bytes],
    source: Source,
    limits: Limits,
    piece_numbers: Iterator[int],
    mapped: MappedFields,
) -> Iterator[Record]:
    """Yield the records of a ShiViz log, in order.

    The files of a log share `piece_numbers`, which yields numbers for executions without a name,
    and `mapped`.
    """
    reader = _ShivizReader(source, limits, mapped)
    raw, damage = read_whole(name, chunks, limits.log_bytes_max, "ShiViz log")
    if isinstance(damage, TornError):
        # Drop the last line, which is incomplete.
        raw = raw[: raw.rfind(b"\n") + 1]
    text = _ShivizText(raw)
    begin, events, delimiter = reader.read_header(text.text)
    name_counts: dict[str, int] = {}
    cuts = [] if delimiter is None else [m for m in delimiter.finditer(text.text, begin) if m[0]]
    if source.delimiter:
        mapped.is_divided = mapped.is_divided or bool(cuts)
    if len(cuts) >= limits.executions_max:
        raise SettingError(
            f"{name} is divided into more than {limits.executions_max} executions "
            "(limit executions_max); raise the limit or split the file"
        )
    for execution, start, end in _split_executions(text.text, begin, cuts, piece_numbers):
        unique_name = execution
        while unique_name in name_counts:
            name_counts[execution] += 1
            unique_name = f"{execution} ({name_counts[execution]})"
        name_counts[unique_name] = 1
        for item, at in reader.items(text, start, end, events):
            if isinstance(item, EventError):
                yield rejected_record(item, name, text.line(at), unique_name)
            else:
                yield unique_name, item, name, text.line(at)
    if damage is not None:
        yield rejected_record(damage, name, text.line(len(text.text)))


def _split_executions(
    text: bytes, begin: int, cuts: Sequence[Any], piece_numbers: Iterator[int]
) -> Iterator[tuple[str, int, int]]:
    """Split the text at matches of a delimiter; yield (name, start, end) of each non-blank part."""
    if not cuts:
        yield "", begin, len(text)
        return
    groups = _named_groups(cuts[0].re)
    index = groups.get("trace", next(iter(groups.values()), 0))
    starts = [(None, begin), *((cut, cut.end()) for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    for (cut, start), end in zip(starts, ends, strict=True):
        if text[start:end].strip():
            execution = (cut[index] or b"").decode().strip() if cut is not None and index else ""
            number = str(next(piece_numbers))
            yield execution or number, start, end


def shiviz_text(executions: Iterable[tuple[str, Iterable[Event]]]) -> str:
    """Return executions as the text of a ShiViz log.

    Several executions are separated by lines `=== NAME ===`. Raises a SettingError for an event
    that could not be read back.
    """
    parts = [(name, list(events)) for name, events in executions]
    lines: list[str] = []
    for name, events in parts:
        if len(parts) > 1:
            lines.append(f"=== {name} ===")
        for event in events:
            if event.node.split() != [event.node]:
                raise SettingError(
                    f"{event.dot}: a host in a ShiViz log must not contain white space, "
                    f"but the node {event.node!r} does"
                )
            if event.type.splitlines() != [event.type]:
                raise SettingError(
                    f"{event.dot}: an event in a ShiViz log must be one line, "
                    f"but the type {event.type!r} is not"
                )
            id_text = event.id or ""
            if id_text.splitlines() not in ([], [id_text]) or "\t" in id_text:
                raise SettingError(
                    f"{event.dot}: an id in a ShiViz log must be one line without tabs, but the "
                    f"id {event.id!r} is not"
                )
            data = msgspec.json.encode(event.data).decode()
            clock = json_text(event.clock)
            id_part = "" if event.id is None else f"\tid={id_text}"
            time = "" if event.time is None else f"\t{rfc3339(float(event.time))}"
            receives = msgspec.json.encode(list(map(str, event.receives))).decode()
            received = f"\t{receives}" if event.receives else ""
            lines += [f"{event.type}\t{data}{id_part}{time}{received}", f"{event.node} {clock}"]
    return "".join(f"{line}\n" for line in lines)
