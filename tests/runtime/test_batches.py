"""A stream in batches of any sizes: the same verdicts, counts and state as event by event."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given

import ketal
from ketal.model.events.control import Control
from ketal.model.limits import DEFAULT
from ketal.model.verdicts.check_verdicts import Violation
from ketal.runtime.execution import Execution
from tests.cases import e
from tests.property.executions import execution, with_watermarks
from tests.sampling import chances, examples
from tests.validation import validate
from tests.work import counted_lines

EVENTS = 'event A = type == "a"; event B = type == "b"; event C = type == "c";'
PATTERNS = {
    "check": "check (A B? | B)*;",
    "check, resume": "check (A B)*; on violation resume;",
    "check, skip": "check (A B)*; on violation skip;",
    "check, of a part": "event D = A; check (D D)*;",
    "check, causal": "check (A | Later)*;",
    "check of a call": "event P = call(int a(..)); check (P | B)*;",
    "every copy": "at every node all; check (A B)*; on violation resume;",
    "every copy, halting": "at every node all; check (A | B A)*;",
    "every copy, its own": "at every node all; Own = A && localhost; check (Own | B)*;"
    " on violation skip;",
    "every copy of some": 'at host("n[12]") all; check (A B | B)*; on violation skip;',
    "every copy, by key": "at every node all; partition by k; check (A B)*; on violation resume;",
    "copies that learn": "at every node; check (A B)*; on violation skip;",
    "copies that learn, of a find": "at every node; find next A B;",
    "find any": "find any A B;",
    "find any, window of places": "find any A B C; within 3 events;",
    "find any, window of time": "find any A Later; within 2 s;",
    "find next": "find next A B;",
    "find next, window of places": "find next A B C; within 3 events;",
    "find next, not": "find next A not C B;",
    "find strict": "find strict A B;",
    "find next, by key": "partition by k; find next A B; within 2 s;",
}
ORDERS = {"arrival": "", "CausalOrder": "order CausalOrder;"}


def text_of(body: str, order: str) -> str:
    later = "Later = Causal(B);" if "Later" in body else ""
    head, statements = "", body
    for word in ("at every node all;", "at every node;", 'at host("n[12]") all;'):
        if body.startswith(word):
            head, statements = word, body.removeprefix(word)
    return f"pattern P {{ {order} {head} {EVENTS} {later} {statements} }}"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PATTERNS)
@examples(6, 1_000)
@given(rng=chances())
def test_batches_of_any_size_equal_one_event_at_a_time(
    name: str, order: str, rng: random.Random
) -> None:
    program = ketal.compile(text_of(PATTERNS[name], ORDERS[order]))
    events = execution(rng, nodes_max=4, events_max=40, types=("a", "b", "c", "d"))
    items = list(with_watermarks(events, rng)) if rng.random() < 0.5 else events
    tight = ketal.Limits(unlearned_max=2, scopes_max=2, runs_max=3, dots_max=5)
    limits = rng.choice((DEFAULT, tight, ketal.Limits(nodes_max=2)))
    singly, batched = (Execution(program, limits=limits) for _ in range(2))
    at = 0
    while at < len(items):
        batch = items[at : at + rng.randint(1, 12)]
        at += len(batch)
        expected = [verdict for item in batch for verdict in singly.feed(item)]
        found = [verdict for _, verdicts in batched.process(batch) for verdict in verdicts]
        assert found == expected
        validate(batched)
        assert _state(batched) == _state(singly)
    assert list(batched.conclude()) == list(singly.conclude())
    assert batched.counts.summary == singly.counts.summary


def test_copy_without_room_leaves_the_verdicts_of_the_others_certain() -> None:
    program = ketal.compile(text_of("at every node all; check A B; on violation skip;", ""))
    stream = Execution(program, limits=ketal.Limits(scopes_max=1))
    outside = [e(f"n{node}@{counter}", "d") for counter in range(1, 9) for node in (1, 2)]
    assert stream.process(outside) == []  # both copies start, and events are taken together
    batch = [e("n1@9", "b"), e("n2@9", "b")]
    verdicts = [v for _, found in stream.process(batch) for v in found]
    assert [v.certain for v in verdicts if isinstance(v, Violation)] == [True, True]


def test_work_for_a_redelivered_batch_is_linear_in_its_events() -> None:
    program = ketal.compile(text_of(PATTERNS["find next, by key"], ORDERS["arrival"]))

    def lines(size: int) -> int:
        stream = Execution(program)
        batch = [
            ketal.Event(node="n", type="d", clock={"n": counter}, time=counter)
            for counter in range(1, size + 1)
        ]
        stream.process(batch)
        stream.advance_time(0)
        found, count = counted_lines(lambda: stream.process(batch))
        assert not found
        assert stream.counts.tally.duplicates == size
        return count

    assert lines(400) < 6 * lines(100)


def test_a_duplicate_does_not_make_the_batches_after_it_slower() -> None:
    program = ketal.compile(f"pattern P {{ {EVENTS} find next A B; within 1 h; }}")

    def lines(*, duplicate: bool) -> int:
        stream = Execution(program)

        def batch(begin: int) -> list[Any]:
            return [
                item
                for counter in range(begin, begin + 200)
                for item in (
                    ketal.Event(node="n", type="d", clock={"n": counter}, time=counter),
                    Control("watermark", time=counter),
                )
            ]

        first = batch(1)
        stream.process([*first, first[-2]] if duplicate else first)
        assert stream.counts.tally.duplicates == duplicate
        return counted_lines(lambda: stream.process(batch(201)))[1]

    assert lines(duplicate=True) < 2 * lines(duplicate=False)


def _state(execution: Execution) -> Any:
    return execution.state.snapshot()
