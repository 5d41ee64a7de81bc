"""Columns: the events of one node that can stand in one role, by their counters.

Seen from an event e, the events of a column that happened-before e are a prefix, those that e
happened-before a suffix, and the concurrent ones the range between: each is found by bisection
(Garg, "Principles of distributed systems", 1996, section 2.2). Where no guard reads the
causal relation a role has one column, by the place in the order offered.

A column has for each event a *summary* for the search: under a forward search the latest start of
a match that leads to it, otherwise two bounds, the latest start before it and the earliest end
after it.

The one rule: the counters of a column rise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from ketal.engine.configurations import Seen

NEVER: Final = float("-inf")
"""Less than every time and place: the start where no match leads to an event."""
BLOCK = 16
"""How many events share a maximum; as many of these blocks, a region, share another."""
REGION = BLOCK * BLOCK


IsKept = Callable[[Seen, float], bool]
"""Whether to keep an event, by the event and the latest start of a match that leads to it."""


class Bounds:
    """A number for each event of a column, where the numbers of a range can be raised together.

    Blocks of events, and regions of blocks, have a tag, to which all of their numbers are raised,
    and a maximum. So raising a range or finding its maximum takes O(n / BLOCK^2 + BLOCK), listing
    the numbers above a limit O(BLOCK) for each.
    """

    __slots__ = ("_maxima", "_region_maxima", "_region_tags", "_tags", "_values", "greatest")

    def __init__(self) -> None:
        self.fill([])

    def fill(self, values: list[float]) -> None:
        """Set the numbers of all events."""
        blocks, regions = -(-len(values) // BLOCK), -(-len(values) // REGION)
        self._values = values
        self.greatest = max(values, default=NEVER)  # the maximum of all
        self._tags = [NEVER] * blocks
        self._maxima = [max(values[i * BLOCK : (i + 1) * BLOCK]) for i in range(blocks)]
        self._region_tags = [NEVER] * regions
        self._region_maxima = [max(values[i * REGION : (i + 1) * REGION]) for i in range(regions)]

    def insert(self, i: int, value: float) -> None:
        """Insert the number of an event at index `i`; most are inserted at the end."""
        self.greatest = max(self.greatest, value)
        if i < len(self._values):
            values = [self.number_at(j) for j in range(len(self._values))]
            values.insert(i, value)
            self.fill(values)
            return
        if not i % BLOCK:
            self._tags.append(NEVER)
            self._maxima.append(NEVER)
        if not i % REGION:
            self._region_tags.append(NEVER)
            self._region_maxima.append(NEVER)
        self._values.append(value)
        self._maxima[-1] = max(self._maxima[-1], value)
        self._region_maxima[-1] = max(self._region_maxima[-1], value)

    def number_at(self, i: int) -> float:
        """Return the number of the event at index `i`."""
        return max(self._values[i], self._tags[i // BLOCK])

    def keep(self, indexes: list[int]) -> None:
        """Keep only the events at some indexes."""
        self.fill([self.number_at(i) for i in indexes])

    def maximum(self, low: int, high: int) -> float:
        """Return the greatest number in [low, high)."""
        first, last = -(-low // BLOCK), high // BLOCK
        if first >= last:
            return self._maximum_of_few(low, high)
        best = max(
            self._maximum_of_few(low, first * BLOCK), self._maximum_of_few(last * BLOCK, high)
        )
        low, high = -(-first // BLOCK), last // BLOCK
        if low >= high:
            return max(best, max(self._maxima[first:last]))
        best = max(best, max(self._region_maxima[low:high]))
        ends = self._maxima[first : low * BLOCK] + self._maxima[high * BLOCK : last]
        return max(best, max(ends, default=NEVER))

    def _maximum_of_few(self, low: int, high: int) -> float:
        """Return the greatest number in a range that is in two blocks at most."""
        if low >= high:
            return NEVER
        first, last = low // BLOCK, (high - 1) // BLOCK
        return max(max(self._values[low:high]), self._tags[first], self._tags[last])

    def indexes_above(self, low: int, high: int, limit: float) -> Iterator[int]:
        """Yield the indexes in [low, high) of numbers above a limit."""
        values, tags, maxima = self._values, self._tags, self._maxima
        while low < high:
            block, region = low // BLOCK, low // REGION
            end = min((block + 1) * BLOCK, high)
            if self._region_maxima[region] <= limit:
                end = min((region + 1) * REGION, high)
            elif maxima[block] > limit:
                if tags[block] > limit:
                    yield from range(low, end)
                else:
                    for i in range(low, end):
                        if values[i] > limit:
                            yield i
            low = end

    def raise_range(self, low: int, high: int, value: float) -> bool:
        """Raise the numbers below `value` in [low, high) to it; return whether there was one."""
        first, last = -(-low // BLOCK), high // BLOCK
        if low < high and value > self.greatest:
            self.greatest = value
        if first > last:
            return self._raise_some(low, high, value)
        raised = self._raise_some(low, first * BLOCK, value)
        raised = self._raise_some(last * BLOCK, high, value) or raised
        while first < last:
            if not first % BLOCK and first + BLOCK <= last:
                region = first // BLOCK
                if self._region_tags[region] < value:
                    self._region_tags[region] = value
                    raised = self._raise_blocks(first, first + BLOCK, value) or raised
                first += BLOCK
            else:
                end = min((first // BLOCK + 1) * BLOCK, last)
                raised = self._raise_blocks(first, end, value) or raised
                first = end
        return raised

    def _raise_blocks(self, first: int, last: int, value: float) -> bool:
        """Raise the numbers of blocks of one region."""
        tags, maxima = self._tags, self._maxima
        raised = False
        for block in range(first, last):
            if tags[block] < value:
                tags[block] = value
                raised = True
                if maxima[block] < value:
                    maxima[block] = value
        region = first // BLOCK
        if raised and self._region_maxima[region] < value:
            self._region_maxima[region] = value
        return raised

    def _raise_some(self, low: int, high: int, value: float) -> bool:
        """Raise the numbers of events of one block."""
        if low >= high:
            return False
        block = low // BLOCK
        if self._tags[block] >= value:
            return False
        values, raised = self._values, False
        for i in range(low, high):
            if values[i] < value:
                values[i] = value
                raised = True
        if raised and self._maxima[block] < value:
            self._maxima[block] = value
            if self._region_maxima[block // BLOCK] < value:
                self._region_maxima[block // BLOCK] = value
        return raised


class Column:
    """The events of one node, or of all, that can stand in one role.

    Under a search that is not forward, if the roles of the pattern have bounds, `before` has for
    each event an upper bound of the latest start before it, and `after` the negative of a lower
    bound of the earliest end after it.
    """

    __slots__ = (
        "_starts_rise", "after", "before", "counters", "latest", "places", "rising", "seens",
        "starts", "totals",
    )  # fmt: skip

    def __init__(self, *, bounded: bool, counting: bool) -> None:
        self.counters: list[int] = []  # rising; in a column of all nodes, the places
        self.places: list[int] = []
        self.seens: list[Seen] = []
        # Under a forward search, the latest start of a match that leads to each event.
        self.starts: list[float] = []
        # Where matches are counted, how many beginnings of them lead to the first n events.
        self.totals: list[int] | None = [0] if counting else None
        self.before = Bounds() if bounded else None
        self.after = Bounds() if bounded else None
        self.latest = NEVER  # the greatest of `starts`
        self.rising = True  # whether `places` rises
        self._starts_rise = True

    def __len__(self) -> int:
        return len(self.seens)

    def add(
        self, position: int, seen: Seen, start: float, bounds: tuple[float, float], beginnings: int
    ) -> None:
        """Add an event by its counter or, in a column of all nodes, its place.

        Under a forward search `start` is the latest start of a match that leads to it, otherwise
        `bounds` are its `before` and `after`. Where matches are counted, so many
        `beginnings` of matches lead to it.
        """
        counters = self.counters
        i = len(counters)
        if start > self.latest:
            self.latest = start
        if not i or counters[-1] < position:
            if i:
                self._starts_rise = self._starts_rise and start >= self.starts[-1]
                self.rising = self.rising and seen.place > self.places[-1]
            counters.append(position)
            self.places.append(seen.place)
            self.seens.append(seen)
            self.starts.append(start)
        else:
            i = bisect_left(counters, position)
            self.rising = self._starts_rise = False
            counters.insert(i, position)
            self.places.insert(i, seen.place)
            self.seens.insert(i, seen)
            self.starts.insert(i, start)
        if self.totals is not None:
            self.totals.insert(i + 1, self.totals[i])
            for later in range(i + 1, len(self.totals)):
                self.totals[later] += beginnings
        if self.before is not None and self.after is not None:
            self.before.insert(i, bounds[0])
            self.after.insert(i, bounds[1])

    def beginnings(self, low: int, high: int) -> int:
        """Return how many beginnings of matches lead to the events in [low, high)."""
        assert self.totals is not None, "matches are counted here"
        return self.totals[high] - self.totals[low]

    def sweep(self, is_kept: IsKept) -> None:
        """Remove the events that `is_kept` rejects."""
        assert self.totals is None, "where matches are counted there is no window"
        starts = self.starts
        indexes = [i for i, seen in enumerate(self.seens) if is_kept(seen, starts[i])]
        self.counters = [self.counters[i] for i in indexes]
        self.seens = [self.seens[i] for i in indexes]
        self.starts = [self.starts[i] for i in indexes]
        self.latest = max(self.starts, default=NEVER)
        self.places = [self.places[i] for i in indexes]
        for bounds in (self.before, self.after):
            if bounds is not None:
                bounds.keep(indexes)

    # --- ranges ---

    def first_knowing(self, seen: Seen, low: int, high: int) -> int:
        """Return the index of the first event in [low, high) that is `seen` or after it."""
        node, counter = seen.node, seen.counter
        if low >= high or self.seens[high - 1].clock.get(node, 0) < counter:
            return high
        return bisect_left(self.seens, counter, low, high, key=lambda s: s.clock.get(node, 0))

    # --- a forward search ---

    def latest_start(self, low: int, high: int) -> float:
        """Return the greatest of `starts` in [low, high)."""
        if low >= high:
            return NEVER
        if high - low == len(self.starts):
            return self.latest
        return self.starts[high - 1] if self._starts_rise else max(self.starts[low:high])

    # --- the events to visit ---

    def candidates_before(self, low: int, high: int, limit: float, *, forward: bool) -> list[Seen]:
        """Return the events in [low, high) that a match which starts after a limit may reach."""
        seens, starts = self.seens, self.starts
        if forward:
            if self._starts_rise:
                return seens[bisect_right(starts, limit, low, high) : high]
            return [seens[i] for i in range(low, high) if starts[i] > limit]
        if self.before is None:
            return seens[low:high]
        return [seens[i] for i in self.before.indexes_above(low, high, limit)]

    def candidates_after(self, low: int, high: int, limit: float) -> list[Seen]:
        """Return the events in [low, high) after which a match may end before minus a limit."""
        if self.after is None:
            return self.seens[low:high]
        return [self.seens[i] for i in self.after.indexes_above(low, high, limit)]

    def validate_state(self) -> None:
        """Assert the rule of this module."""
        sizes = {len(self.counters), len(self.places), len(self.seens), len(self.starts)}
        assert len(sizes) == 1
        assert self.latest == max(self.starts, default=NEVER)
        assert all(a < b for a, b in zip(self.counters, self.counters[1:], strict=False))


NamedColumns = list[tuple[str, Column]]
"""Columns, each with its node, sorted by node."""


class Columns:
    """The columns of a role by node; the order of the nodes decides that of an event's matches."""

    __slots__ = ("_by_node", "sorted")

    def __init__(self) -> None:
        self._by_node: dict[str, Column] = {}
        self.sorted: NamedColumns = []  # all of them

    def get(self, node: str) -> Column | None:
        """Return the column of a node; None if it has none."""
        return self._by_node.get(node)

    def add(self, node: str, column: Column) -> None:
        """Add the column of a node that has none."""
        self._by_node[node] = column
        insort(self.sorted, (node, column), key=itemgetter(0))

    def known_to(self, clock: Mapping[str, int] | None) -> NamedColumns:
        """Return the columns of the nodes of a clock; all if there is none, or if it has more."""
        if clock is None or len(clock) >= len(self.sorted):
            return self.sorted
        by_node = self._by_node
        return [(node, by_node[node]) for node in sorted(clock) if node in by_node]

    def sweep(self, is_kept: IsKept) -> None:
        """Remove the events that `is_kept` rejects."""
        for _, column in self.sorted:
            column.sweep(is_kept)
        self.sorted = [(node, column) for node, column in self.sorted if len(column)]
        self._by_node = dict(self.sorted)

    def validate_state(self) -> None:
        """Assert the rule of this module, for each column."""
        assert self.sorted == sorted(self._by_node.items(), key=itemgetter(0))
        for _, column in self.sorted:
            column.validate_state()
            assert len(column)


NOTHING: Final = Columns()
