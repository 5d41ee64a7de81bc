"""`at every node receiving`: a copy is offered the events whose messages its node received."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal import semantics
from ketal.errors import EventError, PatternError, SettingError
from ketal.logs.source import Source
from ketal.model.limits import Limits
from tests.cases import facts

STACK = """
pattern Stack {{
    order {order};
    at every node {seen};
    event On = type == "on" && localhost;
    event Push = type == "push";
    event Off = type == "off" && localhost;
    check (On Push* Off)*;
}}
"""


class Execution:
    """Builds the events of an execution; `at` adds an event that receives others, by their dots."""

    def __init__(self) -> None:
        self.events: list[ketal.Event] = []
        self.clocks: dict[str, dict[str, int]] = {}

    def at(self, node: str, type: str, *receives: str) -> str:
        clock = self.clocks.setdefault(node, {})
        for dot in receives:
            sent = next(e for e in self.events if str(e.dot) == dot)
            for name, counter in sent.clock.items():
                clock[name] = max(clock.get(name, 0), counter)
        clock[node] = clock.get(node, 0) + 1
        event = ketal.Event(node=node, type=type, clock=clock, receives=receives)
        self.events.append(event)
        return str(event.dot)


def late_join() -> Execution:
    """A node joins, receives the state from a second node, and is on from then on."""
    run = Execution()
    run.at("a", "on")
    run.at("b", "on")
    run.at("b", "apply", run.at("a", "push"))
    run.at("c", "joined", run.at("b", "state"))
    run.at("c", "on")
    run.at("c", "apply", run.at("a", "push"))
    return run


def come_back() -> Execution:
    """A node is off during a push, receives a later message of the pusher, and is on again."""
    run = Execution()
    run.at("a", "on")
    run.at("b", "on")
    run.at("b", "off")
    run.at("a", "push")
    run.at("b", "chatted", run.at("a", "chat"))
    run.at("b", "on")
    return run


def second_hand() -> Execution:
    """A node that is off learns of a push from a message of a third node."""
    run = Execution()
    run.at("a", "on")
    run.at("c", "on")
    run.at("c", "apply", run.at("a", "push"))
    run.at("b", "chatted", run.at("c", "chat"))
    run.at("b", "on")
    return run


def violations(run: Execution, seen: str, order: str = "CausalOrder") -> list[str]:
    program = ketal.compile(STACK.format(order=order, seen=seen))
    return [f"{v.scope['node']}: {v.event}" for v in ketal.run(program, run.events).violations]


@pytest.mark.parametrize("make", [late_join, come_back, second_hand])
def test_correct_runs_of_the_paper_have_no_violation(make: Any) -> None:
    run = make()
    assert violations(run, "receiving") == []
    assert violations(run, "") != []  # without `receiving`, events known through a third node count


def test_push_delivered_before_the_on_is_the_violation_of_figure_1() -> None:
    run = come_back()
    run.at("c", "apply", "a@2")
    assert violations(run, "receiving") == ["c: a@2"]


@pytest.mark.parametrize("order", ["arrival", "CausalOrder"])
def test_event_received_twice_is_offered_once(order: str) -> None:
    run = Execution()
    push = run.at("a", "push")
    run.at("b", "apply", push)
    run.at("b", "apply", push)
    program = ketal.compile(
        f'pattern P {{ order {order}; at every node receiving; event E = type == "push"; '
        "find any E; }"
    )
    assert [m.scope["node"] for m in ketal.run(program, run.events).matches] == ["a", "b"]


def test_event_is_offered_at_the_later_of_receipt_and_arrival() -> None:
    run = second_hand()
    run.at("b", "off")
    run.at("b", "apply", "a@2")
    early = [*run.events[:2], *run.events[3:], run.events[2]]
    for events in (run.events, early):
        program = ketal.compile(STACK.format(order="arrival", seen="receiving"))
        verdicts = ketal.run(program, events)
        assert [str(v.event) for v in verdicts.violations] == ["a@2"]
        monitor = ketal.Monitor(program)
        live: list[Any] = [v for event in events for v in monitor.feed(event)]
        assert [v.id for v in live if v.kind == "violation"] == [v.id for v in verdicts.violations]


def test_verdicts_do_not_depend_on_arrival_order_or_restores() -> None:
    run = late_join()
    run.at("d", "apply", "a@2", "a@3")
    run.at("d", "on")
    program = ketal.compile(STACK.format(order="CausalOrder", seen="receiving"))
    file = program.file
    expected = facts(semantics.judge(file, "Stack", run.events))
    rng = random.Random(5)
    for _ in range(30):
        events = rng.sample(run.events, len(run.events))
        monitor = ketal.Monitor(program)
        verdicts: list[Any] = []
        for event in events:
            verdicts += monitor.feed(event)
            monitor = ketal.Monitor.restore(program, monitor.snapshot())
        verdicts += monitor.close()
        found = {(v.scope["node"], str(v.event)) for v in verdicts if v.kind == "violation"}
        assert found == {("d", "a@2")}
    assert len(expected["violations"]) == 1


def test_check_without_received_messages_is_not_shown_to_hold() -> None:
    program = ketal.compile(STACK.format(order="CausalOrder", seen="receiving"))
    run = late_join()
    assert ketal.run(program, run.events).raise_on_violation()
    silent = [ketal.Event(node=e.node, type=e.type, clock=e.clock) for e in run.events]
    with pytest.raises(ketal.ViolationError, match="names a received message") as raised:
        ketal.run(program, silent).raise_on_violation(allow_vacuous=True)
    assert len(raised.value.reasons) == 1


def test_unlearned_max_bounds_the_events_kept_for_receipt() -> None:
    text = 'pattern P { at every node receiving; event E = type == "e"; find any E; }'
    monitor = ketal.Monitor(ketal.compile(text), limits=Limits(unlearned_max=3))
    events = [ketal.Event(node="a", type="e", clock={"a": n}) for n in range(1, 7)]
    received = ketal.Event(
        node="b", type="r", clock={"a": 6, "b": 1}, receives=[f"a@{n}" for n in range(1, 7)]
    )
    verdicts: list[Any] = monitor.feed_many([*events, received])
    matches = [v for v in verdicts if v.kind == "match" and v.scope["node"] == "b"]
    assert [str(dot) for match in matches for dot in match.events] == ["a@4", "a@5", "a@6"]
    assert [v.given_up for v in verdicts if v.kind == "overflow"] == [
        "evicted events, up to a@1, a@2, a@3, of which b has learned"
    ]


def test_event_whose_message_is_received_before_and_after_it_is_offered_once() -> None:
    text = 'pattern P { at every node receiving; event E = type == "e"; find any E; }'
    sent = ketal.Event(node="a", type="e", clock={"a": 1})
    received = [
        ketal.Event(node="b", type="r", clock={"a": 1, "b": n}, receives=["a@1"]) for n in (1, 2)
    ]
    verdicts: list[Any] = ketal.Monitor(ketal.compile(text)).feed_many(
        [received[0], sent, received[1]]
    )
    assert sorted(verdict.scope["node"] for verdict in verdicts) == ["a", "b"]


def test_unlearned_max_bounds_the_received_messages_whose_events_are_awaited() -> None:
    text = 'pattern P { at every node receiving; event E = type == "e"; check (E E)*; }'
    limits = Limits(unlearned_max=1)
    monitor = ketal.Monitor(ketal.compile(text), limits=limits)
    received = ketal.Event(node="b", type="r", clock={"a": 2, "b": 1}, receives=["a@1", "a@2"])
    verdicts: list[Any] = monitor.feed(received)
    assert [v.given_up for v in verdicts] == ["evicted events, up to a@1, of which b has learned"]
    for n in (1, 2):
        assert monitor.feed(ketal.Event(node="a", type="e", clock={"a": n})) == []
    ends: list[Any] = monitor.close()
    assert [(v.scope["node"], v.certain) for v in ends] == [("b", False)]


def test_not_under_causal_order_is_refused_with_receiving() -> None:
    text = (
        'pattern P { order CausalOrder; at every node receiving; event E = type == "e"; '
        'event F = type == "f"; event G = type == "g"; find any E not F G; }'
    )
    with pytest.raises(PatternError) as error:
        ketal.compile(text)
    assert [d.code for d in error.value.diagnostics] == ["K135"]
    ketal.compile(text.replace("order CausalOrder; ", ""))
    ketal.compile(text.replace(" receiving", ""))


def test_a_log_without_messages_is_vacuous() -> None:
    run = Execution()
    run.at("a", "on")
    run.at("b", "on")
    program = ketal.compile(STACK.format(order="CausalOrder", seen="receiving"))
    entry = ketal.run(program, run.events).summary["patterns"]["Stack"]["vacuous"][0]
    assert entry["what"] == "message"
    assert entry["place"] == "line 4"


# --- what events say, and what logs say of them ---


def test_receives_is_read_and_written(tmp_path: Path) -> None:
    event = ketal.Event(
        node="b", type="r", clock={"a": 3, "b": 1}, receives=["a@3", ketal.Dot("a", 1), "a@3"]
    )
    assert event.receives == (ketal.Dot("a", 1), ketal.Dot("a", 3))
    path = tmp_path / "log.jsonl"
    ketal.write_jsonl([event], path)
    assert json.loads(path.read_text())["receives"] == ["a@1", "a@3"]
    assert list(ketal.read_log(path)) == [event]
    with_field = tmp_path / "field.jsonl"
    with_field.write_text(path.read_text().replace("receives", "from"))
    assert list(ketal.read_log(with_field, fields={"receives": "from"})) == [event]


@pytest.mark.parametrize(
    ("receives", "message"),
    [
        (3, "must be a list of dots such as n3@7, not 3"),
        ([3], "3 is not a dot; write node@counter"),
        (["a"], "'a' is not a dot"),
        (["a@" + "1" * 5_000], "is not a dot; write node@counter"),
        (["a@4"], "a@4 is not in the past of the event's clock"),
        (["c@1"], "c@1 is not in the past of the event's clock"),
        (["b@1"], "b@1 is not in the past of the event's clock"),
    ],
)
def test_an_event_that_cannot_be_received_is_an_error(
    receives: Any, message: str, tmp_path: Path
) -> None:
    fields = {"node": "b", "type": "r", "clock": {"a": 3, "b": 1}, "receives": receives}
    with pytest.raises(EventError, match=message):
        ketal.Event(**fields)
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(fields) + "\n")
    log = ketal.read_log(path)
    assert list(log) == []
    (rejected,) = log.rejected
    assert message.split("@")[0] in rejected.reason


def test_receives_is_text_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    clock = '"{""a"": 2, ""b"": 1}"'
    rows = (f"b,r,{clock},a@2", f"b,r,{clock.replace('1', '2')},a@1 a@2")
    json_row = f'b,r,{clock.replace("1", "3")},"[""a@1""]"'
    path.write_text("node,type,clock,receives\n" + "\n".join((*rows, json_row)) + "\n")
    received = [[*map(str, event.receives)] for event in ketal.read_log(path)]
    assert received == [["a@2"], ["a@1", "a@2"], ["a@1"]]


def test_event_with_different_receives_is_a_contradiction(tmp_path: Path) -> None:
    clock = {"a": 2, "b": 2}
    one = ketal.Event(node="b", type="r", clock=clock, receives=["a@1"])
    other = ketal.Event(node="b", type="r", clock=clock, receives=["a@2"])
    program = ketal.compile('pattern P { event E = type == "r"; find any E; }')
    assert ketal.run(program, [one, other]).summary["events"]["rejected"] == 1
    assert ketal.run(program, [one, one]).summary["events"]["duplicates"] == 1


def test_messages_are_paired_by_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines: list[dict[str, Any]] = [
        {"node": "b", "type": "r", "clock": {"a": 1, "b": 1}, "msg": {"id": 7}},
        {"node": "a", "type": "s", "clock": {"a": 1}, "msg": {"id": 7}},
        {"node": "c", "type": "r", "clock": {"c": 1}, "msg": {"id": 7}},
        {"node": "c", "type": "r", "clock": {"a": 1, "c": 2}, "msg": {"id": 7}},
        {"node": "c", "type": "r", "clock": {"a": 1, "c": 3}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = ketal.read_log(path, fields={"message": "msg.id"})
    events = list(log)
    assert [[*map(str, e.receives)] for e in events] == [["a@1"], [], [], ["a@1"], []]
    assert list(log.mapped.sentences()) == [
        "message=msg.id: 1 event with the id of a message whose send did not happen before it, so "
        "that it is not a receive"
    ]
    assert len(list(log)) == 5
    assert log.mapped.unpaired == 1
    assert events[0].data == {"msg": {"id": 7}}
    with pytest.raises(SettingError, match="the field message and rebuild cannot be combined"):
        Source(fields={"message": "msg.id"}, rebuild="id=msg.id,send=type:s,receive=type:r")


def test_rebuilt_clocks_set_the_receives_field(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines: list[dict[str, Any]] = [
        {"node": "b", "type": "r", "msg": 7, "receives": ["z@1"]},
        {"node": "a", "type": "s", "msg": 7},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    events = list(ketal.read_log(path, rebuild="id=msg,send=type:s,receive=type:r"))
    assert [[*map(str, e.receives)] for e in events] == [["a@1"], []]


def test_receives_field_names_the_incarnation() -> None:
    """b receives a message from the second incarnation of a."""
    events = [
        ketal.Event(node="a", type="on", clock={"a": 1}),
        ketal.Event(node="a", type="on", clock={"a": 1}, data={"again": True}),
        ketal.Event(node="a", type="push", clock={"a": 2}),
        ketal.Event(node="b", type="apply", clock={"a": 2, "b": 1}, receives=["a@2"]),
    ]
    program = ketal.compile(STACK.format(order="CausalOrder", seen="receiving"))
    violations = ketal.run(program, events).violations
    assert [(v.scope["node"], str(v.event)) for v in violations] == [("b", "a#2@2")]


@pytest.mark.parametrize("mode", ["", "mode possibly;", "mode definitely;"])
@pytest.mark.parametrize(("receives", "expected"), [(["a@1"], ["type"]), ([], ["message", "type"])])
def test_only_a_log_without_received_messages_is_reported_to_have_none(
    mode: str, receives: list[str], expected: list[str]
) -> None:
    program = ketal.compile(
        f"pattern P {{ order CausalOrder; {mode} at every node receiving; "
        'event E = type == "e"; event F = type == "f"; find any E F; }'
    )
    log = [
        ketal.Event(node="a", type="e", clock={"a": 1}),
        ketal.Event(node="b", type="e", clock={"a": 1, "b": 1}, receives=receives),
    ]
    vacuous = ketal.run(program, log).summary["patterns"]["P"]["vacuous"]
    assert [entry["what"] for entry in vacuous] == expected
