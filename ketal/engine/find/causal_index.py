"""The index of partial matches, and of the events kept for them.

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
from typing import Any, Generic, TypeVar

from ketal.engine.configurations import Seen
from ketal.engine.find.partial_matches import Partial
from ketal.engine.machine import Plan, SubPlan
from ketal.model.values import Key

T = TypeVar("T")
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


class _Lines(Generic[T]):
    """Lines of all that was put in, and lines for each value of each key.

    Parameters
    ----------
    values : mapping of int to function
        For each key (the number of its atom): the value of what is put in, None
        where it has none and so can meet nothing.
    timed : bool
        Whether a time window will ask for what is not too old.
    nodes : iterable of str
        Nodes to look through first, in this order.
    """

    __slots__ = ("keyed", "lines", "timed", "values")

    def __init__(
        self,
        values: Mapping[int, Callable[[T], Key | None]],
        *,
        timed: bool,
        nodes: Iterable[str] = (),
    ) -> None:
        self.values = values
        self.timed = timed
        self.lines: Lines = {node: Line(timed, i) for i, node in enumerate(nodes)}
        self.keyed: dict[int, dict[Key, Lines]] = {}  # made when first asked for

    def _line(self, lines: Lines, node: str) -> Line:
        line = lines.get(node)
        if line is None:
            line = lines[node] = Line(self.timed, len(lines))
        return line

    def _all(self) -> Iterable[T]:
        """Return all that was put in."""
        raise NotImplementedError

    def _seen(self, item: T) -> Seen:
        """Return the event at whose place an item is."""
        raise NotImplementedError

    def _put(self, lines: Lines, item: T) -> None:
        """Put an item in its place in some lines."""
        raise NotImplementedError

    def _take(self, lines: Lines, item: T) -> None:
        """Take an item out of its place in some lines."""
        raise NotImplementedError

    def add(self, item: T) -> None:
        """Put an item in."""
        self._put(self.lines, item)
        for number in self.keyed:
            self._add_keyed(number, item)

    def remove(self, item: T) -> None:
        """Take an item out."""
        self._take(self.lines, item)
        for number, by_value in self.keyed.items():
            value = self.values[number](item)
            if value is None:
                continue
            lines = by_value[value]
            self._take(lines, item)
            # Values come and go without end: what is empty goes.
            for node in [node for node, line in lines.items() if not line.counters]:
                del lines[node]
            if not lines:
                del by_value[value]

    def _add_keyed(self, number: int, item: T) -> None:
        value = self.values[number](item)
        if value is not None:
            self._put(self.keyed[number].setdefault(value, {}), item)

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
                own = {self._seen(x) for x in self._all() if self.values[number](x) == value}
                assert dots == sorted((seen.node, seen.counter) for seen in own)

    def among(self, key: int | None, value: Key | None) -> Iterable[tuple[str, Line]]:
        """Return the lines, by node, of what has this value of a key (None: of everything)."""
        if key is None:
            return self.lines.items()
        if value is None:
            return ()
        if key not in self.keyed:
            self.keyed[key] = {}
            for item in self._all():
                self._add_keyed(key, item)
        lines = self.keyed[key].get(value, NOTHING)
        if len(lines) < 2:
            return lines.items()
        # In the order of all lines: it is the order of one event's matches, and a
        # restored run has it too.
        return sorted(lines.items(), key=lambda item: self.lines[item[0]].number)


class PriorIndex(_Lines[Partial]):
    """The partial matches of one state, by the node and counter of their prior event."""

    __slots__ = ("count",)

    def __init__(
        self,
        values: Mapping[int, Callable[[Partial], Key | None]],
        *,
        timed: bool,
        nodes: Iterable[str] = (),
    ) -> None:
        super().__init__(values, timed=timed, nodes=nodes)
        self.count = 0

    def add(self, item: Partial) -> None:
        """Put a partial match in."""
        super().add(item)
        self.count += 1

    def remove(self, item: Partial) -> None:
        """Take a partial match out."""
        super().remove(item)
        self.count -= 1

    def _all(self) -> Iterable[Partial]:
        return self

    def _seen(self, item: Partial) -> Seen:
        return item.prior

    def _put(self, lines: Lines, item: Partial) -> None:
        prior = item.prior
        line = self._line(lines, prior.node)
        i = line.at(prior)
        if i is None:
            line.insert(prior, {item: None})
        else:
            line.items[i][item] = None

    def _take(self, lines: Lines, item: Partial) -> None:
        prior = item.prior
        line = lines[prior.node]
        i = line.at(prior)
        assert i is not None, "a partial match that is not in its index"
        del line.items[i][item]
        if not line.items[i]:
            line.remove(i)

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


class EventIndex(_Lines[Seen]):
    """Events of one mask that are kept, by node and counter."""

    __slots__ = ()

    def _all(self) -> Iterable[Seen]:
        return self

    def _seen(self, item: Seen) -> Seen:
        return item

    def __iter__(self) -> Iterator[Seen]:
        return (seen for line in self.lines.values() for seen in line.seens)

    def _put(self, lines: Lines, item: Seen) -> None:
        self._line(lines, item.node).insert(item, None)

    def _take(self, lines: Lines, item: Seen) -> None:
        line = lines[item.node]
        i = line.at(item)
        assert i is not None, "an event that is not in its index"
        line.remove(i)
