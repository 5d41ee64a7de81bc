"""`ketal clocks compare`: two events of a log, for a person and as JSON, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ketal.cli import INTERRUPTED
from tests.cli.conftest import RUN, Ketal, Write, event

SHOWN = """\
b@2 is after a@1: b@2 knows a:1 >= 1
  a@1 write (run.jsonl:1)
  b@2 write (run.jsonl:3)
shortest path (1 link)
  a@1 write (run.jsonl:1)
  message to b@2 write (run.jsonl:3)
last common past, by node
  none: no event happened before both
"""
TWO = '== one\na {"a":1}\nx\n== two\na {"a":1}\nx\nb {"a":1,"b":1}\ny\n'
TWO_WORDS = [
    *("--regex", r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"),
    *("--delimiter", "^== (?<trace>.*)$"),
]


def test_a_person_is_shown_the_order_and_what_shows_it(ketal: Ketal, write: Write) -> None:
    said = ketal("clocks", "compare", write("run.jsonl", RUN), "a@1", "b@2")
    assert (said.code, said.out, said.err) == (0, SHOWN, "")


def test_json_is_one_object(ketal: Ketal, write: Write) -> None:
    said = ketal("clocks", "compare", "--output", "json", write("run.jsonl", RUN), "a@1", "b@1")
    assert said.code == 0
    assert said.objects == [
        {
            "comparison": {
                "first": {"event": "a@1", "type": "write", "place": "run.jsonl:1"},
                "second": {"event": "b@1", "type": "write", "place": "run.jsonl:2"},
                "order": "concurrent",
                "because": "a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1",
                "known": [None, None],
                "common_past": [],
            }
        }
    ]


def test_several_logs_are_one_execution_and_standard_input_is_one(
    ketal: Ketal, write: Write
) -> None:
    first, *others = RUN.splitlines(keepends=True)
    log = write("a.jsonl", first)
    said = ketal("clocks", "compare", log, "-", "a@1", "b@2", stdin="".join(others))
    assert said.lines[:3] == [
        SHOWN.splitlines()[0],
        "  a@1 write (a.jsonl:1)",
        "  b@2 write (<stdin>:2)",
    ]


def test_the_execution_can_be_named(ketal: Ketal, write: Write) -> None:
    log = write("two.log", TWO)
    words = ["clocks", "compare", *TWO_WORDS, log]
    assert ketal(*words, "a@1", "b@1").lines[0] == "execution two"
    assert ketal(*words, "--execution", "two", "a@1", "b@1").lines[0] == "execution two"
    other = ketal(*words, "--execution", "one", "a@1", "b@1")
    assert (other.code, other.out) == (2, "")
    assert "the log has no event b@1: it has no node b; its nodes are a\n" in other.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run.jsonl"], "'run.jsonl' is no dot"),
        (["run.jsonl", "a@1"], "'run.jsonl' is no dot"),
        (["run.jsonl", "a@1", "b"], "'b' is no dot"),
        (["run.jsonl", "a@1", "b@0"], "'b@0' is no dot"),
        (["a@1", "b@2"], "there is no log before a@1 and b@2"),
        (["a@1"], "there are no two events"),
    ],
)
def test_without_two_events_at_the_end_it_says_what_it_takes(
    words: list[str], reason: str, ketal: Ketal, write: Write
) -> None:
    write("run.jsonl", RUN)
    said = ketal("clocks", "compare", *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"ketal: {reason}")
    assert said.err.endswith(
        "compare takes logs, then two events: ketal clocks compare run.jsonl a@3 b@7\n"
    )


def test_what_clocks_does_is_named(ketal: Ketal, write: Write) -> None:
    said = ketal("clocks", "shew", write("run.jsonl", RUN), "a@1", "b@2")
    assert said.code == 2
    assert "invalid choice: 'shew'" in said.err
    assert ketal("clocks").code == 2


def test_a_log_without_an_event_could_not_be_run(ketal: Ketal, write: Write) -> None:
    said = ketal("clocks", "compare", write("bad.jsonl", "x\ny\n"), "a@1", "b@2")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(
        "ketal: no event was read: 2 records were all rejected; the first is"
    )


def test_text_of_a_log_cannot_break_a_line(ketal: Ketal, write: Write) -> None:
    log = write("odd.jsonl", event("a", "x\n\x1b[2J", {"a": 1}) + event("a", "y", {"a": 2}))
    said = ketal("clocks", "compare", log, "a@1", "a@2")
    assert "  a@1 x\\n\\x1b[2J (odd.jsonl:1)" in said.lines


def test_it_is_written_to_a_file_that_is_no_log(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", RUN)
    assert ketal("clocks", "compare", "--write", "out.txt", log, "a@1", "b@2").out == ""
    assert Path("out.txt").read_text() == SHOWN
    assert ketal("clocks", "compare", "--write", log, log, "a@1", "b@2").code == 2


def test_ctrl_c_ends_with_its_exit_code(
    ketal: Ketal, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ketal.explanation.execution_events.executions_of", interrupted)
    said = ketal("clocks", "compare", write("run.jsonl", RUN), "a@1", "b@2")
    assert (said.code, said.out) == (INTERRUPTED, "")
    assert said.err == "ketal: interrupted: the log was not read to its end\n"


def test_the_page_shows_what_it_says(ketal: Ketal, write: Write) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
    shown = page.split("```\n$ ketal clocks compare run.jsonl a@1 b@2\n")[1].split("```")[0]
    run = (
        event("a", "ask", {"a": 1})
        + event("b", "answer", {"a": 1, "b": 1})
        + event("b", "rest", {"a": 1, "b": 2})
    )
    assert ketal("clocks", "compare", write("run.jsonl", run), "a@1", "b@2").out == shown
