"""Retirement: patterns that a new program changes or removes finish their open runs.

After the change, each new event is also offered to a second release, which shares the admission
(`StreamRelease.retiring`) and has the runs of the patterns that changed or were removed. They
report the matches and time-outs with at least one event from before the change, and the new
patterns those with none, so each occurrence is reported by one program. Verdicts on the
execution (late, lost, rejected) are reported by the new program.

Every retiring pattern has a time window, so eventually no run and no queue holds an event from
before the change, and the runs are dropped. This is found by a scan of the held events, since the
watermark alone does not show it.

The one rule: an event is before the change or after it, of each pattern, and never both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.engine.check_run import CheckRun
from ketal.engine.pattern_run import PatternRun
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.execution_verdicts import Late
from ketal.model.verdicts.find_verdicts import FindVerdict
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.operators.topology.domains import closed_nodes, takes_part
from ketal.programs.program import Program
from ketal.runtime.admission.identification import Admission, reads_clocks
from ketal.runtime.queues.execution_queues import Queues
from ketal.runtime.queues.reports import is_late, late_verdict
from ketal.runtime.stream_release import JobRelease


@dataclass(frozen=True)
class Before:
    """The dots seen before a change, except the pending ones.

    The new pattern may still be offered the pending ones. `seen` is as in `SeenDots`.
    """

    seen: Mapping[str, tuple[int, frozenset[int]]]
    pending: frozenset[Dot]

    @classmethod
    def of(cls, seen: Mapping[str, Sequence[Any]], pending: Iterable[Dot] = ()) -> Before:
        """Return the dots that `Intake.seen` returned, except those that are pending."""
        own = {node: (upto, frozenset(beyond)) for node, (upto, beyond) in seen.items()}
        return cls(own, frozenset(pending))

    def __contains__(self, dot: Dot) -> bool:
        upto, beyond = self.seen.get(dot.node, (0, ()))
        return (dot.counter <= upto or dot.counter in beyond) and dot not in self.pending

    def save(self) -> Any:
        """Return the dots as plain data."""
        seen = {node: [upto, sorted(beyond)] for node, (upto, beyond) in self.seen.items()}
        return [seen, sorted(map(list, self.pending))]

    @classmethod
    def load(cls, value: Any) -> Before:
        """Return the dots that `save` returned as plain data."""
        seen, pending = value
        return cls.of(seen, (Dot(*dot) for dot in pending))


class RetiringRelease(JobRelease):
    """The release of retiring patterns; it returns only the verdicts that they have to report.

    Its program has the old versions of the patterns that changed or were removed; each has a time
    window. It shares the execution's admission, so an event is identified once.
    """

    def __init__(
        self,
        program: Program,
        admission: Admission,
        limits: Limits | None,
        name: str,
        sees_all: bool,
    ) -> None:
        self.sees_all = sees_all
        limits = Limits.given(limits, program.compiled[0].limits)
        reads = any(map(reads_clocks, program.compiled))
        self._alone_reads_clocks = reads and not admission.reads_clocks
        admission.reads_clocks |= reads
        runs = [PatternRun(compiled, limits, execution=name) for compiled in program.compiled]
        super().__init__(runs, admission, limits, name)
        self.program = program
        self.before: dict[str, Before] = {}  # for each pattern, the dots from before the change
        # For each pattern, how many verdicts of each kind it has reported since the change.
        self.reported: dict[str, Counter[str]] = {name: Counter() for name in program.names}
        self._limits, self._name = limits, name
        closed = ((run, closed_nodes(run.compiled.pattern.topology)) for run in runs)
        self._closed = [(run, nodes) for run, nodes in closed if nodes is not None]
        self._windows_us = {c.name: c.window_us or 0 for c in program.compiled}
        self._next_scan_us: int | None = None

    def begin(self, queues: Queues) -> None:
        """Start: all dots seen so far are before the change, but for those pending in `queues`."""
        seen = self._admission.intake.seen()
        for name in self.program:
            queue = queues.queue_of(name)
            self.before[name] = Before.of(seen, () if queue is None else queue.pending())

    # --- as a release ---

    def takes(self, event: Event) -> bool:
        """Return whether some pattern's topology has the node of an event, or is open."""
        return len(self._excluding(event)) < len(self.runs)

    def take_identified(
        self, event: Event, known: Event, late: Late | None, excluding: Sequence[PatternRun]
    ) -> list[Verdict]:
        """Pass a new event to the runs and the queues; these decide again whether it is late."""
        excluding = self._excluding(event)
        if len(excluding) == len(self.runs):
            return []
        late = late_verdict(event, "", "") if is_late(event, self.queues.watermark_us) else None
        return self._select_reports(super().take_identified(event, known, late, excluding))

    def take_redelivered(self, event: Event) -> list[Verdict] | None:
        """Process a redelivered event: push it to the queues that had refused it."""
        return self._select_reports(super().take_redelivered(event) or [])

    def control(self, control: Control) -> list[Verdict]:
        """Apply a `join`, `leave` or `view` whose nodes are named by incarnation."""
        out = self._select_reports(super().control(control))
        self.drop_if_finished(self.queues.watermark_us)
        return out

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Advance the queues and the windows to a watermark that is higher than the last."""
        out = self._select_reports(super().advance(watermark_us))
        self.drop_if_finished(watermark_us)
        return out

    def end(self) -> list[Verdict]:
        """End every queue, window and run; drop the runs."""
        out = self._select_reports(super().end())
        self._drop()
        return out

    def _excluding(self, event: Event) -> list[PatternRun]:
        """Return the runs whose closed topology lacks the node of an event."""
        return [run for run, nodes in self._closed if not takes_part(event.node, nodes)]

    def _select_reports(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return, and count, the verdicts that the retiring patterns have to report."""
        out: list[Verdict] = []
        for verdict in verdicts:
            if not isinstance(verdict, IdentifiedVerdict) or not verdict.pattern:
                continue  # on the execution: the release of the new program reports it
            if isinstance(verdict, FindVerdict):
                before = self.before[verdict.pattern]
                if not any(dot in before for _, dot in verdict.steps):
                    continue
            elif not isinstance(verdict, Overflow):
                continue
            self.reported[verdict.pattern][verdict.kind] += 1
            out.append(verdict)
        return out

    @property
    def summary(self) -> dict[str, dict[str, int]]:
        """How many matches and time-outs each pattern has reported since the change."""
        return {
            name: {"matches": counts["match"], "timed_out": counts["timed_out"]}
            for name, counts in self.reported.items()
        }

    # --- end of retirement ---

    @property
    def finished(self) -> bool:
        """Whether the patterns have nothing left to report and their runs are dropped."""
        return not self.runs

    def drop_if_finished(self, watermark_us: int | None) -> None:
        """Drop the runs once neither they nor their queues hold an event from before the change.

        The next scan is due when the windows of the events found by the last one have ended.
        """
        if self._next_scan_us is not None and (
            watermark_us is None or watermark_us < self._next_scan_us
        ):
            return
        holding = [
            (event, self._windows_us[name])
            for name, before in self.before.items()
            for event in self._held_events(name)
            if event.dot in before
        ]
        if not holding:
            self._drop()
            return
        ends_us = [e.time_us + window_us for e, window_us in holding if e.time_us is not None]
        if watermark_us is not None:
            # Events held back for a missing dot: the next scan is after the longest window.
            ends_us.append(watermark_us + max(self._windows_us.values()))
        self._next_scan_us = max(ends_us, default=0)

    def _held_events(self, name: str) -> Iterator[Event]:
        """Yield the events that the run and the queue of a pattern hold for later verdicts."""
        for run in self.runs:
            if run.compiled.name == name:
                for scope in run.scopes.by_name.values():
                    if not isinstance(scope.run, CheckRun):
                        yield from (one.event for one in scope.run.events())
        queue = self.queues.queue_of(name)
        if queue is not None:
            yield from (event for event, _ in queue.held_back())

    def _drop(self) -> None:
        """Drop the runs and their queues; keep the counts of reported verdicts."""
        super().__init__((), self._admission, self._limits, self._name)
        self._closed = []
        if self._alone_reads_clocks:
            self._admission.reads_clocks = False

    # --- state ---

    def load(self, reported: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Load the counts of reported verdicts, and the saved `Before` of each pattern."""
        self.before = {name: Before.load(row) for name, row in before.items()}
        self.reported = {name: Counter(counts) for name, counts in reported.items()}
