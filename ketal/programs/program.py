"""Programs: the compiled patterns of a file.

A `Program` is the patterns of a file; one pattern taken out of it is a Program of one.

The one rule: a program is never changed; what selects or recompiles patterns returns another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ketal.analysis.parameters import ParamValue
from ketal.analysis.registered_guards import registered_guards
from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.pipeline import compile_pattern
from ketal.errors import (
    Diagnostic,
    PatternText,
    SettingError,
    checked_text,
    checked_texts,
    diagnostic_place,
    near,
    wrong_type,
)
from ketal.model import syntax

if TYPE_CHECKING:
    from ketal.pictures.graphs.graph import Picture


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
        if checked_text("the name of a pattern", name) in self.names:
            return self.only((name,))
        raise KeyError(f"there is no pattern {name!r}{near(name, self.names)}")

    def only(self, names: Collection[str]) -> Program:
        """Return the program of some of the patterns, at least one, in the order of the file.

        Parameters
        ----------
        names : collection of str
            Their names; others are ignored.

        Raises
        ------
        SettingError
            If there is none of these.

        Examples
        --------
        >>> import ketal
        >>> text = 'event A = type == "a"; pattern P { check A; } pattern Q { find any A; }'
        >>> ketal.compile(text).only(["Q"]).names
        ('Q',)
        """
        names = checked_texts("names", names)
        chosen = tuple(c for c in self.compiled if c.name in names)
        if not chosen:
            raise SettingError(
                f"there is no pattern {', '.join(names)}; there are {', '.join(self)}"
            )
        return Program(
            chosen,
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
        warnings.sort(key=diagnostic_place)
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
        from ketal.pictures.graphs.graph import Picture

        return Picture.of(self.one)

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
