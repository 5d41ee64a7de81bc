"""Handlers: functions of the user's program that a `Monitor` calls with its verdicts.

A handler is registered for a kind of verdict (`violation`, `match`, …), or for a state of an
automaton (`Pattern.state`): then it is called with the transitions that enter the state.

The one rule: a handler's exception is logged and counted, and never raised into the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.errors import SettingError, returns_coroutine, wrong_type
from ketal.model.verdicts.run_verdicts import Transition
from ketal.model.verdicts.verdict_kinds import KINDS, Verdict
from ketal.programs.program import Program

Handler = Callable[[Any], object]
"""A function that takes a verdict of one kind: for `violation` it takes a `Violation`."""
_LOGGER = logging.getLogger("ketal")


class Handlers:
    """The handlers of a monitor, by kind of verdict or by `Pattern.state`.

    If `trace` is false, `handle` returns no transitions: they are made for handlers only. A
    SettingError if a key is neither a kind nor a state, or a handler is a coroutine function.
    """

    def __init__(self, on: Mapping[str, Handler], program: Program, *, trace: bool) -> None:
        self.failures = 0  # how many calls have failed
        self._trace = trace
        self._by_kind: dict[str, Handler] = {}
        self._by_state: dict[tuple[str, str], Handler] = {}
        states = {(c.name, n) for c in program.compiled for n in _state_names(c)}
        if not isinstance(on, Mapping):
            raise wrong_type("on", "a mapping of str to callable", on)
        for key, handler in on.items():
            if not isinstance(key, str):
                raise wrong_type("a key of on", "a str", key)
            if not callable(handler):
                raise wrong_type(f"the handler for {key!r}", "callable", handler)
            if returns_coroutine(handler):
                raise SettingError(
                    f"the handler for {key!r} is a coroutine function, which nothing awaits; "
                    "use a plain function that starts a task (asyncio.create_task)"
                )
            pattern, dot, state = key.partition(".")
            if key in KINDS:
                self._by_kind[key] = handler
            elif dot and (pattern, state) in states:
                self._by_state[(pattern, state)] = handler
            else:
                known = ", ".join([*KINDS, *sorted(f"{p}.{s}" for p, s in states)])
                raise SettingError(f"unknown kind or state {key!r} in on; choose from {known}")
        named = (pattern for pattern, _ in self._by_state)
        all_traced = trace or Transition.kind in self._by_kind
        # The patterns whose transitions are needed.
        self.traced = frozenset(program.names if all_traced else named)

    def __bool__(self) -> bool:
        return bool(self._by_kind or self._by_state)

    def handle(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Call the handlers; return the verdicts, without transitions unless these are traced."""
        if not self:
            return verdicts
        for verdict in verdicts:
            self._call_all(verdict)
        if self._trace:
            return verdicts
        return [one for one in verdicts if not isinstance(one, Transition)]

    def _call_all(self, verdict: Verdict) -> None:
        """Call the handlers of a verdict's kind, and of the states that a transition enters."""
        if isinstance(verdict, Transition):
            before = set(_split_names(verdict.source))
            for state in _split_names(verdict.target):
                handler = self._by_state.get((verdict.pattern, state))
                if handler is not None and state not in before:
                    self._call(handler, verdict)
        handler = self._by_kind.get(verdict.kind)
        if handler is not None:
            self._call(handler, verdict)

    def _call(self, handler: Handler, verdict: Verdict) -> None:
        try:
            handler(verdict)
        except Exception:
            self.failures += 1
            _LOGGER.exception("a handler failed on: %s", verdict)


def _split_names(names: str) -> list[str]:
    return [name for part in names.split(",") for name in part.split("|")]


def _state_names(compiled: CompiledPattern) -> set[str]:
    return {name for names in compiled.automaton.names for name in _split_names(names)}
