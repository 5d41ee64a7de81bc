"""Random valid pattern files: one pattern named P, perhaps a shared event and a parameter.

`pattern_file` takes a `random.Random`, as `executions.execution` does. Its files
follow the rules of names and kinds: a reference names only steps that
are bound on every path, found here by a walk over the body that assumes
nothing but the language's rules. Words are short, so that brute force is fast.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Literal

from ketal.model import syntax as ast
from ketal.model.syntax_walks import walk
from tests.property.executions import TYPES

FEATURES = frozenset(
    {
        "absent", "alternation", "all", "automaton", "deployment", "localhost", "negation",
        "partition", "params", "references", "relational", "repeat", "returns", "shared",
        "together", "window",
    }
)  # fmt: skip
"""The names that `without` may have."""

REFUSED = frozenset({"K203", "K204", "K206", "K212"})
"""Errors that a drawn file may have: contradictions, a copy's `node` beside a partition, more
states than allowed."""

_STEPS = ("P1", "Q1", "R1", "T1")
_X = ast.Attribute(("x",))
_Y = ast.Attribute(("y",))
_TIME = ast.Field("time")


def pattern_file(
    rng: random.Random,
    *,
    kind: Literal["check", "find"] | None = None,
    strategy: Literal["strict", "next", "any"] | None = None,
    order: Literal["arrival", "causal"] | None = None,
    on_violation: Literal["halt", "resume", "skip"] | None = None,
    without: Collection[str] = (),
) -> ast.File:
    """Return a random file with one valid pattern, P; None leaves a choice open."""
    assert set(without) <= FEATURES
    kind = kind or ("find" if strategy else "check" if on_violation else None)
    kind = kind or _one(rng, "check", "find", "find")
    return _Maker(rng, kind, frozenset(without)).file(
        strategy=strategy or _one(rng, "strict", "next", "any", "any"),
        order=order or _one(rng, "arrival", "causal"),
        on_violation=on_violation or rng.choice((None, "halt", "resume", "skip")),
    )


def _one(rng: random.Random, *choices: Any) -> Any:
    return rng.choice(choices)


# --- what is bound where --------------------------------------------------------


class Bound:
    """The steps that are bound on every path before each step and each `not`.

    Attributes
    ----------
    before : dict of str to frozenset of str
        By the name of a step, or of the placeholder guard of a `not`.
    after : frozenset of str
        The steps that every word of the body binds.
    """

    def __init__(self, body: ast.Body) -> None:
        self.before: dict[str, frozenset[str]] = {}
        self.after = self._walk(body, frozenset())

    def _note(self, name: str, before: frozenset[str]) -> None:
        self.before[name] = self.before.get(name, before) & before

    def _walk(self, item: ast.Body | ast.Absent, before: frozenset[str]) -> frozenset[str]:
        match item:
            case ast.Step(name):
                self._note(name, before)
                return before | {name}
            case ast.Absent(ast.Name(name)):
                self._note(name, before)
            case ast.Sequence(items):
                for one in items:
                    before = self._walk(one, before)
            case ast.Alternation(items):
                return frozenset.intersection(*(self._walk(one, before) for one in items))
            case ast.Together(items):
                return frozenset.union(*(self._walk(one, before) for one in items))
            case ast.Repeat(inner, least, _):
                after = self._walk(inner, before)
                return after if least else before
            case ast.AutomatonBody():
                return self._states(item)
        return before

    def _states(self, body: ast.AutomatonBody) -> frozenset[str]:
        every = frozenset(edge.step for edge in body.edges)
        names = {edge.target for edge in body.edges}
        at = dict.fromkeys(names, every) | {body.initial: frozenset[str]()}
        for _ in range(len(at) + 1):
            for edge in body.edges:
                at[edge.target] &= at[edge.source] | {edge.step}
        for edge in body.edges:
            self._note(edge.step, at[edge.source])
        finals = at if body.finals is None else body.finals
        return frozenset.intersection(*(at[state] for state in finals))


def accepts_empty(body: ast.Body | ast.Absent) -> bool:
    """Return whether the empty word is a word of the body."""
    match body:
        case ast.Sequence(items) | ast.Together(items):
            return all(map(accepts_empty, items))
        case ast.Alternation(items):
            return any(map(accepts_empty, items))
        case ast.Repeat(inner, least, _):
            return least == 0 or accepts_empty(inner)
        case ast.AutomatonBody():
            return body.finals is None or body.initial in body.finals
    return False


# --- making one -------------------------------------------------------------------


class _Maker:
    def __init__(
        self, rng: random.Random, kind: Literal["check", "find"], without: frozenset[str]
    ) -> None:
        self.rng = rng
        self.kind = kind
        self.without = without
        self.nots = 0
        # Few steps, so that a step often occurs twice in a word.
        self.pool = rng.sample(_STEPS, rng.choice((1, 2, 2, 3, 3, 4)))
        self.deployment = self._deployment()
        self.params = self._maybe("params", 0.2, ast.ParamDecl("k", ast.Literal(2)))
        self.shared: ast.EventDecl | None = None
        if self.may("shared", 0.25):
            self.shared = ast.EventDecl("Shared", self._type_guard())
        self.events = tuple(
            ast.EventDecl(name, self._event_guard())
            for name in ("A", "B", "C")[: rng.choice((1, 2, 2, 3, 3))]
        )
        self.names = [event.name for event in self.events]
        if self.shared:
            self.names.append(self.shared.name)

    def may(self, feature: str, chance: float) -> bool:
        """Decide at random whether to use a feature that is allowed."""
        return feature not in self.without and self.rng.random() < chance

    def _maybe(self, feature: str, chance: float, thing: Any) -> tuple[Any, ...]:
        return (thing,) if self.may(feature, chance) else ()

    def _deployment(self) -> ast.Deployment | None:
        if not self.may("deployment", 0.25):
            return None
        everything, receiving = self.rng.choice(((True, False), (False, True), (False, False)))
        glob = self.rng.choice((None, None, None, "n?", "n1"))
        return ast.Deployment(glob, everything, receiving)

    # the file

    def file(
        self,
        strategy: Literal["strict", "next", "any"],
        order: Literal["arrival", "causal"],
        on_violation: Literal["halt", "resume", "skip"] | None,
    ) -> ast.File:
        body = self._body()
        bound = Bound(body)
        used = list(dict.fromkeys(n for n in bound.before if n in _STEPS))
        self.rng.shuffle(used)
        self.steps = [n for n in bound.before if not n.startswith("not_")]
        # A step that the body never uses: an anchor to it never has an event.
        untaken = self._maybe("relational", 0.5, "Untaken")
        self.steps += untaken * 2
        steps = tuple(ast.StepDecl(n, self._step_guard(bound.before[n])) for n in used)
        steps += tuple(ast.StepDecl(n, self._base()) for n in untaken)
        body = self._filled(body, bound)
        declarations: tuple[ast.EventDecl | ast.StepDecl, ...] = (*self.events, *steps)
        pattern = ast.Pattern(
            name="P",
            kind=self.kind,
            body=body,
            declarations=declarations,
            order=ast.Order(order),
            deployment=self.deployment,
            partition=self._partition(),
        )
        if self.kind == "check":
            pattern = replace(pattern, on_violation=on_violation)
        else:
            unwritten = order == "arrival" and strategy == "next" and self.rng.random() < 0.5
            pattern = replace(
                pattern,
                strategy=None if unwritten else strategy,
                window=self._window(),
                returns=self._returns(sorted(bound.after)),
            )
        barring = any(isinstance(node, ast.Absent) for node in walk(body))
        if self.deployment and barring and self.kind == "find" and order == "causal":
            pattern = replace(pattern, deployment=replace(self.deployment, receiving=False))  # K135
        shared = (self.shared,) if self.shared else ()
        return ast.File((pattern,), shared, self._used_params(pattern, shared))

    def _used_params(
        self, pattern: ast.Pattern, shared: tuple[ast.EventDecl, ...]
    ) -> tuple[ast.ParamDecl, ...]:
        nodes = [n for root in (pattern, *shared) for n in walk(root)]
        return self.params if any(isinstance(n, ast.ParamRef) for n in nodes) else ()

    def _partition(self) -> tuple[ast.Attribute | ast.Field, ...]:
        if not self.may("partition", 0.2):
            return ()
        key = ast.Attribute(("key",))
        return self.rng.choice(((key,), (key,), (key,), (key, ast.Field("node"))))

    def _window(self) -> ast.Window | None:
        if not self.may("window", 0.35):
            return None
        if self.rng.random() < 0.5:
            return ast.Window(self.rng.randint(1, 5))
        lengths = ((2, "s"), (3, "s"), (5, "s"), (500_000.4, "us"), (1, "ns"))
        return ast.Window(ast.Duration(*self.rng.choice(lengths)))

    def _returns(self, bound: list[str]) -> ast.Returns | None:
        if not bound or not self.may("returns", 0.3):
            return None
        if self.rng.random() < 0.15:
            return ast.Returns(count=True)
        values: list[ast.Value] = [
            self._reference(bound, _X),
            ast.Arithmetic(("+",), (self._reference(bound, _X), self._reference(bound, _Y))),
            ast.ListOf((self._reference(bound, ast.Field("node")), ast.Literal("s"))),
            self._reference(bound, ast.Field("time")),
        ]
        chosen = self.rng.sample(values, self.rng.randint(1, 2))
        return ast.Returns(tuple(ast.ReturnItem(f"r{i}", v) for i, v in enumerate(chosen)))

    # bodies

    def _body(self) -> ast.Body:
        while True:
            body: ast.Body
            if self.may("automaton", 0.2):
                body = self._automaton()
            else:
                body = self._sequence(2) if self.rng.random() < 0.6 else self._part(2)
                if self.kind == "check" and self.may("repeat", 0.7):
                    body = ast.Repeat(body, 0, None)
            if self.kind == "check" or not accepts_empty(body):
                return body

    def _part(self, depth: int) -> ast.Body:
        shapes = ["step", *["sequence"] * 4]
        shapes += ["alternation"] * ("alternation" not in self.without)
        shapes += ["repeat"] * ("repeat" not in self.without)
        shapes += ["together"] * ("together" not in self.without)
        match "step" if depth == 0 else self.rng.choice(shapes):
            case "sequence":
                return self._sequence(depth)
            case "alternation":
                return ast.Alternation(self._parts(depth, ast.Alternation, 2))
            case "repeat":
                bounds = self.rng.choice(((0, None), (1, None), (0, 1), (2, 2), (1, 2)))
                return ast.Repeat(self._parts(depth, ast.Repeat, 1)[0], *bounds)
            case "together":
                return ast.Together(self._parts(depth, ast.Together, 2))
        return ast.Step(self._step_name())

    def _parts(self, depth: int, kind: type, count: int) -> tuple[ast.Body, ...]:
        """Return parts none of which is of the same kind: the syntax is flat."""
        parts: list[ast.Body] = []
        while len(parts) < count:
            part = self._part(depth - 1)
            if not isinstance(part, kind):
                parts.append(part)
        return tuple(parts)

    def _sequence(self, depth: int) -> ast.Sequence:
        parts = self._parts(depth, ast.Sequence, self.rng.choice((2, 2, 3)))
        items: list[ast.Body | ast.Absent] = [parts[0]]
        for right in parts[1:]:
            # A `not` has no effect in a check; lint warns about it.
            if self.kind == "find" and self.may("absent", 0.35):
                self.nots += 1
                items[-1] = self._neighbour(items[-1])
                items.append(ast.Absent(ast.Name(f"not_{self.nots}")))
                right = self._neighbour(right)
            items.append(right)
        return ast.Sequence(tuple(items))

    def _neighbour(self, body: Any) -> Any:
        """Return a body that may stand beside a `not`: perhaps a group, never empty."""
        empty = accepts_empty(body)
        if not empty and (isinstance(body, ast.Sequence) or self.rng.random() < 0.8):
            return body
        step = ast.Step(self._step_name())
        other = body if empty else ast.Repeat(body, 0, self.rng.choice((1, None)))
        return ast.Sequence(self.rng.choice(((other, step), (step, other))))

    def _step_name(self) -> str:
        # An event's name may be used as a step.
        return self.rng.choice((*self.pool, *self.pool, self.events[0].name))

    def _automaton(self) -> ast.AutomatonBody:
        states = ["q0", "q1", "q2"][: self.rng.choice((2, 3))]
        ends = list(itertools.pairwise(states))
        ends += [
            (self.rng.choice(states), self.rng.choice(states))
            for _ in range(self.rng.randint(0, 2))
        ]
        edges = dict.fromkeys(ast.Edge(a, b, self._step_name()) for a, b in ends)
        finals: tuple[str, ...] | None = tuple(states[self.rng.choice((1, -1)) :])
        if self.kind == "check":
            finals = self.rng.choice((None, finals, ("q0", states[-1])))
        return ast.AutomatonBody("q0", finals, tuple(edges))

    def _filled(self, body: Any, bound: Bound) -> Any:
        """Put guards where `not`s have placeholders."""
        match body:
            case ast.Absent(ast.Name(name)):
                return ast.Absent(self._absent_guard(bound.before[name]))
            case ast.Sequence(items) | ast.Alternation(items) | ast.Together(items):
                return replace(body, items=tuple(self._filled(i, bound) for i in items))
            case ast.Repeat():
                return replace(body, item=self._filled(body.item, bound))
        return body

    # guards

    def _type_guard(self) -> ast.Guard:
        some = self.rng.choice(TYPES)
        other = self.rng.choice(TYPES)
        return self.rng.choice(
            (
                ast.Comparison("==", ast.Field("type"), ast.Literal(some)),
                ast.Comparison("==", ast.Field("type"), ast.Literal(some)),
                ast.Call("*", some, ("..",)),
                ast.Membership(ast.Field("type"), (ast.Literal(some), ast.Literal(other))),
                ast.Comparison("!=", ast.Field("type"), ast.Literal(some)),
                self._type_regex(some),
                ast.Truth(True),
            )
        )

    def _type_regex(self, some: str) -> ast.Guard:
        """Return a regular expression of two types.

        Two that accept the same are written the same here, and none accepts all that
        another one does: the engine knows regular expressions by their text alone.
        """
        other = self.rng.choice([name for name in TYPES if name != some])
        return ast.Matches(ast.Field("type"), f"[{''.join(sorted({some[-1], other[-1]}))}]$")

    def _event_guard(self) -> ast.Guard:
        guard = self._type_guard()
        if self.rng.random() < 0.2:
            guard = _joined(ast.And, [guard, self._local()])
        if self.shared and self.rng.random() < 0.2:
            guard = ast.Or((guard, ast.Name(self.shared.name)))
        return guard

    def _local(self) -> ast.Guard:
        """Return a literal about one event, perhaps negated."""
        number = ast.Literal(self.rng.choice((1, 2, 3)))
        choices: list[ast.Guard] = [
            ast.Comparison(_one(self.rng, "==", "!="), _X, self._constant()),
            ast.Comparison(_one(self.rng, "<", "<=", ">", ">="), _X, number),
            ast.Comparison(_one(self.rng, "==", "!=", "<", ">="), *self.rng.sample((_X, _Y), 2)),
            ast.Comparison("<=", ast.Arithmetic(("+",), (_X, ast.Literal(1))), number),
            ast.Membership(_X, self._items(number)),
            ast.Function("exists", (self.rng.choice((_X, _Y)),)),
            ast.Matches(_X, "a"),
            ast.Function("host", (ast.Literal(self.rng.choice(("n1", "n2", "n?"))),)),
            ast.Function("origin", (ast.Literal("n1"),)),
        ]
        if self.params:
            choices += [ast.Comparison("==", _X, ast.ParamRef("k"))] * 3
        if self.deployment and "localhost" not in self.without:
            choices += [ast.Localhost()] * 3
        return self._perhaps_not(self.rng.choice(choices))

    def _items(self, number: ast.Value) -> tuple[ast.Value, ...]:
        """Return the items of a list: constants of one kind or of several, perhaps a value."""
        others = (ast.Literal(2), ast.Literal(3), self._constant(), ast.Literal("b"), _Y)
        return (number, *self.rng.sample(others, self.rng.choice((0, 1, 1, 2, 3))))

    def _perhaps_not(self, guard: ast.Guard) -> ast.Guard:
        return ast.Not(guard) if self.may("negation", 0.2) else guard

    def _constant(self) -> ast.Value:
        return ast.Literal(self.rng.choice((1, 2, "a", True)))

    def _base(self) -> ast.Guard:
        name = ast.Name(self.rng.choice(self.names))
        if self.rng.random() < 0.8:
            return name
        other = ast.Name(self.rng.choice(self.names))
        return self.rng.choice((ast.Truth(True), ast.Or((name, other)), self._local()))

    def _relational(self) -> ast.Guard:
        anchors = [ast.PRIOR, ast.PRIOR, *self.steps]
        if "all" not in self.without:
            anchors += [ast.ALL, ast.ALL]
        inner = self.rng.choice((self._base(), self._local(), ast.Truth(True)))
        operator = self.rng.choice((ast.Causal, ast.Conc))
        return operator(inner, self.rng.choice(anchors))

    def _referring(self, bound: list[str]) -> ast.Guard:
        node = ast.Field("node")
        op = _one(self.rng, "==", "!=", "<", ">=")
        return self.rng.choice(
            (
                ast.Comparison(op, _X, self._reference(bound, _X)),
                ast.Comparison(op, _X, self._reference(bound, _X)),
                ast.Comparison("!=", node, self._reference(bound, node)),
                ast.Comparison(
                    "<",
                    self._reference(bound, _X),
                    ast.Arithmetic(("+",), (self._reference(bound, _X), _Y)),
                ),
                ast.Function("exists", (self._reference(bound, _Y),)),
                ast.Comparison(
                    "<",
                    ast.Arithmetic(("-",), (_TIME, self._reference(bound, _TIME))),
                    ast.Duration(*_one(self.rng, (1, "ns"), (1, "s"))),
                ),
            )
        )

    def _reference(self, bound: list[str], of: ast.Field | ast.Attribute) -> ast.Reference:
        return ast.Reference(self.rng.choice(bound), of)

    def _step_guard(self, before: Iterable[str]) -> ast.Guard:
        bound = sorted(before)
        parts = [self._base()]
        if self.rng.random() < 0.2:
            parts.append(self._local())
        if self.may("relational", 0.4):
            parts.append(self._perhaps_not(self._relational()))
        if bound and self.may("references", 0.35):
            parts.append(self._perhaps_not(self._referring(bound)))
        if self.may("relational", 0.15):
            parts.append(ast.Or((self._relational(), self._relational())))
        self.rng.shuffle(parts)
        if self.rng.random() < 0.1 and len(parts) > 1:
            return _joined(ast.Or, parts)
        return _joined(ast.And, parts)

    def _absent_guard(self, before: Iterable[str]) -> ast.Guard:
        if self.rng.random() < 0.5:
            return ast.Name(self.rng.choice(self.names))
        return self._step_guard(before)


def _joined(kind: type[ast.And | ast.Or], parts: list[ast.Guard]) -> ast.Guard:
    """Join guards; the syntax is flat."""
    flat: list[ast.Guard] = []
    for part in parts:
        flat += part.operands if isinstance(part, kind) else (part,)
    return kind(tuple(flat)) if len(flat) > 1 else flat[0]
