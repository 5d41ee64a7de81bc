"""Keys of the states of a run: two runs with equal keys have the same continuations.

A key names events by their dots. The position of an event among the offered events is part of the
key only under a window that counts events.

The one rule: states with equal keys cannot be distinguished by any later events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ketal.engine.check_run import CheckRun
from ketal.engine.configurations import Configuration, Seen
from ketal.engine.copies import Copy
from ketal.engine.find.findings import Taken
from ketal.engine.find_any.occurrences import AnyFind
from ketal.engine.pattern_run import PatternRun
from ketal.model.frozen_mapping import FrozenMapping


class StateKeys:
    """Makes the keys of the states of a pattern's runs, with the positions of events or without.

    Only the run of `scope` matters; None for all.
    """

    def __init__(self, scope: FrozenMapping | None, *, by_position: bool) -> None:
        self.scope = scope
        self._by_position = by_position

    def key_of(self, run: PatternRun) -> Any:
        """Return the key of a run's state."""
        scopes = []
        for scope in run.scopes.by_name.values():
            if self.scope is not None and scope.mapping != self.scope:
                continue
            inner: Any
            if isinstance(scope.run, CheckRun):
                configurations = sorted(map(self._configuration_key, scope.run.configurations))
                inner = (scope.run.halted, *configurations)
            elif isinstance(scope.run, AnyFind):
                entries = scope.run.entries()
                inner = tuple(sorted((edge, *self._event_key(event)) for edge, event in entries))
            else:
                breakers = scope.run.breakers
                inner = tuple(sorted(self._beginning_key(*b) for b in scope.run.beginnings()))
                if breakers is not None:
                    inner = (inner, tuple(sorted(map(self._event_key, breakers.by_place.values()))))
            scopes.append((repr(scope.key), self._position_key(scope.offered), inner))
        return tuple(sorted(scopes)), self._copies_key(run)

    def _copies_key(self, run: PatternRun) -> Any:
        """Return what each node's copy has learned, and the events it may still learn, in order."""
        if run.copies is None:
            return ()
        copies: Mapping[str, Copy] = run.copies.by_node
        if self.scope is not None:
            node = dict(self.scope)["node"]
            copies = {node: copies[node]} if node in copies else {}
        unlearned = run.copies.unlearned()
        if run.copies.receiving:
            received = ((u, tuple(n for n in u.receivers if n in copies)) for u in unlearned)
            awaited = tuple((n, tuple(sorted(c.awaited))) for n, c in sorted(copies.items()))
            return awaited, tuple((u.event.dot, to) for u, to in received if u.mask is not None)
        known = {node: copy.known for node, copy in copies.items()}
        if self.scope is not None and known:
            (only,) = known.values()
            unlearned = [u for u in unlearned if u.event.counter > only.get(u.event.node, 0)]
        dots = tuple(u.event.dot for u in unlearned)
        return tuple((n, tuple(sorted(k.items()))) for n, k in sorted(known.items())), dots

    def _position_key(self, count: int) -> int:
        return count if self._by_position else 0

    def _event_key(self, event: Seen | None) -> tuple[Any, ...]:
        return () if event is None else (event.node, event.counter, self._position_key(event.place))

    def _configuration_key(self, c: Configuration) -> tuple[Any, ...]:
        history: tuple[Any, ...] = ()
        if c.history is not None:
            parts = (c.history.first, c.history.last, c.history.join)
            history = tuple(tuple(sorted(part.items())) for part in parts)
        return (
            c.state,
            self._event_key(c.prior),
            tuple(map(self._event_key, c.bound)),
            history,
            c.broken,
        )

    def _beginning_key(self, c: Configuration, taken: Taken) -> tuple[Any, ...]:
        return self._configuration_key(c), tuple(
            (step, *self._event_key(event)) for step, event in taken
        )
