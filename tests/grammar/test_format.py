"""Laying out a text: canonical, idempotent, with every comment where it belongs."""

from __future__ import annotations

import pytest

from ketal.errors import PatternError
from ketal.grammar import format_text, parse
from tests.grammar.test_parse import FORKED_BLOCKS, REPLICATED_STACK


def laid_out(text: str) -> str:
    once = format_text(text)
    assert format_text(once) == once
    assert parse(once) == parse(text)
    return once


def test_statements_keep_their_order_and_single_blank_lines() -> None:
    assert laid_out(
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
        laid_out(text)
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


def test_blocks_hold_their_comments() -> None:
    text = """\
pattern P {
    topology { p -> q; // first
        /* second */ q->r relaxed; }
    check automaton { // states
        initial q0; q0 -> q0 on E; /* } */ }; // done
    event E = true;
}"""
    assert (
        laid_out(text)
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


def test_a_block_comment_keeps_its_shape_when_it_moves() -> None:
    text = "pattern P {\n  /* one\n     two\n   */\n  event E = true; check E;\n}"
    assert laid_out(text) == (
        "pattern P {\n    /* one\n       two\n     */\n    event E = true;\n    check E;\n}\n"
    )


def test_a_long_guard_is_broken_at_its_outermost_operator() -> None:
    operands = [f'(type == "{"t" * 12}{n}" || x > {n})' for n in range(4)]
    text = f"pattern P {{ event E = {' && '.join(operands)}; check E; }}"
    assert laid_out(text) == (
        "pattern P {\n"
        f"    event E = {operands[0]}\n"
        + "".join(f"        && {operand}\n" for operand in operands[1:-1])
        + f"        && {operands[-1]};\n"
        "    check E;\n"
        "}\n"
    )


def test_a_long_comment_behind_a_statement_does_not_break_it() -> None:
    comment = "// " + "x" * 200
    text = f"pattern P {{ event E = true; {comment}\n check E; }}"
    assert f"    event E = true;  {comment}\n" in laid_out(text)


def test_the_examples_keep_their_comments() -> None:
    for text in (REPLICATED_STACK, FORKED_BLOCKS):
        assert laid_out(text).count("//") == text.count("//")


def test_line_ends_of_windows_become_plain() -> None:
    text = "// a\r\npattern P {\r\n    event E = true; // b\r\n\r\n    check E;\r\n}\r\n"
    assert laid_out(text) == ("// a\npattern P {\n    event E = true;  // b\n\n    check E;\n}\n")


def test_what_is_not_understood_is_not_laid_out() -> None:
    with pytest.raises(PatternError, match=r"p\.ketal:1:11"):
        format_text("pattern P check E; }", name="p.ketal")
    with pytest.raises(PatternError, match="K005"):
        format_text("pattern P { event E = true; find next E; within 5 secs; }")


def test_a_fault_of_a_text_is_that_of_parsing_it() -> None:
    for guard in ("!" * 100 + "X", "x == 5 secs && " + "!" * 100 + "X"):
        text = f"pattern P {{ event E = {guard}; check E; }}"
        faults = []
        for read in (parse, format_text):
            with pytest.raises(PatternError) as caught:
                read(text, name="p.ketal")
            faults.append(str(caught.value))
        assert faults[0] == faults[1]
        assert "p.ketal:1:" in faults[0]
