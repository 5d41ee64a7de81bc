"""Hold-back queues: an event is released after its past (policies `eager` and `total`).

The theory is that of causal delivery (Birman, Schiper and Stephenson,
"Lightweight causal and atomic group multicast", 1991), with an end to waiting.
A dot is *settled* when it was released, or given up: declared lost, or late. An
event is causally ready when its whole past is settled. As an event's clock
covers the clocks of its past, the settled dots of a node are the first so many
of them, and one number for each node tells what is settled.

`Eager` releases what is ready at once; each waiting event is indexed by one
dot that is not settled, so an arrival costs work only for what it releases.
`Total` keeps the waiting events in canonical order and releases the first when
it is ready and no live node can still send anything that comes before it: the
next unseen event of a node has a larger clock than the last one received from
it, hence a larger sum.

A dot that is neither settled nor received is *missing* to the events that have
it in their past. It is given up when it has been missing for `gap`, when its
node has left, or when a full queue has to give up something.

The one rule: what is missing is given up from the lowest counter of a node on,
so that the settled dots stay the first so many.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ketal.event import Dot, Event, canonical_key
from ketal.operators.released import Marks, Out, Released, StreamTime

Key = tuple[int, str, int]
"""A place in the canonical order: sum of the clock, node, counter."""
_STEPS_LEAST = 1_024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the options of CausalOrder say about a queue."""

    nodes: tuple[str, ...] = ()
    frontier_us: int = 0
    gap_us: int | None = None
    idle_us: int | None = None
    lose: bool = False
    held_back_max: int = 100_000
    lost_max: int = 10_000


class Held(NamedTuple):
    """An event in the queue, with its place among the arrivals."""

    arrival: int
    event: Event


class Line:
    """What is known of one node's events."""

    __slots__ = ("given", "held", "holes", "known", "reach", "settled", "sum", "waiting")

    def __init__(self) -> None:
        self.settled = 0  # so many are released or given up
        self.reach = 0  # so many are settled or received
        self.sum = 0  # at least the sum of the clock of the last of these
        self.given = 0  # up to here, what is not held was released or given up
        self.known = 0  # up to here, events that were held have it in their past
        self.held: dict[int, Held] = {}
        self.holes: dict[int, int] = {}  # given up, not yet settled: first to last
        self.waiting: dict[int, list[Held]] = {}  # events that wait until this is settled

    def extend(self) -> None:
        """Move `reach` over what has been received or given up."""
        reach = self.reach
        while True:
            if (held := self.held.get(reach + 1)) is not None:
                reach += 1
                self.sum = sum(held.event.clock.values())
            elif (last := self.holes.get(reach + 1)) is not None:
                self.sum += last - reach
                reach = last
            else:
                break
        self.reach = reach

    def missing(self, upto: int) -> Iterator[tuple[int, int]]:
        """Yield the holes below or at `upto`, first and last, that are not given up."""
        first = max(self.settled, self.given) + 1
        if upto - first < len(self.held):
            received = [c for c in range(first, upto + 1) if c in self.held]
        else:
            received = sorted(c for c in self.held if first <= c <= upto)
        for counter in (*received, upto + 1):
            if first < counter:
                yield first, counter - 1
            first = counter + 1


def needs(event: Event) -> Iterator[tuple[str, int]]:
    """Yield for each node how many of its events are in the past of `event`."""
    for node, counter in event.clock.items():
        yield node, counter - 1 if node == event.node else counter


class Queue:
    """What both policies share: who is there, what is missing, what is given up.

    Parameters
    ----------
    settings : Settings
        The options.
    time : StreamTime
        Kept by the owner, who lets it tick before each call.
    """

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        self.settings = settings
        self.time = time
        self.marks = Marks(settings.lost_max)
        self.count = 0
        self._arrivals = 0
        self._ended = False
        self._lines: dict[str, Line] = {}
        self._live: OrderedDict[str, int | None] = OrderedDict.fromkeys(settings.nodes)
        self._away: dict[str, bool] = {}  # who left, and whether appearing brings them back
        # (since, node, upto): dots of the node up to there are missing since then.
        self._steps: deque[tuple[int | None, str, int]] = deque()
        self._steps_max = _STEPS_LEAST

    # --- what a policy says ---

    def _passed(self, event: Event) -> bool:
        """Return whether the place of a new event has passed."""
        return False

    def _admit(self, line: Line, event: Event, out: Out) -> None:
        """Release, hold or refuse an event whose place has not passed."""
        raise NotImplementedError

    def _drain(self, out: Out) -> None:
        """Release all that can be released."""
        raise NotImplementedError

    def _relieve(self, out: Out) -> None:
        """Give up one wait of a queue that is too full."""
        raise NotImplementedError

    def _settled(self, line: Line, old: int) -> None:
        """Hear that the settled dots of a node are more than `old`."""

    def _regrouped(self) -> None:
        """Hear that the live nodes are others."""

    # --- what happens ---

    def push(self, event: Event, out: Out) -> None:
        """Take in an event whose dot was not pushed before."""
        line = self._hear(event.node)
        counter = event.clock[event.node]
        if self._ended or counter <= line.settled or counter <= line.given:
            self._late(event, out)
        elif self._passed(event):
            # Whatever precedes it in its node has passed too, and nothing of that is held.
            self._late(event, out)
            line.given = counter
            line.reach, line.sum = counter, sum(event.clock.values())
            self._settle(line, counter)
            line.extend()
            self._regrouped()
            self._drain(out)
        else:
            if self._away:
                self._give_up_the_away(event, out)
            self._admit(line, event, out)
            self._drain(out)
        self.advance(out)
        while self.settings.lose and self.count > self.settings.held_back_max:
            out.given_up += 1
            self._relieve(out)
            self._drain(out)

    def advance(self, out: Out) -> None:
        """Give up what has been missing, and who has been silent, for too long."""
        gap_us, idle_us, time = self.settings.gap_us, self.settings.idle_us, self.time
        changed = False
        while gap_us is not None and self._steps:
            since, node, upto = self._steps[0]
            if self._lines[node].reach < upto:
                if not time.passed(since, gap_us):
                    break
                self._declare(node, upto, out)
                changed = True
            self._steps.popleft()
        while idle_us is not None and self._live:
            node, heard = next(iter(self._live.items()))
            if not time.passed(heard, idle_us):
                break
            self._leave(node, True, out)
            changed = True
        if changed:
            self._drain(out)

    def join(self, node: str, out: Out) -> None:
        """Hear that a node is there."""
        self._away.pop(node, None)
        self._hear(node)

    def leave(self, node: str, out: Out) -> None:
        """Hear that a node left; nothing waits for it any more."""
        self._leave(node, False, out)
        self._drain(out)

    def view(self, members: Iterable[str], out: Out) -> None:
        """Hear who is there: these and no others."""
        there = dict.fromkeys(members)
        for node in there:
            self.join(node, out)
        for node in sorted({*self._lines, *self._live, *self._away} - there.keys()):
            self._leave(node, False, out)
        self._drain(out)

    def end(self, out: Out) -> None:
        """Hear that nothing comes any more: every node is heard, every gap is over."""
        self._ended = True
        if self.settings.gap_us is not None:
            for _, node, upto in self._steps:
                self._declare(node, upto, out)
            self._steps.clear()
        self._drain(out)

    # --- nodes ---

    def _line(self, node: str) -> Line:
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = Line()
        return line

    def _hear(self, node: str) -> Line:
        """Note that a node speaks; who left by saying so comes back by saying so."""
        live = self._live
        if node in live:
            if self.settings.idle_us is not None:
                live[node] = self.time.now
                live.move_to_end(node)
        elif self._away.get(node, True):
            self._away.pop(node, None)
            live[node] = self.time.now
            self._regrouped()
        return self._line(node)

    def _leave(self, node: str, returns: bool, out: Out) -> None:
        self._live.pop(node, None)
        self._away[node] = returns
        self._regrouped()
        line = self._lines.get(node)
        if line is not None and line.reach < line.known:
            self._declare(node, line.known, out)

    def _give_up_the_away(self, event: Event, out: Out) -> None:
        for node, needed in sorted(needs(event)):
            returns = self._away.get(node)
            if returns is None or needed <= self._line(node).reach:
                continue
            if returns:
                self._hear(node)
            else:
                self._declare(node, needed, out)

    # --- dots ---

    def _unsettled(self, event: Event) -> tuple[Line, int] | None:
        """Return the line and counter of one dot that `event` waits for.

        Its node's previous event, where that is not settled: once it is, most
        of the past is, so that an event is looked at few times.
        """
        own, clock, lines = event.node, event.clock, self._lines
        counter = clock[own]
        line = lines.get(own)
        if (line.settled if line is not None else 0) < counter - 1:
            return self._line(own), counter - 1
        for node, counter in clock.items():
            line = lines.get(node)
            if (line.settled if line is not None else 0) < counter and node != own:
                return self._line(node), counter
        return None

    def _missing(self, event: Event) -> Dot | None:
        """Return a dot in the past of `event` that was not received and is not given up."""
        for node, needed in needs(event):
            line = self._lines.get(node)
            reach = line.reach if line is not None else 0
            if reach < needed:
                return Dot(node, reach + 1)
        return None

    def _late(self, event: Event, out: Out) -> None:
        out.late.append(event)
        self.marks.add(event.node, event.clock[event.node])

    def _hold(self, line: Line, event: Event) -> Held:
        self._arrivals += 1
        held = line.held[event.clock[event.node]] = Held(self._arrivals, event)
        self.count += 1
        line.extend()
        return held

    def _refer(self, event: Event) -> None:
        """Note since when the dots are missing that a held event is the first to need."""
        fresh = []
        own, lines = event.node, self._lines
        for node, counter in event.clock.items():
            line = lines.get(node)
            if line is None:
                line = self._line(node)
            needed = counter - 1 if node == own else counter
            if needed > line.known and needed > line.reach:
                line.known = needed
                fresh.append((node, needed))
        fresh.sort()
        for node, _ in fresh:
            if node in self._live:
                self._hear(node)  # there is news of it
        if fresh and (self.settings.gap_us is not None or self.settings.lose):
            self._steps.extend((self.time.now, *dots) for dots in fresh)
            if len(self._steps) > self._steps_max:
                lines = self._lines
                self._steps = deque(s for s in self._steps if lines[s[1]].reach < s[2])
                self._steps_max = max(_STEPS_LEAST, 2 * len(self._steps))

    def _declare(self, node: str, upto: int, out: Out) -> None:
        """Declare what is missing of a node, up to a counter, lost."""
        line = self._line(node)
        for first, last in line.missing(upto):
            line.holes[first] = last
            self.marks.lose(node, first, last, out)
        line.given = max(line.given, upto)
        line.extend()
        self._regrouped()
        self._settle(line, 0)

    def _settle(self, line: Line, counter: int) -> None:
        """Move `settled` to a counter and over the holes that follow."""
        old = line.settled
        settled = max(old, counter)
        while line.holes and settled + 1 in line.holes:
            settled = line.holes.pop(settled + 1)
        if settled > old:
            line.settled = settled
            line.reach = max(line.reach, settled)
            self._settled(line, old)

    def _release(self, event: Event, out: Out) -> None:
        node = event.node
        counter = event.clock[node]
        line = self._lines[node]
        if line.held and line.held.pop(counter, None) is not None:
            self.count -= 1
            if not line.held:
                line.held = {}  # a dict that was large stays large
        out.released.append(Released(event, self.marks.after(event)))
        self._settle(line, counter)
        if line.held:
            line.extend()

    # --- what can be asked, and state ---

    def waiting(self) -> list[Event]:
        """Return the held events in order of arrival."""
        held = [held for line in self._lines.values() for held in line.held.values()]
        return [event for _, event in sorted(held, key=lambda h: h.arrival)]

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the held events, each with a missing dot that it waits for."""
        return [(event, self._missing(event)) for event in self.waiting()]

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data."""
        lines = {
            node: [
                *(x.settled, x.reach, str(x.sum), x.given, x.known),
                [list(hole) for hole in x.holes.items()],
            ]
            for node, x in self._lines.items()
        }
        return {
            "lines": lines,
            "held": [number(event) for event in self.waiting()],
            "steps": [list(step) for step in self._steps],
            "live": [list(item) for item in self._live.items()],
            "away": dict(self._away),
            "marks": self.marks.state(),
            "ended": self._ended,
        }

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        for node, (settled, reach, total, given, known, holes) in state["lines"].items():
            line = self._line(node)
            line.settled, line.reach, line.sum = settled, reach, int(total)
            line.given, line.known = given, known
            line.holes = dict(holes)
        self._steps = deque((since, node, upto) for since, node, upto in state["steps"])
        self._live = OrderedDict((node, heard) for node, heard in state["live"])
        self._away = dict(state["away"])
        self.marks.restore(state["marks"])
        self._ended = state["ended"]
        for index in state["held"]:
            self._rehold(self._lines[events[index].node], events[index])
        self._regrouped()

    def _rehold(self, line: Line, event: Event) -> None:
        raise NotImplementedError


class Eager(Queue):
    """Releases an event as soon as it is causally ready; ties by arrival."""

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        super().__init__(settings, time)
        self._ready: list[Held] = []

    def _admit(self, line: Line, event: Event, out: Out) -> None:
        unsettled = self._unsettled(event)
        if unsettled is None:
            self._arrivals += 1
            heapq.heappush(self._ready, Held(self._arrivals, event))
        elif self.count >= self.settings.held_back_max and not self.settings.lose:
            out.refused.append(event)
        else:
            self._wait(unsettled, self._hold(line, event))
            self._refer(event)

    def _rehold(self, line: Line, event: Event) -> None:
        unsettled = self._unsettled(event)
        assert unsettled is not None
        self._wait(unsettled, self._hold(line, event))

    def _wait(self, unsettled: tuple[Line, int], held: Held) -> None:
        line, counter = unsettled
        line.waiting.setdefault(counter, []).append(held)

    def _drain(self, out: Out) -> None:
        while self._ready:
            self._release(heapq.heappop(self._ready).event, out)

    def _settled(self, line: Line, old: int) -> None:
        waiting = line.waiting
        if not waiting:
            return
        if line.settled - old <= len(waiting):
            now = [c for c in range(old + 1, line.settled + 1) if c in waiting]
        else:
            now = [c for c in waiting if c <= line.settled]
        for counter in now:
            for held in waiting.pop(counter):
                unsettled = self._unsettled(held.event)
                if unsettled is None:
                    heapq.heappush(self._ready, held)
                else:
                    self._wait(unsettled, held)
        if not waiting:
            line.waiting = {}

    def _relieve(self, out: Out) -> None:
        # Whatever is held here is held for something missing, so there is a hole.
        while True:
            _, node, upto = self._steps.popleft()
            if self._lines[node].reach < upto:
                self._declare(node, upto, out)
                return


class Total(Queue):
    """Releases in canonical order what every live node has been heard past."""

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        super().__init__(settings, time)
        self._heap: list[Key] = []
        self._last: Key | None = None
        self._bound: Key | None = None  # None: to be found again

    def _passed(self, event: Event) -> bool:
        return self._last is not None and canonical_key(event) < self._last

    def _admit(self, line: Line, event: Event, out: Out) -> None:
        reach, total = line.reach, line.sum
        self._hold(line, event)
        key = canonical_key(event)
        if line.reach != reach and self._bound is not None and self._bound[1] == event.node:
            self._bound = None
        if self.count > self.settings.held_back_max and not self.settings.lose:
            # A queue that is full still takes what lets something go, or it would stay full.
            first = min(key, self._heap[0]) if self._heap else key
            if not self._may_go(first):
                del line.held[event.clock[event.node]]
                self.count -= 1
                line.reach, line.sum, self._bound = reach, total, None
                out.refused.append(event)
                return
        heapq.heappush(self._heap, key)
        self._refer(event)

    def _rehold(self, line: Line, event: Event) -> None:
        self._hold(line, event)
        heapq.heappush(self._heap, canonical_key(event))

    def _event(self, key: Key) -> Event:
        return self._lines[key[1]].held[key[2]].event

    def _may_go(self, key: Key) -> bool:
        return self._heard_past(key) and self._unsettled(self._event(key)) is None

    def _heard_past(self, key: Key) -> bool:
        """Return whether no live node can still send what comes before `key`."""
        if self._bound is None and self._live:
            self._bound = min(self._next(node) for node in self._live)
        return self._bound is None or key < self._bound

    def _next(self, node: str) -> Key:
        """Return a place that the next unseen event of a node does not come before."""
        line = self._lines.get(node)
        return (1, node, 1) if line is None else (line.sum + 1, node, line.reach + 1)

    def _regrouped(self) -> None:
        self._bound = None

    def _drain(self, out: Out) -> None:
        if self._ended:
            # Every node is heard; what waits for something missing lets the others pass.
            heap, self._heap = sorted(self._heap), []
            for key in heap:
                if self._unsettled(self._event(key)) is None:
                    self._go(key, out)
                else:
                    self._heap.append(key)
            return
        while self._heap and self._may_go(self._heap[0]):
            self._go(heapq.heappop(self._heap), out)

    def _go(self, key: Key, out: Out) -> None:
        self._last = key
        self._release(self._event(key), out)

    def _relieve(self, out: Out) -> None:
        event = self._event(self._heap[0])
        if self._missing(event) is None:
            # It is ready, and waits for nodes that are silent: what these send may be late.
            self._go(heapq.heappop(self._heap), out)
            return
        for node, needed in sorted(needs(event)):
            self._declare(node, needed, out)

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data."""
        last = None if self._last is None else [str(self._last[0]), *self._last[1:]]
        return {**super().state(number), "last": last}

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        super().restore(state, events)
        if state["last"] is not None:
            total, node, counter = state["last"]
            self._last = (int(total), node, counter)
