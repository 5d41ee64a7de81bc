"""Rendered files parse to the same syntax; formatting a text keeps its meaning."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ketal.analysis.name_resolution import resolve
from ketal.grammar import format_text, parse, render, render_body, render_guard
from ketal.grammar.reader import language
from ketal.model import syntax as ast
from ketal.model.syntax_walks import walk
from tests.property.asts import files
from tests.sampling import examples

# Longer than any drawn text, so that it occurs only where it was inserted.
MARK = "comment"
COMMENTS = (f"// {MARK}N ", f"/* {MARK}N */", f"/* {MARK}N\n     // ; }} */", f"/** {MARK}N **/")


@examples(8, 500)
@given(files(), st.data())
def test_parse_of_render_is_the_same_file(file: ast.File, data: st.DataObject) -> None:
    """A drawn file has no errors; a guard or a body alone is rendered on one line.

    Formatting keeps the syntax and every comment.
    """
    assert [d for d in resolve(file) if d.severity == "error"] == []
    text = render(file)
    assert parse(text) == file
    assert render(parse(text)) == text
    for node in walk(file):
        if isinstance(node, ast.StepDecl | ast.EventDecl):
            assert "\n" not in render_guard(node.guard)
    for pattern in file.patterns:
        assert "\n" not in render_body(pattern.body)
    commented, count = _commented(text, data)
    laid_out = format_text(commented)
    assert parse(laid_out) == parse(commented) == file
    assert format_text(laid_out) == laid_out
    for number in range(count):
        assert len(re.findall(rf"{MARK}{number}\b", laid_out)) == 1


def _commented(text: str, data: st.DataObject) -> tuple[str, int]:
    """Put comments and blank lines before some of the tokens of a text."""
    parser = language().parse_interactive(text)
    starts = [token.start_pos or 0 for token in parser.iter_parse()] + [len(text)]
    chosen = sorted(data.draw(st.lists(st.sampled_from(starts), max_size=6, unique=True)))
    for number, at in reversed(list(enumerate(chosen))):
        comment = data.draw(st.sampled_from(COMMENTS)).replace("N", str(number))
        before = data.draw(st.sampled_from(("", " ", "\n", "\n\n\n")))
        after = "\n" if comment.startswith("//") else data.draw(st.sampled_from((" ", "\n\n")))
        text = text[:at] + before + comment + after + text[at:]
    return text, len(chosen)
