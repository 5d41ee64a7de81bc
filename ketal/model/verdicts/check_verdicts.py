"""Verdicts of a `check`: an event violates it, or its run is incomplete at the end.

The one rule: a verdict names the state, and the steps that could come next in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ketal.errors import KetalError
from ketal.model.events.dot import Dot
from ketal.model.verdicts.bound_steps import Steps
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict, PlacesOf


def expected_text(steps: Sequence[str]) -> str:
    """Return which steps were allowed in a state, as the reason of a violation begins."""
    if not steps:
        return "nothing may follow"
    *others, last = steps
    return f"expected {', '.join(others)} or {last}" if others else f"expected {last}"


class Violation(IdentifiedVerdict, frozen=True, kw_only=True):
    """An event that the automaton of a `check` does not allow.

    Attributes
    ----------
    event : Dot
        The event.
    type : str
        The type of the event.
    expected : tuple of str
        The steps that were allowed in that state; empty if no event may follow.
    state : str
        The state before the event.
    reason : str
        The reason, in one sentence.
    pattern, scope, execution, time, id
        As in every verdict: see `Match`.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Lock { event Take = type == "take"; event Free = type == "free";
    ...                    check (Take Free)*; }
    ... ''')
    >>> log = [ketal.Event(node="n", type="take", clock={"n": count}) for count in (1, 2)]
    >>> (violation,) = ketal.run(program, log).violations
    >>> print(violation)
    violation Lock: n@2 take: expected Free
    >>> violation.event, violation.type, violation.state, violation.expected
    (Dot(node='n', counter=2), 'take', 'q1', ('Free',))
    """

    kind: ClassVar[str] = "violation"
    event: Dot
    type: str = ""
    expected: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""

    def _steps(self) -> Steps:
        return (("", self.event),)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        body = self._event_at(self.event, places_of)
        body["state"] = self.state
        body["expected"] = list(self.expected)
        body["reason"] = self.reason
        return body

    def __str__(self) -> str:
        return self._line(f"{self.event} {self.type}: {self.reason}")


class Incomplete(IdentifiedVerdict, frozen=True, kw_only=True):
    """The execution ended while a `check` run was in no final state.

    Attributes
    ----------
    state : str
        The state of the run at the end.
    expected : tuple of str
        The steps that could come next.
    pattern, scope, execution, time, id
        As in every verdict: see `Match`.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Lock { event Take = type == "take"; event Free = type == "free";
    ...                    check (Take Free)*; }
    ... ''')
    >>> (incomplete,) = ketal.run(program, [ketal.Event(node="n", type="take", clock={"n": 1})])
    >>> print(incomplete)
    incomplete Lock: ended in q1, expected Free
    >>> incomplete.state, incomplete.expected
    ('q1', ('Free',))
    """

    kind: ClassVar[str] = "incomplete"
    state: str = ""
    expected: tuple[str, ...] = ()

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        return {"state": self.state, "expected": list(self.expected)}

    def __str__(self) -> str:
        expected = " or ".join(self.expected) or "nothing"
        return self._line(f"ended in {self.state}, expected {expected}")


class ViolationError(KetalError):
    """A `check` is violated, or the log cannot show that it holds.

    Parameters
    ----------
    message : str
        The counts of violations, the first of them, and the reasons.
    violations, reasons
        See below.

    Attributes
    ----------
    violations : tuple of Violation
        The first `verdicts_max` violations, in the order of the verdicts; empty if the run
        does not list verdicts (`listing=False`), or if there are only `reasons`.
    reasons : tuple of str
        The reasons why the log cannot show that a check holds, a sentence each: no event was
        read, records were rejected, a limit was reached, …; empty if there are none.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('pattern Quiet { event E = type == "e"; check E; }')
    >>> log = [ketal.Event(node="n", type="e", clock={"n": count}) for count in (1, 2)]
    >>> try:
    ...     ketal.run(program, log).raise_on_violation()
    ... except ketal.ViolationError as error:
    ...     [str(violation.event) for violation in error.violations]
    ['n@2']
    >>> try:
    ...     ketal.run(program, []).raise_on_violation()
    ... except ketal.ViolationError as error:
    ...     error.reasons
    ('no event was read',)
    """

    def __init__(
        self, message: str, violations: tuple[Violation, ...] = (), reasons: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.violations = violations
        self.reasons = reasons

    def __reduce__(self) -> tuple[object, ...]:
        return ViolationError, (str(self), self.violations, self.reasons)
