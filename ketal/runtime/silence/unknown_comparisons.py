"""Comparisons that came out unknown: of values of two kinds, or of an absent value.

The one rule: a value is unknown in a comparison if its kind cannot be compared, or is that of no
value that it was compared with. Of two attributes of one event both kinds are known; of an event of
a run, the kinds of all events that the step can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.counted.comparisons import ComparisonSite, SiteReading
from ketal.engine.statistics.comparison_kinds import ABSENT, Counts
from ketal.errors import Span
from ketal.model.wording import counted

Entry = dict[str, Any]
"""An object of the list `vacuous`, or `unknown`, of a pattern in the summary."""
Kinds = tuple[str, ...]


def place_of(compiled: CompiledPattern, span: Span) -> str:
    """Return where something stands, as `file:line`."""
    source = compiled.source
    if source is None or source.name.startswith("<"):
        return f"line {span.line}"
    return f"{source.name}:{span.line}"


def unknown(compiled: CompiledPattern, counts: Counts) -> list[Entry]:
    """Return the list `unknown` of a pattern, by the kinds that its comparisons read."""
    comparisons, readings = compiled.counted.comparisons
    of_comparison: dict[int, list[tuple[SiteReading, Counter[Kinds]]]] = {}
    for number, reading in enumerate(readings):
        counter = Counter({tuple(k.split(",")): n for k, n in counts.get(str(number), {}).items()})
        of_comparison.setdefault(reading.comparison, []).append((reading, counter))
    out: list[Entry] = []
    for number, parts in of_comparison.items():
        comparison = comparisons[number]
        total = sum(parts[0][1].values())
        for (what, other), events in sorted(_unknown_kinds(comparison, parts).items()):
            shown = what if what == ABSENT else f"{what} with {other}"
            out.append(_entry(compiled, comparison, shown, events, total))
    return out


def _unknown_kinds(
    comparison: ComparisonSite, parts: list[tuple[SiteReading, Counter[Kinds]]]
) -> Counter[tuple[str, str]]:
    """Return how many events have a value of a kind that the comparison does not know."""
    out: Counter[tuple[str, str]] = Counter()
    for reading, counter in parts:
        for kinds, events in counter.items():
            fault = next(_faults(comparison, reading, kinds, parts), None)
            if fault is not None:
                out[fault] += events
        if out:  # the other side has the same fault
            break
    return out


def _faults(
    comparison: ComparisonSite,
    reading: SiteReading,
    kinds: Kinds,
    parts: list[tuple[SiteReading, Counter[Kinds]]],
) -> Iterator[tuple[str, str]]:
    """Yield the kinds of an event's values that are unknown in a comparison, and the others'."""
    own = dict(zip(reading.operands, kinds, strict=True))
    if comparison.is_key:
        ((_, counter),) = parts
        known = [(count, what) for (what,), count in counter.items() if what != ABSENT]
        usual = max(known, default=(0, ABSENT))[1]
        if kinds not in ((usual,), (ABSENT,)):
            yield kinds[0], usual
        return
    for number, what in own.items():
        comparable = wanted = comparison.operands[number].kinds
        if comparison.alike:
            other = 1 - number
            wanted = frozenset({own[other]}) if other in own else _seen(other, parts)
            wanted -= {ABSENT}
        if what == ABSENT or (wanted and what not in wanted & comparable):
            yield what, " or ".join(sorted(wanted))


def _seen(number: int, parts: list[tuple[SiteReading, Counter[Kinds]]]) -> frozenset[str]:
    """Return the kinds of the values of an operand."""
    return frozenset(
        kinds[reading.operands.index(number)]
        for reading, counter in parts
        if number in reading.operands
        for kinds in counter
    )


def _entry(
    compiled: CompiledPattern, comparison: ComparisonSite, kinds: str, events: int, total: int
) -> Entry:
    span = comparison.span
    text = "a comparison" if span is None else _text(compiled, span)
    times = counted(events, "event")
    of = f" of {total:,}" if kinds == ABSENT else ""
    message = f"`{text}` is unknown: {kinds}, {times}{of}"
    if comparison.is_key:
        message = (
            f"the key `{text}` of `partition by` is of two kinds, never equal: {kinds}, {times}"
        )
    place = {} if span is None else {"place": place_of(compiled, span)}
    return {
        **place, "comparison": text, "kinds": kinds, "events": events, "of": total,
        "message": message,
    }  # fmt: skip


def warnings(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is to be said of the comparisons of a pattern.

    That is each one of values of two kinds, and of absent values the one that was never known: that
    some events lack an attribute is usual.

    Parameters
    ----------
    entries : sequence of mapping
        The list `unknown` of the pattern in the summary.
    """
    return [
        entry_text(entry)
        for entry in entries
        if entry["kinds"] != ABSENT or entry["events"] == entry["of"]
    ]


def entry_text(entry: Mapping[str, Any]) -> str:
    """Return the message of an entry, after its place where it has one."""
    return f"{entry['place']}: {entry['message']}" if "place" in entry else entry["message"]


def _text(compiled: CompiledPattern, span: Span) -> str:
    if compiled.source is None:
        return "a comparison"
    lines = compiled.source.text.splitlines()[span.line - 1 : span.end_line]
    end = span.end_column - 1 if span.end_line == span.line else None
    return lines[0][span.column - 1 : end] + ("" if len(lines) == 1 else " …")
