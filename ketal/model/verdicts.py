"""Verdicts: the results of the engine.

Every verdict is frozen, has the fields of its JSON as attributes, `to_dict()` (that
JSON) and a one-line `str`. Its id is deterministic: hash(fingerprint, name of the
pattern, execution, scope, kind, (step, dot) pairs in match order), so that a replay can
be deduplicated; the name distinguishes two patterns of one file that are otherwise the
same. Ids are computed on demand: a count of millions of matches needs none.

The one rule: verdicts that are equal have the same id, which is their hash.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar, get_args

import msgspec

from ketal.errors import KetalError
from ketal.model.events.dot import Dot
from ketal.model.events.draft import Draft
from ketal.model.events.event_time import rfc3339
from ketal.model.frozen_mapping import NO_SCOPE, FrozenMapping
from ketal.model.values import same

Steps = tuple[tuple[str, Dot], ...]
"""(step, dot) pairs, in match order."""

_encode = msgspec.json.Encoder().encode
PARTS_MAX = 6
"""Dots that a line shows of one step; of more, so many ranges of dots."""


@functools.lru_cache(maxsize=1_024)
def _begun(fingerprint: str, pattern: str, execution: str) -> Any:
    """Return the hash of the common prefix of ids; copy it before use."""
    begins = _encode((fingerprint, pattern, execution))[:-1] + b","
    return hashlib.blake2b(begins, digest_size=16)


class PatternVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that verdicts about a pattern share.

    Attributes
    ----------
    verdict : str
        What kind it is: `match`, `violation`, …; also called `kind`.
    pattern : str
        The pattern's name; empty for a verdict about the whole execution.
    id : str
        The deterministic id: 32 hex digits.
    fingerprint : str
        The automaton's.
    scope : FrozenMapping
        Partition keys and `node`, as a mapping that cannot be changed; empty
        where there is none.
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
    count: ClassVar[str] = ""
    """The name of its number among the counts of a pattern; empty if there is none."""
    nouns: ClassVar[tuple[str, str]] = ("", "")
    """What one of them, and several, are called in the summary."""

    pattern: str
    fingerprint: str
    scope: FrozenMapping = NO_SCOPE
    execution: str = ""
    time: float | None = None
    certain: bool = True
    depends_on: tuple[Dot, ...] = ()

    def _steps(self) -> Steps:
        return ()

    @property
    def verdict(self) -> str:
        """The kind of verdict.

        Examples
        --------
        >>> import ketal
        >>> ketal.Gap(pattern="", fingerprint="", dot=ketal.Dot("n1", 2)).verdict
        'gap'
        """
        return self.kind

    @property
    def id(self) -> str:
        """The deterministic id: 32 hex digits.

        Examples
        --------
        >>> import ketal
        >>> one, other = (ketal.Gap(pattern="", fingerprint="", dot=ketal.Dot("n1", 2))
        ...               for _ in range(2))
        >>> len(one.id), one.id == other.id
        (32, True)
        """
        digest = _begun(self.fingerprint, self.pattern, self.execution).copy()
        steps = [(step, *dot) for step, dot in self._steps()]
        digest.update(self.scope.written()[1] + b"," + _encode((self.kind, steps))[1:])
        return digest.hexdigest()  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PatternVerdict) or self.__class__ is not other.__class__:
            return NotImplemented
        # Equal verdicts have one hash, and the equal scopes {"x": 1} and {"x": 1.0} have two ids.
        alike = same(msgspec.structs.astuple(self), msgspec.structs.astuple(other))
        return alike and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _body(self) -> dict[str, Any]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as its JSON object.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event E = type == "e"; find next E; }')
        >>> (match,) = ketal.run(program, [ketal.Event(node="n", type="e", clock={"n": 1}, time=0)])
        >>> as_json = match.to_dict()
        >>> as_json["verdict"], as_json["events"], as_json["bindings"], as_json["time"]
        ('match', ['n@1'], {'E': ['n@1']}, '1970-01-01T00:00:00Z')
        """
        out: dict[str, Any] = {"verdict": self.kind, "pattern": self.pattern, "id": self.id}
        if self.execution:
            out["execution"] = self.execution
        out["scope"] = self.scope.copy()
        out.update(self._body())
        if self.time is not None:
            out["time"] = rfc3339(self.time)
        if not self.certain:
            out["certain"] = False
            out["depends_on"] = [str(dot) for dot in self.depends_on]
        return out

    def written(self) -> tuple[str, bytes]:
        """Return the id, and what `to_dict` returns as JSON.

        Examples
        --------
        >>> import ketal
        >>> lost = ketal.Gap(pattern="", fingerprint="", dot=ketal.Dot("n1", 2))
        >>> name, text = lost.written()
        >>> name == lost.id, text.endswith(b'"dot":"n1@2"}')
        (True, True)
        """
        as_json = self.to_dict()
        return as_json["id"], _encode(as_json)

    def _line(self, statement: str) -> str:
        """Return one line: the kind, the subject, and a statement."""
        values = self.scope.items()
        where = " ".join(f"{k}={v if isinstance(v, str) else _json(v)}" for k, v in values)
        execution = f"[{self.execution}]" if self.execution else ""
        subject = " ".join(filter(None, (execution, self.pattern, where and f"({where})")))
        return f"{self.kind} {subject}: {statement}" if subject else f"{self.kind} {statement}"


def _bound(bindings: Steps) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for step, dot in bindings:
        out.setdefault(step, []).append(str(dot))
    return out


def _bound_text(bindings: Steps) -> str:
    by_step: dict[str, list[Dot]] = {}
    for step, dot in bindings:
        by_step.setdefault(step, []).append(dot)
    return ", ".join(f"{step}={_dots_text(dots)}" for step, dots in by_step.items())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


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


class Match(PatternVerdict, frozen=True, kw_only=True):
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
    steps: Steps = ()
    returns: dict[str, Any] | None = None

    @property
    def events(self) -> tuple[Dot, ...]:
        """The dots of the match, in its own order."""
        return tuple(dot for _, dot in self.steps)

    @property
    def bindings(self) -> dict[str, tuple[Dot, ...]]:
        """The dots that each step bound."""
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
        text = _bound_text(self.steps)
        if self.returns:
            text += " → " + ", ".join(f"{k}={_json(v)}" for k, v in self.returns.items())
        return self._line(text)


setattr(Match, "return", property(lambda match: match.returns, doc="What `returns` is."))


class Violation(PatternVerdict, frozen=True, kw_only=True):
    """A `check` pattern met an event that its automaton does not allow.

    Attributes
    ----------
    event : Dot
        The event.
    type : str
        Its type.
    expected : tuple of str
        The steps that were allowed there; empty where nothing may follow.
    state : str
        The state before the event.
    reason : str
        One sentence.
    pattern, scope, execution, time, id
        As of every verdict: see `Match`.

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
    count: ClassVar[str] = "violations"
    nouns: ClassVar[tuple[str, str]] = ("violation", "violations")
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

    def written(self) -> tuple[str, bytes]:
        """Return the id, and what `to_dict` returns as JSON.

        Of many violations most of the JSON is the same, and is encoded once.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event E = type == "e"; check E; }')
        >>> log = [ketal.Event(node="n", type="e", clock={"n": count}) for count in (1, 2)]
        >>> (violation,) = ketal.run(program, log).violations
        >>> name, text = violation.written()
        >>> name == violation.id, b'"event":"n@2"' in text
        (True, True)
        """
        if self.execution or not self.certain:
            return super().written()
        name = self.id
        head, tail = _around(self.pattern, self.state, self.expected, self.reason)
        text = b"".join(
            (
                head,
                name.encode(),
                b'","scope":',
                self.scope.written()[0],
                b',"event":',
                _encode(str(self.event)),
                tail,
                b"}" if self.time is None else b',"time":"%s"}' % rfc3339(self.time).encode(),
            )
        )
        return name, text

    def __str__(self) -> str:
        return self._line(f"{self.event} {self.type}: {self.reason}")


@functools.lru_cache(maxsize=1_024)
def _around(
    pattern: str, state: str, expected: tuple[str, ...], reason: str
) -> tuple[bytes, bytes]:
    """Return a violation's JSON up to its id, and from after its event on."""
    head = _encode({"verdict": Violation.kind, "pattern": pattern, "id": ""})[:-2]
    tail = _encode({"state": state, "expected": expected, "reason": reason})[1:-1]
    return head, b"," + tail


class Incomplete(PatternVerdict, frozen=True, kw_only=True):
    """The execution ended while a `check` run was in no final state.

    Attributes
    ----------
    state : str
        The state that it was in.
    expected : tuple of str
        The steps that could follow.
    pattern, scope, execution, time, id
        As of every verdict: see `Match`.

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
    count: ClassVar[str] = "incomplete"
    nouns: ClassVar[tuple[str, str]] = ("incomplete run", "incomplete runs")
    state: str = ""
    expected: tuple[str, ...] = ()

    def _body(self) -> dict[str, Any]:
        return {"state": self.state, "expected": list(self.expected)}

    def __str__(self) -> str:
        expected = " or ".join(self.expected) or "nothing"
        return self._line(f"ended in {self.state}, expected {expected}")


class TimedOut(PatternVerdict, frozen=True, kw_only=True):
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
    steps: Steps = ()

    @property
    def bindings(self) -> dict[str, tuple[Dot, ...]]:
        """The dots that each step had bound."""
        return Match.bindings.fget(self)  # type: ignore[attr-defined, no-any-return]

    def _steps(self) -> Steps:
        return self.steps

    def _body(self) -> dict[str, Any]:
        return {"bindings": _bound(self.steps)}

    def __str__(self) -> str:
        return self._line(_bound_text(self.steps))


class Transition(PatternVerdict, frozen=True, kw_only=True):
    """A run moved (`trace=True`): by which event, from which state to which.

    Attributes
    ----------
    event : Dot
        The event.
    step : str
        The step that it took; empty where there is none.
    source, target : str
        The states before and after; `from` and `to` in JSON.
    pattern, scope, execution, time, id
        As of every verdict: see `Match`.

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

    def _body(self) -> dict[str, Any]:
        return {
            "event": str(self.event),
            "step": self.step,
            "from": self.source,
            "to": self.target,
        }

    def __str__(self) -> str:
        arrow = f"{self.source} -> {self.target}" + (f" on {self.step}" if self.step else "")
        return self._line(f"{self.event}: {arrow}")


setattr(Transition, "from", property(lambda move: move.source, doc="What `source` is."))


class Overflow(PatternVerdict, frozen=True, kw_only=True):
    """A limit was reached; names what was given up.

    Attributes
    ----------
    limit : str
        The name of the limit, as `ketal limits` lists it.
    given_up : str
        What was given up, in words.
    event : Dot or None
        The event at which that was.
    pattern, scope, execution, time, id
        As of every verdict: see `Match`; `pattern` is empty where an event was given up.

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

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"limit": self.limit, "given_up": self.given_up}
        if self.event is not None:
            body["event"] = str(self.event)
        return body

    def __str__(self) -> str:
        at = f" at {self.event}" if self.event else ""
        return self._line(f"limit {self.limit} reached{at}: {self.given_up}")


class Late(PatternVerdict, frozen=True, kw_only=True):
    """An event whose place in the release order, or whose time, has passed.

    Attributes
    ----------
    event : Dot
        The event; it is not judged.
    reason : str
        One sentence.
    execution, time, id
        As of every verdict: see `Match`; `pattern` and `scope` are empty.

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

    def _body(self) -> dict[str, Any]:
        return {"event": str(self.event), "reason": self.reason}

    def __str__(self) -> str:
        return self._line(f"{self.event}: {self.reason}")


class Gap(PatternVerdict, frozen=True, kw_only=True):
    """A dot that was declared lost.

    Attributes
    ----------
    dot : Dot
        The event that did not come.
    execution, id
        As of every verdict: see `Match`; `pattern` and `scope` are empty.

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

    def _body(self) -> dict[str, Any]:
        return {"dot": str(self.dot)}

    def __str__(self) -> str:
        return self._line(f"{self.dot} declared lost")


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
        The record's fields, where only its clock is at fault.

    Examples
    --------
    >>> import ketal
    >>> from io import BytesIO
    >>> (rejected,) = ketal.read_log(BytesIO(b'{"node": "n", "type": "a"}')).rejected
    >>> print(rejected)
    rejected <file>:1: the record has no clock (--field clock=PATH says ...
    >>> rejected.reason == rejected.to_dict()["reason"]
    True
    """

    kind: ClassVar[str] = "rejected"
    place: str
    reason: str
    execution: str = ""
    draft: Draft | None = None

    @property
    def verdict(self) -> str:
        """The kind of verdict: `rejected`.

        Examples
        --------
        >>> import ketal
        >>> ketal.Rejected(place="run.jsonl:3", reason="no JSON").verdict
        'rejected'
        """
        return self.kind

    def __hash__(self) -> int:
        # A draft's fields may be unhashable.
        return hash((self.place, self.reason, self.execution))

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as its JSON object.

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

    def written(self) -> tuple[None, bytes]:
        """Return that it has no id, and what `to_dict` returns as JSON.

        Examples
        --------
        >>> import ketal
        >>> ketal.Rejected(place="run.jsonl:3", reason="no JSON").written()
        (None, b'{"verdict":"rejected","place":"run.jsonl:3","reason":"no JSON"}')
        """
        return None, _encode(self.to_dict())

    def __str__(self) -> str:
        return f"rejected {self.place}: {self.reason}"


RunVerdict = Match | Violation | Incomplete | TimedOut | Overflow | Transition
"""The verdicts about one pattern."""

Verdict = Match | Violation | Incomplete | TimedOut | Late | Gap | Rejected | Overflow | Transition

KINDS = tuple(verdict.kind for verdict in get_args(Verdict))
"""The kinds of verdicts, in the order in which messages list them."""
COUNTED = {verdict.count: verdict.nouns for verdict in get_args(RunVerdict) if verdict.count}
"""The kinds that each pattern has a count of: its name → one of them, several of them."""


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
        In the order of the verdicts, the first `verdicts_max` of them; empty where the run
        lists none (`listing=False`), or where only `reasons` are there.
    reasons : tuple of str
        Why the log cannot show that a check holds, a sentence each: no event was read,
        records were rejected, a limit was reached, …; empty where it can.

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
