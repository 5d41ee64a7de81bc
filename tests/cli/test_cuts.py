"""`ketal cuts`: the numbers as text and as JSON, the picture, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from ketal.cli import INTERRUPTED
from tests.cli.conftest import RUN, Ketal, Write, event

SHOWN = """\
events             3, nodes 2
consistent cuts    5
linear extensions  2
"""
TWO = '== one\na {"a":1}\nx\n== two\na {"a":1}\nx\nb {"b":1}\ny\n'
TWO_WORDS = [
    "--regex",
    r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)",
    "--delimiter",
    "^== (?<trace>.*)$",
]


def test_cuts_prints_its_numbers(ketal: Ketal, write: Write) -> None:
    result = ketal("cuts", write("run.jsonl", RUN))
    assert (result.code, result.out, result.err) == (0, SHOWN, "")


def test_cuts_prints_one_json_object(ketal: Ketal, write: Write) -> None:
    result = ketal("cuts", "--output", "json", write("run.jsonl", RUN + "torn\n"))
    assert result.code == 0
    assert result.objects == [
        {
            "cuts": {
                "executions": [
                    {
                        "events": 3,
                        "nodes": 2,
                        "missing": 0,
                        "cuts": 5,
                        "linear_extensions": 2,
                        "exact": True,
                    }
                ],
                "duplicates": 0,
                "rejected": 1,
                "first_rejected": "run.jsonl:4: the line is not JSON "
                "(pass --format if the log has another format)",
            }
        }
    ]


def test_json_has_all_digits_of_large_numbers(ketal: Ketal, write: Write) -> None:
    lines = [event(f"n{n}", "x", {f"n{n}": c}) for n in range(3) for c in range(1, 4_001)]
    result = ketal("cuts", "--output", "json", write("wide.jsonl", "".join(lines)))
    assert result.code == 0
    text = result.out.split('"linear_extensions":')[1].split(",")[0]
    assert text.isdigit()
    assert len(text) > 5_000
    assert f'"cuts":{4_001**3},' in result.out


def test_each_execution_is_listed_and_one_can_be_selected(ketal: Ketal, write: Write) -> None:
    log = write("two.log", TWO)
    result = ketal("cuts", *TWO_WORDS, log)
    assert result.out == (
        "execution          one\nevents             1, nodes 1\n"
        "consistent cuts    2\nlinear extensions  1\n\n"
        "execution          two\nevents             2, nodes 2\n"
        "consistent cuts    4\nlinear extensions  2\n"
    )
    only = ketal("cuts", *TWO_WORDS, "--execution", "two", "--output", "json", log)
    (one,) = only.objects[0]["cuts"]["executions"]
    assert (one["execution"], one["cuts"]) == ("two", 4)
    none = ketal("cuts", *TWO_WORDS, "--execution", "three", log)
    assert (none.code, none.out) == (2, "")
    assert none.err == "ketal: unknown execution 'three'; the log has one, two\n"


def test_number_cut_by_a_limit_names_it(ketal: Ketal, write: Write) -> None:
    lines = [
        event("a", "x", {"a": 1}),
        event("a", "x", {"a": 2}),
        event("b", "x", {"b": 1}),
        event("b", "x", {"a": 1, "b": 2}),
    ]
    result = ketal("cuts", "--limit", "counted_cuts_max=3", write("n.jsonl", "".join(lines)))
    assert result.code == 0
    assert "more than 4 (limit counted_cuts_max)" in result.lines[1]
    assert result.lines[2].startswith("linear extensions  at least ")


# --- pictures -----------------------------------------------------------------


def test_form_of_the_picture_is_set_by_file_name_or_option(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", RUN)
    assert ketal("cuts", "--write", "lattice.svg", log).out == ""
    drawn = ketal("cuts", "--to", "svg", log)
    assert (drawn.code, drawn.out) == (0, Path("lattice.svg").read_text())
    assert drawn.out.startswith("<svg ")
    assert ketal("cuts", "--to", "dot", log).out.startswith('digraph "5 consistent cuts" {')
    assert ketal("cuts", "--write", "numbers.txt", log).code == 0
    assert Path("numbers.txt").read_text() == SHOWN


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--to", "svg", "--limit", "drawn_cuts_max=4"], "(limit drawn_cuts_max)"),
        (["--write", "lattice.png"], "cannot write a .png picture; write an .svg, or a .dot"),
        (["--to", "svg", "--output", "json"], "--output json writes numbers"),
        (["--to", "png"], "invalid choice: 'png'"),
        (["--write", "run.jsonl"], "would overwrite an input file"),
    ],
)
def test_lattice_that_cannot_be_drawn_is_an_error(
    words: list[str], reason: str, ketal: Ketal, write: Write
) -> None:
    result = ketal("cuts", *words, write("run.jsonl", RUN))
    assert (result.code, result.out) == (2, "")
    assert reason in result.err
    assert not Path("lattice.png").exists()


def test_rejected_records_are_reported_beside_a_picture(ketal: Ketal, write: Write) -> None:
    result = ketal("cuts", "--to", "dot", write("run.jsonl", RUN + "x\n"))
    assert result.code == 0
    assert result.err.startswith("ketal: 1 record was rejected; the first is run.jsonl:")


# --- exit codes -----------------------------------------------------------------


def test_log_without_events_is_an_error(ketal: Ketal, write: Write) -> None:
    empty = ketal("cuts", write("empty.jsonl", ""))
    assert (empty.code, empty.out) == (2, "")
    assert empty.err == "ketal: no event was read: there are no events in empty.jsonl\n"
    bad = ketal("cuts", write("bad.jsonl", "x\ny\n"))
    assert (bad.code, bad.out) == (2, "")
    assert bad.err.startswith("ketal: no event was read: all 2 records were rejected; the first is")


def test_impossible_clocks_are_an_error_that_names_the_audit(ketal: Ketal, write: Write) -> None:
    lines = [event("a", "x", {"a": 1, "c": 9}), event("b", "x", {"a": 1, "b": 1})]
    result = ketal("cuts", write("bad.jsonl", "".join(lines)))
    assert (result.code, result.out) == (2, "")
    assert "run `ketal audit` to find the fault" in result.err


def test_ctrl_c_ends_with_its_exit_code(
    ketal: Ketal, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ketal.explanation.cuts.cut_report.count_cuts", interrupted)
    result = ketal("cuts", write("run.jsonl", RUN))
    assert (result.code, result.out) == (INTERRUPTED, "")
    assert result.err == "ketal: interrupted: not all cuts were counted\n"


def test_file_name_that_is_not_utf8(ketal: Ketal, write: Write) -> None:
    log = write("run\udcff.jsonl", RUN + "rubbish\n")
    (cuts,) = ketal("cuts", "--output", "json", log).objects
    assert cuts["cuts"]["first_rejected"].startswith("run\udcff.jsonl:4: ")
