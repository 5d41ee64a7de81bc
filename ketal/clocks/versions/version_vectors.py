"""Version vectors and dotted version vectors: which versions of a replicated object are newest.

Only events that make versions are named. A *version vector* counts for each replica the versions
that it made; of two versions neither of which knows the other, both are kept (a conflict), or one
that merges them is made.

A store's servers make versions for many clients. With one entry a server, a version that a client
writes without having read the server's newest is concurrent with that one, though both are of the
same server: a vector alone cannot say so. A *dotted* version vector can: the version's own name,
its dot, apart from the context that its writer had read.

Baquero, "Causality is Graphically Simple", sections "Version Vectors" and "Dotted Version Vectors",
Figs. 5-9 (after Parker et al., 1983; Preguiça et al., "Dotted Version Vectors", 2012).

The one rule: a version is dropped only for one whose context has its dot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock
from ketal.clocks.vector import compare, join, next_clock


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object: its dot, what its writer had read, and its value.

    Attributes
    ----------
    replica : str
        The server or replica that made it.
    counter : int
        Its number there, from 1 on.
    context : mapping of str to int
        Of each replica how many of its versions were known to the writer.
    value : object
        What was written.
    """

    replica: str
    counter: int
    context: Clock
    value: Any = None

    def obsoletes(self, other: Version) -> bool:
        """Return whether the writer of this version knew the other one."""
        return self.context.get(other.replica, 0) >= other.counter

    @property
    def known(self) -> dict[str, int]:
        """The vector of what is known to who reads this version: context and dot."""
        return join([self.context, {self.replica: self.counter}])

    def __str__(self) -> str:
        context = ",".join(f"{name}:{count}" for name, count in sorted(self.context.items()))
        return f"[{context}]{self.replica}{self.counter}"


@dataclass(frozen=True, slots=True)
class StoreReplica:
    """An object as one server keeps it: its siblings, of which none obsoletes another.

    Attributes
    ----------
    server : str
        The name of the server.
    siblings : tuple of Version
        The newest versions that are known.

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
        """Return the values of the siblings, and the context with which they are overwritten."""
        values = tuple(version.value for version in self.siblings)
        return values, self.known

    @property
    def known(self) -> dict[str, int]:
        """The vector of all versions that are known here."""
        return join(version.known for version in self.siblings)

    def put(self, value: Any, context: Clock | None = None) -> StoreReplica:
        """Return the replica after a client has written a value.

        Parameters
        ----------
        value : object
            The value.
        context : mapping of str to int, optional
            What `get` returned to the client, here or at another server; none if it had read
            nothing.
        """
        counter = self.known.get(self.server, 0) + 1
        version = Version(self.server, counter, dict(context or {}), value)
        newest = [one for one in self.siblings if not version.obsoletes(one)]
        return StoreReplica(self.server, (*newest, version))

    def sync(self, other: StoreReplica) -> StoreReplica:
        """Return the replica after it has received what another server keeps."""
        every = {(v.replica, v.counter): v for v in (*self.siblings, *other.siblings)}.values()
        newest = [one for one in every if not any(v.obsoletes(one) for v in every)]
        return StoreReplica(self.server, tuple(newest))


@dataclass(frozen=True, slots=True)
class ObjectReplica:
    """A replica that updates its object itself, under plain version vectors.

    Attributes
    ----------
    name : str
        The replica.
    versions : tuple of mapping of str to int
        The version vectors of its versions; several are in conflict.

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
        """Whether it has concurrent versions."""
        return len(self.versions) > 1

    def update(self) -> ObjectReplica:
        """Return the replica with a new version that follows (and so merges) those that it has."""
        return ObjectReplica(self.name, (next_clock(self.name, self.versions),))

    def receive(self, other: ObjectReplica) -> ObjectReplica:
        """Return the replica with the newest of its versions and another replica's."""
        every = [*self.versions, *(v for v in other.versions if v not in self.versions)]
        newest = [one for one in every if not any(compare(one, v) for v in every)]
        return ObjectReplica(self.name, tuple(newest))
