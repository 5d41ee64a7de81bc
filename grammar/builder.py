"""The conversion of lark's tree to the nodes of `ketal.model.syntax`.

The grammar accepts more than the language where the parser's own message would not help: a guard
and a value share one rule, windows and options are expressions, words such as `halt` are names. The
builder reports what the language does not allow, with place and hint, and all such faults of a file
at once.

The one rule: a tree that the builder accepts is written back by the printer with the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from lark import Token

from ketal.errors import Diagnostic, PatternError, Span, diagnostic_place, nearest
from ketal.grammar.bare_names import DeclaredNames
from ketal.grammar.body_trees import Bodies
from ketal.grammar.dotted_names import PLACEHOLDER
from ketal.grammar.expressions import Expressions
from ketal.grammar.parse_tree import (
    ParseTree,
    bare_word,
    report_unknown_word,
    span_of,
    subtrees,
)
from ketal.grammar.reader import Reading
from ketal.model import syntax as ast
from ketal.model.limits import Limits

_NO_NAMES = DeclaredNames()
_STRATEGIES = ("strict", "next", "any")
_OVERFLOW = {"reject": "refuses the arriving event", "lost": "gives up the oldest hole"}
"""Value of the option `overflow` → what a full hold-back queue does."""


def build(reading: Reading, limits: Limits) -> ast.File:
    """Return the syntax of a file from its tree; a PatternError with all faults of the file."""
    builder = Builder(limits)
    try:
        file = builder.file(reading.tree)
    except PatternError as error:
        # An exceeded limit ends building; earlier faults are reported together with it.
        raise PatternError([*builder.faults, *error.diagnostics], reading.source) from None
    if builder.faults:
        raise PatternError(sorted(builder.faults, key=diagnostic_place), reading.source)
    return file


class Builder:
    """Builds the statements of a file, and collects the faults in them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.faults: list[Diagnostic] = []

    # --- the file and its patterns ---

    def file(self, tree: ParseTree) -> ast.File:
        """Build a whole file."""
        shared = names_declared(tree)
        nodes = [
            (self.pattern if child.data == "pattern" else self.statement)(child, shared)
            for child in subtrees(tree)
        ]
        patterns = _nodes_of_class(ast.Pattern, nodes)
        if not patterns:
            self.fault(
                "K007", "the file contains no pattern", Span(1, 1, 1, 2),
                "write `pattern Name { … }`",
            )  # fmt: skip
        events = _nodes_of_class(ast.EventDecl, nodes)
        params = _nodes_of_class(ast.ParamDecl, nodes)
        return ast.File(patterns, events, params)

    def pattern(self, tree: ParseTree, shared: DeclaredNames) -> ast.Pattern:
        """Build one pattern."""
        name = cast(Token, tree.children[0])
        scope = names_declared(tree, shared)
        start = len(self.faults)
        parts: dict[str, Any] = {}
        places: dict[str, Span] = {}
        nodes = []
        for child in subtrees(tree):
            node = self.statement(child, scope)
            if isinstance(node, dict):
                self._record_statement(child, places)
                parts.update(node)
            else:
                nodes.append(node)
        if "body" not in parts:
            self.fault(
                "K007", f"pattern `{name}` has neither `check` nor `find`", span_of(name),
                "write `check A B;` or `find next A B;`",
            )  # fmt: skip
            parts.update(kind="check", body=ast.Step("?"))
        self.faults[start:] = [replace(f, pattern=str(name)) for f in self.faults[start:]]
        return ast.Pattern(
            name=str(name),
            declarations=_nodes_of_class(ast.EventDecl | ast.StepDecl, nodes),
            params=_nodes_of_class(ast.ParamDecl, nodes),
            places=places,
            span=span_of(name),
            **parts,
        )

    def _record_statement(self, tree: ParseTree, places: dict[str, Span]) -> None:
        """Record the place of a statement; a second statement of the same sort is a fault."""
        rule, span = str(tree.data), span_of(tree)
        word = _STATEMENT_WORDS.get(rule, rule)
        other = {"check": "find", "find": "check"}.get(word, word)
        if word in places:
            self.fault(
                "K006", f"`{word}` occurs twice in one pattern", span,
                f"the first is on line {places[word].line}; remove one",
            )  # fmt: skip
        elif other in places:
            self.fault(
                "K006",
                f"a pattern has only one body; there is a `{other}` on line {places[other].line}",
                span, "write a second pattern; declare shared events outside of both",
            )  # fmt: skip
        else:
            places[word] = span

    # --- statements ---

    def statement(self, tree: ParseTree, scope: DeclaredNames) -> Any:
        """Build a statement: a declaration, or the fields of the pattern that it sets."""
        make: Callable[[ParseTree, Expressions], Any] = getattr(self, f"_{tree.data}")
        return make(tree, Expressions(scope, self.limits, self.fault))

    def fault(self, code: str, message: str, span: Span | None, hint: str = "") -> None:
        """Collect an error."""
        self.faults.append(Diagnostic(code, "error", message, span, hint))

    def _event(self, tree: ParseTree, make: Expressions) -> ast.EventDecl | ast.StepDecl:
        name, guard = cast("tuple[Token, ParseTree]", tree.children)
        node_class = ast.EventDecl if tree.data == "event" else ast.StepDecl
        return node_class(str(name), make.guard(guard), span=span_of(name))

    _step = _event

    def _param(self, tree: ParseTree, make: Expressions) -> ast.ParamDecl:
        name, value = cast("tuple[Token, ParseTree]", tree.children)
        node = make.value(value, lists=True)
        if not isinstance(node, ast.Literal | ast.Duration):
            self.fault(
                "K013", "the value of a parameter must be a constant", span_of(value),
                'write a string, a number, `true`, `false` or a duration such as `10 s`',
            )  # fmt: skip
            node = ast.Literal(0)
        return ast.ParamDecl(str(name), node, span=span_of(name))

    def _order(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        """Build an order; leave faulty options out."""
        kind = cast(Token, tree.children[0])
        if kind not in ("arrival", "CausalOrder"):
            report_unknown_word(self.fault, "order", kind, ("arrival", "CausalOrder"))
        options: dict[str, Any] = {}
        for option in subtrees(tree):
            name = cast(Token, option.children[0])
            value = cast(ParseTree, option.children[1]) if len(option.children) > 1 else None
            if name in options:
                self.fault(
                    "K006", f"the option `{name}` occurs twice", span_of(option), "remove one"
                )
            options[str(name)] = self._option(name, value, make)
        options = {name: value for name, value in options.items() if name in ast.ORDER_OPTIONS}
        causal = "arrival" if kind == "arrival" else "causal"
        return {"order": ast.Order(cast(Any, causal), **options, span=span_of(tree))}

    def _option(self, name: Token, value: ParseTree | None, make: Expressions) -> Any:
        if name not in ast.ORDER_OPTIONS:
            report_unknown_word(self.fault, "CausalOrder option", name, ast.ORDER_OPTIONS)
            return None
        if name == "total":
            if value is not None:
                self.fault("K011", "`total` takes no value", span_of(value), "write `total`")
            return True
        example = {"nodes": '["a", "b"]', "overflow": "reject"}.get(name, "10 s")
        if value is None:
            self.fault(
                "K011", f"`{name}` requires a value", span_of(name), f"write `{name} = {example}`"
            )
            return None
        if name == "nodes":
            return self._nodes(make.value(value, lists=True), value)
        if name == "overflow":
            word = bare_word(value)
            if word not in _OVERFLOW:
                words = " or ".join(f"`{word}`" for word in _OVERFLOW)
                self.fault(
                    "K011", f"`overflow` must be {words}", span_of(value),
                    "if the hold-back queue is full, "
                    + ", ".join(f"`{word}` {does}" for word, does in _OVERFLOW.items()),
                )  # fmt: skip
                return None
            return word
        return make.length(value, f"`{name}` must be a duration", f"write `{name} = {example}`")

    def _nodes(self, node: ast.Value, tree: ParseTree) -> tuple[str, ...]:
        items = node.items if isinstance(node, ast.ListOf) else (None,)
        strings = tuple(
            item.value
            for item in items
            if isinstance(item, ast.Literal) and isinstance(item.value, str)
        )
        if len(strings) != len(items):
            self.fault(
                "K011",
                "`nodes` must be a list of strings",
                span_of(tree),
                'write `nodes = ["a", "b"]`',
            )
        return strings

    def _at(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        *host, seen = cast("list[Token]", tree.children)
        glob = make.literals.string(host[0]) if host else None
        node = ast.Deployment(glob, seen == "all", seen == "receiving", span=span_of(tree))
        return {"deployment": node}

    def _partition(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        keys: list[ast.Attribute | ast.Field] = []
        for child in subtrees(tree):
            name = bare_word(child)
            if name in make.scope.declared:
                self.fault(
                    "K012", f"`{name}` is the name of an event or step, not of a value",
                    span_of(child), f"write `data.{name}` for an attribute of that name",
                )  # fmt: skip
                continue
            node = make.value(child)
            if isinstance(node, ast.Attribute | ast.Field):
                keys.append(node)
            elif node is not PLACEHOLDER:
                message = "a partition key must be an attribute of the event"
                make.report_no_attribute(node, span_of(child), message)
        return {"partition": tuple(keys)}

    def _topology(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        edges = []
        for link in subtrees(tree):
            source, target, relaxed = cast("tuple[Token, Token, Token | None]", link.children)
            edges.append(
                ast.TopologyEdge(
                    make.literals.name_or_string(source),
                    make.literals.name_or_string(target),
                    relaxed is not None,
                    span=span_of(link),
                )
            )
        is_open = isinstance(tree.children[0], Token)
        return {"topology": ast.Topology(tuple(edges), is_open, span=span_of(tree))}

    def _check(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        kind = str(tree.data)
        strategy, body = cast("tuple[ParseTree | None, ParseTree]", tree.children)
        if kind == "find" and strategy is None:
            self._misspelt_strategy(body, make.scope)
        return {
            "kind": kind,
            "strategy": None if strategy is None else str(strategy.children[0]),
            "body": Bodies(make).statement_body(body),
        }

    _find = _check

    def _misspelt_strategy(self, body: ParseTree, scope: DeclaredNames) -> None:
        """Report a first step that is not declared and is similar to the name of a strategy."""
        while body.data in ("alternation", "sequence"):
            body = cast(ParseTree, body.children[0])
        word = cast(Token, body.children[0])
        if body.data != "step_name" or word in scope.declared:
            return
        if nearest(word, scope.declared | {*_STRATEGIES}) in _STRATEGIES:
            report_unknown_word(self.fault, "strategy", word, _STRATEGIES)

    def _within(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        value = cast(ParseTree, tree.children[0])
        if value.data == "duration" and str(value.children[1]) in ("events", "event"):
            count = make.literals.number(cast(Token, value.children[0]))
            if not isinstance(count, int):
                self.fault(
                    "K013", "the number of events must be an integer", span_of(value),
                    "write `within 100 events`",
                )  # fmt: skip
            return {"window": ast.Window(int(count), span=span_of(tree))}
        length = make.length(
            value, "a window must be a duration or a number of events",
            "write `within 5 s` or `within 100 events`",
        )  # fmt: skip
        return {"window": ast.Window(length or 0, span=span_of(tree))}

    def _return_count(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        return {"returns": ast.Returns((), True, span=span_of(tree))}

    def _returns(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        make.names.data = "Step.data"
        items = []
        for child in subtrees(tree):
            name, value = cast("tuple[Token, ParseTree]", child.children)
            node = make.value(value, lists=True)
            items.append(ast.ReturnItem(str(name), node, span=span_of(name)))
        return {"returns": ast.Returns(tuple(items), False, span=span_of(tree))}

    def _limit(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        value = make.value(cast(ParseTree, tree.children[0]))
        if isinstance(value, ast.Literal) and type(value.value) is int and value.value >= 0:
            return {"limit": value.value}
        self.fault("K013", "`limit` must be a positive integer", span_of(tree), "write `limit 10`")
        return {}

    def _mode(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        return self._choice("mode", "mode", tree, ("possibly", "definitely"))

    def _on_violation(self, tree: ParseTree, make: Expressions) -> dict[str, Any]:
        return self._choice("on_violation", "reaction", tree, ("halt", "resume", "skip"))

    def _choice(
        self, key: str, what: str, tree: ParseTree, choices: tuple[str, ...]
    ) -> dict[str, Any]:
        word = cast(Token, tree.children[0])
        if word not in choices:
            report_unknown_word(self.fault, what, word, choices)
        return {key: str(word)}


_STATEMENT_WORDS = {
    "returns": "return", "return_count": "return", "on_violation": "on violation",
}  # fmt: skip
"""Rule of a statement → the word that names the statement, if that is another."""


def _nodes_of_class(node_class: Any, nodes: Iterable[Any]) -> tuple[Any, ...]:
    """Return the nodes of a class."""
    return tuple(node for node in nodes if isinstance(node, node_class))


def names_declared(tree: ParseTree, shared: DeclaredNames = _NO_NAMES) -> DeclaredNames:
    """Return the names in scope inside of a file or a pattern, including those of `shared`."""

    def declared(*sorts: str) -> set[str]:
        return {str(child.children[0]) for child in subtrees(tree) if child.data in sorts}

    return DeclaredNames(
        shared.params | declared("param"), shared.declared | declared("event", "step")
    )
