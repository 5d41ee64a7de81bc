"""The drawing by both layouts: well-formed, complete, without overlaps."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
import struct
import warnings
import xml.etree.ElementTree as ElementTree
import zlib
from collections import Counter
from pathlib import Path

import pytest
from resvg_py import svg_to_bytes

import ketal
from ketal.errors import SettingError, columns, printable
from ketal.explanation.views.space_time import ViewedLog, space_times
from ketal.model.limits import DEFAULT
from ketal.pictures.clocks.clock_bars import ClockBars, bars_svg
from ketal.pictures.clocks.stamped_space_time import TimelineEvent, stamped_space_time_svg
from ketal.pictures.graphs.graph import (
    LABEL_PAD,
    SVG_EDGES_MAX,
    SVG_STATES_MAX,
    GraphEdge,
    GraphState,
    Picture,
    Way,
    scene_of,
)
from ketal.pictures.graphs.layout import Layout, Scene
from ketal.pictures.graphs.svg import LayoutWarning, lay_out
from ketal.pictures.labels import (
    ELLIPSIS,
    LABEL_COLUMNS_MAX,
    LABEL_LINES_MAX,
    in_natural_order,
    node_labels,
    wrapped,
)
from ketal.pictures.text_diagram import DiagramRow, text_diagram
from ketal.programs.compiling import build
from tests.work import counted_calls

SVG = "{http://www.w3.org/2000/svg}"


def picture_of(count: int, pairs: list[tuple[int, int]], guard: str = "k == 1") -> Picture:
    states = tuple(GraphState(n, f"q{n}", n == 0, n == count - 1) for n in range(count))
    edges = tuple(GraphEdge(s, t, (Way((f"S{s}",), (), guard),)) for s, t in sorted(set(pairs)))
    return Picture("P", "check", "0" * 32, states, edges)


def everywhere(count: int) -> list[tuple[int, int]]:
    return list(itertools.product(range(count), range(count)))


PROTOCOL = picture_of(
    8,
    [
        *[(0, 1), (1, 0), (1, 1), (1, 2), (2, 2), (2, 0), (2, 3), (3, 4), (3, 5), (2, 5)],
        *[(5, 6), (6, 2), (6, 5), (4, 0), (1, 5), (6, 7), (7, 7)],
    ],
    'kind == "error" && code in [500, 501] && size <= 1500 || Causal(Msg, Open)',
)
NAMED = Picture(
    "Named",
    "check",
    "0" * 32,
    (GraphState(0, "Waiting", True, False), GraphState(1, "Ünïcode<&>\"'\x00]]>", False, True)),
    (
        GraphEdge(0, 1, (Way(("A",), (), 'k == "<b>&amp;\x07"'), Way(("B",)))),
        GraphEdge(1, 1, (Way(("C",)),)),
        GraphEdge(1, 0, (Way(("D",), ("N",)),)),
    ),
)
GRAPHS = {
    "one state": picture_of(1, []),
    "one loop": picture_of(1, [(0, 0)]),
    "chain": picture_of(3, [(0, 1), (1, 2)]),
    "two ways": picture_of(2, [(0, 1), (1, 0), (1, 1)]),
    "protocol": PROTOCOL,
    "names": NAMED,
    "complete": picture_of(5, everywhere(5)),
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
def test_svg_is_well_formed_and_complete(name: str, engine: str) -> None:
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
        assert shown == printable(state.name)
    edges = [g for g in root.iter(f"{SVG}g") if g.get("class") == "edge"]
    assert len(edges) == 1 + len(graph.edges)
    for edge, drawn in zip(graph.edges, edges[1:], strict=True):
        text = drawn.find(f"{SVG}text")
        assert text is not None
        shown = "".join(text.itertext())
        assert shown == "".join(wrapped(edge.label))


@pytest.mark.parametrize("name", GRAPHS)
def test_states_and_labels_do_not_overlap(name: str, engine: str) -> None:
    scene = scene_of(GRAPHS[name])
    layout = lay_out(scene)
    assert layout.engine == engine
    drawn = [*boxes(scene, layout), *label_boxes(scene, layout)]
    for one, two in itertools.combinations(drawn, 2):
        assert not overlap(one, two)


@pytest.mark.parametrize("name", GRAPHS)
def test_arrow_ends_at_its_state(name: str, engine: str) -> None:
    scene = scene_of(GRAPHS[name])
    layout = lay_out(scene)
    for link, route in zip(scene.links, layout.routes, strict=True):
        for number, (x, y) in ((link.source, route.curve[0]), (link.target, route.curve[-1])):
            box, (cx, cy) = scene.boxes[number], layout.centers[number]
            assert abs(x - cx) < box.half_width + 3
            assert abs(y - cy) < box.half_height + 3


@pytest.mark.parametrize("name", GRAPHS)
def test_view_box_contains_everything(name: str, engine: str) -> None:
    graph = GRAPHS[name]
    root = ElementTree.fromstring(graph.to_svg())
    left, top, width, height = map(float, (root.get("viewBox") or "").split())
    scene = scene_of(graph)
    layout = lay_out(scene)
    points = [p for route in layout.routes for p in route.curve]
    for x0, y0, x1, y1 in [*boxes(scene, layout), *((x, y, x, y) for x, y in points)]:
        assert left < x0 <= x1 < left + width
        assert top < y0 <= y1 < top + height


def test_no_line_of_the_layered_layout_crosses_a_label_or_other_state(
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


# --- rendered outside of a browser ---------------------------------------------


def colours(svg: str) -> Counter[str]:
    """Return the number of pixels of each opaque colour in a picture that resvg renders."""
    png = svg_to_bytes(svg_string=svg, skip_system_fonts=True)
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) == (8, 6), "resvg writes RGBA, 8 bits each"
    at, packed = 8, b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            packed += png[at + 8 : at + 8 + size]
        at += size + 12
    raw, row_size = zlib.decompress(packed), 4 * width
    counts: Counter[str] = Counter()
    above = bytearray(row_size)
    for start in range(0, height * (row_size + 1), row_size + 1):
        row = bytearray(raw[start + 1 : start + 1 + row_size])
        for i in range(row_size if raw[start] else 0):
            left, corner = (row[i - 4], above[i - 4]) if i >= 4 else (0, 0)
            if raw[start] == 4:
                near = left + above[i] - corner
                guess = min((left, above[i], corner), key=lambda value: abs(near - value))
            else:
                guess = (left, above[i], (left + above[i]) // 2)[raw[start] - 1]
            row[i] = (row[i] + guess) % 256
        above = row
        counts.update(f"#{row[i : i + 3].hex()}" for i in range(0, row_size, 4) if row[i + 3] > 254)
    return counts


@pytest.mark.parametrize("name", ["two ways", "names"])
@pytest.mark.parametrize(
    ("dark", "ground", "fill", "line"),
    [(False, "#ffffff", "#f6f8fa", "#57606a"), (True, "#15191f", "#2d333b", "#909dab")],
)
def test_renderer_without_css_variables_shows_ground_states_and_lines(
    name: str, dark: bool, ground: str, fill: str, line: str
) -> None:
    svg = GRAPHS[name].to_svg()
    # CairoSVG, which needs a system library, draws nothing of this height.
    assert "height:auto" not in re.sub("@media all[{].*?[}]{2}", "", svg)
    if dark:
        # resvg, like librsvg and cairo, ignores @media blocks.
        svg = re.sub(r"@media[^{]*[{]((?:[^{}]*[{][^{}]*[}])*)\s*[}]", r"\1", svg)
    shown = colours(svg)
    assert shown.most_common(1)[0][0] == ground
    # A circle of radius 18 has 1,000 pixels; a line 40 pixels long has 40 in its pure colour.
    assert shown[fill] >= 600 * len(GRAPHS[name].states)
    assert shown[line] >= 40


# --- labels -------------------------------------------------------------------


def test_long_guard_breaks_before_its_operators() -> None:
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


HOSTS = [f"web-{number}.production.example.com" for number in (1, 2)]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (HOSTS, ["web-1…", "web-2…"]),
        ([*HOSTS, "db.example.com"], ["web-1.production…", "web-2.production…", "db.example.com"]),
        (
            [f"a-very-long-name-of-host-{n}.example.com" for n in "12"],
            ["a-very-lon…e-of-host-1", "a-very-lon…e-of-host-2"],
        ),
        (HOSTS[:1], ["web-1.prod…example.com"]),
        (["a", "b"], ["a", "b"]),
        ([], []),
    ],
)
def test_names_of_hosts_are_cut_so_that_they_are_distinct(
    nodes: list[str], expected: list[str]
) -> None:
    labels = node_labels(nodes, 22)
    assert labels == expected
    assert all(columns(label) <= 22 for label in labels)


def test_nodes_are_ordered_by_the_numbers_in_their_names() -> None:
    nodes = ["n10", "n2", "n", "n1", "a-3:90", "a-12:7", "a-3:101", "n02", "b"]
    ordered = ["a-3:90", "a-3:101", "a-12:7", "b", "n", "n1", "n02", "n2", "n10"]
    assert in_natural_order(nodes) == ordered
    events = [ketal.Event(node=node, type="x", clock={node: 1}) for node in nodes]
    (drawn,) = space_times(ViewedLog(events, DEFAULT), None, DEFAULT)
    assert drawn.nodes == ordered
    assert text_diagram([DiagramRow(node, "x") for node in ("n10", "n9")])[0].split() == [
        "n9",
        "n10",
    ]


def test_pictures_of_executions_distinguish_hosts() -> None:
    events = [ketal.Event(node=node, type="x", clock={node: 1}) for node in HOSTS]
    pictures = [
        ketal.view(events).to_svg(),
        stamped_space_time_svg("t", HOSTS, [TimelineEvent(node, "[1]") for node in HOSTS], []),
        bars_svg("t", [("", [ClockBars(tuple(HOSTS), ())])]),
        text_diagram([DiagramRow(node, "") for node in HOSTS])[0],
    ]
    assert all("web-1…" in picture and "web-2…" in picture for picture in pictures)


# --- programs that are absent, fail, or are asked too much --------------------------


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'broken plugin' >&2; exit 3", "status 3: broken plugin"),
        ("echo '{}'", "cannot be read"),
        ("echo nonsense", "cannot be read"),
        ("while :; do :; done", "longer than"),
    ],
)
def test_failing_graphviz_is_reported_and_replaced(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + "")
    timeout_s = 1 if message == "longer than" else 60
    monkeypatch.setattr("ketal.pictures.graphs.graphviz.DOT_TIMEOUT_S", timeout_s)
    with pytest.warns(LayoutWarning, match=message):
        drawn = PROTOCOL.to_svg()
    assert "Laid out by layers." in drawn


def test_graphviz_layout_of_a_box_without_links_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = '{"bb": "0,0,9,9", "objects": [{"name": "n0", "pos": "4,4"}]}'
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    lone = ketal.cuts([])
    with warnings.catch_warnings():
        warnings.simplefilter("error", LayoutWarning)
        assert "Laid out by Graphviz." in lone.to_svg()


def test_too_many_states_or_edges_name_the_limit() -> None:
    chain = picture_of(500, [(n, n + 1) for n in range(499)])
    with pytest.raises(
        SettingError, match=rf"500 states.*at most {SVG_STATES_MAX} \(SVG_STATES_MAX\)"
    ):
        chain.to_svg()
    assert chain._repr_svg_() is None
    dense = picture_of(30, everywhere(30))
    with pytest.raises(
        SettingError, match=rf"900 edges.*at most {SVG_EDGES_MAX} \(SVG_EDGES_MAX\)"
    ):
        dense.to_svg()
    for text in (chain.to_dot(), chain.to_mermaid(), chain.to_json()):
        assert len(text.splitlines()) > 999


def test_notebook_shows_the_text_of_a_program_too_large_to_draw() -> None:
    states = [f"q{n}" for n in range(SVG_STATES_MAX + 1)]
    moves = [(one, "E", two) for one, two in itertools.pairwise(states)]
    program = build(
        "Long", events={"E": "exists(k)"}, transitions=moves, initial="q0", finals=states[-1:]
    )
    assert program._repr_svg_() is None


def with_many_links_back(states: int) -> Picture:
    back = [(n, 0) for n in range(1, states)]
    return picture_of(states, [(n, n + 1) for n in range(states - 1)] + back)


def test_largest_picture_is_drawn(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ketal.pictures.graphs.graphviz.DOT_TIMEOUT_S", 1)
    with warnings.catch_warnings():
        # If Graphviz takes too long, the layered layout is used.
        warnings.simplefilter("ignore", LayoutWarning)
        ElementTree.fromstring(with_many_links_back(SVG_STATES_MAX).to_svg())


def test_work_of_the_layered_layout_grows_with_the_layers_that_links_cross(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")

    def work(states: int) -> int:
        return counted_calls(with_many_links_back(states).to_svg)[1]

    work(10)  # what is computed only once
    # Twice as many links cross twice as many layers.
    assert work(60) < 5 * work(30)
