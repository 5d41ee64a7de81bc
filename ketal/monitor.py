"""The in-process drivers: `Monitor` for a stream, `run` for a finite log (DESIGN 7).

Both hand records to an `Intake`, order what is new, and offer it to the runs of
each pattern. A pattern under `order arrival`, or one whose answer needs no
order (`find any` under CausalOrder without `not`), is offered events as they
come; the others what a hold-back queue releases, or, of a finite log, the
canonical linear extension.

The one rule: every record ends as a verdict or in a count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ketal.automaton import CompiledPattern
from ketal.errors import NotAvailableError, SettingError, StateError
from ketal.event import Control, Dot, Event, seconds
from ketal.intake import CONTRADICTION, DUPLICATE, NEW, Intake, Tally
from ketal.limits import Limits
from ketal.operators.causal_order import HoldBack, canonical
from ketal.program import Program
from ketal.scopes import Counts, PatternRun
from ketal.snapshots import (
    EventTable,
    changes,
    decoded,
    encoded,
    pattern_state,
    read_events,
    restore_pattern,
)
from ketal.verdicts import Late, Overflow, Rejected, Transition, Verdict

Handler = Callable[[Verdict], object]
_LOGGER = logging.getLogger("ketal")
_KINDS = (
    "match", "violation", "incomplete", "timed_out", "late", "gap", "rejected", "overflow",
    "transition",
)  # fmt: skip


def _refuse_unavailable(compiled: CompiledPattern, *, live: bool) -> None:
    """Say clearly what the language has and this version does not execute.

    Raises
    ------
    NotAvailableError
        For `topology` and `mode`, and for the options of CausalOrder on a stream.
    """
    p = compiled.pattern
    missing = []
    if p.topology is not None:
        missing.append("`topology`")
    if p.mode is not None:
        missing.append(f"`mode {p.mode}` (ketal.{p.mode}(pattern, log) answers it)")
    if live:
        order = p.order
        missing += [
            f"`{name}` of CausalOrder on a stream"
            for name, asked in (
                ("total", order.total),
                ("frontier", order.frontier),
                ("gap", order.gap),
                ("idle", order.idle),
                ("overflow", order.overflow),
            )
            if asked
        ]
    if missing:
        raise NotAvailableError(
            f"pattern {compiled.name}: {', '.join(missing)} is not available yet"
        )


class _Handlers:
    """The handlers of a Monitor; a failing one is reported, never raised."""

    def __init__(self, on: Mapping[str, Handler], program: Program) -> None:
        self.by_kind: dict[str, Handler] = {}
        self.by_state: dict[tuple[str, str], Handler] = {}
        self.failures = 0
        states = {(c.name, n) for c in program.compiled for n in _state_names(c)}
        for key, handler in on.items():
            pattern, dot, state = key.partition(".")
            if key in _KINDS:
                self.by_kind[key] = handler
            elif dot and (pattern, state) in states:
                self.by_state[(pattern, state)] = handler
            else:
                known = ", ".join([*_KINDS, *sorted(f"{p}.{s}" for p, s in states)])
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

    Raises
    ------
    NotAvailableError
        If the program needs what this version does not execute.

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
    ) -> None:
        for compiled in program.compiled:
            _refuse_unavailable(compiled, live=True)
        self.program = program
        self.limits = limits or program.compiled[0].limits
        self.execution = execution
        self.trace = trace
        self._handlers = _Handlers(on or {}, program)
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
        self._single = self._direct[0] if len(self._runs) == len(self._direct) == 1 else None
        self._needs_time = any(c.window_us is not None for c in program.compiled)
        self._intake = Intake(self.limits)
        self._queue = HoldBack(self.limits.held_back_max)
        self._tally = Tally()
        self._watermark_us: int | None = None
        self._closed = False

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
        return self._said(self._feed(event, place))

    def feed_many(self, events: Iterable[Event | Control]) -> list[Verdict]:
        """Take events in turn; return the verdicts of all."""
        out: list[Verdict] = []
        for event in events:
            verdicts = self._feed(event, "")
            if verdicts:
                out += self._said(verdicts)
        return out

    def reject(self, rejected: Rejected) -> list[Verdict]:
        """Count a record that is no event."""
        self._tally.rejected += 1
        return self._said([rejected])

    def control(self, control: Control, *, place: str = "") -> list[Verdict]:
        """Take a control event: a watermark or the end; others are rejected for now."""
        return self._said(self._control(control, place))

    def _feed(self, event: Event | Control, place: str) -> list[Verdict]:
        if event.__class__ is not Event:
            if isinstance(event, Control):
                return self._control(event, place)
            if not isinstance(event, Event):
                raise TypeError(f"feed takes a ketal.Event, not {type(event).__name__}")
        tally = self._tally
        if self._closed:
            tally.rejected += 1
            return [self._rejected(event, place, "the execution has ended (ketal.end)")]
        status = self._intake.admit(event)
        if status is not NEW:
            return self._not_new(event, status, place)
        if (
            self._watermark_us is not None
            and self._needs_time
            and event.time_us is not None
            and event.time_us < self._watermark_us
        ):
            tally.late += 1
            return [_late(event, self.execution)]
        tally.accepted += 1
        if self._single is not None:
            return self._single.offer(event)  # type: ignore[return-value]
        out: list[Verdict] = []
        for run in self._direct:
            out += run.offer(event)
        if self._ordered:
            released = self._queue.push(event)
            if released is None:
                tally.accepted -= 1
                tally.overflow += 1
                given_up = "the event, which would have to wait for its past"
                return [
                    *out,
                    _overflow(event, self.execution, "held_back_max", given_up),
                ]
            for ready in released:
                for run in self._ordered:
                    out += run.offer(ready)
        return out

    def _not_new(self, event: Event, status: str, place: str) -> list[Verdict]:
        if status == DUPLICATE:
            self._tally.duplicates += 1
            return []
        if status == CONTRADICTION:
            self._tally.rejected += 1
            return [
                self._rejected(
                    event, place, f"{event.dot} was read before with other content; a dot is unique"
                )
            ]
        self._tally.overflow += 1
        given_up = "an event older than the counters that are kept: it may be a duplicate"
        return [_overflow(event, self.execution, "counters_max", given_up)]

    def _rejected(self, event: Event, place: str, reason: str) -> Rejected:
        return Rejected(place=place or str(event.dot), reason=reason, execution=self.execution)

    def _control(self, control: Control, place: str) -> list[Verdict]:
        if control.kind == "watermark":
            assert control.time is not None
            return self._advance(control.time)
        if control.kind == "end":
            return self._close()
        self._tally.rejected += 1
        return [
            Rejected(
                place=place or f"ketal.{control.kind}",
                reason=f"membership (ketal.{control.kind}) is not available yet",
                execution=self.execution,
            )
        ]

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
        return [v for run in self._runs for v in run.advance(watermark_us)]

    def leave(self, node: str) -> list[Verdict]:
        """Say that a node left, so that nothing waits for it.

        Raises
        ------
        NotAvailableError
            Always, in this version.
        """
        raise NotAvailableError(f"membership (leave {node!r}) is not available yet")

    def close(self) -> list[Verdict]:
        """End the stream: every window and every run; a second call does nothing."""
        return self._said(self._close())

    def _close(self) -> list[Verdict]:
        if self._closed:
            return []
        self._closed = True
        return [v for run in self._runs for v in run.close()]

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

    def held_back(self) -> list[tuple[Event, Dot]]:
        """Return each event that waits for its past, with one dot that it waits for."""
        return self._queue.held_back()

    @property
    def live_runs(self) -> int:
        """How many check runs and partial matches are live."""
        return sum(run.live_runs() for run in self._runs)

    @property
    def tally(self) -> Tally:
        """What became of the records so far."""
        waiting = len(self._queue)
        t = self._tally
        return Tally(t.accepted - waiting, t.duplicates, t.rejected, t.late, waiting, t.overflow)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of INTERFACE, so far."""
        extra = {"handler_failures": self._handlers.failures} if self._handlers.failures else {}
        return {
            "events": self.tally.to_dict(),
            "patterns": {r.compiled.name: r.counts.to_dict() for r in self._runs},
            "gaps": 0,
            "holes": self._intake.holes(),
            **extra,
        }

    @property
    def counts(self) -> dict[str, Counts]:
        """The counts of each pattern."""
        return {r.compiled.name: r.counts for r in self._runs}

    # --- state ---

    def snapshot(self) -> bytes:
        """Return the state: `Monitor.restore(program, blob)` goes on from it."""
        table = EventTable()
        tally = self._tally
        state = {
            "marks": {c.name: _mark(c) for c in self.program.compiled},
            "execution": self.execution,
            "tally": [
                tally.accepted, tally.duplicates, tally.rejected, tally.late, 0, tally.overflow
            ],
            "watermark_us": self._watermark_us,
            "closed": self._closed,
            "intake": self._intake.state(),
            "released": self._queue.released,
            "held_back": [table.number(e) for e, _ in self._queue.held_back()],
            "patterns": [pattern_state(run, table) for run in self._runs],
            "events": table.rows,
        }  # fmt: skip
        return encoded(state)

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
        """
        state = decoded(blob)
        try:
            said = changes(state["marks"], {c.name: _mark(c) for c in program.compiled})
            options = {"execution": state["execution"], **options}
        except (KeyError, TypeError, AttributeError) as error:
            raise StateError(f"the snapshot is damaged: {type(error).__name__} {error}") from None
        if said:
            raise StateError(f"the snapshot is of another program: {said}")
        self = cls(program, **options)
        try:
            self._tally = Tally(*state["tally"])
            self._watermark_us = state["watermark_us"]
            self._closed = state["closed"]
            self._intake = Intake.restored(self.limits, state["intake"])
            events = read_events(state["events"])
            self._queue.released = state["released"]
            for number in state["held_back"]:
                if self._queue.push(events[number]) is None:
                    raise StateError(
                        f"the snapshot holds back {len(state['held_back'])} events; "
                        f"limit held_back_max is {self.limits.held_back_max}"
                    )
            for run, inner in zip(self._runs, state["patterns"], strict=True):
                restore_pattern(run, inner, events)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise StateError(f"the snapshot is damaged: {type(error).__name__} {error}") from None
        return self


def _overflow(event: Event, execution: str, limit: str, given_up: str) -> Overflow:
    """Say of an execution, not of a pattern, that a limit was reached."""
    time = None if event.time is None else float(event.time)
    return Overflow(
        pattern="",
        fingerprint="",
        execution=execution,
        time=time,
        limit=limit,
        given_up=given_up,
        event=event.dot,
    )


def _late(event: Event, execution: str) -> Late:
    """Say that an event's time is before the watermark."""
    time = None if event.time is None else float(event.time)
    reason = "its time is before the watermark"
    return Late(
        pattern="", fingerprint="", execution=execution, time=time, event=event.dot, reason=reason
    )


# --- finite logs -----------------------------------------------------------------


class Verdicts:
    """The verdicts of a finite execution: iterable once, then `summary`.

    Iterating does the work; leaving off early leaves the summary so far.
    """

    def __init__(self, judge: _Judge) -> None:
        self._judge = judge
        self._verdicts = judge.verdicts()

    def __iter__(self) -> Iterator[Verdict]:
        return self._verdicts

    def __next__(self) -> Verdict:
        return next(self._verdicts)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of INTERFACE, of what has been read so far."""
        return self._judge.summary()

    def to_pandas(self) -> Any:
        """Return the verdicts that are left as a pandas DataFrame, one a row."""
        import pandas

        return pandas.DataFrame([v.to_dict() for v in self._verdicts])

    def _repr_html_(self) -> str:
        # Showing must not consume: only the summary so far is shown.
        from html import escape

        rows = [
            f"<tr><td>{escape(name)}</td>"
            + "".join(f"<td>{n} {escape(what)}</td>" for what, n in counts.items() if n)
            + "</tr>"
            for name, counts in self.summary["patterns"].items()
        ]
        events = ", ".join(f"{n} {what}" for what, n in self.summary["events"].items() if n)
        return f"<table>{''.join(rows)}</table><p>{escape(events) or 'nothing read yet'}</p>"


Record = tuple[str, "Event | Control | Rejected", str, int]


def _records(log: Any) -> Iterator[Record]:
    """Return the records of a Log, or of an iterable of events."""
    if hasattr(log, "records"):
        return iter(log.records())
    return (("", item, "", 0) for item in log)


class _Judge:
    """The judging of a finite log, one execution or several."""

    def __init__(
        self, program: Program, log: Any, limits: Limits, *, listing: bool, trace: bool
    ) -> None:
        for compiled in program.compiled:
            _refuse_unavailable(compiled, live=False)
        self.program = program
        self.log = log
        self.limits = limits
        self.listing = listing
        self.trace = trace
        self.executions: dict[str, _Execution | Monitor] = {}

    def verdicts(self) -> Iterator[Verdict]:
        if self.program.needs_order:
            yield from self._whole()
        else:
            yield from self._streamed()

    def _streamed(self) -> Iterator[Verdict]:
        """Under `order arrival` nothing waits: each record is judged as it is read."""
        monitors: dict[str, Monitor] = {}
        for execution, item, name, line in _records(self.log):
            monitor = monitors.get(execution)
            if monitor is None:
                monitor = monitors[execution] = self.executions[execution] = Monitor(
                    self.program,
                    limits=self.limits,
                    listing=self.listing,
                    trace=self.trace,
                    execution=execution,
                )
            if item.__class__ is Event:
                out = monitor._feed(item, "")
                if not out:
                    continue
                if isinstance(out[0], Rejected) and name:
                    out = [_placed(v, f"{name}:{line}") for v in out]
            elif isinstance(item, Rejected):
                out = monitor.reject(item)
            else:
                out = monitor.feed(item, place=f"{name}:{line}" if name else "")
            if out:
                yield from out
        for monitor in monitors.values():
            yield from monitor.close()

    def _whole(self) -> Iterator[Verdict]:
        """Under CausalOrder the whole log is read first."""
        executions: dict[str, _Execution] = {}
        for execution, item, name, line in _records(self.log):
            reader = executions.get(execution)
            if reader is None:
                reader = executions[execution] = self.executions[execution] = _Execution(
                    self.program,
                    self.limits,
                    execution,
                    listing=self.listing,
                    trace=self.trace,
                )
            verdict = reader.read(item, f"{name}:{line}" if name else "")
            if verdict is not None:
                yield verdict
        for reader in executions.values():
            yield from reader.judged()

    def summary(self) -> dict[str, Any]:
        tally = Tally()
        totals = {c.name: Counts() for c in self.program.compiled}
        holes = 0
        for execution in self.executions.values():
            tally.add(execution.tally)
            holes += execution.summary["holes"]
            for name, counts in execution.counts.items():
                total = totals[name]
                for item in Counts.__slots__:
                    setattr(total, item, getattr(total, item) + getattr(counts, item))
        return {
            "events": tally.to_dict(),
            "patterns": {name: counts.to_dict() for name, counts in totals.items()},
            "gaps": 0,
            "holes": holes,
        }


def _placed(verdict: Verdict, place: str) -> Verdict:
    if isinstance(verdict, Rejected):
        return Rejected(place=place, reason=verdict.reason, execution=verdict.execution)
    return verdict


class _Execution:
    """One finite execution, read whole."""

    def __init__(
        self, program: Program, limits: Limits, execution: str, *, listing: bool, trace: bool
    ) -> None:
        self.limits = limits
        self.execution = execution
        self.intake = Intake(limits, contents_max=limits.events_max)
        self.events: list[Event] = []
        self.steps: list[Event | int] = []  # events and watermarks, as they were read
        self.known: dict[str, int] = {}
        self.tally = Tally()
        self.watermark_us: int | None = None
        self.ended = False
        self.runs = [
            PatternRun(c, limits, execution=execution, listing=listing, trace=trace)
            for c in program.compiled
        ]
        self._needs_time = any(c.window_us is not None for c in program.compiled)

    def read(self, item: Event | Control | Rejected, place: str) -> Verdict | None:
        """Take one record in; return what is wrong with it."""
        if isinstance(item, Rejected):
            self.tally.rejected += 1
            return item
        if isinstance(item, Control):
            return self._control(item, place)
        place = place or str(item.dot)
        if self.ended:
            return self._reject(place, "the execution has ended (ketal.end)")
        if len(self.events) >= self.limits.events_max:
            self.tally.overflow += 1
            return _overflow(item, self.execution, "events_max", "the event")
        status = self.intake.admit(item)
        if status == DUPLICATE:
            self.tally.duplicates += 1
            return None
        if status == CONTRADICTION:
            why = f"{item.dot} was read before with other content; a dot is unique"
            return self._reject(place, why)
        if status is not NEW:
            self.tally.overflow += 1
            what = "an event older than the counters that are kept: it may be a duplicate"
            return _overflow(item, self.execution, "counters_max", what)
        watermark = self.watermark_us
        time_us = item.time_us
        timed = self._needs_time and watermark is not None and time_us is not None
        if timed and time_us < watermark:  # type: ignore[operator]
            self.tally.late += 1
            return _late(item, self.execution)
        self.tally.accepted += 1
        self.events.append(item)
        self.steps.append(item)
        known = self.known
        for node, counter in item.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
        return None

    def _control(self, control: Control, place: str) -> Verdict | None:
        if control.kind == "watermark":
            assert control.time is not None
            watermark_us = round(control.time * 1e6)
            if self.watermark_us is None or watermark_us > self.watermark_us:
                self.watermark_us = watermark_us
                self.steps.append(watermark_us)
            return None
        if control.kind == "end":
            self.ended = True
            return None
        return self._reject(
            place or f"ketal.{control.kind}",
            f"membership (ketal.{control.kind}) is not available yet",
        )

    def _reject(self, place: str, reason: str) -> Rejected:
        self.tally.rejected += 1
        return Rejected(place=place, reason=reason, execution=self.execution)

    def judged(self) -> Iterator[Verdict]:
        """Judge the execution; verdicts come in the canonical order of what completed them."""
        arrival: dict[int, dict[Dot | None, list[Verdict]]] = {}
        for number, run in enumerate(self.runs):
            if not run.compiled.causal:
                arrival[number] = self._in_file_order(run)
        for event in canonical(self.events):
            for number, run in enumerate(self.runs):
                if number in arrival:
                    yield from arrival[number].pop(event.dot, ())
                else:
                    yield from run.offer(event)
        for number, run in enumerate(self.runs):
            for verdicts in arrival.get(number, {}).values():
                yield from verdicts
            yield from run.close()

    def _in_file_order(self, run: PatternRun) -> dict[Dot | None, list[Verdict]]:
        said: dict[Dot | None, list[Verdict]] = {}
        for step in self.steps:
            if isinstance(step, int):
                verdicts = run.advance(step)
                if verdicts:
                    said.setdefault(None, []).extend(verdicts)
            else:
                verdicts = run.offer(step)
                if verdicts:
                    said.setdefault(step.dot, []).extend(verdicts)
        return said

    @property
    def counts(self) -> dict[str, Counts]:
        return {r.compiled.name: r.counts for r in self.runs}

    @property
    def summary(self) -> dict[str, Any]:
        return {"holes": self.intake.holes(self.known)}


def run(
    program: Program,
    log: Any,
    *,
    listing: bool = True,
    trace: bool = False,
    limits: Limits | None = None,
) -> Verdicts:
    """Judge a finite log.

    Parameters
    ----------
    program : Program
        The patterns.
    log : Log or iterable of Event
        What happened, in the order of the file.
    listing : bool
        Whether verdicts are wanted, or the summary only.
    trace : bool
        Whether to say every transition.
    limits : Limits, optional
        Other limits than those the program was compiled with.

    Returns
    -------
    Verdicts
        Iterable once; does its work as it is iterated.

    Raises
    ------
    NotAvailableError
        If the program needs what this version does not execute.
    """
    judge = _Judge(program, log, limits or program.compiled[0].limits, listing=listing, trace=trace)
    return Verdicts(judge)
