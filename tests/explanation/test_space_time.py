"""The data of a space-time diagram, and its output formats."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import PatternError
from ketal.explanation.views.space_time import ViewedLog, space_times
from ketal.grammar.printer import render
from ketal.logs import Log
from ketal.logs.formats.shiviz import WRITTEN_FIELDS, WRITTEN_REGEX
from ketal.model.events.event import Event
from ketal.model.events.happened_before import happened_before
from ketal.model.limits import DEFAULT, Limits
from ketal.model.log_arguments import RecordBatch
from tests.pictures.svg_boxes import check_layout, texts
from tests.property.executions import execution
from tests.property.patterns import pattern_file
from tests.sampling import drawn
from tests.work import counted_lines


def _page_data(html: str) -> Any:
    """Return the data embedded in a page."""
    text = html.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    return json.loads(text)


def test_lines_and_messages_are_immediate_predecessors_and_lead_downwards() -> None:
    messages = 0

    @drawn(40, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal messages
        events = execution(rng, events_max=12)
        (one,) = space_times(ViewedLog(events, DEFAULT), None, DEFAULT)
        assert {e.dot for e in one.events} == {e.dot for e in events}
        for source, target in one.messages:
            a, b = one.events[source], one.events[target]
            assert a.node != b.node
            assert happened_before(a, b)
            assert not any(happened_before(a, x) and happened_before(x, b) for x in events)
        linked = {(one.events[a].dot, one.events[b].dot) for a, b in one.messages}
        for a in events:
            for b in events:
                if happened_before(a, b):
                    assert one.rows[one.number[a.dot]] < one.rows[one.number[b.dot]]
                    between = any(happened_before(a, x) and happened_before(x, b) for x in events)
                    assert between or a.node == b.node or (a.dot, b.dot) in linked
        messages += len(one.messages)

    assert messages > 50


def test_page_has_every_event_with_its_whole_clock() -> None:
    @drawn(20, 1_000)
    def holds(rng: random.Random) -> None:
        events = execution(rng, events_max=10)
        data = _page_data(ketal.view(events).html)
        (one,) = data["executions"]
        clocks: dict[str, dict[str, int]] = {}
        read = []
        for e, node in enumerate(one["node"]):
            name = one["nodes"][node]
            clock = clocks.setdefault(name, {})
            changes = one["changes"][e]
            for number, counter in zip(changes[::2], changes[1::2], strict=True):
                clock[(one["nodes"] + one["others"])[number]] = counter
            read.append((name, one["counter"][e], one["types"][one["type"][e]], dict(clock)))
        assert {(n, c): (t, k) for n, c, t, k in read} == {
            tuple(e.dot): (e.type, e.clock) for e in events
        }

    assert not data_without_pattern()["judged"]


def data_without_pattern() -> Any:
    return _page_data(ketal.view([Event(node="n", type="t", clock={"n": 1})]).html)


def test_page_has_the_verdicts_of_a_run() -> None:
    shown = 0

    @drawn(20, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal shown
        file, events = pattern_file(rng), execution(rng, events_max=8)
        try:
            program = ketal.compile(render(file))
        except PatternError:
            return
        (one,) = _page_data(ketal.view(events, program).html)["executions"]
        kinds = (ketal.Match, ketal.Violation, ketal.Incomplete, ketal.TimedOut)
        wanted = [v for v in ketal.run(program, events) if isinstance(v, kinds)]
        assert [v["id"] for v in one["verdicts"]] == [v.id for v in wanted]
        dots = [f"{one['nodes'][n]}@{c}" for n, c in zip(one["node"], one["counter"], strict=True)]
        for drawn_verdict, verdict in zip(one["verdicts"], wanted, strict=True):
            if isinstance(verdict, ketal.Match):
                assert [dots[e] for e in drawn_verdict["events"]] == list(map(str, verdict.events))
            for path in drawn_verdict["paths"]:
                assert len(path) > 1
            shown += 1

    assert shown > 20


def test_a_violation_marks_its_event_and_not_the_one_by_which_a_copy_learned_of_it() -> None:
    program = ketal.compile(
        'pattern P { at every node; event On = type == "on" && localhost; '
        'event Push = type == "push"; check On Push*; }'
    )
    log = [
        Event(node="a", type="on", clock={"a": 1}),
        Event(node="a", type="push", clock={"a": 2}),
        Event(node="b", type="deliver", clock={"a": 2, "b": 1}),
    ]
    (one,) = _page_data(ketal.view(log, program).html)["executions"]
    (violation,) = one["verdicts"]
    assert violation["text"] == "violation P (node=b): a@2 push: expected On"
    assert violation["events"] == [1, 2]
    assert one["marks"] == {"1": "violation"}


def test_a_violation_is_marked_as_one_whatever_other_verdicts_have_its_event() -> None:
    program = ketal.compile(
        'event A = type == "a"; event B = type == "b";'
        "pattern P { check A; on violation skip; } pattern Q { check A A B; }"
        "pattern R { find any A; }"
    )
    log = [Event(node="n", type="a", clock={"n": count}) for count in (1, 2)]
    view = ketal.view(log, program)
    (one,) = _page_data(view.html)["executions"]
    kinds = ["incomplete", "match", "match", "violation"]
    assert sorted(v["kind"] for v in one["verdicts"]) == kinds
    assert one["marks"] == {"0": "match", "1": "violation"}
    assert view.to_svg().count('class="violation"') == view.to_svg().count('class="match"') == 1


def test_moves_of_a_check_equal_its_transitions() -> None:
    moved = copies = 0

    @drawn(35, 2_000)
    def holds(rng: random.Random) -> None:
        nonlocal moved, copies
        file = pattern_file(rng, kind="check")
        events = execution(rng, events_min=1, events_max=8)
        try:
            program = ketal.compile(render(file))
        except PatternError:
            return
        data = _page_data(ketal.view(events, program).html)
        (one,) = data["executions"]
        (automaton,) = one["automata"]
        dots = [f"{one['nodes'][n]}@{c}" for n, c in zip(one["node"], one["counter"], strict=True)]
        assert sorted(automaton["order"]) == list(range(len(events)))
        traced = [v for v in ketal.run(program, events, trace=True) if v.kind == "transition"]
        named = data["checks"][automaton["name"]]["states"]
        moves = [
            (dots[e], ",".join(named[s] for s in before), ",".join(named[s] for s in after))
            for _, _, e, before, after in automaton["moves"]
        ]
        for verdict in traced:
            assert isinstance(verdict, ketal.Transition)
            transition = (str(verdict.event), verdict.source, verdict.target)
            # When `resume` restarts a run, the move is from the run's last state.
            assert transition in moves or program.compiled[0].pattern.violation_policy == "resume"
        positions = [move[0] for move in automaton["moves"]]
        assert positions == sorted(positions)
        for position, _, e, _, _ in automaton["moves"]:
            # A copy is offered an event when its node learns of the event.
            assert automaton["order"].index(e) <= position
        moved += len(moves)
        copies += program.compiled[0].pattern.deployment is not None

    assert moved > 100
    assert copies


ODD = "</script><script>alert(1)</script><!-- {{data}} \u2028 & \x00"


def test_bidirectional_control_characters_are_escaped() -> None:
    node = "a\u202eb\\u200f"
    tagged = "e\u2066\U000e0041\U0001f600"
    view = ketal.view([Event(node=node, type=tagged, clock={node: 1})], title="t\u202e")
    assert "\u202e" not in view.html + view.to_svg()
    assert "t\\u202e" in view.html
    (one,) = _page_data(view.html)["executions"]
    # The page escapes them where it shows them (`tests/pictures/test_page_reading.py`).
    assert (one["nodes"], one["types"]) == ([node], [tagged])
    assert "a\\u202eb\\u200f" in view.to_svg()


def test_text_of_a_log_is_never_markup() -> None:
    odd = {"<i>": ODD, "big": 2**60, "inner": [{"big": -(2**60)}, math.inf, True, 1.5, None]}
    event = Event(node="a<b>", type=ODD, clock={"a<b>": 1}, data=odd)
    html = ketal.view([event], title="<title>{{data}}").html
    assert html.count("</script>") == 2
    assert "alert(1)</script>" not in html
    (one,) = _page_data(html)["executions"]
    assert one["types"] == [ODD]
    inner = [{"big": str(-(2**60))}, "inf", True, 1.5, None]
    assert one["data"] == [{"<i>": ODD, "big": str(2**60), "inner": inner}]
    assert "&lt;title&gt;{{data}}" in html
    svg = ketal.view([event]).to_svg()
    assert "alert(1)</script>" not in svg


def test_page_needs_no_network() -> None:
    program = ketal.compile('pattern P { event A = type == "t"; check A A; }')
    html = ketal.view([Event(node="a", type="t", clock={"a": 1})], program).html
    html = html.replace("http://www.w3.org/2000/svg", "")  # the name of a language
    for word in ("http:", "https:", "//cdn", "src=", "@import", "url("):
        assert word not in html, word


def test_each_pattern_has_a_share_of_the_verdicts_that_are_shown() -> None:
    """Many violations of one pattern leave room for the matches of another."""
    program = ketal.compile("""
        event A = type == "t";
        pattern P { find any A; }
        pattern Q { A1 = A && n == 0; check A1*; on violation skip; }
    """)
    events = [Event("a", "t", {"a": n}, data={"n": n}) for n in range(1, 9)]
    shown = ketal.view(events, program, limits=Limits(viewed_verdicts_max=6))
    (one,) = _page_data(shown.html)["executions"]
    assert sorted(verdict["pattern"] for verdict in one["verdicts"]) == ["P"] * 3 + ["Q"] * 3


def test_log_beyond_the_limit_is_an_error_that_names_it() -> None:
    events = [Event(node="a", type="t", clock={"a": n}) for n in range(1, 12)]
    read = []

    def batches() -> Iterator[RecordBatch]:
        for number, event in enumerate(events):
            # A duplicate adds no event to show.
            read.append(number)
            yield RecordBatch("", [event, event], "", [1, 1])

    too_many = r"the log has more than 7 events \(limit viewed_events_max\)"
    with pytest.raises(ketal.SettingError, match=too_many):
        ketal.view(Log.of_batches(batches), limits=Limits(viewed_events_max=7))
    assert read == list(range(8))
    with pytest.raises(ketal.SettingError, match=r"more than 3 events \(limit events_max\)"):
        ketal.view(events, limits=Limits(events_max=3))
    program = ketal.compile('pattern P { event A = type == "t"; find any A; }')
    shown = ketal.view(events, program, limits=Limits(viewed_verdicts_max=4))
    (one,) = _page_data(shown.html)["executions"]
    assert (len(one["verdicts"]), one["more"]) == (4, 7)
    both = ketal.compile('event A = type == "t"; pattern P { find any A; } pattern Q { check A; } ')
    shown = ketal.view(events, both, limits=Limits(viewed_verdicts_max=4))
    (one,) = _page_data(shown.html)["executions"]
    assert [v["kind"] for v in one["verdicts"]].count("violation") == 1
    assert one["more"] == 8
    with pytest.raises(ketal.SettingError, match=r"counters above 2\^53 cannot be shown"):
        ketal.view([Event(node="a", type="t", clock={"a": 2**53 + 1})])
    check = ketal.compile('pattern P { event A = type == "t"; check A*; }')
    shown = ketal.view(events, check, limits=Limits(viewed_moves_max=3))
    (automaton,) = _page_data(shown.html)["executions"][0]["automata"]
    assert (len(automaton["moves"]), automaton["more"]) == (3, 8)


# --- other forms ----------------------------------------------------------------


def test_picture_has_every_event_and_message() -> None:
    events = [
        Event(node="a", type="send", clock={"a": 1}),
        Event(node="b", type="receive", clock={"a": 1, "b": 1}),
        Event(node="b", type="wrong", clock={"a": 1, "b": 2}),
    ]
    program = ketal.compile(
        'pattern P { event A = type == "send" || type == "wrong"; B = A; order CausalOrder; '
        'event R = type == "receive"; check B R; }'
    )
    svg = ketal.view(events, program).to_svg()
    assert (svg.count("<circle"), svg.count('class="violation"')) == (2, 1)
    assert svg.count('class="message"') == 1
    many = [Event(node="a", type="t", clock={"a": n}) for n in range(1, 1_002)]
    with pytest.raises(ketal.SettingError, match=r"a picture shows at most 1,000"):
        ketal.view(many).to_svg()


def test_node_names_fit_within_the_picture() -> None:
    nodes = [f"payments-service-of-the-shop-{number}" for number in range(3)]
    svg = ketal.view([Event(node=n, type="t" * 40, clock={n: 1}) for n in nodes]).to_svg()
    assert texts(svg, "name") == [f"payments-s…-the-shop-{number}" for number in range(3)]
    assert "text-anchor" not in svg
    check_layout(svg)


def test_perfetto_has_a_thread_for_each_node_and_a_flow_for_each_message() -> None:
    flows = 0

    @drawn(30, 1_000)
    def holds(rng: random.Random) -> None:
        nonlocal flows
        events = execution(rng, events_max=10)
        (one,) = space_times(ViewedLog(events, DEFAULT), None, DEFAULT)
        trace = json.loads(ketal.view(events).to_perfetto())["traceEvents"]
        slices = [x for x in trace if x["ph"] == "X"]
        assert sorted(x["args"]["event"] for x in slices) == sorted(str(e.dot) for e in events)
        names = {x["tid"]: x["args"]["name"] for x in trace if x["name"] == "thread_name"}
        at = {x["args"]["event"]: x for x in slices}
        for node in one.nodes:
            own = [x for x in slices if names[x["tid"]] == node]
            for before, after in itertools.pairwise(own):
                assert before["ts"] + before["dur"] <= after["ts"]
        starts = {x["id"]: x for x in trace if x["ph"] == "s"}
        ends = {x["id"]: x for x in trace if x["ph"] == "f"}
        assert len(starts) == len(ends) == len(one.messages)
        for number, (source, target) in enumerate(one.messages, 1):
            start, end = starts[f"1.{number}"], ends[f"1.{number}"]
            assert end["bp"] == "e"
            assert start["ts"] <= end["ts"]
            for flow, event in ((start, one.events[source]), (end, one.events[target])):
                of = at[str(event.dot)]
                assert (flow["ts"], flow["tid"]) == (of["ts"], of["tid"])
        flows += len(one.messages)

    assert flows > 20


def test_perfetto_uses_event_times_only_if_they_agree_with_the_clocks() -> None:
    events = [
        Event(node="a", type="send", clock={"a": 1}, time=100.0),
        Event(node="b", type="receive", clock={"a": 1, "b": 1}, time=100.5),
    ]
    for late, times in ((100.5, [0, 500_000]), (99.0, [0, 10])):
        events[1] = Event(node="b", type="receive", clock={"a": 1, "b": 1}, time=late)
        trace = json.loads(ketal.view(events).to_perfetto())["traceEvents"]
        assert [x["ts"] for x in trace if x["ph"] == "X"] == times


def test_shiviz_reads_back_as_the_same_log(tmp_path: Path) -> None:
    @drawn(20, 1_000)
    def holds(rng: random.Random) -> None:
        events = execution(rng, events_min=1, events_max=10)
        path = tmp_path / "run.log"
        path.write_text(ketal.view(events).to_shiviz())
        back = ketal.read_log(path, format="shiviz", regex=WRITTEN_REGEX, fields=WRITTEN_FIELDS)
        assert back.rejected == []
        assert {e.dot: e for e in back} == {e.dot: e for e in events}
        plain = ketal.read_log(path, format="shiviz")
        assert {e.dot: e.clock for e in plain} == {e.dot: e.clock for e in events}


@pytest.mark.parametrize(
    ("node", "type_"), [("two words", "t"), ("n", "two\nlines")], ids=["node", "type"]
)
def test_text_that_shiviz_cannot_represent_is_an_error(node: str, type_: str) -> None:
    shown = ketal.view([Event(node=node, type=type_, clock={node: 1})])
    with pytest.raises(ketal.SettingError):
        shown.to_shiviz()


def test_many_executions_take_linear_work() -> None:
    """The work is not executions times verdicts, or times runs."""
    program = ketal.compile(
        "pattern P { event E = true; find any E; } pattern C { event E = true; check E; }"
    )

    def work(count: int) -> int:
        event = Event("a", "x", {"a": 1})
        log = Log(lambda: iter([(f"e{n}", event, "", 0) for n in range(count)]))
        read = ViewedLog(log, DEFAULT)
        drawn, lines = counted_lines(lambda: space_times(read, program, DEFAULT))
        assert [len(one.verdicts) for one in drawn] == [1] * count
        return lines

    work(10)  # what is computed only once
    assert work(200) < 4.2 * work(50)


def test_page_has_the_picture_of_a_check_once() -> None:
    program = ketal.compile("pattern C { event E = true; check E; }")
    event = Event("a", "x", {"a": 1})
    html = ketal.view(Log(lambda: iter([(f"e{n}", event, "", 0) for n in range(3)])), program).html
    assert html.count(json.dumps("C: automaton")[1:-1]) == 2, "its label and its title"
    assert [one["automata"][0]["name"] for one in _page_data(html)["executions"]] == ["C"] * 3
