"""Finite logs: `run` judges what has been written down already.

Everything is known, so under CausalOrder the log is read whole and offered in the canonical
linear extension (`ketal.runtime.log_release`). Where every pattern stands under `order
arrival`, nothing waits: records are judged as they are read, those that a log reads together in
one batch, in bounded memory.

The one rule: verdicts are found as they are iterated; leaving off early costs no more than the
batch that the last one is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from ketal.engine.scopes import Counts
from ketal.errors import SettingError, wrong_type
from ketal.model.event import Control, Event, checked_log
from ketal.model.limits import Limits
from ketal.model.verdicts import Rejected, Verdict
from ketal.program import Program, checked_program
from ketal.runtime.admission.deduplication import Tally
from ketal.runtime.execution import Execution
from ketal.runtime.log_release import LogRelease
from ketal.runtime.stream_release import StreamRelease

_NOT_BEGUN = "nothing read yet"


class Verdicts:
    """The verdicts of a finite execution: iterable once, then `summary`.

    Iterating does the work; leaving off early leaves the summary so far. To
    show one, in a notebook or by `repr`, does no work and takes no verdict: it
    shows whether the log has been judged, and the counts.
    """

    def __init__(self, judge: _Judge) -> None:
        self._judge = judge
        self._verdicts = self._judged()
        self._progress = _NOT_BEGUN

    def _judged(self) -> Iterator[Verdict]:
        self._progress = "not all judged yet"
        yield from self._judge.verdicts()
        self._progress = ""

    def __iter__(self) -> Iterator[Verdict]:
        return self._verdicts

    def __next__(self) -> Verdict:
        return next(self._verdicts)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of what has been read so far, as `ketal run` prints it."""
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
        """Return rows to show: a pattern, or nothing, and its counts or the progress."""
        if self._progress == _NOT_BEGUN:
            return [("", f"{_NOT_BEGUN}: iterate for the verdicts")]
        summary = self.summary
        counts = {**summary["patterns"], "": summary["events"]}
        shown = [
            (name, ", ".join(f"{n} {what}" for what, n in some.items() if n) or "nothing")
            for name, some in counts.items()
        ]
        return [*shown, ("", self._progress)] if self._progress else shown

    def __repr__(self) -> str:
        shown = "; ".join(f"{name}: {what}" if name else what for name, what in self._shown())
        return f"<ketal.Verdicts: {shown}>"

    def _repr_html_(self) -> str:
        from html import escape

        cells = ((escape(name), escape(what)) for name, what in self._shown())
        rows = "".join(f"<tr><td>{name}</td><td>{what}</td></tr>" for name, what in cells)
        return f"<table>{rows}</table>"


Record = tuple[str, "Event | Control | Rejected", str, int]


def _place_in(records: Sequence[Record], number: int) -> str:
    """Return where a record stands, `file:line`; empty where it came from code."""
    _, _, file, line = records[number]
    return f"{file}:{line}" if file else ""


def _batches(log: Any) -> Iterator[Sequence[Record]]:
    """Return the records of a Log, or of an iterable of events, in batches."""
    if hasattr(log, "batches"):
        return iter(log.batches())
    if hasattr(log, "records"):
        return zip(log.records())
    return ((("", item, "", 0),) for item in log)


class _Judge:
    """The judging of a finite log, one execution or several."""

    def __init__(
        self, program: Program, log: Any, limits: Limits, *, listing: bool, trace: bool
    ) -> None:
        self._log = log
        self._program = program
        self._executions: dict[str, Execution] = {}
        self._options: dict[str, Any] = {
            "limits": limits,
            "listing": listing,
            "traced": program.names if trace else (),
            # Under `order arrival` nothing waits: each record is judged as it is read.
            "release": LogRelease if program.needs_order else StreamRelease,
        }

    def verdicts(self) -> Iterator[Verdict]:
        executions = self._executions
        for batch in _batches(self._log):
            for name, group in groupby(batch, key=itemgetter(0)):
                execution = executions.get(name)
                if execution is None:
                    execution = Execution(self._program, name=name, **self._options)
                    executions[name] = execution
                records = list(group)
                items = [item for _, item, _, _ in records]
                kinds = set(map(type, items))
                for kind in kinds:
                    if not issubclass(kind, Event | Control | Rejected):
                        wrong = next(item for item in items if type(item) is kind)
                        raise wrong_type("what a log holds", "a ketal.Event", wrong)
                # What is rejected is counted no sooner than it is told.
                size = 1 if Rejected in kinds else len(items)
                for at in range(0, len(items), size):
                    place = partial(_place_in, records[at : at + size])
                    for _, verdicts in execution.process(items[at : at + size], place):
                        yield from verdicts
        for execution in executions.values():
            yield from execution.conclude()

    def summary(self) -> dict[str, Any]:
        tally = Tally()
        totals = {c.name: Counts() for c in self._program.compiled}
        rest = {"gaps": 0, "holes": 0, "restarts": 0, "impossible": 0, "doubtful": 0}
        for execution in self._executions.values():
            tally.add(execution.tally)
            summary = execution.summary
            for name in rest:
                rest[name] += summary.get(name, 0)
            for run in execution.runs:
                total = totals[run.compiled.name]
                for item in Counts.__slots__:
                    setattr(total, item, getattr(total, item) + getattr(run.counts, item))
        return {
            "events": tally.to_dict(),
            "patterns": {name: counts.to_dict() for name, counts in totals.items()},
            **{name: n for name, n in rest.items() if n or name in ("gaps", "holes")},
        }


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
        Whether to report every transition.
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
