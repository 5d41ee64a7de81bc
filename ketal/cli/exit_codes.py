"""When a summary is one to fail on: `--fail-on`, `--allow-vacuous`, and checks without an answer.

The one rule: a program with a check ends with 0 only if each record that was read was judged, or is
a duplicate, the clocks are those of an execution, and each check judged an event.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ketal.model.wording import counted
from ketal.runtime.silence.vacuity import judged_nothing

if TYPE_CHECKING:
    from ketal.programs.program import Program

Summary = Mapping[str, Any]


def _of_patterns(name: str) -> Callable[[Summary], int]:
    """Return the sum of a count over the patterns of a summary; of a list, its length."""

    def total(summary: Summary) -> int:
        values = (counts.get(name) or 0 for counts in summary["patterns"].values())
        return sum(value if isinstance(value, int) else len(value) for value in values)

    return total


def _of_events(name: str) -> Callable[[Summary], int]:
    """Return how many records of a summary became what is named."""
    return lambda summary: int(summary["events"][name])


def _of_execution(name: str) -> Callable[[Summary], int]:
    """Return a count of a summary; those that are rare are absent where they are 0."""
    return lambda summary: int(summary.get(name, 0))


_overflows, _unknown = _of_patterns("overflows"), _of_patterns("unknown")
CAUSES: dict[str, Callable[[Summary], int]] = {
    "violation": _of_patterns("violations"),
    "match": _of_patterns("matches"),
    "incomplete": _of_patterns("incomplete"),
    "timed_out": _of_patterns("timed_out"),
    "rejected": _of_events("rejected"),
    "gap": _of_execution("gaps"),
    "hole": _of_execution("holes"),
    "restart": _of_execution("restarts"),
    "impossible": _of_execution("impossible"),
    "doubtful": _of_execution("doubtful"),
    "late": _of_events("late"),
    "held_back": _of_events("held_back"),
    "overflow": lambda summary: summary["events"]["overflow"] + _overflows(summary),
    "unscoped": _of_patterns("unscoped"),
    "untimed": _of_patterns("untimed"),
    "uncertain": _of_patterns("uncertain"),
    "guard_failure": _of_patterns("guard_failures"),
    "vacuous": _of_patterns("vacuous"),
    "unknown": lambda summary: _unknown(summary) + summary.get("unknown_orders", 0),
}
"""What `--fail-on` takes: name → how many there are in a summary."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--fail-on` and `--allow-vacuous`."""
    parser.add_argument(
        "--fail-on",
        type=_causes,
        default=("violation",),
        metavar="WHAT,...",
        help=f"exit with 1 on any of {', '.join(CAUSES)} (default violation)",
    )
    parser.add_argument(
        "--allow-vacuous",
        action="store_true",
        help="let a check pass that judged no event of the log",
    )


def _causes(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in CAUSES:
            raise argparse.ArgumentTypeError(
                f"there is no {name!r} to fail on; there are {', '.join(CAUSES)}"
            )
    return names


def unjudged(summary: Summary, program: Program) -> list[str]:
    """Return why a check of the program has no answer about all that was read."""
    if all(compiled.kind != "check" for compiled in program.compiled):
        return []
    events = summary["events"]
    lost = {
        "rejected": counted(events["rejected"], "record was rejected", "records were rejected"),
        "late": counted(events["late"], "event was late", "events were late"),
        "held_back": counted(events["held_back"], "event waits", "events wait") + " for others",
        "overflow": counted(events["overflow"], "event was", "events were") + " over a limit",
    }
    parts = [text for name, text in lost.items() if events[name]]
    checks = [compiled.name for compiled in program.compiled if compiled.kind == "check"]
    overflows = sum(summary["patterns"][name].get("overflows", 0) for name in checks)
    if overflows:
        parts.append(f"a limit was reached {counted(overflows, 'time')}")
    if impossible := summary.get("impossible"):
        parts.append(counted(impossible, "event has", "events have") + " an impossible clock")
    return [f"not all was judged by the check: {', '.join(parts)}"] if parts else []


def empty_checks(summary: Summary, program: Program) -> list[str]:
    """Return a sentence for each check that judged no event."""
    return [
        f"the check {compiled.name} judged no event, so that it has no violation shows nothing "
        "(--allow-vacuous allows it)"
        for compiled in program.compiled
        if compiled.kind == "check"
        and judged_nothing(summary["patterns"][compiled.name].get("vacuous", ()))
    ]
