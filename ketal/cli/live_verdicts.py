"""The verdicts of `ketal run --live`: a `Monitor` is fed record by record.

The one rule: a verdict is yielded before the next record is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketal.errors import SettingError

if TYPE_CHECKING:
    from ketal.cli.output.record_places import RecordPlaces
    from ketal.logs import Log
    from ketal.model.events.dot import Dot
    from ketal.model.events.event import Event
    from ketal.model.summaries import Summary
    from ketal.model.verdicts.verdict_kinds import Verdict
    from ketal.runtime.monitor import Monitor


@dataclass(frozen=True)
class LiveVerdicts:
    """The verdicts of a stream, and where its records stand."""

    monitor: Monitor
    log: Log
    places: RecordPlaces

    def __iter__(self) -> Iterator[Verdict]:
        """Yield the verdicts, each as soon as its event is there."""
        from ketal.model.events.control import Control

        for execution, item, name, line in self.log.records():
            if execution:
                raise SettingError(f"--live judges one execution, and {name} holds several")
            self.places.keep(((execution, item, name, line),))
            yield from self.monitor.feed(item, place=f"{name}:{line}")
            if isinstance(item, Control) and item.kind == "end":
                return
        yield from self.monitor.close()

    @property
    def summary(self) -> Summary:
        """The summary, of what was judged so far."""
        return self.monitor.summary

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the events that wait, each with the dot of the one that it waits for."""
        return self.monitor.held_back()
