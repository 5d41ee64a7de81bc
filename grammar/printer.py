"""The canonical text of patterns, and of their parts for pictures and messages.

Statements have a fixed order. Parentheses are written only where they are necessary, and `data.`
before an attribute only where its bare name would be read as something else.

The one rule: `parse(render(p)) == p`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ketal.grammar.bare_names import (
    IDENTIFIER,
    DeclaredNames,
    is_own_text,
    misleading_after_step,
    stands_bare,
)
from ketal.model import syntax as ast
from ketal.model.wording import json_text

INDENT = "    "
WIDTH = 100
_NO_NAMES = DeclaredNames()

# Binding strength of operators, weakest first.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)
_ARITHMETIC = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
_BEFORE_STEPS = ("order", "deployment", "partition", "topology", "mode")
_AFTER_BODY = ("on_violation", "window", "returns", "limit")
_REPETITIONS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def render(file: ast.File) -> str:
    """Return the canonical text of a file, which is parsed to an equal file."""
    shared = _scope(file.params, file.events)
    head = [declaration(param, shared) for param in file.params]
    head += [declaration(event, shared) for event in file.events]
    blocks = ["\n".join(head)] if head else []
    blocks += [_pattern(p, shared) for p in file.patterns]
    return "\n\n".join(blocks) + "\n"


def _scope(
    params: Iterable[Any], others: Iterable[Any], outer: DeclaredNames = _NO_NAMES
) -> DeclaredNames:
    """Return the names in scope where parameters, and events or steps, are declared."""
    return DeclaredNames(
        outer.params | {p.name for p in params}, outer.declared | {d.name for d in others}
    )


def _pattern(pattern: ast.Pattern, shared: DeclaredNames) -> str:
    scope = _scope(pattern.params, pattern.declarations, shared)
    params = [declaration(p, scope) for p in pattern.params]
    body = body_statement(pattern.kind, pattern.strategy, pattern.body, scope)
    groups = [
        [*params, *_clauses(pattern, _BEFORE_STEPS, scope)],
        [declaration(d, scope) for d in pattern.declarations],
        [body, *_clauses(pattern, _AFTER_BODY, scope)],
    ]
    text = "\n\n".join("\n".join(lines) for lines in groups if lines)
    return "\n".join(in_braces(f"pattern {pattern.name}", text.split("\n")))


def _clauses(pattern: ast.Pattern, names: Iterable[str], scope: DeclaredNames) -> list[str]:
    values = ((name, getattr(pattern, name)) for name in names)
    return [clause(name, of, scope) for name, of in values if of not in (None, (), ast.Order())]


def in_braces(head: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of a block: a head, and lines in braces, which are indented."""
    return [f"{head} {{", *(INDENT + line if line else "" for line in lines), "}"]


# --- statements ---


def declaration(node: ast.ParamDecl | ast.EventDecl | ast.StepDecl, scope: DeclaredNames) -> str:
    """Return the declaration of a parameter, an event or a step."""
    if isinstance(node, ast.ParamDecl):
        return f"param {node.name} = {render_value(node.value, scope)};"
    head = f"event {node.name}" if isinstance(node, ast.EventDecl) else node.name
    guard = node.guard
    line = f"{head} = {render_guard(guard, scope)};"
    if len(line) + len(INDENT) <= WIDTH or not isinstance(guard, ast.And | ast.Or):
        return line
    # A guard too long for a line is broken at its outermost operator.
    strength, sign = (_AND, "&&") if isinstance(guard, ast.And) else (_OR, "||")
    first, *rest = (render_guard(g, scope, strength + 1) for g in guard.operands)
    return "\n".join([f"{head} = {first}", *(f"{INDENT}{sign} {g}" for g in rest)]) + ";"


def clause(name: str, value: Any, scope: DeclaredNames) -> str:
    """Return the statement for a field of a pattern that is neither a declaration nor the body."""
    match value:
        case ast.Order():
            return _order(value)
        case ast.Deployment(glob=glob, everything=everything, receiving=receiving):
            where = "every node" if glob is None else f"host({json_text(glob)})"
            return f"at {where}{' all' if everything else ' receiving' if receiving else ''};"
        case ast.Topology(edges=edges):
            return "\n".join(in_braces(topology_head(value), map(link, edges)))
        case ast.Window(length=length):
            return (
                f"within {f'{length} events' if isinstance(length, int) else render_value(length)};"
            )
        case ast.Returns(count=True):
            return "return count;"
        case ast.Returns(items=items):
            given = (f"{item.name} = {render_value(item.value, scope)}" for item in items)
            return f"return {', '.join(given)};"
        case tuple() as keys:
            return f"partition by {', '.join(render_value(key, scope) for key in keys)};"
    return f"{name.replace('_', ' ')} {value};"


def _order(node: ast.Order) -> str:
    """Return `order arrival;` or `order CausalOrder(options);`."""
    options = []
    for name in node.given:
        match getattr(node, name):
            case True:
                options.append(name)
            case tuple() as nodes:
                options.append(f"{name} = [{', '.join(map(json_text, nodes))}]")
            case str() as word:
                options.append(f"{name} = {word}")
            case length:
                options.append(f"{name} = {render_value(length)}")
    kind = "arrival" if node.kind == "arrival" else "CausalOrder"
    return f"order {kind}({', '.join(options)});" if options else f"order {kind};"


def topology_head(node: ast.Topology) -> str:
    """Return the keywords before the edges of a topology."""
    return "topology open" if node.open else "topology"


def link(edge: ast.TopologyEdge) -> str:
    """Return one edge of a topology."""
    relaxed = " relaxed" if edge.relaxed else ""
    return f"{_node_name(edge.source)} -> {_node_name(edge.target)}{relaxed};"


def body_statement(kind: str, strategy: str | None, body: ast.Body, scope: DeclaredNames) -> str:
    """Return `check …;` or `find …;`."""
    head = body_head(kind, strategy)
    if not isinstance(body, ast.AutomatonBody):
        return f"{head} {render_body(body, scope)};"
    return "\n".join(in_braces(f"{head} automaton", automaton(body)))


def body_head(kind: str, strategy: str | None) -> str:
    """Return the keywords before a body."""
    return f"{kind} {strategy}" if strategy else kind


def automaton(body: ast.AutomatonBody) -> list[str]:
    """Return the statements of an automaton, a line each."""
    lines = [f"initial {body.initial};"] if body.initial else []
    if body.finals is not None:
        lines.append(f"final {', '.join(body.finals)};")
    return lines + [edge(e) for e in body.edges]


def edge(node: ast.Edge) -> str:
    """Return one edge of an automaton."""
    return f"{node.source} -> {node.target} on {node.step};"


# --- bodies ---


def render_body(body: ast.Body, scope: DeclaredNames = _NO_NAMES) -> str:
    """Return a body on one line."""
    if isinstance(body, ast.AutomatonBody):
        return f"automaton {{ {' '.join(automaton(body))} }}"
    return _body(body, 0, scope)


def _body(body: ast.Body | ast.Absent, strength: int, scope: DeclaredNames) -> str:
    """Return a body, in parentheses if its operator binds weaker than `strength`.

    The strengths are 0 for an alternation, 1 for a sequence, 2 for a repetition, 3 for a block.
    """
    match body:
        case ast.Step(name=name):
            return name
        case ast.Absent(guard=ast.Name(name=name)):
            return f"not {name}"
        case ast.Absent(guard=guard):
            return f"not ({render_guard(guard, scope)})"
        case ast.Alternation(items=items):
            own_strength, text = 0, " | ".join(_body(item, 1, scope) for item in items)
        case ast.Sequence(items=items):
            own_strength, text = 1, " ".join(_body(item, 2, scope) for item in items)
        case ast.Together(items=items):
            return "{" + " & ".join(_body(item, 0, scope) for item in items) + "}"
        case ast.Repeat(item=item, least=least, most=most):
            own_strength, text = 2, _body(item, 3, scope) + _repetition(least, most)
        case _:
            raise TypeError(f"{type(body).__name__} is only allowed as a whole body")
    return f"({text})" if own_strength < strength else text


def _repetition(least: int, most: int | None) -> str:
    if (least, most) in _REPETITIONS:
        return _REPETITIONS[least, most]
    if most is None:
        return f"{{{least},}}"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


# --- guards ---


def render_guard(guard: ast.Guard, scope: DeclaredNames = _NO_NAMES, strength: int = _OR) -> str:
    """Return a guard on one line, in parentheses if its operator binds weaker than `strength`.

    `scope` has the names in scope at it.
    """
    own_strength = _ATOM
    match guard:
        case ast.Or(operands=operands):
            own_strength, text = _OR, " || ".join(render_guard(g, scope, _AND) for g in operands)
        case ast.And(operands=operands):
            own_strength, text = _AND, " && ".join(render_guard(g, scope, _NOT) for g in operands)
        case ast.Not(operand=operand):
            # The parser reads `!x == 3` as `!(x == 3)`, but people may not: write parentheses.
            own_strength, text = _NOT, "!" + render_guard(operand, scope, _SIGN)
        case ast.Comparison(op=op, left=left, right=right):
            own_strength = _COMPARISON
            text = (
                f"{render_value(left, scope)} {op} {render_value(right, _right_scope(left, scope))}"
            )
        case ast.Membership(value=value, items=items):
            own_strength = _COMPARISON
            text = f"{render_value(value, scope)} in {_list(items, _right_scope(value, scope))}"
        case ast.Matches(value=value, regex=regex):
            own_strength = _COMPARISON
            text = f"{render_value(value, scope)} matches {_regex(regex)}"
        case ast.Truth(value=value):
            text = "true" if value else "false"
        case ast.Name(name=name):
            text = name
        case ast.Call(result=result, target=target, arguments=arguments):
            text = f"call({result} {target}({', '.join(arguments)}))"
        case ast.Localhost():
            text = "localhost"
        case ast.Function(name=name, arguments=values):
            text = f"{name}({', '.join(render_value(v, scope) for v in values)})"
        case ast.Causal(guard=inner, anchor=anchor) | ast.Conc(guard=inner, anchor=anchor):
            anchored = "" if anchor == ast.PRIOR else f", {anchor}"
            text = f"{type(guard).__name__}({render_guard(inner, scope)}{anchored})"
        case _:
            raise TypeError(f"{type(guard).__name__} is not a guard")
    return f"({text})" if own_strength < strength else text


def _right_scope(left: ast.Value, scope: DeclaredNames) -> DeclaredNames:
    """Return the scope of the values that `left` is compared with."""
    return replace(scope, after_own_text=True) if is_own_text(left) else scope


def _regex(regex: str) -> str:
    r"""Return a regular expression between slashes.

    A slash is escaped. Text that the grammar does not allow between slashes is replaced by text of
    the same meaning: a line end by `\n`, an empty expression by `(?:)`.
    """
    written = {"/": "\\/", "\n": "\\n", "\\\n": "\\n"}
    text = re.sub(r"\\.|.", lambda m: written.get(m[0], m[0]), regex, flags=re.DOTALL)
    return f"/{text or '(?:)'}/"


# --- values ---


def render_value(value: ast.Value, scope: DeclaredNames = _NO_NAMES, strength: int = _SUM) -> str:
    """Return a value, in parentheses if its operator binds weaker than `strength`."""
    own_strength = _ATOM
    match value:
        case ast.Literal(value=literal):
            text = _literal(literal)
            own_strength = _SIGN if text.startswith("-") else _ATOM
        case ast.Duration(amount=amount, unit=unit):
            text = f"{_literal(amount)} {unit}"
        case ast.Field(name=name) | ast.ParamRef(name=name):
            text = name
        case ast.Attribute(path=(_, *_) as path):
            head, rest = (path[0], path[1:]) if stands_bare(path, scope) else ("data", path)
            text = _path_text(head, rest)
        case ast.Reference(step=step, of=ast.Field(name=name)):
            text = f"{step}.{name}"
        case ast.Reference(step=step, of=ast.Attribute(path=(_, *_) as path)):
            head = path[0]
            taken = head in ("data", *ast.EVENT_FIELDS) or misleading_after_step(path)
            plain = IDENTIFIER.match(head) and not taken
            text = _path_text(step if plain else f"{step}.data", path)
        case ast.Arithmetic(ops=(_, *_) as ops, operands=operands):
            own_strength = _ARITHMETIC[ops[0]]
            first, *others = (
                render_value(operand, scope, own_strength + 1) for operand in operands
            )
            text = first + "".join(f" {op} {other}" for op, other in zip(ops, others, strict=True))
        case ast.Negative(operand=operand):
            own_strength = _SIGN
            # `-3` is read as a number, so the operand of a negation is put in parentheses.
            apart = isinstance(operand, ast.Literal | ast.Negative)
            text = "-" + render_value(operand, scope, _ATOM + 1 if apart else own_strength)
        case ast.ListOf(items=items):
            text = _list(items, scope)
        case _:
            raise TypeError(f"{value!r} is not a value")
    return f"({text})" if own_strength < strength else text


def _literal(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json_text(value)
    # Infinity has no literal, and `inf` would be an attribute: this is refused as too large.
    return repr(value).replace("inf", "1e999")


def _list(items: tuple[ast.Value, ...], scope: DeclaredNames) -> str:
    return f"[{', '.join(render_value(item, scope) for item in items)}]"


def _path_text(head: str, path: tuple[str, ...]) -> str:
    return head + "".join(
        f".{part}" if IDENTIFIER.match(part) else f"[{json_text(part)}]" for part in path
    )


def _node_name(name: str) -> str:
    return name if IDENTIFIER.match(name) else json_text(name)
