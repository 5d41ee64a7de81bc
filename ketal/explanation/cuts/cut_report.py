"""`ketal.cuts`: the consistent cuts and linear extensions of a log, as numbers and as a picture.

A log may lack events that its clocks know. The counts are of happened-before on the events that the
log has; the number of missing events is reported with them.

The one rule: a count is exact, or it is a lower bound and the limit is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Decimal, localcontext
from typing import TYPE_CHECKING, Any

from ketal.errors import EventError, SettingError, printable
from ketal.explanation.cuts.cut_counting import LIMIT, CutCount, count_cuts
from ketal.explanation.cuts.cut_lattice import CutLattice
from ketal.model.events.causal_graph import CausalGraph
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.model.log_arguments import deciding_log
from ketal.model.wording import counted, preformatted
from ketal.runtime.admission.execution_events import (
    ExecutionEvents,
    execution_named,
    executions_of,
    missing_dots,
    only_execution,
    rejected_of,
)

if TYPE_CHECKING:
    from ketal.logs import Log

DIGITS_MAX = 60
"""Text for people abbreviates numbers with more digits."""
_CONVERTED_BITS = 4_096
"""Numbers with at most so many bits are converted at once."""


@dataclass(frozen=True, kw_only=True)
class ExecutionCuts:
    """The consistent cuts and linear extensions of one execution."""

    execution: str
    """The execution's name; empty if the log is not divided."""
    events: int
    nodes: int
    """How many distinct events the execution has, and of how many nodes."""
    missing: int
    """How many events the log lacks, of those that its clocks know and their predecessors on their
    nodes."""
    cuts: int
    """How many consistent cuts it has; if `limit` is set, it has more than this."""
    linear_extensions: int
    """How many linear extensions it has; if `limit` is set, it has at least this many."""
    limit: str
    """The limit that was reached; empty if the numbers are exact."""
    lattice: CutLattice | None
    """The lattice of the cuts; None if there are more than `drawn_cuts_max`."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, as `ketal cuts --output json` has it."""
        out: dict[str, Any] = {"execution": self.execution} if self.execution else {}
        out |= {
            "events": self.events,
            "nodes": self.nodes,
            "missing": self.missing,
            "cuts": self.cuts,
            "linear_extensions": self.linear_extensions,
            "exact": not self.limit,
        }
        return {**out, "limit": self.limit} if self.limit else out

    def __repr__(self) -> str:
        # Python itself refuses to print integers of thousands of digits.
        return (
            f"ExecutionCuts(execution={self.execution!r}, events={self.events}, "
            f"nodes={self.nodes}, missing={self.missing}, cuts={abbreviated(self.cuts)}, "
            f"linear_extensions={abbreviated(self.linear_extensions)}, limit={self.limit!r})"
        )

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.execution:
            yield f"execution          {printable(self.execution)}"
        yield f"events             {self.events:,}, nodes {self.nodes:,}"
        if self.missing:
            missing = counted(self.missing, "event")
            yield f"missing            {missing} in the clocks but not in the log"
        more, least = ("more than ", "at least ") if self.limit else ("", "")
        named = f" (limit {self.limit})" if self.limit else ""
        yield f"consistent cuts    {more}{abbreviated(self.cuts)}{named}"
        yield f"linear extensions  {least}{abbreviated(self.linear_extensions)}{named}"


@dataclass(frozen=True, kw_only=True)
class LogCuts:
    """The consistent cuts and linear extensions of a log, as `ketal.cuts` returns them.

    Attributes
    ----------
    executions : tuple of ExecutionCuts
        The executions, in the order of the log.
    duplicates, rejected : int
        How many records were duplicates of events, and how many were rejected.
    first_rejected : str
        The first rejected record of the first execution that has one, its place and the reason;
        empty if there is none.
    drawn_cuts_max : int
        How many cuts a drawn lattice may have.

    Examples
    --------
    >>> import ketal
    >>> log = [ketal.Event(node="a", type="send", clock={"a": 1}),
    ...        ketal.Event(node="b", type="receive", clock={"a": 1, "b": 1})]
    >>> cuts = ketal.cuts(log)
    >>> [execution.cuts for execution in cuts.executions], cuts.events, cuts.rejected
    ([3], 2, 0)
    """

    executions: tuple[ExecutionCuts, ...]
    duplicates: int
    rejected: int
    first_rejected: str
    drawn_cuts_max: int = field(repr=False)

    @property
    def events(self) -> int:
        """How many events all executions have."""
        return sum(one.events for one in self.executions)

    def to_dict(self) -> dict[str, Any]:
        """Return the `cuts` object of `ketal cuts --output json`.

        Examples
        --------
        >>> import ketal
        >>> cuts = ketal.cuts([ketal.Event(node="a", type="send", clock={"a": 1})]).to_dict()
        >>> cuts["executions"][0]["cuts"], cuts["duplicates"], cuts["rejected"]
        (2, 0, 0)
        """
        return {
            "executions": [one.to_dict() for one in self.executions],
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "first_rejected": self.first_rejected,
        }

    def __str__(self) -> str:
        parts = ["\n".join(self._records()), *map(str, self.executions)]
        return "\n\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def _records(self) -> Iterator[str]:
        if self.duplicates:
            yield f"duplicates         {self.duplicates:,}"
        if self.rejected:
            yield f"rejected           {self.rejected:,}; first: {printable(self.first_rejected)}"

    def only(self, execution: str) -> LogCuts:
        """Return the counts of one execution only; those of records remain those of the log.

        Raises
        ------
        SettingError
            If there is no execution of that name.

        Examples
        --------
        >>> import ketal
        >>> event = ketal.Event(node="n", type="a", clock={"n": 1})
        >>> log = ketal.Log(lambda: iter([("one", event, "", 0), ("two", event, "", 0)]))
        >>> [execution.cuts for execution in ketal.cuts(log).only("two").executions]
        [2]
        """
        return replace(self, executions=(execution_named(self._by_name(), execution),))

    def _by_name(self) -> dict[str, ExecutionCuts]:
        return {one.execution: one for one in self.executions}

    # --- pictures ---

    def to_svg(self) -> str:
        """Draw the lattice of the cuts.

        Raises
        ------
        SettingError
            If there are more than `drawn_cuts_max` cuts, or the log has several executions.

        Examples
        --------
        >>> import ketal
        >>> cuts = ketal.cuts([ketal.Event(node="a", type="send", clock={"a": 1})])
        >>> cuts.to_svg().startswith("<svg ")
        True
        """
        return self._lattice().to_svg()

    def to_dot(self) -> str:
        """Return the lattice of the cuts in Graphviz's language; raises the errors of `to_svg`.

        Examples
        --------
        >>> import ketal
        >>> cuts = ketal.cuts([ketal.Event(node="a", type="send", clock={"a": 1})])
        >>> print(cuts.to_dot())
        digraph "2 consistent cuts" {
        ...
        """
        return self._lattice().to_dot()

    def _lattice(self) -> CutLattice:
        choice = "choose one with --execution NAME, or with `only` in Python"
        one = only_execution(self._by_name(), choice)
        if one.lattice is None:
            raise SettingError(
                f"there are {'more than ' if one.limit else ''}{abbreviated(one.cuts)} consistent "
                f"cuts, but at most {self.drawn_cuts_max:,} are drawn (limit drawn_cuts_max)"
            )
        return one.lattice

    def _repr_svg_(self) -> str | None:
        """Draw the lattice for a notebook; None, so that the text is shown, if it is too large."""
        try:
            return self.to_svg()
        except SettingError:
            return None


def digits(number: int) -> str:
    """Return all digits of a number; `str` refuses numbers with thousands of digits.

    A long number is converted in halves: the conversion takes quadratic time, but multiplication of
    Decimals does not.
    """
    powers: dict[int, Decimal] = {}

    def converted(part: int, bits: int) -> Decimal:
        if bits <= _CONVERTED_BITS:
            return Decimal(part)
        half = bits // 2
        if half not in powers:
            powers[half] = Decimal(2) ** half
        high, low = part >> half, part & ((1 << half) - 1)
        return converted(high, bits - half) * powers[half] + converted(low, half)

    with localcontext(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN):
        return format(converted(number, number.bit_length()), "f")


def abbreviated(number: int) -> str:
    """Return a number for people; of more than `DIGITS_MAX` digits, the first four are shown.

    The number is truncated, not rounded, so that a lower bound remains one.
    """
    text = digits(number)
    if len(text) <= DIGITS_MAX:
        return f"{number:,}"
    return f"{text[0]}.{text[1:4]}e+{len(text) - 1} ({len(text):,} digits)"


def cuts(log: Log | Iterable[Event], *, limits: Limits | None = None) -> LogCuts:
    """Count the consistent cuts and the linear extensions of each execution of a log.

    Parameters
    ----------
    log : Log or iterable of Event
        The events; the log is read once.
    limits : Limits, optional
        `counted_cuts_max` bounds the work: if it is reached, the numbers are lower bounds.
        `drawn_cuts_max` bounds a drawn lattice, `events_max` the events.

    Raises
    ------
    EventError
        If the clocks are not those of an execution.
    SettingError
        If the log cannot be read, or a limit of reading is reached.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> log = [ketal.Event(node="a", type="send", clock={"a": 1}),
    ...        ketal.Event(node="b", type="receive", clock={"a": 1, "b": 1}),
    ...        ketal.Event(node="c", type="start", clock={"c": 1})]
    >>> print(ketal.cuts(log))
    events             3, nodes 3
    consistent cuts    6
    linear extensions  3
    """
    given = Limits.given(limits)
    parts = executions_of(deciding_log(log), given)
    rejected, first_rejected = rejected_of(parts.values())
    return LogCuts(
        executions=tuple(_count_execution(part, given) for part in parts.values()),
        duplicates=sum(part.duplicates for part in parts.values()),
        rejected=rejected,
        first_rejected=first_rejected,
        drawn_cuts_max=given.drawn_cuts_max,
    )


def _count_execution(part: ExecutionEvents, limits: Limits) -> ExecutionCuts:
    events = part.events()
    graph = CausalGraph(events)
    try:
        count = count_cuts(graph, limits.counted_cuts_max)
    except EventError as error:
        where = f"execution {part.name}: " if part.name else ""
        raise EventError(f"{where}{error.reason}") from None
    return ExecutionCuts(
        execution=part.name,
        events=len(events),
        nodes=len(graph.nodes),
        missing=missing_dots(events),
        # A lower bound is reported as "more than", hence the one less.
        cuts=count.cuts if count.exact else count.cuts - 1,
        linear_extensions=count.linear_extensions,
        limit="" if count.exact else LIMIT,
        lattice=_small_lattice(graph, count, part.name, limits),
    )


def _small_lattice(
    graph: CausalGraph, count: CutCount, execution: str, limits: Limits
) -> CutLattice | None:
    if not count.exact or count.cuts > limits.drawn_cuts_max:
        return None
    title = counted(count.cuts, "consistent cut")
    return CutLattice.of(graph, f"{execution}: {title}" if execution else title)
