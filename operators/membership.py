"""Who takes part in an execution, and the clocks that shrink and restart with it (DESIGN 5).

Nodes come, go and start again; the clocks of "Using causality in distributed
event patterns" (section IV.C, `papers/ketal-causal-operators.txt`) lose the
entry of a node when it leaves. Three questions follow, each with a class:

- **Who is live?** `Membership` keeps the view: a node joins by appearing, by
  `ketal.join` or `ketal.view`, and leaves by `ketal.leave`, by a view without
  it, by idle time, or because a later incarnation of it appears.
- **What did an event know?** `Restorer` closes clocks: the closure of event e
  of node m is the entry-wise maximum of e's clock and of the closures of the
  events that e directly knows, which are its predecessor on m and, for each
  entry Q: c of its clock, the event Q@c. A restored clock is the clock with the
  closure's entries of the nodes that left. An entry that is there but too low
  is raised as well: whoever has not yet dropped X can learn from someone who
  has, and then its own entry of X is old.
- **Which run of the node was it?** `Incarnations` names the second run of A
  `A#2`, in the node and in the clocks.

Why a hold-back queue may look at clocks that are not restored: let an event be
released when its predecessor and every Q@c of its clock have been. By induction
over the releases the whole past of each of these has been released, and the
past of e is they and their pasts, for knowledge reaches e in no other way. So a
dropped entry never makes an event ready too early, and restoring at release
finds every closure that it needs.

The one rule: on an execution in which no entry was dropped and no node
restarted, each of them returns the event that it was given.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ketal.errors import EventError
from ketal.event import Control, Dot, Event, canonical_key, content
from ketal.limits import DEFAULT, Limits

Clock = dict[str, int]
Status = Callable[[Event], str]
"""Says of an event, without taking it in: `new`, `duplicate` (seen, same content),
`contradiction` (seen, other content) or `forgotten` (seen, content no longer kept)."""


def name_of(base: str, number: int) -> str:
    """Return the name of an incarnation: `A` for the first, `A#2`, `A#3`, …."""
    return base if number == 1 else f"{base}#{number}"


# --- clocks that were seen ---------------------------------------------------------


class _Line:
    """The kept events of one node, by counter; a closure is None until the release."""

    __slots__ = ("clocks", "closures", "counters")

    def __init__(self) -> None:
        self.counters: list[int] = []
        self.clocks: list[Clock] = []
        self.closures: list[Clock | None] = []

    def put(self, counter: int, clock: Clock) -> int | None:
        """Put an event in its place; return the place, None if it was there."""
        at = len(self.counters)
        if at and self.counters[-1] >= counter:
            at = bisect_left(self.counters, counter)
            if self.counters[at] == counter:
                return None
        self.counters.insert(at, counter)
        self.clocks.insert(at, clock)
        self.closures.insert(at, None)
        return at

    def find(self, counter: int) -> int | None:
        at = bisect_left(self.counters, counter)
        return at if at < len(self.counters) and self.counters[at] == counter else None

    def without(self, counters: set[int]) -> None:
        kept = [i for i, counter in enumerate(self.counters) if counter not in counters]
        self.counters = [self.counters[i] for i in kept]
        self.clocks = [self.clocks[i] for i in kept]
        self.closures = [self.closures[i] for i in kept]


class ClockMemory:
    """The clocks of the last events, and their closures once they are released.

    One clock a node is not enough: a message in flight makes known an event
    that is not the sender's latest.

    Parameters
    ----------
    clocks_max : int
        How many are kept; the oldest eighth, by arrival, goes at once.

    Notes
    -----
    Clocks are shared with their events, not copied.
    """

    def __init__(self, clocks_max: int) -> None:
        self.clocks_max = clocks_max
        self.evicted: dict[str, int] = {}
        self._lines: dict[str, _Line] = {}
        self._oldest: deque[tuple[str, int]] = deque()

    def __len__(self) -> int:
        return len(self._oldest)

    def put(self, node: str, counter: int, clock: Clock) -> None:
        """Keep the clock of an event that arrived; nothing if it is kept already."""
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = _Line()
        if line.put(counter, clock) is None:
            return
        self._oldest.append((node, counter))
        if len(self._oldest) > self.clocks_max:
            self._evict(max(1, self.clocks_max // 8))

    def _evict(self, count: int) -> None:
        gone: dict[str, set[int]] = {}
        for _ in range(count):
            node, counter = self._oldest.popleft()
            gone.setdefault(node, set()).add(counter)
        for node, counters in gone.items():
            self.evicted[node] = max(self.evicted.get(node, 0), *counters)
            self._lines[node].without(counters)

    def close(self, node: str, counter: int, clock: Clock, closure: Clock) -> None:
        """Keep the closure of an event that is released."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        if at is None:
            self.put(node, counter, clock)
            line = self._lines[node]
            at = line.find(counter)
        if at is not None and line is not None:
            line.closures[at] = closure

    def get(self, node: str, counter: int) -> Clock | None:
        """Return the clock that an event arrived with."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return None if line is None or at is None else line.clocks[at]

    def closure(self, node: str, counter: int) -> Clock | None:
        """Return the closure of a released event."""
        line = self._lines.get(node)
        at = None if line is None else line.find(counter)
        return None if line is None or at is None else line.closures[at]

    def below(self, node: str, counter: int) -> tuple[int, Clock, Clock | None] | None:
        """Return counter, clock and closure of the node's last event before `counter`."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_left(line.counters, counter)
        if line is None or not at:
            return None
        return line.counters[at - 1], line.clocks[at - 1], line.closures[at - 1]

    def above(self, node: str, counter: int) -> Clock | None:
        """Return the clock of the node's first event after `counter`."""
        line = self._lines.get(node)
        at = 0 if line is None else bisect_right(line.counters, counter)
        return None if line is None or at == len(line.counters) else line.clocks[at]

    def state(self) -> dict[str, Any]:
        """Return the state as plain data; each clock as what differs from its node's last."""
        rows = []
        last: dict[str, Clock] = {}
        for node, counter in self._oldest:
            line = self._lines[node]
            at = line.find(counter)
            assert at is not None, "what is in the queue is in its line"
            clock, closure, before = line.clocks[at], line.closures[at], last.get(node, {})
            raised = None if closure is None else dict(closure.items() - clock.items())
            dropped = sorted(before.keys() - clock.keys())
            rows.append([node, counter, dict(clock.items() - before.items()), dropped, raised])
            last[node] = clock
        return {"evicted": dict(self.evicted), "clocks": rows}

    @classmethod
    def restored(cls, clocks_max: int, state: Mapping[str, Any]) -> ClockMemory:
        """Return a memory with a state that `state` gave."""
        self = cls(clocks_max)
        last: dict[str, Clock] = {}
        for node, counter, changed, dropped, raised in state["clocks"]:
            clock = {**last.get(node, {}), **changed}
            for name in dropped:
                del clock[name]
            self.put(node, counter, clock)
            last[node] = clock
            if raised is not None:
                self.close(node, counter, clock, {**clock, **raised} if raised else clock)
        # Last: a smaller limit than the snapshot's evicts, as arrivals would.
        for node, counter in state["evicted"].items():
            self.evicted[node] = max(counter, self.evicted.get(node, 0))
        return self


# --- clocks that shrink --------------------------------------------------------------


class Restorer:
    """Restores the clocks of events that are handed over in their order of release.

    Parameters
    ----------
    memory : ClockMemory
        The closures of what was released.
    retired : set of str
        The nodes that left; shared with, and added to by, whoever knows. A node
        counts as retired, too, once another node drops its entry: between two
        events of one node an entry disappears for no other reason, and the
        announcement may come later than the clocks it explains.
    entries_max : int
        How many entries a restored clock may have.

    Attributes
    ----------
    raised : int
        Events that were given another clock.
    doubtful : int
        Events whose clock may still be too low, because an event that they
        directly know was never released (lost, or declared lost).
    beyond : int
        The same, because a limit (`clocks_max`, `entries_max`) was reached.
    """

    def __init__(self, memory: ClockMemory, retired: set[str], entries_max: int) -> None:
        self.memory = memory
        self.retired = retired
        self.entries_max = entries_max
        self.raised = 0
        self.doubtful = 0
        self.beyond = 0
        self._last: dict[str, int] = {}

    def restore(self, event: Event) -> Event:
        """Return the event with its clock restored; remember it for later ones."""
        node, clock = event.node, event.clock
        counter = clock[node]
        closure, missing = self._closure(node, counter, clock)
        self.memory.close(node, counter, clock, closure)
        if counter > self._last.get(node, 0):
            self._last[node] = counter
        out = self.read(event, closure)
        if out is not event:
            self.raised += 1
        if missing and self.retired:
            self._doubt(out, missing)
        return out

    def glimpse(self, event: Event) -> Event:
        """Return the event with its clock restored as far as is known now.

        For a pattern under `order arrival` next to one that waits: nothing is
        remembered, so the event can still be released.
        """
        return self.read(event, self._closure(event.node, event.counter, event.clock)[0])

    def restore_all(self, events: Iterable[Event]) -> list[Event]:
        """Restore events that are released together; return them in the order given."""
        events = list(events)
        done = {id(event): self.restore(event) for event in present_order(events)}
        return [done[id(event)] for event in events]

    def read(self, event: Event, closure: Clock) -> Event:
        """Return the event with the entries of retired nodes taken from its closure."""
        clock = event.clock
        if closure is clock:
            return event
        retired = self.retired
        higher = {n: c for n, c in closure.items() if n in retired and c > clock.get(n, 0)}
        return msgspec.structs.replace(event, clock={**clock, **higher}) if higher else event

    def _closure(self, node: str, counter: int, clock: Clock) -> tuple[Clock, list[Dot]]:
        """Return the closure of a clock, and the direct causes that are not there."""
        memory = self.memory
        missing: list[Dot] = []
        closure = clock
        below = memory.below(node, counter)
        before: Clock = {}
        if below is not None:
            at, came, closed = below
            before = closed or came
            closure = self._joined(closure, before, node)
            if not came.keys() <= clock.keys():
                self.retired.update(came.keys() - clock.keys())
        if counter > 1 and (below is None or at < counter - 1):
            missing.append(Dot(node, counter - 1))
        # What the predecessor knew is in its closure, so only news are looked up.
        for other, known in clock.items() - before.items():
            if other != node and known > before.get(other, 0):
                learned = memory.closure(other, known)
                if learned is None:
                    missing.append(Dot(other, known))
                    below = memory.below(other, known)
                    learned = {} if below is None else below[2] or below[1]
                closure = self._joined(closure, learned, node)
        return closure, missing

    def _joined(self, closure: Clock, other: Clock, node: str) -> Clock:
        higher = {
            n: c for n, c in other.items() - closure.items() if c > closure.get(n, 0) and n != node
        }
        if not higher:
            return closure
        room = self.entries_max - len(closure)
        if len(higher) > room and len(higher.keys() - closure.keys()) > room:
            # By name, so that what is given up depends on no hash.
            fresh = sorted(higher.keys() - closure.keys())[max(0, room) :]
            for name in fresh:
                del higher[name]
            self.beyond += 1
        return {**closure, **higher}

    def _doubt(self, event: Event, missing: list[Dot]) -> None:
        last = self._last
        clock = event.clock
        if any(clock.get(n, 0) < last.get(n, 0) for n in self.retired if n != event.node):
            evicted = self.memory.evicted
            if any(dot.counter <= evicted.get(dot.node, 0) for dot in missing):
                self.beyond += 1
            else:
                self.doubtful += 1


def present_order(events: Iterable[Event]) -> list[Event]:
    """Return distinct events in an order that respects program order and the entries present.

    The canonical order of shrunk clocks does not: a clock that loses an entry
    has a smaller sum than its causes. Clocks that know each other in a circle
    are no execution; there the least event in canonical order goes first.
    """
    lines: dict[str, list[Event]] = {}
    for event in events:
        lines.setdefault(event.node, []).append(event)
    for line in lines.values():
        # From the end, so that the next one is popped.
        line.sort(key=lambda e: e.counter, reverse=True)
    waiting: dict[str, list[tuple[int, str]]] = {}
    out: list[Event] = []
    ready = sorted(lines, reverse=True)
    while True:
        while ready:
            node = ready.pop()
            while lines[node]:
                block = _blocked(lines, lines[node][-1])
                if block is not None:
                    heapq.heappush(waiting.setdefault(block[0], []), (block[1], node))
                    break
                out.append(lines[node].pop())
                queue = waiting.get(node)
                ahead = lines[node][-1].counter if lines[node] else None
                while queue and (ahead is None or queue[0][0] < ahead):
                    ready.append(heapq.heappop(queue)[1])
        heads = [line[-1] for line in lines.values() if line]
        if not heads:
            return out
        first = min(heads, key=canonical_key)
        out.append(lines[first.node].pop())
        waiting = {}
        ready = sorted((node for node, line in lines.items() if line), reverse=True)


def _blocked(lines: dict[str, list[Event]], event: Event) -> tuple[str, int] | None:
    """Return an entry of the event that names an event which is still to come."""
    for node, counter in event.clock.items():
        line = lines.get(node)
        if line and node != event.node and line[-1].counter <= counter:
            return node, counter
    return None


def restored(
    events: Iterable[Event], left: Collection[str] = (), *, limits: Limits = DEFAULT
) -> list[Event]:
    """Return the events of a finite execution with their clocks restored.

    Parameters
    ----------
    events : iterable of Event
        Distinct events, in any order.
    left : collection of str
        Every node that some `ketal.leave` or `ketal.view` of the log says left:
        `Membership.retired`, after the log was read.
    limits : Limits
        `clock_entries_max` bounds a restored clock.

    Returns
    -------
    list of Event
        In the order given. Nodes whose entry was dropped without a word count as
        having left, wherever in the log that was.
    """
    events = list(events)
    restorer = Restorer(ClockMemory(len(events) + 1), set(left), limits.clock_entries_max)
    for event in present_order(events):
        restorer.restore(event)
    closure = restorer.memory.closure
    return [restorer.read(e, closure(e.node, e.counter) or e.clock) for e in events]


def obvious_restored(events: Iterable[Event], left: Collection[str] = ()) -> list[Event]:
    """Return what `restored` returns: raise clocks until nothing is left to raise."""
    events = list(events)
    retired = set(left)
    closures = {e.dot: dict(e.clock) for e in events}
    for event in events:
        before = [f for f in events if f.node == event.node and f.counter < event.counter]
        if before:
            retired |= max(before, key=lambda f: f.counter).clock.keys() - event.clock.keys()
    changed = True
    while changed:
        changed = False
        for event in events:
            mine = closures[event.dot]
            for f in events:
                if f.counter <= event.clock.get(f.node, 0) and f.dot != event.dot:
                    for name, counter in closures[f.dot].items():
                        if name != event.node and counter > mine.get(name, 0):
                            mine[name] = counter
                            changed = True
    return [
        msgspec.structs.replace(
            e,
            clock=e.clock
            | {n: c for n, c in closures[e.dot].items() if n in retired and n != e.node},
        )
        for e in events
    ]


# --- nodes that start again --------------------------------------------------------


class Incarnations:
    """Tells the runs of a node apart and names them.

    Parameters
    ----------
    memory : ClockMemory
        The clocks of what has arrived, under the names given.
    retired : set of str
        The nodes that left: their entries may be missing in later clocks.
    attribute : str or None
        The attribute that numbers incarnations where a program does so itself; 1
        is `A`, any other whole number k is `A#k`. None: no attribute does.
    incarnations_max : int
        How many restarts may be told.

    Notes
    -----
    A node's own events. Without the attribute, an event of counter 1 whose
    content differs from every event of counter 1 of that node starts a new
    incarnation (same content: a duplicate). A later counter belongs to the
    incarnation in which it has not been seen and between whose neighbours its
    clock fits: the latest, or an earlier one with a hole there (a late event).
    Where both are possible it is rejected.

    Other nodes' entries. `A: c` in a clock of B is read as B's last event read
    it, until it goes backwards, or B learns from an event that reads a later
    incarnation, or c is more than the old incarnation ever counted. An entry that
    has not moved has nothing new to say. Between incarnations that are possible,
    the one whose event c has arrived and is within the clock is taken; where
    that is not exactly one, the event is rejected.

    A name is given on arrival and stays. So a restart must arrive before what
    knows of it: the first event of an incarnation after the first one of the
    incarnation before, and before other nodes' events that know it.
    """

    def __init__(
        self,
        memory: ClockMemory,
        retired: set[str],
        *,
        attribute: str | None = "incarnation",
        incarnations_max: int = 10_000,
    ) -> None:
        self.memory = memory
        self.retired = retired
        self.attribute = attribute
        self.incarnations_max = incarnations_max
        self.highest: dict[str, int] = {}
        self._numbers: dict[str, list[int]] = {}
        self._numbered: set[str] = set()
        self._firsts: dict[str, bytes] = {}
        self._bases: dict[str, str] = {}

    def names(self, base: str) -> list[str]:
        """Return the incarnations of a node, earliest first; itself where there is one."""
        return [name_of(base, number) for number in self._numbers.get(base, (1,))]

    def base(self, name: str) -> str:
        """Return the node of an incarnation that was told here; any other name as it is."""
        return self._bases.get(name, name)

    def rename(self, event: Event, status: Status) -> Event:
        """Return the event under the name of its incarnation, in node and clock.

        Parameters
        ----------
        event : Event
            As it arrived; it may be a duplicate.
        status : callable
            What is known of an event under the name it is asked with.

        Raises
        ------
        EventError
            If it is ambiguous which incarnation an event or an entry belongs to.
        """
        if self.attribute is not None and self.attribute in event.data:
            return self._named(event, self._number(event, event.data[self.attribute]))
        numbers = self._numbers.get(event.node)
        if event.clock[event.node] == 1:
            return self._first(event, numbers or [1])
        if numbers is None:
            return self._named(event, 1) if self._numbers else event
        return self._later(event, numbers, status)

    def arrived(self, event: Event) -> None:
        """Take note of a distinct event, under the name that `rename` gave it."""
        node, counter = event.node, event.clock[event.node]
        if counter > self.highest.get(node, 0):
            self.highest[node] = counter

    # --- own events ---

    def _number(self, event: Event, value: object) -> int:
        node = event.node
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise EventError(
                f"incarnation must be a whole number, not {str(value)[:60]!r}", place=str(event.dot)
            )
        numbers = self._numbers.get(node)
        if numbers is not None and node not in self._numbered:
            raise EventError(
                f"{node} numbers its incarnations only now; it was seen to restart before, "
                "so these numbers cannot be matched",
                place=str(event.dot),
            )
        if numbers is None and value != 1:
            # A first run that was not numbered, or not read, is the first all the same.
            self._numbered.add(node)
            self._add(node, value, event, first_seen=self.highest.get(node, 0) > 0)
        elif numbers is not None and value not in numbers:
            self._add(node, value, event, first_seen=True)
        return value

    def _add(self, base: str, number: int, event: Event, *, first_seen: bool) -> None:
        if len(self._bases) >= self.incarnations_max:
            raise EventError(
                f"one more restart of {base}; limit incarnations_max is {self.incarnations_max}",
                place=str(event.dot),
            )
        numbers = self._numbers.get(base, [1] if first_seen else [])
        self._numbers[base] = sorted({*numbers, number})
        for name in self.names(base):
            self._bases[name] = base

    def _first(self, event: Event, numbers: list[int]) -> Event:
        """Name an event of counter 1: a duplicate, the missing first one, or a restart."""
        node = event.node
        if node in self._numbered:
            return self._unnumbered(event)
        said = hashlib.blake2b(content(event), digest_size=16).digest()
        for number in reversed(numbers):
            first = self._firsts.get(name_of(node, number))
            if first is None or first == said:
                self._firsts[name_of(node, number)] = said
                return self._named(event, number)
        number = numbers[-1] + 1
        self._add(node, number, event, first_seen=True)
        self._firsts[name_of(node, number)] = said
        return self._named(event, number)

    def _unnumbered(self, event: Event) -> Event:
        """Name an event without a number, of a node that numbers others: the first run's."""
        if 1 not in self._numbers[event.node]:
            self._add(event.node, 1, event, first_seen=True)
        return self._named(event, 1)

    def _later(self, event: Event, numbers: list[int], status: Status) -> Event:
        """Name an event of a node that restarted."""
        if event.node in self._numbered:
            return self._unnumbered(event)
        latest = self._named(event, numbers[-1])
        possible = []
        for number in reversed(numbers):
            named = latest if number == numbers[-1] else self._named(event, number)
            found = status(named)
            if found == "duplicate":
                return named
            if found == "new" and self._fits(named, latest):
                possible.append(named)
        if len(possible) > 1:
            names = " or ".join(str(e.dot) for e in reversed(possible))
            raise EventError(
                f"{event.node} restarted, and this may be {names}; number the incarnations "
                "in the events (an attribute `incarnation`) or in their names",
                place=str(event.dot),
            )
        return possible[0] if possible else latest

    def _fits(self, event: Event, latest: Event) -> bool:
        """Return whether an event can be the one of its counter, by counter and by clock."""
        node, counter = event.node, event.counter
        below, above = self.memory.below(node, counter), self.memory.above(node, counter)
        if node != latest.node:
            ended, reached = self.highest.get(node, 0), self.highest.get(latest.node, 0)
            if counter > ended and (reached >= ended or counter <= reached + 1):
                # An earlier run is taken to have ended where it was last seen, unless
                # the latest would have to jump to get here.
                return False
        fits_below = below is None or self._within(below[1], event.clock)
        return fits_below and (above is None or self._within(event.clock, above))

    def _within(self, smaller: Clock, larger: Clock) -> bool:
        """Return whether one clock can be known to another, entries of the retired aside."""
        return all(
            larger.get(name, 0) >= counter
            for name, counter in smaller.items()
            if name in larger or (name not in self.retired and name not in self._bases)
        )

    # --- names in clocks ---

    def _named(self, event: Event, number: int) -> Event:
        own = name_of(event.node, number)
        clock = event.clock
        read = {
            base: self._reading(base, event, own)
            for base in clock.keys() & self._numbers.keys()
            if base != event.node and not any(n in clock for n in self.names(base) if n != base)
        }
        if own == event.node and all(base == name for base, name in read.items()):
            return event
        read[event.node] = own
        renamed = {read.get(name, name): counter for name, counter in clock.items()}
        return msgspec.structs.replace(event, node=own, clock=renamed)

    def _reading(self, base: str, event: Event, own: str) -> str:
        """Return the incarnation that an entry of another node refers to."""
        counter, names = event.clock[base], self.names(base)
        stored = self.memory.get(own, event.counter)
        if stored is not None:
            # A duplicate is read as the first copy was.
            return next((name for name in names if name in stored), base)
        before = self.memory.below(own, event.counter)
        low = 0
        if before is not None:
            # A closure knows more, but what has not moved is told by the clock as it came.
            _, came, closure = before
            for at, name in enumerate(names):
                if came.get(name) == counter:
                    return name
                known = (closure or came).get(name)
                if known is not None:
                    low = at + (counter < known)
            if low == len(names):
                return names[-1]  # Backwards, without a restart: no concern of this stage.
        low = max(low, self._told(names, event, counter))
        return self._chosen(base, names[low:], event)

    def _told(self, names: list[str], event: Event, counter: int) -> int:
        """Return the first incarnation that is possible by what the event's causes say."""
        low = 0
        for node, known in event.clock.items():
            cause = None if node in self._numbers else self.memory.get(node, known)
            if cause is not None and node != event.node:
                for at, name in enumerate(names):
                    if name in cause:
                        low = max(low, at + (counter < cause[name]))
        return min(low, len(names) - 1)

    def _chosen(self, base: str, names: list[str], event: Event) -> str:
        counter = event.clock[base]
        seen, unseen = [], []
        for name in names:
            clock = self.memory.get(name, counter)
            if clock is None:
                if name == names[-1] or counter <= self.highest.get(name, 0):
                    unseen.append(name)
            elif self._within({n: c for n, c in clock.items() if n != name}, event.clock):
                seen.append(name)
        possible = seen or unseen
        if len(possible) != 1:
            which = " or ".join(str(Dot(name, counter)) for name in possible) or "no known event"
            raise EventError(
                f"{base} restarted, and the entry {base}: {counter} may be {which}; "
                f"name the incarnation in the clock, as {names[-1]}",
                place=str(event.dot),
            )
        return possible[0]

    def state(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "highest": dict(self.highest),
            "numbers": {base: list(numbers) for base, numbers in self._numbers.items()},
            "numbered": sorted(self._numbered),
            "firsts": dict(self._firsts),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state that `state` gave."""
        self.highest = dict(state["highest"])
        self._numbers = {base: list(numbers) for base, numbers in state["numbers"].items()}
        self._numbered = set(state["numbered"])
        self._firsts = dict(state["firsts"])
        self._bases = {n: base for base in self._numbers for n in self.names(base)}


# --- the stage -----------------------------------------------------------------------


class Change(NamedTuple):
    """Who joined and who left, each in order."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Membership:
    """The stage between Intake and the ordering queue: view, incarnations, clocks.

    Parameters
    ----------
    limits : Limits
        `dots_max` clocks are kept, `clock_entries_max` entries of each.
    nodes : sequence of str
        Nodes that are live from the start.
    attribute : str or None
        As for `Incarnations`.

    Notes
    -----
    Of each event, in turn: `rename` as it arrives; `arrived` if Intake says that
    it is new; `restore` when it is released, before it is offered or sorted.
    """

    def __init__(
        self,
        limits: Limits = DEFAULT,
        *,
        nodes: Sequence[str] = (),
        attribute: str | None = "incarnation",
    ) -> None:
        self.limits = limits
        self.retired: set[str] = set()
        memory = ClockMemory(limits.dots_max)
        self.incarnations = Incarnations(memory, self.retired, attribute=attribute)
        self.restorer = Restorer(memory, self.retired, limits.clock_entries_max)
        self.rename = self.incarnations.rename
        self.restore = self.restorer.restore
        self._live = set(nodes)
        self._gone: set[str] = set()

    @property
    def live(self) -> list[str]:
        """The nodes that take part now, in order of their names."""
        return sorted(self._live)

    def is_live(self, node: str) -> bool:
        """Return whether a node takes part now."""
        return node in self._live

    def arrived(self, event: Event) -> Change:
        """Take note of a distinct event; its node joins by appearing.

        An event of a node that was said to have left was in flight: only a
        `join`, a `view` or a new incarnation brings the node back. A node that
        left by idle time is back.
        """
        node = event.node
        self.incarnations.arrived(event)
        self.incarnations.memory.put(node, event.clock[node], event.clock)
        if node in self._live or node in self._gone:
            return Change()
        return self._appear(node)

    def _appear(self, node: str) -> Change:
        names = self.incarnations.names(self.incarnations.base(node))
        if node in names[:-1]:
            # A late event of an earlier incarnation, which is over.
            self._gone.add(node)
            self.retired.add(node)
            return Change()
        if node not in names:
            names = [node]
        over = [name for name in names[:-1] if name not in self._gone]
        # Entries of both incarnations may be missing where a clock has room for one.
        self.retired.update(names if len(names) > 1 else ())
        self._gone.update(over)
        left = tuple(sorted(self._live.intersection(over)))
        self._live.difference_update(over)
        self._live.add(node)
        return Change((node,), left)

    def control(self, control: Control) -> Change:
        """Take a `join`, `leave` or `view`; anything else changes nothing."""
        if control.kind == "join" and control.node is not None:
            return self.join(control.node)
        if control.kind == "leave" and control.node is not None:
            return self.leave(control.node)
        if control.kind == "view":
            return self.view(control.members)
        return Change()

    def join(self, node: str) -> Change:
        """Say that a node takes part; of one that restarted, its latest incarnation."""
        latest = self.incarnations.names(node)[-1]
        self._gone.discard(latest)
        if latest in self._live:
            return Change()
        self._live.add(latest)
        return Change((latest,))

    def leave(self, node: str, *, idle: bool = False) -> Change:
        """Say that a node left, in whichever incarnation it is live.

        Parameters
        ----------
        node : str
            Who left.
        idle : bool
            Whether that is a guess from its silence, which its next event refutes.
        """
        names = self.incarnations.names(node)
        left = sorted(self._live.intersection(names))
        self.retired.update(names)
        if not idle:
            self._gone.update(names)
        self._live.difference_update(left)
        return Change((), tuple(left))

    def view(self, members: Iterable[str]) -> Change:
        """Say who takes part: nobody else does. The view that came last is in force."""
        latest = {self.incarnations.names(member)[-1] for member in members}
        joined: list[str] = []
        left: list[str] = []
        for node in sorted(self._live - latest):
            left += self.leave(node).left
        for node in sorted(latest):
            joined += self.join(node).joined
        return Change(tuple(joined), tuple(left))

    def state(self) -> dict[str, Any]:
        """Return the state as plain data."""
        r = self.restorer
        return {
            "live": sorted(self._live),
            "gone": sorted(self._gone),
            "retired": sorted(self.retired),
            "memory": r.memory.state(),
            "incarnations": self.incarnations.state(),
            "restored": [r.raised, r.doubtful, r.beyond, dict(r._last)],
        }

    @classmethod
    def restored(
        cls,
        state: Mapping[str, Any],
        limits: Limits = DEFAULT,
        *,
        attribute: str | None = "incarnation",
    ) -> Membership:
        """Return a stage with a state that `state` gave."""
        self = cls(limits, attribute=attribute)
        self._live = set(state["live"])
        self._gone = set(state["gone"])
        self.retired.update(state["retired"])
        memory = ClockMemory.restored(limits.dots_max, state["memory"])
        self.incarnations.memory = self.restorer.memory = memory
        self.incarnations.load(state["incarnations"])
        r = self.restorer
        r.raised, r.doubtful, r.beyond, r._last = *state["restored"][:3], dict(state["restored"][3])
        return self
