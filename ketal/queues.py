"""The queues of one execution: one for each different `order CausalOrder(...)` (DESIGN 5).

CausalOrder belongs to the execution, so patterns that ask for the same order
share a queue. A queue releases events to its patterns; what it declares lost,
finds late or has no room for becomes verdicts here, each told once, however
many queues say it.

The one rule: an event is counted once: as released, held back, late or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ketal.event import Dot, Event
from ketal.limits import Limits
from ketal.operators.ordering import Ordering, Step
from ketal.scopes import PatternRun
from ketal.verdicts import Gap, Late, Overflow, Verdict


def overflowed(event: Event, execution: str, limit: str, given_up: str) -> Overflow:
    """Say of an execution, not of a pattern, that a limit was reached."""
    return Overflow(
        pattern="",
        fingerprint="",
        execution=execution,
        time=_time(event),
        limit=limit,
        given_up=given_up,
        event=event.dot,
    )


def came_late(event: Event, execution: str, reason: str) -> Late:
    """Say of an execution that an event's place has passed."""
    return Late(
        pattern="",
        fingerprint="",
        execution=execution,
        time=_time(event),
        event=event.dot,
        reason=reason,
    )


def _time(event: Event) -> float | None:
    return None if event.time is None else float(event.time)


class Queues:
    """The hold-back queues of an execution, with the runs they release to.

    Parameters
    ----------
    runs : sequence of PatternRun
        The patterns that need an order.
    limits : Limits
        `held_back_max`, `lost_max`, and `dots_max` for what is told once.
    execution : str
        The execution's name.
    """

    def __init__(self, runs: Sequence[PatternRun], limits: Limits, execution: str) -> None:
        self.limits = limits
        self.execution = execution
        groups: dict[Any, list[PatternRun]] = {}
        for run in runs:
            groups.setdefault(run.compiled.pattern.order, []).append(run)
        self.queues = [(Ordering.of(order, limits), group) for order, group in groups.items()]
        self.late = 0
        self.refused = 0
        self.gaps = 0
        self._told: dict[tuple[str, Dot], None] = {}
        self._withheld: set[Dot] = set()

    def __bool__(self) -> bool:
        return bool(self.queues)

    # --- what happens ---

    def push(self, event: Event, *, withheld: bool = False) -> list[Verdict]:
        """Take in a new event; one that is withheld takes its place and is not offered."""
        if withheld:
            self._withheld.add(event.dot)
        return self._each(lambda queue: queue.push(event))

    def advance(self, watermark_us: int) -> list[Verdict]:
        """Hear that no event with an earlier time will come."""
        return self._each(lambda queue: queue.advance(watermark_us))

    def join(self, node: str) -> list[Verdict]:
        """Hear that a node is there."""
        return self._each(lambda queue: queue.join(node))

    def leave(self, node: str) -> list[Verdict]:
        """Hear that a node left."""
        return self._each(lambda queue: queue.leave(node))

    def view(self, members: Iterable[str]) -> list[Verdict]:
        """Hear which nodes are there."""
        named = tuple(members)
        return self._each(lambda queue: queue.view(named))

    def end(self) -> list[Verdict]:
        """Hear that nothing comes any more."""
        return self._each(lambda queue: queue.end())

    def _each(self, act: Callable[[Ordering], Step]) -> list[Verdict]:
        out: list[Verdict] = []
        for queue, runs in self.queues:
            self._heard(act(queue), runs, out)
        return out

    def _heard(self, step: Step, runs: list[PatternRun], out: list[Verdict]) -> None:
        for dot in step.gaps:
            if self._first("gap", dot):
                self.gaps += 1
                out.append(Gap(pattern="", fingerprint="", execution=self.execution, dot=dot))
        self.gaps += step.unnamed
        for event, after in step.released:
            if event.dot in self._withheld:
                continue
            for run in runs:
                out += run.offer(event, after)
        for event in step.late:
            if event.dot not in self._withheld and self._first("late", event.dot):
                self.late += 1
                reason = "its place in the causal order has passed"
                out.append(came_late(event, self.execution, reason))
        for event in step.refused:
            if event.dot not in self._withheld and self._first("refused", event.dot):
                self.refused += 1
                given_up = "the event, which would have to wait for its past"
                out.append(overflowed(event, self.execution, "held_back_max", given_up))
        if step.given_up:
            held = "what the oldest held-back events waited for"
            out.append(
                Overflow(
                    pattern="",
                    fingerprint="",
                    execution=self.execution,
                    limit="held_back_max",
                    given_up=f"{held}, {step.given_up} times",
                )
            )

    def _first(self, what: str, dot: Dot) -> bool:
        """Return whether no other queue said this before."""
        if len(self.queues) == 1:
            return True
        if (what, dot) in self._told:
            return False
        self._told[(what, dot)] = None
        if len(self._told) > self.limits.dots_max:
            del self._told[next(iter(self._told))]
        return True

    # --- what can be asked ---

    def held_back(self) -> list[tuple[Event, Dot | None]]:
        """Return each event that some queue holds, with what it waits for (None: its turn)."""
        held: dict[Dot, tuple[Event, Dot | None]] = {}
        for queue, _ in self.queues:
            for event, dot in queue.held_back():
                if event.dot not in self._withheld:
                    held.setdefault(event.dot, (event, dot))
        return list(held.values())

    @property
    def waiting(self) -> int:
        """How many events are held back."""
        if len(self.queues) == 1 and not self._withheld:
            return len(self.queues[0][0])
        return len(self.held_back()) if self.queues else 0

    # --- state ---

    def state(self, number: Callable[[Event], int]) -> dict[str, Any]:
        """Return the state as plain data; `number` gives an event's number in a table."""
        return {
            "queues": [queue.state(number) for queue, _ in self.queues],
            "counts": [self.late, self.refused, self.gaps],
            "told": [[what, list(dot)] for what, dot in self._told],
            "withheld": sorted(list(dot) for dot in self._withheld),
        }

    def restore(self, state: dict[str, Any], events: Sequence[Event]) -> None:
        """Take on a state that `state` gave."""
        for (queue, _), inner in zip(self.queues, state["queues"], strict=True):
            queue.restore(inner, events)
        self.late, self.refused, self.gaps = state["counts"]
        self._told = {(what, Dot(*dot)): None for what, dot in state["told"]}
        self._withheld = {Dot(*dot) for dot in state["withheld"]}
