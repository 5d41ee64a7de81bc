"""Domains of a topology: how far causal order reaches.

From Quaireau and Laumay, "Ensuring applicative causal ordering in autonomous
mobile computing", section 4.1: who may send to whom is a directed graph; the
domain of an edge (p, q) is p, q and every r on an elementary path from p to q,
and it is kept if no edge's domain strictly contains it. Their theorem: causal
delivery within each domain gives it globally (`ketal.clocks.matrices.domain_stamps` shows it).
Section 4.3: an edge that the author calls `relaxed` is left out of the graph.

Whether r lies on an elementary path is NP-complete in directed graphs, so
`domains` searches: a path p → r and a path r → q that share nothing but r. A
vertex that every path of one side needs is taken from the other side; where the
two shortest paths still meet, the search branches on which side gets the vertex. Few
real topologies branch; `topology_steps_max` bounds the search in those that do.

A relaxed edge makes no domain and lies on no path, and has no other effect:
`domain_order` defines which order is given up with it.

The one rule: the domains are exact, or an error is raised; they are never approximated by
reachability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ketal.errors import Span, pattern_error
from ketal.model.limits import DEFAULT, Limits
from ketal.model.syntax import Topology, TopologyEdge
from ketal.model.values import base_node

Domains: TypeAlias = tuple[frozenset[str], ...]
"""The domains of a topology, sorted by their members."""


# --- nodes ------------------------------------------------------------------


def nodes_of(topology: Topology) -> frozenset[str]:
    """Return the nodes of a topology, without incarnations, those on relaxed edges included."""
    return frozenset(end for edge in topology.edges for end in _end_nodes(edge))


def closed_nodes(topology: Topology | None) -> frozenset[str] | None:
    """Return the nodes of a closed topology, which are all that take part; None for any other."""
    return None if topology is None or topology.open else nodes_of(topology)


def takes_part(node: str, nodes: frozenset[str] | None) -> bool:
    """Return whether a node, in any incarnation, is in `closed_nodes`; true where that is None."""
    return nodes is None or base_node(node) in nodes


def _end_nodes(edge: TopologyEdge) -> tuple[str, str]:
    return base_node(edge.source), base_node(edge.target)


def with_node(topology: Topology, node: str) -> Topology:
    """Return an open topology with a new node added; a known one changes nothing.

    The new node may exchange messages with every known node: the topology does not restrict it, so
    the order of no pair with its events is given up. The edges between known nodes are what they
    were, `relaxed` included, so domains only grow. Its nodes may exceed `topology_nodes_max`, which
    `domains` reports.
    """
    assert topology.open, "a closed topology rejects events of unknown nodes"
    name = base_node(node)
    known = nodes_of(topology)
    if name in known:
        return topology
    new = [edge for n in sorted(known) for edge in (TopologyEdge(name, n), TopologyEdge(n, name))]
    return Topology((*topology.edges, *new), open=True, span=topology.span)


# --- domains ----------------------------------------------------------------


def domains(
    edges: Iterable[TopologyEdge], limits: Limits = DEFAULT, *, span: Span | None = None
) -> Domains:
    """Return the domains of a topology (the Definition of section 4.1), exactly.

    Of relaxed edges only the nodes count; a node that has no others is in no domain. `span` is the
    place of the topology in its file, for the PatternError that names a limit that is exceeded.
    """
    edges = tuple(edges)
    nodes = sorted({end for edge in edges for end in _end_nodes(edge)})
    nodes_max = limits.topology_nodes_max
    if len(nodes) > nodes_max:
        raise pattern_error(
            "K213",
            f"the topology has {len(nodes)} nodes, more than {nodes_max} "
            "(limit topology_nodes_max)",
            span,
            hint="remove a topology without relaxed edges: it holds back "
            "the same events as causal order",
        )
    # The edges that carry order; a node's own events need no edge.
    pairs = {_end_nodes(edge) for edge in edges if not edge.relaxed}
    ends = sorted((p, q) for p, q in pairs if p != q)
    graph = _ChannelGraph(nodes, ends, limits.topology_steps_max, span)
    sets = {graph.names(domain) for domain in graph.domains()}
    return tuple(sorted((d for d in sets if not any(d < other for other in sets)), key=sorted))


class _ChannelGraph:
    """A directed graph whose sets of vertices are the bits of an integer."""

    def __init__(
        self, nodes: list[str], ends: list[tuple[str, str]], steps_max: int, span: Span | None
    ) -> None:
        self.nodes = nodes
        number = {node: i for i, node in enumerate(nodes)}
        self.ends = [(1 << number[p], 1 << number[q]) for p, q in ends]
        self.successors = [0] * len(nodes)
        self.predecessors = [0] * len(nodes)
        for p, q in self.ends:
            self.successors[p.bit_length() - 1] |= q
            self.predecessors[q.bit_length() - 1] |= p
        self.steps_max = steps_max
        self.steps = 0
        self.span = span

    def names(self, vertices: int) -> frozenset[str]:
        return frozenset(self.nodes[v.bit_length() - 1] for v in _bits(vertices))

    def domains(self) -> set[int]:
        """Return the domain of each edge, except of those that lie in another's."""
        everything = (1 << len(self.nodes)) - 1
        jobs = []
        for p, q in self.ends:
            after = _reach(p, everything & ~q, self.successors)
            before = _reach(q, everything & ~p, self.predecessors)
            jobs.append((after & before | p | q, p, q, after, before))
        # The widest first: an edge whose possible vertices lie in a domain that is
        # known cannot add a domain, and most edges of a dense graph are of that kind.
        jobs.sort(key=lambda job: (-job[0].bit_count(), job))
        masks: set[int] = set()
        for widest, p, q, after, before in jobs:
            if any(not widest & ~domain for domain in masks):
                continue
            domain = p | q
            for r in _bits(widest & ~domain):
                if not r & domain:
                    domain |= self._path_through(p, r, q, after, before)
            masks.add(domain)
        return masks

    def _path_through(self, p: int, r: int, q: int, first: int, second: int) -> int:
        """Return an elementary path p → r → q as its vertices; 0 if there is none.

        `first` holds the vertices that the path p → r may use, `second` those of
        r → q. A vertex is on one of the two at most, so removing a contested one
        from either side, in turn, misses no solution.
        """
        choices = [(first, second)]
        while choices:
            self.steps += 1
            if self.steps > self.steps_max:
                raise pattern_error(
                    "K214",
                    "computing the domains of this topology takes more than "
                    f"{self.steps_max:,} search steps (limit topology_steps_max)",
                    self.span,
                    hint="whether a node lies on an elementary path is "
                    "NP-complete: mark edges as relaxed, or remove the topology",
                )
            first, second = choices.pop()
            while True:
                first = self._between(p, r, first)
                second = self._between(r, q, second)
                if not first or not second:
                    break
                one = self._shortest(p, r, first)
                two = self._shortest(r, q, second)
                if one & two == r:
                    return one | two
                if other := self._shortest(r, q, second & ~one | r):
                    return one | other
                if other := self._shortest(p, r, first & ~two | r):
                    return other | two
                needed_first = self._needed(p, r, first, one) & second
                needed_second = self._needed(r, q, second, two) & first
                if needed_first & needed_second:
                    break
                if not needed_first | needed_second:
                    contested = next(_bits(one & two & ~r))
                    choices.append((first & ~contested, second))
                    choices.append((first, second & ~contested))
                    break
                second &= ~needed_first
                first &= ~needed_second
        return 0

    def _between(self, a: int, b: int, allowed: int) -> int:
        """Return the vertices of `allowed` on walks from a to b; 0 if there are none."""
        ahead = _reach(a, allowed, self.successors)
        return ahead & _reach(b, allowed, self.predecessors) if ahead & b else 0

    def _shortest(self, a: int, b: int, allowed: int) -> int:
        """Return the vertices of a shortest path from a to b; 0 if there is none."""
        layers = [a]
        visited = a
        while not layers[-1] & b:
            layer = 0
            for v in _bits(layers[-1]):
                layer |= self.successors[v.bit_length() - 1]
            layer &= allowed & ~visited
            if not layer:
                return 0
            visited |= layer
            layers.append(layer)
        path = last = b
        for layer in reversed(layers[:-1]):
            last = next(_bits(layer & self.predecessors[last.bit_length() - 1]))
            path |= last
        return path

    def _needed(self, a: int, b: int, allowed: int, path: int) -> int:
        """Return the inner vertices that every path from a to b needs.

        They lie on `path`, a shortest path, which is walked. Before each of its vertices, every
        vertex is visited that can be reached without the vertices ahead on the path; the next
        vertex is needed if no other vertex ahead has an edge from the visited ones.
        """
        needed = met = 0
        here = visited = a
        ahead = path & ~a
        while True:
            left = here
            while left:
                least = left & -left
                left ^= least
                new = self.successors[least.bit_length() - 1] & allowed & ~visited
                visited |= new
                met |= new & ahead
                left |= new & ~ahead
            here = self.successors[here.bit_length() - 1] & ahead  # a shortest path skips none
            if here == b:
                return needed
            ahead ^= here
            met ^= here
            if not met:
                needed |= here


def _bits(vertices: int) -> Iterator[int]:
    while vertices:
        least = vertices & -vertices
        yield least
        vertices ^= least


def _reach(start: int, allowed: int, step: list[int]) -> int:
    """Return the vertices reached from `start` by `step` within `allowed`, itself included."""
    visited = left = start
    while left:
        least = left & -left
        left ^= least
        new = step[least.bit_length() - 1] & allowed & ~visited
        visited |= new
        left |= new
    return visited
