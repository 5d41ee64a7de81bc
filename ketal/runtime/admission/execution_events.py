"""The events of a log as a run reads them: deduplicated, named by incarnation, clocks restored.

Whether an event is new or a duplicate, and of which incarnation of its node, is decided as in a run
(`ketal.runtime.admission`), and so are the entries that its clock lost when a node left.

The one rule: a record is an event, a duplicate, a control event or rejected, and counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ketal.errors import EventError, SettingError, at_place
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.limits import Limits
from ketal.model.log_arguments import records_of
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import place_at
from ketal.operators.membership.clock_restoration import restored_with_doubts
from ketal.operators.order import missing
from ketal.runtime.admission.deduplication import DUPLICATE, NEW, PRESUMED
from ketal.runtime.admission.identification import Admission, keeping_all
from ketal.runtime.admission.known_counters import KnownCounters, impossible_text

if TYPE_CHECKING:
    from ketal.logs import Log

T = TypeVar("T")


class ExecutionEvents:
    """The events of one execution of a log; its name is empty where the log is not divided.

    `events_max` bounds the events, and so does the limit named `bound`; `counters_max` bounds the
    counters kept to detect duplicates.
    """

    def __init__(self, name: str, limits: Limits, bound: str) -> None:
        self.name = name
        self.duplicates = self.rejected = 0  # how many records were one, or the other
        self.first_rejected = ""  # the place of the first rejected record, and the reason
        self._limits = limits
        self._events_max, self._bound = min(
            (getattr(limits, one), one) for one in ("events_max", bound)
        )
        self._admission = Admission((), keeping_all(limits))
        # So that clocks are restored: callers of this module compare the clocks of events.
        self._admission.reads_clocks = True
        self._events: list[Event] = []
        self._places: dict[tuple[str, int], tuple[str, int]] = {}

    def add(self, item: Event | Control | Rejected, file: str, line: int) -> None:
        """Add a record, as `records_of` yields it.

        A SettingError if there are too many events, or `counters_max` is reached.
        """
        if isinstance(item, Control):
            self._admission.control(item)
        elif isinstance(item, Rejected):
            self._reject(item.place, item.reason)
        else:
            self._add_event(item, file, line)

    def _add_event(self, read: Event, file: str, line: int) -> None:
        place = place_at(file, line) or str(read.dot)
        try:
            status, event = self._admission.take(read)
        except EventError as error:
            self._reject(place, error.reason)
            return
        if status is NEW:
            if len(self._events) >= self._events_max:
                raise SettingError(
                    f"the log has more than {self._events_max:,} events (limit {self._bound})"
                )
            self._admission.arrived(event)
            self._events.append(event)
            self._places[event.dot] = file, line
        elif status in (DUPLICATE, PRESUMED):
            self.duplicates += 1
        else:
            raise SettingError(
                f"{place}: more counters arrived out of order than are kept (limit counters_max)"
            )

    def _reject(self, place: str, reason: str) -> None:
        self.rejected += 1
        self.first_rejected = self.first_rejected or at_place(place, reason)

    def __len__(self) -> int:
        return len(self._events)

    def events(self) -> list[Event]:
        """Return the events with restored clocks, in the order of the log."""
        left = self._admission.departed_nodes(self._events)
        return restored_with_doubts(self._events, left, limits=self._limits)[0]

    def possible_events(self) -> list[Event]:
        """Return `events`, whose clocks can be those of an execution.

        An EventError if an event knows of an event that comes later in the canonical order.
        """
        events = self.events()
        if impossible := KnownCounters(events).release(canonical(events)):
            where = f"execution {self.name}: " if self.name else ""
            raise EventError(where + impossible_text(impossible))
        return events

    def place(self, dot: Dot) -> str:
        """Return the place of an event in the log; empty if it is not known."""
        return place_at(*self._places[dot])


def missing_dots(events: Iterable[Event]) -> int:
    """Return how many dots at or below a counter in some clock have no event in the execution."""
    return sum(last - first + 1 for _, first, last in missing.holes(events))


def rejected_of(executions: Iterable[ExecutionEvents]) -> tuple[int, str]:
    """Return how many records of a log were rejected, and the first one with its reason.

    The first one is that of the first execution with a rejected record.
    """
    rejecting = [part for part in executions if part.rejected]
    first = rejecting[0].first_rejected if rejecting else ""
    return sum(part.rejected for part in rejecting), first


def execution_named(executions: Mapping[str, T], name: str) -> T:
    """Return the value of an execution's name; a SettingError if no execution has that name."""
    if name not in executions:
        known = execution_names(executions)
        raise SettingError(f"unknown execution {name!r}; the log has {known}")
    return executions[name]


def only_execution(executions: Mapping[str, T], choice: str) -> T:
    """Return the value of the only execution; a SettingError if there are several.

    `choice` tells a user how to choose one.
    """
    if len(executions) > 1:
        names = execution_names(executions)
        raise SettingError(f"the log has several executions: {names}; {choice}")
    (only,) = executions.values()
    return only


def execution_names(names: Iterable[str]) -> str:
    """Return the names of executions, joined; an execution may have no name."""
    return ", ".join(name or "one without a name" for name in names)


def executions_of(
    log: Log | Iterable[Event], limits: Limits, *, bound: str = "events_max"
) -> dict[str, ExecutionEvents]:
    """Read a log; return its executions by their names, in the order of the log.

    A log without records has one execution, whose name is empty. `bound` names another limit on the
    number of events. A SettingError if a limit is reached, or the log cannot be read; a TypeError
    if `log` is not a log, or an item of it is not an event.
    """
    executions: dict[str, ExecutionEvents] = {}
    for execution, item, file, line in records_of(log):
        part = executions.get(execution)
        if part is None:
            part = executions[execution] = ExecutionEvents(execution, limits, bound)
        part.add(item, file, line)
    return executions or {"": ExecutionEvents("", limits, bound)}
