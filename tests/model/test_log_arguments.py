"""How the records of a log are grouped into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.model.log_arguments import batches_of


def _pushes(count: int) -> list[ketal.Event]:
    return [ketal.Event(node="n", type="push", clock={"n": n + 1}) for n in range(count)]


@pytest.mark.parametrize("form", ["list", "Log.of", "rows", "csv", "shiviz"])
def test_records_in_memory_are_processed_in_batches(form: str, tmp_path: Path) -> None:
    """A batch costs about as much as a few single events."""
    events = _pushes(2_000)
    rows = [{"node": e.node, "type": e.type, "clock": e.clock} for e in events]
    csv, shiviz = tmp_path / "run.csv", tmp_path / "run.log"
    csv.write_text("node,type,clock\n" + "".join(f'n,push,"n:{n + 1}"\n' for n in range(2_000)))
    shiviz.write_text("".join(f'n {{"n":{n + 1}}} push\n' for n in range(2_000)))
    logs: dict[str, ketal.Log | list[ketal.Event]] = {
        "list": events,
        "Log.of": ketal.Log.of(events),
        "rows": ketal.read_log(rows),
        "csv": ketal.read_log(csv),
        "shiviz": ketal.read_log(shiviz, regex=r"(?<host>\S*) (?<clock>{.*}) (?<event>.*)"),
    }
    batches = list(batches_of(logs[form]))
    assert [item for batch in batches for item in batch.items] == events
    assert len(batches) == 2


def test_records_of_an_iterator_are_processed_one_by_one() -> None:
    """A verdict on the first event does not wait for the second."""
    program = ketal.compile('pattern P { event Push = type == "push"; find any Push; }')
    taken = []

    def arriving() -> Iterator[ketal.Event]:
        for event in _pushes(3):
            taken.append(event)
            yield event

    verdicts = iter(ketal.run(program, arriving()))
    assert next(verdicts).verdict == "match"
    assert len(taken) == 1


def test_rows_without_a_length_are_processed_one_by_one() -> None:
    """An iterable without a length may be as slow as an iterator, even if it can be read again."""
    program = ketal.compile('pattern P { event Push = type == "push"; find any Push; }')
    taken = []

    class Coming:
        def __iter__(self) -> Iterator[dict[str, object]]:
            for count in (1, 2, 3):
                taken.append(count)
                yield {"node": "n", "type": "push", "clock": {"n": count}}

    log = ketal.read_log(Coming())
    assert next(iter(ketal.run(program, log))).verdict == "match"
    assert taken == [1]
    assert len(list(log)) == 3


def test_events_of_a_collection_before_its_error_are_fed() -> None:
    """A collection may read its items from elsewhere, and fail in the middle."""

    class Damaged(deque[ketal.Event]):
        def __iter__(self) -> Iterator[ketal.Event]:
            yield from list(super().__iter__())
            raise OSError("damaged")

    program = ketal.compile('pattern P { event Push = type == "push"; find any Push; }')
    monitor = ketal.Monitor(program)
    with pytest.raises(OSError, match="damaged"):
        monitor.feed_many(Damaged(_pushes(1_500)))
    assert monitor.summary["events"]["accepted"] == 1_500


def test_events_read_before_an_error_are_judged() -> None:
    """The verdicts of a log come before the error that ends it."""
    program = ketal.compile('pattern P { event Push = type == "push"; find any Push; }')
    rows: list[Any] = [{"node": "n", "type": "push", "clock": {"n": 1}}, *_pushes(1)]
    verdicts = iter(ketal.run(program, ketal.read_log(rows)))
    assert next(verdicts).verdict == "match"
    with pytest.raises(TypeError, match="a row must be a dict"):
        next(verdicts)


def test_a_monitor_is_fed_the_records_of_a_log_with_their_places(tmp_path: Path) -> None:
    """A rejection has its place, and is a verdict between those of the events around it."""
    program = ketal.compile('pattern P { event Push = type == "push"; find any Push; }')
    log = tmp_path / "run.jsonl"
    ketal.write_jsonl(_pushes(2), log)
    first, second = log.read_text().splitlines()
    log.write_text(f"{first}\n\n{{}}\n{second}\n")
    read = ketal.read_log(log)
    fed = ketal.Monitor(program).feed_many(read)
    assert [(one.verdict, getattr(one, "place", "")) for one in fed] == [
        ("match", ""), ("rejected", f"{log}:3"), ("match", ""),
    ]  # fmt: skip
    one_by_one = ketal.Monitor(program)
    assert fed == [
        verdict
        for _, item, file, line in read.records()
        for verdict in one_by_one.feed(item, place=f"{file}:{line}")
    ]
