"""The names in a pattern that events of a log should have: types, attributes, keys, nodes.

A name that no event has may be misspelt. If a guard needs the name, its absence is the reason why
no event satisfies the guard; under a `not`, a `!`, or in one operand of an `||`, the absence may be
intended.

The one rule: a name is needed by a guard only if no event without the name satisfies the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ketal.compiler.predicates import Atom, Formula, disjunction, event_values, implied
from ketal.errors import Span
from ketal.model import syntax
from ketal.model.syntax_walks import walk
from ketal.model.values import glob_regex

What = Literal["type", "attribute", "partition", "node"]
NameKey = tuple[str, str]
"""(kind of the named thing, name)."""
TYPE, NODE = syntax.Field("type"), syntax.Field("node")


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A name in a pattern."""

    what: What  # the kind of the named thing: a type, an attribute, a key of `partition by`, a node
    name: str  # as it is written; for an attribute the keys of its path, joined by dots
    span: Span | None = None  # its first place in the text
    path: tuple[str, ...] = ()  # for an attribute or a key, its path in the data of an event
    glob: str = ""
    """The kind of glob, `dotted` or `plain` (`ketal.model.values.glob_regex`); empty for a name."""
    known_by: Formula = False
    """A formula over masks, true only of events that have the name, as far as atoms show."""

    @property
    def key(self) -> NameKey:
        """The identity of the name."""
        return self.what, self.name

    def matcher(self) -> Callable[[str], bool]:
        """Return a test of whether a text is this name, or fits it if it is a glob."""
        if not self.glob:
            return self.name.__eq__
        glob = glob_regex(self.name, dotted=self.glob == "dotted")
        return lambda name: glob.fullmatch(name) is not None


def named_values(
    pattern: syntax.Pattern, events: Sequence[syntax.EventDecl], atoms: Sequence[Atom]
) -> tuple[NamedValue, ...]:
    """Return the names of a pattern, each once, in the order of the text.

    `events` are those that it names, including those declared in the file.
    """
    first: dict[NameKey, NamedValue] = {}
    for name in _occurrences(pattern, events):
        first.setdefault(name.key, name)
    literals = _literals_by_name(atoms)
    return tuple(
        replace(name, known_by=disjunction(literals.get(key, ()))) for key, name in first.items()
    )


def _occurrences(
    pattern: syntax.Pattern, events: Sequence[syntax.EventDecl]
) -> Iterator[NamedValue]:
    """Yield each occurrence of a name in the text."""
    for key in pattern.partition:
        if isinstance(key, syntax.Attribute):
            yield NamedValue("partition", ".".join(key.path), key.span, key.path)
    keys = {id(key) for key in pattern.partition}
    own = {id(event) for event in pattern.events}
    for top in (*(event for event in events if id(event) not in own), pattern):
        place = top.span
        for node in walk(top):
            place = node.span or place
            if isinstance(node, syntax.Attribute) and id(node) not in keys:
                yield NamedValue("attribute", ".".join(node.path), place, node.path)
            else:
                for what, name, glob in _names_in(node):
                    yield NamedValue(what, name, place, glob=glob)
    if pattern.deployment is not None and pattern.deployment.glob is not None:
        yield NamedValue("node", pattern.deployment.glob, pattern.deployment.span, glob="plain")
    topology = pattern.topology
    for edge in () if topology is None else topology.edges:
        for name in (edge.source, edge.target):
            yield NamedValue("node", name, edge.span)
    for name in pattern.order.nodes or ():
        yield NamedValue("node", name, pattern.order.span)


def _names_in(node: syntax.Node) -> Iterator[tuple[What, str, str]]:
    """Yield (kind of the named thing, name, kind of glob) of the names in a node of the syntax."""
    match node:
        case syntax.Comparison(op="==" | "!=", left=left, right=right):
            items: tuple[syntax.Value, ...] = (right,)
            value = left
            if isinstance(left, syntax.Literal):
                value, items = right, (left,)
            yield from _compared_names(value, items)
        case syntax.Membership(value=value, items=items):
            yield from _compared_names(value, items)
        case syntax.Call(target=target):
            yield "type", target, "dotted"
        case syntax.Function(name="host", arguments=(syntax.Literal(value=str(glob)),)):
            yield "node", glob, "plain"


def _compared_names(
    value: syntax.Value, items: Iterable[syntax.Value]
) -> Iterator[tuple[What, str, str]]:
    if isinstance(value, syntax.Field) and (value.name == "type" or value.name == "node"):
        for item in items:
            if isinstance(item, syntax.Literal) and isinstance(item.value, str):
                yield value.name, item.value, ""


def _literals_by_name(atoms: Sequence[Atom]) -> dict[NameKey, list[Formula]]:
    """Return, for each name, literals over masks, true only of events that have the name."""
    known: dict[NameKey, list[Formula]] = {}
    for number, atom in enumerate(atoms):
        for is_on in (True, False) if not atom.relational else ():
            for key in _names_shown(atom, is_on):
                known.setdefault(key, []).append(("var", number, is_on))
    return known


def needed_names(formula: Formula, atoms: Sequence[Atom]) -> frozenset[NameKey]:
    """Return the names without which no event satisfies a formula, as far as its atoms show."""
    return implied(formula, lambda v: frozenset(_names_shown(atoms[v[1]], v[2])))


def _names_shown(atom: Atom, is_on: bool) -> Iterator[NameKey]:
    """Yield the names that an event has if an atom is on, or off."""
    payload = atom.payload
    match atom.shape:
        case "registered":
            return
        case "compare" if payload[1] in (TYPE, NODE) and payload[0] in ("==", "!="):
            if isinstance(payload[2], syntax.Literal) and is_on == (payload[0] == "=="):
                yield payload[1].name, str(payload[2].value)
        case "type" | "host" if is_on:
            yield "type" if atom.shape == "type" else "node", payload[0]
    for part in payload if is_on else ():
        for leaf in event_values(part) if isinstance(part, syntax.Node) else ():
            if isinstance(leaf, syntax.Attribute):
                yield "attribute", ".".join(leaf.path)
