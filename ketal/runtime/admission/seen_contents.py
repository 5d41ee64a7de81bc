"""The contents of the last events that were admitted, and the digest of each node's first one.

A content is looked up only when an event's dot was seen before, which is rare. So contents are
stored in the order of arrival, and are added to an index by dot only at a look-up. Those of later
incarnations are in a second index, by all that an event has in common with a duplicate of it before
its incarnation is known. Evicted contents are removed from the list a share at a time.

The digest of a node's first event is never evicted: it distinguishes a restart from a duplicate
(`ketal.operators.membership.incarnations`).

The one rule: exactly the last `most` contents are kept, and can be looked up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ketal.model.events.content import unnamed_digest
from ketal.model.events.event import Event
from ketal.model.values import base_node
from ketal.operators.membership.clock_memory import Clock
from ketal.runtime.admission.seen_digests import Content, ContentRow, digest_of

_NONE: Final[set[str]] = set()
REMOVED_SHARE: Final = 16
"""Evicted contents are removed when there are more than `most // REMOVED_SHARE` of them."""


class SeenContents:
    """The contents of the last `most` events."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.evicted = 0  # how many were evicted: the number of the first that is kept
        # For each node whose event of counter 1 was evicted, the digest of that event.
        self.firsts: dict[str, bytes] = {}
        self._contents: list[Content] = []
        self._removable = 0  # how many at the start of `_contents` are evicted
        self._first_numbers: deque[int] = deque()  # of the kept events with counter 1
        self._numbers: dict[tuple[str, int], int] = {}  # the index: by dot
        # The names of later incarnations, by node, counter and digest (None: loaded from a state).
        self._runs: dict[tuple[str, int, bytes | None], set[str]] = {}
        self._indexed = 0  # contents with lower numbers are in the indices

    @property
    def taken(self) -> int:
        """How many contents were added so far, evicted ones included."""
        return self.evicted + len(self._contents) - self._removable

    def extend(self, contents: Sequence[Content], firsts: Sequence[int]) -> None:
        """Add contents in order of arrival; `firsts` has the indices of those with counter 1."""
        taken = self.taken
        for index in firsts:
            self._first_numbers.append(taken + index)
        self._contents.extend(contents)
        evicted = taken + len(contents) - self._most
        if evicted > self.evicted:
            self._evict(evicted)

    def _evict(self, evicted: int) -> None:
        """Evict the contents with numbers below `evicted`."""
        firsts = self._first_numbers
        while firsts and firsts[0] < evicted:
            first = self._at_number(firsts.popleft())
            self.firsts[first.node] = digest_of(first)
        self._removable += evicted - self.evicted
        self.evicted = evicted
        if self._removable > self._most // REMOVED_SHARE:
            del self._contents[: self._removable]
            self._removable = 0

    def _at_number(self, number: int) -> Content:
        return self._contents[number - self.evicted + self._removable]

    def _from_number(self, number: int) -> list[Content]:
        """Return the kept contents with numbers from `number` on."""
        return self._contents[max(0, number - self.evicted) + self._removable :]

    def content_of(self, node: str, counter: int) -> Content | None:
        """Return the content of a dot; None if it is not kept."""
        self._index_new()
        number_of_dot = self._numbers.get((node, counter), -1)
        return self._at_number(number_of_dot) if number_of_dot >= self.evicted else None

    def runs_with(self, event: Event) -> set[str]:
        """Return the later incarnations of a node that may have its event as their own.

        They have an event of its counter whose content is equal but for names, or was loaded.
        """
        self._index_new()
        runs, node, counter = self._runs, event.node, event.clock[event.node]
        alike = runs.get((node, counter, unnamed_digest(event)), _NONE)
        return alike | runs.get((node, counter, None), _NONE)

    def _index_new(self) -> None:
        """Add the contents to the indices that are not in them yet."""
        taken = self.taken
        if self._indexed == taken:
            return
        new = self._from_number(self._indexed)
        if len(self._numbers) + len(new) > 2 * self._most:
            self._numbers, self._runs, new = {}, {}, self.held()
        for number, one in enumerate(new, taken - len(new)):
            self._numbers[one.node, one.counter] = number
            node = base_node(one.node)
            if node != one.node:
                known = unnamed_digest(one) if isinstance(one, Event) else None
                self._runs.setdefault((node, one.counter, known), set()).add(one.node)
        self._indexed = taken

    def held(self) -> list[Content]:
        """Return all kept contents, in order of arrival."""
        return self._from_number(self.evicted)

    def newest(self, since: int) -> list[ContentRow]:
        """Return the rows of the kept contents from number `since` on, in order of arrival."""
        return [
            ContentRow(one.node, one.counter, digest_of(one), one.clock)
            for one in self._from_number(since)
        ]

    def clocks(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of the kept events, in order of arrival."""
        for one in self.held():
            if one.clock is not None:
                yield one.node, one.counter, one.clock

    def first_digests(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, if it was seen."""
        held = [self._at_number(number) for number in self._first_numbers]
        return self.firsts | {one.node: digest_of(one) for one in held}

    # --- state ---

    def load(self, firsts: Mapping[str, bytes], evicted: int, rows: Sequence[ContentRow]) -> None:
        """Load a state: the attributes `firsts` and `evicted`, and the rows of kept contents."""
        self.firsts, self.evicted, self._indexed = dict(firsts), evicted, evicted
        self.extend(rows, [index for index, row in enumerate(rows) if row.counter == 1])

    def validate_state(self) -> None:
        """Assert that exactly the last `most` contents are kept, and that the indices are right."""
        held = self.held()
        assert len(held) == self.taken - self.evicted <= self._most
        assert self._removable <= self._most // REMOVED_SHARE
        firsts = [number for number, one in enumerate(held, self.evicted) if one.counter == 1]
        assert firsts == list(self._first_numbers)
        assert not self.firsts.keys() & {self._at_number(number).node for number in firsts}
        dots = {(one.node, one.counter): number for number, one in enumerate(held, self.evicted)}
        assert len(dots) == len(held)
        indexed = {dot: number for dot, number in dots.items() if number < self._indexed}
        assert indexed.items() <= self._numbers.items()
        assert len(self._numbers) <= 2 * self._most
        assert len(self._runs) <= len(self._numbers)
        for one in held[: max(0, self._indexed - self.evicted)]:
            node = base_node(one.node)
            known = unnamed_digest(one) if isinstance(one, Event) else None
            assert node == one.node or one.node in self._runs[node, one.counter, known]
