"""The costs of timestamping schemes: stamps, receives and comparisons per second, and bytes.

Run by hand: `python -m benchmarks.clocks [--nodes 4,64] [--scheme NAME]`. It prints Markdown.

An execution begins with a chain of messages through all nodes, twice, so that each node knows all
others. The measured events follow: events that receive nothing, or events that each receive the
last one of another node. Every scheme stamps the same events by its method `stamped`; the time of
the chain alone is subtracted. Pairs of the receiving events are compared, and the bytes of `encode`
are counted.

The one rule: a ratio is that of a scheme to vector clocks in the same turn, one right after the
other; the median of the turns is printed. Schemes that are left out are named, with the reason.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from ketal.clocks.differential import DifferentialReplica
from ketal.clocks.scheme import Happening, Scheme
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.clocks.tree_clock import TreeClock
from ketal.clocks.vector import VectorClocks

NODES = (4, 64, 1_024)
EVENTS = 2_000
PAIRS = 20_000
TURNS = 5
NODES_AT_A_STATION = 8
BASE = VectorClocks.name
LEFT_OUT = {
    ("history", 1_024): "a stamp has a name for each event that is known",
    ("matrix", 1_024): "a stamp has a million entries",
}


class Cost(NamedTuple):
    """CPU seconds for one operation, and bytes of stamps."""

    stamp_s: float
    receive_s: float
    compare_s: float
    bytes_median: float
    bytes_max: int


class Executions(NamedTuple):
    """The same chain, alone and followed by the events that are measured."""

    chain: list[Happening]
    internal: list[Happening]
    receiving: list[Happening]


def executions(nodes: int) -> Executions:
    """Return executions of the given number of nodes."""
    rng = random.Random(1)
    names = [f"n{number}" for number in range(nodes)]

    def happening(number: int, at: int, *receives: int) -> Happening:
        station = f"s{at // NODES_AT_A_STATION}"
        return Happening(node=names[at], receives=receives, time_us=number * 1_000, station=station)

    chain: list[Happening] = []
    last: dict[int, int] = {}
    for at in [*range(nodes), *range(nodes)]:
        received = [len(chain) - 1] if chain else []
        for _ in range(rng.randint(1, 3)):
            last[at] = len(chain)
            chain.append(happening(len(chain), at, *received))
            received = []
    internal, receiving = list(chain), list(chain)
    for number in range(len(chain), len(chain) + EVENTS):
        at, other = rng.sample(range(nodes), 2)
        internal.append(happening(number, at))
        receiving.append(happening(number, at, last[other]))
        last[at] = number
    return Executions(chain, internal, receiving)


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds that a work takes."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def compare_pairs(before: Callable[[Any, Any], bool], pairs: Sequence[tuple[Any, Any]]) -> None:
    """Compare the stamps of each pair."""
    for a, b in pairs:
        before(a, b)


def cost(scheme: Scheme[Any], runs: Executions) -> Cost:
    """Return the costs of the operations of a scheme."""
    chain_s = seconds(lambda: scheme.stamped(runs.chain))
    internal_s = seconds(lambda: scheme.stamped(runs.internal))
    receiving_s = seconds(lambda: scheme.stamped(runs.receiving))
    every = scheme.stamped(runs.receiving)
    stamps = every[len(runs.chain) :]
    rng = random.Random(2)
    pairs = [(rng.choice(stamps), rng.choice(stamps)) for _ in range(PAIRS)]
    before = scheme.order(every)
    sizes = [len(scheme.encode(stamp)) for stamp in stamps[:: EVENTS // 200]]
    return Cost(
        max(internal_s - chain_s, 1e-9) / EVENTS,
        max(receiving_s - chain_s, 1e-9) / EVENTS,
        seconds(lambda: compare_pairs(before, pairs)) / PAIRS,
        median(sizes),
        max(sizes),
    )


def rows(nodes: int, names: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a table for a number of nodes: vector clocks, then ratios to them."""
    runs = executions(nodes)
    left_out = {name: why for name in names if (why := LEFT_OUT.get((name, nodes)))}
    measured = [name for name in names if name not in left_out]
    ratios: dict[str, list[list[float]]] = {name: [] for name in measured}
    bases = []
    for _ in range(TURNS):
        base = cost(scheme_named(BASE), runs)
        bases.append(base)
        for name in measured:
            one = cost(scheme_named(name), runs)
            rates = [b / a for a, b in zip(one[:3], base[:3], strict=True)]
            ratios[name].append([*rates, one.bytes_median, one.bytes_max])
    stamp, receive, compare, size, most = (median(column) for column in zip(*bases, strict=True))
    yield (
        f"| `{BASE}` | {1 / stamp:,.0f}/s | {1 / receive:,.0f}/s | {1 / compare:,.0f}/s "
        f"| {size:,.0f} | {most:,} |"
    )
    for name in measured:
        *rates, size, most = (median(column) for column in zip(*ratios[name], strict=True))
        shown = " | ".join(f"× {rate:.2f}" for rate in rates)
        yield f"| `{name}` | {shown} | {size:,.0f} | {most:,.0f} |"
    if left_out:
        reasons = "; ".join(f"`{name}`: {why}" for name, why in left_out.items())
        yield f"\nLeft out with {nodes:,} nodes: {reasons}."


# --- joins and messages --------------------------------------------------------------


class Section(NamedTuple):
    """A critical section: a thread acquires a lock and releases it."""

    thread: str
    lock: str


def sections(nodes: int) -> tuple[list[Section], list[Section]]:
    """Return the sections after which all threads know each other, and those to measure.

    First all threads take one lock in turn, twice. Then each takes its own lock nine times, and
    another one's once.
    """
    rng = random.Random(3)
    threads = [f"t{number}" for number in range(nodes)]
    own = [f"l{number}" for number in range(nodes)]
    known = [Section(thread, "l0") for thread in threads * 2]
    known += map(Section, threads, own)
    measured = []
    for number in range(EVENTS):
        at = number // 10 % nodes
        measured.append(Section(threads[at], own[at] if number % 10 else rng.choice(own)))
    return known, measured


class Trees:
    """Threads and locks with tree clocks."""

    def __init__(self) -> None:
        self._clocks: dict[str, TreeClock] = {}

    def run(self, work: Sequence[Section]) -> int:
        """Run the sections; return how many entries were visited."""
        clocks, visited = self._clocks, 0
        for thread, lock in work:
            own = clocks.get(thread) or clocks.setdefault(thread, TreeClock(thread))
            shared = clocks.get(lock) or clocks.setdefault(lock, TreeClock())
            own.increment()
            visited += own.join(shared)
            own.increment()
            visited += shared.monotone_copy(own)
        return visited


class Vectors:
    """Threads and locks with vector clocks, which are updated in place."""

    def __init__(self) -> None:
        self._clocks: dict[str, dict[str, int]] = {}

    def run(self, work: Sequence[Section]) -> int:
        """Run the sections; return how many entries were visited."""
        clocks, visited = self._clocks, 0
        for thread, lock in work:
            own, shared = clocks.setdefault(thread, {}), clocks.get(lock, {})
            own[thread] = own.get(thread, 0) + 1
            for name, count in shared.items():
                if count > own.get(name, 0):
                    own[name] = count
            own[thread] += 1
            clocks[lock] = own.copy()
            visited += len(shared) + len(own)
        return visited


def measure_sections(clocks: Trees | Vectors, nodes: int) -> tuple[float, float]:
    """Return the seconds and the entries visited per step: an acquisition or a release."""
    known, measured = sections(nodes)
    clocks.run(known)
    visited = 0

    def work() -> None:
        nonlocal visited
        visited = clocks.run(measured)

    return seconds(work) / (2 * EVENTS), visited / (2 * EVENTS)


def message_entries(nodes: int) -> tuple[float, float]:
    """Return the mean entries of messages to neighbours: of changes, and of whole vectors.

    First a message is passed around, twice, so that each node knows all others.
    """
    rng = random.Random(4)
    names = [f"n{number}" for number in range(nodes)]
    replicas = [DifferentialReplica(name) for name in names]
    inboxes: list[list[dict[str, int]]] = [[] for _ in replicas]
    changes, whole = [], []
    round_trip = [(at, (at + 1) % nodes) for at in range(nodes)]
    drawn = ((rng.randrange(nodes), rng.randint(1, 3)) for _ in range(EVENTS))
    measured = [(at, (at + step) % nodes) for at, step in drawn]
    for at, to in [*round_trip * 2, *measured]:
        replica, entries = replicas[at].event(inboxes[at]).send(names[to])
        replicas[at], inboxes[at] = replica, []
        inboxes[to].append(entries)
        changes.append(len(entries))
        whole.append(len(replica.clock))
    return mean(changes[2 * nodes :]), mean(whole[2 * nodes :])


def joins(nodes: int) -> str:
    """Return a row that compares tree clocks and differences with vector clocks."""
    turns = [
        (measure_sections(Vectors(), nodes), measure_sections(Trees(), nodes)) for _ in range(TURNS)
    ]
    faster = median(vectors[0] / trees[0] for vectors, trees in turns)
    (_, read), (_, visited) = turns[0]
    changes, whole = message_entries(nodes)
    return (
        f"| {nodes:,} | {visited:,.1f} of {read:,.1f} | × {faster:.2f} "
        f"| {changes:,.1f} of {whole:,.1f} |"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--scheme", action="append", default=[])
    args = parser.parse_args()
    sizes = [int(number) for number in args.nodes.split(",")]
    names = args.scheme or [name for name in SCHEMES if name != BASE]
    for nodes in sizes:
        print(f"\n{nodes:,} nodes\n")
        print("| scheme | stamps | receives | compares | bytes | most bytes |")
        print("|---|---|---|---|---|---|")
        for row in rows(nodes, names):
            print(row, flush=True)
    print("\n| nodes | entries a tree clock looks at | locks a second | entries of a message |")
    print("|---|---|---|---|")
    for nodes in sizes:
        print(joins(nodes), flush=True)


if __name__ == "__main__":
    main()
