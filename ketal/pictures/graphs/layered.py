"""A layered layout, used without Graphviz (Sugiyama, Tagawa and Toda, 1981).

Boxes are in layers, so that every link leads to a later layer, except those that close a cycle. A
link has a place of its own in each layer that it crosses, and its label in one of them. Sweeps over
the layers move each place to the mean of its neighbours, as near as the layer's order and sizes
allow (solved exactly by pooling adjacent violators); in the first half of the sweeps the means also
determine the order.

The one rule: across a layer's band every line is straight, at its own place; lines bend only
between bands, where there is nothing else. So no line meets a box or a label. Coordinates are
(along, across): first along the axis of the layers.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple, dataclass, field

from ketal.model.graph_walks import postorder
from ketal.pictures.graphs.layout import Box, Layout, Link, Route, Scene
from ketal.pictures.svg_document import Point

BAND_GAP = 34.0
BAND_GAP_MAX = 90.0
PLACE_GAP = 14.0
PORT_GAP = 14.0
LABEL_GAP = 3.0
LOOP = 30.0
SWEEPS = 24
STRAIGHT = 50.0
"""The relative weight of a place that keeps a long link straight."""


@dataclass(eq=False, slots=True)
class _Place:
    """A place in a layer, taken by a box, a link's label, or a link that crosses the layer.

    `half` is half its size along, later half that of its band; `before` and `after` are its extents
    across; `near` has the neighbours in the layers before and after.
    """

    layer: int
    half: float = 0.0
    before: float = 2.0
    after: float = 2.0
    along: float = 0.0
    across: float = 0.0
    box: Box | None = None
    near: tuple[list[_Place], list[_Place]] = field(default_factory=lambda: ([], []))


def layout_of(scene: Scene) -> Layout:
    """Return the layered layout of a scene."""
    if not scene.horizontal:
        # Turned, so that widths are sizes along the axis of the layers.
        turned = (Link(a, b, height, width) for a, b, width, height in map(astuple, scene.links))
        upright = (Box(box.half_height, box.half_width) for box in scene.boxes)
        scene = Scene(tuple(upright), tuple(turned), horizontal=False)
    loops = {link.source: link for link in scene.links if link.source == link.target}
    boxes = [
        _box_place(box, layer, loops.get(number))
        for number, (box, layer) in enumerate(zip(scene.boxes, _layers(scene), strict=True))
    ]
    chains = [_link_places(link, boxes) for link in scene.links]
    rows: list[list[_Place]] = [[] for _ in range(1 + max(box.layer for box in boxes))]
    for one in itertools.chain(boxes, *(chain[1:-1] for chain in chains)):
        rows[one.layer].append(one)
    if scene.horizontal:
        # Reversed, so that labels and loops are above the lines.
        for row in rows:
            row.reverse()
    _assign_across(rows)
    _assign_along(rows)

    def as_point(point: Point) -> Point:
        return (point[0], -point[1]) if scene.horizontal else (point[1], point[0])

    routes = []
    for link, chain in zip(scene.links, chains, strict=True):
        curve, label = (_loop_curve if len(chain) == 1 else _link_curve)(link, chain)
        routes.append(Route(tuple(map(as_point, curve)), as_point(label)))
    return Layout(tuple(as_point((b.along, b.across)) for b in boxes), tuple(routes), "layers")


# --- places -----------------------------------------------------------------


def _layers(scene: Scene) -> list[int]:
    """Return each box's layer; links with labels skip a layer, which holds the label."""
    after: list[dict[int, int]] = [{} for _ in scene.boxes]
    for link in scene.links:
        after[link.source][link.target] = 2 if link.label_width else 1
    # No link enters the last box, from which the arrow to the initial state starts.
    done = list(postorder(reversed(range(len(scene.boxes))), after.__getitem__))
    # In reverse postorder, every link leads forwards, except those that close a cycle.
    layers = [0] * len(scene.boxes)
    placed: set[int] = set()
    for box in reversed(done):
        placed.add(box)
        for target, length in after[box].items():
            if target not in placed:
                layers[target] = max(layers[target], layers[box] + length)
    return layers


def _box_place(box: Box, layer: int, loop: Link | None) -> _Place:
    one = _Place(layer, box.half_width, box.half_height, box.half_height, box=box)
    if loop is not None:
        one.half = max(one.half, loop.label_width / 2)
        one.after += LOOP + LABEL_GAP + loop.label_height
    return one


def _link_places(link: Link, boxes: list[_Place]) -> list[_Place]:
    """Return a link's places, from its source to its target; for a loop, only its box."""
    if link.source == link.target:
        return [boxes[link.source]]
    source, target = boxes[link.source], boxes[link.target]
    low, high = sorted((source, target), key=lambda box: box.layer)
    bends = [_Place(layer) for layer in range(low.layer + 1, high.layer)]
    if link.label_width:
        # Boxes are an even number of layers apart, so this layer holds no box.
        middle = bends[(len(bends) // 2) & ~1]
        middle.half, middle.after = link.label_width / 2, LABEL_GAP + link.label_height
    chain = [low, *bends, high]
    for one, two in itertools.pairwise(chain):
        one.near[1].append(two)
        two.near[0].append(one)
    return chain if low is source else chain[::-1]


# --- coordinates ---------------------------------------------------------------


def _assign_across(rows: list[list[_Place]]) -> None:
    """Order each layer, and assign the coordinates across."""
    for row in rows:
        _spread(row, [(0.0, 1.0)] * len(row))
    for sweep in range(SWEEPS):
        side = sweep % 2
        for row in rows if side == 0 else reversed(rows):
            wanted = {one: _wanted_across(one, side, both=sweep >= SWEEPS // 2) for one in row}
            if sweep < SWEEPS // 2:
                row.sort(key=lambda one: wanted[one][0])
            _spread(row, [wanted[one] for one in row])


def _wanted_across(one: _Place, side: int, *, both: bool) -> tuple[float, float]:
    """Return the coordinate across that a place's neighbours pull it to, and its weight."""
    near = one.near[side] or one.near[1 - side] or [one]
    if one.box is None and near[0].box is None:
        return near[0].across, STRAIGHT
    if both:
        near = [*one.near[0], *one.near[1]] or near
    return sum(other.across for other in near) / len(near), 1.0


def _spread(row: list[_Place], wanted: list[tuple[float, float]]) -> None:
    """Move a layer's places as near to their wanted coordinates as order and sizes allow."""
    gaps = (one.after + PLACE_GAP + two.before for one, two in itertools.pairwise(row))
    offsets = list(itertools.accumulate(gaps, initial=0.0))
    pools: list[tuple[float, float, int]] = []
    for (want, weight), offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, more, size = pools.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, count = weight + more, count + size
        pools.append((mean, weight, count))
    means = (mean for mean, _, count in pools for _ in range(count))
    for one, offset, mean in zip(row, offsets, means, strict=True):
        one.across = mean + offset


def _assign_along(rows: list[list[_Place]]) -> None:
    """Assign the bands' sizes and coordinates; steep lines to the next band widen the gap."""
    at = 0.0
    for row in rows:
        half = max(one.half for one in row)
        for one in row:
            one.along, one.half = at + half, half
        moves = [abs(one.across - two.across) for one in row for two in one.near[1]]
        at += 2 * half + min(BAND_GAP_MAX, max(BAND_GAP, 0.35 * max(moves, default=0.0)))


# --- curves -----------------------------------------------------------------


def _link_curve(link: Link, chain: list[_Place]) -> tuple[list[Point], Point]:
    """Return a link's curve, and the middle of its label."""
    sign = 1 if chain[0].layer < chain[-1].layer else -1
    points: list[Point] = []
    for at, stop in enumerate(chain):
        enter, leave = stop.along - sign * stop.half, stop.along + sign * stop.half
        across = stop.across
        if stop.box is not None:
            reach, offset = _port(stop, stop.box, chain[1 if at == 0 else at - 1])
            across += offset
            if at == 0:
                enter = stop.along + sign * reach
            else:
                leave = stop.along - sign * reach
        points += [(enter, across), (leave, across)]
    curve = points[:1]
    for one, two in itertools.pairwise(points):
        if one != two:
            # The curve leaves and arrives along the axis of the layers.
            middle = (one[0] + two[0]) / 2
            curve += [(middle, one[1]), (middle, two[1]), two]
    # The label is at the place that extends furthest.
    stand = max(chain[1:-1], key=lambda one: one.after, default=chain[0])
    return curve, (stand.along, stand.across + LABEL_GAP + link.label_height / 2)


def _port(one: _Place, box: Box, other: _Place) -> tuple[float, float]:
    """Return where a line meets a box, along and across, relative to the middle of the box.

    The links at one side of a box are side by side, in the order of their other ends.
    """
    links = sorted(one.near[other.layer > one.layer], key=lambda place: place.across)
    step = min(PORT_GAP, 1.3 * box.half_height / max(1, len(links) - 1))
    offset = step * (links.index(other) - (len(links) - 1) / 2)
    return _extent(box.half_width, box.half_height, box.radius, offset), offset


def _extent(along: float, across: float, radius: float, offset: float) -> float:
    """Return how far a box with round corners extends along, at an offset across."""
    past = max(0.0, abs(offset) - (across - radius))
    return along - radius + math.sqrt(max(0.0, radius * radius - past * past))


def _loop_curve(link: Link, chain: list[_Place]) -> tuple[list[Point], Point]:
    """Return the curve of a link from a box to itself, and the middle of its label."""
    (box,) = chain
    assert box.box is not None
    along, across = box.box.half_width, box.box.half_height
    foot = min(along, across) * 0.4
    near = box.across + _extent(across, along, box.box.radius, foot)
    far = box.across + across + LOOP * 1.25
    curve = [(box.along + x * foot, y) for x, y in ((-1, near), (-2.4, far), (2.4, far), (1, near))]
    return curve, (box.along, box.across + across + LOOP + LABEL_GAP + link.label_height / 2)
