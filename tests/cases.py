"""Hand-computed cases: a pattern, an execution, and the expected outcome.

Each case names the construct that it tests. The oracle's tests run them
through `ketal.semantics`; any engine can be run through the same list, with its
verdicts turned into an `Outcome` and that into `facts`.

Notation: an event is `e("n1@2", "a", "n2:1")`: dot, type, the other entries of
its clock. A match is `A=n1@1 B=n2@1`, perhaps with its scope before and its
return after: `[key=1] A=n1@1 -> {"x": 1}`. A violation is `n1@2: A B`, the
event and the expected step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.syntax import Duration
from ketal.semantics import Outcome


@dataclass(frozen=True)
class Case:
    """One pattern (always named P) over one execution, in file order."""

    name: str
    construct: str
    text: str
    events: tuple[Event, ...]
    matches: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()
    unscoped: int = 0
    untimed: int = 0
    halted: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def expected(self) -> dict[str, Any]:
        """The expected `facts` of the outcome."""
        lists = {k: sorted(getattr(self, k)) for k in _LISTS}
        return lists | {k: getattr(self, k) for k in _COUNTS}


_LISTS = ("matches", "violations", "incomplete", "timed_out")
_COUNTS = ("unscoped", "untimed", "halted")


def e(
    dot: str,
    type: str,
    clock: str = "",
    *,
    time: float | None = None,
    id: str | None = None,
    more: Mapping[str, Any] | None = None,
    **data: Any,
) -> Event:
    """Make an event from its dot, its type and the other entries of its clock.

    `more` holds the attributes whose names are not words of Python, or taken.
    """
    node, counter = Dot.parse(dot)
    entries = dict(entry.rsplit(":", 1) for entry in clock.split())
    stamp = {node: counter} | {n: int(c) for n, c in entries.items()}
    return Event(node=node, type=type, clock=stamp, time=time, data={**data, **(more or {})}, id=id)


def facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as sorted lines of text and counts."""

    def where(scope: tuple[tuple[str, Any], ...]) -> str:
        return f"[{' '.join(f'{k}={json.dumps(v)}' for k, v in scope)}] " if scope else ""

    def bound(steps: tuple[tuple[str, Dot], ...]) -> str:
        return " ".join(f"{step}={dot}" for step, dot in steps)

    return {
        "matches": sorted(
            where(scope) + bound(steps) + ("" if returns is None else f" -> {json.dumps(returns)}")
            for scope, steps, returns in outcome.matches
        ),
        "violations": sorted(
            f"{where(scope)}{dot}: {' '.join(expected)}"
            for scope, dot, expected in outcome.violations
        ),
        "incomplete": sorted(
            where(scope) + " ".join(expected) for scope, expected in outcome.incomplete
        ),
        "timed_out": sorted(where(scope) + bound(steps) for scope, steps in outcome.timed_out),
        "unscoped": outcome.unscoped,
        "untimed": outcome.untimed,
        "halted": outcome.halted,
    }


LETTERS = "".join(f'event {x.upper()} = type == "{x}";\n' for x in "abcdn")


def p(*statements: str, order: str = "arrival", letters: str = LETTERS) -> str:
    """Return the text of pattern P; its events are A, B, C, D and N by default."""
    return f"pattern P {{\norder {order};\n{letters}{'; '.join(statements)};\n}}\n"


def line(types: str, **common: Any) -> tuple[Event, ...]:
    """Return a run of one node: one event per letter, at 0 s, 1 s, 2 s, …."""
    return tuple(e(f"n@{i}", t, time=i - 1, **common) for i, t in enumerate(types.split(), 1))


CAUSAL = "CausalOrder"

# a and b are forked; c comes after both, on a third node.
FORK = (e("n1@1", "a"), e("n2@1", "b"), e("n3@1", "c", "n1:1 n2:1"))
# a sends to b, which sends to c.
CHAIN = (e("n1@1", "a"), e("n2@1", "b", "n1:1"), e("n3@1", "c", "n1:1 n2:1"))
# Three events of type b, of which 1 → 2, and 3 is concurrent with both.
PEERS = (e("n1@1", "b", x=1), e("n1@2", "b", x=2), e("n2@1", "b", x=1))

# The paper's Fig. 1: A turns the stack on; B pushes after it received that; C receives in the order
# of arrival, which is push, on.
FIG_1 = (
    e("A@1", "Stack.on"),
    e("B@1", "recv", "A:1"),
    e("B@2", "Stack.push", "A:1"),
    e("C@1", "recv", "A:1 B:2"),
    e("C@2", "Stack.on", "A:1 B:2"),
)
STACK = """
event On = call(* Stack.on(..)) && localhost;
event Push = call(* Stack.push(..));
event Pop = call(* Stack.pop(..));
event Off = call(* Stack.off(..)) && localhost;
A = On; B = Causal(Push, A) || Causal(Pop, A); C = Causal(Off, all);
"""

REPLICATED_STACK = """
pattern ReplicatedStack {
    order CausalOrder;
    at every node;
    event On   = call(* ReplicatedStack.on(..)) && localhost;
    event Push = call(* ReplicatedStack.push(..));
    event Pop  = call(* ReplicatedStack.pop(..));
    event Off  = call(* ReplicatedStack.off(..)) && localhost;
    A = On;
    B = Causal(Push, A) || Causal(Pop, A);
    C = Causal(Off, all);
    check (A B* C)*;
}
"""

EVENTS_AND_GUARDS = [
    Case(
        "the alphabet is not what the guards accept: a failed reply is a violation",
        "Events and guards",
        p(
            "Ok = Reply && code == 200",
            "check (Request Ok)*",
            letters='event Request = type == "request"; event Reply = type == "reply";',
        ),
        (
            e("n@1", "request"),
            e("n@2", "other"),
            e("n@3", "reply", code=500),
            e("n@4", "reply", code=200),
        ),
        violations=("n@3: Ok",),
        halted=1,
    ),
    Case(
        "a shared event that the pattern does not name is outside of its alphabet",
        "Events and guards",
        'event X = type == "x"; event Y = type == "y";'
        + p("check A X*", letters='event A = type == "a";'),
        line("a y x"),
    ),
    Case(
        "a shared event that only a guard of the pattern names is in its alphabet",
        "Events and guards",
        'event X = type == "x"; event Y = type == "y";'
        + p("S = X || (Y && ok == 1)", "check A S*", letters='event A = type == "a";'),
        line("a y x"),
        violations=("n@2: S",),
        halted=1,
    ),
    Case(
        "call matches type, result and arguments; what is absent is unknown",
        "Events and guards",
        p(
            "Any = call(* S.*(..))",
            "Int = call(int S.get(..))",
            "Args = call(* S.get(str, ..))",
            "Deep = call(* org..get(..))",
            "find any Any | Int | Args | Deep",
            letters="event E = true;",
        ),
        (
            e("n@1", "S.get", result_type="int", arg_types=["str", "int"]),
            e("n@2", "S.get"),
            e("n@3", "S.x.get"),
            e("n@4", "org.get"),
            e("n@5", "org.a.b.get"),
            e("n@6", "S.get", result_type="long", arg_types=["int"]),
        ),
        matches=(
            "Any=n@1",
            "Int=n@1",
            "Args=n@1",
            "Any=n@2",
            "Deep=n@4",
            "Deep=n@5",
            "Any=n@6",
        ),
    ),
    Case(
        "host means all incarnations of a node, origin where it was first made",
        "Events and guards",
        p(
            'H = host("db-?")',
            'O = origin("A*")',
            "find any H | O",
            letters="event E = true;",
        ),
        (
            e("db-1@1", "x"),
            e("db-1#2@1", "x"),
            e("db-12@1", "x", origin="A#3"),
            e("A@1", "x", origin="B"),
            e("A2@1", "x"),
        ),
        matches=("H=db-1@1", "H=db-1#2@1", "O=db-12@1", "O=A2@1"),
    ),
    Case(
        "comparisons, in, matches, exists, arithmetic, paths, own fields and parameters",
        "Events and guards",
        "param least = 2;\n"
        + p(
            "Le = x + 1 <= least",
            "In = x in [5, 7]",
            "Re = name matches /^ab/",
            "Ex = exists(pkt.seq) && !exists(gone)",
            'Own = id == "me" && time >= 3 s && node == "n" && data.node == "other"',
            'Dot = data["http.status"] == 200 && x % 4 == 3 && -x < 0 && x / 2 == 1.5',
            "find any Le | In | Re | Ex | Own | Dot",
            letters="event E = true;",
        ),
        (
            e("n@1", "t", x=1),
            e("n@2", "t", x=2),
            e("n@3", "t", x=7.0),
            e("n@4", "t", name="abc"),
            e("n@5", "t", name="cab"),
            e("n@6", "t", pkt={"seq": 0}),
            e("n@7", "t", pkt={"seq": None}, x="5"),
            e("n@8", "t", id="me", time=3, more={"node": "other"}),
            e("n@9", "t", x=3, more={"http.status": 200}),
        ),
        matches=("Le=n@1", "In=n@3", "Re=n@4", "Ex=n@6", "Own=n@8", "Dot=n@9"),
    ),
    Case(
        "a parameter can be set from outside",
        "param",
        p("param least = 2", "S = x == least", "find any S", letters="event E = true;"),
        (e("n@1", "t", x=2), e("n@2", "t", x=3)),
        matches=("S=n@2",),
        params={"least": 3},
    ),
    Case(
        "a reference is the event that the step bound last",
        "Events and guards",
        p("M = B", "Z = C && x == M.x", "find next A M+ Z"),
        (
            e("n@1", "a"),
            e("n@2", "b", x=1),
            e("n@3", "b", x=2),
            e("n@4", "c", x=1),
            e("n@5", "c", x=2),
        ),
        matches=("A=n@1 M=n@2 M=n@3 Z=n@5",),
    ),
    Case(
        "a sum or difference of times is exact to the microsecond",
        "Events and guards",
        p(
            "Apart = B && time - A.time == 300 ms && 0.7 - (time - A.time) == 0.4",
            "Later = C && time == 0.1 + A.time + 600 ms && -A.time + time <= 700 ms "
            "&& x - x + time == time",
            "find next A Apart Later",
            "return took = Later.time - Apart.time, both = Apart.time + Later.time",
        ),
        (
            e("n@1", "a", time=1774742399.04),
            e("n@2", "b", time=1774742399.34),
            e("n@3", "c", time=1774742399.74, x=2**1024 - 1),
        ),
        matches=('A=n@1 Apart=n@2 Later=n@3 -> {"took": 0.4, "both": 3549484799.08}',),
    ),
]

UNKNOWN = [
    Case(
        "x != y is !(x == y): neither holds of an absent value or another kind",
        "Unknown",
        p(
            "Eq = x == 1",
            "Ne = x != 1",
            "Nn = !(x == 1)",
            "Le = x <= 1",
            "Gt = !(x <= 1)",
            "find any Eq | Ne | Nn | Le | Gt",
            letters="event E = true;",
        ),
        (
            e("n@1", "t", x=1),
            e("n@2", "t", x=2),
            e("n@3", "t"),
            e("n@4", "t", x="1"),
            e("n@5", "t", x=True),
            e("n@6", "t", x=None),
            e("n@7", "t", x=[1]),
        ),
        # Ne and Nn are one guard, so Nn=n@2 is the mirror image of Ne=n@2.
        matches=("Eq=n@1", "Le=n@1", "Ne=n@2", "Gt=n@2"),
    ),
    Case(
        "regular expressions that are written differently differ, whatever they match",
        "One occurrence, one match",
        p(
            "One = name matches /[ac]$/ || name matches /[ab]$/",
            "Two = name matches /[bc]$/ || name matches /[ac]$/",
            "Too = name matches /[ac]$/ || name matches /[bc]$/",
            "find any One | Two | Too",
            letters="event E = true;",
        ),
        (e("n@1", "t", name="xa"), e("n@2", "t", name="d")),
        # Two and Too are one guard.
        matches=("One=n@1", "Two=n@1"),
    ),
    Case(
        "and, or and not are Kleene's; a guard accepts only what is true",
        "Unknown",
        p(
            "Or = x == 1 || y == 1",
            "And = !(x == 1 && y == 1)",
            "Tertium = x == 1 || !(x == 1)",
            "find any Or | And | Tertium",
            letters="event E = true;",
        ),
        (e("n@1", "t", y=1), e("n@2", "t", y=2), e("n@3", "t"), e("n@4", "t", x=1)),
        matches=("Or=n@1", "And=n@2", "Or=n@4", "Tertium=n@4"),
    ),
    Case(
        "booleans are equal or not, never less; strings go by code point; / by zero is unknown",
        "Unknown",
        p(
            "Lt = x < y",
            "Eq = x == y",
            "Ne = x != y",
            "Div = 1 / x > 0 || !(1 / x > 0)",
            "find any Lt | Eq | Ne | Div",
            letters="event E = true;",
        ),
        (
            e("n@1", "t", x=False, y=True),
            e("n@2", "t", x="Z", y="a"),
            e("n@3", "t", x=0, y=0.0),
        ),
        matches=("Ne=n@1", "Lt=n@2", "Ne=n@2", "Eq=n@3"),
    ),
]

ANCHORS = [
    Case(
        "Causal and Conc speak of the event taken just before",
        "Causal and Conc",
        p("K = Causal(C)", "Z = Conc(C)", "find any B K | B Z | A K", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "b"), e("n3@1", "c", "n2:1")),
        matches=("B=n2@1 K=n3@1",),
    ),
    Case(
        "an anchor that has no event yet leaves the guard alone",
        "Causal and Conc",
        p("F = Causal(A)", "G = Conc(B, Z)", "Z = C", "find any F | G | G Z", order=CAUSAL),
        CHAIN,
        matches=("F=n1@1", "G=n2@1", "G=n2@1 Z=n3@1"),
    ),
    *(
        Case(
            f"{how}, {order}: an anchor that the body never takes leaves the guard alone",
            "Causal and Conc",
            p(
                "S = Causal(A, R) && Conc(A, R)",
                "T = A && !Causal(A, R)",
                "U = B || A && !Conc(A, R)",
                "V = A && !Causal(A, all) || B && !Conc(B)",
                "R = C",
                f"{how} S | T | U | V",
                order=order,
            ),
            (e("n@1", "a"),),
            matches=("S=n@1",) if how != "check" else (),
        )
        for how in ("check", "find any", "find next", "find strict")
        for order in ("arrival", CAUSAL)
    ),
    *(
        Case(
            f"a check of !{operator} whose anchor {where} is violated, as the guard alone holds",
            "Causal and Conc",
            p(f"S = A && !{operator}(A{anchor})", "R = B", f"check {body}", order=CAUSAL),
            (e("n@1", "a"),),
            violations=("n@1: S",),
        )
        for operator in ("Causal", "Conc")
        for where, anchor, body in (
            ("the body never takes", ", R", "S"),
            ("has no event yet", ", R", "S R*"),
            ("is the run so far", ", all", "S"),
            ("is the prior event", "", "S"),
        )
    ),
    Case(
        "a named anchor is the step's last event, not the one just before",
        "Causal and Conc",
        p("K = Causal(C, A)", "Z = Conc(C, A)", "find any A B K | A B Z", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "b"), e("n3@1", "c", "n1:1"), e("n4@1", "c", "n2:1")),
        matches=("A=n1@1 B=n2@1 K=n3@1", "A=n1@1 B=n2@1 Z=n4@1"),
    ),
    Case(
        "all is every event of the run, earlier rounds of an enclosing star included",
        "Causal and Conc",
        p("Z = Causal(B, all)", "find next (A Z)+", order=CAUSAL),
        (
            e("n1@1", "a"),
            e("n2@1", "b", "n1:1"),
            e("n3@1", "a", "n1:1 n2:1"),
            e("n3@2", "b", "n1:1 n2:1"),
            e("n4@1", "a"),
            e("n5@1", "b", "n4:1"),
        ),
        # Canonical: n1@1 n4@1 n2@1 n5@1 n3@1 n3@2; n5@1 is after the second a alone.
        matches=(
            "A=n1@1 Z=n2@1",
            "A=n1@1 Z=n2@1 A=n3@1 Z=n3@2",
            "A=n3@1 Z=n3@2",
            "A=n4@1 Z=n5@1",
        ),
    ),
    Case(
        "an event that is offered and not taken never becomes the prior one",
        "Offered and taken",
        p("K = Causal(C)", "find next A K", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "b", "n1:1"), e("n3@1", "c", "n1:1")),
        matches=("A=n1@1 K=n3@1",),
    ),
    Case(
        "a negated operator: not after the prior event, or not the guard",
        "Causal and Conc",
        p("Z = C && !Causal(C)", "find any A Z | B Z", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "b"), e("n3@1", "c", "n1:1")),
        matches=("B=n2@1 Z=n3@1",),
    ),
    Case(
        "Conc is false of ordered pairs, either way round, and of a clock with a zero entry",
        "Happened-before",
        p("Z = Conc(E)", "find any E Z", order=CAUSAL, letters="event E = true;"),
        (
            e("n1@1", "t"),
            Event(node="n1", type="t", clock={"n1": 2, "n2": 0}),
            e("n2@1", "t", "n1:1"),
        ),
        matches=("E=n1@2 Z=n2@1",),
    ),
]

BODIES = [
    Case(
        "{A & B} is both in any order, as blocks",
        "Bodies",
        p("find strict {A B & C}"),
        line("a b c a c b c a b"),
        matches=("A=n@1 B=n@2 C=n@3", "C=n@7 A=n@8 B=n@9"),
    ),
    Case(
        "| ? {n} {n,m} + and groups",
        "Bodies",
        p("find strict A (B | C){1,2} D? | B{2}"),
        line("a b b d"),
        matches=(
            "A=n@1 B=n@2",
            "A=n@1 B=n@2 B=n@3",
            "A=n@1 B=n@2 B=n@3 D=n@4",
            "B=n@2 B=n@3",
        ),
    ),
    Case(
        "the same automaton spelled out",
        "Bodies",
        p(
            "find strict automaton { initial q0; final q2; q0 -> q1 on A; q1 -> q1 on B;"
            " q1 -> q2 on C; }"
        ),
        line("a b b c"),
        matches=("A=n@1 B=n@2 B=n@3 C=n@4",),
    ),
    Case(
        "an edge from which no final state can be reached is not taken",
        "Bodies",
        p(
            "find next automaton { initial q0; final q1; q0 -> q1 on A; q1 -> q1 on B;"
            " q1 -> q2 on C; }"
        ),
        line("a b c b"),
        matches=("A=n@1", "A=n@1 B=n@2", "A=n@1 B=n@2 B=n@4"),
    ),
    Case(
        "a find whose final state cannot be reached has no match",
        "Bodies",
        p("find next automaton { initial q0; final q2; q0 -> q1 on A; q2 -> q2 on B; }"),
        line("a b"),
    ),
    Case(
        "a check whose final state cannot be reached allows no event",
        "Bodies",
        p("check automaton { initial q0; final q2; q0 -> q1 on A; q2 -> q2 on B; }"),
        line("a b"),
        violations=("n@1: ",),
        halted=1,
    ),
    Case(
        "in a check all states are final where final is left out",
        "Bodies",
        p("check automaton { initial q0; q0 -> q1 on A; q1 -> q0 on B; }"),
        line("a b a"),
    ),
    Case(
        "a final that is written is heeded",
        "Bodies",
        p("check automaton { initial q0; final q0; q0 -> q1 on A; q1 -> q0 on B; }"),
        line("a b a"),
        incomplete=("B",),
    ),
]

CHECK = [
    Case(
        "halt: later events of the scope are counted, not judged",
        "check",
        p("check (A B)*", "on violation halt"),
        line("a x a b a a"),
        violations=("n@3: B",),
        halted=3,
    ),
    Case(
        "resume: the fresh run is offered the event",
        "check",
        p("check (A B)*", "on violation resume"),
        line("a a b a"),
        violations=("n@2: B",),
        incomplete=("B",),
    ),
    Case(
        "resume: a fresh run that refuses too gives no second verdict and stays at its start",
        "check",
        p("check (A B)*", "on violation resume"),
        line("a c a b b"),
        violations=("n@2: B", "n@5: A"),
    ),
    Case(
        "skip: the run stays as it was",
        "check",
        p("check (A B)*", "on violation skip"),
        line("a c a b"),
        violations=("n@2: B", "n@3: B"),
    ),
    Case(
        "incomplete says what was expected, in the order of declaration",
        "check",
        p("check A (C | B) D"),
        line("a"),
        incomplete=("B C",),
    ),
    Case(
        "the paper's Figs. 4 and 5: D is kept out, and so is the A that is concurrent with C",
        "check",
        p(
            "QA = Causal(A)",
            "QB = Causal(B)",
            "QC = Causal(C)",
            "QD = Causal(D)",
            "check automaton { initial q0; q0 -> q1 on QA; q0 -> q1 on QD; q1 -> q2 on QB;"
            " q2 -> q0 on QC; }",
            "on violation skip",
        ),
        (
            e("nA@1", "a"),
            e("nB@1", "d", "nA:1"),
            e("nB@2", "b", "nA:1"),
            e("nC@1", "c", "nA:1 nB:2"),
            e("nA@2", "a"),
        ),
        violations=("nB@1: QB", "nA@2: QA QD"),
    ),
    Case(
        "order arrival judges what came in as it came: the paper's Fig. 1 as Node C saw it",
        "check",
        p("check (A B* C)*"),
        (e("n2@1", "b", "n1:1"), e("n1@1", "a")),
        violations=("n2@1: A",),
        halted=1,
    ),
    Case(
        "CausalOrder judges the canonical linear extension whatever the file's order",
        "CausalOrder",
        p("check (A B* C)*", order=CAUSAL),
        (e("n2@1", "b", "n1:1"), e("n3@1", "c", "n1:1 n2:1"), e("n1@1", "a")),
    ),
    Case(
        "a check is violated only when no reading of the log is allowed",
        "Configurations",
        p("X = A && x > 0", "Y = A && x > 1", "check X B | Y C"),
        (e("n@1", "a", x=2), e("n@2", "c")),
    ),
    Case(
        "expected names what could come next in any live reading",
        "Configurations",
        p("X = A && x > 0", "Y = A && x > 1", "check X B | Y C"),
        (e("n@1", "a", x=2), e("n@2", "d")),
        violations=("n@2: B C",),
    ),
]

FIND = [
    Case(
        "a run reports each time it reaches a final state, then goes on",
        "find",
        p("find A B*"),
        line("a c b b"),
        matches=("A=n@1", "A=n@1 B=n@3", "A=n@1 B=n@3 B=n@4"),
    ),
    Case(
        "next never skips an event that an enabled step accepts",
        "find",
        p("find next A B C"),
        line("a b b c"),
        matches=("A=n@1 B=n@2 C=n@4",),
    ),
    Case(
        "any skips what it likes",
        "find",
        p("find any A B C"),
        line("a b b c"),
        matches=("A=n@1 B=n@2 C=n@4", "A=n@1 B=n@3 C=n@4"),
    ),
    Case(
        "strict: any other alphabet event ends the run, others do not",
        "find",
        p("find strict A B"),
        line("a c b a x b"),
        matches=("A=n@4 B=n@6",),
    ),
    Case(
        "every event that can be first starts a run",
        "find",
        p("find next A A B"),
        line("a a a b"),
        # The run that began at n@3 waits for a second a.
        matches=("A=n@1 A=n@2 B=n@4", "A=n@2 A=n@3 B=n@4"),
    ),
    Case(
        "a run that begins twice in one event is one run with two readings",
        "find",
        p("X = A", "Y = A && x == 1", "find next X B | Y C"),
        (e("n@1", "a", x=1), e("n@2", "b"), e("n@3", "c")),
        matches=("X=n@1 B=n@2", "Y=n@1 C=n@3"),
    ),
    Case(
        "find any under arrival takes events in the order offered",
        "find any",
        p("find any A B"),
        line("b a b"),
        matches=("A=n@2 B=n@3",),
    ),
    Case(
        "find next takes events in the order offered under CausalOrder too",
        "find any",
        p("find next A B", order=CAUSAL),
        (e("n1@1", "b"), e("n2@1", "a"), e("n3@1", "b", "n2:1")),
        matches=("A=n2@1 B=n3@1",),
    ),
]

WINDOWS = [
    Case(
        "a window of time is strict: 2 s apart is not within 2 s",
        "within",
        p("find any A B", "within 2 s"),
        (
            e("n@1", "a", time=0),
            e("n@2", "b", time=1.999999),
            e("n@3", "b", time=2),
        ),
        matches=("A=n@1 B=n@2",),
    ),
    Case(
        "a window of time is about the largest and the smallest, whichever came first",
        "within",
        p("Z = Conc(B)", "find any A Z", "within 2 s", order=CAUSAL),
        (
            e("n1@1", "a", time=10),
            e("n2@1", "b", time=8.5),
            e("n3@1", "b", time=8),
            e("n4@1", "b"),
        ),
        matches=("A=n1@1 Z=n2@1",),
        untimed=1,
    ),
    Case(
        "times are whole microseconds: less than a nanosecond apart are those that are equal",
        "within",
        p("find any A B", "within 1 ns"),
        (
            e("n@1", "a", time=5),
            e("n@2", "b", time=5),
            e("n@3", "b", time=5.000001),
        ),
        matches=("A=n@1 B=n@2",),
    ),
    Case(
        "a window that is no whole number of microseconds is not rounded to a shorter one",
        "within",
        p("find any A B", "within w", "param w = 1 s"),
        (
            e("n@1", "a", time=5),
            e("n@2", "b", time=5.000001),
            e("n@3", "b", time=5.000002),
        ),
        params={"w": Duration(1.4, "us")},
        matches=("A=n@1 B=n@2",),
    ),
    Case(
        "a duration in a guard is its number of seconds, however small",
        "Events and guards",
        p("Z = B && time - A.time < 1 ns", "find any A Z"),
        (e("n@1", "a", time=5), e("n@2", "b", time=5), e("n@3", "b", time=5.000001)),
        matches=("A=n@1 Z=n@2",),
    ),
    Case(
        "a window of events counts positions among the scope's alphabet events",
        "within",
        p("find any A B", "within 3 events"),
        line("a x n b b"),
        matches=("A=n@1 B=n@4",),
    ),
    Case(
        "the window is part of acceptance: next goes on past an event outside of it",
        "within",
        p("find next A B", "within 2 s"),
        (e("n@1", "a", time=0), e("n@2", "b", time=5), e("n@3", "b", time=1)),
        matches=("A=n@1 B=n@3",),
    ),
    Case(
        "next: a run that its window ended without a match timed out",
        "TimedOut",
        p("find next A B C", "within 5 s"),
        line("a b a d"),
        timed_out=("A=n@1 B=n@2", "A=n@3"),
    ),
    Case(
        "strict: a run that ended did not time out",
        "TimedOut",
        p("find strict A B", "within 5 s"),
        line("a c a"),
        timed_out=("A=n@3",),
    ),
    Case(
        "strict: a run timed out at an event after its window",
        "TimedOut",
        p("find strict A B", "within 1 s"),
        line("a c a"),
        timed_out=("A=n@1", "A=n@3"),
    ),
    Case(
        "any: a first-step event that is in no match timed out",
        "TimedOut",
        p("find any A B", "within 2 s"),
        line("a c a b"),
        matches=("A=n@3 B=n@4",),
        timed_out=("A=n@1",),
    ),
    Case(
        "any: an event of a match or of its mirror image did not time out",
        "TimedOut",
        p("X = A", "Y = Conc(A)", "find any X Y", "within 5 s", order=CAUSAL),
        (e("n1@1", "a", time=0), e("n2@1", "a", time=1), e("n3@1", "a", time=9)),
        matches=("X=n1@1 Y=n2@1",),
        timed_out=("X=n3@1",),
    ),
]

SCOPES = [
    Case(
        "partition by gives independent scopes; kinds differ, 1 and 1.0 do not",
        "partition by",
        p("find next A B", "partition by pkt.key"),
        (
            e("n@1", "a", pkt={"key": 1}),
            e("n@2", "a", pkt={"key": "1"}),
            e("n@3", "a", pkt={"key": True}),
            e("n@4", "b", pkt={"key": 1.0}),
            e("n@5", "b", pkt={"key": True}),
            e("n@6", "b"),
            e("n@7", "b", pkt={"key": None}),
            e("n@8", "x"),
        ),
        matches=("[key=1] A=n@1 B=n@4", "[key=true] A=n@3 B=n@5"),
        unscoped=2,
    ),
    Case(
        "return names what a match reports; unknown is null",
        "return",
        p(
            "find next A B",
            "return sum = A.x + B.x, who = [A.node, B.node], none = A.x + B.y, is = B.pkt",
        ),
        (e("n1@1", "a", x=1), e("n2@1", "b", "n1:1", x=2, pkt={"k": [1]})),
        matches=(
            'A=n1@1 B=n2@1 -> {"sum": 3, "who": ["n1", "n2"], "none": null, "is": {"k": [1]}}',
        ),
    ),
    Case(
        "return count lists nothing of its own: every match is counted",
        "return",
        p("find any A B", "return count"),
        line("a a b"),
        matches=("A=n@1 B=n@3", "A=n@2 B=n@3"),
    ),
    Case(
        "an event that lacks both its key and its time is counted as each",
        "partition by",
        p("find any A", "partition by key", "within 1 s"),
        (e("n@1", "a"), e("n@2", "a", time=0), e("n@3", "a", key=1), e("n@4", "x")),
        unscoped=2,
        untimed=2,
    ),
    Case(
        "strict contiguity is within the scope",
        "partition by",
        p("find strict A B", "partition by key"),
        (e("n@1", "a", key=1), e("n@2", "c", key=2), e("n@3", "b", key=1)),
        matches=("[key=1] A=n@1 B=n@3",),
    ),
]

NODES = [
    Case(
        "the paper's Fig. 1: the push that reaches C before its own on",
        "at every node",
        p("at every node", "check (A B* C)*", order=CAUSAL, letters=STACK),
        FIG_1,
        # B pushes although its own stack was never turned on, and C learns of it before its on.
        violations=('[node="B"] B@2: A', '[node="C"] B@2: A'),
        incomplete=('[node="A"] B C',),
        halted=1,
    ),
    Case(
        "a node sees what it could have seen: what it never learned of is not offered",
        "at every node",
        p("at every node", "check (A B* C)*", order=CAUSAL, letters=STACK),
        (
            e("A@1", "Stack.on"),
            e("A@2", "Stack.push"),
            e("B@1", "Stack.on"),
            e("B@2", "recv", "A:2"),
            e("B@3", "Stack.off", "A:2"),
            e("C@1", "idle"),
        ),
        # The push is not after B's own on; only Causal detects that.
        violations=('[node="B"] A@2: B C',),
        incomplete=('[node="A"] B C',),
        halted=1,
    ),
    Case(
        "all feeds every copy the whole execution, also what came before the node appeared",
        "at every node",
        p("at every node all", "find next A B"),
        (e("n1@1", "a"), e("n2@1", "b")),
        matches=('[node="n1"] A=n1@1 B=n2@1', '[node="n2"] A=n1@1 B=n2@1'),
    ),
    Case(
        "without all neither copy learns of the other",
        "at every node",
        p("at every node", "find next A B"),
        (e("n1@1", "a"), e("n2@1", "b")),
    ),
    Case(
        "an event is learned just before the first own event whose past contains it",
        "at every node",
        p("at every node", "find strict A B C"),
        (e("n1@1", "b"), e("n2@1", "a"), e("n2@2", "x", "n1:1"), e("n2@3", "c", "n1:1")),
        matches=('[node="n2"] A=n2@1 B=n1@1 C=n2@3',),
    ),
    Case(
        "under arrival it is learned at the later of that and its own arrival",
        "at every node",
        p("at every node", "find strict A B C"),
        (e("n2@1", "a"), e("n2@2", "x", "n1:1"), e("n1@1", "b"), e("n2@3", "c", "n1:1")),
        matches=('[node="n2"] A=n2@1 B=n1@1 C=n2@3',),
    ),
    Case(
        "at host deploys to some nodes only",
        "at every node",
        p('at host("db-*")', "find next A B"),
        (
            e("db-1@1", "a"),
            e("web@1", "b", "db-1:1"),
            e("db-1@2", "x", "web:1"),
            e("web@2", "x", "db-1:1"),
        ),
        matches=('[node="db-1"] A=db-1@1 B=web@1',),
    ),
    Case(
        "localhost is the node of the copy",
        "at every node",
        p("L = A && localhost", "R = B && !localhost", "at every node all", "find next L R"),
        (e("n1@1", "a"), e("n2@1", "b"), e("n1@2", "b")),
        matches=('[node="n1"] L=n1@1 R=n2@1',),
    ),
    Case(
        "the scope is the partition and the node",
        "at every node",
        p("partition by key", "at every node", "find next A"),
        (e("n1@1", "a", key=1), e("n2@1", "a"), e("n2@2", "a", "n1:1", key=2)),
        matches=(
            '[key=1 node="n1"] A=n1@1',
            '[key=1 node="n2"] A=n1@1',
            '[key=2 node="n2"] A=n2@2',
        ),
        unscoped=1,
    ),
]

MATCHES = [
    Case(
        "A then Conc(B): b first in the file",
        "find any",
        p("Z = Conc(B)", "find any A Z", order=CAUSAL),
        (FORK[1], FORK[0]),
        matches=("A=n1@1 Z=n2@1",),
    ),
    Case(
        "A then Conc(B): a first in the file",
        "find any",
        p("Z = Conc(B)", "find any A Z", order=CAUSAL),
        (FORK[0], FORK[1]),
        matches=("A=n1@1 Z=n2@1",),
    ),
    Case(
        "A B means that B did not happen before A",
        "find any",
        p("find any A B", order=CAUSAL),
        (e("n1@1", "b"), e("n1@2", "a"), e("n1@3", "b"), e("n2@1", "b")),
        matches=("A=n1@2 B=n1@3", "A=n1@2 B=n2@1"),
    ),
    Case(
        "repetition makes no exception: every linear extension of the events is a match",
        "find any",
        p("X = B && x == 1", "Y = B && x == 2", "find any (X | Y)+", order=CAUSAL),
        PEERS,
        # The two X are mirror images if they swap with each other; Y cannot pass n1@1.
        matches=(
            "X=n1@1",
            "Y=n1@2",
            "X=n2@1",
            "X=n1@1 Y=n1@2",
            "X=n1@1 X=n2@1",
            "X=n2@1 Y=n1@2",
            "X=n1@1 X=n2@1 Y=n1@2",
        ),
    ),
    Case(
        "no later event happened-before any earlier one, not only its neighbour",
        "find any",
        p("find any C A B", order=CAUSAL),
        (e("n1@1", "b"), e("n2@1", "c", "n1:1"), e("n3@1", "a")),
    ),
    Case(
        "references are taken from the events earlier in the word",
        "find any",
        p("Z = Conc(B) && x == A.x", "find any A Z", order=CAUSAL),
        (e("n1@1", "a", x=1), e("n2@1", "b", x=1), e("n3@1", "b", x=2), e("n4@1", "b")),
        matches=("A=n1@1 Z=n2@1",),
    ),
]

MIRRORS = [
    Case(
        "a computed value is one of its own: that x + 1 > 2 says x != 1 is not asked",
        "One occurrence, one match",
        p(
            "S = A && x + 1 > 2",
            "T = A && x + 1 > 2 && x != 1",
            "U = A && !(x + 1 <= 2)",
            "find any S (T | U)",
            letters='event A = type == "a";',
        ),
        (e("n@1", "a", x=2), e("n@2", "a", x=3)),
        matches=("S=n@1 T=n@2", "S=n@1 U=n@2"),
    ),
    Case(
        "how two values compare is one of its own: that x == y says nothing of x alone",
        "One occurrence, one match",
        p(
            "S = A && x == y",
            "T = A && x == y && exists(x)",
            "find any S | T",
            letters='event A = type == "a";',
        ),
        (e("n@1", "a", x=2, y=2),),
        matches=("S=n@1", "T=n@1"),
    ),
    Case(
        "x < y and y > x are the same, and so are their opposites",
        "One occurrence, one match",
        p(
            "S = A && x < y",
            "T = A && y > x && !(x >= y)",
            "find any S | T",
            letters='event A = type == "a";',
        ),
        (e("n@1", "a", x=2, y=3),),
        matches=("S=n@1",),
    ),
    Case(
        "a pair of forked blocks is one occurrence",
        "One occurrence, one match",
        p(
            "First = Accept",
            "Second = Conc(Accept) && hash != First.hash",
            "find any First Second",
            "within 10 s",
            "partition by height",
            "return height = First.height, nodes = [First.node, Second.node]",
            order=CAUSAL,
            letters='event Accept = type == "AcceptBlock";',
        ),
        (
            e("m2@1", "AcceptBlock", time=1, height=17, hash="q"),
            e("m1@1", "AcceptBlock", time=2, height=17, hash="p"),
            e("m3@1", "AcceptBlock", time=3, height=17, hash="p"),
            e("m3@2", "AcceptBlock", time=3, height=18, hash="p"),
        ),
        matches=(
            '[height=17] First=m1@1 Second=m2@1 -> {"height": 17, "nodes": ["m1", "m2"]}',
            '[height=17] First=m2@1 Second=m3@1 -> {"height": 17, "nodes": ["m2", "m3"]}',
        ),
        timed_out=("[height=18] First=m3@2",),
    ),
    Case(
        "a tie goes to the word whose steps are declared first",
        "One occurrence, one match",
        p("Y = A", "X = A", "find any X | Y"),
        line("a"),
        matches=("Y=n@1",),
    ),
    Case(
        "roles whose local guards differ are told apart, and both bindings count",
        "One occurrence, one match",
        p("X = B", "Y = Conc(B) && x > 0", "find any X Y", order=CAUSAL),
        (e("n1@1", "b", x=1), e("n2@1", "b", x=1)),
        matches=("X=n1@1 Y=n2@1", "X=n2@1 Y=n1@1"),
    ),
    Case(
        "local guards are sets of events: written otherwise they are the same",
        "One occurrence, one match",
        p(
            "X = B && x > 1 && !(y == 1)",
            "Y = Conc(B) && !(x <= 1) && x > 0 && y != 1",
            "find any X Y",
            order=CAUSAL,
        ),
        (e("n1@1", "b", x=2, y=2), e("n2@1", "b", x=2, y=2)),
        matches=("X=n1@1 Y=n2@1",),
    ),
    Case(
        "roles that differ only by a reference are not told apart",
        "One occurrence, one match",
        p("X = B", "Y = Conc(B) && x > X.x", "find any X Y", order=CAUSAL),
        (e("n1@1", "b", x=2), e("n2@1", "b", x=1)),
        matches=("X=n2@1 Y=n1@1",),
    ),
    Case(
        "two words over the same events in the same roles are one occurrence",
        "One occurrence, one match",
        p("find any {A & B}", order=CAUSAL),
        FORK[:2],
        matches=("A=n1@1 B=n2@1",),
    ),
]

NOT = [
    Case(
        "arrival: an N strictly between ends the run",
        "A not N B",
        p("find next A not N B"),
        line("a n b a b"),
        matches=("A=n@4 B=n@5",),
    ),
    Case(
        "arrival: unless that event is taken as B",
        "A not N B",
        p("find next A not B B"),
        line("a c b"),
        matches=("A=n@1 B=n@3",),
    ),
    Case(
        "arrival: find any too",
        "A not N B",
        p("find any A not N B"),
        line("a b n b"),
        matches=("A=n@1 B=n@2",),
    ),
    Case(
        "a run whose every step is barred has ended: it does not time out",
        "A not N B",
        p("find next A not N B", "within 9 s"),
        line("a n a"),
        timed_out=("A=n@3",),
    ),
    Case(
        "N is evaluated as if its event came right after A",
        "A not N B",
        p("find next A not (N && x == A.x) B"),
        (
            e("n@1", "a", x=1),
            e("n@2", "a", x=2),
            e("n@3", "n", x=1),
            e("n@4", "b"),
        ),
        matches=("A=n@2 B=n@4",),
    ),
    Case(
        "CausalOrder: an N after A bars every B after that N",
        "A not N B",
        p("find any A not N B", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "n", "n1:1"), e("n3@1", "b", "n1:1 n2:1")),
    ),
    Case(
        "CausalOrder: an N concurrent with A never counts",
        "A not N B",
        p("find any A not N B", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "n"), e("n3@1", "b", "n1:1 n2:1")),
        matches=("A=n1@1 B=n3@1",),
    ),
    Case(
        "CausalOrder: an N concurrent with B never counts",
        "A not N B",
        p("find next A not N B", order=CAUSAL),
        (e("n1@1", "a"), e("n2@1", "n", "n1:1"), e("n3@1", "b", "n1:1"), e("n3@2", "b", "n1:1")),
        matches=("A=n1@1 B=n3@1",),
    ),
    Case(
        "the last of the left neighbour and the first of the right one",
        "A not N B",
        p("find next (A | A B+) not N (C | D C)"),
        line("a n b c a b d n c a n c"),
        # The first and the last run are blocked at a; the first continues with b.
        matches=("A=n@1 B=n@3 C=n@4", "A=n@5 B=n@6 D=n@7 C=n@9"),
    ),
    *(
        Case(
            f"{how}, {order}: a group beside a not is its neighbour: {types}",
            "A not N B",
            p(f"{how} (A B*) not N (C* D)", order=order),
            line(types),
            matches=matches,
        )
        for how, order, types, matches in (
            ("find next", "arrival", "a d a b c d", ("A=n@1 D=n@2", "A=n@3 B=n@4 C=n@5 D=n@6")),
            ("find next", CAUSAL, "a d a n b d", ("A=n@1 D=n@2", "A=n@3 B=n@5 D=n@6")),
            ("find any", "arrival", "a n d b d", ("A=n@1 B=n@4 D=n@5",)),
            ("find any", CAUSAL, "a n c d b c d", ("A=n@1 B=n@5 C=n@6 D=n@7", "A=n@1 B=n@5 D=n@7")),
            ("find any", CAUSAL, "a b n d c d", ()),
            (
                "find strict",
                "arrival",
                "a d a n d a c d a b d",
                ("A=n@1 D=n@2", "A=n@6 C=n@7 D=n@8", "A=n@9 B=n@10 D=n@11"),
            ),
        )
    ),
    Case(
        "readings that differ only in a not give one match",
        "A not N B",
        p("find any A not N B | A not C B"),
        line("a b n b"),
        matches=("A=n@1 B=n@2", "A=n@1 B=n@4"),
    ),
]

CASES: list[Case] = [
    *EVENTS_AND_GUARDS,
    *UNKNOWN,
    *ANCHORS,
    *BODIES,
    *CHECK,
    *FIND,
    *WINDOWS,
    *SCOPES,
    *NODES,
    *MATCHES,
    *MIRRORS,
    *NOT,
]
