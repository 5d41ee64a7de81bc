"""Where the events of a verdict stand in the log, beside the verdict.

The one rule: a place that is not known is left out, and never guessed.
"""

from __future__ import annotations

from typing import Any

from ketal.cli.output.record_places import RecordPlaces
from ketal.model.verdicts.check_verdicts import Violation
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import Verdict

_PLACES_SHOWN = 4
"""Places of a match that stand behind it; of more, the first and the last."""


class VerdictPlaces:
    """The places of the events of verdicts, of the records that were read last."""

    def __init__(self, places: RecordPlaces) -> None:
        self._places = places

    def of(self, verdict: Verdict) -> str:
        """Return where a verdict's event stands in the log, if it has one and that is known."""
        if isinstance(verdict, Rejected):
            return verdict.place
        if isinstance(verdict, Violation | Overflow) and verdict.event is not None:
            return self._places.of(verdict.execution or "", verdict.event)
        return ""

    def of_steps(self, verdict: Match | TimedOut) -> list[str]:
        """Return where each event of a verdict's steps stands; empty where that is not known."""
        return [self._places.of(verdict.execution, dot) for _, dot in verdict.steps]

    def text(self, verdict: Verdict) -> str:
        """Return the places of a verdict's events, in their order; those in the middle as dots."""
        if isinstance(verdict, Violation):
            return self.of(verdict)
        if not isinstance(verdict, Match | TimedOut):
            return ""
        dots = [dot for _, dot in verdict.steps]
        half = _PLACES_SHOWN // 2
        if len(dots) > _PLACES_SHOWN:
            dots = [*dots[:half], *dots[-half:]]
        places = [self._places.of(verdict.execution, dot) or "?" for dot in dots]
        if set(places) <= {"?"}:
            return ""
        if len(verdict.steps) > _PLACES_SHOWN:
            places.insert(half, "…")
        return ", ".join(places)

    def put_beside(self, verdict: Verdict, as_data: dict[str, Any]) -> dict[str, Any]:
        """Return a verdict's JSON with the places of its events beside them, where known."""
        if place := self.of(verdict):
            return _insert_after(as_data, "event", place=place)
        if isinstance(verdict, Match):
            places = [self._places.of(verdict.execution, dot) or None for dot in verdict.events]
            if any(places):
                return _insert_after(as_data, "events", places=places)
        return as_data


def _insert_after(as_data: dict[str, Any], key: str, **added: Any) -> dict[str, Any]:
    """Return a JSON object with something more after one of its keys."""
    out: dict[str, Any] = {}
    for name, value in as_data.items():
        out[name] = value
        if name == key:
            out |= added
    return out
