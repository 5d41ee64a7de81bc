"""Random pattern files with correct names and kinds: `files()`.

Every node of `ketal.model.syntax` can come out, with names that are hard to write
(reserved words as attributes, odd strings as keys, attributes called as a step or
nearly so). `ketal.analysis.name_resolution` finds no errors in a drawn file, but perhaps warnings.
Faults that only the compiler finds (a reference unbound on some path, a step that no event
satisfies) may occur.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hypothesis import strategies as st

from ketal.analysis.bodies import nullable
from ketal.model import syntax as ast
from ketal.model.language_words import UNIT_NS
from ketal.model.syntax_walks import walk
from ketal.model.values import base_node

Kind = Literal["number", "string", "boolean"]

_cached = functools.lru_cache(maxsize=512)
"""Hypothesis validates a strategy once per object, so each strategy is made once."""

EVENTS = ("Push", "Pop", "On", "accept")
STEPS = ("A", "First", "Second", "b2")
PARAMS = ("w", "low", "name")
WORDS = (
    "hash", "x", "count", "order", "node", "host", "data", "First", "Frist", "first", "w", "Push",
    "all", "in", "not", "A", "http.status", "", "größe", 'q"q', "a b", "1", "Upper", "events",
    "null", "None", "True", "nan", "self", "event", "clock",
)  # fmt: skip
REGEXES = ("a/b", "^x$", r"\d+\.\w", "[/]", r"a\\/b", "(?:)", "(a*)*b", "ä|'\"")
GLOBS = ("*", "..", "void", "Stack.push", "com..Bar*.m?", "int[]", "T$1")


@dataclass(frozen=True, eq=False)
class Known:
    """The declarations in scope of an expression."""

    events: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    params: dict[str, ast.Literal | ast.Duration] = field(default_factory=dict)
    relational: bool = False
    deployed: bool = False


@_cached
def texts() -> st.SearchStrategy[str]:
    return st.text(max_size=6) | st.sampled_from(WORDS)


@_cached
def numbers() -> st.SearchStrategy[int | float]:
    return st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)


@_cached
@st.composite
def durations(draw: st.DrawFn) -> ast.Duration:
    amount = draw(st.integers(1, 1000) | st.floats(0.001, 1e6))
    return ast.Duration(amount, draw(st.sampled_from(sorted(UNIT_NS))))


@_cached
def attributes() -> st.SearchStrategy[ast.Attribute]:
    return st.lists(texts(), min_size=1, max_size=3).map(lambda path: ast.Attribute(tuple(path)))


# --- values ---


def _kind(value: ast.Literal | ast.Duration) -> Kind:
    if isinstance(value, ast.Duration):
        return "number"
    if isinstance(value.value, bool):
        return "boolean"
    return "string" if isinstance(value.value, str) else "number"


@_cached
def _fields(kind: Kind) -> st.SearchStrategy[ast.Field]:
    names = {"number": ("time",), "string": ("node", "type", "id"), "boolean": ()}[kind]
    return st.sampled_from(names).map(ast.Field) if names else st.nothing()  # type: ignore[arg-type]


@_cached
def _leaves(kind: Kind, known: Known) -> st.SearchStrategy[Any]:
    literals: dict[str, st.SearchStrategy[Any]] = {
        "number": numbers().map(ast.Literal) | durations(),
        "string": texts().map(ast.Literal),
        "boolean": st.booleans().map(ast.Literal),
    }
    own = _fields(kind) | attributes()
    choices = [literals[kind], own]
    params = [name for name, value in known.params.items() if _kind(value) == kind]
    if params:
        choices.append(st.sampled_from(params).map(ast.ParamRef))
    if known.relational and known.steps:
        choices.append(st.builds(ast.Reference, st.sampled_from(known.steps), own))
    return st.one_of(choices)


@_cached
@st.composite
def values(draw: st.DrawFn, kind: Kind, known: Known, depth: int = 2) -> ast.Value:
    """Draw a value of a kind, or an attribute, which may be of any kind."""
    if depth == 0 or kind != "number" or draw(st.booleans()):
        value: ast.Value = draw(_leaves(kind, known))
        return value
    inner = values("number", known, depth - 1)
    if draw(st.integers(0, 3)) == 0:
        return ast.Negative(draw(inner))
    strength = draw(st.sampled_from(("+-", "*/%")))
    operands = draw(st.lists(inner, min_size=2, max_size=3))
    first = operands[0]
    if isinstance(first, ast.Arithmetic) and (first.ops[0] in "+-") == (strength == "+-"):
        operands[0] = first.operands[0]  # flat
    ops: tuple[Any, ...] = tuple(draw(st.sampled_from(strength)) for _ in operands[1:])
    return ast.Arithmetic(ops, tuple(operands))


# --- guards ---


@_cached
@st.composite
def guards(draw: st.DrawFn, known: Known, depth: int = 2) -> ast.Guard:
    """Draw a guard over the declared names."""
    choices = ["atom"]
    if depth:
        choices += ["not", "and", "or"] + ["causal"] * known.relational
    match draw(st.sampled_from(choices)):
        case "not":
            return ast.Not(draw(guards(known, depth - 1)))
        case "and":
            return ast.And(_flat(ast.And, draw(_several(known, depth - 1))))
        case "or":
            return ast.Or(_flat(ast.Or, draw(_several(known, depth - 1))))
        case "causal":
            operator: Any = draw(st.sampled_from((ast.Causal, ast.Conc)))
            anchor = draw(st.sampled_from((ast.PRIOR, ast.ALL, *known.steps)))
            related: ast.Guard = operator(draw(guards(known, depth - 1)), anchor)
            return related
    return draw(_atoms(known))


@_cached
def _several(known: Known, depth: int) -> st.SearchStrategy[list[ast.Guard]]:
    return st.lists(guards(known, depth), min_size=2, max_size=3)


def _flat(sort: Any, operands: list[ast.Guard]) -> tuple[ast.Guard, ...]:
    flat: list[ast.Guard] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, sort) else (operand,))
    return tuple(flat)


@_cached
def _atoms(known: Known) -> st.SearchStrategy[ast.Guard]:
    kinds: tuple[Kind, ...] = ("number", "string", "boolean")
    return st.sampled_from(kinds).flatmap(lambda kind: _atoms_of(kind, known))


@_cached
def _atoms_of(kind: Kind, known: Known) -> st.SearchStrategy[Any]:
    choices: list[st.SearchStrategy[Any]] = [
        _comparisons(kind, known),
        st.builds(
            ast.Membership,
            values(kind, known, 1),
            st.lists(values(kind, known, 1), min_size=1, max_size=3).map(tuple),
        ),
        st.builds(ast.Matches, values("string", known), st.sampled_from(REGEXES)),
        st.builds(ast.Function, st.just("exists"), st.tuples(_subjects(known))),
        st.builds(ast.Truth, st.booleans()),
        st.builds(
            ast.Function,
            st.sampled_from(("host", "origin")),
            st.tuples(st.builds(ast.Literal, texts())),
        ),
        st.builds(
            ast.Call,
            st.sampled_from(GLOBS),
            st.sampled_from(GLOBS),
            st.lists(st.sampled_from(GLOBS), max_size=3).map(tuple),
        ),
    ]
    if known.events:
        choices.append(st.sampled_from(known.events).map(ast.Name))
    if known.deployed:
        choices.append(st.builds(ast.Localhost))
    return st.one_of(choices)


@_cached
@st.composite
def _comparisons(draw: st.DrawFn, kind: Kind, known: Known) -> ast.Comparison:
    # An attribute takes the kind of the other operand; booleans have no order.
    ops = ("==", "!=") if kind == "boolean" else ("==", "!=", "<", "<=", ">", ">=")
    return ast.Comparison(
        draw(st.sampled_from(ops)),
        draw(values(kind, known)),
        draw(values(kind, known)),
    )


@_cached
def _subjects(known: Known) -> st.SearchStrategy[Any]:
    own = _fields("string") | _fields("number") | attributes()
    if known.relational and known.steps:
        return own | st.builds(ast.Reference, st.sampled_from(known.steps), own)
    return own


# --- bodies ---


@st.composite
def bodies(draw: st.DrawFn, kind: str, known: Known, depth: int = 2) -> ast.Body:
    """Draw a body; the body of a find does not accept the empty word."""
    if draw(st.integers(0, 5)) == 0:
        return draw(_automata(kind, known))
    body: ast.Body = draw(_blocks(known, depth))
    if kind == "find" and nullable(body):
        step = ast.Step(draw(st.sampled_from(known.steps)))
        body = ast.Sequence((step, *(body.items if isinstance(body, ast.Sequence) else (body,))))
    return body


@_cached
@st.composite
def _blocks(draw: st.DrawFn, known: Known, depth: int) -> Any:
    sorts = ["step", "sequence", "alternation", "repeat", "together"] if depth else ["step"]
    match draw(st.sampled_from(sorts)):
        case "sequence":
            return ast.Sequence(draw(_sequences(known, depth - 1)))
        case "alternation":
            options: list[Any] = []
            for option in draw(st.lists(_blocks(known, depth - 1), min_size=2, max_size=3)):
                options.extend(option.items if isinstance(option, ast.Alternation) else (option,))
            return ast.Alternation(tuple(options))
        case "repeat":
            least = draw(st.integers(0, 3))
            most = draw(st.none() | st.integers(max(least, 1), 5))
            return ast.Repeat(draw(_blocks(known, depth - 1)), least, most)
        case "together":
            items = draw(st.lists(_blocks(known, depth - 1), min_size=2, max_size=3))
            return ast.Together(tuple(items))
    return ast.Step(draw(st.sampled_from(known.steps)))


@_cached
@st.composite
def _sequences(draw: st.DrawFn, known: Known, depth: int) -> tuple[Any, ...]:
    items: list[Any] = []
    for item in draw(st.lists(_blocks(known, depth), min_size=2, max_size=3)):
        if items and not nullable(items[-1]) and not nullable(item) and draw(st.booleans()):
            # A group beside a `not` is not flattened.
            items += (ast.Absent(draw(guards(known, 1))), item)
        else:
            items += item.items if isinstance(item, ast.Sequence) else (item,)
    return tuple(items)


@st.composite
def _automata(draw: st.DrawFn, kind: str, known: Known) -> ast.AutomatonBody:
    states = ("q0", "q1", "on", "all2")
    edge = st.builds(
        ast.Edge, st.sampled_from(states), st.sampled_from(states), st.sampled_from(known.steps)
    )
    first = ast.Edge("q0", "q1", known.steps[0])
    edges = (first, *draw(st.lists(edge, max_size=4, unique=True)))
    edges = tuple(dict.fromkeys(e for e in edges if "on" not in (e.source, e.target)))
    finals = ("q1",) if kind == "find" else draw(st.sampled_from((None, ("q0",), ("q0", "q1"))))
    return ast.AutomatonBody("q0", finals, edges)


# --- declarations and statements ---


@st.composite
def _params(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[ast.ParamDecl, ...]:
    literal = (numbers() | texts() | st.booleans()).map(ast.Literal)
    chosen = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    return tuple(ast.ParamDecl(name, draw(literal | durations())) for name in chosen)


@_cached
@st.composite
def _lengths(draw: st.DrawFn, known: Known) -> ast.Duration | ast.ParamRef:
    named = [n for n, value in known.params.items() if isinstance(value, ast.Duration)]
    if bool(named) and draw(st.booleans()):
        return ast.ParamRef(draw(st.sampled_from(named)))
    return draw(durations())


@st.composite
def _orders(draw: st.DrawFn, known: Known) -> ast.Order:
    if draw(st.booleans()):
        return ast.Order()
    total = draw(st.booleans())
    nodes = st.lists(texts(), min_size=1, max_size=3, unique=True).map(tuple)
    frontier = None if total else draw(st.none() | _lengths(known))
    # `frontier` waits for a time alone, so it cannot be combined with these.
    waits = st.none() if frontier else st.none() | _lengths(known)
    return ast.Order(
        "causal",
        total=total,
        nodes=draw(st.none() | nodes) if total else None,
        frontier=frontier,
        gap=draw(waits),
        idle=draw(waits),
        overflow=draw(st.sampled_from((None, "reject", "lost"))),
    )


@st.composite
def _topologies(draw: st.DrawFn) -> ast.Topology:
    nodes = texts().filter(lambda name: base_node(name) == name)
    pair = st.tuples(nodes, nodes).filter(lambda ends: ends[0] != ends[1])
    pairs = draw(st.lists(pair, min_size=1, max_size=3, unique=True))
    edges = tuple(ast.TopologyEdge(p, q, draw(st.booleans())) for p, q in pairs)
    return ast.Topology(edges, draw(st.booleans()))


@st.composite
def _returns(draw: st.DrawFn, known: Known, body: ast.Body) -> ast.Returns:
    if draw(st.booleans()):
        return ast.Returns(count=True)
    taken = sorted(
        {n.name for n in walk(body) if isinstance(n, ast.Step)}
        | {n.step for n in walk(body) if isinstance(n, ast.Edge)}
    )
    own = _fields("string") | _fields("number") | attributes()
    value = st.builds(ast.Reference, st.sampled_from(taken), own) | _leaves("number", Known())
    value = value.filter(lambda v: not isinstance(v, ast.Attribute | ast.Field))
    names = draw(st.lists(st.sampled_from(("h", "count", "of", "node")), min_size=1, unique=True))
    several = st.lists(value, min_size=1, max_size=2).map(lambda items: ast.ListOf(tuple(items)))
    return ast.Returns(tuple(ast.ReturnItem(name, draw(value | several)) for name in names))


@st.composite
def patterns(draw: st.DrawFn, shared: Known, name: str = "P") -> ast.Pattern:
    """Draw a pattern under a file's shared declarations."""
    kind = draw(st.sampled_from(("check", "find")))
    params = draw(_params(tuple(n for n in PARAMS if n not in shared.params)))
    deployment = draw(st.none() | st.builds(ast.Deployment, st.none() | texts(), st.booleans()))
    own = draw(st.lists(st.sampled_from(EVENTS), min_size=1, unique=True))
    own = [event for event in own if event not in shared.events] or ["Other"]
    alone = replace(
        shared,
        params=shared.params | {p.name: p.value for p in params},
        deployed=deployment is not None,
    )
    named = draw(st.lists(st.sampled_from(STEPS), min_size=1, unique=True))
    events = (*shared.events, *own)
    known = replace(alone, events=events, steps=(*named, *events), relational=True)
    # An event refers to earlier events only, so that there is no cycle.
    declarations: list[ast.EventDecl | ast.StepDecl] = [
        ast.EventDecl(event, draw(guards(replace(alone, events=(*shared.events, *own[:i])), 2)))
        for i, event in enumerate(own)
    ]
    declarations += [ast.StepDecl(step, draw(guards(known))) for step in named]
    body = draw(bodies(kind, known))
    order = draw(_orders(known))
    plain = order.kind == "causal" and order.frontier is None and not order.total
    topology = draw(st.none() | _topologies()) if plain else None
    # A mode considers every order, so options for how a stream waits do not apply.
    waits = order.total or order.frontier or order.idle or order.overflow
    modes: tuple[str | None, ...] = (None, "possibly", "definitely")
    if order.kind == "causal" and (waits or (topology is not None and topology.open)):
        modes = (None,)
    keys = st.lists(_fields("string") | attributes(), max_size=2, unique_by=_key).map(tuple)
    found: dict[str, Any] = {}
    if kind == "find":
        window = _lengths(known) | st.integers(1, 100)
        found = {
            "strategy": draw(st.sampled_from(("strict", "next", "any"))),
            "window": draw(st.none() | window.map(ast.Window)),
            "returns": draw(st.none() | _returns(known, body)),
        }
        returns = found["returns"]
        if returns is None or not returns.count:
            found["limit"] = draw(st.none() | st.integers(1, 100))
    else:
        found = {"on_violation": draw(st.sampled_from((None, "halt", "resume", "skip")))}
    return ast.Pattern(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        body=body,
        declarations=tuple(draw(st.permutations(declarations))),
        params=params,
        order=order,
        deployment=deployment,
        partition=draw(keys),
        mode=draw(st.sampled_from(modes)),
        topology=topology,
        **found,
    )


def _key(key: ast.Attribute | ast.Field) -> str:
    return key.name if isinstance(key, ast.Field) else key.path[-1]


@st.composite
def files(draw: st.DrawFn, *, patterns_max: int = 2) -> ast.File:
    """Draw a file in which `ketal.analysis.name_resolution` finds no error."""
    params = draw(_params(PARAMS))
    known = Known(params={p.name: p.value for p in params})
    names = draw(st.lists(st.sampled_from(EVENTS), max_size=2, unique=True))
    events = tuple(
        ast.EventDecl(name, draw(guards(replace(known, events=tuple(names[:i])))))
        for i, name in enumerate(names)
    )
    shared = replace(known, events=tuple(names))
    count = draw(st.integers(1, patterns_max))
    return ast.File(tuple(draw(patterns(shared, f"P{i}")) for i in range(count)), events, params)
