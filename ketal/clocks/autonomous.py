"""Autonomous causality: stamps of instances of data that have no global names.

Processes and messages are *instances*. An instance has internal events. A *duplication* is the last
event of an instance, which is replaced by two new instances. A *combination* is the first event of
a new instance that replaces two others. The creator of an instance names it locally: by the
identifier of the duplicated instance with 0 or 1 appended, or by that of a combined instance with ◇
appended (here the letter c, for "combined": one byte in UTF-8, where ◇ has three). A stamp is a
triple (I, N, Eq): the identifier, the number of the event in its instance, and the pairs of
identifiers that were combined in the past of the event.

For events of different instances, a → b iff a's identifier is an ancestor of b's: the whole
instance of a had ended before b's began. The ancestors of an identifier I are the set A(I), where
S(I) is the set of the initial segments of I, and Eq(t) the identifier that was combined with t:

    A(nil) = {},  A(I) = the union of S(I) and A(Eq(t)) for all t in S(I)

As a procedure this does not terminate: Eq is symmetric, so A(m) calls A(n) for a pair (m, n), and
A(n) calls A(m); the least solution is meant. An instance ends once, so an identifier is
combined at most once, and Eq(t) is one identifier or nil. By induction over the operations, all of
Eq is in the past of a stamp, and only one identifier of each pair is continued, with a ◇; so the
least solution is S(I) and the initial segments of the identifiers that are not continued.
`precedes` searches these.

Baquero and Moura, "Causality in Autonomous Mobile Systems", Definitions 4.1, 5.1, 5.2 and
Lemma 5.1. The lemma needs the virtual events (N = 0) with which instances begin: an instance, such
as a message, may be combined before it has any other event, and without its virtual event nothing
would link its duplication to its combination under Definition 4.1.

The one rule: an instance is duplicated or combined once, and has no events after that.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, TypeAlias

from ketal.clocks.scheme import Clock, ForkingScheme, checked_counter, not_a_stamp
from ketal.errors import EventError

COMBINED = "c"
"""The symbol of an identifier that stands for the paper's ◇."""
_FORM = 'an identifier of 0, 1 and c, a number and pairs, such as ["00c", 1, [["01", "00"]]]'

Pairs: TypeAlias = "tuple[tuple[str, str], ...]"
"""The set Eq: in each pair, first the identifier that ended, then the one continued with ◇."""


@dataclass(frozen=True, slots=True)
class AutonomousStamp:
    """The stamp of an event, which is also the state of its instance after the event."""

    identifier: str  # I: the name of the instance, of the characters 0, 1 and c
    index: int = 0
    """N: the number of the event in the instance; 0 is the virtual event before the first."""
    combined: Pairs = ()
    """Eq: the pairs of identifiers that were combined in the past of the event, sorted. The second
    of a pair is the one that is continued with c."""

    def __str__(self) -> str:
        """Return the paper's notation: `00◇{1} 00/01`."""
        pairs = (f" {continued}/{ended}" for ended, continued in self.combined)
        return f"{self.identifier}{{{self.index}}}{''.join(pairs)}".replace(COMBINED, "◇")


ROOT = AutonomousStamp("0")
"""The first instance, from which all others descend."""


def combine(m: AutonomousStamp, n: AutonomousStamp) -> AutonomousStamp:
    """Combine two instances, which end; return the new one after its first event, the combination.

    The identifier of `m` is continued. The paper leaves the choice open; continuing the shorter
    identifier makes shorter stamps. Raises a ValueError if both are the same instance, or one had
    ended before the other began.
    """
    if is_ancestor(m.identifier, n) or is_ancestor(n.identifier, m):
        raise ValueError("an instance that has ended cannot be combined")
    pairs = sorted([*m.combined, *n.combined, (n.identifier, m.identifier)])
    return AutonomousStamp(m.identifier + COMBINED, 1, tuple(dict.fromkeys(pairs)))


def is_ancestor(identifier: str, stamp: AutonomousStamp) -> bool:
    """Return whether an identifier is in A(I) of a stamp, by one bisection of its sorted pairs."""
    if stamp.identifier.startswith(identifier):
        return True
    at = bisect_left(stamp.combined, (identifier,))
    return at < len(stamp.combined) and stamp.combined[at][0].startswith(identifier)


class AutonomousStamps(ForkingScheme[AutonomousStamp]):
    """The stamps of autonomous causality, for processes and messages: section 4 of the paper.

    The processes are instances made from one root by duplications. A send is a duplication into
    process and message; each further message of the same send is one more duplication, but not an
    event. A receive is the combination of process and message; if an event receives several
    messages, the last combination is the event. The shorter identifier is continued.
    """

    name = "stamps"
    decides = True

    def seed(self) -> AutonomousStamp:
        """Return the root instance."""
        return ROOT

    def fork(self, replica: AutonomousStamp) -> tuple[AutonomousStamp, AutonomousStamp]:
        """Return the two instances of a duplication, whose own event is not stamped."""
        return (
            AutonomousStamp(replica.identifier + "0", 0, replica.combined),
            AutonomousStamp(replica.identifier + "1", 0, replica.combined),
        )

    def join(self, a: AutonomousStamp, b: AutonomousStamp) -> AutonomousStamp:
        """Return the combination, which continues the shorter identifier."""
        return combine(*sorted((a, b), key=lambda one: len(one.identifier)))

    def event(
        self,
        replica: AutonomousStamp,
        received: Iterable[AutonomousStamp] = (),
        *,
        time_us: int = 0,
    ) -> tuple[AutonomousStamp, AutonomousStamp]:
        """Stamp an event; a message that was received before is ignored."""
        after = replica
        for message in received:
            if not is_ancestor(message.identifier, after):
                after = self.join(after, message)
        if after is replica:
            after = AutonomousStamp(replica.identifier, replica.index + 1, replica.combined)
        return after, after

    def header(
        self, replica: AutonomousStamp, stamp: AutonomousStamp, to: str
    ) -> tuple[AutonomousStamp, AutonomousStamp]:
        """Return the process after the duplication, and the message, as instances."""
        return self.fork(replica)

    def precedes(self, a: AutonomousStamp, b: AutonomousStamp) -> bool:
        """Return a < b of Definition 5.2."""
        if a.identifier == b.identifier:
            return a.index < b.index
        return is_ancestor(a.identifier, b)

    def entries(self, clock: Clock) -> int:
        """Return an estimate: the identifier, and a pair for each event that may have sent.

        Counts all known events but those of the node with the most.
        """
        return 1 + sum(clock.values()) - max(clock.values())

    def written(self, stamp: AutonomousStamp) -> list[Any]:
        """Return the triple: `["00c", 1, [["01", "00"]]]`."""
        return [stamp.identifier, stamp.index, [list(pair) for pair in stamp.combined]]

    def text(self, stamp: AutonomousStamp) -> str:
        """Return the stamp in the paper's notation."""
        return str(stamp)

    def read(self, value: Any, node: str) -> AutonomousStamp:
        """Return the stamp of a triple; the identifiers of a pair may be in either order."""
        match value:
            case [str(identifier), index, list(pairs)] if _is_identifier(identifier):
                count = checked_counter(index, "the number of an event in its instance", 1)
            case _:
                raise not_a_stamp(self.name, _FORM, value)
        if not all(map(_is_pair, pairs)):
            raise not_a_stamp(self.name, _FORM, value)
        return AutonomousStamp(sys.intern(identifier), count, _directed_pairs(identifier, pairs))


def _is_identifier(value: Any) -> bool:
    return isinstance(value, str) and value[:1] == "0" and not value.strip("01" + COMBINED)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_identifier, value))


def _directed_pairs(identifier: str, pairs: Iterable[Sequence[str]]) -> Pairs:
    """Return the pairs of a stamp, sorted, with the continued identifier second in each.

    Raises an EventError if an identifier ends twice, or it is unclear which one is continued.
    """
    names = sorted([identifier, *chain.from_iterable(pairs)])
    for name, following in pairwise(names):
        if name == following:
            raise _contradiction(f"{_shortened(name)} occurs twice, but an instance ends only once")

    def is_continued(name: str) -> bool:
        at = bisect_left(names, name + COMBINED)
        return at < len(names) and names[at].startswith(name + COMBINED)

    directed = []
    for a, b in pairs:
        first, second = is_continued(a), is_continued(b)
        if first == second:
            both = f"{_shortened(a)} and {_shortened(b)}, which are combined"
            raise _contradiction(f"exactly one of {both}, must continue with {COMBINED}")
        # Interned, since the stamps of a log have most of their pairs in common.
        ended, continued = (b, a) if first else (a, b)
        directed.append((sys.intern(ended), sys.intern(continued)))
    return tuple(sorted(directed))


def _contradiction(fault: str) -> EventError:
    return EventError(f"clock: {fault} ({AutonomousStamps.name})")


def _shortened(identifier: str) -> str:
    return identifier if len(identifier) <= 40 else f"{identifier[:37]}..."
