"""The page of `ketal view` in a real browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ketal
from benchmarks.executions import execution
from tests.pictures.chromium import WITH_CHROMIUM

pytestmark = WITH_CHROMIUM
PATTERN = """\
pattern Conflict {
    order CausalOrder;
    event Write = type == "write";
    First = Write;
    Second = Conc(Write);
    find any First Second;
}
pattern Once { event Read = type == "read"; check Read; }
"""


def _log() -> list[ketal.Event]:
    clocks: list[tuple[str, str, dict[str, int]]] = [
        ("a", "write", {"a": 1}),
        ("b", "read", {"a": 1, "b": 1}),
        ("b", "write", {"a": 1, "b": 2}),
        ("c", "write", {"c": 1}),
        ("c", "read", {"a": 1, "b": 2, "c": 2}),
    ]
    return [
        ketal.Event(node=node, type=kind, clock=clock, data={"value": n})
        for n, (node, kind, clock) in enumerate(clocks)
    ]


@pytest.fixture
def opened_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The opened page of the log; the browser's console must be empty at the end."""
    path = tmp_path / "run.html"
    ketal.view(_log(), ketal.compile(PATTERN), title="run").write(path)
    browser.get("about:blank")
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def _own(browser: Any) -> set[str]:
    """Return the events that the diagram marks for the selected verdict."""
    script = "const d = ketal.diagram; return [...d.own].map((e) => d.execution.dot(e))"
    return set(browser.execute_script(script))


def _chosen(browser: Any) -> str:
    script = "const d = ketal.diagram; return d.chosen < 0 ? '' : d.execution.dot(d.chosen)"
    return str(browser.execute_script(script))


def _press(browser: Any, key: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(key).perform()


def _pixels(browser: Any, x: float, y: float) -> list[int]:
    """Return the colour at a point of the canvas."""
    time.sleep(0.1)  # a frame
    script = """
        const ratio = devicePixelRatio, [x, y] = arguments, copy = new OffscreenCanvas(1, 1);
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(ketal.diagram.canvas, -Math.round(x * ratio), -Math.round(y * ratio));
        return [...context.getImageData(0, 0, 1, 1).data]"""
    return list(browser.execute_script(script, x, y))


def _at(browser: Any, dot: str) -> tuple[float, float]:
    """Return the position of an event in the diagram."""
    script = """
        const d = ketal.diagram, e = d.execution.names.get(arguments[0]);
        return [d.x(d.shown().indexOf(d.execution.node[e])), d.y(d.execution.row[e])]"""
    x, y = browser.execute_script(script, dot)
    return x, y


def _point_at(browser: Any, dot: str) -> Any:
    """Move the pointer to an event; return the actions, to which others can be added."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    canvas = browser.find_element(By.CSS_SELECTOR, "#first canvas")
    x, y = _at(browser, dot)
    box = canvas.rect
    chain = ActionChains(browser)
    chain.move_to_element_with_offset(canvas, x - box["width"] / 2, y - box["height"] / 2)
    chain.perform()
    return ActionChains(browser)


def _click(browser: Any, dot: str) -> None:
    _point_at(browser, dot).click().perform()


def _text(browser: Any, name: str) -> str:
    return str(
        browser.execute_script("return document.getElementById(arguments[0]).innerText", name)
    )


def _heads(browser: Any) -> list[tuple[str, bool]]:
    """Return the names above all columns, each with whether it is shown in full."""
    script = """
        const heads = new Map();
        for (let at = 0; at < 10; at++) {
          for (const one of document.querySelectorAll("#first .heads button")) {
            heads.set(one.title, [one.textContent, one.scrollWidth <= one.clientWidth]);
          }
          ketal.diagram.move(300, 0);
        }
        return [...heads.values()];"""
    return [(name, fits) for name, fits in browser.execute_script(script)]


def test_click_on_a_verdict_shows_its_events_and_reasons(opened_page: Any) -> None:
    from selenium.webdriver.common.by import By

    buttons = opened_page.find_elements(By.CSS_SELECTOR, "#verdicts button")
    assert [one.text.partition(":")[0] for one in buttons] == [
        "match Conflict", "match Conflict", "violation Once",
    ]  # fmt: skip
    buttons[0].click()
    first = _own(opened_page)
    assert len(first) == 2
    assert "are concurrent" in _text(opened_page, "chosen")
    assert "#verdict=" in opened_page.current_url
    assert buttons[0].get_attribute("aria-current") == "true"
    buttons[2].click()
    assert "c@2" in _own(opened_page)
    assert 'type == "read"' in _text(opened_page, "chosen") or "nothing may follow" in _text(
        opened_page, "chosen"
    )
    x, y = _at(opened_page, "c@2")
    marked = _pixels(opened_page, x, y)
    assert marked != _pixels(opened_page, *_at(opened_page, "b@1"))
    assert marked[3] == 255


def test_event_that_is_pointed_at_is_named(opened_page: Any) -> None:
    name = "return ketal.diagram.canvas.title"
    _point_at(opened_page, "b@2")
    assert opened_page.execute_script(name) == "b@2 write"
    _point_at(opened_page, "c@1").move_by_offset(0, 200).perform()
    assert opened_page.execute_script(name) == ""


def test_click_on_an_event_shows_its_past_and_future(opened_page: Any) -> None:
    _click(opened_page, "b@2")
    assert _chosen(opened_page) == "b@2"
    details = _text(opened_page, "chosen")
    assert "2 in its past, 1 in its future, 1 concurrent" in details
    assert "a:1, b:2" in details
    script = """
        const { execution, relations } = ketal.diagram;
        return Object.fromEntries([...execution.names].map(([name, e]) => [name, relations[e]]))"""
    assert opened_page.execute_script(script) == {"a@1": 1, "b@1": 1, "b@2": 3, "c@1": 0, "c@2": 2}
    assert opened_page.current_url.endswith("#event=b%402")


def test_address_restores_the_selection(opened_page: Any) -> None:
    where = opened_page.current_url.partition("#")[0]
    opened_page.get("about:blank")
    opened_page.get(f"{where}#event=c%402")
    assert _chosen(opened_page) == "c@2"
    name = opened_page.execute_script("return ketal.execution.verdicts[1].id")
    opened_page.get("about:blank")
    opened_page.get(f"{where}#verdict={name}")
    assert len(_own(opened_page)) == 2
    opened_page.execute_script("location.hash = 'event=a%401'")
    time.sleep(0.1)
    assert _chosen(opened_page) == "a@1"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("event=a%409", "There is no event a@9."),
        ("verdict=123", "No verdict with the id 123 is shown."),
    ],
)
def test_address_of_nothing_selects_nothing(opened_page: Any, wanted: str, said: str) -> None:
    opened_page.execute_script("location.hash = 'event=a%401'")
    time.sleep(0.1)
    opened_page.execute_script(f"location.hash = '{wanted}'")
    time.sleep(0.1)
    assert (_chosen(opened_page), _text(opened_page, "chosen")) == ("", said)


def test_page_can_be_used_with_the_keyboard_only(opened_page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    order = opened_page.execute_script(
        "return Array.from(ketal.execution.node.keys(), (e) => ketal.execution.dot(e))"
    )
    _press(opened_page, "j")
    assert _chosen(opened_page) == order[0]
    _press(opened_page, Keys.ARROW_DOWN)
    assert _chosen(opened_page) == order[1]
    _press(opened_page, "k")
    assert _chosen(opened_page) == order[0]
    _press(opened_page, "n")
    assert len(_own(opened_page)) == 2
    _press(opened_page, Keys.ESCAPE)
    assert (_own(opened_page), _chosen(opened_page)) == (set(), "")
    _press(opened_page, "/")
    _press(opened_page, "read")
    assert _text(opened_page, "found") == "2 events found (text)"
    _press(opened_page, Keys.ENTER)
    assert _chosen(opened_page) in {"b@1", "c@2"}
    _press(opened_page, Keys.ESCAPE)
    before = opened_page.execute_script("return ketal.diagram.rowHeight")
    _press(opened_page, "+")
    assert opened_page.execute_script("return ketal.diagram.rowHeight") > before
    _press(opened_page, "?")
    assert opened_page.execute_script("return document.getElementById('help').open")
    _press(opened_page, Keys.ESCAPE)
    theme = opened_page.execute_script("return document.documentElement.dataset.theme")
    _press(opened_page, "t")
    assert opened_page.execute_script("return document.documentElement.dataset.theme") != theme


def test_automaton_shows_the_state_after_the_selected_event(opened_page: Any) -> None:
    script = """
        return [...document.querySelectorAll("#automata .live")].map((one) => one.dataset.state)"""
    for name, state in (("a@1", "0"), ("b@1", "1")):
        opened_page.execute_script(f"location.hash = 'event={name.replace('@', '%40')}'")
        time.sleep(0.1)
        assert opened_page.execute_script(script) == [state]
    assert "q0 → q1 by b@1" in _text(opened_page, "automata")
    opened_page.execute_script("location.hash = 'event=c%402'")
    time.sleep(0.1)
    assert opened_page.execute_script(script) == []
    assert "q1 → ended by c@2" in _text(opened_page, "automata")


def test_node_can_be_folded_and_shown_again(opened_page: Any) -> None:
    from selenium.webdriver.common.by import By

    heads = [one.text for one in opened_page.find_elements(By.CSS_SELECTOR, "#first .heads button")]
    assert heads == ["a", "b", "c"]
    opened_page.find_elements(By.CSS_SELECTOR, "#first .heads button")[1].click()
    heads = [one.text for one in opened_page.find_elements(By.CSS_SELECTOR, "#first .heads button")]
    assert heads == ["a", "c", "show 1 folded"]
    opened_page.find_elements(By.CSS_SELECTOR, "#first .heads button")[2].click()
    assert len(opened_page.find_elements(By.CSS_SELECTOR, "#first .heads button")) == 3


def test_heads_of_many_restarted_nodes_have_their_whole_names(browser: Any, tmp_path: Path) -> None:
    names = [f"s{n}#{run}" for n in range(1, 6) for run in range(2, 8)]
    events = [ketal.Event(node=name, type="t", clock={name: 1}) for name in names]
    ketal.view(events).write(tmp_path / "nodes.html")
    browser.get((tmp_path / "nodes.html").as_uri())
    assert _heads(browser) == [(name, True) for name in names]


def test_nodes_with_a_common_name_prefix_have_distinct_heads(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    nodes = [f"payments-{number:02}" for number in range(40)]
    ketal.view([ketal.Event(node=node, type="x", clock={node: 1}) for node in nodes]).write(path)
    browser.get(path.as_uri())
    assert [(name[-2:], fits) for name, fits in _heads(browser)] == [(n[-2:], True) for n in nodes]


def test_resized_diagram_is_drawn_in_the_same_frame(opened_page: Any) -> None:
    opened_page.set_script_timeout(10)
    script = """
        const done = arguments[0], { canvas, context } = ketal.diagram;
        let calls = 0;
        new ResizeObserver(() => {  // is called after that of the diagram
          calls += 1;
          if (calls === 1) { ketal.diagram.section.style.maxWidth = "500px"; return; }
          const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
          done([canvas.width, data.some((part) => part > 0)]);
        }).observe(canvas);"""
    assert opened_page.execute_async_script(script) == [500, True]


def test_print_is_light_and_as_wide_as_the_paper(opened_page: Any) -> None:
    script = """
        ketal.setTheme("dark");
        window.printed = [];
        matchMedia("print").addEventListener("change", () => {
          const { canvas } = ketal.diagram;
          printed.push([canvas.width === canvas.clientWidth, ketal.diagram.colours().ground]);
        });"""
    opened_page.execute_script(script)
    opened_page.execute_cdp_cmd("Page.printToPDF", {})
    printed = opened_page.execute_script("return printed")
    opened_page.execute_script("ketal.setTheme('light')")
    assert printed == [[True, "#ffffff"], [True, "#15191f"]]


def test_values_of_attributes_with_long_names_are_visible(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.html"
    event = ketal.Event(node="a", type="x", clock={"a": 1}, data={"k" * 200: "v" * 200})
    ketal.view([event]).write(path)
    browser.get(path.as_uri() + "#event=a%401")
    script = """
        const box = document.getElementById("chosen").getBoundingClientRect();
        return [...document.querySelectorAll("#chosen dd")]
          .every((one) => one.getBoundingClientRect().right <= box.right)"""
    assert browser.execute_script(script)


def test_number_of_rejected_records_is_shown(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "rejected.html"
    log = [ketal.Event(node="a", type=kind, clock={"a": 2}) for kind in "xy"]
    view = ketal.view(log)
    assert view.rejected[0] == 1
    view.write(path)
    browser.get(path.as_uri())
    assert _text(browser, "counts") == "1 event, 1 node; 1 record rejected"


def test_impossible_clocks_are_noted_in_the_header(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "impossible.html"
    clock = {"a": 1, "b": 1}
    ketal.view([ketal.Event(node=node, type="x", clock=clock) for node in "ab"]).write(path)
    browser.get(path.as_uri())
    note = "1 event with an impossible clock; run `ketal audit` to find the fault"
    assert _text(browser, "counts") == f"2 events, 2 nodes; {note}"


def test_notebook_shows_the_page(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    path = tmp_path / "notebook.html"
    shown = ketal.view(_log(), ketal.compile(PATTERN))
    path.write_text(f"<!doctype html><body>{shown._repr_html_()}", encoding="utf-8")
    browser.get(path.as_uri())
    browser.switch_to.frame(0)
    browser.find_elements(By.CSS_SELECTOR, "#verdicts button")[0].click()
    own = _own(browser)
    browser.find_element(By.CSS_SELECTOR, "#chosen button.dot").click()
    assert _chosen(browser) in own
    browser.switch_to.default_content()
    assert browser.get_log("browser") == []


def test_page_without_events_accepts_every_key(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    path = tmp_path / "empty.html"
    ketal.view([], ketal.compile(PATTERN), compare=[]).write(path)
    browser.get(path.as_uri())
    assert _text(browser, "counts") == "0 events, 0 nodes"
    browser.find_element(By.TAG_NAME, "body").send_keys("jklhnpd0+-tt")
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_text_and_marks_have_enough_contrast(opened_page: Any, theme: str, width: int) -> None:
    """The contrast of WCAG 2.1: 4.5 for text, 3 for marks; nothing is wider than the window."""
    opened_page.set_window_size(width, 800)
    script = """
        ketal.setTheme(arguments[0]);
        return [ketal.diagram.colours(), document.documentElement.scrollWidth, innerWidth]"""
    colours, wide, window = opened_page.execute_script(script, theme)
    opened_page.set_window_size(1280, 800)
    assert wide <= window
    ground = colours["ground"]
    assert _contrast(colours["text"], ground) >= 4.5
    assert _contrast(colours["faint"], ground) >= 4.5
    for name in ("event", "past", "future", "match", "violation", "other", "chosen"):
        assert _contrast(colours[name], ground) >= 3, (theme, name)


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_fifty_thousand_events_can_be_viewed(browser: Any, tmp_path: Path) -> None:
    events = execution(50_000, nodes=10)
    path = tmp_path / "long.html"
    ketal.view(events).write(path)
    browser.get(path.as_uri())
    assert _text(browser, "counts") == "50,000 events, 10 nodes"
    script = """
        const [done] = arguments, diagram = ketal.diagram, paint = diagram.paint;
        let frames = 0, painted = 0;
        diagram.paint = () => { paint.call(diagram); painted++; };
        const next = () => {
          diagram.move(0, 37);
          if (++frames < 60) requestAnimationFrame(next); else done(painted);
        };
        next();"""
    assert browser.execute_async_script(script) >= 50
    last = events[-1].dot
    browser.execute_script(f"location.hash = 'event={last.node}%40{last.counter}'")
    time.sleep(0.3)
    assert _chosen(browser) == str(last)
    assert browser.get_log("browser") == []


POSSIBLY = """
pattern Order {
    order CausalOrder;
    mode possibly;
    event Open = type == "open"; event Close = type == "close";
    check (Open Close)*;
}
"""


def test_witness_order_of_a_verdict_is_played(browser: Any, tmp_path: Path) -> None:
    log = [
        ketal.Event(node="b", type="close", clock={"b": 1}),
        ketal.Event(node="c", type="open", clock={"c": 1}),
        ketal.Event(node="d", type="open", clock={"c": 1, "d": 1}),
    ]
    program = ketal.compile(POSSIBLY)
    path = tmp_path / "run.html"
    ketal.view(log, program).write(path)
    browser.get(path.as_uri())
    (explanation,) = ketal.explain(program, log)
    order = [str(one.event.dot) for one in explanation.extension]
    assert explanation.verdict is not None
    browser.execute_script("ketal.chooseVerdict(0)")
    script = "return ketal.played.order.map((e) => ketal.execution.dot(e))"
    assert browser.execute_script(script) == order
    states = "return [...document.querySelectorAll('#automata li')].map((one) => one.textContent)"
    seen = []
    for number, name in enumerate(order, 1):
        _press(browser, "j")
        assert _chosen(browser) == name
        assert f"{number} of {len(order)} in this order\n" in _text(browser, "chosen")
        seen += browser.execute_script(states)
    assert seen[-1].endswith(f"→ ended by {order[-1]}")
    assert all(f"by {name}" in one for name, one in zip(order, seen, strict=True))
    # Any other selection returns to the canonical order.
    browser.execute_script("ketal.chooseEvent(0)")
    assert browser.execute_script("return ketal.played") is None
    assert browser.get_log("browser") == []


def test_event_types_are_selectable_text(opened_page: Any) -> None:
    from selenium.webdriver.common.by import By

    frame = (
        "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"  # after a painted one
    )
    opened_page.execute_async_script(frame)
    labels = opened_page.find_elements(By.CSS_SELECTOR, "#first .labels span")
    assert sorted(one.text for one in labels if one.is_displayed()) == [
        "read", "read", "write", "write", "write",
    ]  # fmt: skip
    label = next(one for one in labels if one.text == "read")
    script = """
        getSelection().selectAllChildren(arguments[0]);
        return [getSelection().toString(), getComputedStyle(arguments[0]).userSelect];"""
    assert opened_page.execute_script(script, label) == ["read", "text"]
    label.click()
    assert _chosen(opened_page) in {"b@1", "c@2"}
    opened_page.execute_script("ketal.diagram.zoom(0.1, 0)")
    time.sleep(0.1)
    assert not any(one.is_displayed() for one in labels)


BROADCAST = """
pattern P {
    event Send = type == "send"; event Receive = type matches /^type [0-7]$/;
    First = Send; Second = Receive;
    find any First Second;
}
"""


def test_lists_say_how_many_items_they_leave_out(browser: Any, tmp_path: Path) -> None:
    send = [ketal.Event(node="s", type="send", clock={"s": 1})]
    log = send + [
        ketal.Event(node=f"n{n}", type=f"type {n}", clock={"s": 1, f"n{n}": 1})
        for n in range(1_230)
    ]
    path = tmp_path / "run.html"
    ketal.view(log, ketal.compile(BROADCAST)).write(path)
    browser.get("about:blank")
    browser.get(path.as_uri() + "#event=s%401")
    details = _text(browser, "chosen")
    assert details.count("match P") == 5
    assert "… and 3 more" in details
    assert "@1 … and 1,210 more" in details
    assert "0 in its past, 1,230 in its future, 0 concurrent" in details
    types = browser.execute_script("return document.getElementById('types').textContent")
    assert types.endswith("… and 1,031 more")
    assert browser.get_log("browser") == []
