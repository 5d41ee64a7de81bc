"""The pattern language: text to syntax tree and back.

`parse` reads a pattern file into the nodes of `ketal.model.syntax`, `render` writes
nodes as canonical text, and `format_text` lays a text out anew without losing
a comment. `parse(render(p)) == p` for every p, and `format_text` never changes
what `parse` reads.

The one rule: lark stays in this folder, and is imported when a text is read,
not before.
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
        What messages call it.
    limits : Limits
        Bounds of its size, nesting, repetitions and regular expressions.

    Returns
    -------
    File
        The syntax as written, with spans; names and types are checked by
        `ketal.analysis.name_resolution`, not here.

    Raises
    ------
    PatternError
        If the text is no pattern file; its `source` is the text.
    """
    from ketal.grammar.builder import build
    from ketal.grammar.reader import read

    return build(read(text, name=name, limits=limits), limits)


def format_text(text: str, *, name: str = "<pattern>", limits: Limits = DEFAULT) -> str:
    """Lay a pattern file out canonically, keeping every comment and the order.

    Comments stay at the statement they stand at: those above it and inside of
    it go above, those behind it on its line stay behind it. One blank line is
    kept where there was one or more.

    Raises
    ------
    PatternError
        If the text is no pattern file.
    """
    from ketal.grammar.formatting import lay_out
    from ketal.grammar.reader import read

    return lay_out(read(text, name=name, limits=limits), limits)
