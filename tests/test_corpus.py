"""The corpus: `tests/corpus/CASE/{pattern.ketal, events.jsonl, expected.jsonl}`.

What is expected is what `ketal.run` says, a verdict a line and then the summary,
checked by hand against the language's rules. Each case goes through `ketal.run`, the
oracle, and a Monitor with and without snapshot and restore after every event.

`python -m tests.test_corpus` writes the ids anew, after a change of the fingerprint
or of an id's formula; it refuses a case of which anything else has changed.
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
from ketal.operators.causal_order import canonical
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


def test_there_are_cases_of_every_kind() -> None:
    assert len(CASES) >= 15
    kinds = {v["verdict"] for name in CASES for v in Case(name).verdicts}
    assert kinds == {"match", "violation", "incomplete", "timed_out"}


def test_run(case: Case) -> None:
    verdicts = ketal.run(case.program, case.log)
    assert [v.to_dict() for v in verdicts] == case.verdicts
    assert verdicts.summary == case.summary


def fed(case: Case, events: list[Event], *, restoring: bool) -> list[dict[str, Any]]:
    monitor = ketal.Monitor(case.program)
    said = []
    for event in events:
        said += monitor.feed(event)
        validate(monitor._execution)
        if restoring:
            monitor = ketal.Monitor.restore(case.program, monitor.snapshot())
            validate(monitor._execution)
    said += monitor.close()
    assert not monitor.held_back()
    name = case.program.name
    assert monitor.summary["patterns"][name] == case.summary["patterns"][name]
    return [v.to_dict() for v in said]


@pytest.mark.parametrize("restoring", [False, True], ids=["plain", "snapshot-restore"])
def test_monitor(case: Case, restoring: bool) -> None:
    """In the order in which `run` offers the events the verdicts are those of `run`."""
    offered = canonical(case.events) if case.compiled.causal else case.events
    assert fed(case, offered, restoring=restoring) == case.verdicts


def any_order(name: str) -> bool:
    """Return whether no order in which events arrive is part of the answer."""
    compiled = Case(name).compiled
    return compiled.order_independent and compiled.kind == "find"


@pytest.mark.parametrize("name", [name for name in CASES if any_order(name)])
@pytest.mark.parametrize("restoring", [False, True], ids=["plain", "snapshot-restore"])
def test_monitor_in_the_order_of_the_file(name: str, restoring: bool) -> None:
    """An order-independent `find` says the same, whatever arrives first."""
    case = Case(name)
    said = fed(case, case.events, restoring=restoring)
    assert without_time(said) == without_time(case.verdicts)


def without_time(verdicts: list[dict[str, Any]]) -> list[str]:
    """Return verdicts sorted; the time of a match is that of the event that came last."""
    return sorted(json.dumps({k: x for k, x in v.items() if k != "time"}) for v in verdicts)


def test_oracle(case: Case) -> None:
    said = facts(semantics.judge(case.program.file, case.program.name, case.events))
    assert said == facts(outcome(case))


def outcome(case: Case) -> semantics.Outcome:
    """Return what is expected in the oracle's terms."""

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


def test_no_case_is_left_unused() -> None:
    for name in CASES:
        assert sorted(f.name for f in (CORPUS / name).iterdir()) == [
            "events.jsonl",
            "expected.jsonl",
            "pattern.ketal",
        ]


def renew_ids() -> None:
    """Write the ids that the verdicts have now, in cases that are right but for them."""
    for name in CASES:
        case = Case(name)
        path = CORPUS / name / "expected.jsonl"
        *lines, last = path.read_text().splitlines()
        said = [v.to_dict() for v in ketal.run(case.program, case.log)]
        for at, (old, new) in enumerate(zip(case.verdicts, said, strict=True)):
            assert old | {"id": new["id"]} == new, f"{name}: {new}"
            lines[at] = lines[at].replace(old["id"], new["id"])
        path.write_text("\n".join([*lines, last, ""]))


if __name__ == "__main__":
    renew_ids()
