"""Small executions, and the comparison of a stream of their records with the finite log.

The executions are small, so that a fault takes few random choices: three or four nodes, at most
eight events, and nodes that leave at any place, also after clocks that lack their entries.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from hypothesis import reject

import ketal
from ketal import semantics
from ketal.errors import PatternError
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.check_verdicts import Incomplete, Violation
from ketal.model.verdicts.execution_verdicts import Late
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.programs.program import Program
from ketal.runtime.monitor import Monitor
from tests.property.memberships import Clock, Run, arrival, base, number, simulate

Record = Event | Control
NODES = ("n1", "n2", "n3")
EVENTS = "".join(f'event {name} = type == "{name.lower()}"; ' for name in "ABC")
"""The declarations of the events of types a, b and c."""
FINDINGS = Match | Violation
ENDINGS = Match | Violation | TimedOut | Incomplete
COUNTED = ("late", "held_back", "rejected", "overflow")
RARELY_COUNTED = ("gaps", "doubtful", "impossible")


class Case(NamedTuple):
    """A program, and the records of an execution in their order of arrival."""

    program: Program
    records: list[Record]
    limits: Limits
    true: list[Event] | None = None
    """All events with whole clocks, also those that were lost; None if the oracle does not judge
    the case."""


# --- programs --------------------------------------------------------------------------------


@functools.cache
def compiled(patterns: tuple[str, ...]) -> Program:
    return ketal.compile("".join(f"pattern P{at} {{ {text} }}" for at, text in enumerate(patterns)))


def drawn_program(rng: random.Random, *statements: tuple[str, ...]) -> Program:
    """Return a program of one or two patterns, with one text of each of the `statements`."""
    patterns = [
        " ".join(("order", rng.choice(statements[0]), EVENTS, *map(rng.choice, statements[1:])))
        for _ in range(rng.choice((1, 2)))
    ]
    try:
        return compiled(tuple(patterns))
    except PatternError:  # statements that conflict
        reject()


def small_limits(rng: random.Random, **values: tuple[int, ...]) -> Limits:
    """Return limits of which some are so small that executions reach them."""
    small = {name: rng.choice(chosen) for name, chosen in values.items() if rng.random() < 0.2}
    return Limits(**small) if rng.random() < 0.5 else Limits()


def small_dots(run: Run) -> dict[str, tuple[int, ...]]:
    """Return small numbers of kept events, for `small_limits`; none if nodes leave.

    What an event offered before a leave knew is computed from the kept clocks alone.
    """
    return {} if run.left else {"dots_max": (2, 4)}


def causal(*options: str) -> tuple[str, ...]:
    return tuple(f"CausalOrder{one};" for one in options)


EVERYWHERE = ("", "(gap = 1 s)", "(idle = 2 s)", "(overflow = lost)")
DECLARED = 'nodes = ["n1", "n2", "n3"]'
PAIRS = (
    "Y = Conc(B, A); find any A Y;",
    "Y = Causal(B, A); find any A Y;",
    "Y = Conc(B, A); find any A not C Y;",
    "find any A not C B;",
    "Z = Conc(A, A); find any A Z;",
    "Y = Causal(B, A); Z = Conc(C, Y); find any A Y Z;",
)


# --- executions ------------------------------------------------------------------------------


def execution(
    rng: random.Random,
    *,
    nodes: Sequence[str] = NODES,
    edges: Collection[tuple[str, str]] | None = None,
    leaving: float = 0.2,
    drops_sender: bool = False,
) -> Run:
    """Return events whose clocks lose the entries of nodes that leave, and those nodes.

    Parameters
    ----------
    edges : collection of (str, str), optional
        Which nodes send messages to which others; by default all do.
    drops_sender : bool
        Whether a node may drop the entry of a message's sender as it receives the message: no
        clock has the entry then, so that it cannot be restored.
    """
    shown: dict[str, Clock] = {node: {} for node in nodes}
    true: dict[str, Clock] = {node: {} for node in nodes}
    dropped: dict[str, set[str]] = {node: set() for node in nodes}
    live, run = list(nodes), Run()
    for place in range(rng.randint(4, 8)):
        if len(live) > 1 and rng.random() < leaving:
            run.left.add(live.pop(rng.randrange(len(live))))
        node = rng.choice(live)
        clock = shown[node]
        sent = [n for n, e in enumerate(run.true) if edges is None or (e.node, node) in edges]
        sender, receives = "", []
        if sent and rng.random() < 0.6:
            message = run.stamped[number := rng.choice(sent)]
            if message.node not in dropped[node]:
                sender, receives = message.node, [message.dot] if message.node != node else []
                unlearned = dropped[node] - clock.keys()
                _merge(clock, {n: c for n, c in message.clock.items() if n not in unlearned})
                _merge(true[node], run.true[number].clock)
        kept = {node} if drops_sender else {node, sender}
        gone = (name for name in sorted(run.left) if rng.random() < 0.5)
        dropped[node].update(name for name in gone if name not in kept)
        counter = true[node][node] = true[node].get(node, 0) + 1
        clock[node] = counter
        for name in dropped[node]:
            clock.pop(name, None)
        fields: dict[str, Any] = {"type": rng.choice("aabbc"), "id": f"e{place}"}
        fields |= {"node": node, "receives": [dot for dot in receives if dot.node in clock]}
        run.stamped.append(Event(clock=dict(clock), **fields))
        run.true.append(Event(clock=dict(true[node]), **fields))
    return run


def _merge(clock: Clock, other: Clock) -> None:
    for name, counter in other.items():
        clock[name] = max(counter, clock.get(name, 0))


def restarting(rng: random.Random, *, numbered: bool) -> Run:
    """Return an execution whose nodes restart; its events number their incarnations, or name them.

    If they name them, so do their clocks.
    """
    run = simulate(rng, restarts=True, events_max=rng.randint(4, 8), churns=(0.3, 0.6))
    for place, (stamped, true) in enumerate(zip(run.stamped, run.true, strict=True)):
        common: dict[str, Any] = {"type": rng.choice("aabbc"), "id": f"e{place}"}
        run.true[place] = msgspec.structs.replace(true, **common)
        if numbered:
            common["data"] = {"incarnation": number(true.node)}
        else:
            names = {base(name): name for name in sorted(true.clock, key=number)} | {
                base(true.node): true.node
            }
            common["clock"] = {names[name]: counter for name, counter in stamped.clock.items()}
            common["node"] = true.node
        run.stamped[place] = msgspec.structs.replace(stamped, **common)
    return run


def dated(rng: random.Random, run: Run) -> Run:
    """Give the events of a run times: those of a node may be ahead, and a few events have none."""
    ahead = {event.node: rng.choice((0, 0, 3)) for event in run.true}
    now = 0.0
    for place, event in enumerate(run.true):
        now += rng.choice((0, 0.5, 1, 2))
        time = None if rng.random() < 0.05 else now + ahead[event.node]
        run.true[place] = msgspec.structs.replace(event, time=time)
        run.stamped[place] = msgspec.structs.replace(run.stamped[place], time=time)
    return run


def keyed(rng: random.Random, run: Run, keys: int = 2) -> Run:
    """Give the events of a run the attribute `key`."""
    for place, event in enumerate(run.true):
        key = {"key": rng.randrange(keys)}
        stamped = run.stamped[place]
        run.true[place] = msgspec.structs.replace(event, data=event.data | key)
        run.stamped[place] = msgspec.structs.replace(stamped, data=stamped.data | key)
    return run


# --- arrival ---------------------------------------------------------------------------------


def arriving(rng: random.Random, run: Run, *, lost: float = 0.05) -> list[Record]:
    """Return the records in any order of arrival; a few events are lost.

    An incarnation arrives before the events that know it.
    """
    out: list[Record] = []
    for item in arrival(rng, run, anywhere=True):
        if isinstance(item, str):
            out.append(Control("leave", node=base(item)))
        elif rng.random() >= lost:
            out.append(run.stamped[item])
    return out


def with_watermarks(rng: random.Random, records: Sequence[Record]) -> list[Record]:
    """Return the records with watermarks that no later record is behind."""
    out: list[Record] = []
    often = rng.choice((0, 0.3))
    for place, record in enumerate(records):
        out.append(record)
        if rng.random() < often:
            later = [x.time_us for x in records[place + 1 :] if isinstance(x, Event)]
            first_us = min((us for us in later if us is not None), default=99_000_000)
            out.append(Control("watermark", time=first_us / 1_000_000))
    return out


def streamed(
    rng: random.Random, program: Program, records: Sequence[Record], limits: Limits | None = None
) -> tuple[list[Verdict], Mapping[str, Any]]:
    """Return a Monitor's verdicts and summary.

    It is restored from a snapshot now and then, and a record before that is delivered again.
    """
    monitor, verdicts = Monitor(program, limits=limits), list[Verdict]()
    for place, record in enumerate(records):
        verdicts += monitor.feed(record)
        if rng.random() < 0.1:
            monitor = Monitor.restore(program, monitor.snapshot(), limits=limits)
            verdicts += monitor.feed(rng.choice(records[: place + 1]))
    verdicts += monitor.close()
    return verdicts, monitor.summary


# --- comparison ------------------------------------------------------------------------------


def is_counted(summary: Mapping[str, Any]) -> bool:
    """Return whether a summary counts a possible cause of a difference."""
    patterns = summary["patterns"].values()
    return (
        any(summary["events"][name] for name in COUNTED)
        or any(summary.get(name) for name in RARELY_COUNTED)
        or any(one.get("overflows") or one.get("marks_forgotten") for one in patterns)
    )


def by_pattern(verdicts: Iterable[Verdict], kinds: Any) -> dict[str, list[str]]:
    """Return what is known of the verdicts of some kinds whatever the order of arrival was.

    For a check that is the kind of verdict of each scope.
    """
    out: dict[str, list[str]] = {}
    for verdict in verdicts:
        if isinstance(verdict, kinds):
            steps = verdict.steps if isinstance(verdict, Match | TimedOut) else ()
            bound = " ".join(f"{step}={dot}" for step, dot in steps)
            out.setdefault(verdict.pattern, []).append(f"{verdict.kind} {verdict.scope} {bound}")
    return {name: sorted(lines) for name, lines in out.items()}


def equal_to_log(case: Case, verdicts: Sequence[Verdict], kinds: Any) -> bool:
    """Assert that a stream has the verdicts of the finite log; return whether there are any."""
    log = ketal.run(case.program, case.records, limits=case.limits)
    expected, found = by_pattern(log, kinds), by_pattern(verdicts, kinds)
    for compiled in case.program.compiled:
        if compiled.order_independent or compiled.pattern.order.total:
            assert found.get(compiled.name) == expected.get(compiled.name), compiled.name
    return bool(expected)


def assert_certain(case: Case, verdicts: Sequence[Verdict]) -> None:
    """Assert that the oracle, on the whole execution, has the certain verdicts of a stream.

    Not of patterns whose verdicts may depend on a lost event that no clock names: where there is
    one order, or events are counted. Nor under `frontier` if events were lost, late or given up for
    a limit: it marks nothing for an event that has not arrived.
    """
    assert case.true is not None
    lost = sum(isinstance(one, Event) for one in case.records) < len(case.true)
    missing = lost or any(isinstance(one, Late | Overflow) for one in verdicts)
    for compiled in case.program.compiled:
        order = compiled.pattern.order
        counts = order.total or compiled.window_events is not None
        if counts or not compiled.order_independent or (missing and order.frontier is not None):
            continue
        outcome = semantics.judge(case.program.file, compiled.name, case.true)
        expected = [(dict(scope), tuple(steps)) for scope, steps, _ in outcome.matches]
        expected += [(dict(scope), ()) for scope, _, _ in outcome.violations]
        for verdict in verdicts:
            if isinstance(verdict, FINDINGS) and verdict.pattern == compiled.name:
                steps = tuple(verdict.steps) if isinstance(verdict, Match) else ()
                assert (dict(verdict.scope), steps) in expected or not verdict.certain, str(verdict)
