"""The semantics of the language, slow and obvious: the oracle of the tests.

Everything here is brute force over words and events, written from the definition of the language
(`docs/language.md`) and from nothing else; it shares no code with the engine and evaluates guards
with an evaluator of its own. The one rule: where a shorter form and the definition differ, the
code follows the definition.

Where each part is defined:

=======================  ====================================================
`canonical_order`        the canonical linear extension of a finite log
`linear_extensions`      all linear extensions
`released`               a live stream: causally ready, ties by arrival
`learned`, `received`    `at every node`: the events a copy is offered
`firsts`, `may_end`      bodies: the words, by partial derivatives
`Guards.value/.truth`    guards, the unknown, `Causal` and `Conc`
`_Judge.in_alphabet`     the alphabet
`_Judge.scopes`          `partition by`, `unscoped`, `untimed`; copies
`_Scope.fits`            `within`
`_Scope.barred`          `A not N B`
`_Scope.check`           `check`
`_Scope.find_any`        `find any`
`_Scope.find_runs`       `find next`, `find strict`, and time-outs
`_Scope.unmirrored`      one match of mirror images
`_Judge.same_guard`      equal local guards, by probe events
=======================  ====================================================

A configuration is literally the sequence of (step, event) bound so far, and
the rests of all words of the body that begin with these steps. Nothing is
merged, numbered or indexed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import operator
import re
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from fractions import Fraction

import re2

from ketal.model import syntax as ast
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key, concurrent, happened_before
from ketal.model.guard_functions import FUNCTIONS  # only their names
from ketal.model.language_words import UNIT_NS
from ketal.model.syntax_walks import children, is_time, walk

Scope = tuple[tuple[str, typing.Any], ...]
Steps = tuple[tuple[str, Dot], ...]
History = tuple[tuple[str, Event], ...]
"""(step, event), in the order taken."""
ParamValue = int | float | str | bool | ast.Duration
Truth = bool | None
"""Kleene's three values; None is unknown."""

_PROBES_MAX = 500_000


class TooManyProbesError(Exception):
    """Two guards compare too many values to be distinguished by trial."""


@dataclass
class Outcome:
    """The result of one pattern on one finite execution."""

    # (scope, steps, returns), after mirror images are removed; without regard to `limit`
    matches: list[tuple[Scope, Steps, dict[str, typing.Any] | None]] = field(default_factory=list)
    # (scope, dot, expected), (scope, expected) and (scope, steps)
    violations: list[tuple[Scope, Dot, tuple[str, ...]]] = field(default_factory=list)
    incomplete: list[tuple[Scope, tuple[str, ...]]] = field(default_factory=list)
    timed_out: list[tuple[Scope, Steps]] = field(default_factory=list)
    # How many events were not evaluated:
    unscoped: int = 0
    untimed: int = 0
    halted: int = 0


class TooLarge(Exception):
    """Brute force would take more configurations than the caller allowed."""


def judge(
    file: ast.File,
    name: str,
    arrival: Seq[Event],
    *,
    params: Mapping[str, ParamValue] | None = None,
    registered: Mapping[str, Callable[..., Truth]] | None = None,
    work_max: int | None = None,
    clocks_decide: bool = True,
) -> Outcome:
    """Return the result of pattern `name` of `file` on one finite execution.

    Control events are treated like all others; `mode` and `limit` are
    ignored. A topology changes nothing, as a finite log is complete.

    `file` is a valid pattern file: nothing is checked here. `arrival` is the whole execution,
    distinct events, in the order of the file. `params` and `registered` have the values set from
    outside and the functions of registered guards, by name. If not `clocks_decide`, the clocks
    decide only which events may have happened before which.

    Raises
    ------
    TooLarge
        If that would make more than `work_max` configurations.
    """
    (pattern,) = (p for p in file.patterns if p.name == name)
    judging = _Judge(
        file, pattern, params or {}, registered or {}, work_max, clocks_decide=clocks_decide
    )
    return judging.outcome(arrival)


# --- orders -----------------------------------------------------------------


def canonical_order(events: Iterable[Event]) -> list[Event]:
    """Return the canonical linear extension: sum of the clock, node, counter.

    It is also the order in which CausalOrder releases a finite log.
    """
    return sorted(events, key=canonical_key)


def linear_extensions(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield every total order of the events that respects happened-before."""
    left = list(events)
    if not left:
        yield []
    for first in left:
        if not any(happened_before(other, first) for other in left):
            for rest in linear_extensions(e for e in left if e is not first):
                yield [first, *rest]


def released(arrival: Iterable[Event]) -> list[Event]:
    """Return the events in the order in which a live CausalOrder releases them.

    An event is ready when every dot of its past has been released; of several
    that are ready the one that arrived first goes first. Events that wait for
    an event that never arrives are left out.
    """
    out: list[Event] = []
    waiting: list[Event] = []
    for event in arrival:
        waiting.append(event)
        while ready := [e for e in waiting if _past(e) <= {r.dot for r in out}]:
            waiting.remove(ready[0])
            out.append(ready[0])
    return out


def _past(event: Event) -> set[Dot]:
    dots = {Dot(n, c + 1) for n, counter in event.clock.items() for c in range(counter)}
    return dots - {event.dot}


def learned(node: str, order: Iterable[Event]) -> list[Event]:
    """Return the events that the copy of `node` is offered when events come in `order`.

    They are the node's own events, and each event of another node: just before the first own
    event whose past contains it, or at once if such an own event came first.
    """
    offered: list[Event] = []
    unlearned: list[Event] = []
    own: list[Event] = []
    for event in order:
        if event.node == node:
            now = [e for e in unlearned if happened_before(e, event)]
            unlearned = [e for e in unlearned if not happened_before(e, event)]
            own.append(event)
            offered += [*now, event]
        elif any(happened_before(event, f) for f in own):
            offered.append(event)
        else:
            unlearned.append(event)
    return offered


def received(node: str, order: Iterable[Event]) -> list[Event]:
    """Return the events that the copy of `node` is offered under `receiving`.

    They are the node's own events, and each event of another node whose message it receives:
    just before the first own event that received it, or at once if such an own event came first.
    """
    offered: list[Event] = []
    unreceived: list[Event] = []
    messages: set[Dot] = set()
    for event in order:
        if event.node == node:
            messages.update(Dot.parse(str(dot)) for dot in event.receives)
            offered += [*(e for e in unreceived if e.dot in messages), event]
            unreceived = [e for e in unreceived if e.dot not in messages]
        elif event.dot in messages:
            offered.append(event)
        else:
            unreceived.append(event)
    return offered


# --- the words of a body --------------------------------------------------------


@dataclass(frozen=True)
class _AutomatonRest:
    """The rest of an automaton body that is in `state`."""

    body: ast.AutomatonBody
    state: str


_Item = ast.Body | ast.Absent | _AutomatonRest
Rest = tuple[_Item, ...]
"""The rest of a word: these items, one after the other."""
First = tuple[frozenset[ast.Guard], str, Rest]
"""A way to read one step: the `not`s before it, the step, and the rest after it."""


def may_end(rest: Rest) -> bool:
    """Return whether the rest of the word may be empty."""
    return all(_may_be_empty(item) for item in rest)


@functools.lru_cache(maxsize=10_000)
def firsts(rest: Rest) -> tuple[First, ...]:
    """Return each way in which one more step can be read."""
    if not rest:
        return ()
    head, tail = rest[0], rest[1:]
    if isinstance(head, ast.Absent):
        return tuple((nots | {head.guard}, s, r) for nots, s, r in firsts(tail))
    steps = [(nots, s, r + tail) for nots, s, r in _firsts_of(head)]
    if _may_be_empty(head):
        steps += firsts(tail)
    return tuple(dict.fromkeys(steps))


def _may_be_empty(item: _Item) -> bool:
    match item:
        case ast.Sequence(items) | ast.Together(items):
            return all(_may_be_empty(i) for i in items)
        case ast.Alternation(items):
            return any(_may_be_empty(i) for i in items)
        case ast.Repeat(inner, least, _):
            return least == 0 or _may_be_empty(inner)
        case ast.AutomatonBody():
            return _may_be_empty(_AutomatonRest(item, item.initial))
        case _AutomatonRest(body, state):
            return body.finals is None or state in body.finals
    return False  # a step, or a `not`, which stands between two of them


def _firsts_of(item: _Item) -> Iterator[First]:
    match item:
        case ast.Step(name):
            yield frozenset(), name, ()
        case ast.Sequence(items):
            yield from firsts(items)
        case ast.Alternation(items):
            for one in items:
                yield from firsts((one,))
        case ast.Together(items):
            for permutation in itertools.permutations(items):
                yield from firsts(permutation)
        case ast.Repeat(inner, least, most) if most is None or most > 0:
            # Empty repetitions can be moved to the end, so this one is not empty.
            fewer = ast.Repeat(inner, max(least - 1, 0), None if most is None else most - 1)
            for nots, step, rest in firsts((inner,)):
                yield nots, step, (*rest, fewer)
        case ast.AutomatonBody():
            yield from _firsts_of(_AutomatonRest(item, item.initial))
        case _AutomatonRest(body, state):
            for edge in body.edges:
                if edge.source == state and _leads_to_end(body, edge.target):
                    yield frozenset(), edge.step, (_AutomatonRest(body, edge.target),)


def _leads_to_end(body: ast.AutomatonBody, state: str) -> bool:
    reached, grew = {state}, True
    while grew:
        more = {e.target for e in body.edges if e.source in reached} - reached
        reached, grew = reached | more, bool(more)
    return any(_may_be_empty(_AutomatonRest(body, s)) for s in reached)


@dataclass(frozen=True)
class Configuration:
    """The (step, event) bound so far, and the rests of all words that begin with these steps."""

    bound: History
    rests: frozenset[Rest]


# --- guards ---------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """The context in which a guard is evaluated: an event, the history before it, a copy.

    `read` returns a field or an attribute, None where it is absent. A probe has no event, so no
    relational literal is evaluated at it; its `read` also returns values computed from an event,
    how two values of an event compare, and the results of registered guards.
    """

    read: Callable[..., typing.Any]
    local: bool
    event: Event | None = None
    history: History = ()
    is_probe: bool = False


def _read(event: Event, leaf: ast.Field | ast.Attribute) -> typing.Any:
    if isinstance(leaf, ast.Field):
        return getattr(event, leaf.name)
    value: typing.Any = event.data
    for name in leaf.path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _last(history: History, step: str) -> Event | None:
    bound = [event for name, event in history if name == step]
    return bound[-1] if bound else None


_NODE = ast.Field("node")
_TYPE = ast.Field("type")
_ORIGIN = ast.Attribute(("origin",))
_RESULT_TYPE = ast.Attribute(("result_type",))
_ARG_TYPES = ast.Attribute(("arg_types",))


def _kleene_and(truths: Iterable[Truth]) -> Truth:
    seen = list(truths)
    return False if False in seen else None if None in seen else True


def _kleene_or(truths: Iterable[Truth]) -> Truth:
    seen = list(truths)
    return True if True in seen else None if None in seen else False


def _kleene_not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _kind(value: typing.Any) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return None if math.isnan(value) else "number"
    return "number" if isinstance(value, int) else "string" if isinstance(value, str) else None


_ORDERINGS: dict[str, Callable[[typing.Any, typing.Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[typing.Any, typing.Any], typing.Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": operator.truediv, "%": operator.mod,
}  # fmt: skip


def _compare(op: str, left: typing.Any, right: typing.Any) -> Truth:
    kind = _kind(left)
    if kind is None or kind != _kind(right):
        return None
    if op in ("==", "!="):
        return bool(left == right) is (op == "==")
    return None if kind == "boolean" else _ORDERINGS[op](left, right)


def _calculate(op: str, left: typing.Any, right: typing.Any) -> int | float | None:
    if _kind(left) != "number" or _kind(right) != "number":
        return None
    try:
        result: int | float = _ARITHMETIC[op](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    if isinstance(result, int):
        return result if result.bit_length() <= 1024 else None
    return result if math.isfinite(result) else None


def _matches_glob(glob: str, text: str) -> bool:
    wild = {"*": ".*", "?": "."}
    regex = "".join(wild.get(c) or re.escape(c) for c in glob)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _matches_host(glob: str, node: str) -> bool:
    return _matches_glob(glob, re.sub(r"#[0-9]+$", "", node))


def _matches_type(glob: str, text: str) -> bool:
    return _matches_glob(glob.replace("?", "\0"), text.replace("?", "\0"))  # only `*` is wild here


def _matches_target(target: str, text: str) -> bool:
    names = [re.escape(n).replace(r"\*", r"[^.]*") for n in target.split("..")]
    return re.fullmatch(r"\.(?:.*\.)?".join(names), text, re.DOTALL) is not None


def _matches_arguments(globs: tuple[str, ...], types: list[str]) -> bool:
    if not globs:
        return not types
    if globs[0] == "..":
        return any(_matches_arguments(globs[1:], types[n:]) for n in range(len(types) + 1))
    return (
        bool(types)
        and _matches_type(globs[0], types[0])
        and _matches_arguments(globs[1:], types[1:])
    )


def _call_truth(call: ast.Call, at: Moment) -> Truth:
    kind: Truth = True
    if call.result != "*":
        result = at.read(_RESULT_TYPE)
        kind = _matches_type(call.result, result) if isinstance(result, str) else None
    arguments: Truth = True
    if call.arguments != ("..",):
        types = at.read(_ARG_TYPES)
        known = isinstance(types, list) and all(isinstance(t, str) for t in types)
        arguments = _matches_arguments(call.arguments, types) if known else None
    return _kleene_and([_matches_target(call.target, at.read(_TYPE)), kind, arguments])


_KINDS = {int: "number", float: "number", str: "string", bool: "boolean"}


def _fits_annotations(function: Callable[..., Truth], values: list[typing.Any]) -> bool:
    """Return whether each value has the kind that the function is annotated with."""
    hints = typing.get_type_hints(function)
    for name, value in zip(inspect.signature(function).parameters, values, strict=True):
        hint = hints.get(name, int | float | str | bool)
        kinds = {_KINDS.get(t) for t in (typing.get_args(hint) or (hint,))}
        if _kind(value) is None or _kind(value) not in kinds:
            return False
    return True


def _nanoseconds(length: ast.Duration) -> Fraction:
    return Fraction(str(length.amount)) * UNIT_NS[length.unit]


def _mentions_step(node: ast.Node) -> bool:
    return any(isinstance(n, ast.Reference) for n in walk(node))


def _is_computed(node: ast.Node) -> typing.TypeGuard[ast.Arithmetic | ast.Negative]:
    """Return whether a node is a value that is computed from an event."""
    computes = isinstance(node, ast.Arithmetic | ast.Negative)
    return computes and any(isinstance(n, ast.Field | ast.Attribute) for n in walk(node))


class Guards:
    """The meaning of guards: which of them hold for an event after a history.

    `guards` has those of the declared events and steps, and `registered` the functions of
    registered guards, by name. If not `clocks_decide`, the clocks decide only which events may
    have happened before which.
    """

    def __init__(
        self,
        guards: Mapping[str, ast.Guard],
        params: Mapping[str, ParamValue],
        registered: Mapping[str, Callable[..., Truth]],
        *,
        clocks_decide: bool = True,
    ) -> None:
        self.guards = guards
        self.params = params
        self.registered = registered
        self.clocks_decide = clocks_decide

    def moment(self, event: Event, history: History, node: str | None) -> Moment:
        """Return the context in which guards over `event` are evaluated in the copy of `node`."""
        return Moment(functools.partial(_read, event), event.node == node, event, history)

    def value(self, value: ast.Value, at: Moment) -> typing.Any:
        """Return what an expression evaluates to; None where it is absent, null or unknown."""
        if at.is_probe and _is_computed(value):
            return at.read(value)
        match value:
            case ast.Literal(constant):
                return constant
            case ast.Duration():
                return float(_nanoseconds(value) / 10**9)
            case ast.Field() | ast.Attribute():
                return at.read(value)
            case ast.Reference(step, leaf):
                event = _last(at.history, step)
                return None if event is None else _read(event, leaf)
            case ast.ParamRef(name):
                given = self.params[name]
                return self.value(given, at) if isinstance(given, ast.Duration) else given
            case ast.Arithmetic(ops, operands):
                result = self.value(operands[0], at)
                for op, operand in zip(ops, operands[1:], strict=True):
                    result = _calculate(op, result, self.value(operand, at))
                    if isinstance(result, float) and is_time(value) and abs(result) < 2**33:
                        result = round(result * 1_000_000) / 1_000_000
                return result
            case ast.Negative(operand):
                return _calculate("-", 0, self.value(operand, at))
            case ast.ListOf(items):
                return [self.value(item, at) for item in items]
        raise AssertionError(value)

    def truth(self, guard: ast.Guard, at: Moment) -> Truth:
        """Return whether a guard holds: True, False or None for unknown."""
        match guard:
            case ast.Truth(constant):
                return constant
            case ast.Not(operand):
                return _kleene_not(self.truth(operand, at))
            case ast.And(operands):
                return _kleene_and(self.truth(g, at) for g in operands)
            case ast.Or(operands):
                return _kleene_or(self.truth(g, at) for g in operands)
            case ast.Name(name):
                return self.truth(self.guards[name], at)
            case ast.Causal(inner, anchor):
                return _kleene_and(
                    [self.truth(inner, at), self.related(happened_before, anchor, at)]
                )
            case ast.Conc(inner, anchor):
                return _kleene_and([self.truth(inner, at), self.related(concurrent, anchor, at)])
            case ast.Membership(value, items):
                return _kleene_or(
                    _compare("==", self.value(value, at), self.value(item, at)) for item in items
                )
            case _:
                return self._literal(guard, at)

    def _literal(self, guard: ast.Guard, at: Moment) -> Truth:
        match guard:
            case ast.Comparison(op, left, right):
                if at.is_probe and (pair := _pair(guard)) is not None:
                    return _compare(op, *map((at.read(pair) or {}).get, (left, right)))
                return _compare(op, self.value(left, at), self.value(right, at))
            case ast.Matches(value, regex):
                text = self.value(value, at)
                if isinstance(text, _Unwritten):
                    return regex in text.matched
                return bool(re2.search(regex, text)) if isinstance(text, str) else None
            case ast.Function(name) if at.is_probe and name not in FUNCTIONS:
                return at.read(guard)  # type: ignore[no-any-return]
            case ast.Function("exists", (leaf,)):
                return self.value(leaf, at) is not None
            case ast.Function("host", (ast.Literal(str(glob)),)):
                return _matches_host(glob, at.read(_NODE))
            case ast.Function("origin", (ast.Literal(str(glob)),)):
                origin = at.read(_ORIGIN)
                return _matches_host(glob, origin if isinstance(origin, str) else at.read(_NODE))
            case ast.Localhost():
                return at.local
            case ast.Call():
                return _call_truth(guard, at)
            case ast.Function(name, arguments):
                return self.answer(name, [self.value(a, at) for a in arguments], at)
        raise AssertionError(guard)

    def anchors(self, anchor: str, history: History) -> list[Event]:
        """Return the earlier events to which `Causal` and `Conc` relate an event."""
        if anchor == ast.ALL:
            return [event for _, event in history]
        if anchor == ast.PRIOR:
            return [event for _, event in history[-1:]]
        return [event for step, event in history if step == anchor][-1:]

    def related(self, relation: Callable[[Event, Event], bool], anchor: str, at: Moment) -> Truth:
        """Return whether all of the anchor's events have the relation; true if there are none.

        Clocks that do not decide happened-before order every pair that may be ordered. Between
        nodes they prove that events are concurrent, but no order.
        """
        assert at.event is not None
        truths: list[Truth] = []
        for event in self.anchors(anchor, at.history):
            certain = self.clocks_decide or event.node == at.event.node
            certain = certain or concurrent(event, at.event)
            certain = certain or (relation is happened_before and not relation(event, at.event))
            truths.append(relation(event, at.event) if certain else None)
        return _kleene_and(truths)

    def answer(self, name: str, values: list[typing.Any], at: Moment) -> Truth:
        """Return the result of a registered guard."""
        function = self.registered[name]
        answer = function(*values) if _fits_annotations(function, values) else None
        return answer if isinstance(answer, bool) else None


class _Judge(Guards):
    """One pattern with its parameters: all that does not depend on a scope."""

    def __init__(
        self,
        file: ast.File,
        pattern: ast.Pattern,
        params: Mapping[str, ParamValue],
        registered: Mapping[str, Callable[..., Truth]],
        work_max: int | None,
        *,
        clocks_decide: bool = True,
    ) -> None:
        self.pattern = pattern
        self.work_left = math.inf if work_max is None else work_max
        declared = {p.name: p.value for p in (*file.params, *pattern.params)}
        values: dict[str, ParamValue] = {
            name: params.get(name, v.value if isinstance(v, ast.Literal) else v)
            for name, v in declared.items()
        }
        declarations = (*file.events, *pattern.declarations)
        super().__init__(
            {d.name: d.guard for d in declarations}, values, registered, clocks_decide=clocks_decide
        )
        self.index = {d.name: i for i, d in enumerate(declarations)}
        self.alphabet = [e.name for e in pattern.events]
        self.alphabet += [e.name for e in file.events if e.name in self._own_names()]
        self.causal = pattern.order.kind == "causal"
        self.strategy = pattern.strategy or ("next" if not self.causal else None)
        length = pattern.window.length if pattern.window else None
        if isinstance(length, ast.ParamRef):
            length = typing.cast("ast.Duration | int", self.params[length.name])
        self.window_us = _nanoseconds(length) / 1000 if isinstance(length, ast.Duration) else None
        self.window_events = length if isinstance(length, int) else None

    def _own_names(self) -> set[str]:
        """Return the names of events and steps in the pattern's own text."""
        names = set()
        for node in walk(self.pattern):
            if isinstance(node, ast.Name | ast.Step):
                names.add(node.name)
            elif isinstance(node, ast.Edge):
                names.add(node.step)
        return names

    # alphabet, scopes and copies

    def in_alphabet(self, event: Event, local: bool) -> bool:
        """Return whether an event satisfies one of the pattern's events in a copy."""
        at = Moment(functools.partial(_read, event), local)
        return any(self.truth(self.guards[name], at) is True for name in self.alphabet)

    def key(self, event: Event) -> tuple[tuple[str, str | None, typing.Any], ...]:
        """Return (name, kind, value) of each partition key."""
        values = [(_read(event, leaf), leaf) for leaf in self.pattern.partition]
        return tuple(
            (
                leaf.last_name,
                _kind(value),
                # 1 and 1.0 are one scope, and it is called 1 whichever came first.
                int(value) if isinstance(value, float) and value.is_integer() else value,
            )
            for value, leaf in values
        )

    def unscoped(self, event: Event) -> bool:
        """Return whether an event lacks a partition key."""
        return any(kind is None for _, kind, _ in self.key(event))

    def untimed(self, event: Event) -> bool:
        """Return whether an event lacks the time that the window needs."""
        return self.window_us is not None and event.time is None

    def _could_be_scoped(self, event: Event) -> bool:
        """Return whether an event would be in a scope if it had its key and its time."""
        where = self.pattern.deployment
        if where is None:
            return self.in_alphabet(event, False)
        here = where.glob is None or _matches_host(where.glob, event.node)
        return (here and self.in_alphabet(event, True)) or self.in_alphabet(event, False)

    def scopes(self, order: list[Event]) -> Iterator[_Scope]:
        """Yield each scope with the alphabet events that it is offered, in order."""
        where = self.pattern.deployment
        copies: dict[str | None, list[Event]] = {None: order}
        if where is not None:
            nodes = dict.fromkeys(e.node for e in order)
            seen = received if where.receiving else learned
            copies = {
                n: order if where.everything else seen(n, order)
                for n in nodes
                if where.glob is None or _matches_host(where.glob, n)
            }
        for node, events in copies.items():
            groups: dict[Hashable, list[Event]] = {}
            for event in events:
                judged = not self.unscoped(event) and not self.untimed(event)
                if judged and self.in_alphabet(event, event.node == node):
                    groups.setdefault(self.key(event), []).append(event)
            for offered in groups.values():
                names = tuple((name, value) for name, _, value in self.key(offered[0]))
                yield _Scope(self, names + ((("node", node),) if node else ()), node, offered)

    def outcome(self, arrival: Seq[Event]) -> Outcome:
        """Return the result of the pattern on the whole execution."""
        assert len({e.dot for e in arrival}) == len(arrival), "events are distinct"
        lost = [e for e in arrival if self._could_be_scoped(e)]
        out = Outcome(
            unscoped=sum(self.unscoped(e) for e in lost),
            untimed=sum(self.untimed(e) for e in lost),
        )
        for scope in self.scopes(canonical_order(arrival) if self.causal else list(arrival)):
            if self.pattern.kind == "check":
                scope.check(out)
            elif self.strategy == "any":
                scope.report(list(scope.find_any()), [], out)
            else:
                scope.report(*scope.find_runs(), out)
        return out

    # local guards (mirror images)

    @functools.lru_cache(maxsize=1_000)  # noqa: B019 (a judge lives for one call)
    def same_guard(self, first: str, second: str) -> bool:
        """Return whether two steps have the same local guard, tried on probe events."""
        guards = [self.guards[first], self.guards[second]]
        if guards[0] == guards[1]:
            return True
        return all(
            self.can_accept(guards[0], probe) == self.can_accept(guards[1], probe)
            for probe in _probes(list(self._literals(guards)), self.value)
        )

    def can_accept(self, guard: ast.Guard, at: Moment, positive: bool = True) -> bool:
        """Return whether some history lets the guard (or its negation) be true.

        In negation normal form relational literals, of either sign, are true.
        """
        match guard:
            case ast.Not(operand):
                return self.can_accept(operand, at, not positive)
            case ast.And(operands) | ast.Or(operands):
                every = isinstance(guard, ast.And) is positive
                return (all if every else any)(self.can_accept(g, at, positive) for g in operands)
            case ast.Name(name):
                return self.can_accept(self.guards[name], at, positive)
            case ast.Causal(inner, _) | ast.Conc(inner, _):
                return not positive or self.can_accept(inner, at)
            case ast.Membership(value, items):
                each: list[ast.Guard] = [ast.Comparison("==", value, item) for item in items]
                return (any if positive else all)(self.can_accept(g, at, positive) for g in each)
        return _mentions_step(guard) or self.truth(guard, at) is positive

    def _literals(self, guards: Iterable[ast.Guard]) -> Iterator[ast.Guard]:
        """Yield the literals that read one event only."""
        for guard in guards:
            match guard:
                case ast.And(operands) | ast.Or(operands):
                    yield from self._literals(operands)
                case ast.Not(inner) | ast.Causal(inner, _) | ast.Conc(inner, _):
                    yield from self._literals([inner])
                case ast.Name(name):
                    yield from self._literals([self.guards[name]])
                case ast.Membership(value, items):
                    for item in items:
                        yield from self._literals([ast.Comparison("==", value, item)])
                case ast.Call(result, target, arguments):
                    # Its three parts read different values, so they are tried separately.
                    yield ast.Call("*", target, ("..",))
                    yield ast.Call(result, "", ("..",))
                    yield ast.Call("*", "", arguments)
                case _ if not _mentions_step(guard):
                    yield guard


class _Scope:
    """One scope of one pattern: the alphabet events that it is offered, in order."""

    def __init__(self, judge: _Judge, name: Scope, node: str | None, offered: list[Event]) -> None:
        self.judge = judge
        self.name = name
        self.node = node
        self.offered = offered
        self.place = {event.dot: i for i, event in enumerate(offered)}
        self.start = Configuration((), frozenset({(judge.pattern.body,)}))
        self.checks_nots = judge.pattern.kind == "find"

    # one step

    def accepts(self, guard: ast.Guard, event: Event, history: History) -> bool:
        """Return whether a guard is true of an event after a history."""
        return self.judge.truth(guard, self.judge.moment(event, history, self.node)) is True

    def fits(self, events: list[Event]) -> bool:
        """Return whether the window allows these events in one match."""
        if self.judge.window_us is not None:
            times = [typing.cast(int, e.time_us) for e in events]
            return max(times) - min(times) < self.judge.window_us
        if self.judge.window_events is not None:
            places = [self.place[e.dot] for e in events]
            return max(places) - min(places) < self.judge.window_events
        return True

    def barred(self, absent: ast.Guard, history: History, event: Event) -> bool:
        """Return whether an event that must be absent bars `event` from coming next."""
        left = history[-1][1]
        if self.judge.causal:
            between = [
                x for x in self.offered if happened_before(left, x) and happened_before(x, event)
            ]
        else:
            between = self.offered[self.place[left.dot] + 1 : self.place[event.dot]]
        return any(self.accepts(absent, x, history) for x in between)

    def successors(self, here: Configuration, event: Event) -> list[Configuration]:
        """Return the configurations after taking `event` by each step that accepts it."""
        taken: dict[str, set[Rest]] = {}
        if not self.fits([*(e for _, e in here.bound), event]):
            return []
        for rest in here.rests:
            for nots, step, after in firsts(rest):
                if self.accepts(self.judge.guards[step], event, here.bound) and not (
                    self.checks_nots and any(self.barred(n, here.bound, event) for n in nots)
                ):
                    taken.setdefault(step, set()).add(after)
        self.judge.work_left -= len(taken)
        if self.judge.work_left < 0:
            raise TooLarge
        return [
            Configuration((*here.bound, (step, event)), frozenset(rests))
            for step, rests in sorted(taken.items(), key=lambda t: self.judge.index[t[0]])
        ]

    def final(self, here: Configuration) -> bool:
        """Return whether the steps bound so far are a word of the body."""
        return any(may_end(rest) for rest in here.rests)

    # check

    def expected(self, run: Iterable[Configuration]) -> tuple[str, ...]:
        """Return the steps that could come next, in the order of declaration."""
        steps = {s for here in run for rest in here.rests for _, s, _ in firsts(rest)}
        return tuple(sorted(steps, key=self.judge.index.__getitem__))

    def check(self, out: Outcome) -> None:
        """Add the verdicts of a `check` to `out`."""
        policy = self.judge.pattern.violation_policy
        run = [self.start]
        for i, event in enumerate(self.offered):
            after = [c for here in run for c in self.successors(here, event)]
            if after:
                run = after
                continue
            out.violations.append((self.name, event.dot, self.expected(run)))
            if policy == "halt":
                out.halted += len(self.offered) - i - 1
                return
            if policy == "resume":
                run = self.successors(self.start, event) or [self.start]
        if not any(self.final(here) for here in run):
            out.incomplete.append((self.name, self.expected(run)))

    # find

    def find_any(self) -> Iterator[History]:
        """Yield every match of `find any`, mirror images included."""
        stack = [self.start]
        while stack:
            here = stack.pop()
            for event in self.offered:
                if not any(self._too_late(event, earlier) for _, earlier in here.bound):
                    for after in self.successors(here, event):
                        stack.append(after)
                        if self.final(after):
                            yield after.bound

    def _too_late(self, event: Event, earlier: Event) -> bool:
        """Return whether `event` may not follow `earlier` in a match."""
        if self.judge.causal:
            return event.dot == earlier.dot or happened_before(event, earlier)
        return self.place[event.dot] <= self.place[earlier.dot]

    def find_runs(self) -> tuple[list[History], list[History]]:
        """Return the matches of `find next` or `find strict`, and the runs timed out."""
        matches: list[History] = []
        timed_out: list[History] = []
        runs: list[tuple[list[Configuration], bool]] = []
        for event in self.offered:
            going = []
            for run, matched in [*runs, ([self.start], False)]:
                if self._window_is_over(run, event):
                    timed_out += self._time_out(run, matched, self.place[event.dot])
                    continue
                after = []
                for here in run:
                    taken = self.successors(here, event)
                    done = [c.bound for c in taken if self.final(c)]
                    matches += done
                    matched = matched or bool(done)
                    stays = self.judge.strategy == "next" and here != self.start
                    after += taken or ([here] if stays else [])
                if after:
                    going.append((after, matched))
                elif self._is_past_window(run, event):
                    timed_out += self._time_out(run, matched, self.place[event.dot])
            runs = going
        for run, matched in runs:
            timed_out += self._time_out(run, matched, len(self.offered))
        return matches, timed_out

    def _window_is_over(self, run: list[Configuration], event: Event) -> bool:
        """Return whether a window of events ended before `event`; one of time cannot."""
        length = self.judge.window_events
        if length is None or run == [self.start]:
            return False
        return self.place[event.dot] - self.place[run[0].bound[0][1].dot] >= length

    def _is_past_window(self, run: list[Configuration], event: Event) -> bool:
        """Return whether a window of time that began with a run's first event ended by an event."""
        length = self.judge.window_us
        if length is None or run == [self.start]:
            return False
        began_us = run[0].bound[0][1].time_us
        assert event.time_us is not None
        assert began_us is not None
        return event.time_us - began_us >= length

    def _time_out(self, run: list[Configuration], matched: bool, end: int) -> list[History]:
        alive = [here.bound for here in run if not self._barred_for_good(here, end)]
        if matched or not alive or not self.judge.pattern.window:
            return []
        return [min(alive, key=lambda bound: (-len(bound), self.rank(bound)))]

    def _barred_for_good(self, here: Configuration, end: int) -> bool:
        """Return whether every enabled step of a configuration is barred (arrival)."""
        if self.judge.causal:
            return False
        seen = self.offered[self.place[here.bound[-1][1].dot] + 1 : end]
        return all(
            any(self.accepts(n, x, here.bound) for n in nots for x in seen)
            for rest in here.rests
            for nots, _, _ in firsts(rest)
        )

    # reports

    def rank(self, bound: History) -> tuple[list[tuple[int, str, int]], list[int]]:
        """Return the order among mirror images: canonical keys, then declarations."""
        return [canonical_key(e) for _, e in bound], [self.judge.index[s] for s, _ in bound]

    def unmirrored(self, matches: list[History]) -> list[History]:
        """Return the matches without mirror images of others."""
        reported: list[History] = []
        same_events: dict[frozenset[Dot], list[History]] = {}
        for bound in sorted(matches, key=self.rank):
            rivals = same_events.setdefault(frozenset(e.dot for _, e in bound), [])
            if not any(self._mirrors(bound, other) for other in rivals):
                rivals.append(bound)
                reported.append(bound)
        return reported

    def _mirrors(self, one: History, other: History) -> bool:
        stands = {event.dot: step for step, event in other}
        return all(self.judge.same_guard(step, stands[event.dot]) for step, event in one)

    def report(self, matches: list[History], timed_out: list[History], out: Outcome) -> None:
        """Add matches and time-outs to `out`, matches in the order of the completing events."""
        if self.judge.strategy == "any" and self.judge.pattern.window:
            timed_out = self._unmatched(matches)
        reported = self.unmirrored(matches)
        reported.sort(key=lambda b: (max(self.place[e.dot] for _, e in b), self.rank(b)))
        for bound in reported:
            out.matches.append((self.name, _dots(bound), self.returned(bound)))
        for bound in sorted(timed_out, key=self.rank):
            out.timed_out.append((self.name, _dots(bound)))

    def _unmatched(self, matches: list[History]) -> list[History]:
        """Return the first-step events that are in no match (`find any`)."""
        matched = {event.dot for bound in matches for _, event in bound}
        alone = [self.successors(self.start, e) for e in self.offered if e.dot not in matched]
        return [configurations[0].bound for configurations in alone if configurations]

    def returned(self, bound: History) -> dict[str, typing.Any] | None:
        """Return the values of the pattern's `return` for a match; None without a `return`."""
        returns = self.judge.pattern.returns
        if returns is None or returns.count:
            return None
        at = self.judge.moment(bound[-1][1], bound, self.node)
        return {item.name: self.judge.value(item.value, at) for item in returns.items}


def _dots(bound: History) -> Steps:
    return tuple((step, event.dot) for step, event in bound)


# --- probe events, of steps with equal local guards -----------------------------

_Pair = frozenset[ast.Value]
_Variable = (
    ast.Field | ast.Attribute | ast.Localhost | ast.Arithmetic | ast.Negative | ast.Function | _Pair
)


def _pair(comparison: ast.Comparison) -> _Pair | None:
    """Return the two values that a comparison compares; None if one of them is a constant."""
    sides = (comparison.left, comparison.right)
    return frozenset(sides) if all(any(_values_read(side)) for side in sides) else None


def _variables(literal: ast.Guard) -> set[_Variable]:
    """Return the variables that a literal reads from its event.

    A computed value, how two values of an event compare, and the result of a registered guard
    are variables of their own.
    """
    match literal:
        case ast.Comparison() if (pair := _pair(literal)) is not None:
            return {pair}
        case ast.Function(name) if name not in FUNCTIONS:
            return {literal}
        case ast.Function("host"):
            return {_NODE}
        case ast.Function("origin"):
            return {_NODE, _ORIGIN}
        case ast.Call(result, target, arguments):
            found: list[tuple[_Variable, bool]] = [
                (_TYPE, target != ""),
                (_RESULT_TYPE, result != "*"),
                (_ARG_TYPES, arguments != ("..",)),
            ]
            return {variable for variable, reads in found if reads}
    return set(_values_read(literal))


def _values_read(node: ast.Node) -> Iterator[_Variable]:
    if isinstance(node, ast.Field | ast.Attribute | ast.Localhost) or _is_computed(node):
        yield node
    else:
        for child in children(node):
            yield from _values_read(child)


def _probes(
    literals: list[ast.Guard], value: Callable[[ast.Value, Moment], typing.Any]
) -> Iterator[Moment]:
    """Yield enough probe events to tell two sets of literals apart.

    Variables that occur in one literal take values of one set: each constant, as many values
    between and beyond the constants as there are variables, values of other kinds, a value
    of no kind, and absence. The probes are the product of these sets. Whether a regular expression
    matches a text that is not a constant is free: two are equal only if they are written alike.
    """
    groups: list[tuple[set[_Variable], list[ast.Guard]]] = []
    for literal in literals:
        variables, members = _variables(literal), [literal]
        apart = []
        for group in groups:
            if group[0] & variables:
                variables, members = variables | group[0], members + group[1]
            else:
                apart.append(group)
        groups = [*apart, (variables, members)]
    domains: dict[_Variable, list[typing.Any]] = {}
    for variables, members in groups:
        numbers, strings, texts = _constants(members, value)
        around = _numbers_around(numbers, len(variables))
        after = _strings_after(texts, len(variables))
        regexes = {
            n.regex for member in members for n in walk(member) if isinstance(n, ast.Matches)
        }
        after = list(_matched_freely(after, strings, sorted(regexes)))
        domains |= {variable: _domain(variable, around, after) for variable in variables}
    if math.prod(map(len, domains.values())) > _PROBES_MAX:
        raise TooManyProbesError
    for values in itertools.product(*domains.values()):
        probe = dict(zip(domains, values, strict=True))
        yield Moment(probe.get, bool(probe.get(ast.Localhost())), is_probe=True)


def _domain(variable: _Variable, numbers: list[float], strings: list[str]) -> list[typing.Any]:
    match variable:
        case ast.Localhost():
            return [False, True]
        case ast.Field("node" | "type"):
            return strings
        case ast.Field("id"):
            return [*strings, None]
        case ast.Field("time") | ast.Arithmetic() | ast.Negative():
            return [*numbers, None]
        case ast.Function():
            return [True, False, None]
        case frozenset():
            first, *others = variable
            kinds: tuple[int | str, ...] = (-1, 0, 1, "")  # less, equal, more, of another kind
            return [dict.fromkeys(others, kind) | {first: 0} for kind in kinds] + [None]
        case ast.Attribute(("arg_types",)):
            pairs = itertools.product(strings, repeat=2)
            return [None, [], *([s] for s in strings), *map(list, pairs)]
    return [*numbers, *strings, True, False, (), None]


def _constants(
    literals: list[ast.Guard], value: Callable[[ast.Value, Moment], typing.Any]
) -> tuple[set[float], set[str], set[str]]:
    """Return the numbers and strings in literals, and the strings with texts that globs match."""
    numbers: set[float] = set()
    strings: set[str] = set()
    texts: set[str] = set()
    globs: set[str] = set()
    nowhere = Moment(lambda _: None, False)
    for node in itertools.chain.from_iterable(map(walk, literals)):
        match node:
            case ast.Arithmetic() | ast.Negative() if _is_computed(node):
                pass
            case (
                ast.Literal() | ast.Duration() | ast.ParamRef() | ast.Arithmetic() | ast.Negative()
            ):
                constant = value(node, nowhere)
                if _kind(constant) == "number":
                    numbers.add(constant)
                elif isinstance(constant, str):
                    strings.add(constant)
            case ast.Function("host" | "origin", (ast.Literal(str(glob)),)):
                globs.add(glob)
            case ast.Call(result, target, arguments):
                globs |= {result, target, *arguments}
    pieces = {piece for glob in globs for piece in re.split(r"[*?]+|\.\.", glob)} | {"~"}
    for glob, piece in itertools.product(globs, pieces):
        written = texts if re.search(r"[*?]|\.\.", glob) else strings
        for dots in (".", ".~."):
            written.add(glob.replace("..", dots).replace("*", piece).replace("?", "~"))
    return numbers, strings, strings | texts


class _Unwritten(str):
    """A text of a probe that is not a constant of the guards; regexes in `matched` match it."""

    matched: frozenset[str]


def _matched_freely(texts: list[str], constants: set[str], regexes: list[str]) -> Iterator[str]:
    """Yield each constant text once, and every other one for each set of regexes that match it."""
    for text in texts:
        if text in constants:
            yield text
            continue
        for answers in itertools.product((False, True), repeat=len(regexes)):
            unwritten = _Unwritten(text)
            unwritten.matched = frozenset(itertools.compress(regexes, answers))
            yield unwritten


def _numbers_around(constants: set[float], count: int) -> list[float]:
    """Return the constants, and `count` numbers in every gap and beyond."""
    ordered = sorted(constants) or [0]
    ends = [ordered[0] - 1, *ordered, ordered[-1] + 1]
    inside = [
        low + (high - low) * i / (count + 1)
        for low, high in itertools.pairwise(ends)
        for i in range(1, count + 1)
    ]
    return [*ordered, *inside]


def _strings_after(constants: set[str], count: int) -> list[str]:
    """Return the constants, and `count` strings in every gap and beyond."""
    starts = {"", *constants}
    return sorted({s + "\0" * i for s in starts for i in range(count + 1)})
