"""Interval tree clocks: identities that are split and joined without a register of nodes.

The identities of all replicas are disjoint parts of the interval [0, 1). An identity is a
tree: 0 (nothing), 1 (all) or (left, right) for the two halves. The events that a replica knows are
a function from the interval to counters, also a tree: n, or (n, left, right), where n is added to
both halves. An event increments this function somewhere within the replica's own part, which no
other replica owns; `fork` splits the part, `join` unites two parts. a → b iff a's function is
nowhere greater than b's, and the two are not equal.

Almeida, Baquero and Fonte, "Interval Tree Clocks: A Logical Clock for Dynamic Systems", OPODIS
2008, sections 4 and 5; the names `fork`, `event`, `join`, `peek`, `fill` and `grow` are theirs.

The one rule: trees are in normal form: no (0, 0), (1, 1) or (n, m, m), and one of two halves has
the base 0. Two trees are then equal iff they represent the same function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ketal.clocks.scheme import ForkingScheme, checked_counter, not_a_stamp

Identity: TypeAlias = "int | tuple[Identity, Identity]"
"""An owned part of the interval: 0, 1, or the parts of both halves."""
Events: TypeAlias = "int | tuple[int, Events, Events]"
"""A function from the interval to numbers of known events."""

DEPTH_MAX = 200
"""Maximum depth of a tree that is read; each fork adds a level."""
_DEEPER = 1_000_000
"""The cost of adding leaves when a tree grows, so large that an increment is preferred."""


@dataclass(frozen=True, slots=True)
class IntervalTreeClock:
    """The state of a replica: its part of the interval, and the events that it knows."""

    identity: Identity
    """The part of the interval in which the replica may count events; 0 for a stamp."""
    events: Events


SEED = IntervalTreeClock(1, 0)
"""The replica from which all others are forked."""


def fork(clock: IntervalTreeClock) -> tuple[IntervalTreeClock, IntervalTreeClock]:
    """Return two replicas with the same known events, each with a part of the identity."""
    first, second = _split(clock.identity)
    return IntervalTreeClock(first, clock.events), IntervalTreeClock(second, clock.events)


def peek(clock: IntervalTreeClock) -> IntervalTreeClock:
    """Return the known events of a replica without its identity: a stamp or a header."""
    return IntervalTreeClock(0, clock.events)


def event(clock: IntervalTreeClock) -> IntervalTreeClock:
    """Return the replica after an event; raise a ValueError if it owns no part of the interval."""
    if clock.identity == 0:
        raise ValueError("an anonymous interval tree clock cannot register an event")
    filled = _fill(clock.identity, clock.events)
    if filled != clock.events:
        return IntervalTreeClock(clock.identity, filled)
    return IntervalTreeClock(clock.identity, _grow(clock.identity, clock.events)[0])


def join(a: IntervalTreeClock, b: IntervalTreeClock) -> IntervalTreeClock:
    """Return a replica with both identities and the known events of both.

    Raises a ValueError if the identities overlap.
    """
    return IntervalTreeClock(_sum(a.identity, b.identity), _joined(a.events, b.events))


def leq(a: Events, b: Events) -> bool:
    """Return whether the function `a` is nowhere greater than `b`."""
    if isinstance(a, int):
        return a <= _base(b)
    n, left, right = a
    m, others_left, others_right = _halved(b)
    return (
        n <= m
        and leq(_lift(left, n), _lift(others_left, m))
        and leq(_lift(right, n), _lift(others_right, m))
    )


def _split(identity: Identity) -> tuple[Identity, Identity]:
    if identity == 0:
        return 0, 0
    if isinstance(identity, int):
        return (1, 0), (0, 1)
    left, right = identity
    if left == 0:
        first, second = _split(right)
        return (0, first), (0, second)
    if right == 0:
        first, second = _split(left)
        return (first, 0), (second, 0)
    return (left, 0), (0, right)


def _sum(a: Identity, b: Identity) -> Identity:
    if a == 0:
        return b
    if b == 0:
        return a
    if isinstance(a, int) or isinstance(b, int):
        raise ValueError("two interval tree clocks with overlapping identities cannot be joined")
    return _identity(_sum(a[0], b[0]), _sum(a[1], b[1]))


def _identity(left: Identity, right: Identity) -> Identity:
    """Return the normal form of an identity with two halves."""
    return left if isinstance(left, int) and left == right else (left, right)


def _base(events: Events) -> int:
    """Return the least value of a function in normal form."""
    return events if isinstance(events, int) else events[0]


def _top(events: Events) -> int:
    """Return the greatest value of a function."""
    if isinstance(events, int):
        return events
    return events[0] + max(_top(events[1]), _top(events[2]))


def _halved(events: Events) -> tuple[int, Events, Events]:
    """Return the base and the two halves of a function."""
    return (events, 0, 0) if isinstance(events, int) else events


def _lift(events: Events, by: int) -> Events:
    if isinstance(events, int):
        return events + by
    return events[0] + by, events[1], events[2]


def _events(n: int, left: Events, right: Events) -> Events:
    """Return the normal form of a function with a base and two halves in normal form."""
    if isinstance(left, int) and left == right:
        return n + left
    least = min(_base(left), _base(right))
    return n + least, _lift(left, -least), _lift(right, -least)


def _joined(a: Events, b: Events) -> Events:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if _base(a) > _base(b):
        a, b = b, a
    n, left, right = _halved(a)
    m, others_left, others_right = _halved(b)
    difference = m - n
    return _events(
        n,
        _joined(left, _lift(others_left, difference)),
        _joined(right, _lift(others_right, difference)),
    )


def _fill(identity: Identity, events: Events) -> Events:
    """Return the events, raised within the identity if that simplifies the tree, else unchanged."""
    if identity == 0 or isinstance(events, int):
        return events
    if isinstance(identity, int):
        return _top(events)
    n, left, right = events
    if identity[0] == 1:
        right = _fill(identity[1], right)
        return _events(n, max(_top(left), _base(right)), right)
    if identity[1] == 1:
        left = _fill(identity[0], left)
        return _events(n, left, max(_top(right), _base(left)))
    return _events(n, _fill(identity[0], left), _fill(identity[1], right))


def _grow(identity: Identity, events: Events) -> tuple[Events, int]:
    """Return the events incremented within the identity at the least cost, and that cost."""
    if isinstance(events, int):
        if identity == 1:
            return events + 1, 0
        grown, cost = _grow(identity, (events, 0, 0))
        return grown, cost + _DEEPER
    assert isinstance(identity, tuple), "_fill has been applied"
    n, left, right = events
    if identity[0] == 0:
        grown, cost = _grow(identity[1], right)
        return (n, left, grown), cost + 1
    if identity[1] == 0:
        grown, cost = _grow(identity[0], left)
        return (n, grown, right), cost + 1
    grown, cost = _grow(identity[0], left)
    other, others_cost = _grow(identity[1], right)
    if cost < others_cost:
        return (n, grown, right), cost + 1
    return (n, left, other), others_cost + 1


class IntervalTreeClocks(ForkingScheme[IntervalTreeClock]):
    """Interval tree clocks, with all nodes forked evenly from one seed.

    A stamp has no identity (`peek`), which keeps it small.
    """

    name = "itc"
    decides = True

    def seed(self) -> IntervalTreeClock:
        """Return the seed."""
        return SEED

    def fork(self, replica: IntervalTreeClock) -> tuple[IntervalTreeClock, IntervalTreeClock]:
        """Return two replicas with the same known events, each with a part of the identity."""
        return fork(replica)

    def join(self, a: IntervalTreeClock, b: IntervalTreeClock) -> IntervalTreeClock:
        """Return a replica with both identities and the known events of both."""
        return join(a, b)

    def event(
        self,
        replica: IntervalTreeClock,
        received: Iterable[IntervalTreeClock] = (),
        *,
        time_us: int = 0,
    ) -> tuple[IntervalTreeClock, IntervalTreeClock]:
        """Stamp an event with the events that the replica knows after it."""
        for message in received:
            replica = join(replica, message)
        replica = event(replica)
        return replica, peek(replica)

    def precedes(self, a: IntervalTreeClock, b: IntervalTreeClock) -> bool:
        """Return whether a's function is nowhere greater than b's, and different."""
        return a.events != b.events and leq(a.events, b.events)

    def written(self, stamp: IntervalTreeClock) -> Any:
        """Return the tree of events as lists: `[1, 2, [0, 1, 0]]`."""
        return _to_lists(stamp.events)

    def text(self, stamp: IntervalTreeClock) -> str:
        """Return the tree of events in the paper's literal form."""
        return str(stamp.events)

    def read(self, value: Any, node: str) -> IntervalTreeClock:
        """Return the stamp of a tree given as lists."""
        return IntervalTreeClock(0, _read_events(value, value, DEPTH_MAX))


def _to_lists(events: Events) -> Any:
    return events if isinstance(events, int) else [events[0], *map(_to_lists, events[1:])]


def _read_events(value: Any, root: Any, depth: int) -> Events:
    if isinstance(value, list) and len(value) == 3 and depth:
        base = checked_counter(value[0], "a base of an interval tree clock")
        left, right = (_read_events(half, root, depth - 1) for half in value[1:])
        return _events(base, left, right)
    if isinstance(value, int):
        return checked_counter(value, "a leaf of an interval tree clock")
    raise not_a_stamp("itc", f"n or [n, left, right], with at most {DEPTH_MAX} levels", root)


def literal(clock: IntervalTreeClock) -> str:
    """Return a clock in the paper's literal form: `((1, 0), (1, 2, 0))`."""
    return str((clock.identity, clock.events))
