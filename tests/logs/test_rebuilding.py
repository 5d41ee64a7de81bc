"""Clocks rebuilt from messages and the order of each node's events."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.logs import read_log
from ketal.logs.traces.rebuilding import Rebuilding
from tests.sampling import drawn
from tests.work import counted_lines

KEYS = "id=msg,send=type:send,receive=type:recv"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(node: str, type: str, msg: int | None = None) -> dict[str, Any]:
    return {"node": node, "type": type} | ({} if msg is None else {"msg": msg})


def test_clocks_are_rebuilt_for_a_log_without_clocks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.jsonl",
        row("b", "recv", 1),
        row("a", "work"),
        row("a", "send", 1),
        row("b", "work"),
        row("a", "work"),
    )
    log = read_log(path, rebuild=KEYS)
    assert [event.clock for event in log] == [
        {"a": 2, "b": 1},
        {"a": 1},
        {"a": 2},
        {"a": 2, "b": 2},
        {"a": 3},
    ]
    assert ketal.audit(log).clean
    assert [record[3] for record in log.records()] == [1, 2, 3, 4, 5]


def test_files_of_nodes_form_one_execution(tmp_path: Path) -> None:
    first = write(tmp_path / "b.jsonl", row("b", "recv", 1), row("b", "send", 2))
    second = write(tmp_path / "a.jsonl", row("a", "send", 1), row("a", "recv", 2))
    events = list(read_log(first, second, rebuild=KEYS))
    assert events[-1].clock == {"a": 2, "b": 2}


def test_unknown_order_is_not_claimed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.jsonl",
        row("a", "send", 1), row("c", "send", 1), row("b", "recv", 1), row("b", "recv", 9),
    )  # fmt: skip
    assert [event.clock for event in read_log(path, rebuild=KEYS)][2:] == [{"b": 1}, {"b": 2}]


def test_unusable_causes_are_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.jsonl",
        row("a", "send", 1), row("c", "send", 1), row("b", "recv", 1), row("b", "recv", 9),
        row("b", "recv", 9), row("c", "send", 7), row("a", "send", 8), row("c", "recv", 8),
    )  # fmt: skip
    log = read_log(path, rebuild=KEYS)
    for _ in range(2):
        # Each reading resets the counts.
        list(log)
        assert log.rebuilding == Rebuilding(unsent=2, ambiguous=1)
    assert list(Rebuilding(unsent=2, ambiguous=1).sentences()) == [
        "2 receives whose send is not in the log",
        "1 receive of a message that several events send",
    ]
    assert read_log(path).rebuilding is None


@pytest.mark.parametrize(
    ("keys", "void", "unnamed", "unsent"),
    [
        ("id=msgid,send=type:send,receive=type:recv", ("id=msgid",), 2, 0),
        ("id=msg,send=type:sned,receive=type:recv", ("send=type:sned",), 1, 1),
        ("id=msg,send=type:send,receive=type:rcv", ("receive=type:rcv",), 0, 0),
    ],
)
def test_keys_without_matches_and_receives_without_an_id_are_reported(
    tmp_path: Path, keys: str, void: tuple[str, ...], unnamed: int, unsent: int
) -> None:
    path = write(
        tmp_path / "log.jsonl", row("a", "send", 1), row("b", "recv", 1), row("b", "recv", None)
    )
    log = read_log(path, rebuild=keys)
    for _ in range(2):
        list(log)
        assert log.rebuilding == Rebuilding(unsent=unsent, unnamed=unnamed, void=void)
    assert log.rebuilding is not None
    assert f"no event fits {void[0]}" in log.rebuilding.sentences()
    assert list(Rebuilding(unnamed=2).sentences()) == ["2 receives without a message id"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"type": "send", "msg": 1}, "the record has no node"),
        ({"node": "", "type": "send"}, "the record's node is empty"),
        ({"node": None, "type": "send"}, "the record has no node"),
        ({"node": ["a"], "type": "send"}, "node must be a string"),
        ({"node": "a"}, "the record has no type"),
    ],
)
def test_a_missing_field_is_reported_but_not_a_missing_clock(
    tmp_path: Path, record: dict[str, Any], reason: str
) -> None:
    """If clocks are rebuilt, a missing clock is not an error of a record."""
    log = read_log(write(tmp_path / "log.jsonl", record), rebuild=KEYS)
    assert [item.reason.startswith(reason) for item in log.rejected] == [True]


@pytest.mark.parametrize(
    ("rows", "rejected", "clocks"),
    [
        (
            [row("a", "recv", 2), row("a", "send", 1), row("b", "recv", 1), row("b", "send", 2)],
            "1",
            [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}],
        ),
        # `c` receives what `a` sends after its cycle, and is the first in the log.
        (
            [row("c", "recv", 2), row("a", "recv", 1), row("a", "send", 1), row("a", "send", 2)],
            "2",
            [{"a": 2, "c": 1}, {"a": 1}, {"a": 2}],
        ),
    ],
    ids=["in-the-cycle", "waits-for-it"],
)
def test_only_a_receive_before_its_own_send_is_rejected(
    tmp_path: Path, rows: list[dict[str, Any]], rejected: str, clocks: list[dict[str, int]]
) -> None:
    log = read_log(write(tmp_path / "log.jsonl", *rows), rebuild=KEYS)
    assert [item.place.rpartition(":")[2] for item in log.rejected] == [rejected]
    assert "sent after it" in log.rejected[0].reason
    assert [event.clock for event in log] == clocks


def _one_message(count: int) -> list[dict[str, Any]]:
    return [row(node, type, 1) for node, type in (("a", "send"), ("b", "recv"))] * count


def _waiting_pairs(count: int) -> list[dict[str, Any]]:
    """Each node of a pair begins with a receive that the other one sends after its own."""
    return [
        row(f"{node}{pair}", type, 2 * pair + (node == who))
        for pair in range(count)
        for node, other in (("a", "b"), ("b", "a"))
        for type, who in (("recv", "a"), ("send", "b"))
    ]


@pytest.mark.parametrize("rows", [_one_message, _waiting_pairs])
def test_rebuilding_takes_linear_work(
    tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]]
) -> None:
    """Also if all messages have the same id, or if nodes wait for each other."""

    def read(count: int) -> int:
        log = read_log(write(tmp_path / f"{count}.jsonl", *rows(count)), rebuild=KEYS)
        return len(list(log.records()))

    (few, once), (many, twice) = (counted_lines(partial(read, n)) for n in (400, 800))
    assert many == 2 * few
    assert twice < 2.5 * once


def test_existing_clocks_are_ignored(tmp_path: Path) -> None:
    rows = [row("a", "send", 1) | {"clock": {"z": 3}}, row("b", "recv", 1) | {"clock": 7}]
    events = list(read_log(write(tmp_path / "log.jsonl", *rows), rebuild=KEYS))
    assert [event.clock for event in events] == [{"a": 1}, {"a": 1, "b": 1}]
    assert events[0].data == {"msg": 1}


def test_text_log_needs_no_clock_group(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("a send 1\nb recv 1\n")
    log = read_log(path, regex=r"(?<host>\w) (?<event>\w+) (?<msg>\d+)", rebuild=KEYS)
    assert [event.clock for event in log] == [{"a": 1}, {"a": 1, "b": 1}]


def test_a_broadcast_and_a_forwarded_message(tmp_path: Path) -> None:
    """A send may have any number of receives; an event may receive one message and send another."""
    keys = "id=id+to,send=out:yes,receive=in:yes"
    rows: list[dict[str, Any]] = [
        {"node": "a", "type": "cast", "id": 1, "to": "all", "out": "yes"},
        {"node": "b", "type": "got", "id": 1, "to": "all", "in": "yes"},
        {"node": "c", "type": "got", "id": 1, "to": "all", "in": "yes"},
        {"node": "c", "type": "mine", "id": 2, "to": "c", "out": "yes"},
        {"node": "c", "type": "mine", "id": 2, "to": "c", "in": "yes"},
    ]
    path = write(tmp_path / "log.jsonl", *rows)
    assert [event.clock for event in read_log(path, rebuild=keys)] == [
        {"a": 1}, {"a": 1, "b": 1}, {"a": 1, "c": 1}, {"a": 1, "c": 2}, {"a": 1, "c": 3},
    ]  # fmt: skip
    forwards = write(
        tmp_path / "forwards.jsonl",
        {"node": "a", "type": "send", "msg": 1},
        # An event that both sends and receives a message is not its own cause.
        {"node": "b", "type": "send+recv", "msg": 1},
        {"node": "c", "type": "recv", "msg": 1},
    )
    keys = "id=msg,send=type:send*,receive=type:*recv"
    log = read_log(forwards, rebuild=keys)
    # Two events send it, so c may have received it from either.
    assert [event.clock for event in log] == [{"a": 1}, {"a": 1, "b": 1}, {"c": 1}]
    # Each of two such events receives the other's message: once one is rejected, the other has no
    # cause.
    both = [{"node": node, "type": "send+recv", "msg": 1} for node in "ab"]
    log = read_log(write(forwards, *both, {"node": "b", "type": "local"}), rebuild=keys)
    assert [event.clock for event in log] == [{"b": 1}, {"b": 2}]
    assert [item.place.rpartition(":")[2] for item in log.rejected] == ["1"]


def test_each_execution_is_rebuilt_separately(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("== one ==\na send 1\nb recv 1\n== two ==\nb recv 1\na send 2\n")
    log = read_log(
        path,
        regex=r"(?<host>\w) (?<event>\w+) (?<msg>\d+)",
        delimiter="^== (?<trace>.*) ==$",
        rebuild=KEYS,
    )
    clocks = {name: [e.clock for e in part] for name, part in log.executions.items()}
    assert clocks == {"one": [{"a": 1}, {"a": 1, "b": 1}], "two": [{"b": 1}, {"a": 1}]}


def test_rejected_records_are_passed_on(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", row("a", "send", 1), row("b", "recv", 1))
    path.write_text("{torn\n" + path.read_text() + '{"type": "ketal.leave", "node": "a"}\n')
    records = list(read_log(path, rebuild=KEYS).records())
    kinds = [type(item).__name__ for _, item, _, _ in records]
    assert kinds == ["Rejected", "Event", "Event", "Control"]
    assert [line for _, _, _, line in records] == [1, 2, 3, 4]


def test_clocks_of_random_runs_are_rebuilt_exactly(tmp_path: Path) -> None:
    @drawn(20, 500)
    def holds(rng: random.Random) -> None:
        clocks: dict[str, dict[str, int]] = {name: {} for name in "abcd"}
        sent: list[tuple[int, dict[str, int]]] = []
        rows: list[dict[str, Any]] = []
        truth = []
        for moment in range(60):
            node = rng.choice("abcd")
            clock = clocks[node]
            if sent and rng.random() < 0.5:
                number, past = rng.choice(sent)
                for name, value in past.items():
                    clock[name] = max(value, clock.get(name, 0))
                rows.append(row(node, "recv", number))
            else:
                rows.append(row(node, "send", moment))
            clock[node] = clock.get(node, 0) + 1
            truth.append(dict(clock))
            if rows[-1]["type"] == "send":
                sent.append((moment, dict(clock)))
        path = write(tmp_path / "log.jsonl", *rows)
        assert [event.clock for event in read_log(path, rebuild=KEYS)] == truth


def _past(at: int, causes: dict[int, set[int]]) -> set[int]:
    """Return the positions of the events before an event; with its own if it is in a cycle."""
    past: set[int] = set()
    pending = [at]
    while pending:
        new = causes[pending.pop()] - past
        past |= new
        pending.extend(new)
    return past


def test_of_messages_in_any_order_those_in_cycles_are_rejected(tmp_path: Path) -> None:
    """Without a cycle the clocks are the pasts; in a cycle only receives of it are rejected."""

    @drawn(50, 2_000)
    def holds(rng: random.Random) -> None:
        numbers = [*range(1, 6)]
        rows = [row(rng.choice("abc"), "send", number) for number in numbers]
        rows += [row(rng.choice("abc"), "recv", rng.choice(numbers)) for _ in range(6)]
        rng.shuffle(rows)
        sends = {one["msg"]: at for at, one in enumerate(rows) if one["type"] == "send"}
        causes: dict[int, set[int]] = {}
        last: dict[str, int] = {}
        for at, one in enumerate(rows):
            causes[at] = {last[one["node"]]} if one["node"] in last else set()
            causes[at] |= {sends[one["msg"]]} if one["type"] == "recv" else set()
            last[one["node"]] = at
        pasts = {at: _past(at, causes) for at in causes}
        log = read_log(write(tmp_path / "log.jsonl", *rows), rebuild=KEYS)
        rejected = {int(item.place.rpartition(":")[2]) - 1 for item in log.rejected}
        assert all(at in pasts[at] and rows[at]["type"] == "recv" for at in rejected)
        assert bool(rejected) == any(at in past for at, past in pasts.items())
        if not rejected:
            for (at, past), event in zip(pasts.items(), log, strict=True):
                nodes = Counter(rows[known]["node"] for known in past | {at})
                assert event.clock == nodes
        assert ketal.audit(log).clean


@pytest.mark.parametrize("options", [{"rebuild": "id=x"}, {"rebuild": KEYS, "nodes": ["a"]}])
def test_invalid_rebuild_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ketal.SettingError):
        read_log(write(tmp_path / "log.jsonl"), **options)


def test_rebuild_beyond_events_max_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", *[row("a", "x")] * 3)
    with pytest.raises(ketal.SettingError, match="events_max"):
        list(read_log(path, rebuild=KEYS, limits=ketal.Limits(events_max=2)))


def test_rebuilt_clocks_have_at_most_clock_entries_max_entries(tmp_path: Path) -> None:
    limits = ketal.Limits(clock_entries_max=1)
    reason = "the clock has 2 entries, more than 1 (limit clock_entries_max)"
    sent = write(tmp_path / "sent.jsonl", row("a", "send", 1), row("b", "recv", 1))
    lamport = [row("a", "x") | {"clock": 1}, row("b", "x") | {"clock": 2}]
    stamped = write(tmp_path / "stamped.jsonl", *lamport)
    for log in (
        read_log(sent, rebuild=KEYS, limits=limits),
        read_log(stamped, clock="lamport", limits=limits),
    ):
        assert [str(event) for event in log] == [f"a@1 {next(iter(log)).type}"]
        assert [one.reason for one in log.rejected] == [reason]


def test_large_integers_survive_rebuilding(tmp_path: Path) -> None:
    """An attribute of 4,300 digits is read from JSON, and kept when the clock is rebuilt."""
    path = write(
        tmp_path / "log.jsonl", row("a", "send", 1) | {"x": 10**4300 - 1}, row("b", "recv", 1)
    )
    assert [event.clock for event in read_log(path, rebuild=KEYS)] == [{"a": 1}, {"a": 1, "b": 1}]
