"""`order` statements and the options of CausalOrder, from lark's tree.

The one rule: an option that is faulty is left out of the Order.
"""

from __future__ import annotations

from typing import Any, cast

from lark import Token

from ketal.grammar.expressions import Expressions
from ketal.grammar.parse_tree import (
    ParseTree,
    bare_word,
    report_unknown_word,
    span_of,
    subtrees,
)
from ketal.model import syntax as ast

OVERFLOW = {"reject": "refuses the arriving event", "lost": "gives up the oldest hole"}
"""What a full hold-back queue does, by the word of the option `overflow`."""


class OrderOptions:
    """Builds the order of one pattern, whose values `expressions` builds."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.fault = expressions.fault

    def order(self, tree: ParseTree) -> ast.Order:
        """Build an `order` statement."""
        kind = cast(Token, tree.children[0])
        if kind not in ("arrival", "CausalOrder"):
            report_unknown_word(self.fault, "order", kind, ("arrival", "CausalOrder"))
        options: dict[str, Any] = {}
        for option in subtrees(tree):
            name = cast(Token, option.children[0])
            value = cast(ParseTree, option.children[1]) if len(option.children) > 1 else None
            if name in options:
                self.fault("K006", f"the option `{name}` stands twice", span_of(option))
            options[str(name)] = self._option(name, value)
        options = {name: value for name, value in options.items() if name in ast.ORDER_OPTIONS}
        causal = "arrival" if kind == "arrival" else "causal"
        return ast.Order(cast(Any, causal), **options, span=span_of(tree))

    def _option(self, name: Token, value: ParseTree | None) -> Any:
        if name not in ast.ORDER_OPTIONS:
            report_unknown_word(self.fault, "option of CausalOrder", name, ast.ORDER_OPTIONS)
            return None
        if name == "total":
            if value is not None:
                self.fault("K011", "`total` takes no value", span_of(value), "write `total`")
            return True
        example = {"nodes": '["a", "b"]', "overflow": "reject"}.get(name, "10 s")
        if value is None:
            self.fault(
                "K011", f"`{name}` wants a value", span_of(name), f"write `{name} = {example}`"
            )
            return None
        if name == "nodes":
            return self._nodes(self.expressions.value(value, lists=True), value)
        if name == "overflow":
            word = bare_word(value)
            if word not in OVERFLOW:
                words = " or ".join(f"`{word}`" for word in OVERFLOW)
                self.fault(
                    "K011", f"a full hold-back queue does {words}", span_of(value),
                    ", ".join(f"`{word}` {does}" for word, does in OVERFLOW.items()),
                )  # fmt: skip
                return None
            return word
        return self.expressions.length(
            value, f"`{name}` is a duration", f"write `{name} = {example}`"
        )

    def _nodes(self, node: ast.Value, tree: ParseTree) -> tuple[str, ...] | None:
        items = node.items if isinstance(node, ast.ListOf) else ()
        strings = tuple(
            item.value
            for item in items
            if isinstance(item, ast.Literal) and isinstance(item.value, str)
        )
        if not items or len(strings) != len(items):
            self.fault(
                "K011", "`nodes` is a list of strings", span_of(tree), 'write `nodes = ["a", "b"]`'
            )
            return None
        return strings
