"""The in-process driver of a stream (DESIGN 7); `ketal.runtime.batch_run` drives finite logs.

`Admission` says what a record is; what is new is ordered and offered to the runs of
each pattern. A pattern under `order arrival`, or one whose answer needs no order
(`find any` under CausalOrder without `not`), is offered events as they come; the
others what a hold-back queue releases. Once a node has left or started again, clocks
are restored before any pattern sees them (`docs/membership.md`).

The one rule: every record ends as a verdict or in a count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ketal.compiler.automaton import CompiledPattern
from ketal.engine.pattern_run import PatternRun, one
from ketal.engine.scopes import Counts
from ketal.errors import (
    EventError,
    NotAvailableError,
    OtherProgramError,
    SettingError,
    StateError,
    wrong_type,
)
from ketal.model.event import Control, Dot, Event, seconds
from ketal.model.limits import Limits
from ketal.model.verdicts import KINDS, Rejected, Transition, Verdict
from ketal.program import Program, checked_program
from ketal.runtime.deduplication import CONTRADICTION, DUPLICATE, NEW, SEEN, Tally
from ketal.runtime.identification import Admission
from ketal.runtime.migration import begin_anew, records_of, standing, unchanged_patterns, written
from ketal.runtime.pattern_queues import came_late, overflowed
from ketal.runtime.recorder import Recorder
from ketal.runtime.release import Queues
from ketal.runtime.snapshots import changes, decoded, encoded
from ketal.runtime.state_records import OTHERS, Records

Handler = Callable[[Verdict], object]
BATCH_EVENTS = 1_024
"""So many events are admitted together."""
_LOGGER = logging.getLogger("ketal")


def refuse_unavailable(compiled: CompiledPattern) -> None:
    """Say clearly what the language has and a stream cannot have.

    Raises
    ------
    NotAvailableError
        For `mode`.
    """
    mode = compiled.pattern.mode
    if mode is not None:
        raise NotAvailableError(
            f"pattern {compiled.name}: `mode {mode}` speaks of every linear extension of an "
            "execution, so it is not available on a stream; ketal.run answers it of a finite log"
        )


class _Handlers:
    """The handlers of a Monitor; a failing one is reported, never raised."""

    def __init__(self, on: Mapping[str, Handler], program: Program) -> None:
        self.by_kind: dict[str, Handler] = {}
        self.by_state: dict[tuple[str, str], Handler] = {}
        self.failures = 0
        states = {(c.name, n) for c in program.compiled for n in _state_names(c)}
        if not isinstance(on, Mapping):
            raise wrong_type("on", "a mapping of str to callable", on)
        for key, handler in on.items():
            if not isinstance(key, str):
                raise wrong_type("a key of on", "a str", key)
            if not callable(handler):
                raise wrong_type(f"the handler for {key!r}", "callable", handler)
            pattern, dot, state = key.partition(".")
            if key in KINDS:
                self.by_kind[key] = handler
            elif dot and (pattern, state) in states:
                self.by_state[(pattern, state)] = handler
            else:
                known = ", ".join([*KINDS, *sorted(f"{p}.{s}" for p, s in states)])
                raise SettingError(f"no handler can be for {key!r}; there are {known}")

    def traced(self, name: str) -> bool:
        return any(pattern == name for pattern, _ in self.by_state)

    def call(self, verdict: Verdict) -> None:
        if isinstance(verdict, Transition):
            before = set(_split(verdict.source))
            for state in _split(verdict.target):
                handler = self.by_state.get((verdict.pattern, state))
                if handler is not None and state not in before:
                    self._call(handler, verdict)
        handler = self.by_kind.get(verdict.kind)
        if handler is not None:
            self._call(handler, verdict)

    def _call(self, handler: Handler, verdict: Verdict) -> None:
        try:
            handler(verdict)
        except Exception:
            self.failures += 1
            _LOGGER.exception("a handler failed on: %s", verdict)


def _split(names: str) -> list[str]:
    return [name for part in names.split(",") for name in part.split("|")]


def _state_names(compiled: CompiledPattern) -> set[str]:
    return {name for names in compiled.automaton.names for name in _split(names)}


def _mark(compiled: CompiledPattern) -> dict[str, str]:
    """Return what a snapshot says of a pattern, part by part, to say what changed."""
    p = compiled.pattern
    return {
        "fingerprint": compiled.fingerprint,
        "kind and strategy": f"{p.kind} {compiled.strategy} {compiled.on_violation}",
        "order": repr(p.order),
        "partition": repr(p.partition),
        "deployment": repr(p.deployment),
        "topology": repr(p.topology),
        "window": repr((compiled.window_us, compiled.window_events)),
        "events": repr([(e.name, e.guard) for e in p.events]),
        "steps": repr([(s.name, s.guard) for s in p.steps]),
        "body": repr(p.body),
        "return and limit": repr((p.returns, p.limit)),
        "registered guards": repr([(g.name, g.version) for g in compiled.registered]),
    }


class Monitor:
    """Runs a program over a stream of events, in this process.

    Parameters
    ----------
    program : Program
        The patterns.
    limits : Limits, optional
        Other limits than those the program was compiled with.
    listing : bool
        Whether verdicts are wanted, or the summary only.
    trace : bool
        Whether to say every transition.
    on : mapping of str to callable, optional
        Handlers: by kind of verdict (`violation`, `match`, …), or by
        `Pattern.state` for entering a state.
    execution : str
        A name for the execution, put in every verdict.
    beside : sequence of CompiledPattern
        The program's other patterns, which another Monitor offers the same events: whether an
        event is late or refused is decided for all of them.

    Raises
    ------
    NotAvailableError
        If the program needs what this version does not execute.
    TypeError
        If an argument is of another class than it must be.

    Notes
    -----
    Leaving a `with` block closes the monitor, unless by an exception.
    """

    def __init__(
        self,
        program: Program,
        *,
        limits: Limits | None = None,
        listing: bool = True,
        trace: bool = False,
        on: Mapping[str, Handler] | None = None,
        execution: str = "",
        beside: Sequence[CompiledPattern] = (),
    ) -> None:
        for compiled in checked_program(program).compiled:
            refuse_unavailable(compiled)
        self.program = program
        self.limits = Limits.given(limits, program.compiled[0].limits)
        self.execution = execution
        self.trace = trace
        self._handlers = _Handlers({} if on is None else on, program)
        self._runs = [
            PatternRun(
                c,
                self.limits,
                execution=execution,
                listing=listing,
                trace=trace or self._handlers.traced(c.name),
            )
            for c in program.compiled
        ]
        self._direct = [r for r in self._runs if not r.compiled.causal or r.compiled.order_free]
        self._ordered = [r for r in self._runs if r not in self._direct]
        everyone = [*program.compiled, *beside]
        self._needs_time = any(c.window_us is not None for c in everyone)
        self._admission = Admission(program.compiled, self.limits, beside=beside)
        self._intake = self._admission.intake
        self._plain = not self._admission.closed
        free = [run for run in self._direct if run.compiled.causal]
        self._queues = Queues(
            self._ordered, self.limits, execution, free=free, arrived=self._intake
        )
        # A queue orders what comes, time and clocks decide of each event whether it is late and who
        # has left, and a handler is called before the next event is taken: they cut a batch to one.
        self._cuts = bool(
            self._queues
            or self._needs_time
            or self._admission.reads_clocks
            or self._handlers.by_kind
            or self._handlers.by_state
        )
        self._only = self._direct[0] if len(self._direct) == 1 else None
        self._tally = Tally()
        self._watermark_us: int | None = None
        self._closed = False
        self._restoring = False
        self._recorder: Recorder | None = None
        self._replaced: tuple[bytes, ...] = ()  # the records of the program before
        self._about: dict[str, Any] | None = None  # what records say of the program

    # --- records in ---

    def feed(self, event: Event | Control, *, place: str = "") -> list[Verdict]:
        """Take one event; return the verdicts it brought about.

        Parameters
        ----------
        event : Event or Control
            What happened.
        place : str
            Where it was read, for a rejection.
        """
        said = self.process((event,), (place,).__getitem__ if place else None)
        return said[0][1] if said else []

    def feed_many(self, events: Iterable[Event | Control]) -> list[Verdict]:
        """Take events in turn; return the verdicts of all."""
        out: list[Verdict] = []
        if isinstance(events, list | tuple):
            for begin in range(0, len(events), BATCH_EVENTS):
                for _, verdicts in self.process(events[begin : begin + BATCH_EVENTS]):
                    out += verdicts
            return out
        for event in events:  # It may be alive: nothing waits for what comes after it.
            out += self.feed(event)
        return out

    def process(
        self,
        batch: Sequence[Event | Control],
        place: Callable[[int], str] | None = None,
    ) -> list[tuple[int, list[Verdict]]]:
        """Take a batch, of one or of many; this is the only way in.

        What comes of it is what would come of its items one by one.

        Parameters
        ----------
        batch : sequence of Event or Control
            What happened.
        place : callable, optional
            Where the item of a number was read, for a rejection.

        Returns
        -------
        list of (int, list of Verdict)
            The number of each item that brought something about, from 0, and its verdicts.
        """
        out: list[tuple[int, list[Verdict]]] = []
        at, end, cuts = 0, len(batch), self._cuts
        while at < end:
            some: Sequence[Any] = batch if end == 1 else batch[at : at + 1 if cuts else end]
            count = self._intake.admit(some) if self._plain and not self._closed else 0
            if count and not cuts:
                self._tally.accepted += count
                new = some if count == len(some) else some[:count]
                run = self._only
                said: Any = self._merged(new) if run is None else run.process(new)
                if count == end:
                    return said  # type: ignore[no-any-return]
                out += [(at + number, verdicts) for number, verdicts in said]
                at += count
                continue
            if count:
                verdicts = self._taken(some[0])
            else:
                verdicts = self._take_closely(some[0], "" if place is None else place(at))
            if verdicts and (verdicts := self._said(verdicts)):
                out.append((at, verdicts))
            at += 1
        return out

    def _merged(self, events: Sequence[Event]) -> list[tuple[int, list[Verdict]]]:
        """Have several patterns process events; return what came of each, in their order."""
        found: dict[int, list[Verdict]] = {}
        for run in self._direct:
            for number, verdicts in run.process(events):
                found.setdefault(number, []).extend(verdicts)
        return sorted(found.items())

    def reject(self, rejected: Rejected) -> list[Verdict]:
        """Count a record that is no event."""
        self._tally.rejected += 1
        return self._said([rejected])

    def control(self, control: Control) -> list[Verdict]:
        """Take a control event: a watermark, the end, or who joins, leaves or is there."""
        return self._said(self._control(control))

    def _take_closely(self, event: Event | Control, place: str) -> list[Verdict]:
        """Take what is no event, was seen before, or whose node or name has to be looked at."""
        if not isinstance(event, Event):
            if isinstance(event, Control):
                return self._control(event)
            raise TypeError(f"feed takes a ketal.Event, not {type(event).__name__}")
        if self._closed:
            self._tally.rejected += 1
            return [self._rejected(event, place, "the execution has ended (ketal.end)")]
        admission = self._admission
        place = place or str(event.dot)  # as it arrived
        refusing = admission.refusing(event)
        if reason := admission.refusal(event, refusing):
            self._tally.rejected += 1
            return [self._rejected(event, place, reason)]
        try:
            status, event = admission.take(event)
        except EventError as error:
            # Looking at it may have begun a membership, which a saved state then has.
            self._restore_clocks()
            self._tally.rejected += 1
            return [self._rejected(event, place, error.reason)]
        self._restore_clocks(event if status is NEW else None)
        if status is not NEW:
            return self._not_new(event, status, place)
        here = len(self._runs)
        return self._taken(event, [self._runs[number] for number in refusing if number < here])

    def _taken(self, event: Event, refusing: Sequence[PatternRun] = ()) -> list[Verdict]:
        """Hand a new event to the patterns and the queues."""
        out: list[Verdict] = []
        admission = self._admission
        if admission.membership is None and admission.reads_clocks and admission.shows_leave(event):
            self._restore_clocks(event)
        known = event
        if admission.membership is not None:
            for node in admission.arrived(event):
                out += self._queues.leave(node)
            if admission.reads_clocks:
                known = admission.membership.so_far(event)
        if self._queues.missing:
            out += self._queues.push_clock(event)
        if self._watermark_us is not None and self.passed(event):
            self._tally.late += 1
            late = came_late(event, self.execution, "its time is before the watermark")
            for run in self._direct:
                if run.compiled.causal and run not in refusing:
                    run.miss_event(event)
            # Its dependants must not wait for it, though no pattern is offered it.
            return [*out, late, *self._queues.push(event, withheld=True, refusing=refusing)]
        self._tally.accepted += 1
        for run in refusing:
            run.counts.strangers += 1
        for run in self._direct:
            if run not in refusing:
                out += one(run.process((known,)))
        if self._queues:
            out += self._queues.push(event, refusing=refusing)
        return out

    def _restore_clocks(self, event: Event | None = None, *, saved: bool = False) -> None:
        """Have clocks restored, once a membership is kept.

        Parameters
        ----------
        event : Event, optional
            One that is not yet offered.
        saved : bool
            Whether a saved state says what the queues have seen.
        """
        membership = self._admission.membership
        if membership is None or self._restoring:
            return
        self._plain, self._restoring = False, True
        if self._admission.reads_clocks:
            free = [run for run in self._direct if run.compiled.causal]
            self._direct = [run for run in self._direct if not run.compiled.causal]
            seen = None if saved else self._intake.seen(event)
            self._queues.restore_clocks(membership.restorer, free, seen)

    def _not_new(self, event: Event, status: str, place: str) -> list[Verdict]:
        if status in (DUPLICATE, SEEN):
            # Those who took it the first time are not offered it again.
            pushed = self._queues.push_again(event)
            if pushed is None:
                self._tally.duplicates += 1
                return []
            self._tally.accepted += 1
            return pushed
        if status == CONTRADICTION:
            self._tally.rejected += 1
            return [
                self._rejected(
                    event, place, f"{event.dot} was read before with other content; a dot is unique"
                )
            ]
        self._tally.overflow += 1
        given_up = "an event older than the counters that are kept: it may be a duplicate"
        return [overflowed(event, self.execution, "counters_max", given_up)]

    def _rejected(self, event: Event, place: str, reason: str) -> Rejected:
        return Rejected(place=place or str(event.dot), reason=reason, execution=self.execution)

    def _control(self, control: Control) -> list[Verdict]:
        if control.kind == "watermark":
            assert control.time is not None
            return self._advance(control.time)
        if control.kind == "end":
            return self._close()
        control = self._admission.control(control)
        self._restore_clocks()
        if control.kind == "view":
            return self._queues.view(control.members)
        assert control.node is not None
        if control.kind == "join":
            return self._queues.join(control.node)
        return self._queues.leave(control.node)

    def advance_time(self, watermark: Any) -> list[Verdict]:
        """Say that no event with an earlier time will come; return what that ends.

        Parameters
        ----------
        watermark : float, int, str or datetime
            As an event's time.
        """
        return self._said(self._advance(seconds(watermark)))

    def _advance(self, watermark_s: float) -> list[Verdict]:
        watermark_us = round(watermark_s * 1e6)
        if self._watermark_us is not None and watermark_us <= self._watermark_us:
            return []
        self._watermark_us = watermark_us
        out = self._queues.advance(watermark_us)
        for run in self._direct:
            out += run.advance(watermark_us)
        return out

    def leave(self, node: str) -> list[Verdict]:
        """Say that a node left, so that nothing waits for it; return what that releases."""
        return self._said(self._control(Control("leave", node=node)))

    def close(self) -> list[Verdict]:
        """End the stream: every window and every run; a second call does nothing."""
        return self._said(self._close())

    def _close(self) -> list[Verdict]:
        if self._closed:
            return []
        self._closed = True
        out = self._queues.end()
        for run in self._runs:
            out += run.close()
        return out

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if kind is None:
            self.close()

    # --- verdicts out ---

    def _said(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Call the handlers; keep back transitions that only handlers asked for."""
        if not verdicts:
            return verdicts
        handlers = self._handlers
        if handlers.by_kind or handlers.by_state:
            for verdict in verdicts:
                handlers.call(verdict)
        if self.trace or not handlers.by_state:
            return verdicts
        return [v for v in verdicts if not isinstance(v, Transition)]

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that waits, with one dot it waits for; None: it waits its turn."""
        return self._queues.held_back()

    @property
    def live_runs(self) -> int:
        """How many check runs and partial matches are live."""
        return sum(run.live_runs() for run in self._runs)

    def live_scopes(self) -> Iterator[dict[str, Any]]:
        """Yield the partition key of each live scope, by the names of its attributes."""
        for run in self._runs:
            for scope in run.scopes.values():
                yield dict(scope.key)

    @property
    def tally(self) -> Tally:
        """What became of the records so far."""
        t, queues = self._tally, self._queues
        waiting, late, refused = queues.waiting, queues.reports.late, queues.reports.refused
        return Tally(
            t.accepted - waiting - late - refused,
            t.duplicates,
            t.rejected,
            t.late + late,
            waiting,
            t.overflow + refused,
        )

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of INTERFACE, so far."""
        membership = self._admission.membership
        extra = {
            "restarts": 0 if membership is None else membership.incarnations.restarts,
            "doubtful": 0 if membership is None else membership.in_doubt,
            "handler_failures": self._handlers.failures,
        }
        return {
            "events": self.tally.to_dict(),
            "patterns": {r.compiled.name: r.counts.to_dict() for r in self._runs},
            "gaps": self._queues.reports.gaps,
            "holes": self._intake.holes(),
            **{name: count for name, count in extra.items() if count},
        }

    @property
    def counts(self) -> dict[str, Counts]:
        """The counts of each pattern."""
        return {r.compiled.name: r.counts for r in self._runs}

    @property
    def watermark_us(self) -> int | None:
        """The time that the stream has passed, in microseconds; None as long as it is not known."""
        return self._watermark_us

    def passed(self, event: Event) -> bool:
        """Whether the watermark has passed the time of an event, which is late then."""
        return (
            self._watermark_us is not None
            and self._needs_time
            and event.time_us is not None
            and event.time_us < self._watermark_us
        )

    def seen(self) -> dict[str, tuple[int, list[int]]]:
        """Return of each node up to which counter all was seen, and what was seen beyond."""
        return self._intake.seen()

    def pending(self, name: str) -> set[Dot]:
        """Return what was seen and a pattern may yet be offered: its queue holds or awaits it."""
        group = self._queues.of(name)
        return set() if group is None else group.pending()

    def standing(self, name: str) -> Iterator[Event]:
        """Yield the events, seen so far, that a verdict of a `find` to come may stand on."""
        for run in self._runs:
            if run.compiled.name == name:
                yield from standing(run)
        group = self._queues.of(name)
        if group is not None:
            yield from (event for event, _ in group.held_back())

    # --- state ---

    def snapshot(self) -> bytes:
        """Return the state: `Monitor.restore(program, blob)` goes on from it."""
        return encoded(_written(self._changes(self._recorded(tracking=False))))

    def records(self) -> dict[bytes, bytes]:
        """Return the state as records; from now on, what changes is taken note of.

        Returns
        -------
        dict of bytes to bytes
            One record for what is small, one for each scope, and what grows with the number
            of events in chunks (`ketal.runtime.state_records`). `Monitor.from_records` goes on
            from it.
        """
        self._recorder = self._recorded(tracking=True)
        return _written(self._changes(self._recorder))

    def changes(self) -> dict[bytes, bytes | None]:
        """Return what changed since the last call of this or of `records`, or the restore.

        Returns
        -------
        dict of bytes to (bytes or None)
            The records that are new or other than before; None for one that is gone. All
            records, the first time that a monitor is asked.
        """
        if self._recorder is None:
            return {**dict.fromkeys(self._replaced), **self.records()}
        return self._changes(self._recorder)

    def _recorded(self, *, tracking: bool) -> Recorder:
        return Recorder(self._admission, self._queues, self._runs, tracking=tracking)

    def _changes(self, recorder: Recorder) -> dict[bytes, bytes | None]:
        tally = self._tally
        counts = [tally.accepted, tally.duplicates, tally.rejected, tally.late, 0, tally.overflow]
        core = {"tally": counts, "watermark_us": self._watermark_us, "closed": self._closed}
        if self._about is None:
            marks = {c.name: _mark(c) for c in self.program.compiled}
            source = written(self.program)
            self._about = {"marks": marks, "execution": self.execution, "source": source}
        return recorder.changes(self._about, core)

    @classmethod
    def restore(cls, program: Program, blob: bytes, **options: Any) -> Monitor:
        """Return a monitor with the state of a snapshot.

        Parameters
        ----------
        program : Program
            The program that the snapshot was taken of.
        blob : bytes
            What `snapshot` returned.
        **options
            As for `Monitor`.

        Raises
        ------
        StateError
            If the bytes are no snapshot, or of another program; it says what changed.
        TypeError
            If an argument is of another class than it must be.
        """
        checked_program(program)
        if not isinstance(blob, bytes):
            raise wrong_type("blob", "bytes, as snapshot() returned", blob)
        return cls._of(program, decoded(blob), options, tracking=False)

    @classmethod
    def anew(
        cls, program: Program, state: bytes | Mapping[bytes, bytes], **options: Any
    ) -> Monitor:
        """Return a monitor that goes on with the execution of a state under another program.

        What was seen, who is there and what waits in a queue stay. Patterns that the state
        has unchanged go on with their runs; all others begin with none, and are offered
        what the queues release from now on, or the next event (`ketal.runtime.migration`).

        Parameters
        ----------
        program : Program
            What takes over.
        state : bytes, or mapping of bytes to bytes
            What `snapshot` returned, or records as `from_records` takes them.
        **options
            As for `Monitor`.

        Raises
        ------
        StateError
            If it is no state, or holds back more than `held_back_max`.
        TypeError
            If an argument is of another class than it must be.
        """
        checked_program(program)
        if not isinstance(state, bytes | Mapping):
            raise wrong_type("state", "bytes, as snapshot() returned, or records", state)
        return cls._of(program, records_of(state), options, tracking=False, anew=True)

    @classmethod
    def from_records(
        cls, program: Program, records: Mapping[bytes, bytes], **options: Any
    ) -> Monitor:
        """Return a monitor with the state that records hold.

        Parameters
        ----------
        program : Program
            The program that the records were made of.
        records : mapping of bytes to bytes
            What `records` returned, with each later `changes` put in.
        **options
            As for `Monitor`.

        Raises
        ------
        StateError
            If they are no records of a state, or of another program; it says what changed.
        TypeError
            If an argument is of another class than it must be.
        """
        checked_program(program)
        if not isinstance(records, Mapping):
            raise wrong_type(
                "records", "a mapping of bytes to bytes, as records() returned", records
            )
        return cls._of(program, records, options, tracking=True)

    @classmethod
    def _of(
        cls,
        program: Program,
        records: Mapping[bytes, bytes],
        options: dict[str, Any],
        *,
        tracking: bool,
        anew: bool = False,
    ) -> Monitor:
        read = Records(records)
        now = {c.name: _mark(c) for c in program.compiled}
        try:
            saved = read.one("program")
            said = changes(saved["marks"], now)
            unchanged = unchanged_patterns(saved["marks"], now)
            options = {"execution": saved["execution"], **options}
        except (KeyError, TypeError, AttributeError) as error:
            raise StateError(f"the state is damaged: {type(error).__name__} {error}") from None
        if said and not anew:
            raise OtherProgramError(f"the state is of another program: {said}")
        self = cls(program, **options)
        recorder = self._recorded(tracking=tracking)
        try:
            core = read.one("core")
            self._tally = Tally(*core["tally"])
            self._watermark_us, self._closed = core["watermark_us"], core["closed"]
            self._queues.watermark_us = self._watermark_us

            def membered() -> None:
                self._restore_clocks(saved=True)

            if anew:
                begin_anew(recorder, read, unchanged, membered)
                self._replaced = tuple(key for key in records if not key.startswith(OTHERS))
            else:
                recorder.load(read, membered)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the state is damaged: {type(error).__name__} {error}") from None
        if self._queues.waiting > self.limits.held_back_max:
            raise StateError(
                f"the state holds back {self._queues.waiting} events; "
                f"limit held_back_max is {self.limits.held_back_max}"
            )
        if tracking:
            self._recorder = recorder
        return self


def _written(records: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in records.items() if value is not None}
