"""Runs the replicated stack: `python -m ketal.replicated_stack --bug NAME --seed 3 FOLDER`.

The one rule: the folder then has a log and a history for each process; patterns are not run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ketal.replicated_stack import checker
from ketal.replicated_stack.cluster import RunPlan, run
from ketal.replicated_stack.node import Bug


def main() -> None:
    """Run the stack, and print the faults that the checker reports."""
    parser = argparse.ArgumentParser(prog="python -m ketal.replicated_stack")
    parser.add_argument("folder", type=Path, help="the folder for the logs; it is created")
    parser.add_argument("--bug", choices=[bug.value for bug in Bug], default=Bug.NONE.value)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=14, help="how many steps each node takes")
    args = parser.parse_args()
    run(RunPlan(args.seed, Bug(args.bug), args.nodes, args.steps), args.folder)
    faults = checker.faults_of(args.folder)
    for bug, sentences in faults.items():
        print(
            f"{bug.value}: {sentences[0]}"
            + (f" (and {len(sentences) - 1} more)" * (len(sentences) > 1))
        )
    print("faults found" if faults else "no faults found")


if __name__ == "__main__":
    main()
