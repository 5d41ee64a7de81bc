"""Names with dots, built from lark's tree: fields of events, attributes, parameters, references.

`ketal.grammar.bare_names` defines what a name means; this module makes a value of its tree.

The one rule: a name that has no value is reported to `fault` with what to write instead, and
`PLACEHOLDER` is returned for it.
"""

from __future__ import annotations

from typing import Any, cast

from lark import Token

from ketal.errors import Span
from ketal.grammar.bare_names import (
    DeclaredNames,
    misleading,
    misleading_after_step,
    reads_as_reference,
)
from ketal.grammar.literals import Literals
from ketal.grammar.parse_tree import Fault, ParseTree, span_of
from ketal.model import syntax as ast

PLACEHOLDER = ast.Literal(0)
"""The value in place of one for which a fault was reported."""


class DottedNames:
    """Builds the values of names in one scope."""

    def __init__(self, scope: DeclaredNames, literals: Literals, fault: Fault) -> None:
        self.scope = scope
        self.literals = literals
        self.fault = fault
        self.data = "data"
        """What hints write before the name of an attribute: in a `return`, with a step."""

    def value(self, tree: ParseTree) -> ast.Value:
        """Build the value of a name; a name without a value is a fault."""
        head, span = str(tree.children[0]), span_of(tree)
        path = tuple(self._part_name(cast(ParseTree, part)) for part in tree.children[1:])
        if (own_field := self._own_field(head, path, span, self.data)) is not None:
            return own_field
        if not path:
            return self._bare_name(head, span)
        if head in self.scope.params and head not in self.scope.declared:
            return self._refuse(
                span, f"the parameter `{head}` has no attributes",
                f"write `{self.data}.{head}` for an attribute of that name",
            )  # fmt: skip
        if reads_as_reference(head, self.scope):
            return self._reference(head, path, tree)
        return self._attribute((head, *path), span)

    def _own_field(
        self, head: str, rest: tuple[str, ...], span: Span, data: str
    ) -> ast.Attribute | ast.Field | ast.Literal | None:
        """Build a name that begins with `data` or an own field of the event; None for other names.

        `data` is how the attributes are written: `data`, perhaps after the name of a step.
        """
        if head == "data":
            if rest:
                return ast.Attribute(rest, span=span)
            message = "`data` is not a value: it contains all attributes of the event"
            return self._refuse(span, message, f"write `{data}.name`")
        if head in ast.EVENT_FIELDS:
            if not rest:
                return ast.Field(cast(Any, head), span=span)
            hint = f"write `{data}.{head}` for an attribute of that name"
            return self._refuse(span, f"the event field `{head}` has no attributes", hint)
        return None

    def _bare_name(self, name: str, span: Span) -> ast.Value:
        if name in self.scope.declared:
            return self._refuse(
                span, f"`{name}` is the name of an event or step, not of a value",
                f"write `{name}.attribute` for an attribute of its event, or "
                f"`{self.data}.{name}` for an attribute named `{name}`",
            )  # fmt: skip
        if name in self.scope.params:
            return ast.ParamRef(name, span=span)
        return self._attribute((name,), span)

    def _attribute(self, path: tuple[str, ...], span: Span) -> ast.Value:
        """Build an attribute that is written without `data.`; a misleading word is a fault."""
        reason = misleading(path)
        if reason is None:
            return ast.Attribute(path, span=span)
        why, instead = reason
        self.fault(
            "K014", f"`{path[0]}` would be read as an attribute: {why}", span,
            f"{instead}; write `{self.data}.{path[0]}` for an attribute of that name",
        )  # fmt: skip
        return PLACEHOLDER

    def _reference(self, head: str, path: tuple[str, ...], tree: ParseTree) -> ast.Value:
        span = span_of(tree)
        of = None
        if cast(ParseTree, tree.children[1]).data == "part":
            if (instead := misleading_after_step(path)) is not None:
                name = path[0]
                self.fault(
                    "K014",
                    f"`{head}.{name}` would be read as an attribute of the event of `{head}`",
                    span, f"{instead}, or write `{head}.data.{name}` for the attribute",
                )  # fmt: skip
                return PLACEHOLDER
            of = self._own_field(path[0], path[1:], span, f"{head}.data")
        if isinstance(of, ast.Literal):
            return of
        return ast.Reference(head, of or ast.Attribute(path, span=span), span=span)

    def _refuse(self, span: Span, message: str, hint: str) -> ast.Literal:
        self.fault("K012", message, span, hint)
        return PLACEHOLDER

    def _part_name(self, tree: ParseTree) -> str:
        token = cast(Token, tree.children[0])
        return self.literals.string(token) if tree.data == "key" else str(token)
