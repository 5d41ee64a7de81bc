"""Engines with a planted fault, each of which the tests of `find any` must detect.

A fault is a change of a few characters in the engine's own source. The comparisons of the tests
must detect it within a number of cases: mode against mode over 60 events, the engine against the
oracle over few events, or a designed execution. `make test` runs the first comparison of a fault,
`make long` all of them. If the code that a fault changes is gone, its test fails, and a new fault
has to be planted.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from ketal.compiler.compiled_pattern import CompiledPattern
from ketal.engine.find.breakers import Breakers
from ketal.engine.find_any import bounds, occurrences, search
from ketal.engine.find_any.columns import BLOCK, REGION, Bounds, Column, Columns
from ketal.engine.find_any.event_store import EventStore
from ketal.engine.find_any.kept_events import KeptEvents, RoleColumns
from ketal.engine.find_any.occurrences import AnyFind
from ketal.engine.find_any.search import Search
from ketal.model.events.event import Event
from tests.engine import test_find_shapes as shapes
from tests.engine.mutating import mutated
from tests.outcomes import TooManyError
from tests.property.against_oracle import SmallCase, differing_orders, small_case
from tests.property.modes import compared
from tests.property.test_modes import long_case
from tests.sampling import sample

# The cases are made once, by the worker that has all faults.
pytestmark = pytest.mark.xdist_group("planted_faults")

Planted = Callable[[], AbstractContextManager[Any]]
"""Returns a context manager within which a fault, or none, is planted."""
Sees = Callable[[Planted], bool]
"""A comparison, which returns whether it found a difference."""


@dataclass(frozen=True)
class Fault:
    """A fault: where it is planted, and the comparisons that see it.

    Attributes
    ----------
    name : str
        What the fault breaks.
    owner, function : Any, str
        The module or class, and the name of the function in it.
    old, new : str
        A text of the source, and its replacement.
    seen_by : callable, or tuple of callable
        The comparisons.
    """

    name: str
    owner: Any
    function: str
    old: str
    new: str
    seen_by: Sees | tuple[Sees, ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the fault."""
        function = mutated(getattr(self.owner, self.function), self.old, self.new)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.function, function)
            yield


# --- the comparisons -----------------------------------------------------------------


@functools.cache
def _long_case(seed: int) -> tuple[CompiledPattern, list[Event]] | None:
    return long_case(random.Random(seed))


@functools.cache
def _small_case(seed: int) -> SmallCase | None:
    return small_case(random.Random(seed), "any")


def by_modes(planted: Planted, cases: int = 300) -> bool:
    """Return whether two modes differ over 60 events."""
    return any(_modes_differ(planted, seed) for seed in range(cases))


def _modes_differ(planted: Planted, seed: int) -> bool:
    case = _long_case(seed)
    if case is None:
        return False
    try:
        with planted():
            differ, _ = compared(*case, random.Random(seed))
    except TooManyError:
        return False
    except (AssertionError, RecursionError):  # a search without an end differs as well
        return True
    return bool(differ)


def by_oracle(planted: Planted, cases: int = 1_500) -> bool:
    """Return whether the engine differs from the oracle over ten events or fewer."""
    return any(_oracle_differs(planted, seed) for seed in range(cases))


def _oracle_differs(planted: Planted, seed: int) -> bool:
    case = _small_case(seed)
    if case is None:
        return False
    try:
        with planted():
            return bool(differing_orders(case, random.Random(seed)))
    except TooManyError:
        return False
    except AssertionError:
        return True


def by_shape(shape: Callable[..., None], *arguments: Any) -> Sees:
    """Return a comparison that runs a test of a designed execution."""

    def sees(planted: Planted) -> bool:
        try:
            with planted():
                shape(*arguments)
        except AssertionError:
            return True
        return False

    return sees


FAULTS = (
    Fault(
        "a summary of what comes before is not pushed on",
        bounds, "_push_before",
        "column.before.raise_range(low, high, value):",
        "column.before.raise_range(low, high, value) and False:",
        (by_shape(shapes.test_raised_bounds_are_propagated_over_a_whole_range), by_modes),
    ),
    Fault(
        "a summary of what comes after is not pushed on",
        bounds, "_push_after",
        "column.after.raise_range(low, high, value):",
        "column.after.raise_range(low, high, value) and False:",
        (by_shape(shapes.test_raised_bounds_are_propagated_over_a_whole_range), by_modes),
    ),
    Fault(
        "what a range of events can come before is taken from its last",
        bounds, "_following_range",
        "column.first_knowing(last,", "column.first_knowing(first,",
        by_shape(shapes.test_raised_bounds_are_propagated_over_a_whole_range),
    ),
    Fault(
        "the head of a range is not raised with its blocks",
        Bounds, "raise_range",
        "self._raise_some(low, first * BLOCK, value)",
        "self._raise_some(low, first * BLOCK - 1, value)",
        (by_shape(shapes.test_matches_of_ranges_at_the_edges_of_blocks, 1, BLOCK - 1), by_modes),
    ),
    Fault(
        "a tag of a region stands for all of its blocks but the last",
        Bounds, "raise_range",
        "self._raise_blocks(first, first + BLOCK, value)",
        "self._raise_blocks(first, first + BLOCK - 1, value)",
        (by_shape(shapes.test_matches_of_ranges_at_the_edges_of_blocks, 1, REGION), by_modes),
    ),
    Fault(
        "an event is evicted by the start of what comes to it, though earlier ones may come late",
        EventStore, "__init__",
        "self._by_start = order is not ReleaseOrder.CAUSAL", "self._by_start = True",
        by_shape(
            shapes.test_event_is_kept_for_a_late_start_within_the_window,
            "p A|q Z|r B <p",
        ),
    ),
    Fault(
        "an event waits to be indexed though its time falls",
        EventStore, "defer",
        "if time < latest:", "if False:",
        by_modes,
    ),
    Fault(
        "a start that the window passes while it waits to be indexed is not timed out",
        AnyFind, "_expire",
        "self._await_match(seen, self._window.position(seen), self._roles.use_of(seen))", "pass",
        by_modes,
    ),
    Fault(
        "an event that some start may come to later, by another order, does not wait",
        EventStore, "defer",
        "sources & reached or not by_start", "sources & reached",
        by_shape(shapes.test_event_without_a_start_is_kept_for_a_late_one),
    ),
    Fault(
        "the first event that waits to be indexed is forgotten",
        EventStore, "take_unindexed",
        "list(unindexed)", "list(unindexed)[1:]",
        (by_oracle, by_modes),
    ),
    Fault(
        "an event that is in two roles is counted before itself",
        EventStore, "keep",
        "beginnings = search.beginnings(role, seen)",
        "beginnings = search.beginnings(role, seen) + sum(count for _, _, count in placed)",
        (
            by_shape(
                shapes.test_event_on_two_edges_is_taken_once,
                shapes.ARRIVAL, "find any A A A;", (4, 4),
            ),
            by_modes,
        ),
    ),
    Fault(
        "the columns of an equality are not swept",
        RoleColumns, "sweep",
        "    columns.sweep(is_kept)", "    pass",
        by_shape(
            shapes.test_columns_of_finished_keys_are_removed, shapes.CAUSAL, "T = C && k == A.k;"
        ),
    ),
    Fault(
        "the last event of a column is taken for the one with the latest start",
        Column, "latest_start",
        "return self.latest", "return self.starts[-1]",
        (
            by_shape(
                shapes.test_matches_with_times_that_go_backwards, shapes.ARRIVAL, "S = B; T = C;"
            ),
            by_modes,
        ),
    ),
    Fault(
        "places that fall along a node's counters are not filtered",
        Search, "_extend_back",
        "mixed = self._in_offered_order and not column.rising", "mixed = False",
        (by_shape(shapes.test_matches_under_an_arrival_that_is_no_linear_extension), by_modes),
    ),
    Fault(
        "a step that has its first event stays closed",
        KeptEvents, "columns",
        "self._reach = None", "pass",
        (by_oracle, by_modes),
    ),
    Fault(
        "an index of an equality leaves one node out",
        RoleColumns, "_index_values",
        "if value is not None:", 'if value is not None and seen.node != "n1":',
        (by_oracle, by_modes),
    ),
    Fault(
        "the last event of a concurrent range is left out",
        Search, "_range",
        "high = column.first_knowing(other, low, high)",
        "high = max(low, column.first_knowing(other, low, high) - 1)",
        (by_oracle, by_modes),
    ),
    Fault(
        "a concurrent range ahead begins one event late",
        search, "_range_after",
        "bisect_right(column.counters, x.clock.get(node, 0), low)",
        "bisect_right(column.counters, x.clock.get(node, 0) + 1, low)",
        (by_oracle, by_modes),
    ),
    Fault(
        "the first node that an event knows is left out of a search",
        Columns, "known_to",
        "in sorted(clock)", "in sorted(clock)[1:]",
        (by_shape(shapes.test_many_nodes_that_know_few_others), by_modes),
    ),
    Fault(
        "events that are known to no more than one node have no events after them",
        KeptEvents, "record_past",
        "counter > past.get(node, 0)", "past.get(node)",
        (by_shape(shapes.test_many_nodes_that_know_few_others), by_modes),
    ),
    Fault(
        "an N bars the event that it is",
        Breakers, "_joint_past",
        "own[node] = last.counter", "own[node] = last.counter + 1",
        (
            by_shape(
                shapes.test_barring_events_at_the_edges_of_their_range, shapes.CAUSAL,
                "p A|p N|p A|q B <p", 2,
            ),
            by_oracle, by_modes,
        ),
    ),
    Fault(
        "an event that can break a `not` is dropped with the first that it bars",
        Breakers, "sweep",
        "place > oldest", "place > oldest + 1",
        (
            by_shape(
                shapes.test_barring_events_at_the_edges_of_their_range, shapes.ARRIVAL,
                "p A|q N|q B|q B", 2,
            ),
            by_modes,
        ),
    ),
    Fault(
        "of mirror images all are reported",
        occurrences, "without_mirrors",
        "return list(least.values())", "return list(range(len(matches)))",
        by_oracle,
    ),
    Fault(
        "a step on two edges has no event before the first one on the later edge",
        KeptEvents, "first_place",
        "return min(places, default=None)", "return max(places, default=None)",
        by_shape(shapes.test_equality_with_a_step_on_two_edges_reaches_back_to_its_first_event),
    ),
    Fault(
        "a window is as long as it says and not less",
        Search, "_extend_back",
        "hi - lo >= length", "hi - lo > length",
        (by_oracle, by_modes),
    ),
    Fault(
        "an anchor that is hidden by a nearer one is asked all the same",
        search, "relations_before",
        "hidden = hidden or path[i].edge.step == step", "hidden = False",
        by_shape(
            shapes.test_named_anchor_is_the_last_event_of_its_step,
            shapes.CAUSAL, "Causal(C, A)", (2, 1),
        ),
    ),
    Fault(
        "a snapshot lacks the events that can break a `not`",
        AnyFind, "save",
        '"breakers": [] if self.breakers is None else self.breakers.save(seens)', '"breakers": []',
        (
            by_shape(
                shapes.test_snapshot_after_every_event_changes_no_match,
                shapes.CAUSAL, shapes.SAVED["not"],
            ),
            by_modes,
        ),
    ),
    Fault(
        "a snapshot lacks the events that wait for a match",
        AnyFind, "save",
        '"firsts": self.unmatched_starts.save(seens)', '"firsts": []',
        by_modes,
    ),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_detected(fault: Fault) -> None:
    comparisons = fault.seen_by if isinstance(fault.seen_by, tuple) else (fault.seen_by,)
    for sees in sample(comparisons[:1], comparisons):
        assert sees(fault.planted)


def test_engine_without_a_fault_passes_all_comparisons() -> None:
    """The comparisons that detect the faults find no difference without one."""
    assert not by_modes(nullcontext, sample(20, 300))
    assert not by_oracle(nullcontext, sample(100, 1_500))


def test_fault_whose_code_is_gone_is_an_error() -> None:
    """A fault that does not fit the source any more is an error, not a difference."""
    with pytest.raises(LookupError, match="has 'no such code' 0 times"):
        mutated(Search.find, "no such code", "")
