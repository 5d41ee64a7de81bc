"""A guard function is an entry of one table, which all packages read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ketal
from ketal.grammar import parse, render
from ketal.model.guard_functions import FUNCTIONS, PREDICATES, Predicate
from ketal.model.syntax import Function
from ketal.model.syntax_walks import walk
from tests.property.patterns import pattern_file

ROOT = Path(__file__).resolve().parents[2]
OF_THE_LANGUAGE = frozenset(FUNCTIONS)
STARTS_WITH = Predicate(
    name="startsWith",
    prepare=lambda limits, prefix: lambda text: text.startswith(prefix),
    constants=("string",),
)
EVEN = Predicate(
    name="even",
    prepare=lambda limits: lambda number: number % 2 == 0,
    kind="number",
)


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add two functions to the language."""
    for predicate in (STARTS_WITH, EVEN):
        monkeypatch.setitem(FUNCTIONS, predicate.name, predicate)
        monkeypatch.setitem(PREDICATES, predicate.name, predicate)


def pattern(guard: str, params: str = "") -> str:
    return f"pattern P {{ {params} event E = {guard}; find next E; }}"


def codes(guard: str) -> list[str]:
    return [finding.code for finding in ketal.lint(pattern(guard))]


def matches(text: str, *values: object) -> list[list[object]]:
    """Return the values of `x` in the events of each match."""
    events = [
        ketal.Event("n", "t", clock={"n": number}, data={"x": value})
        for number, value in enumerate(values, 1)
    ]
    verdicts = [verdict.to_dict() for verdict in ketal.run(ketal.compile(text), events)]
    return [[values[int(dot.partition("@")[2]) - 1] for dot in v["events"]] for v in verdicts]


def test_added_function_is_parsed_and_rendered() -> None:
    file = parse(pattern('!startsWith(data.node, "a") && even(x - 1)'))
    assert parse(render(file)) == file
    assert 'event E = !startsWith(data.node, "a") && even(x - 1);' in render(file)


@pytest.mark.parametrize(
    ("guard", "code"),
    [
        ("startsWith(x)", "K104"),
        ("startsWith(x, y)", "K104"),
        ("startsWith(x, 1)", "K112"),
        ('startsWith(1, "a")', "K112"),
        ('startWith(x, "a")', "K104"),
        ('!startsWith(x, "a") && x == "ab"', "K203"),
        ("even(x) && x == 3", "K203"),
    ],
)
def test_wrong_uses_of_a_function_are_errors(guard: str, code: str) -> None:
    assert codes(guard) == [code]


@pytest.mark.parametrize(
    "guard",
    [
        'startsWith(x, "a") && x > "ab"',
        '!startsWith(x, "a") && x matches /a/',
        "even(x) && x > 2 && x < 6",
        "!even(x) && x > 2 && x < 6",
    ],
)
def test_a_guard_that_is_not_proven_impossible_is_allowed(guard: str) -> None:
    assert codes(guard) == []


def test_a_function_is_unknown_for_values_of_other_kinds() -> None:
    values = ("ab", "b", 2, 3, True, None, ["ab"])
    assert matches(pattern('startsWith(x, "a")'), *values) == [["ab"]]
    assert matches(pattern('!startsWith(x, "a")'), *values) == [["b"]]
    assert matches(pattern("even(x)"), *values) == [[2]]
    assert matches(pattern("!even(x)"), *values) == [[3]]


def test_constant_argument_may_be_a_parameter() -> None:
    text = pattern("startsWith(x, p)", 'param p = "a";')
    assert matches(text, "ab", "b") == [["ab"]]


def test_the_first_argument_may_be_a_value_of_an_earlier_event() -> None:
    text = 'pattern P { event E = true; A = E; B = E && startsWith(A.x, "a"); find next A B; }'
    assert matches(text, "b", "ab", "c") == [["ab", "c"]]


def test_every_function_of_the_language_is_on_its_page() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert [name for name in sorted(OF_THE_LANGUAGE) if f"\n| `{name}(" not in page] == []


def test_every_function_of_the_language_is_in_drawn_patterns() -> None:
    """Otherwise no property compares it with the oracle: add it to `tests/property/patterns.py`."""
    rng, missing = random.Random(1), set(OF_THE_LANGUAGE)
    for _ in range(2_000):
        missing -= {n.name for n in walk(pattern_file(rng)) if isinstance(n, Function)}
        if not missing:
            return
    assert missing == set()
