"""The search modes of the engine for `find any`: all must find the same matches.

The engine chooses one mode by the pattern and the order of events. These helpers force
each mode, so that a fault of one shows over executions that are too long for the oracle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.configurations import Seen
from ketal.engine.find import breakers
from ketal.engine.find_any import columns, event_store
from ketal.engine.find_any.roles import Roles, StepRole
from ketal.engine.find_any.search import Search
from ketal.engine.pattern_run import PatternRun
from ketal.engine.verdict_building import flat
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from ketal.model.limits import Limits
from ketal.model.verdicts.find_verdicts import Match, TimedOut
from ketal.model.verdicts.run_verdicts import Overflow
from ketal.model.verdicts.verdict_kinds import RunVerdict
from tests.outcomes import TooManyError, key
from tests.property.executions import linear_extension

LIMITS = Limits(matches_per_event_max=300, visits_max=20_000)
VERDICTS_MAX = 300

Answer = list[tuple[str, Any, Any]]
"""(kind, scope, steps) of each verdict, sorted."""


@dataclass(frozen=True)
class Mode:
    """How the engine is driven, and which behaviour is forced.

    Attributes
    ----------
    name : str
        Its name in failure reports.
    applies : callable
        Whether the mode can find the matches of a pattern.
    roles : tuple of (str, Any)
        Attributes set on the pattern's `Roles` before the first event.
    unbounded : bool
        Whether a forward search may use only an event's own start as its bound.
    small : bool
        Whether blocks have two events, and periodic sweeps happen every time.
    batched : bool
        Whether all events are processed as one batch.
    watermarks : bool
        Whether time is advanced after each event as far as later events' times allow.
    restored : bool
        Whether the state is saved in the middle and loaded into a fresh run.
    counting : bool
        Whether matches are only counted where possible.
    """

    name: str
    applies: Callable[[CompiledPattern], bool] = lambda _: True
    roles: tuple[tuple[str, Any], ...] = ()
    unbounded: bool = False
    small: bool = False
    batched: bool = False
    watermarks: bool = False
    restored: bool = False
    counting: bool = False


def _is_causal(compiled: CompiledPattern) -> bool:
    return compiled.causal


ANY_ORDER = (("order", None), ("by_place", False))
PLAIN = Mode("as it is")
MODES = (
    Mode("one batch", batched=True),
    Mode("any order", _is_causal, ANY_ORDER),
    Mode("any order, no bounds", _is_causal, (*ANY_ORDER, ("bounding", False))),
    Mode("columns by node", lambda c: not c.causal, (("by_place", False),)),
    Mode("no starts", unbounded=True),
    Mode("watermarks", lambda c: c.window_us is not None, watermarks=True),
    Mode("small blocks", small=True, watermarks=True),
    Mode("any order, small blocks", _is_causal, ANY_ORDER, small=True, watermarks=True),
    Mode("restored", restored=True),
    Mode("counted", counting=True),
)


def compared(
    compiled: CompiledPattern, events: Sequence[Event], rng: random.Random, *, drawn: int = 4
) -> tuple[list[str], int]:
    """Return the modes that differ (with the order), and the number of matches.

    Parameters
    ----------
    compiled : CompiledPattern
        A `find any`.
    events : sequence of Event
        An execution, in an order in which it may arrive.
    rng : random.Random
        What draws the orders and the modes.
    drawn : int
        How many of the modes are tried over each order.

    Raises
    ------
    TooManyError
        If there are more matches than a test needs.
    """
    differ = []
    expected: Answer | None = None
    modes = [mode for mode in MODES if mode.applies(compiled)]
    for name, order in orders(compiled, events, rng):
        plain = answer(compiled, order, PLAIN)
        if expected is None or compiled.window_events is not None:
            # A window of events counts places in the order offered.
            expected = plain
        elif plain != expected:
            differ.append(name)
        for mode in rng.sample(modes, min(drawn, len(modes))):
            if not agrees(compiled, order, mode, expected):
                differ.append(f"{name}, {mode.name}")
    return differ, _matches(expected or [])


def orders(
    compiled: CompiledPattern, events: Sequence[Event], rng: random.Random
) -> Iterator[tuple[str, list[Event]]]:
    """Yield the orders in which events may be offered to a pattern, with their names."""
    if not compiled.causal:
        yield "arrival", list(events)
        return
    yield "canonical", canonical(events)
    yield "linear extension", linear_extension(rng, list(events))
    if compiled.order_free:
        yield "shuffled", rng.sample(events, len(events))


def agrees(compiled: CompiledPattern, order: list[Event], mode: Mode, expected: Answer) -> bool:
    """Return whether a mode finds the expected matches, or counts as many."""
    if not mode.counting:
        return answer(compiled, order, mode) == expected
    with _made(mode):
        run, _ = _run(compiled, order, mode)
    return run.counts.matches == _matches(expected)


def answer(compiled: CompiledPattern, order: list[Event], mode: Mode) -> Answer:
    """Return the verdicts of a mode, and assert that each match comes once, with its last event.

    Raises
    ------
    TooManyError
        If there are more matches than a test needs.
    """
    with _made(mode):
        run, verdicts = _run(compiled, order, mode)
        verdicts += [(len(order), v) for v in run.steps.close()]
    _reject_many(verdicts)
    places = {event.dot: place for place, event in enumerate(order)}
    found: Answer = []
    for place, verdict in verdicts:
        assert isinstance(verdict, Match | TimedOut)
        if isinstance(verdict, Match):
            assert place == max(places[dot] for _, dot in verdict.steps)
        found.append((type(verdict).__name__, key(verdict), verdict.steps))
    found.sort(key=repr)
    assert all(a != b for a, b in pairwise(found)), "each is reported once"
    return found


def _matches(answer: Answer) -> int:
    return sum(kind == "Match" for kind, _, _ in answer)


@contextmanager
def _made(mode: Mode) -> Iterator[None]:
    """Force the engine into a mode."""
    with pytest.MonkeyPatch.context() as patch:
        if mode.small:
            patch.setattr(columns, "BLOCK", 2)
            patch.setattr(columns, "REGION", 4)
            patch.setattr(breakers, "SWEEP_MIN", 1)
            patch.setattr(event_store, "SWEEP_MIN", 0)
            patch.setattr(event_store, "UNINDEXED_MAX", 2)
        if mode.unbounded:
            patch.setattr(Search, "latest_start", _own_start)
        yield


def _own_start(search: Any, role: StepRole, seen: Seen, at: int) -> float:
    start: float = search._roles.window.position(seen)
    return start


def _run(
    compiled: CompiledPattern, order: list[Event], mode: Mode
) -> tuple[PatternRun, list[tuple[int, RunVerdict]]]:
    """Return a run after all events, and its verdicts with the places of their events."""
    run = _fresh(compiled, mode)
    if mode.batched:
        return run, [(n, v) for n, verdicts in run.process(order) for v in verdicts]
    found: list[tuple[int, RunVerdict]] = []
    marks = _watermarks(order) if mode.watermarks else None
    for place, event in enumerate(order):
        if mode.restored and place == len(order) // 2:
            run = _restored(compiled, mode, run)
        verdicts = flat(run.process((event,)))
        if marks is not None:
            verdicts = verdicts + run.steps.advance(marks[place])
        found += [(place, verdict) for verdict in verdicts]
        _reject_many(found)
    run.validate_state()
    return run, found


def _restored(compiled: CompiledPattern, mode: Mode, run: PatternRun) -> PatternRun:
    run.validate_state()
    fresh = _fresh(compiled, mode)
    fresh.load(run.save(), (), [scope.save() for scope in run.scopes.by_name.values()])
    fresh.validate_state()
    return fresh


def _reject_many(found: Sequence[tuple[int, RunVerdict]]) -> None:
    if len(found) > VERDICTS_MAX or any(isinstance(v, Overflow) for _, v in found):
        raise TooManyError


def _fresh(compiled: CompiledPattern, mode: Mode) -> PatternRun:
    run = PatternRun(compiled, LIMITS, listing=not mode.counting)
    roles = run.scopes._roles
    assert isinstance(roles, Roles)
    if mode.roles:
        roles = run.scopes._roles = Roles(compiled)  # which no other run shares
    for name, value in mode.roles:
        setattr(roles, name, value)
    return run


def _watermarks(order: Sequence[Event]) -> list[int]:
    """Return per event the least time of all later events; for the last, the greatest time."""
    times = [event.time_us for event in order if event.time_us is not None]
    least = max(times, default=0)
    marks = []
    for event in reversed(order):
        marks.append(least)
        if event.time_us is not None:
            least = min(least, event.time_us)
    return marks[::-1]
