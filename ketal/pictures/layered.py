"""A layered layout, where Graphviz is absent (Sugiyama, Tagawa and Toda 1981).

Links that close a cycle are turned round; boxes stand in layers, so that every
link leads on; a link has a place of its own in each layer that it crosses, and
its label in one of them. Each layer is ordered for few crossings; then each
place is drawn to the mean of its neighbours, and within a layer places keep
their order and their distance.
That is a least-squares problem which pooling adjacent violators solves exactly.

The one rule: across a layer's band every line runs straight, at its own place;
lines bend only between bands, where there is nothing else. So no line meets a
box or a label. Coordinates are (along, across): along the layers' axis first.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ketal.pictures.layout import Box, Layout, Link, Point, Route, Scene

BAND_GAP = 34.0
BAND_GAP_MAX = 90.0
PLACE_GAP = 14.0
LABEL_GAP = 3.0
ARROW = 9.0
LOOP = 30.0
SWEEPS = 40
ORDER_SWEEPS = 24
STRAIGHT = 50.0
"""How much more a place weighs that keeps a long link straight."""


@dataclass
class _Places:
    """Every place: boxes first, then labels and the places of long links."""

    layers: list[int] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    along: list[float] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, layer: int, before: float, after: float, along: float) -> int:
        self.layers.append(layer)
        self.before.append(before)
        self.after.append(after)
        self.along.append(along)
        return len(self.layers) - 1


def place(scene: Scene) -> Layout:
    """Lay a scene out."""
    layers = _layers(scene)
    places = _Places()
    loops = {link.source: link for link in scene.links if link.source == link.target}
    for number, box in enumerate(scene.boxes):
        _add_box(places, scene, layers[number], box, loops.get(number))
    chains = [_add_link(places, scene, number) for number in range(len(scene.links))]
    rows = _ordered(places)
    across = _across(places, rows, len(scene.boxes))
    bands = _bands(places, rows, across)
    drawing = _Drawing(scene, places, chains, across, bands)
    return Layout(
        tuple(drawing.turned(bands[places.layers[n]][0], across[n]) for n in range(len(layers))),
        tuple(map(drawing.route, range(len(scene.links)))),
        "layers",
    )


# --- layers -----------------------------------------------------------------


def _layers(scene: Scene) -> list[int]:
    """Return each box's layer; a link with a label leaves one free, where the label stands."""
    after: dict[int, list[int]] = defaultdict(list)
    length: dict[tuple[int, int], int] = {}
    for link in scene.links:
        if link.source != link.target:
            after[link.source].append(link.target)
            length[link.source, link.target] = 2 if link.label_width else 1
    order = _postorder(after, len(scene.boxes))
    position = {box: at for at, box in enumerate(order)}
    layers = [0] * len(scene.boxes)
    # In the reverse of postorder every link leads on, but for those that close a cycle.
    # Those lead to a box that is on the path from the root, so to a lower layer.
    for box in reversed(order):
        for target in after[box]:
            if position[target] < position[box]:
                layers[target] = max(layers[target], layers[box] + length[box, target])
    return layers


def _postorder(after: dict[int, list[int]], count: int) -> list[int]:
    order: list[int] = []
    seen: set[int] = set()
    for root in _roots(after, count):
        if root in seen:
            continue
        seen.add(root)
        todo = [(root, iter(after[root]))]
        while todo:
            box, targets = todo[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    todo.append((target, iter(after[target])))
                    break
            else:
                order.append(box)
                todo.pop()
    return order


def _roots(after: dict[int, list[int]], count: int) -> list[int]:
    """Return the boxes, those first that no link leads to."""
    entered = {target for targets in after.values() for target in targets}
    return sorted(range(count), key=lambda box: (box in entered, box))


def _add_box(places: _Places, scene: Scene, layer: int, box: Box, loop: Link | None) -> None:
    along, across = _halves(scene, box)
    before = after = across
    if loop is not None:
        label_along, label_across = _label(scene, loop)
        along = max(along, label_along / 2)
        # A loop stands above in a horizontal picture, to the right in the other.
        if scene.horizontal:
            before += LOOP + LABEL_GAP + label_across
        else:
            after += LOOP + LABEL_GAP + label_across
    places.add(layer, before, after, along)


def _halves(scene: Scene, box: Box) -> tuple[float, float]:
    pair = (box.half_width, box.half_height)
    return pair if scene.horizontal else (pair[1], pair[0])


def _label(scene: Scene, link: Link) -> tuple[float, float]:
    pair = (link.label_width, link.label_height)
    return pair if scene.horizontal else (pair[1], pair[0])


def _add_link(places: _Places, scene: Scene, number: int) -> list[int]:
    """Return a link's places, from the lower layer to the higher; its boxes included."""
    link = scene.links[number]
    if link.source == link.target:
        return [link.source]
    ends = sorted((link.source, link.target), key=lambda box: places.layers[box])
    low, high = (places.layers[box] for box in ends)
    # Boxes are an even number of layers apart, so this layer holds no box.
    middle = low + ((high - low) // 2 | 1)
    chain = [ends[0]]
    for layer in range(low + 1, high):
        if layer == middle and link.label_width:
            along, across = _label(scene, link)
            sides = (across + LABEL_GAP, 2.0) if scene.horizontal else (2.0, across + LABEL_GAP)
            chain.append(places.add(layer, *sides, along / 2))
        else:
            chain.append(places.add(layer, 2.0, 2.0, 0.0))
    chain.append(ends[1])
    places.pairs.extend(itertools.pairwise(chain))
    return chain


# --- order and coordinates -----------------------------------------------------


def _ordered(places: _Places) -> list[list[int]]:
    """Return each layer's places, ordered for few crossings.

    Each place goes to the mean of its neighbours' places in the layer before,
    layer after layer, down and up in turn; the order with the fewest crossings
    is kept (Sugiyama's barycentre method).
    """
    up: dict[int, list[int]] = defaultdict(list)
    down: dict[int, list[int]] = defaultdict(list)
    for low, high in places.pairs:
        up[high].append(low)
        down[low].append(high)
    rows: list[list[int]] = [[] for _ in range(max(places.layers) + 1)]
    for number, layer in enumerate(places.layers):
        rows[layer].append(number)
    best, fewest = [list(row) for row in rows], _crossings(rows, down)
    for sweep in range(ORDER_SWEEPS):
        if not fewest:
            break
        near = up if sweep % 2 == 0 else down
        at = {n: i for row in rows for i, n in enumerate(row)}
        for row in rows if sweep % 2 == 0 else reversed(rows):
            means = {
                n: sum(at[m] for m in near[n]) / len(near[n]) if near[n] else at[n] for n in row
            }
            row.sort(key=lambda n: (means[n], at[n]))
            at.update({n: i for i, n in enumerate(row)})
        crossings = _crossings(rows, down)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _crossings(rows: list[list[int]], down: dict[int, list[int]]) -> int:
    """Return how many pairs of links between neighbouring layers cross."""
    count = 0
    at = {n: i for row in rows for i, n in enumerate(row)}
    for row in rows:
        ends: list[int] = []
        for n in row:
            for end in sorted(at[m] for m in down[n]):
                place = bisect_right(ends, end)
                count += len(ends) - place
                ends.insert(place, end)
    return count


def _across(places: _Places, rows: list[list[int]], boxes: int) -> list[float]:
    """Return the coordinate of each place within its layer."""
    up: dict[int, list[int]] = defaultdict(list)
    down: dict[int, list[int]] = defaultdict(list)
    for low, high in places.pairs:
        up[high].append(low)
        down[low].append(high)
    across = [0.0] * len(places.layers)
    for row in rows:
        _keep_apart(places, row, across, [(0.0, 1.0)] * len(row))
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        behind, ahead = (up, down) if forward else (down, up)
        for row in rows if forward else reversed(rows):
            wanted = []
            for n in row:
                near = behind[n] or ahead[n]
                if n >= boxes and near[0] >= boxes:
                    wanted.append((across[near[0]], STRAIGHT))
                    continue
                if sweep >= SWEEPS // 2:
                    near = up[n] + down[n]
                mean = sum(across[m] for m in near) / len(near) if near else across[n]
                wanted.append((mean, 1.0))
            _keep_apart(places, row, across, wanted)
    return across


def _keep_apart(
    places: _Places, row: Sequence[int], across: list[float], wanted: Sequence[tuple[float, float]]
) -> None:
    """Put a layer's places where they are wanted, by weight, as order and sizes allow."""
    offsets = [0.0]
    for one, two in itertools.pairwise(row):
        offsets.append(offsets[-1] + places.after[one] + PLACE_GAP + places.before[two])
    pools: list[tuple[float, float, int]] = []
    for offset, (want, weight) in zip(offsets, wanted, strict=True):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, more, size = pools.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, count = weight + more, count + size
        pools.append((mean, weight, count))
    means = (mean for mean, _, count in pools for _ in range(count))
    for n, offset, mean in zip(row, offsets, means, strict=True):
        across[n] = mean + offset


def _bands(
    places: _Places, rows: list[list[int]], across: list[float]
) -> list[tuple[float, float]]:
    """Return (middle, half thickness) of each layer; far moves between two make room."""
    moves = [0.0] * len(rows)
    for low, high in places.pairs:
        layer = places.layers[low]
        moves[layer] = max(moves[layer], abs(across[low] - across[high]))
    bands: list[tuple[float, float]] = []
    at = 0.0
    for layer, row in enumerate(rows):
        half = max((places.along[n] for n in row), default=0.0)
        bands.append((at + half, half))
        at += 2 * half + min(BAND_GAP_MAX, max(BAND_GAP, 0.35 * moves[layer]))
    return bands


# --- routes -----------------------------------------------------------------


class _Drawing:
    """Turns chains of places into curves."""

    def __init__(
        self,
        scene: Scene,
        places: _Places,
        chains: list[list[int]],
        across: list[float],
        bands: list[tuple[float, float]],
    ) -> None:
        self.scene = scene
        self.places = places
        self.chains = chains
        self.across = across
        self.bands = bands
        self.ports = self._ports()

    def turned(self, along: float, across: float) -> Point:
        return (along, across) if self.scene.horizontal else (across, along)

    def _ports(self) -> dict[tuple[int, int], float]:
        """Return where a link's lower end (0) and higher end (1) meet their boxes.

        The links at one side of a box stand side by side, in the order of where they go.
        """
        sides: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
        for number, chain in enumerate(self.chains):
            if len(chain) > 1:
                sides[chain[0], 0].append((self.across[chain[1]], number))
                sides[chain[-1], 1].append((self.across[chain[-2]], number))
        ports = {}
        for (box, end), links in sides.items():
            _, half = _halves(self.scene, self.scene.boxes[box])
            step = min(14.0, 1.3 * half / max(1, len(links) - 1))
            for at, (_, number) in enumerate(sorted(links)):
                ports[number, end] = step * (at - (len(links) - 1) / 2)
        return ports

    def route(self, number: int) -> Route:
        link = self.scene.links[number]
        if link.source == link.target:
            return self._loop(link)
        chain = self.chains[number]
        low, high = self._end(number, chain[0], 0), self._end(number, chain[-1], 1)
        stops = [low]
        for n in chain[1:-1]:
            middle, half = self.bands[self.places.layers[n]]
            stops.append(((middle - half, self.across[n]), (middle + half, self.across[n])))
        stops.append(high)
        points = [stops[0][0]]
        for at, (enter, leave) in enumerate(stops):
            if at:
                points += _bend(points[-1], enter)
            if leave != enter:
                points += _bend(enter, leave)
        tip = points[-1]
        points[-1] = (tip[0] - ARROW, tip[1])
        if link.source != chain[0]:
            points[-1] = tip
            points.reverse()
            tip = points[-1]
            points[-1] = (tip[0] + ARROW, tip[1])
        return Route(
            tuple(self.turned(*p) for p in points), self.turned(*tip), self._label(link, chain)
        )

    def _end(self, number: int, box: int, end: int) -> tuple[Point, Point]:
        """Return the point where a link meets a box and where it leaves the box's band."""
        offset = self.ports[number, end]
        middle, half = self.bands[self.places.layers[box]]
        along, across = _halves(self.scene, self.scene.boxes[box])
        reach = _reach(along, across, self.scene.boxes[box].radius, offset)
        at = self.across[box] + offset
        sign = 1 if end == 0 else -1
        meets, leaves = (middle + sign * reach, at), (middle + sign * half, at)
        return (meets, leaves) if end == 0 else (leaves, meets)

    def _label(self, link: Link, chain: list[int]) -> Point:
        for n in chain[1:-1]:
            if self.places.along[n]:
                _, size = _label(self.scene, link)
                shift = LABEL_GAP + size / 2
                middle = self.bands[self.places.layers[n]][0]
                sign = -1 if self.scene.horizontal else 1
                return self.turned(middle, self.across[n] + sign * shift)
        return self.turned(self.bands[self.places.layers[chain[0]]][0], self.across[chain[0]])

    def _loop(self, link: Link) -> Route:
        middle = self.bands[self.places.layers[link.source]][0]
        center = self.across[link.source]
        box = self.scene.boxes[link.source]
        along, across = _halves(self.scene, box)
        sign = -1 if self.scene.horizontal else 1
        foot = min(along, across) * 0.4
        near = center + sign * _reach(across, along, box.radius, foot)
        far = center + sign * (across + LOOP * 1.25)
        tip = (middle + foot, near)
        # The arrow comes in along the line from the second control point.
        control = (middle + 2.4 * foot, far)
        length = math.dist(tip, control)
        back = (
            tip[0] + ARROW * (control[0] - tip[0]) / length,
            tip[1] + ARROW * (control[1] - tip[1]) / length,
        )
        curve = ((middle - foot, near), (middle - 2.4 * foot, far), control, back)
        _, size = _label(self.scene, link)
        label = (middle, center + sign * (across + LOOP + LABEL_GAP + size / 2))
        return Route(tuple(self.turned(*p) for p in curve), self.turned(*tip), self.turned(*label))


def _reach(along: float, across: float, radius: float, offset: float) -> float:
    """Return how far a box with round corners reaches along, at an offset across."""
    past = max(0.0, abs(offset) - (across - radius))
    return along - radius + math.sqrt(max(0.0, radius * radius - past * past))


def _bend(one: Point, two: Point) -> list[Point]:
    """Return a curve that leaves and arrives along the layers' axis."""
    middle = (one[0] + two[0]) / 2
    return [(middle, one[1]), (middle, two[1]), two]
