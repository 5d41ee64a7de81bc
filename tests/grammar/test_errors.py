"""Every malformed pattern of the table gets the findings listed there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.analysis.name_resolution import resolve
from ketal.analysis.registered_guards import RegisteredGuard
from ketal.errors import Diagnostic, PatternError, PatternText, Span, diagnostic_text
from ketal.grammar import complaints, parse
from ketal.grammar.reader import language
from ketal.model.limits import Limits
from tests.work import counted_calls, counted_lines

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE: list[dict[str, Any]] = tomllib.loads((HERE / "malformed.toml").read_text("utf-8"))["pattern"]
REGISTERED = {
    "larger": RegisteredGuard("larger", "1", lambda event, bound: True, ("number",), True)
}
DIAGNOSTICS = (ROOT / "docs" / "diagnostics.md").read_text("utf-8")
SEVERITIES = dict(re.findall(r"^\| (K\d{3}) \| (error|warning) \|", DIAGNOSTICS, re.M))


def findings(text: str, limits: Limits | None = None) -> list[Diagnostic]:
    try:
        return resolve(parse(text, limits=limits or Limits()), registered=REGISTERED)
    except PatternError as error:
        caught = error
    assert caught.source is not None
    assert caught.source.text == text
    return list(caught.diagnostics)


def row(diagnostic: Diagnostic) -> list[str]:
    span = diagnostic.span
    assert span is not None
    place = f"{span.line}:{span.column}-{span.end_column}"
    return [diagnostic.severity, diagnostic.code, place, diagnostic.message, diagnostic.hint]


def test_table_is_long_and_has_no_duplicates() -> None:
    texts = [entry["text"] for entry in TABLE]
    assert len(texts) >= 60
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry["text"].strip()[-60:])
def test_malformed_pattern_has_the_listed_findings(entry: dict[str, Any]) -> None:
    assert [row(finding) for finding in findings(entry["text"])] == entry["findings"]


def test_cycle_check_does_not_walk_unrelated_events() -> None:
    def work(unrelated: int) -> int:
        events = "".join(f'event E{n} = type == "e{n}";' for n in range(unrelated))
        text = f"{events} event A = B; event B = A; pattern P {{ find next E0 E1; }}"
        found, calls = counted_calls(lambda: findings(text))
        assert [one.code for one in found if one.code == "K116"] == ["K116", "K116"]
        return calls

    work(100)  # what is computed only once
    assert work(400) < 5 * work(100)


def test_a_pattern_does_not_copy_the_shared_declarations() -> None:
    def work(count: int) -> int:
        events = "".join(f'event E{n} = type == "e{n}";' for n in range(count))
        patterns = "".join(
            f"pattern P{n} {{ find next E{n} E{n}; return a = E{n}.x; }}" for n in range(count)
        )
        file = parse(events + patterns)
        found, lines = counted_lines(lambda: resolve(file))
        assert found == []
        return lines

    work(50)  # what is computed only once
    assert work(600) < 7 * work(100)


def test_every_rule_is_used_by_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[complaints.Rule | None] = []
    original = complaints.rule_for

    def spy(situation: complaints.Situation) -> complaints.Rule | None:
        asked.append(original(situation))
        return asked[-1]

    monkeypatch.setattr(complaints, "rule_for", spy)
    for entry in TABLE:
        findings(entry["text"])
    assert [rule for rule in complaints.RULES if rule not in asked] == []


def test_no_message_names_a_grammar_token() -> None:
    tokens = re.compile(r"__ANON|[A-Z]{4,}|\bLPAR\b|\$END")
    quoted = re.compile(r"`[^`]*`|U\+")
    for entry in TABLE:
        for _, _, _, message, hint in entry["findings"]:
            assert not tokens.search(quoted.sub("", message + hint)), message


def test_every_finding_has_a_hint() -> None:
    assert [found for entry in TABLE for found in entry["findings"] if not found[4]] == []


def test_every_code_is_documented() -> None:
    documented = set(re.findall(r"K\d{3}", DIAGNOSTICS))
    used: set[str] = set()
    for folder in (ROOT / "grammar", ROOT / "ketal" / "analysis"):
        for path in folder.glob("*.py"):
            used |= set(re.findall(r'"(K[01]\d\d)"', path.read_text("utf-8")))
    assert used <= documented
    in_table = {finding[1] for entry in TABLE for finding in entry["findings"]}
    assert used - in_table <= {"K003"}, "a code without an example in the table"


DOCUMENTED = [
    (code, example.replace("\\|", "|"))
    for code, cells in re.findall(r"^\| (K\d{3}) \|(.*)\|$", DIAGNOSTICS, re.M)
    for example in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", cells)[-1])
    if not code.startswith("K3")  # tests/runtime/test_names_in_log.py, which has their log
]
# Codes whose examples need hundreds of predicates or nodes.
WITHOUT_EXAMPLE = {"K210", "K211", "K213", "K214"}


@pytest.mark.parametrize(("code", "example"), DOCUMENTED)
def test_documented_example_gives_its_code(code: str, example: str) -> None:
    body = "" if re.search(r"\b(check|find)\b", example) else " check E;"
    events = 'event E = type == "e"; event F = type == "f";'
    whole = example if "pattern" in example else f"pattern P {{ {events} {example}{body} }}"
    found = ketal.lint(whole)
    assert code in {d.code for d in found}
    severities = {d.severity for d in found if d.code == code}
    assert severities == {SEVERITIES.get(code, "error")}
    assert {d.code for d in found if d.severity == "error"} <= {code}


def test_every_code_has_a_documented_example() -> None:
    codes = set(re.findall(r"^\| (K[012]\d{2}) \|", DIAGNOSTICS, re.M))
    assert codes - {code for code, _ in DOCUMENTED} == WITHOUT_EXAMPLE


def test_error_shows_place_line_caret_and_hint() -> None:
    with pytest.raises(PatternError) as caught:
        parse("pattern P {\n    order CausalOrdre;\n    check A;\n}", name="p.ketal")
    assert str(caught.value) == (
        "p.ketal:2:11: error[K011]: unknown order `CausalOrdre`\n"
        "      order CausalOrdre;\n"
        "            ^^^^^^^^^^^\n"
        "  hint: did you mean `CausalOrder`?"
    )


@pytest.mark.parametrize(
    ("before", "shown", "pad"),
    [
        ("\t", "\t", "\t"),
        ("/*\x01*/", r"/*\x01*/", " " * 8),
        ("/*\x1b[31m*/\t", "/*\\x1b[31m*/\t", " " * 12 + "\t"),
        ("/*\x85\r*/", r"/*\x85\r*/", " " * 10),
        ("/*漢字*/", "/*漢字*/", " " * 8),
        ("/*e\u0301*/", "/*e\u0301*/", " " * 5),
    ],
)
def test_caret_is_below_its_token(before: str, shown: str, pad: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse(f"pattern P {{\n{before}odrer CausalOrder;\n}}")
    _, line, caret, _ = str(caught.value).split("\n")
    assert line == f"  {shown}odrer CausalOrder;"
    assert caret == f"  {pad}^^^^^"


def test_caret_is_as_wide_as_the_displayed_text() -> None:
    source = PatternText('pattern P { event E = "\x01漢\u0301"; }')
    shown = diagnostic_text(Diagnostic("K001", "error", "m", Span(1, 23, 1, 28)), source)
    assert shown.split("\n")[1:] == [
        '  pattern P { event E = "\\x01漢\u0301"; }',
        " " * 24 + "^" * 8,
    ]


def test_findings_name_their_pattern() -> None:
    text = "pattern P { event E = true; check E F; }\npattern Q { event E = true; check G; }"
    assert [(f.pattern, f.code) for f in findings(text)] == [("P", "K102"), ("Q", "K102")]
    broken = "pattern P { event E = x == 5 secs; within 3; check E; }"
    assert [(f.pattern, f.code) for f in findings(broken)] == [("P", "K005"), ("P", "K013")]
    # Also where the text does not parse: after the end of a pattern, none has the fault.
    for rest, pattern in (("check (E;", "P"), ("check E; } pattern Q { A E; }", "Q"), ("} ;", "")):
        (finding,) = findings(f"pattern P {{ event E = (x == 1); {rest}")
        assert (finding.pattern, finding.code) == (pattern, "K001")


# --- limits -------------------------------------------------------------------


def guard(text: str) -> str:
    return f"pattern P {{ event E = {text}; check E; }}"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (guard("(" * 10_000 + "x == 1" + ")" * 10_000), "nesting_max"),
        (guard("!" * 10_000 + "X"), "nesting_max"),
        (guard("x == " + "- " * 10_000 + "1"), "nesting_max"),
        (guard("x == " + "1 + (" * 10_000 + "1" + ")" * 10_000), "nesting_max"),
        (guard("x in " + "[" * 10_000), "nesting_max"),
        (guard("Causal(" * 10_000), "nesting_max"),
        (f"pattern P {{ check {'(' * 10_000}A{')' * 10_000}; }}", "nesting_max"),
        (f"pattern P {{ check {'{A & ' * 10_000}; }}", "nesting_max"),
        ("(" * 10_000, ""),
        (guard(f"x matches /{'a' * 10_001}/"), "regex_bytes_max"),
        (guard("x matches /" + r"\pL{1000}" * 1000 + "/"), "regex_memory_max"),
        ("pattern P { event A = true; check A{1001}; }", "repetitions_max"),
        ("pattern P { event A = true; check A{0,99999999}; }", "repetitions_max"),
        ("pattern P { event A = true; check {A & A & A & A & A & A}; }", "together_max"),
        ("// " + "x" * 1_000_000, "pattern_bytes_max"),
    ],
    ids=lambda value: value[:40],
)
def test_exceeded_limit_is_named(text: str, limit: str) -> None:
    (finding, *_) = findings(text)
    assert limit in finding.message


def test_limits_can_be_set() -> None:
    text = "pattern P { event A = true; check ((A A) A{3}); }"
    assert not findings(text)
    assert findings(text, Limits(nesting_max=1))[0].code == "K003"
    assert findings(text, Limits(repetitions_max=2))[0].code == "K003"
    assert findings(text, Limits(pattern_bytes_max=10))[0].code == "K003"


@pytest.mark.parametrize(
    "text",
    [
        " || ".join(f"x == {n}" for n in range(2_000)),
        " && ".join(f"x != {n}" for n in range(2_000)),
        " || ".join(f"x == {n} && y == {n}" for n in range(2_000)),
        "x == " + " + ".join(["y"] * 2_000),
        "x == " + " - ".join(["y * 2 / 3"] * 2_000),
        "x == (" + ") + (".join(["y + 1"] * 2_000) + ")",
        f"x in [{', '.join(map(str, range(2_000)))}]",
    ],
    ids=lambda text: text[:30],
)
def test_long_flat_guard_does_not_count_as_nested(text: str) -> None:
    assert not findings(guard(text))


@pytest.mark.parametrize("body", [" ", " | ", " (A) | ", "? "])
def test_long_flat_body_does_not_count_as_nested(body: str) -> None:
    text = f"pattern P {{ event A = true; check {body.join(['A'] * 2_000)}; }}"
    assert not findings(text)


def test_show_of_a_finding_without_a_place() -> None:
    assert (
        diagnostic_text(Diagnostic("K101", "error", "m", None, "h"), None)
        == "error[K101]: m\n  hint: h"
    )


def test_every_token_has_a_description() -> None:
    without_one_text = {t.name for t in language().terminals if t.pattern.type != "str"}
    assert without_one_text - complaints.SORTS.keys() == {"COMMENT", "SPACE"}, "both are ignored"
