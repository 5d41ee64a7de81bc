"""Compares the verdicts of the patterns with the faults that the checker reports, in seeded runs.

    python -m ketal.replicated_stack.tables --runs 200

The one rule: a run is wrong if the checker reports a fault, whatever bug is enabled.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import ketal
from ketal.replicated_stack import checker
from ketal.replicated_stack.cluster import RunPlan, run
from ketal.replicated_stack.node import Bug

PATTERNS = Path(__file__).with_name("protocol.ketal")
PATTERN_OF = {
    Bug.EARLY_DELIVERY: "Dependencies",
    Bug.APPLIES_WHEN_OFF: "Session",
    Bug.OLD_SESSION: "OldSession",
    Bug.EARLY_ACKNOWLEDGEMENT: "AcknowledgedFirst",
    Bug.LOST_UPDATE: "LostUpdate",
    Bug.STALE_COPY: "StaleCopy",
}
"""The pattern that finds each bug."""
ALSO_FOUND_BY = {Bug.EARLY_DELIVERY: "CausalDelivery", Bug.APPLIES_WHEN_OFF: "Session",
        Bug.OLD_SESSION: "Session"}  # fmt: skip
"""Another pattern that may find a bug, but not in every run."""
SESSION_BUGS = (Bug.APPLIES_WHEN_OFF, Bug.OLD_SESSION)


def recorded_log(folder: Path) -> ketal.Log:
    """Return the log of the run that was recorded in a folder."""
    return ketal.read_log(*sorted(folder.glob("*.jsonl")))


def events_of(folder: Path) -> list[ketal.Event]:
    """Return the events of the run that was recorded in a folder."""
    return list(recorded_log(folder))


def shuffled_arrival(events: Iterable[ketal.Event], rng: random.Random) -> list[ketal.Event]:
    """Return events in a possible order of arrival, which keeps the order of each node."""
    lines: dict[str, list[ketal.Event]] = {}
    for event in sorted(events, key=lambda event: event.counter, reverse=True):
        lines.setdefault(event.node, []).append(event)
    nodes = [node for node, line in sorted(lines.items()) for _ in line]
    rng.shuffle(nodes)
    return [lines[node].pop() for node in nodes]


def protocol(*, causal: bool = True, causal_order: bool = True) -> ketal.Program:
    """Return the patterns of the protocol, with or without the paper's operators of Fig. 12."""
    text = PATTERNS.read_text()
    if not causal:
        text = re.sub(r"Causal\((\w+), (?:A|all)\)", r"\1", text)
    if not causal_order:
        text = text.replace("order CausalOrder;", "order arrival;")
    return ketal.compile(text)


def patterns_found(program: ketal.Program, events: Sequence[ketal.Event]) -> set[str]:
    """Return the names of the patterns with a match or a violation."""
    result = ketal.run(program, events)
    return {verdict.pattern for verdict in (*result.matches, *result.violations)}


class Tables:
    """The two tables of the example's README; `runs` seeds are run for each bug."""

    def __init__(self, runs: int, first_seed: int = 0) -> None:
        self._seeds = range(first_seed, first_seed + runs)
        self.bugs: dict[Bug, Counter[str]] = {bug: Counter() for bug in Bug}
        self.operators: dict[tuple[bool, bool], Counter[str]] = {
            (causal, order): Counter() for causal in (True, False) for order in (True, False)
        }

    def run(self) -> None:
        """Run all seeds, and count the results."""
        patterns = protocol()
        sessions = {
            (causal, order): protocol(causal=causal, causal_order=order).only(["Session"])
            for causal, order in self.operators
        }
        for bug, counts in self.bugs.items():
            for seed in self._seeds:
                folder = Path(tempfile.mkdtemp(prefix="ketal-stack-"))
                run(RunPlan(seed, bug), folder)
                faults = set(checker.faults_of(folder))
                wrong = {PATTERN_OF[one] for one in faults}
                also = {ALSO_FOUND_BY[one] for one in faults & ALSO_FOUND_BY.keys()}
                events = shuffled_arrival(events_of(folder), random.Random(seed))
                reported = patterns_found(patterns, events)
                counts["runs"] += 1
                counts["wrong"] += bool(wrong)
                counts["found"] += bool(wrong) and wrong <= reported
                counts["false"] += bool(reported - wrong - also)
                if bug is Bug.NONE or bug in SESSION_BUGS:
                    for key, program in sessions.items():
                        stray = not faults.isdisjoint(SESSION_BUGS)
                        self._compare(key, stray, bool(patterns_found(program, events)))
                shutil.rmtree(folder)

    def _compare(self, key: tuple[bool, bool], wrong: bool, found: bool) -> None:
        counts = self.operators[key]
        counts["wrong" if wrong else "right"] += 1
        counts["missed"] += wrong and not found
        counts["false"] += found and not wrong

    def text(self) -> str:
        """Return the tables in Markdown."""
        lines = [
            "| bug | runs | wrong, according to the checker | of these, found | false alarms |",
            "|---|---|---|---|---|",
        ]
        for bug, n in self.bugs.items():
            lines.append(
                f"| {bug.value} | {n['runs']} | {n['wrong']} | {n['found']} | {n['false']} |"
            )
        lines += [
            "",
            "| `Causal` | `CausalOrder` | false alarms, of right runs | misses, of wrong runs |",
            "|---|---|---|---|",
        ]
        for (causal, order), n in self.operators.items():
            lines.append(
                f"| {'on' if causal else 'off'} | {'on' if order else 'off'} "
                f"| {n['false']} of {n['right']} | {n['missed']} of {n['wrong']} |"
            )
        return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=200, help="seeds per bug (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    args = parser.parse_args()
    tables = Tables(args.runs, args.seed)
    tables.run()
    print(tables.text())


if __name__ == "__main__":
    main()
