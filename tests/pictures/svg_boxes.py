"""The boxes of the texts and squares of a picture, read from its SVG."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree

from ketal.errors import columns
from ketal.pictures.svg_document import COLUMN_EM

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def text_of(element: ElementTree.Element) -> str:
    """Return the visible text of a text element, without its tooltip."""
    title = element.find(f"{SVG}title")
    return (element.text or "") if title is None else (title.tail or "")


def texts(svg: str, kind: str = "") -> list[str]:
    """Return the texts of a picture, or only those of a class."""
    root = ElementTree.fromstring(svg)
    found = root.iter(f"{SVG}text")
    return [text_of(one) for one in found if not kind or one.get("class") == kind]


def text_box(element: ElementTree.Element) -> Box:
    """Return the box of a text: left, top, right, bottom."""
    size = float(element.get("font-size", 0))
    width = columns(text_of(element)) * size * COLUMN_EM
    left = float(element.get("x", 0)) - (width / 2 if element.get("class") == "middle" else 0)
    # Most of a letter is above the baseline.
    bottom = float(element.get("y", 0)) + size * 0.2
    return left, bottom - size, left + width, bottom


def check_layout(svg: str) -> None:
    """Assert that all texts, squares and dots are inside the picture, and no texts overlap."""
    root = ElementTree.fromstring(svg)
    left, top, width, height = map(float, (root.get("viewBox") or "").split())
    boxes = [text_box(one) for one in root.iter(f"{SVG}text")]
    for one, two in itertools.combinations(boxes, 2):
        apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
        assert apart, (one, two)
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
    for circle in root.iter(f"{SVG}circle"):
        x, y, r = (float(circle.get(name, 0)) for name in ("cx", "cy", "r"))
        boxes.append((x - r, y - r, x + r, y + r))
    for box in boxes:
        assert left <= box[0] <= box[2] <= left + width, box
        assert top <= box[1] <= box[3] <= top + height, box


def square_tooltips(svg: str, *forms: str) -> list[str]:
    """Return the tooltips of the squares of the given classes."""
    root = ElementTree.fromstring(svg)
    return [
        group.findtext(f"{SVG}title") or ""
        for group in root.iter(f"{SVG}g")
        for rect in group.iter(f"{SVG}rect")
        if rect.get("class") in forms
    ]


def hatched_tooltips(svg: str) -> list[str]:
    """Return the tooltips of the marked squares."""
    root = ElementTree.fromstring(svg)
    return [
        group.findtext(f"{SVG}title") or ""
        for group in root.iter(f"{SVG}g")
        if any(path.get("class") == "hatch" for path in group.iter(f"{SVG}path"))
    ]


def order_sign(svg: str) -> str:
    """Return the order sign between the two clocks of a comparison."""
    (operator,) = (text for text in texts(svg) if text in ("<", ">", "=", "∥"))
    return operator
