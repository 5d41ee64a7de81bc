"""The names of a program that no event of an execution has, and the names that events do have.

While a name is unmet, the types, nodes or attributes of a sample of the events are counted, so
that a similar name can be proposed with the number of events that have it. Once all names are met,
nothing is counted. A name is looked up only when it is added to a counter. So an event costs what
it adds, at most `NAMES_MAX` names that are sorted again, however many names are unmet; only globs
are each matched with it, and all names of a sampled event are read while an attribute is unmet.

The one rule: a name is unmet if no sampled event has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from ketal.compiler.counted.named_values import NamedValue, NameKey
from ketal.engine.statistics.sampling import sampled
from ketal.model.events.event import Event
from ketal.model.values import base_node

NAMES_MAX = 256
"""The most types, nodes and attributes that are counted, the most frequent of each."""

_TYPE, _NODE, _DATA = attrgetter("type"), attrgetter("node"), attrgetter("data")
_COUNTED = {"type": "type", "node": "node", "attribute": "attribute", "partition": "attribute"}
"""Kind of name → the names that are counted while one of the kind is unmet."""
_KINDS = tuple(dict.fromkeys(_COUNTED.values()))


@dataclass(frozen=True, slots=True)
class NamesMet:
    """The names of a program that no event of an execution, or of several parts of one, has."""

    unmet: list[NameKey]  # the names that no sampled event has
    sampled_count: int  # how many events were sampled
    # How many of these have each type, node or attribute, the most frequent first; only of kinds
    # of which a name is unmet.
    counts: dict[str, dict[str, int]]
    # The nodes, if no clock has an entry of another node and a pattern reads such entries.
    isolated_nodes: tuple[str, ...] = ()

    def counted(self, what: str) -> dict[str, int]:
        """Return how many events have each name of a kind; empty once all of the kind are met."""
        return self.counts.get(_COUNTED[what], {})

    @classmethod
    def sum(cls, parts: Sequence[NamesMet]) -> NamesMet:
        """Return the sum over parts of an execution, in all of which the same names are sought."""
        unmet = [key for key in parts[0].unmet if all(key in part.unmet for part in parts)]
        counts: dict[str, dict[str, int]] = {}
        for kind in dict.fromkeys(_COUNTED[what] for what, _ in unmet):
            counter: Counter[str] = Counter()
            for part in parts:
                counter.update(part.counts.get(kind, {}))
            counts[kind] = dict(_most_common(counter))
        isolated_nodes: set[str] = set()
        if all(part.isolated_nodes for part in parts):
            isolated_nodes = set().union(*(part.isolated_nodes for part in parts))
        sampled_count = sum(part.sampled_count for part in parts)
        return cls(unmet, sampled_count, counts, tuple(sorted(isolated_nodes)))


def _most_common(counter: Counter[str]) -> list[tuple[str, int]]:
    """Return the `NAMES_MAX` most frequent names; equally frequent ones are sorted by name."""
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:NAMES_MAX]


def _paths(data: Mapping[str, Any]) -> list[str]:
    """Return the names of attributes, also of nested ones, with dots between the names."""
    names = list(data)
    for name, value in data.items():
        if value.__class__ is dict:
            names += [f"{name}.{inner}" for inner in _paths(value)]
    return names


class LogNames:
    """Looks for the names of a program in the events of an execution.

    `causal` is whether a pattern reads which events happened before others.
    """

    def __init__(self, names: Iterable[NamedValue], *, causal: bool) -> None:
        self.unmet = {name.key: name for name in names}
        # The nodes, until a clock has an entry of another node; None if no pattern reads such.
        self.isolated_nodes: set[str] | None = set() if causal else None
        self._all = sorted(self.unmet)
        self.sampled_count = 0
        self._read = 0
        self._globs = {name.key: name.matcher() for name in self.unmet.values() if name.glob}
        self._plain: dict[tuple[str, str], list[NameKey]] = {}  # by counter and name there
        for name in self.unmet.values():
            if not name.glob:
                self._plain.setdefault((_COUNTED[name.what], name.name), []).append(name.key)
        # How many unmet names each counter is for.
        self._left = Counter(_COUNTED[what] for what, _ in self.unmet)
        self.counts: dict[str, Counter[str]] = {}  # as in `NamesMet`
        self._count_unmet()

    @property
    def is_looking(self) -> bool:
        """Whether there is anything left to look for."""
        return bool(self.unmet) or self.isolated_nodes is not None

    def sample(self, new: Sequence[Event]) -> None:
        """Look for unmet names in those of the new events that are in the sample."""
        if not self.is_looking:
            return
        events = sampled(new, self._read)
        self._read += len(new)
        if not events:
            return
        if self.isolated_nodes is not None:
            if any(len(event.clock) > 1 for event in events):
                self.isolated_nodes = None
            elif len(self.isolated_nodes) < NAMES_MAX:
                self.isolated_nodes.update(map(base_node, map(_NODE, events)))
        self.sampled_count += len(events)
        before = {what: len(counter) for what, counter in self.counts.items()}
        for what, counter in self.counts.items():
            if what == "type":
                counter.update(map(_TYPE, events))
            elif what == "node":
                counter.update(map(base_node, map(_NODE, events)))
            else:
                counter.update(chain.from_iterable(map(_paths, map(_DATA, events))))
        for what, counter in self.counts.items():
            # The names that were added are the last ones.
            self._meet(what, list(islice(reversed(counter), len(counter) - before[what])))
        self._count_unmet()

    def _meet(self, what: str, names: Sequence[str]) -> None:
        """Remove from the unmet names those that names added to a counter meet."""
        met = [key for name in names for key in self._plain.get((what, name), ())]
        for key, matches in self._globs.items():
            if _COUNTED[key[0]] == what and any(map(matches, names)):
                met.append(key)
        self._remove(met)

    def _remove(self, keys: Iterable[NameKey]) -> None:
        """Remove names from the unmet ones."""
        for key in keys:
            if self.unmet.pop(key, None) is not None:
                self._left[_COUNTED[key[0]]] -= 1
                self._globs.pop(key, None)

    def _count_unmet(self) -> None:
        """Keep the counters of the kinds of unmet names only, each within `NAMES_MAX`."""
        wanted = [what for what in _KINDS if self._left[what]]
        self.counts = {what: self.counts.get(what, Counter()) for what in wanted}
        for what, counter in self.counts.items():
            if len(counter) > NAMES_MAX:
                self.counts[what] = Counter(dict(_most_common(counter)))
        if not self.is_looking:
            self.sampled_count = self._read = 0

    def met(self) -> NamesMet:
        """Return the result so far."""
        counts = {what: dict(_most_common(counter)) for what, counter in self.counts.items()}
        isolated_nodes = tuple(sorted(self.isolated_nodes or ()))
        return NamesMet(sorted(self.unmet), self.sampled_count, counts, isolated_nodes)

    # --- state ---

    def save(self) -> Any:
        """Return the state as plain data."""
        counts = {what: dict(sorted(counter.items())) for what, counter in self.counts.items()}
        unmet = sorted(map(list, self.unmet))
        numbers = [self.sampled_count, self._read]
        isolated_nodes = None if self.isolated_nodes is None else sorted(self.isolated_nodes)
        return [list(map(list, self._all)), unmet, numbers, counts, isolated_nodes]

    def load(self, value: Any) -> None:
        """Load what `save` returned into a fresh object; ignore it if its names are others."""
        every, unmet, numbers, counts, isolated_nodes = value
        if every != list(map(list, self._all)):
            return
        left = set(map(tuple, unmet))
        self._remove([key for key in self.unmet if key not in left])
        self.sampled_count, self._read = numbers
        self.counts = {what: Counter(counter) for what, counter in counts.items()}
        if self.isolated_nodes is not None:
            self.isolated_nodes = None if isolated_nodes is None else set(isolated_nodes)
        self._count_unmet()
