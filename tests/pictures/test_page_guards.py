"""The page's search by guards, in a real browser, against the language's definition."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import PatternError
from ketal.explanation.guard_evidence import GuardEvidence
from ketal.explanation.views.space_time import SpaceTime, ViewedLog, guard_texts, space_times
from ketal.grammar.printer import render
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT
from ketal.programs.program import Program
from ketal.semantics import History, Truth
from tests.pictures.chromium import WITH_CHROMIUM
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import drawn

pytestmark = WITH_CHROMIUM
EVALUATE = """
    const [data, declared, asked] = [...arguments].map((one) => JSON.parse(one));
    const execution = new Execution(data);
    return asked.map(([text, e, history]) => {
      const at = new Moment(execution, e, new BoundEvents(history));
      try { return new GuardReader(text, declared).read()(at); }
      catch (error) {
        if (!(error instanceof GuardError)) throw error;
        return `error: ${error.message}`;
      }
    });"""


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An opened page whose functions the tests call."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    ketal.view([Event(node="n", type="t", clock={"n": 1})]).write(path)
    browser.get(path.as_uri())
    return browser


def _answers(page: Any, drawn: SpaceTime, declared: dict[str, str], asked: list[Any]) -> list[Any]:
    given = (json.dumps(one) for one in (drawn.to_dict(), declared, asked))
    return list(page.execute_script(EVALUATE, *given))


def test_random_guards_have_the_truth_values_of_the_language(page: Any) -> None:
    met: dict[Truth, int] = {True: 0, False: 0, None: 0}

    @drawn(40, 1_500)
    def holds(rng: random.Random) -> None:
        file = pattern_file(rng, without=("deployment", "localhost"))
        events = execution(rng, events_min=1, events_max=7, nodes_max=3)
        try:
            program = ketal.compile(render(file))
            undecided = rng.choice(("", "lamport"))
            if undecided:
                program = program.for_undecided_clocks(undecided)
        except PatternError:
            return
        (compiled,) = program.compiled
        (drawn,) = space_times(ViewedLog(events, DEFAULT), None, DEFAULT)
        drawn.undecided = undecided
        evidence, texts = GuardEvidence(compiled), guard_texts(program)["P"]
        steps = [step.name for step in compiled.pattern.steps]
        steps += [step for step, _ in compiled.guards if step not in steps]
        asked: list[Any] = []
        expected: list[Truth] = []
        for number, event in enumerate(drawn.events):
            # Every step is bound: the page reports an unbound step as an error.
            bound = [(step, rng.randrange(len(events))) for step in rng.sample(steps, len(steps))]
            history: History = tuple((step, drawn.events[one]) for step, one in bound)
            for name, guard in compiled.declared:
                asked.append([name, number, bound])
                expected.append(evidence.truth(guard, evidence.moment(event, history, None)))
        answers = _answers(page, drawn, texts, asked)
        for one, answer, truth in zip(asked, answers, expected, strict=True):
            assert answer is truth, (texts[one[0]], drawn.events[one[1]], one[2], answer)
            met[truth] += 1

    assert min(met.values()) > 50, met


EVENTS = [
    Event(node="db-1#2", type="Stack.push", clock={"db-1#2": 1}, id="e1", time=1.5, data=data)
    for data in (
        {},
        {"x": 3, "origin": "db-9", "result_type": "void", "arg_types": ["int", "String"]},
        {"x": -7.5, "s": "a\nb", "origin": 4, "arg_types": []},
        {"x": True, "s": "Straße", "in": {"ner": {"a.b": 1}}, "arg_types": ["java.util.List"]},
        {"x": None, "s": "\U0001f600", "in": [1], "arg_types": "int"},
        {"x": 0, "s": "￿", "in": {"ner": 2}, "result_type": "a.b.C"},
        {"x": 250, "s": " foo-bar_9/a ", "type": "own", "arg_types": ["int"]},
    )
]
# Its type has an empty part.
EVENTS.append(Event(node="db-1#2", type="Stack..push", clock={"db-1#2": 1}))
GUARDS = [
    "x == 3", "x != 3", "x < 3", "3 >= x", "x in [3, -7.5, true]", "x + 1 == 4", "1 - 2 - x == -4",
    "x % 4 == 0.5", "7 % x < 0", "-7 % 3 == 2", "1 / x > 0.3", "x * x - x / 2 <= 4.5", "- -x == 3",
    "2 * (x + 1) == 8", "!(x == 3) && x == x", "x == 3 || x != 3", "!x == 3", "true", "!false",
    "x == 250 ms", "time >= 1 s", "time == 1500 ms", 'id == "e1"', 'node == "db-1#2"',
    'type < "T"', 'data.type == "own"', "exists(x)", "!exists(s)", "exists(in.ner)",
    'data["in"]["ner"]["a.b"] == 1', "data.in.ner == 2", 's < "\\uffff"', 's == "\\ud83d\\ude00"',
    's >= "Strasse"', 'host("db-?")', 'host("*1#2")', 'origin("db-9")', 'origin("db-1")',
    "call(* Stack.push(..))", "call(void *.p*(int, String))", "call(* ..push())",
    "call(* Stack..push(..))", "call(* St*.*(*, ..))", "call(* *.push(.., String))",
    "call(*.*.C Stack.push(..))", "call(*C Stack.*(..))", "call(* push(..))",
    "call(* S?ack.push(..))", "call(* Stack.push(java.*))", "call(* Stack.push(java..*))",
    "s matches /a.b/", "s matches /^[^a]*$/", "s matches /\\s[a-z-]+_\\d\\/a/",
    "s matches /(?i)STRASSE|straße/", "s matches /^.$/", "s matches /[\\s\\/.]/",
    "s matches /\\Afo|\\z/", "s matches /(?P<n>o)(?:o)-/", "s matches /o{2}\\-b/",
    "s matches /[]a]\\n/", "s matches /[[ab]/",
]  # fmt: skip


@pytest.fixture(scope="module")
def pictures() -> list[SpaceTime]:
    return [space_times(ViewedLog([event], DEFAULT), None, DEFAULT)[0] for event in EVENTS]


def _declared(guard: str) -> Program:
    return ketal.compile(f"pattern P {{ event X = {guard}; check X*; }}")


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_of_values_is_evaluated_as_in_the_language(
    page: Any, pictures: list[SpaceTime], guard: str
) -> None:
    try:
        program = _declared(guard)
    except PatternError:
        pytest.fail(guard)
    (compiled,) = program.compiled
    evidence = GuardEvidence(compiled)
    texts = [guard, guard_texts(program)["P"]["X"]]
    for event, picture in zip(EVENTS, pictures, strict=True):
        truth = evidence.truth(dict(compiled.declared)["X"], evidence.moment(event, (), None))
        asked = [[text, 0, []] for text in texts]
        assert _answers(page, picture, {}, asked) == [truth, truth], (texts, event.data)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x ==", "expected a value or a guard, found the end"),
        ("x == 3 y", "expected an operator, found `y`"),
        ("x @ 3", "unexpected character `@`"),
        ("x", "`x` is a value, not a guard: no pattern declares it"),
        ("x + 1", "expected a guard, found a value"),
        ("(x == 3) + 1 == 2", "expected a value, found a guard"),
        (
            "localhost",
            "`localhost` is the node of a copy of the pattern; a search has no copy",
        ),
        ("fast(x)", "`fast(…)` is a Python function, which the page cannot call"),
        ("Conc(true)", "select an event: `Conc` is relative to the selection"),
        ("Causal(true, First)", "select an event: `Causal` is relative to the selection"),
        ("call(* Stack.push(...))", "`...` is not a wildcard in `call`"),
        ("s matches /(?=a)/", "the search does not support `(?=` in a regular expression"),
        ("s matches /\\Qa/", "the search does not support `\\Q` in a regular expression"),
        ("s matches /[[:alpha:]]/", "the search does not support `[: :]` in a regular expression"),
        ("W", "the patterns declare `W` differently; select a verdict of one of them"),
        ("Loop", "named guards are nested too deeply"),
    ],
)
def test_invalid_guard_is_reported(page: Any, text: str, reason: str) -> None:
    (drawn,) = space_times(ViewedLog(EVENTS[1:2], DEFAULT), None, DEFAULT)
    declared: Any = {"W": None, "Loop": "Loop"}
    assert _answers(page, drawn, declared, [[text, 0, []]]) == [f"error: {reason}"]


LOG = [
    Event(node="a", type="write", clock={"a": 1}, data={"v": 1}),
    Event(node="b", type="read", clock={"a": 1, "b": 1}, data={"v": 1}),
    Event(node="c", type="write", clock={"c": 1}, data={"v": 2}),
]
CONFLICT = """
pattern Conflict {
    order CausalOrder;
    event Write = type == "write";
    First = Write; Second = Conc(Write) && v > First.v;
    find any First Second;
}
"""


def _found(page: Any, text: str) -> tuple[set[str], str]:
    script = """
        const field = document.getElementById("find"), { diagram } = ketal;
        field.value = arguments[0];
        field.dispatchEvent(new Event("input"));
        const dot = (one, e) => one ? [diagram.execution.dot(e)] : [];
        const found = [...(diagram.dimmed || [])].flatMap(dot);
        return [found, document.getElementById("found").textContent];"""
    found, message = page.execute_script(script, text)
    return set(found), message


def test_search_is_by_guard_or_text_and_reports_which(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    ketal.view(LOG, ketal.compile(CONFLICT)).write(path)
    browser.get(path.as_uri())
    assert _found(browser, "Write") == ({"a@1", "c@1"}, "2 events found (guard)")
    assert _found(browser, "v == 1 && !Write") == ({"b@1"}, "1 event found (guard)")
    assert _found(browser, "writ") == ({"a@1", "c@1"}, "2 events found (text)")
    message = "0 events found (text; not a guard: unexpected character `=`)"
    assert _found(browser, "v = 1") == (set(), message)
    message = "select an event: `Conc` is relative to the selection"
    assert _found(browser, "Conc(true)") == (set(), message)
    browser.execute_script("ketal.chooseEvent(ketal.execution.names.get('b@1'))")
    assert _found(browser, "Conc(true)") == ({"c@1"}, "1 event found (guard)")
    browser.execute_script("ketal.chooseVerdict(0)")
    assert _found(browser, "v > First.v && Conc(Write, First)")[0] == {"c@1"}
    assert browser.get_log("browser") == []


def test_search_of_times_is_exact_to_the_microsecond(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    seconds = (1774742399.04, 1774742399.34, 1774742399.74)
    log = [Event(node="n", type="t", clock={"n": i}, time=s) for i, s in enumerate(seconds, 1)]
    ketal.view(log, ketal.compile('pattern P { event T = type == "t"; find strict T; }')).write(
        path
    )
    browser.get(path.as_uri())
    browser.execute_script("ketal.chooseVerdict(0)")
    assert _found(browser, "time - T.time == 300 ms")[0] == {"n@2"}
    assert _found(browser, "time == 0.1 + T.time + 600 ms")[0] == {"n@3"}
    assert _found(browser, "0.7 - (-T.time + time) == 400 ms")[0] == {"n@2"}


def test_search_relative_to_the_selection_follows_it(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    ketal.view(LOG, ketal.compile(CONFLICT)).write(path)
    browser.get(path.as_uri())
    found = """
        const one = ketal.diagram, dot = (yes, e) => yes ? [one.execution.dot(e)] : [];
        return [...(one.dimmed || [])].flatMap(dot)"""
    choose = "ketal.chooseEvent(ketal.execution.names.get(arguments[0]));"
    assert _found(browser, "Conc(true)")[0] == set()  # nothing is selected
    assert browser.execute_script(choose + found, "b@1") == ["c@1"]
    others = browser.execute_script(choose + found, "c@1")
    assert "b@1" in others
    # Enter goes from one event found to the next: these stay what was found.
    assert browser.execute_script("ketal.nextFound();" + found) == others
    assert _found(browser, "v == First.v")[0] == set()
    assert browser.execute_script("ketal.chooseVerdict(0);" + found)


def test_search_compares_each_event_of_a_verdict_once_with_all_events(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.html"
    log = [Event(node="n", type="t", clock={"n": number}) for number in range(1, 61)]
    many = ketal.compile('pattern Many { event T = type == "t"; find strict T{50}; }')
    ketal.view(log, many).write(path)
    browser.get(path.as_uri())
    browser.execute_script("""
        const { relations } = Execution.prototype;
        window.relationsCalls = 0;
        Execution.prototype.relations = function (e) {
          window.relationsCalls++;
          return relations.call(this, e);
        };
        ketal.chooseVerdict(0)""")
    assert len(_found(browser, "Causal(T, all)")[0]) == 10
    assert browser.execute_script("return window.relationsCalls") == 50


OTHER_WRITES = """
pattern Copies {
    at every node;
    event Write = type == "read";
    event Own = localhost && type == "write";
    check (Write | Own)*;
}
"""


def test_search_for_a_declared_guard_that_cannot_be_evaluated_is_reported(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.html"
    ketal.view(LOG, ketal.compile(CONFLICT + OTHER_WRITES)).write(path)
    browser.get(path.as_uri())
    message = "the patterns declare `Write` differently; select a verdict of one of them"
    assert _found(browser, "Write") == _found(browser, "!Write") == (set(), message)
    message = "`localhost` is the node of a copy of the pattern; a search has no copy"
    assert _found(browser, "Own") == (set(), message)
    browser.execute_script("ketal.chooseVerdict(0)")
    assert _found(browser, "Write") == ({"a@1", "c@1"}, "2 events found (guard)")


def test_search_for_a_declared_guard_with_a_name_of_javascript(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.html"
    names = ("constructor", "toString", "__proto__")
    events = "".join(f'event {name} = type == "write"; ' for name in names)
    ketal.view(LOG, ketal.compile(f"pattern P {{ {events} check constructor*; }}")).write(path)
    browser.get(path.as_uri())
    for name in names:
        assert _found(browser, name) == ({"a@1", "c@1"}, "2 events found (guard)")
