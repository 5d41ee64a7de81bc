"""A layout by Graphviz's `dot`, if that is on the PATH.

Only the layout is used: positions, splines and the places of labels. Graphviz gets the sizes of
boxes and labels, so it needs no font, and no text of a pattern is passed to it.

The one rule: an output that does not place every box and every link raises a `LayoutError`, and is
never drawn.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from ketal.pictures.graphs.layout import Layout, LayoutError, Route, Scene
from ketal.pictures.svg_document import Point

DOT_TIMEOUT_S = 10
POINTS_PER_INCH = 72


def layout_of(scene: Scene, program: str) -> Layout:
    """Return the layout of a scene by the `dot` at `program`.

    A LayoutError if it fails, takes longer than `DOT_TIMEOUT_S`, or its output cannot be read.
    """
    try:
        done = subprocess.run(
            [program, "-Tjson0"],
            input=_dot_input(scene),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=DOT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LayoutError(f"dot took longer than {DOT_TIMEOUT_S} s (DOT_TIMEOUT_S)") from None
    except (OSError, UnicodeError) as error:
        raise LayoutError(f"dot cannot be run: {error}") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise LayoutError(f"dot failed with status {done.returncode}: {reason}")
    try:
        return _parse_output(json.loads(done.stdout), scene)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise LayoutError(f"the output of dot cannot be read: {error!r}") from None


def _dot_input(scene: Scene) -> str:
    def inches(pixels: float) -> str:
        return f"{pixels / POINTS_PER_INCH:.4f}"

    lines = [
        "digraph {",
        f"rankdir={'LR' if scene.horizontal else 'TB'}; nodesep=0.35; ranksep=0.45;",
        'node [label="", fixedsize=true]; edge [dir=none];',
    ]
    for number, box in enumerate(scene.boxes):
        shape = "circle" if box.half_width == box.half_height else 'box, style="rounded"'
        size = f"width={inches(2 * box.half_width)}, height={inches(2 * box.half_height)}"
        lines.append(f"n{number} [shape={shape}, {size}];")
    for number, link in enumerate(scene.links):
        label = ""
        if link.label_width:
            # An empty table of fixed size reserves the space of the text.
            size = f'WIDTH="{link.label_width:.0f}" HEIGHT="{link.label_height:.0f}"'
            table = f'<TABLE BORDER="0" FIXEDSIZE="TRUE" {size}><TR><TD></TD></TR></TABLE>'
            label = f"label=<{table}>, "
        lines.append(f'n{link.source} -> n{link.target} [{label}id="{number}"];')
    return "\n".join([*lines, "}"])


def _parse_output(output: dict[str, Any], scene: Scene) -> Layout:
    top = float(output["bb"].split(",")[3])

    def point(text: str) -> Point:
        x, y = map(float, text.split(","))
        return (x, top - y)

    boxes = {item["name"]: point(item["pos"]) for item in output["objects"]}
    links = {int(item["id"]): item for item in output.get("edges", ())}
    routes = []
    for number, link in enumerate(scene.links):
        curve = tuple(map(point, links[number]["pos"].split(" ")))
        if len(curve) % 3 != 1:
            raise ValueError(f"the spline of link {number} has {len(curve)} points")
        label = point(links[number]["lp"]) if link.label_width else curve[0]
        routes.append(Route(curve, label))
    centers = tuple(boxes[f"n{number}"] for number in range(len(scene.boxes)))
    return Layout(centers, tuple(routes), "Graphviz")
