"""Space-time diagrams with stamps: all events and messages, left to right, in bands."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from hypothesis import given

from ketal.clocks.interval_tree import IntervalTreeClocks
from ketal.clocks.scheme import Happening
from ketal.clocks.vector import VectorClocks
from ketal.pictures.clocks.stamped_space_time import (
    RADIUS,
    STAMP_COLUMNS_MAX,
    TimelineEvent,
    stamped_space_time_svg,
)
from ketal.pictures.clocks.timeline_layout import BAND_GAP, CLEAR_PX, ROW, Timeline
from tests.clocks.executions import SampleRun, sample_runs
from tests.pictures.svg_boxes import SVG, check_layout, texts
from tests.pictures.test_svg import colours
from tests.sampling import examples

Point = tuple[float, float]


def drawn(run: SampleRun) -> str:
    """Draw a run with its vector clocks."""
    nodes = sorted(set(run.nodes))
    seen: Counter[str] = Counter()
    events = []
    for stamp in VectorClocks().stamped(run.happenings()):
        seen[stamp.node] += 1
        text = f"[{','.join(str(stamp.clock.get(node, 0)) for node in nodes)}]"
        events.append(TimelineEvent(stamp.node, text, f"{stamp.node}@{seen[stamp.node]}"))
    messages = [(send, number) for number, sends in enumerate(run.causes) for send in sends]
    return stamped_space_time_svg("a run", nodes, events, messages)


def dots(svg: str) -> list[Point]:
    circles = ElementTree.fromstring(svg).iter(f"{SVG}circle")
    return [(float(one.get("cx", 0)), float(one.get("cy", 0))) for one in circles]


def curves(svg: str) -> list[list[list[Point]]]:
    """Return the pieces of each message: start, control point, end."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [
        [points(path.get("d", "")) for path in group.iter(f"{SVG}path")]
        for group in groups
        if group.get("class") == "sent"
    ]


def points(path: str) -> list[Point]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]


@examples(60, 500)
@given(sample_runs(nodes_max=6, steps_max=40))
def test_each_event_has_its_stamp_and_each_message_an_arrow(run: SampleRun) -> None:
    svg = drawn(run)
    check_layout(svg)
    assert len(texts(svg, "stamp")) == len(run.nodes) == len(dots(svg))
    nodes = sorted(set(run.nodes))
    expected = [f"[{','.join(str(c.get(n, 0)) for n in nodes)}]" for _, c in run.clocks()]
    assert texts(svg, "stamp") == expected
    messages = [(send, to) for to, sends in enumerate(run.causes) for send in sends]
    arrows = list(ElementTree.fromstring(svg).iter(f"{SVG}polygon"))
    assert len(arrows) == len(messages) == len(curves(svg))
    places = dots(svg)
    for (send, to), pieces in zip(messages, curves(svg), strict=True):
        assert pieces[0][0] == places[send]
        assert math.dist(pieces[-1][-1], places[to]) <= RADIUS + 11
        for start, _, end in pieces:
            assert start[0] <= end[0]


@examples(60, 500)
@given(sample_runs(nodes_max=6, steps_max=60))
def test_message_continues_in_the_next_band(run: SampleRun) -> None:
    nodes = sorted(set(run.nodes))
    rows = [nodes.index(node) for node in run.nodes]
    messages = [(send, to) for to, sends in enumerate(run.causes) for send in sends]
    line = Timeline(rows, [300.0] * len(rows), messages, rows_count=len(nodes), left=0.0)
    band = ROW * len(nodes) + BAND_GAP
    for send, to in messages:
        pieces = list(line.pieces(send, to))
        assert pieces[0].start == line.point(send)
        assert pieces[-1].end == pytest.approx(line.point(to))
        assert [one.arrives for one in pieces] == [False] * (len(pieces) - 1) + [True]
        for one, two in itertools.pairwise(pieces):
            assert two.start[1] - one.end[1] == pytest.approx(band)
            assert two.start[0] == pytest.approx(0.0, abs=1e-6)


def test_message_avoids_the_dots_between_its_ends() -> None:
    # The straight line from a's first to c's third event would pass through b's second.
    run = SampleRun([*"abbcc", "c"], [(), (), (), (), (), (0,)])
    svg = drawn(run)
    ((start, control, end),) = curves(svg)[0:1][0]
    middle = dots(svg)[2]
    assert (start[0] + dots(svg)[5][0]) / 2 == pytest.approx(middle[0], abs=0.1)
    for part in (step / 100 for step in range(101)):
        x, y = (
            (1 - part) ** 2 * a + 2 * part * (1 - part) * b + part**2 * c
            for a, b, c in zip(start, control, end, strict=True)
        )
        assert math.dist((x, y), middle) > CLEAR_PX - 1


def test_two_hundred_events_are_drawn_in_bands() -> None:
    nodes = [f"n{(7 * step) % 8}" for step in range(200)]
    causes: list[tuple[int, ...]] = [() if n < 5 or n % 3 else (n - 5,) for n in range(200)]
    svg = drawn(SampleRun(nodes, causes))
    check_layout(svg)
    root = ElementTree.fromstring(svg)
    assert float(root.get("width", 0)) < 1_300
    assert len(texts(svg, "node")) > 8
    assert set(texts(svg, "node")) == set(nodes)
    assert any(len(pieces) > 1 for pieces in curves(svg))


def test_stamps_of_any_text_are_drawn_and_long_ones_truncated() -> None:
    scheme = IntervalTreeClocks()
    (stamp,) = scheme.stamped([Happening(node="a")])
    events = [
        TimelineEvent("a", scheme.text(stamp)),
        TimelineEvent("a", "<&>\x00" + "x" * 200, "a long one", "open"),
        TimelineEvent("b", "時計", "", "ringed"),
    ]
    svg = stamped_space_time_svg("texts", ["a", "b"], events, [(0, 2)])
    check_layout(svg)
    first, long, last = texts(svg, "stamp")
    assert (first, last) == ("1", "時計")
    assert long.startswith("<&>\\x00xxx")
    assert len(long) == STAMP_COLUMNS_MAX
    tips = [g.findtext(f"{SVG}title") or "" for g in ElementTree.fromstring(svg).iter(f"{SVG}g")]
    assert "a long one <&>\\x00" + "x" * 200 in tips
    forms = [one.get("class") for one in ElementTree.fromstring(svg).iter(f"{SVG}circle")]
    assert forms == ["event", "open", "open", "event"]


def test_empty_run_is_a_picture_of_its_nodes() -> None:
    svg = stamped_space_time_svg("nothing", ["a", "b"], [], [])
    check_layout(svg)
    assert texts(svg) == ["a", "b"]


@pytest.mark.parametrize(
    ("dark", "ground", "message"),
    [(False, "#ffffff", "#0550ae"), (True, "#15191f", "#79b8ff")],
)
def test_renderer_without_css_variables_shows_ground_and_messages(
    dark: bool, ground: str, message: str
) -> None:
    svg = drawn(SampleRun([*"aabb"], [(), (), (), (1,)]))
    if dark:
        svg = re.sub(r"@media[^{]*[{]((?:[^{}]*[{][^{}]*[}])*)\s*[}]", r"\1", svg)
    shown = colours(svg)
    assert shown.most_common(1)[0][0] == ground
    assert shown[message] >= 15
