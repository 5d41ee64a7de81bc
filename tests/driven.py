"""An execution with a Monitor's methods, for tests of state that a Monitor does not expose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ketal.model.events.control import Control
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.log_arguments import LogItem
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.runtime.execution import Execution


class Driven(Execution):
    """An execution that is used like a Monitor, without handlers."""

    def feed_many(self, items: Iterable[LogItem]) -> list[Verdict]:
        return [verdict for item in items for verdict in self.feed(item)]

    def leave(self, node: str) -> list[Verdict]:
        return self.feed(Control("leave", node=node))

    def close(self) -> list[Verdict]:
        return list(self.conclude())

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        return self.release.held_back()

    def snapshot(self) -> bytes:
        return self.state.snapshot()

    @property
    def summary(self) -> dict[str, Any]:
        return self.counts.summary
