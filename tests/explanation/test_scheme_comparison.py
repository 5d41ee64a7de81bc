"""The answers of schemes on random executions, compared with causal histories."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

import ketal
from ketal.clocks.causal_history import CausalHistories
from ketal.clocks.inexact.lamport import LamportClocks
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.errors import SettingError
from ketal.explanation.comparisons.scheme_comparison import (
    SchemeReport,
    _sample_pairs,
    compare_schemes,
)
from ketal.logs.restamping import restamped
from tests.clocks.executions import SampleRun, sample_runs
from tests.sampling import examples
from tests.work import counted_calls

NAMES = [*SCHEMES, "plausible:1", "plausible:2"]


def _events(run: SampleRun) -> list[ketal.Event]:
    return [
        ketal.Event(node=node, type="e", clock=clock, time=time_us / 1e6)
        for (node, clock), time_us in zip(run.clocks(), run.times_us, strict=True)
    ]


def _reports(events: list[ketal.Event]) -> dict[str, SchemeReport]:
    schemes = [scheme_named(name) for name in NAMES]
    compared = compare_schemes(events, schemes, ketal.Limits())
    assert compared.pairs == compared.of_pairs == len(events) * (len(events) - 1) // 2
    return {report.scheme: report for report in compared.reports}


@examples(20, 300)
@given(sample_runs().filter(lambda run: len(run.nodes) > 1))
def test_false_orders_are_counted_and_exact_schemes_are_never_wrong(run: SampleRun) -> None:
    events = _events(run)
    reports = _reports(events)
    assert list(reports) == NAMES
    histories = restamped(events, CausalHistories())
    known = [stamp.dots for stamp in histories.stamps]
    concurrent = {(a, b) for b in range(len(known)) for a in range(b) if not known[a] < known[b]}
    for name, report in reports.items():
        scheme = scheme_named(name)
        stamps = restamped(events, scheme).stamps
        order = scheme.order(stamps)
        false_orders = sum(order(stamps[a], stamps[b]) for a, b in concurrent) + sum(
            order(stamps[b], stamps[a]) for a, b in concurrent
        )
        pairs = len(known) * (len(known) - 1) // 2
        assert report.false_orders == false_orders
        assert report.wrong == 0
        assert report.right + report.unknown == pairs
        assert report.unknown >= false_orders
        assert not scheme.decides or report.unknown == false_orders == 0
    counters = [stamp.entries[0] for stamp in restamped(events, LamportClocks()).stamps]
    unequal = sum(counters[a] != counters[b] for a, b in concurrent)
    assert reports["lamport"].false_orders == reports["plausible:1"].false_orders == unequal


def test_schemes_that_share_entries_have_false_orders() -> None:
    """Three nodes without messages: all pairs of events of two nodes are concurrent."""
    run = SampleRun([*"abc" * 2], [()] * 6, [0] * 6)
    reports = _reports(_events(run))
    counts = {name: (one.right, one.unknown, one.false_orders) for name, one in reports.items()}
    # The first events of a, b and c have counter 1, the second ones counter 2.
    assert counts["lamport"] == (9, 6, 6)
    # Only a and c share an entry: a@1 with c@2, and c@1 with a@2.
    assert counts["plausible:2"] == (13, 2, 2)
    assert counts["plausible"] == counts["vector"] == (15, 0, 0)


def test_log_without_two_events_is_an_error() -> None:
    with pytest.raises(SettingError, match="requires at least 2 events; the log has 1"):
        compare_schemes([ketal.Event(node="a", type="e", clock={"a": 1})], [], ketal.Limits())


def test_pairs_are_drawn_once_each_without_repeated_attempts() -> None:
    for events in range(2, 40):
        every = list(combinations(range(events), 2))
        assert sorted(_sample_pairs(events, len(every))) == every
    pairs, calls = counted_calls(lambda: _sample_pairs(100, 4_949))
    assert len(set(pairs)) == 4_949
    assert calls < 20 * 4_949
