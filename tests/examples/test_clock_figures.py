"""The figures of "Causality is Graphically Simple" have the stamps that the paper prints."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from examples.clocks.figures import FIGURES, main
from tests.pictures.svg_boxes import (
    check_layout,
    hatched_tooltips,
    order_sign,
    square_tooltips,
    texts,
)

# By node, in the order of the figure.
PRINTED = {
    "figure-3": [
        ["{a1}", "{a1,a2}", "{a1,a2,a3}"],
        ["{b1}", "{a1,a2,b1,b2}", "{a1,a2,b1,b2,b3}"],
        ["{c1}", "{c1,c2}", "{a1,a2,b1,b2,b3,c1,c2,c3}"],
    ],
    "figure-4": [
        ["[1,0,0]", "[2,0,0]", "[3,0,0]"],
        ["[0,1,0]", "[2,2,0]", "[2,3,0]"],
        ["[0,0,1]", "[0,0,2]", "[2,3,3]"],
    ],
    "figure-5": [
        ["{a1}", "{a1}", "{a1,a2}"],
        ["{b1}", "{a1,b1,b2}", "{a1,b1,b2}"],
        ["{}", "{}", "{a1,b1,b2}"],
    ],
    "figure-6": [
        ["[1,0,0]", "[1,0,0]", "[2,0,0]"],
        ["[0,1,0]", "[1,2,0]", "[1,2,0]"],
        ["[0,0,0]", "[0,0,0]", "[1,2,0]"],
    ],
    "figure-7": [
        ["{a1}", "{a1}", "{a1,a2}"],
        ["{b1}", "{a1},{b1}", "{a1,b1,b2}", "{a1,b1,b2}"],
        ["{}", "{}", "{a1,b1,b2}"],
    ],
    "figure-8": [
        ["{}", "{}"],
        ["{}", "{}"],
        ["{}", "{}", "{s1}", "{s1},{s2}"],
        ["{t1,t2}", "{t1,t2,t3}", "{t1,t2,t3},{s1}"],
    ],
    "figure-9": [
        ["[0,0]", "[0,0]"],
        ["[0,0]", "[0,0]"],
        ["[0,0]", "[0,0]", "[0,0]s1", "[0,0]s1,[0,0]s2"],
        ["[0,1]t2", "[0,2]t3", "[0,2]t3,[0,0]s1"],
    ],
    "figure-10": [["1", "2", "3"], ["1", "3", "4"], ["1", "2", "5"]],
}


def by_node(svg: str) -> list[list[str]]:
    """Return the stamps on each node's line, from left to right."""
    names = "{http://www.w3.org/2000/svg}"
    lines: dict[float, list[tuple[float, str]]] = {}
    for group in ElementTree.fromstring(svg).iter(f"{names}g"):
        circle = group.find(f"{names}circle")
        if circle is not None:
            (stamp,) = (one for one in group.iter(f"{names}text") if one.get("class") == "stamp")
            x, y = (float(circle.get(name, 0)) for name in ("cx", "cy"))
            lines.setdefault(y, []).append((x, stamp.text or ""))
    return [[text for _, text in sorted(line)] for _, line in sorted(lines.items())]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_no_overlap_and_nothing_outside(name: str) -> None:
    check_layout(FIGURES[name]())


@pytest.mark.parametrize("name", PRINTED)
def test_stamps_equal_those_printed_in_the_paper(name: str) -> None:
    assert by_node(FIGURES[name]()) == PRINTED[name]


def test_unnumbered_drawings() -> None:
    assert (order_sign(FIGURES["less"]()), hatched_tooltips(FIGURES["less"]())) == ("<", ["c3"])
    assert hatched_tooltips(FIGURES["difference"]()) == ["c3", "c3"]
    assert "[2,1,0]b2" in texts(FIGURES["dot"]())
    assert [t for t in texts(FIGURES["event"]()) if t[0] == "["] == ["[2,1,0]", "[2,2,0]"]
    assert texts(FIGURES["maximum"]())[-2] == "[2,1,0]"
    assert (order_sign(FIGURES["siblings"]()), hatched_tooltips(FIGURES["siblings"]())) == (
        "∥",
        ["s1", "s2"],
    )
    assert "[2,0]" in texts(FIGURES["get"]())
    put = FIGURES["put"]()
    assert square_tooltips(put, "dotted") == ["s3", "t3", "t4"]
    assert {"[2,0]s3", "[2,0]t4"} <= set(texts(put))
    assert texts(FIGURES["identities"]()).count("[1,0,2]") == 3
    assert [t for t in texts(FIGURES["one-column"]()) if t[0] == "["] == ["[3]", "[4]", "[5]"]
    assert texts(FIGURES["shared-column"]()).count("a, c") == 3
    assert "((1, (0, 1)), (2, 1, (0, 0, 1)))" in texts(FIGURES["forks"]())
    assert texts(FIGURES["join-of-trees"]())[-2] == "((1, (0, 1)), (2, 1, (0, 0, 1)))"


def test_all_figures_are_written_into_a_folder(tmp_path: Path) -> None:
    main(tmp_path / "figures")
    written = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.svg")}
    assert written == {name: draw() for name, draw in FIGURES.items()}
