"""The parts of a small execution, and patterns that change under it, against the finite log.

`small_streams` has the executions and the comparison. The parts together have the verdicts of the
log, and a pattern and its next version together report each match of the log once; or something is
counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import reject

import ketal
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.verdicts.find_verdicts import Match
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.programs.program import Program
from ketal.runtime.stream_release import JobRelease, KeyGroupRelease, PartRelease, StreamRelease
from ketal.streaming.job.distribution import unsplittable_reason
from tests.driven import Driven
from tests.property.memberships import Run
from tests.runtime.small_streams import (
    DECLARED,
    ENDINGS,
    EVENTS,
    EVERYWHERE,
    PAIRS,
    Case,
    arriving,
    causal,
    compiled,
    dated,
    drawn_program,
    equal_to_log,
    execution,
    is_counted,
    keyed,
    restarting,
    small_dots,
    small_limits,
    with_watermarks,
)
from tests.sampling import drawn

KEYS = range(2)


def small_run(rng: random.Random) -> Run:
    """Return an execution whose nodes leave, and half as often one whose nodes restart."""
    if rng.random() < 0.3:
        # A part does not know the incarnations of which it sees no event.
        return restarting(rng, numbered=False)
    return execution(rng)


@pytest.mark.parametrize("release", [PartRelease, KeyGroupRelease])
def test_parts_have_the_verdicts_of_the_log_unless_they_count_something(
    release: type[StreamRelease],
) -> None:
    compared: Counter[bool] = Counter()
    orders = causal("", "(idle = 2 s)", "(frontier = 1 s)", "(frontier = 20 s)")
    bodies = (*PAIRS, "find next A B;", "check (A | B | C){3,};")

    @drawn(60, 10_000)
    def holds(rng: random.Random) -> None:
        windows = ("partition by key;", "partition by key; within 3 s;")
        program = drawn_program(rng, orders, windows, bodies)
        if any(map(unsplittable_reason, program.compiled)):
            reject()
        run = keyed(rng, dated(rng, small_run(rng)))
        limits = small_limits(rng, held_back_max=(1, 2), clock_entries_max=(2,), **small_dots(run))
        case = Case(program, with_watermarks(rng, arriving(rng, run)), limits)
        parts = [Driven(program, limits=limits, release=release) for _ in KEYS]
        verdicts: list[Verdict] = []
        for record in case.records:
            for number in KEYS if isinstance(record, Control) else [record.data["key"]]:
                verdicts += parts[number].feed(record)
            if rng.random() < 0.1:
                number = rng.choice(KEYS)
                saved = parts[number].snapshot()
                parts[number] = Driven.restored(program, saved, limits=limits, release=release)
        verdicts += [verdict for part in parts for verdict in part.close()]
        if not any(is_counted(part.summary) for part in parts):
            compared[equal_to_log(case, verdicts, ENDINGS)] += 1

    assert min(compared[False], compared[True]) > 3


def matches(verdicts: Sequence[Any]) -> list[str]:
    """Return the matches of the pattern P0, which has several versions."""
    own = (one for one in verdicts if isinstance(one, Match) and one.pattern == "P0")
    return sorted(" ".join(f"{step}={dot}" for step, dot in one.steps) for one in own)


def next_version(program: Program, texts: tuple[str, ...]) -> tuple[Program, Program]:
    """Return a program whose pattern P0 is guarded in other words, and the old P0, to retire."""
    again = texts[0].replace('type == "a"', 'type == "a" && type != "z"')
    return compiled((again, *texts[1:])), program.only(["P0"])


def test_old_and_new_version_of_a_pattern_report_each_match_of_the_log_once() -> None:
    compared: Counter[bool] = Counter()
    options = "(gap = 2 s, idle = 3 s)", f"(total, {DECLARED})", "(frontier = 2 s)"
    orders = causal(*EVERYWHERE, *options)

    @drawn(60, 10_000)
    def holds(rng: random.Random) -> None:
        texts = tuple(
            f"order {rng.choice(orders)} {EVENTS} {rng.choice(PAIRS)} "
            f"within {rng.choice((3, 5, 100))} s;"
            for _ in range(rng.choice((1, 2)))
        )
        old = compiled(texts)
        new, retiring = next_version(old, texts)
        run = dated(rng, execution(rng))
        limits = small_limits(rng, held_back_max=(1, 2), lost_max=(1,), **small_dots(run))
        case = Case(old, with_watermarks(rng, arriving(rng, run, lost=0)), limits)
        options: dict[str, Any] = {"limits": limits}
        options["release"] = rng.choice((StreamRelease, JobRelease))
        monitor, made, verdicts = Driven(old, **options), old, list[Verdict]()
        change = rng.randint(0, len(case.records) - 1)
        for place, record in enumerate(case.records):
            if place == change:
                saved, made = monitor.state.records(), new
                monitor = Driven.restored(new, saved, changed=True, retiring=retiring, **options)
            verdicts += monitor.feed(record)
            if rng.random() < 0.1:
                monitor = Driven.restored(made, monitor.snapshot(), **options)
                if isinstance(record, Event):
                    verdicts += monitor.feed(record)
            if rng.random() < 0.1:
                monitor.drop_retired()
        verdicts += monitor.close()
        if not is_counted(monitor.summary):
            log = list(ketal.run(old, case.records, limits=limits))
            assert matches(verdicts) == matches(log)
            if len(texts) > 1:  # the other pattern does not change
                equal_to_log(case._replace(program=old.only(["P1"])), verdicts, ENDINGS)
            compared[bool(matches(log))] += 1

    assert min(compared[False], compared[True]) > 3
