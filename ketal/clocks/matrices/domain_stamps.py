"""One matrix clock per domain: causal delivery of messages with smaller stamps.

From Quaireau and Laumay, "Ensuring applicative causal ordering in autonomous
mobile computing": processes that form a domain (section 4.1, found by
`ketal.operators.topology.domains`) share a matrix clock, and a message "is
stamped with matrix clock(s) according to the sender and receiver common
domains" (section 4.2). Each process works as in Raynal,
Schiper and Toueg, "The causal ordering abstraction and a simple way to
implement it" (1991), once for each of its domains: `sent[k, l]` counts the
known messages from k to l, a message carries its sender's matrix,
and it is delivered once all messages to the receiver that the matrix counts are delivered.

The Theorem of section 4.1: causal delivery within each domain that is
associated to the graph implies causal delivery globally. Proof idea: let m1 go from p to q, and let
a chain of messages lead from the send of m1 to m2, delivered at q. Without its cycles
the chain is an elementary path from p to q, so it lies in D(p, q),
and so in one of the domains; if it passes q before its end, the message that
arrived there was already held back for m1. Tests search simulated runs for a
counterexample, and find one if a domain is removed.

These matrices count messages between two processes, and serve to hold messages back. The matrices
in `ketal.clocks.matrices.matrix` count known events, and order events.

The one rule: a message along a `relaxed` edge, whose ends share no domain, carries no stamp and is
delivered on arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

Matrix: TypeAlias = Mapping[tuple[str, str], int]
"""The number of messages known to have been sent, by (sender, receiver); absent is 0."""

Domain: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class StampedMessage:
    """A message with its stamps, one for each domain that contains both of its ends."""

    sender: str
    receiver: str
    number: int
    stamps: Mapping[Domain, Matrix] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Process:
    """A process: for each of its domains, the counts of sent and of delivered messages.

    `delivered[domain][k]` counts the messages delivered from k; `waiting` is the hold-back queue,
    in order of arrival.
    """

    name: str
    sent: Mapping[Domain, Matrix]
    delivered: Mapping[Domain, Mapping[str, int]]
    waiting: tuple[StampedMessage, ...] = ()


def new_process(name: str, groups: Collection[Domain]) -> Process:
    """Return a process that has sent and received nothing."""
    domains = [domain for domain in groups if name in domain]
    return Process(name, {d: {} for d in domains}, {d: {} for d in domains})


def send(process: Process, receiver: str, number: int) -> tuple[Process, StampedMessage]:
    """Send a message; return the process after that, and the message."""
    edge = (process.name, receiver)
    stamps = {d: matrix for d, matrix in process.sent.items() if receiver in d}
    message = StampedMessage(*edge, number, stamps)
    counted = {d: {**m, edge: m.get(edge, 0) + 1} for d, m in stamps.items()}
    return replace(process, sent={**process.sent, **counted}), message


def deliverable(process: Process, message: StampedMessage) -> bool:
    """Return whether the process has been delivered all messages that the stamps require."""
    return all(
        process.delivered[domain].get(k, 0) >= count
        for domain, matrix in message.stamps.items()
        for (k, receiver), count in matrix.items()
        if receiver == process.name
    )


def arrive(process: Process, message: StampedMessage) -> tuple[Process, tuple[StampedMessage, ...]]:
    """Receive a message; return the process after that, and the messages delivered, in order."""
    process = replace(process, waiting=(*process.waiting, message))
    out: list[StampedMessage] = []
    while ready := next((m for m in process.waiting if deliverable(process, m)), None):
        process = _delivered(process, ready)
        out.append(ready)
    return process, tuple(out)


def _delivered(process: Process, message: StampedMessage) -> Process:
    edge = (message.sender, message.receiver)
    sent, delivered = dict(process.sent), dict(process.delivered)
    for domain, matrix in message.stamps.items():
        counts = delivered[domain]
        delivered[domain] = {**counts, message.sender: counts.get(message.sender, 0) + 1}
        carried = {**matrix, edge: matrix.get(edge, 0) + 1}
        known = sent[domain]
        sent[domain] = {**known, **{k: max(n, known.get(k, 0)) for k, n in carried.items()}}
    waiting = tuple(m for m in process.waiting if m != message)
    return Process(process.name, sent, delivered, waiting)
