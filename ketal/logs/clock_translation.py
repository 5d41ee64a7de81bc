"""Vector clocks for the events of a log that another scheme stamped: `--clock SCHEME`.

A scheme that decides happened-before tells of each event which of each node's events came before
it; these are the first ones of the node, and their numbers are its vector clock. Stamps that tell
by themselves name no events, so those that the log has are counted, and an event that is missing
from it is not missed. Stamps that refer to others of the log (interleaving clocks) need all of
these: a missing one is an error.

A scheme that does not decide tells which events *may* have come before. The clocks that are made of
it order all of these, and the log names the scheme in `undecided`, so that who asks whether one
event happened before another gets an answer of three values.

The one rule: two events are ordered as their stamps are. An event whose stamp contradicts its
node's order, or that another node's event has too, is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from ketal.clocks.scheme import Scheme
from ketal.clocks.stamping import vector_clocks
from ketal.errors import EventError
from ketal.logs.log_records import held, replaced
from ketal.logs.shape import StampedEvent, with_clock
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import Record


@dataclass
class UndecidedPairs:
    """How many pairs of a log's events its clocks do not order for certain.

    Attributes
    ----------
    scheme : str
        The scheme, one that does not decide happened-before.
    pairs : int
        The pairs of events.
    unknown : int
        Those of which the one may have happened before the other, or not.
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
    """Yield the records, each event with the vector clock of its stamp.

    The pairs that are not decided are counted in `undecided`, anew.

    Raises
    ------
    SettingError
        If there are more records than `events_max`.
    EventError
        If the log lacks an event that a stamp refers to.
    """
    whole = held(records, limits, f"to make vector clocks of {scheme.name} clocks")
    executions: dict[str, dict[str, list[int]]] = {}
    for number, (name, item, _, _) in enumerate(whole):
        if isinstance(item, StampedEvent):
            executions.setdefault(name, {}).setdefault(item.node, []).append(number)
    clocks: dict[int, dict[str, int]] = {}
    faults: dict[int, str] = {}
    pairs = unknown = 0
    for execution in executions.values():
        stamps = {n: whole[n][1].stamp for numbers in execution.values() for n in numbers}  # type: ignore[union-attr]
        before = scheme.order(stamps.values())
        if scheme.decides:
            faults |= _of_two_nodes(scheme, stamps, execution)
        same = {
            node: _in_order([n for n in numbers if n not in faults], stamps, before)
            for node, numbers in sorted(execution.items())
        }
        firsts = {node: [stamps[equal[0]] for equal in groups] for node, groups in same.items()}
        for node, of_node in vector_clocks(scheme, firsts).items():
            for equal, clock in zip(same[node], of_node, strict=True):
                # Within a node the order is known.
                unknown += sum(clock.values()) - clock[node]
                clocks |= dict.fromkeys(equal, clock)
        events = sum(map(len, same.values()))
        pairs += events * (events - 1) // 2
    if undecided is not None:
        undecided.pairs, undecided.unknown = pairs, unknown

    def clocked(number: int, event: Event) -> Event:
        if not isinstance(event, StampedEvent):
            return event
        if number in faults:
            raise EventError(faults[number])
        if number not in clocks:
            raise EventError(
                f"clock: its {scheme.name} stamp is not ordered with that of another event of "
                f"{event.node}, and the events of a node are ordered"
            )
        return with_clock(event, clocks[number], event.named, limits.clock_entries_max)

    yield from replaced(whole, clocked)


def _of_two_nodes(
    scheme: Scheme[Any], stamps: dict[int, Any], execution: dict[str, list[int]]
) -> dict[int, str]:
    """Return the records whose stamps are those of earlier ones of other nodes, and why."""
    nodes = {number: node for node, numbers in execution.items() for number in numbers}
    first: dict[bytes, str] = {}
    faults = {}
    for number in sorted(nodes):
        other = first.setdefault(scheme.encode(stamps[number]), nodes[number])
        if other != nodes[number]:
            faults[number] = (
                f"clock: its {scheme.name} stamp is that of an event of {other} too, and each "
                "event has a stamp of its own"
            )
    return faults


def _in_order(
    numbers: list[int], stamps: dict[int, Any], before: Callable[[Any, Any], bool]
) -> list[list[int]]:
    """Return the records of a node's events in its order, equal stamps together.

    What is not ordered with the one before it is left out.
    """

    def compared(a: int, b: int) -> int:
        if before(stamps[a], stamps[b]):
            return -1
        return 1 if before(stamps[b], stamps[a]) else 0

    same: list[list[int]] = []
    for number in sorted(numbers, key=cmp_to_key(compared)):
        last = stamps[same[-1][0]] if same else None
        if last is None or before(last, stamps[number]):
            same.append([number])
        elif last == stamps[number]:
            same[-1].append(number)
    return same
