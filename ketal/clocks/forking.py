"""Schemes whose replicas fork and join, so that nodes come and go without a register of names.

The one rule: neither is an event that is ordered; what forks share, they knew before.

Almeida, Baquero and Fonte, "Interval Tree Clocks", 2008; Baquero and Moura, "Causality in
Autonomous Mobile Systems", where a fork is a duplication and a join a combination.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from ketal.clocks.scheme import H, R, ReplicaScheme, S


class ForkingScheme(ReplicaScheme[R, S, H]):
    """A scheme whose replicas are all forked from one seed."""

    @abstractmethod
    def seed(self) -> R:
        """Return the first replica, before its first event."""

    @abstractmethod
    def fork(self, replica: R) -> tuple[R, R]:
        """Return the two replicas that go on in place of one."""

    @abstractmethod
    def join(self, a: R, b: R) -> R:
        """Return the replica that goes on in place of two, and knows what one of them knows.

        Raises
        ------
        ValueError
            If they cannot both be there.
        """

    def replicas(self, nodes: Sequence[str]) -> dict[str, R]:
        """Return replicas that are forked evenly, halves first."""
        out: dict[str, R] = {}
        waiting = [(self.seed(), tuple(nodes))] if nodes else []
        while waiting:
            replica, names = waiting.pop()
            if len(names) == 1:
                out[names[0]] = replica
            else:
                half = (len(names) + 1) // 2
                first, second = self.fork(replica)
                waiting += [(second, names[half:]), (first, names[:half])]
        return out
