"""The text of a pattern file, compiled: to a Program, or to what lint says of it.

The stages of a pattern's text: `ketal.grammar` parses it,
`ketal.analysis.name_resolution` checks names and types, `ketal.compiler.pipeline` makes
automata.

The one rule: every error of a file is reported at once, with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from ketal.analysis.parameters import ParamValue
from ketal.analysis.registered_guards import registered_guards
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import (
    Diagnostic,
    PatternError,
    PatternText,
    SettingError,
    checked_text,
    diagnostic_place,
    near,
    wrong_type,
)
from ketal.model import syntax
from ketal.model.limits import Limits
from ketal.programs.program import Program

_PARAM_VALUES = (int, float, str, bool, timedelta, syntax.Duration)


def compile(
    text: str, *, name: str = "<pattern>", limits: Limits | None = None, **params: ParamValue
) -> Program:
    """Compile the text of a pattern file.

    Parameters
    ----------
    text : str
        The patterns.
    name : str
        What to call the text in messages.
    limits : Limits, optional
        Other limits than the defaults.
    **params
        Values for `param` declarations: numbers, strings, booleans; for a duration
        `"30s"` or a `datetime.timedelta`.

    Raises
    ------
    PatternError
        If anything is wrong with the text; it holds every finding.
    SettingError
        If a parameter is not declared, or of another kind.
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     param w = 10 s;
    ...     pattern Twice { order CausalOrder; event A = type == "a"; find any A A; within w; }
    ... ''', w="30s")
    >>> program.names, program.warnings
    (('Twice',), ())
    """
    limits = Limits.given(limits)
    for parameter, value in params.items():
        if not isinstance(value, _PARAM_VALUES):
            wanted = "a number, a str, a bool or a datetime.timedelta"
            raise wrong_type(f"parameter {parameter}", wanted, value)
    file, compiled, diagnostics, source = _diagnosed(text, name, limits, params)
    errors = sorted((d for d in diagnostics if d.severity == "error"), key=diagnostic_place)
    if errors:
        raise PatternError(errors, source)
    assert file is not None
    _check_params(file, params)
    warnings = sorted((d for d in diagnostics if d.severity != "error"), key=diagnostic_place)
    return Program(tuple(compiled), file, tuple(warnings), source=source, params=params)


def lint(text: str, *, name: str = "<pattern>", limits: Limits | None = None) -> list[Diagnostic]:
    """Return every error and warning about the text of a pattern file, in its order.

    Parameters
    ----------
    text : str
        The patterns.
    name : str
        What to call the text in messages.
    limits : Limits, optional
        Other limits than the defaults.

    Raises
    ------
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> for diagnostic in ketal.lint('pattern P { event A = type == "a"; find next A A; }'):
    ...     print(diagnostic.severity, diagnostic.code, diagnostic.message)
    warning K220 order-sensitive: in state q0, two `A` do not commute
    >>> ketal.lint('pattern P { event A = type = "a"; check A; }')[0].hint
    'write `==`'
    """
    return sorted(_diagnosed(text, name, Limits.given(limits), {})[2], key=diagnostic_place)


def _diagnosed(
    text: str, name: str, limits: Limits, params: Mapping[str, ParamValue]
) -> tuple[syntax.File | None, list[CompiledPattern], list[Diagnostic], PatternText]:
    """Parse, check and compile a text as far as possible; return all diagnostics, too."""
    from ketal.analysis.name_resolution import resolve
    from ketal.grammar import parse

    if not isinstance(text, str):
        wanted = "a str, the text of a pattern file (ketal.load reads a file)"
        raise wrong_type("text", wanted, text)
    source = PatternText(text, checked_text("name", name))
    try:
        file = parse(text, name=name, limits=limits)
    except PatternError as error:
        return None, [], list(error.diagnostics), source
    registered = registered_guards()
    diagnostics = resolve(file, registered=registered)
    if any(d.severity == "error" for d in diagnostics):
        return file, [], diagnostics, source
    compiled: list[CompiledPattern] = []
    for pattern in file.patterns:
        try:
            compiled.append(
                compile_pattern(
                    file,
                    pattern,
                    params=params,
                    registered=registered,
                    limits=limits,
                    source=source,
                )
            )
            diagnostics += compiled[-1].warnings
        except PatternError as error:
            diagnostics += error.diagnostics
    return file, compiled, diagnostics, source


def _check_params(file: syntax.File, params: Mapping[str, ParamValue]) -> None:
    known = {d.name for d in file.params} | {d.name for p in file.patterns for d in p.params}
    for name in params:
        if name not in known:
            raise SettingError(f"the file declares no `param {name}`{near(name, sorted(known))}")
