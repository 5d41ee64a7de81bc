"""Stamps of autonomous causality, against a transitive closure of Definition 4.1 without stamps.

Baquero and Moura, "Causality in Autonomous Mobile Systems".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ketal.clocks.autonomous import (
    ROOT,
    AutonomousStamp,
    AutonomousStamps,
    combine,
    is_ancestor,
)
from ketal.clocks.scheme import StampOrder
from ketal.errors import EventError
from tests.sampling import examples, sample

EventName = tuple[int, int]
"""An event: the number of its instance and its index there."""

SCHEME = AutonomousStamps()


def internal(instance: AutonomousStamp) -> AutonomousStamp:
    """Return the instance after an internal event."""
    return SCHEME.event(instance)[0]


def duplicate(
    instance: AutonomousStamp,
) -> tuple[AutonomousStamp, AutonomousStamp, AutonomousStamp]:
    """Return the stamp of a duplication, the last event of an instance, and the two new ones."""
    last = internal(instance)
    return last, *SCHEME.fork(last)


def ancestors(stamp: AutonomousStamp) -> frozenset[str]:
    """Return A(I), the least solution of its equation: the stamp's instance and its ancestors."""
    other = dict(stamp.combined) | {on: ended for ended, on in stamp.combined}
    known: set[str] = set()
    waiting = [stamp.identifier]
    while waiting:
        identifier = waiting.pop()
        # A known identifier stands for all of its initial segments, too.
        while identifier and identifier not in known:
            known.add(identifier)
            if identifier in other:
                waiting.append(other[identifier])
            identifier = identifier[:-1]
    return frozenset(known)


@dataclass
class InstanceHistory:
    """A history of instances, which are identified by numbers: the root is 0.

    Attributes
    ----------
    operations : list of tuple
        `(i,)` is an internal event of i, `(i, (j, k))` a duplication of i into j and k,
        `(m, n, o)` a combination of m and n into o.
    """

    operations: list[tuple[Any, ...]] = field(default_factory=list)

    def stamps(self) -> dict[EventName, AutonomousStamp]:
        """Return the stamp of each event by Definition 5.1, virtual events included."""
        instances = {0: ROOT}
        out = {(0, 0): ROOT}
        for operation in self.operations:
            match operation:
                case (i,):
                    instances[i] = internal(instances[i])
                    out[i, instances[i].index] = instances[i]
                case (i, (j, k)):
                    last, instances[j], instances[k] = duplicate(instances.pop(i))
                    out |= {(i, last.index): last, (j, 0): instances[j], (k, 0): instances[k]}
                case (m, n, o):
                    instances[o] = combine(instances.pop(m), instances.pop(n))
                    out[o, 1] = instances[o]
        return out

    def pasts(self, *, virtual: bool) -> dict[EventName, set[EventName]]:
        """Return the events that happened before each event, by Definition 4.1.

        Parameters
        ----------
        virtual : bool
            Whether the virtual event at the beginning of an instance counts as an event of it.
        """
        events: dict[int, list[EventName]] = {0: [(0, 0)]}
        links: list[tuple[int, int]] = []  # (instance that ends, instance that begins)
        for operation in self.operations:
            match operation:
                case (i,):
                    events[i].append((i, events[i][-1][1] + 1))
                case (i, (j, k)):
                    events[i].append((i, events[i][-1][1] + 1))
                    events |= {j: [(j, 0)], k: [(k, 0)]}
                    links += [(i, j), (i, k)]
                case (m, n, o):
                    events[o] = [(o, 1)]
                    links += [(m, o), (n, o)]
        if not virtual:
            events = {i: [one for one in own if one[1]] for i, own in events.items()}
        direct: dict[EventName, list[EventName]] = {
            one: [] for own in events.values() for one in own
        }
        for own in events.values():
            for before, after in pairwise(own):
                direct[after].append(before)
        for x, y in links:
            if events[x] and events[y]:
                direct[events[y][0]].append(events[x][-1])
        return {one: set(_reachable(direct, one)) for one in direct}


def _reachable(direct: dict[EventName, list[EventName]], of: EventName) -> Iterator[EventName]:
    """Yield each node that is reachable, once; the graph has no cycles."""
    seen: set[EventName] = set()
    waiting = list(direct[of])
    while waiting:
        if (one := waiting.pop()) not in seen:
            seen.add(one)
            waiting += direct[one]
            yield one


@st.composite
def instance_histories(draw: st.DrawFn) -> InstanceHistory:
    """Draw histories with up to 10 instances at the same time."""
    history, live, count = InstanceHistory(), [0], 1
    for _ in range(draw(st.integers(0, sample(40, 200)))):
        i = live.pop(draw(st.integers(0, len(live) - 1)))
        match draw(st.sampled_from(["internal", "duplicate", "combine"])):
            case "duplicate" if len(live) < 9:
                history.operations.append((i, (count, count + 1)))
                live += [count, count + 1]
                count += 2
            case "combine" if live:
                n = live.pop(draw(st.integers(0, len(live) - 1)))
                history.operations.append((i, n, count))
                live.append(count)
                count += 1
            case _:
                history.operations.append((i,))
                live.append(i)
    return history


TWO_COMBINED_AT_ONCE = InstanceHistory([(0, (1, 2)), (1, 2, 3)])


@examples(40, 200)
@given(history=instance_histories())
@example(history=TWO_COMBINED_AT_ONCE)
def test_lemma_5_1(history: InstanceHistory) -> None:
    """The lemma holds for all distinct events, including those of ended instances."""
    stamps, pasts = history.stamps(), history.pasts(virtual=True)
    assert stamps.keys() == pasts.keys()
    for e, a in stamps.items():
        for f, b in stamps.items():
            if e != f:
                assert a != b
                assert SCHEME.precedes(a, b) == (e in pasts[f])
                concurrent = e not in pasts[f] and f not in pasts[e]
                assert (SCHEME.compare(a, b) is StampOrder.CONCURRENT) == concurrent
            else:
                assert not SCHEME.precedes(a, b)


def test_lemma_5_1_needs_the_virtual_event_of_an_instance_without_others() -> None:
    """The root is duplicated and its halves are combined, without other events in between."""
    stamps = TWO_COMBINED_AT_ONCE.stamps()
    duplication, combination = (0, 1), (3, 1)
    assert SCHEME.precedes(stamps[duplication], stamps[combination])
    assert duplication not in TWO_COMBINED_AT_ONCE.pasts(virtual=False)[combination]
    assert duplication in TWO_COMBINED_AT_ONCE.pasts(virtual=True)[combination]


@examples(40, 200)
@given(history=instance_histories())
def test_lemma_5_1_without_virtual_events_if_every_instance_has_an_event(
    history: InstanceHistory,
) -> None:
    """Virtual events are only needed for instances that are combined before any event."""
    operations: list[tuple[Any, ...]] = []
    started = set()
    for operation in history.operations:
        if len(operation) == 3:
            operations += [(i,) for i in operation[:2] if i not in started]
            started.add(operation[2])
        started.add(operation[0])
        operations.append(operation)
    busy = InstanceHistory(operations)
    stamps, pasts = busy.stamps(), busy.pasts(virtual=False)
    for f, past in pasts.items():
        assert past == {e for e in pasts if SCHEME.precedes(stamps[e], stamps[f])}


@examples(40, 200)
@given(history=instance_histories())
def test_identifiers_of_instances_are_unique_and_combined_once(
    history: InstanceHistory,
) -> None:
    stamps = history.stamps()
    assert len({stamp.identifier for stamp in stamps.values()}) == len({i for i, _ in stamps})
    pairs = {pair for stamp in stamps.values() for pair in stamp.combined}
    assert set(Counter(name for pair in pairs for name in pair).values()) <= {1}


@examples(40, 200)
@given(history=instance_histories())
def test_ancestors_are_the_least_solution_of_their_equation(history: InstanceHistory) -> None:
    """The least solution is computed by iterating the equation from empty sets."""
    for stamp in history.stamps().values():
        eq = {a: b for pair in stamp.combined for a, b in (pair, pair[::-1])}
        solution: dict[str, set[str]] = {name: set() for name in (stamp.identifier, *eq)}
        while True:
            following = {}
            for name in solution:
                segments = {name[:end] for end in range(1, len(name) + 1)}
                reached = (solution[eq[one]] for one in segments if one in eq)
                following[name] = segments.union(*reached)
            if following == solution:
                break
            solution = following
        assert ancestors(stamp) == solution[stamp.identifier]


@examples(40, 200)
@given(history=instance_histories())
def test_search_in_the_pairs_finds_the_ancestors(history: InstanceHistory) -> None:
    """The search may ignore continued identifiers, which are segments of other identifiers."""
    stamps = history.stamps().values()
    names = {stamp.identifier for stamp in stamps}
    for stamp in stamps:
        past = ancestors(stamp)
        assert past <= names
        assert {name for pair in stamp.combined for name in pair} <= past
        for name in names:
            assert is_ancestor(name, stamp) == (name in past)


@examples(40, 200)
@given(history=instance_histories())
def test_stamp_is_read_with_its_pairs_in_any_order(history: InstanceHistory) -> None:
    for stamp in history.stamps().values():
        if stamp.index:
            identifier, index, pairs = SCHEME.written(stamp)
            turned = [pair[::-1] for pair in reversed(pairs)]
            assert SCHEME.read([identifier, index, turned], "n") == stamp


def test_first_instance_has_a_virtual_event() -> None:
    assert AutonomousStamp("0", 0, ()) == ROOT
    assert ancestors(ROOT) == {"0"}


def test_internal_event_increments_the_index() -> None:
    assert internal(internal(ROOT)) == AutonomousStamp("0", 2)
    assert SCHEME.precedes(internal(ROOT), internal(internal(ROOT)))


def test_duplication_is_the_last_event_of_its_instance() -> None:
    both = combine(*duplicate(ROOT)[1:])
    last, k, l = duplicate(both)  # noqa: E741  # the paper's names
    pairs = (("01", "00"),)
    assert last == AutonomousStamp("00c", 2, pairs)
    assert (k, l) == (AutonomousStamp("00c0", 0, pairs), AutonomousStamp("00c1", 0, pairs))


def test_combination_is_the_first_event_of_its_instance() -> None:
    _, m, n = duplicate(ROOT)
    assert combine(internal(m), n) == AutonomousStamp("00c", 1, (("01", "00"),))
    assert combine(n, m) == AutonomousStamp("01c", 1, (("00", "01"),))
    assert ancestors(combine(n, m)) == {"0", "00", "01", "01c"}


def test_combination_inherits_common_pairs_once() -> None:
    _, a, b = duplicate(combine(*duplicate(ROOT)[1:]))
    assert combine(a, b).combined == (("00c1", "00c0"), ("01", "00"))


def test_ended_instance_cannot_be_combined() -> None:
    _, m, n = duplicate(ROOT)
    for pair in ((m, m), (m, ROOT), (ROOT, m), (combine(m, n), n), (n, combine(m, n))):
        with pytest.raises(ValueError, match="ended"):
            combine(*pair)


# The figures are images. Their captions give the shapes that follow: duplications only, and two
# bifurcations with one combination; the stamps are those of Definition 5.1.
def test_figure_2_duplications_only() -> None:
    root = internal(ROOT)
    last, left, right = duplicate(root)
    left = internal(left)
    last_left, left_left, left_right = duplicate(left)
    events = [root, last, left, last_left, *map(internal, (left_left, left_right, right))]
    assert list(map(str, events)) == [
        "0{1}", "0{2}", "00{1}", "00{2}", "000{1}", "001{1}", "01{1}",
    ]  # fmt: skip
    assert SCHEME.precedes(last, events[4])
    assert SCHEME.compare(events[4], events[5]) is StampOrder.CONCURRENT
    assert SCHEME.compare(left, events[6]) is StampOrder.CONCURRENT


def test_figure_3_two_bifurcations_and_one_combination() -> None:
    first, left, right = duplicate(ROOT)
    left, right = internal(left), internal(right)
    second, left_left, left_right = duplicate(left)
    left_left, left_right = internal(left_left), internal(left_right)
    both = combine(left_right, right)
    after = internal(both)
    events = [first, left, right, second, left_left, left_right, both, after]
    assert list(map(str, events)) == [
        "0{1}", "00{1}", "01{1}", "00{2}", "000{1}", "001{1}", "001◇{1} 001/01", "001◇{2} 001/01",
    ]  # fmt: skip
    assert [e for e in events if SCHEME.precedes(e, both)] == [
        first, left, right, second, left_right,
    ]  # fmt: skip
    assert SCHEME.compare(left_left, after) is StampOrder.CONCURRENT
    assert SCHEME.compare(right, second) is StampOrder.CONCURRENT
    assert SCHEME.text(combine(right, left_right)) == "01◇{1} 01/001"


def test_processes_are_duplicated_from_one_root() -> None:
    replicas = SCHEME.replicas(list("abcde"))
    names = {node: replica.identifier for node, replica in replicas.items()}
    assert names == {"a": "0000", "b": "0001", "c": "001", "d": "010", "e": "011"}
    assert SCHEME.replicas(["a"]) == {"a": ROOT}
    assert SCHEME.replicas([]) == {}


def test_send_event_is_a_duplication_into_process_and_messages() -> None:
    replica, stamp = SCHEME.event(ROOT)
    assert stamp == duplicate(ROOT)[0]
    replica, to_b = SCHEME.header(replica, stamp, "b")
    replica, to_c = SCHEME.header(replica, stamp, "c")
    assert (to_b, to_c) == (AutonomousStamp("01"), AutonomousStamp("001"))
    after, following = SCHEME.event(replica)
    assert following == AutonomousStamp("000", 1) == after
    for message in (to_b, to_c):
        assert SCHEME.precedes(stamp, message)
        assert SCHEME.compare(message, following) is StampOrder.CONCURRENT


def test_receive_event_is_the_last_of_its_combinations() -> None:
    a, b, c = SCHEME.replicas(list("abc")).values()
    a, sent_a = SCHEME.event(a)
    a, from_a = SCHEME.header(a, sent_a, "c")
    b, sent_b = SCHEME.event(b)
    b, from_b = SCHEME.header(b, sent_b, "c")
    _, received = SCHEME.event(c, [from_a, from_b])
    assert str(received) == "01◇◇{1} 01/0001 01◇/0011"
    assert SCHEME.precedes(sent_a, received)
    assert SCHEME.precedes(sent_b, received)


def test_the_shorter_identifier_is_continued() -> None:
    a, b = SCHEME.replicas(list("ab")).values()
    for _ in range(3):
        a, _ = SCHEME.header(a, a, "b")
    b, from_b = SCHEME.header(b, b, "a")
    assert (a.identifier, from_b.identifier) == ("00000", "011")
    a, _ = SCHEME.event(a, [from_b])
    assert a == AutonomousStamp("011c", 1, (("00000", "011"),))


def test_message_received_again_adds_nothing() -> None:
    a, b = SCHEME.replicas(list("ab")).values()
    a, stamp = SCHEME.event(a)
    a, message = SCHEME.header(a, stamp, "b")
    b, first = SCHEME.event(b, [message])
    assert SCHEME.event(b, [message]) == (internal(first), internal(first))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "0",
            "a stamp of the scheme stamps must be an identifier of 0, 1 and c, a number and pairs",
        ),
        (["0", 1], "a stamp of the scheme stamps must be an identifier"),
        (["10", 1, []], "a stamp of the scheme stamps must be an identifier"),
        (["0◇", 1, []], "a stamp of the scheme stamps must be an identifier"),
        (["", 1, []], "a stamp of the scheme stamps must be an identifier"),
        (["00c", 1, [["01"]]], "a stamp of the scheme stamps must be an identifier"),
        (["00c", 1, [["01", 0]]], "a stamp of the scheme stamps must be an identifier"),
        (["00c", 0, [["01", "00"]]], "the number of an event in its instance must be an integer"),
        (
            ["00c", 1, [["01", "00"], ["01", "000"]]],
            "01 occurs twice, but an instance ends only once",
        ),
        (["00c", 1, [["00c", "00"]]], "00c occurs twice"),
        (["00", 1, [["01", "00"]]], "00 occurs twice"),
        (
            ["001", 1, [["01", "00"]]],
            "exactly one of 01 and 00, which are combined, must continue with c",
        ),
        (
            ["0" * 50 + "11", 1, [["01", "0" * 50]]],
            "exactly one of 01 and 0{37}[.]{3}, which are combined",
        ),
        (
            ["00c", 1, [["00", "01"], ["01c1", "02"]]],
            "a stamp of the scheme stamps must be an identifier",
        ),
        (
            ["00c", 1, [["00", "01"], ["01c1", "011"]]],
            "exactly one of 00 and 01, which are combined",
        ),
    ],
)
def test_invalid_stamps_have_a_reason(value: Any, reason: str) -> None:
    with pytest.raises(EventError, match=f"^clock: {reason}"):
        SCHEME.read(value, "n")


NAMES = st.text("01c", max_size=4).map("0".__add__)


@given(value=st.tuples(NAMES, st.integers(0, 2), st.lists(st.lists(NAMES, min_size=2, max_size=2))))
def test_triples_are_stamps_or_errors(value: tuple[Any, ...]) -> None:
    stamp = _read_or_none(list(value))
    if stamp is not None:
        assert SCHEME.read(SCHEME.written(stamp), "n") == stamp
        assert sorted(map(sorted, stamp.combined)) == sorted(map(sorted, value[2]))


def _read_or_none(value: Any) -> AutonomousStamp | None:
    try:
        return SCHEME.read(value, "n")
    except EventError:
        return None
