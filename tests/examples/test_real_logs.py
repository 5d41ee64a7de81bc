"""Patterns over real logs give the verdicts that were found by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ketal
from examples.real_logs.by_hand import answers
from ketal.auditing.contents.contents_report import WIDTH
from ketal.errors import columns
from ketal.logs import load_config, open_source
from ketal.runtime.silence.names_in_log import absent_names

from .transcripts import ROOT

FOLDER = ROOT / "examples" / "real_logs"
LOGS = {
    "barrier": ("simpledb", "shiviz/simpledb.log"),
    "exchange": ("simpledb", "shiviz/simpledb.log"),
    "broadcast": ("broadcast", "shiviz/reliable-broadcast.log"),
    "stale_page": ("facebook", "shiviz/facebook.log"),
    "connections": ("voldemort", "shiviz/voldemort-simple-threadnames.log"),
    "token": ("token", "tlaplus/VectorClocksTests.ndjson"),
}
WARNINGS = {"broadcast": [("K221", "Disagreement")]}


def verdicts_of(name: str, data: Path) -> ketal.Verdicts:
    config, log = LOGS[name]
    source = load_config(FOLDER / f"{config}.toml").source
    return ketal.run(ketal.load(FOLDER / f"{name}.ketal"), open_source(source, [data / log]))


@pytest.mark.parametrize("name", LOGS)
def test_each_log_has_the_names_in_its_patterns(name: str, shared_data: Path) -> None:
    config, log = LOGS[name]
    read = open_source(load_config(FOLDER / f"{config}.toml").source, [shared_data / log])
    stats = ketal.stats(read)
    text = (FOLDER / f"{name}.ketal").read_text("utf-8")
    assert absent_names(ketal.compile(text).compiled, stats) == []
    assert max(map(columns, str(stats).splitlines()[2:])) <= WIDTH
    wrong = absent_names(ketal.compile(text.replace("type", "data.tpye")).compiled, stats)
    assert {one.code for one in wrong} == {"K302"}


@pytest.fixture(scope="module")
def by_hand(shared_data: Path) -> dict[str, Any]:
    return answers(shared_data)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("barrier", {"Barrier": 16, "StartedTooEarly": 0}),
        ("broadcast", {"Delivered": 9, "Unasked": 0, "Disagreement": 4}),
        ("token", {"Announced": 8, "WorkAfterTermination": 0, "Sleepless": 0}),
    ],
)
def test_match_counts_equal_the_hand_count(
    name: str, counts: dict[str, int], shared_data: Path, by_hand: dict[str, Any]
) -> None:
    verdicts = verdicts_of(name, shared_data)
    list(verdicts)
    patterns = verdicts.summary["patterns"]
    assert {pattern: found["matches"] for pattern, found in patterns.items()} == counts
    assert by_hand[name] == counts


def test_exchanges_of_each_pair_of_workers(shared_data: Path, by_hand: dict[str, Any]) -> None:
    found: Counter[str] = Counter()
    for match in verdicts_of("exchange", shared_data):
        assert isinstance(match, ketal.Match)
        assert match.returns is not None
        found["{from} to {to}".format_map(match.returns)] += 1
    assert found == by_hand["exchange"]
    assert set(found.values()) == {6}
    assert len(found) == 16


def test_stale_page_is_found(shared_data: Path, by_hand: dict[str, Any]) -> None:
    matches = [v for v in verdicts_of("stale_page", shared_data) if isinstance(v, ketal.Match)]
    assert [" ".join(map(str, match.events)) for match in matches] == by_hand["stale_page"]
    assert by_hand["stale_page"] == ["eastDC@13 westDC@8"]


def test_connections_left_open_are_found(shared_data: Path, by_hand: dict[str, Any]) -> None:
    verdicts = [v for v in verdicts_of("connections", shared_data) if v.kind != "rejected"]
    assert {v.kind for v in verdicts} == {"incomplete"}
    ports = [dict(v.scope)["port"] for v in verdicts if isinstance(v, ketal.Incomplete)]
    assert sorted(ports) == by_hand["connections"]
    assert len(ports) == 12


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ketal")), ids=lambda path: path.stem)
def test_lint_gives_the_known_warnings(path: Path) -> None:
    found = [(d.code, d.pattern) for d in ketal.lint(path.read_text(encoding="utf-8"))]
    assert found == WARNINGS.get(path.stem, [])
