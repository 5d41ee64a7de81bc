"""The bodies of patterns, built from lark's tree.

Nested `Sequence`s and `Alternation`s are flattened; `Expressions` bounds the depth of a body.

The one rule: a group in parentheses beside a `not` is not flattened.
"""

from __future__ import annotations

from typing import cast

from lark import Token

from ketal.errors import Span
from ketal.grammar.expressions import Expressions
from ketal.grammar.parse_tree import ParseTree, span_of, subtrees
from ketal.model import syntax as ast


class Bodies:
    """Builds the body of one pattern; `expressions` builds the guards in it."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.limits = expressions.limits
        self.fault = expressions.fault

    def statement_body(self, tree: ParseTree) -> ast.Body:
        """Build the body of a `check` or a `find`."""
        return self._automaton(tree) if tree.data == "automaton" else self.body(tree)

    def body(self, tree: ParseTree, depth: int = 0) -> ast.Body:
        """Build a body."""
        node = self._block(tree, depth)
        # A lone `not N` is built as it was written; `ketal.analysis.name_resolution` rejects it.
        return ast.Sequence((node,), span=node.span) if isinstance(node, ast.Absent) else node

    def _block(self, tree: ParseTree, depth: int) -> ast.Body | ast.Absent:
        data, span = str(tree.data), span_of(tree)
        children = cast("list[ParseTree]", tree.children)
        if data == "step_name":
            return ast.Step(str(children[0]), span=span)
        inner = self.expressions.child_depth(depth, tree)
        if data == "group":
            return self.body(children[0], inner)
        if data == "absent":
            return ast.Absent(self._absent(children[0], inner), span=span)
        if data == "repeat":
            return self._repeat(children[0], cast(Token, tree.children[1]), span, inner)
        if data == "together":
            if len(children) > self.limits.together_max:
                self.fault(
                    "K003", f"braces contain {len(children)} blocks, more than "
                    f"{self.limits.together_max} (limit together_max)", span,
                    "split them, since each order of the blocks is a separate path, or raise the "
                    "limit",
                )  # fmt: skip
            return ast.Together(tuple(self.body(c, inner) for c in children), span=span)
        if data == "alternation":
            options: list[ast.Body] = []
            for child in children:
                node = self.body(child, inner)
                options.extend(node.items if isinstance(node, ast.Alternation) else (node,))
            return ast.Alternation(tuple(options), span=span)
        return ast.Sequence(
            _flattened([self._block(child, inner) for child in children]), span=span
        )

    def _automaton(self, tree: ParseTree) -> ast.AutomatonBody:
        first: dict[str, Span] = {}
        initial, finals = "", None
        edges = []
        for child in subtrees(tree):
            names = tuple(str(name) for name in child.children)
            if child.data == "edge":
                edges.append(ast.Edge(*names, span=span_of(child)))
                continue
            if str(child.data) in first:
                self.fault(
                    "K006", f"`{child.data}` occurs twice in one automaton", span_of(child),
                    f"the first is on line {first[str(child.data)].line};"
                    + (" write `final q0, q1;`" if child.data == "final" else " remove one"),
                )  # fmt: skip
            first.setdefault(str(child.data), span_of(child))
            if child.data == "initial":
                initial = names[0]
            else:
                finals = names
        return ast.AutomatonBody(initial, finals, tuple(edges), span=span_of(tree))

    def _absent(self, tree: ParseTree, depth: int) -> ast.Guard:
        if tree.data == "event_name":
            return ast.Name(str(tree.children[0]), span=span_of(tree))
        return self.expressions.guard(tree, depth)

    def _repeat(self, block: ParseTree, token: Token, span: Span, depth: int) -> ast.Body:
        least, most = self._counts(token)
        for count in (least, most or 0):
            if count > self.limits.repetitions_max:
                self.fault(
                    "K003", f"a step is repeated {count} times, more than "
                    f"{self.limits.repetitions_max} (limit repetitions_max)", span_of(token),
                    "use a smaller count, or raise the limit",
                )  # fmt: skip
                break
        return ast.Repeat(self.body(block, depth), least, most, span=span)

    def _counts(self, token: Token) -> tuple[int, int | None]:
        if token in ("*", "+", "?"):
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[str(token)]
        numbers = [
            self.expressions.literals.number(Token.new_borrow_pos("NUMBER", part.strip(), token))
            for part in str(token)[1:-1].split(",")
            if part.strip()
        ]
        least = int(numbers[0])
        if "," not in token:
            return least, least
        return least, int(numbers[1]) if len(numbers) == 2 else None


def _flattened(parts: list[ast.Body | ast.Absent]) -> tuple[ast.Body | ast.Absent, ...]:
    """Return the items of a sequence with these parts.

    The items of a group become items of the sequence around it, unless the group is beside a
    `not`, or begins or ends with one: then the `not` would get another neighbour than the one that
    the author's parentheses give it.
    """
    items: list[ast.Body | ast.Absent] = []
    for index, part in enumerate(parts):
        ends = parts[max(index - 1, 0) : index + 2]
        if isinstance(part, ast.Sequence):
            ends += (part.items[0], part.items[-1])
        if isinstance(part, ast.Sequence) and not any(isinstance(e, ast.Absent) for e in ends):
            items += part.items
        else:
            items.append(part)
    return tuple(items)
