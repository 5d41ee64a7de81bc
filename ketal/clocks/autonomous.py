"""Autonomous causality: stamps of instances of data that have no global names.

Processes and messages are *instances*. An instance has internal events; a *duplication* is the last
event of one instance, from which two begin; a *combination* is the first event of an instance that
two others, which end, become. Instances are named by whoever makes them: the identifier of a
duplicated one and 0 or 1, of a combined one and ◇ (here the letter c, for "combined": one byte in
UTF-8, where ◇ has three). A stamp is a triple (I, N, Eq): the identifier, the number of the event
in its instance, and the pairs of identifiers that were combined in its past.

Of events of different instances, a → b iff a's identifier is an ancestor of b's: a's whole instance
had ended before b's began. The ancestors are the set A(I), of the identifiers with their initial
segments S(I) and with what was combined with one of those:

    A(nil) = {},  A(I) = S(I) and A(Eq(t)) of each t in S(I), together

Read as a procedure this does not end: Eq is symmetric, so A(m) calls A(n) for a pair (m, n), and
A(n) calls A(m); the least solution is meant. An instance ends once, so an identifier is
combined at most once, and Eq(t) is one identifier or nil. By induction over the operations all of
Eq is in a stamp's past, and of a pair only the one identifier goes on, with a ◇; so the least
solution is S(I) and the initial segments of those that do not go on. `precedes` searches these.

Baquero and Moura, "Causality in Autonomous Mobile Systems", Definitions 4.1, 5.1, 5.2 and
Lemma 5.1. The lemma needs the virtual events (N = 0) with which instances begin: an instance may be
combined before any other event, as messages are, and if its virtual event were no event of it,
nothing would link its duplication to its combination under Definition 4.1.

The one rule: an instance is duplicated or combined once, and after that has no events.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, TypeAlias

from ketal.clocks.scheme import Clock, ForkingScheme, counter_of, not_a_stamp
from ketal.errors import EventError

COMBINED = "c"
"""The symbol of an identifier that stands for the paper's ◇."""
_FORM = 'an identifier of 0, 1 and c, a number and pairs: ["00c", 1, [["01", "00"]]]'

Pairs: TypeAlias = "tuple[tuple[str, str], ...]"
"""The set Eq: of each pair first the identifier that ended, then that to which ◇ was added."""


@dataclass(frozen=True, slots=True)
class AutonomousStamp:
    """The stamp of an event: the last one of its instance, so it is the instance's state too.

    Attributes
    ----------
    identifier : str
        I: the name of the instance, of 0, 1 and c.
    index : int
        N: the number of the event in the instance; 0 of the virtual event before its first.
    combined : tuple of (str, str)
        Eq: the pairs of identifiers that were combined in its past, sorted. Of each, the second is
        the one that goes on with c.
    """

    identifier: str
    index: int = 0
    combined: Pairs = ()

    def __str__(self) -> str:
        """Return the paper's notation: `00◇{1} 00/01`."""
        pairs = (f" {on}/{ended}" for ended, on in self.combined)
        return f"{self.identifier}{{{self.index}}}{''.join(pairs)}".replace(COMBINED, "◇")


ROOT = AutonomousStamp("0")
"""The first instance, of which all others are made."""


def internal(instance: AutonomousStamp) -> AutonomousStamp:
    """Return an instance after an internal event: the stamp of that event."""
    return AutonomousStamp(instance.identifier, instance.index + 1, instance.combined)


def children(instance: AutonomousStamp) -> tuple[AutonomousStamp, AutonomousStamp]:
    """Return the two instances that begin where the last event of one is its duplication."""
    return (
        AutonomousStamp(instance.identifier + "0", 0, instance.combined),
        AutonomousStamp(instance.identifier + "1", 0, instance.combined),
    )


def duplicate(
    instance: AutonomousStamp,
) -> tuple[AutonomousStamp, AutonomousStamp, AutonomousStamp]:
    """Duplicate an instance.

    Returns
    -------
    (AutonomousStamp, AutonomousStamp, AutonomousStamp)
        The stamp of the duplication, the last event of the instance, and the two new instances.
    """
    last = internal(instance)
    return last, *children(last)


def combine(m: AutonomousStamp, n: AutonomousStamp) -> AutonomousStamp:
    """Combine two instances, which end.

    Parameters
    ----------
    m : AutonomousStamp
        The instance whose identifier goes on. The paper leaves the choice; a shorter one makes
        shorter stamps.
    n : AutonomousStamp
        The other one.

    Returns
    -------
    AutonomousStamp
        The new instance after its first event, the combination.

    Raises
    ------
    ValueError
        If one of them is the other, or had ended when the other began.
    """
    if is_ancestor(m.identifier, n) or is_ancestor(n.identifier, m):
        raise ValueError("an instance that has ended is not combined")
    pairs = sorted([*m.combined, *n.combined, (n.identifier, m.identifier)])
    return AutonomousStamp(m.identifier + COMBINED, 1, tuple(dict.fromkeys(pairs)))


def is_ancestor(identifier: str, stamp: AutonomousStamp) -> bool:
    """Return whether an identifier is in A(I) of a stamp, by one search in its sorted pairs."""
    if stamp.identifier.startswith(identifier):
        return True
    at = bisect_left(stamp.combined, (identifier,))
    return at < len(stamp.combined) and stamp.combined[at][0].startswith(identifier)


class AutonomousStamps(ForkingScheme[AutonomousStamp]):
    """The stamps of autonomous causality, for processes and messages: section 4 of the paper.

    The processes are instances that are made of one root by duplications. An event that sends is
    the duplication into process and message (into one more for each further message, which is no
    event of its own); a receive is the combination of process and message. Where an event receives
    several messages, the last combination is the event. The shorter identifier goes on.
    """

    name = "stamps"
    decides = True

    def seed(self) -> AutonomousStamp:
        """Return the root."""
        return ROOT

    def fork(self, replica: AutonomousStamp) -> tuple[AutonomousStamp, AutonomousStamp]:
        """Return the instances of a duplication whose event nobody asks for."""
        return children(replica)

    def join(self, a: AutonomousStamp, b: AutonomousStamp) -> AutonomousStamp:
        """Return the combination, under the shorter identifier."""
        return combine(*sorted((a, b), key=lambda one: len(one.identifier)))

    def event(
        self,
        replica: AutonomousStamp,
        received: Iterable[AutonomousStamp] = (),
        *,
        time_us: int = 0,
    ) -> tuple[AutonomousStamp, AutonomousStamp]:
        """Stamp an event; a message that was received before adds nothing."""
        after = replica
        for message in received:
            if not is_ancestor(message.identifier, after):
                after = self.join(after, message)
        if after is replica:
            after = internal(replica)
        return after, after

    def header(
        self, replica: AutonomousStamp, stamp: AutonomousStamp, to: str
    ) -> tuple[AutonomousStamp, AutonomousStamp]:
        """Return the process after the duplication, and the message."""
        return children(replica)

    def precedes(self, a: AutonomousStamp, b: AutonomousStamp) -> bool:
        """Return a < b of Definition 5.2."""
        if a.identifier == b.identifier:
            return a.index < b.index
        return is_ancestor(a.identifier, b)

    def entries(self, clock: Clock) -> int:
        """Return the identifier and a pair for each event that may have sent a message.

        About: the events that are known, without those of the node of which most are.
        """
        return 1 + sum(clock.values()) - max(clock.values())

    def written(self, stamp: AutonomousStamp) -> list[Any]:
        """Return the triple: `["00c", 1, [["01", "00"]]]`."""
        return [stamp.identifier, stamp.index, [list(pair) for pair in stamp.combined]]

    def text(self, stamp: AutonomousStamp) -> str:
        """Return the stamp in the paper's notation."""
        return str(stamp)

    def read(self, value: Any, node: str) -> AutonomousStamp:
        """Return the stamp of a triple; the identifiers of a pair may come in either order."""
        match value:
            case [str(identifier), index, list(pairs)] if _is_identifier(identifier):
                count = counter_of(index, "the number of an event in its instance", 1)
            case _:
                raise not_a_stamp(self.name, _FORM, value)
        if not all(map(_is_pair, pairs)):
            raise not_a_stamp(self.name, _FORM, value)
        return AutonomousStamp(sys.intern(identifier), count, _directed(identifier, pairs))


def _is_identifier(value: Any) -> bool:
    return isinstance(value, str) and value[:1] == "0" and not value.strip("01" + COMBINED)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_identifier, value))


def _directed(identifier: str, pairs: Iterable[Sequence[str]]) -> Pairs:
    """Return the pairs that a stamp was read with, each with the identifier last that goes on."""
    names = sorted([identifier, *chain.from_iterable(pairs)])
    for name, following in pairwise(names):
        if name == following:
            raise _contradiction(f"{_short(name)} occurs twice, and an instance ends once")

    def goes_on(name: str) -> bool:
        at = bisect_left(names, name + COMBINED)
        return at < len(names) and names[at].startswith(name + COMBINED)

    directed = []
    for a, b in pairs:
        first, second = goes_on(a), goes_on(b)
        if first == second:
            both = f"{_short(a)} and {_short(b)}"
            raise _contradiction(f"of {both}, which are combined, one must go on with {COMBINED}")
        # The stamps of a log have most of their pairs in common.
        ended, on = (b, a) if first else (a, b)
        directed.append((sys.intern(ended), sys.intern(on)))
    return tuple(sorted(directed))


def _contradiction(fault: str) -> EventError:
    return EventError(f"clock: {fault} ({AutonomousStamps.name})")


def _short(identifier: str) -> str:
    return identifier if len(identifier) <= 40 else f"{identifier[:37]}..."
