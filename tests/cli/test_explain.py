"""`ketal explain` and `ketal run --explain`: what they print, and their exit codes."""

from __future__ import annotations

import itertools
import sys

from tests.cli.conftest import CONFLICT, PHASES, Ketal, Write, event

TWO = event("a", "write", {"a": 1}, key="x") + event("b", "write", {"b": 1}, key="x")
OPEN = event("n", "open", {"n": 1}) + event("n", "open", {"n": 2})
EXPLAINED = """\
match Conflict (key=x): First=a@1, Second=b@1
  First = a@1 write (run.jsonl:1)
    type == "write" holds: type is "write"
  a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
    last event of a known to b@1: none
    last event of b known to a@1: none
  Second = b@1 write (run.jsonl:2)
    type == "write" holds: type is "write"
    Conc(Write) holds: a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
"""


def test_each_verdict_is_explained_with_the_places_of_its_events(
    ketal: Ketal, write: Write
) -> None:
    result = ketal("explain", write("p.ketal", CONFLICT), write("run.jsonl", TWO))
    assert (result.code, result.out, result.err) == (0, EXPLAINED, "")


def test_json_has_one_object_per_verdict(ketal: Ketal, write: Write) -> None:
    pattern, log = write("p.ketal", PHASES), write("run.jsonl", OPEN)
    (result,) = ketal("explain", "--output", "json", pattern, log).objects
    assert result["verdict"]["event"] == "n@2"
    assert result["event"] == {"event": "n@2", "type": "open", "place": "run.jsonl:2"}
    (run,) = result["runs"]
    assert run["taken"] == [
        {"step": "Open", "event": "n@1", "type": "open", "place": "run.jsonl:1"}
    ]
    assert [(step["step"], step["holds"]) for step in run["steps"]] == [("Close", False)]


def test_event_is_explained_under_every_pattern(ketal: Ketal, write: Write) -> None:
    pattern, log = write("p.ketal", CONFLICT + PHASES), write("run.jsonl", TWO + OPEN)
    result = ketal("explain", "--event", "n@1", pattern, log)
    assert result.lines == [
        "Conflict: n@1 open (run.jsonl:3)",
        "  it is not an event of the pattern:",
        '    type == "write" fails: type is "open"',
        "",
        "Phases: n@1 open (run.jsonl:3)",
        "  in q0, before the first step:",
        "    it satisfies Open",
    ]
    result = ketal("explain", "--event", "n@9", pattern, log)
    assert (result.code, result.out) == (2, "")
    assert "the log has no event n@9; nearest in the log: n@2" in result.err


def test_first_and_limits_accept_very_large_numbers(ketal: Ketal, write: Write) -> None:
    pattern, log = write("p.ketal", CONFLICT), write("run.jsonl", TWO)
    assert ketal("explain", "--first", "9" * 25, pattern, log).out == EXPLAINED
    most = sys.maxsize
    none = write("none.ketal", CONFLICT.replace("Conc(Write)", "Causal(Write)"))
    words = ("--limit", f"explained_runs_max={most}", "--limit", f"near_misses_max={most}")
    for more in ((pattern, log, "--event", "b@1"), (none, log)):
        result = ketal("explain", *more)
        assert (result.code, result.err) == (0, "")
        assert ketal("explain", *words, *more).out == result.out


def test_first_verdicts_are_explained_and_the_rest_is_counted(ketal: Ketal, write: Write) -> None:
    log = write(
        "run.jsonl", "".join(event(f"n{n}", "write", {f"n{n}": 1}, key=1) for n in range(6))
    )
    pattern = write("p.ketal", CONFLICT)
    result = ketal("explain", pattern, log)
    assert result.out.count("match Conflict") == 10
    assert "5 more verdicts; use --first N or --verdict ID to explain others" in result.err
    found = ketal("run", "--output", "json", pattern, log).objects[:-1]
    for one in found:
        del one["places"]
        result = ketal("explain", "--verdict", one["id"], "--output", "json", pattern, log)
        assert [shown["verdict"] for shown in result.objects] == [one]


CHECKED = 'pattern Writes { event Write = type == "write"; check Write*; }'


def test_log_without_a_verdict_gets_a_hint(ketal: Ketal, write: Write) -> None:
    pattern, log = write("p.ketal", CHECKED), write("run.jsonl", TWO)
    result = ketal("explain", pattern, log)
    assert (result.code, result.out) == (0, "")
    assert "no verdict to explain: there is no match and no violation" in result.err
    result = ketal("explain", "--verdict", "abc", pattern, log)
    assert result.code == 2
    assert "no verdict has an id that begins with 'abc'" in result.err


def test_find_that_judged_no_event_is_explained(ketal: Ketal, write: Write) -> None:
    result = ketal("explain", write("p.ketal", CONFLICT), write("run.jsonl", OPEN))
    assert (result.code, result.lines) == (
        0,
        [
            "Conflict: no match",
            "  no event was evaluated",
            "    0 of 2 events are in the alphabet",
            "    no event has the attribute `key`",
            "    no event has the type `write`; most frequent: `open` (2 events)",
        ],
    )
    keyless = event("a", "write", {"a": 1})
    result = ketal("explain", write("p.ketal", CONFLICT), write("run.jsonl", keyless))
    assert "    1 event lacks the key of `partition by`" in result.lines


def test_counted_matches_are_not_reported_as_no_match(ketal: Ketal, write: Write) -> None:
    counted = CONFLICT.replace("find any First Second;", "find any First Second; return count;")
    result = ketal("explain", write("p.ketal", counted), write("run.jsonl", TWO))
    assert (result.code, result.out) == (0, "")
    assert (
        "the matches of Conflict are only counted (return count), so none is explained"
        in result.err
    )
    assert "no match" not in result.err


def test_log_without_events_is_an_error(ketal: Ketal, write: Write) -> None:
    result = ketal("explain", write("p.ketal", CONFLICT), write("run.jsonl", "nonsense\n"))
    assert result.code == 2
    assert "run.jsonl:1" in result.err


def test_log_without_events_is_an_error_and_replaces_no_file(ketal: Ketal, write: Write) -> None:
    pattern, before = write("p.ketal", CONFLICT), write("before.txt", "explained")
    for log in (write("empty.jsonl", ""), write("bad.jsonl", "x\n")):
        result = ketal("explain", "--write", before, pattern, log)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("ketal: no event was read: ")
        assert before.read_text() == "explained"


def test_rejected_records_are_counted_beside_explanations(ketal: Ketal, write: Write) -> None:
    """A damaged line may be the reason why a verdict is absent."""
    log = write("run.jsonl", TWO + "nonsense\n" + TWO[:20])
    result = ketal("explain", write("p.ketal", CONFLICT), log)
    assert (result.code, result.out) == (0, EXPLAINED)
    assert result.err.startswith("ketal: 2 records were rejected; the first is run.jsonl:3: ")


def test_run_with_explain_prints_an_explanation_below_each_verdict(
    ketal: Ketal, write: Write
) -> None:
    pattern, log = write("p.ketal", CONFLICT), write("run.jsonl", TWO)
    result = ketal("run", "--explain", "--fail-on", "match", pattern, log)
    assert (result.code, result.out) == (1, EXPLAINED + "2 read = 2 accepted\nConflict: 1 match\n")
    plain = ketal("run", "--output", "json", pattern, log).objects
    explained = ketal("run", "--explain", "--output", "json", pattern, log).objects
    assert explained[0].pop("explanation")["pairs"][0]["order"] == "concurrent"
    assert explained == plain


def test_run_refuses_explain_with_live_or_trace(ketal: Ketal, write: Write) -> None:
    pattern, log = write("p.ketal", CONFLICT), write("run.jsonl", TWO)
    for option, other in itertools.product(("--explain", "--show"), ("--live", "--trace")):
        result = ketal("run", option, other, pattern, log)
        assert result.code == 2
        assert f"{option} requires a whole log and cannot be combined with {other}" in result.err


def test_count_is_refused_with_options_that_add_to_verdicts(ketal: Ketal, write: Write) -> None:
    """These options, and `--trace`, were once silently ignored."""
    pattern, log = write("p.ketal", CONFLICT), write("run.jsonl", TWO)
    for option in ("--explain", "--show", "--trace"):
        result = ketal("run", "--count", option, pattern, log)
        assert (result.code, result.out) == (2, "")
        assert (
            f"{option} cannot be combined with --count, which prints only the summary" in result.err
        )


def test_numbered_incarnations_have_their_own_places(ketal: Ketal, write: Write) -> None:
    second = event("a", "write", {"a": 1}, key="x", incarnation=2)
    first = event("a", "write", {"a": 1}, key="x")
    pattern, log = write("p.ketal", CONFLICT), write("run.jsonl", second + first)
    explained = ketal("explain", "--output", "json", pattern, log).objects[0]
    assert [(one["event"], one["place"]) for one in explained["steps"]] == [
        ("a@1", "run.jsonl:2"), ("a#2@1", "run.jsonl:1"),
    ]  # fmt: skip
    found = ketal("run", "--output", "json", pattern, log).objects[0]
    assert found["places"] == ["run.jsonl:2", "run.jsonl:1"]


def test_run_draws_the_events_around_each_verdict(ketal: Ketal, write: Write) -> None:
    late = event("b", "write", {"a": 1, "b": 2}, key="x")
    pattern, log = write("p.ketal", CONFLICT), write("run.jsonl", TWO + late)
    result = ketal("run", "--show", pattern, log)
    assert (result.code, result.lines) == (
        0,
        [
            "match Conflict (key=x): First=a@1, Second=b@1 (run.jsonl:1, run.jsonl:2)",
            "  a    b",
            "  ◆    ┊    a@1 write  First",
            "  ┊    ◆    b@1 write  Second",
            "3 read = 3 accepted",
            "Conflict: 1 match",
        ],
    )
    both = ketal("run", "--show", "--explain", pattern, log).lines
    assert [line for line in both if line in result.lines[1:]] == result.lines[1:]
    assert ketal("run", "--show", "--output", "json", pattern, log).code == 2


def test_pattern_can_be_read_from_standard_input(ketal: Ketal, write: Write) -> None:
    result = ketal("explain", "-", write("run.jsonl", TWO), stdin=CONFLICT)
    assert (result.code, result.out) == (0, EXPLAINED)
    result = ketal("explain", "-", "-", stdin=CONFLICT)
    assert result.code == 2


def test_impossible_clocks_are_reported(ketal: Ketal, write: Write) -> None:
    clock = {"a": 1, "b": 1}
    log = write("run.jsonl", "".join(event(node, "write", clock, key="x") for node in "ab"))
    result = ketal("explain", write("p.ketal", CONFLICT), log)
    warning = "ketal: 1 event with an impossible clock; run `ketal audit` to find the fault\n"
    assert (result.code, result.err.startswith(warning)) == (0, True)
