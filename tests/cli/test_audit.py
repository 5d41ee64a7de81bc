"""`ketal audit`: faults, statistics, repair, and the exit code."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CONFLICT, RUN, Ketal, Write, event

HOLE = event("a", "x", {"a": 1}) + event("a", "x", {"a": 3})
FORGOT = (
    event("a", "send", {"a": 1}, msg=1)
    + event("b", "recv", {"b": 1}, msg=1)
    + event("b", "work", {"b": 2})
)
MATCH = "id=msg,send=type:send,receive=type:recv"


def test_valid_log_has_no_faults(ketal: Ketal, write: Write) -> None:
    result = ketal("audit", write("run.jsonl", RUN))
    assert result.code == 0
    assert result.lines == [
        "3 events of 2 nodes",
        "1 concurrent pair, 2 ordered: 33.3% concurrent",
        "longest causal chain: 2 events",
        "in file order: 0 causal inversions (0 pairs), at most 0 events held back in a replay",
        "no faults: this can be a vector-clocked execution",
    ]


def test_fault_is_printed_with_its_place_and_a_hint(ketal: Ketal, write: Write) -> None:
    result = ketal("audit", write("log.jsonl", HOLE))
    assert result.code == 1
    assert result.lines[0] == ("log.jsonl:2: error[A004]: a@2 is not in the log: a hole before a@3")
    assert result.lines[1].startswith("  hint: ")
    assert result.lines[-1] == "1 fault"


def test_fault_is_printed_as_json(ketal: Ketal, write: Write) -> None:
    result = ketal("audit", "--output", "json", write("log.jsonl", HOLE))
    assert result.code == 1
    fault, last = result.objects
    assert {key: fault[key] for key in ("file", "line", "column", "severity", "code", "dot")} == {
        "file": "log.jsonl", "line": 2, "column": 1, "severity": "error", "code": "A004",
        "dot": "a@2",
    }  # fmt: skip
    assert fault["message"]
    assert fault["hint"]
    assert last["faults"] == 1
    assert last["statistics"]["events"] == 2


def test_matched_messages_reveal_faults_that_repair_corrects(ketal: Ketal, write: Write) -> None:
    log = write("log.jsonl", FORGOT)
    assert ketal("audit", log).code == 0
    assert ketal("audit", "--match-messages", MATCH, log).code == 1
    words = ("audit", "--match-messages", MATCH, "--repair", "--write", "new.jsonl", log)
    result = ketal(*words)
    assert result.code == 1
    assert "new.jsonl: 3 records, 2 changed, 0 left" in result.lines
    assert "changed log.jsonl:2: [A009] the entry for a was 0 and is now 1" in result.lines
    assert ketal("audit", "--match-messages", MATCH, "new.jsonl").code == 0
    changed = [o for o in ketal(*words, "--output", "json").objects if "changed" in o]
    assert [(o["line"], o["dot"]) for o in changed] == [(2, "b@1"), (3, "b@2")]


def test_message_key_that_fits_no_event_is_reported(ketal: Ketal, write: Write) -> None:
    """Otherwise a mistyped field would silently match nothing."""
    log = write("log.jsonl", FORGOT)
    for key, wrong in (("id=msg", "id=mgs"), ("send=type:send", "send=typ:send")):
        result = ketal("audit", "--match-messages", MATCH.replace(key, wrong), log)
        assert result.code == 0
        assert result.err.splitlines() == [
            f"ketal: --match-messages: no event fits {wrong}, so no message is paired; "
            "does the log have this field?"
        ]
    assert ketal("audit", "--match-messages", MATCH, log).err == ""


def test_event_after_the_end_is_rejected(ketal: Ketal, write: Write) -> None:
    """`ketal run` does the same."""
    end = '{"type":"ketal.end"}\n'
    log = write("log.jsonl", event("a", "x", {"a": 1}) + end + event("a", "x", {"a": 3}))
    result = ketal("audit", log)
    assert result.code == 0
    assert result.lines[0] == "1 event of 1 node"
    assert (
        result.lines[1]
        == "1 rejected; the first is log.jsonl:3: the execution has ended (ketal.end)"
    )


def test_hole_beside_an_unreadable_line_mentions_that_line(ketal: Ketal, write: Write) -> None:
    lines = HOLE.splitlines(keepends=True)
    result = ketal("audit", write("log.jsonl", lines[0] + "{torn\n" + lines[1]))
    assert result.code == 1
    assert "log.jsonl:2 was rejected and may be the missing event" in result.lines[1]
    assert result.lines[3].startswith("1 rejected; the first is log.jsonl:2")


def test_rebuilt_clocks_are_written_by_repair(ketal: Ketal, write: Write) -> None:
    bare = "".join(
        json.dumps({key: value for key, value in json.loads(line).items() if key != "clock"}) + "\n"
        for line in FORGOT.splitlines()
    )
    log = write("bare.jsonl", bare)
    assert ketal("audit", log).code == 1
    result = ketal("audit", "--rebuild", MATCH, "--repair", "--write", "stamped.jsonl", log)
    assert result.code == 0
    assert ketal("audit", "--match-messages", MATCH, "stamped.jsonl").code == 0


def test_zipkin_trace_is_audited(ketal: Ketal, write: Write) -> None:
    span = {"traceId": "a" * 16, "id": "1", "timestamp": 5, "duration": 2}
    log = write("z.json", json.dumps([span | {"localEndpoint": {"serviceName": "shop"}}]))
    result = ketal("audit", "--format", "zipkin", log)
    assert result.code == 0
    assert result.lines[0] == "2 events of 1 node"


def test_restored_clock_is_printed_like_any_other_clock(ketal: Ketal, write: Write) -> None:
    lost = '{"node": "b", "type": "recv", "msg": 1}\n'
    known = event("b", "work", {"a": 1, "b": 2})
    log = write("log.jsonl", event("a", "send", {"a": 1}, msg=1) + lost + known)
    result = ketal("audit", "--match-messages", MATCH, "--repair", "--write", "new.jsonl", log)
    assert "changed log.jsonl:2: [A002] the clock is now a:1, b:1" in result.lines
    assert "messages: 1 pair, 0 unreceived, 0 unsent, 0 ambiguous" in result.lines


def test_unambiguous_fault_is_corrected_and_reported(ketal: Ketal, write: Write) -> None:
    lines = [event("a", "x", {"a": n}) for n in (1, 2, 3, 4)]
    wrong = event("a", "x", {"a": 9, "b": 1})
    log = write("log.jsonl", "".join([*lines[:2], wrong, lines[3], lines[3], "{torn\n"]))
    result = ketal("audit", "--repair", "--write", "new.jsonl", log)
    assert result.code == 1
    assert result.lines[0].startswith("log.jsonl:3: error[A003]: a's own entry is too large")
    assert result.lines[2].startswith("log.jsonl:3: error[A007]: a@3 refers to b@1")
    rest = result.lines[4:]
    changed = (
        "changed log.jsonl:3: [A003] the entry for a was 9 and is now 3; "
        "the entry for b was 1 and is now 0"
    )
    assert rest[0] == changed
    assert rest[1].startswith("left log.jsonl:6: not an event, so omitted from the corrected log")
    assert rest[-2:] == [
        "2 faults", "new.jsonl: 4 records, 1 changed, 1 left; 1 duplicate omitted",
    ]  # fmt: skip
    assert Path("new.jsonl").read_text().count("\n") == 4
    assert ketal("audit", "new.jsonl").code == 0


def test_restart_is_reported_once_and_named(ketal: Ketal, write: Write) -> None:
    again = "".join(event("a", kind, {"a": n}) for kind in ("x", "y") for n in (1, 2, 3))
    result = ketal(
        "audit", "--output", "json", "--repair", "--write", "new.jsonl", write("a", again)
    )
    assert result.code == 1
    fault, *changed, last = result.objects
    assert (fault["line"], fault["code"], fault["dot"]) == (4, "A011", "a#2@1")
    assert [(one["line"], one["dot"]) for one in changed] == [
        (4, "a#2@1"), (5, "a#2@2"), (6, "a#2@3"),
    ]  # fmt: skip
    assert last["statistics"]["nodes"] == 2
    assert ketal("audit", "new.jsonl").code == 0


def test_truncated_gzip_log_is_reported(ketal: Ketal, write: Write) -> None:
    text = "".join(event("a", str(n), {"a": n}) for n in range(1, 2_000))
    packed = gzip.compress(text.encode())
    result = ketal("audit", write("log.jsonl.gz", packed[: len(packed) // 2]))
    assert result.code == 0
    assert "the gzip data is truncated" in result.lines[1]
    assert result.lines[-1].startswith("no faults")


@pytest.mark.parametrize("words", [("audit",), ("view",), ("explain", "p.ketal")])
def test_ctrl_c_reports_that_nothing_was_judged(
    words: tuple[str, ...], start: Callable[..., subprocess.Popen[str]], write: Write
) -> None:
    write("p.ketal", CONFLICT)
    process = start(*words, "-")
    assert process.stdin is not None
    # More than a pipe holds: when it has been written, the log is being read.
    process.stdin.write(event("a", "x", {"a": 1}) * 5_000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("ketal: interrupted: ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("no.jsonl",), "cannot read no.jsonl: No such file"),
        (("--repair", "log.jsonl"), "--write FILE"),
        (("--match-messages", "id=x", "log.jsonl"), "send=…"),
        (("--repair", "--write", "log.jsonl", "log.jsonl"), "would overwrite"),
        (("--format", "otlp", "--field", "type=x", "log.jsonl"), "otlp"),
        (("empty.jsonl",), "no event was read"),
        (("bad.jsonl",), "no event was read"),
        (("folder",), "is a folder"),
        (("--limit", "events_max=1", "log.jsonl"), "events_max"),
        (("--repair", "--write", "no/where.jsonl", "log.jsonl"), "cannot write"),
    ],
)
def test_unusable_arguments_or_logs_are_an_error(
    ketal: Ketal, write: Write, words: tuple[str, ...], why: str
) -> None:
    write("log.jsonl", HOLE)
    write("empty.jsonl", "")
    write("bad.jsonl", "nonsense\n")
    Path("folder").mkdir()
    result = ketal("audit", *words)
    assert result.code == 2
    assert why in result.err
    assert (result.out == "") or words == ("bad.jsonl",) or words == ("empty.jsonl",)
    assert "no faults" not in result.out


def test_each_of_several_executions_is_repaired_into_its_own_file(
    ketal: Ketal, write: Write
) -> None:
    """The clocks of one execution are corrected, the other was correct; lines are of the log."""
    log = write(
        "log.txt",
        "== one ==\na {'a':1} x\na {'a':9} x\na {'a':3} x\n== two ==\na {'a':1} y\n".replace(
            "'", '"'
        ),
    )
    words = (
        "audit", "--regex", r"(?<host>\S+) (?<clock>\{.*\}) (?<event>\w+)",
        "--delimiter", "^== (?<trace>.*) ==$", "--repair", "--write", "new.jsonl", log,
    )  # fmt: skip
    result = ketal(*words)
    assert result.code == 1
    assert "changed log.txt:3: [A003] the entry for a was 9 and is now 2" in result.lines
    assert result.lines[-2:] == [
        "new.1.jsonl: 3 records, 1 changed, 0 left (execution one)",
        "new.2.jsonl: 1 record, 0 changed, 0 left (execution two)",
    ]
    assert not Path("new.jsonl").exists()
    for name, events in (("new.1.jsonl", 3), ("new.2.jsonl", 1)):
        assert Path(name).read_text().count("\n") == events
        assert ketal("audit", name).code == 0
    changed = [o for o in ketal(*words, "--output", "json").objects if "changed" in o]
    assert [(one["execution"], one["line"], one["dot"]) for one in changed] == [("one", 3, "a@2")]
    Path("new.2.jsonl").write_text(Path(log).read_text())
    over = ketal(*words[:-1], "new.2.jsonl")
    assert over.code == 2
    assert "would overwrite" in over.err


def test_unmatched_messages_of_a_rebuild_are_reported(ketal: Ketal, write: Write) -> None:
    rows: list[dict[str, object]] = [
        {"node": "a", "type": "send", "msg": 1}, {"node": "b", "type": "recv", "msg": 2},
        {"node": "b", "type": "recv", "msg": 3}, {"node": "c", "type": "send", "msg": 4},
        {"node": "a", "type": "send", "msg": 4}, {"node": "b", "type": "recv", "msg": 4},
    ]  # fmt: skip
    log = write("bare.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    pattern = write("p.ketal", 'pattern P { event R = type == "recv"; find R; }')
    for words in (
        ("audit",), ("run", pattern), ("run", "--live", pattern), ("explain", pattern),
        ("view", "--write", "run.html"),
    ):  # fmt: skip
        result = ketal(*words, "--rebuild", MATCH, log)
        assert result.err.splitlines() == [
            "ketal: clocks rebuilt: 2 receives whose send is not in the log; "
            "events that this would order remain unordered",
            "ketal: clocks rebuilt: 1 receive of a message that several events send; "
            "events that this would order remain unordered",
        ]
    # A send without a receive is not a fault.
    sends = [rows[0], rows[4], rows[5]]
    fine = write("fine.jsonl", "".join(json.dumps(row) + "\n" for row in sends))
    assert ketal("audit", "--rebuild", MATCH, fine).err == ""
    # A key that fits no event is most likely mistyped.
    bare = write("sends.jsonl", json.dumps(rows[0]) + "\n")
    assert ketal("audit", "--rebuild", MATCH, bare).err == (
        "ketal: clocks rebuilt: no event fits receive=type:recv; "
        "events that this would order remain unordered\n"
    )
    # The same keys for rebuild and audit are reported once, different keys each.
    twice = ketal("audit", "--rebuild", MATCH, "--match-messages", MATCH, bare).err
    assert twice.count("no event fits") == 1
    other = MATCH.replace("id=msg", "id=mgs")
    both = ketal("audit", "--rebuild", MATCH, "--match-messages", other, bare).err
    assert both.count("no event fits") == 3


def test_fault_of_a_text_that_is_no_clock_is_named(ketal: Ketal, write: Write) -> None:
    clock = ";".join(["c:1", *(f"n{n}:1" for n in range(20)), "c:2"])
    log = f'{{"node": "c", "type": "w", "clock": "{clock}"}}\n{{"node": "d", "type": "w"}}\n'
    shown, absent = [
        line for line in ketal("audit", write("log.jsonl", log)).lines if "A002" in line
    ]
    assert "the event of c has no vector clock: the clock 'c:1;" in shown
    assert shown.endswith("has two entries for 'c'")
    assert absent.endswith("the event of d has no vector clock")


def test_hint_follows_the_first_fault_that_has_it(ketal: Ketal, write: Write) -> None:
    holes = "".join(event("a", "x", {"a": counter}) for counter in (2, 4, 6))
    result = ketal("audit", write("log.jsonl", holes))
    assert [line.split("[")[-1][:5] for line in result.lines[:5]] == [
        "A004]", "  hin", "A004]", "A004]", "3 eve",
    ]  # fmt: skip


@pytest.mark.parametrize("counters", [(1, 2), (2,)])
def test_hints_name_several_executions_in_one_log(
    ketal: Ketal, write: Write, counters: tuple[int, ...]
) -> None:
    """The hint of a dot that is used twice, or of a restart, when a second run was appended."""
    first = "".join(event("a", "start", {"a": counter}) for counter in (1, 2))
    second = "".join(event("a", "other", {"a": counter}) for counter in counters)
    result = ketal("audit", str(write("log.jsonl", first + second)))
    assert "if the log holds several executions, audit each in a log of its own" in result.out


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (("--limit", "clock_entries_max=1"), "the clock has 2 entries, more than 1"),
        (("--nodes", "a,b"), "the clock names its nodes itself"),
    ],
)
def test_valid_clock_that_is_refused_is_no_fault(
    ketal: Ketal, write: Write, option: tuple[str, str], reason: str
) -> None:
    result = ketal("audit", *option, write("log.jsonl", RUN))
    assert "error[" not in result.out
    assert " rejected; the first is log.jsonl:" in result.out
    assert reason in result.out


def test_repair_that_cannot_be_written_leaves_the_file(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    log = write("log.jsonl", HOLE)
    corrected = tmp_path / "corrected.jsonl.gz"
    corrected.write_bytes(gzip.compress(RUN.encode()))
    result = ketal("audit", "--repair", "--write", corrected, log)
    assert result.code == 2
    assert result.err.endswith(
        "the output is not compressed; pass a binary file that compresses it\n"
    )
    assert gzip.decompress(corrected.read_bytes()).decode() == RUN
