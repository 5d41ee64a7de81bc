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


@pytest.mark.parametrize("release", RELEASES)
def test_event_with_a_whole_clock_is_not_doubtful_in_a_part(release: type[StreamRelease]) -> None:
    """n3 may have learned of n1@2 in another part, unless its clock has an entry for n1."""
    part = Driven(pairs("Conc(B)"), release=release)
    (*_, match) = part.feed_many(
        [
            e("n1@2", "a", key=1), Control("leave", node="n1"),
            e("n2@5", "b", "n1:2", key=1), e("n3@7", "b", key=1),
        ]
    )  # fmt: skip
    assert str(match) == "match P (key=1): A=n1@2, Second=n3@7"
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
def test_event_offered_before_a_second_leave_is_counted_as_doubtful_in_a_part(
    release: type[StreamRelease],
) -> None:
    """n3@5 knows n2@2 by an event of another part, and has dropped n2."""
    part = Driven(pairs("Conc(B)"), release=release)
    part.feed_many([e("n1@1", "c", key=1), Control("leave", node="n1")])
    events = [e("n2@2", "a", "n1:1", key=1), e("n3@5", "b", "n1:1", key=1)]
    assert len(part.feed_many(events)) == 1
    assert not part.summary.get("doubtful")
    part.leave("n2")
    assert part.summary["doubtful"] > 0
