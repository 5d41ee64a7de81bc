"""lark's tree to the nodes of `ketal.model.syntax`.

The grammar is wider than the language where a parser's message would not help: a guard
and a value share one rule, windows and options are expressions, words such as `halt`
are names. What does not fit is reported here, with its place and a hint, and every such
fault of a file at once.

The one rule: what the builder accepts, the printer writes back the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, cast

from lark import Token, Tree

from ketal.errors import Diagnostic, PatternError, Span
from ketal.grammar.bare_names import DeclaredNames, nearest
from ketal.grammar.body_trees import Bodies
from ketal.grammar.expressions import PLACEHOLDER, Expressions, span_of
from ketal.grammar.reader import Reading
from ketal.model import syntax as ast
from ketal.model.limits import Limits

_Tree: TypeAlias = Tree[Token]
_N = TypeVar("_N", bound=ast.Node)

_STRATEGIES = ("strict", "next", "any")


def build(reading: Reading, limits: Limits) -> ast.File:
    """Make the syntax of a file from its tree.

    Raises
    ------
    PatternError
        With every fault of the file, in the order of the text.
    """
    builder = Builder(limits)
    try:
        file = builder.file(reading.tree)
    except PatternError as error:
        # A limit ends the building; earlier faults are reported with it.
        raise PatternError([*builder.faults, *error.diagnostics], reading.source) from None
    builder.finish(reading)
    return file


class Builder:
    """Builds statements, and collects their faults."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.faults: list[Diagnostic] = []

    def finish(self, reading: Reading) -> None:
        """Raise what was collected, if anything was."""
        if self.faults:
            raise PatternError(sorted(self.faults, key=_place), reading.source)

    # --- the file and its patterns ---

    def file(self, tree: _Tree) -> ast.File:
        """Build a whole file."""
        shared = self.file_scope(tree)
        events: list[ast.EventDecl] = []
        params: list[ast.ParamDecl] = []
        patterns: list[ast.Pattern] = []
        for child in _trees(tree):
            if child.data == "pattern":
                patterns.append(self.pattern(child, shared))
                continue
            node = self.statement(child, shared)
            if isinstance(node, ast.EventDecl):
                events.append(node)
            elif isinstance(node, ast.ParamDecl):
                params.append(node)
        if not patterns:
            self.fault(
                "K007", "the file holds no pattern", Span(1, 1, 1, 2),
                "write `pattern Name { … }`",
            )  # fmt: skip
        return ast.File(tuple(patterns), tuple(events), tuple(params))

    def file_scope(self, tree: _Tree) -> DeclaredNames:
        """Return the names that the file's own declarations bring in scope."""
        return DeclaredNames(
            frozenset(_declared(tree, "param")), frozenset(_declared(tree, "event"))
        )

    def pattern_scope(self, tree: _Tree, shared: DeclaredNames) -> DeclaredNames:
        """Return the names in scope inside of a pattern."""
        return DeclaredNames(
            shared.params | _declared(tree, "param"),
            shared.declared | _declared(tree, "event", "step"),
        )

    def pattern(self, tree: _Tree, shared: DeclaredNames) -> ast.Pattern:
        """Build one pattern."""
        name = cast(Token, tree.children[0])
        scope = self.pattern_scope(tree, shared)
        start = len(self.faults)
        parts: dict[str, Any] = {}
        places: dict[str, Span] = {}
        declarations: list[ast.EventDecl | ast.StepDecl] = []
        params: list[ast.ParamDecl] = []
        for child in _trees(tree):
            node = self.statement(child, scope)
            if isinstance(node, ast.EventDecl | ast.StepDecl):
                declarations.append(node)
            elif isinstance(node, ast.ParamDecl):
                params.append(node)
            else:
                self._once(child, places)
                parts.update(node)
        if "body" not in parts:
            self.fault(
                "K007", f"pattern `{name}` has neither `check` nor `find`", span_of(name),
                "write `check A B;` or `find next A B;`",
            )  # fmt: skip
            parts.update(kind="check", body=ast.Step("?"))
        self.faults[start:] = [replace(f, pattern=str(name)) for f in self.faults[start:]]
        return ast.Pattern(
            name=str(name),
            declarations=tuple(declarations),
            params=tuple(params),
            places=places,
            span=span_of(name),
            **parts,
        )

    def _once(self, tree: _Tree, places: dict[str, Span]) -> None:
        """Record where a statement stands; a second one of its sort is a fault."""
        word = _SORTS[str(tree.data)]
        sort = "check" if word == "find" and "check" in places else word
        sort = "find" if word == "check" and "find" in places else sort
        span = span_of(tree)
        if sort not in places:
            places[word] = span
        elif sort == word:
            self.fault(
                "K006", f"`{word}` stands twice in one pattern", span,
                f"the first is in line {places[word].line}; remove one",
            )  # fmt: skip
        else:
            self.fault(
                "K006", f"a pattern has one body, and `{sort}` stands in line {places[sort].line}",
                span, "write a second pattern; shared events may stand outside of both",
            )  # fmt: skip

    # --- statements ---

    def statement(self, tree: _Tree, scope: DeclaredNames) -> Any:
        """Build a statement: a declaration, or the fields of the pattern that it sets."""
        make: Callable[[_Tree, Expressions], Any] = getattr(self, f"_{tree.data}")
        return make(tree, Expressions(scope, self.limits, self.fault))

    def fault(self, code: str, message: str, span: Span | None, hint: str = "") -> None:
        """Collect an error."""
        self.faults.append(Diagnostic(code, "error", message, span, hint))

    def _event(self, tree: _Tree, make: Expressions) -> ast.EventDecl:
        name, guard = cast("tuple[Token, _Tree]", tree.children)
        return ast.EventDecl(str(name), make.guard(guard), span=span_of(name))

    def _step(self, tree: _Tree, make: Expressions) -> ast.StepDecl:
        name, guard = cast("tuple[Token, _Tree]", tree.children)
        return ast.StepDecl(str(name), make.guard(guard), span=span_of(name))

    def _param(self, tree: _Tree, make: Expressions) -> ast.ParamDecl:
        name, value = cast("tuple[Token, _Tree]", tree.children)
        node = make.value(value, lists=True)
        if not isinstance(node, ast.Literal | ast.Duration):
            self.fault(
                "K013", "a parameter's value is a constant", span_of(value),
                'write a string, a number, `true`, `false` or a duration as `10 s`',
            )  # fmt: skip
            node = ast.Literal(0)
        return ast.ParamDecl(str(name), node, span=span_of(name))

    def _order(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        kind = cast(Token, tree.children[0])
        if kind not in ("arrival", "CausalOrder"):
            self._unknown("order", kind, ("arrival", "CausalOrder"))
        options: dict[str, Any] = {}
        for option in _trees(tree):
            name = cast(Token, option.children[0])
            value = cast(_Tree, option.children[1]) if len(option.children) > 1 else None
            if name in options:
                self.fault("K006", f"the option `{name}` stands twice", span_of(option))
            options[str(name)] = self._option(name, value, make)
        options = {name: value for name, value in options.items() if name in ast.ORDER_OPTIONS}
        causal = "arrival" if kind == "arrival" else "causal"
        return {"order": ast.Order(cast(Any, causal), **options, span=span_of(tree))}

    def _option(self, name: Token, value: _Tree | None, make: Expressions) -> Any:
        if name not in ast.ORDER_OPTIONS:
            self._unknown("option of CausalOrder", name, ast.ORDER_OPTIONS)
            return None
        if name == "total":
            if value is not None:
                self.fault("K011", "`total` takes no value", span_of(value), "write `total`")
            return True
        example = {"nodes": '["a", "b"]', "overflow": "reject"}.get(name, "10 s")
        if value is None:
            self.fault(
                "K011", f"`{name}` wants a value", span_of(name), f"write `{name} = {example}`"
            )
            return None
        if name == "nodes":
            return self._strings(name, make.value(value, lists=True), value)
        if name == "overflow":
            word = _word(value)
            if word not in ast.OVERFLOW:
                words = " or ".join(f"`{word}`" for word in ast.OVERFLOW)
                self.fault(
                    "K011", f"a full hold-back queue does {words}", span_of(value),
                    ", ".join(f"`{word}` {does}" for word, does in ast.OVERFLOW.items()),
                )  # fmt: skip
                return None
            return word
        return make.length(value, f"`{name}` is a duration", f"write `{name} = {example}`")

    def _strings(self, name: str, node: ast.Value, tree: _Tree) -> tuple[str, ...] | None:
        items = node.items if isinstance(node, ast.ListOf) else ()
        strings = tuple(
            item.value
            for item in items
            if isinstance(item, ast.Literal) and isinstance(item.value, str)
        )
        if not items or len(strings) != len(items):
            self.fault(
                "K011", f"`{name}` is a list of strings", span_of(tree),
                f'write `{name} = ["a", "b"]`',
            )  # fmt: skip
            return None
        return strings

    def _at_every(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        everything = tree.children[-1] is not None
        return {"deployment": ast.Deployment(None, everything, span=span_of(tree))}

    def _at_host(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        glob, everything = tree.children
        node = ast.Deployment(
            make.string(cast(Token, glob)), everything is not None, span=span_of(tree)
        )
        return {"deployment": node}

    def _partition(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        keys: list[ast.Attribute | ast.Field] = []
        for child in _trees(tree):
            name = _word(child)
            if name in make.scope.declared:
                self.fault(
                    "K012", f"`{name}` is declared as a guard, not as a value", span_of(child),
                    f"an attribute of that name is written `data.{name}`",
                )  # fmt: skip
                continue
            node = make.value(child)
            if isinstance(node, ast.Attribute | ast.Field):
                keys.append(node)
            elif node is not PLACEHOLDER:
                self.fault(
                    "K013", "a partition key is an attribute of the event", span_of(child),
                    "an attribute whose name is taken is written `data.name`",
                )  # fmt: skip
        return {"partition": tuple(keys)}

    def _topology(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        edges = []
        for link in _trees(tree):
            source, target, relaxed = cast("tuple[Token, Token, Token | None]", link.children)
            edges.append(
                ast.TopologyEdge(
                    make.name_or_string(source),
                    make.name_or_string(target),
                    relaxed is not None,
                    span=span_of(link),
                )
            )
        is_open = isinstance(tree.children[0], Token)
        return {"topology": ast.Topology(tuple(edges), is_open, span=span_of(tree))}

    def _check(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        return self._body("check", tree, make)

    def _find(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        return self._body("find", tree, make)

    def _body(self, kind: str, tree: _Tree, make: Expressions) -> dict[str, Any]:
        strategy, body = cast("tuple[_Tree | None, _Tree]", tree.children)
        if kind == "find" and strategy is None:
            self._misspelt_strategy(body, make.scope)
        return {
            "kind": kind,
            "strategy": None if strategy is None else str(strategy.children[0]),
            "body": self._automaton(body) if body.data == "automaton" else Bodies(make).body(body),
        }

    def _misspelt_strategy(self, body: _Tree, scope: DeclaredNames) -> None:
        """Report a first step that no name is declared for, and that is nearly a strategy."""
        while body.data in ("alternation", "sequence"):
            body = cast(_Tree, body.children[0])
        word = cast(Token, body.children[0])
        if body.data != "step_name" or word in scope.declared:
            return
        if nearest(word, scope.declared | {*_STRATEGIES}, 0.6) in _STRATEGIES:
            self._unknown("strategy", word, _STRATEGIES)

    def _automaton(self, tree: _Tree) -> ast.AutomatonBody:
        first: dict[str, Span] = {}
        initial, finals = "", None
        edges = []
        for child in _trees(tree):
            names = tuple(str(name) for name in child.children)
            if child.data == "edge":
                edges.append(ast.Edge(*names, span=span_of(child)))
                continue
            if str(child.data) in first:
                self.fault(
                    "K006", f"`{child.data}` stands twice in one automaton", span_of(child),
                    f"the first is in line {first[str(child.data)].line};"
                    + (" write `final q0, q1;`" if child.data == "final" else " remove one"),
                )  # fmt: skip
            first.setdefault(str(child.data), span_of(child))
            if child.data == "initial":
                initial = names[0]
            else:
                finals = names
        return ast.AutomatonBody(initial, finals, tuple(edges), span=span_of(tree))

    def _within(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        value = cast(_Tree, tree.children[0])
        if value.data == "duration" and str(value.children[1]) in ("events", "event"):
            count = make.number(cast(Token, value.children[0]))
            if not isinstance(count, int):
                self.fault(
                    "K013", "events are counted in whole numbers", span_of(value),
                    "write `within 100 events`",
                )  # fmt: skip
            return {"window": ast.Window(int(count), span=span_of(tree))}
        length = make.length(
            value, "a window is a duration or a number of events",
            "write `within 5 s` or `within 100 events`",
        )  # fmt: skip
        return {"window": ast.Window(length or 0, span=span_of(tree))}

    def _return_count(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        return {"returns": ast.Returns((), True, span=span_of(tree))}

    def _returns(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        items = []
        for child in _trees(tree):
            name, value = cast("tuple[Token, _Tree]", child.children)
            node = make.value(value, lists=True)
            items.append(ast.ReturnItem(str(name), node, span=span_of(name)))
        return {"returns": ast.Returns(tuple(items), False, span=span_of(tree))}

    def _limit(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        value = make.value(cast(_Tree, tree.children[0]))
        if isinstance(value, ast.Literal) and type(value.value) is int and value.value >= 0:
            return {"limit": value.value}
        self.fault("K013", "a limit is a whole number", span_of(tree), "write `limit 10`")
        return {}

    def _mode(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        return self._choice("mode", "mode", tree, ("possibly", "definitely"))

    def _on_violation(self, tree: _Tree, make: Expressions) -> dict[str, Any]:
        return self._choice("on_violation", "reaction", tree, ("halt", "resume", "skip"))

    def _choice(self, key: str, what: str, tree: _Tree, choices: tuple[str, ...]) -> dict[str, Any]:
        word = cast(Token, tree.children[0])
        if word not in choices:
            self._unknown(what, word, choices)
        return {key: str(word)}

    def _unknown(self, what: str, word: Token, choices: tuple[str, ...]) -> None:
        meant = nearest(word.lower(), {choice.lower() for choice in choices}, 0.6)
        spelt = next((choice for choice in choices if choice.lower() == meant), None)
        listed = ", ".join(f"`{choice}`" for choice in choices[:-1]) + f" or `{choices[-1]}`"
        hint = f"did you mean `{spelt}`?" if spelt else f"write {listed}"
        self.fault("K011", f"there is no {what} `{word}`", span_of(word), hint)


_SORTS: Mapping[str, str] = {
    "order": "order", "at_every": "at", "at_host": "at", "partition": "partition",
    "topology": "topology", "check": "check", "find": "find", "within": "within",
    "returns": "return", "return_count": "return", "limit": "limit", "mode": "mode",
    "on_violation": "on violation",
}  # fmt: skip
"""The statements that stand once in a pattern, and the word that names each."""


def _trees(tree: _Tree) -> list[_Tree]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _declared(tree: _Tree, *sorts: str) -> set[str]:
    return {str(child.children[0]) for child in _trees(tree) if child.data in sorts}


def _word(tree: _Tree) -> str | None:
    """Return the word, where an expression is one."""
    return str(tree.children[0]) if tree.data == "path" and len(tree.children) == 1 else None


def _place(fault: Diagnostic) -> tuple[int, int]:
    return (fault.span.line, fault.span.column) if fault.span else (0, 0)
