"""Clocks as bars: a square per event, marked comparisons, and no overlaps."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.clocks.areas import Knowledge, clock_svg, known_events, pair_svg, versions_svg
from ketal.clocks.causal_history import CausalHistories
from ketal.clocks.dotted import DottedClocks, DottedVector
from ketal.clocks.vector import VectorClocks
from ketal.clocks.versions.version_vectors import ObjectReplica, StoreReplica, Version
from ketal.errors import SettingError
from ketal.pictures.clocks.clock_bars import COLUMNS_MAX, LEVELS_MAX
from ketal.pictures.clocks.clock_figures import history_text
from tests.clocks.executions import SampleRun, sample_runs
from tests.pictures.svg_boxes import (
    SVG,
    check_layout,
    hatched_tooltips,
    order_sign,
    square_tooltips,
    texts,
)
from tests.pictures.test_svg import colours
from tests.sampling import examples

A, B, C = "a", "b", "c"
comparison_svg = partial(pair_svg, row="compared")
join_svg = partial(pair_svg, row="joined")
difference_svg = partial(pair_svg, row="subtracted")


# --- one clock ------------------------------------------------------------------


@examples(60, 500)
@given(st.dictionaries(st.sampled_from(["a", "b", "replica-7", "<&>", "時計"]), st.integers(0, 9)))
def test_vector_clock_has_a_square_per_event_and_a_label_per_node(
    clock: dict[str, int],
) -> None:
    svg = clock_svg(clock, nodes=sorted(clock), own=[A])
    check_layout(svg)
    assert len(square_tooltips(svg, "known")) == sum(clock.values())
    shown = texts(svg, "middle")
    assert shown[: len(clock)] == sorted(clock)
    assert shown[-1] == f"[{','.join(str(clock[node]) for node in sorted(clock))}]"
    owned = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    assert [one.get("class") for one in owned].count("owned") == (A in clock)


def test_history_is_drawn_with_its_holes() -> None:
    svg = clock_svg({(A, 1), (A, 3), (C, 2)}, nodes=[A, B, C])
    assert (
        square_tooltips(svg, "known")
        == ["a1", "a3", "c2"]
        == square_tooltips(svg, "known", "marked")
    )
    assert square_tooltips(svg, "hole") == ["a2 is not known", "c1 is not known"]
    assert texts(svg) == [A, B, C, "{a1,a3,c2}"]


def test_dot_of_a_dotted_clock_is_drawn_separately() -> None:
    svg = clock_svg(DottedVector(B, 2, {A: 2, B: 1}), nodes=[A, B, C])
    assert square_tooltips(svg, "dotted") == ["b2"]
    assert square_tooltips(svg, "known") == ["a1", "a2", "b1"]
    assert texts(svg)[-1] == "[2,1,0]b2"
    hanging = clock_svg(Version("t", 4, {"s": 2}), nodes=["s", "t"])
    assert square_tooltips(hanging, "dotted") == ["t4"]
    assert square_tooltips(hanging, "hole") == [f"t{n} is not known" for n in (1, 2, 3)]
    assert texts(hanging)[-1] == "[2,0]t4"


@examples(40, 300)
@given(sample_runs(nodes_max=5, steps_max=25))
def test_equivalent_stamps_of_three_schemes_have_the_same_picture(run: SampleRun) -> None:
    happenings = run.happenings()
    nodes = sorted(set(run.nodes))
    same: list[Knowledge] = [
        VectorClocks().stamped(happenings)[-1].clock,
        CausalHistories().stamped(happenings)[-1].dots,
        DottedClocks().stamped(happenings)[-1],
    ]
    drawn = [sorted(square_tooltips(clock_svg(one, nodes=nodes), "known", "dotted"))
             for one in same]  # fmt: skip
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(drawn[0]) == 1 + len(run.pasts()[-1])


def test_first_events_of_high_counters_are_one_square() -> None:
    svg = comparison_svg({A: 1_000_000, B: 3}, {A: 1_000_002, B: 2})
    check_layout(svg)
    assert order_sign(svg) == "∥"
    assert hatched_tooltips(svg) == ["b3", "a1000001", "a1000002"]
    assert texts(svg).count("1–999999") == 2
    alone = clock_svg({A: 10**15})
    assert square_tooltips(alone, "known") == [f"a1 to a{10**15 - 1}", f"a{10**15}"]
    subtracted = difference_svg({A: 1_000_002}, {A: 1_000_000})
    assert "{a1000001,a1000002}" in texts(subtracted)


@pytest.mark.parametrize(
    ("clock", "other", "limit"),
    [
        ({A: LEVELS_MAX + 1}, {B: 1}, "LEVELS_MAX"),
        ({A: 10**15}, {A: 10**15 - LEVELS_MAX}, "LEVELS_MAX"),
        ({f"n{n}": 1 for n in range(COLUMNS_MAX + 1)}, {}, "COLUMNS_MAX"),
    ],
)
def test_too_large_picture_names_the_limit(
    clock: dict[str, int], other: dict[str, int], limit: str
) -> None:
    for draw in (comparison_svg, join_svg, difference_svg):
        with pytest.raises(SettingError, match=limit):
            draw(clock, other)


# --- two clocks -----------------------------------------------------------------


@examples(60, 500)
@given(st.data())
def test_comparison_marks_events_that_only_one_clock_knows(data: st.DataObject) -> None:
    run = data.draw(sample_runs(nodes_max=5, steps_max=25))
    pick = st.integers(0, len(run.nodes) - 1)
    one, two = data.draw(pick), data.draw(pick)
    vectors = [stamp.clock for stamp in VectorClocks().stamped(run.happenings())]
    histories = CausalHistories().stamped(run.happenings())
    only = (
        sorted(histories[one].dots - histories[two].dots),
        sorted(histories[two].dots - histories[one].dots),
    )
    svg = comparison_svg(vectors[one], vectors[two])
    check_layout(svg)
    assert sorted(hatched_tooltips(svg)) == sorted(f"{n}@{c}" for of in only for n, c in of)
    pasts = run.pasts()
    before, after = one in pasts[two], two in pasts[one]
    assert order_sign(svg) == ("=" if one == two else "<" if before else ">" if after else "∥")
    left = difference_svg(vectors[one], vectors[two])
    check_layout(left)
    assert history_text(set(only[0])) in ElementTree.fromstring(left).findtext(f"{SVG}title", "")
    both = join_svg(vectors[one], vectors[two])
    check_layout(both)
    size = len(histories[one].dots), len(histories[two].dots)
    union = histories[one].dots | histories[two].dots
    assert len(square_tooltips(both, "known", "marked")) == sum(size) + len(union)


def test_difference_drawn_in_the_paper() -> None:
    """[2,3,3] - [2,3,2] = {c3}."""
    svg = difference_svg({A: 2, B: 3, C: 3}, {A: 2, B: 3, C: 2})
    assert hatched_tooltips(svg) == ["c3", "c3"]
    minus = "\N{MINUS SIGN}"
    assert [t for t in texts(svg, "middle") if t not in "abc"] == [
        "[2,3,3]", minus, "[2,3,2]", "=", "{c3}",
    ]  # fmt: skip


def test_siblings_of_a_store_are_concurrent_and_join_to_a_vector() -> None:
    siblings = StoreReplica("s").put("one").put("two").siblings
    svg = comparison_svg(*siblings, nodes=["s", "t"])
    assert order_sign(svg) == "∥"
    assert hatched_tooltips(svg) == ["s1", "s2"]
    assert "[2,0]" in texts(join_svg(*siblings, nodes=["s", "t"]))
    apart = known_events(siblings[0]).union(known_events(Version("t", 4, {})))
    assert apart.text(["s", "t"]) == "[1,0]{t4}"


def test_versions_of_each_replica_are_in_one_row() -> None:
    s = StoreReplica("s").put("one").put("two")
    t = StoreReplica("t", (Version("t", 3, {"t": 2}),))
    svg = versions_svg([s, t, t.sync(s), StoreReplica("u")])
    check_layout(svg)
    assert texts(svg, "row") == ["s: 2 siblings", "t: a version", "t: 3 siblings", "u: no version"]
    assert texts(svg).count("∥") == 3
    assert sorted(square_tooltips(svg, "dotted")) == ["s1", "s1", "s2", "s2", "t3", "t3"]
    a, b = ObjectReplica(A).update(), ObjectReplica(B).update()
    both = versions_svg([b.receive(a), b.receive(a).update()])
    assert [t for t in texts(both, "middle") if t[0] == "["] == ["[0,1]", "[1,0]", "[1,2]"]


# --- rendered outside of a browser ---------------------------------------------------


@pytest.mark.parametrize(
    ("dark", "ground", "known", "marked"),
    [(False, "#ffffff", "#b9d7f2", "#ffc98f"), (True, "#15191f", "#27506f", "#7a4210")],
)
def test_renderer_without_css_variables_shows_ground_and_squares(
    dark: bool, ground: str, known: str, marked: str
) -> None:
    svg = comparison_svg({A: 2, B: 3, C: 2}, {A: 2, B: 3, C: 3})
    if dark:
        # resvg, like librsvg and cairo, ignores @media blocks.
        svg = re.sub(r"@media[^{]*[{]((?:[^{}]*[{][^{}]*[}])*)\s*[}]", r"\1", svg)
    shown = colours(svg)
    assert shown.most_common(1)[0][0] == ground
    # A square has 24 x 20 pixels within its outline; half of a hatched square is covered.
    assert shown[known] >= 14 * 400
    assert shown[marked] >= 150
