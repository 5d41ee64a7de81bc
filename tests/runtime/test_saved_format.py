"""A state that an earlier build saved is loaded, unless `FORMAT` was raised since.

`saved_state/` has two states that were saved in the middle of an execution, before and after its
first departure of a node. If they cannot be loaded any more, or not with the same result, raise
`FORMAT` in `ketal/runtime/state/records.py`, and save the states again with
`python -m tests.runtime.test_saved_format`.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.model.log_arguments import LogItem
from ketal.runtime.state.records import FORMAT
from tests.validation import validate

FOLDER = Path(__file__).parent / "saved_state"
STATES = FOLDER / "states.json"
PROGRAM = ketal.compile((FOLDER / "patterns.ketal").read_text())
ITEMS: list[LogItem] = list(ketal.read_log(FOLDER / "events.jsonl"))
PLACES = (14, 30)
"""After how many items the states were saved."""


def fed(place: int) -> ketal.Monitor:
    """Return a monitor of the items before a place."""
    monitor = ketal.Monitor(PROGRAM)
    monitor.feed_many(ITEMS[:place])
    return monitor


def rest(monitor: ketal.Monitor, place: int) -> tuple[list[ketal.Verdict], Any]:
    """Return the verdicts on the items from a place on, and the summary."""
    return monitor.feed_many(ITEMS[place:]) + monitor.close(), monitor.summary


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_state_of_an_earlier_build_goes_on_like_a_monitor_that_never_stopped(number: int) -> None:
    saved = json.loads(STATES.read_text())
    assert saved["format"] == FORMAT, "save the states again, in the new format"
    state, place = zlib.decompress(base64.b64decode(saved["states"][number])), PLACES[number]
    try:
        monitor = ketal.Monitor.restore(PROGRAM, state)
    except ketal.StateError as fault:
        pytest.fail(f"saved states have changed, so raise FORMAT (see the head): {fault}")
    validate(monitor._execution)
    assert rest(monitor, place) == rest(fed(place), place)


def save() -> None:
    """Save the states in the current format."""
    states = [
        base64.b64encode(zlib.compress(fed(place).snapshot(), 9)).decode() for place in PLACES
    ]
    STATES.write_text(json.dumps({"format": FORMAT, "states": states}, indent=1) + "\n")


if __name__ == "__main__":
    save()
