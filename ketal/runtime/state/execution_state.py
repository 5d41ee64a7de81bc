"""The state of an execution: a snapshot in one piece, or records and which of them are dirty.

`ketal.runtime.state.records` encodes the parts of an execution as records; this module adds the
program's fingerprints, so that a state is restored under its own program, or, if the caller allows
a change, under another one.

The seen dots, the membership and the held-back events belong to the execution and not to a
pattern. A new program takes them over, and with them the runs of the patterns that did not change;
a pattern that changed (`ketal.runtime.state.program_records` compares) starts with no run. A queue
of the new program with the policy and the topology of a saved queue resumes from that queue's
state, with its own options (`gap`, `idle`, `nodes`, `overflow`, a length): held events are released
to the new patterns. Any other queue starts with all seen dots counted as released, and a pattern
without a queue starts with the next event.

The one rule: the first records with all later changes applied restore the state at the last change;
seen dots stay seen, and held events are released, whatever the program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.statistics.comparison_kinds import ProgramKinds
from ketal.engine.statistics.log_names import LogNames
from ketal.errors import OtherProgramError, StateError, wrong_type
from ketal.model.events.event import Event
from ketal.model.summaries import Tally
from ketal.programs.program import Program, checked_program
from ketal.runtime.admission.identification import Admission
from ketal.runtime.queues.pattern_queues import PatternQueue
from ketal.runtime.release import Release
from ketal.runtime.retirement import RetiringRelease
from ketal.runtime.state.program_records import changes, mark, program_data, saved_program
from ketal.runtime.state.recorder import Recorder
from ketal.runtime.state.records import (
    OTHERS,
    Changes,
    Records,
    damage_refused,
    decode_snapshot,
    encode_snapshot,
    without_removed,
)
from ketal.runtime.state.release_recorder import ReleaseRecorder, RetiringRecorder
from ketal.runtime.stream_release import StreamRelease


@dataclass(slots=True)
class Progress:
    """The counts and the watermark of an execution."""

    names: LogNames  # the names of the program that no event has had
    kinds: ProgramKinds  # the kinds of the values that the program's comparisons read
    since: dict[str, int] = field(default_factory=dict)
    """For each pattern that changed under a stream, how many events were accepted before."""
    counted: Tally = field(default_factory=Tally)  # the outcomes of the records when they were read
    watermark_us: int | None = None  # the last watermark; None before the first one
    ended: bool = False  # whether the execution has ended

    @classmethod
    def of(cls, patterns: Sequence[CompiledPattern]) -> Self:
        """Return the progress of a new execution."""
        named = (name for one in patterns for name in one.counted.named_values)
        names = LogNames(named, causal=any(one.counted.depends_on_causality for one in patterns))
        return cls(names, ProgramKinds(patterns))

    def observe(self, new: Sequence[Event]) -> None:
        """Count the names of new events, and the kinds of the values that comparisons read."""
        self.names.sample(new)
        self.kinds.sample(new)


class SavedState:
    """A saved state that was decoded and compared with a program.

    The arguments are those of `Execution.restored`. A StateError if the state is invalid; an
    OtherProgramError, which says what changed, if it is of another program and `changed` is false.
    """

    def __init__(
        self, program: Program, state: bytes | Mapping[bytes, bytes], *, changed: bool = False
    ) -> None:
        new_marks = {c.name: mark(c) for c in checked_program(program).compiled}
        if not isinstance(state, bytes | Mapping):
            raise wrong_type("state", "bytes from snapshot(), or records", state)
        self.records = decode_snapshot(state) if isinstance(state, bytes) else state
        self.read = Records(self.records)  # the same records, by kind
        with damage_refused():
            saved = self.read.body("program")
            old_marks = saved["marks"]
            difference = changes(old_marks, new_marks)
            old_prints = {name: one["fingerprint"] for name, one in old_marks.items()}
            # The patterns that did not change.
            self.unchanged = [
                n for n in new_marks if old_prints.get(n) == new_marks[n]["fingerprint"]
            ]
            self.execution: str = saved["execution"]
        if difference and not changed:
            raise OtherProgramError(difference)
        # The retiring patterns of the state, compiled again; None if the program changed.
        self.retiring: Program | None = None
        if self.read.retiring is not None and not changed:
            with damage_refused():
                self.retiring = saved_program(self.read.retiring)
        self.changed = changed
        # Whether later changes can be tracked: only after records of the same program.
        self.tracked = not (isinstance(state, bytes) or changed)


@dataclass(eq=False)
class ExecutionState:
    """Saves the state of an execution from its parts, or restores it into parts just made."""

    program: Program
    name: str
    admission: Admission
    release: Release
    retiring: RetiringRelease | None
    progress: Progress
    _recorder: Recorder | None = field(default=None, init=False)  # None until changes are tracked
    _replaced: tuple[bytes, ...] = field(default=(), init=False)  # records of the previous program

    def snapshot(self) -> bytes:
        """Return the state as a snapshot."""
        return encode_snapshot(without_removed(self._changes(self._new_recorder(tracking=False))))

    def records(self) -> dict[bytes, bytes]:
        """Return the state as records, and track changes from now on.

        There is a record for each small part and each scope, and for each chunk of a part that
        grows with the number of events (`ketal.runtime.state.records`).
        """
        self._recorder = self._new_recorder(tracking=True)
        return without_removed(self._changes(self._recorder))

    def changes(self) -> Changes:
        """Return what changed since the last call of `changes` or `records`, or since `restore`.

        These are the records that are new or have another value, and None for removed ones; all
        records, if no call came before.
        """
        if self._recorder is None:
            return {**dict.fromkeys(self._replaced), **self.records()}
        return self._changes(self._recorder)

    def restore(self, saved: SavedState) -> None:
        """Load a saved state into the execution, which has processed nothing yet.

        A StateError if the state is damaged, or holds back more than `held_back_max`.
        """
        progress, release = self.progress, self.release
        assert isinstance(release, StreamRelease), "a finite log is not saved"
        recorder = self._new_recorder(tracking=saved.tracked)
        retiring = self.retiring
        if saved.retiring is not None and retiring is None:
            raise StateError(
                "the state has patterns that are being drained: only a job can resume from it"
            )
        queues = [release.queues] if retiring is None else [release.queues, retiring.queues]
        with damage_refused():
            core = saved.read.body("core")
            progress.counted = Tally(**core["tally"])
            progress.watermark_us, progress.ended = core["watermark_us"], core["closed"]
            for one in queues:
                one.watermark_us = progress.watermark_us
            progress.since = dict(core["since"])
            progress.names.load(core["names"])
            progress.kinds.load(core["kinds"])
            if saved.changed:
                names = self.program.names
                changed = [name for name in names if name not in saved.unchanged]
                progress.since |= dict.fromkeys(changed, progress.counted.accepted)
                _load_under_changed_program(recorder, saved.read, saved.unchanged)
                self._replaced = tuple(k for k in saved.records if not k.startswith(OTHERS))
                if retiring is not None:
                    retiring.begin(release.queues)
            else:
                recorder.load(saved.read)
            if retiring is not None:
                retiring.drop_if_finished(None)
        for queue in (queue.hold_back for group in queues for queue in group.queues):
            if len(queue) > queue.options.held_back_max:
                raise StateError(
                    f"the state has {len(queue)} held-back events, more than "
                    f"{queue.options.held_back_max} (limit held_back_max)"
                )
        if saved.tracked:
            self._recorder = recorder

    def _new_recorder(self, *, tracking: bool) -> Recorder:
        assert isinstance(self.release, StreamRelease), "a finite log is not saved"
        retiring = None
        if self.retiring is not None:
            program = program_data(self.retiring.program)
            retiring = RetiringRecorder(self.retiring, program, tracking=tracking)
        own = ReleaseRecorder(self.release, tracking=tracking)
        return Recorder(self.admission, own, retiring, tracking=tracking)

    def _changes(self, recorder: Recorder) -> Changes:
        progress = self.progress
        core = {
            "tally": asdict(progress.counted),
            "watermark_us": progress.watermark_us,
            "closed": progress.ended,
            "names": progress.names.save(),
            "kinds": progress.kinds.save(),
            "since": dict(sorted(progress.since.items())),
        }
        return recorder.changes(self._program_data, core)

    @cached_property
    def _program_data(self) -> dict[str, Any]:
        """The program and the execution's name, as plain data."""
        return {**program_data(self.program), "execution": self.name}


# --- under another program ---


def _load_under_changed_program(
    recorder: Recorder, read: Records, unchanged: Collection[str]
) -> None:
    """Load a state into the new parts of an execution with another program.

    Only the unchanged patterns resume with their runs.
    """
    recorder.load_admission(read)
    recorder.admission.record_clock_entries()
    recorder.release.restore_clocks()
    _load_or_start_queues(recorder.release, recorder.admission, read)
    recorder.release.load_patterns(read, unchanged)
    if recorder.retiring is not None:
        _load_or_start_queues(recorder.retiring, recorder.admission, read)
        recorder.retiring.load_patterns(read)


def _load_or_start_queues(recorder: ReleaseRecorder, admission: Admission, read: Records) -> None:
    """Load each queue that can resume from a saved queue, and start the others."""
    saved = list(read.bodies("queue"))
    resumed: dict[str, str] = {}
    for queue in recorder.queues.queues:
        saved_name = _resumable_queue(queue, saved)
        if saved_name is None:
            _start_queue(queue, admission, read.body("core")["watermark_us"])
        else:
            resumed[queue.name] = saved_name
    recorder.load_queues(read, resumed)


def _resumable_queue(queue: PatternQueue, saved: Sequence[Any]) -> str | None:
    """Return the name of the saved queue from which a queue resumes; None if none fits.

    `saved` has the result of `PatternQueue.save` for each saved queue.
    """
    options = queue.hold_back.options.written()
    fitting = [other for other in saved if other["kind"] == queue.kind]
    same = [other for other in fitting if other["hold_back"]["options"] == options]
    own = [other for other in same or fitting if set(other["names"]) & set(queue.names)]
    return next((other["names"][0] for other in own or same or fitting), None)


def _start_queue(queue: PatternQueue, admission: Admission, watermark_us: int | None) -> None:
    """Start a queue in the middle of an execution: all seen dots count as released."""
    hold_back = queue.hold_back
    if watermark_us is not None:
        hold_back.advance(watermark_us)
    seen = admission.intake.seen()
    hold_back.begin(seen)
    if admission.membership is not None:
        for node in seen:
            if node not in admission.membership.live:
                hold_back.leave(node)
