"""Wrong input: a clear message, no lost record, and a summary that adds up."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import sys

import pytest

from tests.cli.conftest import CONFLICT, PHASES, RUN, CommandResult, Ketal, Write, event

BIG = 10**30
AHEAD = '{"a": 1, "b": 1}'
"""A clock in a cycle: it has an event whose clock has this event."""


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("conflict.ketal", CONFLICT)
    write("phases.ketal", PHASES)


def adds_up(result: CommandResult) -> dict[str, int]:
    counts: dict[str, int] = result.summary["events"]
    assert counts["read"] == sum(number for name, number in counts.items() if name != "read")
    return counts


def clock(text: str) -> str:
    return f'{{"node": "a", "type": "write", "clock": {text}, "key": "x"}}\n'


WRONG: list[tuple[str, str | bytes, str]] = [
    ("no clock", '{"node": "a", "type": "write"}\n', "the record has no clock"),
    ("null clock", clock("null"), "the record has no clock"),
    ("own entry missing", clock('{"b": 1}'), "missing"),
    ("empty clock", clock("{}"), "missing"),
    ("zero", clock('{"a": 0, "b": 1}'), "zero"),
    ("negative", clock('{"a": -1}'), "negative"),
    ("another's negative", clock('{"a": 1, "b": -1}'), "negative"),
    ("a string", clock('{"a": "1"}'), "integer"),
    ("a fraction", clock('{"a": 1.5}'), "integer"),
    ("a clock that is a string", clock('"later"'), "neither a JSON object nor of the form"),
    ("10^30", clock(f'{{"a": {BIG}}}'), "too large"),
    ("another's 10^30", clock(f'{{"a": 1, "b": {BIG}}}'), "too large"),
    ("positional", clock("[1, 2]"), "entries with --nodes A,B,C"),
    (
        "a long line",
        clock('{"a": 1}')[:-1] + " " * 10_000_000 + "\n",
        "1048576 bytes (limit line_bytes_max)",
    ),
    ("invalid UTF-8", clock('{"a": 1}').encode().replace(b"x", b"\xff"), "not valid UTF-8"),
    ("no JSON", "write a 1\n", "(pass --format if"),
    ("half a line", clock('{"a": 1}')[:40] + "\n", "not JSON"),
    ("no object", "[1, 2]\n", "an array, not a JSON object"),
    ("unknown control", '{"type": "ketal.stop"}\n', "ketal.stop is not a control event"),
]
NAMES = [name for name, _, _ in WRONG]


@pytest.mark.parametrize(("name", "line", "reason"), WRONG, ids=NAMES)
@pytest.mark.parametrize("live", [False, True], ids=["finite", "live"])
def test_wrong_record_is_rejected_with_its_place(
    ketal: Ketal, write: Write, name: str, line: str | bytes, reason: str, live: bool
) -> None:
    raw = line.encode() if isinstance(line, str) else line
    one, two, three = RUN.encode().splitlines(keepends=True)
    write("log.jsonl", one + raw + two + three)
    words = ["run", "conflict.ketal", "log.jsonl", "--output", "json", *["--live"] * live]
    result = ketal(*words)
    (rejected,) = [verdict for verdict in result.objects if verdict.get("verdict") == "rejected"]
    assert rejected["place"] == "log.jsonl:2"
    assert reason in rejected["reason"]
    assert len(rejected["reason"]) <= 400
    assert adds_up(result) | {"read": 4, "accepted": 3, "rejected": 1} == result.summary["events"]
    assert result.summary["patterns"]["Conflict"]["matches"] == 1
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(("name", "line", "reason"), WRONG, ids=NAMES)
def test_log_of_wrong_records_only_is_an_error(
    ketal: Ketal, name: str, line: str | bytes, reason: str
) -> None:
    raw = line.encode() if isinstance(line, str) else line
    words = ("run", "conflict.ketal", "-", "--format", "jsonl")
    result = ketal(*words, "--output", "json", stdin=raw * 2)
    assert result.code == 2
    assert adds_up(result) | {"read": 2, "rejected": 2} == result.summary["events"]
    assert result.err.startswith(
        "ketal: no event was read: all 2 records were rejected; the first is <stdin>:1: "
    )
    assert result.err.count("\n") == 1, "the hint is part of the reason"
    human = ketal(*words, stdin=raw)
    assert "1 read = 1 rejected" in human.lines
    assert "no event was read: 1 record was rejected; the first is" in human.err
    explained = ketal("explain", *words[1:], stdin=raw)
    assert explained.err == human.err, "in the same words"


@pytest.mark.parametrize("text", ["", "\n", "  \n\n", "\ufeff"])
@pytest.mark.parametrize("live", [False, True], ids=["finite", "live"])
def test_empty_log_is_an_error(ketal: Ketal, write: Write, text: str, live: bool) -> None:
    write("empty.jsonl", text)
    result = ketal("run", "conflict.ketal", "empty.jsonl", "--output", "json", *["--live"] * live)
    assert result.code == 2
    assert result.err == "ketal: no event was read: there are no events in empty.jsonl\n"
    assert adds_up(result)["read"] == 0


def test_log_of_control_events_only_is_an_error(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "-", stdin='{"type": "ketal.end"}\n')
    assert (result.code, result.err) == (
        2,
        "ketal: no event was read: there are no events in <stdin>\n",
    )


@pytest.mark.parametrize("pattern", ["conflict.ketal", "phases.ketal"])
@pytest.mark.parametrize("live", [False, True], ids=["finite", "live"])
def test_second_event_of_a_dot_with_other_content_is_rejected(
    ketal: Ketal, write: Write, pattern: str, live: bool
) -> None:
    # At counter 1 it would be a restart of the node instead of a contradiction.
    write("log.jsonl", RUN + RUN + event("b", "read", {"a": 1, "b": 2}))
    result = ketal("run", pattern, "log.jsonl", "--output", "json", *["--live"] * live)
    (rejected,) = [verdict for verdict in result.objects if verdict.get("verdict") == "rejected"]
    assert rejected["place"] == "log.jsonl:7"
    assert rejected["reason"].startswith("b@2 was read before with other content")
    counts = adds_up(result)
    assert (counts["read"], counts["duplicates"], counts["rejected"]) == (7, 3, 1)


def test_regex_that_matches_nothing_is_reported(ketal: Ketal, write: Write) -> None:
    write("trace.log", "one a 1\ntwo b 1\n")
    regex = r"(?<event>\w+) on (?<host>\S+) (?<clock>{.*})"
    result = ketal("run", "conflict.ketal", "trace.log", "--regex", regex, "--output", "json")
    assert result.code == 2
    assert adds_up(result) | {"read": 1, "rejected": 1} == result.summary["events"]
    assert "matches nothing here" in result.err
    assert "trace.log:1" in result.err


def test_text_that_the_regex_does_not_match_is_rejected(ketal: Ketal, write: Write) -> None:
    write("trace.log", 'write a {"a":1}\nrubbish\nwrite b {"b":1}\n')
    regex = r"(?<event>\w+) (?<host>\S+) (?<clock>{.*})"
    result = ketal("run", "conflict.ketal", "trace.log", "--regex", regex, "--output", "json")
    assert result.objects[0]["place"] == "trace.log:2"
    assert "does not match the text 'rubbish'" in result.objects[0]["reason"]
    assert adds_up(result)["accepted"] == 2


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(?<event>.*", "missing ) at column 1: `(?<event>.*`"),
        ("(a)(?<host>b))x", "unexpected ) at column 14: `)x`"),
        (r"(?<event>.*)\n(?<host>a**)", "bad repetition operator at column 24: `**`"),
        (r"\u00e9(?<host>[z-a])", "invalid character class range at column 16: `z-a`"),
        (r"[^]\q", r"invalid escape sequence at column 4: `\q`"),
        ("é[a", "missing ] at column 2: `[a`"),
        ("(?<a b>x)", "invalid named capture group at column 1: `(?<a b>`"),
        (f"{'x' * 5000}{{2000}}", "invalid repetition size at column 5001: `{2000}`"),
        ("a\\", "trailing \\"),
        (f"[{'x' * 500}", f"missing ] at column 1: `[{'x' * 58}…`"),
    ],
)
@pytest.mark.parametrize("option", ["regex", "delimiter"])
def test_invalid_regex_is_reported_as_written(
    ketal: Ketal, option: str, regex: str, reason: str
) -> None:
    words = ("run", "conflict.ketal", "-", "--format", "shiviz", f"--{option}={regex}")
    wrong = ketal(*words)
    assert wrong.code == 2
    assert wrong.err == f"ketal: {option} is not a valid regular expression (RE2): {reason}\n"


def test_nodes_option_with_clocks_that_name_their_nodes_is_refused(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "-", "--nodes", "a,b", stdin=RUN)
    assert result.code == 2
    assert (
        "the clock names its nodes itself; --nodes applies only to positional clocks" in result.err
    )


@pytest.mark.parametrize("name", ["run.gz", "run.jsonl.gz", "run.zst"])
def test_file_with_the_name_of_a_packed_one_is_reported(
    ketal: Ketal, write: Write, name: str
) -> None:
    write(name, bytes(range(256)) * 9)
    result = ketal("run", "conflict.ketal", name)
    assert result.code == 2
    kind = "Zstandard" if name.endswith("zst") else "gzip"
    assert f"{name}:1: this is not a {kind} file, although its name ends in" in result.err
    assert "regular expression" not in result.err


UNREADABLE: list[tuple[str, bytes, str]] = [
    ("a.jsonl", RUN.encode("utf-16"), "the text is UTF-16, but a log must be UTF-8"),
    ("a.log", RUN.encode("utf-32-le"), "the text is UTF-32, but a log must be UTF-8"),
    ("b.jsonl", RUN.encode("utf-32"), "the text is UTF-32, but a log must be UTF-8"),
    ("a.jsonl.gz", gzip.compress(RUN.encode())[:20], "the gzip data is truncated after byte 20"),
    ("b.jsonl.gz", gzip.compress(RUN.encode("utf-16")), "within the gzip data: the text is UTF-16"),
    ("c.jsonl.gz", RUN.encode(), "this is not a gzip file, although its name ends in .gz"),
    ("d.jsonl.gz", b"", "the file is empty, but a valid .gz file"),
    ("a.jsonl.bz2", bz2.compress(RUN.encode()), "the file is compressed with bzip2"),
    ("a.parquet", RUN.encode(), "this is not a Parquet file"),
    ("c.jsonl", bytes(range(256)) * 9, "the line is not JSON: it contains NUL bytes"),
    ("b.log", bytes(range(256)) * 9, "this is not text: it contains NUL bytes"),
    ("torn.parquet", b"PAR1" + bytes(99), "the Parquet data is damaged from here on"),
    (
        "long.jsonl",
        b'{"node":"' + b"a" * 2**20,
        "the line is longer than 1048576 bytes (limit line_bytes_max)",
    ),
    ("long.csv", b'node,type,clock\n"' + b"a" * 999 * 2**10 + b"\n" * 2**17, "the row is longer"),
]


@pytest.mark.parametrize(
    ("name", "raw", "found"), UNREADABLE, ids=[name for name, _, _ in UNREADABLE]
)
@pytest.mark.parametrize("command", [["run", "conflict.ketal"], ["audit"], ["cuts"]])
def test_log_without_a_readable_record_is_reported_with_the_reason(
    ketal: Ketal, write: Write, name: str, raw: bytes, found: str, command: list[str]
) -> None:
    result = ketal(*command, write(name, raw))
    assert result.code == 2
    assert f": {found}" in result.out + result.err


def test_cycle_of_clocks_is_counted(ketal: Ketal, write: Write) -> None:
    write("log.jsonl", RUN.replace('{"b": 1}', '{"a": 1, "b": 1}').replace('{"a": 1}', AHEAD))
    result = ketal("run", "conflict.ketal", "log.jsonl")
    assert result.code == 0
    assert result.lines[-1].startswith("1 event with an impossible clock, which knows of an event")
    assert result.lines[-1].endswith("`ketal audit` reports the fault")
    counted = ketal("run", "conflict.ketal", "log.jsonl", "--output", "json", "--count")
    assert counted.summary["impossible"] == 1
    assert ketal("audit", "log.jsonl").code == 1


def test_events_without_the_key_are_counted(ketal: Ketal) -> None:
    result = ketal("run", "conflict.ketal", "-", stdin=RUN.replace('"key"', '"kez"'))
    assert result.lines[-1] == "Conflict: not judged: 3 events without the key of `partition by`"


def test_pattern_file_that_is_no_text_is_reported(ketal: Ketal, write: Write) -> None:
    write("run.jsonl", RUN)
    bad = b"# one\npattern \xff {"
    write("bad.ketal", bad)
    for result in (
        ketal("run", "bad.ketal", "run.jsonl"),
        ketal("run", "-", "run.jsonl", stdin=bad),
    ):
        assert result.code == 2
        assert "is not valid UTF-8 (line 2, byte 9); save it as UTF-8\n" in result.err
    result = ketal("run", "-", "run.jsonl", "--limit", "pattern_bytes_max=10", stdin=CONFLICT)
    assert result.code == 2
    assert "pattern_bytes_max" in result.err


@pytest.mark.parametrize("name", ["-", "conflict.ketal"])
def test_largest_limit_costs_no_memory(ketal: Ketal, write: Write, name: str) -> None:
    words = ("run", name, write("run.jsonl", RUN), "--limit")
    result = ketal(*words, f"pattern_bytes_max={sys.maxsize}", stdin=CONFLICT)
    assert (result.code, result.err) == (0, "")
    result = ketal(*words, f"pattern_bytes_max={'9' * 400}", stdin=CONFLICT)
    refusal = f"ketal: limit pattern_bytes_max must be at most {sys.maxsize}\n"
    assert (result.code, result.err) == (2, refusal)


@pytest.mark.parametrize(
    "encoding",
    ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig"],
)
def test_pattern_file_in_another_encoding_is_reported(
    ketal: Ketal, write: Write, encoding: str
) -> None:
    raw = CONFLICT.encode(encoding)
    write("run.jsonl", RUN)
    write("wide.ketal", raw)
    write("below.ketal", "\n".encode(encoding) + CONFLICT.encode(encoding.removesuffix("-sig")))
    for name in ("wide.ketal", "below.ketal", "-"):
        result = ketal("run", name, "run.jsonl", stdin=raw)
        if encoding == "utf-8-sig":
            assert result.code == 0
            continue
        assert result.code == 2
        known = encoding[:6].upper()
        file = "<stdin>" if name == "-" else f"pattern file {name}"
        assert result.err == (
            f"ketal: {file} is {known}, but a pattern file must be UTF-8; convert it with "
            f"`iconv -f {known} -t UTF-8 FILE`\n"
        )


def test_pattern_file_of_zero_bytes_is_in_no_other_encoding(ketal: Ketal, write: Write) -> None:
    """As a crash of the machine leaves one."""
    result = ketal("lint", write("zero.ketal", b"\0" * 100))
    assert (result.code, "zero.ketal:1:1: error[K002]: the character U+0000" in result.out) == (
        1, True,
    )  # fmt: skip


def test_empty_file_name_is_reported(ketal: Ketal, write: Write) -> None:
    """As from an unset shell variable; the name would mean the current folder."""
    log = write("run.jsonl", RUN)
    assert ketal("run", "", log).err == "ketal: the name of the pattern file is empty\n"
    assert ketal("audit", log, "").err == "ketal: the name of a log is empty\n"


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["run.jsonl", "conflict.ketal"], "conflict.ketal run.jsonl"),
        (["run.jsonl", "run.jsonl.gz", "pattern"], "pattern run.jsonl run.jsonl.gz"),
        (["run.jsonl.gz", "run.jsonl", "pattern"], "pattern run.jsonl.gz run.jsonl"),
        (["long.jsonl", "broken.ketal"], "broken.ketal long.jsonl"),
    ],
)
@pytest.mark.parametrize("command", ["run", "explain"])
def test_swapped_pattern_and_log_are_reported(
    ketal: Ketal, write: Write, command: str, words: list[str], right: str
) -> None:
    write("run.jsonl", RUN)
    write("run.jsonl.gz", gzip.compress(RUN.encode()))
    write("long.jsonl", RUN * 10_000)
    write("pattern", CONFLICT)
    write("broken.ketal", CONFLICT.replace("find", "fnd"))
    result = ketal(command, *words)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"ketal: {right.split()[0]} is a pattern file, but a log is expected here; are the "
        f"arguments swapped? use `ketal {command} {right}`\n"
    )


@pytest.mark.parametrize("command", ["run", "explain", "stats", "audit", "view"])
def test_pattern_file_given_as_a_log_is_reported(ketal: Ketal, write: Write, command: str) -> None:
    log = write("run.jsonl", RUN)
    pattern = ["conflict.ketal"] * (command in ("run", "explain"))
    for logs in (["phases.ketal"], [log, "conflict.ketal", "phases.ketal"]):
        result = ketal(command, *pattern, *logs)
        assert (result.code, result.out) == (2, "")
        given = next(name for name in logs if name != log)
        use = f"; use `--pattern {given}`" if command == "view" else ""
        assert result.err == f"ketal: {given} is a pattern file, but a log is expected here{use}\n"
    result = ketal(command, *pattern, write("patterns", PHASES))
    assert result.code == 2
    assert result.err == "ketal: patterns is a pattern file, but a log is expected here\n"
    absent = ketal(command, *pattern, "nowhere.ketal")
    assert absent.err == "ketal: cannot read nowhere.ketal: No such file or directory\n"


def test_two_logs_are_not_reported_as_swapped(ketal: Ketal, write: Write) -> None:
    write("run.jsonl", RUN)
    os.mkfifo("pipe.ketal")  # nobody writes to it
    for words in (["run.jsonl", "run.jsonl"], ["run.jsonl", "-"], ["run.jsonl", "pipe.ketal"]):
        result = ketal("run", *words, stdin=CONFLICT)
        assert result.code == 2
        assert result.err.startswith(
            "run.jsonl:1:1: error[K001]: a pattern file cannot begin with `{`"
        )


def test_broken_pattern_is_not_reported_as_swapped(ketal: Ketal, write: Write) -> None:
    write("broken.ketal", CONFLICT.replace("find", "fnd"))
    result = ketal("run", "broken.ketal", "conflict.ketal")
    assert result.code == 2
    assert "error[K" in result.err
    assert "swapped" not in result.err


def test_log_without_clocks_gets_a_hint_about_rebuild(ketal: Ketal, write: Write) -> None:
    write(
        "plain.jsonl",
        '{"node": "a", "type": "write", "key": "x", "msg": 1}\n'
        '{"node": "b", "type": "write", "key": "x", "msg": 2}\n',
    )
    hint = "--rebuild KEYS to compute clocks from messages"
    assert hint in ketal("run", "conflict.ketal", "plain.jsonl").err
    assert hint in ketal("audit", "plain.jsonl").out
    keys = "id=msg,send=type:write,receive=type:read"
    result = ketal("run", "--rebuild", keys, "conflict.ketal", "plain.jsonl")
    assert result.lines[0].startswith("match Conflict")


MAPPED = [
    (
        "run.jsonl",
        '{"node": "a", "type": "write", "clock": {"a": 1}, "at": 1, "m": {"id": 4}}\n'
        '{"node": "b", "type": "write", "clock": {"a": 1, "b": 1}, "m": {"no": 0, "id": null}}\n',
        ["time=at", "message=m.id", "incarnation=m.no"],
    ),
    (
        "run.csv",
        "node,type,clock,at,m.id,m.no\na,write,a:1,1,4,0\n",
        ["time=at", r"message=m\.id", r"incarnation=m\.no"],
    ),
    ("run.shiviz", 'a write {"a": 1} 1 4 0\n', ["time=at", "message=msg", "incarnation=no"]),
]
"""(file, text, the mapped fields that its records have)."""
REGEX = r"(?<host>\S+) (?<event>\S+) (?<clock>{.*}) (?<at>\S+) (?<msg>\S+) (?<no>\S+)"


@pytest.mark.parametrize("command", [["run", "phases.ketal"], ["stats"], ["view"]])
@pytest.mark.parametrize(("name", "text", "present"), MAPPED, ids=[name for name, _, _ in MAPPED])
def test_mapped_field_that_no_record_has_is_reported(
    ketal: Ketal, write: Write, name: str, text: str, present: list[str], command: list[str]
) -> None:
    words = [*command, write(name, text)]
    if name == "run.shiviz":
        words += ["--regex", REGEX]
    assert "--field" not in ketal(*words, *(f"--field={one}" for one in present)).err
    absent = ["time=att", "incarnation=m.nO", "message=m.idd", "data=payload"]
    result = ketal(*words, *(f"--field={one}" for one in absent))
    assert [line for line in result.err.splitlines() if "--field" in line] == [
        f"ketal: --field {one}: no record that was read has a value at this path" for one in absent
    ]


def test_mapped_fields_of_a_log_without_a_record_are_not_reported(
    ketal: Ketal, write: Write
) -> None:
    log = write("none.jsonl", "\n")
    for field in ("time=att", "message=m.idd"):
        result = ketal("run", "phases.ketal", log, "--field", field)
        assert result.err == "ketal: no event was read: there are no events in none.jsonl\n"


SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "name": "get",
    "id": "bd7a977555f6b982",
    "timestamp": 1,
    "duration": 2,
    "localEndpoint": {"serviceName": "shop"},
}
EXPORT = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": SPAN["traceId"],
                            "spanId": SPAN["id"],
                            "name": "get",
                            "startTimeUnixNano": "1000",
                            "endTimeUnixNano": "3000",
                        }
                    ]
                }
            ],
        }
    ]
}
SNAKE = {key.replace("S", "_s"): value for key, value in EXPORT.items()}
JAEGER = {
    "traceID": SPAN["traceId"],
    "spans": [
        {
            "traceID": SPAN["traceId"],
            "spanID": SPAN["id"],
            "operationName": "get",
            "startTime": 1,
            "duration": 2,
            "processID": "p1",
        }
    ],
    "processes": {"p1": {"serviceName": "shop"}},
}
TRACES = {
    "an export": ("otlp", json.dumps(EXPORT)),
    "exports on lines": ("otlp", f"{json.dumps(EXPORT)}\n{json.dumps(EXPORT)}\n"),
    "an export laid out": ("otlp", json.dumps(EXPORT, indent=2)),
    "exports in an array": ("otlp", json.dumps([EXPORT])),
    "an export in snake case": ("otlp", "\ufeff" + json.dumps(SNAKE)),
    "spans in an array": ("zipkin", json.dumps([SPAN])),
    "spans in arrays": ("zipkin", json.dumps([[SPAN], [SPAN]])),
    "spans laid out": ("zipkin", "\n" + json.dumps([SPAN], indent=4, sort_keys=True)),
    "what Tempo returns": ("otlp", json.dumps({"batches": EXPORT["resourceSpans"]})),
    "what Tempo wraps": ("otlp", json.dumps({"trace": EXPORT})),
    "what Jaeger returns": ("jaeger", json.dumps({"data": [JAEGER]})),
    "a trace of Jaeger laid out": ("jaeger", json.dumps(JAEGER, indent=2, sort_keys=True)),
    "traces of Jaeger on lines": ("jaeger", f"{json.dumps(JAEGER)}\n{json.dumps(JAEGER)}\n"),
    "spans on lines": ("zipkin", json.dumps(SPAN, sort_keys=True) + "\n" + json.dumps(SPAN)),
}


@pytest.mark.parametrize("kind", TRACES)
@pytest.mark.parametrize("name", ["t.json", "t.jsonl.gz", "t.log", "-"])
def test_traces_are_recognised(ketal: Ketal, write: Write, kind: str, name: str) -> None:
    form, text = TRACES[kind]
    raw = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
    write("t" if name == "-" else name, raw)
    for command in (["run", "conflict.ketal"], ["audit"]):
        result = ketal(*command, name, stdin=raw)
        shown = "<stdin>" if name == "-" else name
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            f"ketal: {shown} contains spans of a trace, not events; "
            f"use --format {form} to convert them to events\n"
        )
    assert ketal("audit", "--format", form, name, stdin=raw).lines[0] == "2 events of 1 node"


def test_log_that_resembles_a_trace_is_read_as_a_log(ketal: Ketal, write: Write) -> None:
    write("spans.jsonl", json.dumps(SPAN | {"vc": {"shop": 1}}) + "\n")
    fields = ["node=localEndpoint.serviceName", "type=name", "clock=vc"]
    words = [word for field in fields for word in ("--field", field)]
    assert ketal("audit", *words, "spans.jsonl").lines[0] == "1 event of 1 node"
    write("run.jsonl", RUN.replace('"key"', '"traceId"').replace('"x"', '"localEndpoint"'))
    assert ketal("audit", "run.jsonl").lines[0] == "3 events of 2 nodes"
    assert "an array, not a JSON object" in ketal("audit", "-", stdin='["a", 1]\n').err
    assert "pass --regex" in ketal("audit", "-", stdin='[INFO] {"traceId": 1}\n').err


@pytest.mark.parametrize(
    ("pattern", "none"),
    [
        ('event E = type == "x"; find any E;', "is in the alphabet"),
        ('event E = type == "write"; partition by k; find any E;', "in the alphabet has the key"),
        ('event E = type == "write"; A = E && node == type; find any A;', "satisfies `A`"),
    ],
)
def test_message_about_a_single_event_is_in_the_singular(
    ketal: Ketal, write: Write, pattern: str, none: str
) -> None:
    write("p.ketal", f"pattern P {{ {pattern} }}")
    assert f"0 of 1 event {none}" in ketal("run", "p.ketal", "-", stdin=clock('{"a": 1}')).out


@pytest.mark.parametrize(
    "command",
    [
        "run conflict.ketal run.jsonl",
        "explain conflict.ketal run.jsonl",
        "lint conflict.ketal --log run.jsonl",
        "view run.jsonl",
        "stats run.jsonl",
        "cuts run.jsonl",
        "audit run.jsonl",
        "audit --repair run.jsonl",
        "clocks compare run.jsonl",
        "clocks compare run.jsonl a@1 b@1 --to text",
        "clocks show vector run.jsonl",
        "clocks restamp vector run.jsonl",
    ],
)
def test_output_does_not_overwrite_the_config_file(
    ketal: Ketal, write: Write, command: str
) -> None:
    write("conflict.ketal", CONFLICT)
    write("run.jsonl", event("a", "x", {"a": 1}) + event("b", "x", {"b": 1}))
    config = write("settings.toml", "[limits]\nruns_max = 5\n")
    result = ketal(*command.split(), "--config", config, "--write", config)
    assert (result.code, result.err) == (
        2, "ketal: --write settings.toml would overwrite an input file\n"
    )  # fmt: skip
    assert config.read_text() == "[limits]\nruns_max = 5\n"


@pytest.mark.parametrize("action", ["show", "restamp"])
def test_stamps_do_not_overwrite_the_pattern_file(ketal: Ketal, write: Write, action: str) -> None:
    pattern = write("conflict.ketal", CONFLICT)
    log = write("run.jsonl", event("a", "write", {"a": 1}))
    result = ketal("clocks", action, "vector", log, "--only", pattern, "--write", pattern)
    assert (result.code, "would overwrite an input file" in result.err) == (2, True)
    assert pattern.read_text() == CONFLICT


TOO_DEEP = (
    "ketal: too deeply nested for Python; lower the limit nesting_max (a pattern) or "
    "match_events_max (the events of a match)\n"
)


@pytest.mark.parametrize("command", ["lint", "fmt --diff", "graph"])
def test_pattern_nested_too_deeply_for_python_is_an_error(
    ketal: Ketal, write: Write, command: str
) -> None:
    guard = "(" * 3_000 + 'type == "a"' + ")" * 3_000
    deep = write("deep.ketal", f"pattern P {{ event A = {guard}; find any A; }}")
    result = ketal(*command.split(), "--limit", "nesting_max=1_000_000", deep)
    assert (result.code, result.out, result.err) == (2, "", TOO_DEEP)


def test_match_of_too_many_events_for_python_is_an_error(ketal: Ketal, write: Write) -> None:
    text = 'pattern P { order CausalOrder; event A = type == "a"; find any A{999}; }'
    lines = "".join(event("n", "a", {"n": n}) for n in range(1, 1_000))
    raised = "--limit=match_events_max=999"
    result = ketal("run", raised, write("long.ketal", text), write("long.jsonl", lines))
    assert (result.code, result.err) == (2, TOO_DEEP)
