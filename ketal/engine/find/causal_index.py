"""The index of partial matches.

Seen from an event e, another node's events are a prefix that happened-before e,
a suffix that e happened-before, and a range between of concurrent ones. So what
e relates to is found by bisection in *lines*: the events of one node by their
counter. Two more things narrow a search where the pattern allows it:

- A *key*: `k == A.k` accepts only partial matches whose A had this k, so they
  are in lines of their own for each value.
- Time: under `within 5 s` an event older than the window is of no use. Each
  line knows the latest time up to every place in it (`tops`), which never
  falls, so what is too old is a prefix too, even where a clock was set back.

The one rule: what is put in one place is taken out of it, and of every key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ketal.engine.configurations import Configuration, Seen
from ketal.engine.find.partial_matches import Partial
from ketal.engine.machine import Plan, SubPlan
from ketal.model.values import Key

Lines = dict[str, "Line"]
NOTHING: Lines = {}


class Line:
    """The events of one node, by counter, each with what is kept for it.

    Parameters
    ----------
    timed : bool
        Whether a time window will ask for what is not too old.
    number : int
        Its place among lines.
    """

    __slots__ = ("counters", "items", "number", "seens", "tops")

    def __init__(self, timed: bool, number: int) -> None:
        self.number = number
        self.counters: list[int] = []
        self.seens: list[Seen] = []
        self.items: list[Any] = []
        self.tops: list[int] | None = [] if timed else None

    def at(self, seen: Seen) -> int | None:
        """Return the index of an event, None if it is not here."""
        i = bisect_left(self.counters, seen.counter)
        return i if i < len(self.counters) and self.counters[i] == seen.counter else None

    def insert(self, seen: Seen, item: Any) -> None:
        """Put an event in its place; most come last."""
        if not self.counters or self.counters[-1] < seen.counter:
            i = len(self.counters)
        else:
            i = bisect_left(self.counters, seen.counter)
        self.counters.insert(i, seen.counter)
        self.seens.insert(i, seen)
        self.items.insert(i, item)
        if self.tops is not None:
            assert seen.time_us is not None, "events without a time are offered to no window"
            self._top(self.tops, i, seen.time_us)

    @staticmethod
    def _top(tops: list[int], i: int, time_us: int) -> None:
        tops.insert(i, max(time_us, tops[i - 1]) if i else time_us)
        for later in range(i + 1, len(tops)):
            if tops[later] >= time_us:
                break
            tops[later] = time_us

    def remove(self, i: int) -> None:
        """Take out what is at index `i`."""
        del self.counters[i], self.seens[i], self.items[i]
        if self.tops is not None:
            del self.tops[i]  # the others may be later than need be: none is too early

    def knows_from(self, node: str, counter: int, low: int) -> int:
        """Return the index, from `low`, of the first event that (node, counter) is not after."""
        return bisect_left(self.seens, counter, low, key=lambda s: s.clock.get(node, 0))

    def known_to(self, node: str, seen: Seen) -> int:
        """Return the index past the events of this line (`node`'s) that happened-before `seen`."""
        if node == seen.node:
            return bisect_left(self.counters, seen.counter)
        return bisect_right(self.counters, seen.clock.get(node, 0))

    def after(self, node: str, seen: Seen) -> int:
        """Return the index of the first event of this line that `seen` happened-before."""
        if node == seen.node:
            return bisect_right(self.counters, seen.counter)
        return self.knows_from(seen.node, seen.counter, 0)

    def past(self, counter: int) -> int:
        """Return the index past `counter`."""
        return bisect_right(self.counters, counter)

    def later_than(self, time_us: int) -> int:
        """Return an index before which every event's time is at most `time_us`."""
        assert self.tops is not None
        return bisect_right(self.tops, time_us)


class PriorIndex:
    """The partial matches of one state, by the node and counter of their prior event.

    Parameters
    ----------
    values : mapping of int to function
        For each key (the number of its atom): the value of a configuration, None where it has
        none and so can meet nothing.
    timed : bool
        Whether a time window will ask for what is not too old.
    nodes : iterable of str
        Nodes to look through first, in this order.
    """

    __slots__ = ("_timed", "_values", "count", "keyed", "lines")

    def __init__(
        self,
        values: Mapping[int, Callable[[Configuration], Key | None]],
        *,
        timed: bool,
        nodes: Iterable[str] = (),
    ) -> None:
        self._values = values
        self._timed = timed
        self.count = 0
        self.lines: Lines = {node: Line(timed, i) for i, node in enumerate(nodes)}
        self.keyed: dict[int, dict[Key, Lines]] = {}  # made when first asked for

    def add(self, partial: Partial) -> None:
        """Put a partial match in."""
        self._put(self.lines, partial)
        for number in self.keyed:
            self._add_keyed(number, partial)
        self.count += 1

    def _add_keyed(self, number: int, partial: Partial) -> None:
        value = self._values[number](partial.configuration)
        if value is not None:
            self._put(self.keyed[number].setdefault(value, {}), partial)

    def _put(self, lines: Lines, partial: Partial) -> None:
        prior = partial.prior
        line = lines.get(prior.node)
        if line is None:
            line = lines[prior.node] = Line(self._timed, len(lines))
        i = line.at(prior)
        if i is None:
            line.insert(prior, {partial: None})
        else:
            line.items[i][partial] = None

    def remove(self, partial: Partial) -> None:
        """Take a partial match out."""
        self._take(self.lines, partial)
        for number, by_value in self.keyed.items():
            value = self._values[number](partial.configuration)
            if value is None:
                continue
            lines = by_value[value]
            self._take(lines, partial)
            # Values come and go without end: what is empty goes.
            if not lines[partial.prior.node].counters:
                del lines[partial.prior.node]
            if not lines:
                del by_value[value]
        self.count -= 1

    def _take(self, lines: Lines, partial: Partial) -> None:
        line = lines[partial.prior.node]
        i = line.at(partial.prior)
        assert i is not None, "a partial match that is not in its index"
        del line.items[i][partial]
        if not line.items[i]:
            line.remove(i)

    def among(self, key: int | None, value: Key | None) -> Iterable[tuple[str, Line]]:
        """Return the lines, by node, of what has this value of a key (None: of everything)."""
        if key is None:
            return self.lines.items()
        if value is None:
            return ()
        if key not in self.keyed:
            self.keyed[key] = {}
            for partial in self:
                self._add_keyed(key, partial)
        lines = self.keyed[key].get(value, NOTHING)
        if len(lines) < 2:
            return lines.items()
        # In the order of all lines: it is the order of one event's matches, and a
        # restored run has it too.
        return sorted(lines.items(), key=lambda item: self.lines[item[0]].number)

    def __iter__(self) -> Iterator[Partial]:
        for line in self.lines.values():
            for item in line.items:
                yield from item

    def having(self, key: int | None, value: Key | None) -> Iterator[Partial]:
        """Yield the partial matches that have this value of a key (None: all)."""
        for _, line in self.among(key, value):
            for item in line.items:
                yield from item

    def candidates(
        self, plan: Plan, seen: Seen, value: Key | None, oldest_us: int | None
    ) -> Iterator[tuple[SubPlan, Sequence[Any]]]:
        """Yield (sub-plan, groups of partial matches whose prior event stands in its relation).

        Parameters
        ----------
        plan : Plan
            What the event can do in this state.
        seen : Seen
            The event.
        value : Key or None
            Its value of the plan's key.
        oldest_us : int or None
            What is not later than this is out of the window.
        """
        for node, line in self.among(plan.key, value):
            first = 0 if oldest_us is None else line.later_than(oldest_us)
            items = line.items
            if first == len(items):
                continue
            if not plan.reads_prior:
                assert plan.unbound is not None
                yield plan.unbound, items[first:] if first else items
                continue
            # Up to `before`: prior → e. From `after` on: e → prior. Between: concurrent.
            before = line.known_to(node, seen)
            after = before
            if node != seen.node:
                after = line.knows_from(seen.node, seen.counter, before)
            if plan.before is not None and before > first:
                yield plan.before, items[first:before]
            low = max(before, first)
            if plan.concurrent is not None and after > low:
                yield plan.concurrent, items[low:after]
            low = max(after, first)
            if plan.after is not None and low < len(items):
                yield plan.after, items[low:]

    def validate_state(self) -> None:
        """Assert that lines are sorted, and those of each key hold what has its value."""
        every = [self.lines, *(lines for by in self.keyed.values() for lines in by.values())]
        for line in (line for lines in every for line in lines.values()):
            assert line.counters == sorted(set(line.counters))
            assert len(line.counters) == len(line.seens) == len(line.items)
            assert line.tops is None or line.tops == sorted(line.tops)
        for number, by_value in self.keyed.items():
            for value, lines in by_value.items():
                dots = sorted((node, c) for node, line in lines.items() for c in line.counters)
                own = {p.prior for p in self if self._values[number](p.configuration) == value}
                assert dots == sorted((seen.node, seen.counter) for seen in own)
