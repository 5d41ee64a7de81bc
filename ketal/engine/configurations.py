"""Configurations: the states of a run, as values.

A configuration is a value: a state of the automaton and its live registers (Kaminski and
Francez, "Finite-memory automata", 1994). `ketal.engine.machine` computes the configurations that
an event leads to.

The one rule: a register that is not live in the state is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ketal.model.events.dot import Dot, dot_of
from ketal.model.events.event import Event, load_event, save_event
from ketal.model.events.event_time import microseconds
from ketal.model.events.happened_before import CanonicalKey, canonical_key
from ketal.operators.history import History

_NOT_READ: Final = -1 << 60
"""Before every time: that of an event whose time was not read yet."""


class JointPast(NamedTuple):
    """The joint past of several events, all of which happened before one event.

    `own` has the last counter of each node among them; `others` is the join of their clocks,
    each without the entry of the event's own node.
    """

    own: dict[str, int]
    others: dict[str, int]

    def first_allowed(self, node: str) -> int:
        """Return the least counter of `node` whose event happened before none of the events."""
        return max(self.own.get(node, 0), self.others.get(node, 0) + 1)


class Seen:
    """An event as one scope was offered it."""

    __slots__ = (
        "_bound", "_bound_by", "_joint_pasts", "_key", "_time_us", "clock", "counter", "event",
        "mask", "node", "place",
    )  # fmt: skip

    def __init__(self, event: Event, mask: int, place: int) -> None:
        self.event = event
        self.mask = mask  # the truth of the local atoms, `localhost` included
        self.place = place  # its position among the events that the scope was offered, from 0
        self.node = event.node
        self.clock = event.clock
        self.counter = self.clock[self.node]
        self._time_us = _NOT_READ
        # The pair of `bound_by`, and its step. mypyc would copy what it knows to be a pair.
        self._bound: Any = None
        self._bound_by = ""
        self._key: CanonicalKey | None = None
        self._joint_pasts: dict[int, JointPast] | None = None

    @property
    def joint_pasts(self) -> dict[int, JointPast]:
        """A cache: by `not`, the joint past of the events before this one that break it."""
        if self._joint_pasts is None:
            self._joint_pasts = {}
        return self._joint_pasts

    @property
    def time_us(self) -> int:
        """Event time in whole microseconds since the epoch, which only time windows read."""
        if self._time_us == _NOT_READ:
            time_us = microseconds(self.event.time)
            assert time_us is not None, "events without a time are offered to no time window"
            self._time_us = time_us
        return self._time_us

    @property
    def dot(self) -> Dot:
        """The event's identity."""
        return dot_of((self.node, self.counter))

    def bound_by(self, step: str) -> Any:
        """Return (step, dot), as the verdicts list it; most often it is one object for all."""
        if self._bound_by is not step:
            self._bound, self._bound_by = (step, self.dot), step
        return self._bound

    @property
    def key(self) -> CanonicalKey:
        """The event's place in the canonical order."""
        if self._key is None:
            self._key = canonical_key(self.event)
        return self._key

    def last_before(self, node: str) -> int:
        """Return the counter of the last event of `node` that happened before this one, or 0."""
        counter = self.clock.get(node, 0)
        return counter - 1 if node == self.node else counter

    def __repr__(self) -> str:
        return f"<{self.dot} at {self.place}>"


class Configuration(NamedTuple):
    """A state and its live registers; those that are not live are None."""

    state: int
    prior: Seen | None  # the last event taken
    bound: tuple[Seen | None, ...]  # the last event of each step that some guard reads
    history: History | None  # a summary of all events taken
    # For each `not` guard, whether an event has broken it since the prior one; empty for none.
    broken: tuple[bool, ...]

    def save(self, seens: SeenTable) -> Any:
        """Return the configuration as plain data; `seens` numbers its events."""
        history = None
        if self.history is not None:
            h = self.history
            history = [dict(h.first), dict(h.last), dict(h.join)]
        prior, bound = seens.number(self.prior), [seens.number(seen) for seen in self.bound]
        return (self.state, prior, bound, history, self.broken)

    @classmethod
    def load(cls, value: Any, seens: SeenTable) -> Configuration:
        """Return the configuration that `save` wrote."""
        state, prior, bound, history, broken = value
        return cls(
            state,
            seens.seen(prior),
            tuple([seens.seen(number) for number in bound]),
            None if history is None else History(*history),
            tuple(broken),
        )


class SeenTable:
    """The events of a saved run, each written once; the run refers to them by number."""

    __slots__ = ("_numbers", "_seens")

    def __init__(self, seens: Iterable[Seen] = ()) -> None:
        self._seens = list(seens)
        self._numbers: dict[Seen, int] = {}

    def number(self, seen: Seen | None) -> int | None:
        """Return the number of an event, assigning the next one on first use; None for None."""
        if seen is None:
            return None
        number = self._numbers.get(seen)
        if number is None:
            number = self._numbers[seen] = len(self._seens)
            self._seens.append(seen)
        return number

    def seen(self, number: int | None) -> Seen | None:
        """Return the event with a number; None for None."""
        return None if number is None else self._seens[number]

    def __getitem__(self, number: int) -> Seen:
        return self._seens[number]

    def save(self) -> list[Any]:
        """Return the events as plain data, in the order of their numbers."""
        return [(save_event(seen.event), seen.mask, seen.place) for seen in self._seens]

    @classmethod
    def load(cls, rows: Iterable[Any]) -> SeenTable:
        """Return the table of the events that `save` returned."""
        return cls(Seen(load_event(event), mask, place) for event, mask, place in rows)


def states(configurations: Iterable[Configuration]) -> tuple[int, ...]:
    """Return the states that configurations are in."""
    return tuple(sorted({c.state for c in configurations}))
