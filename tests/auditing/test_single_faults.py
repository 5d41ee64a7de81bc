"""One fault in a random run of messages, with the file in causal order or shuffled.

The fault that was put in, with its line and nothing else; where another single fault
gives the same log (`tests.auditing.explaining` tries them all), the one that docs/audit.md
says. These logs are larger than those of `tests/auditing/test_causes.py`, and name their
messages.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import reject

from ketal.auditing.repair import repair_execution
from ketal.auditing.report import examine_log
from ketal.logs.traces.message_pairing import Messages
from tests.auditing.explaining import Row, causes, log_of, reported_lines, valid
from tests.sampling import drawn, sample

MATCH = "id=msg,send=sent:yes,receive=got:yes"


class Line(NamedTuple):
    """An event of the file, compared by identity, so that its line is known after a shuffle."""

    node: str
    clock: dict[str, int]
    data: dict[str, Any]


def run_of_messages(rng: random.Random) -> list[Line]:
    """Return a run of 2 to 6 nodes and 5 to 40 events, in causal order or shuffled."""
    names = [f"n{i}" for i in range(1, rng.randint(2, 6) + 1)]
    clocks: dict[str, dict[str, int]] = {name: {} for name in names}
    on_the_way: list[tuple[str, int, dict[str, int]]] = []
    chatter = rng.choice((0.2, 0.4, 0.7))
    lines = []
    for at in range(rng.randint(5, 40)):
        node = rng.choice(names)
        clock = clocks[node]
        data: dict[str, Any] = {"at": at}
        arrived = [message for message in on_the_way if message[0] != node]
        receives = bool(arrived) and rng.random() < chatter
        if receives:
            message = rng.choice(arrived)
            on_the_way.remove(message)
            for name, value in message[2].items():
                clock[name] = max(value, clock.get(name, 0))
            data |= {"msg": message[1], "got": "yes"}
        clock[node] = clock.get(node, 0) + 1
        if not receives and rng.random() < chatter:
            data |= {"msg": at, "sent": "yes"}
            on_the_way.append((node, at, dict(clock)))
        lines.append(Line(node, dict(clock), data))
    if rng.random() < 0.5:
        rng.shuffle(lines)
    return lines


class Rig:
    """A run and its lines; each fault returns the line where it must be reported."""

    def __init__(self, rng: random.Random, lines: list[Line]) -> None:
        self.rng = rng
        self.lines = lines
        self.at = {(line.node, line.clock[line.node]): line for line in lines}
        self.top: dict[str, int] = {}
        for node, counter in self.at:
            self.top[node] = max(counter, self.top.get(node, 0))

    def is_last(self, line: Line) -> bool:
        return line.clock[line.node] == self.top[line.node]

    def other(self, line: Line) -> str | None:
        others = sorted(self.top.keys() - {line.node})
        return self.rng.choice(others) if others else None

    def own_missing(self, line: Line) -> Line | None:
        del line.clock[line.node]
        return line

    def own_not_increasing(self, line: Line) -> Line | None:
        own = line.clock[line.node]
        if own < 2 or self.is_last(line):
            return None
        line.clock[line.node] = self.rng.randint(1, own - 1)
        return line

    def own_too_large(self, line: Line) -> Line | None:
        if self.is_last(line):
            return None
        line.clock[line.node] = self.top[line.node] + self.rng.randint(1, 5)
        return line

    def hole(self, line: Line) -> Line | None:
        if self.is_last(line):
            return None
        self.lines.remove(line)
        return self.at[line.node, line.clock[line.node] + 1]

    def twice(self, line: Line) -> Line | None:
        copy = Line(line.node, dict(line.clock), {"at": line.data["at"], "again": True})
        self.lines.insert(self.rng.randint(0, len(self.lines)), copy)
        return copy

    def unknown_event(self, line: Line) -> Line | None:
        if (name := self.other(line)) is None:
            return None
        line.clock[name] = self.top[name] + self.rng.randint(1, 4)
        return line

    def unknown_node(self, line: Line) -> Line | None:
        line.clock["nobody"] = self.rng.randint(1, 4)
        return line

    def too_low(self, line: Line) -> Line | None:
        """Lower or remove an entry: the clock is not transitive, or goes backwards."""
        names = sorted(line.clock.keys() - {line.node})
        if not names:
            return None
        name = self.rng.choice(names)
        self._set(line, name, self.rng.randint(0, line.clock[name] - 1))
        return line

    def too_high(self, line: Line) -> Line | None:
        name = self.other(line)
        if name is None or line.clock.get(name, 0) == self.top[name]:
            return None
        line.clock[name] = self.rng.randint(line.clock.get(name, 0) + 1, self.top[name])
        return line

    def send_unknown(self, line: Line) -> Line | None:
        """Lower the entry of a message's sender to what the node knew before."""
        if "got" not in line.data:
            return None
        message = line.data["msg"]
        send = next(x for x in self.lines if x.data.get("msg") == message and x is not line)
        before = self.at.get((line.node, line.clock[line.node] - 1))
        value = before.clock.get(send.node, 0) if before is not None else 0
        if value == line.clock[send.node]:
            return None
        self._set(line, send.node, value)
        return line

    def _set(self, line: Line, name: str, value: int) -> None:
        line.clock[name] = value
        if not value:
            del line.clock[name]


FAULTS: dict[str, tuple[Callable[[Rig, Line], Line | None], set[str]]] = {
    "own missing": (Rig.own_missing, {"A001"}),
    "own not increasing": (Rig.own_not_increasing, {"A003", "A005"}),
    "own too large": (Rig.own_too_large, {"A003"}),
    "hole": (Rig.hole, {"A004"}),
    "twice": (Rig.twice, {"A005"}),
    "unknown event": (Rig.unknown_event, {"A006"}),
    "unknown node": (Rig.unknown_node, {"A007"}),
    "too low": (Rig.too_low, {"A008", "A009", "A010"}),
    "too high": (Rig.too_high, {"A008", "A010"}),
    "send unknown": (Rig.send_unknown, {"A009"}),
}


def log_with_fault(rng: random.Random, fault: str) -> tuple[list[Line], int, bool]:
    """Return a log with a fault, the fault's line, and whether messages are to be matched."""
    for _ in range(10):
        rig = Rig(rng, run_of_messages(rng))
        match = fault == "send unknown" or rng.random() < 0.3
        for line in rng.sample(rig.lines, len(rig.lines)):
            found = FAULTS[fault][0](rig, line)
            if found is not None:
                return rig.lines, 1 + next(i for i, x in enumerate(rig.lines) if x is found), match
    reject()


def reported_faults(lines: list[Line], match: bool) -> list[tuple[int, str]]:
    (part,) = examine_log(log_of(lines), Messages.of(MATCH) if match else None)
    return [(finding.event.line, finding.code) for finding in part.execution.findings]


def check(rng: random.Random, fault: str) -> str:
    """Compare the report about a log with the injected fault; return the outcome."""
    lines, line, match = log_with_fault(rng, fault)
    reported = reported_faults(lines, match)
    if len(reported) == 1 and reported[0][0] == line and reported[0][1] in FAULTS[fault][1]:
        return "named"
    rows: list[Row] = [(node, clock) for node, clock, _ in lines]
    if valid(rows):
        # The log is another execution; contradictions of its messages are of another class.
        assert not reported
        assert fault in ("too low", "too high")
        return "shows nowhere"
    assert sorted(at for at, _ in reported) == reported_lines(causes(rows), rows), (line, reported)
    return "ambiguous"


@pytest.mark.parametrize("fault", FAULTS)
def test_single_fault_is_named_and_no_other(fault: str) -> None:
    few, went = sample(35, 2_000), Counter[str]()

    @drawn(few)
    def holds(rng: random.Random) -> None:
        went[check(rng, fault)] += 1

    assert went["named"] > few // 3, went


CASES = {
    "own not increasing": (
        "n1: n1=4 / n1: n1=6 n4=2 / n1: n1=1 / n1: n1=4 n4=2 / n3: n1=1 n3=2 / n1: n1=2 / "
        "n2: n2=1 / n4: n1=4 n4=1 / n3: n1=1 n2=1 n3=4 / n3: n1=1 n2=1 n3=6 / n1: n1=3 / "
        "n4: n1=4 n4=2 / n3: n3=1 / n2: n1=1 n2=2 n3=5 / n3: n1=1 n2=1 n3=3 / n3: n1=1 "
        "n2=1 n3=5 / n3: n1=1 n2=1 n3=7",
        (4, "A003"),
    ),
    "own missing": (
        "n4: n4=1 / n1: n1=1 / n3: n3=2 / n4: n4=3 / n1: n1=2 / n1: n1=3 / n2: n2=2 / n3: "
        "/ n2: n2=3 n3=2 / n2: n2=1 / n4: n4=4 / n4: n4=6 / n4: n4=8 / n4: n4=2 / n1: "
        "n1=4 n3=1 / n4: n4=5 / n4: n4=7",
        (8, "A001"),
    ),
    "own missing, with a past": (
        "n1: n1=3 / n2: n1=2 n2=2 / n1: n1=5 / n2: n1=6 n2=5 / n1: n1=1 / n2: n1=2 n2=3 / "
        "n1: n1=2 / n1: n1=4 / n2: n2=1 / n1: n1=6 / n2: n1=6 n2=4 / n1: n1=7 n2=3 / n2: "
        "n1=6 n2=6 / n1: n1=9 n2=6 / n1: n2=3",
        (15, "A001"),
    ),
    "own too large": (
        "n5: n5=3 / n4: n4=2 / n5: n5=4 / n3: n3=1 n5=1 / n2: n2=3 / n4: n4=4 n5=4 / n5: "
        "n5=1 / n4: n4=1 / n2: n2=4 / n4: n4=5 n5=4 / n2: n2=1 / n2: n2=2 / n3: n3=2 n5=1 "
        "/ n4: n3=1 n4=6 n5=4 / n4: n4=7 / n5: n5=2",
        (15, "A003"),
    ),
    "hole": (
        "n1: n1=1 / n3: n3=4 / n3: n3=6 / n1: n1=2 n3=2 / n1: n1=3 n3=7 / n2: n2=2 / n2: "
        "n2=3 n3=1 / n3: n3=7 / n3: n3=2 / n2: n2=4 n3=4 / n3: n3=5 / n2: n2=1 / n3: n3=8 "
        "/ n3: n3=3 / n1: n1=4 n3=7",
        (9, "A004"),
    ),
    "hole at the beginning": (
        "n6: n1=1 n6=3 / n6: n1=1 n6=2 / n5: n2=1 n5=3 / n2: n2=1 / n2: n1=1 n2=2 n5=5 "
        "n6=3 / n5: n5=1 / n1: n1=1 / n3: n3=1 / n5: n5=2 / n1: n1=3 n3=4 n5=1 / n3: n3=2 "
        "n5=1 / n5: n1=1 n2=1 n5=4 n6=3 / n1: n1=4 n3=4 n5=1 / n3: n3=3 n5=1 / n1: n1=2 / "
        "n5: n1=1 n2=1 n5=5 n6=3 / n3: n3=4 n5=1",
        (2, "A004"),
    ),
}
"""Shuffled files in which mainly the clocks of other nodes show the place of an event: node
and clock of each line, and the expected fault."""


def lines_of(text: str) -> list[Line]:
    lines = []
    for at, line in enumerate(text.split(" / ")):
        node, _, entries = line.partition(":")
        clock = {n: int(value) for n, value in (one.split("=") for one in entries.split())}
        lines.append(Line(node, clock, {"at": at}))
    return lines


@pytest.mark.parametrize("name", CASES)
def test_place_of_a_shuffled_event_is_found_by_the_clocks_of_others(name: str) -> None:
    text, fault = CASES[name]
    lines = lines_of(text)
    assert reported_faults(lines, match=False) == [fault]
    assert valid([(node, clock) for node, clock, _ in lines]) is False


def test_events_without_own_entries_are_named_despite_contradictions() -> None:
    """The place of such an event decides, not the missing own entry."""
    text = "n1: / n1: n1=2 n2=1 / n2: n1=2 / n2: n1=2 / n1: n1=3"
    assert [code for _, code in reported_faults(lines_of(text), match=False)].count("A001") == 3


@pytest.mark.parametrize("after", [True, False], ids=["right after", "elsewhere"])
def test_repeated_own_entry_is_a_duplicate_or_an_uncounted_event(after: bool) -> None:
    counters = [number for number in range(1, 16) if number != 7]
    counters.insert(counters.index(6 if after else 3), 6 if after else 3)
    part, *_ = examine_log(log_of(("n", {"n": counter}, {}) for counter in counters), None)
    (fault,) = part.execution.findings
    assert (fault.code, str(fault.dot)) == ("A003" if after else "A004", "n@7")
    assert part.execution.duplicates == (not after)
    assert bool(repair_execution(part).changed) == after


def test_messages_distinguish_a_wrong_own_entry_from_a_lost_event() -> None:
    """By the clocks alone a@2 may be lost, but then b would lack the send of its message."""
    lines = [
        Line("a", {"a": 3}, {"msg": 0, "sent": "yes"}),
        Line("b", {"a": 1, "b": 1}, {"msg": 0, "got": "yes"}),
        Line("a", {"a": 2}, {"msg": 1, "sent": "yes"}),
        Line("c", {"a": 2, "c": 1}, {"msg": 1, "got": "yes"}),
    ]
    assert reported_faults(lines, match=False) == [(3, "A004")]
    assert reported_faults(lines, match=True) == [(1, "A003")]
    (part,) = examine_log(log_of(lines), Messages.of(MATCH))
    done = repair_execution(part)
    assert [item.clock for item in done.items] == [  # type: ignore[union-attr]
        {"a": 1}, {"a": 1, "b": 1}, {"a": 2}, {"a": 2, "c": 1},
    ]  # fmt: skip
    assert (len(done.changed), done.left) == (1, ())


def test_repair_gives_a_possible_original_log() -> None:
    repairs = 0
    few = sample(100, 10_000)

    @drawn(few)
    def holds(rng: random.Random) -> None:
        nonlocal repairs
        lines, _, match = log_with_fault(rng, rng.choice(list(FAULTS)))
        rows: list[Row] = [(node, dict(clock)) for node, clock, _ in lines]
        (part,) = examine_log(log_of(lines), Messages.of(MATCH) if match else None)
        done = repair_execution(part)
        if match or not done.changed:
            return
        repairs += 1
        written = tuple((item.node, item.clock) for item in done.items)  # type: ignore[union-attr]
        assert valid(list(written))  # type: ignore[arg-type]
        assert written in [cause.rows for cause in causes(rows)]

    assert repairs > few // 5
