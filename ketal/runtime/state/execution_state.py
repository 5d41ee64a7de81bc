"""The state of an execution: a snapshot in one piece, or records and which of them are dirty.

`ketal.runtime.state.records` encodes the parts of an execution as records; here the program's
fingerprints are added, so that a state is restored under its own program, or, where that is
asked for, under another one.

The dots that were seen, the membership and the events that are held back belong to the execution
and not to a pattern. Another program takes them over, and with them the runs of the patterns that
did not change; a pattern that changed begins with no run, as compared by
`ketal.runtime.state.program_records`. A queue of the new program that has the policy and the
topology of a saved one goes on from that, with its own options (`gap`, `idle`, `nodes`,
`overflow`, a length): what is held is released to the new patterns. Any other queue begins with
all dots that were seen as released, and a pattern without a queue with the next event.

The one rule: records, with every later change applied, restore the state of the last one; what was
seen stays seen, and what is held is released, whatever the program.
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
from ketal.programs.program import Program, checked_program
from ketal.runtime.admission.deduplication import Tally
from ketal.runtime.admission.identification import Admission
from ketal.runtime.queues.pattern_queues import PatternQueue
from ketal.runtime.release import Release
from ketal.runtime.retirement import RetiringRelease
from ketal.runtime.state.program_records import about, changes, mark, saved_program
from ketal.runtime.state.recorder import Recorder
from ketal.runtime.state.records import (
    OTHERS,
    Changes,
    Records,
    damage_refused,
    decoded,
    encoded,
    present,
)
from ketal.runtime.state.release_recorder import ReleaseRecorder, RetiringRecorder
from ketal.runtime.stream_release import StreamRelease


@dataclass(slots=True)
class Progress:
    """The counts and the watermark of an execution.

    Attributes
    ----------
    names : LogNames
        The names of the program that no event has had.
    kinds : ProgramKinds
        The kinds of the values that its comparisons read.
    since : dict of str to int
        Of a pattern that changed under a stream, how many events were accepted before.
    counted : Tally
        The outcomes of the records when they were read.
    watermark_us : int or None
        The time that the execution has passed, in microseconds; None where it is not known.
    closed : bool
        Whether the execution has ended.
    """

    names: LogNames
    kinds: ProgramKinds
    since: dict[str, int] = field(default_factory=dict)
    counted: Tally = field(default_factory=Tally)
    watermark_us: int | None = None
    closed: bool = False

    @classmethod
    def of(cls, patterns: Sequence[CompiledPattern]) -> Self:
        """Return the progress of an execution that begins."""
        named = (name for one in patterns for name in one.counted.named_values)
        names = LogNames(named, causal=any(one.counted.asks_causality for one in patterns))
        return cls(names, ProgramKinds(patterns))

    def look(self, new: Sequence[Event]) -> None:
        """Look at new events: at their names, and at the kinds of what comparisons read."""
        self.names.sample(new)
        self.kinds.sample(new)


class SavedState:
    """A saved state that was read.

    Parameters
    ----------
    program : Program
        The program to restore it under.
    state : bytes, or mapping of bytes to bytes
        A snapshot, or records.
    changed : bool
        Whether it may be of another program.

    Attributes
    ----------
    records : mapping of bytes to bytes
        The state.
    read : Records
        The same, by kind.
    execution : str
        The execution's name.
    unchanged : list of str
        The patterns that did not change.
    retiring : Program or None
        The patterns that retire, compiled again; None where there are none, or under another
        program.
    changed : bool
        Whether it is restored under another program.
    tracked : bool
        Whether changes since it are tracked: of records of the same program.

    Raises
    ------
    StateError
        If it is no state.
    OtherProgramError
        If it is of another program, and `changed` is false; it says what changed.
    TypeError
        If an argument is of another class than it must be.
    """

    def __init__(
        self, program: Program, state: bytes | Mapping[bytes, bytes], *, changed: bool = False
    ) -> None:
        now = {c.name: mark(c) for c in checked_program(program).compiled}
        if not isinstance(state, bytes | Mapping):
            raise wrong_type("state", "bytes, as snapshot() returned, or records", state)
        self.records = decoded(state) if isinstance(state, bytes) else state
        self.read = Records(self.records)
        with damage_refused():
            saved = self.read.one("program")
            was = saved["marks"]
            difference = changes(was, now)
            prints = {name: one["fingerprint"] for name, one in was.items()}
            self.unchanged = [n for n in now if prints.get(n) == now[n]["fingerprint"]]
            self.execution: str = saved["execution"]
        if difference and not changed:
            raise OtherProgramError(f"the state is of another program: {difference}")
        self.retiring: Program | None = None
        if self.read.retiring is not None and not changed:
            with damage_refused():
                self.retiring = saved_program(self.read.retiring)
        self.changed = changed
        self.tracked = not (isinstance(state, bytes) or changed)


@dataclass(eq=False)
class ExecutionState:
    """The state of an execution, by its parts: fresh ones, where a state is to be restored."""

    program: Program
    name: str
    admission: Admission
    release: Release
    retiring: RetiringRelease | None
    progress: Progress
    _recorder: Recorder | None = field(default=None, init=False)  # once changes are tracked
    _replaced: tuple[bytes, ...] = field(default=(), init=False)  # records of the program before

    def snapshot(self) -> bytes:
        """Return the state in one piece."""
        return encoded(present(self._changes(self._new_recorder(tracking=False))))

    def records(self) -> dict[bytes, bytes]:
        """Return the state as records, and track changes from now on.

        Returns
        -------
        dict of bytes to bytes
            One record for what is small, one for each scope, and what grows with the number
            of events in chunks (`ketal.runtime.state.records`).
        """
        self._recorder = self._new_recorder(tracking=True)
        return present(self._changes(self._recorder))

    def changes(self) -> Changes:
        """Return what changed since the last call of this or of `records`, or the restore.

        Returns
        -------
        dict of bytes to (bytes or None)
            The records that are new or have another value; None for one that is removed. The
            first time, all records.
        """
        if self._recorder is None:
            return {**dict.fromkeys(self._replaced), **self.records()}
        return self._changes(self._recorder)

    def restore(self, saved: SavedState) -> None:
        """Load a saved state into the execution, which is fresh.

        Raises
        ------
        StateError
            If the state is damaged, or holds back more than `held_back_max`.
        """
        progress, release = self.progress, self.release
        assert isinstance(release, StreamRelease), "a finite log is not saved"
        recorder = self._new_recorder(tracking=saved.tracked)
        retiring = self.retiring
        if saved.retiring is not None and retiring is None:
            raise StateError("patterns of the state are drained: only a job goes on from it")
        queues = [release.queues] if retiring is None else [release.queues, retiring.queues]
        with damage_refused():
            core = saved.read.one("core")
            progress.counted = Tally(**core["tally"])
            progress.watermark_us, progress.closed = core["watermark_us"], core["closed"]
            for one in queues:
                one.watermark_us = progress.watermark_us
            progress.since = dict(core["since"])
            progress.names.load(core["names"])
            progress.kinds.load(core["kinds"])
            if saved.changed:
                names = self.program.names
                changed = [name for name in names if name not in saved.unchanged]
                progress.since |= dict.fromkeys(changed, progress.counted.accepted)
                _begin_anew(recorder, saved.read, saved.unchanged)
                self._replaced = tuple(k for k in saved.records if not k.startswith(OTHERS))
                if retiring is not None:
                    retiring.begin(release.queues)
            else:
                recorder.load(saved.read)
            if retiring is not None:
                retiring.drop_if_over(None)
        for queue in (queue.hold_back for of in queues for queue in of.queues):
            if len(queue) > queue.options.held_back_max:
                raise StateError(
                    f"the state holds back {len(queue)} events; "
                    f"limit held_back_max is {queue.options.held_back_max}"
                )
        if saved.tracked:
            self._recorder = recorder

    def _new_recorder(self, *, tracking: bool) -> Recorder:
        assert isinstance(self.release, StreamRelease), "a finite log is not saved"
        retiring = None
        if self.retiring is not None:
            program = about(self.retiring.program)
            retiring = RetiringRecorder(self.retiring, program, tracking=tracking)
        own = ReleaseRecorder(self.release, tracking=tracking)
        return Recorder(self.admission, own, retiring, tracking=tracking)

    def _changes(self, recorder: Recorder) -> Changes:
        progress = self.progress
        core = {
            "tally": asdict(progress.counted),
            "watermark_us": progress.watermark_us,
            "closed": progress.closed,
            "names": progress.names.save(),
            "kinds": progress.kinds.save(),
            "since": dict(sorted(progress.since.items())),
        }
        return recorder.changes(self._about, core)

    @cached_property
    def _about(self) -> dict[str, Any]:
        """The program and the execution's name, as plain data."""
        return {**about(self.program), "execution": self.name}


# --- under another program ---


def _begin_anew(recorder: Recorder, read: Records, unchanged: Collection[str]) -> None:
    """Load a state into the parts, which are fresh, of an execution with another program.

    The patterns that are unchanged go on with their runs.
    """
    recorder.load_admission(read)
    recorder.admission.look_back()
    recorder.release.restore_clocks()
    _begin_queues(recorder.release, recorder.admission, read)
    recorder.release.load_patterns(read, unchanged)
    if recorder.retiring is not None:
        _begin_queues(recorder.retiring, recorder.admission, read)
        recorder.retiring.load_patterns(read)


def _begin_queues(recorder: ReleaseRecorder, admission: Admission, read: Records) -> None:
    """Load each queue that fits a saved one, and begin the others."""
    saved = list(read.all("queue"))
    goes_on: dict[str, str] = {}
    for queue in recorder.queues.queues:
        fitting = _fitting(queue, saved)
        if fitting is None:
            _begin(queue, admission, read.one("core")["watermark_us"])
        else:
            goes_on[queue.name] = fitting
    recorder.load_queues(read, goes_on)


def _fitting(queue: PatternQueue, saved: Sequence[Any]) -> str | None:
    """Return the name of the saved queue that this one goes on from, if one fits.

    Of each saved one there is what `PatternQueue.save` returned.
    """
    options = queue.hold_back.options.written()
    fitting = [other for other in saved if other["kind"] == queue.kind]
    same = [other for other in fitting if other["hold_back"]["options"] == options]
    own = [other for other in same or fitting if set(other["names"]) & set(queue.names)]
    return next((other["names"][0] for other in own or same or fitting), None)


def _begin(queue: PatternQueue, admission: Admission, watermark_us: int | None) -> None:
    """Begin a queue in the middle of an execution: what was seen counts as released."""
    hold_back = queue.hold_back
    if watermark_us is not None:
        hold_back.advance(watermark_us)
    seen = admission.intake.seen()
    hold_back.begin(seen)
    if admission.membership is not None:
        for node in seen:
            if node not in admission.membership.live:
                hold_back.leave(node)
