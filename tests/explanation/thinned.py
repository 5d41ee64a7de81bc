"""Random executions with some events missing from the log."""

from __future__ import annotations

import random
from typing import Any

from ketal.model.events.event import Event
from tests.property.executions import execution


def thinned(rng: random.Random, **knobs: Any) -> list[Event]:
    """Return a random execution, in half of the cases with events left out.

    Parameters
    ----------
    rng : random.Random
        The source of random choices.
    **knobs
        As of `execution`.
    """
    events = execution(rng, **knobs)
    if rng.random() < 0.5:
        return events
    return [event for event in events if rng.random() < 0.7]
