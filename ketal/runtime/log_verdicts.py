"""The verdicts of a finite log: iterable any number of times, with queries over the whole log.

The log is judged lazily: the first iteration or query starts a pass, which yields each verdict as
it is found. A pass that reaches the end caches the summary and the first `verdicts_max` verdicts
for later queries. A query that needs a verdict that is not cached starts another pass.

The one rule: an answer about the whole log comes from a complete pass, or an error is raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from ketal.errors import SettingError
from ketal.model.limits import Limits
from ketal.model.summaries import PatternCounts, Summary
from ketal.model.verdicts.check_verdicts import Violation, ViolationError
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.run_verdicts import Overflow, limit_reached_text
from ketal.model.verdicts.verdict_kinds import COUNTED, Verdict
from ketal.model.wording import counted
from ketal.programs.program import Program
from ketal.runtime.admission.known_counters import impossible_text
from ketal.runtime.silence.vacuity import judged_nothing, unreceived_text

if TYPE_CHECKING:
    import pandas

NAMED_MAX = 5
"""The most verdicts that the message of a ViolationError names."""
CELL_CHARACTERS = 200
"""A notebook's table truncates longer values."""

_NOT_LISTED = "not listed"

V = TypeVar("V", Match, Violation)


class Pass(Protocol):
    """One pass over a log: its verdicts, and the summary of what has been read so far."""

    def __iter__(self) -> Iterator[Verdict]: ...

    @property
    def summary(self) -> Summary:
        """The summary of what has been read so far."""


class Verdicts:
    """The verdicts of a finite log; they can be iterated any number of times.

    `ketal.run` returns this object before it judges anything. An iteration judges the log and
    yields each verdict as it is found; stopping early is cheap. `summary`, `violations`, `matches`,
    `to_pandas`, `raise_on_violation` and the table in a notebook judge the whole log first.
    `repr` judges nothing.

    A complete pass over the log caches the first `verdicts_max` verdicts. If there are more, or
    if an iteration stopped early, the next iteration or query judges the log again. A log that is
    an iterator, such as a generator, can be read only once: reading it again raises a
    SettingError. A list and a `ketal.Log` can be read again.

    Parameters
    ----------
    judge : callable
        Starts a pass over the log.
    program : Program
        The patterns.
    limits : Limits
        `verdicts_max` bounds the cached verdicts, `shown_max` the rows shown in a notebook.
    listing : bool
        Whether the passes yield the verdicts of patterns.
    once : bool
        Whether the log can be read only once.

    Raises
    ------
    SettingError
        From an iteration or a query, if the log cannot be read, or not a second time.
    TypeError
        From an iteration or a query, if an item of the log is not an event.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('''
    ...     pattern Lock { event Take = type == "take"; event Free = type == "free";
    ...                    check (Take Free)*; }
    ... ''')
    >>> log = [ketal.Event(node="n", type=t, clock={"n": count})
    ...        for count, t in enumerate(["take", "take", "free"], 1)]
    >>> verdicts = ketal.run(program, log)
    >>> for verdict in verdicts:
    ...     print(verdict)
    violation Lock: n@2 take: expected Free
    >>> verdicts.summary["patterns"]["Lock"]["violations"]
    1
    >>> [str(violation.event) for violation in verdicts.violations]
    ['n@2']
    >>> verdicts.matches
    ()
    """

    def __init__(
        self,
        judge: Callable[[], Pass],
        program: Program,
        limits: Limits,
        *,
        listing: bool = True,
        once: bool = False,
    ) -> None:
        self._judge = judge
        self._program = program
        self._checks = [c.name for c in program.compiled if c.kind == "check"]
        self._limits = limits
        self._listing = listing
        self._once = once
        self._started = False
        self._summary: Summary | None = None
        self._cached: list[Verdict] = []
        self._count = 0

    def __iter__(self) -> Iterator[Verdict]:
        if self._summary is not None and self._count == len(self._cached):
            return iter(self._cached)
        return self._new_pass()

    def _new_pass(self) -> Iterator[Verdict]:
        """Judge the log; yield each verdict as it is found, and cache the result at the end."""
        if self._once and self._started:
            raise SettingError(self._reread_error_text())
        self._started = True
        log_pass = self._judge()
        cached: list[Verdict] = []
        count = 0
        for verdict in log_pass:
            if count < self._limits.verdicts_max:
                cached.append(verdict)
            count += 1
            yield verdict
        self._summary, self._cached, self._count = log_pass.summary, cached, count

    def _reread_error_text(self) -> str:
        reason = "its verdicts were not all read"
        if self._summary is not None:
            reason = f"it has {self._count} verdicts, more than are kept (limit verdicts_max)"
        return (
            f"the log is an iterator, which can be read only once, and {reason}; "
            "pass a list of events or a ketal.Log"
        )

    @property
    def summary(self) -> Summary:
        """The summary of the whole log, as `ketal run` prints it; judges first.

        With `run(…, listing=False)` only the summary is computed, which is fastest.
        """
        if self._summary is None:
            deque(self._new_pass(), maxlen=0)
        assert self._summary is not None
        return self._summary

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations, in the order of the verdicts; judges first."""
        return self._verdicts_of(Violation)

    @property
    def matches(self) -> tuple[Match, ...]:
        """The matches, in the order of the verdicts; judges first.

        A pattern with `limit n` or `return count` lists fewer matches than its summary counts.
        """
        return self._verdicts_of(Match)

    def _verdicts_of(self, kind: type[V]) -> tuple[V, ...]:
        self._check_listing()
        return tuple(verdict for verdict in self if isinstance(verdict, kind))

    def _check_listing(self) -> None:
        if not self._listing:
            raise SettingError(
                "listing=False lists no verdicts of patterns; use the counts in the summary"
            )

    def to_pandas(self) -> pandas.DataFrame:
        """Return the verdicts as a pandas DataFrame, one row each; judges first.

        The columns are the fields of the verdicts' JSON, `time` as RFC 3339 text in UTC. If there
        are no verdicts, they are `verdict`, `pattern` and `scope`.

        Raises
        ------
        SettingError
            If pandas is missing, or the run lists no verdicts (`listing=False`).

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern A { event E = type == "a"; find any E; }')
        >>> log = [ketal.Event(node="n", type="a", clock={"n": count}) for count in (1, 2)]
        >>> frame = ketal.run(program, log).to_pandas()
        >>> frame[["verdict", "pattern", "events"]].values.tolist()
        [['match', 'A', ['n@1']], ['match', 'A', ['n@2']]]
        """
        try:
            import pandas
        except ImportError:
            raise SettingError(
                "to_pandas requires pandas, which is not installed: pip install pandas"
            ) from None
        self._check_listing()
        rows = [verdict.to_dict() for verdict in self]
        return pandas.DataFrame(rows, columns=None if rows else ["verdict", "pattern", "scope"])

    def raise_on_violation(self, *, allow_vacuous: bool = False) -> Self:
        """Return these verdicts if every check of the program holds; else raise.

        A check holds if the log was judged whole and has no violation: it also raises where
        no event was read, records were rejected or late, clocks are impossible, a limit was
        reached, a registered guard failed, no event is in the alphabet of the check, or it is
        about received messages (`at every node receiving`) and no event names one.

        Parameters
        ----------
        allow_vacuous : bool
            Whether a check counts as holding if no event is in its alphabet.

        Raises
        ------
        ViolationError
            If a check is violated, or the log cannot show that it holds; the message names
            the first violations, and each reason.
        SettingError
            If no pattern of the program is a `check`. Whether a match of a `find` is a fault is
            known only to the author of the pattern.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern Turns { event E = type == "e"; check E E; }')
        >>> log = [ketal.Event(node="n", type="e", clock={"n": count}) for count in (1, 2, 3)]
        >>> ketal.run(program, log[:2]).raise_on_violation().summary["events"]["accepted"]
        2
        >>> ketal.run(program, log).raise_on_violation()
        Traceback (most recent call last):
        ...
        ketal.model.verdicts.check_verdicts.ViolationError: 1 violation of Turns
          violation Turns: n@3 e: nothing may follow
        """
        __tracebackhide__ = True  # pytest shows the test's line instead of this one
        if not self._checks:
            raise SettingError(
                "no pattern of the program is a `check`, so nothing can be violated; for a `find`, "
                "assert on its matches, for example `assert not verdicts.matches`"
            )
        counts = {name: self.summary["patterns"][name]["violations"] for name in self._checks}
        lines = [f"{_counted(n, 'violations')} of {name}" for name, n in counts.items() if n]
        violations: tuple[Violation, ...] = ()
        if lines and self._listing:
            listed = (verdict for verdict in self._examples() if isinstance(verdict, Violation))
            violations = tuple(islice(listed, self._limits.verdicts_max))
            lines += [f"  {violation}" for violation in violations[:NAMED_MAX]]
            more = sum(counts.values()) - min(NAMED_MAX, len(violations))
            lines += [f"  and {more} more"] if more else []
        reasons = tuple(self._reasons(allow_vacuous=allow_vacuous))
        if lines or reasons:
            undecided = [f"not shown to hold: {reason}" for reason in reasons]
            raise ViolationError("\n".join([*lines, *undecided]), violations, reasons)
        return self

    def _reasons(self, *, allow_vacuous: bool) -> Iterator[str]:
        """Yield the reasons why the log cannot show that the checks hold."""
        summary = self.summary
        events = summary["events"]
        if events["read"] == events["rejected"]:
            yield "no event was read"
        if events["rejected"]:
            rejected = (v for v in self._examples() if isinstance(v, Rejected))
            first = next(rejected, _NOT_LISTED)
            yield f"{events['rejected']} of {events['read']} records rejected; the first: {first}"
        if events["late"]:
            yield f"{counted(events['late'], 'event')} arrived late, after the watermark"
        yield from impossible_clocks(summary)
        if events["overflow"]:
            beyond = counted(events["overflow"], "event")
            yield f"{beyond} dropped beyond a limit; the first: {self._first_overflow('')}"
        for name in self._checks:
            counts = summary["patterns"][name]
            if counts.get("overflows"):
                overflow = self._first_overflow(name)
                yield f"{name}: {limit_reached_text(overflow, counts['overflows'])}"
            yield from failed_guards({name: counts})
            vacuous = counts.get("vacuous", ())
            if unreceived := unreceived_text(vacuous):
                yield unreceived
            if judged_nothing(vacuous) and not allow_vacuous:
                yield f"no event is in the alphabet of {name} (allow_vacuous=True accepts that)"

    def _first_overflow(self, pattern: str) -> Verdict | str:
        overflows = (v for v in self._examples() if isinstance(v, Overflow))
        return next((v for v in overflows if v.pattern == pattern), _NOT_LISTED)

    def _examples(self) -> Iterator[Verdict]:
        """Yield the verdicts that messages name: the cached ones where the log cannot be reread."""
        return iter(self._cached) if self._once else iter(self)

    # --- display ---

    def _counts(self, summary: Summary) -> list[tuple[str, str]]:
        """Return (name, counts that are not zero) of each pattern, and of the records."""
        events = {name: count for name, count in summary["events"].items() if count} or {"read": 0}
        shown = [
            (name, ", ".join(_counted(counts[kind], kind) for kind in COUNTED if counts[kind]))  # type: ignore[literal-required]
            for name, counts in summary["patterns"].items()
        ]
        records = ", ".join(f"{count} {text}" for text, count in events.items())
        return [*((name, text or "no verdicts") for name, text in shown), ("events", records)]

    def __repr__(self) -> str:
        if self._summary is None:
            return f"<ketal.Verdicts of {', '.join(self._program.names)}: not all judged yet>"
        shown = "; ".join(f"{name}: {text}" for name, text in self._counts(self._summary))
        return f"<ketal.Verdicts {shown}>"

    def _repr_html_(self) -> str:
        """Return the counts, and a table of the first `shown_max` verdicts; judges first."""
        summary = self.summary
        lines = [f"{name}: {text}" for name, text in self._counts(summary)]
        if self._checks:
            reasons = self._reasons(allow_vacuous=False)
            lines += [f"not shown to hold: {reason}" for reason in reasons]
        rows = [verdict.to_dict() for verdict in self._cached[: self._limits.shown_max]]
        columns = dict.fromkeys(
            name for row in rows for name, value in row.items() if name != "id" and value
        )
        parts = ["<table><caption>", "<br>".join(map(escape, lines)), "</caption>"]
        if rows:
            parts += ["<tr>", *(f"<th>{escape(name)}</th>" for name in columns), "</tr>"]
        for row in rows:
            cells = (_cell(row[name]) if name in row else "" for name in columns)
            parts += ["<tr>", *(f"<td>{escape(cell)}</td>" for cell in cells), "</tr>"]
        if more := self._count - len(rows):
            note = f"and {more:,} more (limit shown_max)"
            parts.append(f'<tr><td colspan="{len(columns)}">{note}</td></tr>')
        return "".join([*parts, "</table>"])


def impossible_clocks(summary: Summary) -> Iterator[str]:
    """Yield a message with the number of events whose clocks are impossible, unless it is zero."""
    if impossible := summary.get("impossible"):
        yield impossible_text(impossible)


def failed_guards(patterns: Mapping[str, PatternCounts]) -> Iterator[str]:
    """Yield a message for each pattern whose registered guards failed, with the number of times."""
    for name, counts in patterns.items():
        if failures := counts.get("guard_failures"):
            yield f"a registered guard of {name} failed {counted(failures, 'time')}"


def _counted(number: int, kind: str) -> str:
    return counted(number, *COUNTED[kind])


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= CELL_CHARACTERS else f"{text[:CELL_CHARACTERS]}…"
