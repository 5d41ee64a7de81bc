"""`ketal.explain`: why each verdict of a finite log holds, and why an event was not taken.

The log is judged once (`ketal.explanation.judged_log`); what is explained is a verdict
(`verdict_explaining`), an event (`event_explaining`), or that nothing matched (`near_misses`).

The one rule: what is asked for is explained, or the error says why it cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.errors import EventError, SettingError, wrong_type
from ketal.explanation.event_explaining import event_explained
from ketal.explanation.judged_log import JudgedLog
from ketal.explanation.near_misses import near_misses
from ketal.explanation.reasons import Explanation
from ketal.explanation.verdict_explaining import verdict_explained
from ketal.logs import Log
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.verdicts.pattern_verdict import PatternVerdict
from ketal.programs.program import Program

FIRST = 10
"""Verdicts that are explained where none is asked for."""


def explain(
    program: Program,
    log: Log | Iterable[Event],
    *,
    verdict: PatternVerdict | str | None = None,
    event: Dot | str | None = None,
    first: int = FIRST,
    limits: Limits | None = None,
) -> tuple[Explanation, ...]:
    """Return why the verdicts of a finite log hold, or what the patterns made of an event.

    Parameters
    ----------
    program : Program
        The patterns.
    log : Log or iterable of Event
        What happened.
    verdict : verdict or str, optional
        Explain this one only, given itself, by its id, or by how its id begins.
    event : Dot or str, optional
        Explain what each pattern made of this event, `n3@7`, instead.
    first : int
        Without either, so many verdicts are explained: matches, violations, checks that were not
        complete and windows that timed out.
    limits : Limits, optional
        Other limits than those the program was compiled with; `explained_runs_max` bounds the
        runs that are explained of one event.

    Raises
    ------
    SettingError
        If there is no such verdict or event, or several.
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Conflict { order CausalOrder; event Write = type == "write";
    ...                        First = Write; Second = Conc(Write); find any First Second; }
    ... ''')
    >>> log = [ketal.Event(node="a", type="write", clock={"a": 1}),
    ...        ketal.Event(node="b", type="write", clock={"b": 1})]
    >>> (explanation,) = ketal.explain(program, log)
    >>> print(explanation)
    match Conflict: First=a@1, Second=b@1
      First = a@1 write
        type == "write" holds: type is "write"
      a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
        of a, b@1 knows nothing
        of b, a@1 knows nothing
      Second = b@1 write
        type == "write" holds: type is "write"
        Conc(Write) holds: a@1 and b@1 are concurrent: b@1 knows a:0 < 1, a@1 knows b:0 < 1
    """
    if verdict is not None and event is not None:
        raise SettingError("explain a verdict or an event, not both")
    name = verdict.id if isinstance(verdict, PatternVerdict) else verdict
    if not isinstance(name, str | None):
        raise wrong_type("verdict", "a verdict of a pattern or its id, a str", verdict)
    if not isinstance(first, int):
        raise wrong_type("first", "an int", first)
    if first < 0:
        raise SettingError(f"first is how many verdicts are explained, not {first}")
    dot = None if event is None else dot_of(event)
    judged = JudgedLog(program, log, limits, event=dot)
    return explanations(judged, verdict=name, first=first)


def dot_of(event: Dot | str) -> Dot:
    """Return an event's dot, of `node@counter` too.

    Raises
    ------
    SettingError
        If it is no dot.
    TypeError
        If it is no text either.
    """
    try:
        return event if isinstance(event, Dot) else Dot.parse(event)
    except EventError:
        raise SettingError(f"{event} is no event; write node@counter, as n3@7") from None


def explanations(
    judged: JudgedLog, *, verdict: str | None = None, first: int = FIRST
) -> tuple[Explanation, ...]:
    """Return what `explain` returns of a judged log; of the event that it was judged for, if any.

    Raises
    ------
    SettingError
        If there is no such verdict or event, or several.
    """
    if judged.event is not None:
        return tuple(event_explained(judged))
    if verdict is not None:
        return (verdict_explained(judged, judged.named(verdict)),)
    explained = [verdict_explained(judged, one) for one in judged.explainable[:first]]
    left = range(first - len(explained))
    explained += (one for _, one in zip(left, near_misses(judged), strict=False))
    return tuple(explained)
