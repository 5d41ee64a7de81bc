"""The rows of the table: the work, its events, and its goals.

The rows of a group are measured alternately: ketal's own, those that they are compared with, and
the peers. Rates are events, or matches, per CPU second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import ketal
from benchmarks.executions import (
    TYPES,
    displaced,
    execution,
    shuffled,
    write_for_peers,
    write_log,
)
from benchmarks.measuring import Inspection, Work
from benchmarks.peer import Peer, Query
from benchmarks.works import Command, FiniteLog, MonitorFeed, PlainFunction, Soak, decode
from ketal.model.events.happened_before import canonical

EVENTS = "".join(f'event {kind} = type == "{kind}"; ' for kind in f"{TYPES}Z")
CHECK = f"{EVENTS} check ({'|'.join(TYPES)})*;"
CAUSAL = "B1 = Causal(B); Z1 = Causal(Z); find any A B1 Z1;"
CONC = "B1 = Conc(B); Z1 = Conc(Z); find any A B1 Z1;"
ORDERED = "order CausalOrder;"
NOTHING = Inspection(0, 0)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The rate is at least `value`, or at least `value` times the rate of the row `of`."""

    value: float
    of: str = ""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A run takes at most `value` seconds, or `value` times the time of a run of the row `of`."""

    value: float
    of: str = ""


@dataclass(frozen=True, slots=True)
class GrowsBy:
    """Resident memory grows by at most the share `value` after the warm-up."""

    value: float


Goal = AtLeast | AtMost | GrowsBy


@dataclass(slots=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    name : str
        The name of the work.
    work : Work
        The work.
    unit : str
        What the rate counts.
    goals : tuple of Goal
        The goals; empty for a row that others are compared with.
    peer : str
        The other engine that does the work; empty for ketal.
    beside : str
        The row of ketal that a peer is compared with.
    expected : Inspection or None
        The expected matches; None if they are not compared.
    once : bool
        Whether the work warms up by itself and runs once.
    """

    name: str
    work: Work
    unit: str = "events"
    goals: tuple[Goal, ...] = ()
    peer: str = ""
    beside: str = ""
    expected: Inspection | None = None
    once: bool = False


@dataclass
class Bench:
    """The settings that the groups share.

    Attributes
    ----------
    folder : Path
        The folder for files.
    quick : bool
        Whether a tenth of the events is used.
    peers : bool
        Whether the peers are run.
    stack : ExitStack
        Closes the peers of a group.
    """

    folder: Path
    quick: bool = False
    peers: bool = True
    stack: ExitStack = field(default_factory=ExitStack)

    def size(self, count: int) -> int:
        """Return the number of events to use."""
        return count // 10 if self.quick else count

    def peer_rows(
        self, row: Row, query: Query, events: Sequence[ketal.Event], **counts: int
    ) -> Iterator[Row]:
        """Yield the rows of peers with the same query, each on the first `counts[peer]` events."""
        for name, count in counts.items() if self.peers else ():
            some = events[: self.size(count)]
            path = write_for_peers(self.folder / f"{name}.csv", some)
            peer = Peer(name, query, path, len(some), unit=row.unit)
            self.stack.callback(peer.close)
            found = MonitorFeed(ketal.compile(query.pattern), some).inspect()
            yield Row(
                f"{name}: {row.name}", peer, row.unit,
                peer=name, beside=row.name, expected=found,
            )  # fmt: skip


def program(body: str) -> ketal.Program:
    """Compile a pattern with the given body."""
    return ketal.compile(f"pattern P {{ {body} }}")


def feed_pattern(body: str, events: Sequence[ketal.Event], *, timed: bool = False) -> MonitorFeed:
    """Return the work of feeding events to one pattern."""
    return MonitorFeed(program(body), events, timed=timed)


def feed_query(query: Query, events: Sequence[ketal.Event], unit: str = "events") -> MonitorFeed:
    """Return the work of feeding events to the pattern of a query."""
    return MonitorFeed(ketal.compile(query.pattern), events, unit)


def checks(bench: Bench) -> Iterator[Row]:
    """Yield checks in memory, with all types in the alphabet and no violations."""
    events = execution(bench.size(300_000))
    ordered = feed_pattern(ORDERED + CHECK, events)
    late = feed_pattern(ORDERED + CHECK, displaced(events, 100))
    yield Row("check, arrival", feed_pattern(CHECK, events), goals=(AtLeast(1_500_000),))
    yield Row("check, CausalOrder, live", ordered, goals=(AtLeast(600_000),))
    yield Row("check, CausalOrder, live, displaced by < 100", late, goals=(AtLeast(400_000),))


def windows(bench: Bench) -> Iterator[Row]:
    """Yield `find any` without a match, under windows of all sizes and without one."""
    events = execution(bench.size(1_000_000))
    some = events[: bench.size(300_000)]
    check = "check, beside find any"
    yield Row(check, feed_pattern(CHECK, some))
    first = ""
    peers = {
        100: {"Esper": 300_000, "Flink": 20_000},
        1_000: {"Esper": 200_000},
        10_000: {"Esper": 30_000},
    }
    for window in (100, 1_000, 10_000, 100_000):
        query = Query("any", "ABZ", window)
        row = Row(f"find any A;B;Z, none completes, W = {window:,}", feed_query(query, some))
        flat = (AtLeast(0.85, first),) if window == 100_000 else ()
        row.goals = (AtLeast(0.7, check), *flat)
        row.expected = NOTHING
        first = first or row.name
        yield row
        yield from bench.peer_rows(row, query, some, **peers.get(window, {}))
    row = Row(
        "find any A;B;Z, none completes, no window",
        feed_pattern(f"{EVENTS} find any A B Z;", events),
    )
    row.goals = (AtLeast(0.7, check),)
    row.expected = NOTHING
    yield row


def chains(bench: Bench) -> Iterator[Row]:
    """Yield chains of three steps, without a match."""
    events = execution(bench.size(300_000))
    for name, order, body in (
        ("Causal chain, arrival", "", CAUSAL),
        ("Conc chain, arrival", "", CONC),
        ("Causal chain, CausalOrder", ORDERED, CAUSAL),
    ):
        first = ""
        for window in (100, 10_000):
            text = f"{order} {EVENTS} {body} within {window} ms;"
            row = Row(f"{name}, W = {window:,}", feed_pattern(text, events, timed=bool(order)))
            row.goals = (AtLeast(700_000), AtLeast(0.8, first)) if first else (AtLeast(700_000),)
            row.expected = NOTHING
            first = first or row.name
            yield row


def any_role_last(bench: Bench) -> Iterator[Row]:
    """Yield Conc chains under CausalOrder, where any event of a match may arrive last."""
    steps = 'event A = type == "A"; event B = type in ["B", "C"]; event Z = type == "Z";'
    works = (
        ("30 % steps, no Z", steps, execution(bench.size(200_000)), 250_000),
        ("all steps, no A", EVENTS, execution(bench.size(40_000), types="BZ"), 60_000),
        (
            "all steps, A before all",
            EVENTS,
            execution(bench.size(40_000), types="BZ", first="A"),
            60_000,
        ),
    )
    for name, declared, events, least in works:
        first = ""
        for some in (events[: len(events) // 10], events):
            row = Row(
                f"Conc chain, CausalOrder, {name}, {len(some):,} events",
                feed_pattern(f"{ORDERED} {declared} {CONC}", some),
            )
            row.goals = (AtLeast(least), AtLeast(0.8, first)) if first else ()
            row.expected = NOTHING
            first = first or row.name
            yield row


def equality(bench: Bench) -> Iterator[Row]:
    """Yield a sequence whose last step must have the key of the first, which no event has."""
    events = execution(bench.size(300_000))
    query = Query("any", "ABC", 10_000, "equal")
    name = "find any A;B;C, C.k == A.k, none completes, W = 10,000"
    row = Row(name, feed_query(query, events))
    row.goals = (AtLeast(500_000),)
    row.expected = NOTHING
    yield row
    yield from bench.peer_rows(row, query, events, Esper=20_000)


def many_nodes(bench: Bench) -> Iterator[Row]:
    """Yield chains over 128 nodes."""
    events = execution(bench.size(30_000), nodes=128)
    for name, text, least in (
        ("Causal chain, arrival", f"{EVENTS} {CAUSAL}", 100_000),
        ("Conc chain, CausalOrder", f"{ORDERED} {EVENTS} {CONC}", 35_000),
    ):
        row = Row(f"128 nodes, {name}, no Z", feed_pattern(text, events), goals=(AtLeast(least),))
        row.expected = NOTHING
        yield row


def next_matches(bench: Bench) -> Iterator[Row]:
    """Yield runs of `find next`, without keys and with a thousand."""
    events = execution(bench.size(300_000))
    for name, query, multiple in (
        ("find next A;B;C, W = 100", Query("next", "ABC", 100), 0.0),
        ("find next A;B;C, 1,000 keys", Query("next", "ABC", 100_000, "partition"), 3.0),
    ):
        row = Row(name, feed_query(query, events))
        if bench.peers:
            row.goals = (AtLeast(1, f"Esper: {name}"),)
        if bench.peers and multiple:
            row.goals = (AtLeast(multiple, f"Siddhi: {name}"), *row.goals)
        yield row
        yield from bench.peer_rows(row, query, events, Esper=300_000, Siddhi=300_000, Flink=100_000)


def listings(bench: Bench) -> Iterator[Row]:
    """Yield the matches of `find any`, listed: as objects, and as JSON lines."""
    events = execution(bench.size(200_000))
    query = Query("any", "ABC", 100)
    name = "listing A;B;C, W = 100, objects, forward"
    row = Row(name, feed_query(query, events, "matches"), "matches", (AtLeast(1_000_000),))
    yield row
    yield from bench.peer_rows(row, query, events, Esper=200_000, Flink=20_000)
    search = program(
        f"{ORDERED} {EVENTS} B1 = Conc(B); C1 = Conc(C); find any A B1 C1; within 100 ms;"
    )
    steps = execution(bench.size(20_000), types="ABC")
    yield Row(
        "listing a Conc chain, W = 100, objects, search",
        MonitorFeed(search, steps, "matches", timed=True), "matches", (AtLeast(200_000),),
    )  # fmt: skip
    pattern = bench.folder / "listing.ketal"
    pattern.write_text(query.pattern)
    some = events[: bench.size(100_000)]
    log = write_log(bench.folder / "listing.jsonl", some)
    command = Command(pattern, log, bench.folder / "listing.out", len(some))
    yield Row(
        "listing A;B;C, W = 100, `ketal run` to JSON lines with ids", command, "matches",
        (AtLeast(250_000),),
    )  # fmt: skip


def count_chains(events: Sequence[ketal.Event]) -> int:
    """Return the number of chains a → b → c: for each b, the events before times those after."""
    nodes = {event.node for event in events}
    known: dict[tuple[str, str], list[int]] = {}
    for event in events:
        for node in nodes:
            known.setdefault((event.node, node), []).append(event.clock.get(node, 0))
    total = 0
    for event in events:
        after = -1  # itself
        for other in nodes:
            counters = known[other, event.node]
            after += len(counters) - bisect_left(counters, event.counter)
        total += (sum(event.clock.values()) - 1) * after
    return total


def counting(bench: Bench) -> Iterator[Row]:
    """Yield a count of more matches than could be listed."""
    events = execution(bench.size(10_000))
    text = "event E = true; B = Causal(E); C = Causal(E); find any E B C; return count;"
    work = FiniteLog(program(f"{ORDERED} {text}"), lambda: events, len(events), listing=False)
    name = f"counting a Causal chain of 3 steps, {len(events):,} events"
    expected = Inspection(count_chains(events), None)
    yield Row(name, work, goals=(AtMost(0.3),), expected=expected)


def repetition(bench: Bench) -> Iterator[Row]:
    """Yield matches of `A+` that are all subsets of concurrent events."""
    events = [ketal.Event(f"n{i:02}", "A", {f"n{i:02}": 1}, i / 1_000) for i in range(14)]
    text = program(f'{ORDERED} event A = type == "A"; find any A+;')
    mixed = shuffled(events)
    every = (1 << len(events)) - 1
    finite = FiniteLog(text, lambda: events, len(events), "matches")
    live = MonitorFeed(text, mixed, "matches", closing=True)
    name = f"find any A+, {len(events)} concurrent events"
    one = Row(f"{name}, finite log", finite, "matches", (AtLeast(100_000),))
    other = Row(f"{name}, live", live, "matches", (AtLeast(20_000),))
    one.expected = other.expected = Inspection(every, None)
    yield from (one, other)


def files(bench: Bench) -> Iterator[Row]:
    """Yield checks over JSON lines, from the file to the verdicts."""
    count = bench.size(300_000)
    types = ("Stack.push", "Stack.pop", "Stack.peek", "Net.send")
    events = "event Push = call(* Stack.push(..)); event Pop = call(* Stack.pop(..));"
    steps = f"{events} B = Causal(Pop, A); A = Push;"
    small = write_log(bench.folder / "four.jsonl", execution(count, nodes=4, types=types))
    large = write_log(bench.folder / "eight.jsonl", execution(count, types=types))
    base = "plain decoding of JSON lines, 4 nodes"
    yield Row(base, PlainFunction(lambda: decode(small), count))
    for name, path, text, goals in (
        ("arrival", small, f"{events} check (Push | Pop)*;", (600_000, 0.5)),
        ("CausalOrder", small, f"{ORDERED} {events} check (Push | Pop)*;", ()),
        ("arrival, Causal", small, f"{steps} check (A | B)*;", ()),
        ("at every node all, 8 nodes", large,
         f"at every node all; {events} check (Push | Pop)*;", (400_000,)),
    ):  # fmt: skip
        work = FiniteLog(program(text), lambda path=path: ketal.read_log(path), count)  # type: ignore[misc]
        row = Row(f"check over JSON lines, {name}", work)
        row.goals = tuple(AtLeast(g, base if g < 1 else "") for g in goals)
        yield row


def ordering(bench: Bench) -> Iterator[Row]:
    """Yield the canonical order of a shuffled log, whose events lie in memory as they are read."""
    path = write_log(bench.folder / "shuffled.jsonl", shuffled(execution(bench.size(300_000))))
    events = list(ketal.read_log(path))
    count = len(events)
    yield Row(
        "canonical order of a shuffled log",
        PlainFunction(lambda: canonical(events), count), goals=(AtLeast(1_500_000),),
    )  # fmt: skip
    yield Row(
        "canonical order of a shuffled log, with decoding",
        PlainFunction(lambda: canonical(ketal.read_log(path)), count),
        goals=(AtLeast(350_000),),
    )  # fmt: skip


def hundred_patterns(kind: str) -> ketal.Program:
    """Compile a hundred patterns, about types of their own or all about the same."""
    texts = []
    for number in range(100):
        own = f"{number:02}" if kind == "disjoint" else ""
        guard = "" if own else f" && key != {number}"
        texts.append(
            f"pattern P{number} {{ "
            f'event A = type == "A{own}"; event B = type == "B{own}"{guard}; '
            "find next A B; within 100 ms; }"
        )
    return ketal.compile("\n".join(texts))


def first_pattern(patterns: ketal.Program) -> ketal.Program:
    """Return the first pattern alone."""
    return patterns["P0"]


def many_patterns(bench: Bench) -> Iterator[Row]:
    """Yield one pattern, and a hundred such patterns."""
    own = [f"{kind}{number:02}" for number in range(100) for kind in "AB"]
    for kind, types, most in (("disjoint", own, 6), ("overlapping", list(TYPES), 40)):
        events = execution(bench.size(30_000), types=types)
        patterns = hundred_patterns(kind)
        single = f"1 pattern, {kind} types"
        yield Row(single, MonitorFeed(first_pattern(patterns), events, timed=True))
        yield Row(
            f"100 patterns, {kind} types",
            MonitorFeed(patterns, events, timed=True),
            goals=(AtMost(most, single),),
        )


def soak(bench: Bench) -> Iterator[Row]:
    """Yield a long run with windows."""
    work = Soak(bench.size(20_000_000))
    name = f"soak: {work.events:,} events under windows"
    yield Row(name, work, goals=(GrowsBy(0.01),), once=True)


Group = Callable[[Bench], Iterator[Row]]
GROUPS: dict[str, Group] = {
    "checks": checks,
    "windows": windows,
    "chains": chains,
    "any_role_last": any_role_last,
    "equality": equality,
    "many_nodes": many_nodes,
    "next": next_matches,
    "listings": listings,
    "counting": counting,
    "repetition": repetition,
    "files": files,
    "ordering": ordering,
    "many_patterns": many_patterns,
}
