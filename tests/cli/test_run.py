"""`ketal run`: every option, the summary, the exit codes."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import BROKEN, CONFLICT, PHASES, RUN, Ketal, Write, event

PARAM = """param kind = "write"; param w = 10 s; param least = 1; param flag = false;
pattern Two {
    event E = type == kind && size >= least ;
    A = E; B = E;
    find next A B;
    within w;
}
"""
BOTH = CONFLICT + PHASES


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("conflict.ketal", CONFLICT)
    write("phases.ketal", PHASES)
    write("run.jsonl", RUN)
    write("broken.jsonl", BROKEN)


def test_text_output_has_a_line_per_verdict_and_a_summary(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl")
    assert result.lines == [
        "match Conflict (key=x): First=a@1, Second=b@1 (run.jsonl:1, run.jsonl:2)",
        "3 read = 3 accepted",
        "Conflict: 1 match",
    ]
    assert (result.code, result.err) == (0, "")


def test_json_output_has_a_line_per_verdict_and_then_the_summary(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl", "--output", "json")
    match, summary = result.objects
    assert match == {
        "verdict": "match",
        "pattern": "Conflict",
        "id": match["id"],
        "scope": {"key": "x"},
        "events": ["a@1", "b@1"],
        "places": ["run.jsonl:1", "run.jsonl:2"],
        "bindings": {"First": ["a@1"], "Second": ["b@1"]},
    }
    assert len(match["id"]) == 32
    counts = {"duplicates": 0, "rejected": 0, "late": 0, "held_back": 0, "overflow": 0}
    found = {"matches": 1, "violations": 0, "incomplete": 0, "timed_out": 0}
    assert summary == {
        "summary": {
            "events": {"read": 3, "accepted": 3, **counts},
            "patterns": {"Conflict": {**found, "unscoped": 0, "untimed": 0}},
            "gaps": 0,
            "holes": 0,
        }
    }


def test_violation_has_exit_code_one(ketal: Ketal) -> None:
    result = ketal("run", "phases.ketal", "broken.jsonl")
    assert result.code == 1
    assert result.lines[0].startswith("violation Phases: a@2 open")
    assert result.lines[1:] == [
        "3 read = 3 accepted",
        "Phases: 1 violation",
        "Phases: not judged: 1 event after a violation that halted their run "
        "(use `on violation resume` "
        "to continue)",
    ]


def test_check_without_a_violation_is_reported(ketal: Ketal) -> None:
    result = ketal("run", "phases.ketal", "-", stdin=event("a", "open", {"a": 1}))
    assert result.lines[0].startswith("incomplete Phases: ended in ")
    why = "no event has the type `close`, which the step `Close` requires"
    assert result.lines[-1] == f"Phases: no violation, 1 incomplete run: {why}"
    assert result.code == 0


@pytest.mark.parametrize(
    ("cause", "log", "code"),
    [
        ("match", RUN, 1),
        ("violation", RUN, 0),
        ("match, violation", RUN, 1),
        ("rejected", RUN, 0),
        ("rejected", RUN + "{}\n", 1),
        ("gap,late,held_back,incomplete", RUN, 0),
    ],
)
def test_fail_on_selects_the_causes_of_exit_code_one(
    ketal: Ketal, write: Write, cause: str, log: str, code: int
) -> None:
    write("log.jsonl", log)
    assert ketal("run", "conflict.ketal", "log.jsonl", "--fail-on", cause).code == code


def test_fail_on_replaces_violation(ketal: Ketal) -> None:
    assert ketal("run", "phases.ketal", "broken.jsonl", "--fail-on", "match").code == 0
    assert ketal("run", "phases.ketal", "broken.jsonl", "--fail-on", "incomplete").code == 0


def test_fail_on_incomplete(ketal: Ketal) -> None:
    words = ("run", "phases.ketal", "-", "--fail-on", "incomplete")
    assert ketal(*words, stdin=event("a", "open", {"a": 1})).code == 1


def test_fail_on_held_back(ketal: Ketal, write: Write) -> None:
    write("held.ketal", 'pattern N { order CausalOrder; event W = type == "w"; find next W W; }')
    log = event("a", "w", {"a": 1}) + event("a", "w", {"a": 3})
    words = ("run", "--live", "held.ketal", "-")
    assert ketal(*words, stdin=log).code == 0
    assert ketal(*words, "--fail-on", "held_back", stdin=log).code == 1


def test_check_with_held_back_events_has_exit_code_one(ketal: Ketal, write: Write) -> None:
    write("held.ketal", PHASES.replace("{", "{ order CausalOrder;", 1))
    log = event("a", "open", {"a": 1}) + event("a", "close", {"a": 3})
    result = ketal("run", "--live", "held.ketal", "-", stdin=log)
    assert result.code == 1
    assert "the check did not judge everything: 1 event is held back" in result.err


def test_fail_on_late(ketal: Ketal, write: Write) -> None:
    write("timed.ketal", PARAM)
    log = '{"type": "ketal.watermark", "time": 100}\n' + event("a", "write", {"a": 1}, time=1)
    words = ("run", "timed.ketal", "-", "--fail-on", "late", "--output", "json")
    result = ketal(*words, stdin=log + event("a", "write", {"a": 2}, time=101))
    assert result.code == 1
    assert result.summary["events"] | {"read": 2, "late": 1} == result.summary["events"]
    result = ketal(*words, stdin=log)
    assert (result.code, result.summary["patterns"]) == (2, {})
    assert "no event was judged: 1 read = 1 late" in result.err


def test_unknown_cause_of_fail_on_is_refused(ketal: Ketal) -> None:
    result = ketal("run", "phases.ketal", "broken.jsonl", "--fail-on", "everything")
    assert result.code == 2
    assert "unknown cause 'everything'; choose from violation, match" in result.err


def test_count_prints_the_summary_only(ketal: Ketal) -> None:
    result = ketal("run", "--count", "conflict.ketal", "run.jsonl")
    assert result.lines == ["3 read = 3 accepted", "Conflict: 1 match"]
    assert (
        len(ketal("run", "--count", "conflict.ketal", "run.jsonl", "--output", "json").lines) == 1
    )


def test_count_shows_the_first_rejection(ketal: Ketal) -> None:
    result = ketal("run", "--count", "conflict.ketal", "-", stdin=RUN + "{}\n[]\n")
    assert result.lines[0] == "5 read = 3 accepted + 2 rejected"
    assert result.lines[1].startswith("first rejected <stdin>:4: the record has no clock")


def test_count_does_not_hide_a_violation(ketal: Ketal) -> None:
    assert ketal("run", "--count", "phases.ketal", "broken.jsonl").code == 1


def test_first_stops_after_the_given_number_of_verdicts(ketal: Ketal) -> None:
    log = RUN + event("c", "write", {"c": 1}, key="x")
    whole = ketal("run", "conflict.ketal", "-", "--output", "json", stdin=log)
    first = ketal("run", "conflict.ketal", "-", "--output", "json", "--first", "2", stdin=log)
    assert len(whole.lines) == 5
    assert first.lines[:-1] == whole.lines[:2]
    assert first.summary["events"]["read"] == 4
    assert "stopped after 2 verdicts (--first): the rest of the log was not judged" in first.err


def test_zero_counts_of_a_log_that_was_not_judged_to_its_end_are_no_answer(
    ketal: Ketal, write: Write
) -> None:
    event_e = 'event E = type == "write";'
    write("two.ketal", event_e + "pattern Early { find any E; } pattern Late { check E*; }")
    result = ketal("run", "two.ketal", "-", "--first", "1", stdin=RUN)
    assert result.lines[-2:] == ["Early: 1 match", "Late: no violation so far"]
    whole = ketal("run", "two.ketal", "-", stdin=RUN)
    assert whole.lines[-1] == "Late: no violation"


@pytest.mark.parametrize("option", ["--explain", "--show"])
def test_first_with_explain_or_show_judges_the_whole_log(ketal: Ketal, option: str) -> None:
    log = RUN + event("c", "write", {"c": 1}, key="x")
    result = ketal("run", "conflict.ketal", "-", option, "--first", "1", stdin=log)
    assert result.lines[-2:] == ["4 read = 4 accepted", "Conflict: 4 matches"]
    assert "stopped after 1 verdict (--first): the whole log was judged" in result.err
    assert "was not judged" not in result.err


def test_first_does_not_count_rejected_records(ketal: Ketal) -> None:
    log = "{}\n" * 5 + RUN + event("c", "write", {"c": 1}, key="x")
    result = ketal("run", "conflict.ketal", "-", "--first", "1", stdin=log)
    kinds = [line.split()[0] for line in result.lines]
    assert kinds[:5] == ["rejected"] * 3 + ["match", "rejected"]
    assert ": 5 times, first <stdin>:1" in result.lines[4]
    assert kinds.count("match") == 1
    none = ketal("run", "conflict.ketal", "-", "--first", "1", stdin="{}\n" * 5)
    assert none.code == 2
    assert "no event was read: all 5 records were rejected" in none.err


def test_restarted_counter_is_reported(ketal: Ketal) -> None:
    """A second event with counter 1 and other content is a restart, which is reported."""
    log = event("a", "write", {"a": 1}, key="x") + event("a", "write", {"a": 1}, key="y")
    result = ketal("run", "conflict.ketal", "-", stdin=log)
    assert result.lines[-1].startswith("1 restart: a node whose counter began at 1 again")
    assert "if the log holds several executions, judge each in a log of its own" in result.lines[-1]
    summary = ketal("run", "conflict.ketal", "-", "--output", "json", stdin=log).summary
    assert summary["restarts"] == 1
    live = ketal("run", "conflict.ketal", "-", "--live", "--output", "json", stdin=log).summary
    assert live["restarts"] == 1


def test_count_with_first_counts_up_to_the_first_verdict(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl", "--first", "1", "--count", "--live")
    assert result.lines == ["2 read = 2 accepted", "Conflict: 1 match"]


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", ""])
def test_first_takes_a_positive_number(ketal: Ketal, number: str) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl", f"--first={number}")
    assert result.code == 2
    assert "must be a positive integer" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "p.ketal", "run.jsonl", "--first"),
        ("stats", "run.jsonl", "--rows"),
        ("demo", "--seed"),
        ("demo", "--shuffles"),
        ("broker", "start", "--port"),
        ("stream", "p.ketal", "--metrics-port"),
    ],
)
def test_number_of_an_option_is_an_integer(ketal: Ketal, words: tuple[str, ...]) -> None:
    for number, reason in (("9" * 5_000, " of at most 4300 digits"), ("2_0", ", not '2_0'")):
        result = ketal(*words, number)
        assert (result.code, result.out) == (2, "")
        assert re.search(rf"argument \S+: must be an? (positive )?integer{reason}\n", result.err)


def test_stats_prints_the_missing_dot_of_each_held_back_event(ketal: Ketal, write: Write) -> None:
    write("held.ketal", PHASES.replace("{", "{ order CausalOrder;", 1))
    log = event("a", "open", {"a": 1}) + event("b", "close", {"a": 3, "b": 1})
    words = ("run", "held.ketal", "-", "--live", "--stats")
    result = ketal(*words, stdin=log)
    assert "held back b@1 close: waits for a@2" in result.lines
    assert "2 read = 1 accepted + 1 held back" in result.lines
    (held,) = ketal(*words, "--output", "json", stdin=log).objects[-1]["held_back"]
    assert held == {"event": "b@1", "waits_for": "a@2"}


def test_summary_of_held_back_events_points_to_stats(ketal: Ketal, write: Write) -> None:
    write("held.ketal", PHASES.replace("{", "{ order CausalOrder;", 1))
    words, log = ("run", "held.ketal", "-", "--live"), event("b", "close", {"a": 3, "b": 1})
    waiting = "held back: waiting for events that did not arrive"
    assert f"{waiting} (--stats lists them)" in ketal(*words, stdin=log).lines
    assert waiting in ketal(*words, "--stats", stdin=log).lines


def test_finite_log_holds_no_event_back_and_counts_holes(ketal: Ketal) -> None:
    log = event("b", "write", {"a": 3, "b": 1}, key="x")
    result = ketal("run", "conflict.ketal", "-", "--stats", stdin=log)
    assert result.lines == [
        "held back: nothing",
        "1 read = 1 accepted",
        "Conflict: no match",
        "3 holes: events that clocks know of and the log lacks",
    ]


def test_trace_shows_transitions(ketal: Ketal) -> None:
    result = ketal("run", "--trace", "phases.ketal", "broken.jsonl", "--output", "json")
    moved = [verdict for verdict in result.objects if verdict.get("verdict") == "transition"]
    assert [(m["event"], m["from"], m["to"]) for m in moved] == [("a@1", "q0", "q1")]


def test_pattern_option_selects_one_pattern(ketal: Ketal, write: Write) -> None:
    write("both.ketal", BOTH)
    result = ketal("run", "both.ketal", "run.jsonl", "--pattern", "Phases", "--output", "json")
    assert list(result.summary["patterns"]) == ["Phases"]
    both = ketal("run", "both.ketal", "run.jsonl", "--output", "json")
    assert list(both.summary["patterns"]) == ["Conflict", "Phases"]
    wrong = ketal("run", "both.ketal", "run.jsonl", "--pattern", "Phase")
    assert wrong.code == 2
    assert wrong.err == "ketal: both.ketal: unknown pattern 'Phase'; did you mean Phases?\n"


def test_write_option_names_the_output_file(ketal: Ketal, tmp_path: Path) -> None:
    printed = ketal("run", "conflict.ketal", "run.jsonl", "--output", "json")
    result = ketal("run", "conflict.ketal", "run.jsonl", "--output", "json", "--write", "out.jsonl")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (tmp_path / "out.jsonl").read_text() == printed.out
    assert ketal("run", "conflict.ketal", "run.jsonl", "--write", "-").lines[-1].endswith("1 match")


@pytest.mark.parametrize("name", ["run.jsonl", "./conflict.ketal"])
def test_write_does_not_overwrite_input_files(ketal: Ketal, tmp_path: Path, name: str) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl", "--write", name)
    assert result.code == 2
    assert result.err == f"ketal: --write {name} would overwrite an input file\n"
    assert (tmp_path / "run.jsonl").read_text() == RUN
    assert (tmp_path / "conflict.ketal").read_text() == CONFLICT


def test_counted_verdicts_that_are_uncertain_are_reported(ketal: Ketal, write: Write) -> None:
    write("gap.ketal", "pattern P { order CausalOrder(gap = 1 s); event E = true; "
          "find next E; return count; }")  # fmt: skip
    write("gap.jsonl", event("a", "x", {"a": 2}) + event("b", "x", {"b": 1}))
    for live in ((), ("--live",)):
        result = ketal("run", "gap.ketal", "gap.jsonl", *live)
        assert result.lines[:4] == [
            "gap a@1 declared lost",
            "2 read = 2 accepted",
            "P: 2 matches",
            "P: uncertain: 1 verdict that a missed event could change",
        ]


def test_write_to_an_impossible_path_is_reported(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl", "--write", "no/where.txt")
    assert (result.code, result.err) == (
        2,
        "ketal: cannot write no/where.txt: No such file or directory\n",
    )


def test_command_that_fails_to_start_does_not_truncate_the_output_file(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    write("old.txt", "kept")
    write("total.ketal", CONFLICT.replace("find any", "mode possibly; find any", 1))
    result = ketal("run", "--live", "total.ketal", "-", "--write", "old.txt")
    assert result.code == 2
    assert "is not available on a stream" in result.err
    assert (tmp_path / "old.txt").read_text() == "kept"


# --- settings -----------------------------------------------------------------------


def sized(*times: float) -> str:
    clocks = range(1, len(times) + 1)
    return "".join(
        event("a", "write", {"a": n}, time=t, size=n) for n, t in zip(clocks, times, strict=True)
    )


@pytest.mark.parametrize(
    ("settings", "matches"),
    [
        ([], 1),
        (["w=30s"], 1),
        (["w=500 ms"], 0),
        (["w = 0.5min"], 1),
        (["kind=read"], 0),
        (['kind="write"'], 1),
        (["least=3"], 0),
        (["least=1.5"], 0),
        (["flag=true", "w=1h"], 1),
    ],
)
def test_set_gives_parameters_their_values(
    ketal: Ketal, write: Write, settings: list[str], matches: int
) -> None:
    write("two.ketal", PARAM.replace("&& size >= least", "&& size >= least && flag == flag"))
    words = [word for setting in settings for word in ("--set", setting)]
    result = ketal("run", "two.ketal", "-", "--output", "json", *words, stdin=sized(1, 5))
    assert result.code == 0, result.err
    assert result.summary["patterns"]["Two"]["matches"] == matches


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["w"], "--set 'w' is not of the form NAME=VALUE, for example --set w=30s"),
        (["=3"], "--set '=3' is not of the form NAME=VALUE"),
        (
            ["w=30"],
            "parameter w is declared as the duration 10 s and cannot be the number 30; write",
        ),
        (["kint=x"], "unknown parameter 'kint'; did you mean kind?"),
        (["w=1s", "w=2s"], "--set w is given twice"),
        (
            ["limits=2"],
            "a parameter named 'limits' cannot be set: `ketal.compile` has an argument of "
            "that name",
        ),
    ],
)
def test_invalid_value_of_set_is_refused(
    ketal: Ketal, write: Write, settings: list[str], reason: str
) -> None:
    write("two.ketal", PARAM.replace("&& size >= least", "&& size >= least && flag == flag"))
    words = [word for setting in settings for word in ("--set", setting)]
    result = ketal("run", "two.ketal", "-", *words, stdin=sized(1, 5))
    assert result.code == 2
    assert result.err.startswith("ketal: ")
    assert reason in result.err
    assert result.err.count("\n") == 1


def test_limit_changes_a_limit(ketal: Ketal) -> None:
    result = ketal(
        "run", "conflict.ketal", "run.jsonl", "--limit", "line_bytes_max=65", "--output", "json"
    )
    assert result.summary["events"]["rejected"] == 1
    assert "65 bytes (limit line_bytes_max)" in result.objects[0]["reason"]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("held_back=3", "unknown limit 'held_back'; did you mean held_back_max?"),
        (
            "runs_max",
            "--limit 'runs_max' is not of the form NAME=VALUE, for example "
            "--limit held_back_max=100000",
        ),
        ("runs_max=many", "limit runs_max must be a positive integer, not 'many'"),
        ("runs_max=0", "limit runs_max must be a positive integer, not 0"),
        ("runs_max=-5", "limit runs_max must be a positive integer, not -5"),
        (f"runs_max={sys.maxsize + 1}", f"limit runs_max must be at most {sys.maxsize}"),
    ],
)
def test_invalid_limit_is_refused(ketal: Ketal, limit: str, reason: str) -> None:
    result = ketal("run", "conflict.ketal", "run.jsonl", "--limit", limit)
    assert (result.code, result.err) == (2, f"ketal: {reason}\n")


CONFIG = """
[source]
format = "jsonl"
time_unit = "ms"
fields = { type = "event", clock = "pkt.vc", data = "pkt" }
[limits]
line_bytes_max = 200
"""
MAPPED = [
    {"node": 1, "event": "write", "pkt": {"vc": {"1": 1}, "key": "x"}, "time": 1500},
    {"node": 2, "event": "write", "pkt": {"vc": {"2": 1}, "key": "x"}, "time": 2500},
]


def mapped() -> str:
    return "".join(json.dumps(one) + "\n" for one in MAPPED)


def test_config_file_sets_source_and_limits(ketal: Ketal, write: Write) -> None:
    write("ketal.toml", CONFIG)
    long = json.dumps({"node": 3, "pad": "x" * 300}) + "\n"
    words = ("run", "conflict.ketal", "-", "--config", "ketal.toml", "--output", "json")
    result = ketal(*words, stdin=mapped() + long)
    reason = result.objects[0]["reason"]
    assert reason.startswith("the line is longer than 200 bytes (limit line_bytes_max)")
    assert result.objects[1]["time"] == "1970-01-01T00:00:02.5Z"
    assert result.summary["events"]["accepted"] == 2


def test_flags_override_the_config(ketal: Ketal, write: Write) -> None:
    write("ketal.toml", CONFIG.replace("pkt.vc", "nowhere"))
    words = ["run", "conflict.ketal", "-", "--config", "ketal.toml", "--output", "json"]
    words += ["--field", "clock=pkt.vc", "--time-unit", "s", "--limit", "line_bytes_max=1000"]
    result = ketal(*words, stdin=mapped())
    assert result.objects[0]["time"] == "1970-01-01T00:41:40Z"
    assert result.summary["events"]["accepted"] == 2


def test_invalid_config_file_is_refused(ketal: Ketal, write: Write) -> None:
    write("ketal.toml", "[sauce]\n")
    result = ketal("run", "conflict.ketal", "run.jsonl", "--config", "ketal.toml")
    assert (result.code, result.err) == (
        2,
        "ketal: ketal.toml: unknown key 'sauce'; did you mean source?\n",
    )
    assert ketal("run", "conflict.ketal", "run.jsonl", "--config", "none.toml").code == 2


# --- reading -------------------------------------------------------------------------


def test_time_format_option_reads_times(ketal: Ketal, write: Write) -> None:
    lines = "".join(
        event(node, "write", {node: 1}, key="x", time=time) + "\n"
        for node, time in (("a", "5/27/2013 10:53:39 AM"), ("b", "5/27/2013 10:53:48 PM"))
    )
    words: tuple[str, ...] = ("run", "conflict.ketal", "-", "--output", "json")
    bare = ketal(*words, stdin=lines)
    assert bare.summary["events"]["rejected"] == 2
    assert "(pass --time-format FORMAT to set the format of times)" in bare.objects[0]["reason"]
    result = ketal(*words, "--time-format", "%m/%d/%Y %I:%M:%S %p", stdin=lines)
    assert result.objects[0]["time"] == "2013-05-27T22:53:48Z"
    assert result.summary["events"]["rejected"] == 0
    write("ketal.toml", "[source]\ntime_format = '%m/%d/%Y'\n")
    bad = ketal(*words, "--config", "ketal.toml", stdin=lines)
    fault = "time '5/27/2013 10:53:39 AM' does not match the time format '%m/%d/%Y'"
    assert bad.objects[0]["reason"] == fault
    words += ("--config", "ketal.toml", "--time-format", "%m/%d/%Y %I:%M:%S %p")
    assert ketal(*words, stdin=lines).summary["events"]["accepted"] == 2


def test_field_options_map_fields(ketal: Ketal) -> None:
    words = ["--field", "type=event", "--field", "clock=pkt.vc", "--field", "data=pkt"]
    result = ketal("run", "conflict.ketal", "-", *words, "--time-unit", "ms", stdin=mapped())
    assert result.lines[0] == "match Conflict (key=x): First=1@1, Second=2@1 (<stdin>:1, <stdin>:2)"


@pytest.mark.parametrize("live", [False, True], ids=["finite", "live"])
def test_incarnation_number_can_be_a_field(ketal: Ketal, live: bool) -> None:
    first, second = (event("a", "write", {"a": 1}, key="x", boot={"no": n}) for n in (1, 2))
    words = ["--field", "incarnation=boot.no", *["--live"] * live]
    result = ketal("run", "conflict.ketal", "-", *words, stdin=first + second)
    assert (
        result.lines[0] == "match Conflict (key=x): First=a@1, Second=a#2@1 (<stdin>:1, <stdin>:2)"
    )
    # The number also distinguishes events with otherwise equal content.
    assert "accepted" in result.lines[1]
    assert "duplicate" not in result.lines[1]


def test_positional_clocks(ketal: Ketal) -> None:
    log = '{"node": "a", "type": "write", "clock": [1, 0], "key": 1}\n'
    result = ketal("run", "conflict.ketal", "-", "--nodes", "a,b", "--output", "json", stdin=log)
    assert result.summary["events"]["accepted"] == 1


SHIVIZ = """first write
a {"a": 1}
second write
b {"b": 1}
"""
WRITES = """pattern Writes {
    order CausalOrder;
    event Write = type matches /write/;
    A = Write;
    B = Conc(Write);
    find any A B;
}
"""


def test_shiviz_regex_and_delimiter(ketal: Ketal, write: Write) -> None:
    write("writes.ketal", WRITES)
    regex = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
    result = ketal("run", "writes.ketal", "-", "--regex", regex, stdin=SHIVIZ)
    assert result.lines == [
        "match Writes: A=a@1, B=b@1 (<stdin>:1, <stdin>:3)",
        "2 read = 2 accepted",
        "Writes: 1 match",
    ]
    log = f"=== one ===\n{SHIVIZ}=== two ===\n{SHIVIZ}"
    words = ["--regex", regex, "--delimiter", "^=== (?<trace>.*) ===$", "--output", "json"]
    result = ketal("run", "writes.ketal", "-", *words, stdin=log)
    assert [verdict["execution"] for verdict in result.objects[:-1]] == ["one", "two"]
    assert result.summary["patterns"]["Writes"]["matches"] == 2


def test_format_option_and_packed_logs(ketal: Ketal, write: Write) -> None:
    write("log.gz", gzip.compress(RUN.encode()))
    assert ketal("run", "conflict.ketal", "log.gz", "--format", "jsonl").code == 0
    result = ketal("run", "conflict.ketal", "run.jsonl", "--format", "jsonlines")
    assert (result.code, result.err) == (
        2,
        "ketal: unknown format 'jsonlines'; did you mean jsonl?\n",
    )


def test_several_logs_are_one_execution(ketal: Ketal, write: Write) -> None:
    one, two, three = RUN.splitlines(keepends=True)
    write("b.jsonl", two + three)
    result = ketal("run", "conflict.ketal", "-", "b.jsonl", stdin=one)
    places = "(<stdin>:1, b.jsonl:1)"
    assert result.lines[0] == f"match Conflict (key=x): First=a@1, Second=b@1 {places}"


def test_options_may_be_anywhere_among_the_arguments(ketal: Ketal, write: Write) -> None:
    one, two, three = RUN.splitlines(keepends=True)
    write("a.jsonl", one)
    write("b.jsonl", two + three)
    result = ketal("run", "--count", "conflict.ketal", "a.jsonl", "--output", "human", "b.jsonl")
    assert result.lines == ["3 read = 3 accepted", "Conflict: 1 match"]


def test_pattern_can_be_read_from_standard_input(ketal: Ketal) -> None:
    assert ketal("run", "-", "run.jsonl", stdin=CONFLICT).lines[-1] == "Conflict: 1 match"
    result = ketal("run", "-", "-", stdin=CONFLICT)
    assert (result.code, result.err) == (
        2,
        "ketal: standard input (-) is given twice, but can be read only once\n",
    )


def test_verdicts_of_a_finite_log_come_in_canonical_order(ketal: Ketal) -> None:
    log = RUN + event("c", "write", {"c": 1}, key="x")
    there = ketal("run", "conflict.ketal", "-", stdin=log)
    back = ketal("run", "conflict.ketal", "-", stdin="".join(reversed(log.splitlines(True))))
    assert [line.partition(" (<stdin>")[0] for line in there.lines] == [
        line.partition(" (<stdin>")[0] for line in back.lines
    ]


CONCURRENT = """pattern Concurrent {
    order CausalOrder;
    event E = true;
    First = E;
    Second = Conc(E);
    find any First Second;
}
"""


@pytest.mark.parametrize(
    ("log", "options", "matches"),
    [
        ("shiviz/simpledb.log", ["--regex", r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"], 16_937),
        (
            "shiviz/RpcClientServer.log",
            ["--regex", r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"],
            2,
        ),
        (
            "tlaplus/VectorClocksTests.ndjson",
            ["--field", "type=event", "--field", "clock=pkt.vc", "--field", "data=pkt"],
            24_380,
        ),
    ],
)
def test_real_logs_have_the_known_number_of_concurrent_pairs(
    ketal: Ketal, write: Write, shared_data: Path, log: str, options: list[str], matches: int
) -> None:
    write("concurrent.ketal", CONCURRENT)
    result = ketal("run", "concurrent.ketal", shared_data / log, *options, "--count")
    assert result.lines[1:] == [f"Concurrent: {matches:,} matches"]
    assert (result.code, result.err) == (0, "")


# --- what cannot run -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("conflict.ketal", "none.jsonl"), "cannot read none.jsonl: No such file or directory"),
        (("none.ketal", "run.jsonl"), "none.ketal"),
        (("conflict.ketal", "."), "is a folder"),
        ((".", "run.jsonl"), "Is a directory"),
        (("conflict.ketal", "-", "-"), "standard input (-) is given twice"),
        (("-", "-"), "standard input (-) is given twice"),
        (
            ("conflict.ketal", "run.jsonl", "--regex", "("),
            "regex is not a valid regular expression",
        ),
        (
            ("conflict.ketal", "run.jsonl", "--field", "type"),
            "--field 'type' is not of the form NAME=PATH",
        ),
        (("conflict.ketal", "run.jsonl", "--nodes", ","), "nodes must be non-empty names"),
        (("conflict.ketal", "run.jsonl", "--time-unit", "h"), "unknown time unit 'h'"),
        (("conflict.ketal", "run.jsonl", "--time-format", "%T"), "unknown directive, %T; use the"),
        (
            ("conflict.ketal", "run.jsonl", "--time-format", "%H:%M"),
            "'%H:%M' has no complete date; include",
        ),
    ],
)
def test_error_is_reported_in_one_line(ketal: Ketal, words: tuple[str, ...], reason: str) -> None:
    result = ketal("run", *words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("ketal: ")
    assert reason in result.err
    assert result.err.count("\n") == 1


def test_pattern_error_is_shown_with_its_place(ketal: Ketal, write: Write) -> None:
    write("bad.ketal", CONFLICT.replace("Conc(Write)", "Conc(Wrote)"))
    result = ketal("run", "bad.ketal", "run.jsonl")
    assert result.code == 2
    head, line, caret, hint = result.err.splitlines()
    assert head.startswith("bad.ketal:6:19: error[K")
    assert line.strip() == "Second = Conc(Wrote);"
    assert caret.strip() == "^^^^^"
    assert "did you mean `Write`?" in hint


def test_missing_arguments_print_the_usage(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal")
    assert result.code == 2
    first, then, *_ = result.err.splitlines()
    assert first == "ketal run: error: the following arguments are required: LOG"
    assert then.startswith("usage: ketal run")
    assert ketal("run", "conflict.ketal", "run.jsonl", "--cuont").code == 2


def test_no_option_is_abbreviated(ketal: Ketal) -> None:
    assert ketal("run", "conflict.ketal", "run.jsonl", "--outp", "json").code == 2


def test_control_characters_of_a_log_are_escaped(ketal: Ketal) -> None:
    log = event("a\x1b[31m", "write", {"a\x1b[31m": 1}, key="x\ny") + event(
        "b", "write", {"b": 1}, key="x\ny"
    )
    result = ketal("run", "conflict.ketal", "-", stdin=log)
    assert "\x1b" not in result.out
    assert len(result.lines) == 3
    assert "a\\x1b[31m@1" in result.out


def test_file_name_that_is_not_utf8(ketal: Ketal, tmp_path: Path) -> None:
    name = b"bad\xff.jsonl".decode(errors="surrogateescape")
    (tmp_path / name).write_text(RUN + "{}\n")
    result = ketal("run", "conflict.ketal", name, "--output", "json")
    assert result.objects[0]["place"] == f"{name}:4"
    assert ketal("run", "conflict.ketal", name).code == 0


# --- findings where people work -----------------------------------------------------------


def test_github_annotates_the_lines_of_the_log(ketal: Ketal, write: Write) -> None:
    log = event("n", "open", {"n": 1}) + event("n", "open", {"n": 2}) + "no event\n"
    result = ketal("run", "--output", "github", write("p.ketal", PHASES), write("a,b.jsonl", log))
    assert result.code == 1
    violation, rejected, *summary = result.lines
    assert violation == (
        "::error file=a%2Cb.jsonl,line=2,title=ketal violation::"
        "violation Phases: n@2 open: expected Close"
    )
    assert rejected.startswith("::warning file=a%2Cb.jsonl,line=3,title=ketal rejected::rejected")
    assert summary == ["3 read = 2 accepted + 1 rejected", "Phases: 1 violation"]


def test_the_line_of_a_window_that_timed_out_is_given(ketal: Ketal, write: Write) -> None:
    text = 'pattern Slow { event A = type == "a"; find next A A; within 1 s; }'
    log = event("n", "b", {"n": 1}, time=1) + event("n", "a", {"n": 2}, time=1)
    words = (write("p.ketal", text), write("run.jsonl", log))
    result = ketal("run", "--output", "github", *words)
    assert result.lines[0].startswith("::warning file=run.jsonl,line=2,title=ketal timed_out::")
    timed_out, _ = ketal("run", "--output", "json", *words).objects
    assert (timed_out["events"], timed_out["places"]) == (["n@2"], ["run.jsonl:2"])


def test_sarif_has_the_places_of_all_events_of_a_match(ketal: Ketal, write: Write) -> None:
    log = event("a", "write", {"a": 1}, key="x") + event("b", "write", {"b": 1}, key="x")
    words = (write("p.ketal", CONFLICT), write("run.jsonl", log))
    result = ketal("run", "--output", "sarif", "--explain", "--fail-on", "match", *words)
    assert result.code == 1
    (run,) = json.loads(result.out)["runs"]
    (sarif_result,) = run["results"]
    assert (sarif_result["ruleId"], sarif_result["level"]) == ("match", "error")
    assert "are concurrent" in sarif_result["message"]["text"]
    (place,) = sarif_result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "run.jsonl"}, "region": {"startLine": 2},
    }  # fmt: skip
    assert place["logicalLocations"] == [{"name": "Conflict", "kind": "type"}]
    assert [one["message"]["text"] for one in sarif_result["relatedLocations"]] == [
        "First=a@1", "Second=b@1",
    ]  # fmt: skip
    found = ketal("run", "--output", "json", *words)
    assert sarif_result["partialFingerprints"] == {"ketal/v1": found.objects[0]["id"]}
    assert run["properties"]["summary"] == found.summary


def test_sarif_reports_verdicts_beyond_the_limit(ketal: Ketal, write: Write) -> None:
    log = "".join(event(f"n{n}", "write", {f"n{n}": 1}, key="x") for n in range(4))
    words = (write("p.ketal", CONFLICT), write("run.jsonl", log))
    result = ketal("run", "--output", "sarif", "--limit", "verdicts_max=2", *words)
    assert len(json.loads(result.out)["runs"][0]["results"]) == 2
    assert "4 verdicts are omitted from the SARIF log (limit verdicts_max)" in result.err


def test_places_of_events_judged_at_the_end_are_known(ketal: Ketal, write: Write) -> None:
    first = event("a", "write", {"a": 1}, key="x")
    middle = "".join(event("c", "other", {"c": n}) for n in range(1, 40_001))
    log = write("run.jsonl", first + middle + event("b", "write", {"b": 1}, key="x"))
    result = ketal("run", "--output", "json", write("p.ketal", CONFLICT), log)
    assert result.objects[0]["places"] == ["run.jsonl:1", "run.jsonl:40002"]
    arrival = CONFLICT.replace("    order CausalOrder;\n", "").replace("Conc(Write)", "Write")
    result = ketal("run", "--output", "json", write("q.ketal", arrival), log)
    assert result.objects[0]["places"] == [None, "run.jsonl:40002"]


@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
@pytest.mark.parametrize("explained", [False, True])
def test_each_incarnation_of_a_node_has_its_own_places(
    ketal: Ketal, write: Write, order: str, explained: bool
) -> None:
    """The last record is of the first incarnation, and was preceded by the second's same dot."""
    first = [event("a", "write", {"a": n}, run=1) for n in (1, 2, 4)]
    second = [event("a", "write", {"a": n, "b": 1}, run=2) for n in (1, 2, 3, 4)]
    log = [*first, *second, event("a", "write", {"a": 3}, run=1), event("b", "other", {"b": 1})]
    text = (
        f'pattern P {{ order {order}; event A = type == "write"; find any A; return run = A.run; }}'
    )
    words = (write("p.ketal", text), write("run.jsonl", "".join(log)))
    result = ketal("run", "--output", "json", *["--explain"] * explained, *words)
    lines = {1: [1, 2, 8, 3], 2: [4, 5, 6, 7]}
    matches = result.objects[:-1]
    assert len(matches) == 8
    for match in matches:
        (dot,), (place,) = match["events"], match["places"]
        assert place == f"run.jsonl:{lines[match['return']['run']][int(dot[-1]) - 1]}"
        assert not explained or place in json.dumps(match["explanation"])
