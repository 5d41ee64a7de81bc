"""A live stream finds what the finite log has, in every order of arrival, or counts something.

The executions are small, so that a fault takes few random choices: three nodes, at most eight
events, and leaves at any place, also after clocks that lack the node's entry.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter

import ketal
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.find_verdicts import Match
from ketal.programs.program import Program
from ketal.runtime.monitor import Monitor
from tests.sampling import drawn

ORDERS = tuple(
    f"CausalOrder{options}" for options in ("", "(gap = 1 s)", "(total)", "(total, gap = 1 s)")
)
BODIES = (
    "Y = Conc(B, A); find any A Y;",
    "Y = Causal(B, A); find any A Y;",
    "Y = Conc(B, A); find any A not No Y;",
    "Y = Causal(B, A); find any A not No Y;",
    "Y = Conc(B, A); find next A Y;",
    "Y = Causal(B, A); at every node all; find any A not No Y;",
)
Record = Event | Control


@functools.cache
def program(number: int) -> Program:
    """Return a program of three patterns, which share what is known of clocks."""
    patterns = list(itertools.product(ORDERS, BODIES))
    return ketal.compile(
        "".join(
            f'pattern P{at} {{ order {order}; event A = type == "a"; event B = type == "b"; '
            f"event No = exists(no); {body} }}"
            for at in range(3)
            for order, body in [patterns[(number + 7 * at) % len(patterns)]]
        )
    )


def execution(rng: random.Random) -> list[Record]:
    """Return events whose clocks lose the entries of nodes that leave, and the leaves."""
    clocks: dict[str, dict[str, int]] = {node: {} for node in ("n1", "n2", "n3")}
    dropped: dict[str, set[str]] = {node: set() for node in clocks}
    live, left = list(clocks), set[str]()
    messages: list[tuple[str, dict[str, int]]] = []
    events: list[Record] = []
    for _ in range(rng.randint(4, 8)):
        if len(live) > 1 and rng.random() < 0.2:
            left.add(live.pop(rng.randrange(len(live))))
        node = rng.choice(live)
        clock = clocks[node]
        sender, known = rng.choice(messages) if messages and rng.random() < 0.6 else (node, {})
        if sender not in dropped[node]:
            for name in known.keys() - (dropped[node] - clock.keys()):
                clock[name] = max(known[name], clock.get(name, 0))
        dropped[node].update(name for name in sorted(left) if rng.random() < 0.5)
        clock[node] = clock.get(node, 0) + 1
        clocks[node] = {name: c for name, c in clock.items() if name not in dropped[node]}
        messages.append((node, dict(clocks[node])))
        events.append(Event(node=node, type=rng.choice("aabbc"), clock=dict(clocks[node])))
    return [*events, *(Control("leave", node=name) for name in sorted(left))]


def matches(verdicts: list[ketal.Verdict]) -> dict[str, list[str]]:
    """Return the matches of each pattern."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if isinstance(verdict, Match):
            found.setdefault(verdict.pattern, []).append(str(verdict))
    return {name: sorted(texts) for name, texts in found.items()}


def test_stream_has_the_matches_of_the_log_unless_it_counts_something() -> None:
    compared: Counter[bool] = Counter()

    @drawn(100, 20_000)
    def holds(rng: random.Random) -> None:
        records = [one for one in execution(rng) if rng.random() < 0.95]
        rng.shuffle(records)
        made = program(rng.randrange(len(ORDERS) * len(BODIES)))
        monitor, verdicts = Monitor(made), []
        for record in records:
            verdicts += monitor.feed(record)
            if rng.random() < 0.1:
                monitor = Monitor.restore(made, monitor.snapshot())
                verdicts += monitor.feed(rng.choice(records[: records.index(record) + 1]))
        verdicts += monitor.close()
        summary = monitor.summary
        events = summary["events"]
        if summary["gaps"] or events["late"] or events["held_back"] or summary.get("doubtful"):
            return
        expected = matches(list(ketal.run(made, records)))
        found = matches(verdicts)
        for pattern in made.compiled:
            if pattern.order_independent or pattern.pattern.order.total:
                assert found.get(pattern.name) == expected.get(pattern.name)
        compared[bool(expected)] += 1

    assert min(compared[False], compared[True]) > 10
