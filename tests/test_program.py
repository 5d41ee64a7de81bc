"""Programs as mappings, wrong arguments, and names that do not exist."""

from __future__ import annotations

import copy
import io
import pickle
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import pytest

import ketal
import ketal.streaming
from ketal import Event, Limits, Monitor
from ketal.errors import PatternError, SettingError
from ketal.model import syntax as pattern
from ketal.runtime.execution import Execution

INTERFACE = Path(__file__).resolve().parents[2] / "shared" / "INTERFACE.md"
TEXT = """event E = type == "e";
pattern One { check E*; }
pattern Two { find next E E; }
pattern Three { param w = 3; find any E; }
"""
PROGRAM = ketal.compile(TEXT)
EVENTS = [Event("a", "e", {"a": 1}), Event("a", "e", {"a": 2})]


# --- a program is a mapping from names to patterns ------------------------------------------


def test_program_is_a_mapping_in_file_order() -> None:
    names = ("One", "Two", "Three")
    assert isinstance(PROGRAM, Mapping)
    assert PROGRAM.names == tuple(PROGRAM) == tuple(PROGRAM.keys()) == names
    assert len(PROGRAM) == 3
    assert [pattern.name for pattern in PROGRAM.values()] == list(names)
    assert [(name, pattern.name) for name, pattern in PROGRAM.items()] == [(n, n) for n in names]
    assert [pattern.name for pattern in PROGRAM.patterns] == list(names)


def test_program_contains_patterns_by_name() -> None:
    assert "Two" in PROGRAM
    assert "two" not in PROGRAM
    assert 2 not in PROGRAM  # type: ignore[comparison-overlap]
    assert PROGRAM["Two"] not in PROGRAM
    assert PROGRAM.get("Four") is None
    assert "Two" in PROGRAM["Two"]
    assert "One" not in PROGRAM["Two"]
    with pytest.raises(KeyError, match="unknown pattern 'Thre'; did you mean Three"):
        PROGRAM["Thre"]
    with pytest.raises(TypeError, match="the name of a pattern must be a str, not int"):
        PROGRAM[0]  # type: ignore[index]


def test_programs_are_equal_only_to_themselves() -> None:
    # Comparison by items would not terminate.
    assert PROGRAM["One"] != PROGRAM["One"]
    assert PROGRAM["One"].fingerprint == PROGRAM["One"].fingerprint
    assert len({PROGRAM, PROGRAM, PROGRAM["One"]}) == 2


def test_parameter_belongs_to_its_pattern() -> None:
    """Compiling a pattern must not require the parameters of other patterns."""
    text = """param least = 1;
    event E = x >= least;
    pattern One { param w = 10 s; find any E E; within w; }
    pattern Two { param w = 3 s; param n = 2; event F = x == n; find next E F; within w; }
    """
    two = ketal.compile(text, n=7, least=0)["Two"]
    assert two.one.window_us == 3_000_000
    events = [
        Event("a", "t", {"a": 1}, time=0, data={"x": 0}),
        Event("a", "t", {"a": 2}, 1, {"x": 7}),
    ]
    assert str(next(iter(ketal.run(two, events)))) == "match Two: E=a@1, F=a@2"


# --- wrong arguments are TypeErrors that say what was expected -------------------------------

A_PROGRAM = "program must be a ketal.Program, from ketal.load(path) or ketal.compile(text)"
A_LOG = (
    "log must be a ketal.Log, for example from ketal.read_log(path), or an iterable of ketal.Event"
)
A_TEXT = "text must be a str, the text of a pattern file"
A_PATH = "a log to read must be a path, a binary file or rows"
LIMITS = "limits must be a ketal.Limits, not dict"
WRONG: list[tuple[Callable[[Any], object], Any, str]] = [
    (ketal.compile, b"x", A_TEXT),
    (ketal.compile, None, A_TEXT),
    (ketal.compile, Path("x.ketal"), A_TEXT),
    (lambda limits: ketal.compile(TEXT, limits=limits), {}, LIMITS),
    (
        lambda value: ketal.compile(TEXT, w=value),
        [1],
        "parameter w must be a number, a str, a bool",
    ),
    (ketal.load, b"x.ketal", "path must be a path or an open file, not bytes"),
    (ketal.load, None, "path must be a path or an open file, not None"),
    (ketal.load, PROGRAM, "path must be a path or an open file, not Program"),
    (lambda limits: ketal.load("x.ketal", limits=limits), {}, LIMITS),
    (ketal.lint, b"x", A_TEXT),
    (lambda limits: ketal.lint(TEXT, limits=limits), {}, LIMITS),
    (lambda program: ketal.run(program, EVENTS), "x.ketal", f"{A_PROGRAM}, not str"),
    (lambda program: ketal.run(program, EVENTS), PROGRAM["One"].one, A_PROGRAM),
    (lambda log: ketal.run(PROGRAM, log), "run.jsonl", f"{A_LOG}, not str"),
    (lambda log: ketal.run(PROGRAM, log), Path("run.jsonl"), f"{A_LOG}, not PosixPath"),
    (lambda log: ketal.run(PROGRAM, log), io.BytesIO(), f"{A_LOG}, not BytesIO"),
    (lambda log: ketal.run(PROGRAM, log), EVENTS[0], f"{A_LOG}, not Event"),
    (lambda log: ketal.run(PROGRAM, log), None, f"{A_LOG}, not None"),
    (lambda limits: ketal.run(PROGRAM, EVENTS, limits=limits), {}, LIMITS),
    (Monitor, "x.ketal", f"{A_PROGRAM}, not str"),
    (lambda limits: Monitor(PROGRAM, limits=limits), {}, LIMITS),
    (lambda on: Monitor(PROGRAM, on=on), ["match"], "on must be a mapping of str to callable"),
    (lambda on: Monitor(PROGRAM, on=on), {"match": 3}, "the handler for 'match' must be callable"),
    (lambda on: Monitor(PROGRAM, on=on), {3: print}, "a key of on must be a str, not int"),
    (lambda program: Monitor.restore(program, b""), "x", f"{A_PROGRAM}, not str"),
    (
        lambda blob: Monitor.restore(PROGRAM, blob),
        "x",
        "blob must be bytes from snapshot()",
    ),
    (
        lambda event: Monitor(PROGRAM).feed(event),
        {"node": "a"},
        "an item to feed must be a ketal.Event (ketal.read_log converts rows to events), not dict",
    ),
    (ketal.read_log, b"run.jsonl", f"{A_PATH}, not bytes"),
    (ketal.read_log, None, f"{A_PATH}, not None"),
    (ketal.read_log, ["a", "b"], f"{A_PATH} (pass several as separate arguments), not list"),
    (lambda limits: ketal.read_log("run.jsonl", limits=limits), {}, LIMITS),
    (lambda program: ketal.possibly(program, EVENTS), "x", f"{A_PROGRAM}, not str"),
    (lambda log: ketal.definitely(PROGRAM["One"], log), "run.jsonl", f"{A_LOG}, not str"),
    (ketal.audit, "run.jsonl", f"{A_LOG}, not str"),
    (
        ketal.audit,
        [1],
        "an item of a log must be a ketal.Event (ketal.read_log converts rows to events), not int",
    ),
    (
        lambda file: ketal.write_jsonl(EVENTS, file),
        io.StringIO(),
        "file must be a path or a binary",
    ),
    (
        lambda log: ketal.write_jsonl(log, io.BytesIO()),
        [1],
        "an event to write must be a ketal.Event",
    ),
    (
        lambda guard: ketal.build("P", events={"E": guard}, transitions=[], initial="q"),
        3,
        "a guard must be a str or a guard of ketal.model.syntax, not int",
    ),
    (
        lambda guard: ketal.build("P", events={"E": guard}, transitions=[], initial="q"),
        pattern.Literal(3),
        "a guard must be a str or a guard of ketal.model.syntax, not Literal",
    ),
    (
        lambda guard: ketal.build("P", events={"E": guard}, transitions=[], initial="q"),
        pattern.Not(pattern.Step("E")),  # type: ignore[arg-type]
        "Step is not a guard",
    ),
    (
        lambda path: built(pattern.Attribute(path)),
        (),
        "Attribute(path=()) is not a value",
    ),
    (
        lambda path: built(pattern.Reference("first", pattern.Attribute(path))),
        "size",
        "Reference(step='first', of=Attribute(path='size')) is not a value",
    ),
    (
        lambda operands: built(pattern.Arithmetic((), operands)),
        (pattern.Literal(1),),
        "Arithmetic(ops=(), operands=(Literal(value=1),)) is not a value",
    ),
    (
        lambda given: ketal.build("P", events={"E": "true"}, transitions=given, initial="q"),
        5,
        "transitions must be a list of (state, step, state), not int",
    ),
    (
        lambda given: ketal.build("P", events={"E": "true"}, transitions=[given], initial="q"),
        ("q", "E"),
        "a transition must be (state, step, state), not ('q', 'E')",
    ),
    (
        lambda given: ketal.build("P", events={"E": "true"}, transitions=[given], initial="q"),
        "qEq",
        "a transition must be (state, step, state), not 'qEq'",
    ),
]


@pytest.mark.parametrize(("call", "given", "message"), WRONG, ids=range(len(WRONG)))
def test_argument_of_a_wrong_class_is_a_type_error(
    call: Callable[[Any], object], given: Any, message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call(given)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
def test_a_log_of_other_objects_than_events(order: str) -> None:
    program = ketal.compile(f'pattern P {{ order {order}; event E = type == "e"; check E*; }}')
    wrong: Any = {"node": "a"}
    verdicts = ketal.run(program, [*EVENTS, wrong])
    with pytest.raises(TypeError, match=r"ketal\.Event .*, not dict"):
        list(verdicts)


def built(value: pattern.Value) -> ketal.Program:
    """Build a pattern whose guard of a step compares a value with 1."""
    return ketal.build(
        "P",
        clauses=["param least = 3"],
        events={"E": "true"},
        steps={"first": pattern.Comparison("==", value, pattern.Literal(1))},
        transitions=[("q", "first", "q")],
        initial="q",
    )


@pytest.mark.parametrize(
    "path", [("least",), ("E",), ("first", "size"), ("last", "size"), ("a b",)]
)
def test_attribute_of_a_guard_that_is_built_stays_an_attribute(path: tuple[str, ...]) -> None:
    value = pattern.Attribute(path)
    (_, guard) = built(value).one.guards[0]
    assert guard == pattern.Comparison("==", value, pattern.Literal(1))


@pytest.mark.parametrize(
    "value", [pattern.Literal(float("-inf")), pattern.Duration(float("inf"), "s")]
)
def test_infinite_number_of_a_guard_that_is_built_is_refused(value: pattern.Value) -> None:
    with pytest.raises(PatternError, match=r"K004.*this number is too large"):
        built(value)


def test_limits_may_be_none() -> None:
    assert ketal.compile(TEXT, limits=None)
    assert Execution(PROGRAM, limits=None).admission.limits == Limits()
    assert ketal.read_log(io.BytesIO(), limits=None)  # type: ignore[arg-type]


def test_pattern_file_may_be_opened_as_binary_or_text(tmp_path: Path) -> None:
    path = tmp_path / "x.ketal"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    with path.open("rb") as binary, path.open(encoding="utf-8") as text:
        for file in (binary, text):
            assert ketal.load(file).names == PROGRAM.names
    with pytest.raises(
        ketal.SettingError, match=r"<file> is not valid UTF-8 \(line 1, byte 1\); save it as UTF-8"
    ):
        ketal.load(io.BytesIO(b"\xff"))
    path.write_bytes(b"\xff")
    with (
        path.open(encoding="utf-8") as text,
        pytest.raises(ketal.SettingError, match=r"cannot read pattern file .*: 'utf-8' codec"),
    ):
        ketal.load(text)
    with pytest.raises(ketal.SettingError, match=r"cannot read pattern file .*: .* closed file"):
        ketal.load(text)


def test_load_refuses_pattern_text() -> None:
    with pytest.raises(ketal.SettingError, match=r"is not a file; pass .* to ketal.compile"):
        ketal.load(TEXT)


def test_load_refuses_a_name_that_no_file_has() -> None:
    with pytest.raises(ketal.SettingError, match="cannot read pattern file a\\0b: embedded null"):
        ketal.load("a\0b")


# --- names ----------------------------------------------------------------------------------


def names_of_the_interface() -> list[str]:
    python = INTERFACE.read_text().partition("## Python")[2].partition("\n## ")[0]
    return sorted(set(re.findall(r"\bketal\.([a-zA-Z_]+(?:\.[a-z_]+)*)", python)))


def why_missing(name: str) -> str:
    """Return the message of the AttributeError for a name of ketal; empty if the name exists."""
    value: Any = ketal
    try:
        for part in name.split("."):
            value = getattr(value, part)
    except AttributeError as missing:
        return str(missing)
    return ""


@pytest.mark.skipif(not INTERFACE.exists(), reason="../shared/INTERFACE.md is not here")
def test_each_name_of_the_interface_exists_or_has_a_clear_error() -> None:
    names = names_of_the_interface()
    assert {"run", "explain", "view", "Monitor", "streaming.spark.detect"} <= set(names)
    for name in names:
        assert why_missing(name) == "" or why_missing(name).endswith("is not available yet")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ketal' has no attribute 'compil'") as caught:
        ketal.compil  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("compil", ketal)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("pattern P {", {}),
        ("param n = 1; pattern P { event A = x == n; check A; }", {"m": 2}),
        ("param n = 1; pattern P { event A = x == n; check A; }", {"n": "2"}),
    ],
)
def test_an_error_of_a_worker_process_is_pickled(text: str, params: dict[str, Any]) -> None:
    with pytest.raises(ketal.KetalError) as caught:
        ketal.compile(text, **params)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (type(error), str(error)) == (type(caught.value), str(caught.value))
    assert vars(error) == vars(caught.value)


def test_a_program_is_copied_pickled_and_shown() -> None:
    assert copy.copy(PROGRAM).names == PROGRAM.names
    assert pickle.loads(pickle.dumps(PROGRAM)).names == PROGRAM.names
    assert "One" in repr(PROGRAM)


@pytest.mark.parametrize("what", ["within", "gap"])
def test_a_duration_of_zero_is_refused(what: str) -> None:
    """A window of 0 s is empty, whether it is written in the text or set by a parameter."""
    body = {
        "within": "event A = true; find next A A; within w;",
        "gap": "order CausalOrder(gap = w); event A = true; find next A A;",
    }[what]
    text = f"param w = 10 s; pattern P {{ {body} }}"
    assert ketal.compile(text, w=pattern.Duration(1, "s"))
    with pytest.raises(SettingError, match=f"parameter w is 0 s, but `{what}` requires a dur"):
        ketal.compile(text, w=pattern.Duration(0, "s"))
    for written in (
        text.replace("10 s", "0 s"),
        text.replace(" w;", " 0 s;").replace("= w)", "= 0 s)"),
    ):
        assert "K132" in [said.code for said in ketal.lint(written)]


@pytest.mark.parametrize("given", [float("inf"), float("nan")])
def test_non_finite_parameter_is_refused(given: float) -> None:
    text = "param m = 3; pattern P { event E = x <= m; find next E; }"
    with pytest.raises(SettingError, match=f"parameter m is {given}; the largest num"):
        ketal.compile(text, m=given)


def test_integer_that_a_pattern_cannot_contain_is_refused_as_a_parameter() -> None:
    text = "param m = 3; pattern P { event E = x <= m; find next E; }"
    for given in (10**309, -(10**5000)):
        with pytest.raises(SettingError, match="parameter m is too large; the largest number is"):
            ketal.compile(text, m=given)


@pytest.mark.parametrize("given", [numpy.float64(2.5), numpy.int64(7)])
def test_a_number_of_numpy_is_the_plain_number(given: Any) -> None:
    text = "param m = 3; pattern P { event E = x <= m; find next E; }"
    plain = ketal.compile(text, m=given.item())
    assert ketal.compile(text, m=given).fingerprint == plain.fingerprint


@pytest.mark.parametrize("given", ["30s", "30 s", timedelta(seconds=30), pattern.Duration(30, "s")])
def test_duration_is_accepted_as_text_or_timedelta(given: Any) -> None:
    """`compile(text, w="30s")` corresponds to `--set w=30s`."""
    text = "param w = 10 s; pattern P { event A = true; find next A A; within w; }"
    assert ketal.compile(text, w=given).compiled[0].window_us == 30_000_000


@pytest.mark.parametrize(
    ("given", "window_us"), [("1ns", 1), ("1000 ns", 1), ("1.4us", 2), ("0.1s", 100_000)]
)
def test_window_is_rounded_up_to_whole_microseconds(given: str, window_us: int) -> None:
    """Times are whole microseconds, so `within 1.4 us` is `within 2 us`, and no window is 0."""
    text = "param w = 10 s; pattern P { event A = true; find next A A; within w; }"
    assert ketal.compile(text, w=given).compiled[0].window_us == window_us
    written = f"pattern P {{ event A = true; find next A A; within {given}; }}"
    assert ketal.compile(written).compiled[0].window_us == window_us


@pytest.mark.parametrize("statement", ["within W", "B = A && time < W"])
def test_a_duration_too_large_for_a_float_is_refused(statement: str) -> None:
    text = f"pattern P {{ event A = true; {statement}; find next A A; }}"
    with pytest.raises(ketal.PatternError, match="this number is too large"):
        ketal.compile(text.replace("W", f"{'9' * 309} d"))
    # Times are in microseconds.
    with pytest.raises(ketal.PatternError, match="this number is too large"):
        ketal.compile(text.replace("W", "1e305 s"))
    with pytest.raises(SettingError, match="parameter w is too long"):
        ketal.compile(f"param w = 1 s; {text.replace('W', 'w')}", w=f"{'9' * 300} d")
    with pytest.raises(SettingError, match=r"cannot be the .*; write it as `30s`"):
        ketal.compile(f"param w = 1 s; {text.replace('W', 'w')}", w=f"{'9' * 400}.0 d")


def test_an_invalid_duration_explains_the_syntax() -> None:
    text = "param w = 10 s; pattern P { event A = true; find next A A; within w; }"
    for wrong in ("1e3s", "soon", 5.0, "5 events"):
        with pytest.raises(SettingError, match=r"cannot be the .*; write it as `30s`"):
            ketal.compile(text, w=wrong)
    wrong_class: Any = [1]
    with pytest.raises(TypeError, match="parameter w must be"):
        ketal.compile(text, w=wrong_class)
