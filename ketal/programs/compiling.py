"""Compile programs from text, from files and from code; report the diagnostics of a text.

The stages of compiling a text: `ketal.grammar` parses it, `ketal.analysis.name_resolution` checks
names and types, `ketal.compiler.pipeline` makes automata. A file must be UTF-8 text of bounded
length, which is checked before it is parsed. A pattern built in code is rendered to text and
compiled from that, so that no pattern can be built that cannot be written.

The one rule: all errors of a file are reported together, with their places.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from ketal.analysis.parameters import ParamValue
from ketal.analysis.registered_guards import registered_guards
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import (
    Diagnostic,
    ParameterError,
    PatternError,
    PatternText,
    SettingError,
    checked_text,
    checked_texts,
    diagnostic_place,
    near,
    wrong_type,
)
from ketal.model import syntax
from ketal.model.attributes import unboxed
from ketal.model.limits import Limits
from ketal.model.syntax_walks import walk
from ketal.model.wording import unreadable_error
from ketal.programs.program import Program

PIECE_BYTES = 1_000_000
"""How many bytes of a pattern file are read at once."""


def compile(
    text: str, *, name: str = "<pattern>", limits: Limits | None = None, **params: ParamValue
) -> Program:
    """Compile the text of a pattern file.

    Parameters
    ----------
    text : str
        The text.
    name : str
        The name of the text in messages.
    limits : Limits, optional
        Limits to use instead of the defaults.
    **params
        Values for `param` declarations: numbers, strings, booleans; for a duration `"30s"` or a
        `datetime.timedelta`. A declared parameter with the name of an argument above cannot be set
        (warning K119), and has its value from the text: `name="b"` sets the name of the text.

    Raises
    ------
    PatternError
        If the text has errors; the exception has all diagnostics.
    SettingError
        If a parameter is not declared, or its value is of the wrong kind.
    TypeError
        If an argument has the wrong type.

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
    params = {parameter: unboxed(value) for parameter, value in params.items()}
    for parameter, value in params.items():
        if not isinstance(value, ParamValue):
            wanted = "a number, a str, a bool or a datetime.timedelta"
            raise wrong_type(f"parameter {parameter}", wanted, value)
    file, compiled, diagnostics, source = _compile_with_diagnostics(text, name, limits, params)
    errors = [d for d in diagnostics if d.severity == "error"]
    if errors:
        raise PatternError(errors, source)
    assert file is not None
    _check_params(file, params)
    return Program(tuple(compiled), file, tuple(diagnostics), source=source, params=params)


def lint(text: str, *, name: str = "<pattern>", limits: Limits | None = None) -> list[Diagnostic]:
    """Return all errors and warnings about the text of a pattern file, in text order.

    Parameters
    ----------
    text : str
        The text.
    name : str
        The name of the text in messages.
    limits : Limits, optional
        Limits to use instead of the defaults.

    Raises
    ------
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> for diagnostic in ketal.lint('pattern P { event A = type == "a"; find next A A; }'):
    ...     print(diagnostic.severity, diagnostic.code, diagnostic.message)
    warning K220 order-sensitive: in state q0, two `A` do not commute
    >>> ketal.lint('pattern P { event A = type = "a"; check A; }')[0].hint
    'write `==`'
    """
    return _compile_with_diagnostics(text, name, Limits.given(limits), {})[2]


def _compile_with_diagnostics(
    text: str, name: str, limits: Limits, params: Mapping[str, ParamValue]
) -> tuple[syntax.File | None, list[CompiledPattern], list[Diagnostic], PatternText]:
    """Parse, check and compile a text as far as possible.

    Returns its syntax (None after a syntax error), the patterns that compiled, all diagnostics
    sorted by place, and the text with its name.
    """
    from ketal.analysis.name_resolution import resolve
    from ketal.grammar import parse

    if not isinstance(text, str):
        wanted = "a str, the text of a pattern file (ketal.load reads a file)"
        raise wrong_type("text", wanted, text)
    source = PatternText(text, checked_text("name", name))
    try:
        file = parse(text, name=name, limits=limits)
    except PatternError as error:
        return None, [], sorted(error.diagnostics, key=diagnostic_place), source
    registered = registered_guards()
    diagnostics = resolve(file, registered=registered)
    faulty = any(d.severity == "error" for d in diagnostics)
    compiled: list[CompiledPattern] = []
    for pattern in () if faulty else file.patterns:
        try:
            one = compile_pattern(
                file, pattern, params=params, registered=registered, limits=limits, source=source
            )
            compiled.append(one)
            diagnostics += one.warnings
        except PatternError as error:
            diagnostics += error.diagnostics
    return file, compiled, sorted(diagnostics, key=diagnostic_place), source


def _check_params(file: syntax.File, params: Mapping[str, ParamValue]) -> None:
    declared = {d.name for d in file.params} | {d.name for p in file.patterns for d in p.params}
    for name in params:
        if name not in declared:
            none = "" if declared else "the file declares no parameters"
            hint = near(name, sorted(declared), none)
            raise ParameterError(f"unknown parameter {name!r}{hint}", name)


# --- files ---


def load(
    path: str | os.PathLike[str] | IO[str] | IO[bytes],
    *,
    limits: Limits | None = None,
    **params: ParamValue,
) -> Program:
    """Compile a pattern file.

    Parameters
    ----------
    path : path or file
        The path of a file of UTF-8 text, or an open file.
    limits : Limits, optional
        Limits to use instead of the defaults; `pattern_bytes_max` bounds the file.
    **params
        As for `compile`.

    Raises
    ------
    PatternError
        If the text has errors; the exception has all diagnostics.
    SettingError
        If the file cannot be read, a parameter is not declared, or its value is of the wrong kind.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> from pathlib import Path
    >>> text = 'pattern One { event A = type == "a"; check A*; }'
    >>> count = Path("one.ketal").write_text(text)
    >>> ketal.load("one.ketal").names
    ('One',)
    """
    limits = Limits.given(limits)
    if isinstance(path, str | os.PathLike):
        text, name = read_pattern(path, limits), str(path)
    elif hasattr(path, "read"):
        name = str(getattr(path, "name", "<file>"))
        what = f"pattern file {name}"
        try:
            content = path.read()
        except (OSError, ValueError) as fault:  # as of a file of text that is not UTF-8
            raise SettingError(f"cannot read {what}: {fault}") from None
        text = decoded_pattern(content, what, limits) if isinstance(content, bytes) else content
    else:
        raise wrong_type("path", "a path or an open file", path)
    return compile(text, name=name, limits=limits, **params)


def read_pattern(path: str | os.PathLike[str], limits: Limits) -> str:
    """Return the text of a pattern file.

    A SettingError if it cannot be read, is not UTF-8, or is longer than `pattern_bytes_max`.
    """
    if not os.fspath(path):
        # `Path("")` would be the current folder.
        raise SettingError("the name of the pattern file is empty")
    try:
        with Path(path).open("rb") as file:
            raw = read_at_most(file, limits.pattern_bytes_max + 1)
    except (OSError, ValueError) as fault:
        instead = "pass the text of a pattern to ketal.compile"
        raise unreadable_error(str(path), fault, instead, "pattern file ") from None
    return decoded_pattern(raw, f"pattern file {path}", limits)


def read_at_most(file: IO[bytes], size: int) -> bytes:
    """Return at most `size` bytes of a file, of which `read` would allocate all at once."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(min(size, PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def decoded_pattern(raw: bytes, name: str, limits: Limits) -> str:
    """Decode a pattern file, of which the first `pattern_bytes_max` + 1 bytes are enough.

    A SettingError if it is not UTF-8, or longer than `pattern_bytes_max`.
    """
    if len(raw) > limits.pattern_bytes_max:
        raise SettingError(
            f"{name} is longer than {limits.pattern_bytes_max} bytes (limit pattern_bytes_max)"
        )
    # UTF-16 without a byte order mark would decode as UTF-8: ASCII characters and zero bytes.
    is_wide = b"\0" in raw[:2] and raw[:4].strip(b"\0") != b""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or is_wide:
        encoding = "UTF-32" if b"\0\0" in raw[:4] else "UTF-16"
        raise SettingError(
            f"{name} is {encoding}, but a pattern file must be UTF-8; convert it with "
            f"`iconv -f {encoding} -t UTF-8 FILE`"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        line = raw.count(b"\n", 0, begin) + 1
        raise SettingError(
            f"{name} is not valid UTF-8 (line {line}, byte {error.start - begin + 1}); "
            "save it as UTF-8"
        ) from None


# --- patterns made in code ---


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
    """Build a pattern in code, from states, transitions and guards.

    The pattern is rendered to text and compiled from that, so its automaton and
    fingerprint are those of the text, and all checks of `compile` apply.

    Parameters
    ----------
    name : str
        The pattern's name.
    events, steps : mapping of str to str or Guard
        Guards by name, as text (`"call(* Stack.on(..)) && localhost"`) or as
        nodes of `ketal.model.syntax`.
    transitions : iterable of (str, str, str)
        The transitions: (state, step, next state).
    initial : str
        The initial state.
    finals : iterable of str, optional
        The final states; by default, in a check, all states.
    find : str, optional
        The selection strategy of a find: `strict`, `next` or `any`; by default the pattern is a
        check.
    clauses : iterable of str
        Other statements, as text: `"order CausalOrder"`, `"within 5 s"`.
    limits : Limits, optional
        Limits to use instead of the defaults.
    **params
        Values for `param` clauses.

    Raises
    ------
    PatternError
        As for `compile`; spans refer to the rendered text.
    SettingError
        If the text of a guard contains more than a guard, a parameter is not declared, or its value
        is of the wrong kind.
    TypeError
        If an argument has the wrong type.

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
    steps = {} if steps is None else steps
    for what, guards in (("events", events), ("steps", steps)):
        if not isinstance(guards, Mapping):
            raise wrong_type(what, "a mapping of names to guards", guards)

    lines = [f"    {clause.strip().rstrip(';')};" for clause in checked_texts("clauses", clauses)]
    lines += [f"    event {event} = {_guard_text(guard)};" for event, guard in events.items()]
    lines += [f"    {step} = {_guard_text(guard)};" for step, guard in steps.items()]
    lines.append(f"    {'check' if find is None else f'find {find}'} automaton {{")
    lines.append(f"        initial {initial};")
    if finals is not None:
        lines.append(f"        final {', '.join(checked_texts('finals', finals))};")
    lines += [
        f"        {before} -> {after} on {step};"
        for before, step, after in _checked_transitions(transitions)
    ]
    rendered = "\n".join([f"pattern {checked_text('name', name)} {{", *lines, "    }", "}", ""])
    program = compile(rendered, name=f"<built {name}>", limits=limits, **params)
    declared = [d.name for d in program.one.pattern.declarations]
    if declared != [*events, *steps]:
        raise SettingError(f"a guard of {name} contains more than a guard: declared {declared}")
    return program


def _guard_text(guard: str | syntax.Guard) -> str:
    """Return the text of a guard, which is given as text or as syntax; else raise a TypeError."""
    from ketal.grammar import render_guard
    from ketal.grammar.bare_names import DeclaredNames

    if isinstance(guard, str):
        return guard
    if not isinstance(guard, syntax.Guard):
        raise wrong_type("a guard", "a str or a guard of ketal.model.syntax", guard)
    # As if they were declared: no attribute is written bare, to be read as a step or a parameter.
    attributes = [node for node in walk(guard) if isinstance(node, syntax.Attribute)]
    heads = {name for node in attributes for name in node.path[:1]}
    return render_guard(guard, DeclaredNames(declared=heads))


def _checked_transitions(given: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield transitions, which must be triples; raise a TypeError otherwise."""
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise wrong_type("transitions", "a list of (state, step, state)", given)
    for transition in given:
        if not isinstance(transition, tuple | list) or len(transition) != 3:
            raise TypeError(f"a transition must be (state, step, state), not {transition!r}")
        before, step, after = transition
        yield before, step, after
