"""Causal order within domains: what waits for what, and what is given up (DESIGN 5).

From Quaireau and Laumay, "Ensuring applicative causal ordering in autonomous
mobile computing", section 4.3: leaving an edge out of the graph relaxes
causality where it has no meaning. The domains are those of the other edges
(`domains`). Two events are *joined* if a → b and they are of one node, or of
nodes that have a domain in common, whatever message told b of a. The pairs
a → b that no chain of joined events leads across are given up, and no others.

A queue needs no chains. An event waits for its *near* nodes, those with which
its own has a domain in common, as far as its clock names their events; entries
of other nodes are not read. Transitive all the same: let a, m, b be a chain.
b's clock names m, of a near node, so m was released before b; and m waited for
a. That a lost event waited for nothing is the one gap in this, which `Reach`
closes.

The one rule: the full clocks decide what happened before what, the domains only
which of it is waited for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from ketal.event import Dot, Event, canonical_key, happened_before
from ketal.limits import DEFAULT, Limits
from ketal.operators.causal_order import HoldBack
from ketal.operators.domains import Domains, domains, home
from ketal.pattern import Topology

Pair: TypeAlias = tuple[Dot, Dot]
"""(a, b) where a → b."""


def near(groups: Domains) -> dict[str, frozenset[str]]:
    """Return for each node the nodes with which it has a domain in common."""
    out: dict[str, frozenset[str]] = {}
    for domain in groups:
        for node in domain:
            out[node] = out.get(node, frozenset()) | domain
    return out


def joined(a: Event, b: Event, around: Mapping[str, frozenset[str]]) -> bool:
    """Return whether a → b is one step of a chain: of one node, or within one domain.

    Parameters
    ----------
    a, b : Event
        Two events.
    around : mapping of str to frozenset of str
        What `near` gave.
    """
    one, other = home(a.node), home(b.node)
    return happened_before(a, b) and (one == other or one in around.get(other, ()))


def obvious_given_up(
    events: Iterable[Event], topology: Topology, limits: Limits = DEFAULT
) -> set[Pair]:
    """Return the pairs a → b that no chain joins, by closing the joined pairs transitively."""
    execution = list(events)
    around = near(_domains_of(topology, limits))
    chained = {(a.dot, b.dot) for a in execution for b in execution if joined(a, b, around)}
    for middle in execution:
        into = [a for a, b in chained if b == middle.dot]
        onwards = [b for a, b in chained if a == middle.dot]
        chained.update((a, b) for a in into for b in onwards)
    ordered = {(a.dot, b.dot) for a in execution for b in execution if happened_before(a, b)}
    return ordered - chained


def given_up(events: Iterable[Event], topology: Topology, limits: Limits = DEFAULT) -> set[Pair]:
    """Return the pairs a → b that the domains of a topology do not keep (DESIGN 5).

    Each event gets a *kept clock*: what its near nodes' latest events keep, and
    those events themselves. A chain is found through it, one event at a time.

    Parameters
    ----------
    events : iterable of Event
        A finite execution of nodes that the topology knows, in any order. A chain
        leads through these events only.
    topology : Topology
        The topology; without relaxed edges nothing is given up where every
        message goes along an edge.
    limits : Limits
        `topology_nodes_max` and `topology_steps_max`.

    Returns
    -------
    set of (Dot, Dot)
        The pairs (a, b).
    """
    around = near(_domains_of(topology, limits))
    counters: dict[str, list[int]] = {}
    kept: dict[str, list[dict[str, int]]] = {}
    out: set[Pair] = set()
    for event in sorted(events, key=canonical_key):
        node, counter = event.node, event.counter
        reached: dict[str, int] = {}
        for other in _read(event, around.get(home(node), frozenset())):
            last = _latest(counters.get(other, ()), event, other)
            if last:
                known = kept[other][last - 1]
                for name in known:
                    reached[name] = max(reached.get(name, 0), known[name])
        for other, own in counters.items():
            out.update(
                (Dot(other, c), event.dot)
                for c in own[: _latest(own, event, other)]
                if c > reached.get(other, 0)
            )
        counters.setdefault(node, []).append(counter)
        kept.setdefault(node, []).append(reached | {node: counter})
    return out


def _domains_of(topology: Topology, limits: Limits) -> Domains:
    return domains(
        topology.edges,
        limits.topology_nodes_max,
        steps_max=limits.topology_steps_max,
        span=topology.span,
    )


def _read(event: Event, around: frozenset[str]) -> Iterator[str]:
    """Yield the nodes whose entries of the event's clock are read."""
    own = home(event.node)
    for node in event.clock:
        if (name := home(node)) in around or name == own:
            yield node


def _latest(counters: list[int] | tuple[()], event: Event, node: str) -> int:
    """Return how many of a node's events, by their counters, happened-before `event`."""
    return bisect_right(counters, event.clock.get(node, 0) - (node == event.node))


class Reach:
    """How far an event's waiting reaches: which entries of its clock a queue reads.

    Parameters
    ----------
    groups : Domains
        The domains; an event of a node that is in none waits for its own node only.

    Attributes
    ----------
    lost : dict of str to set of int
        The dots that count as released because they were declared lost.
    """

    def __init__(self, groups: Domains) -> None:
        self.lost: dict[str, set[int]] = {}
        self._near = near(groups)

    def widen(self, groups: Domains) -> None:
        """Take the domains of a topology that was reopened.

        They only grow, so whoever waits goes on waiting, and reads its clock anew
        when the dot that it waits for comes. What was released stays released.
        """
        self._near = near(groups)

    def note_lost(self, dot: Dot) -> None:
        """Say that a dot was declared lost, before anything is released for it.

        A lost event waited for nothing, so the chains that led through it are read
        from the clock of whoever knows it: its near nodes count as theirs.
        """
        self.lost.setdefault(dot.node, set()).add(dot.counter)

    def nodes(self, event: Event) -> frozenset[str]:
        """Return the nodes, by their homes, whose entries are read."""
        own = home(event.node)
        around = self._near.get(own, frozenset((own,)))
        if not self.lost:
            return around
        left = [n for n in event.clock if event.clock[n] in self.lost.get(n, ())]
        while through := [n for n in left if home(n) in around]:
            left = [n for n in left if n not in through]
            around = around.union(*(self._near.get(home(n), ()) for n in through))
        return around

    def entries(self, event: Event) -> Iterator[tuple[str, int]]:
        """Yield the entries of an event's clock that are read."""
        around = self.nodes(event)
        for node, counter in event.clock.items():
            if home(node) in around:
                yield node, counter


class DomainHoldBack(HoldBack):
    """A hold-back queue that waits within domains.

    It releases an event when its own node's earlier events and, for every near
    node, all that the event's clock names have been released. A near node's event
    waited in the same way, so the order of release respects every pair that is
    not given up. Where no edge is relaxed and messages go along edges, that is
    what `HoldBack` waits for.

    Parameters
    ----------
    held_back_max : int
        How many events may wait; `push` refuses one more.
    groups : Domains
        The domains.
    """

    def __init__(self, held_back_max: int, groups: Domains) -> None:
        super().__init__(held_back_max)
        self.reach = Reach(groups)

    def missing(self, event: Event) -> Dot | None:
        """Return one dot that `event` waits for; None where it may be released."""
        released = self.released
        for node, counter in self.reach.entries(event):
            needed = counter - 1 if node == event.node else counter
            if released.get(node, 0) < needed:
                return Dot(node, needed)
        return None
