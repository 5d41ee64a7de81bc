"""Finite logs (DESIGN 5 and 7): `run` judges what has been written down already.

Everything is known, so under CausalOrder the log is read whole and offered in
the canonical linear extension, whatever the order of the file; holes in the
counters are counted and hold nothing back. Where every pattern stands under
`order arrival`, nothing waits: each record is judged as it is read, in bounded
memory.

The one rule: every record ends as a verdict or in a count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ketal.event import Control, Dot, Event
from ketal.intake import CONTRADICTION, DUPLICATE, NEW, Intake, Tally
from ketal.limits import Limits
from ketal.monitor import Monitor, refuse_unavailable
from ketal.operators.causal_order import canonical
from ketal.operators.membership import restored
from ketal.program import Program
from ketal.queues import came_late, overflowed
from ketal.scopes import Counts, PatternRun
from ketal.verdicts import Rejected, Verdict


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
            refuse_unavailable(compiled)
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
        self.retired: set[str] = set()
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
            self._control(item)
            return None
        place = place or str(item.dot)
        if self.ended:
            return self._reject(place, "the execution has ended (ketal.end)")
        if len(self.events) >= self.limits.events_max:
            self.tally.overflow += 1
            return overflowed(item, self.execution, "events_max", "the event")
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
            return overflowed(item, self.execution, "counters_max", what)
        watermark = self.watermark_us
        time_us = item.time_us
        timed = self._needs_time and watermark is not None and time_us is not None
        if timed and time_us < watermark:  # type: ignore[operator]
            self.tally.late += 1
            return came_late(item, self.execution, "its time is before the watermark")
        self.tally.accepted += 1
        self.events.append(item)
        self.steps.append(item)
        known = self.known
        for node, counter in item.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
        return None

    def _control(self, control: Control) -> None:
        if control.kind == "watermark":
            assert control.time is not None
            watermark_us = round(control.time * 1e6)
            if self.watermark_us is None or watermark_us > self.watermark_us:
                self.watermark_us = watermark_us
                self.steps.append(watermark_us)
        elif control.kind == "end":
            self.ended = True
        elif control.kind == "leave" and control.node is not None:
            self.retired.add(control.node)
        elif control.kind == "view":
            self.retired |= {event.node for event in self.events} - set(control.members)

    def _reject(self, place: str, reason: str) -> Rejected:
        self.tally.rejected += 1
        return Rejected(place=place, reason=reason, execution=self.execution)

    def judged(self) -> Iterator[Verdict]:
        """Judge the execution; verdicts come in the canonical order of what completed them."""
        self._restore()
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

    def _restore(self) -> None:
        """Put back the entries that clocks lost when a node left (DESIGN 5, Membership)."""
        if not self.retired:
            return
        self.events = restored(self.events, self.retired, limits=self.limits)
        whole = {event.dot: event for event in self.events}
        self.steps = [s if isinstance(s, int) else whole[s.dot] for s in self.steps]

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
