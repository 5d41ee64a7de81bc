"""`ketal clocks`: two events of a log compared, schemes compared, shown and restamped."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ketal.cli import INTERRUPTED
from ketal.clocks.schemes import SCHEMES, scheme_named
from tests.cli.conftest import RUN, Ketal, Write, event

SHOWN = """\
b@2 is after a@1: b@2 knows a:1 >= 1
  a@1 write (run.jsonl:1)
  b@2 write (run.jsonl:3)
shortest path (1 link)
  a@1 write (run.jsonl:1)
  message to b@2 write (run.jsonl:3)
common past (last event of each node)
  none: no event happened before both
"""
TWO = '== one\na {"a":1}\nx\n== two\na {"a":1}\nx\nb {"a":1,"b":1}\ny\n'
TWO_WORDS = [
    *("--regex", r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"),
    *("--delimiter", "^== (?<trace>.*)$"),
]

EXACT = [name for name in SCHEMES if scheme_named(name).decides]


def test_compare_prints_the_order_and_its_evidence(ketal: Ketal, write: Write) -> None:
    result = ketal("clocks", "compare", write("run.jsonl", RUN), "a@1", "b@2")
    assert (result.code, result.out, result.err) == (0, SHOWN, "")


def test_compare_prints_one_json_object(ketal: Ketal, write: Write) -> None:
    result = ketal("clocks", "compare", "--output", "json", write("run.jsonl", RUN), "a@1", "b@1")
    assert result.code == 0
    assert result.objects == [
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
    result = ketal("clocks", "compare", log, "-", "a@1", "b@2", stdin="".join(others))
    assert result.lines[:3] == [
        SHOWN.splitlines()[0],
        "  a@1 write (a.jsonl:1)",
        "  b@2 write (<stdin>:2)",
    ]


def test_compare_selects_an_execution_by_name(ketal: Ketal, write: Write) -> None:
    log = write("two.log", TWO)
    words = ["clocks", "compare", *TWO_WORDS, log]
    assert ketal(*words, "a@1", "b@1").lines[0] == "execution two"
    assert ketal(*words, "--execution", "two", "a@1", "b@1").lines[0] == "execution two"
    other = ketal(*words, "--execution", "one", "a@1", "b@1")
    assert (other.code, other.out) == (2, "")
    assert "the log has no event b@1: it has no node b; its nodes are a\n" in other.err
    for name in ("three", ""):
        none = ketal(*words, "--execution", name, "a@1", "b@1").err
        assert none == f"ketal: unknown execution {name!r}; the log has one, two\n"
    alone = ketal("clocks", "compare", "--execution", "one", write("run.jsonl", RUN), "a@1", "b@1")
    assert alone.err == "ketal: unknown execution 'one'; the log has one without a name\n"
    picked = ketal("clocks", "compare", *TWO_WORDS, log)
    assert picked.err == (
        "ketal: the log has several executions: one, two; choose one with --execution NAME\n"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run.jsonl", "a@1"], "'run.jsonl' is not a dot"),
        (["run.jsonl", "a@1", "b"], "'b' is not a dot"),
        (["run.jsonl", "a@1", "b@0"], "'b@0' is not a dot"),
        (["a@1", "b@2"], "no log is given before a@1 and b@2"),
        (["a@1"], "a@1 is only one event"),
        (["a@1", "b@2", "run.jsonl", "run.jsonl"], "a@1 is an event, where a log is expected"),
        (["run.jsonl", "a@1", "b@1", "b@2"], "a@1 is an event, where a log is expected"),
    ],
)
def test_compare_without_two_events_prints_its_usage(
    words: list[str], reason: str, ketal: Ketal, write: Write
) -> None:
    write("run.jsonl", RUN)
    result = ketal("clocks", "compare", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"ketal: {reason}")
    assert result.err.endswith(
        "compare takes logs, then two events: ketal clocks compare run.jsonl a@3 b@7\n"
    )


def test_compare_draws_two_events(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", RUN)
    result = ketal("clocks", "compare", log, "a@1", "b@2", "--write", "pair.svg")
    assert (result.code, result.out, result.err) == (0, "", "")
    root = ElementTree.parse("pair.svg").getroot()
    written = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"[1,0]", "[1,2]", "<", "{b1,b2}", "{}"} <= written


def test_clocks_without_a_known_action_is_an_error(ketal: Ketal, write: Write) -> None:
    result = ketal("clocks", "shew", write("run.jsonl", RUN), "a@1", "b@2")
    assert result.code == 2
    assert "invalid choice: 'shew'" in result.err
    assert ketal("clocks").code == 2


def test_log_without_events_is_an_error(ketal: Ketal, write: Write) -> None:
    result = ketal("clocks", "compare", write("bad.jsonl", "x\ny\n"), "a@1", "b@2")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        "ketal: no event was read: all 2 records were rejected; the first is"
    )


def test_text_of_a_log_is_escaped(ketal: Ketal, write: Write) -> None:
    log = write("odd.jsonl", event("a", "x\n\x1b[2J", {"a": 1}) + event("a", "y", {"a": 2}))
    result = ketal("clocks", "compare", log, "a@1", "a@2")
    assert "  a@1 x\\n\\x1b[2J (odd.jsonl:1)" in result.lines


def test_output_can_be_written_to_a_file_but_not_over_the_log(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", RUN)
    assert ketal("clocks", "compare", "--write", "out.txt", log, "a@1", "b@2").out == ""
    assert Path("out.txt").read_text() == SHOWN
    assert ketal("clocks", "compare", "--write", log, log, "a@1", "b@2").code == 2


def test_ctrl_c_ends_with_its_exit_code(
    ketal: Ketal, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ketal.runtime.admission.execution_events.executions_of", interrupted)
    result = ketal("clocks", "compare", write("run.jsonl", RUN), "a@1", "b@2")
    assert (result.code, result.out) == (INTERRUPTED, "")
    assert result.err == "ketal: interrupted: the log was not read to the end\n"


def test_documented_output_is_the_printed_output(ketal: Ketal, write: Write) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
    shown = page.split("```\n$ ketal clocks compare run.jsonl a@1 b@2\n")[1].split("```")[0]
    run = (
        event("a", "ask", {"a": 1})
        + event("b", "answer", {"a": 1, "b": 1})
        + event("b", "rest", {"a": 1, "b": 2})
    )
    assert ketal("clocks", "compare", write("run.jsonl", run), "a@1", "b@2").out == shown


# --- schemes ----------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_restamped_log_is_read_back_with_equal_vector_clocks(
    name: str, ketal: Ketal, write: Write
) -> None:
    log = write("run.jsonl", RUN)
    again = f"{name}.jsonl"
    assert ketal("clocks", "restamp", name, log, "--write", again).code == 0
    vector = ketal("clocks", "restamp", "vector", "--clock", name, again)
    assert (vector.code, vector.err) == (0, "")
    assert vector.out == ketal("clocks", "restamp", "vector", log).out
    assert len(vector.lines) == len(RUN.splitlines())


@pytest.mark.parametrize("name", SCHEMES)
def test_show_prints_the_stamp_of_each_scheme_beside_each_event(
    name: str, ketal: Ketal, write: Write
) -> None:
    log = write("run.jsonl", RUN)
    drawn = ketal("clocks", "show", name, log)
    data = ketal("clocks", "show", name, log, "--output", "json")
    assert (drawn.code, data.code, drawn.err, data.err) == (0, 0, "", "")
    scheme = scheme_named(name)
    assert len(data.objects) == len(drawn.lines) - 1
    for line, one in zip(drawn.lines[1:], data.objects, strict=True):
        stamp = scheme.read(one["stamp"], one["event"].split("@")[0])
        assert f"{one['event']} {one['type']}  " in line
        assert line.endswith(f"  {scheme.text(stamp)}")


def test_stamps_are_in_one_column_beside_types_with_control_characters(
    ketal: Ketal, write: Write
) -> None:
    log = write("odd.jsonl", event("a", "x\ty\u202ez", {"a": 1}) + event("a", "x", {"a": 2}))
    assert ketal("clocks", "show", "vector", log).lines == [
        "a",
        '●    a@1 x y\\u202ez  {"a":1}',
        '●    a@2 x           {"a":2}',
    ]


def test_long_types_and_names_leave_the_counter_of_the_event(ketal: Ketal, write: Write) -> None:
    log = write("long.jsonl", event("payments-eu", "ReplicatedStack.push", {"payments-eu": 12}))
    more = event("n" * 30, "ReplicatedStack.push", {"n" * 30: 7})
    assert [line.split()[1:3] for line in ketal("clocks", "show", "vector", log).lines[1:]] == [
        ["payments-eu@12", "Replic…ack.push"]
    ]
    line = ketal("clocks", "show", "vector", write("more.jsonl", more)).lines[1]
    assert line.split()[1:3] == ["nnnnnnnnn…nnnnnnnn@7", "Rep….push"]


def test_show_draws_events_with_their_stamps(ketal: Ketal, write: Write) -> None:
    assert ketal("clocks", "show", "lamport", write("run.jsonl", RUN)).lines == [
        "a    b",
        "●    ┊    a@1 write  1",
        "┊    ●    b@1 write  1",
        "├───▶●    b@2 write  2",
    ]


@pytest.mark.parametrize("name", SCHEMES)
def test_picture_has_each_event_with_its_stamp(name: str, ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", RUN)
    result = ketal("clocks", "show", name, log, "--write", "run.svg")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert ketal("clocks", "show", name, log, "--to", "svg").out == Path("run.svg").read_text()
    root = ElementTree.parse("run.svg").getroot()
    written = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    scheme = scheme_named(name)
    for one in ketal("clocks", "show", name, log, "--output", "json").objects:
        stamp = scheme.read(one["stamp"], one["event"].split("@")[0])
        assert {f"{one['event']} {one['type']}", scheme.text(stamp)} <= written


def test_compare_without_events_compares_the_answers_of_schemes(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", RUN)
    result = ketal("clocks", "compare", log, "--output", "json")
    (one,) = result.objects
    reports = {report["scheme"]: report for report in one["comparison"]["schemes"]}
    assert list(reports) == list(SCHEMES)
    assert (one["comparison"]["pairs"], one["comparison"]["of_pairs"]) == (3, 3)
    for name, report in reports.items():
        assert report["right"] + report["wrong"] + report["unknown"] == 3
        assert report["wrong"] == 0
        if name in EXACT:
            assert (report["right"], report["false_orders"]) == (3, 0)
    assert reports["lamport"]["unknown"] == 1
    table = ketal("clocks", "compare", log, "--scheme", "lamport", "--scheme", "vector").lines
    assert [line.split()[0] for line in table] == ["3", "scheme", "lamport", "vector"]


@pytest.mark.parametrize(("name", "command"), [("again.jsonl.gz", "gzip"), ("again.zst", "zstd")])
def test_output_that_is_not_compressed_has_no_name_of_a_compressed_file(
    ketal: Ketal, write: Write, tmp_path: Path, name: str, command: str
) -> None:
    """A reader would refuse it."""
    log = write("run.jsonl", RUN)
    result = ketal("clocks", "restamp", "itc", log, "--write", name)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"ketal: {name}: the output is not compressed; use `--write - | {command} > {name}`\n"
    )
    assert not (tmp_path / name).exists()


def test_restamp_can_count_relevant_events_only(ketal: Ketal, write: Write) -> None:
    """Baquero, "Causality is Graphically Simple": a version vector counts versions only."""
    log = write(
        "run.jsonl",
        event("a", "read", {"a": 1})
        + event("a", "write", {"a": 2})
        + event("b", "read", {"a": 2, "b": 1})
        + event("b", "write", {"a": 2, "b": 2}),
    )
    only = write("writes.ketal", 'pattern W { event W = type == "write"; find any W; }')
    result = ketal("clocks", "restamp", "vector", log, "--only", only)
    assert [one["clock"] for one in result.objects] == [{"a": 1}, {"a": 1, "b": 1}]
    none = write("none.ketal", 'pattern N { event N = type == "x"; find any N; }')
    result = ketal("clocks", "restamp", "vector", log, "--only", none)
    assert result.code == 2
    assert "no event of the log is in the alphabet of any pattern of none.ketal" in result.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["show", "ict", "run.jsonl"], "unknown clock scheme 'ict'; did you mean itc?"),
        (["show", "itc"], "no log is given after 'itc'; show takes a scheme, then logs"),
        (["restamp", "run.jsonl"], "no log is given after 'run.jsonl'; restamp takes a scheme"),
        (["compare", "run.jsonl", "--only", "p.ketal"], "--only applies only to show and restamp"),
        (["show", "itc", "run.jsonl", "--scheme", "itc"], "--scheme applies only to compare"),
        (["restamp", "itc", "run.jsonl", "--to", "svg"], "--to applies only to show and compare"),
        (["compare", "run.jsonl", "--to", "svg"], "--to svg requires two events"),
        (["compare", "run.jsonl", "--write", "x.svg"], "--to svg requires two events"),
        (
            ["show", "itc", "run.jsonl", "--to", "svg", "--output", "json"],
            "--output json writes numbers",
        ),
        (
            ["compare", "run.jsonl", "a@1", "b@1", "--to", "svg", "--output", "json"],
            "--output json writes numbers and cannot be combined with a picture (svg)",
        ),
        (
            ["show", "itc", "run.jsonl", "--write", "x.png"],
            "cannot write a .png picture; write an .svg (--to svg overrides the extension)",
        ),
        (
            ["show", "itc", "run.jsonl", "--clock", "lamport"],
            "lamport clocks do not determine happened-before",
        ),
        (["show", "itc", "run.jsonl", "--limit", "stamped_events_max=2"], "the log has 3 events"),
        (
            ["restamp", "history", "run.jsonl", "--limit", "stamped_entries_max=4"],
            "the stamps of the scheme history would have 5 entries, more than 4 (limit stamped_e",
        ),
        (
            ["restamp", "plausible:5000000", "run.jsonl"],
            "the stamps of the scheme plausible:5000000 would have 15,000,000 entries",
        ),
        (["restamp", f"plausible:{'9' * 5000}", "run.jsonl"], "unknown clock scheme 'plausible:9"),
        (
            ["compare", "run.jsonl", "a@1", "b@1", "--scheme", "itc"],
            "--scheme cannot be combined with two events",
        ),
    ],
)
def test_wrong_arguments_of_clocks_are_an_error(
    words: list[str], reason: str, ketal: Ketal, write: Write
) -> None:
    write("run.jsonl", RUN)
    result = ketal("clocks", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"ketal: {reason}")


def test_schemes_with_too_many_stamp_entries_are_left_out(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", "".join(event("a", "x", {"a": n}) for n in range(1, 60)))
    few = ("clocks", "compare", log, "--limit", "stamped_entries_max=100")
    why = "the stamps of the scheme history would have 1,770 entries, more than 100"
    assert f"history omitted: {why} (limit stamped_entries_max)" in ketal(*few).lines
    compared = json.loads(ketal(*few, "--output", "json").out)["comparison"]
    assert list(compared["left_out"]) == ["history", "dependency", "plausible"]
    assert "history" not in [one["scheme"] for one in compared["schemes"]]
    result = ketal(*few, "--scheme", "history")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"ketal: {why}")


def test_schemes_whose_stamps_are_larger_than_clocks_are_left_out(
    ketal: Ketal, write: Write
) -> None:
    turns = [("ab"[n % 2], {"a": n // 2 + 1, "b": (n + 1) // 2}) for n in range(60)]
    log = write("run.jsonl", "".join(event(node, "x", clock) for node, clock in turns))
    few = ("clocks", "compare", log, "--limit", "stamped_entries_max=150", "--output", "json")
    left_out = json.loads(ketal(*few).out)["comparison"]["left_out"]
    assert list(left_out) == ["history", "matrix", "stamps", "dependency", "plausible"]


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "run.jsonl", "a@1", "b@1"],
        ["compare", "run.jsonl"],
        ["restamp", "itc", "run.jsonl"],
        ["show", "vector", "run.jsonl"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_clocks_of_no_execution_are_refused(words: list[str], ketal: Ketal, write: Write) -> None:
    """Each of the two events knows the other; one of the two orders was reported."""
    write("run.jsonl", event("a", "x", {"a": 1, "b": 1}) + event("b", "x", {"a": 1, "b": 1}))
    result = ketal("clocks", *words)
    assert (result.code, result.out) == (2, "")
    fault = "1 event with an impossible clock; run `ketal audit` to find the fault"
    assert result.err == f"ketal: {fault}\n"


def test_compare_samples_pairs_beyond_the_limit(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", "".join(event("a", "x", {"a": n}) for n in range(1, 30)))
    result = ketal("clocks", "compare", log, "--scheme", "vector", "--limit", "stamp_pairs_max=50")
    assert result.lines[0] == "29 events, 50 of 406 pairs, sampled at random"


def test_records_that_are_no_events_are_counted(ketal: Ketal, write: Write) -> None:
    result = ketal("clocks", "restamp", "vector", write("run.jsonl", RUN + "x\n"))
    assert len(result.lines) == 3
    assert result.err.startswith("ketal: 1 record was rejected; the first is run.jsonl:4")


# --- clocks that do not decide ------------------------------------------------------

LAMPORT = "".join(
    f'{{"node": "{node}", "type": "write", "clock": {clock}}}\n'
    for node, clock in (("a", 1), ("b", 1), ("b", 2))
)
CONFLICT = """pattern Conflict {
    order CausalOrder; event W = type == "write";
    First = W; Second = Conc(W); find any First Second;
}
"""


def test_run_counts_pairs_that_inexact_clocks_do_not_order(ketal: Ketal, write: Write) -> None:
    pattern, log = write("conflict.ketal", CONFLICT), write("run.jsonl", LAMPORT)
    result = ketal("run", "--clock", "lamport", pattern, log)
    assert (result.code, result.err) == (0, "")
    assert result.lines[0].startswith("match Conflict: First=a@1, Second=b@1")
    assert result.lines[-1] == (
        "1 pair of events whose order the clocks do not determine: a `Causal` or `Conc` of such a "
        "pair is unknown, and so not true"
    )
    assert ketal("run", "--clock", "lamport", "--fail-on", "unknown", pattern, log).code == 1
    data = ketal("run", "--clock", "lamport", "--output", "json", pattern, log).objects
    assert data[-1]["summary"]["unknown_orders"] == 1
    explained = ketal("run", "--clock", "lamport", "--explain", pattern, log)
    assert (explained.code, explained.lines[-1]) == (0, result.lines[-1])
    live = ketal("run", "--live", "--clock", "lamport", pattern, log)
    assert (live.code, live.out) == (2, "")
    assert "--live cannot read lamport clocks: converting them to vector clocks" in live.err


def test_explanations_claim_no_order_that_inexact_clocks_leave_open(
    ketal: Ketal, write: Write
) -> None:
    pattern = write(
        "two.ketal",
        """pattern Two { order CausalOrder; event W = type == "write";
            A = W && node == "a"; B = W && node == "b"; find any A B; }""",
    )
    log = write("run.jsonl", LAMPORT)
    words = "lamport clocks do not determine how b@2 and a@1 are ordered"
    assert f"  {words}" in ketal("explain", "--clock", "lamport", pattern, log).lines
    explained = ketal("explain", "--clock", "lamport", "--output", "json", pattern, log).objects
    pair = explained[1]["pairs"][0]
    assert pair == {"first": "a@1", "second": "b@2", "order": "unknown", "because": words}
    shown = ketal("run", "--show", "--clock", "lamport", pattern, log).out
    assert "lamport clocks do not determine happened-before: arrows show what may have" in shown


def test_lint_warns_of_guards_that_inexact_clocks_leave_unknown(ketal: Ketal, write: Write) -> None:
    result = ketal("lint", "--clock", "lamport", write("conflict.ketal", CONFLICT))
    assert result.code == 0
    assert result.lines[0].startswith(
        "conflict.ketal:3:25: warning[K305]: lamport clocks do not show"
    )
    copies = write("copies.ketal", "pattern P { at every node; event A = true; check A; }")
    result = ketal("lint", "--clock", "lamport", copies)
    assert result.code == 1
    assert "error[K306]: a copy of the pattern is offered the events that its" in result.lines[0]
    assert ketal("lint", "--clock", "itc", copies).lines == ["no errors and no warnings in 1 file"]


def test_clocks_of_a_scheme_that_was_not_named_are_answered_with_the_option(
    ketal: Ketal, write: Write
) -> None:
    result = ketal("stats", write("run.jsonl", LAMPORT))
    assert result.code == 2
    assert "not be a number (pass --clock SCHEME if it is not a vector clock)" in result.err


@pytest.mark.parametrize("command", ["stats", "audit", "cuts"])
def test_command_that_needs_exact_clocks_refuses_inexact_ones(
    command: str, ketal: Ketal, write: Write
) -> None:
    result = ketal(command, "--clock", "lamport", write("run.jsonl", LAMPORT))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("ketal: lamport clocks do not determine happened-before")


ACCESS = """\
time,host,path,status
1,web1,/a,500
2,web2,/b,200
3,web2,/b,500
9,web1,/a,500
"""
TWO_ERRORS = """
pattern TwoErrors { event Failed = status == 500; First = Failed; Second = Failed;
    find next First Second; within 5 s; }
"""


def test_a_log_without_clocks_is_judged_in_the_order_of_its_records(
    ketal: Ketal, write: Write
) -> None:
    pattern, log = write("two.ketal", TWO_ERRORS), write("access.csv", ACCESS)
    options = ("--clock", "none", "--field", "type=path", "--field", "node=host")
    result = ketal("run", *options, pattern, log)
    assert result.lines == [
        "match TwoErrors: First=web1@1, Second=web2@2 (access.csv:2, access.csv:4)",
        "timed_out TwoErrors: First=web2@2 (access.csv:4)",
        "timed_out TwoErrors: First=web1@2 (access.csv:5)",
        "4 read = 4 accepted",
        "TwoErrors: 1 match, 2 timed out",
    ]
    assert ketal("run", "--live", *options, pattern, log).lines == result.lines
    lacking = ketal("run", "--field", "type=path", "--field", "node=host", pattern, log)
    assert lacking.code == 2
    assert "or --clock none if the log has no clocks)" in lacking.err
    checked = ketal("lint", *options, "--log", log, pattern)
    # No warning that the order matters (K220): the records have one order.
    assert (checked.code, checked.out) == (0, "no errors and no warnings in 1 file\n")
    assert "K220" in ketal("lint", pattern).out


@pytest.mark.parametrize("live", [[], ["--live"]])
def test_without_clocks_a_causal_pattern_is_an_error(
    live: list[str], ketal: Ketal, write: Write
) -> None:
    pattern, log = write("conflict.ketal", CONFLICT), write("run.jsonl", RUN)
    result = ketal("run", *live, "--clock", "none", pattern, log)
    assert (result.code, result.out) == (2, "")
    assert "error[K306]: a log without clocks does not determine happened-before, " in result.err
    assert ketal("lint", "--clock", "none", pattern).code == 1


@pytest.mark.parametrize("command", [["audit"], ["cuts"], ["view"], ["run", "--show", "p.ketal"]])
def test_without_clocks_a_command_that_shows_happened_before_is_refused(
    command: list[str], ketal: Ketal, write: Write
) -> None:
    write("p.ketal", TWO_ERRORS)
    result = ketal(*command, "--clock", "none", write("run.jsonl", RUN))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("ketal: a log without clocks does not determine happened-before")
    assert "use `run`, `explain` or `stats`" in result.err
    assert ("a picture of its events" in result.err) == (command[0] in ("view", "run"))
