"""What a pattern names that events of a log are to have: types, attributes, keys, nodes.

A name that no event has is perhaps misspelt. Where a guard needs it to be true, it is why no
event satisfies the guard; under a `not`, a `!` or beside others in an `||` it may be right that no
event has it.

The one rule: a name is needed by a guard only if no event without it satisfies the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ketal.compiler.predicates import Atom, Formula, disjunction
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.syntax_walks import walk
from ketal.model.values import glob_regex

What = Literal["type", "attribute", "partition", "node"]
NameKey = tuple[str, str]
"""What is named, and the name."""
TYPE, NODE = syntax.Field("type"), syntax.Field("node")


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A name in a pattern.

    Attributes
    ----------
    what : str
        What it is the name of: a type, an attribute, a key of `partition by`, a node.
    name : str
        As it is written; of an attribute the keys of its path, joined by dots.
    span : Span or None
        Where it stands first.
    path : tuple of str
        Of an attribute or a key, its path in the data of an event.
    glob : {'', 'dotted', 'plain'}
        Whether it is a glob, and which (`ketal.model.values.glob_regex`).
    known_by : Formula
        Masks of events that have it, as far as the atoms of the pattern show.
    """

    what: What
    name: str
    span: Span | None = None
    path: tuple[str, ...] = ()
    glob: str = ""
    known_by: Formula = False

    @property
    def key(self) -> NameKey:
        """What identifies it."""
        return self.what, self.name

    def matcher(self) -> Callable[[str], bool]:
        """Return what tells whether it is the name of something, or a glob that fits that."""
        if not self.glob:
            return self.name.__eq__
        glob = glob_regex(self.name, dotted=self.glob == "dotted")
        return lambda name: glob.fullmatch(name) is not None


def named_values(
    pattern: syntax.Pattern, events: Sequence[syntax.EventDecl], atoms: Sequence[Atom]
) -> tuple[NamedValue, ...]:
    """Return the names of a pattern, each once, in the order of the text.

    Parameters
    ----------
    pattern : Pattern
        The pattern.
    events : sequence of EventDecl
        The events that it names, those of the file too.
    atoms : sequence of Atom
        Those of its guards.
    """
    found: dict[NameKey, NamedValue] = {}
    for one in _occurrences(pattern, events):
        found.setdefault(one.key, one)
    known = _known_by(atoms)
    return tuple(
        replace(one, known_by=disjunction(known.get(key, ()))) for key, one in found.items()
    )


def _occurrences(
    pattern: syntax.Pattern, events: Sequence[syntax.EventDecl]
) -> Iterator[NamedValue]:
    """Yield each name in the text."""
    for of in pattern.partition:
        if isinstance(of, syntax.Attribute):
            yield NamedValue("partition", ".".join(of.path), of.span, of.path)
    keys = {id(of) for of in pattern.partition}
    own = {id(event) for event in pattern.events}
    for top in (*(event for event in events if id(event) not in own), pattern):
        place = top.span
        for node in walk(top):
            place = node.span or place
            if isinstance(node, syntax.Attribute) and id(node) not in keys:
                yield NamedValue("attribute", ".".join(node.path), place, node.path)
            else:
                for what, name, glob in _names_of(node):
                    yield NamedValue(what, name, place, glob=glob)
    if pattern.deployment is not None and pattern.deployment.glob is not None:
        yield NamedValue("node", pattern.deployment.glob, pattern.deployment.span, glob="plain")
    topology = pattern.topology
    for edge in () if topology is None else topology.edges:
        for name in (edge.source, edge.target):
            yield NamedValue("node", name, edge.span)
    for name in pattern.order.nodes or ():
        yield NamedValue("node", name, pattern.order.span)


def _names_of(node: syntax.Node) -> Iterator[tuple[What, str, str]]:
    """Yield what a node of the syntax names, the names, and which globs they are."""
    match node:
        case syntax.Comparison(op="==" | "!=", left=left, right=right):
            items: tuple[syntax.Value, ...] = (right,)
            value = left
            if isinstance(left, syntax.Literal):
                value, items = right, (left,)
            yield from _items(value, items)
        case syntax.Membership(value=value, items=items):
            yield from _items(value, items)
        case syntax.Call(target=target):
            yield "type", target, "dotted"
        case syntax.Function(name="host", arguments=(syntax.Literal(value=str(glob)),)):
            yield "node", glob, "plain"


def _items(value: syntax.Value, items: Iterable[syntax.Value]) -> Iterator[tuple[What, str, str]]:
    if isinstance(value, syntax.Field) and (value.name == "type" or value.name == "node"):
        for item in items:
            if isinstance(item, syntax.Literal) and isinstance(item.value, str):
                yield value.name, item.value, ""


def _known_by(atoms: Sequence[Atom]) -> dict[NameKey, list[Formula]]:
    """Return, of each name, literals that are true only of events that have it."""
    known: dict[NameKey, list[Formula]] = {}
    for number, atom in enumerate(atoms):
        if atom.relational or atom.shape == "registered":
            continue
        shows: Formula = ("var", number, True)
        payload = atom.payload
        if atom.shape == "compare" and payload[1] in (TYPE, NODE) and payload[0] in ("==", "!="):
            if isinstance(payload[2], syntax.Literal):
                key = (payload[1].name, str(payload[2].value))
                known.setdefault(key, []).append(("var", number, payload[0] == "=="))
        elif atom.shape in ("type", "host"):
            what = "type" if atom.shape == "type" else "node"
            known.setdefault((what, payload[0]), []).append(shows)
        for part in payload:
            for node in walk(part) if isinstance(part, syntax.Node) else ():
                if isinstance(node, syntax.Attribute):
                    known.setdefault(("attribute", ".".join(node.path)), []).append(shows)
    return known


def needed(
    guard: syntax.Guard, events: Mapping[str, syntax.Guard], *, positive: bool = True
) -> frozenset[NameKey]:
    """Return the names without which no event satisfies a guard, or its negation.

    Parameters
    ----------
    guard : Guard
        The guard.
    events : mapping of str to Guard
        What event names stand for.
    positive : bool
        Whether the guard is to be true; else false.
    """
    match guard:
        case syntax.Name(name=name):
            return needed(events[name], events, positive=positive)
        case syntax.Not(operand=operand):
            return needed(operand, events, positive=not positive)
        case syntax.And(operands=operands) | syntax.Or(operands=operands):
            parts = [needed(operand, events, positive=positive) for operand in operands]
            every = isinstance(guard, syntax.And) == positive
            return frozenset().union(*parts) if every else frozenset.intersection(*parts)
        case syntax.Causal(guard=inner) | syntax.Conc(guard=inner) if positive:
            return needed(inner, events)
        case syntax.Comparison(op=op) if positive == (op == "=="):
            return _attributes(guard) | _keys(guard)
        case syntax.Membership(items=(_,)) if positive:
            return _attributes(guard) | _keys(guard)
        case syntax.Comparison() | syntax.Membership() | syntax.Matches():
            return _attributes(guard)
        case syntax.Call() | syntax.Function(name="host") if positive:
            return _keys(guard)
        case syntax.Function(name="exists") if positive:
            return _attributes(guard)
    return frozenset()


def _keys(guard: syntax.Guard) -> frozenset[NameKey]:
    """Return the types and nodes that a condition names."""
    return frozenset((what, name) for what, name, _ in _names_of(guard))


def _attributes(guard: syntax.Guard) -> frozenset[NameKey]:
    """Return the attributes of the event itself that a condition reads."""
    inner = {id(node.of) for node in walk(guard) if isinstance(node, syntax.Reference)}
    return frozenset(
        ("attribute", ".".join(node.path))
        for node in walk(guard)
        if isinstance(node, syntax.Attribute) and id(node) not in inner
    )
