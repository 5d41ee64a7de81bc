"""Interval tree clocks as forked columns: areas and identities have the right sizes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.clocks.areas import tree_join_svg, trees_svg
from ketal.clocks.interval_tree import (
    SEED,
    Events,
    Identity,
    IntervalTreeClock,
    IntervalTreeClocks,
    event,
    fork,
    join,
    literal,
)
from ketal.errors import SettingError
from ketal.pictures.clocks.clock_bars import CAPTION_COLUMNS_MAX, LEVELS_MAX
from ketal.pictures.labels import short_label
from tests.clocks.executions import sample_runs
from tests.pictures.svg_boxes import SVG, check_layout, hatched_tooltips, texts
from tests.sampling import examples


def widths(svg: str) -> list[float]:
    """Return the widths of the squares of a picture."""
    rects = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [float(one.get("width", 0)) for one in rects if one.get("class") in ("known", "marked")]


def area(events: Events) -> float:
    if isinstance(events, int):
        return events
    return events[0] + (area(events[1]) + area(events[2])) / 2


def as_events(identity: Identity) -> Events:
    """Return the event tree of one event over an identity."""
    if isinstance(identity, int):
        return identity
    return 0, as_events(identity[0]), as_events(identity[1])


@st.composite
def replicas(draw: st.DrawFn) -> list[IntervalTreeClock]:
    """Draw the replicas of a run with forks, joins and events."""
    clocks = [SEED]
    for _ in range(draw(st.integers(1, 25))):
        at = draw(st.integers(0, len(clocks) - 1))
        step = draw(st.sampled_from(["event", "event", "fork", "join"]))
        if step == "event":
            clocks[at] = event(clocks[at])
        elif step == "fork" and len(clocks) < 6:
            clocks[at : at + 1] = fork(clocks[at])
        elif step == "join" and len(clocks) > 1:
            other = clocks.pop(at)
            to = draw(st.integers(0, len(clocks) - 1))
            clocks[to] = join(clocks[to], other)
    return clocks


@examples(60, 500)
@given(replicas())
def test_interval_tree_clock_is_drawn_as_its_area(clocks: list[IntervalTreeClock]) -> None:
    for clock in clocks:
        svg = trees_svg("a clock", [("", [clock])])
        check_layout(svg)
        assert texts(svg) == [short_label(literal(clock), CAPTION_COLUMNS_MAX)]
        rects = list(ElementTree.fromstring(svg).iter(f"{SVG}rect"))
        line = [one for one in rects if one.get("class") in ("owned", "foreign")]
        whole = sum(float(one.get("width", 0)) for one in line)
        parts = sum(widths(svg)) / whole
        assert parts == pytest.approx(area(clock.events), abs=0.01)
        owned = sum(float(one.get("width", 0)) for one in line if one.get("class") == "owned")
        assert owned / whole == pytest.approx(area(as_events(clock.identity)), abs=0.01)


@examples(40, 300)
@given(st.data())
def test_comparison_and_join_draw_difference_and_union_of_areas(data: st.DataObject) -> None:
    run = data.draw(sample_runs(nodes_max=6, steps_max=25))
    stamps = IntervalTreeClocks().stamped(run.happenings())
    pick = st.integers(0, len(stamps) - 1)
    one, two = data.draw(pick), data.draw(pick)
    if one != two:
        joined = tree_join_svg(stamps[one], stamps[two])
        check_layout(joined)
        assert hatched_tooltips(joined)
        whole = literal(join(stamps[one], stamps[two]))
        assert texts(joined)[-2] == short_label(whole, CAPTION_COLUMNS_MAX)


def test_forked_columns_of_the_paper() -> None:
    left, right = fork(event(event(SEED)))
    middle, last = fork(right)
    row = [event(left), event(middle), event(last)]
    svg = trees_svg("three replicas", [("", row)])
    wide, half, quarter = 128.0, 64.0, 32.0
    assert widths(svg) == [
        wide, wide, half, wide, wide, quarter, wide, wide, quarter,
    ]  # fmt: skip
    joined = tree_join_svg(row[0], row[2])
    assert hatched_tooltips(joined) == ["event 3 over [0/4, 2/4)", "event 3 over [3/4, 4/4)"]


def test_too_high_or_too_deep_tree_names_the_limit() -> None:
    seed = IntervalTreeClock(1, 10**12)
    high = trees_svg("high", [("", [event(one) for one in fork(seed)])])
    check_layout(high)
    assert f"1–{10**12 - 1:,}" in texts(high)
    with pytest.raises(SettingError, match="LEVELS_MAX"):
        tree_join_svg(*fork(IntervalTreeClock(1, (0, LEVELS_MAX + 1, 0))))
    deep = SEED
    for _ in range(60):
        deep = fork(deep)[0]
    with pytest.raises(SettingError, match="COLUMNS_MAX"):
        trees_svg("deep", [("", [deep])])
