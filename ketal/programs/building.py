"""Patterns made in code, from states, transitions and guards.

The one rule: a pattern is written as text and compiled from it, so that nothing can be built that
could not be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ketal.analysis.parameters import ParamValue
from ketal.errors import SettingError, checked_text, checked_texts, wrong_type
from ketal.model import syntax
from ketal.model.limits import Limits
from ketal.programs.compiling import compile
from ketal.programs.program import Program


def build(
    name: str,
    *,
    events: Mapping[str, str | syntax.Guard],
    transitions: Iterable[tuple[str, str, str]],
    initial: str,
    steps: Mapping[str, str | syntax.Guard] | None = None,
    finals: Iterable[str] | None = None,
    find: str | None = None,
    clauses: Iterable[str] = (),
    limits: Limits | None = None,
    **params: ParamValue,
) -> Program:
    """Make a pattern in code, from states, transitions and guards.

    The pattern is written as text and compiled from it, so the automaton and the
    fingerprint are those of the text, and every check holds.

    Parameters
    ----------
    name : str
        The pattern's name.
    events, steps : mapping of str to str or Guard
        Guards by name, as text (`"call(* Stack.on(..)) && localhost"`) or as
        nodes of `ketal.model.syntax`.
    transitions : iterable of (str, str, str)
        (state, step, state).
    initial : str
        The initial state.
    finals : iterable of str, optional
        The final states; left out, in a check, all of them.
    find : str, optional
        `strict`, `next` or `any`; left out, the pattern is a check.
    clauses : iterable of str
        The other statements, as text: `"order CausalOrder"`, `"within 5 s"`.
    limits : Limits, optional
        Other limits than the defaults.
    **params
        Values for `param` clauses.

    Raises
    ------
    PatternError
        As for `compile`; spans point into the text that was written.
    SettingError
        If a guard's text holds more than a guard, or a parameter is wrong.
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.build(
    ...     "Stack",
    ...     events={"On": 'type == "on"', "Push": 'type == "push"'},
    ...     transitions=[("q0", "On", "q1"), ("q1", "Push", "q1")],
    ...     initial="q0",
    ... )
    >>> program.name
    'Stack'
    """
    from ketal.grammar import render_guard

    steps = {} if steps is None else steps
    for what, guards in (("events", events), ("steps", steps)):
        if not isinstance(guards, Mapping):
            raise wrong_type(what, "a mapping of names to guards", guards)

    def text(guard: str | syntax.Guard) -> str:
        if not isinstance(guard, str | syntax.Node):
            raise wrong_type("a guard", "a str or a node of ketal.model.syntax", guard)
        return guard if isinstance(guard, str) else render_guard(guard)

    lines = [f"    {clause.strip().rstrip(';')};" for clause in checked_texts("clauses", clauses)]
    lines += [f"    event {event} = {text(guard)};" for event, guard in events.items()]
    lines += [f"    {step} = {text(guard)};" for step, guard in steps.items()]
    lines.append(f"    {'check' if find is None else f'find {find}'} automaton {{")
    lines.append(f"        initial {initial};")
    if finals is not None:
        lines.append(f"        final {', '.join(checked_texts('finals', finals))};")
    try:
        lines += [f"        {before} -> {after} on {step};" for before, step, after in transitions]
    except (TypeError, ValueError):
        raise wrong_type("transitions", "a list of (state, step, state)", transitions) from None
    written = "\n".join([f"pattern {checked_text('name', name)} {{", *lines, "    }", "}", ""])
    program = compile(written, name=f"<built {name}>", limits=limits, **params)
    declared = [d.name for d in program.one.pattern.declarations]
    if declared != [*events, *steps]:
        raise SettingError(f"a guard of {name} holds more than a guard: declared {declared}")
    return program
