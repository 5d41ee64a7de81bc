"""Each timestamping scheme against the definition of happened-before, on random executions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.inexact.hybrid import HybridClocks
from ketal.clocks.inexact.plausible import PlausibleClocks
from ketal.clocks.scheme import Happening, Scheme, StampOrder
from ketal.clocks.schemes import SCHEMES, scheme_named
from ketal.clocks.stamping import vector_clocks
from ketal.errors import EventError, SettingError
from tests.clocks.executions import SampleRun, count_answers, sample_runs
from tests.sampling import examples

EXACT = [name for name in SCHEMES if scheme_named(name).decides]
INEXACT = [name for name in SCHEMES if not scheme_named(name).decides]


def _stamps(scheme: Scheme[Any], run: SampleRun) -> list[Any]:
    return scheme.stamped(run.happenings())


@pytest.mark.parametrize("name", EXACT)
@examples(40, 300)
@given(run=sample_runs())
def test_an_exact_scheme_decides_every_pair(name: str, run: SampleRun) -> None:
    for truth, answer in count_answers(scheme_named(name), run.happenings(), run.pasts()):
        assert answer is truth


@pytest.mark.parametrize("scheme", [*map(scheme_named, INEXACT), PlausibleClocks(2)])
@examples(40, 300)
@given(run=sample_runs())
def test_inexact_scheme_contradicts_no_pair(scheme: Scheme[Any], run: SampleRun) -> None:
    for truth, answer in count_answers(scheme, run.happenings(), run.pasts()):
        assert answer in (truth, StampOrder.UNKNOWN)


@pytest.mark.parametrize("name", INEXACT)
@examples(40, 300)
@given(run=sample_runs())
def test_inexact_scheme_orders_every_happened_before_pair(name: str, run: SampleRun) -> None:
    scheme, pasts = scheme_named(name), run.pasts()
    stamps = _stamps(scheme, run)
    order = scheme.order(stamps)
    for b, past in enumerate(pasts):
        for a in past:
            assert order(stamps[a], stamps[b])
            assert not order(stamps[b], stamps[a])


@given(run=sample_runs(nodes_max=4))
def test_plausible_clock_with_an_entry_per_node_is_exact(
    run: SampleRun,
) -> None:
    scheme, pasts = PlausibleClocks(4), run.pasts()
    stamps = _stamps(scheme, run)
    for a in range(len(stamps)):
        for b in range(len(stamps)):
            assert scheme.precedes(stamps[a], stamps[b]) == (a in pasts[b])


def test_nodes_that_share_an_entry_have_false_orders() -> None:
    """ "Events that might occur concurrently in the left and right nodes will appear ordered." """
    run = SampleRun(["left", "middle", "right", "right"], [(), (), (), ()])
    scheme = PlausibleClocks(2)
    left, middle, right, second = _stamps(scheme, run)
    assert scheme.compare(left, right) is StampOrder.CONCURRENT
    assert scheme.compare(left, second) is StampOrder.UNKNOWN
    assert scheme.precedes(left, second)
    assert scheme.compare(left, middle) is StampOrder.CONCURRENT
    assert scheme.compare(right, second) is StampOrder.BEFORE


@pytest.mark.parametrize("name", SCHEMES)
@given(run=sample_runs(steps_max=20))
def test_stamp_is_read_back_as_written(name: str, run: SampleRun) -> None:
    scheme = scheme_named(name)
    for node, stamp in zip(run.nodes, _stamps(scheme, run), strict=True):
        assert scheme.read(scheme.written(stamp), node) == stamp
        assert scheme.decode(scheme.encode(stamp), node) == stamp


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("receives", [(1,), (2,), (-1,), (0, 0)])
def test_events_receive_messages_of_distinct_earlier_events(
    name: str, receives: tuple[int, ...]
) -> None:
    events = [Happening(node="a"), Happening(node="b", receives=receives), Happening(node="a")]
    with pytest.raises(ValueError, match=r"event 1 receives .* must be distinct earlier events"):
        scheme_named(name).stamped(events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("name", SCHEMES)
@examples(25, 1_000)
@given(value=JSON | st.fixed_dictionaries({"dot": JSON, "past": JSON}), data=st.binary())
def test_an_invalid_stamp_is_an_error(name: str, value: Any, data: bytes) -> None:
    scheme = scheme_named(name)
    for read in (partial(scheme.read, value, "n"), partial(scheme.decode, data, "n")):
        if isinstance(stamp := _stamp_or_error(read), EventError):
            assert stamp.reason.startswith("clock: ")
        else:
            assert scheme.read(scheme.written(stamp), "n") == stamp


@pytest.mark.parametrize("name", SCHEMES)
def test_bytes_nested_too_deeply_are_no_stamp(name: str) -> None:
    lists = b"\x91" * 100_000 + b"\x01"
    assert isinstance(_stamp_or_error(lambda: scheme_named(name).decode(lists, "n")), EventError)


def _stamp_or_error(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except EventError as error:
        return error


@pytest.mark.parametrize("name", EXACT)
@given(run=sample_runs(steps_max=30))
def test_exact_stamps_can_be_converted_to_vector_clocks(name: str, run: SampleRun) -> None:
    scheme = scheme_named(name)
    stamps = _stamps(scheme, run)
    of_node: dict[str, list[Any]] = {}
    for node, stamp in zip(run.nodes, stamps, strict=True):
        of_node.setdefault(node, []).append(stamp)
    expected: dict[str, list[dict[str, int]]] = {}
    for node, clock in run.clocks():
        expected.setdefault(node, []).append(clock)
    assert vector_clocks(scheme.order(stamps), of_node) == expected


@given(run=sample_runs())
def test_hybrid_clock_is_the_largest_known_physical_time(
    run: SampleRun,
) -> None:
    """Kulkarni et al., Theorem 2 and Corollary 1: l is the greatest known physical time."""
    pasts = run.pasts()
    for number, stamp in enumerate(_stamps(HybridClocks(), run)):
        known = [run.times_us[one] for one in (*pasts[number], number)]
        assert stamp.time_us == max(0, *known)
        assert stamp.counter <= len(known)


def test_an_unknown_scheme_is_an_error() -> None:
    with pytest.raises(SettingError, match="unknown clock scheme 'ict'; did you mean itc"):
        scheme_named("ict")
