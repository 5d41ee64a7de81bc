"""Name resolution: names and kinds of values of a pattern file, without an automaton.

All findings that follow from the syntax are reported together: undeclared names, guards that can
never be true, statements that exclude each other. Attributes have no declared kind, so a comparison
is checked only if both kinds are known: number, string or boolean.

The one rule: a finding is returned, never raised, and each fault is reported once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from ketal.analysis.bodies import body_findings, required_steps
from ketal.analysis.declared_names import (
    Declaration,
    NameFindings,
    declaration_kind,
    event_dependencies,
    names_in,
)
from ketal.analysis.registered_guards import RegisteredGuard
from ketal.analysis.statements import did_you_mean, first_repeated, statement_findings
from ketal.errors import Diagnostic, diagnostic_place
from ketal.model import syntax as ast
from ketal.model.guard_functions import GUARD_WORDS
from ketal.model.language_words import RESERVED, STATEMENTS
from ketal.model.syntax_walks import children, steps_of, walk

_SEQUENCE = "`A B` for A, then B"
_CONNECTIVES = {
    "and": f"{_SEQUENCE}, `{{A & B}}` for both in either order",
    "or": "`A | B` for A or B",
    "then": _SEQUENCE,
    "followedby": _SEQUENCE,
    "followedbyany": f"{_SEQUENCE}; with `find any`, each later B makes a match",
}
"""Word between the steps of another language, in lower case → what to write in a body."""


def resolve(
    file: ast.File, *, registered: Mapping[str, RegisteredGuard] | None = None
) -> list[Diagnostic]:
    """Return the errors and warnings K1xx about a pattern file, in the order of the text.

    `registered` are the guards that patterns may call in addition to those of the language.
    """
    shared = _Shared(file, registered or {})
    shared.check()
    for pattern in file.patterns:
        _PatternNames(pattern, shared).check()
    shared.check_use()
    return sorted(shared.diagnostics, key=diagnostic_place)


class _Shared(NameFindings):
    """Checks the shared declarations of a file, outside its patterns."""

    def __init__(self, file: ast.File, registered: Mapping[str, RegisteredGuard]) -> None:
        super().__init__({}, registered)
        self.file = file
        self.used: set[str] = set()

    def check(self) -> None:
        self.declare([*self.file.params, *self.file.events])
        for event in self.file.events:
            self.check_event(event)
            self.used |= names_in(event.guard)
        self.check_cycles(self.file.events)
        seen: dict[str, ast.Pattern] = {}
        for pattern in self.file.patterns:
            self.check_reserved("pattern", pattern.name, pattern.span)
            first = seen.setdefault(pattern.name, pattern)
            if first is not pattern:
                where = f"the first is on line {first.span.line}" if first.span else ""
                self.error(
                    "K105", f"pattern `{pattern.name}` is declared twice", pattern.span, where
                )

    def check_use(self) -> None:
        declarations: list[Declaration] = [*self.file.params, *self.file.events]
        for node in declarations:
            if node.name not in self.used:
                code = "K108" if isinstance(node, ast.EventDecl) else "K109"
                self.warn(
                    code, f"the shared {declaration_kind(node)} `{node.name}` is never used",
                    node.span, "use it in a pattern, or remove it",
                )  # fmt: skip


class _PatternNames(NameFindings):
    """Checks one pattern, in the scope of the file's shared declarations."""

    def __init__(self, pattern: ast.Pattern, shared: _Shared) -> None:
        super().__init__(shared.diagnostics, shared.registered, pattern.name)
        self.pattern = pattern
        self.shared = shared

    def check(self) -> None:
        pattern = self.pattern
        self.enter(self.shared)
        self.declare([*pattern.params, *pattern.declarations])
        for declaration in pattern.declarations:
            if isinstance(declaration, ast.EventDecl):
                self.check_event(declaration)
            else:
                self.check_guard(declaration.guard)
        self.check_cycles(pattern.events)
        self._check_body()
        self._check_alphabet()
        self._check_localhost()
        self.add(*statement_findings(self.pattern, self.params))
        self._check_returns()
        self._check_use()

    # --- the body ---

    def _check_body(self) -> None:
        pattern = self.pattern
        for node in walk(pattern.body):
            if isinstance(node, ast.Absent):
                self._check_absent(node)
            if isinstance(node, ast.Step | ast.Edge):
                name = node.name if isinstance(node, ast.Step) else node.step
                if name in self.steps:
                    continue
                if isinstance(node, ast.Step) and name in STATEMENTS:
                    self.error(
                        "K102", f"unknown step `{name}`", node.span,
                        f"is a `;` missing before `{name}`? End the body with `;`",
                    )  # fmt: skip
                    break  # the names after it are no steps either
                hint = (
                    did_you_mean(name, self.steps)
                    or self._strategy_hint(node)
                    or self._unused_step_hint(name)
                )
                self.error("K102", f"unknown step `{name}`", node.span, hint)
        if isinstance(pattern.body, ast.AutomatonBody):
            edges = pattern.body.edges
            for state in dict.fromkeys(s for e in edges for s in (e.source, e.target)):
                self.check_reserved("state", state, pattern.body.span)
        self.add(*body_findings(pattern.kind, pattern.body))

    def _strategy_hint(self, node: ast.Node) -> str:
        """Return a hint if a word of the language is in the place of the strategy, else nothing."""
        pattern = self.pattern
        if pattern.kind != "find" or pattern.strategy is not None:
            return ""
        first = next(step for step in walk(pattern.body) if isinstance(step, ast.Step | ast.Edge))
        if node is not first or not isinstance(node, ast.Step) or node.name not in RESERVED:
            return ""
        return "use the strategy `strict`, `next` or `any`; `find any` finds all matches"

    def _unused_step_hint(self, name: str) -> str:
        """Return a hint for a name without a similar step, such as the only unused step."""
        if name in GUARD_WORDS:
            return (
                "a guard is not allowed in a body: "
                f"declare a step, `A = {name}(…);`, and use its name here"
            )
        if name in RESERVED:
            return f"`{name}` is a keyword: remove it"
        if (form := _CONNECTIVES.get(name.lower())) is not None:
            return f"write {form}"
        declare = f"declare `{name} = …;`"
        mentioned = self._mentioned
        unused = [
            step.name
            for step in self.pattern.declarations
            if isinstance(step, ast.StepDecl) and step.name not in mentioned
        ]
        if len(unused) != 1:
            return declare
        return f"did you mean `{unused[0]}`, which is never used? If not, {declare}"

    def _check_absent(self, node: ast.Absent) -> None:
        """Check the guard of a `not`, which cannot be the name of a step."""
        guard = node.guard
        declared = self.names.get(guard.name) if isinstance(guard, ast.Name) else None
        if not isinstance(declared, ast.StepDecl):
            self.check_guard(guard)
            return
        event = declared.guard
        self.error(
            "K101", f"`{declared.name}` is a step; `not` requires an event or a guard", guard.span,
            f"write `not {event.name}`"
            if isinstance(event, ast.Name)
            else f"write the guard of `{declared.name}` itself, in parentheses: `not (…)`",
        )  # fmt: skip

    @functools.cached_property
    def _mentioned(self) -> set[str]:
        """All names that the pattern mentions."""
        return steps_of(self.pattern.body) | names_in(self.pattern)

    def _check_use(self) -> None:
        mentioned = self._mentioned
        self.shared.used |= mentioned
        body = steps_of(self.pattern.body)
        for declaration in self.pattern.declarations:
            name = declaration.name
            if isinstance(declaration, ast.StepDecl) and name not in body:
                self.warn(
                    "K107", f"the step `{name}` is never used", declaration.span,
                    f"use it in the `{self.pattern.kind}`"
                    + (", or remove it" if name not in mentioned else ""),
                )  # fmt: skip
            elif (
                isinstance(declaration, ast.EventDecl)
                and name not in mentioned
                and not self._alphabet_matters()
            ):
                self.warn(
                    "K108", f"the event `{name}` is never used", declaration.span,
                    "use it in a step or in the body, or remove it",
                )  # fmt: skip
        for param in self.pattern.params:
            if param.name not in mentioned:
                self.warn(
                    "K109", f"the parameter `{param.name}` is never used", param.span,
                    "use it in a guard or a statement, or remove it",
                )  # fmt: skip

    def _alphabet_matters(self) -> bool:
        """Return whether events of the alphabet matter even if no step can accept them.

        They violate a check, end the runs of a `find strict`, and are counted by a window of
        events.
        """
        pattern = self.pattern
        counted = pattern.window is not None and isinstance(pattern.window.length, int)
        return pattern.kind == "check" or pattern.strategy == "strict" or counted

    def _check_alphabet(self) -> None:
        if not self.pattern.events and not any(name in self.events for name in self._mentioned):
            self.error(
                "K125", f"the pattern `{self.pattern.name}` refers to no event",
                self.pattern.span,
                "declare its events: `event E = type == \"…\";`, or `event E = true;` for all",
            )  # fmt: skip

    def _check_localhost(self) -> None:
        if self.pattern.deployment is not None:
            return
        events = event_dependencies(self._mentioned, self.events)
        guards = (self.events[name] for name in events)
        for node in (n for part in (self.pattern, *guards) for n in walk(part)):
            if isinstance(node, ast.Localhost):
                self.error(
                    "K111", "`localhost` requires a copy of the pattern for each node",
                    node.span, "add `at every node;` or `at host(\"…\");`",
                )  # fmt: skip

    def _check_returns(self) -> None:
        returns = self.pattern.returns
        if returns is None:
            return
        body = steps_of(self.pattern.body)
        always = sorted(name for name in required_steps(self.pattern.body) if name in self.names)
        for item in returns.items:
            self.check_guard(item.value, "Step.data")
            for node in _parts_outside_references(item.value):
                if isinstance(node, ast.Attribute | ast.Field):
                    name = node.last_name
                    self.error(
                        "K126", f"`{name}` does not name its step", node.span,
                        f"write `{always[0]}.{name}`: a match can have several events"
                        if always
                        else "write a pattern for each step: none has an event in every match",
                    )  # fmt: skip
                elif (
                    isinstance(node, ast.Reference)
                    and node.step in self.names
                    and node.step not in body
                ):
                    self.error(
                        "K117", f"no match has an event for `{node.step}`", node.span,
                        f"add `{node.step}` to the body, or return a value of another step",
                    )  # fmt: skip
        repeated = first_repeated(tuple(item.name for item in returns.items))
        if repeated:
            self.error(
                "K105", f"`return` has two values named `{repeated}`", returns.span, "rename one"
            )


def _parts_outside_references(node: ast.Node) -> Iterator[ast.Node]:
    """Yield a value and its parts, except for the parts of references."""
    yield node
    if not isinstance(node, ast.Reference):
        for child in children(node):
            yield from _parts_outside_references(child)
