"""The summary of a run as text.

The one rule: it adds up. The first line is an equation: on the left the number of records read, on
the right what became of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.verdict_kinds import COUNTED
from ketal.model.wording import counted
from ketal.runtime.silence import unknown_comparisons, vacuity

if TYPE_CHECKING:
    from ketal.programs.program import Program

_RECORDS = {
    "accepted": ("accepted", "accepted"),
    "duplicates": ("duplicate", "duplicates"),
    "rejected": ("rejected", "rejected"),
    "late": ("late", "late"),
    "held_back": ("held back", "held back"),
    "overflow": ("over a limit", "over a limit"),
}
# Count → its noun, and its sentence if it is not zero.
_PATTERN_SENTENCES = {
    "unscoped": ("event", "not judged: {} without the key of `partition by`"),
    "untimed": ("event", "not judged: {} without the time that `within` needs"),
    "halted": (
        "event",
        "not judged: {} after a violation that halted their run (use `on violation resume` to "
        "continue)",
    ),
    "strangers": ("event", "not judged: {} of nodes outside the topology of the pattern"),
    "overflows": (
        "time",
        "incomplete result: a limit was reached {}; the overflow verdicts name the limit and what "
        "was dropped (raise it with --limit NAME=VALUE)",
    ),
    "unknown_types": (
        "event",
        "unknown: {} without the result_type or arg_types that a `call(...)` needs; `*` and "
        "`(..)` need neither",
    ),
    "uncertain": ("verdict", "uncertain: {} that a missed event could change"),
    "marks_forgotten": (
        "time",
        "records of lost events were evicted {} (limits lost_max, candidates_max): every verdict "
        "that may depend on one remains uncertain, but `depends_on` may name fewer events",
    ),
    "guard_failures": (
        "time",
        "unknown: a registered guard failed {}: it raised an exception, or did not return True, "
        "False or None (the logger `ketal` reports the reason)",
    ),
}
_EXECUTION_SENTENCES = {
    "gaps": ("gap", "{}: events that were declared lost"),
    "holes": ("hole", "{}: events that clocks know of and the log lacks"),
    "restarts": (
        "restart",
        "{}: a node whose counter began at 1 again with other content is treated as its next "
        "incarnation (`a#2`); if the log holds several executions, judge each in a log of its own; "
        "if no node restarted, `ketal audit` reports the fault",
    ),
    "impossible": (
        "event",
        "{} with an impossible clock, which knows of an event that comes later in the canonical "
        "order; the result may be wrong, and `ketal audit` reports the fault",
    ),
    "doubtful": (
        "event",
        "{} with a doubtful clock: a node left or restarted, and the clock could not be restored "
        "completely, or may be that of another incarnation",
    ),
    "unknown_orders": (
        "pair",
        "{} of events whose order the clocks do not determine: a `Causal` or `Conc` of such a pair "
        "is unknown, and so not true",
    ),
    "handler_failures": ("handler failure", "{}"),
}


def lines(
    summary: Mapping[str, Any],
    program: Program,
    rejected: Rejected | None,
    *,
    held_back_hint: str = "",
    is_partial: bool = False,
) -> Iterator[str]:
    """Yield the lines of a summary.

    `rejected` is the first rejection, None if it was listed; `held_back_hint` names a missing
    event, or says how to list the events that are held back, if they are not listed; `is_partial`
    whether the log was not judged to its end, so that counts of zero are no answer.
    """
    so_far = " so far" if is_partial else ""
    yield records_equation(summary["events"])
    if rejected is not None:
        yield f"first {rejected}"
    if summary["events"]["held_back"]:
        yield f"held back: waiting for events that did not arrive{held_back_hint}"
    kinds = {compiled.name: compiled.kind for compiled in program.compiled}
    for name, counts in summary["patterns"].items():
        vacuous = counts.get("vacuous", [])
        warnings = vacuity.warnings(kinds[name], vacuous)
        # A vacuous find may be right, if its events are rare. So its vacuity is not a warning, but
        # the reason given for a result without verdicts.
        verdicts = counts.get("violations" if kinds[name] == "check" else "matches")
        reason = f": {vacuous[0]['message']}" if vacuous and not (warnings or verdicts) else ""
        yield f"{name}: {_verdict_counts(kinds[name], counts, vacuous, so_far)}{reason}"
        for warning in warnings:
            yield f"{name}: {warning}"
        for warning in unknown_comparisons.warnings(counts.get("unknown", [])):
            yield f"{name}: {warning}"
        for sentence in _count_sentences(_PATTERN_SENTENCES, counts):
            yield f"{name}: {sentence}"
    for name, drained in summary.get("draining", {}).items():
        verdicts = _verdict_counts("find", drained, (), so_far)
        yield f"{name}: draining: {verdicts} of the previous version of the pattern"
    yield from _count_sentences(_EXECUTION_SENTENCES, summary)


def _count_sentences(
    sentences: dict[str, tuple[str, str]], counts: Mapping[str, Any]
) -> Iterator[str]:
    for key, (noun, sentence) in sentences.items():
        if counts.get(key):
            yield sentence.format(counted(counts[key], noun))


def records_equation(events: dict[str, int]) -> str:
    """Return the equation of the records read and what became of them."""
    parts = {key: events[key] for key in _RECORDS if events[key]} or {"accepted": 0}
    terms = [counted(number, *_RECORDS[key]) for key, number in parts.items()]
    return f"{events['read']:,} read = {' + '.join(terms)}"


def _verdict_counts(
    kind: str, counts: Mapping[str, int], vacuous: Sequence[Mapping[str, Any]], so_far: str
) -> str:
    parts = {key: counts[key] for key in COUNTED if counts.get(key)}
    main_count = "violations" if kind == "check" else "matches"
    terms = [counted(number, *COUNTED[key]) for key, number in parts.items()]
    if kind == "check" and vacuity.judged_nothing(vacuous):
        terms.insert(0, f"no event judged{so_far}")
    elif main_count not in parts:
        terms.insert(0, f"no {COUNTED[main_count][0]}{so_far}")
    return ", ".join(terms)
