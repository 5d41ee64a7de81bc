"""The exit code of a summary: `--fail-on`, `--allow-vacuous`, and checks without an answer.

The one rule: a program with a check ends with 0 only if each record that was read was judged or is
a duplicate, the clocks are possible for an execution, and each check judged an event.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ketal.model.wording import counted
from ketal.runtime.silence.vacuity import judged_nothing

if TYPE_CHECKING:
    from ketal.programs.program import Program

Summary = Mapping[str, Any]


CAUSES = {
    "violation": ("patterns.violations",),
    "match": ("patterns.matches",),
    "incomplete": ("patterns.incomplete",),
    "timed_out": ("patterns.timed_out",),
    "rejected": ("events.rejected",),
    "gap": ("gaps",),
    "hole": ("holes",),
    "restart": ("restarts",),
    "impossible": ("impossible",),
    "doubtful": ("doubtful",),
    "late": ("events.late",),
    "held_back": ("events.held_back",),
    "overflow": ("events.overflow", "patterns.overflows"),
    "unscoped": ("patterns.unscoped",),
    "untimed": ("patterns.untimed",),
    "uncertain": ("patterns.uncertain",),
    "guard_failure": ("patterns.guard_failures",),
    "vacuous": ("patterns.vacuous",),
    "unknown": ("patterns.unknown", "unknown_orders"),
}
"""Cause of `--fail-on` → the counts of a summary that belong to it."""


def occurrences(summary: Summary, cause: str) -> int:
    """Return how often a cause of `--fail-on` occurs in a summary.

    Counts of patterns are summed; of a list the length counts. A count that is absent is 0.
    """
    parts = {
        "": [summary],
        "events": [summary["events"]],
        "patterns": list(summary["patterns"].values()),
    }
    total = 0
    for count in CAUSES[cause]:
        where, _, name = count.rpartition(".")
        values = [part.get(name) or 0 for part in parts[where]]
        total += sum(value if isinstance(value, int) else len(value) for value in values)
    return total


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--fail-on` and `--allow-vacuous`."""
    parser.add_argument(
        "--fail-on",
        type=_causes,
        default=("violation",),
        metavar="WHAT,...",
        help=f"exit with 1 on any of {', '.join(CAUSES)} (default: violation)",
    )
    parser.add_argument(
        "--allow-vacuous",
        action="store_true",
        help="do not fail because a check judged no event of the log",
    )


def _causes(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in CAUSES:
            raise argparse.ArgumentTypeError(
                f"unknown cause {name!r}; choose from {', '.join(CAUSES)}"
            )
    return names


def unjudged_reasons(summary: Summary, program: Program) -> list[str]:
    """Return why the checks of the program did not judge all records, in at most one sentence."""
    if not (checks := _checks(program)):
        return []
    events = summary["events"]
    lost = {
        "rejected": counted(events["rejected"], "record was rejected", "records were rejected"),
        "late": counted(events["late"], "event was late", "events were late"),
        "held_back": counted(events["held_back"], "event is", "events are") + " held back",
        "overflow": counted(events["overflow"], "event was", "events were") + " over a limit",
    }
    parts = [text for name, text in lost.items() if events[name]]
    overflows = sum(summary["patterns"][name].get("overflows", 0) for name in checks)
    if overflows:
        parts.append(f"a limit was reached {counted(overflows, 'time')}")
    if impossible := summary.get("impossible"):
        parts.append(counted(impossible, "event has", "events have") + " an impossible clock")
    who = "the check" if len(checks) == 1 else "the checks"
    return [f"{who} did not judge everything: {', '.join(parts)}"] if parts else []


def empty_check_reasons(summary: Summary, program: Program) -> list[str]:
    """Return a sentence for each check that judged no event."""
    return [
        f"the check {name} judged no event, so the absence of violations shows nothing "
        "(--allow-vacuous accepts this)"
        for name in _checks(program)
        if judged_nothing(summary["patterns"][name].get("vacuous", ()))
    ]


def _checks(program: Program) -> list[str]:
    return [compiled.name for compiled in program.compiled if compiled.kind == "check"]
