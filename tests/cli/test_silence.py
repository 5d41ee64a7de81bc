"""Mistakes that could pass silently: the output of ketal for each, and the exit code.

The table of `docs/silence.md` has the expected output.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import Ketal, Write

PAGE = Path(__file__).resolve().parents[2] / "docs" / "silence.md"
ROWS = {
    wrong: (re.findall(r'"([^"]+)"', messages), int(code))
    for wrong, messages, code in re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| (\d) \|$", PAGE.read_text(encoding="utf-8"), re.M
    )
}
"""Situation → (texts that standard error must have, exit code)."""

SESSION = """\
event Login = call(* Server.login(..)) && code == 200;
event Read = call(* Server.read(..));
event Logout = call(* Server.logout(..));

pattern Session {
    partition by user;
    check (Login Read* Logout)*;
}
"""
"""A protocol that `RUN` violates: bob reads before he logs in."""

SLOW = """\
pattern Slow {
    event Request = type == "request";
    event Reply = type == "reply";
    Asked = Request;
    Answered = Reply && number == Asked.number;
    find any Asked Answered;
    within 5 s;
}
"""

COUNT = """\
pattern P {
    event A = code == 200;
    find A+;
    return n = A.count;
}
"""


def line(node: str, counter: int, type: str, **data: object) -> str:
    """Return an event as a JSON line; without `clock` its clock has the own entry only."""
    own = {key: data.pop(key) for key in list(data) if key in ("clock", "time")}
    event = {
        "node": node,
        "type": type,
        "clock": {node: counter},
        **own,
        "data": data,
    }
    return json.dumps(event) + "\n"


TOLD = """\
pattern Told {
    order CausalOrder;
    event Write = type == "write";
    First = Write;
    Told = Causal(Write) && node != First.node;
    find any First Told;
}
"""
APART = "".join(line(node, counter, "write") for counter in range(1, 31) for node in "ab")
"""Two nodes whose clocks have no entry of the other."""

RUN = "".join(
    [
        line("s1", 1, "Server.login", user="eve", code=200, time=1),
        line("s1", 2, "Server.read", user="eve", code=200, time=2),
        line("s2", 1, "Server.read", user="bob", code=200, time=3),
        line("s2", 2, "Server.logout", user="bob", code=200, time=4),
        line("s1", 3, "Server.logout", user="eve", code=200, time=5),
    ]
)
ASKED = line("a", 1, "request", number=7, time=1) + line("a", 2, "reply", number=7, time=2)
TEXT_NUMBER = ASKED.replace('"number": 7', '"number": "7"', 1)
WAITING = line("s1", 1, "Server.read", user="eve", clock={"s1": 1, "s2": 4}) + line(
    "s3", 1, "Server.read", user="eve", clock={"s1": 1, "s2": 4, "s3": 1}
)
SHIVIZ = 's1 {"s1": 1}\nServer.login user=eve\n'
SHIVIZ_REGEX = r"(?<host>\S+) (?<clock>{.*})\n(?<event>.*)"
CSV = 'host,kind,vc\ns1,Server.login,"{""s1"": 1}"\n'
RUN_IT = ("run", "p.ketal", "run.jsonl")


@dataclass(frozen=True)
class Case:
    """A mistake of a user.

    Attributes
    ----------
    wrong : str
        The mistake, as named by the page.
    pattern, log : str or bytes
        The files `p.ketal` and `run.jsonl`.
    words : tuple of str
        The arguments of `ketal`.
    files : dict of str to (str or bytes)
        Further files.
    """

    wrong: str
    pattern: str = SESSION
    log: str | bytes = RUN
    words: tuple[str, ...] = RUN_IT
    files: dict[str, str | bytes] = field(default_factory=dict)


def changed(text: str, old: str, new: str) -> str:
    """Return a text with a mistake, replacing a part of it."""
    assert old in text
    return text.replace(old, new)


def check(guard: str, statement: str = "") -> str:
    """Return a check that every event `E` is a `Good` one."""
    event = 'event E = type == "Server.read";'
    return (
        f"{event}\npattern P {{\n    {statement}\n    Good = E && {guard};\n    check Good*;\n}}\n"
    )


def find(guard: str) -> str:
    """Return a find of the events that a guard accepts."""
    return f"pattern P {{\n    event E = {guard};\n    find E;\n}}\n"


CASES = [
    # Names that no event has.
    Case("a typo in one type", changed(SESSION, "Server.login", "Sever.login")),
    Case("a typo in every type", changed(SESSION, "Server.", "Srever.")),
    Case("`server.read`, where the log has `Server.read`",
         changed(check("true"), "Server.read", "server.read")),
    Case("a typo in a type of a `find` that must match",
         changed(SLOW, '"request"', '"requst"'), ASKED, (*RUN_IT, "--fail-on", "vacuous")),
    Case("a typo in an attribute of a check", check("cod == 200")),
    Case("a typo in an attribute of a `find`", find("cod == 200")),
    Case("an attribute without the object that it is in", find("code == 200"),
         line("a", 1, "reply", reply={"code": 200}) + line("a", 2, "reply", reply={"code": 500})),
    Case("a typo in the key of `partition by`", changed(SESSION, "by user", "by usr")),
    Case("`host` of a node that the log does not have",
         changed(check("true"), '"Server.read"', '"Server.read" && host("s9")')),
    Case("copies on nodes that the log does not have",
         changed(SESSION, "partition by user;", 'at host("srv-*") all;')),
    Case("a glob of a type with a part too many",
         "event E = call(* Server.*.*(..));\npattern P {\n    check E*;\n}\n"),
    # Values that never compare.
    Case("a number compared with a text", find('code == "200"')),
    Case("a number compared with a text, in a check", check('code == "200"')),
    Case("an attribute that is a number here and a text there", SLOW, TEXT_NUMBER),
    Case("a key of `partition by` that is a number here and a text there",
         changed(SLOW, "within", "partition by number;\n    within"), TEXT_NUMBER),
    Case("a regular expression that finds nothing", check("user matches /^Bob$/")),
    Case("a step that no event can be", changed(SLOW, "= Request;", "= Request && number > 9;"),
         ASKED),
    # Words that look like values.
    Case("`code == null`", find("code == null")),
    Case("`code == None`", find("code == None")),
    Case("`code != nil`", find("code != nil")),
    Case("`ok == True`", find("ok == True")),
    Case("`type == login`", find("type == login")),
    Case("`node == s1`", find("node == s1")),
    Case("`event.code`", find("event.code == 200")),
    Case("`self.code`", find("self.code == 200")),
    Case('`clock[…]`', find('clock["s1"] > 1')),
    Case("`clock < clock`", find("clock < clock")),
    Case("`return n = A.count`", COUNT),
    # Time.
    Case("a window in milliseconds, where seconds were meant",
         changed(SLOW, "5 s", "5 ms"), ASKED, (*RUN_IT, "--fail-on", "timed_out")),
    Case("times in nanoseconds, read as seconds",
         SLOW, line("a", 1, "request", number=7, time=1_700_000_000_000_000_000)),
    Case("no event has a time, for `within`", SLOW, changed(ASKED, '"time"', '"at"')),
    Case("times that are written in another way",
         SLOW, changed(ASKED, '"time": ', '"time": "5/27/2013 10:53:39 AM", "at": ')),
    Case("a wrong `--time-format`",
         SLOW, changed(ASKED, '"time": ', '"time": "5/27/2013 10:53:39 AM", "at": '),
         (*RUN_IT, "--time-format", "%d/%m/%Y %H:%M:%S")),
    # Reading.
    Case("a wrong `--field`", words=(*RUN_IT, "--field", "type=evnt")),
    Case("a wrong `--field` of a message", words=(*RUN_IT, "--field", "message=msg.idd")),
    Case("a wrong `--regex`", log=SHIVIZ, words=(
        *RUN_IT, "--format", "shiviz", "--regex", SHIVIZ_REGEX.replace("S", "d"))),
    Case("a wrong `--delimiter`", log=SHIVIZ, words=(
        *RUN_IT, "--regex", SHIVIZ_REGEX, "--delimiter", "^=== (?<trace>.*) ===$")),
    Case("columns of other names", words=("run", "p.ketal", "run.csv"), files={"run.csv": CSV}),
    Case("a log without clocks", log=changed(RUN, '"clock"', '"vc"')),
    Case("a pattern that needs clocks, over such a log", check("true", "order CausalOrder;"),
         words=(*RUN_IT, "--clock", "none")),
    Case("an empty log", log=""),
    Case("a log of which every record is rejected", log=changed(RUN, '"clock"', '"vc"')),
    Case("a log that stops in the middle of a line", check("true"), RUN[:-40]),
    Case("a compressed log that is cut off", check("true"), words=("run", "p.ketal", "r.jsonl.gz"),
         files={"r.jsonl.gz": gzip.compress(RUN.encode(), mtime=0)[:-20]}),
    Case("the clocks of two runs in one log", check("true"), words=(*RUN_IT, "other.jsonl"),
         files={"other.jsonl": changed(RUN, "Server.", "Store.")}),
    Case("the clocks of two runs in one log, on which the run is to fail", check("true"),
         words=(*RUN_IT, "other.jsonl", "--fail-on", "restart"),
         files={"other.jsonl": changed(RUN, "Server.", "Store.")}),
    Case("clocks that contradict each other", check("true", "order CausalOrder;"),
         line("a", 1, "Server.read", clock={"a": 1, "b": 1})
         + line("b", 1, "Server.read", clock={"a": 1, "b": 1})),
    Case("clocks that know of their own node only", TOLD, APART),
    Case("clocks that know of their own node only, on which the run is to fail", TOLD, APART,
         (*RUN_IT, "--fail-on", "vacuous")),
    Case("`at every node receiving`, where no event says what it received",
         check("true", "at every node receiving;")),
    Case("some events lack the key of `partition by`, on which the run is to fail",
         log=changed(RUN, '"user": "eve", ', ""), words=(*RUN_IT, "--fail-on", "unscoped")),
    Case("an order that cannot be met, as an event is missing",
         check("true", "order CausalOrder;"), WAITING, (*RUN_IT, "--live")),
    Case("a counter that is missing, on which the run is to fail", check("true"),
         line("s1", 1, "Server.read") + line("s1", 3, "Server.read"),
         (*RUN_IT, "--fail-on", "hole")),
    # Limits.
    Case("more partitions than the limit", words=(*RUN_IT, "--limit", "scopes_max=1")),
    Case("more held-back events than the limit", check("true", "order CausalOrder;"), WAITING,
         (*RUN_IT, "--live", "--limit", "held_back_max=1")),
    Case("a log of more events than the limit",
         changed(SESSION, "partition", "order CausalOrder;\n    partition"),
         words=(*RUN_IT, "--limit", "events_max=2")),
    # Options.
    Case("a pattern that the file does not have", words=(*RUN_IT, "--pattern", "Sesion")),
    Case("a parameter that the file does not have", words=(*RUN_IT, "--set", "w=5s")),
    Case("pattern and log swapped", words=("run", "run.jsonl", "p.ketal")),
    Case("a kind that `--fail-on` does not know", words=(*RUN_IT, "--fail-on", "overflows")),
]  # fmt: skip


def test_page_has_a_row_for_each_case() -> None:
    assert [case.wrong for case in CASES] == list(ROWS)
    assert len(ROWS) >= 30


@pytest.mark.parametrize("case", CASES, ids=[case.wrong for case in CASES])
def test_no_mistake_passes_silently(ketal: Ketal, write: Write, case: Case) -> None:
    for name, text in {"p.ketal": case.pattern, "run.jsonl": case.log, **case.files}.items():
        write(name, text)
    expected, code = ROWS[case.wrong]
    ended = ketal(*case.words)
    text = ended.out + ended.err
    assert expected
    missing = [message for message in expected if message not in text]
    assert (missing, ended.code) == ([], code), text


@pytest.mark.parametrize(
    ("statements", "lacks"),
    [
        ("partition by node; find next A A; within 5 s;", "a time, for `within`"),
        ("partition by nix; find next A A; within 5 s;",
         "the key of `partition by` and a time, for `within`"),
        ("partition by nix; find next A A;", "the key of `partition by`"),
        ("partition by node; mode possibly; find next A A; within 5 s;", "a time, for `within`"),
        ("partition by nix; mode possibly; check A;", "the key of `partition by`"),
        ("at every node; partition by nix; mode possibly; check A;", "the key of `partition by`"),
    ],
)  # fmt: skip
def test_reason_why_no_event_is_judged_is_named(
    ketal: Ketal, write: Write, statements: str, lacks: str
) -> None:
    pattern = f'pattern P {{ event A = type == "a"; {statements} }}'
    path = write("p.ketal", pattern)
    log = write("run.jsonl", line("n", 1, "a") + line("n", 2, "a"))
    got = ketal("run", "--output", "json", path, log)
    (summary,) = (json.loads(text)["summary"] for text in got.out.splitlines())
    (alphabet, *_) = summary["patterns"]["P"]["vacuous"]
    assert alphabet["message"] == f"0 of 2 events in the alphabet have {lacks}"
    assert got.code == ("check" in statements)


def test_events_unknown_to_nodes_with_a_copy_are_reported(ketal: Ketal, write: Write) -> None:
    pattern = 'pattern P { order CausalOrder; event A = type == "a"; at host("x"); check A*; }'
    log = write("run.jsonl", line("x", 1, "z") + line("y", 1, "a") + line("y", 2, "a"))
    assert (
        "0 of 2 events in the alphabet are known to a node with a copy of the pattern\n"
        in ketal("run", write("p.ketal", pattern), log).out
    )


def test_mode_that_judged_some_events_is_not_vacuous(ketal: Ketal, write: Write) -> None:
    path = write(
        "p.ketal", 'pattern P { event A = type == "a"; partition by k; mode possibly; check A; }'
    )
    log = write("run.jsonl", line("n", 1, "a") + line("n", 2, "a", k=1))
    got = ketal("run", "--output", "json", path, log)
    assert "vacuous" not in json.loads(got.out.splitlines()[-1])["summary"]["patterns"]["P"]
    assert got.code == 0


@pytest.mark.parametrize("mode", ["", "mode possibly;", "mode definitely;"])
def test_events_without_key_and_events_without_time_are_both_reported(
    ketal: Ketal, write: Write, mode: str
) -> None:
    pattern = f"""pattern P {{
        order CausalOrder; event A = type == "a"; partition by k; {mode} find any A; within 5 s;
    }}"""
    log = write("run.jsonl", line("n", 1, "a", k=1) + line("n", 2, "a", time=1))
    got = ketal("run", "--output", "json", write("p.ketal", pattern), log)
    (alphabet, *_) = json.loads(got.out.splitlines()[-1])["summary"]["patterns"]["P"]["vacuous"]
    lacks = "the key of `partition by` and a time, for `within`"
    assert alphabet["message"] == f"0 of 2 events in the alphabet have {lacks}"


@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        ("x == y", "no event has the attribute `y`, which the step `A` requires"),
        ("x in [1, y]", "0 of 1 event satisfies `A`"),  # true of x = 1 without y
    ],
)
def test_only_a_name_that_a_step_requires_is_the_reason(
    ketal: Ketal, write: Write, guard: str, reason: str
) -> None:
    path = write("p.ketal", f'pattern P {{ event E = type == "e"; A = E && {guard}; find A; }}')
    got = ketal("run", path, write("run.jsonl", line("n", 1, "e", x=2)))
    assert f"P: no match: {reason}" in got.lines


def test_a_name_in_a_guard_and_in_partition_by_is_reported_once(ketal: Ketal, write: Write) -> None:
    path = write("p.ketal", "pattern P { partition by code; event E = code == 200; find E; }")
    log = write("run.jsonl", line("n", 1, "e", reply={"code": 200}))
    vacuous = [line for line in ketal("run", path, log).lines if "vacuous" in line]
    assert vacuous == [
        "P: vacuous: 0 of 1 event is in the alphabet; "
        "p.ketal:1: no event has the attribute `code`, which is similar to `reply.code` (1 event)"
    ]


def test_a_name_that_was_looked_for_in_a_sample_is_missing_from_the_sampled_events(
    ketal: Ketal, write: Write
) -> None:
    path = write("p.ketal", 'pattern P { event B = type == "b"; check B; }')
    log = write("run.jsonl", "".join(line("n", number, "a") for number in range(1, 5_001)))
    vacuous = [line for line in ketal("run", path, log).lines if "vacuous" in line]
    assert vacuous == [
        "P: vacuous: 0 of 5,000 events are in the alphabet; p.ketal:1: none of 4,096 sampled "
        "events has the type `b`; most frequent: `a` (4,096 events)"
    ]


def test_an_attribute_with_the_name_of_a_field_is_told_from_the_field(
    ketal: Ketal, write: Write
) -> None:
    path = write("p.ketal", 'pattern P { partition by data.id; event E = type == "e"; check E; }')
    log = write("run.jsonl", '{"node": "n", "type": "e", "clock": {"n": 1}, "id": 7}\n')
    (vacuous,) = [line for line in ketal("run", path, log).lines if "vacuous" in line]
    own = "no event has the attribute `id` (`data.id` is an attribute, `id` the event's own field)"
    assert vacuous.endswith(own)
