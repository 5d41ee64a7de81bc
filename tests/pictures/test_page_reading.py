"""The page of `ketal view` as it is read: names of events, stepping, states of automata."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import ketal
from ketal.model.events.event import Event
from tests.pictures.chromium import WITH_CHROMIUM

pytestmark = WITH_CHROMIUM
CHECK = """\
pattern P {{ {mode} order CausalOrder;
  event Lock = type == "lock"; event Free = type == "free";
  check (Lock Free)*; }}
"""


def _opened(browser: Any, folder: Path, log: ketal.Log | list[Event], pattern: str = "") -> None:
    path = folder / "run.html"
    ketal.view(log, ketal.compile(pattern) if pattern else None).write(path)
    browser.get("about:blank")
    browser.get(path.as_uri())


def _press(browser: Any, keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(keys).perform()


def _texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    return list(browser.execute_script(script, selector))


def _states(browser: Any) -> dict[str, str]:
    """Return the state of the automaton that has a class, by the class."""
    script = """
        return Object.fromEntries(["live", "left"].map((name) => [name,
          [...document.querySelectorAll(`[data-state].${name} text`)]
            .map((one) => one.textContent).join()]))"""
    return dict(browser.execute_script(script))


def _locks(*types: str) -> list[Event]:
    return [
        Event(node=kind[0] + str(n), type=kind, clock={kind[0] + str(n): 1})
        for n, kind in enumerate(types)
    ]


def test_format_characters_are_shown_as_escapes_and_found_as_they_are(
    browser: Any, tmp_path: Path
) -> None:
    """Persian is written with U+200C, and some emojis with U+200D."""
    kind, node = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "n\u202ex\U000e0041"
    pattern = f'pattern P {{ event A = type == "{kind}" && word == "a\u200db"; check A; }}'
    event = Event(node=node, type=kind, clock={node: 1}, data={"word": "a\u200db"})
    _opened(browser, tmp_path, [event, Event(node=node, type="b", clock={node: 2})], pattern)
    browser.execute_script("location.hash = arguments[0]", f"#event={node}@1")
    shown = browser.execute_script("return document.body.innerText")
    assert not set(shown) & set("\u200c\u200d\u202e\U000e0041")
    for part in ("\\u200c", "n\\u202ex\\U000e0041@1", '"a\\u200db"'):
        assert part in shown
    for asked, found in (
        ("A", "1 event found"),
        ("a\u200db", "1 event found"),
        (kind, "1 event found"),
        ("(\u202e", "0 events found (text; not a guard: unexpected character `\\u202e`"),
    ):
        browser.execute_script(
            "const box = document.getElementById('find'); box.value = arguments[0];"
            "box.dispatchEvent(new Event('input'))",
            asked,
        )
        assert _texts(browser, "#found")[0].startswith(found), asked
    browser.execute_script("location.hash = arguments[0]", "#event=\u202e@1")
    assert _texts(browser, "#chosen") == ["There is no event \\u202e@1."]


def test_events_of_nodes_with_any_name_are_linked_and_to_no_other_event(
    browser: Any, tmp_path: Path
) -> None:
    nodes = ["server", "my server", "a (b)=c, d", "n", "n@1", "שרת"]
    log = [Event(node=node, type="x", clock={node: 1}) for node in nodes]
    _opened(
        browser,
        tmp_path,
        log,
        'pattern P { order CausalOrder; event X = type == "x"; find any X{6}; }',
    )
    _press(browser, "n")
    linked = _texts(browser, "#chosen button.dot")
    assert {text.replace("\u200e", "") for text in linked} == {f"{node}@1" for node in nodes}
    script = """
        return [...document.querySelectorAll("#chosen button.dot")].map((one) => {
          one.click();
          const dot = ketal.diagram.execution.dot(ketal.diagram.chosen);
          ketal.chooseVerdict(0);
          return dot;
        })"""
    assert browser.execute_script(script) == [text.replace("\u200e", "") for text in linked]


def test_place_of_an_event_in_memory_is_its_row(browser: Any, tmp_path: Path) -> None:
    rows = [{"node": "a", "type": "x", "clock": {"a": count}} for count in (1, 2)]
    _opened(browser, tmp_path, ketal.read_log(rows))
    _press(browser, "j")
    assert "row 1" in _texts(browser, "#chosen dd")


def test_numbers_after_a_name_from_right_to_left_stay_after_it(
    browser: Any, tmp_path: Path
) -> None:
    log = [Event(node=node, type="x", clock={"a": 1, node: 1}) for node in ("a", "שרת א", "خادم")]
    log.append(Event(node="a", type="כתיבה 1", clock={"a": 2, "שרת א": 1, "خادم": 1}))
    _opened(browser, tmp_path, log)
    assert "כתיבה\u200e 1" in _texts(browser, "#first .labels span")
    script = """
        ketal.chooseEvent(ketal.execution.names.get("a@2"));
        const [text] = [...document.querySelectorAll("#chosen dd")].map((one) => one.firstChild)
          .filter((one) => one.textContent.startsWith("a:2"));
        const range = document.createRange();
        return [...text.textContent].map((letter, at) => {
          range.setStart(text, at);
          range.setEnd(text, at + 1);
          return [letter, range.getBoundingClientRect().left];
        })"""
    shown = [(left, letter) for letter, left in browser.execute_script(script)]
    assert "".join(letter for _, letter in sorted(shown) if letter in "a:123, ") == "a:2,  :1, :1"
    svg = ketal.view(log).to_svg()
    assert ">שרת א<" in svg
    assert "<title>שרת א\u200e@1 x </title>" in svg


def test_node_names_with_a_common_end_have_distinct_heads(browser: Any, tmp_path: Path) -> None:
    nodes = [f"worker-{number:03}.eu-central-1.example" for number in range(40)]
    _opened(browser, tmp_path, [Event(node=node, type="x", clock={node: 1}) for node in nodes])
    heads = _texts(browser, "#first .heads button")
    assert len(heads) > 10
    assert [head[-3:] for head in heads] == [node[7:10] for node in nodes[: len(heads)]]
    first = browser.find_element("css selector", "#first .heads button")
    assert first.get_attribute("aria-label") == nodes[0]
    _opened(browser, tmp_path, [Event(node=node, type="x", clock={node: 1}) for node in nodes[:3]])
    heads = _texts(browser, "#first .heads button")
    assert heads == ["worker-000…", "worker-001…", "worker-002…"]


def test_heads_are_above_their_columns_and_each_is_visible(browser: Any, tmp_path: Path) -> None:
    nodes = [f"n{number:02}" for number in range(40)]
    _opened(browser, tmp_path, [Event(node=node, type="x", clock={node: 1}) for node in nodes])
    script = """
        const d = ketal.diagram;
        const heads = () => [...d.heads.querySelectorAll("[title]")];
        const box = (element) => element.getBoundingClientRect();
        const displaced = () => heads().filter((head, number, all) => {
          const column = d.shown().indexOf(d.execution.nodes.indexOf(head.textContent));
          head.focus();
          const off = box(head).left - box(d.heads).left;
          const over = number && box(all[number - 1]).right > box(head).left;
          return over || Math.abs(off - d.x(column) + 14) > 1 || off > d.canvas.clientWidth;
        }).length;
        const out = [];
        for (const e of [39, 0, 20, 38, 1, 39]) { ketal.chooseEvent(e); out.push(displaced()); }
        for (let n = 0; n < 30; n++) { d.folded.add(n); }
        d.refit();
        return [...out, displaced(), heads().length];"""
    assert browser.execute_script(script) == [0] * 7 + [10]


def test_messages_have_the_colour_of_the_past_or_the_future(browser: Any, tmp_path: Path) -> None:
    clocks = [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"d": 1}, {"d": 1, "e": 1}]
    log = [
        Event(node=node, type=node, clock=clock)
        for node, clock in zip("abcde", clocks, strict=True)
    ]
    _opened(browser, tmp_path, log)
    script = """
        const d = ketal.diagram, colours = d.colours(), drawn = [];
        ketal.chooseEvent(d.execution.names.get("b@1"));
        const pen = { beginPath() {}, stroke() {}, moveTo() {}, lineTo() {} };
        d.arrow = (context, column, from, to) => drawn.push([
          d.execution.dot(from), d.execution.dot(to),
          ["past", "future", "message"].find((name) => colours[name] === context.strokeStyle)]);
        d.paintMessages(pen, colours, [0, 1, 2, 3, 4]);
        delete d.arrow;
        return drawn.sort();"""
    assert browser.execute_script(script) == [
        ["a@1", "b@1", "past"], ["b@1", "c@1", "future"], ["d@1", "e@1", "message"],
    ]  # fmt: skip


def test_labels_of_long_types_keep_the_end_in_which_they_differ(
    browser: Any, tmp_path: Path
) -> None:
    types = [f"org.example.service.payments.Gateway.{name}" for name in ("charge", "refund")]
    log = [
        Event(node=node, type=kind, clock={node: number})
        for node in "abcdefgh"
        for number, kind in enumerate(types, 1)
    ]
    _opened(browser, tmp_path, log)
    script = "return [...document.querySelectorAll('.labels span:not([hidden])')].map((one) => "
    shown = set(browser.execute_script(f"{script} one.textContent)"))
    assert len(shown) == 2
    assert {text[-3:] for text in shown} == {"rge", "und"}
    assert set(browser.execute_script(f"{script} one.title)")) == set(types)
    browser.execute_script("for (const node of [2, 3, 4, 5, 6, 7]) ketal.diagram.folded.add(node)")
    browser.execute_async_script("ketal.diagram.refit(); setTimeout(arguments[0], 200)")
    assert set(browser.execute_script(f"{script} one.textContent)")) != shown


def test_a_path_skips_the_events_of_folded_nodes(browser: Any, tmp_path: Path) -> None:
    clocks = [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}]
    log = [
        Event(node=node, type=node, clock=clock) for node, clock in zip("abc", clocks, strict=True)
    ]
    pattern = """
        pattern P { order CausalOrder; event A = type == "a"; event C = type == "c";
          Last = Causal(C); find any A Last; }"""
    _opened(browser, tmp_path, log, pattern)
    script = """
        const d = ketal.diagram, at = [];
        if (arguments[0].includes(-1)) { d.folded.add(1); d.refit(); }
        ketal.chooseVerdict(0);
        const note = (x) => at.push(x);
        const pen = { beginPath() {}, stroke() {}, moveTo: note, lineTo: note };
        d.paintPaths(pen, d.colours(), arguments[0]);  // the columns of the nodes
        return at.map((x) => (x - d.x(0)) / d.columnWidth);"""
    assert browser.execute_script(script, [0, 1, 2]) == [0, 1, 2]
    assert browser.execute_script(script, [0, -1, 1]) == [0, 1]


def test_keys_step_from_the_last_event_of_the_selected_verdict(
    browser: Any, tmp_path: Path
) -> None:
    log = [
        Event(node="a", type=kind, clock={"a": n})
        for n, kind in enumerate(("lock", "free", "free", "lock"), 1)
    ]
    _opened(browser, tmp_path, log, CHECK.format(mode=""))
    chosen = "return ketal.diagram.execution.dot(ketal.diagram.chosen)"
    for key, dot in (("j", "a@4"), ("k", "a@2"), ("l", "a@4"), ("h", "a@2")):
        browser.execute_script("ketal.chooseVerdict(0)")
        _press(browser, key)
        assert browser.execute_script(chosen) == dot


def test_buttons_step_as_the_arrow_keys_do(browser: Any, tmp_path: Path) -> None:
    log = [Event(node="a", type="x", clock={"a": count}) for count in (1, 2, 3)]
    _opened(browser, tmp_path, log)
    for name, dot in (("forward", "a@1"), ("forward", "a@2"), ("back", "a@1")):
        browser.find_element("id", name).click()
        chosen = "return ketal.diagram.execution.dot(ketal.diagram.chosen)"
        assert browser.execute_script(chosen) == dot


def test_a_violation_shows_the_state_in_which_it_happened(browser: Any, tmp_path: Path) -> None:
    _opened(browser, tmp_path, _locks("lock", "lock"), CHECK.format(mode=""))
    assert _states(browser) == {"live": "", "left": ""}
    _press(browser, "j")
    assert _states(browser) == {"live": "q1", "left": "q0"}
    _press(browser, "n")
    assert _states(browser) == {"live": "", "left": "q1"}


def test_a_check_with_a_mode_has_no_state_until_its_verdict_is_selected(
    browser: Any, tmp_path: Path
) -> None:
    _opened(browser, tmp_path, _locks("lock", "free", "lock"), CHECK.format(mode="mode possibly;"))
    for _ in range(3):
        _press(browser, "j")
        assert _states(browser) == {"live": "", "left": ""}
        (idle,) = _texts(browser, "#automata li")
        assert idle == "judged over every order of the events; each of its verdicts shows one"
    _press(browser, "n")
    assert _states(browser)["left"]


def test_the_automaton_of_the_selected_verdict_comes_first(browser: Any, tmp_path: Path) -> None:
    other = 'pattern Other { event Lock = type == "lock"; check Lock*; }\n'
    _opened(browser, tmp_path, _locks("lock", "lock"), other + CHECK.format(mode=""))
    assert _texts(browser, "#automata summary") == ["Other", "P"]
    _press(browser, "n")
    assert _texts(browser, "#automata summary") == ["P", "Other"]


def test_many_verdicts_and_long_names_leave_room_for_the_explanation(
    browser: Any, tmp_path: Path
) -> None:
    log = [Event(node="n" * 200, type="x", clock={"n" * 200: count}) for count in range(1, 60)]
    patterns = """
        event X = type == "x";
        pattern P { find any X; }
        pattern Q { partition by node; check X*; }"""
    _opened(browser, tmp_path, log, patterns)
    _press(browser, "n" * 40)
    script = """
        const panel = document.querySelector("aside"), box = panel.getBoundingClientRect();
        const shown = (selector) => {
          const own = document.querySelector(selector).getBoundingClientRect();
          return own.top >= box.top && own.bottom <= box.bottom;
        };
        return [shown("#chosen"), shown("#verdicts [aria-current]"),
          panel.scrollWidth <= panel.clientWidth];"""
    assert browser.execute_script(script) == [True, True, True]


def test_lists_of_executions_with_long_names_are_within_the_panel(
    browser: Any, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f'=== {"long " * 40}{n} ===\nx\na {{"a": 1}}\n' for n in (1, 2)))
    executions = ketal.read_log(
        log, regex=r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})", delimiter="^=== (?<name>.*) ===$"
    )
    _opened(browser, tmp_path, executions)
    script = """
        const panel = document.querySelector("aside");
        return panel.scrollWidth <= panel.clientWidth"""
    assert browser.execute_script(script)


def test_controls_and_scrollbars_have_the_chosen_theme(browser: Any, tmp_path: Path) -> None:
    _opened(browser, tmp_path, _locks("lock"))
    script = "return getComputedStyle(document.documentElement).colorScheme"
    for _ in range(2):
        _press(browser, "t")
        assert browser.execute_script(script) == browser.execute_script(
            "return document.documentElement.dataset.theme"
        )


def test_list_of_keys_begins_at_its_top_in_a_low_window(browser: Any, tmp_path: Path) -> None:
    _opened(browser, tmp_path, _locks("lock"))
    script = """
        const help = document.getElementById("help");
        return [help.open, help.scrollHeight > help.clientHeight, help.scrollTop]"""
    size = browser.get_window_size()
    browser.set_window_size(1280, 500)
    try:
        _press(browser, "?")
        assert browser.execute_script(script) == [True, True, 0]
    finally:
        browser.set_window_size(size["width"], size["height"])


def test_on_paper_all_verdicts_are_listed_after_the_selected_one(
    browser: Any, tmp_path: Path
) -> None:
    """Without a selection, the words on how to select are not printed."""
    log = [Event(node="n", type="x", clock={"n": count}) for count in range(1, 60)]
    _opened(browser, tmp_path, log, 'pattern P { event X = type == "x"; find any X; }')
    chosen = browser.find_element("id", "chosen")
    assert chosen.is_displayed()
    media = "Emulation.setEmulatedMedia"
    browser.execute_cdp_cmd(media, {"media": "print"})
    try:
        assert not chosen.is_displayed()
        _press(browser, "n")
        script = """
            const list = document.getElementById("verdicts");
            const [chosen, all] = [document.getElementById("chosen"), list]
              .map((one) => one.getBoundingClientRect());
            return [chosen.bottom <= all.top, list.scrollHeight <= list.clientHeight];"""
        assert browser.execute_script(script) == [True, True]
    finally:
        browser.execute_cdp_cmd(media, {"media": ""})


def test_whole_diagram_is_on_paper(browser: Any, tmp_path: Path) -> None:
    """Also what the screen does not show: rows further down, and columns further right."""
    log = [Event(node="n", type="x", clock={"n": count}) for count in range(1, 401)]
    log += [Event(node=f"n{number}", type="x", clock={f"n{number}": 1}) for number in range(39)]
    _opened(browser, tmp_path, log)
    script = """
        const diagram = ketal.diagram, { canvas } = diagram;
        diagram.move(0, 300);
        window.shown = () => [diagram.visible().length, diagram.heads.childElementCount,
          diagram.x(39) < canvas.clientWidth, diagram.y(399) < canvas.clientHeight,
          canvas.height === canvas.clientHeight * devicePixelRatio, diagram.top];
        window.printed = [];
        matchMedia("print").addEventListener("change", () => printed.push(shown()));
        return shown();"""
    before = browser.execute_script(script)
    assert before[0] < 439
    assert before[2:4] == [False, False]
    pdf = b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert len(re.findall(rb"/Type */Page\b", pdf)) >= 8
    on_paper, after = browser.execute_script("return printed")
    assert on_paper == [439, 40, True, True, True, -24]
    assert after == before


def test_page_without_javascript_says_what_is_missing(browser: Any, tmp_path: Path) -> None:
    switch = "Emulation.setScriptExecutionDisabled"
    browser.execute_cdp_cmd(switch, {"value": True})
    try:
        _opened(browser, tmp_path, _locks("lock"))
        shown = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd(switch, {"value": False})
    assert shown == (
        "ketal\nJavaScript, which draws this page, is off. "
        "ketal view --to svg makes a picture that does not need it."
    )
