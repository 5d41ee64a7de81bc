"""Identification: the few incarnations that an event is compared with, of many."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest
from hypothesis import given

import ketal
from ketal import Match, Monitor
from ketal.errors import EventError
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.operators.membership.members import MembershipStage
from ketal.runtime.admission.deduplication import NEW, Intake
from ketal.runtime.admission.identification import Admission
from tests.property.memberships import Run, base, runs
from tests.sampling import examples


class Named:
    """Events named by incarnation, by what an intake knows of them; counts its comparisons."""

    def __init__(self, limits: Limits, *, all_runs: bool) -> None:
        self.stage = MembershipStage(limits)
        self.intake = Intake(limits)
        self.all_runs = all_runs
        self.compared = 0

    def status(self, event: Event) -> str:
        self.compared += 1
        return self.intake.status(event)

    def possible_runs(self, event: Event) -> Collection[str]:
        """Return what the intake does, or, if `all_runs`, all incarnations of the node."""
        if self.all_runs:
            return [name for name in self.intake.nodes if base(name) == event.node]
        return self.intake.possible_runs(event)

    def name_of(self, event: Event) -> str:
        """Return the dot of an event's new name and its status, or the reason of its rejection."""
        try:
            named = self.stage.rename(event, self)
        except EventError as error:
            return str(error)
        if self.intake.admit((named,), named=True):
            self.stage.arrived(named)
            return f"{named.dot} {NEW}"
        return f"{named.dot} {self.intake.status(named)}"


@examples(60, 2_000)
@given(runs(restarts=True, events_max=60, churns=(0.3, 0.6)))
def test_a_comparison_with_all_incarnations_gives_the_same_names(
    drawn: tuple[Run, random.Random],
) -> None:
    run, rng = drawn
    order = sorted(range(len(run.stamped)), key=lambda place: place + rng.random() * 4)
    arrivals = [run.stamped[place] for place in order if rng.random() < 0.9]
    arrivals += rng.sample(arrivals, len(arrivals) // 4)
    limits = Limits(dots_max=rng.choice((8, 1_000)), counters_max=rng.choice((3, 1_000)))
    few, every = (Named(limits, all_runs=chosen) for chosen in (False, True))
    assert list(map(few.name_of, arrivals)) == list(map(every.name_of, arrivals))
    few.intake.validate_state()
    few.stage.incarnations.table.validate_state()


def test_the_comparisons_of_an_event_do_not_grow_with_the_number_of_incarnations() -> None:
    counts = []
    for run_count in (10, 80):
        named = Named(Limits(), all_runs=False)
        for run in range(run_count):
            for counter in range(1, 6):
                named.name_of(Event("A", "a", {"A": counter}, data={"run": run}))
        named.compared = 0
        assert named.name_of(Event("A", "b", {"A": 6})) == f"A#{run_count}@6 new"
        assert named.name_of(Event("A", "a", {"A": 3}, data={"run": 5})) == "A#6@3 duplicate"
        counts.append(named.compared)
    assert counts[0] == counts[1] < 10


def test_late_event_is_of_the_only_incarnation_that_lacks_its_counter() -> None:
    """Also if it is not the first one or the latest, and after a restore."""
    program = ketal.compile('pattern P { event E = node == "A#2"; find any E; }')
    monitor = Monitor(program)
    for run, counters in enumerate(((1, 2, 3), (1, 3), (1, 2, 3)), 1):
        for counter in counters:
            found = monitor.feed(Event("A", "a", {"A": counter, "B": run}))
            assert len(found) == (run == 2)
    for same in (Monitor.restore(program, monitor.snapshot()), monitor):
        (match,) = same.feed(Event("A", "a", {"A": 2, "B": 2}))
        assert isinstance(match, Match)
        assert [*match.events] == [("A#2", 2)]


@pytest.mark.parametrize("name", ["A#02", "A#" + "9" * 5_000])
def test_a_node_that_is_named_like_an_incarnation_is_none(name: str) -> None:
    named = Named(Limits(), all_runs=False)
    for type in "abc":
        for counter in (1, 2):
            named.name_of(Event("A", type, {"A": counter}))
    named.name_of(Event(name, "x", {name: 5}))
    assert named.name_of(Event("A", "c", {"A": 3})) == "A#3@3 new"


def test_state_of_a_version_that_detected_departures_on_release_shows_them_when_loaded() -> None:
    """Both events of n2 had arrived, and neither was released."""
    program = ketal.compile("pattern P { event E = true; B = Causal(E); find any B B; }")
    saved = Admission(program.compiled, DEFAULT)
    memory = saved.ensure_membership().memory
    memory.put("n2", 1, {"n1": 1, "n2": 1})
    memory.put("n2", 2, {"n2": 2})
    state, rows = saved.save(), memory.rows([("n2", 1), ("n2", 2)])
    for departed in (set(), {"n1"}):
        loaded = Admission(program.compiled, DEFAULT)
        loaded.load(state, beyond=(), contents=(), clocks=[rows], first={})
        assert loaded.membership is not None
        assert loaded.membership.departed == departed
        state.pop("drops", None)
