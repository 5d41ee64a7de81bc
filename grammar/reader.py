"""The conversion of text to lark's tree, in bounded time and depth.

The tokens are fed to lark's LALR parser one by one, so that the reader knows the current statement
and the open brackets. So the nesting is checked before a tree is built, and `complaints` can
describe what was expected in words of the language.

The one rule: for every text the result is a tree or a PatternError.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import io
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import lark
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ketal.errors import Diagnostic, PatternError, PatternText, Span
from ketal.files.file_replacement import replace_file
from ketal.files.user_folders import cache_folder
from ketal.grammar.complaints import Bracket, Situation, diagnose
from ketal.model.limits import Limits

_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_]")
_OPTIONS: dict[str, Any] = {
    # Not strict, which would take longer than everything else; a test finds conflicts instead.
    "parser": "lalr",
    "propagate_positions": True,
    "maybe_placeholders": True,
}
_CACHE_NAME = "parser"
"""The name of the parser's file in the cache: a digest, a newline, and the parser as lark saves it.

The digest is of the inputs of the parser and of the saved parser."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, with its place in the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading: the tree, the text and the comments that the tree lacks."""

    tree: Tree[Token]
    source: PatternText
    comments: tuple[Comment, ...]


def grammar() -> str:
    """Return the grammar of the language, as lark reads it."""
    return importlib.resources.files("ketal.grammar").joinpath("pattern.lark").read_text("utf-8")


@lru_cache(maxsize=1)
def language() -> Lark:
    """Return the parser of the language, from the user's cache or new; save a new one there.

    To make a parser takes ten times as long as to load one, and longer than to judge a small log.
    """
    text = grammar()
    inputs = f"{text} {_OPTIONS} {lark.__version__} {sys.version_info[:2]}".encode()
    parser = _load_cached(inputs)
    if parser is None:
        parser = Lark(text, **_OPTIONS)
        _save_cached(parser, inputs)
    return parser


def _load_cached(inputs: bytes) -> Lark | None:
    """Return the parser in the cache; None if it is damaged, or was made from other inputs."""
    with contextlib.suppress(Exception):
        digest, _, saved = (cache_folder() / _CACHE_NAME).read_bytes().partition(b"\n")
        # A changed byte could give another parser, or make loading use all memory.
        if digest == _digest(inputs, saved):
            return Lark.load(io.BytesIO(saved))
    return None


def _save_cached(parser: Lark, inputs: bytes) -> None:
    saved = io.BytesIO()
    parser.save(saved)
    content = saved.getvalue()
    # If there is no home directory, or it is read-only, each process makes its own parser.
    with contextlib.suppress(OSError, RuntimeError):
        replace_file(cache_folder() / _CACHE_NAME, _digest(inputs, content) + b"\n" + content)


def _digest(inputs: bytes, saved: bytes) -> bytes:
    return hashlib.sha256(inputs + saved).hexdigest().encode()


def read(text: str, *, name: str, limits: Limits) -> Reading:
    """Read a pattern file into lark's tree; a PatternError for the first syntax error."""
    source = PatternText(text, name)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.pattern_bytes_max:
        message = (
            f"the file has {size} bytes, more than {limits.pattern_bytes_max} "
            "(limit pattern_bytes_max)"
        )
        hint = "split the file, or raise the limit"
        raise PatternError([Diagnostic("K003", "error", message, Span(1, 1, 1, 1), hint)], source)
    parser = language().parse_interactive(text)
    situation = Situation(text)
    comments: list[Comment] = []
    end = 0
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            start = token.start_pos or 0
            if _is_keyword_prefix(token, text):
                raise UnexpectedCharacters(text, start, token.line or 1, token.column or 1)
            parser.feed_token(token)
            situation.accept(token)
            comments += _comments(text, end, start)
            end = token.end_pos or start
            _check_depth(situation.brackets, source, limits)
        tree: Any = parser.feed_eof(situation.before)
    except UnexpectedInput as error:
        situation.position = _position(error, text)
        situation.expects = _expected(text, situation.count)
        situation.words = {
            t.name: t.pattern.value for t in language().terminals if t.pattern.type == "str"
        }
        raise PatternError([diagnose(situation)], source) from None
    comments += _comments(text, end, len(text))
    return Reading(tree, source, tuple(comments))


def _is_keyword_prefix(token: Token, text: str) -> bool:
    """Return whether a keyword is only the beginning of a longer word, as in `everynode`."""
    return str(token).isalpha() and _WORD.match(text, token.end_pos or 0) is not None


def _comments(text: str, start: int, end: int) -> list[Comment]:
    return [Comment(m.group(), m.start(), m.end()) for m in _COMMENT.finditer(text, start, end)]


def _check_depth(brackets: list[Bracket], source: PatternText, limits: Limits) -> None:
    # The braces of patterns and blocks do not count as nesting.
    depth = len(brackets) - (len(brackets) > 0 and brackets[0].block)
    if depth > limits.nesting_max:
        last = brackets[-1]
        raise PatternError([too_deep(last.line, last.column, limits)], source)


def too_deep(line: int, column: int, limits: Limits) -> Diagnostic:
    """Return the error of an expression that is nested beyond the limit."""
    return Diagnostic(
        "K003",
        "error",
        f"this is nested more than {limits.nesting_max} levels deep (limit nesting_max)",
        Span(line, column, line, column + 1),
        "reduce the nesting, for example by declaring a part of a guard as a separate event",
    )


def _expected(text: str, count: int) -> frozenset[str]:
    """Return the tokens that could follow the first `count` tokens.

    The parser that failed has already reduced because of the wrong token, and so accepts fewer
    tokens; a new parser is fed the tokens before it.
    """
    parser = language().parse_interactive(text)
    tokens = parser.lexer_thread.lex(parser.parser_state)
    for _ in range(count):
        parser.feed_token(next(tokens))
    return frozenset(parser.accepts())


def _position(error: UnexpectedInput, text: str) -> int:
    """Return the position of a syntax error."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text)
    return error.pos_in_stream or 0
