"""The figures of Baquero's "Causality is Graphically Simple", drawn from what the schemes compute.

`python -m examples.clocks.figures FOLDER` writes each as an SVG file into a folder. Figs. 2 to 10
are the space-time diagrams of `runs`; the drawings between them, which have no numbers in the
paper, are named by what they show. Fig. 1 has no clocks.

The one rule: no stamp is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from examples.clocks import runs
from examples.clocks.areas import clock_svg, pair_svg, tree_join_svg, trees_svg, versions_svg
from examples.clocks.runs import NODES, SERVERS, VECTORS, stamps_of, store
from ketal.clocks.dotted import DottedClocks
from ketal.clocks.inexact.lamport import LamportClocks
from ketal.clocks.inexact.plausible import PlausibleClocks
from ketal.clocks.interval_tree import SEED, IntervalTreeClock, event, fork, join
from ketal.clocks.scheme import Clock
from ketal.clocks.vector import VectorClocks
from ketal.clocks.vector import join as joined
from ketal.pictures.clocks.clock_bars import BarsRow, bars_svg
from ketal.pictures.clocks.clock_figures import BarsScale, KnownEvents

Shown = tuple[Clock | str, Sequence[str] | None]
"""A clock with the columns of its identity, or an operator."""


def _row(parts: Sequence[Shown], nodes: Sequence[str]) -> BarsRow:
    """Return a row of clocks and operators."""
    known = [KnownEvents.of(one) for one, _ in parts if not isinstance(one, str)]
    scale = BarsScale.of(known, nodes)
    return "", [
        one if isinstance(one, str) else scale.bars(KnownEvents.of(one), own=own)
        for one, own in parts
    ]


def event_of_b() -> str:
    """Draw how b registers an event: its column rises."""
    before = joined([VECTORS["b1"], VECTORS["a2"]])
    parts: list[Shown] = [("event(", None), (before, "b"), (") =", None), (VECTORS["b2"], "b")]
    return bars_svg("event: an area increases over its identity", [_row(parts, NODES)])


def two_versions_read() -> str:
    """Draw what a client of the store writes that has read both versions, to S or to T."""
    steps = store()
    _, context = steps["s2"].get()
    written = [steps[server].put("both", context) for server in ("s2", "t")]
    return versions_svg(written, nodes=SERVERS, title="put, with what get returned")


def identities() -> str:
    """Draw three nodes, before and after their first events, and after they are joined."""
    scheme = VectorClocks()
    nodes = scheme.replicas(NODES)
    rows: list[list[Shown]] = [[(nodes[node].clock, node) for node in NODES]]
    for node in ("a", "c", "c"):
        nodes[node], _ = scheme.event(nodes[node])
    rows.append([(nodes[node].clock, node) for node in NODES])
    every = joined(one.clock for one in nodes.values())
    rows.append([(every, node) for node in NODES])
    title = "each node adds events to the column that it controls"
    return bars_svg(title, [_row(row, NODES) for row in rows])


def _shared(scheme: PlausibleClocks, title: str) -> str:
    """Draw the last stamps of the nodes under a scheme whose nodes share columns."""
    stamps = stamps_of(scheme)
    last = [stamps[name] for name in ("a3", "b3", "c3")]
    columns = [
        ", ".join(one.node for one in last if one.entry == entry) for entry in range(scheme.size)
    ]
    parts: list[Shown] = [
        (dict(zip(columns, one.entries, strict=True)), [columns[one.entry]]) for one in last
    ]
    return bars_svg(title, [_row(parts, columns)])


def shared_by_all() -> str:
    """Draw Lamport's clocks after the run of Fig. 10: one column for all nodes."""
    return _shared(LamportClocks(), "Lamport clocks: all nodes share a column")


def shared_by_two() -> str:
    """Draw plausible clocks of two entries: two of three nodes share a column."""
    return _shared(PlausibleClocks(2), "plausible clocks: nodes a and c share a column")


def trees() -> dict[str, IntervalTreeClock]:
    """Return the replicas of the section "Interval Tree Clocks", by the step that made them."""
    seed = event(event(SEED))
    left, right = fork(seed)
    middle, last = fork(right)
    out = {"seed": seed, "left": left, "right": right}
    return out | {"1": event(left), "2": event(middle), "3": event(last)}


def forked() -> str:
    """Draw how a seed is forked, the right one again, and how each registers an event."""
    of = trees()
    return trees_svg(
        "interval tree clocks: fork, fork, and an event in each",
        [
            ("a seed with two events", [of["seed"]]),
            ("forked", [of["left"], of["right"]]),
            ("the right one forked; an event in each", [of["1"], of["2"], of["3"]]),
            ("the rightmost joined into the leftmost", [join(of["1"], of["3"]), of["2"]]),
        ],
    )


FIGURES: dict[str, Callable[[], str]] = {
    "figure-2": runs.figure_2,
    "figure-3": runs.figure_3,
    "figure-4": runs.figure_4,
    "area": lambda: clock_svg(VECTORS["c3"], nodes=NODES),
    "less": lambda: pair_svg(
        joined([VECTORS["b3"], VECTORS["c2"]]), VECTORS["c3"], row="compared", nodes=NODES
    ),
    "difference": lambda: pair_svg(
        VECTORS["c3"], joined([VECTORS["b3"], VECTORS["c2"]]), row="subtracted", nodes=NODES
    ),
    "identity": lambda: clock_svg(VECTORS["b2"], nodes=NODES, own="b"),
    "maximum": lambda: pair_svg(VECTORS["a2"], VECTORS["b1"], row="joined", nodes=NODES),
    "event": event_of_b,
    "dot": lambda: clock_svg(stamps_of(DottedClocks())["b2"], nodes=NODES),
    "figure-5": runs.figure_5,
    "figure-6": runs.figure_6,
    "figure-7": runs.figure_7,
    "figure-8": runs.figure_8,
    "figure-9": runs.figure_9,
    "siblings": lambda: pair_svg(*store()["s2"].siblings, row="compared", nodes=SERVERS),
    "get": lambda: pair_svg(*store()["s2"].siblings, row="joined", nodes=SERVERS),
    "put": two_versions_read,
    "identities": identities,
    "figure-10": runs.figure_10,
    "one-column": shared_by_all,
    "shared-column": shared_by_two,
    "forks": forked,
    "join-of-trees": lambda: tree_join_svg(trees()["1"], trees()["3"]),
}
"""The figures by name, in the order of the paper."""


def main(folder: Path) -> None:
    """Write every figure into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
