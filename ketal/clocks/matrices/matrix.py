"""Matrix clocks: a node's own vector clock, and the last known vector clocks of the other nodes.

Row p of a node's matrix M is the vector clock of the last event of p that the node knows: p knows
at least M[p][q] events of q. The node's own row is its own vector clock. An event of node i
increments M[i][i]; a message carries its sender's matrix, and the receiver takes the pointwise
maximum, for its own row with the sender's row as well. Every node knows at least as many events of
q as the least entry of column q, so that prefix of q's log need not be kept for others.

Wuu and Bernstein, "Efficient solutions to the replicated log and dictionary problems", PODC 1984
(the two-dimensional time table of their section 3); Raynal's and Singhal's "Logical Time: Capturing
Causality in Distributed Systems" (1996) calls it matrix time. The matrices that count messages
between two processes, for causal delivery, are in `ketal.clocks.matrices.domain_stamps`.

The one rule: the rows of one node in all matrices of an execution are vector clocks of its events,
so the maximum of two such rows is the one with the greater own entry.
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
    """The matrix clock of an event."""

    node: str
    rows: Mapping[str, Clock]
    """Node → the vector clock of its last known event; absent rows and entries are zero."""

    @property
    def clock(self) -> Clock:
        """The node's own row, which is the vector clock of the event."""
        return self.rows.get(self.node, {})


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
        """Stamp an event with the maximum of each row, the own row also with the senders' rows."""
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
        """Return the number of entries in all rows, one row for each known node."""
        return len(clock) ** 2

    def precedes(self, a: MatrixStamp, b: MatrixStamp) -> bool:
        """Return whether a happened before b, by one look-up in their own rows."""
        return happened_before(a.node, a.clock, b.node, b.clock)

    def clock_of(self, stamp: MatrixStamp) -> Clock:
        """Return the node's own row."""
        return stamp.clock

    def written(self, stamp: MatrixStamp) -> dict[str, dict[str, int]]:
        """Return the rows as an object of objects."""
        return {node: dict(sorted(row.items())) for node, row in sorted(stamp.rows.items())}

    def read(self, value: Any, node: str) -> MatrixStamp:
        """Return the stamp of rows given as objects, without zeros."""
        form = 'a row for each known node, such as {"a": {"a": 1}, "b": {"a": 1, "b": 2}}'
        if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
            raise not_a_stamp(self.name, form, value)
        if node not in value:
            raise not_a_stamp(self.name, f"{form}, with a row for {node}", value)
        rows = {row_node: checked(row_node, row) for row_node, row in value.items()}
        for row_node, row in rows.items():
            if any(rows[node].get(name, 0) < counter for name, counter in row.items()):
                raise EventError(
                    f"clock: the row of {row_node!r} has a higher entry than the row of the "
                    f"event's node {node!r}"
                )
        return MatrixStamp(node, rows)
