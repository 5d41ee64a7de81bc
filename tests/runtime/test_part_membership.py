"""Parts of an execution, as several consumers have them, once nodes have left or restarted.

The matches of the parts are compared with those of the whole, judged as a finite log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

import ketal
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.programs.program import Program
from ketal.runtime.stream_release import KeyGroupRelease, PartRelease, StreamRelease
from tests.cases import e
from tests.driven import Driven
from tests.property.memberships import Run, arrival, base, simulate
from tests.sampling import drawn

KEYS = range(2)
PAIRS = ("Causal(B)", "Conc(B)")
RELEASES = [PartRelease, KeyGroupRelease]


def pairs(second: str, order: str = "CausalOrder") -> Program:
    return ketal.compile(
        f'pattern P {{ order {order}; partition by key; event A = type == "a";'
        f' event B = type == "b"; Second = {second}; find any A Second; }}'
    )


def keyed(rng: random.Random, run: Run) -> Run:
    """Give the events of a run types and keys."""
    for place, (stamped, true) in enumerate(zip(run.stamped, run.true, strict=True)):
        kind, data = rng.choice("ab"), {"key": rng.choice(KEYS)}
        run.true[place] = msgspec.structs.replace(true, type=kind, data=data)
        run.stamped[place] = msgspec.structs.replace(stamped, type=kind, data=data)
    return run


class Parts:
    """The parts of an execution, each of which has the events of one key."""

    def __init__(self, program: Program, release: type[StreamRelease]) -> None:
        self._program, self._release = program, release
        self.parts = [Driven(program, release=release) for _ in KEYS]
        self.verdicts: list[Verdict] = []

    def feed(self, item: Event | Control) -> None:
        """Feed an event to the part of its key, or a control event to all parts."""
        own = KEYS if isinstance(item, Control) else [item.data["key"]]
        for number in own:
            self.verdicts += self.parts[number].feed(item)
            assert self.parts[number].held_back() == []

    def restore(self, number: int) -> None:
        """Restore a part from its saved state."""
        self.parts[number] = Driven.restored(
            self._program, self.parts[number].snapshot(), release=self._release
        )

    def close(self) -> Counter[str]:
        """End the parts; return the ids of their matches."""
        for part in self.parts:
            self.verdicts += part.close()
        return ids(self.verdicts)

    @property
    def doubtful(self) -> int:
        return sum(part.summary.get("doubtful", 0) for part in self.parts)


def with_key(items: Iterable[Event | Control]) -> list[Event | Control]:
    """Return items whose events are all of one part."""
    return [
        msgspec.structs.replace(x, data={"key": 1}) if isinstance(x, Event) else x for x in items
    ]


def ids(verdicts: Iterable[Any]) -> Counter[str]:
    return Counter(verdict.id for verdict in verdicts if isinstance(verdict, Match))


def records(items: Iterable[int | str], events: list[Event]) -> Iterator[Event | Control]:
    for item in items:
        yield Control("leave", node=base(item)) if isinstance(item, str) else events[item]


def judged(program: Program, release: type[StreamRelease], rng: random.Random, items: Any) -> Parts:
    """Return the parts that were fed the items; some were restored on the way."""
    parts = Parts(program, release)
    for item in items:
        parts.feed(item)
        if rng.random() < 0.1:
            parts.restore(rng.choice(KEYS))
    return parts


@pytest.mark.parametrize("release", RELEASES)
def test_parts_find_the_matches_of_the_whole_or_count_doubtful_events(
    release: type[StreamRelease],
) -> None:
    seen: Counter[str] = Counter()

    @drawn(60, 3_000)
    def holds(rng: random.Random) -> None:
        run = keyed(rng, simulate(rng, restarts=False, events_max=30, churns=(0.1, 0.5)))
        program, items = pairs(rng.choice(PAIRS)), arrival(rng, run, anywhere=rng.random() < 0.5)
        wanted = ids(ketal.run(program, run.true))
        parts = judged(program, release, rng, records(items, run.stamped))
        found = parts.close()
        assert found == wanted or parts.doubtful
        assert judged(program, release, rng, records(items, run.true)).close() == wanted
        seen["wrong"] += found != wanted
        seen["doubtful"] += parts.doubtful
        seen["events"] += len(run.true)

    assert seen["wrong"] > 0
    assert seen["doubtful"] < seen["events"] / 2, "few clocks may be incomplete"


LEAVE = Control("leave", node="n1")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("items", "matches", "doubtful"),
    [
        # n3 may have learned of n1@2 in another part, unless its clock has an entry for n1.
        ([e("n1@2", "a"), LEAVE, e("n2@5", "b", "n1:2"), e("n3@7", "b")], ["n1@2 n3@7"], 1),
        # The first event of n3 knows of no event, and n2@2 knows what n2@1 does.
        ([e("n1@2", "a"), LEAVE, e("n3@1", "b")], ["n1@2 n3@1"], 0),
        ([e("n1@1", "a"), e("n2@1", "c", "n1:1"), LEAVE, e("n2@2", "b")], [], 0),
        # n2@7 knows n1@1, and perhaps n1@2, which arrives later.
        (
            [e("n1@1", "a"), e("n2@5", "c", "n1:1"), LEAVE, e("n2@7", "b"), e("n1@2", "a")],
            ["n1@2 n2@7"], 1,
        ),
    ],
)  # fmt: skip
def test_event_is_doubtful_in_a_part_if_it_may_know_more_of_a_node_that_left(
    release: type[StreamRelease], items: list[Event | Control], matches: list[str], doubtful: int
) -> None:
    part = Driven(pairs("Conc(B)"), release=release)
    found = part.feed_many(with_key(items))
    assert [" ".join(map(str, one.events)) for one in found if isinstance(one, Match)] == matches
    assert part.summary.get("doubtful", 0) == doubtful


@pytest.mark.parametrize("release", RELEASES)
def test_event_is_doubtful_once_though_its_clock_was_low_and_may_be_low_still(
    release: type[StreamRelease],
) -> None:
    """n2@3 was offered without n1: 1 of n2@1, and n2@2, which is missing, may know n3@2."""
    part = Driven(pairs("Conc(B)"), release=release)
    items = [e("n3@1", "c"), e("n1@1", "a"), e("n2@3", "b"), e("n2@1", "c", "n1:1")]
    part.feed_many(with_key([*items, Control("leave", node="n3")]))
    assert part.summary["doubtful"] == 1


@pytest.mark.parametrize("release", RELEASES)
def test_event_offered_before_a_leave_is_counted_as_doubtful_in_a_part(
    release: type[StreamRelease],
) -> None:
    part = Driven(pairs("Conc(B)"), release=release)
    events = [e("n1@1", "a", key=1), e("n2@1", "c", "n1:1", key=1), e("n3@1", "b", "n2:1", key=1)]
    assert len(part.feed_many(events)) == 1, "n3@1 knows n1@1, but its clock does not show it"
    part.leave("n1")
    assert part.summary["doubtful"] == 1


@pytest.mark.parametrize("release", RELEASES)
def test_events_of_a_part_wait_for_time_under_frontier(release: type[StreamRelease]) -> None:
    part = Driven(pairs("Conc(B)", "CausalOrder(frontier = 1 s)"), release=release)
    part.feed_many([e("n1@1", "a", time=3, key=1), Control("leave", node="n1")])
    assert part.feed(e("n2@2", "b", time=4, key=1)) == []
    assert [str(event.dot) for event, _ in part.held_back()] == ["n2@2"]
    assert len(part.feed(Control("watermark", time=60.0))) == 1
    assert part.held_back() == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "events",
    [
        [e("n2@2", "a", "n1:1"), e("n3@5", "b", "n1:1")],
        [e("n2@1", "a", "n1:1"), e("n3@1", "c", "n1:1 n2:1"), e("n4@1", "b", "n1:1 n3:1")],
    ],
    ids=["by an event of another part", "by an event of this part"],
)
def test_event_offered_before_a_second_leave_is_counted_as_doubtful_in_a_part(
    release: type[StreamRelease], events: list[Event]
) -> None:
    """The last event knows the first, and its node has dropped the entry of n2."""
    part = Driven(pairs("Conc(B)"), release=release)
    part.feed_many(with_key([e("n1@1", "c"), LEAVE]))
    assert len(part.feed_many(with_key(events))) == 1
    assert not part.summary.get("doubtful")
    part.leave("n2")
    assert part.summary["doubtful"] > 0


def changed_part(old: Program, new: Program) -> Driven:
    """Return a part whose patterns changed after an event of n1, which has left since."""
    first = Driven(old, release=PartRelease)
    first.feed(e("n1@2", "a", time=1, key=1))
    part = Driven.restored(new, first.snapshot(), release=PartRelease, retiring=old, changed=True)
    part.leave("n1")
    return part


def test_retiring_patterns_of_a_part_do_not_wait_either() -> None:
    old, new = (
        ketal.compile(
            f'pattern P {{ order CausalOrder; partition by key; event A = type == "{kind}";'
            ' event B = type == "b"; Second = Conc(B); find any A Second; within 10 s; }'
        )
        for kind in "ac"
    )
    part = changed_part(old, new)
    assert len(part.feed(e("n3@7", "b", time=2, key=1))) == 1
    assert part.held_back() == []


def test_event_is_doubtful_if_only_a_retiring_pattern_of_a_part_reads_restored_clocks() -> None:
    """The new pattern takes events as they arrive, but the old one needs restored clocks."""
    old, new = (
        ketal.compile(
            f'pattern P {{ order {order}; partition by key; event A = type == "a";'
            ' event B = type == "b"; Second = Conc(B); find any A Second; within 10 s; }'
        )
        for order in ("CausalOrder", "arrival")
    )
    part = changed_part(old, new)
    assert len(part.feed(e("n3@7", "b", time=2, key=1))) == 1
    assert part.summary["doubtful"] == 1
