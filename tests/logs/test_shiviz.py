"""ShiViz logs: expressions of JavaScript and Python, delimiters, and unmatched text."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ketal.errors import SettingError
from ketal.logs import place, read_log
from ketal.logs.formats.shiviz import WRITTEN_FIELDS, WRITTEN_REGEX, shiviz_text
from ketal.logs.regexes import compile_regex
from ketal.logs.streams import LineNumbers
from ketal.model.events.control import Control
from ketal.model.events.event import Event
from ketal.model.limits import Limits
from tests.work import counted_lines

ROOT = Path(__file__).parents[2]
ONE_LINE = r"(?<host>\S+) (?<clock>{.*}) (?<event>.*)"


def records(text: str | bytes, **options: Any) -> list[Any]:
    raw = text if isinstance(text, bytes) else text.encode()
    return list(read_log(io.BytesIO(raw), format="shiviz", **options).records())


def test_text_between_matches_is_rejected_with_its_place() -> None:
    text = 'stray\n\na {"a":1} x\n\nlost 1\nlost 2\na {"a":2} y\n  \ntail\n'
    read = records(text, regex=ONE_LINE)
    assert [place(r).rpartition(":")[2] for r in read] == ["1", "3", "5", "7", "9"]
    assert read[0][1].reason == "the regular expression does not match the text 'stray'"
    assert read[2][1].reason.endswith("'lost 1' (2 lines)")
    assert [r[1].dot.counter for r in read if isinstance(r[1], Event)] == [1, 2]


def test_a_log_whose_clocks_come_first_is_reported_with_the_expression_to_pass() -> None:
    text = 'a {"a":1}\nstart\nb {"b":1}\nsend\na {"a":2}\nstop\n'
    first, *_ = records(text)
    regex = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
    assert first[1].reason.endswith(f"as in logs of GoVector, pass --regex '{regex}')")
    events = [r[1] for r in records(text, regex=regex)]
    assert [str(event) for event in events] == ["a@1 start", "b@1 send", "a@2 stop"]
    stray, *_ = records('stray text\n\nstart\na {"a":1}\n')
    assert "GoVector" not in stray[1].reason


@pytest.mark.parametrize("part", ['a {"a":1}\nstart\n', '\na {"a":1}\nstart\nb {"b":1}\nsend'])
def test_a_clock_first_is_reported_once_in_each_execution(part: str) -> None:
    for text, parts in ((part, 1), (f"=one=\n{part}\n=two=\n{part}\n", 2)):
        read = records(text, delimiter="^=(?<trace>.*)=$")
        reasons = [item.reason for _, item, _, _ in read if not isinstance(item, Event)]
        hints = [reason for reason in reasons if reason.endswith("\\n(?<event>.*)')")]
        assert len(hints) == parts


def test_text_that_looks_like_a_clock_is_not_taken_for_one_that_comes_first() -> None:
    text = 'sent {"x":1}\na {"a":1}\nhello\nb {"b":-1}\n'
    (fault,) = (item for _, item, _, _ in records(text) if not isinstance(item, Event))
    assert fault.reason == "clock: the entry for 'b' is negative"


def test_line_numbers_are_counted_incrementally() -> None:
    class Text(bytes):
        looked_at = 0

        def count(self, what: Any, start: Any = 0, end: Any = None) -> int:
            self.looked_at += max(0, end - start)
            return super().count(what, start, end)

    text = Text(b"one\ntwo\n\nthree\n" * 100)
    lines = LineNumbers(text)
    offsets = [at + back for at in range(0, len(text) - 40, 7) for back in (0, 40, 20)]
    assert [lines.number(at) for at in offsets] == [text[:at].count(b"\n") + 1 for at in offsets]
    assert text.looked_at < 20 * len(text)


def test_an_expression_without_matches_is_reported() -> None:
    (only,) = records("\n\nwhat is this\nline\n", regex=ONE_LINE)
    assert only[1].reason.startswith(f"the regular expression `{ONE_LINE}` matches nothing here")
    assert "matches nothing here (pass --regex for another expression" in only[1].reason
    assert place(only).endswith(":3")
    assert records("", regex=ONE_LINE) == []
    assert records("\n \n", regex=ONE_LINE) == []


def test_log_without_a_regex_uses_the_default() -> None:
    assert [r[1] for r in records('hello\na {"a":1}\n')] == [Event("a", "hello", {"a": 1})]
    (only,) = records("no clocks in here\n")
    assert "matches nothing here" in only[1].reason
    (binary,) = records("\x7fELF\x02\x00\x00\x00\n\x00")
    assert binary[1].reason.startswith("this is not text: it contains NUL bytes")


@pytest.mark.parametrize(
    ("clock", "reason"),
    [
        ("{}", "clock: the node's own entry 'a' is missing"),
        ('{"a":0}', "clock: the node's own entry 'a' is zero"),
        ('{"a":-4}', "clock: the entry for 'a' is negative"),
        ('{"a":"1"}', "clock: the entry for 'a' must be an integer"),
        ('{"a":1000000000000000000000000000000}', "clock: the entry for 'a' is too large"),
        ("{a:1}", "the clock '{a:1}' is not JSON"),
    ],
)
def test_bad_clock_is_rejected_with_its_place(clock: str, reason: str) -> None:
    read = records(f'a {{"a":1}} x\na {clock} y\na {{"a":2}} z\n', regex=ONE_LINE)
    assert [type(r[1]).__name__ for r in read] == ["Event", "Rejected", "Event"]
    assert read[1][1].reason.startswith(reason)
    assert read[1][1].place.endswith(":2")


def test_clock_that_is_nested_too_deeply_is_rejected() -> None:
    clock = '{"a":' * 20_000 + "1" + "}" * 20_000
    (rejected,) = records(f"a {clock} y\n", regex=ONE_LINE)
    assert rejected[1].reason.endswith("…' is nested too deeply")


def test_invalid_utf_8_rejects_only_its_event() -> None:
    text = b'a {"a":1} x\na {"a":2} y\xff\na {"a":3} z\n\xfe\n'
    read = records(text, regex=ONE_LINE)
    assert [type(r[1]).__name__ for r in read] == ["Event", "Rejected", "Event", "Rejected"]
    assert "not valid UTF-8" in read[1][1].reason
    assert read[3][1].place.endswith(":4")


def test_line_ends_and_byte_order_mark_are_accepted() -> None:
    text = b'\xef\xbb\xbfa {"a":1} x\r\na {"a":2} y\r\n'
    assert [r[1].type for r in records(text, regex="^" + ONE_LINE + "$")] == ["x", "y"]


def test_groups_that_did_not_match_are_absent() -> None:
    regex = r"(?<host>\S+) (?<clock>{.*?})( at (?<where>\w+))? : (?<event>.*)"
    first, second = records('a {"a":1} at home : x\na {"a":2} : y', regex=regex)
    assert (first[1].data, second[1].data) == ({"where": "home"}, {})


def test_fields_rename_groups() -> None:
    regex = r"(?<pid>\d+) (?<vc>{.*}) (?<what>\S+) (?<event>.*)"
    (one,) = records(
        '7 {"7":1} T rest', regex=regex, fields={"node": "pid", "clock": "vc", "type": "what"}
    )
    assert one[1] == Event("7", "T", {"7": 1}, data={"event": "rest"})


def test_positional_and_short_clocks_are_read() -> None:
    regex = r"(?<host>\S+) (?<clock>\S+) (?<event>.*)"
    (positional,) = records("b [1,2] x\n", regex=regex, nodes=("a", "b"))
    (short,) = records("b a:1;b:3 y\n", regex=regex)
    assert positional[1].clock == {"a": 1, "b": 2}
    assert short[1].clock == {"a": 1, "b": 3}


def test_control_events_need_no_clock() -> None:
    regex = r"(?<host>\S+) (?<clock>{.*})? ?(?<event>.*)"
    read = records('a {"a":1} x\nb ketal.leave\n', regex=regex)
    assert read[1][1] == Control("leave", node="b")


def test_delimiter_divides_executions() -> None:
    text = 'a {"a":1} x\n--\n--\na {"a":1} y\n--\nb {"b":1} z\nstray'
    read = records(text, regex=ONE_LINE, delimiter="^--$")
    assert [(r[0], place(r).rpartition(":")[2]) for r in read] == [
        ("1", "1"),
        ("2", "4"),
        ("3", "6"),
        ("3", "7"),
    ]
    assert read[3][1].execution == "3"
    assert {r[0] for r in records(text, regex=ONE_LINE, delimiter="^==$")} == {""}


def test_parts_of_the_same_name_are_distinct_in_a_file_and_joined_across_files() -> None:
    text = b'= r =\na {"a":1} x\n= r =\na {"a":1} y\n'
    other = b'= r =\nb {"b":1} z\n'
    log = read_log(
        io.BytesIO(text), io.BytesIO(other), regex=ONE_LINE, delimiter="^= (?<trace>.*) =$"
    )
    assert {name: [e.type for e in part] for name, part in log.executions.items()} == {
        "r": ["x", "z"],
        "r (2)": ["y"],
    }


def test_naming_many_parts_alike_takes_linear_work() -> None:
    count = 2_000
    text = '= r =\na {"a":1} x\n' * count
    read, lines = counted_lines(
        lambda: records(text, regex=ONE_LINE, delimiter="^= (?<trace>.*) =$")
    )
    assert [read[0][0], read[-1][0]] == ["r", f"r ({count})"]
    assert lines < 300 * count


def test_numbers_of_parts_continue_across_files() -> None:
    files = [io.BytesIO(b'a {"a":1} x\n--\na {"a":1} y\n') for _ in range(2)]
    log = read_log(*files, regex=ONE_LINE, delimiter="^--$")
    assert list(log.executions) == ["1", "2", "3", "4"] == list(log.executions)


def test_file_may_begin_with_its_expressions() -> None:
    text = ONE_LINE + '\n^--$\na {"a":1} x\n--\na {"a":1} y\n'
    assert [(r[0], r[1].type, r[3]) for r in records(text)] == [("1", "x", 3), ("2", "y", 5)]
    # Options take precedence over the header of the file, whose lines are still not events.
    assert [r[0] for r in records(text, regex=ONE_LINE, delimiter="^=$")] == ["", "", ""]


def test_written_events_are_read_back() -> None:
    first = Event("a", " T\t{x}", {"a": 1}, time=1.5, data={"x": "\t[y]\n"})
    second = Event("é", "=== x ===", {"a": 1, "é": 1}, receives=["a@1"], id="[x}=\\")
    text = shiviz_text([("one", [first, second]), ("two", [first])])
    options = {"regex": WRITTEN_REGEX, "fields": WRITTEN_FIELDS}
    read = records(text, delimiter="^=== (?<trace>.*) ===$", **options)
    assert [(name, item) for name, item, _, _ in read] == [
        ("one", first), ("one", second), ("two", first),
    ]  # fmt: skip
    assert [item.id for _, item, _, _ in read] == [None, second.id, None]
    assert WRITTEN_REGEX in (ROOT / "docs" / "cli.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Event("a", "x\ny", {"a": 1}), "a@1: an event in a ShiViz log must be one line"),
        (Event("a", "x\n", {"a": 1}), "a@1: an event in a ShiViz log must be one line"),
        (Event("a", "x", {"a": 1}, id="i\tj"), "a@1: an id in a ShiViz log must be one line"),
        (Event("a", "x", {"a": 1}, id="i\n"), "a@1: an id in a ShiViz log must be one line"),
        (Event(" a", "x", {" a": 1}), " a@1: a host in a ShiViz log must not contain white space"),
        (Event("a b", "x", {"a b": 1}), "a b@1: a host in a ShiViz log must not contain white"),
    ],
)
def test_event_that_could_not_be_read_back_is_not_written(event: Event, reason: str) -> None:
    with pytest.raises(SettingError, match=f"^{re.escape(reason)}"):
        shiviz_text([("", [event])])


SAME = [
    # expression in JavaScript's syntax, text, whether it matches
    (r"(?<x>\d+)", "a12", True),
    (r"(?P<x>\d+)", "a12", True),
    (r"[^]", "\n", True),
    (r"a[]", "a", False),
    (r"\u0041\u{42}\x43", "ABC", True),
    (r"\cJ", "\n", True),
    (r"\Caf\C", "CafC", True),
    (r"(?<event>\C)", "é", False),
    (r"[\b]", "\b", True),
    (r"\/[/]", "//", True),
    (r"{.*}", "{}", True),
    (r"[(?=]+x", "(?=x", True),
    (r"\(?<b", "(<b", True),
    (r"[\]a]b", "]b", True),
    (r"é.“$", "éx“\nnext", True),
    (r"^b$", "a\nb\nc", True),
    (r"end\Z", "the end", True),
    (r"\0", "\0", True),
]


@pytest.mark.parametrize(("regex", "text", "found"), SAME)
def test_javascript_regex_syntax_is_accepted(regex: str, text: str, found: bool) -> None:
    assert (compile_regex(regex).search(text.encode()) is not None) is found


UNABLE = [
    (r"a(?=b)", "uses lookahead at column 2, which cannot be matched in linear time"),
    (r"a(?!b)", "uses lookahead"),
    (r"(?<=a)b", "uses lookbehind"),
    (r"(?<!a)b", "uses lookbehind"),
    (r"(a)\1", "uses a backreference at column 4"),
    (r"(?<x>a)\k<x>", "uses a backreference"),
    (r"(?P<x>a)(?P=x)", "uses a backreference"),
    (r"(?>a)", "uses an atomic group"),
    (r"a++", "is not a valid regular expression (RE2): bad repetition operator"),
    (r"(a", "is not a valid regular expression (RE2): missing )"),
    (r"a{1,5000}", "is not a valid regular expression (RE2): "),
    (r"((a{1000}){1000}){1000}", "is not a valid regular expression (RE2): "),
    (r"(?<x>a)(?<x>b)", "has two groups named 'x'"),
    ("a" * 10_001, "is longer than 10000 bytes (limit regex_bytes_max)"),
    ("\\", "is not a valid regular expression (RE2): "),
]


@pytest.mark.parametrize(("regex", "reason"), UNABLE, ids=range(len(UNABLE)))
def test_unsupported_syntax_is_reported_at_once(regex: str, reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_log(io.BytesIO(b""), regex=regex)
    assert str(caught.value).startswith("regex " + reason)
    with pytest.raises(SettingError, match=r"^delimiter "):
        read_log(io.BytesIO(b""), delimiter=regex)


def test_regex_without_required_groups_is_refused() -> None:
    with pytest.raises(SettingError, match="regex has no group 'clock'; it must have the named"):
        read_log(io.BytesIO(b""), regex="(?<event>.*) (?<host>.*)")


def test_hostile_text_is_matched_in_linear_time() -> None:
    """The bound is on CPU time: the text is matched by re2."""
    regex = r"(?<host>(a*)*b) (?<clock>{.*}) (?<event>.*)"
    started = time.process_time()
    (only,) = records("a" * 200_000, regex=regex)
    assert "matches nothing" in only[1].reason
    assert time.process_time() - started < 10


def test_file_beyond_log_bytes_max_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"larger than 10 bytes \(limit log_bytes_max\)"):
        records('a {"a":1} x\n', limits=Limits(log_bytes_max=10))


def test_file_of_more_executions_than_executions_max_is_an_error() -> None:
    text = 'a {"a":1} x\n==\na {"a":1} y\n'
    options = {"regex": ONE_LINE, "delimiter": "^==$"}
    assert len(records(text, limits=Limits(executions_max=2), **options)) == 2
    with pytest.raises(SettingError, match=r"more than 1 executions \(limit executions_max\)"):
        records(text, limits=Limits(executions_max=1), **options)


def test_event_text_beyond_line_bytes_max_is_rejected() -> None:
    """The limit of a line in other formats applies to the text of a match."""
    text = f'a {{"a":1}} {"x" * 40}\na {{"a":2}} y\n'
    long, short = records(text, regex=ONE_LINE, limits=Limits(line_bytes_max=49))
    assert long[1].reason == (
        "the event's text is longer than 49 bytes (limit line_bytes_max) and was skipped"
    )
    assert (place(long), short[1].type) == ("<file>:1", "y")
    assert len(records(text, regex=ONE_LINE, limits=Limits(line_bytes_max=50))[0][1].type) == 40


def test_places_contain_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text('a {"a":1} x\noops')
    assert [place(r) for r in read_log(path, regex=ONE_LINE).records()] == [
        f"{path}:1",
        f"{path}:2",
    ]
