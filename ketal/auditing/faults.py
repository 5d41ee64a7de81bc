"""The result of an audit: the codes, a fault, and all faults of a log.

The one rule: a code keeps its meaning; `docs/audit.md` has an example of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ketal.auditing.log_statistics import Statistics
from ketal.errors import at_place
from ketal.model.wording import counted, place_at, preformatted

HINTS = {
    # own entry missing
    "A001": "increment the node's own entry before stamping the event; the first event has 1",
    # no vector clock
    "A002": (
        "a clock maps nodes to counters from 0; pass --field clock=PATH to name its field, or "
        "--rebuild KEYS to compute clocks from messages"
    ),
    # own entry wrong
    "A003": "increment the node's own entry by one at each event; give a restarted node a new name",
    # hole
    "A004": (
        "the event was lost or not logged; a pattern with `gap` in its `order` treats it as lost"
    ),
    # dot used twice
    "A005": (
        "increment the node's own entry at each event; otherwise two events get the same stamp; "
        "if the log holds several executions, audit each in a log of its own"
    ),
    # unknown event
    "A006": "check whether the event was lost, its file is truncated, or the entry is wrong",
    # unknown node
    "A007": "audit the logs of all nodes together, or check where the name comes from",
    # not transitive
    "A008": "at a receive, merge every entry of the message's clock, taking the maximum",
    # send unknown
    "A009": "merge the clock of the message into the receiver's before stamping the receive",
    # entry goes backwards
    "A010": "merge clocks by taking the maximum; never overwrite a clock or drop an entry",
    # restart
    "A011": (
        "name the incarnations of a node, for example A and A#2, or number them in an attribute "
        "`incarnation`; if the log holds several executions, audit each in a log of its own"
    ),
}
"""By code of a fault, how to mend it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a log.

    Attributes
    ----------
    file, line
        The place of the event in the log; empty and None for an event that was passed in code.
    code : str
        `A` and three digits; stable.
    message, hint : str
        One sentence about the fault, and one about how to mend it.
    dot : str
        The dot of the faulty event; empty if unknown.
    execution : str
        The execution's name if the log has several, else empty.
    severity : str
        `error`.

    Examples
    --------
    >>> import ketal
    >>> log = [ketal.Event(node="a", type="send", clock={"a": 1}),
    ...        ketal.Event(node="b", type="receive", clock={"a": 2, "b": 1})]
    >>> audit = ketal.audit(log)
    >>> (fault,) = audit.faults
    >>> fault.code, fault.dot, fault.severity
    ('A006', 'b@1', 'error')
    >>> print(fault)
    error[A006]: b@1 refers to a@2, but the last event of a in the log is a@1
    """

    file: str
    line: int | None
    code: str
    message: str
    hint: str
    dot: str = ""
    execution: str = ""
    severity: str = "error"

    def to_dict(self) -> dict[str, Any]:
        """Return the fault as its JSON object.

        Examples
        --------
        >>> import ketal
        >>> log = [ketal.Event(node="a", type="send", clock={"a": 1}),
        ...        ketal.Event(node="b", type="receive", clock={"a": 2, "b": 1})]
        >>> audit = ketal.audit(log)
        >>> as_json = audit.faults[0].to_dict()
        >>> as_json["code"], as_json["dot"]
        ('A006', 'b@1')
        """
        out: dict[str, Any] = {
            "file": self.file,
            "line": self.line,
            # A record begins in column 1; the message names the entry.
            "column": None if self.line is None else 1,
            "end_line": None,
            "end_column": None,
            "severity": self.severity,
            "code": self.code,
            "pattern": "",
            "message": self.message,
            "hint": self.hint,
            "dot": self.dot or None,
        }
        if self.execution:
            out["execution"] = self.execution
        return out

    def __str__(self) -> str:
        which = f" (execution {self.execution})" if self.execution else ""
        fault = f"{self.severity}[{self.code}]: {self.message}{which}"
        return at_place(place_at(self.file, self.line or 0), fault)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit.

    Attributes
    ----------
    faults : tuple of Fault
        The faults in file order.
    statistics : Statistics
        Numbers about the log.

    Examples
    --------
    >>> import ketal
    >>> log = [ketal.Event(node="a", type="send", clock={"a": 1}),
    ...        ketal.Event(node="b", type="receive", clock={"a": 2, "b": 1})]
    >>> audit = ketal.audit(log)
    >>> audit.clean, len(audit.faults)
    (False, 1)
    >>> audit.statistics.events, audit.statistics.concurrent_pairs
    (2, 0)
    >>> print(audit)
    error[A006]: b@1 refers to a@2, but the last event of a in the log is a@1
    1 fault in 2 events of 2 nodes
    """

    faults: tuple[Fault, ...]
    statistics: Statistics

    @property
    def clean(self) -> bool:
        """Return whether the log can be a vector-clocked execution."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return faults and statistics as plain data.

        Examples
        --------
        >>> import ketal
        >>> audit = ketal.audit([ketal.Event(node="a", type="send", clock={"a": 1})])
        >>> audit.to_dict()["faults"], audit.to_dict()["statistics"]["events"]
        ([], 1)
        """
        return {
            "faults": [fault.to_dict() for fault in self.faults],
            "statistics": self.statistics.to_dict(),
        }

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults]
        number = counted(len(lines), "fault")
        events = counted(self.statistics.events, "event")
        nodes = counted(self.statistics.nodes, "node")
        return "\n".join([*lines, f"{number} in {events} of {nodes}"])

    def _repr_html_(self) -> str:
        return preformatted("\n".join((*fault_lines(self), *statistics_lines(self))))


def fault_lines(audit: Audit) -> Iterator[str]:
    """Yield each fault as `ketal audit` prints it; a hint follows the first fault that has it."""
    hints: set[str] = set()
    for fault in audit.faults:
        yield str(fault)
        if fault.hint not in hints:
            hints.add(fault.hint)
            yield f"  hint: {fault.hint}"


def statistics_lines(audit: Audit) -> Iterator[str]:
    """Yield the statistics and the number of faults, as `ketal audit` prints them."""
    parts = audit.statistics.executions or {"": audit.statistics}
    for name, statistics in parts.items():
        if name:
            yield f"execution {name}"
        yield from _execution_lines(statistics)
    if audit.faults:
        yield counted(len(audit.faults), "fault")
    elif audit.statistics.events:
        yield "no faults: this can be a vector-clocked execution"


def _execution_lines(numbers: Statistics) -> Iterator[str]:
    yield f"{counted(numbers.events, 'event')} of {counted(numbers.nodes, 'node')}"
    if numbers.duplicates:
        yield f"{counted(numbers.duplicates, 'duplicate')}, dropped"
    if numbers.rejected:
        yield f"{numbers.rejected:,} rejected; the first is {numbers.first_rejected}"
    yield (
        f"{counted(numbers.concurrent_pairs, 'concurrent pair')}, "
        f"{numbers.ordered_pairs:,} ordered: "
        f"{numbers.concurrency_ratio:.1%} concurrent"
    )
    yield f"longest causal chain: {counted(numbers.longest_chain, 'event')}"
    yield (
        f"in file order: {counted(numbers.inversions, 'causal inversion')} "
        f"({counted(numbers.inverted_pairs, 'pair')}), at most "
        f"{counted(numbers.held_back_max, 'event')} held back in a replay"
    )
    if numbers.messages is not None:
        others = (f"{n:,} {what}" for what, n in numbers.messages.items() if what != "pairs")
        yield ", ".join([f"messages: {counted(numbers.messages['pairs'], 'pair')}", *others])
