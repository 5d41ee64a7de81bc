"""Verdicts of a `find`: that it matched, that its window ended.

The one rule: what each step bound is in match order; what a line shows of it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from ketal.model.events.dot import Dot
from ketal.model.verdicts.pattern_verdict import PatternVerdict, Steps
from ketal.model.wording import json_text

T = TypeVar("T")

PARTS_MAX = 6
"""Dots that a line shows of one step; of more, so many ranges of dots."""


def _by_step(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    out: dict[str, list[T]] = {}
    for step, one in pairs:
        out.setdefault(step, []).append(one)
    return out


def _text(steps: Steps) -> str:
    return ", ".join(f"{step}={_dots_text(dots)}" for step, dots in _by_step(steps).items())


def _dots_text(dots: list[Dot]) -> str:
    """Write the dots that a step bound; of many, of those that follow each other the ends."""
    if len(dots) <= PARTS_MAX:
        return "+".join(map(str, dots))
    parts: list[str] = []
    for first, last in _ranges(dots):
        if last.counter - first.counter < 2:
            parts += map(str, dict.fromkeys((first, last)))
        else:
            parts.append(f"{first}..{last}")
    if len(parts) > PARTS_MAX:
        parts[PARTS_MAX - 2 : -1] = ["…"]
    text = "+".join(parts)
    return f"{text} ({len(dots):,} events)"


def _ranges(dots: list[Dot]) -> Iterator[tuple[Dot, Dot]]:
    """Yield the first and the last dot of each part whose dots follow each other."""
    first = last = dots[0]
    for dot in dots[1:]:
        if dot != (last.node, last.counter + 1):
            yield first, last
            first = dot
        last = dot
    yield first, last


class _Bound(PatternVerdict, frozen=True, kw_only=True):
    """A verdict of a `find`: what each step bound, in match order."""

    steps: Steps = ()

    @property
    def bindings(self) -> dict[str, tuple[Dot, ...]]:
        """The dots that each step bound."""
        return {step: tuple(dots) for step, dots in _by_step(self.steps).items()}

    def _steps(self) -> Steps:
        return self.steps


class Match(_Bound, frozen=True, kw_only=True):
    """A `find` pattern matched.

    Attributes
    ----------
    steps : tuple of (str, Dot)
        What each step bound, in match order.
    returns : dict or None
        What the pattern's `return` names; None without one. As `return` is a
        word of Python, the name that JSON has is `getattr(match, "return")`.
    pattern : str
        The pattern's name; empty for a verdict about the whole execution.
    scope : mapping
        The partition keys and, where each node has a copy, `node`.
    execution : str
        The execution's name where a log holds several, else empty.
    time : float or None
        Seconds since the epoch of the completing event.
    id : str
        The deterministic id: 32 hex digits.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Overtaken { partition by item;
    ...         event Ask = type == "ask"; event Grant = type == "grant";
    ...         find next Ask Grant; return who = Ask.who; }
    ... ''')
    >>> log = [ketal.Event(node="n", type=kind, clock={"n": count}, data={"item": 7, "who": "b"})
    ...        for count, kind in enumerate(["ask", "grant"], 1)]
    >>> (match,) = ketal.run(program, log).matches
    >>> print(match)
    match Overtaken (item=7): Ask=n@1, Grant=n@2 → who="b"
    >>> match.events == (ketal.Dot("n", 1), ketal.Dot("n", 2))
    True
    >>> match.bindings["Grant"], match.scope["item"]
    ((Dot(node='n', counter=2),), 7)
    >>> match.returns, getattr(match, "return") == match.returns
    ({'who': 'b'}, True)
    """

    kind: ClassVar[str] = "match"
    count: ClassVar[str] = "matches"
    nouns: ClassVar[tuple[str, str]] = ("match", "matches")
    returns: dict[str, Any] | None = None

    @property
    def events(self) -> tuple[Dot, ...]:
        """The dots of the match, in its own order."""
        return tuple(dot for _, dot in self.steps)

    def _body(self) -> dict[str, Any]:
        dots = [(step, str(dot)) for step, dot in self.steps]
        body: dict[str, Any] = {"events": [dot for _, dot in dots], "bindings": _by_step(dots)}
        if self.returns is not None:
            body["return"] = self.returns
        return body

    def __str__(self) -> str:
        text = _text(self.steps)
        if self.returns:
            text += " → " + ", ".join(f"{k}={json_text(v)}" for k, v in self.returns.items())
        return self._line(text)


setattr(Match, "return", property(lambda match: match.returns, doc="What `returns` is."))


class TimedOut(_Bound, frozen=True, kw_only=True):
    """A window ended without a match.

    Attributes
    ----------
    steps : tuple of (str, Dot)
        What each step had bound, in match order.
    pattern, scope, execution, time, id
        As of every verdict: see `Match`.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Answer { event Ask = type == "ask"; event Reply = type == "reply";
    ...                      find next Ask Reply; within 5 s; }
    ... ''')
    >>> log = [ketal.Event(node="n", type="ask", clock={"n": 1}, time=10),
    ...        ketal.Event(node="n", type="reply", clock={"n": 2}, time=20)]
    >>> (timed_out,) = ketal.run(program, log)
    >>> print(timed_out)
    timed_out Answer: Ask=n@1
    >>> timed_out.bindings
    {'Ask': (Dot(node='n', counter=1),)}
    """

    kind: ClassVar[str] = "timed_out"
    count: ClassVar[str] = "timed_out"
    nouns: ClassVar[tuple[str, str]] = ("timed out", "timed out")

    def _body(self) -> dict[str, Any]:
        return {"bindings": _by_step((step, str(dot)) for step, dot in self.steps)}

    def __str__(self) -> str:
        return self._line(_text(self.steps))
