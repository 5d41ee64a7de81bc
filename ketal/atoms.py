"""Atoms: what guards are made of, and guards compiled to bit masks (DESIGN 3, 6).

A guard is Kleene's, and accepts only what is true. In negation normal form
every literal is simply true or not, so a guard lowers to a *formula*: a
positive combination of literals over boolean variables, the *atoms*. An atom
that can be unknown has two variables, one for true and one for false, never
both on (`x matches /a/`); a comparison negates to the complementary
comparison; an atom that is always decided has one, read in both polarities.

Local atoms speak of one event. They are compiled to one function, event → bit
mask, so each is evaluated once per event, for all runs. Relational atoms speak
of an event and the registers of a run (Causal, Conc, `First.hash`, a `not`
that has been broken); `ketal.runs` evaluates them, those only that decide.

The one rule: no text of a pattern becomes code. The generated function holds
constants by name, and every name in it is made here.
"""

from __future__ import annotations

import functools
import logging
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ketal import pattern as syntax
from ketal.errors import pattern_error
from ketal.event import Event
from ketal.guards import RegisteredGuard
from ketal.limits import Limits

Formula = bool | tuple[Any, ...]
"""True, False, ("var", index, polarity), ("and", formulas) or ("or", formulas)."""

INTEGER_BITS_MAX = 1024
_LOGGER = logging.getLogger("ketal")


# --- values -----------------------------------------------------------------


def scalar(value: Any) -> Any:
    """Return a value that has a kind (number, string, boolean), else None."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, float) and value == value:
        return value
    return None


def kind(value: Any) -> str:
    """Return the kind of a scalar: `number`, `string` or `boolean`."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def dig(data: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the attribute at `path`, None where there is none."""
    value: Any = data
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """Return `left op right`, None (unknown) unless both are numbers and it is finite."""
    for value in (left, right):
        if value is None or isinstance(value, bool | str):
            return None
    try:
        result = _ARITHMETIC[op](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    if isinstance(result, int):
        return result if result.bit_length() <= INTEGER_BITS_MAX else None
    return result if math.isfinite(result) else None


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPLEMENT = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def holds(op: str, left: Any, right: Any) -> bool:
    """Return whether `left op right` is true (not false, not unknown)."""
    if left is None or right is None:
        return False
    left_kind = kind(left)
    if left_kind != kind(right) or (left_kind == "boolean" and op not in ("==", "!=")):
        return False
    return _COMPARE[op](left, right)


def glob_regex(glob: str, *, dotted: bool) -> Any:
    """Translate a glob to RE2; `dotted` is AspectJ's: `*` stops at dots, `..` does not.

    RE2 takes time linear in the string, whatever the glob.
    """
    import re2

    options = re2.Options()
    options.dot_nl = True
    if not dotted:
        body = "".join({"*": ".*", "?": "."}.get(c, re2.escape(c)) for c in glob)
        return re2.compile(body, options)
    body = ""
    for part in re.split(r"(\.\.|\*+)", glob):
        if part == "..":
            body += r"\.(?:.*\.)?"
        else:
            body += r"[^.]*" if part.startswith("*") else re2.escape(part)
    return re2.compile(body, options)


_INCARNATION = re.compile(r"#\d+\Z")


def base_node(node: str) -> str:
    """Return a node's name without its incarnation (`A#2` is `A`)."""
    return _INCARNATION.sub("", node) if "#" in node else node


def origin(event: Event) -> str:
    """Return where an event was first made: attribute `origin`, else its node."""
    value = event.data.get("origin")
    return value if isinstance(value, str) else event.node


def arguments_match(globs: tuple[str, ...], values: list[str]) -> bool:
    """Return whether argument types match a list of globs in which `..` is any number.

    Takes time proportional to globs times values: no list makes it backtrack.
    """
    # The places in `globs` that may come next; after a `..` one can stay there or go on.
    places = _past_any(globs, {0})
    for value in values:
        after = set()
        for place in places:
            if place < len(globs):
                if globs[place] == "..":
                    after.add(place)
                elif _glob(globs[place]).fullmatch(value) is not None:
                    after.add(place + 1)
        places = _past_any(globs, after)
        if not places:
            return False
    return len(globs) in places


def _past_any(globs: tuple[str, ...], places: set[int]) -> set[int]:
    """Return the places, and those that come after a `..` standing for nothing."""
    for place, glob in enumerate(globs):
        if glob == ".." and place in places:
            places.add(place + 1)
    return places


@functools.lru_cache(maxsize=4096)
def _glob(glob: str) -> Any:
    return glob_regex(glob, dotted=True)


@functools.lru_cache(maxsize=1024)
def regex(text: str, memory: int) -> Any:
    """Compile an RE2 expression: matching takes linear time, whatever the string."""
    import re2

    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return re2.compile(text, options)


# --- atoms ------------------------------------------------------------------


@dataclass(frozen=True)
class Atom:
    """A boolean variable of formulas.

    Attributes
    ----------
    shape : str
        `compare`, `matches`, `exists`, `host`, `origin`, `localhost`, `type`,
        `result`, `arguments`, `registered`; relational ones also `before`,
        `concurrent` (payload: the anchor) and `barred` (payload: a number).
    payload : tuple
        What it says, in syntax nodes and constants; equal payloads are one atom.
    expects : bool
        For an atom that can be unknown: true for the variable of "is true".
    relational : bool
        Whether it reads the registers of a run.
    decided : bool
        Whether it is never unknown, so that "not true" is "false".
    """

    shape: str
    payload: tuple[Any, ...]
    expects: bool = True
    relational: bool = False
    decided: bool = True


@dataclass
class AtomTable:
    """The atoms of one pattern, numbered in the order they are met."""

    limits: Limits
    atoms: list[Atom] = field(default_factory=list)
    _numbers: dict[Atom, int] = field(default_factory=dict)

    def variable(self, atom: Atom, polarity: bool = True) -> Formula:
        """Return the literal of an atom, numbering it if it is new."""
        number = self._numbers.get(atom)
        if number is None:
            number = len(self.atoms)
            if number >= self.limits.atoms_max:
                raise pattern_error(
                    "K210",
                    f"the pattern has more than {self.limits.atoms_max} different predicates",
                    hint="limit atoms_max; split the pattern or raise the limit",
                )
            self._numbers[atom] = number
            self.atoms.append(atom)
        return ("var", number, polarity)


def conjunction(formulas: Iterable[Formula]) -> Formula:
    """Return the conjunction, simplified."""
    flat: list[Formula] = []
    for formula in formulas:
        if formula is False:
            return False
        if formula is not True and formula not in flat:
            flat.append(formula)
    return True if not flat else flat[0] if len(flat) == 1 else ("and", tuple(flat))


def disjunction(formulas: Iterable[Formula]) -> Formula:
    """Return the disjunction, simplified."""
    flat: list[Formula] = []
    for formula in formulas:
        if formula is True:
            return True
        if formula is not False and formula not in flat:
            flat.append(formula)
    return False if not flat else flat[0] if len(flat) == 1 else ("or", tuple(flat))


def evaluate(formula: Formula, mask: int) -> bool:
    """Return a formula's value where bit i of `mask` is variable i."""
    if isinstance(formula, bool):
        return formula
    tag = formula[0]
    if tag == "var":
        on: bool = formula[2]
        return bool(mask >> formula[1] & 1) is on
    if tag == "and":
        return all(evaluate(f, mask) for f in formula[1])
    return any(evaluate(f, mask) for f in formula[1])


def simplify(formula: Formula, known: Mapping[int, bool]) -> Formula:
    """Return a formula with the values of some variables put in."""
    if isinstance(formula, bool):
        return formula
    tag = formula[0]
    if tag == "var":
        value = known.get(formula[1])
        return formula if value is None else value == formula[2]
    parts = [simplify(f, known) for f in formula[1]]
    return conjunction(parts) if tag == "and" else disjunction(parts)


def variables(formula: Formula) -> frozenset[int]:
    """Return the variables of a formula."""
    if isinstance(formula, bool):
        return frozenset()
    if formula[0] == "var":
        return frozenset((formula[1],))
    return frozenset().union(*(variables(f) for f in formula[1]))


def mentions_run(node: syntax.Node) -> bool:
    """Return whether a value or an atomic guard refers to a step of the run."""
    return any(isinstance(n, syntax.Reference) for n in syntax.walk(node))


def registers(atom: Atom) -> tuple[bool, frozenset[str], bool]:
    """Return what a relational atom reads: prior, steps by name, the whole history."""
    if atom.shape in ("before", "concurrent"):
        (anchor,) = atom.payload
        if anchor == syntax.PRIOR:
            return True, frozenset(), False
        if anchor == syntax.ALL:
            return False, frozenset(), True
        return False, frozenset((anchor,)), False
    if atom.shape == "barred":
        return False, frozenset(), False
    named: set[str] = set()
    for part in atom.payload:
        for node in part if isinstance(part, tuple) else (part,):
            if isinstance(node, syntax.Node):
                named |= {r.step for r in syntax.walk(node) if isinstance(r, syntax.Reference)}
    return False, frozenset(named), False


class Lowering:
    """Guards of one pattern to formulas over one table of atoms.

    Parameters
    ----------
    events : mapping of str to Guard
        What event names stand for.
    table : AtomTable
        Where atoms are numbered.
    registered : mapping of str to RegisteredGuard
        Guards added in code.
    """

    def __init__(
        self,
        events: Mapping[str, syntax.Guard],
        table: AtomTable,
        registered: Mapping[str, RegisteredGuard],
    ) -> None:
        self.events = events
        self.table = table
        self.registered = registered

    def lower(self, guard: syntax.Guard, positive: bool = True) -> Formula:
        """Return the formula of `guard` being true (or false, if not `positive`)."""
        match guard:
            case syntax.Truth(value=value):
                return value == positive
            case syntax.Name(name=name):
                return self.lower(self.events[name], positive)
            case syntax.Not(operand=operand):
                return self.lower(operand, not positive)
            case syntax.And(operands=operands) | syntax.Or(operands=operands):
                join = conjunction if isinstance(guard, syntax.And) == positive else disjunction
                return join([self.lower(g, positive) for g in operands])
            case syntax.Membership(value=value, items=items):
                join = disjunction if positive else conjunction
                return join([self._compare("==", value, item, positive) for item in items])
            case syntax.Comparison(op=op, left=left, right=right):
                return self._compare(op, left, right, positive)
            case syntax.Causal(guard=inner, anchor=anchor):
                return self._relation("before", inner, anchor, positive)
            case syntax.Conc(guard=inner, anchor=anchor):
                return self._relation("concurrent", inner, anchor, positive)
            case syntax.Call():
                return self._call(guard, positive)
            case syntax.Host(glob=glob):
                return self.table.variable(Atom("host", (glob,)), positive)
            case syntax.Origin(glob=glob):
                return self.table.variable(Atom("origin", (glob,)), positive)
            case syntax.Localhost():
                return self.table.variable(Atom("localhost", ()), positive)
            case syntax.Exists(of=of):
                atom = Atom("exists", (of,), relational=mentions_run(of))
                return self.table.variable(atom, positive)
            case syntax.Matches(value=value, regex=text):
                return self._unsure("matches", (value, text), positive, mentions_run(guard))
            case syntax.Registered(name=name, arguments=arguments):
                version = self.registered[name].version
                return self._unsure(
                    "registered", (name, version, arguments), positive, mentions_run(guard)
                )
        raise AssertionError(guard)

    def _unsure(
        self, shape: str, payload: tuple[Any, ...], positive: bool, relational: bool
    ) -> Formula:
        return self.table.variable(Atom(shape, payload, positive, relational, decided=False))

    def _compare(self, op: str, left: Any, right: Any, positive: bool) -> Formula:
        op = op if positive else COMPLEMENT[op]
        if isinstance(left, syntax.Literal | syntax.Duration) and not isinstance(
            right, syntax.Literal | syntax.Duration
        ):
            left, right, op = right, left, _MIRRORED[op]
        relational = mentions_run(left) or mentions_run(right)
        return self.table.variable(Atom("compare", (op, left, right), True, relational, False))

    def _relation(self, shape: str, inner: Any, anchor: str, positive: bool) -> Formula:
        relation = self.table.variable(Atom(shape, (anchor,), relational=True), positive)
        join = conjunction if positive else disjunction
        return join([self.lower(inner, positive), relation])

    def _call(self, call: syntax.Call, positive: bool) -> Formula:
        parts = [self.table.variable(Atom("type", (call.target,)), positive)]
        if call.result != "*":
            parts.append(self._unsure("result", (call.result,), positive, False))
        if call.arguments != ("..",):
            parts.append(self._unsure("arguments", (call.arguments,), positive, False))
        return conjunction(parts) if positive else disjunction(parts)

    def unknown_calls(self, guards: Iterable[syntax.Guard]) -> tuple[syntax.Call, ...]:
        """Return the calls that name types, whose absence `run` counts and reports."""
        calls: dict[syntax.Call, None] = {}
        for guard in guards:
            for node in syntax.walk(guard):
                if isinstance(node, syntax.Call) and (
                    node.result != "*" or node.arguments != ("..",)
                ):
                    calls[node] = None
        return tuple(calls)


# --- compiled guards ----------------------------------------------------------

Mask = Callable[[Event], int]


class _Writer:
    """Writes the source of one function; constants are bound to names made here."""

    def __init__(self, limits: Limits, registered: Mapping[str, RegisteredGuard]) -> None:
        self.limits = limits
        self.registered = registered
        self.namespace: dict[str, Any] = {
            "scalar": scalar,
            "dig": dig,
            "arithmetic": arithmetic,
            "holds": holds,
            "isinstance": isinstance,
            "str": str,
            "NUMBER": (int, float),
            "Event": Event,
        }
        self.prologue: list[str] = []
        self._locals: dict[Any, str] = {}

    def constant(self, value: Any) -> str:
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def local(self, key: Any, expression: str) -> str:
        """Evaluate `expression` once, before the tests; return the name it has."""
        name = self._locals.get(key)
        if name is None:
            name = self._locals[key] = f"v{len(self._locals)}"
            self.prologue.append(f"{name} = {expression}")
        return name

    def value(self, value: syntax.Value) -> str:
        """Return the name of a value: a scalar, or None where it is unknown."""
        match value:
            case syntax.Literal(value=constant):
                return self.constant(constant)
            case syntax.Duration():
                return self.constant(value.microseconds / 1e6)
            case syntax.Field() | syntax.Attribute():
                return self._read(value, "event")
            case syntax.Reference(step=step, of=of):
                holder = self.local(("step", step), f"bound[{self.constant(step)}]")
                return self._read(of, holder)
            case syntax.Arithmetic(op=op, left=left, right=right):
                a, b = self.value(left), self.value(right)
                return self.local(value, f"arithmetic({self.constant(op)}, {a}, {b})")
            case syntax.Negative(operand=operand):
                zero = self.constant(0)
                minus = self.constant("-")
                return self.local(value, f"arithmetic({minus}, {zero}, {self.value(operand)})")
        raise AssertionError(value)

    def _read(self, of: syntax.Field | syntax.Attribute, holder: str) -> str:
        if isinstance(of, syntax.Field):
            return self.local((holder, of), f"{holder}.{of.name}")
        if len(of.path) == 1:
            got = f"{holder}.data.get({self.constant(of.path[0])})"
        else:
            got = f"dig({holder}.data, {self.constant(of.path)})"
        return self.local((holder, of), f"scalar({got})")

    def test(self, atom: Atom) -> str:
        """Return an expression: is this atom on?"""
        payload = atom.payload
        if atom.shape == "compare":
            op, left, right = payload
            return self._comparison(op, self.value(left), right)
        if atom.shape == "exists":
            (of,) = payload
            holder = "event"
            if isinstance(of, syntax.Reference):
                holder = self.local(("step", of.step), f"bound[{self.constant(of.step)}]")
                of = of.of
            if isinstance(of, syntax.Field):
                return f"{holder}.{of.name} is not None"
            return f"dig({holder}.data, {self.constant(of.path)}) is not None"
        if atom.shape == "matches":
            found = self.constant(regex(payload[1], self.limits.regex_memory_max).search)
            name = self.value(payload[0])
            verb = "is not None" if atom.expects else "is None"
            return f"isinstance({name}, str) and {found}({name}) {verb}"
        if atom.shape == "registered":
            name, _, arguments = payload
            call = self.constant(_registered_call(self.registered[name]))
            values = ", ".join(self.value(a) for a in arguments)
            return f"{call}(event, ({values}{',' if arguments else ''})) is {atom.expects}"
        match = self.constant(_event_test(atom))
        return f"{match}(event)"

    def _comparison(self, op: str, name: str, right: syntax.Value) -> str:
        # A constant of known kind on the right is the common case and has short tests.
        constant = right.value if isinstance(right, syntax.Literal) else None
        if isinstance(constant, bool):
            if op in ("==", "!="):
                return f"{name} is {constant == (op == '==')}"
            return "False"
        if isinstance(constant, str):
            if op == "==":
                return f"{name} == {self.constant(constant)}"
            return f"isinstance({name}, str) and {name} {op} {self.constant(constant)}"
        if isinstance(right, syntax.Duration):
            constant = right.microseconds / 1e6
        if constant is not None:
            number = f"isinstance({name}, NUMBER) and {name} is not True and {name} is not False"
            return f"{number} and {name} {op} {self.constant(constant)}"
        return f"holds({self.constant(op)}, {name}, {self.value(right)})"

    def function(self, head: str, body: list[str]) -> Any:
        """Compile `head` with the prologue and a body; return the function."""
        source = f"def {head}:\n" + "".join(f"    {line}\n" for line in [*self.prologue, *body])
        namespace = {**self.namespace, "__builtins__": {}}
        exec(compile(source, "<ketal guard>", "exec"), namespace)
        return namespace[head.partition("(")[0]]


def _registered_call(guard: RegisteredGuard) -> Callable[[Event, tuple[Any, ...]], bool | None]:
    def call(event: Event, arguments: tuple[Any, ...]) -> bool | None:
        for value, expected in zip(arguments, guard.parameters, strict=True):
            if value is None or (expected != "any" and kind(value) != expected):
                return None
        given = (event, *arguments) if guard.takes_event else arguments
        try:
            result = guard.function(*given)
        except Exception:
            # A stream must not stop for it: the guard is unknown, and the log says why.
            _LOGGER.exception("guard %s failed on %s", guard.name, event.dot)
            return None
        return result if result is None or isinstance(result, bool) else bool(result)

    return call


def _event_test(atom: Atom) -> Callable[[Event], bool]:
    """Return the test of an atom that needs no generated code."""
    if atom.shape == "host":
        glob = glob_regex(atom.payload[0], dotted=False)
        return lambda event: glob.fullmatch(base_node(event.node)) is not None
    if atom.shape == "origin":
        glob = glob_regex(atom.payload[0], dotted=False)
        return lambda event: glob.fullmatch(base_node(origin(event))) is not None
    if atom.shape == "result":
        glob = glob_regex(atom.payload[0], dotted=True)

        def result(event: Event) -> bool:
            value = event.data.get("result_type")
            return isinstance(value, str) and (glob.fullmatch(value) is not None) == atom.expects

        return result
    assert atom.shape == "arguments", atom

    def arguments(event: Event) -> bool:
        values = argument_types(event)
        return values is not None and arguments_match(atom.payload[0], values) == atom.expects

    return arguments


def argument_types(event: Event) -> list[str] | None:
    """Return `data.arg_types` where it is a list of strings, else None."""
    values = event.data.get("arg_types")
    if isinstance(values, list | tuple) and all(isinstance(v, str) for v in values):
        return list(values)
    return None


def _type_only(atom: Atom) -> bool:
    if atom.shape == "type":
        return True
    if atom.shape == "compare":
        _, left, right = atom.payload
        return (
            isinstance(left, syntax.Field)
            and left.name == "type"
            and isinstance(right, syntax.Literal)
        )
    return (
        atom.shape == "matches"
        and isinstance(atom.payload[0], syntax.Field)
        and atom.payload[0].name == "type"
    )


TYPES_CACHED_MAX = 10_000


def compile_mask(
    atoms: list[Atom], limits: Limits, registered: Mapping[str, RegisteredGuard]
) -> Mask:
    """Compile the local atoms (localhost apart) to one function: event → bit mask.

    What depends on the type alone is looked up by it, in a bounded table.
    """
    typed = _Writer(limits, registered)
    other = _Writer(limits, registered)
    typed_body: list[str] = []
    other_body: list[str] = []
    for number, atom in enumerate(atoms):
        if atom.relational or atom.shape == "localhost":
            continue
        if atom.shape == "type":
            found = typed.constant(glob_regex(atom.payload[0], dotted=True).fullmatch)
            test = f"{found}(event.type) is not None"
            typed_body.append(f"if {test}: mask |= {1 << number}")
        elif _type_only(atom):
            typed_body.append(f"if {typed.test(atom)}: mask |= {1 << number}")
        else:
            other_body.append(f"if {other.test(atom)}: mask |= {1 << number}")
    typed.prologue.insert(0, "mask = 0")
    by_type = typed.function("by_type(event)", [*typed_body, "return mask"])
    known: dict[str, int] = {}

    def learn(event: Event) -> int:
        if len(known) >= TYPES_CACHED_MAX:
            known.clear()
        mask: int = by_type(event)
        known[event.type] = mask
        return mask

    get, new = other.constant(known.get), other.constant(learn)
    other.prologue[:0] = [
        f"mask = {get}(event.type)",
        f"if mask is None: mask = {new}(event)",
    ]
    mask: Mask = other.function("mask(event)", [*other_body, "return mask"])
    return mask


Relational = Callable[[Event, Mapping[str, Event]], bool]


def compile_relational(
    atom: Atom, limits: Limits, registered: Mapping[str, RegisteredGuard]
) -> Relational:
    """Compile an atom that refers to bound events: (event, step → event) → bool."""
    writer = _Writer(limits, registered)
    test = writer.test(atom)
    function: Relational = writer.function("relational(event, bound)", [f"return {test}"])
    return function


def compile_value(value: syntax.Value, limits: Limits) -> Callable[[Mapping[str, Event]], Any]:
    """Compile a value over bound events (`return`); unknown is None."""
    if isinstance(value, syntax.ListOf):
        items = [compile_value(item, limits) for item in value.items]
        return lambda bound: [item(bound) for item in items]
    if isinstance(value, syntax.Reference) and isinstance(value.of, syntax.Attribute):
        # Reported as it is, lists and mappings too.
        step, path = value.step, value.of.path
        return lambda bound: dig(bound[step].data, path)
    writer = _Writer(limits, {})
    name = writer.value(value)
    function: Callable[[Mapping[str, Event]], Any] = writer.function(
        "returned(bound)", [f"return {name}"]
    )
    return function


def compile_read(of: syntax.Field | syntax.Attribute, limits: Limits) -> Callable[[Event], Any]:
    """Compile the reading of a field or attribute: a scalar, or None."""
    writer = _Writer(limits, {})
    name = writer.value(of)
    function: Callable[[Event], Any] = writer.function("read(event)", [f"return {name}"])
    return function


def unknown_types(calls: tuple[syntax.Call, ...]) -> Callable[[Event], bool] | None:
    """Return a test: does some call's type match while its types are unknown?"""
    if not calls:
        return None
    tests = [
        (glob_regex(c.target, dotted=True), c.result != "*", c.arguments != ("..",)) for c in calls
    ]

    def unknown(event: Event) -> bool:
        for glob, result, arguments in tests:
            if glob.fullmatch(event.type) and (
                (result and not isinstance(event.data.get("result_type"), str))
                or (arguments and argument_types(event) is None)
            ):
                return True
        return False

    return unknown
