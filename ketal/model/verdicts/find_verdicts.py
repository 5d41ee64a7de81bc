"""Verdicts of a `find`: a match, or a window that ended without one.

The one rule: in the JSON of a verdict, an event is under the step that bound it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ketal.model.events.dot import Dot
from ketal.model.verdicts.bound_steps import Steps, bound_dots, by_step, steps_json, steps_text
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict, PlacesOf
from ketal.model.wording import json_text


class FindVerdict(IdentifiedVerdict, frozen=True, kw_only=True):
    """A verdict of a `find`, with the events that each step bound, in match order."""

    steps: Steps = ()

    @property
    def bindings(self) -> dict[str, tuple[Dot, ...]]:
        """The dots that each step bound."""
        bound = by_step(self.steps, bound_dots(self.steps))
        return {step: tuple(dots) for step, dots in bound.items()}

    def _steps(self) -> Steps:
        return self.steps

    def _steps_json(self, places_of: PlacesOf | None) -> dict[str, Any]:
        dots = bound_dots(self.steps)
        return steps_json(self.steps, () if places_of is None else places_of(self.execution, dots))


class Match(FindVerdict, frozen=True, kw_only=True):
    """A `find` pattern matched.

    Attributes
    ----------
    steps : tuple of (str, Dot)
        The steps and the events that they bound, in match order.
    returns : dict or None
        The values of the pattern's `return`; None without one. `return` is its name in JSON and a
        keyword of Python, so it is also `getattr(match, "return")`.
    pattern : str
        The pattern's name; empty for a verdict about the whole execution.
    scope : mapping
        The partition keys and, under `at every node`, `node`.
    execution : str
        The execution's name if a log holds several, else empty.
    time : float or None
        The time of the completing event, in seconds since the epoch.
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
    returns: dict[str, Any] | None = None

    @property
    def events(self) -> tuple[Dot, ...]:
        """The dots of the match, in match order."""
        return bound_dots(self.steps)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        body = self._steps_json(places_of)
        if self.returns is not None:
            body["return"] = self.returns
        return body

    def __str__(self) -> str:
        text = steps_text(self.steps)
        if self.returns:
            text += " → " + ", ".join(f"{k}={json_text(v)}" for k, v in self.returns.items())
        return self._line(text)


setattr(Match, "return", property(lambda match: match.returns, doc="The same as `returns`."))


class TimedOut(FindVerdict, frozen=True, kw_only=True):
    """A window ended without a match.

    Attributes
    ----------
    steps : tuple of (str, Dot)
        The steps and the events that they had bound, in match order.
    pattern, scope, execution, time, id
        As in every verdict: see `Match`.

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

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        body = self._steps_json(places_of)
        if "places" not in body:
            del body["events"]  # which `places` is parallel to
        return body

    def __str__(self) -> str:
        return self._line(steps_text(self.steps))
