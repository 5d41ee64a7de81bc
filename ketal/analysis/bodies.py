"""Checks bodies for mistakes that the syntax alone shows.

A body is a regular expression over steps or an automaton written out. These checks need no compiled
automaton: whether the body accepts the empty word, whether the neighbours of a `not` always have an
event, whether a state is reachable and leads to a final one. Checks that depend on guards (a step
that no event satisfies, a reference unbound on some path) are the compiler's.

The one rule: nothing here needs a declaration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from ketal.errors import Span
from ketal.model import syntax as ast
from ketal.model.graph_walks import reachable
from ketal.model.syntax_walks import walk

Finding: TypeAlias = tuple[str, str, str, Span | None, str]
"""Code, severity, message, span and hint."""


def body_findings(kind: str, body: ast.Body) -> Iterator[Finding]:
    """Yield the findings about the body of a `check` or a `find`."""
    if isinstance(body, ast.AutomatonBody):
        yield from _automaton_findings(kind, body)
        return
    # A lone `not N` is reported below.
    lone = isinstance(body, ast.Sequence) and len(body.items) == 1
    if kind == "find" and nullable(body) and not lone:
        step = next((n.name for n in walk(body) if isinstance(n, ast.Step)), "A")
        yield (
            "K141", "error", "the body of this find accepts the empty word", body.span,
            f"a match has at least one event: write `{step}+` instead of `{step}*`, `{step}` "
            f"instead of `{step}?`",
        )  # fmt: skip
    for node in walk(body):
        if isinstance(node, ast.Repeat):
            yield from _repeat_findings(node)
        elif isinstance(node, ast.Sequence):
            yield from _not_findings(kind, node)


def nullable(body: ast.Body | ast.Absent) -> bool:
    """Return whether a body accepts the empty word."""
    match body:
        case ast.Step():
            return False
        case ast.Repeat(item=item, least=least):
            return least == 0 or nullable(item)
        case ast.Alternation(items=items):
            return any(nullable(item) for item in items)
        case ast.Sequence(items=parts) | ast.Together(items=parts):
            return all(nullable(item) for item in parts)
        case ast.AutomatonBody(initial=initial, finals=finals):
            return finals is None or initial in finals
        case ast.Absent():
            return True


def required_steps(body: ast.Body) -> frozenset[str]:
    """Return the steps that occur in every word of a body, except the empty word."""
    match body:
        case ast.Repeat(item=item):
            return required_steps(item)
        case ast.AutomatonBody():
            return _steps_on_every_path(body)
    return _steps_in_every_word(body)


def _steps_in_every_word(body: ast.Body | ast.Absent) -> frozenset[str]:
    """Return the steps that occur in every word of a part of a body, including the empty one."""
    match body:
        case ast.Step(name=name):
            return frozenset((name,))
        case ast.Repeat(item=item, least=least) if least:
            return _steps_in_every_word(item)
        case ast.Alternation(items=items):
            return frozenset.intersection(*map(_steps_in_every_word, items))
        case ast.Sequence(items=parts) | ast.Together(items=parts):
            return frozenset().union(*map(_steps_in_every_word, parts))
    return frozenset()


def _steps_on_every_path(body: ast.AutomatonBody) -> frozenset[str]:
    """Return the steps on every path of an automaton to a final state, except the empty path.

    The greatest fixed point of a forward data-flow analysis, with sets of steps as bit masks.
    """
    steps = list(dict.fromkeys(edge.step for edge in body.edges))
    bits = {step: 1 << number for number, step in enumerate(steps)}
    leaving: dict[str, list[ast.Edge]] = {}
    for edge in body.edges:
        leaving.setdefault(edge.source, []).append(edge)
    every = (1 << len(steps)) - 1
    before = {body.initial: 0}
    todo = deque(before)
    while todo:
        state = todo.popleft()
        for edge in leaving.get(state, ()):
            old = before.get(edge.target)
            new = (every if old is None else old) & (before[state] | bits[edge.step])
            if new != old:
                before[edge.target] = new
                todo.append(edge.target)
    required = every
    for edge in body.edges:
        if edge.source in before and (body.finals is None or edge.target in body.finals):
            required &= before[edge.source] | bits[edge.step]
    return frozenset(step for step in steps if required & bits[step])


def _repeat_findings(node: ast.Repeat) -> Iterator[Finding]:
    if node.most is not None and node.least > node.most:
        yield (
            "K140", "error", f"`{{{node.least},{node.most}}}` requires at least {node.least} "
            f"and at most {node.most}", node.span, f"write `{{{node.most},{node.least}}}`",
        )  # fmt: skip
    elif node.most == 0:
        yield (
            "K140", "error", "a repetition of zero times has no effect", node.span,
            "remove it, or use `not N` to exclude an event between two steps",
        )  # fmt: skip


def _not_findings(kind: str, sequence: ast.Sequence) -> Iterator[Finding]:
    items = sequence.items
    for index, item in enumerate(items):
        if not isinstance(item, ast.Absent):
            continue
        if index in (0, len(items) - 1):
            end = "begin" if index == 0 else "end"
            yield (
                "K142", "error", f"`not` cannot {end} a sequence", item.span,
                "place it between two steps or groups: `A not N B`",
            )  # fmt: skip
            continue
        if kind == "check":
            yield (
                "K144", "warning", "`not` has no effect in a check", item.span,
                "remove it: a check excludes every event of the alphabet that its automaton does "
                "not allow",
            )  # fmt: skip
        for side, neighbour in (("left", items[index - 1]), ("right", items[index + 1])):
            if isinstance(neighbour, ast.Absent):
                if side == "right":
                    guards = (item.guard, neighbour.guard)
                    names = [g.name for g in guards if isinstance(g, ast.Name)]
                    one, two = names if len(names) == 2 else ("N", "M")
                    yield (
                        "K143", "error", "two adjacent `not`s", neighbour.span,
                        f"combine them: `not ({one} || {two})`",
                    )  # fmt: skip
            elif nullable(neighbour):
                yield (
                    "K143", "error",
                    f"the {side} neighbour of this `not` may be empty", item.span,
                    "`not` requires an event on each side; write both cases: "
                    "`A not N B | A`",
                )  # fmt: skip


def _automaton_findings(kind: str, body: ast.AutomatonBody) -> Iterator[Finding]:
    leaving = {edge.source for edge in body.edges}
    # Hints name states and steps of the body, if it has any.
    first = body.edges[0] if body.edges else ast.Edge("q0", "q1", "A")
    if not body.initial:
        yield (
            "K150", "error", "the automaton has no initial state", body.span,
            f"write `initial {first.source};`",
        )  # fmt: skip
    elif body.initial not in leaving:
        target = first.source if body.edges else first.target
        yield (
            "K150", "error", f"no edge leaves the initial state `{body.initial}`", body.span,
            f"write `{body.initial} -> {target} on {first.step};`",
        )  # fmt: skip
    if kind == "find" and not body.finals:
        last = body.edges[-1] if body.edges else first
        yield (
            "K151", "error", "the automaton of a find requires a final state", body.span,
            f"write `final {last.target};`: a match is reported when it is reached",
        )  # fmt: skip
    elif kind == "find" and nullable(body):
        yield (
            "K141", "error", "the body of this find accepts the empty word", body.span,
            f"a match has at least one event: remove `{body.initial}` from the final states",
        )  # fmt: skip
    yield from _state_findings(body)
    seen = set()
    for edge in body.edges:
        if edge in seen:
            yield "K154", "warning", "this edge occurs twice", edge.span, "remove one"
        seen.add(edge)


def _state_findings(body: ast.AutomatonBody) -> Iterator[Finding]:
    first: dict[str, Span | None] = {}
    for edge in body.edges:
        first.setdefault(edge.source, edge.span)
        first.setdefault(edge.target, edge.span)
    for state in body.finals or ():
        if state not in first and state != body.initial:
            yield (
                "K151", "error", f"the final state `{state}` is not on any edge", body.span,
                f"the states are {', '.join(f'`{name}`' for name in first)}" if first else "",
            )  # fmt: skip
    following: dict[str, list[str]] = {}
    leading: dict[str, list[str]] = {}
    for edge in body.edges:
        following.setdefault(edge.source, []).append(edge.target)
        leading.setdefault(edge.target, []).append(edge.source)
    reached = reachable((body.initial,), following)
    useful = reachable(first if body.finals is None else body.finals, leading) & first.keys()
    for state, span in first.items():
        if body.initial and state not in reached:
            yield (
                "K152", "warning", f"no path leads to the state `{state}`", span,
                f"add a path to it from `{body.initial}`, or remove it",
            )  # fmt: skip
        elif useful and state not in useful:
            yield (
                "K153", "warning", f"no final state can be reached from the state `{state}`",
                span, "the edges to it have no effect, since no run takes them; remove them",
            )  # fmt: skip
