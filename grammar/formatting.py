"""The canonical layout of a text, with its comments and its order of statements.

The printer writes statements; this module preserves what the syntax tree does not have: comments,
single blank lines, and the order of statements. A comment stays with its statement: above it, or
after it on the same line; a comment inside of a statement is moved above it.

The one rule: formatting is idempotent, and never changes the syntax.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias, cast

from ketal.grammar import printer
from ketal.grammar.bare_names import DeclaredNames
from ketal.grammar.builder import Builder, build, names_declared
from ketal.grammar.parse_tree import ParseTree, subtrees
from ketal.grammar.reader import Comment, Reading
from ketal.model import syntax as ast
from ketal.model.limits import Limits

_Write: TypeAlias = Callable[[ParseTree], "list[str]"]
_start = attrgetter("start")


def lay_out(reading: Reading, limits: Limits) -> str:
    """Return the text of a file in canonical layout; see `ketal.grammar.format_text`."""
    # The whole file is built first, since a file with a fault must not be rewritten.
    build(reading, limits)
    return "\n".join(_Formatter(reading, limits).file()) + "\n"


@dataclass(slots=True)
class _Piece:
    """A statement, or a comment on a line of its own, with its place in the text."""

    start: int
    end: int
    lines: list[str]
    block: bool = False
    """Whether it is a pattern, which is separated by blank lines."""
    comment: bool = False
    behind: list[Comment] = field(default_factory=list)


class _Formatter:
    """Writes blocks of statements, with the comments between and inside of them."""

    def __init__(self, reading: Reading, limits: Limits) -> None:
        self.tree = reading.tree
        self.text = reading.source.text
        self.comments = list(reading.comments)
        code: list[str] = []  # the text with spaces in place of comments
        end = 0
        for comment in self.comments:
            code += self.text[end : comment.start], " " * (comment.end - comment.start)
            end = comment.end
        self.code = "".join([*code, self.text[end:]])
        self.builder = Builder(limits)

    def file(self) -> list[str]:
        """Write the whole file."""
        shared = names_declared(self.tree)

        def write(tree: ParseTree) -> list[str]:
            if tree.data == "pattern":
                return self._pattern(tree, shared)
            return self._statement(tree, shared)

        return self._block(subtrees(self.tree), write, 0, len(self.text))

    def _pattern(self, tree: ParseTree, shared: DeclaredNames) -> list[str]:
        scope = names_declared(tree, shared)
        head = f"pattern {tree.children[0]}"
        return self._block_in_braces(tree, head, lambda child: self._statement(child, scope))

    def _block_in_braces(self, tree: ParseTree, head: str, write: _Write) -> list[str]:
        """Write a block in braces, with the comments inside of it."""
        start = self.code.index("{", tree.meta.start_pos) + 1
        end = self.code.rindex("}", 0, tree.meta.end_pos)
        return printer.in_braces(head, self._block(subtrees(tree), write, start, end))

    def _block(self, trees: list[ParseTree], write: _Write, start: int, end: int) -> list[str]:
        pieces: list[_Piece] = []
        position = start
        for tree in trees:
            first, last = tree.meta.start_pos, tree.meta.end_pos
            pieces += self._loose_comments(position, first, pieces[-1:])
            # Written first, since a block consumes the comments inside of it.
            lines = write(tree)
            inside = self._consume_comments(first, last)
            pieces += [_Piece(first, first, self._comment_lines(c), comment=True) for c in inside]
            pieces.append(_Piece(first, last, lines, block=tree.data == "pattern"))
            position = last
        pieces += self._loose_comments(position, end, pieces[-1:])
        return self._join_pieces(pieces, start)

    def _loose_comments(self, start: int, end: int, before: list[_Piece]) -> list[_Piece]:
        """Consume the comments between two statements; return those on lines of their own.

        A comment on the last line of the statement `before` is attached to that statement.
        """
        pieces = []
        for comment in self._consume_comments(start, end):
            stands_alone = not before or before[0].comment
            if not stands_alone and self.text.find("\n", before[0].end, comment.start) < 0:
                before[0].behind.append(comment)
            else:
                lines = self._comment_lines(comment)
                pieces.append(_Piece(comment.start, comment.end, lines, comment=True))
        return pieces

    def _join_pieces(self, pieces: list[_Piece], start: int) -> list[str]:
        lines: list[str] = []
        position = start
        for index, piece in enumerate(pieces):
            previous = pieces[index - 1] if index else None
            blank = self.text.count("\n", position, piece.start) > 1
            apart = previous is not None and (
                previous.block or (piece.block and not previous.comment)
            )
            if previous is not None and (blank or apart):
                lines.append("")
            lines += piece.lines
            for count, comment in enumerate(piece.behind):
                first, *rest = self._comment_lines(comment, piece.start)
                lines[-1] += (" " if count else "  ") + first
                lines += rest
            position = max(position, piece.end, *(comment.end for comment in piece.behind))
        return lines

    # --- comments ---

    def _consume_comments(self, start: int, end: int) -> list[Comment]:
        first, last = (
            bisect_left(self.comments, position, key=_start) for position in (start, end)
        )
        taken = self.comments[first:last]
        del self.comments[first:last]
        return taken

    def _comment_lines(self, comment: Comment, base: int | None = None) -> list[str]:
        """Return the lines of a comment, dedented by the indentation of the line at `base`."""
        position = comment.start if base is None else base
        line = self.text[self.text.rfind("\n", 0, position) + 1 : position]
        indent = len(line) - len(line.lstrip())
        first, *rest = (text.rstrip() for text in comment.text.split("\n"))
        return [first, *(text[min(indent, len(text) - len(text.lstrip())) :] for text in rest)]

    # --- statements ---

    def _statement(self, tree: ParseTree, scope: DeclaredNames) -> list[str]:
        node = self.builder.statement(tree, scope)
        match node:
            case ast.ParamDecl() | ast.EventDecl() | ast.StepDecl():
                return printer.declaration(node, scope).split("\n")
            case {"body": _}:
                return self._body(tree, node, scope)
            case {"topology": topology}:
                edges = iter(topology.edges)
                head = printer.topology_head(topology)
                return self._block_in_braces(tree, head, lambda _: [printer.link(next(edges))])
        ((name, value),) = node.items()
        return [printer.clause(name, value, scope)]

    def _body(self, tree: ParseTree, parts: dict[str, Any], scope: DeclaredNames) -> list[str]:
        body = cast(ParseTree, tree.children[1])
        if body.data != "automaton":
            text = printer.body_statement(parts["kind"], parts["strategy"], parts["body"], scope)
            return [text]
        head = printer.body_head(parts["kind"], parts["strategy"])
        return self._block_in_braces(body, f"{head} automaton", _automaton_statement)


def _automaton_statement(tree: ParseTree) -> list[str]:
    names = [str(name) for name in tree.children]
    if tree.data == "edge":
        return [printer.edge(ast.Edge(*names))]
    return [f"{tree.data} {', '.join(names)};"]
