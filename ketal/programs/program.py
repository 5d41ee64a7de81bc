"""Programs: the compiled patterns of a file.

A `Program` has the patterns of a file; selecting one of them returns a Program with that one.

The one rule: a program is immutable; methods that select or recompile patterns return a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
    """Compiled patterns by name, in the order of their file.

    A mapping from the names of patterns to programs with that one pattern:
    `name in program`, `program[name]`, `len(program)`; iteration yields the
    names, `program.items()` names and programs. Two programs are equal only if
    they are the same object; compare `fingerprint` for equal meaning.

    Parameters
    ----------
    compiled : tuple of CompiledPattern
        At least one compiled pattern, with distinct names.
    file : File
        The syntax of the file.
    warnings : tuple of Diagnostic
        The warnings about the file, as of `lint`.
    source : PatternText or None
        The text that was compiled, if any.
    params : mapping of str to value
        The given values of `param` declarations.

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
        """The patterns, each as a program of its own."""
        return tuple(self[name] for name in self.names)

    def __getitem__(self, name: str) -> Program:
        """Return a program with one pattern.

        Raises
        ------
        KeyError
            If there is no pattern of that name; the message names a similar one.
        TypeError
            If the name is not a string.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern One { event A = type == "a"; check A*; }')
        >>> program["One"].names
        ('One',)
        >>> program["Ome"]
        Traceback (most recent call last):
        ...
        KeyError: "unknown pattern 'Ome'; did you mean One?"
        """
        if checked_text("the name of a pattern", name) in self.names:
            return self.only((name,))
        raise KeyError(f"unknown pattern {name!r}{near(name, self.names)}")

    def only(self, names: Collection[str]) -> Program:
        """Return a program with only the named patterns, in the order of the file.

        Parameters
        ----------
        names : collection of str
            The names of the patterns; unknown names are ignored.

        Raises
        ------
        SettingError
            If no pattern has any of these names.

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
            unknown = ", ".join(map(repr, names))
            noun = "pattern" if len(names) == 1 else "patterns"
            raise SettingError(f"unknown {noun} {unknown}; choose from {', '.join(self)}")
        return self._with(chosen, [w for w in self.warnings if not w.pattern or w.pattern in names])

    def _with(self, compiled: Iterable[CompiledPattern], warnings: Iterable[Diagnostic]) -> Program:
        return Program(
            tuple(compiled), self.file, tuple(warnings), source=self.source, params=self.params
        )

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.compiled)

    # Mapping compares items, which would not terminate: each item is a program with an item again.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def one(self) -> CompiledPattern:
        """The compiled pattern of a program with a single pattern.

        Raises
        ------
        SettingError
            If the program has several patterns.
        """
        if len(self.compiled) != 1:
            raise SettingError(
                f"the program has {len(self.compiled)} patterns: "
                f"{', '.join(self.names)}; choose one with program[name]"
            )
        return self.compiled[0]

    def for_undecided_clocks(self, scheme: str) -> Program:
        """Return the program recompiled for events whose clocks do not decide happened-before.

        `Causal` and `Conc` are unknown where the clocks leave the order open; a warning (K305)
        names the guards concerned.

        Parameters
        ----------
        scheme : str
            The name of the timestamping scheme, as `lamport`, for messages.

        Raises
        ------
        PatternError
            If a pattern needs an order that such clocks cannot give: of the events that a node
            learned of, or for all linear extensions.

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
                next(p for p in self.file.patterns if p.name == pattern.name),
                params=self.params,
                registered={**registered_guards(), **{g.name: g for g in pattern.registered}},
                limits=pattern.limits,
                source=self.source,
                undecided=scheme,
            )
            for pattern in self.compiled
        ]
        of_patterns = [warning for pattern in self.compiled for warning in pattern.warnings]
        warnings = [warning for warning in self.warnings if warning not in of_patterns]
        warnings += [warning for pattern in compiled for warning in pattern.warnings]
        return self._with(compiled, sorted(warnings, key=diagnostic_place))

    @property
    def name(self) -> str:
        """The name of the single pattern."""
        return self.one.name

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the single pattern: 32 hex digits."""
        return self.one.fingerprint

    @property
    def needs_order(self) -> bool:
        """Whether a pattern needs the whole log: it has `order CausalOrder` or a `mode`."""
        return any(c.causal or c.pattern.mode is not None for c in self.compiled)

    def graph(self) -> Picture:
        """Return a picture of the automaton of the single pattern.

        Notebooks display it; `to_svg`, `to_dot`, `to_mermaid` and `to_json` convert it.

        Raises
        ------
        SettingError
            If the program has several patterns.

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


def checked_program(argument: object) -> Program:
    """Return an argument; a TypeError if it is not a Program, but a file name, for instance."""
    if not isinstance(argument, Program):
        wanted = "a ketal.Program, from ketal.load(path) or ketal.compile(text)"
        raise wrong_type("program", wanted, argument)
    return argument
