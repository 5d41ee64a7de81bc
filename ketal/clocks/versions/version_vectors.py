"""Version vectors and dotted version vectors: which versions of a replicated object are newest.

Only events that create versions are counted. A *version vector* counts for each replica the
versions that it created. If neither of two versions knows the other, both are kept (a conflict), or
a new version merges them.

The servers of a store create versions on behalf of many clients. With one entry per server, a
version that a client writes without having read the server's newest version is concurrent with
that one, though both are of the same server: a version vector cannot represent this. A *dotted*
version vector can: it has the version's own dot, separate from the context that its writer had
read.

Baquero, "Causality is Graphically Simple", sections "Version Vectors" and "Dotted Version Vectors",
Figs. 5-9 (after Parker et al., 1983; Preguiça et al., "Dotted Version Vectors", 2012).

The one rule: a version is dropped only in favour of one whose context contains its dot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock
from ketal.clocks.vector import compare, join, next_clock


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object: its dot, the context that its writer had read, and its value."""

    replica: str  # the server or replica that created the version
    counter: int  # the number of the version there, from 1
    context: Clock  # replica → the number of its versions that the writer knew
    value: Any = None

    def obsoletes(self, other: Version) -> bool:
        """Return whether the writer of this version knew the other one."""
        return self.context.get(other.replica, 0) >= other.counter

    @property
    def known(self) -> dict[str, int]:
        """The version vector of a client that reads this version: its context and its dot."""
        return join([self.context, {self.replica: self.counter}])

    def __str__(self) -> str:
        context = ",".join(f"{name}:{count}" for name, count in sorted(self.context.items()))
        return f"[{context}]{self.replica}{self.counter}"


@dataclass(frozen=True, slots=True)
class StoreReplica:
    """A server's copy of an object: its concurrent newest versions (*siblings*).

    Attributes
    ----------
    server : str
        The name of the server.
    siblings : tuple of Version
        The newest known versions, none of which obsoletes another.

    Examples
    --------
    >>> from ketal.clocks.versions.version_vectors import StoreReplica
    >>> server = StoreReplica("s").put("one").put("two")
    >>> [str(version) for version in server.siblings]
    ['[]s1', '[]s2']
    >>> values, context = server.get()
    >>> [str(version) for version in server.put("both", context).siblings]
    ['[s:2]s3']
    """

    server: str
    siblings: tuple[Version, ...] = ()

    def get(self) -> tuple[tuple[Any, ...], dict[str, int]]:
        """Return the values of the siblings, and the context to pass to `put` to replace them."""
        values = tuple(version.value for version in self.siblings)
        return values, self.known

    @property
    def known(self) -> dict[str, int]:
        """The version vector of all siblings."""
        return join(version.known for version in self.siblings)

    def put(self, value: Any, context: Clock | None = None) -> StoreReplica:
        """Return the replica after a client has written a value.

        `context` is what `get` returned to the client, at this or another server; None if the
        client has read nothing.
        """
        counter = self.known.get(self.server, 0) + 1
        version = Version(self.server, counter, dict(context or {}), value)
        newest = [sibling for sibling in self.siblings if not version.obsoletes(sibling)]
        return StoreReplica(self.server, (*newest, version))

    def sync(self, other: StoreReplica) -> StoreReplica:
        """Return the replica after merging the siblings of another server."""
        versions = {(v.replica, v.counter): v for v in (*self.siblings, *other.siblings)}.values()
        newest = [
            version for version in versions if not any(v.obsoletes(version) for v in versions)
        ]
        return StoreReplica(self.server, tuple(newest))


@dataclass(frozen=True, slots=True)
class ObjectReplica:
    """A replica that updates its own copy of an object, with plain version vectors.

    Attributes
    ----------
    name : str
        The name of the replica.
    versions : tuple of mapping of str to int
        The version vectors of its versions; several versions are in conflict.

    Examples
    --------
    >>> from ketal.clocks.versions.version_vectors import ObjectReplica
    >>> a, b = ObjectReplica("a").update(), ObjectReplica("b").update()
    >>> both = b.receive(a)
    >>> both.in_conflict, both.versions, both.update().versions
    (True, ({'b': 1}, {'a': 1}), ({'b': 2, 'a': 1},))
    """

    name: str
    versions: tuple[Clock, ...] = ()

    @property
    def in_conflict(self) -> bool:
        """Whether the replica has concurrent versions."""
        return len(self.versions) > 1

    def update(self) -> ObjectReplica:
        """Return the replica with one new version, which follows and so merges its versions."""
        return ObjectReplica(self.name, (next_clock(self.name, self.versions),))

    def receive(self, other: ObjectReplica) -> ObjectReplica:
        """Return the replica with the newest versions of its own and another replica's."""
        versions = [*self.versions, *(v for v in other.versions if v not in self.versions)]
        newest = [version for version in versions if not any(compare(version, v) for v in versions)]
        return ObjectReplica(self.name, tuple(newest))
