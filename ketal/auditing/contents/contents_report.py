"""The contents of a log, as data and as text for a person who writes a pattern.

Names in the text are in pattern syntax.

The one rule: a line of the text has at most `WIDTH` columns, except the reason of a rejected
record; text that does not fit ends in `…`, and a truncated table names the option that shows the
rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.auditing.contents.log_contents import (
    AttributeStats,
    ConcurrencyStats,
    LeftOut,
    MessageStats,
    TypeStats,
)
from ketal.errors import columns, printable
from ketal.model import syntax
from ketal.model.events.event_time import rfc3339
from ketal.model.wording import counted, fitted, json_text, padded, preformatted

WIDTH = 100
ROWS = 20
"""How many rows of a table, and attributes of a type, are shown."""
SEVERAL = 3
"""How many types with one first word it takes for the text to show a guard that matches them."""
_NAME_COLUMNS, _KINDS_COLUMNS, _EXAMPLE_COLUMNS = 36, 24, 40
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"))


@dataclass(frozen=True, kw_only=True)
class LogStats:
    """The contents of a log, as `ketal.stats` returns them; `str` is what `ketal stats` prints.

    Attributes
    ----------
    events, duplicates, rejected, controls : int
        How many records are events, duplicates of events, no events, and control events. Duplicates
        are in no other count.
    first_rejected : str
        The first rejected record, its place and the reason; empty if there is none.
    repeated : int
        How many events have the dot of another event and other content: their node restarted, or
        they contradict it (`ketal audit` tells which). They are counted as events, but their clocks
        are not compared.
    executions : int
        How many executions the log has.
    timed : int
        How many events have a time.
    first_time, last_time : float or None
        The earliest and the latest time, in seconds since the epoch.
    nodes : dict of str to int
        How many events each node has; the most frequent first.
    types : tuple of TypeStats
        The types of events; the most frequent first.
    attributes : tuple of AttributeStats
        The attributes of all events.
    concurrency : ConcurrencyStats
        The number of concurrent pairs of events.
    messages : MessageStats
        The messages that the clocks imply, by type and by node.
    left_out : tuple of LeftOut
        The limits that were reached, and how much each left out.

    Examples
    --------
    >>> import ketal
    >>> send = ketal.Event(node="a", type="send", clock={"a": 1}, data={"msg": {"id": 7}})
    >>> take = ketal.Event(node="b", type="receive", clock={"a": 1, "b": 1})
    >>> stats = ketal.stats([send, take])
    >>> stats.events, stats.records, stats.nodes, [one.type for one in stats.types]
    (2, 2, {'a': 1, 'b': 1}, ['receive', 'send'])
    >>> [(one.name, one.kinds, one.share) for one in stats.attributes]
    [('msg', {'object': 1}, 0.5), ('msg.id', {'number': 1}, 0.5)]
    >>> stats.concurrency.concurrent_pairs, stats.messages.types
    (0, {('send', 'receive'): 1})
    >>> stats.to_dict()["time"] is None
    True
    """

    events: int
    duplicates: int
    rejected: int
    controls: int
    first_rejected: str
    repeated: int
    executions: int
    timed: int
    first_time: float | None
    last_time: float | None
    nodes: dict[str, int]
    types: tuple[TypeStats, ...]
    attributes: tuple[AttributeStats, ...]
    concurrency: ConcurrencyStats
    messages: MessageStats
    left_out: tuple[LeftOut, ...]

    @property
    def records(self) -> int:
        """How many records were read."""
        return self.events + self.duplicates + self.rejected + self.controls

    def to_dict(self) -> dict[str, Any]:
        """Return the `stats` object of `ketal stats --output json`."""
        out: dict[str, Any] = {
            "records": self.records,
            "events": self.events,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "controls": self.controls,
            "repeated": self.repeated,
            "executions": self.executions,
            "time": None,
            "nodes": [{"node": node, "events": n} for node, n in self.nodes.items()],
            "types": [
                {
                    "type": one.type,
                    "events": one.events,
                    "share": round(one.events / self.events, 6),
                    "attributes": [attribute.to_dict() for attribute in one.attributes],
                }
                for one in self.types
            ],
            "attributes": [one.to_dict() for one in self.attributes],
            "concurrency": self.concurrency.to_dict(),
            "messages": self.messages.to_dict(),
            "left_out": [one.to_dict() for one in self.left_out],
        }
        if self.first_rejected:
            out["first_rejected"] = self.first_rejected
        if self.first_time is not None and self.last_time is not None:
            out["time"] = {
                "events": self.timed,
                "first": rfc3339(self.first_time),
                "last": rfc3339(self.last_time),
            }
        return out

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def lines(
    stats: LogStats, rows: int = ROWS, *, fields: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the report line by line, with at most `rows` rows of each table.

    `fields` are the paths given for fields of the events (`Source`).
    """
    paths = fields or {}
    yield _records(stats)
    if stats.first_rejected:
        yield printable(f"first rejected: {stats.first_rejected}")
    if stats.executions > 1:
        yield f"executions  {stats.executions:,}"
    if stats.events:
        yield _times(stats, paths.get("time"))
        yield from _concurrency(stats)
        yield from _nodes(stats, rows)
        yield from _attributes(stats, rows, paths.get("data"))
        yield from _types(stats, rows)
        if stats.concurrency.of:
            yield from _messages(stats, rows)
    for one in stats.left_out:
        yield f"left out: {_left_out_text(one)}"


def _records(stats: LogStats) -> str:
    parts = [
        counted(stats.events, "event"),
        counted(stats.duplicates, "duplicate") if stats.duplicates else "",
        counted(stats.controls, "control event") if stats.controls else "",
        f"{stats.rejected:,} rejected" if stats.rejected else "",
    ]
    return f"{counted(stats.records, 'record')} = {' + '.join(filter(None, parts))}"


def _times(stats: LogStats, path: str | None) -> str:
    if stats.first_time is None or stats.last_time is None:
        none = f"no event has a time{_place(path)}"
        return f"time        {none} (pass --field time=PATH to name its field)"
    span = _duration(stats.last_time - stats.first_time)
    first, last = rfc3339(stats.first_time), rfc3339(stats.last_time)
    whose = "all events" if stats.timed == stats.events else counted(stats.timed, "event")
    return f"time        {first} to {last} ({span}); {whose}"


def _duration(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            number = seconds / size
            return f"{number:,.0f} {unit}" if number >= 1_000 else f"{number:.4g} {unit}"
    return "0 s" if not seconds else f"{seconds * 1e6:.0f} us"


def _concurrency(stats: LogStats) -> Iterator[str]:
    compared = stats.concurrency
    if not compared.of:
        yield "concurrent  not known: the log has no clocks"
        return
    pairs = compared.concurrent_pairs + compared.ordered_pairs
    share = _share(compared.concurrent_pairs, pairs)
    numbers = f"{compared.concurrent_pairs:,} concurrent, {compared.ordered_pairs:,} ordered"
    if compared.seed is None:
        yield f"concurrent  {share} of {counted(pairs, 'pair')} of events: {numbers}"
    else:
        yield f"concurrent  {share} of the pairs of events in a sample: {numbers};"
        yield (
            f"            the sample has {compared.events:,} of {counted(compared.of, 'event')}, "
            f"drawn with seed {compared.seed} (limit stats_entries_max)"
        )
    if stats.repeated:
        yield (
            f"            not compared: {counted(stats.repeated, 'event')} with the dot of another "
            "event but different content;"
        )
        yield "            run `ketal audit` to check whether a node restarted"


def _nodes(stats: LogStats, rows: int) -> Iterator[str]:
    yield ""
    yield f"nodes ({_count_text(stats, 'nodes', len(stats.nodes))})"
    items = [f"{_quoted(node)} {number:,}" for node, number in stats.nodes.items()]
    # A line has several nodes, so more of them are shown than rows.
    yield from _wrapped(items[: 5 * rows], len(items))


def _wrapped(items: Sequence[str], total: int) -> Iterator[str]:
    line = ""
    for item in items:
        if line and columns(line) + columns(item) + 5 > WIDTH:
            yield f"  {line},"
            line = ""
        line = f"{line}, {item}" if line else fitted(item, WIDTH - 4)
    if line:
        yield f"  {line}"
    yield from _more_line(total - len(items), 2)


def _place(path: str | None) -> str:
    return "" if path is None else f" at {path}"


def _attributes(stats: LogStats, rows: int, path: str | None) -> Iterator[str]:
    yield ""
    if not stats.attributes:
        none = f"no event has any{_place(path)}"
        yield f"attributes: {none} (pass --field data=PATH to name their field)"
        return
    yield f"attributes of all events ({_count_text(stats, 'attributes', len(stats.attributes))})"
    yield from _attribute_rows(stats.attributes, rows)


def _attribute_rows(attributes: Sequence[AttributeStats], rows: int) -> Iterator[str]:
    shown = attributes[:rows]
    table = [
        (
            f"{one.events:,}",
            _share(one.events, one.of),
            fitted(_in_syntax(syntax.Attribute(one.path)), _NAME_COLUMNS),
            fitted(_kinds_text(one), _KINDS_COLUMNS),
            _examples_text(one),
        )
        for one in shown
    ]
    of_name, of_kinds = (max(columns(row[at]) for row in table) for at in (2, 3))
    for events, share, name, kinds, examples in table:
        head = f"  {events:>8}  {share:>6}  {padded(name, of_name)}  {padded(kinds, of_kinds)}"
        yield fitted(f"{head}  {examples}".rstrip(), WIDTH)
    yield from _more_line(len(attributes) - len(shown), 20)


def _types(stats: LogStats, rows: int) -> Iterator[str]:
    # The attributes that every event has, always of one kind.
    everywhere = {a.path for a in stats.attributes if a.events == a.of and len(a.kinds) == 1}
    apart = len(stats.types) > 1
    yield ""
    heading = f"types ({_count_text(stats, 'types', len(stats.types))})"
    if apart and len(everywhere) < len(stats.attributes):
        heading += ", each with the attributes that only some events have"
    yield heading
    for one in stats.types[:rows]:
        share = _share(one.events, stats.events)
        yield fitted(f"  {one.events:>8,}  {share:>6}  {_quoted(one.type)}", WIDTH)
        own = [attribute for attribute in one.attributes if attribute.path not in everywhere]
        if apart and own:
            yield from (fitted(f"  {line}", WIDTH) for line in _attribute_rows(own, rows))
    yield from _more_line(len(stats.types) - rows, 20)
    if len(stats.types) > rows:
        yield from _by_first_word(stats.types)


def _by_first_word(types: Sequence[TypeStats]) -> Iterator[str]:
    """Yield a guard that matches several types, if enough of them begin with the same word."""
    words = Counter(one.type.split(" ")[0] for one in types if " " in one.type)
    for word, number in words.most_common(1):
        if number >= SEVERAL and word.isalnum():
            yield f"  `type matches /^{word} /` accepts {number:,} of them"


def _messages(stats: LogStats, rows: int) -> Iterator[str]:
    messages = stats.messages
    yield ""
    if not messages.pairs:
        yield "messages: the clocks imply none"
    else:
        yield (
            f"messages ({messages.pairs:,}, received by {counted(messages.receives, 'event')}): "
            "according to the clocks, the first event"
        )
        yield "happened immediately before the second, an event of another node"
        yield from _pair_rows(messages.types, rows)
        yield "  from node to node"
        yield from _pair_rows(messages.nodes, rows)
    if messages.unknown:
        yield f"  {counted(messages.unknown, 'event')} may also have received a message: an earlier"
        yield "  event is not in the log, or too far back in it (limit stats_entries_max)"


def _pair_rows(pairs: dict[tuple[str, str], int], rows: int) -> Iterator[str]:
    for (first, second), number in list(pairs.items())[:rows]:
        whole = f"  {number:>8,}  {_quoted(first)} → {_quoted(second)}"
        if columns(whole) <= WIDTH:
            yield whole
        else:
            yield fitted(f"  {number:>8,}  {_quoted(first)}", WIDTH)
            yield fitted(f"          → {_quoted(second)}", WIDTH)
    yield from _more_line(len(pairs) - rows, 12)


# --- wording ---


def _count_text(stats: LogStats, table: str, number: int) -> str:
    more = any(one.what == table for one in stats.left_out)
    return f"{'more than ' if more else ''}{number:,}"


def _more_line(number: int, indent: int) -> Iterator[str]:
    if number > 0:
        yield f"{' ' * indent}… and {number:,} more (--rows, --output json)"


def _left_out_text(one: LeftOut) -> str:
    at = f"limit {one.limit} = {one.most:,}"
    match one.what:
        case "types" | "nodes":
            return f"{counted(one.number, 'event')} of other {one.what} ({at})"
        case "attributes":
            return f"{counted(one.number, 'value')} of other attributes ({at})"
        case "inner attributes":
            return f"{counted(one.number, 'value')} inside {one.most} or more nested objects"
        case "dots":
            return f"{counted(one.number, 'dot')}, whose duplicates are counted as events ({at})"
    return (
        f"{counted(one.number, 'message')} between other {one.what.removeprefix('message ')} ({at})"
    )


def _share(number: int, total: int) -> str:
    share = number / total if total else 0.0
    text = f"{share:.1%}"
    if text == "0.0%" and number:
        return "<0.1%"
    return ">99.9%" if text == "100.0%" and number < total else text


def _quoted(text: str) -> str:
    return _in_syntax(syntax.Literal(text))


def _in_syntax(value: syntax.Value) -> str:
    """Return a value in pattern syntax."""
    from ketal.grammar.printer import render_value

    return printable(render_value(value))


def _kinds_text(one: AttributeStats) -> str:
    if len(one.kinds) == 1:
        return next(iter(one.kinds))
    return ", ".join(f"{kind} {number:,}" for kind, number in one.kinds.items())


def _examples_text(one: AttributeStats) -> str:
    if not one.values:
        return ""
    shown = ", ".join(fitted(_example_text(value), _EXAMPLE_COLUMNS) for value in one.examples)
    number = f"{one.values:,}{'+' if one.more_values else ''}"
    return shown if one.values == len(one.examples) else f"{number} values: {shown}"


def _example_text(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else printable(json_text(value))
