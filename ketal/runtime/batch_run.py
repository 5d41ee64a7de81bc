"""Finite logs: `run` judges a log that is complete.

Under CausalOrder the log is read whole, and then offered in the canonical linear extension
(`ketal.runtime.log_release`). If every pattern is under `order arrival`, no event waits: records
are judged as they are read, in the batches that the log reads, in bounded memory.

The one rule: verdicts are computed while they are iterated; to stop early costs no more than the
batch of the last verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ketal.engine.pattern_run import PatternRun
from ketal.engine.scopes import Counts
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem, batches_of, checked_log, no_log_item
from ketal.model.summaries import Summary, Tally, total
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.programs.program import Program, checked_program
from ketal.runtime.execution import Execution
from ketal.runtime.log_release import LogRelease
from ketal.runtime.log_verdicts import Verdicts
from ketal.runtime.silence.vacuity import MetEvents, add_findings, findings
from ketal.runtime.stream_release import StreamRelease

if TYPE_CHECKING:
    from ketal.logs import Log


class LogPass:
    """One pass over a finite log of one execution or several; it can be iterated once.

    The arguments are those of `run`, and `make_run` and `on_named` of `Execution`.
    """

    def __init__(
        self,
        program: Program,
        log: Log | Iterable[LogItem],
        limits: Limits,
        *,
        listing: bool = True,
        trace: bool = False,
        make_run: Callable[..., PatternRun] = PatternRun,
        on_named: Callable[[str, Dot, str], None] | None = None,
    ) -> None:
        self._log = log
        self._undecided = getattr(log, "undecided", None)
        if self._undecided is not None:
            program = program.for_undecided_clocks(self._undecided.scheme)
        self._program = program
        self._executions: dict[str, Execution] = {}
        self._options: dict[str, Any] = {
            "limits": limits,
            "listing": listing,
            "traced": program.names if trace else (),
            "make_run": make_run,
            "on_named": on_named,
            # Under `order arrival` no event waits: each record is judged as it is read.
            "release": LogRelease if program.needs_order else StreamRelease,
        }

    def __iter__(self) -> Iterator[Verdict]:
        executions = self._executions
        for batch in batches_of(self._log):
            name, items = batch.execution, batch.items
            execution = executions.get(name)
            if execution is None:
                execution = Execution(self._program, name=name, **self._options)
                executions[name] = execution
            kinds = set(map(type, items))
            for kind in kinds:
                if not issubclass(kind, Event | Control | Rejected):
                    raise no_log_item(next(item for item in items if type(item) is kind))
            # A rejection is counted when its verdict is yielded.
            for part in batch.singly() if Rejected in kinds else (batch,):
                for _, verdicts in execution.process(part.items, part.place):
                    yield from verdicts
        for execution in executions.values():
            yield from execution.conclude()

    def share_judged(self) -> float | None:
        """Return the share of the events judged so far; None if events are judged when read."""
        releases = [execution.release for execution in self._executions.values()]
        counts = [release.judged for release in releases if isinstance(release, LogRelease)]
        if not counts:
            return None
        return sum(done for done, _ in counts) / max(1, sum(count for _, count in counts))

    @property
    def summary(self) -> Summary:
        """The summary of what has been read so far, as `ketal run` prints it."""
        counts = [execution.counts for execution in self._executions.values()]
        patterns = {name: Counts().to_dict() for name in self._program.names}
        zero = {"events": Tally().to_dict(), "patterns": patterns, "gaps": 0, "holes": 0}
        out = total([zero, *(part.numbers for part in counts)])
        if self._undecided is not None and self._undecided.unknown:
            out["unknown_orders"] = self._undecided.unknown
        if counts:
            met = MetEvents.sum([part.met_events for part in counts])
            add_findings(out["patterns"], findings(self._program.compiled, met))
        return cast(Summary, out)


def run(
    program: Program,
    log: Log | Iterable[LogItem],
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
    log : Log, or iterable of Event, Control or Rejected
        The log, in the order of the file.
    listing : bool
        Whether the verdicts of patterns are returned; if false, they are only counted.
    trace : bool
        Whether every transition is reported as a verdict.
    limits : Limits, optional
        Other limits than those the program was compiled with.

    Returns
    -------
    Verdicts
        The verdicts, which can be iterated any number of times. The log is judged when they are
        first iterated or queried.

    Raises
    ------
    TypeError
        If an argument has the wrong type; later, when the log is judged, if an item of it is not
        an event.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Conflict { order CausalOrder; event Write = type == "write";
    ...                        First = Write; Second = Conc(Write); find any First Second; }
    ... ''')
    >>> log = [ketal.Event(node="a", type="write", clock={"a": 1}),
    ...        ketal.Event(node="b", type="write", clock={"b": 1})]
    >>> for verdict in ketal.run(program, log):
    ...     print(verdict)
    match Conflict: First=a@1, Second=b@1
    """
    limits = Limits.given(limits, checked_program(program).compiled[0].limits)
    judge = partial(LogPass, program, checked_log(log), limits, listing=listing, trace=trace)
    once = isinstance(log, Iterator)
    return Verdicts(judge, program, limits, listing=listing, once=once)
