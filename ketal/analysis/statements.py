"""Checks the statements of a pattern: invalid ones, and combinations that contradict each other.

The order and its options, the topology, windows, limits, keys, reactions: the checks that need no
guard.

The one rule: a finding names the statement to change or remove.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ketal.analysis.bodies import Finding
from ketal.analysis.value_kinds import Params, node_name_findings
from ketal.errors import Span, nearest
from ketal.model import syntax as ast
from ketal.model.syntax_walks import walk
from ketal.model.values import base_node

_WITHOUT_FRONTIER: Final = {
    "total": "releases events in canonical order anyway",
    "nodes": "waits for a time, not for nodes",
    "gap": "does not wait for missing events, so none is declared lost",
    "idle": "does not wait for nodes, so none is idle",
}
"""The options that have no meaning with `frontier`, each with the reason."""


def did_you_mean(name: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """Return a hint that names the nearest of the known names, or an empty string."""
    meant = nearest(name, known, cutoff, any_case=True)
    return "" if meant is None else f"did you mean `{meant}`?"


def unknown_param(node: ast.ParamRef, params: Params) -> Finding:
    """Return the finding for a parameter that is not declared."""
    hint = did_you_mean(node.name, params.keys()) or f"declare `param {node.name} = …;`"
    return "K103", "error", f"unknown parameter `{node.name}`", node.span, hint


def first_repeated(names: tuple[str, ...]) -> str | None:
    """Return the first name that is repeated; None if all are distinct."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def statement_findings(pattern: ast.Pattern, params: Params) -> Iterator[Finding]:
    """Yield the findings about a pattern's statements, except its declarations and its body."""
    yield from _order_findings(pattern, params)
    yield from _topology_findings(pattern)
    yield from _mode_findings(pattern)
    yield from _bound_findings(pattern, params)
    if pattern.deployment is not None:
        yield from node_name_findings(pattern.deployment.glob, pattern.deployment.span)
    if pattern.kind == "check":
        yield from _check_findings(pattern)
    elif pattern.on_violation is not None:
        yield (
            "K122", "error", "`on violation` is not allowed in a find",
            _span_of(pattern, "on violation"), "remove it: only a check has violations",
        )  # fmt: skip


def _span_of(pattern: ast.Pattern, word: str) -> Span | None:
    return pattern.places.get(word, pattern.span)


def _duration_findings(clause: str, length: object, params: Params) -> Iterator[Finding]:
    """Check that a length given by a parameter is a duration."""
    if not isinstance(length, ast.ParamRef):
        return
    known = params.get(length.name)
    if known is None:
        yield unknown_param(length, params)
    elif not isinstance(known.value, ast.Duration):
        yield (
            "K120", "error",
            f"{clause} must be a duration, but the parameter `{length.name}` is not",
            length.span, f"write `param {length.name} = 10 s;`",
        )  # fmt: skip


def _is_zero_length(length: object, params: Params) -> bool:
    """Return whether a length, or the declared value of its parameter, is 0."""
    if isinstance(length, ast.ParamRef) and length.name in params:
        length = params[length.name].value
    amount = length.amount if isinstance(length, ast.Duration) else length
    return isinstance(amount, int | float) and amount <= 0


def _order_findings(pattern: ast.Pattern, params: Params) -> Iterator[Finding]:
    order = pattern.order
    for name in ast.ORDER_LENGTHS:
        length = getattr(order, name)
        yield from _duration_findings(f"`{name}`", length, params)
        if _is_zero_length(length, params):
            yield (
                "K132", "error", f"`{name}` must be longer than zero",
                length.span or order.span, f"write `{name} = 10 s`",
            )  # fmt: skip
    if order.kind == "arrival" and order.given:
        yield (
            "K128", "error", f"`{order.given[0]}` is an option of CausalOrder", order.span,
            f"write `order CausalOrder({order.given[0]} …)`, or remove it",
        )  # fmt: skip
    elif order.frontier is not None:
        for name in order.given:
            if (reason := _WITHOUT_FRONTIER.get(name)) is not None:
                message = f"`{name}` cannot be combined with `frontier`, which {reason}"
                yield "K128", "error", message, order.span, f"remove `{name}` or `frontier`"
    elif order.nodes is not None and not (order.total or order.idle):
        yield (
            "K130", "warning", "`nodes` has no effect without `total` or `idle`", order.span,
            "remove it, or write `CausalOrder(total, nodes = […])`",
        )  # fmt: skip
    repeated = first_repeated(order.nodes or ())
    if repeated:
        yield "K105", "error", f"the node `{repeated}` is listed twice", order.span, "remove one"
    if pattern.kind == "find" and order.kind == "causal" and pattern.strategy is None:
        yield (
            "K124", "error", "a find under CausalOrder requires a strategy",
            _span_of(pattern, "find"),
            "write `find any` for every combination in any order of arrival; the matches of `find "
            "next` and `find strict` depend on the order in which events are offered",
        )  # fmt: skip
    receiving = pattern.deployment is not None and pattern.deployment.receiving
    barring = next((node for node in walk(pattern.body) if isinstance(node, ast.Absent)), None)
    if receiving and barring is not None and pattern.kind == "find" and order.kind == "causal":
        yield (
            "K135", "error", "`not` under CausalOrder cannot be combined with `receiving`: a node "
            "may learn of an event in between only after the match", barring.span,
            "remove `receiving`, or write `order arrival`",
        )  # fmt: skip


def _topology_findings(pattern: ast.Pattern) -> Iterator[Finding]:
    topology, order = pattern.topology, pattern.order
    if topology is None:
        return
    if order.kind == "arrival":
        yield (
            "K129", "error", "a topology requires `order CausalOrder`", topology.span,
            "write `order CausalOrder;`",
        )  # fmt: skip
    elif order.frontier is not None:
        yield (
            "K129", "error", "`topology` and `frontier` cannot be combined", topology.span,
            "remove one: `frontier` releases events by time, a topology by the messages sent",
        )  # fmt: skip
    elif order.total:
        yield (
            "K129", "error", "`topology` and `total` cannot be combined", topology.span,
            "remove one: `total` puts the events of all nodes in one order, a topology gives up "
            "a part of it",
        )  # fmt: skip
    if not topology.edges:
        yield "K129", "error", "the topology is empty", topology.span, "write `p -> q;`"
    seen = set()
    for edge in topology.edges:
        ends = (edge.source, edge.target)
        for end in ends:
            if (base := base_node(end)) != end:
                yield (
                    "K129", "error", f"`{end}` is an incarnation of a node", edge.span,
                    f"write the node, `{base}`: its incarnations are one node of a topology",
                )  # fmt: skip
        if edge.source == edge.target:
            yield (
                "K129", "error", f"an edge leads from `{edge.source}` to itself", edge.span,
                "remove it: the events of a node are already ordered",
            )  # fmt: skip
        elif ends in seen:
            yield (
                "K129", "error", f"the edge `{ends[0]} -> {ends[1]}` occurs twice", edge.span,
                "remove one",
            )  # fmt: skip
        seen.add(ends)


def _mode_findings(pattern: ast.Pattern) -> Iterator[Finding]:
    """Report options for waiting with a `mode`, which tries every order of a finite log."""
    order, topology = pattern.order, pattern.topology
    if pattern.mode is None or order.kind == "arrival":
        return
    for name in order.given:
        if name not in ("nodes", "gap"):
            yield (
                "K134", "error",
                f"`{name}` cannot be combined with `mode`, which considers every order", order.span,
                f"remove `{name}` or the mode: a mode is for a finite log, in which no event waits",
            )  # fmt: skip
    if topology is not None and topology.open:
        yield (
            "K134", "error", "`open` cannot be combined with `mode`, which considers every order",
            topology.span, "remove `open`: a closed topology states which nodes count",
        )  # fmt: skip


def _bound_findings(pattern: ast.Pattern, params: Params) -> Iterator[Finding]:
    window = pattern.window
    if window is not None:
        yield from _duration_findings("a window", window.length, params)
        if _is_zero_length(window.length, params):
            yield (
                "K132", "error", "a window of length zero contains no match", window.span,
                "write a longer window: the events of a match are less than its length apart",
            )  # fmt: skip
    if pattern.limit is not None and pattern.limit < 1:
        yield (
            "K127", "error", "`limit 0` lists no matches", _span_of(pattern, "limit"),
            "write `return count;` to count the matches without listing them",
        )  # fmt: skip
    elif pattern.limit is not None and pattern.only_counts:
        yield (
            "K133", "error",
            "`limit` cannot be combined with `return count`, which lists no matches",
            _span_of(pattern, "limit"),
            "remove one: without `return count`, the first matches are listed and all are counted",
        )  # fmt: skip
    repeated = first_repeated(tuple(key.last_name for key in pattern.partition))
    if repeated:
        yield (
            "K105", "error", f"two partition keys are named `{repeated}`",
            _span_of(pattern, "partition"), "the last part of each key names it in a scope",
        )  # fmt: skip


def _check_findings(pattern: ast.Pattern) -> Iterator[Finding]:
    if pattern.strategy is not None:
        yield (
            "K123", "error", f"`{pattern.strategy}` is a strategy of `find`, not of `check`",
            _span_of(pattern, "check"),
            "write `check A B;`: a check judges every event of the alphabet",
        )  # fmt: skip
    if pattern.window is not None:
        yield (
            "K121", "error", "`within` is not allowed in a check", pattern.window.span,
            "remove it: a window bounds the matches of a find",
        )  # fmt: skip
    if pattern.returns is not None:
        yield (
            "K131", "error", "`return` is not allowed in a check, which reports no matches",
            pattern.returns.span, "remove it: a violation names its event and what was expected",
        )  # fmt: skip
    if pattern.limit is not None:
        yield (
            "K131", "error", "`limit` is not allowed in a check, which reports no matches",
            _span_of(pattern, "limit"),
            "write `on violation halt` to end a run at its first violation",
        )  # fmt: skip
