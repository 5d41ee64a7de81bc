"""Domains of a topology: how far causal order reaches (DESIGN 5, "Domains").

From Quaireau and Laumay, "Ensuring applicative causal ordering in autonomous
mobile computing", section 4.1: who may send to whom is a directed graph; the
domain of an edge (p, q) is p, q and every r on an elementary path from p to q,
and it is kept if no edge's domain strictly contains it. Their theorem: causal
delivery within each domain gives it globally (`domain_stamps` plays it).
Section 4.3: an edge that the author calls `relaxed` is left out of the graph.

Whether r lies on an elementary path is NP-complete in directed graphs, so
`domains` searches: a path p → r and a path r → q that share nothing but r. A
vertex that every path of one side needs is taken from the other side; where the
two shortest paths still meet, the search branches on who gets the vertex. Few
real topologies branch at all; `topology_steps_max` bounds those that do.
`obvious_domains` enumerates every elementary path.

What a relaxed edge gives up: it makes no domain and lies on no path, and that
is all. Two events are *joined* if they are of one node, or a → b and their
nodes have a domain in common, whatever message told b of a. `given_up` holds
the pairs a → b that no chain of joined events leads across.

The one rule: an event waits for its *near* nodes only, those with which its own
node has a domain in common. What they knew they waited for themselves, so the
chains need no look-up of their own.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from ketal.errors import PatternError, Span, pattern_error
from ketal.event import Dot, Event, canonical_key, happened_before
from ketal.limits import DEFAULT, Limits
from ketal.operators.causal_order import HoldBack
from ketal.pattern import Topology, TopologyEdge

Domains: TypeAlias = tuple[frozenset[str], ...]
"""The domains of a topology, sorted by their members."""

Pair: TypeAlias = tuple[Dot, Dot]

_INCARNATION = re.compile(r"#\d+\Z")


# --- nodes ------------------------------------------------------------------


def home(node: str) -> str:
    """Return the node that a topology speaks of: `A#2`, an incarnation of `A`, is `A`."""
    return _INCARNATION.sub("", node) if "#" in node else node


def nodes_of(topology: Topology) -> frozenset[str]:
    """Return the nodes of a topology, those on relaxed edges included."""
    return frozenset(end for edge in topology.edges for end in (edge.source, edge.target))


def knows(topology: Topology, node: str) -> bool:
    """Return whether a node, in any incarnation, is in the topology."""
    return home(node) in nodes_of(topology)


def strangers(topology: Topology, event: Event) -> tuple[str, ...]:
    """Return the nodes that an event shows and the topology lacks, sorted.

    It shows its own node and those in its clock. A closed topology rejects the
    event if its own node is a stranger; an open one takes in all of them: whoever
    is heard of may have had a part in what the event knows.
    """
    known = nodes_of(topology)
    return tuple(sorted({home(node) for node in (event.node, *event.clock)} - known))


def reopened(topology: Topology, node: str, neighbours: Iterable[str] | None = None) -> Topology:
    """Return an open topology with a node that it did not know.

    Parameters
    ----------
    topology : Topology
        An open one.
    node : str
        Who appeared; a node that is known changes nothing.
    neighbours : iterable of str, optional
        With whom it exchanges messages, in both directions; at least one. Without
        them, with every known node: the topology says nothing about the newcomer,
        so nothing about it is given up.

    Returns
    -------
    Topology
        The edges between known nodes are what they were, `relaxed` included, so
        domains only grow. Its domains may pass `topology_nodes_max`, which
        `domains` says.
    """
    assert topology.open, "a closed topology rejects events of unknown nodes"
    name = home(node)
    known = nodes_of(topology)
    if name in known:
        return topology
    others = sorted((known if neighbours is None else {home(n) for n in neighbours}) - {name})
    assert others, "a topology is made of edges"
    new = [edge for n in others for edge in (TopologyEdge(name, n), TopologyEdge(n, name))]
    return Topology((*topology.edges, *new), open=True, span=topology.span)


# --- domains ----------------------------------------------------------------


def obvious_domains(edges: Iterable[TopologyEdge]) -> Domains:
    """Return the domains of a topology by enumerating every elementary path."""
    ends = _ordered(edges)

    def paths(path: tuple[str, ...], target: str) -> Iterator[tuple[str, ...]]:
        if path[-1] == target:
            yield path
            return
        for source, successor in ends:
            if source == path[-1] and successor not in path:
                yield from paths((*path, successor), target)

    return _kept({frozenset().union(*paths((p,), q)) for p, q in ends})


def domains(
    edges: Iterable[TopologyEdge],
    nodes_max: int = DEFAULT.topology_nodes_max,
    *,
    steps_max: int = DEFAULT.topology_steps_max,
    span: Span | None = None,
) -> Domains:
    """Return the domains of a topology (the Definition of section 4.1), exactly.

    Parameters
    ----------
    edges : iterable of TopologyEdge
        The edges; relaxed ones count as nodes of the topology and as nothing else.
    nodes_max, steps_max : int
        The limits `topology_nodes_max` and `topology_steps_max`.
    span : Span, optional
        Where the topology stands, for the errors.

    Returns
    -------
    tuple of frozenset of str
        Sorted by their members. A node on relaxed edges only is in none.

    Raises
    ------
    PatternError
        If a limit is passed; the message names it.
    """
    edges = tuple(edges)
    nodes = sorted({end for edge in edges for end in (edge.source, edge.target)})
    if len(nodes) > nodes_max:
        raise pattern_error(
            "K213",
            f"the topology has {len(nodes)} nodes; the limit topology_nodes_max is {nodes_max}",
            span,
            hint="limit topology_nodes_max; a topology without relaxed edges may be left out, "
            "it holds back what causal order holds back",
        )
    graph = _Graph(nodes, _ordered(edges), steps_max, span)
    return _kept({graph.names(domain) for domain in graph.domains()})


def _ordered(edges: Iterable[TopologyEdge]) -> list[tuple[str, str]]:
    """Return the ends of the edges that carry order; a node's own events need no edge."""
    return sorted({(e.source, e.target) for e in edges if not e.relaxed and e.source != e.target})


def _kept(found: set[frozenset[str]]) -> Domains:
    return tuple(sorted((d for d in found if not any(d < other for other in found)), key=sorted))


class _Graph:
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
        # The widest first: an edge whose vertices in question lie in a domain that is
        # known cannot add one, and most edges of a dense graph are of that kind.
        jobs.sort(key=lambda job: (-job[0].bit_count(), job))
        found: set[int] = set()
        for widest, p, q, after, before in jobs:
            if any(not widest & ~domain for domain in found):
                continue
            domain = p | q
            for r in _bits(widest & ~domain):
                if not r & domain:
                    domain |= self._through(p, r, q, after, before)
            found.add(domain)
        return found

    def _through(self, p: int, r: int, q: int, first: int, second: int) -> int:
        """Return an elementary path p → r → q as its vertices; 0 if there is none.

        `first` holds the vertices that the path p → r may use, `second` those of
        r → q. A vertex is on one of the two at most, so removing a contested one
        from either side, in turn, misses no solution.
        """
        choices = [(first, second)]
        while choices:
            self._count()
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

    def _count(self) -> None:
        self.steps += 1
        if self.steps > self.steps_max:
            raise _too_hard(self.steps_max, self.span)

    def _between(self, a: int, b: int, allowed: int) -> int:
        """Return the vertices of `allowed` on walks from a to b; 0 if there are none."""
        ahead = _reach(a, allowed, self.successors)
        return ahead & _reach(b, allowed, self.predecessors) if ahead & b else 0

    def _shortest(self, a: int, b: int, allowed: int) -> int:
        """Return the vertices of a shortest path from a to b; 0 if there is none."""
        layers = [a]
        seen = a
        while not layers[-1] & b:
            layer = 0
            for v in _bits(layers[-1]):
                layer |= self.successors[v.bit_length() - 1]
            layer &= allowed & ~seen
            if not layer:
                return 0
            seen |= layer
            layers.append(layer)
        path = last = b
        for layer in reversed(layers[:-1]):
            last = next(_bits(layer & self.predecessors[last.bit_length() - 1]))
            path |= last
        return path

    def _needed(self, a: int, b: int, allowed: int, path: int) -> int:
        """Return the inner vertices that every path from a to b needs; all lie on `path`."""
        needed = 0
        for v in _bits(path & ~a & ~b):
            if not _reach(a, allowed & ~v, self.successors) & b:
                needed |= v
        return needed


def _too_hard(steps_max: int, span: Span | None) -> PatternError:
    return pattern_error(
        "K214",
        f"the domains of this topology take more than {steps_max:,} steps of search; "
        "the limit is topology_steps_max",
        span,
        hint="limit topology_steps_max; whether a node lies on an elementary path is "
        "NP-complete: mark edges as relaxed, or leave the topology out",
    )


def _bits(vertices: int) -> Iterator[int]:
    while vertices:
        least = vertices & -vertices
        yield least
        vertices ^= least


def _reach(start: int, allowed: int, step: list[int]) -> int:
    """Return `start` and what is reached from it by `step` within `allowed`."""
    seen = left = start
    while left:
        least = left & -left
        left ^= least
        new = step[least.bit_length() - 1] & allowed & ~seen
        seen |= new
        left |= new
    return seen


# --- order ------------------------------------------------------------------


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
        The domains; a node that is in none waits for its own events only.
    """

    def __init__(self, held_back_max: int, groups: Domains) -> None:
        super().__init__(held_back_max)
        self.lost: dict[str, set[int]] = {}
        self._near = near(groups)

    def widen(self, groups: Domains) -> None:
        """Take the domains of a topology that was reopened.

        They only grow, so whoever waits goes on waiting, and reads its clock anew
        when the dot that it waits for comes. What was released stays released.
        """
        self._near = near(groups)

    def note_lost(self, dot: Dot) -> None:
        """Say that a dot was declared lost and only counts as released.

        A lost event waited for nothing, so the chains that led through it are read
        from the clock of whoever knows it: its near nodes count as theirs.
        """
        self.lost.setdefault(dot.node, set()).add(dot.counter)

    def reads(self, event: Event) -> frozenset[str]:
        """Return the nodes whose entries of the event's clock are waited for."""
        own = home(event.node)
        around = self._near.get(own, frozenset((own,)))
        if not self.lost:
            return around
        left = [n for n in event.clock if event.clock[n] in self.lost.get(n, ())]
        while through := [n for n in left if home(n) in around]:
            left = [n for n in left if n not in through]
            around = around.union(*(self._near.get(home(n), ()) for n in through))
        return around

    def missing(self, event: Event) -> Dot | None:
        """Return one dot that `event` waits for; None where it may be released."""
        around = self.reads(event)
        released = self.released
        for node, counter in event.clock.items():
            if home(node) in around:
                needed = counter - 1 if node == event.node else counter
                if released.get(node, 0) < needed:
                    return Dot(node, needed)
        return None
