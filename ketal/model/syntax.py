"""The abstract syntax of the pattern language, with spans.

Nodes are frozen and compare by meaning, without spans, layout and
comments, so `parse(render(p)) == p`. The parser (`ketal.grammar`) and
`ketal.build` both make these nodes; the compiler and the semantics read them.

The one rule: the syntax is the author's text. Desugaring (`in` to `==`, `{A & B}`
to both orders, `{n,m}` to copies) is left to the compiler and the semantics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final
from typing import Literal as OneOf

from ketal.errors import Span
from ketal.model.language_words import UNIT_NS

PRIOR: Final = "prior"
ALL: Final = "all"
EVENT_FIELDS = ("node", "type", "time", "id")


@dataclass(frozen=True, slots=True)
class Node:
    """The base class of all nodes of the syntax, which may have a span."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


# --- values ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A string, a number or a boolean (`true` and `false` as values)."""

    value: str | int | float | bool

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal to Python and three different literals here.
        return (
            isinstance(other, Literal)
            and type(other.value) is type(self.value)
            and other.value == self.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """A length of time, `10 s`; as a value, its number of seconds."""

    amount: int | float
    unit: OneOf["ns", "us", "ms", "s", "min", "h", "d"]

    @property
    def seconds(self) -> Fraction:
        """The length in seconds, exactly as written."""
        return Fraction(str(self.amount)) * UNIT_NS[self.unit] / 10**9

    @property
    def microseconds(self) -> int:
        """The length in microseconds, rounded up.

        Times are whole microseconds, and so are their differences: a difference is less than
        1.4 us exactly if it is less than 2 us.
        """
        return math.ceil(self.seconds * 10**6)


@dataclass(frozen=True, slots=True)
class Field(Node):
    """The event's own `node`, `type`, `time` (seconds since the epoch) or `id`."""

    name: OneOf["node", "type", "time", "id"]

    @property
    def last_name(self) -> str:
        """The name of its value in a scope."""
        return self.name


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """A data attribute; a path with several keys leads into nested mappings.

    `hash`, `data.node` and `data["http.status"]` are the paths ("hash",),
    ("node",) and ("http.status",).
    """

    path: tuple[str, ...]

    @property
    def last_name(self) -> str:
        """The name of its value in a scope."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Reference(Node):
    """A value of the event that an earlier step bound last: `First.hash`."""

    step: str
    of: Field | Attribute


@dataclass(frozen=True, slots=True)
class ParamRef(Node):
    """The value of a `param`."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """`a + b - c`: from left to right; unknown unless all are numbers.

    The operators, one fewer than the operands, are all of one precedence, `+ -`
    or `* / %`. Flat: the first operand is not an Arithmetic of that precedence. `/` is
    true division, `%` has the sign of the divisor; division by zero is unknown.
    """

    ops: tuple[OneOf["+", "-", "*", "/", "%"], ...]
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """`- operand`."""

    operand: Value


@dataclass(frozen=True, slots=True)
class ListOf(Node):
    """`[a, b]`; in a `return` only."""

    items: tuple[Value, ...]


Value = (
    Literal | Duration | Field | Attribute | Reference | ParamRef | Arithmetic | Negative | ListOf
)

# --- guards ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A declared `event` used as a guard."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`call(<result> Type.method(args))`, with `*` and `..` as in AspectJ.

    `target` is `Type.method`, `arguments` the argument types, where `..`
    stands for any number of them.
    """

    result: str
    target: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Localhost(Node):
    """`localhost`: the event happened at the node of this copy of the pattern."""


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """`left op right`; unknown if a value is absent or the two differ in kind."""

    op: OneOf["==", "!=", "<", "<=", ">", ">="]
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Membership(Node):
    """`value in [items]`: the same as `value == i1 || value == i2 || …`."""

    value: Value
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Matches(Node):
    """`value matches /regex/`: in RE2 syntax, it may match anywhere in the string."""

    value: Value
    regex: str


@dataclass(frozen=True, slots=True)
class Function(Node):
    """`name(value, …)`: a function of the language, or one added with `ketal.register_guard`.

    The functions of the language, such as `host("db-*")`, are in `ketal.model.guard_functions`.
    """

    name: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    """`!operand`, Kleene's."""

    operand: Guard


@dataclass(frozen=True, slots=True)
class And(Node):
    """`a && b && …`, Kleene's; at least two, flat."""

    operands: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class Or(Node):
    """`a || b || …`, Kleene's; at least two, flat."""

    operands: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class Causal(Node):
    """`Causal(guard, anchor)`; anchor is a step's name, `all` or `prior`."""

    guard: Guard
    anchor: str = PRIOR
    anchor_span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Conc(Node):
    """`Conc(guard, anchor)`; anchor is a step's name, `all` or `prior`."""

    guard: Guard
    anchor: str = PRIOR
    anchor_span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


Guard = (
    Truth | Name | Call | Function | Localhost | Comparison | Membership | Matches
    | Not | And | Or | Causal | Conc
)  # fmt: skip

# --- bodies ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step(Node):
    """A step of the body, by its name (or an event's, used as a step)."""

    name: str


@dataclass(frozen=True, slots=True)
class Absent(Node):
    """`not N` between two steps; only inside a `Sequence`, never first or last."""

    guard: Guard


@dataclass(frozen=True, slots=True)
class Sequence(Node):
    """`A B`: one after the other; at least two items, flat but for groups beside a `not`.

    `A not N B` is `Sequence((Step("A"), Absent(N), Step("B")))`. In `(A B*) not N C` the
    group is the left neighbour of the `not`, so it remains a Sequence of its own.
    """

    items: tuple[Body | Absent, ...]


@dataclass(frozen=True, slots=True)
class Alternation(Node):
    """`A | B`; at least two, flat."""

    items: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """`A*` (0, None), `A+` (1, None), `A?` (0, 1), `A{n}` (n, n), `A{n,m}`, `A{n,}`."""

    item: Body
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Together(Node):
    """`{A & B}`: the blocks in any order, each as a whole."""

    items: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Edge(Node):
    """`source -> target on step;`."""

    source: str
    target: str
    step: str


@dataclass(frozen=True, slots=True)
class AutomatonBody(Node):
    """`automaton { initial q0; final q0, q1; q0 -> q1 on A; … }`.

    `finals` is None where `final` is left out (in a `check`: all states).
    """

    initial: str
    finals: tuple[str, ...] | None
    edges: tuple[Edge, ...]


Body = Step | Sequence | Alternation | Repeat | Together | AutomatonBody

# --- declarations ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParamDecl(Node):
    """`param name = value;`."""

    name: str
    value: Literal | Duration


@dataclass(frozen=True, slots=True)
class EventDecl(Node):
    """`event Name = guard;` over one event: no steps, no operators."""

    name: str
    guard: Guard


@dataclass(frozen=True, slots=True)
class StepDecl(Node):
    """`Name = guard;`."""

    name: str
    guard: Guard


ORDER_LENGTHS = ("frontier", "gap", "idle")
"""The options of CausalOrder that are lengths of time."""
ORDER_OPTIONS = ("total", "nodes", *ORDER_LENGTHS, "overflow")


@dataclass(frozen=True, slots=True)
class Order(Node):
    """`order arrival` or `order CausalOrder(options)`, with options of `ORDER_OPTIONS`."""

    kind: OneOf["arrival", "causal"] = "arrival"
    total: bool = False
    nodes: tuple[str, ...] | None = None
    frontier: Duration | ParamRef | None = None
    gap: Duration | ParamRef | None = None
    idle: Duration | ParamRef | None = None
    overflow: OneOf["reject", "lost"] | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are set."""
        return tuple(n for n in ORDER_OPTIONS if getattr(self, n) not in (None, False))


@dataclass(frozen=True, slots=True)
class Deployment(Node):
    """`at every node` or `at host("db-*")`, optionally with `all` or `receiving`.

    `glob` is None for every node; `everything` is true with the word `all`.
    """

    glob: str | None = None
    everything: bool = False
    receiving: bool = False


@dataclass(frozen=True, slots=True)
class Window(Node):
    """`within 5 s` or `within 100 events`."""

    length: Duration | ParamRef | int


@dataclass(frozen=True, slots=True)
class ReturnItem(Node):
    """`name = value` in a `return`."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Returns(Node):
    """`return a = First.x, …` or `return count`."""

    items: tuple[ReturnItem, ...] = ()
    count: bool = False


@dataclass(frozen=True, slots=True)
class TopologyEdge(Node):
    """`p -> q;` or `p -> q relaxed;`."""

    source: str
    target: str
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class Topology(Node):
    """`topology { … }` or `topology open { … }`."""

    edges: tuple[TopologyEdge, ...]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Pattern(Node):
    """One `pattern Name { … }`.

    `declarations` holds the events and steps in the order of the text: that order
    breaks ties between mirror images.
    """

    name: str
    kind: OneOf["check", "find"]
    body: Body
    declarations: tuple[EventDecl | StepDecl, ...] = ()
    params: tuple[ParamDecl, ...] = ()
    order: Order = Order()
    strategy: OneOf["strict", "next", "any"] | None = None
    deployment: Deployment | None = None
    partition: tuple[Attribute | Field, ...] = ()
    on_violation: OneOf["halt", "resume", "skip"] | None = None
    window: Window | None = None
    returns: Returns | None = None
    limit: int | None = None
    mode: OneOf["possibly", "definitely"] | None = None
    topology: Topology | None = None
    places: dict[str, Span] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """The places of the statements that are not nodes, by first word, such as `limit`."""

    @property
    def events(self) -> tuple[EventDecl, ...]:
        """The events declared in the pattern."""
        return tuple(d for d in self.declarations if isinstance(d, EventDecl))

    @property
    def steps(self) -> tuple[StepDecl, ...]:
        """The steps declared in the pattern."""
        return tuple(d for d in self.declarations if isinstance(d, StepDecl))

    @property
    def selection(self) -> str:
        """The selection strategy: `strict`, `next` (a find's default), `any`; `check`."""
        return "check" if self.kind == "check" else self.strategy or "next"

    @property
    def only_counts(self) -> bool:
        """Whether matches are only counted, not listed: `return count`."""
        return self.returns is not None and self.returns.count

    @property
    def violation_policy(self) -> str:
        """The action of a check after a violation: `halt` (the default), `resume` or `skip`."""
        return self.on_violation or "halt"


@dataclass(frozen=True, slots=True)
class File(Node):
    """A pattern file: shared parameters and events, and patterns."""

    patterns: tuple[Pattern, ...]
    events: tuple[EventDecl, ...] = ()
    params: tuple[ParamDecl, ...] = ()
