"""Predicates over one value of an event, such as `host("db-*")` and `exists(x)`.

A predicate reads a *subject*, a value of the event, and compares it with constants from the
pattern. It is true or false for every value of its kind and unknown for all others (Kleene's
logic). The parser, lint, the printer and the compiler need only its entry here:
`FUNCTIONS` has the predicates that a pattern calls by name, `PREDICATES` also those with a syntax
of their own, `matches` and the parts of `call(…)`.

The one rule: the value of a predicate depends only on its subject and its constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.syntax import Field, Value
from ketal.model.values import argument_types, base_node, glob_regex, origin, regex

Kind: TypeAlias = Literal["number", "string", "boolean", "any"]
Test: TypeAlias = Callable[[Any], object]
"""A test of a value; the result is used as a truth value."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate over one value."""

    name: str  # its name in patterns; also the shape of its atoms
    prepare: Callable[..., Test]
    """(limits, *constants) → the test of a value of its kind."""
    constants: tuple[Kind, ...] = ()  # the kinds of its constants
    kind: Kind = "string"
    """The kind of values for which it is true or false; lists and mappings have the kind `any`."""
    subject: Field | Callable[[Event], Any] | None = None
    """The value that it reads: a field, or the result of a function of the event; None if it is
    the first argument."""
    decided: bool = False
    """Whether it is never unknown; then its test is also called with None, for an absent value."""
    elsewhere: Callable[..., bool | None] | None = None
    """(*constants) → its truth for every value of its kind that differs from all constants of the
    pattern, its own included; None if that depends on the value."""

    @property
    def parameters(self) -> tuple[Kind, ...]:
        """The kinds of the arguments in a pattern."""
        return self.constants if self.subject is not None else (self.kind, *self.constants)

    def read(self, payload: tuple[Any, ...]) -> tuple[Value | Callable[[Event], Any], Any]:
        """Return the subject and the constants of an atom with this payload."""
        return (payload[0], payload[1:]) if self.subject is None else (self.subject, payload)


def _node_glob_test(limits: Limits, glob: str) -> Test:
    fullmatch = glob_regex(glob, dotted=False).fullmatch
    return lambda node: fullmatch(base_node(node))


def _dotted_glob_test(limits: Limits, glob: str) -> Test:
    fullmatch: Test = glob_regex(glob, dotted=True).fullmatch
    return fullmatch


def _arguments_test(limits: Limits, globs: tuple[str, ...]) -> Test:
    """Return the test of a list of argument types, in which the glob `..` is any number of types.

    It takes time proportional to globs times types: no list makes it backtrack.
    """
    tests = [None if glob == ".." else _dotted_glob_test(limits, glob) for glob in globs]

    def test(types: list[str]) -> bool:
        lengths = {0}  # of the beginnings of `types` that match the globs so far
        for fits in tests:
            if fits is None:
                lengths = set(range(min(lengths), len(types) + 1))
            else:
                lengths = {n + 1 for n in lengths if n < len(types) and fits(types[n])}
            if not lengths:
                return False
        return len(types) in lengths

    return test


def _glob_elsewhere(glob: str, *wildcards: str) -> bool | None:
    """Return whether a glob fits texts other than itself: False, or None if it has wildcards."""
    return None if any(wildcard in glob for wildcard in wildcards) else False


def _by_name(*predicates: Predicate) -> dict[str, Predicate]:
    return {predicate.name: predicate for predicate in predicates}


FUNCTIONS = _by_name(
    Predicate(
        "host",
        _node_glob_test,
        ("string",),
        subject=Field("node"),
        decided=True,
        elsewhere=lambda glob: _glob_elsewhere(glob, "*", "?"),
    ),
    Predicate("origin", _node_glob_test, ("string",), subject=origin, decided=True),
    Predicate(
        "exists",
        lambda limits: lambda value: value is not None,
        kind="any",
        decided=True,
        elsewhere=lambda: True,
    ),
)
"""The functions that a pattern calls by name; a registered guard cannot have such a name."""

GUARD_WORDS = ("Causal", "Conc", "call", *FUNCTIONS)
"""The words of the guards that take arguments in parentheses."""

PREDICATES = FUNCTIONS | _by_name(
    Predicate(
        "matches", lambda limits, text: regex(text, limits.regex_memory_max).search, ("string",)
    ),
    Predicate(
        "type",
        _dotted_glob_test,
        ("string",),
        subject=Field("type"),
        decided=True,
        elsewhere=lambda glob: _glob_elsewhere(glob, "*", ".."),
    ),
    Predicate(
        "result",
        _dotted_glob_test,
        ("string",),
        subject=lambda event: event.data.get("result_type"),
    ),
    Predicate("arguments", _arguments_test, ("any",), kind="any", subject=argument_types),
)
"""Name → predicate."""
