"""The progress of a command: per cent, rate and time left, while it reads and while it judges."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import ketal
from ketal.cli.output.progress import ProgressLine, StatusLine
from ketal.model.limits import DEFAULT
from ketal.runtime.batch_run import LogPass
from ketal.runtime.log_release import JUDGED_TOGETHER

LINES = [json.dumps({"node": "n", "type": "a", "clock": {"n": n}}) + "\n" for n in range(1, 20_001)]


def line(
    read: float | None = None, judged: float | None = None, records: int = 0, done: bool = False
) -> ProgressLine:
    """Return the progress line of a command that has read `records` records."""
    out = ProgressLine(lambda: read, lambda: judged)
    out._records = records
    if done:
        out._phase = "judged"
    return out


@pytest.mark.parametrize(
    ("shown", "elapsed_s", "text"),
    [
        (line(), 0.0, "0 records read"),
        (line(records=2_000), 1.0, "2,000 records read"),
        (line(records=2_000), 4.0, "2,000 records read, 500 a second"),
        (line(0.25, records=2_000), 1.0, "25%, 2,000 records read"),
        (line(0.25, records=2_000), 20.0, "25%, 2,000 records read, 100 a second, 1:00 left"),
        (line(0.01, records=100), 100.0, "1%, 100 records read, 1 a second, 2:45:00 left"),
        (line(1.5, records=100), 10.0, "100%, 100 records read, 10 a second, 0:00 left"),
        (line(0.0, records=100), 10.0, "0%, 100 records read, 10 a second"),
        (line(1.0, None, 100, done=True), 10.0, "100 records read"),
        (line(1.0, 0.5, 100, done=True), 10.0, "50%, 50 records judged, 5 a second, 0:10 left"),
        (line(1.0, 0.0, 100, done=True), 10.0, "0%, 0 records judged"),
    ],
)
def test_text_of_the_progress_line(shown: ProgressLine, elapsed_s: float, text: str) -> None:
    assert shown.text(elapsed_s) == text


def test_log_removed_while_it_is_read_has_no_progress(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(LINES))
    log = ketal.read_log(path)
    batches = log.batches()
    next(batches)
    path.unlink()
    assert log.share_read() is None
    assert sum(len(batch.items) for batch in batches) > 1_000


def shares_read(log: ketal.Log) -> list[float | None]:
    shares = [log.share_read()]
    for _ in log.batches():
        shares.append(log.share_read())
    return [*shares, log.share_read()]


@pytest.mark.parametrize("write", [Path.write_bytes, lambda p, b: p.write_bytes(gzip.compress(b))])
def test_share_of_files_read_grows_from_zero_to_one(
    tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, lines in zip(paths, (LINES[:5_000], LINES[5_000:]), strict=True):
        write(path, "".join(lines).encode())
    shares = [share for share in shares_read(ketal.read_log(*paths)) if share is not None]
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert shares == sorted(shares)
    assert len(set(shares)) > 3


def test_input_without_a_size_has_no_share(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(LINES[0])
    with path.open("rb") as file:
        assert shares_read(ketal.read_log(file)) == [None, None, None]
    rows = [{"node": "n", "type": "a", "clock": {"n": 1}}]
    assert set(shares_read(ketal.read_log(rows))) == {None}


def test_share_of_events_judged_grows_from_zero_to_one() -> None:
    count = 10 * JUDGED_TOGETHER
    events = [ketal.Event("n", "a", {"n": number + 1}) for number in range(count)]
    program = ketal.compile('pattern P { order CausalOrder; event A = type == "a"; find any A; }')
    judging = LogPass(program, events, DEFAULT)
    assert judging.share_judged() is None
    shares = [judging.share_judged() for _ in judging]
    assert shares == [number // JUDGED_TOGETHER / 10 for number in range(count)]
    assert judging.share_judged() == 1.0
    judging = LogPass(
        ketal.compile('pattern P { event A = type == "a"; find A; }'), events, DEFAULT
    )
    assert {judging.share_judged() for _ in judging} == {None}


def test_status_line_is_shown_without_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        status = StatusLine()
        status.show("[red] lag 3, [/] lag 4")
        status.stop()
    shown = b""
    with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # raised at the end on Linux
        while part := screen.read(65_536):
            shown += part
    assert b"[red] lag 3, [/] lag 4" in shown
