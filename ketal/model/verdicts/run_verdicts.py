"""Verdicts on runs of both kinds, `check` and `find`: transitions, and limits that were reached.

The one rule: they report what the engine did, not whether the pattern holds.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ketal.model.events.dot import Dot
from ketal.model.verdicts.bound_steps import Steps
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict, PlacesOf
from ketal.model.wording import counted


class Transition(IdentifiedVerdict, frozen=True, kw_only=True):
    """A run moved from one state to another by an event (reported with `trace=True`).

    Attributes
    ----------
    event : Dot
        The event.
    step : str
        The step that bound the event; empty if there is none.
    source, target : str
        The states before and after; `from` and `to` in JSON.
    pattern, scope, execution, time, id
        As in every verdict: see `Match`.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('pattern P { event A = type == "a"; check A A*; }')
    >>> log = [ketal.Event(node="n", type="a", clock={"n": 1})]
    >>> (transition,) = ketal.run(program, log, trace=True)
    >>> print(transition)
    transition P: n@1: q0 -> q1 on A
    >>> transition.step, getattr(transition, "from"), transition.to
    ('A', 'q0', 'q1')
    """

    kind: ClassVar[str] = "transition"
    event: Dot
    step: str = ""
    source: str = ""
    target: str = ""

    @property
    def to(self) -> str:
        """The state `target`, by its name in JSON."""
        return self.target

    def _steps(self) -> Steps:
        return ((f"{self.source}>{self.step}>{self.target}", self.event),)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        return {"event": str(self.event), "step": self.step, "from": self.source, "to": self.target}

    def __str__(self) -> str:
        arrow = f"{self.source} -> {self.target}" + (f" on {self.step}" if self.step else "")
        return self._line(f"{self.event}: {arrow}")


setattr(Transition, "from", property(lambda move: move.source, doc="The same as `source`."))


class Overflow(IdentifiedVerdict, frozen=True, kw_only=True):
    """A limit was reached, and something was given up.

    Attributes
    ----------
    limit : str
        The name of the limit, as `ketal limits` lists it.
    given_up : str
        What was given up, in words.
    event : Dot or None
        The event at which the limit was reached.
    pattern, scope, execution, time, id
        As in every verdict: see `Match`; `pattern` is empty if an event was given up.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('pattern Pairs { event A = type == "a"; find any A A; }')
    >>> log = [ketal.Event(node="n", type="a", clock={"n": count}) for count in (1, 2, 3)]
    >>> limits = ketal.Limits(candidates_max=1)
    >>> overflow = next(v for v in ketal.run(program, log, limits=limits) if v.kind == "overflow")
    >>> overflow.limit, overflow.event
    ('candidates_max', Dot(node='n', counter=2))
    """

    kind: ClassVar[str] = "overflow"
    limit: str
    given_up: str = ""
    event: Dot | None = None

    def _steps(self) -> Steps:
        return ((f"{self.limit}:{self.given_up}", self.event or Dot("", 0)),)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        body: dict[str, Any] = {"limit": self.limit, "given_up": self.given_up}
        if self.event is not None:
            body.update(self._event_at(self.event, places_of))
        return body

    def __str__(self) -> str:
        at = f" at {self.event}" if self.event else ""
        return self._line(f"limit {self.limit} reached{at}: {self.given_up}")


def limit_reached_text(first: object, times: int | None = None) -> str:
    """Return that a limit was reached, how often if that is known, and the first overflow.

    Of the overflows of a limit in a scope, only the first is listed; the others are counted.
    """
    often = "" if times is None else f" {counted(times, 'time')}"
    return f"a limit was reached{often}, so verdicts may be missing; the first: {first}"
