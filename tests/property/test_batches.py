"""A batch gives the verdicts of its items one by one, for several patterns."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal import Event
from ketal.model.events.control import Control
from ketal.model.limits import Limits
from tests.driven import Driven
from tests.property.executions import execution, with_watermarks
from tests.sampling import drawn, examples

DECLARED = 'event Open = type == "o"; event Work = type == "w"; event Close = type == "c";'
CHECK = (
    f"pattern Turns {{ partition by k; {DECLARED} check (Open Work* Close)*; on violation skip; }}"
)
FIND = f"pattern Pairs {{ order arrival; partition by k, x; {DECLARED} find next Open Close; }}"
TURNS = f"{DECLARED} check (Open Work* Close)*; on violation"
COPIES = f"pattern Copies {{ at every node; {TURNS} resume; }}"
TIMED = f"pattern Timed {{ order arrival; {DECLARED} find next Open Close; within 5 s; }}"
ORDERED = (
    f"pattern Ordered {{ order CausalOrder(total); {DECLARED} check (Open | Work | Close)*; }}"
)
PROGRAMS = {
    "nothing cuts": FIND + CHECK.replace("partition by k;", "partition by k; order arrival;"),
    "copies": FIND + COPIES.replace("at every", "order arrival; at every"),
    "time cuts": FIND + TIMED,
    "a queue cuts": FIND + ORDERED,
}

events = st.builds(
    lambda node, counter, kind, k, time: Event(
        node, kind, {node: counter, "z": 1}, time=time, data={"k": k, "x": 1}
    ),
    st.sampled_from("AB"),
    st.integers(1, 12),
    st.sampled_from("owcq"),
    st.sampled_from([1, 1.0, "1", True, None]),
    st.integers(0, 20),
)
watermarks = st.builds(
    lambda time: Control("watermark", time=time), st.sampled_from((3.0, 9.0, 14.0))
)
items = st.one_of(events, events, events, watermarks)


def nonempty_verdicts(pairs: Any) -> list[tuple[int, list[Any]]]:
    return [(number, [v.to_dict() for v in verdicts]) for number, verdicts in pairs if verdicts]


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
@examples(20, 1_500)
@given(stream=st.lists(items, max_size=40), cut=st.integers(0, 40))
def test_batch_equals_its_items_one_by_one(text: str, stream: list[Any], cut: int) -> None:
    program = ketal.compile(text)
    batch, single = Driven(program), Driven(program)
    for some in (stream[:cut], stream[cut:]):
        assert nonempty_verdicts(batch.process(some)) == nonempty_verdicts(
            (n, single.feed(x)) for n, x in enumerate(some)
        )
        assert batch.summary == single.summary
        assert batch.state.changes() == single.state.changes()
    assert batch.snapshot() == single.snapshot()


KINDS = "".join(f'event {kind.upper()} = type == "S.{kind}"; ' for kind in "abc")
QUEUED = {
    "eager": "order CausalOrder; {check}",
    "eager, a window": "order CausalOrder; {find} within 3 s;",
    "copies, a window": "order CausalOrder; at every node; {find} within 3 s;",
    "gap": "order CausalOrder(gap = 2 s); {find}",
    "idle": "order CausalOrder(idle = 2 s, gap = 5 s); {check}",
    "total": "order CausalOrder(total); {find} within 3 s;",
    "frontier": "order CausalOrder(frontier = 1 s); {find} within 3 s;",
    "gives up": "order CausalOrder(overflow = lost); {check}",
}


@pytest.mark.parametrize("orders", [*([name] for name in QUEUED), ["gap", "eager, a window"]])
def test_batch_ordered_by_a_queue_equals_its_items_one_by_one(orders: list[str]) -> None:
    bodies = {
        "find": f"{KINDS} find next A B;",
        "check": f"{KINDS} check (A B | C)*; on violation skip;",
    }
    text = "".join(
        f"pattern P{n} {{ {QUEUED[name].format(**bodies)} }}" for n, name in enumerate(orders)
    )
    program = ketal.compile(text)
    released_together = 0

    @drawn(20, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal released_together
        share = rng.choice((1.0, 1.0, 0.9))
        stream: list[Any] = [x for x in execution(rng, events_max=25) if rng.random() < share]
        if rng.random() < 0.5:
            stream = list(with_watermarks(stream, rng))
        for _ in range(rng.choice((0, 0, 1, 3))):
            other = rng.choice(
                (Control("watermark", time=rng.randint(0, 20)), Control("leave", node="n2"))
            )
            stream.insert(rng.randint(0, len(stream)), other)
        limits = Limits(held_back_max=rng.choice((2, 100)))
        batch, single = Driven(program, limits=limits), Driven(program, limits=limits)
        while stream:
            cut = rng.choice((1, 3, 25))
            some, stream = stream[:cut], stream[cut:]
            assert nonempty_verdicts(batch.process(some)) == nonempty_verdicts(
                (n, single.feed(x)) for n, x in enumerate(some)
            )
            assert batch.summary == single.summary
            assert batch.state.changes() == single.state.changes()
            released_together += len(some) > 3
        assert batch.snapshot() == single.snapshot()
        assert nonempty_verdicts([(0, batch.close())]) == nonempty_verdicts([(0, single.close())])

    assert released_together


def test_verdicts_are_ordered_by_event_then_by_pattern() -> None:
    patterns = [CHECK.replace("Turns", name).replace("partition", "order arrival; partition")
                for name in ("Second", "First")]  # fmt: skip
    monitor = Driven(ketal.compile("".join(patterns)))
    batch = [Event("A", "w", {"A": n}, data={"k": n}) for n in (1, 2)]
    found = [(n, [v.pattern for v in verdicts]) for n, verdicts in monitor.process(batch)]  # type: ignore[union-attr]
    assert found == [(0, ["Second", "First"]), (1, ["Second", "First"])]


def test_rejection_within_a_batch_has_its_own_place() -> None:
    monitor = Driven(ketal.compile(CHECK))
    batch = [Event("A", "o", {"A": n}, data={"k": n}) for n in (1, 2)]
    batch.append(Event("A", "w", {"A": 2}, data={"k": 2}))
    ((number, (rejected,)),) = monitor.process(batch, "t/0/{}".format)
    assert (number, rejected.place) == (2, "t/0/2")  # type: ignore[union-attr]
