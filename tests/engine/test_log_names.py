"""The names of a program that no event has, at a cost that does not grow with their number."""

from __future__ import annotations

import time

from ketal.compiler.counted.named_values import NamedValue
from ketal.engine.statistics.log_names import NAMES_MAX, LogNames
from ketal.model.events.event import Event


def test_thousands_of_unmet_names_cost_an_event_nothing() -> None:
    nodes = [f"n{number}" for number in range(20_000)]
    names = LogNames([NamedValue("node", node) for node in nodes], causal=False)
    events = [Event(node=node, type="t", clock={node: 1}) for node in nodes[:1_000]]
    before = time.process_time()
    for event in events:
        names.sample([event])
    assert time.process_time() - before < 2
    assert len(names.unmet) == 19_000
    assert len(names.met().counted("node")) == NAMES_MAX
