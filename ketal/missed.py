"""What a pattern's runs were not offered, and which scopes that may concern (DESIGN 5).

A dot that was declared lost may have belonged to any scope. An event that was seen
and not offered, because it was late or refused, says itself to which scope it
belongs, or to none: no verdict of another scope could have been otherwise with it.
So a scope's verdicts are in doubt for the sake of the same events whether all
scopes are judged by one, or each in a part of its own (DESIGN 7).

The one rule: what is forgotten puts more in doubt, never less.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ketal.event import Dot
from ketal.values import kind

ScopeName = tuple[Any, ...]
"""What tells a scope from others, as `PatternRun.scope_key` has it."""
_SETS_MAX = 1_024


class Missed:
    """The dots that were missed, up to a limit.

    Parameters
    ----------
    most : int
        How many are remembered.

    Attributes
    ----------
    anywhere : dict of Dot to None
        Those that may have belonged to any scope, longest known first.
    forgot : bool
        Whether there were more. From then on a dot may stand for others.
    """

    __slots__ = ("_by_scope", "_known", "_most", "_sets", "anywhere", "forgot")

    def __init__(self, most: int) -> None:
        self._most = most
        self.anywhere: dict[Dot, None] = {}
        self._known: dict[Dot, ScopeName | None] = {}
        self._by_scope: dict[ScopeName, dict[Dot, None]] = {}
        self._sets: dict[tuple[frozenset[Dot], ScopeName | None], frozenset[Dot]] = {}
        self.forgot = False

    def __len__(self) -> int:
        return len(self.anywhere) + len(self._known)

    def lost(self, dot: Dot) -> int:
        """Take a dot of which nothing is known; return how many others were forgotten."""
        if dot not in self._known:
            self.anywhere[dot] = None
        return self._bounded()

    def passed(self, dot: Dot, scope: ScopeName | None) -> int:
        """Take an event of one scope, or of none; return how many others were forgotten."""
        self.drop(dot)
        self._put(dot, scope)
        return self._bounded()

    def _put(self, dot: Dot, scope: ScopeName | None) -> None:
        self._sets.clear()
        self._known[dot] = scope
        if scope is not None:
            self._by_scope.setdefault(scope, {})[dot] = None

    def _bounded(self) -> int:
        """Forget the oldest of too many; where they belonged is forgotten before they are.

        One that may concern any scope is always left, in the place of those that are forgotten.
        """
        forgotten = 0
        while len(self) > self._most:
            self.forgot = True
            if len(self.anywhere) > 1:
                del self.anywhere[next(iter(self.anywhere))]
                forgotten += 1
            else:
                dot = next(iter(self._known))
                self.drop(dot)
                self.anywhere[dot] = None
        return forgotten

    def drop(self, dot: Dot) -> None:
        """Hear that a dot is not missed, or that more is known of it."""
        # The last one that may concern any scope also stands for those that are forgotten.
        if not self.forgot or len(self.anywhere) > 1:
            self.anywhere.pop(dot, None)
        if dot not in self._known:
            return
        self._sets.clear()
        scope = self._known.pop(dot)
        if scope is not None:
            dots = self._by_scope[scope]
            del dots[dot]
            if not dots:
                del self._by_scope[scope]

    def of(self, scope: ScopeName) -> Iterator[Dot]:
        """Yield the dots that may have belonged to a scope."""
        yield from self.anywhere
        yield from self._by_scope.get(scope, ())

    def elsewhere(self, dot: Dot, scope: ScopeName | None) -> bool:
        """Return whether a dot is known to concern this scope in no way."""
        return not self.forgot and dot in self._known and self._known[dot] != scope

    def concerning(self, scope: ScopeName | None, dots: frozenset[Dot]) -> frozenset[Dot]:
        """Return those of the dots that may concern a scope; all events after them share a set."""
        if self.forgot or not self._known:
            return dots
        found = self._sets.get((dots, scope))
        if found is None:
            found = frozenset(dot for dot in dots if not self.elsewhere(dot, scope))
            if len(self._sets) >= _SETS_MAX:
                self._sets.clear()
            self._sets[dots, scope] = found
        return found

    def state(self) -> Any:
        """Return what has to outlive the process, beside `anywhere`, as plain data."""
        rows = [
            [list(dot), None if scope is None else json.dumps([value for _, value in scope])]
            for dot, scope in self._known.items()
        ]
        return [self.forgot, rows]

    def restore(self, anywhere: Any, state: Any) -> None:
        """Take what is missed anywhere, and what `state` gave."""
        self.anywhere = {Dot(*dot): None for dot in anywhere}
        forgot, rows = state
        for dot, text in rows:
            values = None if text is None else json.loads(text)
            scope = None if values is None else tuple((kind(value), value) for value in values)
            self._put(Dot(*dot), scope)
        self.forgot = forgot
        self._bounded()
