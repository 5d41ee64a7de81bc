"""One matrix clock per domain for the delivery of messages to processes: the paper's theorem."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given

from benchmarks.domains import (
    Action,
    MessageHistory,
    global_stamp_bytes,
    simulate,
    stamp_bytes,
)
from ketal.clocks.matrices.domain_stamps import arrive, deliverable, new_process, send
from ketal.model.syntax import Topology
from ketal.operators.topology.domains import Domains, domains
from tests.operators.test_domains import random_topology, topology
from tests.sampling import chances, drawn


def global_domain(where: Topology) -> Domains:
    """Return a single domain with all nodes, for one global matrix clock."""
    return (frozenset(end for x in where.edges for end in (x.source, x.target)),)


def ordered(where: Topology) -> list[tuple[str, str]]:
    return [(x.source, x.target) for x in where.edges if not x.relaxed]


def schedule(rng: random.Random, edges: list[tuple[str, str]], sends_max: int = 14) -> list[Action]:
    """Draw sends along the edges, and arrivals of all messages in any order."""
    out: list[Action] = []
    travelling: list[int] = []
    prompt = rng.choice((0.3, 0.5, 0.7))
    for number in range(rng.randint(1, sends_max)):
        while travelling and rng.random() < prompt:
            # Prefer the latest message, so that messages are overtaken.
            index = -1 if rng.random() < 0.6 else rng.randrange(len(travelling))
            out.append(travelling.pop(index))
        out.append(rng.choice(edges))
        travelling.append(number)
    rng.shuffle(travelling)
    return out + travelling


def test_messages_of_a_sender_are_delivered_in_the_order_sent() -> None:
    group = [frozenset("pq")]
    sender, receiver = new_process("p", group), new_process("q", group)
    messages = []
    for number in range(3):
        sender, message = send(sender, "q", number)
        messages.append(message)
    numbers = []
    for arriving in (0, 2, 1):
        receiver, out = arrive(receiver, messages[arriving])
        numbers.append([message.number for message in out])
    assert numbers == [[0], [], [1, 2]]


def delivered(history: MessageHistory) -> list[int]:
    return [moment.number for moment in history.moments if moment.did == "delivered"]


def overtakings(history: MessageHistory) -> set[tuple[int, int]]:
    """Return the pairs of messages that violate global causal delivery, by its definition.

    (m, n): both are sent to one process, the send of m happened before that of n, and n was
    delivered before m.
    """
    past: list[set[int]] = []
    latest: dict[str, int] = {}
    sent: dict[int, int] = {}
    delivered: dict[int, int] = {}
    for i, moment in enumerate(history.moments):
        causes = {latest[moment.process]} if moment.process in latest else set()
        if moment.did == "delivered":
            causes.add(sent[moment.number])
        past.append(causes.union(*(past[cause] for cause in causes)))
        latest[moment.process] = i
        (sent if moment.did == "sent" else delivered)[moment.number] = i
    never = len(history.moments)
    return {
        (m.number, n.number)
        for n in history.messages
        for m in history.messages
        if m.receiver == n.receiver
        and n.number in delivered
        and sent[m.number] in past[sent[n.number]]
        and delivered.get(m.number, never) > delivered[n.number]
    }


def paths(edges: list[tuple[str, str]], source: str, target: str) -> Iterator[tuple[str, ...]]:
    """Yield the elementary paths from `source` to `target`."""
    left: list[tuple[str, ...]] = [(source,)]
    while left:
        path = left.pop()
        if path[-1] == target:
            yield path
        else:
            left += [(*path, q) for p, q in edges if p == path[-1] and q not in path]


def race(path: tuple[str, ...]) -> list[Action]:
    """Return a slow message from end to end, and a chain of fast messages that overtakes it."""
    chain: list[Action] = []
    for number, hop in enumerate(itertools.pairwise(path), 1):
        chain += [hop, number]
    return [(path[0], path[-1]), *chain, 0]


# --- the protocol ------------------------------------------------------------------


def test_message_is_stamped_for_the_common_domains_of_its_ends() -> None:
    groups = domains(topology("p>q q>r p>r q>s s>q").edges)
    assert [sorted(d) for d in groups] == [["p", "q", "r"], ["q", "s"]]
    q, message = send(new_process("q", groups), "s", 0)
    assert [sorted(d) for d in message.stamps] == [["q", "s"]]
    assert q.sent[frozenset("qs")] == {("q", "s"): 1}
    assert q.sent[frozenset("pqr")] == {}


def test_overtaking_message_is_held_back() -> None:
    groups = domains(topology("p>q q>r p>r").edges)
    p, slow = send(new_process("p", groups), "r", 0)
    p, news = send(p, "q", 1)
    q, (first,) = arrive(new_process("q", groups), news)
    assert first == news
    assert q.sent[frozenset("pqr")] == {("p", "r"): 1, ("p", "q"): 1}
    q, fast = send(q, "r", 2)
    r, out = arrive(new_process("r", groups), fast)
    assert out == ()
    assert r.waiting == (fast,)
    assert not deliverable(r, fast)
    r, out = arrive(r, slow)
    assert out == (slow, fast)
    assert r.waiting == ()


def test_relaxed_edge_has_no_stamp_unless_its_ends_share_a_domain() -> None:
    groups = domains(topology("p>q~ q>r").edges)
    assert send(new_process("p", groups), "q", 0)[1].stamps == {}
    groups = domains(topology("p>q~ p>r r>q q>p").edges)
    assert send(new_process("p", groups), "q", 0)[1].stamps != {}


def test_overtaking_is_detected() -> None:
    assert overtakings(simulate((), race(("p", "q", "r")))) == {(0, 2)}
    assert overtakings(simulate((), [("p", "q"), ("p", "q"), 1])) == {(0, 1)}
    assert overtakings(simulate((), [("p", "q"), ("r", "q"), 1, 0])) == set()


# --- the theorem -------------------------------------------------------------------


def test_causal_delivery_within_domains_gives_global_causal_delivery() -> None:
    """Section 4.1: causal delivery in each domain implies it globally; all messages arrive."""
    overtaken = 0

    @drawn(450, 10_000)
    def holds(rng: random.Random) -> None:
        nonlocal overtaken
        where = random_topology(rng, 6)
        actions = schedule(rng, ordered(where))
        history = simulate(domains(where.edges), actions)
        assert overtakings(history) == set()
        assert sorted(delivered(history)) == list(range(len(history.messages)))
        overtaken += bool(overtakings(simulate((), actions)))

    assert overtaken > 200, "the schedules are such that it takes a protocol"


@given(chances())
def test_domains_hold_back_the_same_messages_as_a_global_matrix_clock(rng: random.Random) -> None:
    where = random_topology(rng, 6)
    actions = schedule(rng, ordered(where))
    assert (
        simulate(domains(where.edges), actions).moments
        == simulate(global_domain(where), actions).moments
    )


@given(chances())
def test_relaxed_messages_do_not_break_other_chains(rng: random.Random) -> None:
    """A violation needs a relaxed edge: chains along other edges are not overtaken."""
    where = random_topology(rng, 6, relaxed=0.4)
    strict = set(ordered(where))
    actions = schedule(rng, [(x.source, x.target) for x in where.edges])
    history = simulate(domains(where.edges), actions)
    assert sorted(delivered(history)) == list(range(len(history.messages)))
    messages = tuple(m for m in history.messages if (m.sender, m.receiver) in strict)
    numbers = {m.number for m in messages}
    moments = tuple(m for m in history.moments if m.number in numbers)
    assert overtakings(MessageHistory(messages, moments)) == set()


def test_without_one_domain_a_violation_is_found() -> None:
    """A violation exists iff an elementary path of an edge then lies in no domain."""
    broken = 0

    @drawn(130, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal broken
        where = random_topology(rng, 5)
        edges = ordered(where)
        groups = domains(where.edges)
        for gone in groups:
            rest = tuple(domain for domain in groups if domain != gone)
            bare = [
                path
                for edge in edges
                for path in paths(edges, *edge)
                if not any(domain.issuperset(path) for domain in rest)
            ]
            for path in bare:
                last = len(path) - 1
                assert (0, last) in overtakings(simulate(rest, race(path)))
                assert overtakings(simulate(groups, race(path))) == set()
            if not bare:
                # The other domains together cover its paths.
                assert overtakings(simulate(rest, schedule(rng, edges))) == set()
            broken += bool(bare)

    assert broken > 150


# --- sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "edge", "expected"),
    [
        ("p>q q>r", ("p", "q"), 2**2 * 8),
        ("p>q q>r p>r", ("q", "r"), 3**2 * 8),
        # q and r share {a, q, r} and {q, r, s}: two stamps.
        ("a>q q>r a>r r>s q>s", ("q", "r"), (3**2 + 3**2) * 8),
        ("p>q~ q>r", ("p", "q"), 0),
    ],
)
def test_stamp_bytes(text: str, edge: tuple[str, str], expected: int) -> None:
    assert stamp_bytes(domains(topology(text).edges), *edge) == expected


def test_size_of_a_matrix_clock_of_the_76_processes_of_section_2() -> None:
    """The paper has no matrix, and one size: "k × 76²", where k is the bytes of an entry."""
    assert global_stamp_bytes(76) == 8 * 76**2 == 46_208


def test_global_matrix_clock_is_a_single_domain() -> None:
    where = topology("p>q q>r r>s")
    assert stamp_bytes(global_domain(where), "p", "q") == global_stamp_bytes(4) == 4**2 * 8
