"""Migration: the state of an execution is restored under another program.

The dots that were seen, the membership and the events that are held back belong to the execution
and not to a pattern. Another program takes them over (`Execution.restored`), and with them the
runs of the patterns that did not change; a pattern that changed begins with no run. Which those
are says `ketal.runtime.state.program_records`.

A queue of the new program that has the policy and the topology of a saved one goes on from that,
with its own options (`gap`, `idle`, `nodes`, `overflow`, a length): what is held is released to the
new patterns. Any other queue begins with all dots that were seen as released, and a pattern
without a queue with the next event.

The one rule: what was seen stays seen, and what is held is released, whatever the program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ketal.runtime.admission.identification import Admission
from ketal.runtime.queues.pattern_queues import PatternQueue
from ketal.runtime.state.recorder import Recorder
from ketal.runtime.state.records import Records
from ketal.runtime.state.release_recorder import ReleaseRecorder


class SavedQueue(NamedTuple):
    """What `PatternQueue.fits` returned of a queue that was saved."""

    kind: list[Any]
    options: list[Any]
    names: list[str]


def begin_anew(recorder: Recorder, read: Records, unchanged: Collection[str]) -> None:
    """Load the state of an execution into the parts of one with another program.

    Parameters
    ----------
    recorder : Recorder
        That of the parts, which are fresh.
    read : Records
        The state.
    unchanged : collection of str
        The patterns that go on with their runs.
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
    saved = [SavedQueue(*state[2]) for state in read.all("queue")]
    goes_on: dict[str, str] = {}
    for queue in recorder.queues.queues:
        fitting = _fitting(queue, saved)
        if fitting is None:
            _begin(queue, admission, read.one("core")["watermark_us"])
        else:
            goes_on[queue.name] = min(fitting.names)
    recorder.load_queues(read, goes_on)


def _fitting(queue: PatternQueue, saved: Sequence[SavedQueue]) -> SavedQueue | None:
    """Return the saved queue that this one goes on from, if one fits."""
    kind, options, names = queue.fits()
    fitting = [other for other in saved if other.kind == kind]
    same = [other for other in fitting if other.options == options]
    own = [other for other in same or fitting if set(other.names) & set(names)]
    return next(iter(own or same or fitting), None)


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
