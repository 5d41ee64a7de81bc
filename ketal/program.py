"""Programs: pattern files, read and compiled.

The stages of a pattern's text: `ketal.grammar` parses it,
`ketal.analysis.name_resolution` checks names and types, `ketal.compiler.pipeline` makes
automata. A `Program` is the patterns of a file; one pattern taken out of it is a
Program of one.

The one rule: every error of a file is reported at once, with its place.
"""

from __future__ import annotations

import codecs
import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ketal.analysis.parameters import ParamValue
from ketal.analysis.registered_guards import registered_guards
from ketal.compiler.automaton import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import Diagnostic, PatternError, PatternText, SettingError, wrong_type
from ketal.model import syntax
from ketal.model.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from ketal.pictures.graphs.graph import Picture

_PARAM_VALUES = (int, float, str, bool, timedelta, syntax.Duration)


class Program(Mapping[str, "Program"]):
    """Compiled patterns by their names, in the order of their file.

    A mapping from the name of a pattern to the pattern, itself a Program of
    one: `name in program`, `program[name]`, `len(program)`; iteration gives the
    names, `program.items()` names and patterns. Two programs are equal only if
    they are the same object; `fingerprint` compares what patterns mean.

    Parameters
    ----------
    compiled : tuple of CompiledPattern
        At least one, with different names.
    file : File
        The syntax they came from.
    warnings : tuple of Diagnostic
        The warnings of `lint`.
    source : PatternText or None
        The text that was compiled, where there was one.
    params : mapping of str to value
        The values that were given for its `param` declarations.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     event A = type == "a";
    ...     pattern One { check A*; }
    ...     pattern Two { order CausalOrder; find any A A; }
    ... ''')
    >>> program.names, len(program), "Two" in program
    (('One', 'Two'), 2, True)
    >>> one = program["One"]
    >>> one.name, one.one.kind, len(one.fingerprint), one.needs_order, program.needs_order
    ('One', 'check', 32, False, True)
    >>> [pattern.name for pattern in program.patterns]
    ['One', 'Two']
    """

    def __init__(
        self,
        compiled: tuple[CompiledPattern, ...],
        file: syntax.File,
        warnings: tuple[Diagnostic, ...] = (),
        *,
        source: PatternText | None = None,
        params: Mapping[str, ParamValue] | None = None,
    ) -> None:
        self.compiled = compiled
        self.file = file
        self.warnings = warnings
        self.source = source
        self.params = dict(params or {})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the patterns."""
        return tuple(c.name for c in self.compiled)

    @property
    def patterns(self) -> tuple[Program, ...]:
        """Each pattern as a program of its own."""
        return tuple(self[name] for name in self.names)

    def __getitem__(self, name: str) -> Program:
        """Return one pattern.

        Raises
        ------
        KeyError
            If there is none of that name; the message names the nearest.
        TypeError
            If the name is no string.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern One { event A = type == "a"; check A*; }')
        >>> program["One"].names
        ('One',)
        >>> program["Ome"]
        Traceback (most recent call last):
        ...
        KeyError: "there is no pattern 'Ome'; did you mean One?"
        """
        if not isinstance(name, str):
            raise wrong_type("the name of a pattern", "a str", name)
        if name in self.names:
            return self.only((name,))
        near = difflib.get_close_matches(name, self.names, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(self.names)}"
        raise KeyError(f"there is no pattern {name!r}{hint}")

    def only(self, names: Collection[str]) -> Program:
        """Return the program of some of the patterns, at least one, in the order of the file.

        Parameters
        ----------
        names : collection of str
            Their names; others are ignored.

        Examples
        --------
        >>> import ketal
        >>> text = 'event A = type == "a"; pattern P { check A; } pattern Q { find any A; }'
        >>> ketal.compile(text).only(["Q"]).names
        ('Q',)
        """
        return Program(
            tuple(c for c in self.compiled if c.name in names),
            self.file,
            tuple(w for w in self.warnings if w.pattern == "" or w.pattern in names),
            source=self.source,
            params=self.params,
        )

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.compiled)

    # A mapping compares its items, and the one item of a pattern is a pattern again.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def one(self) -> CompiledPattern:
        """The compiled pattern of a program that holds one.

        Raises
        ------
        SettingError
            If there are several.
        """
        if len(self.compiled) != 1:
            raise SettingError(
                f"the program holds {len(self.compiled)} patterns "
                f"({', '.join(self.names)}); take one with program[name]"
            )
        return self.compiled[0]

    def for_undecided_clocks(self, scheme: str) -> Program:
        """Return the program as it judges events whose clocks do not decide happened-before.

        `Causal` and `Conc` are unknown where the clocks leave them open, and a warning names them.

        Parameters
        ----------
        scheme : str
            The timestamping scheme, as `lamport`, for messages.

        Raises
        ------
        PatternError
            If a pattern asks for what such clocks cannot tell at all: what a node learned of, or
            every linear extension.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('''
        ...     pattern Conflict { order CausalOrder; event W = type == "write";
        ...                        First = W; Second = Conc(W); find any First Second; }
        ... ''')
        >>> [warning.code for warning in program.for_undecided_clocks("lamport").warnings]
        ['K305']
        """
        compiled = [
            compile_pattern(
                self.file,
                next(p for p in self.file.patterns if p.name == one.name),
                params=self.params,
                registered={**registered_guards(), **{g.name: g for g in one.registered}},
                limits=one.limits,
                source=self.source,
                undecided=scheme,
            )
            for one in self.compiled
        ]
        of_patterns = [warning for one in self.compiled for warning in one.warnings]
        warnings = [warning for warning in self.warnings if warning not in of_patterns]
        warnings += [warning for one in compiled for warning in one.warnings]
        warnings.sort(key=_place)
        return Program(
            tuple(compiled), self.file, tuple(warnings), source=self.source, params=self.params
        )

    @property
    def name(self) -> str:
        """The name of the one pattern."""
        return self.one.name

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the one pattern: 32 hex digits."""
        return self.one.fingerprint

    @property
    def needs_order(self) -> bool:
        """Whether some pattern needs the whole log: under `order CausalOrder`, or with a `mode`."""
        return any(c.causal or c.pattern.mode is not None for c in self.compiled)

    def graph(self) -> Picture:
        """Return the picture of the one pattern's automaton.

        A notebook draws it; `to_svg`, `to_dot`, `to_mermaid` and `to_json` write it.

        Raises
        ------
        SettingError
            If the program holds several patterns.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern One { event A = type == "a"; check A*; }')
        >>> picture = program.graph()
        >>> picture.to_dot().splitlines()[0], picture.to_svg().startswith("<svg")
        ('digraph "One" {', True)
        """
        from ketal.grammar import render_guard
        from ketal.pictures.graphs.graph import Picture

        return Picture.of(self.one, render_guard)

    def _repr_svg_(self) -> str | None:
        return self.graph()._repr_svg_() if len(self.compiled) == 1 else None

    def __repr__(self) -> str:
        return f"<ketal.Program {', '.join(map(repr, self.compiled))}>"


def checked_program(given: object) -> Program:
    """Return a program argument after checking its class.

    Raises
    ------
    TypeError
        If it is no Program: the name of a file, a text, an automaton.
    """
    if not isinstance(given, Program):
        wanted = "a ketal.Program, as ketal.load(path) and ketal.compile(text) return"
        raise wrong_type("program", wanted, given)
    return given


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        wanted = "a str, the text of a pattern file (ketal.load reads a file)"
        raise wrong_type("text", wanted, text)
    return text


def _diagnosed(
    text: str, name: str, limits: Limits, params: Mapping[str, ParamValue]
) -> tuple[syntax.File | None, list[CompiledPattern], list[Diagnostic], PatternText]:
    """Parse, check and compile a text as far as possible; return all diagnostics, too."""
    from ketal.analysis.name_resolution import resolve
    from ketal.grammar import parse

    source = PatternText(text, name)
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


def _place(diagnostic: Diagnostic) -> tuple[int, int, str]:
    span = diagnostic.span
    return (span.line, span.column, diagnostic.code) if span else (0, 0, diagnostic.code)


def _check_params(file: syntax.File, params: Mapping[str, ParamValue]) -> None:
    known = {d.name for d in file.params} | {d.name for p in file.patterns for d in p.params}
    for name in params:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            listed = f"; there are {', '.join(sorted(known))}" if known and not near else ""
            raise SettingError(f"the file declares no `param {name}`{hint}{listed}")


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
    file, compiled, diagnostics, source = _diagnosed(_checked_text(text), name, limits, params)
    errors = sorted((d for d in diagnostics if d.severity == "error"), key=_place)
    if errors:
        raise PatternError(errors, source)
    assert file is not None
    _check_params(file, params)
    warnings = sorted((d for d in diagnostics if d.severity != "error"), key=_place)
    return Program(tuple(compiled), file, tuple(warnings), source=source, params=params)


def load(
    path: str | os.PathLike[str] | IO[str] | IO[bytes],
    *,
    limits: Limits | None = None,
    **params: ParamValue,
) -> Program:
    """Compile a pattern file, given its path or the open file.

    Parameters
    ----------
    path : path or file
        UTF-8 text.
    limits : Limits, optional
        Other limits than the defaults; `pattern_bytes_max` bounds the file.
    **params
        As for `compile`.

    Raises
    ------
    PatternError
        If anything is wrong with the text.
    SettingError
        If the file cannot be read, or a parameter is wrong.
    TypeError
        If an argument is of another class than it must be.

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
        read = path.read()
        what = f"pattern file {name}"
        text = decoded_pattern(read, what, limits) if isinstance(read, bytes) else read
    else:
        raise wrong_type("path", "a path or an open file", path)
    return compile(text, name=name, limits=limits, **params)


def read_pattern(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> str:
    """Return the text of a pattern file.

    Raises
    ------
    SettingError
        If it cannot be read, is no UTF-8, or is longer than `pattern_bytes_max`.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(limits.pattern_bytes_max + 1)
    except OSError as error:
        raise SettingError(f"cannot read pattern file {path}: {error.strerror}") from None
    return decoded_pattern(raw, f"pattern file {path}", limits)


def decoded_pattern(raw: bytes, name: str, limits: Limits) -> str:
    """Return the text of a pattern file, of which a byte beyond the limit is enough.

    Raises
    ------
    SettingError
        If it is no UTF-8, or longer than `pattern_bytes_max`.
    """
    if len(raw) > limits.pattern_bytes_max:
        raise SettingError(
            f"{name} is longer than {limits.pattern_bytes_max} bytes (limit pattern_bytes_max)"
        )
    # Without a byte order mark UTF-16 is UTF-8 too: the language's own characters and zeros.
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:2]:
        known = "UTF-32" if b"\0\0" in raw[:4] else "UTF-16"
        raise SettingError(
            f"{name} is {known}; save it as UTF-8 (`iconv -f {known} -t UTF-8 FILE`)"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingError(f"{name} is no UTF-8 at byte {error.start}") from None


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
    return sorted(_diagnosed(_checked_text(text), name, Limits.given(limits), {})[2], key=_place)


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
        If a guard, or `events`, is of another class than it must be.

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

    if not isinstance(events, Mapping):
        raise wrong_type("events", "a mapping of names to guards", events)

    def text(guard: str | syntax.Guard) -> str:
        if not isinstance(guard, str | syntax.Node):
            raise wrong_type("a guard", "a str or a node of ketal.model.syntax", guard)
        return guard if isinstance(guard, str) else render_guard(guard)

    lines = [f"    {clause.strip().rstrip(';')};" for clause in clauses]
    lines += [f"    event {event} = {text(guard)};" for event, guard in events.items()]
    lines += [f"    {step} = {text(guard)};" for step, guard in (steps or {}).items()]
    lines.append(f"    {'check' if find is None else f'find {find}'} automaton {{")
    lines.append(f"        initial {initial};")
    if finals is not None:
        lines.append(f"        final {', '.join(finals)};")
    lines += [f"        {source} -> {target} on {step};" for source, step, target in transitions]
    written = "\n".join([f"pattern {name} {{", *lines, "    }", "}", ""])
    program = compile(written, name=f"<built {name}>", limits=limits, **params)
    declared = [d.name for d in program.one.pattern.declarations]
    if declared != [*events, *(steps or {})]:
        raise SettingError(f"a guard of {name} holds more than a guard: declared {declared}")
    return program
