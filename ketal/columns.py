"""Events as columns: many at once, of which only what a pattern reads is looked at (DESIGN 7).

Most patterns read little of an event: its type, one attribute that tells its scope. A check that
has one such key, and that asks nothing of clocks or time, needs no events: the names go to
`Intake.admit_columns`, and `ketal.steps` moves all scopes at once. An event is made only of what
takes a closer look, as the first of a scope does.

Columns are arrays of numpy, which whoever makes columns has anyway; nothing else needs it.

The one rule: what is said of columns is what `PatternRun.offer` says of the events, one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ketal import pattern as syntax
from ketal.admission import reads_clocks
from ketal.automaton import CompiledPattern
from ketal.contents import Row
from ketal.counters import SPAN, bits_of
from ketal.event import Dot, Event, decode_event, digest, digests, type_and_time
from ketal.intake import Line
from ketal.scopes import PLAIN_KINDS, PatternRun

TYPES_MAX = 65_536
"""Types whose masks are remembered."""
SPARSE = 256
"""Where of so many counters, from a node's lowest to its highest, fewer than one is there, they are
taken one by one."""
MARKS_MAX = 1 << 26
"""Where there would be more, they are as well."""
_SHAPES = {"type", "compare", "member", "exists", "matches"}
"""Atoms that read no more of an event than the fields and attributes that they name."""


class Coded(NamedTuple):
    """A column of few different values.

    Attributes
    ----------
    codes : numpy.ndarray of int
        Of each row the number of its value; -1 for none.
    values : list
        The values, by number.
    """

    codes: Any
    values: list[Any]


class _Numbers(dict[Any, int]):
    """Numbers of values, as they come."""

    def __init__(self) -> None:
        self[None] = -1

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self) - 1
        return number


def coded(column: Sequence[Hashable]) -> Coded:
    """Return a column with its values numbered, as they come; None is no value."""
    import numpy

    numbers = _Numbers()
    codes = map(numbers.__getitem__, column)
    coded = numpy.fromiter(codes, dtype=numpy.int64, count=len(column))
    return Coded(coded, [*numbers][1:])


def in_order(codes: Any, count: int) -> Any:
    """Return the rows in the order of their codes, those of one code as they came."""
    import numpy

    # Short numbers are sorted by their digits, which is several times as fast.
    kind = numpy.uint16 if count <= 1 << 16 else numpy.uint32
    return numpy.argsort(codes.astype(kind), kind="stable")


class Columns(NamedTuple):
    """Events in turn; each column has a row for each of them.

    Attributes
    ----------
    nodes : Coded
        Their nodes.
    counters : numpy.ndarray of int
        Their own entries.
    masks : Coded
        The truth of the pattern's local atoms.
    keys : Coded
        The values of the attribute that tells scopes, where it is a string or an integer.
    texts : sequence of bytes
        Each as a JSON object that `decode_event` reads.
    """

    nodes: Coded
    counters: Any
    masks: Coded
    keys: Coded
    texts: Sequence[bytes]

    @property
    def rows(self) -> int:
        """How many events there are."""
        return len(self.texts)

    def part(self, first: int, last: int) -> Columns:
        """Return the rows from one on, up to another."""
        nodes, counters, masks, keys, texts = self
        return Columns(
            Coded(nodes.codes[first:last], nodes.values),
            counters[first:last],
            Coded(masks.codes[first:last], masks.values),
            Coded(keys.codes[first:last], keys.values),
            texts[first:last],
        )

    def told(self, rows: list[int]) -> Iterator[tuple[Dot, str, float | None]]:
        """Yield the dots, types and times of some rows."""
        values, texts = self.nodes.values, self.texts
        codes, counters = self.nodes.codes[rows].tolist(), self.counters[rows].tolist()
        for row, code, counter in zip(rows, codes, counters, strict=True):
            yield Dot(values[code], counter), *type_and_time(texts[row])

    def event(self, row: int) -> Event:
        """Return the event of a row."""
        return decode_event(self.texts[row])

    # --- what `Intake` and `Contents` ask ---

    def contents(self) -> Iterator[Row]:
        """Yield what is kept of each event."""
        return digests(self.texts)

    def beginnings(self, last: int) -> Iterator[tuple[str, bytes]]:
        """Yield node and digest of the events up to a row that are the first of their nodes."""
        for row in (self.counters[:last] == 1).nonzero()[0].tolist():
            event = self.event(row)
            yield event.node, digest(event)

    def lines(self) -> Iterator[Line]:
        """Yield of each node which of its events there are."""
        import numpy

        nodes, codes, counters = self.nodes.values, self.nodes.codes, self.counters
        counts = numpy.bincount(codes, minlength=len(nodes))
        firsts = numpy.full(len(nodes), counters.max())
        numpy.minimum.at(firsts, codes, counters)
        firsts //= SPAN
        offsets = counters - firsts[codes] * SPAN
        width = (int(offsets.max()) // SPAN + 1) * SPAN
        if width * len(nodes) > min(SPARSE * len(codes), MARKS_MAX):
            order, ends = in_order(codes, len(nodes)), counts.cumsum()
            for code in counts.nonzero()[0].tolist():
                own = order[ends[code] - counts[code] : ends[code]]
                yield _line(nodes[code], int(counts[code]), bits_of(counters[own].tolist()))
            return
        there = numpy.zeros((len(nodes), width), dtype=numpy.uint8)
        there.ravel()[codes * width + offsets] = 1
        packed = numpy.packbits(there, axis=1, bitorder="little")
        for code in counts.nonzero()[0].tolist():
            row = packed[code].tobytes()
            chunks = (
                int.from_bytes(row[at : at + (SPAN >> 3)], "little")
                for at in range(0, len(row), SPAN >> 3)
            )
            found = {n: some for n, some in enumerate(chunks, int(firsts[code])) if some}
            yield _line(nodes[code], int(counts[code]), found)


def _line(node: str, number: int, bits: dict[int, int]) -> Line:
    """Return so many events of a node: of each chunk, by number, the bits of their counters."""
    first, last = min(bits), max(bits)
    least = first * SPAN + (bits[first] & -bits[first]).bit_length() - 1
    most = last * SPAN + bits[last].bit_length() - 1
    in_turn = number == most - least + 1 == sum(map(int.bit_count, bits.values()))
    return Line(node, least, most, number, None if in_turn else bits)


@dataclass(frozen=True)
class Reads:
    """What a pattern reads of an event that is no clock and no time.

    Parameters
    ----------
    key : str
        The attribute that tells scopes.
    attributes : tuple of str
        Those that guards read.
    node : bool
        Whether guards read the node.
    """

    key: str
    attributes: tuple[str, ...]
    node: bool


def reads(compiled: CompiledPattern) -> Reads | None:
    """Return what a pattern reads of its events; None where it needs more than columns.

    Parameters
    ----------
    compiled : CompiledPattern
        A check under arrival order can be judged of columns, if it has one plain key, a scope of
        it is never over, and no guard is registered or reads the time.
    """
    p, key = compiled.pattern, compiled.plain_key
    if compiled.kind != "check" or key is None or reads_clocks(compiled) or p.topology is not None:
        return None
    if 0 in compiled.automaton.finals:
        return None  # What is back at the beginning is let go; then scopes come and go in turn.
    attributes: dict[str, None] = {}
    fields: set[str] = set()
    for atom in compiled.automaton.atoms:
        if atom.relational:
            continue  # Where one decides, the event itself is asked.
        if atom.shape not in _SHAPES:
            return None
        for part in atom.payload:
            for node in syntax.walk(part) if isinstance(part, syntax.Node) else ():
                if isinstance(node, syntax.Attribute):
                    attributes[node.path[0]] = None
                if isinstance(node, syntax.Field):
                    fields.add(node.name)
    if not fields <= {"type", "node"}:
        return None
    return Reads(key, tuple(attributes), "node" in fields)


class _Row:
    """What guards read of a row."""

    __slots__ = ("data", "node", "type")

    def __init__(self, type_: str, node: str, data: Mapping[str, Any]) -> None:
        self.type, self.node, self.data = type_, node, data


class Reader:
    """Makes the columns that a pattern is judged of.

    Parameters
    ----------
    run : PatternRun
        The pattern.
    read : Reads
        What it reads.

    Attributes
    ----------
    key : str
        The attribute that tells scopes.
    guarded : tuple of str
        The attributes that guards read.
    """

    def __init__(self, run: PatternRun, read: Reads) -> None:
        self._mask = run.machine.compiled.mask
        self.key, self.guarded = read.key, read.attributes
        self._types_alone = not (read.attributes or read.node)
        self._masks: dict[str, int] = {}  # of types, where nothing else is read

    def columns(
        self,
        nodes: Coded,
        counters: Any,
        types: Coded,
        keys: Coded,
        data: Mapping[str, Sequence[Any]],
        texts: Sequence[bytes],
    ) -> Columns:
        """Return the columns of events of which these are known.

        Parameters
        ----------
        nodes, types : Coded
            Where and what.
        counters : sequence of int
            The own entries.
        keys : Coded
            The attribute that tells scopes, where it is a string or an integer.
        data : mapping of str to sequence
            The attributes that guards read, `guarded`.
        texts : sequence of bytes
            The events as JSON.
        """
        import numpy

        counted = numpy.asarray(counters, dtype=numpy.int64)
        return Columns(nodes, counted, self._masks_of(nodes, types, data), keys, texts)

    def _masks_of(self, nodes: Coded, types: Coded, data: Mapping[str, Sequence[Any]]) -> Coded:
        if self._types_alone:
            known = self._masks
            if len(known) + len(types.values) > TYPES_MAX:
                known.clear()
            for kind in types.values:
                if kind not in known:
                    known[kind] = self._mask(_Row(kind, "", {}))  # type: ignore[arg-type]
            masks = coded([known[kind] for kind in types.values])
            return Coded(masks.codes[types.codes], masks.values)
        columns = [data[name] for name in self.guarded]
        values = zip(*columns, strict=True) if columns else ((),) * len(nodes.codes)
        rows = zip(types.codes.tolist(), nodes.codes.tolist(), values, strict=True)
        return coded(
            [
                self._mask(
                    _Row(  # type: ignore[arg-type]
                        types.values[kind],
                        nodes.values[node],
                        dict(zip(self.guarded, row, strict=True)),
                    )
                )
                for kind, node, row in rows
            ]
        )


def coded_keys(values: Sequence[Any]) -> Coded:
    """Return a column of keys; those that are no strings or integers have none, true is not 1."""
    if {value.__class__ for value in values} <= PLAIN_KINDS.keys():
        return coded(values)
    return coded([value if value.__class__ in PLAIN_KINDS else None for value in values])
