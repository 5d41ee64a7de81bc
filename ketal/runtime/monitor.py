"""The in-process driver of a stream: an execution, and the handlers of its verdicts.

The one rule: a handler is called with a verdict before the next event is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

from ketal.errors import wrong_type
from ketal.model.event import Control, Dot, Event
from ketal.model.limits import Limits
from ketal.model.summaries import Summary
from ketal.model.verdicts import Rejected, Transition, Verdict
from ketal.program import Program, checked_program
from ketal.runtime.execution import BATCH_EVENTS, Execution
from ketal.runtime.handlers import Handler, Handlers
from ketal.runtime.state.execution_state import SavedState


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
        Whether every transition is a verdict.
    on : mapping of str to callable, optional
        Handlers: by kind of verdict (`violation`, `match`, …), or by
        `Pattern.state` for entering a state.
    execution : str
        A name for the execution, put in every verdict.

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
    ) -> None:
        self.program = checked_program(program)
        self._handlers = Handlers({} if on is None else on, program)
        self._trace = trace
        self._execution = Execution(
            program,
            limits=limits,
            listing=listing,
            traced=program.names if trace else self._handlers.patterns,
            name=execution,
        )

    def feed(self, event: Event | Control | Rejected, *, place: str = "") -> list[Verdict]:
        """Process one event; return its verdicts.

        Parameters
        ----------
        event : Event, Control or Rejected
            What happened; or why a record is no event, which is counted.
        place : str
            Where it was read, for a rejection.
        """
        verdicts = self._execution.feed(event, place=place)
        return self._handled(verdicts) if verdicts else verdicts

    def feed_many(self, events: Iterable[Event | Control | Rejected]) -> list[Verdict]:
        """Process events in turn; return the verdicts of all."""
        out: list[Verdict] = []
        if isinstance(events, list | tuple) and not self._handlers:
            for begin in range(0, len(events), BATCH_EVENTS):
                for _, verdicts in self._execution.process(events[begin : begin + BATCH_EVENTS]):
                    out += verdicts
            return out
        for event in events:  # A live stream: each is judged before the next is read.
            out += self.feed(event)
        return out

    def advance_time(self, watermark: float | str | datetime) -> list[Verdict]:
        """Process a watermark: no earlier event is expected; return the verdicts of what it ends.

        Parameters
        ----------
        watermark : float, int, str or datetime
            As an event's time.
        """
        return self._handled(self._execution.advance_time(watermark))

    def leave(self, node: str) -> list[Verdict]:
        """Process the leave of a node; return the verdicts of what that releases."""
        return self.feed(Control("leave", node=node))

    def close(self) -> list[Verdict]:
        """End the stream: every window and every run; a second call does nothing."""
        return self._handled(list(self._execution.conclude()))

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if kind is None:
            self.close()

    def _handled(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Call the handlers; return verdicts without the transitions that only they asked for."""
        handlers = self._handlers
        if not handlers:
            return verdicts
        for verdict in verdicts:
            handlers.call(verdict)
        if self._trace:
            return verdicts
        return [v for v in verdicts if not isinstance(v, Transition)]

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that waits, with one dot it waits for; None: it waits its turn."""
        return self._execution.release.held_back()

    @property
    def summary(self) -> Summary:
        """The summary so far: `events`, `patterns`, `gaps`, `holes`, and counts that are rare."""
        failures = self._handlers.failures
        more = {"handler_failures": failures} if failures else {}
        return cast(Summary, {**self._execution.summary, **more})

    def snapshot(self) -> bytes:
        """Return the state: `Monitor.restore(program, blob)` goes on from it."""
        return self._execution.state.snapshot()

    @classmethod
    def restore(
        cls,
        program: Program,
        blob: bytes,
        *,
        limits: Limits | None = None,
        listing: bool = True,
        trace: bool = False,
        on: Mapping[str, Handler] | None = None,
        execution: str | None = None,
    ) -> Monitor:
        """Return a monitor with the state of a snapshot.

        Parameters
        ----------
        program : Program
            The program that the snapshot was taken of.
        blob : bytes
            What `snapshot` returned.
        limits, listing, trace, on
            As for `Monitor`.
        execution : str, optional
            Another name for the execution than that of the snapshot.

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
        saved = SavedState(program, blob)
        name = saved.execution if execution is None else execution
        monitor = cls(program, limits=limits, listing=listing, trace=trace, on=on, execution=name)
        monitor._execution.state.restore(saved)
        return monitor
