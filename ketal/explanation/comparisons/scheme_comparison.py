"""Compares timestamping schemes on a log: the cost of their stamps, and their answers.

Every scheme stamps the same events (`ketal.logs.restamping`). Its answer about a pair of events is
right if it agrees with the vector clocks, wrong if it disagrees, and unknown if the stamps do not
decide. Some schemes, such as Lamport's, order the stamps of concurrent events, too. These pairs are
false orders: reading "less" as "happened before" would be wrong for them.

The one rule: every scheme is asked about the same pairs.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import comb, isqrt
from statistics import median
from typing import Any

from ketal.clocks.scheme import Scheme, StampOrder
from ketal.errors import SettingError
from ketal.logs.restamping import StampedExecution, restamped
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.limits import Limits
from ketal.model.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeReport:
    """The cost of a scheme on an execution, and its answers."""

    scheme: str
    bytes_median: float
    bytes_max: int
    """The size of a stamp in bytes."""
    stamp_us: float
    compare_us: float
    """Processor time, in microseconds, to stamp an event and to order two stamps."""
    right: int
    wrong: int
    unknown: int
    """How many pairs of events have such an answer."""
    false_orders: int
    """How many pairs of concurrent events have ordered stamps."""


@dataclass(frozen=True, slots=True)
class SchemeComparison:
    """Several schemes compared on an execution."""

    execution: str
    """The execution's name; empty if the log is not divided."""
    events: int
    pairs: int
    """How many pairs of events were compared by each scheme."""
    of_pairs: int
    """How many pairs of events there are."""
    reports: tuple[SchemeReport, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The reason of each scheme that was left out, by the scheme's name."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        out: dict[str, Any] = {"execution": self.execution} if self.execution else {}
        out |= {"events": self.events, "pairs": self.pairs, "of_pairs": self.of_pairs}
        out["schemes"] = [asdict(report) for report in self.reports]
        return {**out, "left_out": dict(self.left_out)} if self.left_out else out

    def lines(self) -> Iterator[str]:
        """Yield it as text: a table."""
        if self.execution:
            yield f"execution {self.execution}"
        pairs = counted(self.pairs, "pair")
        if self.pairs != self.of_pairs:
            pairs = f"{self.pairs:,} of {self.of_pairs:,} pairs, sampled at random"
        yield f"{self.events:,} events, {pairs}"
        table = [_HEADS, *map(self._cells, self.reports)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for name, *row in table:
            cells = (cell.rjust(width) for cell, width in zip(row, widths[1:], strict=True))
            yield "  ".join((name.ljust(widths[0]), *cells))
        for name, why in self.left_out.items():
            yield f"{name} omitted: {why}"

    def _cells(self, report: SchemeReport) -> tuple[str, ...]:
        shares = (report.right, report.wrong, report.unknown, report.false_orders)
        return (
            report.scheme,
            f"{report.bytes_median:,.0f}",
            f"{report.bytes_max:,}",
            f"{report.stamp_us:,.1f}",
            f"{report.compare_us:,.1f}",
            *(_share(count, self.pairs) for count in shares),
        )


_HEADS = (
    "scheme", "bytes: median", "max", "stamp us", "compare us", "right", "wrong", "unknown",
    "false orders",
)  # fmt: skip


def _share(count: int, total: int) -> str:
    """Return a share in per cent; only exact shares are rounded to 0 or 100."""
    if count in (0, total):
        return "100 %" if count else "0"
    return f"{min(max(100 * count / total, 0.1), 99.9):.1f} %"


def compare_schemes(
    events: Sequence[Event], schemes: Sequence[Scheme[Any]], limits: Limits, name: str = ""
) -> SchemeComparison:
    """Stamp an execution with each scheme, and compare the costs and the answers.

    Each event is given once. A scheme whose stamps would have more than `stamped_entries_max`
    entries is left out; of more pairs than `stamp_pairs_max`, that many are sampled, the same ones
    in each call.

    A SettingError if there are fewer than two events, or all schemes are left out.
    """
    if len(events) < 2:
        raise SettingError(
            f"comparing schemes requires at least 2 events; the log has {len(events)}"
        )
    of_pairs = comb(len(events), 2)
    pairs = _sample_pairs(len(events), min(of_pairs, limits.stamp_pairs_max))
    reports: list[SchemeReport] = []
    left_out: dict[str, str] = {}
    for scheme in schemes:
        try:
            reports.append(_report(scheme, events, pairs, limits))
        except SettingError as fault:
            left_out[scheme.name] = str(fault)
    if not reports:
        raise SettingError(next(iter(left_out.values())))
    return SchemeComparison(name, len(events), len(pairs), of_pairs, tuple(reports), left_out)


def _sample_pairs(events: int, count: int) -> list[tuple[int, int]]:
    """Draw pairs of the numbers below `events`, each at most once; the smaller number is first."""
    pairs = []
    for rank in random.Random(0).sample(range(comb(events, 2)), count):
        # The pairs in the order of their second number; `second` pairs come before those of it.
        second = (1 + isqrt(1 + 8 * rank)) // 2
        pairs.append((rank - comb(second, 2), second))
    return pairs


def _report(
    scheme: Scheme[Any],
    events: Sequence[Event],
    pairs: Sequence[tuple[int, int]],
    limits: Limits,
) -> SchemeReport:
    stamped = restamped(events, scheme, limits)
    begin = time.process_time()
    scheme.stamped(stamped.happenings)
    stamp_us = (time.process_time() - begin) * 1e6 / len(events)
    sizes = [len(scheme.encode(stamp)) for stamp in stamped.stamps]
    order = scheme.order(stamped.stamps)
    begin = time.process_time()
    for first, second in pairs:
        order(stamped.stamps[first], stamped.stamps[second])
    compare_us = (time.process_time() - begin) * 1e6 / len(pairs)
    answers = Counter(
        answer for first, second in pairs for answer in _answers(stamped, order, first, second)
    )
    return SchemeReport(
        scheme=scheme.name,
        bytes_median=median(sizes),
        bytes_max=max(sizes),
        stamp_us=round(stamp_us, 3),
        compare_us=round(compare_us, 3),
        right=answers["right"],
        wrong=answers["wrong"],
        unknown=answers["unknown"],
        false_orders=answers["false order"],
    )


def _answers(
    stamped: StampedExecution, order: Callable[[Any, Any], bool], first: int, second: int
) -> Iterator[str]:
    """Yield `right`, `wrong` or `unknown` for a pair of events, and `false order` if it is one."""
    a, b = stamped.stamps[first], stamped.stamps[second]
    # The events are in a linear extension, so the second is never before the first.
    before = happened_before(stamped.events[first], stamped.events[second])
    answer = stamped.scheme.relation(order, a, b)
    if answer is StampOrder.UNKNOWN:
        yield "unknown"
    else:
        right = StampOrder.BEFORE if before else StampOrder.CONCURRENT
        yield "right" if answer is right else "wrong"
    if not before and (order(a, b) or order(b, a)):
        yield "false order"
