"""The corpus: `tests/corpus/CASE/{pattern.ketal, events.jsonl, expected.jsonl}`.

The expected output is that of `ketal.run`, one verdict per line and then the summary,
checked by hand against the language's rules. Each case goes through `ketal.run`, the
oracle, and a Monitor with and without snapshot and restore after every event.

`python -m tests.test_corpus` updates the ids after a change of the fingerprint
or of an id's formula; it refuses a case in which anything else has changed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal import semantics
from ketal.model.events.dot import Dot
from ketal.model.events.event import Event
from ketal.model.events.happened_before import canonical
from tests.cases import facts
from tests.validation import validate

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir())


@cache
def _program(name: str) -> ketal.Program:
    return ketal.load(CORPUS / name / "pattern.ketal")


class Case:
    """One folder of the corpus."""

    def __init__(self, name: str) -> None:
        folder = CORPUS / name
        self.program = _program(name)
        self.log = ketal.read_log(folder / "events.jsonl")
        self.events = [event for event in self.log if isinstance(event, Event)]
        *self.verdicts, last = map(json.loads, (folder / "expected.jsonl").read_text().splitlines())
        self.summary: dict[str, Any] = last["summary"]
        for counts in self.summary["patterns"].values():
            for entry in (*counts.get("vacuous", ()), *counts.get("unknown", ())):
                entry["place"] = str(folder / entry["place"])
        self.compiled = self.program.one

    @property
    def counts(self) -> dict[str, int]:
        """The pattern's counts."""
        return {"halted": 0, **self.summary["patterns"][self.program.name]}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_corpus_has_every_kind_of_verdict() -> None:
    assert len(CASES) >= 15
    kinds = {v["verdict"] for name in CASES for v in Case(name).verdicts}
    assert kinds == {"match", "violation", "incomplete", "timed_out"}


def test_run_gives_the_expected_verdicts(case: Case) -> None:
    verdicts = ketal.run(case.program, case.log)
    assert [v.to_dict() for v in verdicts] == case.verdicts
    assert verdicts.summary == case.summary


def fed(case: Case, events: list[Event], *, restoring: bool) -> list[dict[str, Any]]:
    monitor = ketal.Monitor(case.program)
    verdicts = []
    for event in events:
        verdicts += monitor.feed(event)
        validate(monitor._execution)
        if restoring:
            monitor = ketal.Monitor.restore(case.program, monitor.snapshot())
            validate(monitor._execution)
    verdicts += monitor.close()
    assert not monitor.held_back()
    name = case.program.name
    assert monitor.summary["patterns"][name] == case.summary["patterns"][name]
    return [v.to_dict() for v in verdicts]


@pytest.mark.parametrize("restoring", [False, True], ids=["plain", "snapshot-restore"])
def test_monitor_gives_the_expected_verdicts(case: Case, restoring: bool) -> None:
    """With events in the order that `run` uses, the verdicts equal those of `run`."""
    offered = canonical(case.events) if case.compiled.causal else case.events
    assert fed(case, offered, restoring=restoring) == case.verdicts


def any_order(name: str) -> bool:
    """Return whether the verdicts do not depend on the arrival order."""
    compiled = Case(name).compiled
    return compiled.order_independent and compiled.kind == "find"


@pytest.mark.parametrize("name", [name for name in CASES if any_order(name)])
@pytest.mark.parametrize("restoring", [False, True], ids=["plain", "snapshot-restore"])
def test_monitor_gives_the_expected_verdicts_in_file_order(name: str, restoring: bool) -> None:
    """An order-independent `find` gives the same verdicts for any arrival order."""
    case = Case(name)
    verdicts = fed(case, case.events, restoring=restoring)
    assert without_time(verdicts) == without_time(case.verdicts)


def without_time(verdicts: list[dict[str, Any]]) -> list[str]:
    """Return verdicts sorted, without times (a match has the time of the last event to arrive)."""
    return sorted(json.dumps({k: x for k, x in v.items() if k != "time"}) for v in verdicts)


def test_oracle_gives_the_expected_verdicts(case: Case) -> None:
    judged = facts(semantics.judge(case.program.file, case.program.name, case.events))
    assert judged == facts(outcome(case))


def outcome(case: Case) -> semantics.Outcome:
    """Return the expected outcome in the oracle's form."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [v for v in case.verdicts if v["verdict"] == kind]

    def scope(v: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple(v["scope"].items())

    def steps(v: dict[str, Any]) -> tuple[tuple[str, Dot], ...]:
        bound = {Dot.parse(d): step for step, dots in v["bindings"].items() for d in dots}
        order = [Dot.parse(d) for d in v["events"]] if "events" in v else list(bound)
        return tuple((bound[dot], dot) for dot in order)

    counts = case.counts
    return semantics.Outcome(
        matches=[(scope(v), steps(v), v.get("return")) for v in of("match")],
        violations=[
            (scope(v), Dot.parse(v["event"]), tuple(v["expected"])) for v in of("violation")
        ],
        incomplete=[(scope(v), tuple(v["expected"])) for v in of("incomplete")],
        timed_out=[(scope(v), steps(v)) for v in of("timed_out")],
        unscoped=counts["unscoped"],
        untimed=counts["untimed"],
        halted=counts["halted"],
    )


def test_every_case_has_exactly_its_three_files() -> None:
    for name in CASES:
        assert sorted(f.name for f in (CORPUS / name).iterdir()) == [
            "events.jsonl",
            "expected.jsonl",
            "pattern.ketal",
        ]


def update_ids() -> None:
    """Write the current ids into cases that differ in ids only."""
    for name in CASES:
        case = Case(name)
        path = CORPUS / name / "expected.jsonl"
        *lines, last = path.read_text().splitlines()
        current = [v.to_dict() for v in ketal.run(case.program, case.log)]
        for at, (old, new) in enumerate(zip(case.verdicts, current, strict=True)):
            assert old | {"id": new["id"]} == new, f"{name}: {new}"
            lines[at] = lines[at].replace(old["id"], new["id"])
        path.write_text("\n".join([*lines, last, ""]))


if __name__ == "__main__":
    update_ids()
