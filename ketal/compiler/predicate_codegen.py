"""Compiled guards: atoms as Python functions.

Local atoms are compiled to one function, events → bit masks, so each is evaluated
once per event, for all runs. Relational atoms are compiled one by one;
`ketal.engine.configurations` evaluates only those that matter.

The one rule: no text of a pattern becomes code. The generated function holds
constants by name, and every name in it is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ketal.analysis.registered_guards import GuardCall
from ketal.compiler.memo import Memo
from ketal.compiler.predicates import (
    Atom,
    Formula,
    constant_of,
    disjunction,
    evaluate,
    event_values,
    requirement,
    subject,
    variables,
)
from ketal.model import syntax
from ketal.model.attributes import copied
from ketal.model.events.event import Event
from ketal.model.guard_functions import PREDICATES
from ketal.model.limits import Limits
from ketal.model.syntax_walks import is_time, references, walk
from ketal.model.values import (
    Key,
    argument_types,
    arithmetic,
    dig,
    glob_regex,
    holds,
    kind,
    scalar,
    time_arithmetic,
)

Masks = Callable[[Sequence[Event]], list[int]]
"""Events → for each event the bit mask of the atoms that it satisfies, where these matter."""


class _CodeWriter:
    """Writes the source of one function; constants are bound to names made here."""

    def __init__(self, limits: Limits, registered: Mapping[str, GuardCall]) -> None:
        self.limits = limits
        self.registered = registered
        self.namespace: dict[str, Any] = {
            "scalar": scalar,
            "dig": dig,
            "arithmetic": arithmetic,
            "time_arithmetic": time_arithmetic,
            "holds": holds,
            "isinstance": isinstance,
            "str": str,
            "NUMBER": (int, float),
        }
        self.prologue: list[str] = []
        self._locals: dict[Any, str] = {}

    def constant(self, value: Any) -> str:
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def local(self, key: Any, expression: str) -> str:
        """Add an assignment of `expression` to the prologue, once per key; return its name."""
        name = self._locals.get(key)
        if name is None:
            name = self._locals[key] = f"v{len(self._locals)}"
            self.prologue.append(f"{name} = {expression}")
        return name

    def value(self, value: syntax.Value, *, plain: bool = False) -> str:
        """Return the name of a value in the code: a scalar at run time, or None if unknown.

        If `plain`, an attribute may be a list or a mapping too.
        """
        match value:
            case syntax.Literal() | syntax.Duration():
                return self.constant(constant_of(value))
            case syntax.Field() | syntax.Attribute():
                return self._read(value, "event", plain)
            case syntax.Reference(step=step, of=of):
                holder = self.local(("step", step), f"bound[{self.constant(step)}]")
                return self._read(of, holder, plain)
            case syntax.Arithmetic(ops=ops, operands=operands):
                function = "time_arithmetic" if is_time(value) else "arithmetic"
                so_far, *others = map(self.value, operands)
                for op, other in zip(ops, others, strict=True):
                    call = f"{function}({self.constant(op)}, {so_far}, {other})"
                    so_far = self.local((function, op, so_far, other), call)
                return so_far
            case syntax.Negative(operand=operand):
                zero = self.constant(0)
                minus = self.constant("-")
                return self.local(value, f"arithmetic({minus}, {zero}, {self.value(operand)})")
        raise AssertionError(value)

    def _read(self, leaf: syntax.Field | syntax.Attribute, holder: str, plain: bool) -> str:
        if isinstance(leaf, syntax.Field):
            return self.local((holder, leaf), f"{holder}.{leaf.name}")
        if len(leaf.path) == 1:
            expression = f"{holder}.data.get({self.constant(leaf.path[0])})"
        else:
            expression = f"dig({holder}.data, {self.constant(leaf.path)})"
        return self.local((holder, leaf, plain), expression if plain else f"scalar({expression})")

    def test(self, atom: Atom) -> str:
        """Return an expression that is true if the atom is on."""
        payload = atom.payload
        if atom.shape == "compare":
            op, left, right = payload
            return self._comparison(op, self.value(left), right)
        if atom.shape == "member":
            return self._membership(self.value(payload[0]), payload[1], atom.expects)
        if atom.shape == "registered":
            name, _, arguments = payload
            values = "".join(f"{self.value(a)}, " for a in arguments)
            call = self.constant(self.registered[name])
            # One call serves both atoms of a guard, the one for true and the one for false.
            answer = self.local(("registered", name, arguments), f"{call}(event, ({values}))")
            return f"{answer} is {atom.expects}"
        predicate = PREDICATES[atom.shape]
        subject_of_atom, constants = predicate.read(payload)
        if callable(subject_of_atom):
            name = self.local(subject_of_atom, f"{self.constant(subject_of_atom)}(event)")
        else:
            name = self.value(subject_of_atom, plain=predicate.kind == "any")
        test = f"{self.constant(predicate.prepare(self.limits, *constants))}({name})"
        if predicate.decided:
            return test
        return f"{_kind_test(name, predicate.kind)} and {test if atom.expects else f'not {test}'}"

    def _comparison(self, op: str, name: str, right: syntax.Value) -> str:
        # A constant of known kind on the right is the common case and has short tests.
        constant = constant_of(right)
        if isinstance(constant, bool):
            if op in ("==", "!="):
                return f"{name} is {constant == (op == '==')}"
            return "False"
        if isinstance(constant, str):
            if op == "==":
                return f"{name} == {self.constant(constant)}"
            return f"{_kind_test(name, 'string')} and {name} {op} {self.constant(constant)}"
        if constant is not None:
            return f"{_kind_test(name, 'number')} and {name} {op} {self.constant(constant)}"
        return f"holds({self.constant(op)}, {name}, {self.value(right)})"

    def _membership(self, name: str, keys: tuple[Key, ...], expects: bool) -> str:
        kinds = {of_kind for of_kind, _ in keys}
        if not expects and len(kinds) > 1:
            return "False"  # unknown: every value differs in kind from one of the constants
        if kinds in ({"string"}, {"number"}):
            (only,) = kinds
            values = self.constant(frozenset(value for _, value in keys))
            return f"{_kind_test(name, only)} and {name} {'in' if expects else 'not in'} {values}"
        known = frozenset(keys)

        def is_constant(value: Any) -> bool:
            return value is not None and (kind(value), value) in known

        if expects:
            return f"{self.constant(is_constant)}({name})"
        return f"{_kind_test(name, 'boolean')} and not {self.constant(is_constant)}({name})"

    def function(self, head: str, body: list[str]) -> Callable[..., Any]:
        """Compile `head` with the prologue and a body; return the function."""
        source = f"def {head}:\n" + "".join(f"    {line}\n" for line in [*self.prologue, *body])
        namespace = {**self.namespace, "__builtins__": {}}
        exec(compile(source, "<ketal guard>", "exec"), namespace)
        function: Callable[..., Any] = namespace[head.partition("(")[0]]
        return function


def _kind_test(name: str, kind: str) -> str:
    """Return an expression that is true if the value of this name has this kind."""
    return {
        "string": f"isinstance({name}, str)",
        "number": f"isinstance({name}, NUMBER) and {name} is not True and {name} is not False",
        "boolean": f"({name} is True or {name} is False)",
        "any": f"{name} is not None",
    }[kind]


VALUES_CACHED_MAX = 10_000
"""The most types, and the most nodes, whose masks are cached."""


def compile_masks(
    atoms: Sequence[Atom],
    formulas: Iterable[Formula],
    limits: Limits,
    registered: Mapping[str, GuardCall],
) -> Masks:
    """Compile the local atoms, without `localhost`, to one function: events → bit masks.

    The part of a mask that depends only on the type, or only on the node, is cached by that value
    in a bounded table. The other atoms are evaluated only for events of which they can decide a
    formula; for all other events their bits are 0.

    Bit i of a mask is atom i; `formulas` are all formulas that are evaluated over a mask.
    """
    by_value: dict[str, list[tuple[int, Atom]]] = {"type": [], "node": []}
    others: list[tuple[int, Atom]] = []
    for number, atom in enumerate(atoms):
        if atom.relational or atom.shape == "localhost":
            continue
        subject_of_atom = subject(atom)
        named = subject_of_atom.name if isinstance(subject_of_atom, syntax.Field) else ""
        by_value.get(named, others).append((number, atom))
    writer = _CodeWriter(limits, registered)
    lookups, names = list[str](), list[str]()
    for field, own in by_value.items():
        if own:
            cache: dict[str, int] = {}
            of_value = _masks_function(_CodeWriter(limits, registered), own, ["mask = 0"])
            get = writer.constant(cache.get)
            compute = writer.constant(_caching(field, of_value, cache))
            names.append(f"{field}_mask")
            lookups.append(f"{field}_mask = {get}(event.{field})")
            lookups.append(f"if {field}_mask is None: {field}_mask = {compute}(event)")
    lookups.append(f"mask = {' | '.join(names) or '0'}")
    if others:
        # Where this is false, every formula that depends on the other atoms is false.
        looked_up = {number for own in by_value.values() for number, _ in own}
        numbers = {number for number, _ in others}
        may_matter = disjunction([
            requirement(formula, looked_up.__contains__)
            for formula in formulas
            if not numbers.isdisjoint(variables(formula))
        ])  # fmt: skip
        if may_matter is not True:
            matters = writer.constant(evaluations(may_matter))
            lookups += [f"if not {matters}[mask]:", "    add(mask)", "    continue"]
    return _masks_function(writer, others, lookups)


def evaluations(formula: Formula) -> Memo[int, bool]:
    """Return the values of a formula by mask, computed when first read."""
    return Memo(partial(evaluate, formula), VALUES_CACHED_MAX)


def _masks_function(
    writer: _CodeWriter, atoms: Iterable[tuple[int, Atom]], begin: list[str]
) -> Masks:
    """Compile atoms with their numbers to a function: events → bit masks."""
    tests = [f"if {writer.test(atom)}: mask |= {1 << number}" for number, atom in atoms]
    of_event = [*begin, *writer.prologue, *tests, "add(mask)"]
    writer.prologue = ["masks = []", "add = masks.append", "for event in events:"]
    return writer.function("masks(events)", [*(f"    {line}" for line in of_event), "return masks"])


def _caching(field: str, masks: Masks, cache: dict[str, int]) -> Callable[[Event], int]:
    """Return a function that computes an event's mask and caches it by the value of a field."""

    def compute(event: Event) -> int:
        if len(cache) >= VALUES_CACHED_MAX:
            cache.clear()
        (mask,) = masks((event,))
        cache[getattr(event, field)] = mask
        return mask

    return compute


Relational = Callable[[Event, Mapping[str, Event]], bool]


def compile_relational(
    atom: Atom, limits: Limits, registered: Mapping[str, GuardCall]
) -> Relational:
    """Compile an atom that reads bound events to a function: (event, step → event) → bool."""
    writer = _CodeWriter(limits, registered)
    test = writer.test(atom)
    return writer.function("relational(event, bound)", [f"return True if {test} else False"])


def is_equality(atom: Atom) -> bool:
    """Return whether an atom equates a value of the event with a value of bound events."""
    if atom.shape != "compare" or not atom.relational or atom.payload[0] != "==":
        return False
    of_runs = [
        {isinstance(leaf, syntax.Reference) for leaf in event_values(v)} for v in atom.payload[1:]
    ]
    return of_runs in ([{False}, {True}], [{True}, {False}])


def compile_equality(
    atom: Atom, limits: Limits
) -> tuple[Callable[[Event], Any], Callable[[Mapping[str, Event]], Any]]:
    """Compile the two sides of an equality: that of the event, then that of the bound events."""
    _, left, right = atom.payload
    event_side, bound_side = (right, left) if references(left) else (left, right)
    return compile_read(event_side, limits), compile_value(bound_side, limits)


def compile_value(value: syntax.Value, limits: Limits) -> Callable[[Mapping[str, Event]], Any]:
    """Compile a value over bound events, as in `return`; an unknown value is None."""
    if isinstance(value, syntax.ListOf):
        items = [compile_value(item, limits) for item in value.items]
        return lambda bound: [item(bound) for item in items]
    if isinstance(value, syntax.Reference) and isinstance(value.of, syntax.Attribute):
        # Lists and mappings are reported too, as copies: a verdict owns its values.
        step, path = value.step, value.of.path
        return lambda bound: copied(dig(bound[step].data, path))
    writer = _CodeWriter(limits, {})
    return writer.function("returned(bound)", [f"return {writer.value(value)}"])


def compile_read(value: syntax.Value, limits: Limits) -> Callable[[Event], Any]:
    """Compile a value over one event: a scalar, or None if unknown."""
    writer = _CodeWriter(limits, {})
    return writer.function("read(event)", [f"return {writer.value(value)}"])


def unknown_types(parts: Iterable[syntax.Node]) -> Callable[[Event], bool] | None:
    """Return a test of events that match the target of a `call` and lack types that it requires.

    The types are those of the result and the arguments; None if no `call` in `parts` has any.
    """
    calls = {node: None for part in parts for node in walk(part) if isinstance(node, syntax.Call)}
    tests = [
        (glob_regex(c.target, dotted=True), c.result != "*", c.arguments != ("..",))
        for c in calls
        if c.result != "*" or c.arguments != ("..",)
    ]
    if not tests:
        return None

    def unknown(event: Event) -> bool:
        for glob, result, arguments in tests:
            if glob.fullmatch(event.type) and (
                (result and not isinstance(event.data.get("result_type"), str))
                or (arguments and argument_types(event) is None)
            ):
                return True
        return False

    return unknown
