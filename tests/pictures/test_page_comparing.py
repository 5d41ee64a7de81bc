"""Two executions side by side on the page: the events that only one of them has."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.model.events.event import Event
from tests.pictures.chromium import WITH_CHROMIUM
from tests.sampling import drawn

pytestmark = WITH_CHROMIUM


def _run(**types: str) -> list[Event]:
    """Return an execution without messages, from the types of each node's events, as letters."""
    return [
        Event(node=node, type=kind, clock={node: count})
        for node, kinds in types.items()
        for count, kind in enumerate(kinds, 1)
    ]


def _common(one: str, other: str) -> int:
    """Return the length of a longest common subsequence, by its definition."""

    @functools.cache
    def longest(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return longest(0, 0)


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An opened page whose functions the tests call."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    ketal.view(_run(n="a")).write(path)
    browser.get(path.as_uri())
    return browser


COMMON = """
    const [one, other] = arguments;
    return commonSubsequence(one.length, other.length, (i, j) => one[i] === other[j]);"""


def test_pairing_of_events_is_a_longest_common_subsequence(page: Any) -> None:
    differing = 0

    @drawn(80, 5_000)
    def holds(rng: random.Random) -> None:
        nonlocal differing
        letters = "ab" if rng.random() < 0.5 else "abcd"
        one, other = ("".join(rng.choices(letters, k=rng.randint(0, 12))) for _ in range(2))
        pairs, whole = page.execute_script(COMMON, one, other)
        pairs = sorted(pairs)
        assert whole
        assert len(pairs) == _common(one, other)
        assert all(one[i] == other[j] for i, j in pairs)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
        differing += len(pairs) < len(one)

    assert differing > 50


def test_with_too_many_differences_only_prefix_and_suffix_are_paired(page: Any) -> None:
    one, other = "s" + "a" * 1_500 + "e", "s" + "b" * 1_500 + "e"
    pairs, whole = page.execute_script(COMMON, one, other)
    assert (sorted(pairs), whole) == ([[0, 0], [1_501, 1_501]], False)


def _beside(browser: Any, path: Path, one: Sequence[Event], other: Sequence[Event]) -> None:
    program = ketal.compile('pattern P { event B = type == "b"; check B*; }')
    view = ketal.view(one, program, compare=other, title="failed", compare_title="passed")
    view.write(path)
    browser.get("about:blank")
    browser.get(path.as_uri())


def _alone(browser: Any, side: str) -> set[str]:
    script = """
        const { execution, peers } = ketal[arguments[0]];
        return [...peers.keys()].filter((e) => peers[e] < 0).map((e) => execution.dot(e));"""
    return set(browser.execute_script(script, side))


def test_compared_run_is_shown_beside_with_unpaired_events_marked(
    browser: Any, tmp_path: Path
) -> None:
    one, other = _run(n="abc", m="bb", only="x"), _run(n="abdc", m="bb")
    _beside(browser, tmp_path / "page.html", one, other)
    assert _alone(browser, "first") == {"only@1"}
    assert _alone(browser, "second") == {"n@3"}
    script = "return document.getElementById('differences').innerText"
    assert [line for line in browser.execute_script(script).splitlines() if line] == [
        "Differences", "only in failed: 1 of 6 events", "only@1 x",
        "only in passed: 1 of 6 events", "n@3 d",
    ]  # fmt: skip
    peer = """
        ketal.chooseEvent(ketal.execution.names.get(arguments[0]));
        const { execution, peer } = ketal.second;
        return peer < 0 ? null : execution.dot(peer);"""
    assert browser.execute_script(peer, "n@3") == "n@4"
    assert browser.execute_script(peer, "only@1") is None
    browser.execute_script("ketal.activate(ketal.second); ketal.nextDifference()")
    chosen = "return ketal.execution.dot(ketal.diagram.chosen)"
    assert browser.execute_script(chosen) == "n@3"
    assert "execution=0&beside=1&side=second" in browser.current_url
    where = browser.current_url
    browser.get("about:blank")
    browser.get(where)
    assert browser.execute_script(chosen) == "n@3"
    assert browser.execute_script("return ketal.diagram === ketal.second")
    browser.execute_script("ketal.showBeside(-1)")
    assert browser.execute_script("return [ketal.first.peers, ketal.second.section.hidden]") == [
        None, True,
    ]  # fmt: skip
    assert browser.get_log("browser") == []


def test_a_comparison_can_end_while_it_is_to_be_drawn(browser: Any, tmp_path: Path) -> None:
    _beside(browser, tmp_path / "page.html", _run(n="ab"), _run(n="ab"))
    browser.execute_async_script("""
        ketal.chooseEvent(0);
        ketal.showBeside(-1);
        requestAnimationFrame(() => requestAnimationFrame(arguments[0]))""")
    assert browser.get_log("browser") == []


def test_label_keeps_clear_of_the_square_around_an_unpaired_event(
    browser: Any, tmp_path: Path
) -> None:
    _beside(browser, tmp_path / "page.html", _run(n="a"), _run(n="b"))
    left = """
        const diagram = ketal.first, label = diagram.labels.shown.get(0);
        const square = diagram.x(0) + 5 + 4 + 1.5 / 2; // radius, distance, half of the line
        const [of, to] = [diagram.canvas, label].map((one) => one.getBoundingClientRect().left);
        return to - of - square;"""
    browser.execute_async_script("requestAnimationFrame(arguments[0])")
    assert browser.execute_script(left) >= 4


def test_each_run_has_its_own_verdicts_and_a_key_switches_runs(
    browser: Any, tmp_path: Path
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    _beside(browser, tmp_path / "page.html", _run(n="ba"), _run(n="bb"))
    heading = "return document.getElementById('verdict-count').textContent"
    first, second = browser.find_elements(By.CSS_SELECTOR, "canvas")
    first.send_keys("j")
    assert browser.execute_script(heading) == "No verdicts"  # `a` is not an event of the pattern
    second.send_keys("d")
    assert browser.execute_script("return ketal.diagram === ketal.second")
    assert browser.execute_script("return ketal.execution.dot(ketal.diagram.chosen)") == "n@2"
    second.send_keys(Keys.ESCAPE)
    assert browser.get_log("browser") == []


def test_view_compares_two_logs(tmp_path: Path) -> None:
    view = ketal.view(_run(n="ab"), compare=_run(n="a"))
    data = view.html.partition('id="data">')[2].partition("</script>")[0]
    page = json.loads(data.replace("\\u003c", "<"))
    assert [one["name"] for one in page["executions"]] == ["ketal", "compared"]
    assert page["beside"] == 1
    assert view.events == 3
