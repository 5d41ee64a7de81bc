"""The table of the README: all rows and those that they are compared with, in one run.

Run by hand: `make bench BENCH=table`, or `python -m benchmarks.table`; `--quick` takes a tenth of
the events and one run, `--only TEXT` the groups whose names contain it, `--no-peers` leaves Java
out. A full run writes its table into README.md, between two comments; others only print it.
docs/benchmarks.md describes the works and the columns.

The one rule: a row and those that it is compared with are measured alternately in the same run.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from benchmarks.kafka_rows import kafka
from benchmarks.measuring import WARM_EVENTS, Measured, warm_up
from benchmarks.peer import VERSIONS, java_version
from benchmarks.rows import GROUPS, AtLeast, AtMost, Bench, Goal, Group, GrowsBy, Row, soak
from benchmarks.works import PlainFunction
from ketal.cli.process_state import COLLECT_AFTER
from ketal.engine import pattern_run

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- benchmarks: written by `make bench` -->"
END = "<!-- benchmarks: end -->"
RUNS = 5
WARM_S = 10.0
WARM_PEER_S = 30.0
"""The longest warm-up, for works that do not process a million events in that time."""
PEERS = ("Esper", "Siddhi", "Flink")
DONE: Final = PlainFunction(int, 0)
"""In place of the work of a measured row, whose events are not kept."""


@dataclass
class Results:
    """The measurements so far."""

    rows: dict[str, Row] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def update(self, others: Results) -> None:
        """Add the measurements of other rows."""
        self.rows |= others.rows
        self.measured |= others.measured
        self.faults |= others.faults

    def value(self, row: Row, goal: Goal) -> float:
        """Return the value that a goal bounds: a rate, a time, or their ratio to another row's."""
        one = self.measured[row.name]
        if isinstance(goal, GrowsBy):
            return one.runs[-1].growth
        if not goal.of:
            return one.rate if isinstance(goal, AtLeast) else one.core_s
        other = self.measured[goal.of]
        return one.rate / other.rate if isinstance(goal, AtLeast) else other.rate / one.rate

    def reached(self, row: Row, goal: Goal) -> bool:
        """Return whether a goal is reached, with a complete and correct result."""
        value = self.value(row, goal)
        well = value >= goal.value if isinstance(goal, AtLeast) else value <= goal.value
        return well and row.name not in self.faults


def measure(group: Group, bench: Bench, runs: int) -> Results:
    """Measure the rows of a group alternately."""
    results = Results()
    with ExitStack() as stack:
        bench.stack = stack
        rows = list(group(bench))
        gc.collect()
        gc.freeze()
        for row in rows:
            results.rows[row.name] = replace(row, work=DONE)
            found = row.work.inspect()
            expected = row.expected
            if found is not None and found.fault:
                results.faults[row.name] = found.fault
            elif found is not None and expected is not None and expected.differs(found):
                results.faults[row.name] = f"{found.matches:,} matches of {expected.matches:,}"
            results.measured[row.name] = warm_up(
                row.work,
                events=0 if bench.quick or row.once else WARM_EVENTS,
                seconds=WARM_PEER_S if row.peer else WARM_S,
            )
        for turn in range(runs):
            for row in rows:
                if not (turn and row.once):
                    results.measured[row.name].runs.append(row.work.run())
        for row in rows:
            print(line(row, results), flush=True)
    return results


def measure_apart(group: Group, bench: Bench, runs: int) -> Results:
    """Measure a group in a process of its own.

    Otherwise its rates would depend on what the groups before it have left in memory.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(measure, group, bench, runs).result()


# --- output -------------------------------------------------------------------------


def short_rate(value: float) -> str:
    """Return a rate with three significant digits, as `1.13M`."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            digits = 2 if value < 9.995 * size else 1 if value < 99.95 * size else 0
            return f"{value / size:.{digits}f}{unit}"
    return f"{value:.0f}"


def goal_text(goal: Goal) -> str:
    """Return a goal in words."""
    match goal:
        case GrowsBy(share):
            return f"memory grows by ≤ {share:.0%}"
        case AtLeast(rate, ""):
            return f"≥ {short_rate(rate)}/s"
        case AtMost(seconds, ""):
            return f"≤ {seconds:g} s"
        case AtLeast(value, of):
            return f"≥ {value:.0%} of *{of}*" if value < 1 else f"≥ {value:g}x *{of}*"
        case AtMost(value, of):
            return f"≤ {value:g}x the time of *{of}*"


def value_text(goal: Goal, value: float) -> str:
    """Return the measured value of a goal as text."""
    match goal:
        case GrowsBy():
            return f"{value:.2%}"
        case AtLeast(_, ""):
            return f"{short_rate(value)}/s"
        case AtMost(_, ""):
            return f"{value:.3f} s"
        case AtLeast(least, _) if least < 1:
            return f"{value:.0%}"
        case _:
            return f"{value:.2f}x"


def line(row: Row, results: Results) -> str:
    """Return a row in plain text."""
    one = results.measured[row.name]
    last = one.runs[-1]
    parts = [f"{row.name}: {one.rate:,.0f} {row.unit}/s of a core, {one.clock_rate:,.0f}/s"]
    parts += [f"{last.matches:,} matches"] if last.matches else []
    parts += [f"warm after {one.warm_events:,} events"] if one.warm_events else []
    for goal in row.goals:
        state = "reached" if results.reached(row, goal) else "NOT REACHED"
        parts.append(f"{value_text(goal, results.value(row, goal))} ({goal_text(goal)}: {state})")
    parts += [results.faults[row.name]] if row.name in results.faults else []
    return "; ".join(parts)


def table(rows: Iterable[Row], results: Results) -> list[str]:
    """Return the Markdown table of the rows of ketal."""
    out = [
        "| work | rate of a core | by the clock | goal | measured | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.peer:
            continue
        one = results.measured[row.name]
        unit = "" if row.unit == "events" else f" {row.unit}"
        cells = [
            row.name,
            f"{short_rate(one.rate)}{unit}/s",
            f"{short_rate(one.clock_rate)}{unit}/s",
        ]
        goals = "<br>".join(map(goal_text, row.goals)) or "–"
        values = "<br>".join(value_text(g, results.value(row, g)) for g in row.goals) or "–"
        states = ["yes" if results.reached(row, goal) else "**no**" for goal in row.goals]
        state = "<br>".join(states)
        if row.name in results.faults:
            state = f"{state} {results.faults[row.name]}".strip()
        out.append(f"| {' | '.join([*cells, goals, values, state])} |")
    return out


def peer_table(rows: Iterable[Row], results: Results) -> list[str]:
    """Return the Markdown table of the peers: rates per CPU second, and by the clock."""
    beside: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.peer:
            beside.setdefault(row.beside, {})[row.peer] = row
    out = [
        f"| work | ketal | {' | '.join(PEERS)} | matches |",
        f"|---|---|{'---|' * len(PEERS)}---|",
    ]
    for name, peers in beside.items():
        ours = results.measured[name]
        cells = [name, f"{short_rate(ours.rate)} ({short_rate(ours.clock_rate)})"]
        for peer in PEERS:
            if peer not in peers:
                cells.append("–")
                continue
            theirs = results.measured[peers[peer].name]
            times = ours.rate / theirs.rate
            cells.append(
                f"{short_rate(theirs.rate)} ({short_rate(theirs.clock_rate)}), {times:.2g}x"
            )
        wrong = [
            f"{p}: {results.faults[r.name]}" for p, r in peers.items() if r.name in results.faults
        ]
        cells.append("**" + "; ".join(wrong) + "**" if wrong else "equal")
        out.append(f"| {' | '.join(cells)} |")
    return out if beside else []


def is_interpreted() -> bool:
    """Return whether the engine is Python source, not a compiled extension (`make compiled`)."""
    return Path(str(pattern_run.__file__)).suffix == ".py"


def machine(bench: Bench, runs: int, minutes: float) -> str:
    """Return one line with the date, the machine and the versions."""
    cpu = platform.processor() or "unknown"
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            cpu = text.partition(":")[2].strip()
            break
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=README.parent, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    parts = [
        f"{datetime.now(UTC):%Y-%m-%d}, ketal {version('ketal')} at {commit or 'no commit'}",
        f"{cpu}, {len(os.sched_getaffinity(0))} cores, load {load} at the end",
        f"{platform.python_implementation()} {platform.python_version()}",
        f"ketal {'interpreted' if is_interpreted() else 'compiled'}",
        f"msgspec {version('msgspec')}",
    ]
    if bench.peers:
        parts.append(java_version())
        parts += [f"{name} {number}" for name, number in VERSIONS.items()]
    parts.append(f"{runs} runs, median; {minutes:.0f} minutes")
    return "; ".join(parts) + "."


def write_table(readme: Path, lines: Iterable[str]) -> None:
    """Replace the text between the two comments of a page."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{readme} has no place for the table: {BEGIN} … {END}")
    readme.write_text("\n".join([before + BEGIN, *lines, END]) + after, encoding="utf-8")


def report(bench: Bench, results: Results, runs: int, minutes: float) -> list[str]:
    """Return the tables in Markdown."""
    rows = list(results.rows.values())
    goals = [(row, goal) for row in rows for goal in row.goals]
    reached = sum(results.reached(*each) for each in goals)
    peers = peer_table(rows, results)
    return [
        "",
        machine(bench, runs, minutes),
        f"{reached} of {len(goals)} goals reached.",
        "",
        *table(rows, results),
        "",
        *([*peers, ""] if peers else []),
    ]


def select_groups(groups: Mapping[str, Group], only: str) -> dict[str, Group]:
    """Return the groups whose names contain a text."""
    some = {name: group for name, group in groups.items() if only in name}
    if not some:
        raise SystemExit(f"no group is called {only!r}; there are {', '.join(groups)}")
    return some


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table")
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, one run")
    parser.add_argument("--only", default="", metavar="TEXT", help="groups whose names contain it")
    parser.add_argument("--no-peers", action="store_true", help="without Esper, Flink and Siddhi")
    parser.add_argument("--soak", action="store_true", help="the soak row too, 20 million events")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each (default {RUNS})")
    args = parser.parse_args()
    runs = 1 if args.quick else args.runs
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    begun = time.monotonic()
    results = Results()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), quick=args.quick, peers=not args.no_peers)
        groups = {**GROUPS, "kafka": kafka, **({"soak": soak} if args.soak else {})}
        for title, group in select_groups(groups, args.only).items():
            print(f"--- {title}", flush=True)
            results.update(measure_apart(group, bench, runs))
        lines = report(bench, results, runs, (time.monotonic() - begun) / 60)
    print("\n".join(lines))
    if not args.quick and not args.only and not args.no_peers:
        write_table(README, lines)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
