"""The savings of domains: bytes of stamps against one global matrix, and the time of the search.

Run by hand: `python benchmarks/domains.py`. For each family of topologies it prints the number of
domains, the size of the largest, the time of the search, the bytes of a message's whole matrices on
average over the edges, and their ratio to one global matrix. The last column simulates random
messages and is the same ratio for sparse matrices: the non-zero entries of domains and of the
global matrix.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Literal, TypeAlias

from ketal.clocks.matrices.domain_stamps import (
    Domain,
    Process,
    StampedMessage,
    arrive,
    new_process,
    send,
)
from ketal.errors import PatternError
from ketal.model.syntax import TopologyEdge
from ketal.operators.topology.domains import Domains, domains

Ends = list[tuple[str, str]]
MESSAGES = 600
COUNTER_BYTES = 8
"""The size of an entry of a matrix clock, whose maximum is 2^63 - 1."""

Action: TypeAlias = tuple[str, str] | int
"""(p, q): p sends a message to q. An integer n: message n, from 0, arrives."""


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """The send or the delivery of a message at a process."""

    process: str
    did: Literal["sent", "delivered"]
    number: int


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """A simulated run: its messages by number, and the sends and deliveries in order."""

    messages: tuple[StampedMessage, ...]
    moments: tuple[MessageEvent, ...]


def simulate(groups: Collection[Domain], actions: Iterable[Action]) -> MessageHistory:
    """Simulate a schedule of sends and arrivals with one matrix clock per domain.

    A single domain with all processes is the case of one global matrix clock.
    """
    processes: dict[str, Process] = {}
    messages: list[StampedMessage] = []
    moments: list[MessageEvent] = []
    for action in actions:
        name = messages[action].receiver if isinstance(action, int) else action[0]
        process = processes.get(name) or new_process(name, groups)
        if isinstance(action, int):
            processes[name], out = arrive(process, messages[action])
            moments += [MessageEvent(name, "delivered", m.number) for m in out]
        else:
            processes[name], message = send(process, action[1], len(messages))
            moments.append(MessageEvent(name, "sent", message.number))
            messages.append(message)
    return MessageHistory(tuple(messages), tuple(moments))


def stamp_bytes(groups: Collection[Domain], sender: str, receiver: str) -> int:
    """Return the size of a message's stamps: a matrix for each domain that contains both ends.

    Counts whole matrices, as in the paper (section 1: n² entries for n processes). If domains
    overlap much, the sum can be larger than one global matrix.
    """
    shared = [d for d in groups if sender in d and receiver in d]
    return sum(len(domain) ** 2 for domain in shared) * COUNTER_BYTES


def global_stamp_bytes(nodes: int) -> int:
    """Return the size of a stamp of one matrix clock for all nodes."""
    return nodes**2 * COUNTER_BYTES


def both_ways(ends: Ends) -> Ends:
    return sorted({*ends, *((q, p) for p, q in ends)})


def families(rng: random.Random) -> Iterator[tuple[str, Ends]]:
    """Yield topologies of 24 to 64 nodes: name and edges."""
    names = [f"n{i}" for i in range(40)]
    yield "pipeline of 40", list(itertools.pairwise(names))
    yield "ring of 40, one way", [*itertools.pairwise(names), (names[-1], names[0])]
    yield "ring of 40, both ways", both_ways([*itertools.pairwise(names), (names[-1], names[0])])
    yield "a server and 39 clients", both_ways([(names[0], n) for n in names[1:]])
    yield "tree of 40", both_ways([(names[(i - 1) // 3], names[i]) for i in range(1, 40)])
    layers = [names[i : i + 8] for i in range(0, 40, 8)]
    yield (
        "5 layers of 8, each to the next",
        [edge for a, b in itertools.pairwise(layers) for edge in itertools.product(a, b)],
    )
    groups = [[f"g{i}.{j}" for j in range(6)] for i in range(8)]
    inside = [pair for group in groups for pair in itertools.permutations(group, 2)]
    yield "8 clusters of 6, one gateway", inside + both_ways([("gw", group[0]) for group in groups])
    diamonds = [
        edge
        for i in range(13)
        for edge in ((f"d{i}", f"u{i}"), (f"d{i}", f"v{i}"), (f"d{i}", f"d{i + 1}"),
                     (f"u{i}", f"d{i + 1}"), (f"v{i}", f"d{i + 1}"))
    ]  # fmt: skip
    yield "chain of 13 diamonds", diamonds
    for degree in (1.5, 2, 3):
        pairs = list(itertools.permutations(names, 2))
        yield f"random, {degree} edges a node", sorted(rng.sample(pairs, int(40 * degree)))
    yield "everybody to everybody", list(itertools.permutations(names, 2))


def schedule(rng: random.Random, ends: Ends) -> list[Action]:
    """Return random sends along the edges, each delivered soon after."""
    out: list[Action] = []
    travelling: list[int] = []
    for number in range(MESSAGES):
        out.append(rng.choice(ends))
        travelling.append(number)
        while len(travelling) > 5:
            out.append(travelling.pop(rng.randrange(len(travelling))))
    return out + travelling


def sparse_entries(groups: Domains, actions: list[Action]) -> int:
    """Return the number of non-zero entries in the stamps of a simulation."""
    return sum(
        len(matrix) for m in simulate(groups, actions).messages for matrix in m.stamps.values()
    )


def main() -> None:
    rng = random.Random(1)
    print(
        f"{'topology':34}{'nodes':>6}{'edges':>6}{'domains':>8}{'largest':>8}{'seconds':>8}"
        f"{'bytes':>8}{'global':>8}{'ratio':>7}{'sparse':>7}"
    )
    for name, ends in families(rng):
        nodes = frozenset(itertools.chain.from_iterable(ends))
        begun = time.perf_counter()
        try:
            groups = domains([TopologyEdge(*pair) for pair in ends])
        except PatternError as error:
            print(f"{name:34}{error}")
            continue
        seconds = time.perf_counter() - begun
        size = mean(stamp_bytes(groups, *pair) for pair in ends)
        whole = global_stamp_bytes(len(nodes))
        actions = schedule(rng, ends)
        sparse = sparse_entries(groups, actions) / sparse_entries((nodes,), actions)
        print(
            f"{name:34}{len(nodes):6}{len(ends):6}{len(groups):8}{max(map(len, groups)):8}"
            f"{seconds:8.3f}{size:8.0f}{whole:8}{size / whole:7.3f}{sparse:7.3f}"
        )


if __name__ == "__main__":
    main()
