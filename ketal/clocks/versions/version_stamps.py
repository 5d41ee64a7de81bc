"""Version stamps: which of the versions that exist now is newer, without names of replicas.

A *name* is a set of binary strings, none of which is an initial segment of another; it stands for
its strings and all their initial segments, and one name is less than another if it stands for less.
A stamp has two: what the version knows (the *update*) and what distinguishes its replica (the
*identity*). A fork makes the identity longer by 0 and by 1, an update makes the identity known, a
join unites both names. Of two versions that coexist (the *frontier*), the one knows all updates of
the other iff the other's update name is less or equal.

That is all that the stamps say. A second update of one version changes nothing, and a version that
has been replaced is not comparable with those that came of it: for the order of all events, past
ones included, there are `autonomous`, whose stamps only grow, and `interval_tree`.

Because only the frontier matters, a stamp can be *reduced*: who owns s0 and s1 owns s. No other
version knows s0, s1 or s, since what is known is always part of some identity of the version that
knows it, and identities do not overlap; so s in their place orders as before.

A fork makes each string of an identity longer, a join adds those of both, so stamps grow
exponentially with rounds of joins and forks. Reduced ones shrink as soon as halves meet; where the
same replicas synchronise in pairs for ever, halves seldom meet, and reduced ones grow exponentially
too. `interval_tree` has no such case.

Almeida, Baquero and Fonte, "Version Stamps - Decentralized Version Vectors", ICDCS 2002. How
the stamps of `autonomous` could be made smaller, its paper leaves open; this is an answer for the
frontier only.

The one rule: identities of the frontier do not overlap, and each update name is less than its
identity, or equal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Name: TypeAlias = "tuple[str, ...]"
"""Binary strings, sorted, none an initial segment of another."""


@dataclass(frozen=True, slots=True)
class VersionStamp:
    """The stamp of a version that exists.

    Attributes
    ----------
    update : tuple of str
        The name of what it knows.
    identity : tuple of str
        The name by which it is distinguished from the others that exist.
    """

    update: Name
    identity: Name

    def __str__(self) -> str:
        """Return the two names as sums of strings, update first: `[ε|0+10]`."""
        update, identity = (
            "+".join(one or "ε" for one in name) for name in (self.update, self.identity)
        )
        return f"[{update}|{identity}]"


SEED = VersionStamp(("",), ("",))
"""The version of which all others are made."""


def update(stamp: VersionStamp) -> VersionStamp:
    """Return the version after an update."""
    return VersionStamp(stamp.identity, stamp.identity)


def fork(stamp: VersionStamp) -> tuple[VersionStamp, VersionStamp]:
    """Return two versions that know the same, in place of one."""
    first, second = (tuple(one + digit for one in stamp.identity) for digit in "01")
    return VersionStamp(stamp.update, first), VersionStamp(stamp.update, second)


def join(a: VersionStamp, b: VersionStamp) -> VersionStamp:
    """Return a version that knows what one of two knows, in place of both.

    Raises
    ------
    ValueError
        If their identities overlap: they have not been forked from each other.
    """
    identities = sorted(a.identity + b.identity)
    if any(after.startswith(before) for before, after in pairwise(identities)):
        raise ValueError("version stamps with overlapping identities are not joined")
    return VersionStamp(_longest(a.update + b.update), tuple(identities))


def reduced(stamp: VersionStamp) -> VersionStamp:
    """Return a shorter stamp that orders its version, and those forked of it, as before.

    Examples
    --------
    >>> from ketal.clocks.versions.version_stamps import SEED, fork, join, reduced, update
    >>> first, second = fork(SEED)
    >>> str(join(update(first), second)), str(reduced(join(update(first), second)))
    ('[0|0+1]', '[ε|ε]')
    """
    identity: list[str] = []
    for name in stamp.identity:
        identity.append(name)
        while len(identity) > 1 and identity[-1] == identity[-2][:-1] + "1":
            # Of sorted strings s0 is followed by s1 at once, if there is no string within s0.
            identity[-2:] = [identity[-2][:-1]]

    def owned(name: str) -> str:
        at = bisect_right(identity, name) - 1
        return identity[at] if at >= 0 and name.startswith(identity[at]) else name

    return VersionStamp(_longest(map(owned, stamp.update)), tuple(identity))


def leq(a: VersionStamp, b: VersionStamp) -> bool:
    """Return whether b knows all updates that a knows; both are of the frontier."""
    return all(_stands_for(b.update, one) for one in a.update)


def _stands_for(name: Name, one: str) -> bool:
    at = bisect_left(name, one)
    return at < len(name) and name[at].startswith(one)


def _longest(strings: Iterable[str]) -> Name:
    """Return the name that stands for some strings."""
    ordered = sorted(set(strings))
    within = {before for before, after in pairwise(ordered) if after.startswith(before)}
    return tuple(one for one in ordered if one not in within)
