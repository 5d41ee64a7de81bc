"""`ketal lint`: findings for people, for programs, for GitHub, for SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CONFLICT, PHASES, Ketal, Write

BAD = PHASES.replace("(Open Close)", "(Open Clsoe)")
UNUSED = CONFLICT.replace("find", "Never = Write;\n    find")


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("good.ketal", CONFLICT)
    write("bad.ketal", BAD)
    write("unused.ketal", UNUSED)


def test_a_clean_file(ketal: Ketal) -> None:
    said = ketal("lint", "good.ketal")
    assert (said.code, said.out) == (0, "no errors and no warnings in 1 file\n")


def test_an_error_has_place_line_caret_and_hint(ketal: Ketal) -> None:
    said = ketal("lint", "bad.ketal", "good.ketal")
    assert said.code == 1
    at = said.lines.index("      check (Open Clsoe)*;")
    assert said.lines[at - 1].startswith("bad.ketal:4:17: error[K")
    assert said.lines[at + 1] == "                  ^^^^^"
    assert "did you mean `Close`?" in said.lines[at + 2]
    assert said.lines[-1].startswith("1 error, ")
    assert said.lines[-1].endswith(" in 2 files")


def test_a_warning_exits_with_zero(ketal: Ketal) -> None:
    said = ketal("lint", "unused.ketal")
    assert said.code == 0
    assert "warning[K" in said.out
    assert said.lines[-1] == "0 errors, 1 warning in 1 file"


def test_json_is_a_finding_a_line(ketal: Ketal) -> None:
    said = ketal("lint", "--output", "json", "bad.ketal", "unused.ketal")
    assert said.code == 1
    assert {finding["file"] for finding in said.objects} == {"bad.ketal", "unused.ketal"}
    (error,) = [finding for finding in said.objects if finding["severity"] == "error"]
    assert list(error) == [
        "file", "line", "column", "end_line", "end_column",
        "severity", "code", "pattern", "message", "hint",
    ]  # fmt: skip
    place = [error[key] for key in ("line", "column", "end_line", "end_column")]
    assert place == [4, 17, 4, 22]
    assert error["pattern"] == "Phases"


def test_the_cost_of_a_pattern(ketal: Ketal) -> None:
    said = ketal("lint", "--explain-cost", "good.ketal", "bad.ketal")
    assert said.code == 1
    at = said.lines.index("good.ketal:6:14: Conflict: search: any event may come last")
    assert said.lines[at + 1 : -1] == [
        "  an event    O(P^2 log n)",
        "  a match     O(k P log n), for each of its mirror images",
        "  decided by  `Conc(Write)`: it does not ask its event to be after the one before it",
        "  flat with   `order arrival`, or `Causal` of the event before it in every step but the "
        "first",
        "  --count     lists matches to count them: any event of a match may come last",
    ]
    assert said.lines[-1] == "n: events kept in a scope, P: nodes, k: events of a match"


def test_the_cost_as_json_is_a_pattern_a_line_after_the_findings(ketal: Ketal) -> None:
    said = ketal("lint", "--explain-cost", "--output", "json", "unused.ketal", "good.ketal")
    assert said.code == 0
    *findings, first, second = said.objects
    assert all("severity" in finding for finding in findings)
    assert list(second) == [
        "file", "line", "column", "end_line", "end_column", "pattern", "cost", "event", "match",
        "guard", "reason", "flat_with", "counts", "counts_because",
    ]  # fmt: skip
    assert (first["file"], second["file"]) == ("unused.ketal", "good.ketal")
    place = [second[key] for key in ("line", "column", "end_line", "end_column")]
    assert place == [6, 14, 6, 25]


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_the_cost_has_no_form_for_other_tools(ketal: Ketal, form: str) -> None:
    said = ketal("lint", "--explain-cost", "--output", form, "good.ketal")
    assert said.code == 2
    assert "--explain-cost has no form" in said.err


def test_json_of_a_clean_file_is_empty(ketal: Ketal) -> None:
    assert ketal("lint", "--output", "json", "good.ketal").out == ""


def test_github_escapes(ketal: Ketal, write: Write) -> None:
    write("a,b:c%.ketal", BAD)
    said = ketal("lint", "--output", "github", "a,b:c%.ketal")
    (line,) = [line for line in said.lines if line.startswith("::error ")]
    assert line.startswith(
        "::error file=a%2Cb%3Ac%25.ketal,line=4,endLine=4,col=17,endColumn=21,title=ketal K"
    )
    assert "%0Ahint: did you mean `Close`?" in line
    assert said.code == 1


def test_sarif(ketal: Ketal, tmp_path: Path, write: Write) -> None:
    write("a b.ketal", BAD)
    said = ketal("lint", "--output", "sarif", "a b.ketal", tmp_path / "unused.ketal")
    assert said.code == 1
    document = json.loads(said.out)
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    uris = {place["artifactLocation"]["uri"] for place in places}
    assert uris == {"a%20b.ketal", (tmp_path / "unused.ketal").as_uri()}
    (error,) = [r for r in run["results"] if r["level"] == "error"]
    region = error["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 4, "startColumn": 17, "endLine": 4, "endColumn": 22}


def test_sarif_of_a_clean_file_has_no_results(ketal: Ketal) -> None:
    said = ketal("lint", "--output", "sarif", "good.ketal")
    assert json.loads(said.out)["runs"][0]["results"] == []
    assert said.code == 0


def test_write(ketal: Ketal, tmp_path: Path) -> None:
    said = ketal("lint", "--output", "sarif", "--write", "out.sarif", "bad.ketal")
    assert (said.code, said.out) == (1, "")
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_standard_input(ketal: Ketal) -> None:
    said = ketal("lint", "-", stdin=BAD)
    assert said.code == 1
    assert any(line.startswith("<stdin>:4:17: error") for line in said.lines)


def test_a_file_that_is_not_there_does_not_hide_the_others(ketal: Ketal) -> None:
    said = ketal("lint", "none.ketal", "bad.ketal")
    assert said.code == 2
    assert said.err == ("ketal: cannot read pattern file none.ketal: No such file or directory\n")
    assert "bad.ketal:4:17" in said.out
    assert said.lines[-1].endswith(" in 1 file")


def test_limit(ketal: Ketal) -> None:
    said = ketal("lint", "good.ketal", "--limit", "pattern_bytes_max=10")
    assert said.code == 2
    assert "pattern_bytes_max" in said.err
