"""A second live CausalOrder, written down from its definitions: sets of dots, no indexes.

Every step computes everything again from the events received, released and declared lost. It shares
no code with `ketal.operators.order.hold_back` except the types of its results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical_key, happened_before
from ketal.model.syntax import Topology, TopologyEdge
from ketal.model.values import base_node
from ketal.operators.order.step import ReleaseStep
from ketal.operators.topology.domains import Domains, with_node
from tests.operators.marked_queue import Released


def past(event: Event) -> set[Dot]:
    """Return the dots that happened-before `event`."""
    dots = {Dot(n, c + 1) for n, counter in event.clock.items() for c in range(counter)}
    return dots - {event.dot}


def obvious_domains(edges: Iterable[TopologyEdge]) -> Domains:
    """Return the domains of a topology by enumerating every elementary path."""
    ends = {(base_node(x.source), base_node(x.target)) for x in edges if not x.relaxed}

    def paths(path: tuple[str, ...], target: str) -> Iterator[tuple[str, ...]]:
        if path[-1] == target:
            yield path
            return
        for source, successor in ends:
            if source == path[-1] and successor not in path:
                yield from paths((*path, successor), target)

    found = {frozenset().union(*paths((p,), q)) for p, q in ends if p != q}
    return tuple(sorted((d for d in found if not any(d < other for other in found)), key=sorted))


class Obvious:
    """A slow `MarkedQueue`, by definition."""

    def __init__(
        self,
        *,
        policy: str = "eager",
        nodes: tuple[str, ...] | None = None,
        frontier_us: int | None = None,
        gap_us: int | None = None,
        idle_us: int | None = None,
        gives_up: bool = False,
        held_back_max: int = 100_000,
        topology: Topology | None = None,
    ) -> None:
        self.topology = topology
        self.policy, self.gap_us, self.idle_us = policy, gap_us, idle_us
        self.frontier_us = frontier_us or 0
        self.lose, self.max = gives_up, held_back_max
        self.first: int | None = None
        self.now: int | None = None
        self.given: list[int] = []  # watermarks
        self.held: list[Event] = []
        self.moments: dict[Dot, int | None] = {}  # arrival times of the held events
        # (held event, dot) → when the event began to wait for the dot, the earliest first
        self.since: dict[tuple[Dot, Dot], int | None] = {}
        self.known: dict[str, int] = {}  # the highest counter that was ever waited for
        self.out: list[Event] = []  # all released events
        self.gone: set[Dot] = set()  # settled without being released
        self.lost: set[Dot] = set()  # the dots of `gone` that were declared lost
        self.named: set[Dot] = set()  # lost or late
        self.passed: dict[Dot, Event] = {}  # late because their place has passed
        self.live: list[tuple[str, int | None]] = [(n, None) for n in nodes or ()]
        self.away: dict[str, bool] = {}
        self.ended = False
        self.begin()

    def begin(self) -> None:
        self.released: list[Event] = []
        self.gaps: list[Dot] = []
        self.late: list[Event] = []
        self.refused: list[Event] = []
        self.given_up = 0

    def step(self) -> ReleaseStep:
        # A pattern learns what a step gave up before it is offered what the step released.
        marked = [Released(e, frozenset(past(e) & self.named)) for e in self.released]
        answer = ReleaseStep(
            marked,  # type: ignore[arg-type]
            self.gaps,
            self.late,
            self.refused,
            self.given_up,
        )
        self.begin()
        return answer

    # --- dots and times ---

    def tick(self, time_us: int) -> None:
        self.first = time_us if self.first is None else self.first
        self.now = time_us if self.now is None else max(self.now, time_us)

    def over(self, since: int | None, length: int) -> bool:
        start = self.first if since is None else since
        return self.now is not None and start is not None and self.now - start >= length

    def settled(self) -> set[Dot]:
        return {e.dot for e in self.out} | self.gone

    def near(self, node: str) -> set[str]:
        assert self.topology is not None
        groups = [d for d in obvious_domains(self.topology.edges) if base_node(node) in d]
        return {base_node(node)}.union(*groups)

    def needs(self, event: Event) -> set[Dot]:
        """Return the dots that an event waits for, settled or not."""
        if self.topology is None:
            return past(event)
        nodes = self.near(event.node)
        entries = {Dot(n, c) for n, c in event.clock.items() if Dot(n, c) in self.lost}
        for _ in entries:  # a chain is as long as the lost dots that it leads through
            nodes = nodes.union(*(self.near(d.node) for d in entries if base_node(d.node) in nodes))
        return {dot for dot in past(event) if base_node(dot.node) in nodes}

    def meet(self, event: Event) -> None:
        """Take in the nodes that an open topology lacks, before the event is pushed."""
        if self.topology is not None and self.topology.open:
            for node in event.clock:
                self.topology = with_node(self.topology, node)

    def ready(self, event: Event) -> bool:
        return self.needs(event) <= self.settled()

    def missing(self, event: Event) -> set[Dot]:
        return self.needs(event) - self.settled() - {e.dot for e in self.held}

    def missing_behind(self, event: Event) -> set[Dot]:
        """Return what an event waits for, and what those events wait for that it waits for."""
        dots = self.missing(event)
        for other in self.held:
            if other.dot in self.needs(event):
                dots |= self.missing_behind(other)
        return dots

    def lose_dots(self, dots: Iterable[Dot]) -> None:
        for dot in dots:
            self.gaps.append(dot)
            self.gone.add(dot)
            self.named.add(dot)
            self.lost.add(dot)
        self.look_again()

    def look_again(self) -> None:
        """Note what held events have begun to wait for: within domains it may become more."""
        if self.topology is None:
            return
        for event in list(self.held):
            if event.dot in self.moments:
                self.away_nodes(event)
                self.news(event)

    def away_nodes(self, event: Event) -> None:
        """Wait for nothing of a node that left; one that was silent is back by news of it."""
        for dot in sorted(self.missing(event)):
            if self.away.get(dot.node):
                self.hear(dot.node)
            elif dot.node in self.away and dot not in self.gone:
                self.lose_dots([dot])

    def release(self, event: Event) -> None:
        self.held.remove(event)
        self.out.append(event)
        self.released.append(event)

    def knowing(self) -> list[Event]:
        """Return, as they arrived, the events whose past has to come or to be declared lost."""
        events = {e.dot: e for e in self.held} | self.passed
        return [events[dot] for dot in self.moments if dot in events]

    # --- who is there ---

    def hear(self, node: str) -> None:
        if any(n == node for n, _ in self.live):
            if self.idle_us is None:
                return
            self.live = [(n, t) for n, t in self.live if n != node]
        elif not self.away.get(node, True):
            return
        self.away.pop(node, None)
        self.live.append((node, self.now))

    def gone_away(self, node: str, returns: bool) -> None:
        self.live = [(n, t) for n, t in self.live if n != node]
        self.away[node] = returns
        needed = {d for e in self.knowing() for d in self.missing(e) if d.node == node}
        self.lose_dots(sorted(needed))

    def news(self, event: Event) -> None:
        """Hear the nodes of which `event` is the first to wait for such a late dot."""
        missing = self.missing(event)
        for dot in sorted(missing):
            self.since.setdefault((event.dot, dot), self.now)
        for node in sorted({d.node for d in missing}):
            needed = max(d.counter for d in missing if d.node == node)
            if needed > self.known.get(node, 0):
                self.known[node] = needed
                if any(n == node for n, _ in self.live):
                    self.hear(node)

    # --- the calls ---

    def push(self, event: Event) -> ReleaseStep:
        if event.time_us is not None:
            self.tick(event.time_us)
        if self.policy == "frontier":
            self.push_frontier(event)
            return self.step()
        self.hear(event.node)
        if self.ended or event.dot in self.settled():
            self.late.append(event)
            self.named.add(event.dot)
        elif self.policy == "total" and self.out and self.key(event) < self.key(self.out[-1]):
            self.late.append(event)
            self.named.add(event.dot)
            self.gone.add(event.dot)
            self.passed[event.dot] = event
            self.moments[event.dot] = self.now
            self.away_nodes(event)
            self.news(event)
            self.flow()
        else:
            self.admit(event)
            self.look_again()
            self.flow()
        self.expire()
        while self.lose and len(self.held) > self.max:
            self.given_up += 1
            self.relieve()
            self.flow()
        return self.step()

    def admit(self, event: Event) -> None:
        self.away_nodes(event)
        self.held.append(event)
        if self.policy == "eager":
            moves = self.ready(event)
        else:
            moves = self.may_go(min(self.held, key=self.key))
        if not moves and not self.lose and len(self.held) > self.max:
            self.held.remove(event)
            self.refused.append(event)
            return
        self.moments[event.dot] = self.now
        if self.policy == "total" or not self.ready(event):
            self.news(event)

    def flow(self) -> None:
        if self.policy == "eager":
            while ready := [e for e in self.held if self.ready(e)]:
                self.release(ready[0])
        elif self.ended:
            for event in sorted(self.held, key=self.key):
                if self.ready(event):
                    self.release(event)
        else:
            while self.held and self.may_go(min(self.held, key=self.key)):
                self.release(min(self.held, key=self.key))

    def key(self, event: Event) -> tuple[int, str, int]:
        return canonical_key(event)

    def may_go(self, event: Event) -> bool:
        return self.ready(event) and all(self.key(event) < self.next_key(n) for n, _ in self.live)

    def next_key(self, node: str) -> tuple[int, str, int]:
        """Return the least key that the next unseen event of a node can have."""
        known = {e.dot: e for e in [*self.out, *self.held]} | self.passed
        there = self.settled() | set(known)
        there |= {d for late in self.passed.values() for d in past(late) if d.node == late.node}
        counter, total = 0, 0
        while Dot(node, counter + 1) in there:
            counter += 1
            event = known.get(Dot(node, counter))
            total = total + 1 if event is None else sum(event.clock.values())
        return total + 1, node, counter + 1

    def expire(self) -> None:
        over = [
            (place, dot)
            for place, event in enumerate(self.knowing())
            for dot in self.missing(event)
            if self.gap_us is not None and self.over(self.since[event.dot, dot], self.gap_us)
        ]
        self.lose_dots(dict.fromkeys(dot for _, dot in sorted(over)))
        for node, heard in self.live:
            is_silent = (node, heard) in self.live  # also after what was given up before it
            if is_silent and self.idle_us is not None and self.over(heard, self.idle_us):
                self.gone_away(node, True)
        self.flow()

    def relieve(self) -> None:
        if self.policy == "total":
            event = min(self.held, key=self.key)
            if self.missing(event):
                self.lose_dots(sorted(self.missing(event)))
            else:
                self.release(event)
            return
        missing = {e.dot: self.missing(e) for e in self.held}
        waits = ((one, dot.node) for one, dot in self.since if dot in missing.get(one, ()))
        longest, node = next(waits)
        self.lose_dots(sorted(d for d in missing[longest] if d.node == node))

    def advance(self, watermark_us: int) -> ReleaseStep:
        self.tick(watermark_us)
        if self.policy == "frontier":
            self.given.append(watermark_us)
            self.flow_frontier()
        else:
            self.expire()
        return self.step()

    def join(self, node: str) -> ReleaseStep:
        self.away.pop(node, None)
        self.hear(node)
        return self.step()

    def leave(self, node: str) -> ReleaseStep:
        if self.policy != "frontier":
            self.gone_away(node, False)
            self.flow()
        return self.step()

    def view(self, members: Iterable[str]) -> ReleaseStep:
        if self.policy != "frontier":
            members = list(dict.fromkeys(members))
            for node in members:
                self.away.pop(node, None)
                self.hear(node)
            known = {n for n, _ in self.live} | set(self.away)
            events = [*self.held, *self.out, *self.passed.values()]
            known |= {d.node for e in events for d in past(e) | {e.dot}}
            known |= {d.node for d in self.named}
            for node in sorted(known - set(members)):
                self.gone_away(node, False)
            self.flow()
        return self.step()

    def end(self) -> ReleaseStep:
        self.ended = True
        if self.policy == "frontier":
            for event in sorted(self.held, key=self.key):
                self.release(event)
            return self.step()
        while self.gap_us is not None:
            over = [(p, dot) for p, e in enumerate(self.knowing()) for dot in self.missing(e)]
            if not over:
                break
            self.lose_dots(dict.fromkeys(dot for _, dot in sorted(over)))
        self.flow()
        return self.step()

    # --- frontier ---

    def watermark(self) -> int | None:
        if self.now is None:
            return None
        return max([self.now - self.frontier_us, *self.given])

    def time(self, event: Event) -> int | None:
        moment = self.moments[event.dot]
        return (
            event.time_us if event.time_us is not None else self.first if moment is None else moment
        )

    def due(self, event: Event) -> int:
        before = [f for f in [*self.out, *self.held] if happened_before(f, event)]
        return max(t if (t := self.time(f)) is not None else -(2**63) for f in [event, *before])

    def push_frontier(self, event: Event) -> None:
        if self.ended or any(happened_before(event, f) for f in self.out):
            self.late.append(event)
            self.named.add(event.dot)
        else:
            self.moments[event.dot] = self.now
            watermark = self.watermark()
            waits = watermark is None or self.due(event) >= watermark
            if waits and not self.lose and len(self.held) >= self.max:
                self.refused.append(event)
                self.named.add(event.dot)
            else:
                self.held.append(event)
        self.flow_frontier()
        while len(self.held) > self.max:
            self.given_up += 1
            self.release(min(self.held, key=lambda e: (self.due(e), self.key(e))))

    def flow_frontier(self) -> None:
        watermark = self.watermark()
        if watermark is not None:
            ready = [e for e in self.held if self.due(e) < watermark]
            for event in sorted(ready, key=self.key):
                self.release(event)
