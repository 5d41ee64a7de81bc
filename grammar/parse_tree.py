"""Functions on lark's tree that the builders of syntax share: spans, subtrees, words.

The one rule: a tree without a place, as lark gives an empty one, is at the beginning of the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from lark import Token, Tree

from ketal.errors import Span, nearest

ParseTree: TypeAlias = Tree[Token]
Fault: TypeAlias = Callable[..., None]
"""Reports an error: its code, message, place and hint."""


def span_of(item: ParseTree | Token) -> Span:
    """Return the span of a token or a tree."""
    at: Any = item.meta if isinstance(item, Tree) else item
    if not hasattr(at, "line"):
        return Span(1, 1, 1, 2)
    return Span(at.line, at.column, at.end_line, at.end_column)


def subtrees(tree: ParseTree) -> list[ParseTree]:
    """Return the children of a tree that are trees, not tokens."""
    return [child for child in tree.children if isinstance(child, Tree)]


def bare_word(tree: ParseTree) -> str | None:
    """Return the word that an expression consists of; None if it is more than a word."""
    return str(tree.children[0]) if tree.data == "path" and len(tree.children) == 1 else None


def report_unknown_word(fault: Fault, what: str, word: Token, choices: tuple[str, ...]) -> None:
    """Report a word that is none of the choices; suggest the nearest choice, or list all."""
    meant = nearest(word, choices, any_case=True)
    listed = ", ".join(f"`{choice}`" for choice in choices[:-1]) + f" or `{choices[-1]}`"
    hint = f"did you mean `{meant}`?" if meant else f"write {listed}"
    fault("K011", f"unknown {what} `{word}`", span_of(word), hint)
