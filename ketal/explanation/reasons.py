"""Reasons: why a verdict was reported, or why an event was not taken, as data and as text.

The one rule: every fact in the text of a reason is in its data, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, starmap, zip_longest
from typing import Any, Literal

from ketal.clocks.scheme import NO_CLOCKS
from ketal.errors import EventError
from ketal.explanation.guard_evidence import Evidence, order_in_words, undecided_in_words
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import concurrent, happened_before
from ketal.model.frozen_mapping import FrozenMapping
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.model.wording import counted, preformatted, scope_text

SHOWN_STEPS = 8
"""How many steps of a run, or links of a path, the text shows of more: the first and the last."""


@dataclass(frozen=True, slots=True)
class PlacedEvent:
    """An event, with its place in the log."""

    event: Event
    place: str = ""
    """`file:line`; empty if unknown."""

    @property
    def dot(self) -> Dot:
        """The event's identity."""
        return self.event.dot

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out = {"event": str(self.dot), "type": self.event.type}
        return {**out, "place": self.place} if self.place else out

    def __str__(self) -> str:
        return f"{self.event} ({self.place})" if self.place else str(self.event)


@dataclass(frozen=True, slots=True)
class StepReason:
    """Why an event satisfies a step, or does not."""

    step: str
    holds: bool
    evidence: tuple[Evidence, ...]
    """What decides it: the guard's literals, the `not`s before the event and the window."""
    event: PlacedEvent

    @property
    def failed(self) -> tuple[Evidence, ...]:
        """The evidence that does not hold, in the order of the pattern: the first is the reason."""
        return tuple(one for one in self.evidence if one.holds is not True)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "step": self.step,
            **self.event.to_dict(),
            "holds": self.holds,
            "evidence": [one.to_dict() for one in self.evidence],
        }

    def lines(self, event: str) -> Iterator[str]:
        """Yield it as lines of text that call the event `event`."""
        if self.holds:
            yield f"{event} satisfies {self.step}"
            return
        first, *others = self.failed
        yield f"{event} does not satisfy {self.step}: {first}"
        yield from (f"  and {one}" for one in others)


@dataclass(frozen=True, slots=True)
class PlacedLink:
    """A link of a causal path, from an event to the next event of the path."""

    source: PlacedEvent
    target: PlacedEvent

    @property
    def kind(self) -> Literal["program order", "message"]:
        """`program order` between events of one node, `message` between two nodes."""
        return "program order" if self.source.event.node == self.target.event.node else "message"

    @property
    def missing(self) -> int:
        """How many events of the source's node, after it, the target knows and the log lacks."""
        source, target = self.source.event, self.target.event
        between = target.clock[source.node] - source.counter
        return between - (source.node == target.node)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "from": self.source.to_dict(),
            "to": self.target.to_dict(),
        }
        return {**out, "missing": self.missing} if self.missing else out

    def __str__(self) -> str:
        missing = f" ({counted(self.missing, 'event')} missing in between)" if self.missing else ""
        how = "then" if self.kind == "program order" else "message to"
        return f"{how} {self.target}{missing}"


@dataclass(frozen=True, slots=True)
class PairReason:
    """How happened-before orders two events that follow each other in a match."""

    first: PlacedEvent
    second: PlacedEvent
    order: Literal["before", "concurrent", "after", "unknown"]
    """`after` if the second happened before the first; `unknown` if the clocks do not tell."""
    because: str
    """The order in words, with the clock entries as proof."""
    path: tuple[PlacedLink, ...] = ()
    """A shortest path from the earlier event to the later one; empty if it has more than
    `links_max` links, or there is none, since the clocks are inconsistent."""
    links_max: int = 0
    """How many links the search went back (limit `path_links_max`); 0 if there is no path."""
    known: tuple[PlacedEvent | None, PlacedEvent | None] = (None, None)
    """For concurrent events, the last event of the first one's node that the second knows, and the
    last event of the second one's node that the first knows; None if it knows no event."""

    @classmethod
    def of(
        cls,
        graph: CausalGraph,
        placed: Callable[[Event], PlacedEvent],
        one: Event,
        other: Event,
        *,
        links_max: int,
        undecided: str = "",
    ) -> PairReason:
        """Return how two different events of an execution are ordered, with the path as proof.

        `undecided` names the scheme of clocks that order all pairs that may be ordered, or
        `NO_CLOCKS`.
        """
        first, second, because = placed(one), placed(other), order_in_words(one, other)
        is_concurrent = concurrent(one, other)
        is_certain = one.node == other.node or (is_concurrent and undecided != NO_CLOCKS)
        if undecided and not is_certain:
            return cls(first, second, "unknown", undecided_in_words(undecided, other, one.dot))
        if is_concurrent:
            known = graph.last_known(one, other)
            last_of_one, last_of_other = (None if last is None else placed(last) for last in known)
            return cls(first, second, "concurrent", because, known=(last_of_one, last_of_other))
        is_before = happened_before(one, other)
        order: Literal["before", "after"] = "before" if is_before else "after"
        source, target = (one, other) if is_before else (other, one)
        try:
            events = graph.path(source, target, links_max=links_max)
        except EventError as error:  # the verdict holds nevertheless, by the clocks alone
            return cls(first, second, order, f"{because}; {error.reason}")
        path = tuple(starmap(PlacedLink, pairwise(map(placed, events))))
        return cls(first, second, order, because, path, links_max)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out: dict[str, Any] = {
            "first": str(self.first.dot),
            "second": str(self.second.dot),
            "order": self.order,
            "because": self.because,
        }
        if self.order == "concurrent":
            out["known"] = [None if one is None else one.to_dict() for one in self.known]
        elif self.order != "unknown":
            out["path"] = [link.to_dict() for link in self.path]
            if self.too_long:
                out["limit"] = "path_links_max"
        return out

    def last_known(self) -> Iterator[tuple[PlacedEvent, PlacedEvent, PlacedEvent | None]]:
        """Yield each concurrent event, the other, and the last of its node that the other knows.

        The last is None if the other knows none.
        """
        yield self.first, self.second, self.known[0]
        yield self.second, self.first, self.known[1]

    @property
    def too_long(self) -> str:
        """The text that replaces a path with too many links; empty if there is no such path."""
        if self.path or not self.links_max:
            return ""
        links = counted(self.links_max, "link")
        return f"the shortest path has more than {links} (limit path_links_max)"

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield self.because
        if self.too_long:
            yield f"  {self.too_long}"
        elif self.order == "concurrent":
            for event, other, last in self.last_known():
                yield f"  last event of {event.event.node} known to {other.dot}: {last or 'none'}"
        elif self.path:
            yield f"  {self.path[0].source}"
            for line in _shorten([str(link) for link in self.path], "links"):
                yield f"  {line}"


def _shorten(lines: list[str], noun: str) -> list[str]:
    """Return lines, the middle ones replaced by their number if that leaves fewer lines."""
    if len(lines) <= SHOWN_STEPS + 1:
        return lines
    half = SHOWN_STEPS // 2
    return [*lines[:half], f"… {len(lines) - 2 * half:,} more {noun}", *lines[-half:]]


@dataclass(frozen=True, slots=True)
class RunReason:
    """The state of a run when an event was offered, and which expected steps it satisfies."""

    state: str
    """The state of the automaton."""
    taken: tuple[tuple[str, PlacedEvent], ...]
    """The steps that the run had taken, with their events."""
    steps: tuple[StepReason, ...] | None = None
    """For each step expected next, whether the event satisfies it; None if there is no event."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        taken = [{"step": step, **event.to_dict()} for step, event in self.taken]
        out: dict[str, Any] = {"state": self.state, "taken": taken}
        if self.steps is not None:
            out["steps"] = [step.to_dict() for step in self.steps]
        return out

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        if self.taken:
            yield f"in {self.state}, after:"
            for line in _shorten([f"{s} = {e}" for s, e in self.taken], "steps"):
                yield f"  {line}"
        else:
            yield f"in {self.state}, before the first step" + ("" if self.steps is None else ":")
        for reason in self.steps or ():
            yield from (f"  {line}" for line in reason.lines("it"))
        if self.steps == ():
            yield "  nothing may follow"


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why a verdict holds, why an event was taken or not, or how close a `find` came to a match.

    Attributes
    ----------
    pattern : str
        The pattern.
    verdict : Verdict or None
        The verdict; None if an event is explained, or nothing matched.
    event : PlacedEvent or None
        The event of a violation, or the event that is explained.
    scope : mapping or None
        The scope in which the event was offered.
    learned_by : PlacedEvent or None
        For another node's event, under `at every node`, the event of the copy's node with which it
        was offered: the first that knows it; with `receiving`, the one that received its message;
        with `all`, the node's first event.
    execution : str
        The execution's name if the log has several, else empty.
    statements : tuple of str
        Further facts, as sentences.
    extension : tuple of PlacedEvent
        For a verdict of a `mode`, a linear extension of the scope's events that gives it, up to the
        verdict.
    steps : tuple of StepReason
        For a match, why each of its events satisfies its step.
    pairs : tuple of PairReason
        For a match, how each event is ordered with the next.
    runs : tuple of RunReason
        For a violation or an event, the runs that could have taken it; for an incomplete check, the
        run at the end of the log; if nothing matched, a run that came furthest.
    near : tuple of StepReason
        If nothing matched, the events that came nearest to continuing that run, and what failed.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Lock { event Take = type == "take"; event Free = type == "free";
    ...                    check (Take Free)*; }
    ... ''')
    >>> log = [ketal.Event(node="n", type="take", clock={"n": count}) for count in (1, 2)]
    >>> (explanation,) = ketal.explain(program, log)
    >>> print(explanation)
    violation Lock: n@2 take: expected Free
      in q1, after:
        Take = n@1 take
        it does not satisfy Free: type == "free" fails: type is "take"
    >>> explanation
    <ketal.Explanation of violation Lock: n@2 take: expected Free>
    >>> next(explanation.lines())
    'violation Lock: n@2 take: expected Free'
    >>> as_json = explanation.to_dict()
    >>> as_json["verdict"]["event"], as_json["runs"][0]["state"]
    ('n@2', 'q1')
    >>> as_json["runs"][0]["steps"][0]["evidence"][0]["values"]
    {'type': 'take'}
    """

    pattern: str
    verdict: Verdict | None = None
    event: PlacedEvent | None = None
    scope: FrozenMapping | None = None
    learned_by: PlacedEvent | None = None
    execution: str = ""
    statements: tuple[str, ...] = ()
    extension: tuple[PlacedEvent, ...] = ()
    steps: tuple[StepReason, ...] = ()
    pairs: tuple[PairReason, ...] = ()
    runs: tuple[RunReason, ...] = ()
    near: tuple[StepReason, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out: dict[str, Any] = {"pattern": self.pattern}
        if self.verdict is not None:
            out["verdict"] = self.verdict.to_dict()
        if self.execution:
            out["execution"] = self.execution
        if self.scope:
            out["scope"] = self.scope.copy()
        if self.event is not None:
            out["event"] = self.event.to_dict()
        if self.learned_by is not None:
            out["learned_by"] = self.learned_by.to_dict()
        if self.statements:
            out["statements"] = list(self.statements)
        for name in ("extension", "steps", "pairs", "runs", "near"):
            if parts := getattr(self, name):
                out[name] = [part.to_dict() for part in parts]
        return out

    def lines(self) -> Iterator[str]:
        """Yield it as lines of text, indented after the first."""
        yield self._head()
        yield from (f"  {line}" for line in self._details())

    def _head(self) -> str:
        """Return the first line: the verdict, or the pattern and the event."""
        if self.verdict is not None:
            return str(self.verdict)
        scope = scope_text(self.scope or {})
        execution = f"[{self.execution}]" if self.execution else ""
        parts = (execution, self.pattern, f"({scope})" if scope else "")
        return f"{' '.join(filter(None, parts))}: {self.event or 'no match'}"

    def _details(self) -> Iterator[str]:
        if self.verdict is not None and self.event is not None and self.event.place:
            yield f"at {self.event.place}"
        if self.learned_by is not None and self.event is not None:
            yield f"{_learning(self.event.event, self.learned_by.event)} at {self.learned_by}"
        yield from self.statements
        if self.extension:
            yield "in this order of the events:"
            events = _shorten([str(event) for event in self.extension], "events")
            yield from (f"  {event}" for event in events)
        for step, pair in zip_longest(self.steps, self.pairs):
            yield f"{step.step} = {step.event}"
            yield from (f"  {one}" for one in step.evidence)
            if pair is not None:
                yield from pair.lines()
        for run in self.runs:
            yield from run.lines()
        if self.near:
            yield "closest candidates for the next step:"
        for reason in self.near:
            yield from (f"  {line}" for line in reason.lines(str(reason.event)))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<ketal.Explanation of {self._head()}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _learning(event: Event, learner: Event) -> str:
    """Return how a copy came to be offered another node's event with an event of its own node."""
    if event.dot in learner.receives:
        return f"{learner.node} received its message"
    if happened_before(event, learner):
        return f"{learner.node} learned of it"
    return f"the copy of {learner.node} begins"
