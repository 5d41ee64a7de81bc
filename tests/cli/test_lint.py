"""`ketal lint`: findings as text, JSON, GitHub annotations and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CONFLICT, PHASES, RUN, Ketal, Write, event

BAD = PHASES.replace("(Open Close)", "(Open Clsoe)")
UNUSED = CONFLICT.replace("find", "Never = Write;\n    find")


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("good.ketal", CONFLICT)
    write("bad.ketal", BAD)
    write("unused.ketal", UNUSED)


def test_file_without_findings(ketal: Ketal) -> None:
    result = ketal("lint", "good.ketal")
    assert (result.code, result.out) == (0, "no errors and no warnings in 1 file\n")


def test_error_is_printed_with_place_line_caret_and_hint(ketal: Ketal) -> None:
    result = ketal("lint", "bad.ketal", "good.ketal")
    assert result.code == 1
    at = result.lines.index("      check (Open Clsoe)*;")
    assert result.lines[at - 1].startswith("bad.ketal:4:17: error[K")
    assert result.lines[at + 1] == "                  ^^^^^"
    assert "did you mean `Close`?" in result.lines[at + 2]
    assert result.lines[-1].startswith("1 error, ")
    assert result.lines[-1].endswith(" in 2 files")


def test_warning_has_exit_code_zero(ketal: Ketal) -> None:
    result = ketal("lint", "unused.ketal")
    assert result.code == 0
    assert "warning[K" in result.out
    assert result.lines[-1] == "0 errors, 1 warning in 1 file"


def test_json_has_one_finding_per_line(ketal: Ketal) -> None:
    result = ketal("lint", "--output", "json", "bad.ketal", "unused.ketal")
    assert result.code == 1
    assert {finding["file"] for finding in result.objects} == {"bad.ketal", "unused.ketal"}
    (error,) = [finding for finding in result.objects if finding["severity"] == "error"]
    assert list(error) == [
        "file", "line", "column", "end_line", "end_column",
        "severity", "code", "pattern", "message", "hint",
    ]  # fmt: skip
    place = [error[key] for key in ("line", "column", "end_line", "end_column")]
    assert place == [4, 17, 4, 22]
    assert error["pattern"] == "Phases"


def test_cost_of_a_pattern_is_printed(ketal: Ketal) -> None:
    result = ketal("lint", "--explain-cost", "good.ketal", "bad.ketal")
    assert result.code == 1
    at = result.lines.index("good.ketal:6:14: Conflict: search: any event may come last")
    assert result.lines[at + 1 : -1] == [
        "  an event    O(P^2 log n)",
        "  a match     O(k P log n), for each of its mirror images",
        "  decided by  `Conc(Write)`: it does not require its event to be after the prior event",
        "  flat with   `order arrival`, or `Causal` on the prior event in every step but the first",
        "  --count     lists matches to count them: any event of a match may come last",
    ]
    assert result.lines[-1] == "n: events kept in a scope, P: nodes, k: events of a match"


def test_json_has_one_line_of_cost_per_pattern_after_the_findings(ketal: Ketal) -> None:
    result = ketal("lint", "--explain-cost", "--output", "json", "unused.ketal", "good.ketal")
    assert result.code == 0
    *findings, first, second = result.objects
    assert all("severity" in finding for finding in findings)
    assert list(second) == [
        "file", "line", "column", "end_line", "end_column", "pattern", "cost", "event", "match",
        "guard", "reason", "flat_with", "counts", "counts_because",
    ]  # fmt: skip
    assert (first["file"], second["file"]) == ("unused.ketal", "good.ketal")
    place = [second[key] for key in ("line", "column", "end_line", "end_column")]
    assert place == [6, 14, 6, 25]


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_cost_is_refused_with_github_and_sarif(ketal: Ketal, form: str) -> None:
    result = ketal("lint", "--explain-cost", "--output", form, "good.ketal")
    assert result.code == 2
    assert "--explain-cost cannot be combined with --output" in result.err


def test_json_of_a_clean_file_is_empty(ketal: Ketal) -> None:
    assert ketal("lint", "--output", "json", "good.ketal").out == ""


def test_github_output_is_escaped(ketal: Ketal, write: Write) -> None:
    write("a,b:c%.ketal", BAD)
    result = ketal("lint", "--output", "github", "a,b:c%.ketal")
    (line,) = [line for line in result.lines if line.startswith("::error ")]
    assert line.startswith(
        "::error file=a%2Cb%3Ac%25.ketal,line=4,endLine=4,col=17,endColumn=21,title=ketal K"
    )
    assert "%0Ahint: did you mean `Close`?" in line
    assert result.code == 1


def test_sarif_has_each_finding_with_its_place(ketal: Ketal, tmp_path: Path, write: Write) -> None:
    write("a b.ketal", BAD)
    result = ketal("lint", "--output", "sarif", "a b.ketal", tmp_path / "unused.ketal")
    assert result.code == 1
    document = json.loads(result.out)
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for sarif_result in run["results"]:
        assert rules[sarif_result["ruleIndex"]] == sarif_result["ruleId"]
        assert sarif_result["level"] in ("error", "warning")
        assert sarif_result["message"]["text"]
    places = [sarif_result["locations"][0]["physicalLocation"] for sarif_result in run["results"]]
    uris = {place["artifactLocation"]["uri"] for place in places}
    assert uris == {"a%20b.ketal", (tmp_path / "unused.ketal").as_uri()}
    (error,) = [r for r in run["results"] if r["level"] == "error"]
    region = error["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 4, "startColumn": 17, "endLine": 4, "endColumn": 22}


def test_sarif_of_a_clean_file_has_no_results(ketal: Ketal) -> None:
    result = ketal("lint", "--output", "sarif", "good.ketal")
    assert json.loads(result.out)["runs"][0]["results"] == []
    assert result.code == 0


def test_output_is_written_to_a_file(ketal: Ketal, tmp_path: Path) -> None:
    result = ketal("lint", "--output", "sarif", "--write", "out.sarif", "bad.ketal")
    assert (result.code, result.out) == (1, "")
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_standard_input_is_linted(ketal: Ketal) -> None:
    result = ketal("lint", "-", stdin=BAD)
    assert result.code == 1
    assert any(line.startswith("<stdin>:4:17: error") for line in result.lines)


def test_missing_file_does_not_hide_findings_of_others(ketal: Ketal) -> None:
    result = ketal("lint", "none.ketal", "bad.ketal")
    assert result.code == 2
    assert result.err == ("ketal: cannot read pattern file none.ketal: No such file or directory\n")
    assert "bad.ketal:4:17" in result.out
    assert result.lines[-1].endswith(" in 1 file")


def test_limit_of_the_pattern_size_is_applied(ketal: Ketal) -> None:
    result = ketal("lint", "good.ketal", "--limit", "pattern_bytes_max=10")
    assert result.code == 2
    assert "pattern_bytes_max" in result.err


# --- against a log ------------------------------------------------------------------


MISSPELT = CONFLICT.replace('"write"', '"wirte"')


@pytest.fixture
def log(write: Write) -> Path:
    write("conflict.ketal", MISSPELT)
    return write("run.jsonl", RUN.splitlines(keepends=True)[0] + RUN.splitlines(keepends=True)[1])


def test_name_that_no_event_of_the_log_has_is_warned_of(ketal: Ketal, log: Path) -> None:
    assert ketal("lint", "conflict.ketal").code == 0
    assert "K301" not in ketal("lint", "conflict.ketal").out
    result = ketal("lint", "conflict.ketal", "--log", log)
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
    shown = page.split("```\n$ ketal lint conflict.ketal --log run.jsonl\n")[1].split("```")[0]
    assert (result.code, result.out, result.err) == (0, shown, "")


@pytest.mark.parametrize("form", ["json", "github", "sarif"])
def test_absent_name_is_a_finding_in_every_form_of_output(
    ketal: Ketal, log: Path, form: str
) -> None:
    result = ketal("lint", "--output", form, "--log", log, "conflict.ketal", "good.ketal")
    assert result.out.count("did you mean `write` (2 events)?") == 1
    if form == "json":
        (finding,) = result.objects
        assert (finding["code"], finding["line"], finding["column"]) == ("K301", 4, 19)
        assert (finding["severity"], finding["pattern"]) == ("warning", "Conflict")


def test_findings_from_the_log_are_sorted_among_the_others(
    ketal: Ketal, log: Path, write: Write
) -> None:
    write("both.ketal", UNUSED.replace("find any", "return k = First.kye; find any"))
    result = ketal("lint", "--output", "json", "both.ketal", "--log", log)
    assert [finding["code"] for finding in result.objects] == ["K107", "K302"]
    result = ketal("lint", "--output", "json", "bad.ketal", "--log", log)
    assert result.code == 1
    assert [finding["code"][:2] for finding in result.objects] == ["K1"] * len(result.objects)


def test_several_logs_are_read_together_with_the_reading_options(
    ketal: Ketal, write: Write
) -> None:
    write("one.jsonl", json.dumps({"n": "a", "type": "write", "clock": {"a": 1}, "key": 1}) + "\n")
    write("two.jsonl", json.dumps({"n": "b", "type": "x", "clock": {"b": 1}}) + "\n")
    words = ["lint", "good.ketal", "--field", "node=n", "--log", "two.jsonl"]
    assert ketal(*words).lines[-1] == "0 errors, 2 warnings in 1 file"
    assert ketal(*words, "--log", "one.jsonl").out == "no errors and no warnings in 1 file\n"
    stdin = (Path("one.jsonl")).read_bytes()
    assert ketal(*words, "--log", "-", stdin=stdin).out == "no errors and no warnings in 1 file\n"
    assert "given twice" in ketal("lint", "-", "--log", "-").err


def test_log_without_events_gives_no_warnings_about_names(ketal: Ketal, write: Write) -> None:
    result = ketal("lint", "good.ketal", "--log", write("empty.jsonl", ""))
    assert (result.code, result.out) == (2, "no errors and no warnings in 1 file\n")
    assert result.err == "ketal: no event was read: there are no events in empty.jsonl\n"
    assert ketal("lint", "good.ketal", "--log", "nowhere.jsonl").code == 2


def test_parts_of_the_log_left_out_by_limits_are_reported(
    ketal: Ketal, log: Path, write: Write
) -> None:
    more = write("more.jsonl", event("a", "top", {"a": 2}, key=1) + "no event\n")
    words = ["lint", "conflict.ketal", "--log", log, "--log", more]
    assert "ketal: --log: 1 record was rejected; the first is more.jsonl:2: " in ketal(*words).err
    result = ketal(*words, "--limit", "stats_types_max=1")
    assert result.out == "no errors and no warnings in 1 file\n"
    assert "(limit stats_types_max = 1), so absent types are not reported" in result.err


def test_reading_option_without_a_log_is_refused(ketal: Ketal, write: Write) -> None:
    result = ketal("lint", "good.ketal", "--format", "csv")
    assert (result.code, result.out) == (2, "")
    assert result.err == "ketal: --format applies to a log, but none is given; add --log LOG\n"
    for option, value in [
        ("--field", "node=n"),
        ("--time-unit", "ms"),
        ("--time-format", "%x"),
        ("--nodes", "a,b"),
    ]:
        assert ketal("lint", "good.ketal", option, value).code == 2
    config = write("limits.toml", "[limits]\npattern_bytes_max = 10\n")
    assert "pattern_bytes_max" in ketal("lint", "good.ketal", "--config", config).err


def test_log_is_not_overwritten(ketal: Ketal, log: Path) -> None:
    result = ketal("lint", "good.ketal", "--log", log, "--write", log)
    assert (result.code, "would overwrite an input file" in result.err) == (2, True)
