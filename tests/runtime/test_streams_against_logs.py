"""A live stream finds what the finite log has, in every order of arrival, or counts something.

`small_streams` has the executions and the comparison. Where the oracle can judge the whole
execution, it has every certain verdict of the stream.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest

import ketal
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.find_verdicts import Match
from ketal.programs.program import Program
from tests.cases import e
from tests.runtime.small_streams import (
    DECLARED,
    ENDINGS,
    EVERYWHERE,
    NODES,
    PAIRS,
    Case,
    Record,
    arriving,
    assert_certain,
    by_pattern,
    causal,
    compiled,
    dated,
    drawn_program,
    equal_to_log,
    execution,
    is_counted,
    keyed,
    restarting,
    small_dots,
    small_limits,
    streamed,
    with_watermarks,
)
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


def test_stream_has_the_matches_of_the_log_unless_it_counts_something() -> None:
    compared: Counter[bool] = Counter()

    @drawn(100, 20_000)
    def holds(rng: random.Random) -> None:
        run = execution(rng, drops_sender=True)
        leaves: list[Record] = [Control("leave", node=name) for name in sorted(run.left)]
        records = [one for one in (*run.stamped, *leaves) if rng.random() < 0.95]
        rng.shuffle(records)
        case = Case(program(rng.randrange(len(ORDERS) * len(BODIES))), records, Limits())
        verdicts, summary = streamed(rng, case.program, records)
        if not is_counted(summary):
            compared[equal_to_log(case, verdicts, Match)] += 1

    assert min(compared[False], compared[True]) > 10


# --- families of programs ----------------------------------------------------------------------


def timed(rng: random.Random) -> Case:
    """Return a case of windows, watermarks, and orders that wait for time or give up."""
    run = dated(rng, execution(rng, leaving=rng.choice((0, 0.2))))
    options = f"({DECLARED}, total)", f"({DECLARED}, total, idle = 2 s)", "(frontier = 1 s)"
    more = "(frontier = 9 s, overflow = lost)", "(gap = 2 s, idle = 3 s)"
    bodies = (*PAIRS, "find strict A B;", "find any A+ B;", "find next A B;")
    program = drawn_program(
        rng, causal(*EVERYWHERE, *options, *more), bodies, ("", "within 2 s;", "within 4 events;")
    )
    limits = small_limits(rng, held_back_max=(1, 2), lost_max=(1,), **small_dots(run))
    return Case(program, with_watermarks(rng, arriving(rng, run)), limits, run.true)


def member_events(rng: random.Random) -> Case:
    """Return a case of views, joins and leaves at any place.

    A view stands for the leaves of the nodes that were named before it and that it does not list.
    """
    run = execution(rng, leaving=0.3)
    records = arriving(rng, run)
    place = rng.randint(0, len(records))
    named = {name for one in records[:place] if isinstance(one, Event) for name in one.clock}
    after = [one for one in records[place:] if isinstance(one, Event) or one.node not in named]
    view = Control("view", members=tuple(node for node in NODES if node not in run.left))
    records = [*records[:place], view, *after]
    if rng.random() < 0.5:
        members = tuple(node for node in NODES if rng.random() < 0.5)
        other = Control(rng.choice(("join", "leave")), node=rng.choice(NODES))
        other = rng.choice((other, Control("view", members=members)))
        records.insert(rng.randint(0, len(records)), other)
    options = "(total)", f"(total, {DECLARED})", "(frontier = 1 s)"
    program = drawn_program(rng, causal(*EVERYWHERE, *options), PAIRS)
    limits = small_limits(
        rng, nodes_max=(2, 3), clock_entries_max=(2, 3), restored_entries_max=(1, 4)
    )
    return Case(program, records, limits, run.true)


def restarts(rng: random.Random) -> Case:
    """Return a case of incarnations that programs name, or that their events number."""
    run = restarting(rng, numbered=(numbered := rng.random() < 0.5))
    here = ("", "", "at every node;", "partition by node;")
    program = drawn_program(rng, causal(*EVERYWHERE, "(total)"), PAIRS, here)
    # Numbers do not tell to which of several incarnations an entry belongs, if one is lost.
    dots, lost = ((65_536,), 0.0) if numbered else ((2, 4), 0.05)
    limits = small_limits(rng, incarnations_max=(1, 2), dots_max=dots, nodes_max=(3,))
    records = arriving(rng, run, lost=lost)
    return Case(program, records, limits, run.true)


def topologies(rng: random.Random) -> Case:
    """Return a case of messages along the edges of a topology; its nodes leave."""
    nodes = ("p", "q", "r", "s")[: rng.choice((3, 4))]
    pairs = itertools.permutations(nodes, 2)
    edges = [edge for edge in pairs if rng.random() < 0.5] or [("p", "q")]
    arrows = [f"{a} -> {b}{rng.choice(('', '', '', ' relaxed'))};" for a, b in edges]
    topology = f"topology {rng.choice(('', 'open '))}{{ {' '.join(arrows)} }}"
    run = execution(rng, nodes=nodes, edges=edges)
    bodies = (*PAIRS, "check (A | B | C){3,};", "Y = Causal(B, A); at every node; find any A Y;")
    program = drawn_program(rng, causal(*EVERYWHERE), bodies, (topology, topology, ""))
    limits = small_limits(rng, held_back_max=(1, 2), topology_nodes_max=(4,))
    named = all(event.node in topology for event in run.true)
    return Case(program, arriving(rng, run), limits, run.true if named else None)


def deployed(rng: random.Random) -> Case:
    """Return a case of a copy for each node, which sees what its node learns of or receives."""
    run = keyed(rng, dated(rng, execution(rng)))
    where = tuple(f"at every node{seen};" for seen in ("", " all", " receiving", " receiving"))
    bodies = (
        *PAIRS,
        "event Own = localhost; find any A Own;",
        "event Own = localhost; find any A not Own B;",
        "check (A | B | C){3,};",
        "partition by key; find any A B; within 3 s;",
    )
    options = "(total, gap = 1 s)", f"(total, {DECLARED})", "(frontier = 1 s)"
    program = drawn_program(rng, causal(*EVERYWHERE, *options), where, bodies)
    limits = small_limits(rng, held_back_max=(1, 2), lost_max=(1,), **small_dots(run))
    return Case(program, arriving(rng, run), limits, run.true)


FAMILIES: tuple[Callable[[random.Random], Case], ...] = (
    timed, member_events, restarts, topologies, deployed
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=[one.__name__ for one in FAMILIES])
def test_family_of_streams_has_the_verdicts_of_the_log_and_of_the_oracle(
    family: Callable[[random.Random], Case],
) -> None:
    compared: Counter[bool] = Counter()

    @drawn(60, 10_000)
    def holds(rng: random.Random) -> None:
        case = family(rng)
        verdicts, summary = streamed(rng, case.program, case.records, case.limits)
        if not is_counted(summary):
            compared[equal_to_log(case, verdicts, ENDINGS)] += 1
        unclear = summary.get("doubtful") or summary["events"]["rejected"]
        given_up = any(one.get("overflows") for one in summary["patterns"].values())
        if case.true is not None and not (unclear or given_up):
            assert_certain(case, verdicts)

    assert min(compared[False], compared[True]) > 3


# --- order arrival -------------------------------------------------------------------------------

ARRIVING = (
    *PAIRS,
    "Y = Conc(B, A); find next A Y;",
    "Y = Conc(B, A); check (A | Y | C){3,};",
    "at every node; find any A not C B;",
)


def test_under_order_arrival_clocks_that_shrink_change_no_verdict_or_are_counted() -> None:
    compared: Counter[bool] = Counter()

    @drawn(60, 10_000)
    def holds(rng: random.Random) -> None:
        run = execution(rng, leaving=0.3)
        program = drawn_program(rng, ("arrival;", "arrival;", "CausalOrder;"), ARRIVING)
        records, true = arriving(rng, run), {event.dot: event for event in run.true}
        whole = [true[one.dot] if isinstance(one, Event) else one for one in records]
        verdicts, summary = streamed(rng, program, records)
        if summary.get("doubtful"):
            return
        found, expected = (
            by_pattern(own, ENDINGS) for own in (verdicts, streamed(rng, program, whole)[0])
        )
        for one in program.compiled:
            if not one.causal:
                assert found.get(one.name) == expected.get(one.name)
        compared[bool(expected)] += 1

    assert min(compared[False], compared[True]) > 3


def test_event_offered_under_order_arrival_with_a_shrunk_clock_is_counted() -> None:
    """n3@1 knows n1@1 through n2@1, whose message was sent before n1 left."""
    made = compiled(
        (
            'order arrival; event A = type == "a"; event B = type == "b"; '
            "Y = Conc(B, A); find any A Y;",
        )
    )
    records: list[Record] = [e("n1@1", "a"), e("n2@1", "c", "n1:1"), e("n3@1", "b", "n2:1")]
    records.append(Control("leave", node="n1"))
    for order in itertools.permutations(records):
        verdicts, summary = streamed(random.Random(1), made, order)
        a, cause, b, leave = map(order.index, records)
        false = a < b < max(cause, leave)
        assert false == any(isinstance(one, Match) for one in verdicts), order
        assert summary.get("doubtful") or not (false or b < max(a, cause, leave)), order
        assert not summary.get("doubtful") or not (a < cause < b and leave < b), order
