"""Changing a pattern under a running job: stop, fresh, drain (DESIGN 7).

The state names its patterns by fingerprint. With the same ones a job goes on; with others it
stops, begins anew at the stored offsets, or *drains*: from the change on, every message goes to
the old program and to the new one. The old one says what stands on at least one event from before
the change, the new one what stands on none, so each occurrence is said by one of them. What is
said of the execution (late, lost, rejected) the new one says.

A window ends every run of a pattern, so that after a while no run holds an event from before
the change: then the old program is let go of. That is found by looking at its runs, not by the
clock alone. A pattern without a time window is not drained, for its runs may live for ever; nor
is one that runs at nodes, where a node may learn of an old event at any time.

An unchanged pattern goes on with its runs in the new program and is not in the old one.

The old program is compiled again, from its text in the state. On Spark nothing drains: an executor
has no compiler, and a second job with another group does the same.

The one rule: while a job drains, its state holds both programs, and no third one comes in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ketal.errors import OtherProgramError, StateError
from ketal.model.event import Control, Dot, Event
from ketal.model.verdicts import Match, Overflow, PatternVerdict, Rejected, TimedOut, Verdict
from ketal.program import Program
from ketal.runtime.deduplication import Tally
from ketal.runtime.execution import Execution, Item
from ketal.runtime.pattern_queues import PatternQueue
from ketal.runtime.state.migration import Before, records_of, saved_program, standing
from ketal.runtime.state.records import FORMAT
from ketal.runtime.state.snapshots import decoded, encoded
from ketal.runtime.stream_release import StreamRelease

HEAD = b"draining"
"""The record that a job drains."""
BEFORE = b"draining/before"
"""The record of what is before the change; it may be large, and stays what it is."""
OLD = b"old/"
"""How the keys begin of the records of the old patterns; those of the new ones are as ever."""


class Draining:
    """Two executions of the same records, in the place of one.

    Parameters
    ----------
    old : Execution or None
        Of the patterns that changed or are gone, as they were; None once that is over.
    new : Execution
        Of the program that took over.
    before : mapping of str to Before
        Of each pattern of `old`, what is before the change.
    said : mapping of str to mapping of str to int
        How many verdicts of each kind the old patterns have said since.
    keys : iterable of bytes
        The records that there are beside those of `new`.
    """

    def __init__(
        self,
        old: Execution | None,
        new: Execution,
        before: Mapping[str, Before],
        said: Mapping[str, Mapping[str, int]] | None = None,
        keys: Iterable[bytes] = (),
    ) -> None:
        self.new = new
        self._old = old
        self._before = dict(before)
        self._said = {name: Counter((said or {}).get(name, {})) for name in before}
        self._keys = set(keys)
        self._until_us: int | None = None
        self._look(None)

    # --- as an execution ---

    def feed(self, item: Item, *, place: str = "") -> list[Verdict]:
        """Take one record; return the verdicts it brought about."""
        old = self._old
        if old is None or isinstance(item, Rejected):
            return self.new.feed(item, place=place)
        out = self._of_old(old.feed(item, place=place)) + self.new.feed(item, place=place)
        if isinstance(item, Control):
            if item.kind == "end":
                self._old = None
            self._look(self.new.progress.watermark_us)
        return out

    def process(
        self,
        batch: Sequence[Item],
        place: Callable[[int], str] | None = None,
    ) -> list[tuple[int, list[Verdict]]]:
        """Take a batch; return of each that brought something about its number, and what."""
        out: list[tuple[int, list[Verdict]]] = []
        for number, event in enumerate(batch):
            verdicts = self.feed(event, place="" if place is None else place(number))
            if verdicts:
                out.append((number, verdicts))
        return out

    def advance_time(self, watermark: Any) -> list[Verdict]:
        """Take a watermark."""
        return self.feed(Control("watermark", time=watermark))

    def conclude(self) -> Iterator[Verdict]:
        """End the stream; the old patterns are over with it."""
        old = [] if self._old is None else self._of_old(list(self._old.conclude()))
        self._old = None
        yield from old
        yield from self.new.conclude()

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that waits, with one dot it waits for."""
        return self.new.held_back()

    @property
    def live_runs(self) -> int:
        """How many check runs and partial matches are live, those of the old patterns too."""
        return self.new.live_runs + (0 if self._old is None else self._old.live_runs)

    @property
    def tally(self) -> Tally:
        """What became of the records so far."""
        return self.new.tally

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the new program; `draining` has what the old patterns said meanwhile."""
        summary = self.new.summary
        if self._said:
            summary["draining"] = {
                name: {"matches": said["match"], "timed_out": said["timed_out"]}
                for name, said in self._said.items()
            }
        return summary

    # --- what is the old patterns' to say, and until when ---

    @property
    def over(self) -> bool:
        """Whether the old patterns have said all that they had to."""
        return self._old is None

    @property
    def keys(self) -> frozenset[bytes]:
        """The records that there are beside those of `new`."""
        return frozenset(self._keys)

    @property
    def names(self) -> tuple[str, ...]:
        """The old patterns, by name."""
        return tuple(self._before)

    def _of_old(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return those verdicts of the old patterns that are theirs to say."""
        out: list[Verdict] = []
        for verdict in verdicts:
            if not isinstance(verdict, PatternVerdict) or not verdict.pattern:
                continue  # about the execution: the new program says it
            if isinstance(verdict, Match | TimedOut):
                before = self._before[verdict.pattern]
                if not any(dot in before for _, dot in verdict.steps):
                    continue
            elif not isinstance(verdict, Overflow):
                continue
            self._said[verdict.pattern][verdict.kind] += 1
            out.append(verdict)
        return out

    def _look(self, watermark_us: int | None) -> None:
        """Let go of the old patterns once nothing of theirs stands on an old event.

        There is no need to look as long as some window of what was found the last time
        is open.
        """
        if self._old is None or (
            self._until_us is not None and (watermark_us is None or watermark_us < self._until_us)
        ):
            return
        windows_us = {c.name: c.window_us or 0 for c in self._old.program.compiled}
        found = [
            (event, windows_us[name])
            for name, before in self._before.items()
            for event in _standing(self._old, name)
            if event.dot in before
        ]
        if not found:
            self._old = None
            return
        ends_us = [e.time_us + window_us for e, window_us in found if e.time_us is not None]
        if watermark_us is not None:
            # Held back for want of a dot: looked at again after a while.
            ends_us.append(watermark_us + max(windows_us.values()))
        self._until_us = max(ends_us, default=0)

    # --- state ---

    @property
    def state(self) -> Draining:
        """What is saved: as `Execution.state`, of both programs."""
        return self

    def snapshot(self) -> bytes:
        """Return the state in one piece; once draining is over, that of the new execution alone."""
        new = self.new.state.snapshot()
        if self._old is None:
            return new
        return encoded(self._joined(decoded(self._old.state.snapshot()), decoded(new)))

    def records(self) -> dict[bytes, bytes]:
        """Return the state as records; from now on, what changes is taken note of."""
        new = self.new.state.records()
        if self._old is None:
            self._keys = set()
            return new
        old = self._old.state.records()
        self._keys = {HEAD, BEFORE, *(OLD + key for key in old)}
        return self._joined(old, new)

    def changes(self) -> dict[bytes, bytes | None]:
        """Return what changed since the last call of this or of `records`, or the restore."""
        new = self.new.state.changes()
        if self._old is None:
            # What is left of the old patterns goes with them.
            gone, self._keys = self._keys, set()
            return {**dict.fromkeys(sorted(gone)), **new}
        if not self._keys:  # Of what begins to drain nothing is recorded yet.
            return {**dict.fromkeys(new), **self.records()}
        old = {OLD + key: value for key, value in self._old.state.changes().items()}
        for key, value in old.items():
            (self._keys.discard if value is None else self._keys.add)(key)
        return {**new, **old, HEAD: self._head()}

    def _joined(self, old: Mapping[bytes, bytes], new: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        before = {name: before.state() for name, before in self._before.items()}
        own = {HEAD: self._head(), BEFORE: msgspec.msgpack.encode(before)}
        return {**new, **{OLD + key: value for key, value in old.items()}, **own}

    def _head(self) -> bytes:
        said = {name: dict(said) for name, said in self._said.items()}
        return msgspec.msgpack.encode({"format": FORMAT, "said": said})


class TakenUp(NamedTuple):
    """A state that was taken up.

    Attributes
    ----------
    execution : Execution or Draining
        Goes on from it.
    told : str
        What became of a change, in a sentence; empty where nothing changed.
    """

    execution: Execution | Draining
    told: str = ""


def take_up(
    program: Program,
    state: bytes | Mapping[bytes, bytes],
    *,
    on_change: str = "stop",
    **options: Any,
) -> TakenUp:
    """Return an execution that goes on from a saved state.

    Parameters
    ----------
    program : Program
        What is to run now.
    state : bytes, or mapping of bytes to bytes
        A snapshot of an execution or of a Draining, or records with their changes put in.
    on_change : {"stop", "fresh", "drain"}
        What to do if the state is of another program.
    **options
        As for `Execution`; `beside` is beside the program that is to run now.

    Raises
    ------
    StateError
        If the state does not fit and `on_change` does not help; it says what changed.
    """
    records = records_of(state)
    if HEAD in records:
        return _resumed(program, records, on_change, options)
    try:
        return TakenUp(Execution.restored(program, records, **options))
    except StateError as fault:
        if on_change == "fresh":
            return _fresh(program, records, fault, options)
        if on_change == "drain":
            return _begun(program, records, options)
        raise


def _fresh(
    program: Program, records: Mapping[bytes, bytes], fault: StateError, options: dict[str, Any]
) -> TakenUp:
    execution = Execution.restored(program, records, changed=True, **options)
    return TakenUp(execution, f"{fault}; starting anew at the stored offsets")


def _to_drain(was: Program, now: Program) -> list[str]:
    """Return the patterns of a program that changed or are gone, of which each can be drained.

    Raises
    ------
    StateError
        If no time ends the runs of one.
    """
    fingerprints = {c.name: c.fingerprint for c in now.compiled}
    changed = [c.name for c in was.compiled if fingerprints.get(c.name) != c.fingerprint]
    for name in changed:
        _refuse(was, name)
    return changed


def told_of_change(changed: Sequence[str]) -> str:
    """Return in a sentence what draining does for the patterns that changed or are gone."""
    if not changed:
        return "patterns are new, and the others go on"
    return f"draining {', '.join(changed)}: the old patterns run until their windows are over"


def drain_hint(fault: StateError) -> str:
    """Return what a hint says of draining: nothing where a state is gone or damaged."""
    is_changed = isinstance(fault, OtherProgramError)
    return ", drain lets the old patterns finish" if is_changed else ""


def told_as_over(names: Sequence[str]) -> str:
    """Return in a sentence that these patterns are drained; nothing where there are none."""
    return f"{', '.join(names)}: drained, the old patterns are over" if names else ""


def told_as_second(names: Sequence[str], what: object) -> str:
    """Return in a sentence why another change has to wait until these patterns are drained."""
    return (
        f"the job still drains an earlier change of {', '.join(names)}, and this is a second one: "
        f"{what}; run it as it was changed the first time until that is over"
    )


def _alone(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the old patterns, which all have windows: none is asked for time."""
    return {name: value for name, value in options.items() if name != "beside"}


def _begun(
    program: Program,
    records: Mapping[bytes, bytes],
    options: dict[str, Any],
) -> TakenUp:
    """Begin to drain what changed."""
    whole = saved_program(records)
    changed = _to_drain(whole, program)
    new = Execution.restored(program, records, changed=True, **options)
    if not changed:
        return TakenUp(new, told_of_change(changed))
    old = Execution.restored(whole.only(changed), records, changed=True, **_alone(options))
    seen = old.admission.intake.seen()
    before = {name: Before.of(seen, pending(new, name)) for name in changed}
    draining = Draining(old, new, before)
    if draining.over:
        names = ", ".join(changed)
        return TakenUp(new, f"nothing is under way of {names}; going on with what is new")
    return TakenUp(draining, told_of_change(changed))


def _queue(execution: Execution, name: str) -> PatternQueue | None:
    assert isinstance(execution.release, StreamRelease), "a finite log is not saved"
    return execution.release.queues.of(name)


def pending(execution: Execution, name: str) -> set[Dot]:
    """Return what was seen and a pattern may yet be offered: its queue holds or awaits it."""
    group = _queue(execution, name)
    return set() if group is None else group.pending()


def _standing(execution: Execution, name: str) -> Iterator[Event]:
    """Yield the events, seen so far, that a verdict of a `find` to come may stand on."""
    for run in execution.runs:
        if run.compiled.name == name:
            yield from standing(run)
    group = _queue(execution, name)
    if group is not None:
        yield from (event for event, _ in group.held_back())


def _refuse(old: Program, name: str) -> None:
    """Raise if no time ends the runs of a pattern."""
    compiled = old[name].one
    if compiled.pattern.deployment is not None:
        why = "it runs at nodes, and a node may learn of an old event at any time"
    elif compiled.kind == "check":
        why = "it is a check, whose runs have no end"
    elif compiled.window_us is None:
        why = "it has no time window (`within 10 s`), so its runs may live for ever"
    else:
        return
    raise StateError(f"pattern {name} changed or is gone, and cannot be drained: {why}")


def _resumed(
    program: Program,
    records: Mapping[bytes, bytes],
    on_change: str,
    options: dict[str, Any],
) -> TakenUp:
    """Go on draining."""
    beside = (HEAD, BEFORE)
    new_records = {k: v for k, v in records.items() if k not in beside and not k.startswith(OLD)}
    old_records = {k.removeprefix(OLD): v for k, v in records.items() if k.startswith(OLD)}
    try:
        head: dict[str, Any] = msgspec.msgpack.decode(records[HEAD])
        form, said = head["format"], head["said"]
        rows: dict[str, Any] = msgspec.msgpack.decode(records[BEFORE])
        before = {name: Before.restored(row) for name, row in rows.items()}
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(f"the state is damaged: {type(error).__name__} {error}") from None
    if form != FORMAT:
        raise StateError(f"the state of draining has format {form}; this ketal has {FORMAT}")
    keys = {*beside, *(OLD + key for key in old_records)}
    try:
        new = Execution.restored(program, new_records, **options)
    except StateError as fault:
        if on_change == "fresh":
            taken = _fresh(program, new_records, fault, options)
            assert isinstance(taken.execution, Execution)
            draining = Draining(None, taken.execution, {}, keys=keys)
            return taken._replace(execution=draining)
        raise StateError(told_as_second(list(before), fault)) from None
    old = Execution.restored(saved_program(old_records), old_records, **_alone(options))
    return TakenUp(Draining(old, new, before, said, keys))
