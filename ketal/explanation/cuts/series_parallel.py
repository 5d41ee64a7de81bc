"""Decomposes an execution into parts that follow one another, or run in parallel.

An order is *parallel* if its events are of several components with no link between them, *series*
if its events fall into blocks of which each is before the next as a whole; otherwise it is one
event, or *prime*. Series and parallel exclude each other, and the parts are unique (Gallai,
"Transitiv orientierbare Graphen", 1967; Möhring, "Computationally tractable classes of ordered
sets", 1989). They are the upper levels of the modular decomposition. The modules within a prime
order are not computed: enumerating its cuts visits each position of a line anyway, so they would
save little.

Each node's events form a line, so a part consists of pieces of some lines. A component has some of
the pieces of the part above it, unchanged; a block begins where the block before it ends.

Any linear extension has the events of each block together, so a part's blocks are found in one. The
first k of its n events are before all others if and only if all k(n - k) pairs of a first event and
another one are ordered. From k to k + 1, the ordered pairs of the next event with events after it
are added, and those with events before it are removed; so only these two numbers are needed of each
event.

Parts are nested at most twice as deep as there are nodes, and each level costs one look-up per
event and entry in its past, or line of the part where these are fewer.

The one rule: an event is after another if links of the causal graph lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from ketal.errors import EventError
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical

PartKind = Literal["event", "series", "parallel", "prime"]
Place = tuple[int, int]
"""An event: its line, and its place there."""
Piece = tuple[int, int]
"""The start and the end (exclusive) of a piece of a line."""


@dataclass(slots=True, eq=False)
class OrderPart:
    """A part of an execution."""

    pieces: dict[int, Piece]
    """The piece of each line that the part has events of, by the line's number."""
    kind: PartKind = "prime"
    """How the part is composed; a prime part is not divided further."""
    parts: list[OrderPart] = field(default_factory=list)
    """The parts of a series, in order, or those of a parallel part."""

    @property
    def size(self) -> int:
        """How many events the part has."""
        return sum(stop - start for start, stop in self.pieces.values())


class EventOrder:
    """Happened-before on the events of an execution, as lines and the past of each event.

    `EventError` if the clocks are not those of an execution.
    """

    def __init__(self, graph: CausalGraph) -> None:
        self.lines = list(graph.nodes.values())
        """The events of each node in program order."""
        numbers = {node: number for number, node in enumerate(graph.nodes)}
        places = {e.dot: place for own in self.lines for place, e in enumerate(own)}
        self.known: list[list[dict[int, int]]] = [[] for _ in self.lines]
        """For each event of each line, how many events of each other line are before it, by the
        links to it and to the events before it."""
        self.causes: list[list[list[Place]]] = [[] for _ in self.lines]
        """For each event of each line, the events of other lines that happened immediately before
        it."""
        self._rank: list[list[int]] = [[] for _ in self.lines]
        events = canonical(event for own in self.lines for event in own)
        for rank, event in enumerate(events):
            line, place = numbers[event.node], places[event.dot]
            if len(self.known[line]) != place:
                raise _clock_error(self.lines[line][place - 1], event)
            known = dict(self.known[line][place - 1]) if place else {}
            messages = graph.messages_to(event)
            causes = [(numbers[sent.node], places[sent.dot]) for sent in messages]
            for sent, (other, at) in zip(messages, causes, strict=True):
                if len(self.known[other]) <= at:
                    raise _clock_error(sent, event)
                for number, upto in (*self.known[other][at].items(), (other, at + 1)):
                    if number != line and upto > known.get(number, 0):
                        known[number] = upto
            self.known[line].append(known)
            self.causes[line].append(causes)
            self._rank[line].append(rank)

    def decompose(self) -> list[OrderPart]:
        """Return all parts, each before its own parts; the first is the whole execution."""
        parts = [OrderPart({number: (0, len(own)) for number, own in enumerate(self.lines)})]
        for part in parts:
            if part.size == 1:
                part.kind = "event"
            elif len(components := self._components(part.pieces)) > 1:
                part.kind, part.parts = "parallel", list(map(OrderPart, components))
            elif len(blocks := list(self._blocks(part.pieces))) > 1:
                part.kind, part.parts = "series", list(map(OrderPart, blocks))
            parts += part.parts
        return parts

    def _components(self, pieces: Mapping[int, Piece]) -> list[dict[int, Piece]]:
        """Return the components of a part: the pieces of lines that links connect."""
        # Union-find: a line leads to the first line of its component.
        first = {line: line for line in pieces}

        def component(line: int) -> int:
            while first[line] != line:
                first[line] = first[first[line]]
                line = first[line]
            return line

        for line, (_, stop) in pieces.items():
            # The last event of a piece knows everything that the other events of the piece know.
            for other, _ in self.known_in(pieces, line, stop - 1):
                low, high = sorted((component(line), component(other)))
                first[high] = low
        components: dict[int, dict[int, Piece]] = {}
        for line, piece in pieces.items():
            components.setdefault(component(line), {})[line] = piece
        return list(components.values())

    def known_in(
        self, pieces: Mapping[int, Piece], line: int, place: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the other lines of which a part has events before one, and how many, unordered."""
        known = self.known[line][place]
        for other in known if len(known) < len(pieces) else pieces:
            if other in pieces and other in known:
                start, stop = pieces[other]
                if known[other] > start:
                    yield other, min(known[other], stop) - start

    def _blocks(self, pieces: Mapping[int, Piece]) -> Iterator[dict[int, Piece]]:
        """Yield the blocks of a part in order."""
        events = sorted(
            (self._rank[line][place], line, place)
            for line, (start, stop) in pieces.items()
            for place in range(start, stop)
        )
        before: list[int] = []
        # For each line and k, how many events have exactly the first k events of it before them.
        knowing = {line: [0] * (stop - start + 1) for line, (start, stop) in pieces.items()}
        for _, line, place in events:
            counts = dict(self.known_in(pieces, line, place))
            counts[line] = place - pieces[line][0]
            before.append(sum(counts.values()))
            for other, count in counts.items():
                knowing[other][count] += 1
        after = {line: list(accumulate(reversed(counts)))[::-1] for line, counts in knowing.items()}
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        ordered = 0
        for number, (_, line, place) in enumerate(events, 1):
            starts.setdefault(line, place)
            ends[line] = place + 1
            ordered += after[line][place - pieces[line][0] + 1] - before[number - 1]
            if ordered == number * (len(events) - number):
                yield {line: (starts[line], ends[line]) for line in sorted(starts)}
                starts, ends = {}, {}


def _clock_error(before: Event, event: Event) -> EventError:
    return EventError(
        f"inconsistent clocks: {event.dot} is after {before.dot}, but its clock is lower; "
        "run `ketal audit` to find the fault"
    )
