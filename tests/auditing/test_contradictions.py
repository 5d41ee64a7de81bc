"""What is blamed for a contradiction: the entries, the message, and whether anything else could be.

A log is written as text: `a: a=1 b=2 >m` is an event of node a with its clock, which sends the
message m; `<m` receives it.
"""

from __future__ import annotations

import pytest

from ketal.auditing.report import ExaminedExecution, examine_log
from ketal.logs.traces.message_pairing import Messages
from tests.auditing.explaining import log_of


def examined(text: str, *, match: bool) -> ExaminedExecution:
    lines = []
    for at, line in enumerate(text.split(" / ")):
        node, _, words = line.partition(":")
        clock = dict[str, int]()
        data: dict[str, object] = {"at": at}
        for word in words.split():
            if word[0] in "<>":
                data |= {"message": word[1:], "direction": word[0]}
            else:
                name, _, value = word.partition("=")
                clock[name] = int(value)
        lines.append((node, clock, data))
    keys = "id=message,send=direction:>,receive=direction:<"
    (part,) = examine_log(log_of(lines), Messages.of(keys) if match else None)
    return part


BEYOND = " / ".join(
    [
        "n: n=1",
        *(f"a: a={n} n=1 / b: a={n} b={n} n=1" for n in range(1, 9)),
        "a: a=40 n=1 / b: a=9 b=9 n=1 / a: / b: a=10 b=10 n=1",
        *(f"a: a={n} n=1 / b: a={n} b={n} n=1" for n in range(11, 16)),
    ]
)
"""The own entry of a@9 is 40, and a@10 has no clock."""

CASES: dict[str, tuple[str, list[tuple[int, str, bool, str]], dict[int, list[str]]]] = {
    # Each finding with its line, code, and whether it is certain; then the unknown entries by line.
    "too low, or the known event claims too much": (
        "a: a=1 / b: a=1 b=1 / c: b=1 c=1",
        [(3, "A008", False,
          "c@1 knows b@1, which knows a@1, but c@1 itself does not: its entry for a is 0")],
        {3: ["a"]},
    ),
    "too low, in events that know different values": (
        "a: a=1 / a: a=2 / a: a=3 / p: a=1 p=1 / q: a=3 q=1 / r: a=3 r=1 / b: p=1 q=1 b=1 / "
        "b: a=2 p=1 q=1 r=1 b=2",
        [(7, "A008", False,
          "b@1 knows p@1, which knows a@1, but b@1 itself does not: its entry for a is 0")],
        {7: ["a"], 8: ["a"]},
    ),
    "too high": (
        "a: a=1 / a: a=2 / b: a=2 b=1 / c: a=1 b=1 c=1 / d: a=1 b=1 d=1",
        [(3, "A008", True,
          "b@1 claims to know a@2, but c@1, which knows b@1, does not: its entry for a is 1")],
        {3: ["a"]},
    ),
    "merged in part, and passed on": (
        # Every later event of c that claims to know b@2 lacks the same.
        "a: a=1 / d: d=1 / b: b=1 / b: a=1 b=2 d=1 / c: b=2 c=1 / c: b=2 c=2 / f: c=1 f=1",
        [(5, "A008", False,
          "c@1 knows b@2, which knows a@1, but c@1 itself does not: its entry for a is 0")],
        {5: ["b"]},
    ),
    "a cycle of two": (
        "a: a=1 c=1 / c: a=1 c=1",
        [(1, "A008", False, "a@1 knows c@1, which knows a@1: a cycle in happened-before")],
        {1: ["c"]},
    ),
    "a cycle that one entry explains": (
        "c: a=1 c=1 / c: c=2 / a: a=1 c=2",
        [(1, "A008", True, "c@1 knows a@1, which knows c@2: a cycle in happened-before")],
        {1: ["a"]},
    ),
    "backwards": (
        "b: b=1 / a: a=1 b=1 / a: a=2",
        [(3, "A010", False,
          "the entry for b goes backwards: it is 0 at a@2, but 1 at the earlier a@1")],
        {3: ["b"]},
    ),
    "backwards, the earlier is wrong": (
        "b: b=1 / a: a=1 b=2 / a: a=2 b=1 / b: b=2 / a: a=3 b=1",
        [(2, "A010", True,
          "the entry for b goes backwards: it is 2 at a@1, but 1 at the later a@2")],
        {2: ["b"]},
    ),
    "backwards beyond an unknown entry": (
        "b: b=1 / b: b=2 / a: a=1 b=2 / a: a=2 b=9 / a: a=3",
        [(4, "A006", True, "a@2 refers to b@9, but the last event of b in the log is b@2"),
         (5, "A010", False,
          "the entry for b goes backwards: it is 0 at a@3, but 2 at the earlier a@1")],
        {4: ["b"], 5: ["b"]},
    ),
    "lower, beyond an event without a clock": (
        "b: b=1 / b: b=2 / a: a=1 b=2 / a: / a: a=3 b=1",
        [(4, "A001", True, "a's own entry is missing; the event fits as a@2"),
         (5, "A010", False,
          "the entry for b goes backwards: it is 1 at a@3, but 2 at the earlier a@1")],
        {4: ["every"], 5: ["b"]},
    ),
    "dropped, beyond an event without a clock": (
        "b: b=1 / a: a=1 b=1 / a: / a: a=3",
        [(3, "A001", True, "a's own entry is missing; the event fits as a@2"),
         (4, "A010", False,
          "the entry for b goes backwards: it is 0 at a@3, but 1 at the earlier a@1")],
        {3: ["every"], 4: ["b"]},
    ),
    "nothing else, beyond events without clocks": (
        # The second empty clock is not right either: no event before it is known to know nothing.
        "b: b=1 / a: a=1 b=1 / a: / a: / a: / a: a=5 b=1",
        [(counter + 1, "A001", False, f"a's own entry is missing; the event fits as a@{counter}")
         for counter in (2, 3, 4)],
        {3: ["every"], 4: ["every"], 5: ["every"]},
    ),
    "a corrected own entry, beyond an event without a clock": (
        BEYOND,
        [(18, "A003", True, "a's own entry is too large: it is 40, but 9 is missing"),
         (20, "A001", True, "a's own entry is missing; the event fits as a@10")],
        {20: ["every"]},
    ),
    "backwards, rather than not transitive": (
        "a: a=1 / c: a=1 c=1 / b: a=1 b=1 / b: b=2 c=1",
        [(4, "A010", True,
          "the entry for a goes backwards: it is 0 at b@2, but 1 at the earlier b@1")],
        {4: ["a"]},
    ),
    "an entry in all cases, for which no value fits": (
        # It is the entry of b@2, which is at least 2, by b@1, and at most 1, by c@1.
        "a: a=1 / a: a=2 / a: a=3 / b: a=2 b=1 / b: a=3 b=2 / b: a=2 b=3 / c: a=1 b=2 c=1",
        [(6, "A010", False,
          "the entry for a goes backwards: it is 2 at b@3, but 3 at the earlier b@2"),
         (7, "A008", False,
          "c@1 knows b@2, which knows a@3, but c@1 itself does not: its entry for a is 1")],
        {6: ["a"], 7: ["a"]},
    ),
    "a reference to a lost event": (
        "a: a=1 / b: a=7 b=1",
        [(2, "A006", False, "b@1 refers to a@7, but the last event of a in the log is a@1")],
        {2: ["a"]},
    ),
    "references to two lost events, which no event passed on": (
        "a: a=1 / b: a=5 b=1 / c: a=5 c=1 / d: a=6 d=1",
        [(2, "A006", False,
          "b@1 refers to a@5, but the last event of a in the log is a@1; "
          "2 events in total refer to missing events of a"),
         (4, "A006", False, "d@1 refers to a@6, but the last event of a in the log is a@1")],
        {2: ["a"], 3: ["a"], 4: ["a"]},
    ),
    "a reference to a lost event, without what came before that": (
        "c: c=1 / a: a=1 c=1 / b: a=7 b=1",
        [(3, "A006", True, "b@1 refers to a@7, but the last event of a in the log is a@1")],
        {3: ["a"]},
    ),
    "two references to a lost event, without what came before that": (
        "c: c=1 / a: a=1 c=1 / b: a=7 b=1 / b: a=7 b=2",
        [(3, "A006", False,
          "b@1 refers to a@7, but the last event of a in the log is a@1; "
          "2 events in total refer to missing events of a")],
        {3: ["a"], 4: ["a"]},
    ),
}  # fmt: skip

MATCHED: dict[str, tuple[str, list[tuple[int, str, bool, str]], dict[int, list[str]]]] = {
    "a receive without its send": (
        "b: b=1 <m / a: a=1 / a: a=2 >m",
        [(1, "A009", True,
          "b@1 receives a message from a@2 but does not know a@2: its entry for a is 0")],
        {1: ["a"]},
    ),
    "a receive without its send, which later events do not know either": (
        # The send knows b@3, so no value of the entry would suit them; nothing else can be wrong.
        "a: a=1 b=2 >m / b: b=1 <m / b: b=2 / b: b=3",
        [(2, "A009", True,
          "b@1 receives a message from a@1 but does not know a@1: its entry for a is 0")],
        {2: ["a"]},
    ),
    "a receive before its send on one node": (
        "b: b=1 <m / b: b=2 >m",
        [(1, "A009", True, "b@1 receives a message from b@2 but does not know b@2")],
        {1: ["b"]},
    ),
    "a receive before its send, within a cycle": (
        "a: a=1 b=1 / b: a=1 b=1 <m / b: a=1 b=2 >m",
        [(1, "A008", False, "a@1 knows b@1, which knows a@1: a cycle in happened-before"),
         (2, "A009", False, "b@1 receives a message from b@2 but does not know b@2")],
        {1: ["b"], 2: ["a"]},
    ),
    "a receive before its send, continued by a cycle": (
        "b: b=1 <m / b: a=1 b=2 / a: a=1 b=2 / b: a=1 b=3 >m",
        [(1, "A009", False, "b@1 receives a message from b@3 but does not know b@3"),
         (3, "A008", False, "a@1 knows b@2, which knows a@1: a cycle in happened-before")],
        {1: ["b"], 3: ["b"]},
    ),
    "a receive without its send, and without an event that another one knows": (
        # The later event lacks a@1 too, but no entry of another event can be wrong.
        "a: a=1 / a: a=2 >m / c: a=1 c=1 / b: b=1 c=1 <m / b: b=2 c=1",
        [(4, "A009", True,
          "b@1 receives a message from a@2 but does not know a@2: its entry for a is 0")],
        {4: ["a"]},
    ),
    "backwards, before a receive without its send": (
        "b: b=1 >m / b: b=2 / a: a=1 b=2 / a: a=2 b=1 / a: a=3 <m",
        [(4, "A010", False,
          "the entry for b goes backwards: it is 1 at a@2, but 2 at the earlier a@1")],
        {4: ["b"], 5: ["b"]},
    ),
    "too low, or claimed too early": (
        # By the message, the entry of b@1 is right; c@2 claims the same as c@1, and lacks nothing.
        "a: a=1 >m / b: a=1 b=1 <m / c: b=1 c=1 / c: a=1 b=1 c=2",
        [(3, "A008", False,
          "c@1 knows b@1, which knows a@1, but c@1 itself does not: its entry for a is 0")],
        {3: ["a"]},
    ),
    "too low from an event on": (
        # By the message, the entry of b@2 is right.
        "a: a=1 >m / b: b=1 / b: a=1 b=2 <m / c: b=2 c=1 / c: b=2 c=2",
        [(4, "A008", False,
          "c@1 knows b@2, which knows a@1, but c@1 itself does not: its entry for a is 0")],
        {4: ["a"], 5: ["a"]},
    ),
    "a cycle, and a reference to no node, each with one cause": (
        "b: a=1 b=1 >m / a: a=1 b=1 z=4 <m",
        [(1, "A008", True, "b@1 knows a@1, which knows b@1: a cycle in happened-before"),
         (2, "A007", True, "a@1 refers to z@4, but no event of z is in the log")],
        {1: ["a"], 2: ["z"]},
    ),
    "a receive whose own dot is uncertain": (
        "b: b=2 <m / b: b=2 c=9 >m",
        [(1, "A003", False, "b's own entry is too large: it is 2, but 1 is missing"),
         (2, "A007", False, "b@2 refers to c@9, but no event of c is in the log")],
        {2: ["c"]},
    ),
}  # fmt: skip


def check(
    part: ExaminedExecution,
    findings: list[tuple[int, str, bool, str]],
    unknown: dict[int, list[str]],
) -> None:
    named = sorted(part.execution.findings, key=lambda finding: finding.event.line)
    assert [(f.event.line, f.code, f.certain, f.message) for f in named] == findings
    assert {
        event.line: sorted(event.unknown) or ["every"]
        for event in part.execution.events
        if event.unknown
    } == unknown


@pytest.mark.parametrize("name", CASES)
def test_entries_that_explain_a_contradiction_are_blamed(name: str) -> None:
    text, findings, unknown = CASES[name]
    check(examined(text, match=False), findings, unknown)


@pytest.mark.parametrize("name", MATCHED)
def test_entries_that_contradict_messages_are_blamed(name: str) -> None:
    text, findings, unknown = MATCHED[name]
    check(examined(text, match=True), findings, unknown)
