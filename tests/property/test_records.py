"""A Monitor restored from its changelog records equals one that was never stopped.

Chunks are small and limits low, so that a few events fill, evict and remove chunks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import ketal
from ketal.engine import scopes
from ketal.errors import PatternError
from ketal.model import syntax
from ketal.model.events import counter_sets as counters
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from ketal.programs.program import Program
from ketal.runtime.admission import seen_digests as contents
from ketal.runtime.state import recorder
from ketal.runtime.state.records import decode_snapshot
from tests.driven import Driven
from tests.property.memberships import base, simulate
from tests.property.patterns import pattern_file
from tests.property.test_engine import case, program_of
from tests.runtime.test_monitor import EVERYTHING, stream
from tests.sampling import drawn, sample
from tests.validation import validate

ORDERS = (
    None,
    syntax.Order("causal", gap=syntax.Duration(2, "s")),
    syntax.Order("causal", gap=syntax.Duration(1, "s"), overflow="lost"),
    syntax.Order("causal", frontier=syntax.Duration(3, "s")),
    syntax.Order(
        "causal", total=True, nodes=tuple(f"n{i}" for i in range(1, 6)), gap=syntax.Duration(2, "s")
    ),
)
ROOMY = Limits(matches_per_event_max=300, configurations_max=300, runs_max=300, visits_max=20_000)
"""No memory limit is reached, but patterns with exponentially many matches end."""
LIMITS = (
    ROOMY,
    replace(ROOMY, dots_max=4, counters_max=3, held_back_max=3, lost_max=2, unlearned_max=4),
    replace(ROOMY, dots_max=7, counters_max=100, candidates_max=3, configurations_max=2),
    replace(ROOMY, dots_max=5, nodes_max=3),
    replace(ROOMY, dots_max=20, restored_entries_max=5),
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, span in (("SEEN_SPAN", 3), ("CLOCKS_SPAN", 2)):
        monkeypatch.setattr(recorder, name, span)
    monkeypatch.setattr(counters, "SPAN", 8)
    monkeypatch.setattr(scopes, "QUEUE_MIN", 2)
    monkeypatch.setattr(contents, "WHOLE_CLOCK_ENTRIES", 2)


class Changelog:
    """An execution and its committed records, from which alone it is restarted."""

    def __init__(self, program: Program, limits: Limits | None) -> None:
        self.program, self.limits = program, limits
        self.monitor = Driven(program, limits=limits)
        self.records: dict[bytes, bytes] = {}

    def commit(self) -> None:
        for key, value in self.monitor.state.changes().items():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value

    def restart(self, rng: random.Random) -> None:
        self.commit()
        shuffled = dict(rng.sample(list(self.records.items()), len(self.records)))
        again = Driven.restored(self.program, shuffled, limits=self.limits)
        assert state(again) == state(self.monitor)
        assert again.state.changes() == {}, "what was restored is no change"
        validate(again)
        self.monitor = again


def state(monitor: Driven) -> dict[bytes, Any]:
    """Return the decoded records of a snapshot."""
    records = decode_snapshot(monitor.snapshot())
    readable = {key: msgspec.msgpack.decode(value) for key, value in records.items()}
    for key, (_, body) in readable.items():
        if key.startswith(b"seen/") and body[-1]:
            body[-1] = msgspec.msgpack.decode(body[-1])  # The order of clock entries is ignored.
    return readable


def kinds(records: Iterable[bytes]) -> Counter[str]:
    """Return the number of records of each kind."""
    return Counter(key.decode().split("/")[0] for key in records)


def step(monitor: Driven, item: Any) -> list[dict[str, Any]]:
    verdicts = monitor.advance_time(item) if isinstance(item, float) else monitor.feed(item)
    validate(monitor)
    return [verdict.to_dict() for verdict in verdicts]


def compare(
    rng: random.Random,
    program: Program,
    items: list[Any],
    limits: Limits | None,
    *,
    exactly: bool = True,
) -> int:
    """Hold a Monitor and one that restarts now and then equal; return how much was said."""
    plain, other = Driven(program, limits=limits), Changelog(program, limits)
    verdict_count = 0
    for item in items:
        verdicts = step(plain, item)
        assert step(other.monitor, item) == verdicts
        verdict_count += len(verdicts)
        choice = rng.random()
        if choice < 0.25:
            other.commit()
        elif choice < 0.45:
            other.restart(rng)
    other.restart(rng)
    assert not exactly or state(other.monitor) == state(plain)
    assert other.monitor.summary == plain.summary
    assert other.monitor.held_back() == plain.held_back()
    last = plain.close()
    assert other.monitor.close() == last
    other.restart(rng)
    assert not exactly or state(other.monitor) == state(plain)
    there, whole = kinds(other.records), kinds(state(other.monitor))
    for kind in there | whole:
        # A chunk may be partly removed; no other records remain.
        chunked = kind in ("seen", "beyond", "clocks")
        assert whole[kind] <= there[kind] <= (2 * whole[kind] + 5 if chunked else whole[kind])
    return verdict_count + len(last)


def mixed(rng: random.Random, events: list[Event]) -> list[Any]:
    """Return events mixed with duplicates, losses and watermarks."""
    items: list[Any] = []
    for event in events:
        if rng.random() > 0.1:
            items.append(event)
        if items and rng.random() < 0.15:
            items.append(rng.choice(items))
        if rng.random() < 0.1:
            items.append(float(rng.randint(0, len(events))))
    return items


def ordered(rng: random.Random, program: Program) -> Program | None:
    """Return the program with another random order, if its pattern allows one."""
    order = rng.choice(ORDERS)
    file = program.file
    (pattern,) = file.patterns
    if order is None or pattern.order.kind != "causal":
        return program
    try:
        return program_of(replace(file, patterns=(replace(pattern, order=order),)))
    except PatternError:
        return None


def test_restart_from_records_at_random_points_changes_nothing() -> None:
    said = 0

    @drawn(27, 3_000)
    def holds(rng: random.Random) -> None:
        nonlocal said
        file, events = case(rng, events_max=16)
        program = ordered(rng, program_of(file))
        if program is not None:
            said += compare(rng, program, mixed(rng, events), rng.choice(LIMITS))

    assert said > 100, "the cases must not be empty ones"


def test_several_patterns_and_their_copies_resume_from_records() -> None:
    program = ketal.compile(EVERYTHING)

    @drawn(10, 300)
    def holds(rng: random.Random) -> None:
        compare(rng, program, mixed(rng, stream(rng)), rng.choice(LIMITS))


def members(rng: random.Random, restarts: bool) -> Iterator[Any]:
    run = simulate(rng, restarts=restarts, events_max=25)
    leaves = dict(run.at)
    for place, event in enumerate(run.stamped):
        if place in leaves:
            yield Control("leave", node=base(leaves[place]))
        if rng.random() > 0.05:
            yield event


@pytest.mark.parametrize("restarts", [False, True], ids=["leaves", "restarts"])
def test_membership_resumes_from_records(restarts: bool) -> None:
    compared = 0

    @drawn(35, 1_500)
    def holds(rng: random.Random) -> None:
        nonlocal compared
        file = pattern_file(rng, order="causal", without=("deployment",))
        try:
            program = ordered(rng, program_of(file))
        except PatternError:
            return
        if program is None:
            return
        items = list(members(rng, restarts))
        if rng.random() < 0.5:
            at = rng.randrange(len(items))
            items[at:] = rng.sample(items[at:], len(items) - at)
        limits = rng.choice(LIMITS)
        # Which held event's clock is dropped first depends on when it was restored.
        compare(rng, program, items, limits, exactly=limits is ROOMY)
        compared += 1

    assert compared > 30


def test_size_of_a_commit_does_not_depend_on_earlier_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few events write few bytes, however many contents, counters, scopes and held events exist."""
    monkeypatch.undo()
    text = (
        'event A = type == "a";\npattern P { order arrival; check A*; partition by k; }\n'
        "pattern Q { order CausalOrder; find next A A; }"
    )
    monitor = Driven(ketal.compile(text))
    monitor.state.changes()
    sizes = []
    # A commit encodes the numbers of all held events, so `make test` measures one in five.
    every = sample(5, 1)
    for number in range(6_250):
        # Each counter leaves a hole, so all events but the first wait in the queue.
        monitor.feed(Event("n", "a", {"n": 2 * number + 1}, data={"k": f"key {number}"}))
        tens, more = divmod(number + 1, 10)
        if not more and tens % every in (0, every - 1):
            out = monitor.state.changes()
            if tens % every == 0:
                sizes.append(sum(len(key) + len(value or b"") for key, value in out.items()))
    whole = sum(map(len, monitor.state.records().values()))
    assert whole > 300_000
    # The queue's own record has one number per held event.
    assert max(sizes) < 14_000 + 4 * 6_000


def test_search_that_received_unordered_events_resumes_unchanged() -> None:
    """Unordered events are evicted; the order of one event's matches does not change."""
    program = ketal.compile(
        'pattern P { order CausalOrder; event A = type == "a"; find any A A?; within 3 s; }'
    )
    plain, other = Driven(program), Driven(program)
    for item in (
        Event("n2", "a", {"n2": 1}, time=0.0),
        Event("n1", "a", {"n1": 1}, time=-0.5),
        Event("n3", "a", {"n1": 1, "n3": 1}, time=2.0),
        Control("watermark", time=2.5),
        Event("n2", "a", {"n1": 1, "n2": 2, "n3": 1}, time=3.0),
        Event("n3", "a", {"n1": 1, "n2": 2, "n3": 2}, time=2.5),
    ):
        assert step(other, item) == step(plain, item)
        other = Driven.restored(program, other.snapshot())
        assert state(other) == state(plain)


def test_clock_of_the_first_event_is_not_restored_again_after_its_eviction() -> None:
    """n2@1 waits for n1; restored again, its clock would take the room of a later one."""
    program = ketal.compile(
        'event A = true; pattern P { order CausalOrder(total, nodes = ["n1", "n2"]); check A*; }'
    )
    limits = Limits(dots_max=2)
    plain = Driven(program, limits=limits)
    for item in (Event("n3", "a", {"n3": 1}), Control("leave", node="n3")):
        step(plain, item)
    for counter in range(1, 5):
        step(plain, Event("n2", "a", {"n2": counter}))
    other = Driven.restored(program, plain.snapshot(), limits=limits)
    for monitor in (plain, other):
        step(monitor, Event("n2", "a", {"n2": 5}))
    assert state(other) == state(plain)


def test_evicted_time_of_a_held_event_is_not_restored() -> None:
    """n2@1 waits for n1@1, which has a later time; the frontier has passed its own time."""
    program = ketal.compile(
        "event A = true; pattern P { order CausalOrder(frontier = 3 s); check A*; }"
    )
    plain = Driven(program)
    for item in (
        Event("n1", "a", {"n1": 1}, time=9.0),
        Event("n2", "a", {"n1": 1, "n2": 1}, time=1.0),
        Event("n3", "a", {"n3": 1}, time=2.0),
    ):
        step(plain, item)
    assert state(Driven.restored(program, plain.snapshot())) == state(plain)


def test_events_kept_for_copies_resume_under_the_numbers_of_earlier_versions() -> None:
    """Their records were numbered from 0, and not by the number of the event."""
    program = ketal.compile('pattern P { at every node; event A = type == "a"; check A*; }')
    plain = Driven(program)
    for counter, type in enumerate("adaada", 1):
        plain.feed(Event("n", type, {"n": counter}))
    records = plain.state.records()
    names = [b"unlearned/P/%d" % number for number in (1, 3, 4, 6)]
    earlier = {key: value for key, value in records.items() if key not in names}
    for number, name in enumerate(names):
        earlier[b"unlearned/P/%d" % number] = records[name]
    changes = Driven.restored(program, earlier).state.changes()
    after = {key: value for key, value in {**earlier, **changes}.items() if value is not None}
    assert after == records


def test_event_kept_for_copies_that_was_saved_last_is_removed_when_it_is_evicted() -> None:
    program = ketal.compile('pattern P { at every node; event A = type == "a"; check A*; }')
    plain = Driven(program, limits=Limits(unlearned_max=1))
    plain.feed(Event("n", "a", {"n": 1}))
    assert plain.state.changes()[b"unlearned/P/1"] is not None
    plain.feed(Event("n", "a", {"n": 2}))
    changes = plain.state.changes()
    assert changes[b"unlearned/P/1"] is None
    assert changes[b"unlearned/P/2"] is not None


def test_smaller_limit_evicts_events_kept_for_copies_from_the_records_too() -> None:
    program = ketal.compile('pattern P { at every node; event A = type == "a"; check A*; }')
    plain = Driven(program)
    plain.feed_many(Event("n", "a", {"n": counter}) for counter in range(1, 5))
    records = plain.state.records()
    small = Driven.restored(program, records, limits=Limits(unlearned_max=2))
    validate(small)
    changes = small.state.changes()
    assert [changes[b"unlearned/P/%d" % number] for number in (1, 2)] == [None, None]
    after = {key: value for key, value in {**records, **changes}.items() if value is not None}
    again = Driven.restored(program, after, limits=Limits(unlearned_max=2))
    for one in (small, again):
        (told,) = one.feed(Event("k", "a", {"k": 1, "n": 4}))
        assert isinstance(told, ketal.Overflow)
