"""Verdicts: what an engine says.

Every verdict is frozen, has `to_dict()` (the JSON of INTERFACE) and a one-line
`str`. Its id is deterministic (DESIGN 7): hash(fingerprint, execution, scope,
kind, (step, dot) pairs in match order), so that a replay can be deduplicated.
Ids are computed when asked for: a count of millions of matches needs none.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

import msgspec

from ketal.event import Dot, Draft, rfc3339

ScopeKey = tuple[tuple[str, Any], ...]
"""A scope: ((name, value), …), partition keys in their order, then `node`."""

Steps = tuple[tuple[str, Dot], ...]
"""(step, dot) pairs, in match order."""


def verdict_id(fingerprint: str, execution: str, scope: ScopeKey, kind: str, steps: Steps) -> str:
    """Return the deterministic id of a verdict: 32 hex digits (DESIGN 7)."""
    packed = msgspec.json.encode(
        (fingerprint, execution, scope, kind, [(s, d.node, d.counter) for s, d in steps])
    )
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


class PatternVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What verdicts about a pattern share.

    Attributes
    ----------
    pattern : str
        The pattern's name.
    fingerprint : str
        The automaton's.
    scope : tuple of (str, value)
        Partition keys and `node`; empty where there is none.
    execution : str
        The execution's name where a log holds several, else empty.
    time : float or None
        Seconds since the epoch of the completing event.
    certain : bool
        False where a lost event could change the verdict.
    depends_on : tuple of Dot
        The lost events that could.
    """

    kind: ClassVar[str] = ""

    pattern: str
    fingerprint: str
    scope: ScopeKey = ()
    execution: str = ""
    time: float | None = None
    certain: bool = True
    depends_on: tuple[Dot, ...] = ()

    def _steps(self) -> Steps:
        return ()

    @property
    def id(self) -> str:
        """The deterministic id: 32 hex digits."""
        return verdict_id(self.fingerprint, self.execution, self.scope, self.kind, self._steps())

    def _body(self) -> dict[str, Any]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as the JSON object of INTERFACE."""
        out: dict[str, Any] = {"verdict": self.kind, "pattern": self.pattern, "id": self.id}
        if self.execution:
            out["execution"] = self.execution
        out["scope"] = dict(self.scope)
        out.update(self._body())
        if self.time is not None:
            out["time"] = rfc3339(self.time)
        if not self.certain:
            out["certain"] = False
            out["depends_on"] = [str(dot) for dot in self.depends_on]
        return out

    def _scope_text(self) -> str:
        where = " ".join(f"{name}={value}" for name, value in self.scope)
        named = f"[{self.execution}] " if self.execution else ""
        return f"{named}{self.pattern}{f' ({where})' if where else ''}"

    def __str__(self) -> str:
        return f"{self.kind} {self._scope_text()}"


def _bound(bindings: Steps) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for step, dot in bindings:
        out.setdefault(step, []).append(str(dot))
    return out


def _bound_text(bindings: Steps) -> str:
    return ", ".join(f"{step}={'+'.join(dots)}" for step, dots in _bound(bindings).items())


class Match(PatternVerdict, frozen=True, kw_only=True):
    """A `find` pattern matched.

    Attributes
    ----------
    steps : tuple of (str, Dot)
        What each step bound, in match order.
    returns : dict or None
        What the pattern's `return` names; None without one.
    """

    kind: ClassVar[str] = "match"
    steps: Steps = ()
    returns: dict[str, Any] | None = None

    @property
    def events(self) -> tuple[Dot, ...]:
        """The dots of the match, in its own order."""
        return tuple(dot for _, dot in self.steps)

    @property
    def bindings(self) -> dict[str, tuple[Dot, ...]]:
        """What each step bound."""
        out: dict[str, tuple[Dot, ...]] = {}
        for step, dot in self.steps:
            out[step] = (*out.get(step, ()), dot)
        return out

    def _steps(self) -> Steps:
        return self.steps

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "events": [str(dot) for dot in self.events],
            "bindings": _bound(self.steps),
        }
        if self.returns is not None:
            body["return"] = self.returns
        return body

    def __str__(self) -> str:
        text = f"match {self._scope_text()}: {_bound_text(self.steps)}"
        if self.returns:
            text += " → " + ", ".join(f"{k}={v}" for k, v in self.returns.items())
        return text


class Violation(PatternVerdict, frozen=True, kw_only=True):
    """A `check` pattern met an event that its automaton does not allow."""

    kind: ClassVar[str] = "violation"
    event: Dot
    type: str = ""
    expected: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""

    def _steps(self) -> Steps:
        return (("", self.event),)

    def _body(self) -> dict[str, Any]:
        return {
            "event": str(self.event),
            "state": self.state,
            "expected": list(self.expected),
            "reason": self.reason,
        }

    def __str__(self) -> str:
        return f"violation {self._scope_text()}: {self.event} {self.type}: {self.reason}"


class Incomplete(PatternVerdict, frozen=True, kw_only=True):
    """The execution ended while a `check` run was in no final state."""

    kind: ClassVar[str] = "incomplete"
    state: str = ""
    expected: tuple[str, ...] = ()

    def _body(self) -> dict[str, Any]:
        return {"state": self.state, "expected": list(self.expected)}

    def __str__(self) -> str:
        expected = " or ".join(self.expected) or "nothing"
        return f"incomplete {self._scope_text()}: ended in {self.state}, expected {expected}"


class TimedOut(PatternVerdict, frozen=True, kw_only=True):
    """A window ended without a match (DESIGN 7)."""

    kind: ClassVar[str] = "timed_out"
    steps: Steps = ()

    @property
    def bindings(self) -> dict[str, tuple[Dot, ...]]:
        """What each step had bound."""
        return Match.bindings.fget(self)  # type: ignore[attr-defined, no-any-return]

    def _steps(self) -> Steps:
        return self.steps

    def _body(self) -> dict[str, Any]:
        return {"bindings": _bound(self.steps)}

    def __str__(self) -> str:
        return f"timed_out {self._scope_text()}: {_bound_text(self.steps)}"


class Transition(PatternVerdict, frozen=True, kw_only=True):
    """A run moved (`--trace`): by which event, from which state to which."""

    kind: ClassVar[str] = "transition"
    event: Dot
    step: str = ""
    source: str = ""
    target: str = ""

    def _steps(self) -> Steps:
        return ((f"{self.source}>{self.step}>{self.target}", self.event),)

    def _body(self) -> dict[str, Any]:
        return {
            "event": str(self.event),
            "step": self.step,
            "from": self.source,
            "to": self.target,
        }

    def __str__(self) -> str:
        arrow = f"{self.source} -> {self.target}" + (f" on {self.step}" if self.step else "")
        return f"transition {self._scope_text()}: {self.event}: {arrow}"


class Overflow(PatternVerdict, frozen=True, kw_only=True):
    """A limit was reached; says what was given up."""

    kind: ClassVar[str] = "overflow"
    limit: str
    given_up: str = ""
    event: Dot | None = None

    def _steps(self) -> Steps:
        return ((f"{self.limit}:{self.given_up}", self.event or Dot("", 0)),)

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"limit": self.limit, "given_up": self.given_up}
        if self.event is not None:
            body["event"] = str(self.event)
        return body

    def __str__(self) -> str:
        at = f" at {self.event}" if self.event else ""
        return f"overflow {self._scope_text()}: limit {self.limit} reached{at}: {self.given_up}"


class Late(PatternVerdict, frozen=True, kw_only=True):
    """An event whose place in the order has passed (DESIGN 5 and 7)."""

    kind: ClassVar[str] = "late"
    event: Dot
    reason: str = ""

    def _steps(self) -> Steps:
        return (("", self.event),)

    def _body(self) -> dict[str, Any]:
        return {"event": str(self.event), "reason": self.reason}

    def __str__(self) -> str:
        return f"late {self._scope_text()}: {self.event}: {self.reason}"


class Gap(PatternVerdict, frozen=True, kw_only=True):
    """A dot that was declared lost."""

    kind: ClassVar[str] = "gap"
    dot: Dot

    def _steps(self) -> Steps:
        return (("", self.dot),)

    def _body(self) -> dict[str, Any]:
        return {"dot": str(self.dot)}

    def __str__(self) -> str:
        return f"gap {self._scope_text()}: {self.dot} declared lost"


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is no event, with its place and the reason.

    Attributes
    ----------
    place : str
        `file:line`, for Kafka `topic/partition/offset`; empty for an event
        that came from code.
    reason : str
        One sentence.
    execution : str
        The execution's name where a log holds several, else empty.
    draft : Draft or None
        What the record says, where only its clock is at fault.
    """

    kind: ClassVar[str] = "rejected"
    place: str
    reason: str
    execution: str = ""
    draft: Draft | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as the JSON object of INTERFACE."""
        out: dict[str, Any] = {"verdict": "rejected", "place": self.place}
        if self.execution:
            out["execution"] = self.execution
        out["reason"] = self.reason
        return out

    def __str__(self) -> str:
        return f"rejected {self.place}: {self.reason}"


RunVerdict = Match | Violation | Incomplete | TimedOut | Overflow | Transition
"""What the runs of one pattern say."""

Verdict = RunVerdict | Late | Gap | Rejected
