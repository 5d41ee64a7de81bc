"""What a pattern computes of bound events: its relational atoms, and the values of `return`.

The one rule: a function is compiled when it is first asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ketal.analysis.registered_guards import GuardCall
from ketal.compiler.automaton import Automaton
from ketal.compiler.predicate_codegen import (
    Relational,
    compile_equality,
    compile_relational,
    compile_value,
    is_equality,
)
from ketal.compiler.predicates import RELATIONS
from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.limits import Limits

Bound = Mapping[str, Event]
"""The event that each step is bound to."""


@dataclass(frozen=True, eq=False)
class BoundFunctions:
    """The functions of a pattern that read bound events.

    Attributes
    ----------
    automaton : Automaton
        Its automaton, whose atoms are compiled.
    clause : Returns or None
        Its `return`.
    limits : Limits
        Those of the functions.
    registered : mapping of str to GuardCall
        Guards added in code, by name.
    """

    automaton: Automaton
    clause: syntax.Returns | None
    limits: Limits
    registered: Mapping[str, GuardCall]

    @functools.cached_property
    def relational(self) -> dict[int, Relational]:
        """The compiled atoms that refer to bound events, by number."""
        return {
            number: compile_relational(atom, self.limits, self.registered)
            for number, atom in enumerate(self.automaton.atoms)
            if atom.relational and atom.shape not in (*RELATIONS, "barred")
        }

    @functools.cached_property
    def equalities(self) -> dict[int, tuple[Callable[[Event], Any], Callable[[Bound], Any]]]:
        """The two sides of each atom that equates an event's value with a bound one's."""
        return {
            number: compile_equality(atom, self.limits)
            for number, atom in enumerate(self.automaton.atoms)
            if is_equality(atom)
        }

    @functools.cached_property
    def returns(self) -> tuple[tuple[str, Callable[[Bound], Any]], ...] | None:
        """(name, value of the bound events) of each `return` item; None without."""
        if self.clause is None or self.clause.count:
            return None
        return tuple(
            (item.name, compile_value(item.value, self.limits)) for item in self.clause.items
        )
