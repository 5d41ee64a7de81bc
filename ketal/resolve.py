"""Names and types of a pattern file, without an automaton.

Everything that can be known from the syntax is told here, all of it at once:
names that nothing declares, guards that can never be true, statements that do
not go together. Attributes have no declared kind, so a comparison is judged
only where both kinds are known: number, string or boolean (DESIGN 3, Unknown).

The one rule: a finding is returned, never raised, and one fault is told once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from ketal import pattern as ast
from ketal.errors import Diagnostic, Span
from ketal.guards import RegisteredGuard
from ketal.kinds import guard_findings
from ketal.wellformed import Finding, body_findings

_Declaration: TypeAlias = ast.EventDecl | ast.StepDecl | ast.ParamDecl


def resolve(
    file: ast.File, *, registered: Mapping[str, RegisteredGuard] | None = None
) -> list[Diagnostic]:
    """Return what is wrong with a file's names and types, in the order of the text.

    Parameters
    ----------
    file : File
        From `ketal.grammar.parse` or built in code.
    registered : mapping of str to RegisteredGuard
        The guards that patterns may call beside those of the language.

    Returns
    -------
    list of Diagnostic
        Errors and warnings with codes K1xx; empty if all is well.
    """
    shared = _Shared(file, registered or {})
    shared.check()
    for pattern in file.patterns:
        _Pattern(pattern, shared).check()
    shared.check_use()
    return sorted(shared.found, key=_place)


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.span
    return (span.line, span.column) if span else (0, 0)


def did_you_mean(name: str, known: Iterator[str] | list[str] | set[str]) -> str:
    """Return a hint that names the nearest of the known names, or an empty string."""
    meant = get_close_matches(name, sorted(known), 1, 0.6)
    return f"did you mean `{meant[0]}`?" if meant else ""


class _Findings:
    """Collects findings under a pattern's name, each once."""

    def __init__(self, found: list[Diagnostic], pattern: str = "") -> None:
        self.found = found
        self.name = pattern

    def add(self, finding: Finding) -> None:
        code, severity, message, span, hint = finding
        diagnostic = Diagnostic(code, severity, message, span, hint, self.name)
        if diagnostic not in self.found:
            self.found.append(diagnostic)

    def error(self, code: str, message: str, span: Span | None, hint: str = "") -> None:
        self.add((code, "error", message, span, hint))

    def warn(self, code: str, message: str, span: Span | None, hint: str = "") -> None:
        self.add((code, "warning", message, span, hint))

    def unreserved(self, what: str, name: str, span: Span | None) -> None:
        if name in ast.RESERVED:
            self.error(
                "K106", f"`{name}` is a word of the language and names no {what}", span,
                "choose another name",
            )  # fmt: skip

    def declared(
        self, declarations: list[_Declaration], known: Mapping[str, _Declaration]
    ) -> dict[str, _Declaration]:
        """Check the names of declarations; return them with the ones known before."""
        names = dict(known)
        for node in declarations:
            self.unreserved(_what(node), node.name, node.span)
            if node.name in names:
                first = names[node.name]
                where = f" in line {first.span.line}" if first.span else ""
                self.error(
                    "K105", f"`{node.name}` is declared twice", node.span,
                    f"it is {_article(_what(first))}{where}; events, steps and parameters "
                    "share their names",
                )  # fmt: skip
            else:
                names[node.name] = node
        return names

    def guard(
        self, node: ast.Node, names: Mapping[str, _Declaration],
        registered: Mapping[str, RegisteredGuard],
    ) -> None:  # fmt: skip
        """Check every name and every kind in a guard or a value."""
        events = {name for name, d in names.items() if isinstance(d, ast.EventDecl)}
        for part in ast.walk(node):
            match part:
                case ast.Name(name=name) if name not in events:
                    self._unknown_event(part, events, names, registered)
                case ast.Reference(step=step):
                    self._known_step(step, part, names, f"{step}.…")
                case ast.Causal(anchor=anchor) | ast.Conc(anchor=anchor):
                    if anchor not in (ast.PRIOR, ast.ALL):
                        self._known_step(anchor, part, names, "")
                case ast.ParamRef(name=name):
                    self._known_param(name, part, names)
                case ast.Registered(name=name) if name not in registered:
                    self._unknown_guard(part, names, registered)
        params = {n: d.value for n, d in names.items() if isinstance(d, ast.ParamDecl)}
        for finding in guard_findings(node, params, registered):
            self.add(finding)

    def _unknown_event(
        self, node: ast.Name, events: set[str], names: Mapping[str, _Declaration],
        registered: Mapping[str, RegisteredGuard],
    ) -> None:  # fmt: skip
        name = node.name
        if isinstance(names.get(name), ast.StepDecl):
            self.error(
                "K101", f"`{name}` is a step, and guards are made of events", node.span,
                f"compare with its event, `{name}.attribute`, or name the event that it is of",
            )  # fmt: skip
        elif isinstance(names.get(name), ast.ParamDecl):
            self.error(
                "K101", f"`{name}` is a parameter, not a guard", node.span,
                f"write `{name} == true`",
            )  # fmt: skip
        elif name in registered:
            self.error(
                "K101", f"`{name}` is a registered guard and is called", node.span,
                f"write `{name}(…)`",
            )  # fmt: skip
        else:
            hint = did_you_mean(name, events) or (
                f"declare `event {name} = …;`"
                if name[:1].isupper()
                else f"for a boolean attribute write `{name} == true`"
            )
            self.error("K101", f"there is no event `{name}`", node.span, hint)

    def _known_step(
        self, name: str, node: ast.Node, names: Mapping[str, _Declaration], text: str
    ) -> None:
        steps = {n for n, d in names.items() if not isinstance(d, ast.ParamDecl)}
        if name not in steps:
            hint = did_you_mean(name, steps)
            if text:
                hint = f"{hint} an" if hint else "an"
                hint += f" attribute is written `data.{text}`"
            elif not hint:
                hint = "an anchor is a step, `all` or `prior`"
            self.error("K102", f"there is no step `{name}`", node.span, hint)

    def _known_param(self, name: str, node: ast.Node, names: Mapping[str, _Declaration]) -> None:
        params = {n for n, d in names.items() if isinstance(d, ast.ParamDecl)}
        if name not in params:
            hint = did_you_mean(name, params) or f"declare `param {name} = …;`"
            self.error("K103", f"there is no parameter `{name}`", node.span, hint)

    def _unknown_guard(
        self, node: ast.Registered, names: Mapping[str, _Declaration],
        registered: Mapping[str, RegisteredGuard],
    ) -> None:  # fmt: skip
        name = node.name
        if name in names:
            what = _article(_what(names[name]))
            self.error(
                "K104", f"`{name}` is {what} and takes no arguments", node.span,
                f"write `{name}`" if isinstance(names[name], ast.EventDecl) else "",
            )  # fmt: skip
            return
        own = {"call", "host", "origin", "exists", "Causal", "Conc"}
        hint = did_you_mean(name, own | set(registered)) or did_you_mean(
            name[:1].upper() + name[1:], own
        )
        self.error(
            "K104", f"there is no guard `{name}`", node.span,
            hint or f'add it with `ketal.register_guard("{name}", function, version="1")`',
        )  # fmt: skip


class _Shared(_Findings):
    """The declarations of the file outside of its patterns."""

    def __init__(self, file: ast.File, registered: Mapping[str, RegisteredGuard]) -> None:
        super().__init__([])
        self.file = file
        self.registered = registered
        self.names: dict[str, _Declaration] = {}
        self.used: set[str] = set()

    def check(self) -> None:
        self.names = self.declared([*self.file.params, *self.file.events], {})
        for event in self.file.events:
            self.guard(event.guard, self.names, self.registered)
            _check_event(self, event)
            self.used |= _names(event.guard)
        _check_cycles(self, self.file.events, self.names)
        seen: dict[str, ast.Pattern] = {}
        for pattern in self.file.patterns:
            self.unreserved("pattern", pattern.name, pattern.span)
            first = seen.setdefault(pattern.name, pattern)
            if first is not pattern:
                where = f"the first is in line {first.span.line}" if first.span else ""
                self.error("K105", f"pattern `{pattern.name}` stands twice", pattern.span, where)

    def check_use(self) -> None:
        declarations: list[_Declaration] = [*self.file.params, *self.file.events]
        for node in declarations:
            if node.name not in self.used:
                code = "K108" if isinstance(node, ast.EventDecl) else "K109"
                self.warn(
                    code, f"the shared {_what(node)} `{node.name}` is never used", node.span,
                    "no pattern names it",
                )  # fmt: skip


class _Pattern(_Findings):
    """One pattern, with the file's shared declarations around it."""

    def __init__(self, pattern: ast.Pattern, shared: _Shared) -> None:
        super().__init__(shared.found, pattern.name)
        self.pattern = pattern
        self.shared = shared
        self.names: dict[str, _Declaration] = {}

    def check(self) -> None:
        pattern = self.pattern
        self.names = self.declared([*pattern.params, *pattern.declarations], self.shared.names)
        for declaration in pattern.declarations:
            self.guard(declaration.guard, self.names, self.shared.registered)
            if isinstance(declaration, ast.EventDecl):
                _check_event(self, declaration)
        _check_cycles(self, pattern.events, self.names)
        self._check_body()
        self._check_alphabet()
        self._check_localhost()
        self._check_order()
        self._check_statements()
        self._check_returns()
        self._check_use()

    def _place(self, word: str) -> Span | None:
        return self.pattern.places.get(word, self.pattern.span)

    # --- the body ---

    def _check_body(self) -> None:
        pattern = self.pattern
        steps = {n for n, d in self.names.items() if not isinstance(d, ast.ParamDecl)}
        for node in ast.walk(pattern.body):
            if isinstance(node, ast.Absent):
                self.guard(node.guard, self.names, self.shared.registered)
            if isinstance(node, ast.Step | ast.Edge):
                name = node.name if isinstance(node, ast.Step) else node.step
                if name not in steps:
                    hint = did_you_mean(name, steps) or f"declare `{name} = …;`"
                    self.error("K102", f"there is no step `{name}`", node.span, hint)
        if isinstance(pattern.body, ast.AutomatonBody):
            edges = pattern.body.edges
            for state in dict.fromkeys(s for e in edges for s in (e.source, e.target)):
                self.unreserved("state", state, pattern.body.span)
        for finding in body_findings(pattern.kind, pattern.body):
            self.add(finding)

    def _in_body(self) -> set[str]:
        nodes = ast.walk(self.pattern.body)
        return {n.name for n in nodes if isinstance(n, ast.Step)} | {
            n.step for n in ast.walk(self.pattern.body) if isinstance(n, ast.Edge)
        }

    def _mentioned(self) -> set[str]:
        """Return every name that the pattern mentions."""
        parts: list[ast.Node] = [d.guard for d in self.pattern.declarations]
        parts += [n for n in (self.pattern.returns, self.pattern.order) if n is not None]
        parts += [n for n in (self.pattern.window, self.pattern.body) if n is not None]
        return self._in_body().union(*(_names(part) for part in parts))

    def _check_use(self) -> None:
        mentioned = self._mentioned()
        self.shared.used |= mentioned
        body = self._in_body()
        for declaration in self.pattern.declarations:
            name = declaration.name
            if isinstance(declaration, ast.StepDecl) and name not in body:
                self.warn(
                    "K107", f"the step `{name}` is never used", declaration.span,
                    f"name it in the `{self.pattern.kind}`, or remove it",
                )  # fmt: skip
            elif (
                isinstance(declaration, ast.EventDecl)
                and name not in mentioned
                and not self._alphabet_matters()
            ):
                self.warn(
                    "K108", f"the event `{name}` is never used", declaration.span,
                    "name it in a step or in the body, or remove it",
                )  # fmt: skip
        for param in self.pattern.params:
            if param.name not in mentioned:
                self.warn("K109", f"the parameter `{param.name}` is never used", param.span)

    def _alphabet_matters(self) -> bool:
        """Return whether an event of the alphabet that no step takes has an effect.

        A check is violated by it, `find strict` ends at it, and a window of
        events counts it.
        """
        pattern = self.pattern
        counted = pattern.window is not None and isinstance(pattern.window.length, int)
        return pattern.kind == "check" or pattern.strategy == "strict" or counted

    def _check_alphabet(self) -> None:
        events = {n for n, d in self.names.items() if isinstance(d, ast.EventDecl)}
        if not self.pattern.events and not self._mentioned() & events:
            self.error(
                "K125", f"the pattern `{self.pattern.name}` names no event",
                self.pattern.span,
                "declare what it looks at: `event E = type == \"…\";`, or `event E = true;`",
            )  # fmt: skip

    def _check_localhost(self) -> None:
        if self.pattern.deployment is not None:
            return
        todo = [d.guard for d in self.pattern.declarations]
        todo += [n.guard for n in ast.walk(self.pattern.body) if isinstance(n, ast.Absent)]
        named = self._in_body().union(*(_names(guard) for guard in todo))
        seen: set[str] = set()
        while named - seen:
            name = min(named - seen)
            seen.add(name)
            declaration = self.names.get(name)
            if isinstance(declaration, ast.EventDecl):
                todo.append(declaration.guard)
                named |= _names(declaration.guard)
        for node in (n for guard in todo for n in ast.walk(guard)):
            if isinstance(node, ast.Localhost):
                self.error(
                    "K111", "`localhost` has no meaning without a copy for each node",
                    node.span, "add `at every node;` or `at host(\"…\");`",
                )  # fmt: skip

    # --- statements ---

    def _duration(self, what: str, length: object) -> None:
        """Check that a length is a duration, or a parameter that is one."""
        if not isinstance(length, ast.ParamRef):
            return
        known = self.names.get(length.name)
        if not isinstance(known, ast.ParamDecl):
            self._known_param(length.name, length, self.names)
        elif not isinstance(known.value, ast.Duration):
            self.error(
                "K120", f"{what} is a duration, and the parameter `{length.name}` is none",
                length.span, f"write `param {length.name} = 10 s;`",
            )  # fmt: skip

    def _check_order(self) -> None:
        pattern, order = self.pattern, self.pattern.order
        for name in ("frontier", "gap", "idle"):
            self._duration(f"`{name}`", getattr(order, name))
        options = [n for n in ("total", "nodes", "frontier", "gap", "idle", "overflow")
                   if getattr(order, n) not in (None, False)]  # fmt: skip
        if order.kind == "arrival" and options:
            self.error(
                "K128", f"`{options[0]}` is an option of CausalOrder", order.span,
                f"write `order CausalOrder({options[0]} …)`, or remove it",
            )  # fmt: skip
        if order.total and order.frontier is not None:
            self.error(
                "K128", "`total` and `frontier` exclude each other", order.span,
                "`frontier` releases in canonical order already",
            )  # fmt: skip
        if order.nodes is not None and not order.total and order.kind == "causal":
            self.warn(
                "K130", "`nodes` changes nothing without `total`", order.span,
                "write `CausalOrder(total, nodes = […])`",
            )  # fmt: skip
        twice = _twice(order.nodes or ())
        if twice:
            self.error("K105", f"the node `{twice}` stands twice", order.span, "remove one")
        if pattern.kind == "find" and order.kind == "causal" and pattern.strategy is None:
            self.error(
                "K124", "a find under CausalOrder needs its strategy", self._place("find"),
                "write `find any` (every combination, the same for every arrival order), "
                "`find next` or `find strict`",
            )  # fmt: skip
        self._check_topology()

    def _check_topology(self) -> None:
        topology, order = self.pattern.topology, self.pattern.order
        if topology is None:
            return
        if order.kind == "arrival":
            self.error(
                "K129", "a topology has no meaning under `order arrival`", topology.span,
                "write `order CausalOrder;`",
            )  # fmt: skip
        elif order.frontier is not None:
            self.error(
                "K129", "`topology` and `frontier` exclude each other", topology.span,
                "`frontier` releases by time, a topology by what was sent",
            )  # fmt: skip
        if not topology.edges:
            self.error("K129", "the topology is empty", topology.span, "write `p -> q;`")
        seen = set()
        for edge in topology.edges:
            ends = (edge.source, edge.target)
            if edge.source == edge.target:
                self.error(
                    "K129", f"an edge leads from `{edge.source}` to itself", edge.span,
                    "a node's own events are ordered already",
                )  # fmt: skip
            elif ends in seen:
                self.error(
                    "K129", f"the edge `{ends[0]} -> {ends[1]}` stands twice", edge.span,
                    "remove one",
                )  # fmt: skip
            seen.add(ends)

    def _check_statements(self) -> None:
        pattern = self.pattern
        if pattern.kind == "check":
            self._check_of_check()
        elif pattern.on_violation is not None:
            self.error(
                "K122", "a find has no violations", self._place("on violation"),
                "`on violation` belongs to a check",
            )  # fmt: skip
        window = pattern.window
        if window is not None:
            self._duration("a window", window.length)
            length = window.length
            amount = length.amount if isinstance(length, ast.Duration) else length
            if isinstance(amount, int | float) and amount <= 0:
                self.error(
                    "K132", "a window of nothing holds no match", window.span,
                    "the events of a match lie within less than the window",
                )  # fmt: skip
        if pattern.limit is not None and pattern.limit < 1:
            self.error(
                "K127", "`limit 0` lists nothing", self._place("limit"),
                "`return count` counts the matches and lists none",
            )  # fmt: skip
        twice = _twice(tuple(_key(key) for key in pattern.partition))
        if twice:
            self.error(
                "K105", f"two keys of the partition are called `{twice}`",
                self._place("partition"), "a scope is named by the last name of each key",
            )  # fmt: skip

    def _check_of_check(self) -> None:
        pattern = self.pattern
        if pattern.strategy is not None:
            self.error(
                "K123", f"`{pattern.strategy}` is a strategy of `find`", self._place("check"),
                "write `check A B;`: every event of the alphabet is judged",
            )  # fmt: skip
        if pattern.window is not None:
            self.error(
                "K121", "`within` has no meaning in a check", pattern.window.span,
                "a window bounds the matches of a find",
            )  # fmt: skip
        if pattern.returns is not None:
            self.error(
                "K131", "a check reports no matches, so `return` has no meaning",
                pattern.returns.span, "a violation names its event and what was expected",
            )  # fmt: skip
        if pattern.limit is not None:
            self.error(
                "K131", "a check reports no matches, so `limit` has no meaning",
                self._place("limit"), "`on violation halt` ends a run at its first violation",
            )  # fmt: skip

    def _check_returns(self) -> None:
        returns = self.pattern.returns
        if returns is None:
            return
        body = self._in_body()
        steps = sorted(body & set(self.names))
        for item in returns.items:
            self.guard(item.value, self.names, self.shared.registered)
            for node in _outside_references(item.value):
                if isinstance(node, ast.Attribute | ast.Field):
                    name = node.name if isinstance(node, ast.Field) else node.path[-1]
                    step = steps[0] if steps else "Step"
                    self.error(
                        "K126", f"`{name}` of which event?", node.span,
                        f"a match has several events: write `{step}.{name}`",
                    )  # fmt: skip
                elif (
                    isinstance(node, ast.Reference)
                    and node.step in self.names
                    and node.step not in body
                ):
                    self.error(
                        "K117", f"no match has an event for `{node.step}`", node.span,
                        f"`{node.step}` does not stand in the body",
                    )  # fmt: skip
        twice = _twice(tuple(item.name for item in returns.items))
        if twice:
            self.error("K105", f"`return` gives `{twice}` twice", returns.span, "rename one")


# --- events ---


def _check_event(findings: _Findings, event: ast.EventDecl) -> None:
    """Tell what an event cannot look at: it is a class of single events and knows no run."""
    for node in ast.walk(event.guard):
        if isinstance(node, ast.Causal | ast.Conc):
            findings.error(
                "K110", f"`{type(node).__name__}` cannot stand in the event `{event.name}`",
                node.span,
                f"an event is judged alone; declare a step, `A = {type(node).__name__}"
                f"({event.name})`",
            )  # fmt: skip
        elif isinstance(node, ast.Reference):
            findings.error(
                "K110", f"the event `{event.name}` cannot look at the step `{node.step}`",
                node.span, "an event is judged alone; compare in a step's guard",
            )  # fmt: skip


def _check_cycles(
    findings: _Findings, events: tuple[ast.EventDecl, ...], names: Mapping[str, _Declaration]
) -> None:
    """Tell the events that are defined by way of themselves."""
    for event in events:
        todo, seen = [*_names(event.guard)], set[str]()
        while todo:
            name = todo.pop()
            known = names.get(name)
            if name not in seen and isinstance(known, ast.EventDecl):
                seen.add(name)
                todo.extend(_names(known.guard))
        if event.name in seen:
            findings.error(
                "K116", f"the event `{event.name}` is defined by itself", event.span,
                "say what its events are like: a type, an attribute",
            )  # fmt: skip


# --- small things ---


def _names(node: ast.Node) -> set[str]:
    """Return the declared things that a guard, a value or a body may mention."""
    found = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(name=name) | ast.ParamRef(name=name):
                found.add(name)
            case ast.Reference(step=name) | ast.Causal(anchor=name) | ast.Conc(anchor=name):
                found.add(name)
    return found


def _outside_references(node: ast.Node) -> Iterator[ast.Node]:
    """Yield a value and what is in it, except for what references look at."""
    yield node
    match node:
        case ast.ListOf(items=items):
            for item in items:
                yield from _outside_references(item)
        case ast.Arithmetic(left=left, right=right):
            yield from _outside_references(left)
            yield from _outside_references(right)
        case ast.Negative(operand=operand):
            yield from _outside_references(operand)


def _what(node: _Declaration) -> str:
    names = {ast.EventDecl: "event", ast.StepDecl: "step", ast.ParamDecl: "parameter"}
    return names[type(node)]


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _key(key: ast.Attribute | ast.Field) -> str:
    return key.name if isinstance(key, ast.Field) else key.path[-1]


def _twice(names: tuple[str, ...]) -> str | None:
    return next((name for i, name in enumerate(names) if name in names[:i]), None)
