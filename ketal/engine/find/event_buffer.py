"""Events that a scope keeps, to be combined with later ones.

`find any` under CausalOrder keeps what may be a later step of a match that an
earlier step is still missing from, and every pattern under CausalOrder keeps
what may break a `not`. An event goes when no later one can need it: a step when
the window has passed it, a breaker of `not` when every live partial match began
to wait after it was offered.

The one rule: an event is kept, or its loss is an overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.causal_index import EventIndex
from ketal.engine.find.windows import Expiring, Window
from ketal.engine.machine import Machine
from ketal.model.limits import Limits
from ketal.model.values import Key

MASKS_MAX = 65_536
"""Masks whose use is remembered."""
SWEEP_MIN = 1_024
"""Breakers of `not` that are kept before it is looked whether they are needed."""


class Uses:
    """Which events the scopes of a pattern keep, by mask.

    Parameters
    ----------
    machine : Machine
        The pattern's.
    steps : bool
        Whether events are kept that may be steps, or breakers of `not` only.
    """

    __slots__ = ("_machine", "_steps", "_use", "values")

    def __init__(self, machine: Machine, *, steps: bool) -> None:
        self._machine = machine
        self._steps = steps
        self._use: dict[int, tuple[bool, bool]] = {}
        self.values = {n: self._value(n) for n in machine.relations.register_values}

    def _value(self, number: int) -> Callable[[Seen], Key | None]:
        return lambda seen: self._machine.relations.event_value(number, seen.event)

    def of(self, mask: int) -> tuple[bool, bool]:
        """Return whether an event with this mask may be a step but a first one, break a `not`."""
        use = self._use.get(mask)
        if use is None:
            if len(self._use) >= MASKS_MAX:
                self._use.clear()
            machine = self._machine
            automaton = machine.automaton
            states = [s for s in range(len(automaton.table)) if s or automaton.turns_back]
            step = self._steps and any(machine.plan(s, mask) is not None for s in states)
            breaks = any(machine.not_plan(s, mask).guards for s in states)
            use = self._use[mask] = (step, breaks)
        return use


class EventBuffer:
    """The events that one scope's `find` keeps.

    Parameters
    ----------
    uses : Uses
        The pattern's.
    limits : Limits
        `candidates_max`.
    window : Window
        What lets steps go.
    """

    __slots__ = (
        "_expiring", "_limits", "_sweep_at", "_uses", "_window", "breakers", "by_mask", "events",
    )  # fmt: skip

    def __init__(self, uses: Uses, limits: Limits, window: Window) -> None:
        self._uses = uses
        self._limits = limits
        self._window = window
        self._expiring: Expiring[Seen] = Expiring()
        self._sweep_at = SWEEP_MIN
        self.by_mask: dict[int, EventIndex] = {}
        self.events: dict[int, Seen] = {}  # by place, in that order
        self.breakers: dict[int, Seen] = {}  # those that are no steps, or no longer, by place

    def __bool__(self) -> bool:
        return bool(self.events)

    def index(self, mask: int, nodes: Iterable[str] = ()) -> EventIndex:
        """Return the events kept with a mask; `nodes` are looked through in this order."""
        index = self.by_mask.get(mask)
        if index is None:
            timed = self._window.us is not None
            index = self.by_mask[mask] = EventIndex(self._uses.values, timed=timed, nodes=nodes)
        return index

    def offer(self, seen: Seen) -> bool:
        """Keep an event if it may be of use; return False if there is no room for it."""
        step, breaks = self._uses.of(seen.mask)
        if not (step or breaks):
            return True
        if len(self.events) >= self._limits.candidates_max:
            return False
        self.put(seen)
        return True

    def put(self, seen: Seen) -> None:
        """Keep an event."""
        self.index(seen.mask).add(seen)
        self.events[seen.place] = seen
        if not self._uses.of(seen.mask)[0]:
            self.breakers[seen.place] = seen
        elif self._window.us is not None:
            assert seen.time_us is not None
            self._expiring.add(seen.time_us, seen)
        elif self._window.events is not None:
            self._expiring.add(seen.place, seen)

    def expire(self, last: int) -> None:
        """Let go of the steps whose time or place is `last` or before."""
        for seen in self._expiring.passed(last):
            if self._uses.of(seen.mask)[1]:
                self.breakers[seen.place] = seen
            else:
                self._drop(seen)

    def earliest(self) -> int | None:
        """Return the first time or place that waits to be let go of."""
        return self._expiring.earliest(lambda seen: seen.place in self.events)

    def sweep(self, oldest: Callable[[], int | None]) -> None:
        """Let go of breakers of `not` that no live partial match needs, if there are many.

        Parameters
        ----------
        oldest : function
            The least place of the prior events of live partial matches, None without any.
        """
        if len(self.breakers) < self._sweep_at:
            return
        # A step that is kept may yet become a prior event.
        steps = (place for place in self.events if place not in self.breakers)
        least = min((p for p in (oldest(), next(steps, None)) if p is not None), default=None)
        for place in sorted(self.breakers):
            if least is not None and place > least:
                break
            self._drop(self.breakers.pop(place))
        self._sweep_at = max(SWEEP_MIN, 2 * len(self.breakers))

    def _drop(self, seen: Seen) -> None:
        self.by_mask[seen.mask].remove(seen)
        del self.events[seen.place]

    # --- state ---

    def save(self, seens: SeenTable) -> Any:
        """Return the buffer as plain data; `seens` numbers its events."""
        masks = [[mask, list(index.lines)] for mask, index in self.by_mask.items()]
        return [[seens.number(seen) for seen in self.events.values()], masks]

    def load(self, value: Any, seens: SeenTable) -> None:
        """Put what `save` gave into a fresh buffer."""
        numbers, masks = value
        for mask, nodes in masks:
            self.index(mask, nodes)
        for number in numbers:
            self.put(seens[number])

    def validate_state(self) -> None:
        """Assert that the indexes hold the events, and that those that only break are known."""
        indexed = [seen for index in self.by_mask.values() for seen in index]
        assert sorted(seen.place for seen in indexed) == sorted(self.events)
        assert all(self.events[seen.place] is seen for seen in indexed)
        assert self.breakers.keys() <= self.events.keys()
        for index in self.by_mask.values():
            index.validate_state()
