"""Guards that a program adds to the language.

A registered guard is a pure function of the values that a pattern passes to it, and of the event if
its first parameter is annotated `ketal.Event`. It returns True, False or None (unknown); numpy's
booleans count as booleans. Its version is part of the fingerprint of every pattern that calls it: a
function that returns other answers needs another version.

The annotations determine the kinds of the arguments, so a pattern that passes a string for a number
is refused when it is compiled. A function that raises, or returns anything else, has *failed*: to
keep a stream running, its answer is then unknown, and the failure is counted and logged with its
reason.

The one rule: a failed guard is unknown, never true.
"""

from __future__ import annotations

import inspect
import logging
import reprlib
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from ketal.errors import SettingError
from ketal.model.attributes import unboxed
from ketal.model.events.event import Event
from ketal.model.guard_functions import FUNCTIONS, Kind
from ketal.model.language_words import RESERVED

Function: TypeAlias = Callable[..., bool | None]

_LOGGER = logging.getLogger("ketal")
_KINDS: dict[type, Kind] = {int: "number", float: "number", str: "string", bool: "boolean"}
# `causal(…)` is reported as a misspelt `Causal(…)`.
_TAKEN = frozenset(word.lower() for word in RESERVED.union(FUNCTIONS))
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class RegisteredGuard:
    """A guard that patterns may call by its name."""

    name: str  # by which patterns call it
    version: str  # a part of the fingerprint of the patterns that call it
    function: Function  # returns True, False or None for unknown
    parameters: tuple[Kind, ...]  # the kinds of the values that a pattern passes
    takes_event: bool  # whether the function gets the event before these values


class GuardCall:
    """A registered guard as compiled guards call it; its answer is unknown if the function fails.

    `failed` is called for each failure of the function. The first is logged in full, the others at
    level `DEBUG`. Without it, failures are neither counted nor logged: statistics and explanations
    evaluate guards of events again that a run has evaluated.
    """

    __slots__ = ("failed", "guard", "reported")

    def __init__(self, guard: RegisteredGuard, failed: Callable[[], None] | None = None) -> None:
        self.guard = guard
        self.failed = failed
        self.reported = False

    def __call__(self, event: Event, values: tuple[Any, ...]) -> bool | None:
        """Return the guard's answer for an event and the values that a pattern passes."""
        guard = self.guard
        for value, expected in zip(values, guard.parameters, strict=True):
            # An absent argument, or one of another kind, makes the guard unknown without a failure.
            if value is None or (expected != "any" and _KINDS.get(value.__class__) != expected):
                return None
        given = (event, *values) if guard.takes_event else values
        try:
            answer = unboxed(guard.function(*given))
        except Exception as fault:
            self._fail(event, f"it raised {type(fault).__name__}", fault)
            return None
        if answer is None or answer.__class__ is bool:
            return answer
        reason = f"it returned {reprlib.repr(answer)} of class {type(answer).__name__}"
        self._fail(event, f"{reason}, not True, False or None (unknown)")
        return None

    def _fail(self, event: Event, reason: str, fault: Exception | None = None) -> None:
        if self.failed is None:
            return
        _LOGGER.log(
            logging.DEBUG if self.reported else logging.ERROR,
            "registered guard %s failed on %s: %s; its result counts as unknown"
            " (further failures are counted in guard_failures and logged at level DEBUG)",
            self.guard.name,
            event.dot,
            reason,
            exc_info=fault,
        )
        self.reported = True
        self.failed()


_registry: dict[str, RegisteredGuard] = {}


def register_guard(name: str, function: Function, *, version: str) -> RegisteredGuard:
    """Add a guard to the language, or replace the guard of that name.

    Programs that are compiled already keep the guard that they were compiled with.

    Parameters
    ----------
    name : str
        The name that patterns call: an identifier that is not a word of the language.
    function : callable
        A pure function; arguments for parameters annotated int, float, str or bool are checked when
        a pattern is compiled, and a first parameter annotated `ketal.Event` gets the event.
    version : str
        Distinguishes this function from others of that name, in fingerprints.

    Raises
    ------
    SettingError
        If the name, the version or the signature is invalid.

    Examples
    --------
    >>> import ketal
    >>> def even(value: int) -> bool:
    ...     return value % 2 == 0
    >>> guard = ketal.register_guard("even", even, version="1")
    >>> program = ketal.compile('''
    ...     pattern Even { event E = type == "put" && even(value); find any E; }
    ... ''')
    >>> log = [ketal.Event(node="n", type="put", clock={"n": n}, data={"value": n}) for n in (1, 2)]
    >>> [str(match) for match in ketal.run(program, log)]
    ['match Even: E=n@2']
    """
    named = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not named or name.lower() in _TAKEN:
        raise SettingError(
            f"{name!r} cannot name a guard: a name consists of A-Z a-z 0-9 _ and is not a keyword"
        )
    if not version or not isinstance(version, str):
        raise SettingError(f"the guard {name!r} requires a version: a non-empty string")
    takes_event, parameters = _signature(name, function)
    guard = RegisteredGuard(name, version, function, parameters, takes_event)
    _registry[name] = guard
    return guard


def registered_guards() -> Mapping[str, RegisteredGuard]:
    """Return a snapshot of the registered guards, by name."""
    return MappingProxyType(dict(_registry))


def _signature(name: str, function: Function) -> tuple[bool, tuple[Kind, ...]]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise SettingError(f"the guard {name!r} is not a function with a known signature") from None
    for parameter in parameters:
        if parameter.kind not in _POSITIONAL:
            raise SettingError(
                f"the guard {name!r} must take a fixed number of positional parameters, "
                f"and {parameter} is not one"
            )
    hints = _hints(function)
    annotations = [hints.get(p.name, p.annotation) for p in parameters]
    takes_event = bool(annotations) and _is_event(annotations[0])
    return takes_event, tuple(_kind(a) for a in annotations[takes_event:])


def _hints(function: Function) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return typing.get_type_hints(target)
    except Exception:
        # Annotations are text that is evaluated here, and so may raise anything: names imported
        # under `if TYPE_CHECKING` are absent at run time. They stay text.
        return {}


def _is_event(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.split(".")[-1] == "Event"
    return annotation is Event


def _kind(annotation: object) -> Kind:
    for known, kind in _KINDS.items():
        # An annotation that could not be evaluated is text.
        if annotation is known or (isinstance(annotation, str) and annotation == known.__name__):
            return kind
    return "any"
