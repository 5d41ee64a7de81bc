"""The summary of a run: the outcomes of the records, and the counts of each pattern.

The one rule: a count that may be absent is declared `NotRequired`, and is absent if it is zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NotRequired, TypedDict


@dataclass(slots=True)
class Tally:
    """Counts of the records read, by their outcome; `read` is the sum of the others."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    late: int = 0
    held_back: int = 0
    overflow: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the `events` object of the summary."""
        counts = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"read": sum(counts.values()), **counts}


class PatternCounts(TypedDict):
    """The counts of one pattern: its verdicts by kind, and the events that it could not judge."""

    matches: int
    violations: int
    incomplete: int
    timed_out: int
    unscoped: int
    untimed: int
    halted: NotRequired[int]
    unknown_types: NotRequired[int]
    guard_failures: NotRequired[int]
    overflows: NotRequired[int]
    strangers: NotRequired[int]
    uncertain: NotRequired[int]
    marks_forgotten: NotRequired[int]
    vacuous: NotRequired[list[dict[str, object]]]
    unknown: NotRequired[list[dict[str, object]]]


class Summary(TypedDict):
    """The summary of a run, as `ketal run --output json` prints it.

    All values are numbers of records, events or verdicts.

    Attributes
    ----------
    events : dict of str to int
        The records by their outcome: `read` is the sum of `accepted`, `duplicates`,
        `rejected`, `late`, `held_back` and `overflow`.
    patterns : dict of str to PatternCounts
        For each pattern `matches`, `violations`, `incomplete`, `timed_out`, `unscoped`,
        `untimed`, and rarer counts if they are not zero.
    gaps : int
        Events that were declared lost.
    holes : int
        Events that clocks refer to and that were not read.
    restarts, impossible, doubtful, handler_failures : int
        Absent if they are zero.
    unknown_orders : int
        Pairs of events whose order is unknown, since their clocks do not decide happened-before;
        absent if it is zero.
    draining : dict of str to dict of str to int
        The counts of the retiring patterns; absent if there are none.

    Examples
    --------
    >>> import ketal
    >>> program = ketal.compile('pattern Twice { event A = type == "a"; find next A A; }')
    >>> log = [ketal.Event(node="n", type="a", clock={"n": count}) for count in (1, 2, 2)]
    >>> summary: ketal.Summary = ketal.run(program, log).summary
    >>> summary["events"]["read"], summary["events"]["accepted"], summary["events"]["duplicates"]
    (3, 2, 1)
    >>> summary["patterns"]["Twice"]["matches"]
    1
    """

    events: dict[str, int]
    patterns: dict[str, PatternCounts]
    gaps: int
    holes: int
    restarts: NotRequired[int]
    impossible: NotRequired[int]
    doubtful: NotRequired[int]
    unknown_orders: NotRequired[int]
    handler_failures: NotRequired[int]
    draining: NotRequired[dict[str, dict[str, int]]]


def total(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of summaries, or of other nested counts by name, count by count."""
    out: dict[str, Any] = {}
    for summary in summaries:
        for name, value in summary.items():
            if isinstance(value, Mapping):
                out[name] = total([out.get(name, {}), value])
            else:
                out[name] = out.get(name, 0) + value
    return out
