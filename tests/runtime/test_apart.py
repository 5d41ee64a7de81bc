"""Clocks without entries of other nodes, under a pattern that depends on happened-before."""

from __future__ import annotations

from typing import Any

import pytest

import ketal
from ketal import Event
from ketal.runtime.silence.vacuity import APART_MIN

CAUSAL_PATTERN = """\
pattern Told {
    order CausalOrder;
    event Write = type == "write";
    First = Write;
    Told = Causal(Write) && node != First.node;
    find any First Told;
}
"""
PLAIN_PATTERN = 'pattern Plain { event Write = type == "write"; check Write*; }'


def _log(nodes: str, count: int, *more: Event) -> list[Event]:
    each = count // len(nodes)
    return [
        *(Event(node, "write", {node: n}) for n in range(1, each + 1) for node in nodes), *more
    ]  # fmt: skip


def _clock_messages(summary: Any) -> list[str]:
    return [
        entry["message"]
        for counts in summary["patterns"].values()
        for entry in counts.get("vacuous", ())
        if entry["what"] == "clock"
    ]


def test_a_pattern_that_needs_causality_is_warned_of_once() -> None:
    log = _log("abc", 60)
    (message,) = _clock_messages(ketal.run(ketal.compile(CAUSAL_PATTERN), log).summary)
    assert message.startswith("no clock of the events of 3 nodes has an entry for another node")
    assert _clock_messages(ketal.run(ketal.compile(PLAIN_PATTERN), log).summary) == []


@pytest.mark.parametrize(
    ("nodes", "count"), [("a", 80), ("ab", APART_MIN - 2)], ids=["one node", "few events"]
)
def test_few_events_or_one_node_may_have_no_entries_of_others(nodes: str, count: int) -> None:
    assert (
        _clock_messages(ketal.run(ketal.compile(CAUSAL_PATTERN), _log(nodes, count)).summary) == []
    )


def test_incarnations_of_one_node_may_have_no_entries_of_each_other() -> None:
    log = _log("a", 60)
    again = [Event("a", "write", event.clock, data={"again": True}) for event in log]
    verdicts = ketal.run(ketal.compile(CAUSAL_PATTERN), log + again)
    assert verdicts.summary["restarts"] == 1
    assert _clock_messages(verdicts.summary) == []


def test_one_message_suppresses_the_warning() -> None:
    late = Event("a", "read", {"a": 31, "b": 2})
    assert (
        _clock_messages(ketal.run(ketal.compile(CAUSAL_PATTERN), _log("ab", 60, late)).summary)
        == []
    )


def test_a_stream_has_the_warning_too_and_resumes_its_counts() -> None:
    program, log = ketal.compile(CAUSAL_PATTERN), _log("ab", 60)
    monitor = ketal.Monitor(program)
    monitor.feed_many(log[:40])
    monitor = ketal.Monitor.restore(program, monitor.snapshot())
    monitor.feed_many(log[40:])
    assert len(_clock_messages(monitor.summary)) == 1
    monitor.feed(Event("b", "read", {"a": 5, "b": 31}))
    assert _clock_messages(monitor.summary) == []
    restored = ketal.Monitor.restore(program, monitor.snapshot())
    restored.feed_many([Event("a", "write", {"a": 31})])
    assert _clock_messages(restored.summary) == []
