"""Vector clocks for the events of a log that another scheme stamped, or none: `--clock SCHEME`.

If the scheme decides happened-before, comparing stamps shows which events of each node happened
before a given event. They are a prefix of the node's events, and the length of that prefix is the
node's entry in the event's vector clock. Most stamps do not name the events that they depend on, so
only the events in the log are counted, and an event that the log lacks goes unnoticed. Stamps that
refer to other events of the log (interleaving clocks) need all of those events: a missing one is an
error.

If the scheme does not decide happened-before, comparing stamps shows which events *may* have
happened before. The vector clocks order all of these pairs, and the log names the scheme in
`undecided`, so that queries of happened-before can answer true, false or unknown.

What is known of a log without clocks is the order of its records: the nth event of a node has the
counter n, and no entry of another node. Nothing is known of the order between nodes, so patterns
that need happened-before are refused.

The one rule: two events are ordered as their stamps are. An event is rejected if its stamp
contradicts the order of its node, or equals the stamp of another node's event. An event without a
stamp is identified by its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from ketal.clocks.scheme import Scheme
from ketal.clocks.stamping import vector_clocks
from ketal.errors import EventError
from ketal.logs.log_records import map_events, read_all
from ketal.logs.shape import StampedEvent, with_clock
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import LogItem, Record, RecordBatch


@dataclass
class UndecidedPairs:
    """The number of pairs of events whose order the clocks of a log leave open.

    Attributes
    ----------
    scheme : str
        The name of the scheme, which does not decide happened-before.
    pairs : int
        The number of all pairs of events.
    unknown : int
        The number of pairs in which one event may or may not have happened before the other.
    """

    scheme: str
    pairs: int = 0
    unknown: int = 0


def translated(
    records: Iterable[Record],
    scheme: Scheme[Any],
    limits: Limits,
    undecided: UndecidedPairs | None,
) -> Iterator[Record]:
    """Yield the records, with a vector clock in place of the stamp of each event.

    Overwrites the counts in `undecided` with those of this reading. Raises a SettingError if the
    log has more than `events_max` records, and an EventError if a stamp refers to an event that the
    log lacks.
    """
    all_records = read_all(records, limits, f"converting {scheme.name} clocks to vector clocks")
    executions: dict[str, dict[str, list[int]]] = {}
    for number, (name, item, _, _) in enumerate(all_records):
        if isinstance(item, StampedEvent):
            executions.setdefault(name, {}).setdefault(item.node, []).append(number)
    clocks: dict[int, dict[str, int]] = {}
    faults: dict[int, str] = {}
    pairs = unknown = 0
    for execution in executions.values():
        stamps = {n: all_records[n][1].stamp for numbers in execution.values() for n in numbers}  # type: ignore[union-attr]
        before = scheme.order(stamps.values())
        if scheme.decides:
            faults |= _shared_stamps(scheme, stamps, execution)
        groups_by_node = {
            node: _grouped_by_stamp([n for n in numbers if n not in faults], stamps, before)
            for node, numbers in sorted(execution.items())
        }
        firsts = {
            node: [stamps[group[0]] for group in groups] for node, groups in groups_by_node.items()
        }
        for node, node_clocks in vector_clocks(before, firsts).items():
            for group, clock in zip(groups_by_node[node], node_clocks, strict=True):
                # The order within a node is always certain.
                unknown += sum(clock.values()) - clock[node]
                clocks |= dict.fromkeys(group, clock)
        events = sum(map(len, groups_by_node.values()))
        pairs += events * (events - 1) // 2
    if undecided is not None:
        undecided.pairs, undecided.unknown = pairs, unknown

    def with_vector_clock(number: int, event: Event) -> Event:
        if not isinstance(event, StampedEvent):
            return event
        if number in faults:
            raise EventError(faults[number])
        if number not in clocks:
            raise EventError(
                f"clock: its {scheme.name} stamp is not ordered with that of another event of "
                f"{event.node}; the stamps of one node's events must be totally ordered"
            )
        return with_clock(event, clocks[number], event.claimed_receives, limits.clock_entries_max)

    yield from map_events(all_records, with_vector_clock)


def _shared_stamps(
    scheme: Scheme[Any], stamps: dict[int, Any], execution: dict[str, list[int]]
) -> dict[int, str]:
    """Return the records whose stamp an earlier record of another node has, with the reason."""
    nodes = {number: node for node, numbers in execution.items() for number in numbers}
    first: dict[bytes, str] = {}
    faults = {}
    for number in sorted(nodes):
        other = first.setdefault(scheme.encode(stamps[number]), nodes[number])
        if other != nodes[number]:
            faults[number] = (
                f"clock: an event of {other} has the same {scheme.name} stamp; each event must "
                "have its own"
            )
    return faults


def _grouped_by_stamp(
    numbers: list[int], stamps: dict[int, Any], before: Callable[[Any, Any], bool]
) -> list[list[int]]:
    """Sort the records of one node by their stamps; group records whose stamps are equal.

    A record is left out if its stamp is not ordered after that of the previous group.
    """

    def compare(a: int, b: int) -> int:
        if before(stamps[a], stamps[b]):
            return -1
        return 1 if before(stamps[b], stamps[a]) else 0

    groups: list[list[int]] = []
    for number in sorted(numbers, key=cmp_to_key(compare)):
        last = stamps[groups[-1][0]] if groups else None
        if last is None or before(last, stamps[number]):
            groups.append([number])
        elif last == stamps[number]:
            groups[-1].append(number)
    return groups


def with_own_entry(event: Event, counter: int) -> Event:
    """Return an event with a clock that has only its node's own entry."""
    return with_clock(event, {event.node: counter}, (), 1)


def numbered(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the batches, each event with its place among its node's events as its counter."""
    counters: Counter[tuple[str, str]] = Counter()

    def with_counter(execution: str, item: LogItem) -> LogItem:
        if not isinstance(item, Event):
            return item
        counters[execution, item.node] += 1
        return with_own_entry(item, counters[execution, item.node])

    for batch in batches:
        yield replace(batch, items=[with_counter(batch.execution, item) for item in batch.items])
