"""The verdicts that queues report on an execution: lost dots, late and refused events, overflows.

The one rule: a dot is reported once in each of these ways, however many queues report it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar, Final

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.verdicts.execution_verdicts import Gap, Late
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.model.wording import counted
from ketal.operators.order.step import ReleaseStep
from ketal.operators.stateful import Stateful

BEHIND_WATERMARK: Final = "its time is before the watermark"
"""The reason in the verdict `late` of an event whose time is before the watermark."""


def is_late(event: Event, watermark_us: int | None) -> bool:
    """Return whether an event's time is before a watermark; no, if there is no watermark."""
    time_us = None if watermark_us is None else event.time_us
    return time_us is not None and watermark_us is not None and time_us < watermark_us


def overflow_verdict(event: Event | None, execution: str, limit: str, given_up: str) -> Overflow:
    """Return the verdict that an execution, not a pattern, reached a limit, at an event if any."""
    dot = None if event is None else event.dot
    return Overflow(
        **_execution_fields(execution, event), limit=limit, given_up=given_up, event=dot
    )


def late_verdict(event: Event, execution: str, reason: str) -> Late:
    """Return the verdict that an event of an execution is late."""
    return Late(**_execution_fields(execution, event), event=event.dot, reason=reason)


def _execution_fields(execution: str, event: Event | None = None) -> dict[str, Any]:
    time = None if event is None or event.time is None else float(event.time)
    return {"pattern": "", "fingerprint": "", "execution": execution, "time": time}


class Reports(Stateful):
    """Makes the verdicts that the queues report on an execution, once for each dot.

    The last `dots_max` dots are remembered as reported.
    """

    STATE: ClassVar = "late", "refused", "gaps"

    def __init__(self, execution: str, dots_max: int) -> None:
        self.execution = execution
        # How many events were late or refused, and how many dots declared lost.
        self.late = self.refused = self.gaps = 0
        self.several = False  # whether several queues may report the same dot
        # The reported (kind, dot), oldest first, if `several`; saved separately.
        self.reported: OrderedDict[tuple[str, Dot], None] = OrderedDict()
        self._dots_max = dots_max

    def gap_verdicts(self, step: ReleaseStep) -> list[Verdict]:
        """Return the verdicts on the dots that a step declared lost."""
        if not step.gaps:
            return []
        fresh = [dot for dot in step.gaps if self._is_first_report("gap", dot)]
        self.gaps += sum(1 + step.unnamed.get(dot, 0) for dot in fresh)
        return [Gap(**_execution_fields(self.execution), dot=dot) for dot in fresh]

    def late_verdicts(self, event: Event) -> list[Verdict]:
        """Return the verdict on an event that is late in the causal order."""
        if not self._is_first_report("late", event.dot):
            return []
        self.late += 1
        return [late_verdict(event, self.execution, "its place in the causal order has passed")]

    def refused_verdicts(self, event: Event) -> list[Verdict]:
        """Return the verdict on an event that a full queue refused."""
        if not self._is_first_report("refused", event.dot):
            return []
        self.refused += 1
        given_up = "the event, which would have to wait for its past"
        return [overflow_verdict(event, self.execution, "held_back_max", given_up)]

    def given_up_verdict(self, times: int, limit: str, waits: str) -> Overflow:
        """Return the verdict that a limit ended waits, a number of times."""
        return overflow_verdict(None, self.execution, limit, f"{waits}, {counted(times, 'time')}")

    def domains_verdict(self, event: Event, limit: str) -> Overflow:
        """Return the verdict that the domains of an open topology exceeded a limit at an event."""
        given_up = "the relaxed edges: from now on each event waits for its whole past"
        return overflow_verdict(event, self.execution, limit, given_up)

    def forget_refused(self, dot: Dot) -> None:
        """Forget that an event was reported as refused, since it may be refused again."""
        self.reported.pop(("refused", dot), None)

    def is_counted(self, dot: Dot) -> bool:
        """Return whether some queue reported an event as late or refused."""
        return ("late", dot) in self.reported or ("refused", dot) in self.reported

    def _is_first_report(self, way: str, dot: Dot) -> bool:
        """Record that a dot is reported in some way; return whether that is its first report."""
        if not self.several:
            return True
        if (way, dot) in self.reported:
            return False
        self.reported[(way, dot)] = None
        if len(self.reported) > self._dots_max:
            self.reported.popitem(last=False)
        return True
