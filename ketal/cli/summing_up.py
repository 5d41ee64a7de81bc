"""The summary of a run, for a person.

The one rule: it adds up. The first line is an equation, `read` on its left and
everything that became of a record on its right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ketal.cli.output import counted, drop_zeros

if TYPE_CHECKING:
    from ketal.program import Program
    from ketal.verdicts import Rejected

MAPPING_HINT = (
    "hint: --field says where an event's fields are (--field type=event --field clock=pkt.vc), "
    "--format and --regex what kind of log it is; see `ketal run --help`"
)

_RECORDS = {
    "accepted": ("accepted", "accepted"),
    "duplicates": ("duplicate", "duplicates"),
    "rejected": ("rejected", "rejected"),
    "late": ("late", "late"),
    "held_back": ("held back", "held back"),
    "overflow": ("over a limit", "over a limit"),
}
_FOUND = {
    "matches": ("match", "matches"),
    "violations": ("violation", "violations"),
    "incomplete": ("incomplete run", "incomplete runs"),
    "timed_out": ("timed out", "timed out"),
}
_NOT_JUDGED = {
    "unscoped": "without the key of `partition by`",
    "untimed": "without the time that `within` needs",
    "halted": "after a violation that halted their run",
    "strangers": "of nodes that its topology does not have",
}


def lines(summary: dict[str, Any], program: Program, rejected: Rejected | None) -> Iterator[str]:
    """Yield the lines of a summary.

    Parameters
    ----------
    summary : dict
        The `summary` object of INTERFACE.
    program : Program
        Whose it is.
    rejected : Rejected or None
        The first rejection, where rejections were not listed.
    """
    yield _records(summary["events"])
    if rejected is not None:
        yield f"first {rejected}"
    if summary["events"]["held_back"]:
        yield "held back: waiting for events that did not come (--stats says which)"
    kinds = {compiled.name: compiled.kind for compiled in program.compiled}
    for name, counts in summary["patterns"].items():
        yield f"{name}: {_found(kinds[name], counts)}"
        for key, what in _NOT_JUDGED.items():
            if counts.get(key):
                yield f"{name}: not judged: {counted(counts[key], 'event')} {what}"
        if counts.get("overflows"):
            times = counted(counts["overflows"], "time")
            yield (
                f"{name}: incomplete answer: a limit was reached {times} and something was given "
                "up; the overflow verdicts name the limit (`ketal limits`, --limit NAME=VALUE)"
            )
        if counts.get("unknown_types"):
            events = counted(counts["unknown_types"], "event")
            yield (
                f"{name}: unknown: {events} without the result_type or arg_types that a "
                "`call(...)` asks for; `*` and `(..)` ask for none"
            )
        if counts.get("uncertain"):
            yield (
                f"{name}: in doubt: {counted(counts['uncertain'], 'verdict')} of these could be "
                "otherwise, had no event been lost"
            )
        if counts.get("marks_forgotten"):
            times = counted(counts["marks_forgotten"], "time")
            yield (
                f"{name}: which lost events a verdict depends on was forgotten {times} beyond "
                "lost_max or candidates_max: all that may depend on one is marked, with fewer names"
            )
        if counts.get("guard_failures"):
            times = counted(counts["guard_failures"], "time")
            yield (
                f"{name}: unknown: a registered guard failed {times}: it raised, or its answer was "
                "none of True, False and None (the log of `ketal` says which)"
            )
    for name, said in summary.get("draining", {}).items():
        found = _found("find", said)
        yield f"{name}: draining: {found}, said by the pattern that it was before"
    if summary["gaps"]:
        yield f"{counted(summary['gaps'], 'gap')}: events that were declared lost"
    if summary["holes"]:
        holes = counted(summary["holes"], "hole")
        yield f"{holes}: events that clocks speak of and the log does not hold"
    if summary.get("restarts"):
        times = counted(summary["restarts"], "restart")
        yield (
            f"{times}: a node whose counter began at 1 again with other content is taken for its "
            "next incarnation (`a#2`); if it is none, `ketal audit` names the fault"
        )
    if summary.get("impossible"):
        events = counted(summary["impossible"], "event")
        yield (
            f"{events} with an impossible clock, which knows of an event that comes later in the "
            "canonical order; the answer may be wrong, and `ketal audit` names the fault"
        )
    if summary.get("doubtful"):
        events = counted(summary["doubtful"], "event")
        yield (
            f"{events} with a doubtful clock: a node left, and what says how much of it was known "
            "is missing, or came too late"
        )
    if summary.get("handler_failures"):
        yield counted(summary["handler_failures"], "handler failure")


def _records(events: dict[str, int]) -> str:
    parts = drop_zeros({key: events[key] for key in _RECORDS}) or {"accepted": 0}
    said = [counted(number, *_RECORDS[key]) for key, number in parts.items()]
    return f"{events['read']:,} read = {' + '.join(said)}"


def _found(kind: str, counts: dict[str, int]) -> str:
    parts = drop_zeros({key: counts.get(key, 0) for key in _FOUND})
    sought = "violations" if kind == "check" else "matches"
    said = [counted(number, *_FOUND[key]) for key, number in parts.items()]
    if sought not in parts:
        said.insert(0, f"no {_FOUND[sought][0]}")
    return ", ".join(said)
