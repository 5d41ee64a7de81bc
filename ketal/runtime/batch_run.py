"""Finite logs (DESIGN 5 and 7): `run` judges what has been written down already.

Everything is known, so under CausalOrder the log is read whole and offered in
the canonical linear extension, whatever the order of the file; holes in the
counters are counted and hold nothing back. For a pattern whose order has a `gap`
they are lost events, as at the end of a stream: named, and what comes after them
is marked. Where every pattern stands under `order arrival`, nothing waits: each
record is judged as it is read, in bounded memory.

The one rule: every record ends as a verdict or in a count.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ketal.engine.copies import NEVER_US
from ketal.engine.pattern_run import PatternRun, one
from ketal.engine.scopes import Counts
from ketal.errors import EventError, SettingError, wrong_type
from ketal.model.event import Control, Dot, Event, checked_log
from ketal.model.limits import Limits
from ketal.model.values import base_node
from ketal.model.verdicts import Gap, Match, Rejected, RunVerdict, Verdict, Violation
from ketal.operators.causal_order import canonical
from ketal.operators.membership.incarnations import restarted
from ketal.operators.membership.members import restored_with_doubts
from ketal.operators.order import holes
from ketal.operators.order.step import Key, ReleaseStep
from ketal.operators.topology.domains import nodes_of
from ketal.program import Program, checked_program
from ketal.runtime.deduplication import CONTRADICTION, DUPLICATE, NEW, SEEN, Tally
from ketal.runtime.identification import Admission
from ketal.runtime.monitor import Monitor
from ketal.runtime.pattern_queues import came_late, overflowed
from ketal.runtime.possibly_definitely import in_mode

_NOT_BEGUN = "nothing read yet"


class Verdicts:
    """The verdicts of a finite execution: iterable once, then `summary`.

    Iterating does the work; leaving off early leaves the summary so far. To
    show one, in a notebook or by `repr`, does no work and takes no verdict: it
    says whether the log has been judged, and what came of it.
    """

    def __init__(self, judge: _Judge) -> None:
        self._judge = judge
        self._verdicts = self._told()
        self._progress = _NOT_BEGUN

    def _told(self) -> Iterator[Verdict]:
        self._progress = "not all judged yet"
        yield from self._judge.verdicts()
        self._progress = ""

    def __iter__(self) -> Iterator[Verdict]:
        return self._verdicts

    def __next__(self) -> Verdict:
        return next(self._verdicts)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of INTERFACE, of what has been read so far."""
        return self._judge.summary()

    def to_pandas(self) -> Any:
        """Return the verdicts that are left as a pandas DataFrame, one a row.

        Raises
        ------
        SettingError
            If pandas is missing.
        """
        try:
            import pandas
        except ImportError:
            raise SettingError(
                "to_pandas needs pandas, which is not installed: pip install pandas"
            ) from None
        return pandas.DataFrame([v.to_dict() for v in self._verdicts])

    def _shown(self) -> list[tuple[str, str]]:
        """Return what there is to show: (a pattern, or nothing; what to say of it)."""
        if self._progress == _NOT_BEGUN:
            return [("", f"{_NOT_BEGUN}: iterate for the verdicts")]
        summary = self.summary
        of = {**summary["patterns"], "": summary["events"]}
        said = {n: ", ".join(f"{m} {what}" for what, m in c.items() if m) for n, c in of.items()}
        shown = [(name, counts or "nothing") for name, counts in said.items()]
        return [*shown, ("", self._progress)] if self._progress else shown

    def __repr__(self) -> str:
        said = "; ".join(f"{name}: {what}" if name else what for name, what in self._shown())
        return f"<ketal.Verdicts: {said}>"

    def _repr_html_(self) -> str:
        from html import escape

        cells = ((escape(name), escape(what)) for name, what in self._shown())
        rows = "".join(f"<tr><td>{name}</td><td>{what}</td></tr>" for name, what in cells)
        return f"<table>{rows}</table>"


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
            if isinstance(item, Rejected):
                yield from monitor.reject(item)
                continue
            for _, verdicts in monitor.process((item,)):
                for verdict in verdicts:
                    yield _placed(verdict, f"{name}:{line}") if name else verdict
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
        gaps = holes = 0
        rare = {"restarts": 0, "impossible": 0, "doubtful": 0}
        for execution in self.executions.values():
            tally.add(execution.tally)
            own = execution.summary
            gaps += own["gaps"]
            holes += own["holes"]
            for what in rare:
                rare[what] += own.get(what, 0)
            for name, counts in execution.counts.items():
                total = totals[name]
                for item in Counts.__slots__:
                    setattr(total, item, getattr(total, item) + getattr(counts, item))
        return {
            "events": tally.to_dict(),
            "patterns": {name: counts.to_dict() for name, counts in totals.items()},
            "gaps": gaps,
            "holes": holes,
            **{what: count for what, count in rare.items() if count},
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
        self.admission = Admission(program.compiled, limits, events_max=limits.events_max)
        self.events: list[Event] = []
        self._late: list[Event] = []  # not judged, but what they knew is known of them
        self.steps: list[Event | int] = []  # events and watermarks, as they were read
        self.gaps = 0
        self.impossible = 0
        self.doubtful = 0
        self._lines: dict[str, list[int]] | None = None  # the counters of each node, sorted
        self._known: tuple[int, dict[str, int]] = 0, {}  # of so many events
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
        if item.__class__ is not Event:
            if isinstance(item, Rejected):
                self.tally.rejected += 1
                return item
            if isinstance(item, Control):
                self._control(item)
                return None
            if not isinstance(item, Event):
                raise wrong_type("what a log holds", "a ketal.Event", item)
        place = place or str(item.dot)
        if self.ended:
            return self._reject(place, "the execution has ended (ketal.end)")
        if len(self.events) >= self.limits.events_max:
            self.tally.overflow += 1
            return overflowed(item, self.execution, "events_max", "the event")
        closed = self.admission.closed
        if closed and (why := self.admission.refusal(item, self.admission.refusing(item))):
            return self._reject(place, why)
        try:
            status, item = self.admission.take(item)
        except EventError as error:
            return self._reject(place, error.reason)
        if status in (DUPLICATE, SEEN):
            self.tally.duplicates += 1
            return None
        if status == CONTRADICTION:
            why = f"{item.dot} was read before with other content; a dot is unique"
            return self._reject(place, why)
        if status is not NEW:
            self.tally.overflow += 1
            what = "an event older than the counters that are kept: it may be a duplicate"
            return overflowed(item, self.execution, "counters_max", what)
        self.admission.arrived(item)
        watermark = self.watermark_us
        time_us = item.time_us
        timed = self._needs_time and watermark is not None and time_us is not None
        if timed and time_us < watermark:  # type: ignore[operator]
            self.tally.late += 1
            self._late.append(item)
            return came_late(item, self.execution, "its time is before the watermark")
        self.tally.accepted += 1
        self.events.append(item)
        self.steps.append(item)
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
        else:
            self.admission.control(control)

    def _reject(self, place: str, reason: str) -> Rejected:
        self.tally.rejected += 1
        return Rejected(place=place, reason=reason, execution=self.execution)

    def judged(self) -> Iterator[Verdict]:
        """Judge the execution; verdicts come in the canonical order of what completed them."""
        self._restore()
        yield from self._give_up()
        arrival: dict[int, dict[Dot | None, list[Verdict]]] = {}
        for number, run in enumerate(self.runs):
            if run.compiled.pattern.mode is not None:
                arrival[number] = self._in_every_order(run, number)
            elif not run.compiled.causal:
                arrival[number] = self._in_file_order(run)
        known: dict[str, int] = {}
        closed = self.admission.closed
        events = canonical(self.events)
        passing = [r for r in self.runs if r.compiled.causal and r.compiled.ends_windows_early]
        passed = _passed(events) if passing else ()
        for place, event in enumerate(events):
            for run in passing:
                yield from run.advance(passed[place])
            for node, counter in event.clock.items():
                before = known.get(node, 0)
                if counter > before:
                    if counter == before + 1 and node == event.node:
                        known[node] = counter
                    else:
                        self.impossible += self._ahead(event, known)
                        break
            refusing = self.admission.refusing(event) if closed else ()
            for number, run in enumerate(self.runs):
                if number in arrival:
                    yield from arrival[number].pop(event.dot, ())
                elif number in refusing:
                    run.counts.strangers += 1
                else:
                    yield from one(run.process((event,)))
        self._known = len(self.events), known
        for number, run in enumerate(self.runs):
            for verdicts in arrival.get(number, {}).values():
                yield from verdicts
            yield from run.close()

    def _ahead(self, event: Event, known: dict[str, int]) -> bool:
        """Return whether an event knows of one with a later place in canonical order.

        If the clocks are those of an execution, canonical order respects
        happened-before; where it does not, a clock is impossible.

        Parameters
        ----------
        event : Event
            One whose clock goes beyond `known` by more than itself.
        known : dict of str to int
            The counters that this event and those before it know of, to be raised.
        """
        ahead = False
        for node, counter in event.clock.items():
            before = known.get(node, 0)
            if counter > before:
                known[node] = counter
                ahead |= self._there(node, before, counter - (node == event.node))
        return ahead

    def _there(self, node: str, low: int, high: int) -> bool:
        """Return whether the log has an event of the node with a counter in (low, high]."""
        if self._lines is None:
            self._lines = {}
            for event in self.events:
                self._lines.setdefault(event.node, []).append(event.counter)
            for line in self._lines.values():
                line.sort()
        line = self._lines.get(node, [])
        return bisect_right(line, high) > bisect_right(line, low)

    def _highest(self) -> dict[str, int]:
        """Return the highest counter of each node that a clock refers to."""
        count, known = self._known
        if count != len(self.events):
            known = {}
            for event in self.events:
                for node, counter in event.clock.items():
                    if counter > known.get(node, 0):
                        known[node] = counter
            self._known = len(self.events), known
        return known

    def _restore(self) -> None:
        """Put back the entries that clocks lost when a node left (DESIGN 5, Membership)."""
        membership = self.admission.membership
        if membership is None:
            left = restarted({event.node for event in self.events})
        else:
            left = membership.retired
        count = len(self.events)
        events, self.doubtful = restored_with_doubts(
            [*self.events, *self._late], left, limits=self.limits
        )
        if all(map(operator.is_, events, self.events)):
            return
        self.events, self._late = events[:count], events[count:]
        whole = {event.dot: event for event in self.events}
        self.steps = [s if isinstance(s, int) else whole[s.dot] for s in self.steps]

    def _give_up(self) -> Iterator[Gap]:
        """Find what each pattern's order has lost, and name it once."""
        found: list[tuple[str, int, int]] | None = None
        told: set[Dot] = set()
        made: dict[Any, tuple[list[Dot], dict[Dot, Key]]] = {}
        for run in self.runs:
            pattern = run.compiled.pattern
            if not run.compiled.causal:
                continue
            order = pattern.order, pattern.topology
            if order not in made:
                lost: list[tuple[str, int, int]] = []
                if pattern.order.gap is not None:
                    if found is None:
                        found = list(holes.holes([*self.events, *self._late]))
                    lost = found
                    if pattern.topology is not None and not pattern.topology.open:
                        nodes = nodes_of(pattern.topology)
                        lost = [hole for hole in found if base_node(hole[0]) in nodes]
                step = ReleaseStep()
                for node, first, last in lost:
                    step.declare_lost(node, first, last, self.limits.lost_max)
                lows: dict[Dot, Key] = {}
                if lost and pattern.order.total:
                    lows = holes.lows([*self.events, *self._late], lost, self.limits.lost_max)
                made[order] = step.gaps, lows
                self.gaps += step.unnamed
            gaps, lows = made[order]
            for event in self._late:
                run.miss_event(event)
            for dot in gaps:
                run.miss(dot, lows.get(dot))
                if dot not in told:
                    told.add(dot)
                    self.gaps += 1
                    yield Gap(pattern="", fingerprint="", execution=self.execution, dot=dot)

    def _doubted(self, verdict: RunVerdict, lost: tuple[Dot, ...]) -> RunVerdict:
        """Return what a `mode` says of every order: any loss might have changed that."""
        if not lost or not isinstance(verdict, Match | Violation):
            return verdict
        return msgspec.structs.replace(verdict, certain=False, depends_on=lost)

    def _in_every_order(self, run: PatternRun, number: int) -> dict[Dot | None, list[Verdict]]:
        """Return what is so in some, or in every, linear extension (`mode`)."""
        said: dict[Dot | None, list[Verdict]] = {}
        known = [e for e in self.events if number not in self.admission.refusing(e)]
        run.counts.strangers = len(self.events) - len(known)
        lost = run.losses.dots() if run.losses.past_matters else ()
        for last, verdict in in_mode(run, known):
            doubted = self._doubted(verdict, lost)
            said.setdefault(None if last is None else last.dot, []).append(doubted)
        if lost:
            run.counts.uncertain = run.counts.matches + run.counts.violations
        return said

    def _in_file_order(self, run: PatternRun) -> dict[Dot | None, list[Verdict]]:
        said: dict[Dot | None, list[Verdict]] = {}
        for step in self.steps:
            if isinstance(step, int):
                verdicts = run.advance(step)
                if verdicts:
                    said.setdefault(None, []).extend(verdicts)
            else:
                verdicts = one(run.process((step,)))
                if verdicts:
                    said.setdefault(step.dot, []).extend(verdicts)
        return said

    @property
    def counts(self) -> dict[str, Counts]:
        return {r.compiled.name: r.counts for r in self.runs}

    @property
    def summary(self) -> dict[str, Any]:
        membership = self.admission.membership
        return {
            "gaps": self.gaps,
            "holes": self.admission.intake.holes(self._highest()),
            "restarts": 0 if membership is None else membership.incarnations.restarts,
            "impossible": self.impossible,
            "doubtful": self.doubtful
            + (0 if membership is None else membership.incarnations.doubtful),
        }


def _passed(events: Sequence[Event]) -> list[int]:
    """Return, for each place in an order, the time before which nothing comes any more."""
    passed = []
    least = NEVER_US
    for event in reversed(events):
        time_us = event.time_us
        if time_us is not None and time_us < least:
            least = time_us
        passed.append(least)
    passed.reverse()
    return passed


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
    TypeError
        If an argument is of another class than it must be; later, on iteration,
        if the log holds what is no event.
    """
    limits = Limits.given(limits, checked_program(program).compiled[0].limits)
    return Verdicts(_Judge(program, checked_log(log), limits, listing=listing, trace=trace))
