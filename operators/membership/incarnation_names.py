"""Names of incarnations: which runs of each node there are, and how far each has counted.

The names of each node are kept, with their places in the order of incarnations, so that a clock is
searched for them at a cost of the smaller of the two.

The one rule: each incarnation of a node that has several is in `bases`, with its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ketal.errors import EventError
from ketal.model.events.event import Event
from ketal.model.events.incarnation import name_of, number_of
from ketal.model.values import base_node
from ketal.operators.stateful import Stateful


def later_run(name: str) -> tuple[str, int] | None:
    """Return node and number of a later incarnation's name: (`A`, 2) for `A#2`, None for `A`."""
    base = base_node(name)
    number = number_of(name[len(base) + 1 :]) or 1
    return (base, number) if number > 1 and name_of(base, number) == name else None


def restarted(nodes: Iterable[str], named: Iterable[str]) -> set[str]:
    """Return the later incarnations among nodes, with all earlier ones: `A#2` and `A` for `A#2`.

    `named` are the nodes that clocks name: an earlier incarnation may have no event.
    """
    runs = {node: run for node in nodes if (run := later_run(node)) is not None}
    last: dict[str, int] = {}
    for base, number in runs.values():
        last[base] = max(number, last.get(base, 0))
    earlier = {
        name
        for name in (named if last else ())
        if (run := later_run(name)) is not None and run[1] < last.get(run[0], 0)
    }
    return {*runs, *last, *earlier}


class IncarnationTable(Stateful):
    """The incarnations of each node that has several, by number: at most `incarnations_max`."""

    STATE: ClassVar = "highest", "numbers", "numbered"

    def __init__(self, incarnations_max: int) -> None:
        self.incarnations_max = incarnations_max
        self.highest: dict[str, int] = {}  # the highest counter of each incarnation
        self.numbers: dict[str, tuple[int, ...]] = {}
        """The incarnations of each node that restarted or numbers its incarnations, in order."""
        self.numbered: set[str] = set()  # the nodes whose programs number their incarnations
        self.bases: dict[str, str] = {}  # the node of each incarnation in `numbers`
        self._named_runs: dict[str, set[int]] = {}  # of nodes whose programs write `A#2`
        self._places: dict[str, dict[str, int]] = {}  # of `places`, until a name is added

    def begin(self, highest: Mapping[str, int]) -> None:
        """Load the highest counters of an execution in which no node restarted yet."""
        self.highest = dict(highest)
        for name in highest:
            self._add_named(name)

    def names(self, base: str) -> list[str]:
        """Return the incarnations of a node, earliest first; itself where there is one."""
        return list(self.places(base))

    def places(self, base: str) -> dict[str, int]:
        """Return the incarnations of a node, earliest first, with their places in that order."""
        if base not in self.numbers and base not in self._named_runs:
            return {base: 0}
        places = self._places.get(base)
        if places is None:
            numbers = sorted({*self.numbers.get(base, (1,)), *self._named_runs.get(base, ())})
            places = {name_of(base, number): place for place, number in enumerate(numbers)}
            self._places[base] = places
        return places

    def node_of(self, name: str) -> str | None:
        """Return the node of which a name is an incarnation in `places`; None for a node itself."""
        base = base_node(name)
        return base if base != name and name in self.places(base) else None

    def base(self, name: str) -> str:
        """Return the node of an incarnation in the table; any other name unchanged."""
        base = base_node(name)
        return base if base in self._named_runs else self.bases.get(name, name)

    @property
    def restarts(self) -> int:
        """How many restarts were detected by a counter of 1, at nodes that do not number them."""
        return sum(
            len(numbers) - 1 for node, numbers in self.numbers.items() if node not in self.numbered
        )

    def count(self, name: str, counter: int) -> None:
        """Raise the highest counter of an incarnation to that of a new event."""
        if counter > self.highest.get(name, 0):
            if name not in self.highest:
                self._add_named(name)
            self.highest[name] = counter

    def add(self, base: str, number: int, event: Event, *, with_first: bool) -> None:
        """Add an incarnation of a node and, if `with_first`, the node's first one too.

        Raises an EventError, which names the event, if there are `incarnations_max` already.
        """
        if len(self.bases) >= self.incarnations_max:
            raise EventError(
                f"{base} restarted, but there are already {self.incarnations_max} incarnations "
                "(limit incarnations_max)",
                place=str(event.dot),
            )
        numbers = self.numbers.get(base, (1,) if with_first else ())
        self.numbers[base] = tuple(sorted((*numbers, number)))
        for one in (number, *numbers[:1]):
            self.bases[name_of(base, one)] = base
        self._places.pop(base, None)

    def _add_named(self, name: str) -> None:
        """Add an incarnation that the program named itself; no clock entry is resolved to it."""
        # A run that was inferred or numbered has another base; a run that restarted has its own.
        run = later_run(name) if self.bases.get(name, name) == name else None
        if run is not None:
            self._named_runs.setdefault(run[0], set()).add(run[1])
            self._places.pop(run[0], None)

    def _computed_bases(self) -> dict[str, str]:
        """Return `bases`, computed from `numbers`."""
        return {name_of(base, n): base for base, numbers in self.numbers.items() for n in numbers}

    def load(self, state: Any) -> None:
        """Load what `save` returned into a fresh table."""
        super().load(state)
        self.bases = self._computed_bases()
        self.begin(self.highest)

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        assert self.bases == self._computed_bases()
        assert all(numbers == tuple(sorted({*numbers})) for numbers in self.numbers.values())
        for base, places in self._places.items():
            numbers = {*self.numbers.get(base, (1,)), *self._named_runs.get(base, ())}
            assert list(places.items()) == [
                (name_of(base, number), place) for place, number in enumerate(sorted(numbers))
            ]
