"""Texts of clocks are read as they were written, and what is no text of a clock is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.interval_tree import (
    DEPTH_MAX,
    SEED,
    IntervalTreeClock,
    IntervalTreeClocks,
    event,
    fork,
    join,
    literal,
)
from ketal.clocks.scheme import Scheme
from ketal.clocks.schemes import scheme_named
from ketal.clocks.texts.clock_texts import (
    interval_tree_clock_of,
    interval_tree_events_of,
    json_clock,
    json_text,
    store_text,
    store_vector,
    vector_of,
    vector_text,
    version_of,
    version_text,
)
from ketal.clocks.texts.member_list import header_clock, header_text, members_of, members_text
from ketal.clocks.versions.version_vectors import StoreReplica, Version
from ketal.errors import EventError
from ketal.trace import message_header
from tests.clocks.executions import SampleRun, sample_runs

COUNTERS = st.integers(1, 2**63 - 1)
ANY_NAME = st.text(max_size=8)
CLOCKS = st.dictionaries(ANY_NAME, COUNTERS, max_size=5)
FORM = set(",:[]()")


def _plain(name: str) -> bool:
    return bool(name) and not FORM.intersection(name) and name == name.strip()


PLAIN_NAME = st.text(min_size=1, max_size=8).filter(_plain)
PLAIN_CLOCKS = st.dictionaries(PLAIN_NAME, COUNTERS, max_size=5)
SERVERS = PLAIN_NAME.filter(lambda name: not name[-1].isdecimal())


# --- read as they were written ------------------------------------------------------


@given(clock=CLOCKS)
def test_every_clock_has_a_header_and_a_json_object(clock: dict[str, int]) -> None:
    header = header_text(clock)
    assert header_clock(header) == clock
    assert header.isascii()
    assert header.isprintable()
    assert " " not in header
    assert json_clock(json_text(clock)) == json_clock(json_text(clock).encode()) == clock


@given(clock=CLOCKS, data=st.data())
def test_the_header_of_a_message_has_its_clock_in_the_same_form(
    clock: dict[str, int], data: st.DataObject
) -> None:
    node = data.draw(ANY_NAME)
    clock = {**clock, node: data.draw(COUNTERS)}
    text = message_header.encoded(node, clock)
    assert text.split(";")[2] == members_text(clock.items())
    assert header_clock(text.split(";")[2]) == message_header.decoded(text).clock == clock


@given(vector=PLAIN_CLOCKS)
def test_version_vectors_of_stores_are_read_as_they_were_written(vector: dict[str, int]) -> None:
    assert vector_of(vector_text(vector)) == vector
    assert store_vector(store_text(vector)) == vector
    assert store_vector(f"{store_text(vector)} ts:1463936934020") == vector


@given(server=SERVERS, counter=COUNTERS, context=PLAIN_CLOCKS)
def test_a_dotted_version_is_read_as_it_was_written(
    server: str, counter: int, context: dict[str, int]
) -> None:
    version = Version(server, counter, context, "value")
    assert version_of(version_text(version), "value") == version


@given(names=st.lists(SERVERS.filter(lambda n: n.isalnum()), min_size=1, max_size=3, unique=True))
def test_the_versions_of_a_store_are_written_as_they_are_shown(names: list[str]) -> None:
    whole = StoreReplica(names[0])
    for name in names:
        whole = whole.sync(StoreReplica(name).put("one").put("two", {"x": 1}))
    for version in whole.siblings:
        assert str(version) == version_text(version)
        assert version_of(str(version), version.value) == version


@given(data=st.data())
def test_an_interval_tree_clock_is_read_as_it_was_written(data: st.DataObject) -> None:
    replicas = [SEED]
    for _ in range(data.draw(st.integers(0, 25))):
        at = data.draw(st.integers(0, len(replicas) - 1))
        match data.draw(st.sampled_from(["event", "fork", "join"])):
            case "event":
                replicas[at] = event(replicas[at])
            case "fork":
                replicas += fork(replicas.pop(at))
            case "join" if len(replicas) > 1:
                one = replicas.pop(at)
                replicas.append(join(replicas.pop(), one))
    for clock in replicas:
        assert interval_tree_clock_of(literal(clock)) == clock
        assert interval_tree_clock_of(literal(clock).replace(" ", "")) == clock


@given(run=sample_runs(steps_max=25))
def test_the_text_of_an_interval_tree_stamp_is_read_back(run: SampleRun) -> None:
    scheme = IntervalTreeClocks()
    for stamp in scheme.stamped(run.happenings()):
        assert IntervalTreeClock(0, interval_tree_events_of(scheme.text(stamp))) == stamp


@given(run=sample_runs(steps_max=25))
def test_the_text_of_a_vector_stamp_is_a_json_clock(run: SampleRun) -> None:
    scheme: Scheme[Any] = scheme_named("vector")
    for stamp in scheme.stamped(run.happenings()):
        assert json_clock(scheme.text(stamp)) == stamp.clock
        assert json_text(stamp.clock) == scheme.text(stamp)


# --- forms ----------------------------------------------------------------------------


def test_how_a_clock_is_written() -> None:
    clock = {"b": 5, "a": 3}
    assert header_text(clock) == "a=3,b=5"
    assert json_text(clock) == '{"a":3,"b":5}'
    assert vector_text(clock) == "[a:3,b:5]"
    assert store_text(clock) == "version(a:3, b:5)"
    assert header_text({}) == ""
    assert (json_text({}), vector_text({}), store_text({})) == ("{}", "[]", "version()")


def test_members_have_an_order_and_may_come_twice_where_they_are_no_clock() -> None:
    assert members_of("b=2,a=1,b=1") == [("b", 2), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("((0, 0), 0)", IntervalTreeClock(0, 0)),
        ("((1, 1), (1, 2, 2))", IntervalTreeClock(1, 3)),
        ("(((1, 1), 0), (1, 2, 3))", IntervalTreeClock((1, 0), (3, 0, 1))),
        ("(((0, 0), (0, 1)), 4)", IntervalTreeClock((0, (0, 1)), 4)),
    ],
)
def test_a_literal_that_is_not_in_normal_form_is_brought_into_it(
    text: str, expected: IntervalTreeClock
) -> None:
    assert interval_tree_clock_of(text) == expected


def test_zeros_are_dropped() -> None:
    assert header_clock("a=0,b=2") == {"b": 2}
    assert json_clock('{"a":0,"b":2}') == {"b": 2}
    assert vector_of("[a:0,b:2]") == {"b": 2}
    assert store_vector("version(1:0, 2:2)") == {"2": 2}


def test_the_dot_of_a_server_whose_name_ends_in_a_digit_has_no_text() -> None:
    """[]s12 would be version 12 of s, or version 2 of s1."""
    assert version_of("[]s12") == Version("s", 12, {})
    with pytest.raises(ValueError, match="the server's name 's1' ends in a digit"):
        version_text(Version("s1", 2, {}))


@pytest.mark.parametrize("name", ["", "a,b", "a:1", "[a", "a]", "(a", "a)", " a", "a\n"])
def test_a_name_that_the_form_cannot_write_is_refused(name: str) -> None:
    for write in (vector_text, store_text):
        with pytest.raises(ValueError, match="is empty or has a character of the form"):
            write({name: 1})
    with pytest.raises(ValueError, match="is empty or has a character of the form"):
        version_text(Version(name, 1, {}))


# --- errors ---------------------------------------------------------------------------


NO_CLOCKS: list[tuple[Callable[[str], Any], str, str]] = [
    (header_clock, "a", "'a' is no entry of a clock: name=counter"),
    (header_clock, "a=1,", "'' is no entry of a clock"),
    (header_clock, "a=-1", "'a=-1' is no entry of a clock"),
    (header_clock, "a=\u0663", "is no entry of a clock"),
    (header_clock, "%ff=1", "the name in '%ff=1' is no UTF-8"),
    (header_clock, "a=1,a=2", "'a=1,a=2' has two entries of one name"),
    (header_clock, f"a={2**63}", "the entry of 'a' must be an integer from 0 on, not"),
    (json_clock, "{", "'{' is no JSON"),
    (json_clock, "[1]", "'[1]' is no object of counters"),
    (json_clock, '{"a":1.5}', "the entry of 'a' must be an integer from 0 on, not 1.5"),
    (json_clock, '{"a":true}', "the entry of 'a' must be an integer from 0 on, not True"),
    (json_clock, '{"a":-1}', "the entry of 'a' must be an integer from 0 on, not -1"),
    (json_clock, "[" * 100_000, "is no JSON"),
    (vector_of, "a:1", "'a:1' is no version vector: [a:1,b:2]"),
    (vector_of, "[a:1", "'[a:1' is no version vector"),
    (vector_of, "[a]", "'a' in '[a]' is no name:counter"),
    (vector_of, "[a:1,]", "'' in '[a:1,]' is no name:counter"),
    (vector_of, "[a:b:1]", "'a:b:1' in '[a:b:1]' is no name:counter"),
    (vector_of, "[a:1,a:1]", "'a' has two entries"),
    (version_of, "[a:1]", "'[a:1]' is no dotted version vector: [a:1,b:2]s3"),
    (version_of, "[a:1]3", "is no dotted version vector"),
    (version_of, "[a:1]s", "is no dotted version vector"),
    (version_of, "[]s0", "the entry of 's' must be an integer from 1 on, not 0"),
    (store_vector, "version(1:2", "is no vector of a store: version(1:3, 2:5)"),
    (store_vector, "version(1:2) at 5", "is no vector of a store"),
    (store_vector, "version(1)", "'1' in 'version(1)' is no name:counter"),
    (interval_tree_clock_of, "", "'' is no literal of trees"),
    (interval_tree_clock_of, "3", "'3' is no interval tree clock: ((1, 0), (1, 2, 0))"),
    (interval_tree_clock_of, "(1, 2, 0)", "is no interval tree clock"),
    (interval_tree_clock_of, "(2, 0)", "2 is no identity of 0, 1 and pairs of these"),
    (interval_tree_clock_of, "((1, 0, 0), 0)", "[1, 0, 0] is no identity"),
    (interval_tree_clock_of, "(1, (1, 2))", "itc is written as n, or [n, left, right]"),
    (interval_tree_clock_of, "(1, true)", "is no literal of trees"),
    (interval_tree_events_of, "(1, 2, 3", "is no literal of trees"),
    (interval_tree_events_of, "1, 2", "is no literal of trees"),
    (interval_tree_events_of, "01", "is no literal of trees"),
    (interval_tree_events_of, "(1, 2, 0) 3", "is no literal of trees"),
    (interval_tree_events_of, "(" * 100_000, "is no literal of trees"),
]


@pytest.mark.parametrize(("read", "text", "reason"), NO_CLOCKS, ids=lambda value: str(value)[:20])
def test_what_is_no_text_of_a_clock_is_an_error(
    read: Callable[[str], Any], text: str, reason: str
) -> None:
    with pytest.raises(EventError) as error:
        read(text)
    assert error.value.reason.startswith("clock: ")
    assert reason in error.value.reason
    assert len(error.value.reason) < 300


FORMS: list[tuple[Callable[[str], Any], Callable[[Any], str]]] = [
    (header_clock, header_text),
    (json_clock, json_text),
    (vector_of, vector_text),
    (version_of, version_text),
    (store_vector, store_text),
    (interval_tree_clock_of, literal),
]


@given(text=st.text() | st.text(alphabet='[](){}:=,0123456789ab "%'))
def test_any_text_is_a_clock_that_can_be_written_or_an_error(text: str) -> None:
    for read, write in FORMS:
        clock = _clock_or_error(read, text)
        if isinstance(clock, EventError):
            assert clock.reason.startswith("clock: ")
        else:
            assert read(write(clock)) == clock


def _clock_or_error(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except EventError as error:
        return error


def test_a_tree_of_too_many_levels_is_an_error() -> None:
    def nested(levels: int) -> str:
        return "(1, 0, " * levels + "1" + ")" * levels

    assert interval_tree_events_of(nested(DEPTH_MAX))
    with pytest.raises(EventError, match="200 levels at most"):
        interval_tree_events_of(nested(DEPTH_MAX + 1))
    deep = "(1, " * (DEPTH_MAX + 1) + "0" + ")" * (DEPTH_MAX + 1)
    with pytest.raises(EventError, match="is no identity"):
        interval_tree_clock_of(f"({deep}, 0)")
