"""Registered guards: signatures, refused functions, and guards that fail."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

import numpy
import pytest

import ketal
from ketal.analysis.registered_guards import register_guard, registered_guards
from ketal.cli.output.summary_text import lines as summed_up
from ketal.errors import SettingError
from ketal.model.events.event import Event
from tests.cases import e, p
from tests.logged import ketal_records

if TYPE_CHECKING:
    from decimal import Decimal


def _near(event: Event, bound: float, unit: str, strict: bool, rest: Any) -> bool | None:
    return None


def _plain(a: int, b: str) -> bool:
    return True


def _unevaluated(event: Event, a: int, b: Decimal) -> bool:
    return True


def _unevaluated_values(a: int, b: Decimal) -> bool:
    return True


def _failing(event: Event, a: int, b: ketal.removed) -> bool:
    return True


class _Callable:
    def __call__(self, event: Event, a: str) -> bool:
        return True


def test_kinds_come_from_the_annotations() -> None:
    guard = register_guard("guards_near", _near, version="1")
    assert guard.parameters == ("number", "string", "boolean", "any")
    assert guard.takes_event
    plain = register_guard("guards_plain", _plain, version="1")
    assert (plain.parameters, plain.takes_event) == (("number", "string"), False)
    anything = register_guard("guards_anything", lambda x: True, version="1")
    assert (anything.parameters, anything.takes_event) == (("any",), False)
    called = register_guard("guards_called", _Callable(), version="1")
    assert (called.parameters, called.takes_event) == (("string",), True)


def test_annotations_that_cannot_be_evaluated_are_read_as_text() -> None:
    for function in (_unevaluated, _failing):
        guard = register_guard("guards_text", function, version="1")
        assert (guard.parameters, guard.takes_event) == (("number", "any"), True)
    guard = register_guard("guards_text", _unevaluated_values, version="1")
    assert (guard.parameters, guard.takes_event) == (("number", "any"), False)


def test_registered_guards_returns_a_snapshot_of_the_registry() -> None:
    before = registered_guards()
    register_guard("guards_later", _plain, version="1")
    assert "guards_later" not in before
    assert registered_guards()["guards_later"].version == "1"
    register_guard("guards_later", _plain, version="2")
    assert registered_guards()["guards_later"].version == "2"


@pytest.mark.parametrize("name", ["", "a b", "1a", "größe", "call", "Causal", "causal", "node"])
def test_name_that_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="cannot name a guard"):
        register_guard(name, _plain, version="1")


def test_guard_needs_a_version_and_a_fixed_number_of_parameters() -> None:
    with pytest.raises(SettingError, match="requires a version"):
        register_guard("guards_unversioned", _plain, version="")
    with pytest.raises(SettingError, match="fixed number"):
        register_guard("guards_many", lambda *values: True, version="1")
    with pytest.raises(SettingError, match="fixed number"):
        register_guard("guards_keyword", lambda *, a: True, version="1")
    with pytest.raises(SettingError, match="is not a function"):
        register_guard("guards_number", 3, version="1")  # type: ignore[arg-type]


# --- guards that fail -------------------------------------------------------------------------


def _odd(event: Event, x: Any) -> Any:
    """Return the value that the pattern passes, or raise."""
    if x == "raise":
        raise RuntimeError("the guard's own fault")
    return {"text": "yes", "number": 1, "zero": 0, "list": [], "numpy": numpy.bool_(True),
            "numpy no": numpy.bool_(False), "numpy number": numpy.int64(1),
            "unknown": None}.get(x, x)  # fmt: skip


def _program(*statements: str, order: str = "arrival") -> ketal.Program:
    register_guard("guards_odd", _odd, version="1")
    return ketal.compile(p(*statements, order=order, letters="event E = true;"))


YES_AND_NO = ("Yes = guards_odd(x)", "No = !guards_odd(x)", "find any Yes | No")
FAILING = ("raise", "text", "number", "zero", "list", "numpy number")


def _events(*values: Any) -> list[Event]:
    return [e(f"n@{n}", "t", x=value) for n, value in enumerate(values, 1)]


def test_only_true_is_true_and_only_false_is_false() -> None:
    values = (True, False, "numpy", "numpy no", *FAILING)
    verdicts = ketal.run(_program(*YES_AND_NO), _events(*values, None))
    assert [str(v) for v in verdicts] == [
        "match P: Yes=n@1",
        "match P: No=n@2",
        "match P: Yes=n@3",
        "match P: No=n@4",
    ]
    # The guard is called once per event, although the pattern uses it and its negation.
    assert verdicts.summary["patterns"]["P"]["guard_failures"] == len(FAILING)


def test_unknown_is_not_counted_as_a_failure() -> None:
    # Unknown because of an absent value, or returned by the guard, is not a failure.
    verdicts = ketal.run(_program(*YES_AND_NO), [*_events(True, False, "unknown"), e("n@4", "t")])
    assert len(list(verdicts)) == 2
    assert "guard_failures" not in verdicts.summary["patterns"]["P"]


def test_function_is_called_only_with_values_of_the_kinds_of_its_parameters() -> None:
    given: list[object] = []

    def positive(x: int) -> bool:
        given.append(x)
        return x > 0

    register_guard("guards_positive", positive, version="1")
    program = ketal.compile(
        p("Yes = guards_positive(x)", "find any Yes", letters="event E = true;")
    )
    verdicts = ketal.run(program, [*_events(1, "text", True, 2.5, -1), e("n@6", "t")])
    assert [str(v) for v in verdicts] == ["match P: Yes=n@1", "match P: Yes=n@4"]
    assert given == [1, 2.5, -1]
    assert "guard_failures" not in verdicts.summary["patterns"]["P"]


def test_a_failure_beside_a_comparison_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What counts the kinds of the comparison's values judges the event again, and is silent."""
    verdicts = ketal.run(_program("Odd = guards_odd(x) && x != 1", "find Odd"), _events("raise"))
    with caplog.at_level(logging.DEBUG, "ketal"):
        assert list(verdicts) == []
    assert len(ketal_records(caplog)) == verdicts.summary["patterns"]["P"]["guard_failures"] == 1


def test_failure_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    program = _program(*YES_AND_NO)
    with caplog.at_level(logging.INFO, "ketal"):
        list(ketal.run(program, _events("text", "raise", "list")))
    (record,) = ketal_records(caplog)
    assert record.getMessage() == (
        "registered guard guards_odd failed on n@1: it returned 'yes' of class str, not True, "
        "False or None (unknown); its result counts as unknown (further failures are counted in "
        "guard_failures and logged at level DEBUG)"
    )
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ketal"):
        list(ketal.run(program, _events("raise", "text")))
    first, second = ketal_records(caplog)
    assert "failed on n@1: it raised RuntimeError" in first.getMessage()
    assert (first.levelname, second.levelname) == ("ERROR", "DEBUG")
    assert first.exc_info is not None
    assert str(first.exc_info[1]) == "the guard's own fault"


@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
def test_failures_of_guards_over_earlier_steps_are_counted(order: str) -> None:
    program = _program("A = x == 0", "B = guards_odd(A.y)", "find next A B", order=order)
    events = [e("n@1", "t", x=0, y="text"), e("n@2", "t"), e("n@3", "t")]
    verdicts = ketal.run(program, events)
    assert list(verdicts) == []
    assert verdicts.summary["patterns"]["P"]["guard_failures"] == 2


def test_check_with_a_failed_guard_does_not_pass() -> None:
    program = _program("A = true", "B = guards_odd(x)", "check (A | B)*")
    ketal.run(program, _events(True, False)).raise_on_violation()
    with pytest.raises(ketal.ViolationError, match="guard of P failed 2 times") as raised:
        ketal.run(program, _events("raise", "text", True)).raise_on_violation()
    assert raised.value.violations == ()


def test_each_monitor_counts_its_own_guard_failures() -> None:
    program = _program(*YES_AND_NO)
    one, other = ketal.Monitor(program), ketal.Monitor(program)
    one.feed_many(_events("raise", "text"))
    other.feed_many(_events("raise", True))
    assert one.summary["patterns"]["P"]["guard_failures"] == 2
    assert other.summary["patterns"]["P"]["guard_failures"] == 1


def test_guard_failure_count_survives_a_snapshot() -> None:
    program = _program(*YES_AND_NO)
    monitor = ketal.Monitor(program)
    monitor.feed_many(_events("raise", "text", True))
    restored = ketal.Monitor.restore(program, monitor.snapshot())
    assert restored.summary == monitor.summary
    restored.feed(e("n@4", "t", x="raise"))
    assert restored.summary["patterns"]["P"]["guard_failures"] == 3
    assert monitor.summary["patterns"]["P"]["guard_failures"] == 2


def test_guard_failures_of_executions_are_summed() -> None:
    register_guard("guards_odd", _odd, version="1")
    log = ketal.Log.of(_events("raise", True))
    other = ketal.Log.of(_events("text"))
    both = ketal.Log(
        lambda: iter(
            [("a", *r[1:]) for r in log.records()] + [("b", *r[1:]) for r in other.records()]
        )
    )
    for order in ("arrival", "CausalOrder"):
        verdicts = ketal.run(_program(*YES_AND_NO, order=order), both)
        assert len(list(verdicts)) == 1
        assert verdicts.summary["patterns"]["P"]["guard_failures"] == 2


def test_summary_text_reports_guard_failures() -> None:
    program = _program(*YES_AND_NO)
    verdicts = ketal.run(program, _events("raise", "text"))
    assert list(verdicts) == []
    assert [text for text in summed_up(verdicts.summary, program, None) if "unknown" in text] == [
        "P: unknown: a registered guard failed 2 times: it raised an exception, or did not "
        "return True, False or None (the logger `ketal` reports the reason)"
    ]


def test_pattern_with_a_failed_guard_can_be_pickled() -> None:
    program = _program(*YES_AND_NO)
    list(ketal.run(program, _events("raise")))
    assert pickle.loads(pickle.dumps(program.one)).fingerprint == program.fingerprint
