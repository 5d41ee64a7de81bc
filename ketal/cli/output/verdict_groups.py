"""Verdicts of one cause, for people: the first ones line by line, the others as a count.

The cause of a violation is the type of its event and what was expected; of an overflow it is the
limit and what was given up, of a rejection the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.model.wording import counted

SINGLY = 3
"""Verdicts of one cause that have a line of their own."""
CAUSES_MAX = 1_000
"""Causes that are counted; each verdict of a further one has a line."""


@dataclass
class _CauseCount:
    """The verdicts of one cause: how many, and where the first one was."""

    first: str
    count: int = 0


class VerdictGroups:
    """Counts the verdicts of each cause; `place_of` returns where the event of one stands."""

    def __init__(self, place_of: Callable[[Verdict], str]) -> None:
        self._place_of = place_of
        self._groups: dict[tuple[str, str], _CauseCount] = {}

    def shows(self, verdict: Verdict) -> bool:
        """Count a verdict; return whether it has a line of its own."""
        cause = _cause(verdict)
        if cause is None:
            return True
        group = self._groups.get(cause)
        if group is None:
            if len(self._groups) >= CAUSES_MAX:
                return True
            group = self._groups[cause] = _CauseCount(self._first(verdict))
        group.count += 1
        return group.count <= SINGLY

    def _first(self, verdict: Verdict) -> str:
        event = getattr(verdict, "event", None)
        place = self._place_of(verdict)
        return " at ".join(part for part in ("" if event is None else str(event), place) if part)

    def lines(self) -> Iterator[str]:
        """Yield a line for each cause of which not every verdict had one."""
        for (kind, cause), group in self._groups.items():
            if group.count > SINGLY:
                times = counted(group.count, "time")
                first = f", first {group.first}" if group.first else ""
                yield f"{kind} {cause}: {times}{first}"


def _cause(verdict: Verdict) -> tuple[str, str] | None:
    match verdict:
        case Violation():
            return (
                verdict.kind,
                f"{verdict.pattern}: {verdict.type}: {verdict.reason.partition(';')[0]}",
            )
        case Overflow():
            of = f"{verdict.pattern}: " if verdict.pattern else ""
            return verdict.kind, f"{of}limit {verdict.limit} reached: {verdict.given_up}"
        case Rejected():
            return verdict.kind, verdict.reason
    return None
