"""Guards and values, built from lark's tree.

A tree may have a guard where the language requires a value, and the reverse: both may begin with
`(`, so the grammar cannot distinguish them. Both are faults that are reported here. Nested `And`s
and `Or`s are flattened. The depth of the syntax is bounded, so that later code may recurse over it.

The one rule: a fault is reported to `fault`, and a placeholder is returned for the faulty part, so
that the rest of the file is still checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from lark import Token

from ketal.errors import PatternError, Span, nearest
from ketal.grammar.bare_names import DeclaredNames, is_own_text
from ketal.grammar.complaints import NOT_HINT
from ketal.grammar.dotted_names import PLACEHOLDER, DottedNames
from ketal.grammar.literals import Literals
from ketal.grammar.parse_tree import Fault, ParseTree, bare_word, span_of
from ketal.grammar.printer import render_value
from ketal.grammar.reader import too_deep
from ketal.model import syntax as ast
from ketal.model.guard_functions import FUNCTIONS, GUARD_WORDS
from ketal.model.limits import Limits

GUARDS = frozenset(
    {
        "or", "and", "not", "comparison", "membership", "matches", "localhost", "function",
        "call", "predicate", "causal", "conc",
    }
)  # fmt: skip


class Expressions:
    """Builds the expressions of one scope."""

    def __init__(self, scope: DeclaredNames, limits: Limits, fault: Fault) -> None:
        self.scope = scope
        self.limits = limits
        self.fault = fault
        self.literals = Literals(limits, fault)
        self.names = DottedNames(scope, self.literals, fault)

    def child_depth(self, depth: int, tree: ParseTree) -> int:
        """Return the depth of the children of `tree`, which is at `depth`.

        A PatternError if that is more than `nesting_max`.
        """
        if depth + 1 > self.limits.nesting_max:
            span = span_of(tree)
            raise PatternError([too_deep(span.line, span.column, self.limits)])
        return depth + 1

    # --- guards ---

    def guard(self, tree: ParseTree, depth: int = 0) -> ast.Guard:
        """Build a guard; a value is a fault."""
        data = str(tree.data)
        if data == "paren":
            return self.guard(cast(ParseTree, tree.children[0]), self.child_depth(depth, tree))
        if data in ("true", "false"):
            return ast.Truth(data == "true", span=span_of(tree))
        name = bare_word(tree)
        if name is not None and name not in ("data", *ast.EVENT_FIELDS):
            return ast.Name(name, span=span_of(tree))
        if data not in GUARDS:
            self._report_no_guard(tree)
            return ast.Truth(True)
        make: Callable[[ParseTree, int], ast.Guard] = getattr(self, f"_{data}")
        return make(tree, self.child_depth(depth, tree))

    def _report_no_guard(self, tree: ParseTree) -> None:
        hint = "compare it with another value, for example `x == 1`"
        if tree.data == "path":
            value = self.value(tree)
            if isinstance(value, ast.Attribute | ast.Reference):
                hint = f"write `{render_value(value, self.scope)} == true` for a boolean"
        self.fault("K008", "expected a guard, found a value", span_of(tree), hint)

    def _or(self, tree: ParseTree, depth: int) -> ast.Guard:
        node_class = ast.Or if tree.data == "or" else ast.And
        operands: list[ast.Guard] = []
        for child in tree.children:
            node = self.guard(cast(ParseTree, child), depth)
            operands.extend(node.operands if isinstance(node, node_class) else (node,))
        return node_class(tuple(operands), span=span_of(tree))

    _and = _or

    def _not(self, tree: ParseTree, depth: int) -> ast.Guard:
        return ast.Not(self.guard(cast(ParseTree, tree.children[0]), depth), span=span_of(tree))

    def _comparison(self, tree: ParseTree, depth: int) -> ast.Guard:
        left, op, right = cast("tuple[ParseTree, Token, ParseTree]", tree.children)
        first, second = self._compared_values(left, [right], depth)
        return ast.Comparison(cast(Any, str(op)), first, second, span=span_of(tree))

    def _membership(self, tree: ParseTree, depth: int) -> ast.Guard:
        value, items = cast("tuple[ParseTree, ParseTree]", tree.children)
        first, *others = self._compared_values(value, self._item_trees(items), depth)
        return ast.Membership(first, tuple(others), span=span_of(tree))

    def _compared_values(
        self, left: ParseTree, others: list[ParseTree], depth: int
    ) -> list[ast.Value]:
        """Build a value and the values that it is compared with.

        A bare word that is compared with the event's own `type` or `node` is a fault.
        """
        values = [self.value(tree, depth) for tree in (left, *others)]
        for tree, value in zip(others, values[1:], strict=True):
            word = bare_word(tree)
            if word is not None and is_own_text(values[0]) and isinstance(value, ast.Attribute):
                self.fault(
                    "K014", f"`{word}` without quotes is an attribute, not a string", span_of(tree),
                    f"write `\"{word}\"` for the string, `data.{word}` for the attribute",
                )  # fmt: skip
        return values

    def _matches(self, tree: ParseTree, depth: int) -> ast.Guard:
        value, regex = cast("tuple[ParseTree, Token]", tree.children)
        return ast.Matches(self.value(value, depth), self.literals.regex(regex), span=span_of(tree))

    def _localhost(self, tree: ParseTree, depth: int) -> ast.Guard:
        return ast.Localhost(span=span_of(tree))

    def _predicate(self, tree: ParseTree, depth: int) -> ast.Guard:
        name, argument = cast("tuple[Token, ParseTree]", tree.children)
        value = self.value(argument, depth)
        of_event = isinstance(value, ast.Field | ast.Attribute | ast.Reference)
        if name == "exists" and not of_event and value is not PLACEHOLDER:
            self.report_no_attribute(value, span_of(tree), "`exists` requires an attribute")
            value = ast.Field("id")
        return ast.Function(str(name), (value,), span=span_of(tree))

    def report_no_attribute(self, value: ast.Value, span: Span, message: str) -> None:
        """Report that a value is not an attribute of the event; name a parameter or a step."""
        hint = "write `data.name` for an attribute whose name has another meaning"
        match value:
            case ast.ParamRef(name=name):
                message = f"{message}, and `{name}` is a parameter"
                hint = f"write `data.{name}` for the attribute"
            case ast.Reference(step=step, of=of):
                message = f"{message}, and `{step}` is the name of an event or step"
                hint = f"write `{render_value(of)}`"
        self.fault("K013", message, span, hint)

    def _function(self, tree: ParseTree, depth: int) -> ast.Guard:
        name = cast(Token, tree.children[0])
        arguments = [cast(ParseTree, a) for a in tree.children[1:] if a is not None]
        of_events = any(self._is_guard(argument) for argument in arguments)
        meant = nearest(name, GUARD_WORDS, 0.7 if of_events else 1, any_case=True)
        is_not = name.lower() == "not"
        if name not in FUNCTIONS and (of_events or is_not or meant is not None):
            message, hint = f"unknown guard `{name}`", f"did you mean `{meant}`?"
            if is_not:
                message, hint = f"`{name}` is not a guard operator", NOT_HINT
            elif meant is None:
                message = f"no guard `{name}` takes events"
                hint = (
                    "only `Causal(…)` and `Conc(…)` take events; pass values to a registered "
                    "guard: `Step.attribute`, `data.name`"
                )
            # Its arguments may be guards; building them as values would add confusing faults.
            self.fault("K011", message, span_of(name), hint)
            return ast.Truth(True)
        values = tuple(self.value(argument, depth) for argument in arguments)
        return ast.Function(str(name), values, span=span_of(tree))

    def _is_guard(self, tree: ParseTree) -> bool:
        """Return whether an argument is a guard, or the name of an event or a step."""
        while tree.data == "paren":
            tree = cast(ParseTree, tree.children[0])
        return tree.data in GUARDS or bare_word(tree) in self.scope.declared

    def _call(self, tree: ParseTree, depth: int) -> ast.Guard:
        result, target, *arguments = cast("list[Token | None]", tree.children)
        for glob in (result, target, *arguments):
            if glob is not None and "..." in glob:
                self.fault(
                    "K011", "`...` is not a wildcard in `call`", span_of(glob),
                    "write `..` for any arguments, or for any number of parts of a name; for a "
                    'type that has these dots, `type == "…"`',
                )  # fmt: skip
        types = tuple(str(a) for a in arguments if a is not None)
        return ast.Call(str(result), str(target), types, span=span_of(tree))

    def _causal(self, tree: ParseTree, depth: int) -> ast.Guard:
        node_class = ast.Causal if tree.data == "causal" else ast.Conc
        guard, anchor = cast("tuple[ParseTree, Token | None]", tree.children)
        return node_class(
            self.guard(guard, depth),
            str(anchor or ast.PRIOR),
            anchor_span=None if anchor is None else span_of(anchor),
            span=span_of(tree),
        )

    _conc = _causal

    # --- values ---

    def value(self, tree: ParseTree, depth: int = 0, *, lists: bool = False) -> ast.Value:
        """Build a value; a guard, and a list unless `lists`, is a fault."""
        data = str(tree.data)
        if data == "paren":
            inner = cast(ParseTree, tree.children[0])
            return self.value(inner, self.child_depth(depth, tree), lists=lists)
        if data in GUARDS:
            self._report_no_value(tree)
            return PLACEHOLDER
        if data == "list":
            if not lists:
                self.fault(
                    "K013", "a list is not allowed here", span_of(tree),
                    "use lists only after `in`, in `return` and in `nodes = […]`",
                )  # fmt: skip
            inner_depth = self.child_depth(depth, tree)
            items = (self.value(item, inner_depth, lists=lists) for item in self._item_trees(tree))
            return ast.ListOf(tuple(items), span=span_of(tree))
        span, token = span_of(tree), cast(Token, tree.children[0] if tree.children else "")
        match data:
            case "string":
                return ast.Literal(self.literals.string(token), span=span)
            case "number":
                return ast.Literal(self.literals.number(token), span=span)
            case "true" | "false":
                return ast.Literal(data == "true", span=span)
            case "duration":
                return self.literals.duration(tree)
            case "path":
                return self.names.value(tree)
            case "negative":
                return self._negative(tree, depth)
        return self._sum(tree, depth)

    def _report_no_value(self, tree: ParseTree) -> None:
        message = "expected a value, found a guard"
        hint = "write `g` instead of `g == true`, `!g` instead of `g == false`"
        if tree.data == "function":
            message = f"the language has no function `{tree.children[0]}` that returns a value"
            hint = (
                "have the program log the value as an attribute, or register a guard that "
                "compares it; use `return count;` to count matches"
            )
        self.fault("K008", message, span_of(tree), hint)

    def _item_trees(self, tree: ParseTree) -> list[ParseTree]:
        """Return the trees of a list's items; an empty list is a fault."""
        items = [cast(ParseTree, child) for child in tree.children if child is not None]
        if not items:
            self.fault(
                "K013", "this list is empty", span_of(tree), 'write `[1, 2]` or `["a", "b"]`'
            )
        return items

    def _sum(self, tree: ParseTree, depth: int) -> ast.Value:
        inner = self.child_depth(depth, tree)
        ops = tuple(cast(Any, str(op)) for op in tree.children[1::2])
        first, *others = (self.value(cast(ParseTree, child), inner) for child in tree.children[::2])
        if isinstance(first, ast.Arithmetic) and (first.ops[0] in "+-") == (ops[0] in "+-"):
            # `(a + b) + c` is `a + b + c`, which is evaluated from the left.
            return ast.Arithmetic(
                (*first.ops, *ops), (*first.operands, *others), span=span_of(tree)
            )
        return ast.Arithmetic(ops, (first, *others), span=span_of(tree))

    def _negative(self, tree: ParseTree, depth: int) -> ast.Value:
        inner = cast(ParseTree, tree.children[1])
        value = self.value(inner, self.child_depth(depth, tree))
        # `-3` is a negative number; `-(3)` and `-(-3)` are negations.
        if inner.data == "number" and isinstance(value, ast.Literal):
            return ast.Literal(-cast(int, value.value), span=span_of(tree))
        return ast.Negative(value, span=span_of(tree))

    def length(
        self, tree: ParseTree, message: str, hint: str
    ) -> ast.Duration | ast.ParamRef | None:
        """Build a duration or the name of a parameter; anything else is a fault."""
        if (name := bare_word(tree)) is not None:
            return ast.ParamRef(name, span=span_of(tree))
        value = self.value(tree)
        if isinstance(value, ast.Duration):
            return value
        if isinstance(value, ast.Literal) and type(value.value) in (int, float):
            hint = "add a unit: " + hint
        self.fault("K013", message, span_of(tree), hint)
        return None
