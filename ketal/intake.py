"""Intake: what happens to each record before any pattern sees it (DESIGN 2, 9).

An event is new, a duplicate (same dot, same content: dropped and counted), a
contradiction (same dot, other content: rejected), late, or refused because a
limit was reached. The counters of a node that were seen are kept exactly and
compactly; the content of the last `dots_max` events is kept to tell a
duplicate from a contradiction (`ketal.contents`). Beyond that, a known dot
counts as a duplicate.

The one rule: `read` is the sum of the other counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

from ketal import counters
from ketal.contents import Block, Contents
from ketal.counters import Counters, bits_of
from ketal.event import Event, content, digest
from ketal.limits import Limits


@dataclass(slots=True)
class Tally:
    """What became of the records read; `read` is the sum of the others."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    late: int = 0
    held_back: int = 0
    overflow: int = 0

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_dict(self) -> dict[str, int]:
        """Return the `events` object of the summary."""
        counts = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"read": sum(counts.values()), **counts}


GIVEN_UP_SHARE = 16
"""Where more counters are beyond holes than are kept, one in so many of them is given up."""

NEW, DUPLICATE, CONTRADICTION, FORGOTTEN = "new", "duplicate", "contradiction", "forgotten"


NONE_BEYOND = Counters(tracking=False)


class Line(NamedTuple):
    """Some events of a node, by their counters.

    Attributes
    ----------
    node : str
        Whose.
    least, most, number : int
        The first and the last of the counters, and how many there are.
    bits : dict of int to int, or None
        Of each chunk of `Counters`, by number, its bits; None for all from `least` to `most`.
    """

    node: str
    least: int
    most: int
    number: int
    bits: dict[int, int] | None


class Unread(Block, Protocol):
    """Events of which only columns are known (`ketal.columns`)."""

    def lines(self) -> Iterator[Line]:
        """Yield of each node which there are."""


class Intake:
    """Tells new events from those that were seen.

    Parameters
    ----------
    limits : Limits
        `dots_max` contents and `counters_max` counters out of order are kept.
    contents_max : int, optional
        More contents than `dots_max`, where all events are in memory anyway.
    """

    def __init__(self, limits: Limits, contents_max: int | None = None) -> None:
        self.counters_max = limits.counters_max
        self.upto: dict[str, int] = {}
        self.beyond: dict[str, Counters] = {}
        self.tracking = False  # whether somebody asks which counters changed
        self.forgotten: dict[str, int] = {}
        self._beyond_count = 0
        self.contents = Contents(contents_max or limits.dots_max)

    def admit(self, event: Event) -> str:
        """Return what an event is: new, duplicate, contradiction or forgotten."""
        contents = self.contents
        if contents.blocks:
            contents.read()
        node = event.node
        counter = event.clock[node]
        dot = (node, counter)
        upto, beyond = self.upto.get(node, 0), self.beyond.get(node)
        if counter <= upto or (beyond is not None and counter in beyond):
            return self._again(event, dot)
        if counter == upto + 1 and not beyond:
            self.upto[node] = counter
        else:
            self._out_of_order(node, counter)
        contents.held[dot] = event
        contents.oldest.append(dot)
        if len(contents.oldest) > contents.most:
            contents.evict()
        return NEW

    def admit_new(self, events: Sequence[Any], first: int = 0, *, named_by: str = "") -> int:
        """Admit events in turn, up to one that is not plainly new; return how many.

        As `admit` of each, for where most are new: what is looked up for one is kept for all.

        Parameters
        ----------
        events : sequence
            What arrived; what is no `Event` is left to the caller.
        first : int
            Where to begin.
        named_by : str
            The attribute of an event whose name is not the one that it arrives with.
        """
        if self.contents.blocks:
            self.contents.read()
        upto, beyond, held = self.upto, self.beyond, self.contents.held
        most, span = self.counters_max, counters.SPAN
        note = self.contents.oldest.append
        number = 0
        for place in range(first, len(events)):
            event = events[place]
            if event.__class__ is not Event or named_by in event.data:
                break
            node = event.node
            counter = event.clock[node]
            before, line = upto.get(node, 0), beyond.get(node)
            if counter <= before:
                break
            if line is None or not line.count:
                if counter == before + 1:
                    upto[node] = counter
                else:
                    self._out_of_order(node, counter)
            else:
                # `Counters`, in place: what a part of an execution does for every event.
                at, bit = counter // span, 1 << counter % span
                chunk = line.chunks.get(at, 0)
                if chunk & bit:
                    break
                if not chunk or counter == before + 1 or self._beyond_count >= most:
                    self._out_of_order(node, counter)
                else:
                    line.chunks[at] = chunk | bit
                    line.count += 1
                    self._beyond_count += 1
                    if line.changed is not None:
                        line.changed.add(at)
            dot = (node, counter)
            held[dot] = event
            note(dot)
            number += 1
        if number:
            self.contents.evict()
        return number

    @property
    def room(self) -> int:
        """How many counters beyond holes may come before some are given up."""
        return self.counters_max - self._beyond_count

    def admit_columns(self, columns: Unread) -> bool:
        """Admit events of which only columns are known, if all are plainly new.

        As `admit` of each, in turn. Contents are read when somebody asks for them; what is let go
        before is never read.

        Parameters
        ----------
        columns : Unread
            The events: no more than there is `room` for, so that no counter is given up before the
            last of them; where there is none, one event.
        """
        lines = []
        for node, least, most, number, bits in columns.lines():
            upto, line = self.upto.get(node, 0), self.beyond.get(node)
            if least <= upto:
                return False
            if bits is None and (least > upto + 1 or (line is not None and line.count)):
                bits = bits_of(range(least, most + 1))
            if bits is not None:
                if sum(map(int.bit_count, bits.values())) != number:
                    return False  # Two have one name.
                if line is not None and line.has_some(bits):
                    return False
            lines.append((node, most, number, bits))
        out_of_order = False
        for node, most, number, bits in lines:
            if bits is None:
                self.upto[node] = most
                continue
            out_of_order = True
            line = self._line(node)
            line.add_all(bits)
            self._beyond_count += number
            if self.upto.get(node, 0) + 1 in line:
                self._close_up(node)
        if out_of_order and self._beyond_count > self.counters_max:
            self._give_up()
        self.contents.add_block(columns)
        return True

    def status(self, event: Event) -> str:
        """Return what an event is, and take note of nothing.

        As `admit`, but an event whose content is no longer kept is `forgotten`.
        """
        contents = self.contents
        if contents.blocks:
            contents.read()
        node = event.node
        counter = event.clock[node]
        dot = (node, counter)
        if counter > self.upto.get(node, 0) and counter not in self.beyond.get(node, NONE_BEYOND):
            return NEW
        kept = dot in contents.held or (counter == 1 and node in contents.firsts)
        return self._again(event, dot) if kept else FORGOTTEN

    def _again(self, event: Event, dot: tuple[str, int]) -> str:
        known = self.contents.held.get(dot)
        if known is None and dot[1] == 1:
            known = self.contents.firsts.get(dot[0])
        if known is None:
            return FORGOTTEN if dot[1] <= self.forgotten.get(dot[0], 0) else DUPLICATE
        if isinstance(known, bytes):
            return DUPLICATE if known == digest(event) else CONTRADICTION
        return DUPLICATE if content(known) == content(event) else CONTRADICTION

    def _line(self, node: str) -> Counters:
        line = self.beyond.get(node)
        if line is None:
            line = self.beyond[node] = Counters(tracking=self.tracking)
        return line

    def _out_of_order(self, node: str, counter: int) -> None:
        self._line(node).add(counter)
        self._beyond_count += 1
        if counter == self.upto.get(node, 0) + 1:
            self._close_up(node)
        if self._beyond_count > self.counters_max:
            self._give_up()

    def _give_up(self) -> None:
        """Give up the lowest holes of the nodes with the most counters beyond holes.

        What would fill them can no longer be told from what was seen. A share of the counters goes
        at once: a part of an execution has holes for ever, and to find the lowest takes long.
        """
        left = self._beyond_count - max(1, self.counters_max // GIVEN_UP_SHARE)
        lines = [(node, line) for node, line in self.beyond.items() if line.count]
        for node, line in sorted(lines, key=lambda pair: (-pair[1].count, pair[0])):
            # Of each node the same share, rounded up.
            share = -(-line.count // GIVEN_UP_SHARE)
            count = min(share, self._beyond_count - left)
            last = line.place(count, self.upto.get(node, 0))
            self.upto[node] = self.forgotten[node] = last - 1
            line.count -= count - 1
            self._beyond_count -= count - 1
            line.drop(last - 1)
            self._close_up(node)
            if self._beyond_count <= left:
                return

    def _close_up(self, node: str) -> None:
        line = self.beyond[node]
        before = upto = self.upto.get(node, 0)
        while upto + 1 in line:
            upto += 1
        line.count -= upto - before
        self._beyond_count -= upto - before
        self.upto[node] = upto
        line.drop(upto)

    def holes(self, known: dict[str, int] | None = None) -> int:
        """Return how many counters are missing below each node's highest.

        Parameters
        ----------
        known : dict of str to int, optional
            Counters that clocks refer to, which count as well.
        """
        missing = 0
        for node in {*self.upto, *self.beyond, *(known or ())}:
            upto, beyond = self.upto.get(node, 0), self.beyond.get(node) or NONE_BEYOND
            highest = max(upto, beyond.highest(), (known or {}).get(node, 0))
            missing += highest - upto - beyond.count
        return missing

    def seen(self, without: Event | None = None) -> dict[str, tuple[int, list[int]]]:
        """Return of each node up to which counter all was seen, and what was seen beyond.

        Parameters
        ----------
        without : Event, optional
            An event that is not to count.
        """
        nodes = sorted({*self.upto, *self.beyond})
        seen = {n: (self.upto.get(n, 0), list(self.beyond_of(n))) for n in nodes}
        if without is not None:
            counter = without.clock[without.node]
            upto, beyond = seen[without.node]
            if counter <= upto:
                beyond = [*range(counter + 1, upto + 1), *beyond]
                upto = counter - 1
            seen[without.node] = (upto, [c for c in beyond if c != counter])
        return seen

    def highest(self) -> dict[str, int]:
        """Return the highest counter that was seen of each node."""
        beyond = {n: line.highest() for n, line in self.beyond.items() if line.count}
        return dict(sorted({**self.upto, **beyond}.items()))

    def beyond_of(self, node: str) -> Iterator[int]:
        """Yield the counters of a node that were seen beyond a hole, in order."""
        line = self.beyond.get(node)
        return iter(()) if line is None else line.after(self.upto.get(node, 0))

    def track(self) -> None:
        """Have it noted from now on which chunks of counters beyond holes change."""
        self.tracking = True
        for line in self.beyond.values():
            line.changed = set()

    def state(self) -> dict[str, Any]:
        """Return what is small of the state: all but counters beyond holes, and contents."""
        return {
            "upto": dict(sorted(self.upto.items())),
            "beyond": sorted(node for node, line in self.beyond.items() if line.count),
            "forgotten": dict(sorted(self.forgotten.items())),
            **self.contents.state(),
        }

    def restore(
        self,
        state: dict[str, Any],
        beyond: Iterable[tuple[str, int, bytes]],
        contents: Iterable[Block],
    ) -> None:
        """Take on a state, in a fresh intake.

        Parameters
        ----------
        state : dict
            What `state` gave.
        beyond : iterable of (str, int, bytes)
            Chunks of a node's counters beyond holes (`ketal.counters`).
        contents : iterable of Block
            What is kept of the last events.
        """
        self.upto, self.forgotten = state["upto"], state["forgotten"]
        self.beyond = {node: Counters(tracking=self.tracking) for node in state["beyond"]}
        for node, number, chunk in beyond:
            if node in self.beyond:
                self.beyond[node].put(number, chunk, self.upto.get(node, 0))
        self._beyond_count = sum(line.count for line in self.beyond.values())
        self.contents.restore(state, contents)
