"""An execution continues under another program: `Execution.restored`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import reject

import ketal
from ketal.errors import PatternError
from ketal.model import syntax
from ketal.model.events.control import Control
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.runtime.queues.execution_queues import Queues
from ketal.runtime.retirement import Before
from ketal.runtime.state.program_records import saved_program
from ketal.runtime.state.records import Records
from ketal.runtime.stream_release import StreamRelease
from tests.cases import e
from tests.driven import Driven
from tests.property.test_engine import program_of
from tests.runtime.test_live_membership import LIMITS, Case, Record, adds_up, membership_case
from tests.sampling import drawn

STREAMS = pytest.mark.parametrize(
    ("restarts", "losses"),
    [(False, False), (False, True), (True, True)],
    ids=["leaves", "losses", "restarts"],
)
SECOND = syntax.Duration(1, "s")
ORDERS = (
    syntax.Order("arrival"),
    syntax.Order("causal"),
    syntax.Order("causal", gap=SECOND, idle=SECOND),
    syntax.Order("causal", overflow="lost"),
    syntax.Order("causal", total=True),
    syntax.Order("causal", total=True, nodes=("n1",)),
    syntax.Order("causal", frontier=SECOND),
)


def to_end(monitor: Driven, records: list[Record]) -> list[Verdict]:
    return monitor.feed_many(records) + monitor.close()


def cut_at(case: Case, rng: random.Random) -> tuple[list[Record], list[Record]]:
    at = rng.randint(0, len(case.records))
    return case.records[:at], case.records[at:]


@STREAMS
def test_restoring_with_the_same_program_changes_nothing(restarts: bool, losses: bool) -> None:
    """Whether nodes left, restarted or lost events before, the restored state is the same."""

    @drawn(17, 1_000)
    def holds(rng: random.Random) -> None:
        case = membership_case(rng, restarts=restarts, losses=losses)
        before, after = cut_at(case, rng)
        whole = Driven(case.program, limits=LIMITS)
        whole.feed_many(before)
        other = Driven.restored(case.program, whole.state.records(), changed=True, limits=LIMITS)
        said = [v.to_dict() for v in to_end(other, after)]
        assert said == [v.to_dict() for v in to_end(whole, after)]
        assert other.summary == whole.summary


def queues_of(monitor: Driven) -> Queues:
    assert isinstance(monitor.release, StreamRelease)
    return monitor.release.queues


def facts(verdicts: Sequence[Verdict], windows: bool) -> list[str]:
    """Return matches (with `windows` also time-outs) without their lost events."""
    wanted: Any = ketal.Match | ketal.TimedOut if windows else ketal.Match
    return sorted(f"{v.kind} {v.scope} {v.steps}" for v in verdicts if isinstance(v, wanted))


@STREAMS
def test_added_pattern_reports_the_matches_of_events_after_the_change(
    restarts: bool, losses: bool
) -> None:
    """By definition: the verdicts from a full run, less those with an event before the change.

    The pattern has another name, and so no saved run. The first events of `find any` time out
    if they are in no match, so for `find any` only matches are compared.
    """
    matched = 0

    @drawn(25, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal matched
        case = membership_case(rng, restarts=restarts, losses=losses)
        compiled, (pattern,) = case.program.one, case.program.file.patterns
        if compiled.kind == "check" or compiled.pattern.deployment is not None:
            reject()
        new = program_of(replace(case.program.file, patterns=(replace(pattern, name="Q"),)))
        earlier, later = cut_at(case, rng)
        old, whole = Driven(case.program, limits=LIMITS), Driven(new, limits=LIMITS)
        old.feed_many(earlier)
        whole.feed_many(earlier)
        other = Driven.restored(new, old.snapshot(), changed=True, limits=LIMITS)
        queue = queues_of(other).queue_of("Q")
        pending = () if queue is None else queue.pending()
        before = Before.of(other.admission.intake.seen(), pending)
        said, all_said = to_end(other, later), to_end(whole, later)
        # A limit that was reached before the change is not reported again.
        if any(one.summary["patterns"]["Q"].get("overflows") for one in (other, whole)):
            reject()
        expected = [
            v
            for v in all_said
            if isinstance(v, ketal.Match | ketal.TimedOut)
            and not any(dot in before for _, dot in v.steps)
        ]
        windows = compiled.strategy != "any"
        assert facts(said, windows) == facts(expected, windows)
        matched += bool(expected)

    assert matched > 5, "the cases must not be empty ones"


@STREAMS
def test_changes_of_the_order_policy_leave_no_event_held(restarts: bool, losses: bool) -> None:
    """Repeated changes from each policy to each: without losses no event stays held."""

    @drawn(17, 1_000)
    def holds(rng: random.Random) -> None:
        case = membership_case(rng, restarts=restarts, losses=losses)
        (pattern,) = case.program.file.patterns
        monitor = Driven(case.program, limits=LIMITS)
        for record in case.records:
            monitor.feed(record)
            if rng.random() < 0.3:
                changed = replace(pattern, order=rng.choice(ORDERS))
                try:
                    new = program_of(replace(case.program.file, patterns=(changed,)))
                except PatternError:  # an option that conflicts with the rest of the pattern
                    continue
                monitor = Driven.restored(new, monitor.snapshot(), changed=True, limits=LIMITS)
        monitor.close()
        assert adds_up(monitor.summary)
        assert losses or not monitor.held_back()


def test_new_order_does_not_wait_for_a_node_that_left_before_the_change() -> None:
    text = 'pattern P {{ order {}; event A = type == "a"; find next A; }}'
    old = Driven(ketal.compile(text.format("CausalOrder")))
    old.feed_many([e("n@1", "a"), e("m@1", "a"), Control("leave", node="m")])
    total = ketal.compile(text.format("CausalOrder(total)"))
    new = Driven.restored(total, old.snapshot(), changed=True)
    assert [str(v) for v in new.feed(e("n@2", "a"))] == ["match P: A=n@2"]


def test_pattern_that_is_given_a_topology_takes_the_events_after_the_change() -> None:
    text = 'pattern P {{ order CausalOrder; {} event A = type == "a"; find next A; }}'
    old = Driven(ketal.compile(text.format("")))
    old.feed(e("n@2", "a"))
    within = ketal.compile(text.format("topology { n -> m; m -> n; }"))
    new = Driven.restored(within, old.snapshot(), changed=True)
    verdicts = new.feed_many([e("n@1", "a"), e("n@3", "a")])
    assert [str(v) for v in verdicts] == ["match P: A=n@1", "match P: A=n@3"]


def test_changed_pattern_continues_with_the_events_that_were_held_back_for_it() -> None:
    text = 'pattern {} {{ order CausalOrder(gap = {} s); event A = type == "a"; find next A; }}'
    unchanged = text.format("P", 1)
    old = Driven(ketal.compile(unchanged + text.format("Q", 100)))
    old.feed_many([e("n@2", "a", time=0), e("m@1", "a", time=5)])  # lost for P, awaited for Q
    changed = ketal.compile(unchanged + text.format("Q", 50))
    new = Driven.restored(changed, old.snapshot(), changed=True)
    matches = [v for v in new.feed(e("n@1", "a", time=6)) if isinstance(v, ketal.Match)]
    assert [str(v) for v in matches] == ["match Q: A=n@1", "match Q: A=n@2"]


def _compiled_again(text: str, value: Any) -> None:
    both = ketal.compile(text + text.replace("P", "Q").partition(";")[2], w=value)
    again = saved_program(Records(Driven(both).state.records()))
    assert again["Q"].fingerprint == both["Q"].fingerprint
    (name,) = saved_program(Records(Driven(both["P"]).state.records())).names
    assert name == "P"


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("1 s", timedelta(milliseconds=1500)),
        ("1 s", syntax.Duration(0.00001, "h")),
        ("1 s", "30 min"),
        ("1", 2**70),
        ("1.5", 1e-300),
        ("true", False),
        ('"x"', "30s"),
        ('"x"', 'a "quoted" \\ word'),
    ],
)
def test_program_is_compiled_again_from_its_saved_state(declared: str, value: Any) -> None:
    within = "within w;" if declared == "1 s" else ""
    guard = 'type == "a"' if within else "x == w"
    _compiled_again(
        f"param w = {declared}; pattern P {{ event A = {guard}; find next A; {within} }}", value
    )


@pytest.mark.parametrize("value", [timedelta(seconds=-1.5), syntax.Duration(-0.5, "ms")])
def test_negative_difference_of_times_is_compiled_again_from_its_saved_state(value: Any) -> None:
    _compiled_again(
        "param w = 1 s; pattern P { event A = true; B = time < A.time + w; find next A B; }", value
    )


def test_before_contains_seen_events_that_are_not_pending() -> None:
    dot = ketal.Dot
    before = Before.of({"n": (3, [5]), "m": (0, [2])}, [dot("n", 2)])
    for restored in (before, Before.load(before.save())):
        assert restored == before
        asked = [dot(node, counter) for node in "nmk" for counter in range(1, 7)]
        assert [d for d in asked if d in restored] == [
            dot("n", 1), dot("n", 3), dot("n", 5), dot("m", 2)
        ]  # fmt: skip
