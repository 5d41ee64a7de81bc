"""Version stamps: which of the current versions is newer, without names of replicas.

A *name* is a set of binary strings, none of which is a prefix of another; it represents
its strings and all their prefixes, and one name is less than another if it represents a subset.
A stamp has two names: the *update* name represents the updates that the version knows, and the
*identity* distinguishes it from all other versions. A fork appends 0 or 1 to the strings of the
identity, an update sets the update name to the identity, a join unites both names. Of two versions
that exist at the same time (in the *frontier*), one knows all updates of the other iff the other's
update name is less or equal.

Stamps decide nothing else. A second update of the same version changes nothing, and a version that
has been replaced cannot be compared with its successors. To order all events, including past ones,
use `autonomous`, whose stamps only grow, or `interval_tree`.

Because only the frontier matters, a stamp can be *reduced*: an identity with s0 and s1 can be
replaced by s. The update name of a version always represents a part of its own identity, and
identities do not overlap; so no other version knows s0, s1 or s, and replacing s0 and s1 by s
preserves the order.

A fork makes each string of an identity longer, and a join unites the strings of both, so stamps
grow exponentially with rounds of joins and forks. Reduced stamps shrink as soon as two halves meet.
If the same replicas synchronise in pairs for ever, halves seldom meet, and reduced stamps grow
exponentially too. `interval_tree` has no such case.

Almeida, Baquero and Fonte, "Version Stamps - Decentralized Version Vectors", ICDCS 2002. The paper
of `autonomous` leaves open how its stamps could be made smaller; this is an answer for the
frontier only.

The one rule: identities of the frontier do not overlap, and each update name is less than or equal
to its identity.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Name: TypeAlias = "tuple[str, ...]"
"""Binary strings, sorted, none a prefix of another."""


@dataclass(frozen=True, slots=True)
class VersionStamp:
    """The stamp of a current version."""

    update: Name  # the name that represents the known updates
    identity: Name  # the name that distinguishes the version from all other current versions

    def __str__(self) -> str:
        """Return the two names as sums of strings, update first: `[ε|0+10]`."""
        update, identity = (
            "+".join(string or "ε" for string in name) for name in (self.update, self.identity)
        )
        return f"[{update}|{identity}]"


SEED = VersionStamp(("",), ("",))
"""The first version, from which all others descend."""


def update(stamp: VersionStamp) -> VersionStamp:
    """Return the version after an update."""
    return VersionStamp(stamp.identity, stamp.identity)


def fork(stamp: VersionStamp) -> tuple[VersionStamp, VersionStamp]:
    """Return two versions with the same known updates, which replace one."""
    first, second = (tuple(string + digit for string in stamp.identity) for digit in "01")
    return VersionStamp(stamp.update, first), VersionStamp(stamp.update, second)


def join(a: VersionStamp, b: VersionStamp) -> VersionStamp:
    """Return a version with the known updates of two versions, which it replaces.

    Raises a ValueError if the identities overlap, so that the two cannot exist at the same time.
    """
    identities = sorted(a.identity + b.identity)
    if any(after.startswith(before) for before, after in pairwise(identities)):
        raise ValueError("version stamps with overlapping identities cannot be joined")
    return VersionStamp(_without_prefixes(a.update + b.update), tuple(identities))


def reduced(stamp: VersionStamp) -> VersionStamp:
    """Return an equivalent stamp with shorter names: the order of the frontier is the same.

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
            # In sorted order s1 directly follows s0, since no string has s0 as a proper prefix.
            identity[-2:] = [identity[-2][:-1]]

    def shortest_owned(name: str) -> str:
        at = bisect_right(identity, name) - 1
        return identity[at] if at >= 0 and name.startswith(identity[at]) else name

    return VersionStamp(_without_prefixes(map(shortest_owned, stamp.update)), tuple(identity))


def leq(a: VersionStamp, b: VersionStamp) -> bool:
    """Return whether b knows all updates that a knows; both must be in the frontier."""
    return all(_represents(b.update, string) for string in a.update)


def _represents(name: Name, string: str) -> bool:
    at = bisect_left(name, string)
    return at < len(name) and name[at].startswith(string)


def _without_prefixes(strings: Iterable[str]) -> Name:
    """Return the name that represents some strings: those that are not prefixes of others."""
    ordered = sorted(set(strings))
    prefixes = {before for before, after in pairwise(ordered) if after.startswith(before)}
    return tuple(string for string in ordered if string not in prefixes)
