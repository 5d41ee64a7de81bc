"""Small executions whose clocks shrink and whose nodes restart, in every order of arrival.

The verdicts of a Monitor are compared with those over the finite log, and these with the oracle on
the true clocks. A difference must be counted, or marked `certain: false`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import semantics
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.events.incarnation import name_of
from ketal.model.verdicts.find_verdicts import Match
from ketal.programs.program import Program
from ketal.runtime.monitor import Monitor
from tests.property.memberships import Clock, base, number
from tests.sampling import examples

Record = Event | Control
NODES = ("n1", "n2", "n3")
ORDERS = {
    "free": "CausalOrder",
    "total": 'CausalOrder(total, nodes = ["n1", "n2", "n3"])',
}


def program(relation: str, order: str = "free") -> Program:
    return ketal.compile(
        f"pattern P {{ order {ORDERS[order]};"
        ' event A = type == "a"; event B = type == "b";'
        f" X = A; Y = {relation}; find any X Y; }}"
    )


PROGRAMS = {
    "concurrent": program("Conc(B)"),
    "known": program("Causal(B, X)"),
    "total": program("Conc(B)", "total"),
}


@dataclass
class Small:
    """A small execution: each event with the stamped clock and with the true clock."""

    stamped: list[Event] = field(default_factory=list)
    true: list[Event] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """The records that a program reads."""
        return [*self.stamped, *(Control("leave", node=node) for node in self.left)]


def _looks_unchanged(before: Clock, after: Clock) -> bool:
    """Return whether an entry without a number hides a new incarnation by an equal counter."""
    return any(
        base(n) == base(m) and n != m and c == before[m] for n, c in after.items() for m in before
    )


def _happen(
    run: Small, type: str, name: str, true: Clock, shown: Clock, named: bool
) -> tuple[Clock, Clock]:
    """Add the next event of a node; return the node's true clock and its shown clock."""
    counter = true.get(name, 0) + 1
    true, shown = {**true, name: counter}, {**shown, name: counter}
    id = f"e{len(run.true)}"
    run.true.append(Event(node=name, type=type, clock=true, id=id))
    if named:
        run.stamped.append(Event(node=name, type=type, clock=shown, id=id))
    else:
        data = {"incarnation": number(name)}
        clock = {base(n): c for n, c in shown.items() if n == name or base(n) != base(name)}
        run.stamped.append(Event(node=base(name), type=type, clock=clock, id=id, data=data))
    return true, shown


@st.composite
def executions(draw: Any, *, named: bool, restarts: bool, events_max: int = 5) -> Small:
    """Draw an execution whose nodes send, drop entries and restart.

    A message shows its sender's entry, which comes back if the receiver had dropped it.

    Parameters
    ----------
    named : bool
        Whether programs name their incarnations (`A#2`), or number them and write clocks
        with one entry a node.
    restarts : bool
        Whether nodes restart.
    """
    run = Small(left=[] if restarts else draw(st.lists(st.sampled_from(NODES), max_size=1)))
    name_now = {node: node for node in NODES}
    true: dict[str, Clock] = {}
    shown: dict[str, Clock] = {}
    sent: list[tuple[str, Clock, Clock]] = []
    for _ in range(draw(st.integers(2, events_max - len(run.left)))):
        node = draw(st.sampled_from(NODES))
        name = name_now[node]
        if restarts and name in true and draw(st.booleans()):
            name = name_now[node] = name_of(node, number(name) + 1)
        knows, shows = true.get(name, {}), shown.get(name, {})
        droppable = sorted(shows.keys() - {name})
        gone = ""
        if droppable and draw(st.booleans()):
            gone = draw(st.sampled_from(droppable))
            shows = {n: c for n, c in shows.items() if n != gone}
        # An entry that is back before an event lacks it is known to have been dropped only
        # if its node is known to have left.
        returning = gone in run.left or gone not in name_now.values()
        news = [m for m in sent if base(m[0]) != node and (m[0] != gone or returning)]
        if news and draw(st.booleans()):
            without = knows, shows
            sender, all_known, all_shown = draw(st.sampled_from(news))
            dropped = knows.keys() - shows.keys() - {sender}
            knows = {n: max(knows.get(n, 0), all_known.get(n, 0)) for n in {*knows, *all_known}}
            for n, c in all_shown.items():
                if n not in dropped and n != name:
                    shows = {**shows, n: max(shows.get(n, 0), c)}
            if not named:
                latest = {base(n): number(n) for n in sorted(knows, key=number)}
                shows = {n: c for n, c in shows.items() if number(n) == latest[base(n)]}
                if _looks_unchanged(shown.get(name, {}), shows):
                    knows, shows = without
        type = draw(st.sampled_from("ab"))
        true[name], shown[name] = _happen(run, type, name, knows, shows, named)
        sent.append((name, true[name], shown[name]))
    return run


Pairs = frozenset[frozenset[str]]


def pairs(steps: Any) -> frozenset[str]:
    """Return the events of a match, without roles: either mirror image may be reported."""
    return frozenset(str(dot) for _, dot in steps)


def finite(made: Program, records: list[Record]) -> tuple[Pairs, ketal.Summary]:
    verdicts = ketal.run(made, records)
    matches = frozenset(pairs(v.steps) for v in verdicts if isinstance(v, Match))
    return matches, verdicts.summary


def live(made: Program, records: Any) -> tuple[Pairs, Pairs, ketal.Summary]:
    """Return the certain matches, all of them, and the summary."""
    monitor = Monitor(made)
    verdicts = [*monitor.feed_many(list(records)), *monitor.close()]
    matches = [v for v in verdicts if isinstance(v, Match)]
    certain = frozenset(pairs(v.steps) for v in matches if v.certain)
    return certain, frozenset(pairs(v.steps) for v in matches), monitor.summary


def oracle(made: Program, run: Small) -> Pairs:
    outcome = semantics.judge(made.file, "P", run.true)
    return frozenset(pairs(steps) for _, steps, _ in outcome.matches)


def counted(summary: ketal.Summary) -> bool:
    """Return whether the summary counts a possible cause of a difference."""
    events = summary["events"]
    return bool(summary.get("doubtful") or summary["gaps"] or events["late"] or events["rejected"])


def differences(made: Program, records: list[Record], expected: Pairs) -> list[tuple[Any, ...]]:
    """Return the arrival orders in which a Monitor's matches differ without being counted."""
    out = []
    for arrival in itertools.permutations(records):
        certain, found, summary = live(made, arrival)
        if not (certain <= expected <= found) and not counted(summary):
            out.append(([_brief(r) for r in arrival], sorted(map(sorted, found)), summary))
    return out


def _brief(record: Record) -> str:
    if isinstance(record, Control):
        return f"{record.kind} {record.node}"
    return f"{record.dot}{record.clock}"


def check(made: Program, run: Small) -> None:
    """Compare every order of arrival of an execution whose clocks name incarnations."""
    expected, summary = finite(made, run.records)
    assert expected == oracle(made, run)
    assert not counted(summary)
    assert differences(made, run.records, expected) == []


def check_numbered(made: Program, run: Small) -> None:
    """The same for numbered incarnations; each arrives before events that know it."""
    expected = oracle(made, run)
    for order in itertools.permutations(range(len(run.true))):
        if not _incarnations_first(run, order):
            continue
        arrival: list[Record] = [run.stamped[place] for place in order]
        found, summary = finite(made, arrival)
        assert found == expected or counted(summary), [_brief(r) for r in arrival]
        certain, matches, summary = live(made, arrival)
        same = certain <= expected <= matches
        assert same or counted(summary), [_brief(r) for r in arrival]


def _incarnations_first(run: Small, order: tuple[int, ...]) -> bool:
    """Return whether each incarnation arrives before the events that know it."""
    there: set[str] = set()
    for place in order:
        event = run.true[place]
        there.add(event.node)
        if any(number(name) > 1 and name not in there for name in event.clock):
            return False
    return True


@pytest.mark.parametrize("relation", sorted(PROGRAMS))
@pytest.mark.parametrize("restarts", [False, True], ids=["shrinking", "restarting"])
def test_every_arrival_order_with_clocks_that_name_incarnations(
    relation: str, restarts: bool
) -> None:
    @examples(6, 750)
    @given(executions(named=True, restarts=restarts))
    def holds(run: Small) -> None:
        check(PROGRAMS[relation], run)

    holds()


def test_entry_of_an_incarnation_between_two_others_is_counted_if_it_was_misread() -> None:
    """n2's entry is read as n1@1, as n1#2@1 has not arrived, and n1#3@1 knows n2."""
    numbered = [
        Event("n1", "a", {"n1": 1}, data={"incarnation": 1}, id="e0"),
        Event("n1", "a", {"n1": 1}, data={"incarnation": 2}, id="e1"),
        Event("n2", "a", {"n1": 1, "n2": 1}, data={"incarnation": 1}, id="e2"),
        Event("n1", "a", {"n1": 2}, data={"incarnation": 2}, id="e3"),
        Event("n1", "b", {"n2": 1, "n1": 1}, data={"incarnation": 3}, id="e4"),
    ]
    named = [
        Event("n1", "a", {"n1": 1}, id="e0"),
        Event("n1#2", "a", {"n1#2": 1}, id="e1"),
        Event("n2", "a", {"n1#2": 1, "n2": 1}, id="e2"),
        Event("n1#2", "a", {"n1#2": 2}, id="e3"),
        Event("n1#3", "b", {"n2": 1, "n1#2": 1, "n1#3": 1}, id="e4"),
    ]
    check_numbered(PROGRAMS["concurrent"], Small(stamped=numbered, true=named, left=[]))


@pytest.mark.parametrize("relation", sorted(PROGRAMS))
def test_every_arrival_order_with_events_that_number_incarnations(relation: str) -> None:
    @examples(8, 750)
    @given(executions(named=False, restarts=True))
    def holds(run: Small) -> None:
        check_numbered(PROGRAMS[relation], run)

    holds()
