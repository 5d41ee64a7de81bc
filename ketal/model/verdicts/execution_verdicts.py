"""Verdicts on an execution: events that are late or lost, records that are not events.

The one rule: each names an event or a record that the patterns did not judge.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ketal.errors import at_place
from ketal.model.events.dot import Dot
from ketal.model.events.event import Draft
from ketal.model.verdicts.bound_steps import Steps
from ketal.model.verdicts.identified_verdict import IdentifiedVerdict, PlacesOf, WrittenVerdict


class Late(IdentifiedVerdict, frozen=True, kw_only=True):
    """An event whose place in the release order, or whose time, has passed.

    Attributes
    ----------
    event : Dot
        The event; it is not judged.
    reason : str
        The reason, in one sentence.
    execution, time, id
        As in every verdict: see `Match`; `pattern` and `scope` are empty.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('pattern P { event A = type == "a"; find next A A; within 5 s; }')
    >>> with ketal.Monitor(program) as monitor:
    ...     verdicts = monitor.advance_time(100)
    ...     (late,) = monitor.feed(ketal.Event(node="n", type="a", clock={"n": 1}, time=99))
    >>> print(late)
    late n@1: its time is before the watermark
    >>> late.event, late.reason
    (Dot(node='n', counter=1), 'its time is before the watermark')
    """

    kind: ClassVar[str] = "late"
    event: Dot
    reason: str = ""

    def _steps(self) -> Steps:
        return (("", self.event),)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        return {**self._event_at(self.event, places_of), "reason": self.reason}

    def __str__(self) -> str:
        return self._line(f"{self.event}: {self.reason}")


class Gap(IdentifiedVerdict, frozen=True, kw_only=True):
    """A dot that was declared lost.

    Attributes
    ----------
    dot : Dot
        The dot of the event that did not arrive.
    execution, id
        As in every verdict: see `Match`; `pattern` and `scope` are empty.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern P { order CausalOrder(gap = 1 s); event A = type == "a"; find any A A; }
    ... ''')
    >>> (gap,) = ketal.run(program, [ketal.Event(node="n", type="a", clock={"n": 2})])
    >>> print(gap)
    gap n@1 declared lost
    >>> gap.dot
    Dot(node='n', counter=1)
    """

    kind: ClassVar[str] = "gap"
    dot: Dot

    def _steps(self) -> Steps:
        return (("", self.dot),)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        return {"dot": str(self.dot)}

    def __str__(self) -> str:
        return self._line(f"{self.dot} declared lost")


class Rejected(WrittenVerdict, frozen=True, kw_only=True):
    """A record that is not an event, with its place and the reason.

    Attributes
    ----------
    place : str
        `file:line`, for Kafka `topic/partition/offset`; empty for an event that came from code.
    reason : str
        The reason, in one sentence.
    execution : str
        The execution's name if a log holds several, else empty.
    draft : Draft or None
        The record's fields, if only its clock is invalid.

    Examples
    --------
    >>> import ketal
    >>> from io import BytesIO
    >>> (rejected,) = ketal.read_log(BytesIO(b'{"node": "n", "type": "a"}')).rejected
    >>> print(rejected)
    rejected <file>:1: the record has no clock (pass --field clock=PATH ...
    >>> rejected.reason == rejected.to_dict()["reason"]
    True
    """

    kind: ClassVar[str] = "rejected"
    place: str
    reason: str
    execution: str = ""
    draft: Draft | None = None

    def __hash__(self) -> int:
        # A draft's fields may be unhashable.
        return hash((self.place, self.reason, self.execution))

    def to_dict(self, places_of: PlacesOf | None = None) -> dict[str, Any]:
        """Return the verdict as its JSON object.

        Parameters
        ----------
        places_of : callable or None
            Not called: the attribute `place` has the place.

        Examples
        --------
        >>> import ketal
        >>> ketal.Rejected(place="run.jsonl:3", reason="no JSON").to_dict()
        {'verdict': 'rejected', 'place': 'run.jsonl:3', 'reason': 'no JSON'}
        """
        out: dict[str, Any] = {"verdict": "rejected", "place": self.place}
        if self.execution:
            out["execution"] = self.execution
        out["reason"] = self.reason
        return out

    def __str__(self) -> str:
        return f"rejected {at_place(self.place, self.reason)}"
