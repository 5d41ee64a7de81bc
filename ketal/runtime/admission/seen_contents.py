"""The contents of the last events that were admitted, and the digest of each node's first one.

Contents are asked for where an event's dot was seen before, which is rare. So they are held in the
order of arrival, and are put into the index by dot when one is asked for: what nobody asks for
costs its place in a list. What is evicted is removed from the list a share at a time.

The digest of a node's first event is never evicted: it distinguishes a restart from a duplicate
(`ketal.operators.membership.incarnations`).

The one rule: exactly the last `most` contents are held, and found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ketal.operators.membership.clock_memory import Clock
from ketal.runtime.admission.seen_digests import Content, ContentRow, digest_of

REMOVED_SHARE: Final = 16
"""Evicted contents are removed once they are one in so many."""


class SeenContents:
    """The contents of the last events.

    Parameters
    ----------
    most : int
        How many are held.

    Attributes
    ----------
    evicted : int
        How many were evicted; the first that is held has this number.
    firsts : dict of str to bytes
        The digests of the nodes' events of counter 1 that were evicted.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.evicted = 0
        self.firsts: dict[str, bytes] = {}
        self._contents: list[Content] = []
        self._removable = 0  # so many of these, the first, are evicted
        self._first_numbers: deque[int] = deque()  # of the events of counter 1 that are held
        self._numbers: dict[tuple[str, int], int] = {}  # by dot
        self._indexed = 0  # the contents with lower numbers are in there

    @property
    def taken(self) -> int:
        """How many were added, those that were evicted since included."""
        return self.evicted + len(self._contents) - self._removable

    def extend(self, contents: Sequence[Content], firsts: Sequence[int]) -> None:
        """Add contents in order of arrival, those of counter 1 at the places `firsts`."""
        taken = self.taken
        for place in firsts:
            self._first_numbers.append(taken + place)
        self._contents.extend(contents)
        evicted = taken + len(contents) - self._most
        if evicted > self.evicted:
            self._evict(evicted)

    def _evict(self, evicted: int) -> None:
        """Evict the contents with numbers below `evicted`."""
        firsts = self._first_numbers
        while firsts and firsts[0] < evicted:
            first = self._numbered(firsts.popleft())
            self.firsts[first.node] = digest_of(first)
        self._removable += evicted - self.evicted
        self.evicted = evicted
        if self._removable > self._most // REMOVED_SHARE:
            del self._contents[: self._removable]
            self._removable = 0

    def _numbered(self, number: int) -> Content:
        return self._contents[number - self.evicted + self._removable]

    def _since(self, number: int) -> list[Content]:
        """Return the contents held with numbers from `number` on."""
        return self._contents[max(0, number - self.evicted) + self._removable :]

    def of(self, node: str, counter: int) -> Content | None:
        """Return the content of a dot; None where none is held."""
        numbers, taken = self._numbers, self.taken
        if self._indexed < taken:
            new = self._since(self._indexed)
            for number, one in enumerate(new, taken - len(new)):
                numbers[one.node, one.counter] = number
            self._indexed = taken
            if len(numbers) > 2 * self._most:
                held = {dot: number for dot, number in numbers.items() if number >= self.evicted}
                self._numbers = numbers = held
        found = numbers.get((node, counter), -1)
        return self._numbered(found) if found >= self.evicted else None

    def held(self) -> list[Content]:
        """Return all, in order of arrival."""
        return self._since(self.evicted)

    def newest(self, since: int) -> list[ContentRow]:
        """Return the rows of those that were added after the first `since`, in order of arrival."""
        return [
            ContentRow(one.node, one.counter, digest_of(one), one.clock)
            for one in self._since(since)
        ]

    def clocks(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the events held, in order of arrival."""
        for one in self.held():
            if one.clock is not None:
                yield one.node, one.counter, one.clock

    def first_digests(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, where it was seen."""
        held = [self._numbered(number) for number in self._first_numbers]
        return self.firsts | {one.node: digest_of(one) for one in held}

    # --- state ---

    def load(self, firsts: Mapping[str, bytes], evicted: int, rows: Sequence[ContentRow]) -> None:
        """Load a state, `firsts` and `evicted` as they were and the rows of what was held."""
        self.firsts, self.evicted, self._indexed = dict(firsts), evicted, evicted
        self.extend(rows, [place for place, row in enumerate(rows) if row.counter == 1])

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        held = self.held()
        assert len(held) == self.taken - self.evicted <= self._most
        assert self._removable <= self._most // REMOVED_SHARE
        firsts = [number for number, one in enumerate(held, self.evicted) if one.counter == 1]
        assert firsts == list(self._first_numbers)
        assert not self.firsts.keys() & {self._numbered(number).node for number in firsts}
        dots = {(one.node, one.counter): number for number, one in enumerate(held, self.evicted)}
        assert len(dots) == len(held)
        indexed = {dot: number for dot, number in dots.items() if number < self._indexed}
        assert indexed.items() <= self._numbers.items()
        assert len(self._numbers) <= 2 * self._most
