"""What the last events said, so that a duplicate is told from a contradiction (DESIGN 2).

Of an event that was admitted by itself the event is kept, of others a digest and the clock: of what
was restored, and of what was admitted as columns. Those come in blocks, and a block stays one until
somebody asks for a dot: most are let go before.

Of each node's first event the digest is kept for good: it tells a restart from a duplicate
(`ketal.operators.incarnations`).

The one rule: what is kept are the last `most` events, whichever way they came.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from ketal.event import DIGEST_BYTES, Event, digest

Clock = dict[str, int]
Row = tuple[str, int, bytes, Clock | None]
"""Node, counter, digest and clock of an event."""

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

WHOLE_CLOCK_ENTRIES = 8
"""A clock with no more entries is saved as it is, not as what it changes."""


class Block(Protocol):
    """Events in turn, of which nothing was kept yet but what they are made of."""

    @property
    def rows(self) -> int:
        """How many there are."""

    def contents(self) -> Iterable[Row]:
        """Yield what is kept of each."""

    def beginnings(self, last: int) -> Iterator[tuple[str, bytes]]:
        """Yield node and digest of those up to a row that are the first of their nodes."""

    def part(self, first: int, last: int) -> Block:
        """Return those from one row on, up to another."""


class _Rows:
    """Events of which is known what is kept."""

    def __init__(self, rows: Sequence[Row], first: int = 0) -> None:
        self._rows, self._first = rows, first

    @property
    def rows(self) -> int:
        return len(self._rows) - self._first

    def contents(self) -> Sequence[Row]:
        return self.newest(self.rows)

    def newest(self, count: int) -> Sequence[Row]:
        return self._rows[max(self._first, len(self._rows) - count) :]

    def beginnings(self, last: int) -> Iterator[tuple[str, bytes]]:
        rows = self._rows[self._first : self._first + last]
        return ((node, said) for node, counter, said, _ in rows if counter == 1)

    def part(self, first: int, last: int) -> _Rows:
        if last == self.rows:
            # The oldest rows go again and again: what is left is not copied.
            return _Rows(self._rows, self._first + first)
        return _Rows(self._rows[self._first + first : self._first + last])


class Contents:
    """What is kept of the last events.

    Parameters
    ----------
    most : int
        Of how many.

    Attributes
    ----------
    held : dict of (str, int) to (Event or bytes)
        By node and counter, as they came; a digest instead of an event. What is in blocks came
        after that.
    oldest : deque of (str, int)
        Its keys.
    blocks : deque of Block
        What nobody has asked for yet.
    firsts : dict of str to bytes
        The digest of each node's first event, where that is no longer kept.
    evicted : int
        How many were let go.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held: dict[tuple[str, int], Event | bytes] = {}
        self.oldest: deque[tuple[str, int]] = deque()
        self.blocks: deque[Block] = deque()
        self.firsts: dict[str, bytes] = {}
        self.evicted = 0
        self._clocks: dict[tuple[str, int], Clock] = {}  # of what is held as a digest
        self._in_blocks = 0

    # --- taking in, and letting go ---

    def add_block(self, block: Block) -> None:
        """Take in events that came after all that are kept."""
        self.blocks.append(block)
        self._in_blocks += block.rows
        self._drop_blocks()

    def evict(self, coming: int = 0) -> None:
        """Let go of the oldest that are held, beyond those that may be kept with some that come."""
        oldest, held, clocks = self.oldest, self.held, self._clocks
        count = min(len(oldest) + coming - self.most, len(oldest))
        if count == len(oldest):
            for dot in oldest:
                if dot[1] == 1:
                    self.firsts[dot[0]] = _said(held[dot])
            oldest.clear()
            held.clear()
            clocks.clear()
            self.evicted += count
            return
        for _ in range(count):
            dot = oldest.popleft()
            known = held.pop(dot)
            self.evicted += 1
            if dot[1] == 1:
                self.firsts[dot[0]] = _said(known)
            if clocks:
                clocks.pop(dot, None)

    def _drop_blocks(self) -> None:
        """Let go of whole blocks of which nothing is to be kept."""
        blocks = self.blocks
        if not blocks or self._in_blocks - blocks[0].rows < self.most:
            return
        self.evict(self._in_blocks)
        while self._in_blocks - blocks[0].rows >= self.most:
            self._pass_over(blocks.popleft())

    def _pass_over(self, block: Block) -> None:
        self._in_blocks -= block.rows
        self.evicted += block.rows
        self.firsts.update(block.beginnings(block.rows))

    def _trim(self) -> None:
        """Let go of all that is not to be kept."""
        self._drop_blocks()
        self.evict(self._in_blocks)
        left = self._in_blocks - self.most
        if left > 0:
            block = self.blocks.popleft()
            self.blocks.appendleft(block.part(left, block.rows))
            self._pass_over(block.part(0, left))

    # --- asking ---

    def read(self) -> None:
        """Hold what is in blocks, so that it can be asked for by name."""
        self._trim()
        blocks, self._in_blocks = list(self.blocks), 0
        self.blocks.clear()
        for block in blocks:
            for node, counter, said, clock in block.contents():
                dot = (node, counter)
                self.held[dot] = said
                self.oldest.append(dot)
                if clock is not None:
                    self._clocks[dot] = clock

    def clocks(self) -> Iterator[tuple[str, int, Clock]]:
        """Yield node, counter and clock of what is kept, as it came."""
        if self.blocks:
            self.read()
        for dot, known in self.held.items():
            clock = self._clock(dot, known)
            if clock is not None:
                yield *dot, clock

    def _clock(self, dot: tuple[str, int], known: Event | bytes) -> Clock | None:
        return self._clocks.get(dot) if isinstance(known, bytes) else known.clock

    def first_contents(self) -> dict[str, bytes]:
        """Return the digest of each node's event of counter 1, where it was seen."""
        if self.blocks:
            self.read()
        held = {node: _said(known) for (node, c), known in self.held.items() if c == 1}
        return {**self.firsts, **held}

    # --- state ---

    def state(self) -> dict[str, Any]:
        """Return what is small of the state."""
        self._trim()
        return {"firsts": dict(sorted(self.firsts.items())), "evicted": self.evicted}

    @property
    def taken(self) -> int:
        """How many were taken in, those that were let go since included."""
        return self.evicted + len(self.held) + self._in_blocks

    def newest(self, since: int) -> list[Row]:
        """Return what is kept of those that were taken in after the first `since`, as they came."""
        self._trim()
        left = self.taken - max(since, self.evicted)
        found: list[Sequence[Row]] = []  # the newest first
        for number in range(len(self.blocks) - 1, -1, -1):
            if left <= 0:
                break
            block = self.blocks[number]
            if not isinstance(block, _Rows):
                block = self.blocks[number] = _Rows(list(block.contents()))
            found.append(block.newest(left))
            left -= block.rows
        if left > 0:
            held = list(itertools.islice(reversed(self.held.items()), left))
            held.reverse()
            found.append([(*dot, _said(known), self._clock(dot, known)) for dot, known in held])
        return list(itertools.chain.from_iterable(reversed(found)))

    def restore(self, state: dict[str, Any], blocks: Iterable[Block]) -> None:
        """Take on a state, where nothing is kept yet; `blocks` have what `newest` gave."""
        self.firsts, self.evicted = state["firsts"], state["evicted"]
        self.blocks.extend(blocks)
        self._in_blocks = sum(block.rows for block in self.blocks)


def _said(known: Event | bytes) -> bytes:
    return known if isinstance(known, bytes) else digest(known)


def write_rows(rows: Sequence[Row], *, clocks: bool) -> list[Any]:
    """Return what is kept of events as plain data, column by column; `Written` reads it.

    Parameters
    ----------
    rows : sequence of Row
        The events.
    clocks : bool
        Whether their clocks are to be written.
    """
    names: dict[str, int] = {}
    codes = [names.setdefault(node, len(names)) for node, _, _, _ in rows]
    said = b"".join([said for _, _, said, _ in rows])
    written = _encode(list(_changed(rows))) if clocks else b""
    return [list(names), codes, [counter for _, counter, _, _ in rows], said, written]


def _changed(rows: Iterable[Row]) -> Iterator[Any]:
    """Yield clocks, a large one as what differs from the last large one of its node."""
    last: dict[str, Clock] = {}
    for node, _, _, clock in rows:
        if clock is None or len(clock) <= WHOLE_CLOCK_ENTRIES:
            yield clock
        else:
            before = last.get(node, {})
            last[node] = clock
            changed = {name: c for name, c in clock.items() if before.get(name) != c}
            yield changed, sorted(before.keys() - clock.keys())


class Written:
    """Events of which `write_rows` wrote what is kept; a block, read when somebody asks.

    Parameters
    ----------
    written : sequence
        What was written.
    clocks : bool
        Whether their clocks are of interest.
    """

    def __init__(self, written: Sequence[Any], *, clocks: bool) -> None:
        self._names, self._codes, self._counters, self._said, self._clocks = written
        if not clocks:
            self._clocks = b""
        self._first, self._last = 0, len(self._counters)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._last - self._first

    def contents(self) -> Iterator[Row]:
        """Yield what is kept of each."""
        clocks = self._all_clocks() if self._clocks else itertools.repeat(None)
        some = slice(self._first, self._last)
        for code, counter, place, clock in zip(
            self._codes[some],
            self._counters[some],
            range(self._first * DIGEST_BYTES, self._last * DIGEST_BYTES, DIGEST_BYTES),
            itertools.islice(clocks, self._first, None),
            strict=False,
        ):
            yield self._names[code], counter, self._said[place : place + DIGEST_BYTES], clock

    def _all_clocks(self) -> Iterator[Clock | None]:
        last: dict[str, Clock] = {}
        for code, written in zip(self._codes, _decode(self._clocks), strict=True):
            if written is None or isinstance(written, dict):
                yield written
            else:
                changed, dropped = written
                node = self._names[code]
                clock = {**last.get(node, {}), **changed}
                for name in dropped:
                    del clock[name]
                last[node] = clock
                yield clock

    def beginnings(self, last: int) -> Iterator[tuple[str, bytes]]:
        """Yield node and digest of those up to a row that are the first of their nodes."""
        if 1 in self._counters:
            for node, counter, said, _ in itertools.islice(self.contents(), last):
                if counter == 1:
                    yield node, said

    def part(self, first: int, last: int) -> Written:
        """Return those from one row on, up to another."""
        part = copy.copy(self)
        part._first, part._last = self._first + first, self._first + last
        return part
