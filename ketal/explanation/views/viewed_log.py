"""A log as `ketal view` reads it: once, into memory, up to the limit of events shown.

The one rule: an execution with more events than can be shown is refused while it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ketal.logs import Log, watched
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import RecordBatch
from ketal.runtime.admission.execution_events import executions_of


class ViewedLog:
    """A log in memory, and its executions; `viewed_events_max` bounds the events of each.

    Attributes
    ----------
    executions : dict of str to ExecutionEvents
        The executions by their names, in the order of the log.
    records : Log
        The records as they were read, as a log.
    scheme : str
        The timestamping scheme whose clocks do not decide happened-before; empty if they do.

    Raises
    ------
    SettingError
        If the log cannot be read, or an execution has more events than are shown.
    TypeError
        If `log` is not a log.
    """

    def __init__(self, log: Log | Iterable[Event], limits: Limits) -> None:
        held: list[RecordBatch] = []

        def holding(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            for batch in batches:
                held.append(batch)
                yield batch

        given = watched(log, holding)
        self.executions = executions_of(given, limits, bound="viewed_events_max")
        self.records = Log.of_batches(lambda: iter(held), undecided=given.undecided)
        self.scheme = "" if given.undecided is None else given.undecided.scheme
