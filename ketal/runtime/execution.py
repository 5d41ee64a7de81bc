"""One execution: every record is identified, released to the pattern runs, and counted.

`Admission` identifies a record: new, a duplicate or a contradiction, and of which incarnation.
A new event goes to a release (`ketal.runtime.release`), which decides when the runs of the patterns
are offered the event: in a stream on arrival or when a hold-back queue releases it, in a finite log
once the whole log is read. Drivers feed an execution and act on the verdicts that it returns:
`Monitor` with handlers, `run` on a finite log, a streaming job with commits. Time advances by
watermarks.

The one rule: every record ends as a verdict or in a count. The counts of the parts of an execution
add up to those of the whole; the findings `vacuous` and `unknown` are computed for the whole only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.errors import EventError
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.event_time import microseconds
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem, no_log_item
from ketal.model.summaries import Tally
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.verdict_kinds import Numbered, Verdict
from ketal.model.wording import shortened
from ketal.programs.program import Program
from ketal.runtime.admission.deduplication import BEYOND, DUPLICATE, NEW, PRESUMED
from ketal.runtime.admission.identification import Admission, keeping_all, reads_clocks
from ketal.runtime.queues.reports import BEHIND_WATERMARK, is_late, late_verdict, overflow_verdict
from ketal.runtime.release import Release
from ketal.runtime.retirement import RetiringRelease
from ketal.runtime.silence.vacuity import MetEvents, PatternMet, add_findings, findings
from ketal.runtime.state.execution_state import ExecutionState, Progress, SavedState
from ketal.runtime.stream_release import StreamRelease
from ketal.runtime.stretches import stretch_of

BATCH_EVENTS = 1_024
"""The most events that a driver passes to `Execution.process` at once."""
BEYOND_NODES: Final = "which names a node beyond those that are remembered"


class Execution:
    """An execution of a distributed program, and the patterns that judge it.

    Parameters
    ----------
    program, limits, listing
        As for `ketal.Monitor`.
    traced : collection of str
        The patterns whose transitions are reported as verdicts.
    name : str
        The execution's name, put in every verdict.
    beside : sequence of CompiledPattern
        The program's other patterns, which another `Execution` runs over the same events:
        whether an event is late or excluded is decided for all patterns together.
    release : type of Release
        Decides when the runs are offered new events.
    make_run : callable
        Makes the run of a pattern, as `PatternRun` does.
    retiring : Program, optional
        The old versions of the patterns of a stream that changed or were removed: each has a time
        window, and finishes its open runs (`ketal.runtime.retirement`).
    on_named : callable, optional
        Called with execution, dot and place of each new event once a node has restarted or left.
    """

    def __init__(
        self,
        program: Program,
        *,
        limits: Limits | None = None,
        listing: bool = True,
        traced: Collection[str] = (),
        name: str = "",
        beside: Sequence[CompiledPattern] = (),
        release: type[Release] = StreamRelease,
        make_run: Callable[..., PatternRun] = PatternRun,
        retiring: Program | None = None,
        on_named: Callable[[str, Dot, str], None] | None = None,
    ) -> None:
        patterns = program.compiled
        run_limits = Limits.given(limits, patterns[0].limits)
        self.name, self._on_named = name, on_named
        self.runs = [
            make_run(c, run_limits, execution=name, listing=bool(listing), traced=c.name in traced)
            for c in patterns
        ]
        self._accepted_max = run_limits.events_max if release.holds_all else sys.maxsize
        admission_limits = keeping_all(run_limits) if release.holds_all else run_limits
        self.admission = Admission(patterns, admission_limits, beside=beside)
        self.release = release(self.runs, self.admission, run_limits, name)
        self.retiring: RetiringRelease | None = None
        if retiring is not None:
            assert isinstance(self.release, StreamRelease), "on a finite log nothing changes"
            shared = self.admission, limits, name, self.release.sees_all
            self.release.retiring = self.retiring = RetiringRelease(retiring, *shared)
        self.progress = Progress.of(patterns)
        parts = self.admission, self.release, self.retiring, self.progress
        self.state = ExecutionState(program, name, *parts)  # saves and restores these parts
        self._reach = sys.maxsize  # how many items of a batch are taken together at most
        self._uses_time = any(c.window_us is not None for c in (*patterns, *beside))

    @classmethod
    def restored(
        cls,
        program: Program,
        state: bytes | Mapping[bytes, bytes],
        *,
        changed: bool = False,
        **options: Any,
    ) -> Self:
        """Return an execution that resumes from a saved state.

        Parameters
        ----------
        program, **options
            As for `Execution`; patterns that were retiring continue to, unless the program changed.
        state : bytes, or mapping of bytes to bytes
            A snapshot; or records, with all later changes applied.
        changed : bool
            Whether the program may differ from that of the state. The seen dots, the membership
            and the held-back events are kept; a pattern that changed starts without runs
            (`ketal.runtime.state.execution_state`), and its old version may be in `retiring`.

        The errors are those of `SavedState` and `ExecutionState.restore`.
        """
        saved = SavedState(program, state, changed=changed)
        options = {"name": saved.execution, "retiring": saved.retiring, **options}
        execution = cls(program, **options)
        execution.state.restore(saved)
        return execution

    def feed(self, item: LogItem, *, place: str = "") -> list[Verdict]:
        """Process one record; return its verdicts.

        `place` is where an event was read, for the verdict if it is rejected.
        """
        return flat(self.process((item,), (place,).__getitem__ if place else None))

    def process(
        self, batch: Sequence[LogItem], place: Callable[[int], str] | None = None
    ) -> list[Numbered]:
        """Process a batch; return the verdicts of its items, as if each were a batch of its own.

        `place` returns where the item at an index was read, for the verdict if it is rejected.
        """
        out: list[Numbered] = []
        index, end = 0, len(batch)
        while index < end:
            room = self._room()
            if room > 0 and self.release.takes_batches:
                after = self._process_stretch(batch, index, min(end, index + room), out)
                if after > index:
                    index = after
                    continue
            item: Any = batch[index]
            if room > 0 and self._admit((item,)):
                verdicts = self._take_new(item)
            else:
                verdicts = self._take(item, "" if place is None else place(index))
            if verdicts:
                out.append((index, verdicts))
            index += 1
        return out

    def _room(self) -> int:
        """Return how many new events may be admitted together, by their dots alone."""
        admission = self.admission
        if admission.membership is not None or admission.closed_topologies or self.progress.ended:
            return 0
        return min(self._reach, self._accepted_max - self.progress.counted.accepted)

    def _admit(self, items: Sequence[Any]) -> int:
        """Admit events in turn, up to the first that is not certainly new; return how many."""
        steady = None if self.release.holds_all else self.admission.steady
        return self.admission.intake.admit(items, steady=steady)

    def _process_stretch(
        self, batch: Sequence[LogItem], begin: int, end: int, out: list[Numbered]
    ) -> int:
        """Process the certainly new events of a batch from `begin` on; add their verdicts to `out`.

        Returned is the index of the first other item, `begin` if it comes first.
        """
        progress, release = self.progress, self.release
        due = release if self._uses_time else None
        stretch = stretch_of(batch, begin, end, progress.watermark_us, due)
        count = self._admit(stretch.events)
        index, mark_us = stretch.after(count)
        # To look further ahead than twice as far as events are admitted may take quadratic time.
        before = self._reach if count == len(stretch.events) else 0
        self._reach = max(before, 2 * (index - begin) + 1)
        if count:
            progress.counted.accepted += count
            progress.observe(new := stretch.events[:count])
            out += [(stretch.numbers[number], verdicts) for number, verdicts in release.offer(new)]
        elif stretch.events or stretch.end == begin:
            return begin
        if mark_us is not None and mark_us != progress.watermark_us:
            progress.watermark_us = mark_us
            ended = release.advance(mark_us)
            assert not ended, "nothing was due"
        return index

    def advance_time(self, watermark: Any) -> list[Verdict]:
        """Process a watermark, a time as in an event, before which no event is expected."""
        return self.feed(Control("watermark", time=watermark))

    def conclude(self) -> Iterator[Verdict]:
        """End the execution; yield the remaining verdicts as they are found."""
        yield from self.feed(Control("end"))
        yield from self.release.remaining()

    def _take(self, item: LogItem, place: str) -> list[Verdict]:
        """Process one record that is not certainly a new event."""
        if not isinstance(item, Event):
            return self._take_non_event(item)
        if self.progress.ended:
            return self._reject(item, place, "the execution has ended (ketal.end)")
        if self.progress.counted.accepted >= self._accepted_max:
            return self._overflow(item, "events_max", "the event")
        admission = self.admission
        excluding = admission.excluding(item) if admission.closed_topologies else ()
        reason = admission.exclusion_reason(item, excluding)
        if reason and not (self.retiring is not None and self.retiring.takes(item)):
            return self._reject(item, place, reason)
        try:
            status, event = admission.take(item)
        except EventError as error:
            # `take` may have begun a membership all the same, which is saved with the state.
            self.release.restore_clocks()
            return self._reject(item, place, error.reason)
        self.release.restore_clocks(event if status is NEW else None)
        if reason:  # only retiring patterns take the event
            assert self.retiring is not None
            own = self.retiring.take_identified(event, event, None, ()) if status is NEW else []
            return own + self._reject(item, place, reason)
        if status is not NEW:
            return self._take_other(event, status)
        if place and self._on_named is not None and admission.membership is not None:
            self._on_named(self.name, event.dot, place)
        return self._take_new(event, [self.runs[n] for n in excluding if n < len(self.runs)])

    def _take_non_event(self, item: Any) -> list[Verdict]:
        """Process a record that is not an event."""
        if isinstance(item, Rejected):
            self.progress.counted.rejected += 1
            return [item]
        if not isinstance(item, Control):
            raise no_log_item(item, "an item to feed")
        if self.progress.ended:
            return []  # control events are not counted among the records
        if item.kind == "watermark":
            before_us, watermark_us = self.progress.watermark_us, microseconds(item.time)
            assert watermark_us is not None
            if before_us is not None and watermark_us <= before_us:
                return []
            self.progress.watermark_us = watermark_us
            return self.release.advance(watermark_us)
        if item.kind == "end":
            self.progress.ended = True
            return self.release.end()
        control = self.admission.control(item)
        if control is None:
            for run in self.runs:
                run.counts.overflows += reads_clocks(run.compiled)
            names = shortened(", ".join(item.members) or item.node or "")
            given_up = f"ketal.{item.kind} of {names}, {BEYOND_NODES}"
            return [overflow_verdict(None, self.name, "nodes_max", given_up)]
        self.release.restore_clocks()
        return self.release.control(control)

    def _take_new(self, event: Event, excluding: Sequence[PatternRun] = ()) -> list[Verdict]:
        """Count a new event and pass it to the release, with its verdict if it is late."""
        late = None
        self.progress.observe((event,))
        if self._uses_time and is_late(event, self.progress.watermark_us):
            self.progress.counted.late += 1
            late = late_verdict(event, self.name, BEHIND_WATERMARK)
        else:
            self.progress.counted.accepted += 1
        return self.release.take(event, late, excluding)

    def _take_other(self, event: Event, status: str) -> list[Verdict]:
        """Process an event that was seen before, or that a limit leaves no room for."""
        if status in (DUPLICATE, PRESUMED):
            verdicts = self.release.take_redelivered(event)
            if verdicts is None:
                self.progress.counted.duplicates += 1
                return []
            self.progress.counted.accepted += 1
            return verdicts
        if status is BEYOND:
            return self._overflow(event, "nodes_max", f"the event, {BEYOND_NODES}")
        given_up = "an event older than the counters that are kept: it may be a duplicate"
        return self._overflow(event, "counters_max", given_up)

    def _reject(self, event: Event, place: str, reason: str) -> list[Verdict]:
        """Reject an event, named as it arrived where its place is not known."""
        self.progress.counted.rejected += 1
        return [Rejected(place=place or str(event.dot), reason=reason, execution=self.name)]

    def _overflow(self, event: Event, limit: str, given_up: str) -> list[Verdict]:
        self.progress.counted.overflow += 1
        return [overflow_verdict(event, self.name, limit, given_up)]

    def drop_retired(self) -> tuple[str, ...]:
        """Drop the retiring patterns if they have finished; return the names of those dropped."""
        retiring = self.retiring
        if retiring is None or not retiring.finished:
            return ()
        assert isinstance(self.release, StreamRelease)
        self.retiring = self.release.retiring = None
        return retiring.program.names

    @property
    def counts(self) -> ExecutionCounts:
        """The counts so far."""
        return ExecutionCounts(self)


@dataclass(frozen=True, slots=True)
class ExecutionCounts:
    """The counts of an execution so far: of records, of verdicts, of events by guard."""

    execution: Execution

    @property
    def live_runs(self) -> int:
        """How many runs, and kept events of a `find any`, are live; also of retiring patterns."""
        retiring = () if self.execution.retiring is None else self.execution.retiring.runs
        return sum(run.live_runs() for run in (*self.execution.runs, *retiring))

    @property
    def tally(self) -> Tally:
        """The outcomes of the records."""
        return self.execution.release.tally(self.execution.progress.counted)

    @property
    def met_events(self) -> MetEvents:
        """Which parts of the patterns the events satisfied."""
        progress, events = self.execution.progress, 0
        if self.execution.release.has_offered:
            events = self.tally.accepted
        patterns = {}
        for run in self.execution.runs:
            name = run.compiled.name
            patterns[name] = PatternMet.of(run, max(0, events - progress.since.get(name, 0)))
        return MetEvents(patterns, progress.names.met(), progress.kinds.met())

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the summary; those of the parts of an execution add up to the whole's."""
        retiring = self.execution.retiring
        return {
            "events": self.tally.to_dict(),
            "patterns": {run.compiled.name: run.counts.to_dict() for run in self.execution.runs},
            **self.execution.release.counts(),
            **({} if retiring is None else {"draining": retiring.summary}),
        }

    @property
    def summary(self) -> dict[str, Any]:
        """The summary: `events`, `patterns`, `gaps`, `holes`, and rarer nonzero counts."""
        out = self.numbers
        compiled = [run.compiled for run in self.execution.runs]
        add_findings(out["patterns"], findings(compiled, self.met_events))
        return out
