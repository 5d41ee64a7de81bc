"""Causal order within domains: which events wait for which, and which order is given up.

From Quaireau and Laumay, "Ensuring applicative causal ordering in autonomous mobile
computing", section 4.3: leaving an edge out of the graph relaxes causality where it has
no meaning. The domains are those of the other edges (`domains`). Two events are
*joined* if a → b and they are of one node, or of nodes that have a domain in common,
by whichever messages a is in b's past. The order of a → b is given up if no chain of
joined events leads from a to b, and only then.

A queue needs no chains. An event waits for the events that its clock names of *near* nodes,
those with which its own node has a domain in common; entries of other nodes are not
read. The order is transitive all the same: let a, m, b be a chain. b's clock names m, of a near
node, so m was released before b; and m waited for a. The one gap in this is that a lost event
waited for no event; `DomainPast` closes it.

The one rule: whole clocks decide which events happened before which; domains decide only
which of these are waited for.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from ketal.errors import PatternError
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.syntax import Topology
from ketal.model.values import base_node
from ketal.operators.topology.domains import Domains, domains, nodes_of, with_node


def nodes_sharing_domain(groups: Domains) -> dict[str, frozenset[str]]:
    """Return for each node the nodes with which it has a domain in common."""
    out: dict[str, frozenset[str]] = {}
    for domain in groups:
        for node in domain:
            out[node] = out.get(node, frozenset()) | domain
    return out


@functools.lru_cache(maxsize=64)
def domains_of(topology: Topology, limits: Limits = DEFAULT) -> Domains:
    """Return the domains of a topology; the search for them is done once.

    Raises a PatternError if a limit is exceeded (K213, K214).
    """
    return domains(topology.edges, limits, span=topology.span)


def gives_up_order(topology: Topology, limits: Limits = DEFAULT) -> bool:
    """Return whether some message along an edge can make a pair whose order is given up.

    Only a message along a relaxed edge can, between nodes that have no domain in common.
    """
    around = nodes_sharing_domain(domains_of(topology, limits))
    return any(
        edge.relaxed and base_node(edge.target) not in around.get(base_node(edge.source), ())
        for edge in topology.edges
    )


class DomainPast:
    """The part of its past that an event waits for under a topology, on a stream.

    If it is `whole`, all of its nodes are one domain, whatever the edges. Otherwise
    `topology_nodes_max` and `topology_steps_max` bound the search for domains, and a PatternError
    is raised if a limit is exceeded. Of lost dots at most `lost_max` ranges are held. Beyond that,
    the two lowest ranges of a node become one: the dots between them count as lost too, so that
    events wait for more dots, but for none that causal order does not wait for.
    """

    def __init__(
        self, topology: Topology, limits: Limits = DEFAULT, *, whole: bool = False
    ) -> None:
        self.topology = topology
        self.limits = limits
        self.lost: dict[str, list[tuple[int, int]]] = {}
        """The dots that count as released because they were declared lost, as ranges."""
        self._ranges = 0  # how many ranges `lost` has
        self._added: list[str] = []
        self._known = nodes_of(topology)
        self._met: set[str] = set()
        groups = (self._known,) if whole else domains_of(topology, limits)
        # None: one domain of all nodes.
        self._near: Mapping[str, frozenset[str]] | None = nodes_sharing_domain(groups)

    # --- nodes ---

    def widen(self, event: Event) -> tuple[bool, str]:
        """Add the new nodes in an event's clock, if the topology is open.

        Domains only grow, so no waiting event becomes ready by that; released events stay
        released. Return whether domains have grown, and which limit the search for them exceeded,
        if any: then all nodes are one domain from now on, and no order is given up any more.
        """
        if not self.topology.open or event.clock.keys() <= self._met:
            return False, ""
        self._met.update(event.clock)
        fresh = sorted({base_node(node) for node in event.clock} - self._known)
        return (True, self._add_nodes(fresh)) if fresh else (False, "")

    def _add_nodes(self, fresh: Iterable[str]) -> str:
        for node in fresh:
            self._added.append(node)
            self.topology = with_node(self.topology, node)
        self._known = nodes_of(self.topology)
        if self._near is None:
            return ""
        try:
            self._near = nodes_sharing_domain(domains_of(self.topology, self.limits))
        except PatternError as error:
            self._near = None
            passed = {"K213": "topology_nodes_max", "K214": "topology_steps_max"}
            return passed[error.diagnostics[0].code]
        return ""

    # --- lost dots ---

    def add_lost(self, node: str, first: int, last: int) -> None:
        """Record dots as declared lost, before any event is released for them.

        A lost event waited for no event, so the chains that led through it are kept by the
        events after it: the lost event's near nodes count as theirs.
        """
        ranges = self.lost.setdefault(node, [])
        if ranges and ranges[-1][1] + 1 >= first:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            return
        ranges.append((first, last))
        self._ranges += 1
        if self._ranges > self.limits.lost_max:
            most = max(self.lost.values(), key=len)
            if len(most) > 1:
                most[:2] = [(most[0][0], most[1][1])]
                self._ranges -= 1

    def _is_lost(self, node: str, counter: int) -> bool:
        ranges = self.lost.get(node, [])
        at = bisect_right(ranges, counter, key=lambda r: r[0])
        return at > 0 and counter <= ranges[at - 1][1]

    # --- the entries that are waited for ---

    def clock(self, event: Event) -> Mapping[str, int]:
        """Return the entries of an event's clock that are waited for."""
        if self._near is None:
            return event.clock
        around = self._awaited_nodes(event, self._near)
        return {n: counter for n, counter in event.clock.items() if base_node(n) in around}

    def _awaited_nodes(self, event: Event, near: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the nodes, without their incarnations, whose entries are read."""
        own, clock = base_node(event.node), event.clock
        around = near.get(own, frozenset((own,)))
        if not self.lost:
            return around
        left = [n for n in clock if self._is_lost(n, clock[n])]
        while through := [n for n in left if base_node(n) in around]:
            left = [n for n in left if n not in through]
            around = around.union(*(near.get(base_node(n), ()) for n in through))
        return around

    # --- state ---

    def save(self) -> Any:
        """Return the nodes that were added and the lost dots, as plain data."""
        return [list(self._added), {node: list(ranges) for node, ranges in self.lost.items()}]

    def load(self, state: Any) -> None:
        """Load what `save` returned."""
        added, lost = state
        if added:
            self._add_nodes(added)
        self.lost = {node: [(first, last) for first, last in r] for node, r in lost.items()}
        self._ranges = sum(map(len, self.lost.values()))
