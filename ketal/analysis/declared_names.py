"""The names that declarations bring into scope, and the checks of their uses.

The one rule: a name is checked against the declarations in scope where it is used, and each fault
is reported once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from ketal.analysis.bodies import Finding
from ketal.analysis.registered_guards import RegisteredGuard
from ketal.analysis.statements import did_you_mean, unknown_param
from ketal.analysis.value_kinds import guard_findings
from ketal.errors import Diagnostic, Span
from ketal.model import syntax as ast
from ketal.model.guard_functions import FUNCTIONS, GUARD_WORDS
from ketal.model.language_words import ARGUMENTS, RESERVED
from ketal.model.syntax_walks import walk

Declaration: TypeAlias = ast.EventDecl | ast.StepDecl | ast.ParamDecl


class NameFindings:
    """Collects the findings about the names in one scope, each once."""

    def __init__(
        self,
        diagnostics: dict[Diagnostic, None],
        registered: Mapping[str, RegisteredGuard],
        pattern: str = "",
    ) -> None:
        self.diagnostics = diagnostics
        self.registered = registered
        self.name = pattern
        # Each has a map of its own declarations, then the maps of the scope around it: a pattern
        # does not copy the declarations of its file.
        self.names: ChainMap[str, Declaration] = ChainMap()
        self.events: ChainMap[str, ast.Guard] = ChainMap()
        """The guards of the events in scope."""
        self.steps: ChainMap[str, Declaration] = ChainMap()
        """The names that may be used in a body: steps, and events used as steps."""
        self.params: ChainMap[str, ast.ParamDecl] = ChainMap()

    def add(self, *findings: Finding) -> None:
        """Add findings, unless they were added before."""
        for finding in findings:
            self.diagnostics[Diagnostic(*finding, self.name)] = None

    def error(self, code: str, message: str, span: Span | None, hint: str = "") -> None:
        """Add an error."""
        self.add((code, "error", message, span, hint))

    def warn(self, code: str, message: str, span: Span | None, hint: str = "") -> None:
        """Add a warning."""
        self.add((code, "warning", message, span, hint))

    def check_reserved(self, kind: str, name: str, span: Span | None) -> None:
        """Check that a name is not a reserved word of the language."""
        if name in RESERVED:
            self.error(
                "K106", f"`{name}` is a keyword and cannot name {_with_article(kind)}", span,
                "choose another name",
            )  # fmt: skip

    def enter(self, outer: NameFindings) -> None:
        """Bring the declarations of an outer scope into this one."""
        self.names, self.events = outer.names.new_child(), outer.events.new_child()
        self.steps, self.params = outer.steps.new_child(), outer.params.new_child()

    def declare(self, declarations: list[Declaration]) -> None:
        """Check the names of declarations, and add them to the scope."""
        names = self.names
        for node in declarations:
            self.check_reserved(declaration_kind(node), node.name, node.span)
            if isinstance(node, ast.ParamDecl) and node.name in ARGUMENTS:
                self.warn(
                    "K119", f"a parameter named `{node.name}` cannot be set: `ketal.compile` has "
                    "an argument of that name", node.span, "choose another name",
                )  # fmt: skip
            if node.name in names:
                first = names[node.name]
                where = f" on line {first.span.line}" if first.span else ""
                self.error(
                    "K105", f"`{node.name}` is declared twice", node.span,
                    f"it is already {_with_article(declaration_kind(first))}{where}; events, steps "
                    "and parameters share one namespace",
                )  # fmt: skip
                continue
            names[node.name] = node
            if isinstance(node, ast.ParamDecl):
                self.params[node.name] = node
                continue
            self.steps[node.name] = node
            if isinstance(node, ast.EventDecl):
                self.events[node.name] = node.guard

    def check_guard(self, node: ast.Node, data: str = "data") -> None:
        """Check all names and kinds in a guard or a value; `data` is how hints write attributes."""
        events, params, registered = self.events, self.params, self.registered
        reported: set[int] = set()
        for part in walk(node):
            if isinstance(part, ast.Causal | ast.Conc) and self._report_step_as_event(part):
                reported.add(id(part.guard))
            match part:
                case ast.Name() if id(part) in reported:
                    pass
                case ast.Name(name=name) if name not in events:
                    self._report_unknown_event(part, events)
                case ast.Reference(step=step):
                    self._check_step(step, part.span, part, data)
                case ast.Causal(anchor=anchor) | ast.Conc(anchor=anchor):
                    if anchor not in (ast.PRIOR, ast.ALL):
                        self._check_step(anchor, part.anchor_span or part.span)
                case ast.ParamRef(name=name) if name not in params:
                    self.add(unknown_param(part, params))
                case ast.Function(name=name) if name not in registered and name not in FUNCTIONS:
                    self._report_unknown_guard(part)
        self.add(*guard_findings(node, params, registered))

    def check_event(self, event: ast.EventDecl) -> None:
        """Check an event's guard: names, kinds, and that it depends on the event alone."""
        self.check_guard(event.guard)
        for node in walk(event.guard):
            if isinstance(node, ast.Causal | ast.Conc):
                operator = type(node).__name__
                step = f"{'After' if operator == 'Causal' else 'Beside'}{event.name}"
                while step in self.names:
                    step += "1"
                self.error(
                    "K110", f"`{operator}` is not allowed in the event `{event.name}`", node.span,
                    f"an event's guard sees only that event: remove `{operator}` and declare a "
                    f"step, `{step} = {operator}({event.name});`",
                )  # fmt: skip
            elif isinstance(node, ast.Reference):
                self.error(
                    "K110", f"the event `{event.name}` cannot refer to the step `{node.step}`",
                    node.span,
                    "an event's guard sees only that event: compare in the guard of a step",
                )  # fmt: skip

    def check_cycles(self, events: Collection[ast.EventDecl]) -> None:
        """Report events that are defined in terms of themselves."""
        names = set().union(*(names_in(event.guard) for event in events))
        try:
            TopologicalSorter(event_dependencies(names, self.events)).prepare()
        except CycleError:
            pass
        else:
            return
        for event in events:
            if event.name in event_dependencies(names_in(event.guard), self.events):
                self.error(
                    "K116", f"the event `{event.name}` is defined in terms of itself", event.span,
                    "define it by the type or the attributes of its events",
                )  # fmt: skip

    def _report_step_as_event(self, node: ast.Causal | ast.Conc) -> bool:
        """Report a `Causal(A)` or `Conc(A)` with a step for the event; return whether it is one."""
        names = self.names
        inner = node.guard
        if not isinstance(inner, ast.Name) or node.anchor != ast.PRIOR:
            return False
        if not isinstance(names.get(inner.name), ast.StepDecl):
            return False
        operator, event = type(node).__name__, self._event_behind_step(inner.name)
        written = f"`{operator}({event}, {inner.name})`: the event, then its anchor"
        if any(part is node for part in walk(names[inner.name])):
            written = f"`{operator}({event})`: the default anchor is the event taken before"
        self.error(
            "K101",
            f"`{inner.name}` is a step; the first argument of `{operator}` must be an event",
            inner.span, f"write {written}",
        )  # fmt: skip
        return True

    def _report_unknown_event(self, node: ast.Name, events: Collection[str]) -> None:
        name, names = node.name, self.names
        if isinstance(names.get(name), ast.StepDecl):
            self.error(
                "K101", f"`{name}` is a step; a guard can only name events", node.span,
                self._guard_instead(name),
            )  # fmt: skip
        elif isinstance(names.get(name), ast.ParamDecl):
            self.error(
                "K101", f"`{name}` is a parameter, not a guard", node.span,
                self._guard_instead(name),
            )  # fmt: skip
        elif name in self.registered:
            self.error(
                "K101", f"`{name}` is a registered guard and must be called", node.span,
                f"write `{name}(…)`",
            )  # fmt: skip
        else:
            hint = did_you_mean(name, events) or (
                f"declare `event {name} = …;`"
                if name[:1].isupper()
                else f"write `{name} == true` for a boolean attribute"
            )
            self.error("K101", f"unknown event `{name}`", node.span, hint)

    def _guard_instead(self, name: str) -> str:
        """Return a hint that says what to write in a guard in place of a declared name."""
        match self.names[name]:
            case ast.EventDecl():
                return f"write `{name}`"
            case ast.ParamDecl():
                return f"write `{name} == true`"
        return (
            f"write `{self._event_behind_step(name)}`, the event of this step, or "
            f"`{name}.attribute` for a value of its event"
        )

    def _event_behind_step(self, step: str) -> str:
        """Return the event that a step is defined by, or a placeholder for its name."""
        seen: set[str] = set()
        while step not in seen:
            seen.add(step)
            declared = self.names.get(step)
            if isinstance(declared, ast.EventDecl):
                return step
            if not isinstance(declared, ast.StepDecl):
                break
            named = [n.name for n in walk(declared.guard) if isinstance(n, ast.Name)]
            step = named[0] if named else step
        return next(iter(self.events)) if len(self.events) == 1 else "Event"

    def _check_step(
        self,
        name: str,
        span: Span | None,
        reference: ast.Reference | None = None,
        data: str = "data",
    ) -> None:
        """Check the name of a step in a reference or an anchor."""
        if name in self.steps:
            return
        hint = did_you_mean(name, self.steps)
        if reference is not None:
            of = reference.of
            rest = of.name if isinstance(of, ast.Field) else ".".join(of.path)
            meant = hint.replace("`?", f".{rest}`? If not, ")
            hint = f"{meant}write `{data}.{name}.{rest}` for an attribute of that path"
        self.error(
            "K102", f"unknown step `{name}`", span,
            hint or "use a step, `all` or `prior` as the anchor",
        )  # fmt: skip

    def _report_unknown_guard(self, node: ast.Function) -> None:
        name, names = node.name, self.names
        if name in names:
            kind = _with_article(declaration_kind(names[name]))
            self.error(
                "K104", f"`{name}` is {kind} and takes no arguments", node.span,
                self._guard_instead(name),
            )  # fmt: skip
            return
        hint = did_you_mean(name, {*GUARD_WORDS, *self.registered}, 0.7)
        self.error(
            "K104", f"unknown guard `{name}`", node.span,
            hint or "only a Python program can add it, with "
            f'`ketal.register_guard("{name}", function, version="1")`; '
            "the language has no functions",
        )  # fmt: skip


def names_in(node: ast.Node) -> set[str]:
    """Return the names of declarations that a guard, a value or a body mentions."""
    names = set()
    for part in walk(node):
        match part:
            case ast.Name(name=name) | ast.ParamRef(name=name):
                names.add(name)
            case ast.Reference(step=name) | ast.Causal(anchor=name) | ast.Conc(anchor=name):
                names.add(name)
    return names


def event_dependencies(
    names: Iterable[str], guards: Mapping[str, ast.Guard]
) -> dict[str, set[str]]:
    """Return the named events, and those they depend on, each with the events that it names.

    `guards` has the guard of each event; names of others are ignored.
    """
    behind: dict[str, set[str]] = {}
    todo = [*names]
    while todo:
        name = todo.pop()
        if name in guards and name not in behind:
            # Only the guards reached are walked: a file may have many more.
            behind[name] = names_in(guards[name]) & guards.keys()
            todo += behind[name]
    return behind


def declaration_kind(node: Declaration) -> str:
    """Return the kind of a declaration: event, step or parameter."""
    names = {ast.EventDecl: "event", ast.StepDecl: "step", ast.ParamDecl: "parameter"}
    return names[type(node)]


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
