"""What hold-back queues share that release an event after its past (`eager`, `total`).

The theory is that of causal delivery (Birman, Schiper and Stephenson,
"Lightweight causal and atomic group multicast", 1991), with an end to waiting.
A dot is *settled* when it was released, or given up: declared lost, or late. An
event is causally ready when its whole past is settled. As an event's clock
covers the clocks of its past, the settled dots of a node are the first so many
of them, and one number for each node tells what is settled.

`ketal.operators.order.eager` releases what is ready at once, `ketal.operators.order.total`
in canonical order.

A dot that is neither settled nor received is *missing* to the events that have
it in their past. It is given up when it has been missing for `gap`, when its
node has left, or when a full queue has to give up something. What is settled,
received and missing of each node is in `ketal.operators.order.node_progress`.

Two others look in. A `Restorer` gives released events their clocks back, once
some node left. A `Reach` says which entries of a clock are waited for, under a
topology; without one that is all of them.

The one rule: what is missing is given up from the lowest counter of a node on,
so that the settled dots stay the first so many.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketal.model.event import Dot, Event
from ketal.operators.membership.clock_restoration import Restorer
from ketal.operators.order.node_progress import Held, Line
from ketal.operators.order.released import Marks, Out, Released, StreamTime
from ketal.operators.topology.domain_order import Reach

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


class Queue:
    """What both policies share: who is there, what is missing, what is given up.

    Parameters
    ----------
    settings : Settings
        The options.
    time : StreamTime
        Kept by the owner, who lets it tick before each call.

    Attributes
    ----------
    restorer : Restorer or None
        Put in by the owner when a node has left.
    reach : Reach or None
        Which entries of clocks are waited for; None: all.
    """

    def __init__(self, settings: Settings, time: StreamTime) -> None:
        self.settings = settings
        self.time = time
        self.restorer: Restorer | None = None
        self.reach: Reach | None = None
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

    _size: Callable[[Event], int] | None = None
    """The sum of an event's clock, as far as it is known, where the policy asks for it."""

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

    def _awake(self, held: Held) -> None:
        """Look again at a held event that waited for a dot which is settled now."""
        raise NotImplementedError

    def _regrouped(self) -> None:
        """Drop what was computed from the live nodes: they have changed."""

    def _declared(self, node: str, first: int, last: int) -> None:
        """Record the lost dots of a hole, before anything is released for it."""

    def begin(self, seen: Mapping[str, tuple[int, list[int]]]) -> None:
        """Take as released what was seen before this queue was made.

        Parameters
        ----------
        seen : mapping of str to (int, list of int)
            Of each node the counter up to which all was seen, and those seen beyond.
        """
        for node, (upto, beyond) in seen.items():
            line = self._line(node)
            line.settled = line.reach = line.heard = line.known = upto
            line.holes = {counter: counter for counter in beyond}
            line.earlier = set(beyond)
            self._live[node] = self.time.now

    def refit(self) -> None:
        """Go on with what was restored under other options: what they wait for counts from now."""
        now, nodes = self.time.now, self.settings.nodes
        heard = {node for node, line in self._lines.items() if line.reach or line.held}
        live = dict.fromkeys([*self._live, *nodes], now)
        self._live = OrderedDict(
            (node, since)
            for node, since in live.items()
            # Who was declared, is no longer, and never came is not waited for.
            if node not in self._away and (node in heard or node in nodes)
        )
        self._steps.clear()
        for line in self._lines.values():
            line.known = min(line.known, line.reach)
        for event in self.waiting():
            self._refer(event)
        self._regrouped()

    # --- what happens ---

    def push(self, event: Event, out: Out) -> None:
        """Take in an event whose dot was not pushed before."""
        line = self._hear(event.node)
        counter = event.clock[event.node]
        if self._ended or counter <= line.settled or counter <= line.given:
            self._late(event, out)
        elif self._passed(event):
            self._late(event, out)
            self._pass_by(line, event)
            self._refer(event)  # What only it knows of is missing all the same.
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

    def _pass_by(self, line: Line, event: Event) -> None:
        """Give up an event whose place has passed.

        The place of what precedes it in its node has passed too, so no turn waits for
        that; what depends on it waits for it as ever, until it is settled.
        """
        counter = event.clock[event.node]
        line.holes[counter] = counter
        line.earlier.add(counter)
        if self._size is not None and counter > line.heard:
            line.heard, line.sum = counter, max(line.sum, self._size(event))
        line.extend(self._size)
        self._regrouped()
        self._settle(line, 0)

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
        """Mark a node as present."""
        self._away.pop(node, None)
        self._hear(node)

    def leave(self, node: str, out: Out) -> None:
        """Mark a node as gone: nothing waits for it any more."""
        self._leave(node, False, out)
        self._drain(out)

    def view(self, members: Iterable[str], out: Out) -> None:
        """Take a membership view: all other nodes are gone."""
        there = dict.fromkeys(members)
        for node in there:
            self.join(node, out)
        for node in sorted({*self._lines, *self._live, *self._away} - there.keys()):
            self._leave(node, False, out)
        self._drain(out)

    def end(self, out: Out) -> None:
        """End the stream: no node is waited for, every gap is over."""
        self._ended = True
        while self.settings.gap_us is not None and self._steps:
            steps, self._steps = self._steps, deque()
            for _, node, upto in steps:
                self._declare(node, upto, out)
            self._drain(out)
        self._drain(out)

    # --- nodes ---

    def _line(self, node: str) -> Line:
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = Line()
        return line

    def _hear(self, node: str) -> Line:
        """Mark a node as active; one that a `leave` removed needs a `join` to come back."""
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
        for node, needed in sorted(self._needs(event)):
            returns = self._away.get(node)
            if returns is None or needed <= self._line(node).reach:
                continue
            if returns:
                self._hear(node)
            else:
                self._declare(node, needed, out)

    # --- dots ---

    def _needs(self, event: Event) -> Iterator[tuple[str, int]]:
        """Yield for each node how many of its events an event waits for."""
        for node, counter in self._read(event).items():
            yield node, counter - 1 if node == event.node else counter

    def _read(self, event: Event) -> Mapping[str, int]:
        """Return the entries of an event's clock that are waited for."""
        return event.clock if self.reach is None else self.reach.clock(event)

    def _unsettled(self, event: Event) -> tuple[Line, int] | None:
        """Return the line and counter of one dot that `event` waits for.

        Its node's previous event, where that is not settled: once it is, most
        of the past is, so that an event is looked at few times.
        """
        own, clock, lines = event.node, event.clock, self._lines
        if self.reach is not None:
            clock = self.reach.clock(event)
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
        for node, needed in self._needs(event):
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
        line.extend(self._size)
        return held

    def _refer(self, event: Event) -> None:
        """Record since when the dots are missing that a held event is the first to need."""
        fresh = []
        own, lines = event.node, self._lines
        for node, counter in self._read(event).items():
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
            self._declared(node, first, last)
        line.given = max(line.given, upto)
        line.extend(self._size)
        self._regrouped()
        self._settle(line, 0)

    def _settle(self, line: Line, counter: int) -> None:
        """Move `settled` to a counter and over the holes that follow."""
        old = line.settled
        settled = max(old, counter)
        while line.holes and settled + 1 in line.holes:
            line.earlier.discard(settled + 1)
            settled = line.holes.pop(settled + 1)
        if settled > old:
            line.settled = settled
            line.reach = max(line.reach, settled)
            if line.waiting:
                self._wake(line, old)

    def _wait(self, unsettled: tuple[Line, int], held: Held) -> None:
        """Have a held event wait until a dot of its past is settled."""
        line, counter = unsettled
        line.waiting.setdefault(counter, []).append(held)

    def _wake(self, line: Line, old: int) -> None:
        """Look at the events that waited for dots of a line which are settled, beyond `old`."""
        waiting = line.waiting
        if line.settled - old <= len(waiting):
            settled = [c for c in range(old + 1, line.settled + 1) if c in waiting]
        else:
            settled = [c for c in waiting if c <= line.settled]
        for counter in settled:
            for held in waiting.pop(counter):
                event = held.event
                if self._lines[event.node].held.get(event.counter) is held:  # not given up
                    self._awake(held)
        if not waiting:
            line.waiting = {}  # a dict that was large stays large

    def _release(self, event: Event, out: Out) -> None:
        node = event.node
        counter = event.clock[node]
        line = self._lines[node]
        if line.held and line.held.pop(counter, None) is not None:
            self.count -= 1
            if not line.held:
                line.held = {}  # a dict that was large stays large
        if self.restorer is not None:
            whole = self.restorer.restore(event)
            if whole is not event:
                out.raised.append(event.dot)
            event = whole
        out.released.append(Released(event, self.marks.after(event)))
        self._settle(line, counter)
        if line.held:
            line.extend(self._size)

    # --- what can be asked, and state ---

    def holds(self, dot: Dot) -> bool:
        """Return whether an event is held."""
        line = self._lines.get(dot.node)
        return line is not None and dot.counter in line.held

    def missing(self) -> list[Dot]:
        """Return the dots that hold events back, up to `lost_max`; of a long hole its ends."""
        out, lost_max = Out(), self.settings.lost_max
        for node, line in sorted(self._lines.items()):
            for first, last in line.missing(line.known):
                if len(out.gaps) >= lost_max:
                    break
                out.lose(node, first, last, lost_max)
        return out.gaps[:lost_max]

    def waiting(self) -> list[Event]:
        """Return the held events in order of arrival."""
        held = [held for line in self._lines.values() for held in line.held.values()]
        return [event for _, event in sorted(held, key=lambda h: h.arrival)]

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return the held events, each with a missing dot that it waits for."""
        found: dict[Dot, Dot | None] = {}
        return [(event, self._waits_for(event, found)) for event in self.waiting()]

    def _waits_for(self, event: Event, found: dict[Dot, Dot | None]) -> Dot | None:
        """Return a missing dot that an event waits for, or that what it waits for waits for.

        Whole clocks name all that is missing; those that have shrunk, and the part of
        a clock that is read within domains, need not.
        """
        path: list[Dot] = []
        missing = None
        while event.dot not in found:
            found[event.dot] = None
            path.append(event.dot)
            missing = self._missing(event)
            unsettled = None if missing is not None else self._unsettled(event)
            if unsettled is None:
                break
            line, counter = unsettled
            held = line.held.get(line.last_held(counter))
            if held is None:
                break
            event = held.event
        else:
            missing = found[event.dot]
        for dot in path:
            found[dot] = missing
        return missing

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "lines": {node: line.state() for node, line in self._lines.items()},
            "held": [number(event) for event in self.waiting()],
            "steps": [list(step) for step in self._steps],
            "live": [list(item) for item in self._live.items()],
            "away": dict(self._away),
            "marks": self.marks.state(),
            "ended": self._ended,
        }

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        for node, row in state["lines"].items():
            self._line(node).restore(row)
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
