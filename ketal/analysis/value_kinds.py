"""Kinds of values: number, string, boolean, or unknown until an event is read.

A comparison between different kinds is unknown for every event, and a guard accepts an event only
if it is true. So such a comparison is a mistake; it is reported if both kinds are known from the
text.

The one rule: an attribute has no declared kind, so it causes no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ketal.analysis.bodies import Finding
from ketal.analysis.registered_guards import RegisteredGuard
from ketal.errors import Span
from ketal.model import syntax as ast
from ketal.model.guard_functions import FUNCTIONS, Kind
from ketal.model.syntax_walks import references, walk
from ketal.model.values import base_node
from ketal.model.wording import counted, unquoted

Params = Mapping[str, ast.ParamDecl]


def kind_of(value: ast.Value, params: Params) -> Kind:
    """Return the kind of a value; `any` if unknown."""
    match value:
        case ast.Literal(value=bool()):
            return "boolean"
        case ast.Literal(value=str()):
            return "string"
        case ast.Literal() | ast.Duration() | ast.Arithmetic() | ast.Negative():
            return "number"
        case ast.Field(name=name):
            return "number" if name == "time" else "string"
        case ast.Reference(of=of):
            return kind_of(of, params)
        case ast.ParamRef(name=name) if name in params:
            return kind_of(params[name].value, params)
    return "any"


def guard_findings(
    node: ast.Node, params: Params, registered: Mapping[str, RegisteredGuard]
) -> Iterator[Finding]:
    """Yield findings about comparisons, operations and calls that can never be true."""
    for part in walk(node):
        match part:
            case ast.Comparison():
                yield from _comparison_findings(part, params)
            case ast.Membership(value=value, items=items):
                for item in items:
                    yield from _kind_findings(part, value, item, params)
            case ast.Matches(value=value):
                kind = kind_of(value, params)
                if kind in ("number", "boolean"):
                    yield (
                        "K113", "error", f"`matches` requires a string, not a {kind}",
                        part.span, "use a comparison: `x == 1`, `x in [1, 2]`",
                    )  # fmt: skip
            case ast.Arithmetic(ops=ops, operands=operands):
                if ops == ("-", "-") and all(isinstance(o, ast.Literal) for o in operands):
                    yield (
                        "K118", "warning", "this subtraction of numbers looks like a date",
                        part.span, 'write a date as a string, `"2024-10-12"`; compare `time` with '
                        "seconds since the epoch",
                    )  # fmt: skip
                for op, operand in zip((ops[0], *ops), operands, strict=True):
                    yield from _operand_findings(op, operand, part, params)
            case ast.Negative(operand=operand):
                yield from _operand_findings("-", operand, part, params)
            case ast.Function(name=name):
                guard = FUNCTIONS.get(name) or registered.get(name)
                if guard is not None:
                    yield from _argument_findings(part, guard.parameters, params)
                if name in ("host", "origin"):
                    for argument in part.arguments:
                        if isinstance(argument, ast.Literal):
                            yield from node_name_findings(argument.value, part.span)


def node_name_findings(glob: object, span: Span | None) -> Iterator[Finding]:
    """Yield a finding if a glob of nodes names an incarnation, and so matches none."""
    if isinstance(glob, str) and (base := base_node(glob)) != glob:
        exact = f'`node == "{glob}"`'
        if {*"*?"} & {*glob}:
            exact = f"add `&& node matches /{glob.removeprefix(base)}$/`"
        yield (
            "K136", "warning", f"no node matches `{glob}`: nodes are matched without the number of "
            "their incarnation", span,
            f"write `{base}` for all incarnations; in a guard, {exact} for one",
        )  # fmt: skip


def _comparison_findings(node: ast.Comparison, params: Params) -> Iterator[Finding]:
    kinds = {kind_of(node.left, params), kind_of(node.right, params)}
    if node.op not in ("==", "!=") and "boolean" in kinds:
        yield (
            "K115", "error", f"`{node.op}` cannot compare booleans", node.span,
            "use `==` or `!=`",
        )  # fmt: skip
    else:
        yield from _kind_findings(node, node.left, node.right, params)
    if node.left == node.right:
        hint = (
            "name the step of the other event: `x == A.x`; test with `exists(x)` whether the event "
            "has a value"
        )
        read = [part for part in walk(node.left) if isinstance(part, ast.Field | ast.Attribute)]
        if not read or references(node.left):
            hint = "compare it with a value of the event: `x == A.x`, `x == 1`"
        yield "K137", "warning", "this compares a value with itself", node.span, hint


def _kind_findings(
    node: ast.Node, left: ast.Value, right: ast.Value, params: Params
) -> Iterator[Finding]:
    first, second = kind_of(left, params), kind_of(right, params)
    if "any" in (first, second) or first == second:
        return
    hint = "values of different kinds cannot be compared, so the guard is never true"
    for side, other in ((left, right), (right, left)):
        if isinstance(side, ast.Field) and side.name == "time":
            hint = "`time` is in seconds since the epoch"
        elif isinstance(side, ast.Field) and isinstance(other, ast.Literal):
            hint = f'`{side.name}` is a string: write `"{unquoted(other.value)}"`'
        elif (hyphenated := _hyphenated_hint(side)) is not None:
            hint = hyphenated
    yield "K112", "error", f"this compares a {first} with a {second}", node.span, hint


def _operand_findings(
    op: str, operand: ast.Value, node: ast.Node, params: Params
) -> Iterator[Finding]:
    kind = kind_of(operand, params)
    if kind in ("string", "boolean"):
        yield (
            "K114", "error", f"`{op}` requires numbers, not a {kind}",
            operand.span or node.span,
            _hyphenated_hint(node) or "strings can be compared, but not joined",
        )  # fmt: skip


def _hyphenated_hint(value: ast.Node) -> str | None:
    """Return how to write an attribute such as `user-id` if a difference is written like one."""
    if not isinstance(value, ast.Arithmetic) or set(value.ops) != {"-"} or value.span is None:
        return None
    operands = [o for o in value.operands if isinstance(o, ast.Field | ast.Attribute)]
    name = "-".join(o.name if isinstance(o, ast.Field) else o.path[0] for o in operands)
    width = value.span.end_column - value.span.column
    if len(operands) < len(value.operands) or len(name) != width:
        return None  # It has spaces, paths or other values.
    return f'write `data["{name}"]` for an attribute of that name'


def _argument_findings(
    node: ast.Function, parameters: tuple[Kind, ...], params: Params
) -> Iterator[Finding]:
    """Yield findings about the number and the kinds of arguments, and about missing constants."""
    if len(parameters) != len(node.arguments):
        wanted = counted(len(parameters), "argument")
        yield (
            "K104", "error", f"the guard `{node.name}` takes {wanted}, not {len(node.arguments)}",
            node.span, f"call it with ({', '.join(parameters)})",
        )  # fmt: skip
        return
    constants = len(FUNCTIONS[node.name].constants) if node.name in FUNCTIONS else 0
    for number, (kind, argument) in enumerate(zip(parameters, node.arguments, strict=True), 1):
        actual = kind_of(argument, params)
        if "any" not in (kind, actual) and kind != actual:
            yield (
                "K112", "error",
                f"argument {number} of `{node.name}` must be a {kind}, not a {actual}",
                argument.span or node.span, "the guard would never be true",
            )  # fmt: skip
        elif number > len(parameters) - constants and not isinstance(
            argument, ast.Literal | ast.Duration | ast.ParamRef
        ):
            yield (
                "K104", "error", f"argument {number} of `{node.name}` must be a constant",
                argument.span or node.span, "write the value itself, or the name of a parameter",
            )  # fmt: skip
