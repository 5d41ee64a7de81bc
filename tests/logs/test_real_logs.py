"""The real logs are read with the counts that their README states."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ketal.logs import read_log

PLAIN = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
AKKA = (
    r"\[\w+\] \[(?<date>([^ ]+ [^ ]+))\] [^ ]+ \[akka://Broadcast/user/(?<host>\w+)\] "
    r"(?<clock>.*\}) (?<event>.*)"
)
WEB = (
    r"(?<ip>(\d{1,3}\.){3}\d{1,3}) (?<date>(\d{1,2}/){2}\d{4} (\d{2}:){2}\d{2} (AM|PM)) "
    r"(?<action>(INFO|GET|POST)) (?<event>.*)\n(?<host>\w*) (?<clock>.*)"
)
VOLDEMORT = (
    r"\[(?<date>\d{4}-\d{2}-\d{2} (\d{2}:){2}\d{2},\d{3}) (?<path>\S*)\] "
    r"(?<priority>(INFO|WARN)) (?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
)
TRACE = r"^=== (?<trace>.*) ===$"

SHIVIZ = [
    # file, regex, events, nodes, rejected pieces of text
    ("simpledb", PLAIN, 509, 5, 0),
    ("voldemort-simple-threadnames", VOLDEMORT, 863, 19, 6),
    ("reliable-broadcast", AKKA, 116, 4, 1),
    ("simple-reliable-broadcast", AKKA, 39, 3, 0),
    ("facebook", WEB, 47, 4, 0),
    ("RpcClientServer", r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)", 10, 2, 0),
]
SEVERAL = [
    ("facebook-multiple", {"Execution #1": 47, "Execution #2": 41}),
    (
        "multiple-comparison",
        {
            "Base execution": 8,
            "Same as base": 8,
            "Different host from base": 8,
            "All events are different from base": 8,
            "Some events are different from base": 8,
        },
    ),
]


def test_times_of_a_real_shiviz_log_are_read_with_a_format(shared_data: Path) -> None:
    path, fields = shared_data / "shiviz" / "facebook.log", {"time": "date"}
    bare = read_log(path, regex=WEB, fields=fields)
    assert (len(list(bare)), len(bare.rejected)) == (0, 47)
    assert all("(pass --time-format FORMAT to set" in one.reason for one in bare.rejected)
    log = read_log(path, regex=WEB, fields=fields, time_format="%m/%d/%Y %I:%M:%S %p")
    assert (len(list(log)), len(log.rejected)) == (47, 0)
    days = {datetime.fromtimestamp(event.time or 0, UTC).date() for event in log}  # type: ignore[arg-type]
    assert days == {date(2013, 5, 27)}


@pytest.mark.parametrize(("name", "regex", "events", "nodes", "lost"), SHIVIZ)
def test_real_shiviz_logs_have_the_counts_of_their_readme(
    shared_data: Path, name: str, regex: str, events: int, nodes: int, lost: int
) -> None:
    log = read_log(shared_data / "shiviz" / f"{name}.log", regex=regex)
    read = list(log)
    assert (len(read), len({e.node for e in read}), len(log.rejected)) == (events, nodes, lost)
    # Every node counts 1..n without a hole, as the README states.
    for node in {e.node for e in read}:
        counters = sorted(e.counter for e in read if e.node == node)
        assert counters == list(range(1, len(counters) + 1))


@pytest.mark.parametrize(("name", "regex", "events", "nodes", "lost"), SHIVIZ)
def test_python_group_syntax_reads_the_same_events(
    shared_data: Path, name: str, regex: str, events: int, nodes: int, lost: int
) -> None:
    path = shared_data / "shiviz" / f"{name}.log"
    assert list(read_log(path, regex=regex.replace("(?<", "(?P<"))) == list(
        read_log(path, regex=regex)
    )


@pytest.mark.parametrize(("name", "pieces"), SEVERAL)
def test_several_executions_of_a_real_log_are_divided(
    shared_data: Path, name: str, pieces: dict[str, int]
) -> None:
    log = read_log(shared_data / "shiviz" / f"{name}.log", regex=WEB, delimiter=TRACE)
    assert {key: len(list(part)) for key, part in log.executions.items()} == pieces
    assert len(list(log)) == sum(pieces.values())
    assert not log.rejected


def test_expressions_in_the_file_itself_are_used(shared_data: Path) -> None:
    path = shared_data / "shiviz" / "RpcClientServer.log"
    log = read_log(path)
    assert [e.type for e in log][:2] == ["Initialization Complete", "Making RPC call"]
    assert list(log) == list(read_log(path, regex=SHIVIZ[-1][1]))


def test_other_regex_groups_are_data(shared_data: Path) -> None:
    first = next(iter(read_log(shared_data / "shiviz" / "facebook.log", regex=WEB)))
    assert first.data == {
        "ip": "24.22.130.14",
        "date": "5/27/2013 10:53:39 AM",
        "action": "GET",
    }
    assert first.time is None


def test_a_group_becomes_the_time_by_an_option(shared_data: Path) -> None:
    path = shared_data / "shiviz" / "voldemort-simple-threadnames.log"
    first = next(iter(read_log(path, regex=VOLDEMORT, fields={"time": "date"})))
    assert first.time == 1369438080.637
    assert set(first.data) == {"path", "priority"}


def test_tla_log_is_read_with_mapped_fields(shared_data: Path) -> None:
    log = read_log(
        shared_data / "tlaplus" / "VectorClocksTests.ndjson",
        fields={"type": "event", "clock": "pkt.vc", "data": "pkt"},
    )
    events = list(log)
    assert (len(events), {e.node for e in events}) == (2324, set("01234567"))
    assert not log.rejected
    assert events[0].data == {"snd": 4, "rcv": 2, "msg": {"type": "pl"}}
    assert events[1].data == {}
