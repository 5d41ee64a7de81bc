"""The paper's replicated stack: the violations of each pattern over each run, by dots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ketal
from examples.replicated_stack import make_logs

from .transcripts import ROOT

FOLDER = ROOT / "examples" / "replicated_stack"
LOGS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
Blamed = set[tuple[str, str]]
NOBODY: Blamed = set()

# pattern file → pattern → log → (node of the copy, event) of each violation
VERDICTS: dict[str, dict[str, dict[str, Blamed]]] = {
    "fig12": {
        "Fig12": {
            "correct": NOBODY,
            "correct_shuffled": NOBODY,
            "wrong_push": {("n3", "n1@4")},
            "wrong_pop": {("n2", "n2@5")},
            "wrong_pop_overtaken": {("n2", "n2@5")},
            "stale_push": {("n3", "n1@4")},
            "concurrent_pushes": NOBODY,
            "lost_push": NOBODY,
        }
    },
    "fig13": {
        "Fig13": {
            "correct": NOBODY,
            "correct_shuffled": NOBODY,
            "wrong_push": {("n3", "n1@4")},
            "wrong_pop": {("n2", "n2@5")},
            "wrong_pop_overtaken": {("n2", "n2@5")},
            "stale_push": {("n3", "n1@4")},
            "concurrent_pushes": {("n1", "n2@3"), ("n2", "n1@4")},
            "lost_push": NOBODY,
        }
    },
    "without": {
        "Fig12WithoutCausal": {
            "correct": NOBODY,
            "correct_shuffled": NOBODY,
            "wrong_push": {("n3", "n1@4")},
            "wrong_pop": {("n2", "n2@5")},
            "stale_push": NOBODY,
        },
        "Fig12WithoutOrder": {
            "correct": NOBODY,
            "correct_shuffled": {("n1", "n1@13"), ("n2", "n1@13"), ("n3", "n3@13")},
            "stale_push": {("n3", "n1@4")},
            "wrong_pop_overtaken": {("n2", "n2@4")},
        },
        "Fig13WithoutOrder": {"correct": NOBODY, "wrong_pop_overtaken": NOBODY},
    },
    "everywhere": {
        "Fig12Everywhere": {"lost_push": {("n2", "n2@3")}},
        "Fig13Everywhere": {"lost_push": NOBODY},
    },
    "fig02": {
        "Fig2ByArrival": {"fig01": {("C", "B@2")}},
        "Fig2": {"fig01": NOBODY},
    },
    "fig04": {
        "Fig4": {
            "fig05": {("A", "A@2"), ("B", "A@2"), ("C", "A@2")}
            | {("A", "A@4"), ("B", "A@4"), ("C", "A@4")}
        }
    },
}
CASES = [
    pytest.param(file, name, log, blamed, id=f"{name}-{log}")
    for file, patterns in VERDICTS.items()
    for name, logs in patterns.items()
    for log, blamed in logs.items()
]
# Lint warnings: patterns whose verdicts may depend on the order of concurrent events.
WARNINGS = {
    "everywhere": [("K220", "Fig12Everywhere"), ("K220", "Fig13Everywhere")],
    "fig02": [("K220", "Fig2ByArrival"), ("K220", "Fig2")],
    "fig04": [("K220", "Fig4")],
}


@pytest.mark.parametrize(("file", "name", "log", "blamed"), CASES)
def test_violations_blame_the_expected_events(
    file: str, name: str, log: str, blamed: Blamed
) -> None:
    program = ketal.load(FOLDER / f"{file}.ketal")[name]
    verdicts = list(ketal.run(program, ketal.read_log(FOLDER / f"{log}.jsonl")))
    assert {v.kind for v in verdicts} <= {"violation"}
    found = {
        (str(dict(v.scope)["node"]), str(v.event))
        for v in verdicts
        if isinstance(v, ketal.Violation)
    }
    assert found == blamed


@pytest.mark.parametrize("name", ["Fig12", "Fig13"])
def test_monitor_gives_the_same_verdicts_for_shuffled_arrival(name: str) -> None:
    program = ketal.load(FOLDER / f"{name.lower()}.ketal")
    with ketal.Monitor(program) as monitor:
        for event in ketal.read_log(FOLDER / "correct_shuffled.jsonl"):
            assert monitor.feed(event) == []
    assert monitor.summary["patterns"][name]["violations"] == 0
    assert monitor.summary["events"]["held_back"] == 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ketal")), ids=lambda path: path.stem)
def test_lint_gives_the_known_warnings(path: Path) -> None:
    found = [(d.code, d.pattern) for d in ketal.lint(path.read_text(encoding="utf-8"))]
    assert found == WARNINGS.get(path.stem, [])


@pytest.mark.parametrize("name", LOGS)
def test_logs_equal_the_output_of_the_generator(name: str) -> None:
    made = "".join(json.dumps(line) + "\n" for line in getattr(make_logs, name)())
    assert (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8") == made
    assert name in {make.__name__ for make in make_logs.LOGS}


@pytest.mark.parametrize("name", LOGS)
def test_clocks_of_the_logs_are_consistent(name: str) -> None:
    # An event that knows another event includes its clock, and a node's clock never shrinks.
    log = ketal.read_log(FOLDER / f"{name}.jsonl")
    clocks = {(event.node, event.counter): dict(event.clock) for event in log}
    for (node, counter), clock in clocks.items():
        known = [clocks[dot] for dot in clock.items() if dot != (node, counter)]
        if counter > 1:
            known.append(clocks[node, counter - 1])
        assert all(clock[other] >= count for past in known for other, count in past.items())


def test_readme_quotes_a_line_of_the_log() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    quoted = text.partition("```json\n")[2].partition("\n")[0]
    assert quoted in (FOLDER / "correct.jsonl").read_text(encoding="utf-8").splitlines()
