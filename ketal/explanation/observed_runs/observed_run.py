"""The run of a pattern, observed: it keeps the events that it was offered, and its steps.

An `ObservedRun` does what a `PatternRun` does, with `ObservedSteps`.

The one rule: an observed run gives the verdicts that any run gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.pattern_run import PatternRun
from ketal.explanation.observed_runs.observed_steps import ObservedSteps
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.verdict_kinds import RunVerdict


class ObservedRun(PatternRun):
    """One pattern over one execution, observed.

    Parameters
    ----------
    compiled, limits, **options
        As for `PatternRun`.
    wanted, moves_max
        As for `ObservedSteps`.

    Attributes
    ----------
    events : list of Event
        The events of the execution, in the order in which they were offered.
    steps : ObservedSteps
        What the scopes were offered.
    """

    __slots__ = ("events",)
    steps: ObservedSteps

    def __init__(
        self,
        compiled: CompiledPattern,
        limits: Limits,
        *,
        wanted: Callable[[Event], bool],
        moves_max: int = 0,
        **options: Any,
    ) -> None:
        self.events: list[Event] = []
        make_steps = partial(ObservedSteps, events=self.events, wanted=wanted, moves_max=moves_max)
        super().__init__(compiled, limits, make_steps=make_steps, **options)

    def concerned_by(self, event: Event) -> bool:
        """Return True: an event that changes nothing is observed, too."""
        return True

    def process(self, events: Sequence[Event]) -> list[tuple[int, list[RunVerdict]]]:
        """Process released events in turn; return their verdicts."""
        out = []
        for number, event in enumerate(events):
            self.events.append(event)
            out += [(number, verdicts) for _, verdicts in super().process((event,))]
        return out

    def count(self, events: Iterable[Event]) -> None:
        """Count events which other runs of the pattern are offered, in every order (`mode`)."""
        counted = list(events)
        self.events += counted
        super().count(counted)
