"""In every public function an argument of a wrong class is named in the error."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal import Control, Dot, Event, KetalError, Limits, Log, Monitor, Program, SettingError
from ketal.trace import Tracer
from tests.cases import p

WRONG: tuple[Any, ...] = (
    None,
    5,
    2.5,
    "",
    "abc",
    b"",
    [],
    [5],
    {},
    Path("absent") / "file",
    object(),
)
TEXT = p("find next A").replace("pattern P {", "param most = 1; pattern P {")
EVENTS = [Event("n", "a", {"n": 1}), Event("m", "b", {"m": 1})]


@cache
def program() -> Program:
    return ketal.compile(p("find next A", order="CausalOrder"))


def monitor() -> Monitor:
    return Monitor(program())


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "audit": (ketal.audit, {"log": EVENTS}),
    "build": (
        ketal.build,
        {
            "name": "Built",
            "events": {"A": 'type == "a"'},
            "transitions": [("q0", "A", "q1")],
            "initial": "q0",
        },
    ),
    "compile": (ketal.compile, {"text": TEXT, "most": 2}),
    "cuts": (ketal.cuts, {"log": EVENTS}),
    "definitely": (ketal.definitely, {"program": program(), "log": EVENTS}),
    "explain": (ketal.explain, {"program": program(), "log": EVENTS}),
    "lint": (ketal.lint, {"text": TEXT}),
    "load": (ketal.load, {"path": io.StringIO(TEXT), "most": 2}),
    "possibly": (ketal.possibly, {"program": program(), "log": EVENTS}),
    "read_log": (
        lambda paths, **more: list(ketal.read_log(paths, **more)),
        {"paths": [], **dict.fromkeys(list(inspect.signature(ketal.read_log).parameters)[1:])},
    ),
    "register_guard": (
        ketal.register_guard,
        {"name": "wrong_arguments", "function": lambda: True, "version": "1"},
    ),
    "run": (
        lambda *args, **more: ketal.run(*args, **more).summary,
        {"program": program(), "log": EVENTS, "limits": None},
    ),
    "stats": (ketal.stats, {"log": EVENTS}),
    "view": (ketal.view, {"log": EVENTS, "program": program()}),
    "write_jsonl": (ketal.write_jsonl, {"events": EVENTS, "file": io.BytesIO()}),
    "Control": (Control, {"kind": "end"}),
    "Dot.parse": (Dot.parse, {"text": "n@1"}),
    "Event": (Event, {"node": "n", "type": "a", "clock": {"n": 1}}),
    "Limits": (Limits, {}),
    "Log": (lambda records: list(Log(records)), {"records": lambda: iter(())}),
    "Log.of": (lambda events: ketal.run(program(), Log.of(events)).summary, {"events": EVENTS}),
    "Log.of_batches": (lambda batches: list(Log.of_batches(batches)), {"batches": None}),
    "Log[dot]": (lambda dot: Log.of(EVENTS)[dot], {"dot": "n@1"}),
    "Monitor": (Monitor, {"program": program()}),
    "Monitor.advance_time": (lambda to: monitor().advance_time(to), {"to": 1}),
    "Monitor.feed": (lambda event: monitor().feed(event), {"event": EVENTS[0]}),
    "Monitor.feed_many": (lambda events: monitor().feed_many(events), {"events": EVENTS}),
    "Monitor.leave": (lambda node: monitor().leave(node), {"node": "n"}),
    "Monitor.restore": (Monitor.restore, {"program": program(), "blob": monitor().snapshot()}),
    "Program.only": (lambda names: program().only(names), {"names": ["P"]}),
    "Program[name]": (lambda name: program()[name], {"name": "P"}),
    "View.html": (
        lambda **titles: ketal.view(EVENTS, compare=EVENTS, **titles).html,
        {"title": "first", "compare_title": "second"},
    ),
    "View.write": (lambda path: ketal.view(EVENTS).write(path), {"path": "view.html"}),
}


def _named(call: Callable[..., Any], given: dict[str, Any]) -> list[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(call).parameters.values()
    return list(dict.fromkeys([*(x.name for x in parameters if x.kind not in kinds), *given]))


@pytest.mark.parametrize(
    ("name", "parameter"),
    [(name, one) for name, (call, given) in CALLS.items() for one in _named(call, given)],
)
def test_wrong_argument_is_named_in_the_error(
    name: str, parameter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call, given = CALLS[name]
    for wrong in WRONG:
        try:
            call(**{**given, parameter: wrong})
        except (KetalError, KeyError):
            pass
        except TypeError as error:
            if " must be " not in str(error):
                raise


def test_all_functions_are_called() -> None:
    functions = {name for name in ketal.__all__ if inspect.isfunction(getattr(ketal, name))}
    assert functions <= CALLS.keys()


def test_write_jsonl_of_a_non_log_leaves_the_file_unchanged(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("here\n")
    with pytest.raises(TypeError, match="events must be a ketal"):
        ketal.write_jsonl(5, tmp_path / "run.jsonl")  # type: ignore[arg-type]
    assert (tmp_path / "run.jsonl").read_text() == "here\n"


def test_file_that_cannot_be_written_is_a_setting_error(tmp_path: Path) -> None:
    path = tmp_path / "no" / "run.jsonl"
    why = re.escape(f"cannot write {path}: No such file or directory")
    event = Event("n", "a", {"n": 1})
    for write in (
        lambda: ketal.write_jsonl([event], path),
        lambda: ketal.view([event]).write(path),
        lambda: Tracer("n", path),
    ):
        with pytest.raises(SettingError, match=why):
            write()
    with pytest.raises(SettingError, match=r"cannot write n{300}: File name too long"):
        Tracer("n", "n" * 300)
    with pytest.raises(SettingError, match="cannot write a file without a name: Is a directory"):
        Tracer("n", "")
    if Path("/dev/full").exists():
        with open("/dev/full", "wb", buffering=0) as full:
            for file in (full, "/dev/full"):
                with pytest.raises(SettingError, match="cannot write /dev/full: No space left on"):
                    ketal.write_jsonl([event], file)


def test_negative_first_and_unknown_pattern_names_are_refused() -> None:
    with pytest.raises(KetalError, match="first must be 0 or more, not -1"):
        ketal.explain(program(), EVENTS, first=-1)
    with pytest.raises(KetalError, match="unknown patterns 'Q', 'R'; choose from P"):
        program().only(["Q", "R"])


def test_an_item_of_a_wrong_class_is_named() -> None:
    call, arguments = CALLS["build"]
    for name in ("finals", "clauses"):
        with pytest.raises(TypeError, match=f"^an item of {name} must be a str, not int$"):
            call(**arguments, **{name: [5]})
