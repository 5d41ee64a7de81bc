"""Formatting is canonical and idempotent, and keeps every comment in its place."""

from __future__ import annotations

import pytest

from ketal.errors import PatternError
from ketal.grammar import format_text, parse
from tests.grammar.test_parse import FORKED_BLOCKS, REPLICATED_STACK


def formatted(text: str) -> str:
    once = format_text(text)
    assert format_text(once) == once
    assert parse(once) == parse(text)
    return once


def test_statements_keep_their_order_and_single_blank_lines() -> None:
    assert formatted(
        "event  E=x==1;pattern P{check E ;\n\n\n\norder   arrival;\non violation\nskip;}"
    ) == (
        "event E = x == 1;\n"
        "\n"
        "pattern P {\n"
        "    check E;\n"
        "\n"
        "    order arrival;\n"
        "    on violation skip;\n"
        "}\n"
    )


def test_comments_stay_at_their_statement() -> None:
    text = """\
/* the licence
   of this file */

// of E
event E = true; // behind E
pattern P /* of the head */ { // of the brace
      // above
  A = x == 1 // inside
      && E;  /* behind A */ // and more
  // below
  check A;

  // last
} // behind P
// end"""
    assert (
        formatted(text)
        == """\
/* the licence
   of this file */

// of E
event E = true;  // behind E
/* of the head */
pattern P {
    // of the brace
    // above
    // inside
    A = x == 1 && E;  /* behind A */ // and more
    // below
    check A;

    // last
}  // behind P

// end
"""
    )


def test_comments_stay_within_their_block() -> None:
    text = """\
pattern P {
    topology { p -> q; // first
        /* second */ q->r relaxed; }
    check automaton { // states
        initial q0; q0 -> q0 on E; /* } */ }; // done
    event E = true;
}"""
    assert (
        formatted(text)
        == """\
pattern P {
    topology {
        p -> q;  // first
        /* second */
        q -> r relaxed;
    }
    check automaton {
        // states
        initial q0;
        q0 -> q0 on E;  /* } */
    }  // done
    event E = true;
}
"""
    )


def test_moved_block_comment_keeps_its_shape() -> None:
    text = "pattern P {\n  /* one\n     two\n   */\n  event E = true; check E;\n}"
    assert formatted(text) == (
        "pattern P {\n    /* one\n       two\n     */\n    event E = true;\n    check E;\n}\n"
    )


def test_long_guard_is_broken_at_its_outermost_operator() -> None:
    operands = [f'(type == "{"t" * 12}{n}" || x > {n})' for n in range(4)]
    text = f"pattern P {{ event E = {' && '.join(operands)}; check E; }}"
    assert formatted(text) == (
        "pattern P {\n"
        f"    event E = {operands[0]}\n"
        + "".join(f"        && {operand}\n" for operand in operands[1:-1])
        + f"        && {operands[-1]};\n"
        "    check E;\n"
        "}\n"
    )


def test_long_trailing_comment_does_not_break_its_statement() -> None:
    comment = "// " + "x" * 200
    text = f"pattern P {{ event E = true; {comment}\n check E; }}"
    assert f"    event E = true;  {comment}\n" in formatted(text)


def test_examples_keep_their_comments() -> None:
    for text in (REPLICATED_STACK, FORKED_BLOCKS):
        assert formatted(text).count("//") == text.count("//")


def test_windows_line_ends_are_normalised() -> None:
    text = "// a\r\npattern P {\r\n    event E = true; // b\r\n\r\n    check E;\r\n}\r\n"
    assert formatted(text) == ("// a\npattern P {\n    event E = true;  // b\n\n    check E;\n}\n")


def test_invalid_text_is_not_formatted() -> None:
    with pytest.raises(PatternError, match=r"p\.ketal:1:11"):
        format_text("pattern P check E; }", name="p.ketal")
    with pytest.raises(PatternError, match="K005"):
        format_text("pattern P { event E = true; find next E; within 5 secs; }")


def test_format_and_parse_report_the_same_error() -> None:
    for guard in ("!" * 100 + "X", "x == 5 secs && " + "!" * 100 + "X"):
        text = f"pattern P {{ event E = {guard}; check E; }}"
        faults = []
        for read in (parse, format_text):
            with pytest.raises(PatternError) as caught:
                read(text, name="p.ketal")
            faults.append(str(caught.value))
        assert faults[0] == faults[1]
        assert "p.ketal:1:" in faults[0]
