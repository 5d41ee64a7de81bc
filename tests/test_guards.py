"""Registered guards: what a signature says, and what cannot be a guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ketal.errors import SettingError
from ketal.event import Event
from ketal.guards import register_guard, registered_guards

if TYPE_CHECKING:
    from decimal import Decimal


def _near(event: Event, bound: float, unit: str, strict: bool, rest: Any) -> bool | None:
    return None


def _plain(a: int, b: str) -> bool:
    return True


def _unevaluated(event: Event, a: int, b: Decimal) -> bool:
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
    guard = register_guard("guards_text", _unevaluated, version="1")
    assert (guard.parameters, guard.takes_event) == (("number", "any"), True)


def test_the_registry_is_seen_as_it_was() -> None:
    before = registered_guards()
    register_guard("guards_later", _plain, version="1")
    assert "guards_later" not in before
    assert registered_guards()["guards_later"].version == "1"
    register_guard("guards_later", _plain, version="2")
    assert registered_guards()["guards_later"].version == "2"


@pytest.mark.parametrize("name", ["", "a b", "1a", "größe", "call", "Causal", "causal", "node"])
def test_a_name_that_cannot_be_called(name: str) -> None:
    with pytest.raises(SettingError, match="cannot name a guard"):
        register_guard(name, _plain, version="1")


def test_a_guard_has_a_version_and_a_fixed_number_of_parameters() -> None:
    with pytest.raises(SettingError, match="wants a version"):
        register_guard("guards_unversioned", _plain, version="")
    with pytest.raises(SettingError, match="fixed number"):
        register_guard("guards_many", lambda *values: True, version="1")
    with pytest.raises(SettingError, match="fixed number"):
        register_guard("guards_keyword", lambda *, a: True, version="1")
    with pytest.raises(SettingError, match="no function"):
        register_guard("guards_number", 3, version="1")  # type: ignore[arg-type]
