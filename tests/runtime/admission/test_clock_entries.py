"""Clock entries: a dropped entry is detected by counters, in any order of arrival."""

from __future__ import annotations

import random

from hypothesis import given

from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT
from ketal.runtime.admission.clock_entries import ClockEntries
from ketal.runtime.admission.deduplication import Intake
from tests.sampling import chances, examples


@examples(300, 10_000)
@given(chances())
def test_the_first_dropped_entries_are_detected_in_any_order_of_arrival(rng: random.Random) -> None:
    """An entry is dropped if the clock of one event has it and that of a later one does not."""
    clocks = [
        {"n": counter} | {name: 1 for name in "xyz" if rng.random() < 0.8}
        for counter in range(1, rng.randint(2, 8))
    ]
    entries, intake, arrived = ClockEntries(), Intake(DEFAULT), list[dict[str, int]]()
    for clock in rng.sample(clocks, len(clocks)):
        event = Event("n", "t", clock)
        assert intake.admit((event,), named=True) == 1
        arrived.append(clock)
        dropped = {
            name
            for earlier in arrived
            for later in arrived
            if earlier["n"] < later["n"]
            for name in earlier.keys() - later.keys()
        }
        assert entries.add(event, intake) == dropped
        first = {name: min(c["n"] for c in arrived if name in c) for one in arrived for name in one}
        assert entries.first == {"n": first}
        if dropped:
            return
