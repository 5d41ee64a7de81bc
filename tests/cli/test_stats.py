"""`ketal stats`: the statistics of a log as text and as JSON, and the exit code."""

from __future__ import annotations

import json

from tests.cli.conftest import RUN, Ketal, Write, event

SHOP = "".join(
    [
        event("a", "Cart.add", {"a": 1}, time=1.0, item="pen", price={"eur": 3}),
        event("a", "Cart.send", {"a": 2}, time=2.0, item="pen"),
        event("b", "Cart.take", {"a": 2, "b": 1}, time=63.0, item=None),
        event("b", "Cart.take", {"a": 2, "b": 2}, item="ink", price="free"),
        "no event\n",
    ]
)
SHOWN = """\
5 records = 4 events + 1 rejected
first rejected: shop.jsonl:5: the line is not JSON (pass --format if the log has another format)
time        1970-01-01T00:00:01Z to 1970-01-01T00:01:03Z (1.033 min); 3 events
concurrent  0.0% of 6 pairs of events: 0 concurrent, 6 ordered

nodes (2)
  "a" 2, "b" 2

attributes of all events (3)
         4  100.0%  item       string 3, null 1    "pen", "ink"
         2   50.0%  price      string 1, object 1  "free"
         1   25.0%  price.eur  number              3

types (3), each with the attributes that only some events have
         2   50.0%  "Cart.take"
           2  100.0%  item   string 1, null 1  "ink"
           1   50.0%  price  string            "free"
         1   25.0%  "Cart.add"
           1  100.0%  item       string  "pen"
           1  100.0%  price      object
           1  100.0%  price.eur  number  3
         1   25.0%  "Cart.send"
           1  100.0%  item  string  "pen"

messages (1, received by 1 event): according to the clocks, the first event
happened immediately before the second, an event of another node
         1  "Cart.send" → "Cart.take"
  from node to node
         1  "a" → "b"
"""


def test_stats_prints_the_tables(ketal: Ketal, write: Write) -> None:
    result = ketal("stats", write("shop.jsonl", SHOP))
    assert result.out == SHOWN
    assert (result.code, result.err) == (0, "")


def test_stats_prints_one_json_object(ketal: Ketal, write: Write) -> None:
    result = ketal("stats", "--output", "json", write("shop.jsonl", SHOP))
    assert result.code == 0
    ((key, stats),) = result.objects[0].items()
    assert (key, len(result.objects)) == ("stats", 1)
    assert stats["types"][0]["type"] == "Cart.take"
    assert stats["types"][0]["attributes"][0] == {
        "attribute": "item",
        "path": ["item"],
        "events": 2,
        "share": 1.0,
        "kinds": {"string": 1, "null": 1},
        "values": 1,
        "more_values": False,
        "examples": ["ink"],
    }
    assert stats["time"] == {
        "events": 3,
        "first": "1970-01-01T00:00:01Z",
        "last": "1970-01-01T00:01:03Z",
    }
    assert stats["first_rejected"].startswith("shop.jsonl:5: ")


def test_rows_option_sets_the_rows_of_tables(ketal: Ketal, write: Write) -> None:
    log = write("shop.jsonl", SHOP)
    few = ketal("stats", "--rows", "1", log)
    assert few.out.count("… and 2 more (--rows, --output json)") == 2
    assert "Cart.add" not in few.out
    assert ketal("stats", "--rows", "0", log).code == 2


def test_reading_options_apply(ketal: Ketal, write: Write) -> None:
    log = write("pair.log", 'alice {"alice":1}\nhello\nbob {"alice":1,"bob":1}\nhello too\n')
    result = ketal("stats", "--regex", r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)", log)
    assert '         1  "hello" → "hello too"' in result.lines
    moved = write("moved.jsonl", json.dumps({"pkt": {"n": "a", "vc": {"a": 1}}, "what": "x"}))
    fields = ["--field", "node=pkt.n", "--field", "clock=pkt.vc", "--field", "type=what"]
    assert ketal("stats", *fields, moved).lines[0] == "1 record = 1 event"


def test_several_logs_are_one_execution_and_standard_input_is_one(
    ketal: Ketal, write: Write
) -> None:
    first, *others = RUN.splitlines(keepends=True)
    result = ketal("stats", write("a.jsonl", first), "-", stdin="".join(others))
    assert result.lines[0] == "3 records = 3 events"


def test_several_executions_are_counted(ketal: Ketal, write: Write) -> None:
    text = '== one\na {"a":1}\nx\n== two\na {"a":1}\nx\n'
    words = ["--regex", r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)", "--delimiter", "^== .*$"]
    result = ketal("stats", *words, write("two.log", text))
    assert "executions  2" in result.lines
    assert result.lines[0] == "2 records = 2 events"


def test_table_cut_by_a_limit_names_it(ketal: Ketal, write: Write) -> None:
    result = ketal("stats", "--limit", "stats_types_max=2", write("shop.jsonl", SHOP))
    assert result.lines[-1] == "left out: 2 events of other types (limit stats_types_max = 2)"
    assert result.code == 0


def test_field_path_that_no_event_has_is_reported(ketal: Ketal, write: Write) -> None:
    log = write("plain.jsonl", event("a", "add", {"a": 1}, time=1.0))
    result = ketal("stats", "--field", "time=ts", log)
    assert result.lines[1].startswith(
        "time        no event has a time at ts (pass --field time=PATH "
    )
    bare = write("bare.jsonl", '{"node": "a", "type": "add", "clock": {"a": 1}}\n')
    result = ketal("stats", "--field", "data=of.it", bare)
    none = "attributes: no event has any at of.it (pass --field data=PATH to name their field)"
    assert none in result.lines
    assert (
        result.lines[1]
        == "time        no event has a time (pass --field time=PATH to name its field)"
    )


def test_one_event_without_its_past_is_counted_in_good_grammar(ketal: Ketal, write: Write) -> None:
    result = ketal("stats", write("torn.jsonl", event("b", "add", {"a": 1, "b": 1})))
    assert result.lines[-3:] == [
        "messages: the clocks imply none",
        "  1 event may also have received a message: an earlier",
        "  event is not in the log, or too far back in it (limit stats_entries_max)",
    ]


def test_long_span_of_time_is_a_plain_number_of_days(ketal: Ketal, write: Write) -> None:
    early = event("a", "add", {"a": 1}, time=0)
    log = write("reset.jsonl", early + event("a", "add", {"a": 2}, time=19_783 * 86_400))
    assert ketal("stats", log).lines[1] == (
        "time        1970-01-01T00:00:00Z to 2024-03-01T00:00:00Z (19,783 d); all events"
    )


def test_log_without_events_is_an_error(ketal: Ketal, write: Write) -> None:
    empty = ketal("stats", write("empty.jsonl", ""))
    assert (empty.code, empty.out) == (2, "0 records = 0 events\n")
    assert empty.err == "ketal: no event was read: there are no events in empty.jsonl\n"
    bad = ketal("stats", write("bad.jsonl", "x\ny\n"))
    assert bad.code == 2
    assert bad.lines[0] == "2 records = 0 events + 2 rejected"
    assert bad.err.startswith("ketal: no event was read: all 2 records were rejected; the first is")


def test_output_can_be_written_to_a_file_but_not_over_the_log(ketal: Ketal, write: Write) -> None:
    log = write("shop.jsonl", SHOP)
    assert ketal("stats", "--write", "stats.txt", log).out == ""
    assert ketal("stats", "--write", log, log).code == 2
    assert ketal("stats", log).out == log.parent.joinpath("stats.txt").read_text()
