"""The drawing: well-formed, complete, nothing over anything else; by both layouts."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
import time
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ketal.errors import SettingError
from ketal.pictures import SVG_EDGES_MAX, SVG_STATES_MAX, Edge, Graph, LayoutWarning, State, Way
from ketal.pictures.layout import Layout, Scene
from ketal.pictures.svg import LABEL_PAD, lay_out, scene_of
from ketal.pictures.wording import (
    ELLIPSIS,
    LABEL_COLUMNS_MAX,
    LABEL_LINES_MAX,
    columns,
    wrapped,
)

SVG = "{http://www.w3.org/2000/svg}"


def made(count: int, pairs: list[tuple[int, int]], guard: str = "k == 1") -> Graph:
    states = tuple(State(n, f"q{n}", n == 0, n == count - 1) for n in range(count))
    edges = tuple(Edge(s, t, (Way((f"S{s}",), (), guard),)) for s, t in sorted(set(pairs)))
    return Graph("P", "check", "0" * 32, states, edges)


def everywhere(count: int) -> list[tuple[int, int]]:
    return list(itertools.product(range(count), range(count)))


PROTOCOL = made(
    8,
    [
        *[(0, 1), (1, 0), (1, 1), (1, 2), (2, 2), (2, 0), (2, 3), (3, 4), (3, 5), (2, 5)],
        *[(5, 6), (6, 2), (6, 5), (4, 0), (1, 5), (6, 7), (7, 7)],
    ],
    'kind == "error" && code in [500, 501] && size <= 1500 || Causal(Msg, Open)',
)
NAMED = Graph(
    "Named",
    "check",
    "0" * 32,
    (State(0, "Waiting", True, False), State(1, "Ünïcode<&>\"'\x00]]>", False, True)),
    (
        Edge(0, 1, (Way(("A",), (), 'k == "<b>&amp;\x07"'), Way(("B",)))),
        Edge(1, 1, (Way(("C",)),)),
        Edge(1, 0, (Way(("D",), ("N",)),)),
    ),
)
GRAPHS = {
    "one state": made(1, []),
    "one loop": made(1, [(0, 0)]),
    "chain": made(3, [(0, 1), (1, 2)]),
    "two ways": made(2, [(0, 1), (1, 0), (1, 1)]),
    "protocol": PROTOCOL,
    "names": NAMED,
    "complete": made(5, everywhere(5)),
}


@pytest.fixture(params=["layers", "Graphviz"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test under both layouts."""
    if request.param == "layers":
        monkeypatch.setenv("PATH", "")
    elif shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    return str(request.param)


def boxes(scene: Scene, layout: Layout) -> list[tuple[float, float, float, float]]:
    return [
        (x - box.half_width, y - box.half_height, x + box.half_width, y + box.half_height)
        for box, (x, y) in zip(scene.boxes, layout.centers, strict=True)
    ]


def label_boxes(scene: Scene, layout: Layout) -> list[tuple[float, float, float, float]]:
    return [
        (x - w / 2, y - link.label_height / 2, x + w / 2, y + link.label_height / 2)
        for link, route in zip(scene.links, layout.routes, strict=True)
        for x, y in [route.label]
        for w in [link.label_width - LABEL_PAD]
        if link.label_width
    ]


def overlap(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_well_formed_and_says_everything(name: str, engine: str) -> None:
    graph = GRAPHS[name]
    root = ElementTree.fromstring(graph.to_svg())
    assert root.findtext(f"{SVG}title") == graph.title
    assert engine in (root.findtext(f"{SVG}desc") or "")
    states = [g for g in root.iter(f"{SVG}g") if "data-state" in g.attrib]
    assert [g.get("data-state") for g in states] == [str(s.number) for s in graph.states]
    for state, drawn in zip(graph.states, states, strict=True):
        outlines = [*drawn.iter(f"{SVG}circle"), *drawn.iter(f"{SVG}rect")]
        assert len(outlines) == 1 + state.final
        shown = drawn.findtext(f"{SVG}text") or ""
        assert shown == re.sub("[\x00-\x1f]", "\ufffd", state.name)
    edges = [g for g in root.iter(f"{SVG}g") if g.get("class") == "edge"]
    assert len(edges) == 1 + len(graph.edges)
    for edge, drawn in zip(graph.edges, edges[1:], strict=True):
        text = drawn.find(f"{SVG}text")
        assert text is not None
        shown = "".join(text.itertext())
        assert shown == "".join(wrapped(edge.label))


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_lies_over_a_state_and_no_label_over_a_label(name: str, engine: str) -> None:
    scene = scene_of(GRAPHS[name])
    layout = lay_out(scene)
    assert layout.engine == engine
    drawn = [*boxes(scene, layout), *label_boxes(scene, layout)]
    for one, two in itertools.combinations(drawn, 2):
        assert not overlap(one, two)


@pytest.mark.parametrize("name", GRAPHS)
def test_an_arrow_ends_at_its_state(name: str, engine: str) -> None:
    scene = scene_of(GRAPHS[name])
    layout = lay_out(scene)
    for link, route in zip(scene.links, layout.routes, strict=True):
        for number, (x, y) in ((link.source, route.curve[0]), (link.target, route.tip)):
            box, (cx, cy) = scene.boxes[number], layout.centers[number]
            assert abs(x - cx) < box.half_width + 3
            assert abs(y - cy) < box.half_height + 3


@pytest.mark.parametrize("name", GRAPHS)
def test_the_view_box_holds_everything(name: str, engine: str) -> None:
    graph = GRAPHS[name]
    root = ElementTree.fromstring(graph.to_svg())
    left, top, width, height = map(float, (root.get("viewBox") or "").split())
    scene = scene_of(graph)
    layout = lay_out(scene)
    points = [p for route in layout.routes for p in (*route.curve, route.tip)]
    for x0, y0, x1, y1 in [*boxes(scene, layout), *((x, y, x, y) for x, y in points)]:
        assert left < x0 <= x1 < left + width
        assert top < y0 <= y1 < top + height


def test_no_line_of_the_layered_layout_crosses_a_label_or_a_foreign_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    for graph in GRAPHS.values():
        scene = scene_of(graph)
        layout = lay_out(scene)
        labels = label_boxes(scene, layout)
        for link, route in zip(scene.links, layout.routes, strict=True):
            ends = (link.source, link.target)
            others = [b for n, b in enumerate(boxes(scene, layout)) if n not in ends]
            for at in range(0, len(route.curve) - 1, 3):
                corners = route.curve[at : at + 4]
                for step in range(17):
                    t = step / 16
                    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                    x, y = (
                        sum(w * p[axis] for w, p in zip(weights, corners, strict=True))
                        for axis in (0, 1)
                    )
                    assert not any(overlap((x, y, x, y), box) for box in (*others, *labels))


# --- labels -------------------------------------------------------------------


def test_a_long_guard_breaks_before_its_operators() -> None:
    assert wrapped(['A: kind == "open && shut" && size > 100 || Causal(Push, A)']) == (
        'A: kind == "open && shut"',
        "  && size > 100 || Causal(Push, A)",
    )


@pytest.mark.parametrize(
    "text",
    ["x" * 500, "A: " + " && ".join(f"k{n} == {n}" for n in range(500)), '"' * 20_000, "界" * 99],
)
def test_lines_are_bounded_in_width_and_number(text: str) -> None:
    lines = wrapped([text] * 3)
    assert len(lines) <= LABEL_LINES_MAX
    assert all(0 < columns(line) <= LABEL_COLUMNS_MAX for line in lines)
    assert lines[-1].endswith(ELLIPSIS)


# --- programs that are absent, fail, or are asked too much --------------------------


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'broken plugin' >&2; exit 3", "status 3: broken plugin"),
        ("echo '{}'", "cannot be read"),
        ("echo nonsense", "cannot be read"),
        ("while :; do :; done", "longer than"),
    ],
)
def test_a_graphviz_that_fails_is_named_and_replaced(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + "")
    monkeypatch.setattr("ketal.pictures.graphviz.DOT_TIMEOUT_S", 1)
    with pytest.warns(LayoutWarning, match=said):
        drawn = PROTOCOL.to_svg()
    assert "Laid out by layers." in drawn


def test_too_many_states_or_edges_name_the_limit() -> None:
    chain = made(500, [(n, n + 1) for n in range(499)])
    with pytest.raises(SettingError, match=f"500 states.*SVG_STATES_MAX is {SVG_STATES_MAX}"):
        chain.to_svg()
    assert chain._repr_svg_() is None
    dense = made(30, everywhere(30))
    with pytest.raises(SettingError, match=f"900 edges.*SVG_EDGES_MAX is {SVG_EDGES_MAX}"):
        dense.to_svg()
    for said in (chain.to_dot(), chain.to_mermaid(), chain.to_json()):
        assert len(said.splitlines()) > 999


def test_the_largest_picture_is_drawn_in_seconds(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = [(n, 0) for n in range(1, SVG_STATES_MAX)]
    graph = made(SVG_STATES_MAX, [(n, n + 1) for n in range(SVG_STATES_MAX - 1)] + back)
    monkeypatch.setattr("ketal.pictures.graphviz.DOT_TIMEOUT_S", 5)
    begin = time.monotonic()
    with warnings.catch_warnings():
        # Graphviz may take too long; the picture is then laid out in layers.
        warnings.simplefilter("ignore", LayoutWarning)
        ElementTree.fromstring(graph.to_svg())
    assert time.monotonic() - begin < 30
