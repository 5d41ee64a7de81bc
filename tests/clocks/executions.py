"""Random executions, with happened-before between their events."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from ketal.clocks.scheme import Happening, Scheme, StampOrder
from tests.sampling import chances, sample


@dataclass
class SampleRun:
    """Events in a linear extension: the node of each, and the sends that it receives."""

    nodes: list[str] = field(default_factory=list)
    causes: list[tuple[int, ...]] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)

    def happenings(self) -> list[Happening]:
        """Return the events in the form that schemes stamp."""
        times = self.times_us or [0] * len(self.nodes)
        return [
            Happening(node=node, receives=causes, time_us=time_us)
            for node, causes, time_us in zip(self.nodes, self.causes, times, strict=True)
        ]

    def pasts(self) -> list[set[int]]:
        """Return for each event the events that happened before it, by following every path."""
        last: dict[str, int] = {}
        pasts: list[set[int]] = []
        for number, (node, causes) in enumerate(zip(self.nodes, self.causes, strict=True)):
            direct = [*causes, *([last[node]] if node in last else [])]
            pasts.append(set(direct).union(*(pasts[cause] for cause in direct)))
            last[node] = number
        return pasts

    def clocks(self) -> list[tuple[str, dict[str, int]]]:
        """Return the node and the vector clock of each event, counted from the pasts."""
        out = []
        for number, past in enumerate(self.pasts()):
            clock: dict[str, int] = {}
            for one in (*past, number):
                clock[self.nodes[one]] = clock.get(self.nodes[one], 0) + 1
            out.append((self.nodes[number], clock))
        return out


def count_answers(
    scheme: Scheme[Any], events: Sequence[Happening], pasts: list[set[int]]
) -> Counter[tuple[StampOrder, StampOrder]]:
    """Count the answers of a scheme about all pairs of events, by true relation and answer."""

    def truth(a: int, b: int) -> StampOrder:
        if a in pasts[b]:
            return StampOrder.BEFORE
        return StampOrder.AFTER if b in pasts[a] else StampOrder.CONCURRENT

    stamps = scheme.stamped(events)
    order = scheme.order(stamps)
    return Counter(
        (truth(a, b), scheme.relation(order, stamps[a], stamps[b]))
        for a in range(len(stamps))
        for b in range(len(stamps))
        if a != b
    )


def make_run(rng: random.Random, nodes_max: int, steps_max: int) -> SampleRun:
    """Make an execution of nodes whose physical clocks differ by up to 5 ms."""
    run = SampleRun()
    names = [f"n{number}" for number in range(1 + rng.randrange(nodes_max))]
    skew = {name: rng.randrange(5_001) for name in names}
    for step in range(1 + rng.randrange(steps_max)):
        node = rng.choice(names)
        others = [number for number, of in enumerate(run.nodes) if of != node]
        received = [rng.choice(others) for _ in range(rng.randrange(3))] if others else []
        run.nodes.append(node)
        run.causes.append(tuple(dict.fromkeys(received)))
        run.times_us.append(step * rng.randrange(2_001) // 2 + skew[node])
    return run


def sample_runs(
    nodes_max: int = 8, steps_max: int = sample(60, 200)
) -> st.SearchStrategy[SampleRun]:
    """Return a strategy for executions, which are decoded from bytes, five for each step."""
    return chances(8 * steps_max).map(lambda rng: make_run(rng, nodes_max, steps_max))
