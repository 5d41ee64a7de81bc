"""Counts of the kinds of the values that the comparisons of a program read from events.

The one rule: a comparison counts an event only if it decides about the event, under the kinds of
the values that it reads from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.compiler.counted.comparisons import Leaf
from ketal.compiler.memo import Memo
from ketal.compiler.predicates import evaluate
from ketal.engine.statistics.sampling import sampled
from ketal.model import syntax
from ketal.model.attributes import ATTRIBUTE_KINDS
from ketal.model.events.event import Event
from ketal.model.events.type_table import TypeTable
from ketal.model.values import dig

MASKS_MAX = 4_096
"""The most masks whose readings are cached."""
ABSENT: Final = "absent"
_KINDS: Final = {**ATTRIBUTE_KINDS, type(None): ABSENT}

KindCounts = dict[str, dict[str, int]]
"""Reading, by its number as text → kinds, joined by commas → number of events."""


class ComparisonKinds:
    """The kinds of the values that the comparisons of one pattern read."""

    def __init__(self, compiled: CompiledPattern) -> None:
        comparisons, readings = compiled.counted.comparisons
        # Event → whether a comparison may decide about events of this event's type.
        self.names_type = compiled.names_type
        self._masks = compiled.masks
        self._readings = [
            (reading.sides, [_kind_reader(comparisons[reading.comparison].operands[n].of)
                             for n in reading.operands])
            for reading in readings
        ]  # fmt: skip
        self._of_mask = Memo(self._readings_of, MASKS_MAX)
        self.counts: list[Counter[tuple[str, ...]]] = [Counter() for _ in readings]

    def count(self, events: Sequence[Event]) -> None:
        """Count the kinds of the values of some events."""
        masks = self._masks(events)
        read: dict[int, list[Event]] = {mask: [] for mask in set(masks) if self._of_mask[mask]}
        for event, mask in zip(events, masks, strict=True):
            if (alike := read.get(mask)) is not None:
                alike.append(event)
        for mask, alike in read.items():
            for number in self._of_mask[mask]:
                kinds = (map(read, alike) for read in self._readings[number][1])
                self.counts[number].update(zip(*kinds, strict=True))

    def _readings_of(self, mask: int) -> list[int]:
        """Return the numbers of the readings that count an event with this mask."""
        return [
            number
            for number, ((true, other), _) in enumerate(self._readings)
            if evaluate(true, mask) and not evaluate(other, mask)
        ]

    # --- state ---

    def save(self) -> KindCounts:
        """Return the counts as plain data."""
        return {
            str(number): {",".join(kinds): n for kinds, n in sorted(counter.items())}
            for number, counter in enumerate(self.counts)
            if counter
        }

    def load(self, value: KindCounts) -> None:
        """Load what `save` returned into a fresh object of the same pattern."""
        for number, counts in value.items():
            self.counts[int(number)] = Counter({tuple(k.split(",")): n for k, n in counts.items()})


class ProgramKinds:
    """The kinds of the values that the comparisons of a program read, in a sample of the events."""

    def __init__(self, patterns: Sequence[CompiledPattern]) -> None:
        self._by_pattern = {one.name: ComparisonKinds(one) for one in patterns}
        self._reading = [kinds for kinds in self._by_pattern.values() if kinds.counts]
        self._by_type = TypeTable([kinds.names_type for kinds in self._reading])
        self._fingerprints = {one.name: one.fingerprint for one in patterns}
        self._read = 0

    def sample(self, new: Sequence[Event]) -> None:
        """Count those of the new events that are in the sample."""
        events = sampled(new, self._read) if self._reading else ()
        self._read += len(new)
        for number, (_, part) in self._by_type.split(events):
            self._reading[number].count(part)

    def met(self) -> dict[str, KindCounts]:
        """Return the counts so far, by the name of the pattern."""
        return {name: kinds.save() for name, kinds in self._by_pattern.items()}

    def save(self) -> Any:
        """Return the state as plain data."""
        return [self._read, dict(sorted(self._fingerprints.items())), self.met()]

    def load(self, value: Any) -> None:
        """Load what `save` returned into a fresh object; drop counts of patterns that changed."""
        self._read, fingerprints, counts = value
        for name, kinds in self._by_pattern.items():
            if fingerprints.get(name) == self._fingerprints[name]:
                kinds.load(counts[name])


def _kind_reader(leaf: Leaf) -> Callable[[Event], str]:
    """Return a function: event → the kind of a value of it."""
    get = _KINDS.get
    if isinstance(leaf, syntax.Field):
        name = leaf.name
        return lambda event: get(type(getattr(event, name)), "number")
    if len(leaf.path) > 1:
        path = leaf.path
        return lambda event: get(type(dig(event.data, path)), "object")
    (key,) = leaf.path
    return lambda event: get(type(event.data.get(key)), "object")
