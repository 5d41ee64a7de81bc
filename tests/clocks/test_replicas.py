"""Replicas that fork and join, and stores with siblings, against causal histories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.interval_tree import SEED, IntervalTreeClock, event, fork, join, leq, peek
from ketal.clocks.scheme import ForkingScheme, StampOrder
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.clocks.versions.version_vectors import StoreReplica
from tests.sampling import examples, sample

History = frozenset[int]
FORKING = [name for name in SCHEMES if isinstance(scheme_named(name), ForkingScheme)]


@pytest.mark.parametrize("name", FORKING)
@examples(50, 300)
@given(data=st.data())
def test_forking_and_joining_replicas_are_ordered_as_causal_histories(
    name: str, data: st.DataObject
) -> None:
    scheme = scheme_named(name)
    assert isinstance(scheme, ForkingScheme)
    replicas: list[tuple[Any, History]] = [(scheme.seed(), frozenset())]
    messages: list[tuple[Any, History]] = []
    stamps: list[tuple[int, Any, History]] = []
    for step in range(data.draw(st.integers(0, sample(60, 200)))):
        replica, history = replicas.pop(data.draw(st.integers(0, len(replicas) - 1)))
        match data.draw(st.sampled_from(["internal", "send", "receive", "fork", "join"])):
            case "fork" if len(replicas) < 7:
                replicas += [(one, history) for one in scheme.fork(replica)]
            case "join" if replicas:
                other, known = replicas.pop(data.draw(st.integers(0, len(replicas) - 1)))
                replicas.append((scheme.join(replica, other), history | known))
            case kind:
                received = []
                if kind == "receive" and messages:
                    header, known = messages.pop(data.draw(st.integers(0, len(messages) - 1)))
                    received, history = [header], history | known
                replica, stamp = scheme.event(replica, received)
                history |= {step}
                stamps.append((step, stamp, history))
                if kind == "send":
                    replica, header = scheme.header(replica, stamp, "n")
                    messages.append((header, history))
                replicas.append((replica, history))
    for one, a, known in stamps:
        for other, b, others in stamps:
            if one != other:
                after = StampOrder.AFTER if other in known else StampOrder.CONCURRENT
                assert scheme.compare(a, b) is (StampOrder.BEFORE if one in others else after)


def test_schemes_that_can_fork() -> None:
    assert FORKING == ["itc", "stamps"]


@given(data=st.data())
def test_interval_tree_clocks_of_changing_replicas_equal_causal_histories(
    data: st.DataObject,
) -> None:
    """They order replicas as causal histories do: Almeida et al., section 3."""
    replicas: list[tuple[IntervalTreeClock, History]] = [(SEED, frozenset())]
    stamps: list[tuple[IntervalTreeClock, History]] = []
    for step in range(data.draw(st.integers(0, sample(60, 200)))):
        at = data.draw(st.integers(0, len(replicas) - 1))
        clock, history = replicas[at]
        match data.draw(st.sampled_from(["event", "fork", "join", "receive"])):
            case "event":
                replicas[at] = event(clock), history | {step}
                stamps.append((peek(replicas[at][0]), replicas[at][1]))
            case "fork" if len(replicas) < 8:
                first, second = fork(clock)
                replicas[at] = first, history
                replicas.append((second, history))
            case "join" if len(replicas) > 1:
                del replicas[at]
                into = data.draw(st.integers(0, len(replicas) - 1))
                other, known = replicas[into]
                replicas[into] = join(other, clock), known | history
            case "receive" if stamps:
                message, known = data.draw(st.sampled_from(stamps))
                replicas[at] = event(join(clock, message)), history | known | {step}
                stamps.append((peek(replicas[at][0]), replicas[at][1]))
    whole = SEED.identity
    merged = replicas[0][0]
    for clock, _ in replicas[1:]:
        merged = join(merged, clock)
    assert merged.identity == whole
    for a, knows in stamps:
        for b, others in stamps:
            assert leq(a.events, b.events) == (knows <= others)


@given(data=st.data())
def test_store_keeps_the_siblings_of_causal_histories(data: st.DataObject) -> None:
    """Dotted version vectors lose no update and report no false conflict."""
    servers = [StoreReplica(name) for name in "stu"]
    expected: list[dict[int, History]] = [{} for _ in servers]  # sibling → its history
    reads: list[tuple[dict[str, int], History]] = [({}, frozenset())]
    for step in range(data.draw(st.integers(0, sample(40, 200)))):
        at = data.draw(st.integers(0, 2))
        match data.draw(st.sampled_from(["get", "put", "sync"])):
            case "get":
                values, context = servers[at].get()
                assert set(values) == set(expected[at])
                reads.append((context, frozenset().union(*expected[at].values())))
            case "put":
                context, known = data.draw(st.sampled_from(reads))
                servers[at] = servers[at].put(step, context)
                siblings = {v: history for v, history in expected[at].items() if v not in known}
                expected[at] = {**siblings, step: known | {step}}
            case "sync":
                other = data.draw(st.integers(0, 2))
                servers[at] = servers[at].sync(servers[other])
                every = {**expected[at], **expected[other]}
                expected[at] = {
                    v: history
                    for v, history in every.items()
                    if not any(v in others for w, others in every.items() if w != v)
                }
        assert {version.value for version in servers[at].siblings} == set(expected[at])
