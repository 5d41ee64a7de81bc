"""The names of a program that no event has, at a cost that does not grow with their number."""

from __future__ import annotations

from ketal.compiler.counted.named_values import NamedValue
from ketal.engine.statistics.log_names import NAMES_MAX, LogNames
from ketal.model.events.event import Event
from tests.work import counted_calls


def test_thousands_of_unmet_names_cost_an_event_nothing() -> None:
    def work(unmet: int) -> int:
        names = LogNames([NamedValue("node", f"n{n}") for n in range(300 + unmet)], causal=False)
        events = [Event(node=f"n{n}", type="t", clock={f"n{n}": 1}) for n in range(300)]

        def sample() -> None:
            for event in events:
                names.sample([event])

        _, calls = counted_calls(sample)
        assert len(names.unmet) == unmet
        assert len(names.met().counted("node")) == NAMES_MAX
        return calls

    work(1)  # what is computed only once
    assert work(8_000) < 1.1 * work(1_000)
