"""Clocks that know of no other node, where a pattern asks which events happened before others."""

from __future__ import annotations

from typing import Any

import pytest

import ketal
from ketal import Event
from ketal.runtime.silence.vacuity import APART_MIN

TOLD = """\
pattern Told {
    order CausalOrder;
    event Write = type == "write";
    First = Write;
    Told = Causal(Write) && node != First.node;
    find any First Told;
}
"""
PLAIN = 'pattern Plain { event Write = type == "write"; check Write*; }'


def _log(nodes: str, count: int, *more: Event) -> list[Event]:
    each = count // len(nodes)
    return [
        *(Event(node, "write", {node: n}) for n in range(1, each + 1) for node in nodes), *more
    ]  # fmt: skip


def _said(summary: Any) -> list[str]:
    return [
        entry["message"]
        for counts in summary["patterns"].values()
        for entry in counts.get("vacuous", ())
        if entry["what"] == "clock"
    ]


def test_it_is_said_once_of_a_pattern_that_asks_for_causality() -> None:
    log = _log("abc", 60)
    (said,) = _said(ketal.run(ketal.compile(TOLD), log).summary)
    assert said.startswith("no clock of the events of 3 nodes knows another node")
    assert _said(ketal.run(ketal.compile(PLAIN), log).summary) == []


@pytest.mark.parametrize(
    ("nodes", "count"), [("a", 80), ("ab", APART_MIN - 2)], ids=["one node", "few events"]
)
def test_few_events_or_one_node_may_know_nothing_of_others(nodes: str, count: int) -> None:
    assert _said(ketal.run(ketal.compile(TOLD), _log(nodes, count)).summary) == []


def test_one_message_is_enough() -> None:
    late = Event("a", "read", {"a": 31, "b": 2})
    assert _said(ketal.run(ketal.compile(TOLD), _log("ab", 60, late)).summary) == []


def test_a_stream_says_it_too_and_goes_on_where_it_was() -> None:
    program, log = ketal.compile(TOLD), _log("ab", 60)
    monitor = ketal.Monitor(program)
    monitor.feed_many(log[:40])
    monitor = ketal.Monitor.restore(program, monitor.snapshot())
    monitor.feed_many(log[40:])
    assert len(_said(monitor.summary)) == 1
    monitor.feed(Event("b", "read", {"a": 5, "b": 31}))
    assert _said(monitor.summary) == []
    restored = ketal.Monitor.restore(program, monitor.snapshot())
    restored.feed_many([Event("a", "write", {"a": 31})])
    assert _said(restored.summary) == []
