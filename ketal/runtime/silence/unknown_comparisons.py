"""Comparisons that evaluated to unknown: of values of two kinds, or of an absent value.

The one rule: a value makes a comparison unknown if its kind cannot be compared, or differs from the
kinds of all values on the other side. If both sides are attributes of one event, the other side's
kind is that of the same event; if one side is of an event of a run, its kinds are those of all
events that the step can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.counted.comparisons import ComparisonSite, SiteReading
from ketal.engine.statistics.comparison_kinds import ABSENT, KindCounts
from ketal.errors import Span
from ketal.model.wording import counted

Entry = dict[str, Any]
"""An object of the list `vacuous`, or `unknown`, of a pattern in the summary."""
Kinds = tuple[str, ...]
"""The kinds of the values of one event that a comparison read, in the order of the operands."""
_Parts = list[tuple[SiteReading, Counter[Kinds]]]
"""How many events had which kinds, for each reading of a comparison."""


def place_of(compiled: CompiledPattern, span: Span) -> str:
    """Return the place of a span of a pattern's text, as `file:line`."""
    source = compiled.source
    if source is None or source.name.startswith("<"):
        return f"line {span.line}"
    return f"{source.name}:{span.line}"


def unknown_entries(compiled: CompiledPattern, counts: KindCounts) -> list[Entry]:
    """Return the list `unknown` of a pattern, given the kinds that its comparisons read."""
    comparisons, readings = compiled.counted.comparisons
    of_comparison: dict[int, _Parts] = {}
    for number, reading in enumerate(readings):
        counter = Counter({tuple(k.split(",")): n for k, n in counts.get(str(number), {}).items()})
        of_comparison.setdefault(reading.comparison, []).append((reading, counter))
    out: list[Entry] = []
    for number, parts in of_comparison.items():
        comparison = comparisons[number]
        for kind, other_kinds, total, events in sorted(_faults(comparison, parts)):
            shown = kind if kind == ABSENT else f"{kind} with {other_kinds}"
            out.append(_entry(compiled, comparison, shown, events, total))
    return out


def _faults(comparison: ComparisonSite, parts: _Parts) -> set[tuple[str, str, int, int]]:
    """Return the two kinds that were compared, the events read, and how many made it unknown.

    A mismatch of kinds is counted for one side only: the other side would give it once more. An
    absent value is a fault of its own side.
    """
    out: set[tuple[str, str, int, int]] = set()
    mismatched = False
    for reading, counter in parts:
        faults: Counter[tuple[str, str]] = Counter()
        for kinds, events in counter.items():
            sides = _unknown_sides(comparison, reading, kinds, parts)
            if sides is not None:
                faults[sides] += events
        for (kind, other_kinds), events in faults.items():
            if kind == ABSENT or not mismatched:
                out.add((kind, other_kinds, counter.total(), events))
        mismatched = mismatched or any(kind != ABSENT for kind, _ in faults)
    return out


def _unknown_sides(
    comparison: ComparisonSite, reading: SiteReading, kinds: Kinds, parts: _Parts
) -> tuple[str, str] | None:
    """Return (kind, kinds on the other side) of an event's first value that gives unknown.

    Of an absent value the other side is not named: with any kind there, the result is unknown.
    """
    kind_of = dict(zip(reading.operands, kinds, strict=True))
    if comparison.is_key:
        ((_, counter),) = parts
        known = [(count, kind) for (kind,), count in counter.items() if kind != ABSENT]
        usual = max(known, default=(0, ABSENT))[1]
        return None if kinds in ((usual,), (ABSENT,)) else (kinds[0], usual)
    for number, kind in kind_of.items():
        comparable = wanted = comparison.operands[number].kinds
        if comparison.alike:
            other = 1 - number
            wanted = (
                frozenset({kind_of[other]}) if other in kind_of else _operand_kinds(other, parts)
            )
            wanted -= {ABSENT}
        if kind == ABSENT:
            return ABSENT, ""
        if wanted and kind not in wanted & comparable:
            return kind, " or ".join(sorted(wanted))
    return None


def _operand_kinds(number: int, parts: _Parts) -> frozenset[str]:
    """Return the kinds of values that an operand had, over all events."""
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
    of_total = f" of {total:,}" if kinds == ABSENT else ""
    message = f"`{text}` is unknown: {kinds}, {times}{of_total}"
    if comparison.is_key:
        message = (
            f"the key `{text}` of `partition by` has values of two kinds, which are never equal: "
            f"{kinds}, {times}"
        )
    place = {} if span is None else {"place": place_of(compiled, span)}
    return {
        **place, "comparison": text, "kinds": kinds, "events": events, "of": total,
        "message": message,
    }  # fmt: skip


def warnings(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning for each unknown comparison of a pattern that is probably a mistake.

    These are comparisons of values of two kinds, and those whose value was absent from every event;
    that only some events lack an attribute is usual. `entries` is the list `unknown` of the pattern
    in the summary.
    """
    return [
        entry_text(entry)
        for entry in entries
        if entry["kinds"] != ABSENT or entry["events"] == entry["of"]
    ]


def entry_text(entry: Mapping[str, Any]) -> str:
    """Return the message of an entry, preceded by its place if it has one."""
    return f"{entry['place']}: {entry['message']}" if "place" in entry else entry["message"]


def _text(compiled: CompiledPattern, span: Span) -> str:
    if compiled.source is None:
        return "a comparison"
    line = compiled.source.line(span.line)[span.column - 1 :]
    if span.end_line > span.line:
        return f"{line} …"
    return line[: span.end_column - span.column]
