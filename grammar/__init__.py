"""The pattern language: text to syntax tree and back.

`parse` reads a pattern file into the nodes of `ketal.model.syntax`, `render` writes nodes as
canonical text, and `format_text` rewrites a text in the canonical layout with all its comments.
`parse(render(p)) == p` for every p, and `format_text` never changes the result of `parse`.

The one rule: only this folder imports lark, and only when a text is read.
"""

from __future__ import annotations

from ketal.grammar.printer import render, render_body, render_guard, render_value
from ketal.model.limits import DEFAULT, Limits
from ketal.model.syntax import File

__all__ = ["format_text", "parse", "render", "render_body", "render_guard", "render_value"]


def parse(text: str, *, name: str = "<pattern>", limits: Limits = DEFAULT) -> File:
    """Read a pattern file.

    Parameters
    ----------
    text : str
        The text of the file.
    name : str
        The name of the file in messages.
    limits : Limits
        The limits for its size, nesting, repetitions and regular expressions.

    Returns
    -------
    File
        The syntax as written, with spans; names and types are checked by
        `ketal.analysis.name_resolution`, not here.

    Raises
    ------
    PatternError
        If the text is not a pattern file; its `source` is the text.
    """
    from ketal.grammar.builder import build
    from ketal.grammar.reader import read

    return build(read(text, name=name, limits=limits), limits)


def format_text(text: str, *, name: str = "<pattern>", limits: Limits = DEFAULT) -> str:
    """Return a pattern file in canonical layout, with every comment and the order of statements.

    A comment stays with its statement: a comment above or inside of a statement is written above
    it, a comment after a statement on the same line stays there. One or more blank lines between
    statements become one.

    Raises
    ------
    PatternError
        If the text is not a pattern file.
    """
    from ketal.grammar.formatting import lay_out
    from ketal.grammar.reader import read

    return lay_out(read(text, name=name, limits=limits), limits)
