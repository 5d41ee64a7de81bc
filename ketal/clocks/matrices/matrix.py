"""Matrix clocks: what a node knows, and what it knows that the others know.

M[p][q] is how many events of q node p is known to know. The row of the node itself is its vector
clock. An event counts in M[i][i]; a message carries its sender's matrix, and the receiver takes the
point-wise maximum, its own row also with the sender's row. So row p is the vector clock of the last
event of p that is known. The least entry of column q is what every node is known to know of q:
so much of a log, or of what is remembered for others, may be discarded.

Wuu and Bernstein, "Efficient solutions to the replicated log and dictionary problems", PODC 1984
(the two-dimensional time table of their section 3); Raynal's and Singhal's "Logical Time: Capturing
Causality in Distributed Systems" (1996) calls it matrix time. The matrices that count messages
between two processes, for causal delivery, are others: `ketal.clocks.matrices.domain_stamps`.

The one rule: the rows of one node in all matrices of an execution are vector clocks of its events,
so of two of them that with the greater own entry is nowhere less, and is the maximum of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.clocks.scheme import Clock, ReplicaScheme, not_a_stamp
from ketal.clocks.vector import checked, happened_before, next_clock
from ketal.errors import EventError


@dataclass(frozen=True, slots=True)
class MatrixStamp:
    """A node, and for each node of which it knows an event the row of that node.

    Attributes
    ----------
    node : str
        Where the event happened.
    rows : mapping of str to mapping of str to int
        Of each node the vector clock of its last event that is known; an absent row, like an absent
        entry, is zero.
    """

    node: str
    rows: Mapping[str, Clock]

    @property
    def clock(self) -> Clock:
        """The own row: the vector clock."""
        return self.rows.get(self.node, {})


def known_everywhere(stamp: MatrixStamp, nodes: Iterable[str]) -> dict[str, int]:
    """Return how many events of each node every node is known to know.

    Parameters
    ----------
    stamp : MatrixStamp
        A stamp.
    nodes : iterable of str
        All nodes that may ask for what is discarded, those without an event too.

    Returns
    -------
    dict of str to int
        The least entry of each column, zeros left out.

    Examples
    --------
    >>> from ketal.clocks.matrices.matrix import MatrixStamp, known_everywhere
    >>> stamp = MatrixStamp("b", {"a": {"a": 2}, "b": {"a": 2, "b": 1}})
    >>> known_everywhere(stamp, ["a", "b"])
    {'a': 2}
    >>> known_everywhere(stamp, ["a", "b", "c"])
    {}
    """
    rows = [stamp.rows.get(node, {}) for node in nodes]
    least = {of: min((row.get(of, 0) for row in rows), default=0) for of in stamp.clock}
    return {of: counter for of, counter in least.items() if counter}


class MatrixClocks(ReplicaScheme[MatrixStamp]):
    """Matrix clocks."""

    name = "matrix"
    decides = True

    def replicas(self, nodes: Sequence[str]) -> dict[str, MatrixStamp]:
        """Return matrices of zeros."""
        return {node: MatrixStamp(node, {}) for node in nodes}

    def event(
        self, replica: MatrixStamp, received: Iterable[MatrixStamp] = (), *, time_us: int = 0
    ) -> tuple[MatrixStamp, MatrixStamp]:
        """Stamp an event by the point-wise maximum, the own row also with those of the senders."""
        received = tuple(received)
        rows = dict(replica.rows)
        for message in received:
            for node, row in message.rows.items():
                if node not in rows or rows[node][node] < row[node]:
                    rows[node] = row
        known = [replica.clock, *(message.clock for message in received)]
        rows[replica.node] = next_clock(replica.node, known)
        after = MatrixStamp(replica.node, rows)
        return after, after

    def entries(self, clock: Clock) -> int:
        """Return how many entries the rows have: a row for each node that is known."""
        return len(clock) ** 2

    def precedes(self, a: MatrixStamp, b: MatrixStamp) -> bool:
        """Return whether a → b, by one look-up in the own rows."""
        return happened_before(a.node, a.clock, b.node, b.clock)

    def clock_of(self, stamp: MatrixStamp) -> Clock:
        """Return the own row."""
        return stamp.clock

    def written(self, stamp: MatrixStamp) -> dict[str, dict[str, int]]:
        """Return the rows as objects."""
        return {node: dict(sorted(row.items())) for node, row in sorted(stamp.rows.items())}

    def read(self, value: Any, node: str) -> MatrixStamp:
        """Return the stamp of rows that are objects, zeros dropped."""
        form = 'a row for each node that is known: {"a": {"a": 1}, "b": {"a": 1, "b": 2}}'
        if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
            raise not_a_stamp(self.name, form, value)
        if node not in value:
            raise not_a_stamp(self.name, f"{form}; of an event of {node}", value)
        rows = {of: checked(of, row) for of, row in value.items()}
        for of, row in rows.items():
            if any(rows[node].get(name, 0) < counter for name, counter in row.items()):
                raise EventError(f"clock: the row of {of!r} has more than the own row of {node!r}")
        return MatrixStamp(node, rows)
