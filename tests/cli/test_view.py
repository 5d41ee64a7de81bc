"""`ketal view`: its output files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ketal import Event, view
from ketal.errors import SettingError
from ketal.logs.formats.shiviz import WRITTEN_FIELDS, WRITTEN_REGEX
from tests.cli.conftest import CONFLICT, Ketal, Write, event

LOG = event("a", "write", {"a": 1}, key="x") + event("b", "write", {"b": 1}, key="x")


def test_page_is_written_beside_the_log_and_its_name_printed(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    result = ketal("view", write("run.jsonl", LOG))
    assert (result.code, result.out, result.err) == (0, "run.jsonl.html\n", "")
    assert "<title>run.jsonl</title>" in (tmp_path / "run.jsonl.html").read_text()


def test_form_of_a_view_is_set_by_file_name_or_option(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    log, pattern = write("run.jsonl", LOG), write("p.ketal", CONFLICT)
    result = ketal("view", "--pattern", pattern, "--write", "run.svg", log)
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "run.svg").read_text().count('class="match"') == 2
    result = ketal("view", "--to", "perfetto", log)
    assert result.out == "run.jsonl.json\n"
    trace = json.loads((tmp_path / "run.jsonl.json").read_text())
    assert sum(x["ph"] == "X" for x in trace["traceEvents"]) == 2
    assert ketal("view", "--write", "-", log).out.startswith("<!doctype html>")
    for name, begins in (("x.json", '{"'), ("x.log", "write\t"), ("x.htm", "<!doctype html>")):
        assert ketal("view", "--write", name, log).code == 0
        assert (tmp_path / name).read_text().startswith(begins)


def test_unsupported_picture_form_is_refused(ketal: Ketal, write: Write, tmp_path: Path) -> None:
    log = write("run.jsonl", LOG)
    result = ketal("view", "--write", "x.PNG", log)
    assert result.code == 2
    assert result.err == "ketal: cannot write a .png picture; write an .svg or an .html page\n"
    with pytest.raises(SettingError, match=r"cannot write a \.pdf picture"):
        view([Event(node="a", type="t", clock={"a": 1})]).write(tmp_path / "x.pdf")
    assert not [one for one in tmp_path.iterdir() if one.suffix in (".PNG", ".pdf")]
    assert ketal("view", "--write", "x.PNG", "--to", "svg", log).code == 0


def test_view_is_written_in_the_form_of_the_file_name(tmp_path: Path) -> None:
    shown = view([Event(node="a", type="x", clock={"a": 1})])
    for name, text in (("x.svg", shown.to_svg()), ("x.log", shown.to_shiviz())):
        shown.write(tmp_path / name)
        assert (tmp_path / name).read_text() == text


def test_log_written_for_shiviz_gives_the_same_verdicts(ketal: Ketal, write: Write) -> None:
    log, pattern = write("run.jsonl", LOG), write("p.ketal", CONFLICT)
    written = ketal("view", "--to", "shiviz", "--write", "-", log)
    assert written.lines[:2] == ['write\t{"key":"x"}', 'a {"a": 1}']
    fields = [word for name in WRITTEN_FIELDS for word in ("--field", f"{name}={name}")]
    words = ("--regex", WRITTEN_REGEX, *fields)
    again = ketal("run", *words, pattern, write("run.log", written.out))
    shown = [
        line.replace("run.log:1, run.log:3", "run.jsonl:1, run.jsonl:2") for line in again.lines
    ]
    assert shown == ketal("run", pattern, log).lines


def test_log_without_events_is_not_shown(ketal: Ketal, write: Write, tmp_path: Path) -> None:
    result = ketal("view", write("run.jsonl", "nonsense\n"))
    assert (result.code, result.out) == (2, "")
    assert not (tmp_path / "run.jsonl.html").exists()
    result = ketal("view", write("some.jsonl", LOG + "nonsense\n"))
    assert result.code == 0
    assert "1 record was rejected" in result.err


def test_rejected_record_is_reported(ketal: Ketal, write: Write) -> None:
    log = write("run.jsonl", event("a", "x", {"a": 2}) + event("a", "y", {"a": 2}))
    result = ketal("view", log)
    assert result.code == 0
    assert result.err.startswith(
        "ketal: 1 record was rejected; the first is run.jsonl:2: a@2 was read"
    )


def test_view_does_not_order_pairs_that_inexact_clocks_leave_open(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    log = write(
        "run.jsonl",
        "".join(
            json.dumps(one) + "\n"
            for one in (
                {"node": "a", "type": "x", "clock": 1},
                {"node": "b", "type": "x", "clock": 2},
            )
        ),
    )
    result = ketal("view", "--clock", "lamport", "--to", "shiviz", log)
    assert (result.code, result.out) == (2, "")
    assert "lamport clocks do not determine happened-before" in result.err
    assert ketal("view", "--clock", "lamport", log).code == 0
    for form in ("svg", "perfetto"):
        drawn = ketal("view", "--clock", "lamport", "--to", form, "--write", "-", log)
        assert "do not determine happened-before: arrows show what may have" in drawn.out
    assert '"undecided":"lamport"' in (tmp_path / "run.jsonl.html").read_text()


def test_logs_of_two_runs_are_compared(ketal: Ketal, write: Write, tmp_path: Path) -> None:
    for run in ("failed", "passed"):
        (tmp_path / run).mkdir()
        for node in "ab":
            write(f"{run}/{node}.jsonl", event(node, "write", {node: 1}))
    words = ("--compare", "passed/a.jsonl", "--compare", "passed/b.jsonl")
    result = ketal("view", *words, "failed/a.jsonl", "failed/b.jsonl")
    assert (result.code, result.out, result.err) == (0, "a.jsonl.html\n", "")
    page = (tmp_path / "a.jsonl.html").read_text()
    assert "<title>failed/a.jsonl and 1 more</title>" in page
    data = page.partition('id="data">')[2]
    runs = json.loads(data.partition("</script>")[0])["executions"]
    assert [(run["name"], run["nodes"]) for run in runs] == [
        ("failed/a.jsonl and 1 more", ["a", "b"]),
        ("passed/a.jsonl and 1 more", ["a", "b"]),
    ]


def test_failed_picture_does_not_overwrite_the_old_file(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    log = write("run.jsonl", "".join(event("a", "x", {"a": n}) for n in range(1, 1_002)))
    write("run.jsonl.svg", "the picture of yesterday")
    result = ketal("view", "--to", "svg", log)
    assert (result.code, result.out) == (2, "")
    assert (tmp_path / "run.jsonl.svg").read_text() == "the picture of yesterday"


def test_file_name_with_a_line_end_is_printed_on_one_line(ketal: Ketal, write: Write) -> None:
    assert ketal("view", write("a\n\x1b.jsonl", LOG)).out == "a\\n\\x1b.jsonl.html\n"


def test_file_name_that_is_not_utf8(ketal: Ketal, write: Write) -> None:
    log, pattern = write("run\udcff.jsonl", LOG), write("p.ketal", CONFLICT)
    result = ketal("view", "--pattern", pattern, "--to", "perfetto", "--write", "-", log)
    events = json.loads(result.out)["traceEvents"]
    assert "run\\udcff.jsonl:1" in [x["args"].get("place") for x in events if x["ph"] == "X"]
    for form in ("html", "svg", "shiviz"):
        assert ketal("view", "--pattern", pattern, "--to", form, "--write", "-", log).code == 0


def test_log_is_not_overwritten(ketal: Ketal, write: Write) -> None:
    log = write("run.html", LOG)
    result = ketal("view", "--format", "jsonl", "--write", "run.html", log)
    assert result.code == 2
    assert log.read_text() == LOG


def test_impossible_clocks_are_reported_and_the_diagram_notes_them(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    knows_the_other = {"a": 1, "b": 1}
    log = write("run.jsonl", event("a", "x", knows_the_other) + event("b", "x", knows_the_other))
    warning = "1 event with an impossible clock; run `ketal audit` to find the fault"
    result = ketal("view", log)
    assert (result.code, result.err) == (0, f"ketal: {warning}\n")
    assert f'"note":"{warning}"' in (tmp_path / "run.jsonl.html").read_text()
    for form in ("svg", "perfetto"):
        assert warning in ketal("view", "--to", form, "--write", "-", log).out


LIMITED = """\
pattern Two {
    order CausalOrder;
    event Write = type == "write";
    find any Write Write;
}
"""


@pytest.mark.parametrize("command", ["view", "explain"])
def test_a_limit_that_was_reached_is_reported(
    ketal: Ketal, write: Write, tmp_path: Path, command: str
) -> None:
    log = write("run.jsonl", LOG)
    pattern = write("p.ketal", LIMITED)
    arguments = ["--pattern", pattern, log] if command == "view" else [pattern, log]
    result = ketal(command, "--limit", "candidates_max=1", *arguments)
    reached = "a limit was reached, so verdicts may be missing; the first: overflow Two"
    assert (result.code, result.err.startswith(f"ketal: {reached}")) == (0, True)
    if command == "view":
        assert (
            '"note":"verdicts may be missing (candidates_max reached)"'
            in (tmp_path / "run.jsonl.html").read_text()
        )


def test_verdicts_beyond_the_limit_are_named_on_the_page_and_on_standard_error(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    """Otherwise an event without a mark looks like an event of no verdict."""
    log = write("run.jsonl", "".join(event("a", "write", {"a": n}) for n in range(1, 6)))
    pattern = write("p.ketal", 'pattern P { event W = type == "write"; find any W; }')
    for most, text in (
        (5, ""),
        (4, "1 more verdict is neither marked nor explained (limit viewed_verdicts_max)"),
        (2, "3 more verdicts are neither marked nor explained (limit viewed_verdicts_max)"),
    ):
        result = ketal("view", "--limit", f"viewed_verdicts_max={most}", "--pattern", pattern, log)
        assert (result.code, result.err) == (0, text and f"ketal: {text}\n")
        assert f'"note":"{text}"' in (tmp_path / "run.jsonl.html").read_text()


def test_page_counts_the_matches_that_are_not_listed(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    log = write("run.jsonl", "".join(event("a", "write", {"a": n}) for n in range(1, 6)))
    texts = (
        'pattern Counted { event Write = type == "write"; find any Write; return count; }',
        'pattern First { event Write = type == "write"; find any Write; limit 2; }',
    )
    pattern = write("p.ketal", "\n".join(texts))
    assert ketal("view", "--pattern", pattern, log).code == 0
    page = (tmp_path / "run.jsonl.html").read_text()
    assert page.count('"kind":"match"') == 2
    assert '"more":8,' in page
