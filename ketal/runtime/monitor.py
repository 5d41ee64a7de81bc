"""The in-process driver of a stream: an execution, and the handlers of its verdicts.

The one rule: a handler is called with a verdict before the next event is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NoReturn, cast

from ketal.errors import checked_name, checked_text, wrong_type
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem, RecordBatch, batches_of, deciding_log
from ketal.model.summaries import Summary
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.operators.order.hold_back import HoldBackQueue
from ketal.programs.program import Program, checked_program
from ketal.runtime.admission.execution_events import only_execution
from ketal.runtime.execution import Execution
from ketal.runtime.handlers import Handler, Handlers
from ketal.runtime.state.execution_state import SavedState


class Monitor:
    """Runs a program over a stream of events, in this process.

    Each event is judged when it is fed: under `order arrival` at once, under `CausalOrder`
    as soon as its past has arrived. Leaving a `with` block without an exception closes the
    monitor.

    Parameters
    ----------
    program : Program
        The patterns.
    limits : Limits, optional
        Other limits than those the program was compiled with.
    listing : bool
        Whether the verdicts of patterns are returned; if false, they are only counted.
    trace : bool
        Whether every transition is reported as a verdict.
    on : mapping of str to callable, optional
        Handlers, called with the verdict: by kind (`violation`, `match`, …), or by `Pattern.state`
        for entering a state (`find any`: with a match). One that raises is logged and counted.
    execution : str
        A name for the execution, put in every verdict.

    Raises
    ------
    NotAvailableError
        If a pattern needs the whole log, as one with a `mode` does.
    SettingError
        If a handler is for an unknown kind or state, or UTF-8 cannot encode `execution`.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Conflict { order CausalOrder; event Write = type == "write";
    ...                        First = Write; Second = Conc(Write); find any First Second; }
    ... ''')
    >>> events = [ketal.Event(node="a", type="write", clock={"a": 1}),
    ...           ketal.Event(node="b", type="write", clock={"b": 1})]
    >>> handlers = {"match": lambda match: print("handler:", match)}
    >>> with ketal.Monitor(program, on=handlers) as monitor:
    ...     for event in events:
    ...         for verdict in monitor.feed(event):
    ...             print(verdict)
    handler: match Conflict: First=a@1, Second=b@1
    match Conflict: First=a@1, Second=b@1
    >>> monitor.summary["patterns"]["Conflict"]["matches"]
    1
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
        self._handlers = Handlers({} if on is None else on, program, trace=trace)
        self._execution = Execution(
            program, limits=limits, listing=listing, traced=self._handlers.traced,
            name=checked_name("execution name", checked_text("execution", execution)),
        )  # fmt: skip

    def feed(self, event: Event | Control | Rejected, *, place: str = "") -> list[Verdict]:
        """Process one event; return its verdicts.

        Parameters
        ----------
        event : Event, Control or Rejected
            The event; or the reason why a record is not an event, which is counted.
        place : str
            Where the event was read, for the verdict if it is rejected.

        Returns
        -------
        list of Verdict
            The verdicts on this event and on the events that it releases; often empty.

        Raises
        ------
        TypeError
            If `event` is none of these.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
        >>> monitor = ketal.Monitor(program)
        >>> [str(v) for v in monitor.feed(ketal.Event(node="n", type="a", clock={"n": 1}))]
        []
        >>> [str(v) for v in monitor.feed(ketal.Event(node="n", type="a", clock={"n": 2}))]
        ['match P: A=n@1+n@2']
        """
        verdicts = self._execution.feed(event, place=place)
        return self._handlers.handle(verdicts) if verdicts else verdicts

    def feed_many(self, events: Iterable[Event | Control | Rejected]) -> list[Verdict]:
        """Process events in turn; return all their verdicts.

        Parameters
        ----------
        events : iterable of Event, Control or Rejected
            As for `feed`, or a `Log` of one execution. Each item of an iterator is judged before
            the next is taken; if the iterator raises, the verdicts until then reach only handlers
            and the summary. A list is read in batches: a handler can feed, but not append to it.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
        >>> events = [ketal.Event(node="n", type="a", clock={"n": count}) for count in (1, 2)]
        >>> [str(verdict) for verdict in ketal.Monitor(program).feed_many(events)]
        ['match P: A=n@1+n@2']
        """
        out: list[Verdict] = []
        for batch in _batches_of_one_execution(events):
            # With handlers one event at a time: a handler may query the monitor.
            for part in batch.singly() if self._handlers else (batch,):
                for _, verdicts in self._execution.process(part.items, part.place):
                    out += self._handlers.handle(verdicts)
        return out

    def advance_time(self, watermark: float | str | datetime) -> list[Verdict]:
        """Process a watermark, before which no event is expected any more; return the verdicts.

        Parameters
        ----------
        watermark : float, int, str or datetime
            A time as in an event: seconds since the epoch, RFC 3339 text or a datetime. A time
            before the last watermark changes nothing.

        Raises
        ------
        EventError
            If it is not a time.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('''
        ...     pattern Answer { event Ask = type == "ask"; event Reply = type == "reply";
        ...                      find next Ask Reply; within 5 s; }
        ... ''')
        >>> monitor = ketal.Monitor(program)
        >>> monitor.feed(ketal.Event(node="n", type="ask", clock={"n": 1}, time=10))
        []
        >>> [str(verdict) for verdict in monitor.advance_time(20)]
        ['timed_out Answer: Ask=n@1']
        """
        return self._handlers.handle(self._execution.advance_time(watermark))

    def leave(self, node: str) -> list[Verdict]:
        """Process the departure of a node; return the verdicts on the events that it releases.

        Parameters
        ----------
        node : str
            The node's name; no event of the node is expected any more.

        Raises
        ------
        EventError
            If it is not a name of a node.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('''
        ...     pattern P { order CausalOrder; event A = type == "a"; find next A; }
        ... ''')
        >>> monitor = ketal.Monitor(program)
        >>> monitor.feed(ketal.Event(node="n1", type="a", clock={"n1": 1, "n2": 1}))
        []
        >>> [str(verdict) for verdict in monitor.leave("n2")]
        ['gap n2@1 declared lost', 'match P: A=n1@1']
        """
        return self.feed(Control("leave", node=node))

    def close(self) -> list[Verdict]:
        """End the stream with its windows and runs; return the verdicts. Again, it does nothing.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event A = type == "a"; check A A; }')
        >>> monitor = ketal.Monitor(program)
        >>> monitor.feed(ketal.Event(node="n", type="a", clock={"n": 1}))
        []
        >>> [str(verdict) for verdict in monitor.close()]
        ['incomplete P: ended in q1, expected A']
        """
        return self._handlers.handle(list(self._execution.conclude()))

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if kind is None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Monitor cannot be copied or pickled; snapshot() returns its state")

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each held-back event and one dot it waits for, None if it waits for its turn.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('''
        ...     pattern P { order CausalOrder; event A = type == "a"; find next A A; }
        ... ''')
        >>> monitor = ketal.Monitor(program)
        >>> monitor.feed(ketal.Event(node="b", type="a", clock={"a": 1, "b": 1}))
        []
        >>> [(str(event), str(dot)) for event, dot in monitor.held_back()]
        [('b@1 a', 'a@1')]
        """
        return self._execution.release.held_back()

    @property
    def summary(self) -> Summary:
        """The summary so far: `events`, `patterns`, `gaps`, `holes`, and rarer nonzero counts."""
        failures = self._handlers.failures
        more = {"handler_failures": failures} if failures else {}
        return cast(Summary, {**self._execution.counts.summary, **more})

    def snapshot(self) -> bytes:
        """Return the state as bytes, from which `Monitor.restore(program, blob)` resumes.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
        >>> monitor = ketal.Monitor(program)
        >>> monitor.feed(ketal.Event(node="n", type="a", clock={"n": 1}))
        []
        >>> blob = monitor.snapshot()
        >>> again = ketal.Monitor.restore(program, blob)
        >>> [str(v) for v in again.feed(ketal.Event(node="n", type="a", clock={"n": 2}))]
        ['match P: A=n@1+n@2']
        """
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
        """Return a monitor that resumes from a snapshot.

        Parameters
        ----------
        program : Program
            The program of the monitor that the snapshot is of.
        blob : bytes
            The bytes that `snapshot` returned.
        limits, listing, trace, on
            As for `Monitor`. Handlers are not part of the state: they are passed again, and the
            count `handler_failures` of the summary begins again.
        execution : str, optional
            A new name for the execution, in place of the one in the snapshot.

        Raises
        ------
        StateError
            If the bytes are not a snapshot of this program; the message says what changed.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; }')
        >>> blob = ketal.Monitor(program).snapshot()
        >>> other = ketal.compile('pattern P { event B = type == "b"; check B; }')
        >>> try:
        ...     ketal.Monitor.restore(other, blob)
        ... except ketal.StateError as error:
        ...     print(error)
        the state is of another program: pattern P changed: kind and strategy, events, body
        """
        if not isinstance(blob, bytes):
            raise wrong_type("blob", "bytes from snapshot()", blob)
        saved = SavedState(program, blob)
        name = saved.execution if execution is None else execution
        monitor = cls(program, limits=limits, listing=listing, trace=trace, on=on, execution=name)
        monitor._execution.state.restore(saved)
        return monitor


def fullest_queue(monitor: Monitor) -> HoldBackQueue | None:
    """Return the hold-back queue of a monitor with the most events; None if it has none."""
    return monitor._execution.release.fullest_queue()


def _batches_of_one_execution(events: Iterable[LogItem]) -> Iterator[RecordBatch]:
    """Yield the records of a log, in batches; a SettingError where a second execution begins."""
    read: dict[str, str] = {}  # the names of its executions
    for batch in batches_of(deciding_log(events, "events")):
        read[batch.execution] = batch.execution
        only_execution(read, "feed each of log.executions to a monitor of its own")
        yield batch
